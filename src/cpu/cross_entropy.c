#include <string.h>

#include "core/labels.h"
#include "cpu/cross_entropy.h"

/* What does not change within a call. */
typedef struct job {
  const problem *p;
  bool backward, stream;
  bool plain; /* a logit is its x */
  int64_t tasks;
  double weight_sum; /* sum over all classes */
} job;

/* ---- one row ---- */

/* What dlogits gets of a unit of the row's entropy, over its slope. */
static double entropy_scale(const problem *p, int64_t r) {
  return (double)p->entropy_scale * (double)p->inverse_temperature * (p->dentropy ? (double)p->dentropy[r] : 1);
}

/* s: the sums of forward, NULL in backward. */
TIGON_INLINE void gradient_row(tigon_dtype dtype, const job *j, int64_t r, int64_t label, double lse, const row_sums *s,
                               const char *far) {
  const problem *p = j->p;
  const void *x = tigon_row(&p->space, &p->logits, tigon_dtype_size(dtype), r);
  void *out = tigon_row(&p->space, &p->dlogits, tigon_dtype_size(dtype), r);
  if (label < 0) {
    if (out) memset(out, 0, (size_t)p->cols * tigon_dtype_size(dtype));
    return;
  }
  const double smoothing = (double)p->label_smoothing, w = p->weight ? (double)p->weight[label] : 1;
  const double spread = smoothing / (double)tigon_cross_entropy_smoothed(p);
  const int64_t at = label - p->panel_begin; /* the label's column, if it is here */
  const bool here = at >= 0 && at < p->cols;
  const double x_label = here ? (double)s_load(x, at, dtype) : 0;
  double by = (double)p->grad_scale * (double)*p->inverse * (double)p->inverse_temperature;
  if (p->dloss) by *= (double)p->dloss[p->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (p->token_scale) by *= (double)p->token_scale[r];
  /* the label's own column in f64: a p near 1 from expm1, so that p - 1 keeps its digits; a small one without the 1, so that a
   * huge factor leaves `minus` its own */
  const double cap = (double)p->softcap, minus = (1 - smoothing) * w + (smoothing != 0 ? spread * w : 0);
  double factor = (1 - smoothing) * w;
  if (smoothing != 0) factor += spread * j->weight_sum;
  if (p->lse_square_scale != 0) factor += 2 * (double)p->lse_square_scale * w * lse;
  const double bend = cap > 0 ? cosh(x_label * (double)p->inverse_temperature / cap) : 1;
  const double log_p = logit_f64(p, x_label) - lse;
  const double terms = log_p < -1 ? factor * exp(log_p) - minus : factor * expm1(log_p) + (factor - minus);
  double own = by / (bend * bend) * terms;

  const bool finite = s && isfinite(lse);
  const double by_entropy = entropy_scale(p, r), mean = s ? s->moment / s->sum : 0; /* the mean of z - reference */
  if (by_entropy != 0) {
    const double probability = exp(log_p), entropy = s ? log(s->sum) - mean : (double)p->entropy[r];
    own -= by_entropy / (bend * bend) * probability * ((probability == 0 ? 0 : log_p) + entropy);
  }
  const float scale = (float)(finite ? by * factor / s->sum : by * factor);
  const float entropy = (float)(finite ? by_entropy / s->sum : by_entropy);
  const float largest = fmaxf(fabsf(scale), fabsf(entropy));
  float low = exp_low;
  if (largest < 1 && largest != 0) low -= logf(largest); /* no denormal products either */
  const gradient g = {
      .minus_reference = vf_set(-(finite ? s->reference : away_from_0((float)lse))),
      .scale = vf_set(scale),
      .entropy_scale = vf_set(entropy),
      .entropy = vf_set(finite            ? (float)-mean
                        : s               ? NAN
                        : by_entropy != 0 ? p->entropy[r]
                                          : 0),
      .share = vf_set((float)(by * spread)),
      .low = vf_set(low),
      .weight = p->weight && smoothing != 0 ? p->weight + p->panel_begin : NULL,
  };
  if (by_entropy != 0)
    gradient_sweep(dtype, ENTROPY, p, &g, x, out, far, j->stream);
  else if (!j->plain)
    gradient_sweep(dtype, GENERAL, p, &g, x, out, far, j->stream);
  else if (smoothing != 0)
    gradient_sweep(dtype, PLAIN_SMOOTH, p, &g, x, out, far, j->stream);
  else
    gradient_sweep(dtype, PLAIN, p, &g, x, out, far, j->stream);
  if (here) tigon_store_f64(out, at, dtype, own);
}

static void store_row(const job *j, int64_t r, int64_t label, double lse, double x_label, const row_sums *s) {
  const problem *p = j->p;
  double loss = 0, z_loss = 0, entropy = 0;
  if (label >= 0) {
    const double w = p->weight ? (double)p->weight[label] : 1, smoothing = (double)p->label_smoothing;
    const double scale = p->token_scale ? (double)p->token_scale[r] : 1;
    entropy = isfinite(lse) ? log(s->sum) - s->moment / s->sum : (double)NAN;
    loss = (1 - smoothing) * w * (lse - logit_f64(p, x_label));
    if (smoothing != 0) loss += smoothing / (double)p->cols * (j->weight_sum * lse - s->weighted);
    if (p->lse_square_scale != 0) z_loss = w * (double)p->lse_square_scale * lse * lse;
    loss = scale * (loss + z_loss);
    z_loss *= scale;
  }
  p->token_loss[r] = (float)(p->negated ? 0 - loss : loss);
  if (p->lse) p->lse[r] = (float)lse;
  if (p->z_loss) p->z_loss[r] = (float)z_loss;
  if (p->entropy) p->entropy[r] = (float)entropy;
}

/* The sums to the largest logit, as f32 has it, in place of the reference. */
static void store_stats(const problem *p, int64_t r, int64_t label, double lse, double y, const row_sums *s) {
  const bool finite = isfinite(lse), counts = label >= 0;
  const float m = (float)(finite ? logit_f64(p, (double)s->largest) : lse), none = isnan(lse) ? NAN : 0;
  const double shift = (double)s->reference - (double)m, factor = finite ? exp(shift) : 0;
  float *to = p->stats + r * TIGON_VOCAB_STATS;
  to[0] = m;
  to[1] = finite ? (float)(s->sum * factor) : none;
  to[2] = 0;
  if (counts && p->entropy_scale != 0) to[2] = finite ? (float)((s->moment + s->sum * shift) * factor) : none;
  to[3] = counts && p->label_smoothing != 0 ? (float)s->weighted : 0;
  to[4] = (float)y;
}

/* next: the row that is worked on after this one. */
TIGON_INLINE void forward_row(tigon_dtype dtype, const job *j, int64_t r, int64_t label, const char *next) {
  const problem *p = j->p;
  const void *x = tigon_row(&p->space, &p->logits, tigon_dtype_size(dtype), r);
  const bool more = label >= 0 && (p->entropy || p->entropy_scale != 0 || p->label_smoothing != 0);
  row_sums s = {.largest = -INFINITY};
  double lse = 0;
  if (p->argmax) p->argmax[r] = -1;
  if (label >= 0 || p->lse || p->stats) {
    if (j->plain) {
      if (more)
        sweep(dtype, true, true, p, x, &s);
      else
        sweep(dtype, true, false, p, x, &s);
    } else {
      sweep(dtype, false, true, p, x, &s);
    }
    lse = finish(dtype, p, x, &s, label >= 0 && p->argmax ? &p->argmax[r] : NULL);
  }
  const int64_t at = label - p->panel_begin; /* the label's column, if it is here */
  const bool here = label >= 0 && at >= 0 && at < p->cols;
  const double x_label = here ? (double)s_load(x, at, dtype) : 0;
  if (p->stats) {
    store_stats(p, r, label, lse, here ? logit_f64(p, x_label) : 0, &s);
    return;
  }
  store_row(j, r, label, lse, x_label, &s);
  if (p->dlogits.data) gradient_row(dtype, j, r, label, lse, &s, next);
}

TIGON_INLINE void rows(tigon_dtype dtype, const job *j, int64_t begin, int64_t end) {
  const problem *p = j->p;
  const size_t size = dtype == TIGON_F32 ? 4 : 2;
  const bool cached = p->cols * (int64_t)size <= ROW_IN_CACHE;
  for (int64_t r = begin; r < end; ++r) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(p, r, &out_of_range);
    const char *x = tigon_row(&p->space, &p->logits, size, r);
    if (j->backward)
      gradient_row(dtype, j, r, label, (double)p->lse[r], NULL, x + FAR);
    else
      forward_row(dtype, j, r, label, cached && r + 1 < end ? tigon_row(&p->space, &p->logits, size, r + 1) : x);
  }
  if (j->stream) vf_fence();
}

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  int64_t begin, end;
  tigon_range(j->p->space.rows, j->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(j->p->dtype, rows, j, begin, end);
}

/* ---- what needs all rows ---- */

static void count(const problem *p) {
  double denominator = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(p, r, &out_of_range);
    if (out_of_range && p->error_flag) *p->error_flag = 1;
    if (label >= 0) denominator += p->weight ? (double)p->weight[label] : 1;
  }
  if (p->denominator) denominator = (double)*p->denominator;
  *p->inverse = p->reduction != TIGON_REDUCTION_MEAN ? 1 : denominator == 0 ? 0 : (float)(1 / denominator);
}

static void reduce(const problem *p) {
  double sum = 0;
  int64_t correct = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(p, r, &out_of_range);
    sum += (double)p->token_loss[r];
    correct += p->correct && label >= 0 && p->argmax[r] == label;
  }
  if (p->loss) *p->loss = (float)(sum * (double)*p->inverse);
  if (p->correct) *p->correct = correct;
}

static void run(const tigon_queue *queue, const problem *p, bool backward) {
  const bool reads = !queue->record; /* what a recorder is not told of */
  if (reads && (p->parts & TIGON_CROSS_ENTROPY_COUNT)) count(p);
  if ((p->parts & TIGON_CROSS_ENTROPY_ROWS) && (p->cols > 0 || !backward)) {
    const int64_t row_bytes = p->cols * (int64_t)tigon_dtype_size(p->dtype) * (p->dlogits.data ? 2 : 1);
    const bool apart = p->dlogits.data && p->dlogits.data != p->logits.data;
    job j = {.p = p,
             .backward = backward,
             .stream = apart && tigon_cpu_streams(p->space.rows * row_bytes),
             .plain = p->softcap == 0 && p->inverse_temperature == 1,
             .tasks = tigon_cpu_row_tasks(p->space.rows, row_bytes),
             .weight_sum = (double)tigon_cross_entropy_smoothed(p)};
    if (p->weight && p->label_smoothing != 0) {
      j.weight_sum = 0;
      for (int64_t v = 0; reads && v < tigon_cross_entropy_vocab(p); ++v) j.weight_sum += (double)p->weight[v];
    }
    tigon_cpu_parallel(queue, j.tasks, task, &j);
  }
  if (reads && !backward && (p->parts & TIGON_CROSS_ENTROPY_REDUCE)) reduce(p);
}

tigon_status TIGON_CPU(cross_entropy_fwd)(tigon_queue *queue, const problem *p) {
  run(queue, p, false);
  return TIGON_OK;
}

tigon_status TIGON_CPU(cross_entropy_bwd)(tigon_queue *queue, const problem *p) {
  run(queue, p, true);
  return TIGON_OK;
}
