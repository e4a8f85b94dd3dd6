/* A row is read for its largest logits, for the sums of their exponentials, for the divergence's terms and for the
 * gradient; a cache holds it meanwhile. */
#include "cpu/divergence.h"

#include <string.h>

#include "core/labels.h"

typedef struct job {
  const problem *p;
  bool backward;
  int64_t tasks;
} job;

/* What backward knows of a row: as the oracle's. */
typedef struct row_stats {
  double input, target, mean;
} row_stats;

/* ---- sweeps over a row ---- */

/* The largest element, or the largest in absolute value; NaN does not count. */
TIGON_INLINE float largest(tigon_dtype dtype, const void *row, int64_t cols, bool absolute) {
  vf most = vf_set(absolute ? 0 : -INFINITY);
  int64_t c = 0;
  for (; c + LANES <= cols; c += LANES) {
    const vf x = v_load(row, c, dtype);
    most = vf_max(absolute ? vf_abs(x) : x, most);
  }
  float all = vf_max_across(most);
  for (; c < cols; ++c) {
    const float x = s_load(row, c, dtype), of = absolute ? fabsf(x) : x;
    if (of > all) all = of;
  }
  return all;
}

static bool has_nan(tigon_dtype dtype, const void *row, int64_t cols) {
  for (int64_t c = 0; c < cols; ++c) {
    const float x = s_load(row, c, dtype);
    if (x != x) return true;
  }
  return false;
}

/* Calls body(c, n) for each vector of a row's block. */
#define FOR_VECTORS(begin, end, body)                         \
  do {                                                        \
    int64_t at = begin;                                       \
    for (; at + LANES <= (end); at += LANES) body(at, LANES); \
    if (at < (end)) body(at, (int)((end)-at));                \
  } while (0)

TIGON_INLINE int64_t block_end(int64_t begin, int64_t cols) { return cols - begin < BLOCK ? cols : begin + BLOCK; }

TIGON_INLINE double exp_sum(tigon_dtype dtype, const side *s, int64_t cols) {
  double all = 0;
  for (int64_t begin = 0; begin < cols; begin += BLOCK) {
    vf sum = vf_zero();
#define ADD(c, n)                                                              \
  do {                                                                         \
    const vf x = load(dtype, s->row, c, n);                                    \
    const exp_parts e = vf_exp_split(vf_fma(x, s->scale, s->minus_reference)); \
    sum = vf_fma(e.p, first(e.scale, n), sum);                                 \
  } while (0)
    FOR_VECTORS(begin, block_end(begin, cols), ADD);
#undef ADD
    all += (double)vf_sum(sum);
  }
  return all;
}

/* The side of a row that nothing is known of yet. */
TIGON_INLINE side side_of(tigon_dtype dtype, const problem *p, const tigon_rows *t, tigon_distribution is, int64_t r) {
  side s = {.row = tigon_row(&p->space, t, (size_t)v_size(dtype), r), .is = is};
  s.scale = vf_set(is == TIGON_DISTRIBUTION_LOGITS ? p->inverse_temperature : 1.0f);
  s.minus_reference = s.log_sum = vf_zero();
  return s;
}
/* Of backward. */
TIGON_INLINE void know(side *s, double lse) {
  if (s->is == TIGON_DISTRIBUTION_LOGITS) s->minus_reference = vf_set((float)-lse);
}
TIGON_INLINE void find_sums(tigon_dtype dtype, const problem *p, side *s) {
  if (s->is != TIGON_DISTRIBUTION_LOGITS) return;
  float reference = largest(dtype, s->row, p->cols, false) * p->inverse_temperature;
  if (!isfinite(reference) && has_nan(dtype, s->row, p->cols)) reference = NAN;
  s->minus_reference = vf_set(-reference);
  s->lse = (double)reference;
  if (!isfinite(reference)) return;
  const double sum = exp_sum(dtype, s, p->cols);
  s->lse += log(sum);
  s->log_sum = vf_set((float)log(sum));
}

/* D. */
TIGON_INLINE double sum_terms(tigon_dtype dtype, const problem *p, const side *q, const side *t, double *mean) {
  const mixing m = mixing_of(p);
  const tigon_divergence_kind kind = p->kind;
  const int64_t cols = p->cols;
  double all = 0;
  for (int64_t begin = 0; begin < cols; begin += BLOCK) {
    vf loss = vf_zero(), off = vf_zero();
#define ADD(c, n)                                                                                 \
  do {                                                                                            \
    const terms found = terms_of(kind, &m, chance_of(dtype, q, c, n), chance_of(dtype, t, c, n)); \
    loss = vf_add(loss, first(found.loss, n));                                                    \
    off = vf_add(off, first(found.mean, n));                                                      \
  } while (0)
    FOR_VECTORS(begin, block_end(begin, cols), ADD);
#undef ADD
    all += (double)vf_sum(loss);
    *mean += (double)vf_sum(off);
  }
  return all;
}

TIGON_INLINE void store_slopes(tigon_dtype dtype, const problem *p, const side *q, const side *t, double mean,
                               double by, void *out) {
  const mixing m = mixing_of(p);
  const tigon_divergence_kind kind = p->kind;
  const bool logits = p->input_is == TIGON_DISTRIBUTION_LOGITS;
  const vf off = vf_set(logits ? (float)mean : kind == TIGON_DIVERGENCE_REVERSE_KL ? -1.0f : 0.0f);
  const vf factor = vf_set((float)(logits ? by * (double)p->inverse_temperature : by));
  const int64_t cols = p->cols;
#define PUT(c, n)                                                                                          \
  do {                                                                                                     \
    const vf slope = slope_of(kind, q->is, &m, off, chance_of(dtype, q, c, n), chance_of(dtype, t, c, n)); \
    store(dtype, out, c, vf_mul(slope, factor), n);                                                        \
  } while (0)
  FOR_VECTORS(0, cols, PUT);
#undef PUT
}

/* ---- cosine: elements are scaled by a power of two before they are squared ---- */

/* 2^-k for a number around 2^k. */
static float scale_down(double size) {
  if (!(size > 0) || !isfinite(size)) return 1;
  const int k = ilogb(size);
  return ldexpf(1, k > 126 ? -126 : k < -126 ? 126 : -k);
}

TIGON_INLINE double cosine_terms(tigon_dtype dtype, const problem *p, const void *x, const void *t, row_stats *s) {
  const float x_scale = scale_down((double)largest(dtype, x, p->cols, true));
  const float t_scale = scale_down((double)largest(dtype, t, p->cols, true));
  double squares_x = 0, squares_t = 0, products = 0;
  for (int64_t begin = 0; begin < p->cols; begin += BLOCK) {
    vf xx = vf_zero(), tt = vf_zero(), xt = vf_zero();
#define ADD(c, n)                                               \
  do {                                                          \
    const vf a = vf_mul(load(dtype, x, c, n), vf_set(x_scale)); \
    const vf b = vf_mul(load(dtype, t, c, n), vf_set(t_scale)); \
    xx = vf_fma(a, a, xx), tt = vf_fma(b, b, tt);               \
    xt = vf_fma(a, b, xt);                                      \
  } while (0)
    FOR_VECTORS(begin, block_end(begin, p->cols), ADD);
#undef ADD
    squares_x += (double)vf_sum(xx);
    squares_t += (double)vf_sum(tt);
    products += (double)vf_sum(xt);
  }
  s->input = sqrt(squares_x), s->target = sqrt(squares_t);
  s->mean = s->input == 0 || s->target == 0 ? 0 : products / s->input / s->target;
  s->input /= (double)x_scale, s->target /= (double)t_scale;
  return 1 - s->mean;
}

TIGON_INLINE void cosine_slopes(tigon_dtype dtype, const problem *p, const void *x, const void *t, const row_stats *s,
                                double by, void *out) {
  const float down_x = scale_down(s->input), down_t = scale_down(s->target);
  const vf x_scale = vf_set(down_x), t_scale = vf_set(down_t);
  const double size = s->input * (double)down_x;
  const vf of_x = vf_set((float)(s->mean / size)), of_t = vf_set((float)(1 / (s->target * (double)down_t)));
  const vf factor = vf_set((float)(by / size));
  const int64_t cols = p->cols;
#define PUT(c, n)                                                           \
  do {                                                                      \
    const vf a = vf_mul(vf_mul(load(dtype, x, c, n), x_scale), of_x);       \
    const vf b = vf_mul(vf_mul(load(dtype, t, c, n), t_scale), of_t);       \
    store(dtype, out, c, vf_mul(vf_mul(vf_sub(a, b), factor), x_scale), n); \
  } while (0)
  FOR_VECTORS(0, cols, PUT);
#undef PUT
}

/* ---- rows ---- */

TIGON_INLINE void one_row(tigon_dtype dtype, const job *j, int64_t r) {
  const problem *p = j->p;
  void *out = tigon_row(&p->space, &p->dinput, (size_t)v_size(dtype), r);
  const bool counts = tigon_divergence_counts(p, r), cosine = p->kind == TIGON_DIVERGENCE_COSINE;
  row_stats s = {0, 0, 0};
  side q = side_of(dtype, p, &p->input, p->input_is, r), t = side_of(dtype, p, &p->target, p->target_is, r);
  double loss = 0;
  if (j->backward) {
    s = (row_stats){(double)p->stats[3 * r], (double)p->stats[3 * r + 1], (double)p->stats[3 * r + 2]};
    know(&q, s.input), know(&t, s.target);
  } else if (counts && cosine) {
    loss = cosine_terms(dtype, p, q.row, t.row, &s);
  } else if (counts) {
    find_sums(dtype, p, &q), find_sums(dtype, p, &t);
    s.input = q.lse, s.target = t.lse;
    loss = sum_terms(dtype, p, &q, &t, &s.mean);
  }
  if (!j->backward) {
    p->token_loss[r] = (float)(counts && p->token_scale ? (double)p->token_scale[r] * loss : loss);
    if (p->stats)
      p->stats[3 * r] = (float)s.input, p->stats[3 * r + 1] = (float)s.target, p->stats[3 * r + 2] = (float)s.mean;
  }
  if (!out) return;
  if (!counts || (cosine && (s.input == 0 || s.target == 0))) {
    memset(out, 0, (size_t)(p->cols * v_size(dtype)));
    return;
  }
  double by = (double)p->grad_scale * (double)*p->inverse;
  if (p->dloss) by *= (double)p->dloss[p->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (p->token_scale) by *= (double)p->token_scale[r];
  if (cosine)
    cosine_slopes(dtype, p, q.row, t.row, &s, by, out);
  else
    store_slopes(dtype, p, &q, &t, s.mean, by, out);
}

TIGON_INLINE void rows(tigon_dtype dtype, const job *j, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) one_row(dtype, j, r);
}

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  int64_t begin, end;
  tigon_range(j->p->space.rows, j->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(j->p->dtype, rows, j, begin, end);
}

static void run(const tigon_queue *queue, const problem *p, bool backward) {
  const bool reads = !queue->record; /* what a recorder is not told of */
  int64_t counted = 0;
  for (int64_t r = 0; reads && p->reduction == TIGON_REDUCTION_MEAN && r < p->space.rows; ++r)
    counted += tigon_divergence_counts(p, r);
  if (reads) *p->inverse = p->reduction != TIGON_REDUCTION_MEAN ? 1 : counted == 0 ? 0 : (float)(1 / (double)counted);
  const int64_t row_bytes = p->cols * v_size(p->dtype) * (p->dinput.data ? 3 : 2);
  const job j = {p, backward, tigon_cpu_row_tasks(p->space.rows, row_bytes)};
  tigon_cpu_parallel(queue, j.tasks, task, &j);
  if (!reads || !p->loss) return;
  double sum = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) sum += (double)p->token_loss[r];
  *p->loss = (float)(sum * (double)*p->inverse);
}

tigon_status TIGON_CPU(divergence_fwd)(tigon_queue *queue, const problem *p) {
  run(queue, p, false);
  return TIGON_OK;
}

tigon_status TIGON_CPU(divergence_bwd)(tigon_queue *queue, const problem *p) {
  run(queue, p, true);
  return TIGON_OK;
}
