/* preference_loss: one block, on the scalar pipe. A batch has some hundred numbers, and a launch costs more than they do. Sums are
 * numbers of two floats, in the order of the pairs or sequences. */
#include "ascend/kernel/formulas.h"

#include "ascend/kernel/preference_loss.h"
#include "core/preference_loss.h"

enum { BATCH = 256 }; /* pairs or sequences */

/* A batch's sequences: its chosen or only ones, and in `second` the rejected ones. */
typedef struct side {
  ub_f32 logps, ref, counts, rewards, dlogps;
} side;

typedef struct state {
  const preference_loss_arguments *a;
  tigon_preference_loss_fwd_problem p; /* its numbers alone */
  side of[2];
  ub_f32 labels, shift, pair_loss, number;
  float scale;
  twofold loss, reward[2], nll, nll_tokens; /* reward: of the rejected, of the chosen */
  int64_t right, chosen;
} state;

AICORE side open_side(ub_arena *ub) {
  side s;
  s.logps = ub_alloc_f32(ub, BATCH);
  s.ref = ub_alloc_f32(ub, BATCH);
  s.counts = ub_alloc_f32(ub, 2 * BATCH);
  s.rewards = ub_alloc_f32(ub, BATCH);
  s.dlogps = ub_alloc_f32(ub, BATCH);
  return s;
}

AICORE state open_state(ub_arena *ub, const preference_loss_arguments *a) {
  state s = {.a = a};
  s.p.kind = (tigon_preference_kind)a->kind;
  s.p.beta = a->beta, s.p.label_smoothing = a->label_smoothing, s.p.gamma = a->gamma, s.p.tau = a->tau;
  s.p.weight[0] = a->weight[0], s.p.weight[1] = a->weight[1];
  for (int i = 0; i < 2; ++i) s.of[i] = open_side(ub);
  s.labels = ub_alloc_f32(ub, 2 * BATCH);
  s.shift = ub_alloc_f32(ub, BATCH);
  s.pair_loss = ub_alloc_f32(ub, BATCH);
  s.number = ub_alloc_f32(ub, 8);
  if (a->shifts <= 1) s_write_f32(s.shift, 0, load_number(s.number, a->shift, 0, 0));
  float denominator = load_number(s.number, a->denominator, 0, 0);
  s.p.items = a->items;
  if (a->denominator) s.p.denominator = &denominator;
  s.scale = tigon_preference_scale(&s.p);
  s.p.denominator = NULL;
  return s;
}

AICORE int64_t tokens_at(int64_t dtype, ub_f32 counts, int64_t i) {
  const int64_t count = s_read_index(dtype, counts, i);
  return count > 0 ? count : 0;
}

AICORE void load_side(const state *s, const side *x, int64_t first, int64_t n) {
  load_words(x->logps, s->a->logps, first, n, 1);
  load_words(x->ref, s->a->ref, first, n, 1);
  load_words(x->counts, s->a->counts, first, n, index_words(s->a->counts_dtype));
}
AICORE void store_side(const state *s, const side *x, int64_t first, int64_t n) {
  store_array(s->a->rewards, x->rewards, first, n);
  store_array(s->a->dlogps, x->dlogps, first, n);
}

AICORE tigon_preference_sequence sequence_at(const state *s, const side *x, int64_t i) {
  tigon_preference_sequence at = {0, 1, true};
  if (s->a->counts) {
    const int64_t tokens = tokens_at(s->a->counts_dtype, x->counts, i);
    at.counts = tokens > 0;
    at.count = (float)tokens;
  }
  if (at.counts) at.l = (s_read_f32(x->logps, i) - (s->a->ref ? s_read_f32(x->ref, i) : 0)) / at.count;
  return at;
}

AICORE float put_sequence(const state *s, const side *x, int64_t i, const tigon_preference_sequence *of,
                          float derivative) {
  const float reward = s->a->beta * of->l;
  s_write_f32(x->rewards, i, reward);
  s_write_f32(x->dlogps, i, of->counts ? derivative * (s->a->beta * s->scale) / of->count : 0);
  return reward;
}

AICORE void item(state *s, int64_t i) {
  const float shift = s_read_f32(s->shift, s->a->shifts > 1 ? i : 0);
  const tigon_preference_sequence first = sequence_at(s, &s->of[0], i);
  tigon_preference made;
  if (tigon_preference_of_pairs(&s->p)) {
    const tigon_preference_sequence second = sequence_at(s, &s->of[1], i);
    made = tigon_preference_of_pair(&s->p, &first, &second, shift);
    const float reward = put_sequence(s, &s->of[0], i, &first, made.chosen);
    const float other = put_sequence(s, &s->of[1], i, &second, made.rejected);
    s->reward[0] = twofold_add(s->reward[0], other);
    s->reward[1] = twofold_add(s->reward[1], reward);
    s->right += reward > other;
    ++s->chosen;
  } else {
    const bool desirable = s_read_index(s->a->labels_dtype, s->labels, i) != 0;
    made = tigon_preference_of_one(&s->p, &first, desirable, shift);
    const float reward = put_sequence(s, &s->of[0], i, &first, made.chosen);
    s->reward[desirable] = twofold_add(s->reward[desirable], reward);
    s->right += desirable ? reward > 0 : reward < 0;
    s->chosen += desirable;
  }
  s_write_f32(s->pair_loss, i, made.loss);
  s->loss = twofold_add(s->loss, made.loss);
}

AICORE void batch(state *s, int64_t first, int64_t n) {
  const bool pairs = tigon_preference_of_pairs(&s->p);
  loads_after_scalar();
  load_side(s, &s->of[0], first, n);
  if (pairs) load_side(s, &s->of[1], s->a->items + first, n);
  if (s->a->shifts > 1) load_words(s->shift, s->a->shift, first, n, 1);
  load_words(s->labels, s->a->labels, first, n, index_words(s->a->labels_dtype));
  scalar_after_loads();
  for (int64_t i = 0; i < n; ++i) item(s, i);
  stores_after_scalar();
  store_side(s, &s->of[0], first, n);
  if (pairs) store_side(s, &s->of[1], s->a->items + first, n);
  store_array(s->a->pair_loss, s->pair_loss, first, n);
  scalar_after_stores();
}

/* The sums of the NLL, or `scale` where there are tokens. */
AICORE void nll_batch(state *s, int64_t first, int64_t n, bool sums, float scale) {
  const side *x = &s->of[0];
  loads_after_scalar();
  load_words(x->logps, s->a->nll_logps, first, n, 1);
  load_words(x->counts, s->a->nll_counts, first, n, index_words(s->a->nll_dtype));
  scalar_after_loads();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t tokens = tokens_at(s->a->nll_dtype, x->counts, i);
    if (!sums)
      s_write_f32(x->dlogps, i, tokens > 0 ? -scale : 0);
    else if (tokens > 0)
      s->nll = twofold_add(s->nll, s_read_f32(x->logps, i)),
      s->nll_tokens = twofold_sum(s->nll_tokens, twofold_count(tokens));
  }
  if (sums) return;
  stores_after_scalar();
  store_array(s->a->dnll_logps, x->dlogps, first, n);
  scalar_after_stores();
}

AICORE twofold mean_of(twofold sum, int64_t count) {
  return count > 0 ? twofold_mul(sum, reciprocal(twofold_count(count))) : (twofold){0, 0};
}
AICORE twofold minus(twofold x) { return (twofold){-x.hi, -x.lo}; }

AICORE_KERNEL(preference_loss, preference_loss_arguments) {
  state s = open_state(ub, a);
  for (int64_t i = 0; i < a->items; i += BATCH) batch(&s, i, least(BATCH, a->items - i));
  for (int64_t i = 0; i < a->nll_sequences; i += BATCH) nll_batch(&s, i, least(BATCH, a->nll_sequences - i), true, 0);
  const twofold tokens = s.nll_tokens.hi > 0 ? s.nll_tokens : (twofold){1, 0};
  const twofold by = twofold_times(reciprocal(tokens), a->nll_weight);
  for (int64_t i = 0; a->dnll_logps && i < a->nll_sequences; i += BATCH)
    nll_batch(&s, i, least(BATCH, a->nll_sequences - i), false, by.hi);
  twofold loss = twofold_times(s.loss, s.scale);
  if (a->nll_logps) loss = twofold_sum(loss, minus(twofold_mul(by, s.nll)));
  const int64_t others = tigon_preference_of_pairs(&s.p) ? s.chosen : a->items - s.chosen;
  store_number(a->loss, s.number, loss.hi);
  store_number(a->accuracy, s.number, mean_of(twofold_count(s.right), a->items).hi);
  store_number(a->margin, s.number,
               twofold_sum(mean_of(s.reward[1], s.chosen), minus(mean_of(s.reward[0], others))).hi);
}
