/* policy_loss. The tokens are cut in spans, a function of their number alone, each of which is a task. A sequence that lies in more
 * than one span is joined from its pieces in their order. First the tokens that count are counted and each piece's log ratios added
 * up, then the losses are made. At sequence level a last walk adds what a gradient has of the sequence's rho. */
#include "cpu/policy_loss.h"

enum {
  SPANS = TIGON_CPU_TASKS, /* at most */
  SPAN_TOKENS = 2048,      /* at least: less is done sooner than a thread begins */
  BLOCK = 256,             /* tokens that are worked on at once, in the first cache */
  SUM_LANES = 16,          /* f64 sums side by side, whatever the variant's vectors have */
};

/* What the tokens of a piece that count add up to. */
typedef struct piece {
  int64_t counted;
  double log_ratio, shared; /* as tigon_policy_sequence has them */
} piece;

/* head: of a sequence that has the span's first token, tail: of one that begins later and goes on in the next span. What lies in
 * the span as a whole is neither. */
typedef struct span {
  int64_t counted;
  piece head, tail;
  tigon_policy_sums sums;
} span;

typedef struct job {
  const problem *p;
  int64_t width, counted; /* tokens of a span; that count, or 1 */
  float entropy_slope;
  span *of;
} job;

/* ---- sums ---- */

typedef struct lanes {
  double of[SUM_LANES];
} lanes;
/* x has zeros up to the next multiple of SUM_LANES. */
static void add_lanes(lanes *to, const float *x, int n) {
  lanes sum = *to;
  for (int i = 0; i < n; i += SUM_LANES)
    for (int lane = 0; lane < SUM_LANES; ++lane) sum.of[lane] += (double)x[i + lane];
  *to = sum;
}
static double sum_lanes(const lanes *from) {
  double sum = 0;
  for (int lane = 0; lane < SUM_LANES; ++lane) sum += from->of[lane];
  return sum;
}

/* One copy per dtype, so that compilers make vectors of it. */
#define FIND_COVER(type)                                                     \
  for (int i = 0; i < n; ++i) {                                              \
    const int64_t value = ((const type *)mask.of.data)[t + i];               \
    const bool within = value >= 0 && value < mask.limit;                    \
    const int counts = value != mask.ignored && (within || mask.limit == 0); \
    cover[i] = (float)counts;                                                \
    counted += counts;                                                       \
  }
/* cover[i] = 1 where token t + i counts, else 0, which is also what follows the n ones. */
static int64_t find_cover(const problem *p, int64_t t, int n, float cover[BLOCK]) {
  const tigon_counted mask = p->mask;
  int counted = mask.of.data ? 0 : n;
  if (!mask.of.data)
    for (int i = 0; i < n; ++i) cover[i] = 1;
  else if (mask.of.dtype == TIGON_I64)
    FIND_COVER(int64_t)
  else
    FIND_COVER(int32_t)
  for (int i = n; i % SUM_LANES; ++i) cover[i] = 0;
  return counted;
}

/* ---- tokens [t, t + n) of one sequence, n <= BLOCK ---- */

TIGON_INLINE int lanes_left(int n, int c) { return n - c < 0 ? 0 : n - c < LANES ? n - c : LANES; }
TIGON_INLINE vf load(const float *x, int n) { return n == LANES ? vf_load(x) : vf_load_n(x, n); }
TIGON_INLINE void put(float *x, vf v, int n) {
  if (n == LANES)
    vf_store(x, v);
  else
    vf_store_n(x, v, n);
}

static void add_ratios(const problem *p, int64_t t, int n, const float *cover, lanes *to) {
  const bool vespo = p->kind == TIGON_POLICY_VESPO;
  float ratios[BLOCK], logs[BLOCK];
  for (int c = 0; c < n || c % SUM_LANES; c += LANES) {
    const int left = lanes_left(n, c);
    const vm none = vf_eq(vf_load(cover + c), vf_zero());
    vf x = vf_zero();
    if (p->old) x = vf_sub(load(p->logprob + t + c, left), load(p->old + t + c, left));
    if (vespo) x = within(x, -20, 20);
    vf_store(ratios + c, vf_select(none, vf_zero(), x));
    if (!vespo || !p->ratio || !p->token_ratio) continue;
    const vf log = vf_log(within(load(p->ratio + t + c, left), 1e-8f, 485165195.0f));
    vf_store(logs + c, vf_select(none, vf_zero(), log));
  }
  add_lanes(to, ratios, n);
  if (vespo && p->ratio && p->token_ratio) add_lanes(to, logs, n);
}

/* What the tokens of a sequence share, and their sums. */
typedef struct walk {
  const job *j;
  int64_t s;
  tigon_policy_sequence at;
  vespo v;
  lanes loss, shared, kl, ratio, entropy;
  int64_t low, high;
} walk;

typedef struct buffers {
  float cover[BLOCK], loss[BLOCK], shared[BLOCK], kl[BLOCK], ratio[BLOCK], entropy[BLOCK];
} buffers;

TIGON_INLINE token token_at(family f, const walk *w, int64_t t, int n) {
  const problem *p = w->j->p;
  token x = {.l = load(p->logprob + t, n), .rho = vf_set(1.0f), .c = vf_set(1.0f), .d = vf_zero()};
  x.a = p->token_advantage ? load(p->advantage + t, n) : vf_set(p->advantage[w->s]);
  if (p->ratio) x.c = p->token_ratio ? load(p->ratio + t, n) : vf_set(p->ratio[w->s]);
  if (p->ref) x.d = vf_sub(load(p->ref + t, n), x.l);
  if (of_sequences(f, p))
    x.rho = vf_set(w->at.ratio);
  else if (p->old)
    x.rho = vf_exp_all(vf_sub(x.l, load(p->old + t, n)));
  return x;
}

TIGON_INLINE void visit(family f, walk *w, buffers *b, int64_t t, int n) {
  const problem *p = w->j->p;
  const vf zero = vf_zero(), slope = vf_set(w->at.slope), entropy_slope = vf_set(w->j->entropy_slope);
  vf low = zero, high = zero;
  for (int c = 0; c < n || c % SUM_LANES; c += LANES) {
    const int left = lanes_left(n, c);
    const vm none = vf_eq(vf_load(b->cover + c), zero);
    const token x = token_at(f, w, t + c, left);
    const result made = loss_of(f, p, &w->v, x);
    const vf loss = vf_select(none, zero, made.loss);
    low = vf_add(low, vf_select(none, zero, made.low));
    high = vf_add(high, vf_select(none, zero, made.high));
    vf_store(b->loss + c, loss);
    vf_store(b->shared + c, vf_select(none, zero, made.shared));
    vf_store(b->kl + c, vf_select(none, zero, made.kl));
    vf_store(b->ratio + c, vf_select(none, zero, x.rho));
    if (p->entropy) vf_store(b->entropy + c, vf_select(none, zero, load(p->entropy + t + c, left)));
    if (p->token_loss) put(p->token_loss + t + c, loss, left);
    if (p->dlogprob) put(p->dlogprob + t + c, vf_select(none, zero, vf_mul(slope, made.own)), left);
    if (p->dentropy) put(p->dentropy + t + c, vf_select(none, zero, entropy_slope), left);
  }
  w->low += (int64_t)vf_sum(low), w->high += (int64_t)vf_sum(high);
  add_lanes(&w->loss, b->loss, n);
  if (tigon_policy_shares(p)) add_lanes(&w->shared, b->shared, n);
  if (p->kl) add_lanes(&w->kl, b->kl, n);
  if (p->mean_ratio) add_lanes(&w->ratio, b->ratio, n);
  if (p->entropy) add_lanes(&w->entropy, b->entropy, n);
}

/* ---- pieces: tokens [begin, end) of one sequence ---- */

TIGON_INLINE int block_of(int64_t t, int64_t end) { return (int)(end - t < BLOCK ? end - t : BLOCK); }

static piece add_piece(const job *j, int64_t begin, int64_t end) {
  float cover[BLOCK];
  lanes ratios = {{0}};
  piece made = {0, 0, 0};
  for (int64_t t = begin; t < end; t += BLOCK) {
    const int n = block_of(t, end);
    made.counted += find_cover(j->p, t, n, cover);
    if (tigon_policy_adds_ratios(j->p)) add_ratios(j->p, t, n, cover, &ratios);
  }
  made.log_ratio = sum_lanes(&ratios);
  return made;
}

/* Adds to the span's sums, and gives what the tokens have of the sequence's rho. */
static double visit_piece(const job *j, const tigon_policy_sequence *at, int64_t s, int64_t begin, int64_t end,
                          tigon_policy_sums *sums) {
  const family f = family_of(j->p);
  walk w = {.j = j, .s = s, .at = *at};
  buffers b;
  if (f == FAMILY_VESPO) w.v = vespo_of(j->p, at->ratio);
  for (int64_t t = begin; t < end; t += BLOCK) {
    const int n = block_of(t, end);
    find_cover(j->p, t, n, b.cover);
    switch (f) {
      case FAMILY_CISPO: visit(FAMILY_CISPO, &w, &b, t, n); break;
      case FAMILY_SAPO: visit(FAMILY_SAPO, &w, &b, t, n); break;
      case FAMILY_VESPO: visit(FAMILY_VESPO, &w, &b, t, n); break;
      default: visit(FAMILY_CLIP, &w, &b, t, n); break;
    }
  }
  sums->loss += (double)at->weight * sum_lanes(&w.loss);
  sums->kl += sum_lanes(&w.kl);
  sums->ratio += sum_lanes(&w.ratio);
  sums->entropy += sum_lanes(&w.entropy);
  sums->low += w.low, sums->high += w.high;
  return sum_lanes(&w.shared);
}

static void share_piece(const job *j, const tigon_policy_sequence *at, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) tigon_policy_share(j->p, at, t);
}

/* ---- spans ---- */

/* The sequence's first token, and the one after its last. */
static tigon_span tokens_of(const problem *p, int64_t s) {
  return tigon_sequence_span(p->segments, p->length, p->sequences, p->tokens, s, NULL);
}

/* The first sequence that has a token after `token` - 1. */
static int64_t sequence_of(const problem *p, int64_t token) {
  int64_t low = 0, high = p->sequences;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (tokens_of(p, middle).end > token)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* A piece of span `index`, and its sequence. */
typedef struct part {
  tigon_policy_sequence at;
  int64_t s, begin, end;
  bool whole;
  piece *kept; /* where its sums stand, if it is not whole */
} part;
static part part_of(const job *j, int64_t index, int64_t s) {
  const int64_t first = index * j->width, last = first + j->width;
  part x = {.at = tigon_policy_sequence_at(j->p, s), .s = s};
  x.begin = x.at.begin < first ? first : x.at.begin;
  x.end = x.at.end > last ? last : x.at.end;
  x.whole = x.begin == x.at.begin && x.end == x.at.end;
  x.kept = x.at.begin > first ? &j->of[index].tail : &j->of[index].head;
  return x;
}
#define FOR_PARTS(x, j, index)                                                                \
  for (int64_t s = sequence_of((j)->p, (index) * (j)->width);                                 \
       s < (j)->p->sequences && tokens_of((j)->p, s).begin < ((index) + 1) * (j)->width; ++s) \
    for (part x = part_of(j, index, s), *once = &x; once; once = NULL)

/* The whole sequence, from this span alone or from all that have a piece of it. `losses`: have all been visited? */
static void know(const job *j, part *x, bool losses) {
  piece all = {0, 0, 0};
  if (x->whole) all = add_piece(j, x->begin, x->end);
  for (int64_t i = x->at.begin / j->width; !x->whole && i * j->width < x->at.end; ++i) {
    const piece *of = part_of(j, i, x->s).kept;
    all.counted += of->counted;
    all.log_ratio += of->log_ratio;
    if (losses) all.shared += of->shared;
  }
  x->at.counted = all.counted;
  x->at.log_ratio = all.log_ratio, x->at.shared = all.shared;
  tigon_policy_weigh(j->p, x->s, j->counted, &x->at);
}

static void count(const void *argument, int64_t index) {
  const job *j = argument;
  const int64_t begin = index * j->width, end = begin + j->width < j->p->tokens ? begin + j->width : j->p->tokens;
  float cover[BLOCK];
  for (int64_t t = begin; t < end; t += BLOCK) j->of[index].counted += find_cover(j->p, t, block_of(t, end), cover);
  FOR_PARTS(x, j, index) if (!x.whole) *x.kept = add_piece(j, x.begin, x.end);
}

static void lose(const void *argument, int64_t index) {
  const job *j = argument;
  const bool shares = tigon_policy_shares(j->p);
  FOR_PARTS(x, j, index) {
    know(j, &x, false);
    x.at.shared = visit_piece(j, &x.at, s, x.begin, x.end, &j->of[index].sums);
    if (!x.whole)
      x.kept->shared = x.at.shared;
    else if (shares)
      share_piece(j, &x.at, x.begin, x.end);
  }
}

static void share(const void *argument, int64_t index) {
  const job *j = argument;
  FOR_PARTS(x, j, index) {
    if (x.whole) continue;
    know(j, &x, true);
    share_piece(j, &x.at, x.begin, x.end);
  }
}

tigon_status TIGON_CPU(policy_loss_fwd)(tigon_queue *queue, const problem *p) {
  const int64_t least = (p->tokens + SPANS - 1) / SPANS, width = least < SPAN_TOKENS ? SPAN_TOKENS : least;
  const int64_t spans = (p->tokens + width - 1) / width, bytes = p->tokens * 16;
  span of[SPANS] = {{0}};
  job j = {.p = p, .width = width, .of = of};
  tigon_policy_sums sums = {0};
  tigon_cpu_parallel_bytes(queue, spans, bytes, count, &j);
  for (int64_t i = 0; i < spans; ++i) j.counted += of[i].counted;
  if (j.counted == 0) j.counted = 1;
  j.entropy_slope = tigon_policy_entropy_slope(p, j.counted);
  tigon_cpu_parallel_bytes(queue, spans, bytes, lose, &j);
  if (tigon_policy_shares(p)) tigon_cpu_parallel_bytes(queue, spans, bytes, share, &j);
  if (queue->record) return TIGON_OK;
  for (int64_t i = 0; i < spans; ++i) {
    sums.loss += of[i].sums.loss;
    sums.kl += of[i].sums.kl, sums.ratio += of[i].sums.ratio, sums.entropy += of[i].sums.entropy;
    sums.low += of[i].sums.low, sums.high += of[i].sums.high;
  }
  tigon_policy_finish(p, j.counted, &sums);
  return TIGON_OK;
}
