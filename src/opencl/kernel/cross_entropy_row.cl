/* A row of cross_entropy: its sums, its outputs, and what makes its gradient. */
#include "loss.cl"
#include "cross_entropy.h"

/* A call's memory; NULL: absent. */
typedef struct tensors {
  memory logits, labels, weight, token_scale, dloss, dentropy, lse, token_loss, z_loss, entropy, argmax, stats, dlogits;
  pair weight_sum;
  float inverse;
} tensors;

/* A row at work. */
typedef struct row {
  long r, label, column; /* label -1: it does not count; column: the label's, -1: it is not here */
  long from, to;         /* where logits and dlogits begin */
  float weight;          /* the label's */
  one_logit label_logit;
} row;

static inline row row_at(const cross_entropy_numbers *k, const tensors *t, long r) {
  bool out_of_range;
  row w = {.r = r, .label = label_at(&k->rule, t->labels, r, &out_of_range), .column = -1, .weight = 1};
  w.from = row_offset(&k->space, &k->logits, r);
  w.to = t->dlogits ? row_offset(&k->space, &k->dlogits, r) : 0;
  const long column = w.label - k->panel_begin;
  if (w.label >= 0 && column >= 0 && column < k->cols) w.column = column;
  if (w.label >= 0) w.weight = float_or(t->weight, w.label, 1);
  w.label_logit = logit_of(&k->map, w.column >= 0 ? load_one(t->logits, w.from + w.column, T) : 0);
  return w;
}

static inline bool has_entropy_gradient(const cross_entropy_numbers *k) { return k->entropy_scale.high != 0; }

/* ---- the first largest x, where a NaN is larger than any number ---- */

static inline place earlier(place a, place b) { return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a; }
#if GROUP == 1
#define row_earliest(v) (v)
#else
TREE(tree_earliest, place, place, earlier)
#define row_earliest(v) tree_earliest(space, v)
#endif
/* The first NaN's column; `otherwise` without one. */
static inline long first_nan(memory logits, long from, long cols, long otherwise) {
  for (long i = 0; i < cols; ++i)
    if (isnan(load_one(logits, from + i, T))) return i;
  return otherwise;
}

/* ---- sums ---- */

typedef struct sums {
  exponentials of;
  vpair weighted; /* sums of weight * z */
  long batches;   /* columns that were added in batches, from the first one on */
} sums;

/* The sweep over `cols` columns of a row; forward alone has it. */
static inline sums sum_row(const cross_entropy_numbers *k, const tensors *t, const row *w, long cols) {
  const bool moment = t->entropy || has_entropy_gradient(k), weighs = k->smoothing != 0;
  int turn = 0;
  const long batches = IS_ALONE && k->map.cap == 0 && !weighs ? cols / (BATCH * LANES) * (BATCH * LANES) : 0;
  sums s = {no_exponentials(&k->map), lanes_none(), batches};
  for (long i = 0; i < batches; i += BATCH * LANES, turn += BATCH) {
    vf x[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; ++j) {
      x[j] = load_all(t->logits, w->from + i + j * LANES, T);
      ask_for(t->logits, w->from + i + (64 + j) * LANES, T);
    }
    add_batch(&k->map, &s.of, x, turn, moment);
  }
  FOR_ROW(i, n, cols - batches) {
    const vf x = load_n(t->logits, w->from + batches + i, T, n);
    ask_for(t->logits, w->from + batches + i + 64 * LANES, T);
    const vi here = first_lanes(n);
    add_exponentials(&k->map, &s.of, x, turn++, n >= LANES, here, moment);
    if (!weighs) continue;
    const vf z = first_or(capped(&k->map, x) * k->map.times, n, 0);
    s.weighted = lanes_add(s.weighted, t->weight ? z * load_n(t->weight, i, F32, n) : z);
  }
  return s;
}

/* A work-item's; LONG_MAX without columns. */
static inline place earliest_of(const tensors *t, const row *w, const sums *s, long cols) {
  float value[LANES];
  int turn[LANES];
  store_floats(s->of.largest, 0, value);
  PASTE(vstore, LANES)(s->of.turn, 0, turn);
  place best = {-INFINITY, LONG_MAX};
  for (int j = 0; j < LANES; ++j) {
    long at = ((long)turn[j] * GROUP + row_lane()) * LANES + j;
    if (at < s->batches)
      for (int b = 1; b < BATCH && load_one(t->logits, w->from + at, T) != value[j]; ++b) at += LANES;
    if (at < cols) best = earlier(best, (place){value[j], at});
  }
  return best;
}

/* ---- outputs ---- */

/* A shard's stats: sums to the logit of the largest x, as f32 has it, in place of the reference. */
static inline void store_stats(const cross_entropy_numbers *k, const tensors *t, const row *w,
                               const row_exponentials *e) {
  const bool finite = isfinite(e->lse.high), counts = w->label >= 0;
  const float m = finite ? e->top : e->lse.high, none = isnan(m) ? NAN : 0, shift = e->reference - m;
  const float factor = exp_one(shift);
  const pair moment = wide_times(wide_sum(e->moment, wide_times(e->sum, shift)), factor);
  const long at = w->r * STAT_WORDS;
  put_float(t->stats, at + STAT_M, m);
  put_float(t->stats, at + STAT_S, finite ? wide_times(e->sum, factor).high : none);
  put_float(t->stats, at + STAT_W, !counts || !has_entropy_gradient(k) ? 0 : finite ? moment.high : none);
  put_float(t->stats, at + STAT_U, counts && k->smoothing != 0 ? e->other.high : 0);
  put_float(t->stats, at + STAT_Y, w->column >= 0 ? w->label_logit.z.high : 0);
}

/* By one work-item. */
static inline void store_losses(const cross_entropy_numbers *k, const tensors *t, const row *w,
                                const row_exponentials *e) {
  pair loss = one_float(0), z_loss = loss;
  float entropy = 0;
  if (w->label >= 0) {
    const pair apart = wide_difference(e->lse, w->label_logit.z);
    const float scale = float_or(t->token_scale, w->r, 1);
    entropy = isfinite(e->lse.high) ? wide_difference(e->log_sum, wide_mul(e->moment, wide_inverse(e->sum))).high : NAN;
    loss = wide_mul(wide_times(apart, w->weight), k->keep);
    if (k->smoothing != 0)
      loss = wide_sum(loss, wide_mul(wide_difference(wide_mul(e->lse, t->weight_sum), e->other), k->share));
    if (k->lse_square != 0) z_loss = wide_times(wide_times(wide_mul(e->lse, e->lse), k->lse_square), w->weight);
    loss = wide_times(wide_sum(loss, z_loss), scale);
    z_loss = wide_times(z_loss, scale);
  }
  put_float(t->lse, w->r, e->lse.high);
  put_float(t->token_loss, w->r, k->negated ? 0 - loss.high : loss.high);
  put_float(t->z_loss, w->r, z_loss.high);
  put_float(t->entropy, w->r, entropy);
}
