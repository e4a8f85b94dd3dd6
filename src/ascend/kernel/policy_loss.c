/* policy_loss on the scalar pipe: each block has a range of sequences, and one block joins in their order what they leave. A token has
 * many branches and a few numbers, of which no vector instruction makes a select. Sums are numbers of two floats. */
#include "ascend/kernel/policy_loss.h"

#include "ascend/kernel/formulas.h"
#include "core/policy_loss.h"

enum { BATCH = 256 }; /* tokens */

typedef struct state {
  const policy_loss_arguments *a;
  tigon_policy_loss_fwd_problem p; /* its numbers alone */
  tigon_policy_values of;          /* a token's */
  ub_f32 logprob, advantage, old, ref, ratio, entropy, mask;
  ub_f32 token_loss, dlogprob, dentropy, number;
  float dloss, entropy_slope;
  twofold counted;
  twofold loss, kl, sum_entropy, sum_ratio;
  int64_t low, high, error;
} state;

/* A sequence: `made` has what the formulas of a token read. */
typedef struct sequence {
  tigon_policy_sequence made;
  int64_t s;
  twofold log_ratio, shared;
  float advantage, ratio;
} sequence;

AICORE void open_problem(state *s) {
  const policy_loss_arguments *a = s->a;
  tigon_policy_loss_fwd_problem *p = &s->p;
  p->kind = (tigon_policy_kind)a->kind;
  p->sequence_level = a->sequence_level != 0;
  p->kl_bias_corrected = a->kl_bias_corrected != 0;
  s->of.has_old = a->old != 0, s->of.has_ref = a->ref != 0, s->of.has_ratio = a->ratio != 0;
  p->eps_low = a->eps_low, p->eps_high = a->eps_high, p->delta = a->delta;
  p->kl_weight = a->kl_weight;
  for (int i = 0; i < 2; ++i) p->tau[i] = a->tau[i], p->k[i] = a->k[i], p->lambda[i] = a->lambda[i];
}

/* How many tokens count, or 1. */
AICORE twofold load_counted(ub_f32 number, gm_ptr counted, int64_t blocks, int64_t tokens) {
  twofold sum = counted ? (twofold){0, 0} : twofold_count(tokens);
  for (int64_t i = 0; counted && i < blocks; ++i) {
    loads_after_scalar();
    load_f32(number, counted + i * TOTAL_WORDS * 4, 1, TOTAL_WORDS);
    scalar_after_loads();
    sum = twofold_sum(sum, s_read_total(number, 1));
  }
  return sum.hi > 0 ? sum : (twofold){1, 0};
}

AICORE void open_state(state *s, ub_arena *ub) {
  const policy_loss_arguments *a = s->a;
  open_problem(s);
  ub_f32 *arrays[] = {&s->logprob, &s->advantage,  &s->old,      &s->ref,     &s->ratio,
                      &s->entropy, &s->token_loss, &s->dlogprob, &s->dentropy};
  for (int i = 0; i < 9; ++i) *arrays[i] = ub_alloc_f32(ub, BATCH);
  s->mask = ub_alloc_f32(ub, 2 * BATCH);
  s->number = ub_alloc_f32(ub, POLICY_WORDS);
  s->counted = load_counted(s->number, a->counted, a->count_blocks, a->of.tokens);
  s->dloss = load_number(s->number, a->dloss, 0, 1);
  s->entropy_slope = -twofold_times(reciprocal(s->counted), a->entropy_weight).hi * s->dloss;
}

/* ---- a sequence ---- */

AICORE sequence sequence_at(state *s, int64_t index) {
  const policy_loss_arguments *a = s->a;
  const token_span span = span_of(&a->of, s->number, index, &s->error);
  sequence at = {.s = index};
  at.made.begin = span.begin;
  at.made.end = span.end;
  at.made.ratio = 1;
  if (!a->token_advantage) at.advantage = load_number(s->number, a->advantage, index, 0);
  if (!a->token_ratio) at.ratio = load_number(s->number, a->ratio, index, 0);
  return at;
}

AICORE bool counts(const state *s, int64_t i) { return token_counts(&s->a->of, s->mask, i); }

/* Tokens [first, first + n). Only `all` has what a loss needs besides the ratio. */
AICORE void load_tokens(const state *s, int64_t first, int64_t n, bool all) {
  const policy_loss_arguments *a = s->a;
  loads_after_scalar();
  load_words(s->mask, a->of.mask, first, n, index_words(a->of.rule.dtype));
  load_words(s->logprob, a->logprob, first, n, 1);
  load_words(s->old, a->old, first, n, 1);
  if (a->token_ratio) load_words(s->ratio, a->ratio, first, n, 1);
  if (all && a->token_advantage) load_words(s->advantage, a->advantage, first, n, 1);
  if (all) load_words(s->ref, a->ref, first, n, 1);
  if (all) load_words(s->entropy, a->entropy, first, n, 1);
  scalar_after_loads();
}

/* As policy_add() of src/cuda/policy_loss.cu. */
AICORE void add_token(const state *s, int64_t i, sequence *to) {
  const bool vespo = s->a->kind == TIGON_POLICY_VESPO;
  float x = s->a->old ? s_read_f32(s->logprob, i) - s_read_f32(s->old, i) : 0;
  if (!counts(s, i)) return;
  ++to->made.counted;
  if (vespo) x = tigon_policy_within(x, -20, 20);
  if (vespo && s->a->ratio && s->a->token_ratio)
    to->log_ratio = twofold_add(to->log_ratio, tigon_policy_log_ratio(s_read_f32(s->ratio, i)));
  to->log_ratio = twofold_add(to->log_ratio, x);
}

/* As tigon_policy_weigh(). */
AICORE void weigh(const state *s, sequence *at) {
  const policy_loss_arguments *a = s->a;
  const tigon_policy_kind kind = s->p.kind;
  const twofold own = twofold_count(at->made.counted > 0 ? at->made.counted : 1);
  twofold d = tigon_policy_of_tokens((int)kind) ? s->counted : twofold_count(a->of.count);
  if (a->denominator) {
    const float given = load_number(s->number, a->denominator, 0, 1);
    d = (twofold){given < 1 ? 1 : given, 0};
  }
  if (kind == TIGON_POLICY_GRPO || kind == TIGON_POLICY_SAPO) d = twofold_mul(d, own);
  if (kind == TIGON_POLICY_DR_GRPO) d = twofold_mul(d, a->max_length);
  if (kind == TIGON_POLICY_LUSPO && !a->sequence_level) d = twofold_mul(d, twofold_mul(a->max_length, reciprocal(own)));
  at->made.weight = reciprocal(d).hi;
  at->made.slope = at->made.weight * s->dloss;
  if (kind == TIGON_POLICY_VESPO) {
    if (a->ratio && !a->token_ratio) at->log_ratio = twofold_add(at->log_ratio, tigon_policy_log_ratio(at->ratio));
    at->made.ratio = tigon_policy_within(at->log_ratio.hi, -18.420681f, 20);
  } else {
    at->made.ratio = s_exp(twofold_mul(at->log_ratio, reciprocal(own)).hi);
  }
}

/* As policy_visit() of src/cuda/policy_loss.cu. */
AICORE void visit(state *s, int64_t i, sequence *of) {
  const policy_loss_arguments *a = s->a;
  tigon_policy_token made = {0, 0, 0, 0, 0, false, false};
  const bool there = counts(s, i);
  if (there) {
    s->of.logprob = s_read_f32(s->logprob, i);
    s->of.advantage = a->token_advantage ? s_read_f32(s->advantage, i) : of->advantage;
    if (a->old) s->of.old = s_read_f32(s->old, i);
    if (a->ref) s->of.ref = s_read_f32(s->ref, i);
    s->of.ratio = a->token_ratio && a->ratio ? s_read_f32(s->ratio, i) : of->ratio;
    made = tigon_policy_token_of(&s->p, &s->of, of->made.ratio);
    if (a->entropy) s->sum_entropy = twofold_add(s->sum_entropy, s_read_f32(s->entropy, i));
  }
  s_write_f32(s->token_loss, i, made.loss);
  s_write_f32(s->dlogprob, i, there ? of->made.slope * made.own : 0);
  s_write_f32(s->dentropy, i, there ? s->entropy_slope : 0);
  of->shared = twofold_add(of->shared, made.shared);
  s->loss = twofold_sum(s->loss, twofold_times((twofold){made.loss, 0}, there ? of->made.weight : 0));
  s->kl = twofold_add(s->kl, made.kl);
  s->sum_ratio = twofold_add(s->sum_ratio, made.ratio);
  s->low += made.low, s->high += made.high;
}

AICORE void lose_tokens(state *s, int64_t first, int64_t n, sequence *of) {
  const policy_loss_arguments *a = s->a;
  load_tokens(s, first, n, true);
  for (int64_t i = 0; i < n; ++i) visit(s, i, of);
  stores_after_scalar();
  store_array(a->token_loss, s->token_loss, first, n);
  store_array(a->dlogprob, s->dlogprob, first, n);
  store_array(a->dentropy, s->dentropy, first, n);
  scalar_after_stores();
}

/* Adds to each gradient what it has of the sequence's ratio. */
AICORE void share_tokens(state *s, int64_t first, int64_t n, float part) {
  loads_after_scalar();
  load_words(s->mask, s->a->of.mask, first, n, index_words(s->a->of.rule.dtype));
  load_words(s->dlogprob, s->a->dlogprob, first, n, 1);
  scalar_after_loads();
  for (int64_t i = 0; i < n; ++i)
    if (counts(s, i)) s_write_f32(s->dlogprob, i, s_read_f32(s->dlogprob, i) + part);
  stores_after_scalar();
  store_array(s->a->dlogprob, s->dlogprob, first, n);
  scalar_after_stores();
}

AICORE void one_sequence(state *s, int64_t index) {
  const policy_loss_arguments *a = s->a;
  sequence at = sequence_at(s, index);
  const int64_t end = at.made.end;
  for (int64_t t = at.made.begin; t < end; t += BATCH) {
    const int64_t n = least(BATCH, end - t);
    load_tokens(s, t, n, false);
    for (int64_t i = 0; i < n; ++i) add_token(s, i, &at);
  }
  weigh(s, &at);
  for (int64_t t = at.made.begin; t < end; t += BATCH) lose_tokens(s, t, least(BATCH, end - t), &at);
  if (!a->dlogprob || !a->sequence_level || a->kind == TIGON_POLICY_VESPO || at.made.counted == 0) return;
  const float part = at.made.slope * twofold_mul(at.shared, reciprocal(twofold_count(at.made.counted))).hi;
  for (int64_t t = at.made.begin; t < end; t += BATCH) share_tokens(s, t, least(BATCH, end - t), part);
}

AICORE void write_twofold(ub_f32 words, int64_t at, twofold x) {
  s_write_f32(words, at, x.hi);
  s_write_f32(words, at + 1, x.lo);
}

AICORE_KERNEL(policy_loss, policy_loss_arguments) {
  state s = {.a = a};
  open_state(&s, ub);
  const int64_t end = range_begin(a->of.count, block_count(), block_index() + 1);
  for (int64_t i = range_begin(a->of.count, block_count(), block_index()); i < end; ++i) one_sequence(&s, i);
  write_twofold(s.number, POLICY_LOSS, s.loss);
  write_twofold(s.number, POLICY_KL, s.kl);
  write_twofold(s.number, POLICY_ENTROPY, s.sum_entropy);
  write_twofold(s.number, POLICY_RATIO, s.sum_ratio);
  s_write_i32(s.number, POLICY_LOW, (int32_t)s.low);
  s_write_i32(s.number, POLICY_HIGH, (int32_t)s.high);
  s_write_i32(s.number, POLICY_ERROR, (int32_t)s.error);
  stores_after_scalar();
  store_f32(a->totals + block_index() * POLICY_WORDS * 4, s.number, 1, POLICY_ERROR + 1);
}

/* ---- the numbers of the whole call ---- */

AICORE twofold read_twofold(ub_f32 words, int64_t at) {
  return (twofold){s_read_f32(words, at), s_read_f32(words, at + 1)};
}

AICORE_KERNEL(policy_loss_join, policy_loss_join_arguments) {
  const ub_f32 words = ub_alloc_f32(ub, POLICY_WORDS);
  const twofold share = reciprocal(load_counted(words, a->counted, a->count_blocks, a->tokens));
  twofold loss = {0, 0}, kl = {0, 0}, entropy = {0, 0}, ratio = {0, 0};
  int64_t low = 0, high = 0, error = 0;
  for (int64_t i = 0; i < a->blocks; ++i) {
    loads_after_scalar();
    load_f32(words, a->totals + i * POLICY_WORDS * 4, 1, POLICY_ERROR + 1);
    scalar_after_loads();
    loss = twofold_sum(loss, read_twofold(words, POLICY_LOSS));
    kl = twofold_sum(kl, read_twofold(words, POLICY_KL));
    entropy = twofold_sum(entropy, read_twofold(words, POLICY_ENTROPY));
    ratio = twofold_sum(ratio, read_twofold(words, POLICY_RATIO));
    low += s_read_i32(words, POLICY_LOW), high += s_read_i32(words, POLICY_HIGH);
    error |= s_read_i32(words, POLICY_ERROR);
  }
  entropy = twofold_mul(entropy, share);
  if (a->entropy_weight != 0) loss = twofold_sum(loss, twofold_times(entropy, -a->entropy_weight));
  store_number(a->loss, words, loss.hi);
  store_number(a->kl, words, twofold_mul(kl, share).hi);
  store_number(a->clip_low, words, twofold_mul(twofold_count(low), share).hi);
  store_number(a->clip_high, words, twofold_mul(twofold_count(high), share).hi);
  store_number(a->mean_entropy, words, entropy.hi);
  store_number(a->mean_ratio, words, twofold_mul(ratio, share).hi);
  if (!a->error || !error) return;
  s_write_i32(words, 0, 1);
  stores_after_scalar();
  store_f32(a->error, words, 1, 1);
}
