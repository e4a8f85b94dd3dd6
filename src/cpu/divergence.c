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

/* The cross entropy's part of a row's gradient: by * (exp(z - lse) - 1 in `column`). And dz / du, which both go through. */
typedef struct hard_part {
  const side *of; /* NULL: none */
  vf by;
  int64_t column; /* -1: none here */
  const side *input;
} hard_part;

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
#define ADD(c, n)                                                                     \
  do {                                                                                \
    const vf x = capped(s, load(dtype, s->row, c, n));                                \
    const exp_parts e = vf_exp_split(first(vf_mul(vf_sub(x, s->base), s->scale), n)); \
    sum = vf_fma(e.p, first(e.scale, n), sum);                                        \
  } while (0)
    FOR_VECTORS(begin, block_end(begin, cols), ADD);
#undef ADD
    all += (double)vf_sum(sum);
  }
  return all;
}

/* The largest element, of the largest one of the row or, which cosine asks for, of the largest in absolute value. */
TIGON_INLINE float largest_of(tigon_dtype dtype, const side *s, bool absolute) {
  const float most = largest(dtype, s->row, s->cols, absolute);
  return s->capped ? vf_max_across(capped(s, vf_set(most))) : most;
}
TIGON_INLINE void find_sums(tigon_dtype dtype, side *s) {
  if (s->is != TIGON_DISTRIBUTION_LOGITS) return;
  float base = largest_of(dtype, s, false);
  if (!isfinite(base) && has_nan(dtype, s->row, s->cols)) base = NAN;
  s->lse = (double)base * (double)s->times;
  if (!isfinite(base)) {
    s->minus_rest = vf_set(-base);
    return;
  }
  s->base = vf_set(base);
  const double log_sum = log(exp_sum(dtype, s, s->cols));
  s->lse += log_sum;
  s->minus_rest = vf_set((float)-log_sum);
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

/* v, an element's gradient, and the cross entropy's, through the cap; `one`: of its class. */
TIGON_INLINE vf with_hard(tigon_dtype dtype, const hard_part *h, int64_t c, int n, vf v, float one) {
  if (h->of) v = vf_fma(h->by, vf_sub(chance_of(dtype, h->of, c, n).of, vf_set(one)), v);
  if (!h->input->capped) return v;
  vf slope;
  vf_tanh_slope(vf_mul(load(dtype, h->input->row, c, n), h->input->inner), &slope);
  return vf_mul(v, slope);
}

/* Stores slope(c, n) and the cross entropy's. The class's own is made first: the row may be where it came from. */
#define STORE_ROW(slope)                                                                         \
  do {                                                                                           \
    vf of_class = vf_zero();                                                                     \
    if (h->column >= 0) of_class = with_hard(dtype, h, h->column, 1, slope(h->column, 1), 1.0f); \
    FOR_VECTORS(0, cols, PUT);                                                                   \
    if (h->column >= 0) store(dtype, out, h->column, of_class, 1);                               \
  } while (0)

TIGON_INLINE void store_slopes(tigon_dtype dtype, const problem *p, const side *q, const side *t, double mean,
                               double by, const hard_part *h, void *out) {
  const mixing m = mixing_of(p);
  const tigon_divergence_kind kind = p->kind;
  const bool logits = p->input_is == TIGON_DISTRIBUTION_LOGITS;
  const vf off = vf_set(logits ? (float)mean : kind == TIGON_DIVERGENCE_REVERSE_KL ? -1.0f : 0.0f);
  const vf factor = vf_set((float)(logits ? by * (double)p->inverse_temperature : by));
  const int64_t cols = p->cols;
#define SLOPE(c, n) vf_mul(slope_of(kind, q->is, &m, off, chance_of(dtype, q, c, n), chance_of(dtype, t, c, n)), factor)
#define PUT(c, n) store(dtype, out, c, with_hard(dtype, h, c, n, SLOPE(c, n), 0), n)
  STORE_ROW(SLOPE);
#undef PUT
#undef SLOPE
}

/* ---- cosine: elements are scaled by a power of two before they are squared ---- */

/* 2^-k for a number around 2^k. */
static float scale_down(double size) {
  if (!(size > 0) || !isfinite(size)) return 1;
  const int k = ilogb(size);
  return ldexpf(1, k > 126 ? -126 : k < -126 ? 126 : -k);
}

TIGON_INLINE double cosine_terms(tigon_dtype dtype, const problem *p, const side *x, const side *t, row_stats *s) {
  const float x_scale = scale_down((double)largest_of(dtype, x, true));
  const float t_scale = scale_down((double)largest_of(dtype, t, true));
  double squares_x = 0, squares_t = 0, products = 0;
  for (int64_t begin = 0; begin < p->cols; begin += BLOCK) {
    vf xx = vf_zero(), tt = vf_zero(), xt = vf_zero();
#define ADD(c, n)                                                     \
  do {                                                                \
    const vf a = vf_mul(load_known(dtype, x, c, n), vf_set(x_scale)); \
    const vf b = vf_mul(load_known(dtype, t, c, n), vf_set(t_scale)); \
    xx = vf_fma(a, a, xx), tt = vf_fma(b, b, tt);                     \
    xt = vf_fma(a, b, xt);                                            \
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

TIGON_INLINE void cosine_slopes(tigon_dtype dtype, const problem *p, const side *x, const side *t, const row_stats *s,
                                double by, const hard_part *h, void *out) {
  const float down_x = scale_down(s->input), down_t = scale_down(s->target);
  const vf x_scale = vf_set(down_x), t_scale = vf_set(down_t);
  const double size = s->input * (double)down_x;
  const vf of_x = vf_set((float)(s->mean / size)), of_t = vf_set((float)(1 / (s->target * (double)down_t)));
  const vf factor = vf_set((float)(by / size));
  const int64_t cols = p->cols;
#define X(c, n) vf_mul(vf_mul(load_known(dtype, x, c, n), x_scale), of_x)
#define T(c, n) vf_mul(vf_mul(load_known(dtype, t, c, n), t_scale), of_t)
#define SLOPE(c, n) vf_mul(vf_mul(vf_sub(X(c, n), T(c, n)), factor), x_scale)
#define PUT(c, n) store(dtype, out, c, with_hard(dtype, h, c, n, SLOPE(c, n), 0), n)
  STORE_ROW(SLOPE);
#undef PUT
#undef SLOPE
#undef T
#undef X
}

/* Without a divergence's: the student or the teacher has no length. */
TIGON_INLINE void hard_slopes(tigon_dtype dtype, const problem *p, const hard_part *h, void *out) {
  const int64_t cols = p->cols;
#define SLOPE(c, n) vf_zero()
#define PUT(c, n) store(dtype, out, c, with_hard(dtype, h, c, n, vf_zero(), 0), n)
  STORE_ROW(SLOPE);
#undef PUT
#undef SLOPE
}

/* ---- rows ---- */

TIGON_INLINE void one_row(tigon_dtype dtype, const job *j, int64_t r) {
  const problem *p = j->p;
  void *out = tigon_row(&p->space, &p->dinput, (size_t)v_size(dtype), r);
  const bool counts = tigon_divergence_counts(p, r), cosine = p->kind == TIGON_DIVERGENCE_COSINE;
  row_stats s = {0, 0, 0};
  side q = side_of(dtype, p, &p->input, &p->input_map, p->input_is, p->cols, r);
  side t = side_of(dtype, p, &p->target, &p->target_map, p->target_is, p->target_cols, r);
  side of_hard = hard_side_of(&q, &p->input_map);
  const int64_t class = counts ? tigon_divergence_class(p, r) : -1;
  const bool hard = counts && p->hard != 0;
  double loss = 0, entropy = 0;
  if (counts && !j->backward) { /* a loop, so that it is compiled once */
    side *const logits[] = {cosine ? NULL : &q, cosine ? NULL : &t, hard ? &of_hard : NULL};
    for (int i = 0; i < 3; ++i)
      if (logits[i]) find_sums(dtype, logits[i]);
  }
  if (j->backward) {
    s = (row_stats){(double)p->stats[3 * r], (double)p->stats[3 * r + 1], (double)p->stats[3 * r + 2]};
    if (q.is == TIGON_DISTRIBUTION_LOGITS) know(&q, s.input);
    if (t.is == TIGON_DISTRIBUTION_LOGITS) know(&t, s.target);
    if (hard) know(&of_hard, (double)p->hard_lse[r]);
  } else if (counts && cosine) {
    loss = cosine_terms(dtype, p, &q, &t, &s);
  } else if (counts) {
    s.input = q.lse, s.target = t.lse;
    loss = sum_terms(dtype, p, &q, &t, &s.mean);
  }
  if (hard && !j->backward) entropy = of_hard.lse - tigon_logit(&p->input_map, (double)s_load(q.row, class, dtype));
  if (!j->backward) {
    const double both = (double)p->soft * loss + (double)p->hard * entropy;
    p->token_loss[r] = (float)(counts && p->token_scale ? (double)p->token_scale[r] * both : both);
    if (p->soft_losses) p->soft_losses[r] = (float)loss;
    if (p->hard_losses) p->hard_losses[r] = (float)entropy;
    if (p->hard_lse) p->hard_lse[r] = hard ? (float)of_hard.lse : 0;
    if (p->stats)
      p->stats[3 * r] = (float)s.input, p->stats[3 * r + 1] = (float)s.target, p->stats[3 * r + 2] = (float)s.mean;
  }
  if (!out) return;
  const bool nothing = cosine && (s.input == 0 || s.target == 0);
  if (!counts || (nothing && !hard)) {
    memset(out, 0, (size_t)(p->cols * v_size(dtype)));
    return;
  }
  double by = (double)p->grad_scale * (double)*p->inverse;
  if (p->dloss) by *= (double)p->dloss[p->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (p->token_scale) by *= (double)p->token_scale[r];
  const double scale = (double)tigon_logit_scale(&p->input_map);
  const hard_part h = {hard ? &of_hard : NULL, vf_set((float)(by * (double)p->hard * scale)), class, &q};
  by *= (double)p->soft;
  if (!cosine || q.capped) by *= scale; /* no scale changes a cosine */
  if (nothing)
    hard_slopes(dtype, p, &h, out);
  else if (cosine)
    cosine_slopes(dtype, p, &q, &t, &s, by, &h, out);
  else
    store_slopes(dtype, p, &q, &t, s.mean, by, &h, out);
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
  const bool counts = reads && p->parts & TIGON_DIVERGENCE_COUNT;
  const bool sums = counts && p->reduction == TIGON_REDUCTION_MEAN && !p->denominator;
  for (int64_t r = 0; sums && r < p->space.rows; ++r) counted += tigon_divergence_counts(p, r);
  if (counts) *p->inverse = tigon_divergence_inverse(p, counted);
  const int64_t row_bytes = p->cols * v_size(p->dtype) * (p->dinput.data ? 3 : 2);
  const job j = {p, backward, tigon_cpu_row_tasks(p->space.rows, row_bytes)};
  if (p->parts & TIGON_DIVERGENCE_ROWS) tigon_cpu_parallel(queue, j.tasks, task, &j);
  if (!reads || !p->loss || !(p->parts & TIGON_DIVERGENCE_REDUCE)) return;
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
