/* A row of logits is read for the largest one outside of the support, for the sum of exponentials there and for the
 * gradient, in windows of columns. In each the support's columns are marked first; the walk over the entries that takes the
 * marks off again meets each class at its first entry. */
#include "core/topk_divergence.h"

#include <string.h>

#include "core/half.h"
#include "cpu/divergence.h"

typedef tigon_topk_divergence_problem topk;

/* Marks are bf16, which are added to logits: -Inf in the support, else 0. */
enum { WINDOW = 16384, MARK = 0xff80 };

typedef struct job {
  const topk *p;
  bool backward;
  int64_t tasks;
} job;

/* A row at work. */
typedef struct work {
  const topk *p;
  const void *x;
  void *out;
  tigon_topk_row s;
  uint16_t *marks; /* [WINDOW], of the window from `begin` to `end` */
  int64_t begin, end;
} work;

TIGON_INLINE bool next_window(work *w) {
  const int64_t cols = w->p->base.cols;
  w->begin = w->end;
  if (w->begin >= cols) return false;
  w->end = cols - w->begin < WINDOW ? cols : w->begin + WINDOW;
  for (int64_t j = 0; j < w->p->k; ++j) {
    const int64_t v = tigon_topk_class(w->p, &w->s, j);
    if (v >= w->begin && v < w->end) w->marks[v - w->begin] = MARK;
  }
  return true;
}
/* Of a new walk over all windows. */
#define FOR_WINDOWS(w) for ((w)->end = 0; next_window(w);)

/* Is entry j the first one of a class of the window? Then *column is that class. */
TIGON_INLINE bool take(work *w, int64_t j, int64_t *column) {
  const int64_t v = tigon_topk_class(w->p, &w->s, j);
  if (v < w->begin || v >= w->end || !w->marks[v - w->begin]) return false;
  w->marks[v - w->begin] = 0;
  *column = v;
  return true;
}

TIGON_INLINE double logit(tigon_dtype dtype, const work *w, int64_t v) {
  return (double)w->p->base.inverse_temperature * (double)s_load(w->x, v, dtype);
}
TIGON_INLINE double target_at(const work *w, int64_t j) {
  return tigon_load_f64(w->p->base.target.data, w->s.target + j, w->p->target_dtype);
}
TIGON_INLINE tigon_topk_element entry_at(tigon_dtype dtype, const work *w, int64_t j, int64_t v) {
  return tigon_topk_entry(w->p, &w->s, (double)s_load(w->x, v, dtype), target_at(w, j));
}

/* f(c, n) for each vector of the window. */
#define FOR_VECTORS(w, f)                                     \
  do {                                                        \
    int64_t at = (w)->begin;                                  \
    for (; at + LANES <= (w)->end; at += LANES) f(at, LANES); \
    if (at < (w)->end) f(at, (int)((w)->end - at));           \
  } while (0)

/* The largest of a row's logits in the support and outside, and of a target's. A NaN is one in the support alone: outside it
 * comes with the sum. */
typedef struct largest {
  double inside, outside, target;
} largest;
TIGON_INLINE double more(double a, double b) { return a > b || a != a ? a : b; }

TIGON_INLINE largest find_largest(tigon_dtype dtype, work *w, bool dense) {
  const double scale = (double)w->p->base.inverse_temperature;
  largest of = {-INFINITY, -INFINITY, -INFINITY};
  float outside = -INFINITY;
  FOR_WINDOWS(w) {
    vf most = vf_set(-INFINITY);
#define MOST(c, n)                                                                                                   \
  do {                                                                                                               \
    const vf x = vf_add(load(dtype, w->x, c, n), load(TIGON_BF16, w->marks, (c)-w->begin, n));                       \
    most = vf_max(n == LANES ? x : vf_select(vf_eq(first(vf_set(1.0f), n), vf_zero()), vf_set(-INFINITY), x), most); \
  } while (0)
    if (dense) FOR_VECTORS(w, MOST);
#undef MOST
    const float found = vf_max_across(most);
    if (found > outside) outside = found;
    for (int64_t j = 0, v; j < w->p->k; ++j) {
      if (!take(w, j, &v)) continue;
      of.inside = more(logit(dtype, w, v), of.inside);
      of.target = more(scale * target_at(w, j), of.target);
    }
  }
  of.outside = (double)(outside * (float)scale);
  return of;
}

/* The sums of e^(x - largest). */
TIGON_INLINE largest find_sums(tigon_dtype dtype, work *w, const largest *most, bool dense) {
  const double scale = (double)w->p->base.inverse_temperature;
  const vf times = vf_set((float)scale);
  const vf minus_reference = vf_set(most->outside > -(double)INFINITY ? (float)-most->outside : 0);
  largest of = {0, 0, 0};
  FOR_WINDOWS(w) {
    for (int64_t begin = w->begin; dense && begin < w->end; begin += BLOCK) {
      const work block = {.begin = begin, .end = w->end - begin < BLOCK ? w->end : begin + BLOCK};
      vf sum = vf_zero();
#define ADD(c, n)                                                         \
  do {                                                                    \
    const vf mark = load(TIGON_BF16, w->marks, (c)-w->begin, n);          \
    const vf z = vf_fma(load(dtype, w->x, c, n), times, minus_reference); \
    const exp_parts e = vf_exp_split(vf_add(z, mark));                    \
    sum = vf_fma(e.p, first(e.scale, n), sum);                            \
  } while (0)
      FOR_VECTORS(&block, ADD);
#undef ADD
      of.outside += (double)vf_sum(sum);
    }
    for (int64_t j = 0, v; j < w->p->k; ++j) {
      if (!take(w, j, &v)) continue;
      of.inside += tigon_topk_share(logit(dtype, w, v), most->inside);
      of.target += tigon_topk_share(scale * target_at(w, j), most->target);
    }
  }
  return of;
}

/* p_t; and D, M, forward. */
TIGON_INLINE double sum_terms(tigon_dtype dtype, work *w, bool backward) {
  double sum = 0, loss = 0, mean = 0;
  int64_t classes = 0;
  FOR_WINDOWS(w)
  for (int64_t j = 0, v; j < w->p->k; ++j) {
    if (!take(w, j, &v)) continue;
    const tigon_topk_element e = entry_at(dtype, w, j, v);
    ++classes;
    sum += e.p;
    if (!backward) tigon_topk_add(w->p, &w->s, &e, &loss, &mean);
  }
  w->s.tail = tigon_topk_tail_of(w->p, classes, sum);
  if (backward) return 0;
  const tigon_topk_element tail = tigon_topk_tail(&w->s);
  tigon_topk_add(w->p, &w->s, &tail, &loss, &mean);
  w->s.mean = mean;
  return loss;
}

/* The support's logits are left in place, where they may be, until the walk over the entries comes to them. */
TIGON_INLINE void store_gradient(tigon_dtype dtype, work *w, double factor) {
  const tigon_topk_outside o = tigon_topk_outside_of(w->p, &w->s);
  const float reference = (float)o.lse;
  const side q = {.row = w->x,
                  .cols = w->p->base.cols,
                  .is = TIGON_DISTRIBUTION_LOGITS,
                  .scale = vf_set(w->p->base.inverse_temperature),
                  .minus_reference = vf_set(-reference),
                  .log_sum = vf_set((float)(o.lse - (double)reference))};
  const vf by = vf_set((float)(o.by * factor));
  FOR_WINDOWS(w) {
#define PUT(c, n)                                                                                       \
  do {                                                                                                  \
    const vf share = chance_of(dtype, &q, c, n).of, mark = load(TIGON_BF16, w->marks, (c)-w->begin, n); \
    const vf d = unless_0(share, vf_mul(share, by));                                                    \
    store(dtype, w->out, c, vf_select(vf_eq(mark, vf_zero()), d, load(dtype, w->x, c, n)), n);          \
  } while (0)
    FOR_VECTORS(w, PUT);
#undef PUT
    for (int64_t j = 0, v; j < w->p->k; ++j) {
      if (!take(w, j, &v)) continue;
      const tigon_topk_element e = entry_at(dtype, w, j, v);
      s_store(w->out, v, dtype, (float)(factor * tigon_topk_gradient(w->p, &w->s, &e)));
    }
  }
}

TIGON_INLINE double one_row(tigon_dtype dtype, const job *j, work *w, int64_t r) {
  const tigon_divergence_problem *base = &j->p->base;
  double loss = 0;
  w->s = tigon_topk_row_of(j->p, r);
  const largest most = find_largest(dtype, w, !j->backward), sums = find_sums(dtype, w, &most, !j->backward);
  if (base->target_is == TIGON_DISTRIBUTION_LOGITS) w->s.target_lse = tigon_topk_lse(most.target, sums.target);
  if (j->backward) {
    const float *stats = base->stats + 3 * r;
    w->s.lse = (double)stats[0], w->s.outside = (double)stats[1], w->s.mean = (double)stats[2];
    sum_terms(dtype, w, true);
  } else {
    tigon_topk_know(&w->s, tigon_topk_lse(most.inside, sums.inside), tigon_topk_lse(most.outside, sums.outside));
    loss = sum_terms(dtype, w, false);
  }
  if (w->out) store_gradient(dtype, w, tigon_topk_factor(j->p, (double)*base->inverse, r));
  return loss;
}

TIGON_INLINE void rows(tigon_dtype dtype, const job *j, int64_t begin, int64_t end) {
  const tigon_divergence_problem *base = &j->p->base;
  const size_t size = (size_t)v_size(dtype);
  uint16_t marks[WINDOW];
  memset(marks, 0, (size_t)(base->cols < WINDOW ? base->cols : WINDOW) * sizeof *marks);
  for (int64_t r = begin; r < end; ++r) {
    const bool counts = tigon_divergence_counts(base, r);
    work w = {.p = j->p, .marks = marks};
    w.x = tigon_row(&base->space, &base->input, size, r);
    w.out = tigon_row(&base->space, &base->dinput, size, r);
    double loss = counts ? (double)base->soft * one_row(dtype, j, &w, r) : 0;
    if (!counts && w.out) memset(w.out, 0, (size_t)base->cols * size);
    if (j->backward) continue;
    if (counts && base->token_scale) loss *= (double)base->token_scale[r];
    base->token_loss[r] = (float)loss;
    if (!base->stats) continue;
    base->stats[3 * r] = (float)w.s.lse;
    base->stats[3 * r + 1] = (float)w.s.outside;
    base->stats[3 * r + 2] = (float)w.s.mean;
  }
}

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  int64_t begin, end;
  tigon_range(j->p->base.space.rows, j->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(j->p->dtype, rows, j, begin, end);
}

static void raise_error(const topk *p) {
  for (int64_t r = 0; p->error_flag && r < p->base.space.rows; ++r) {
    const tigon_topk_row s = tigon_topk_row_of(p, r);
    for (int64_t j = 0; j < p->k; ++j)
      if (tigon_topk_class(p, &s, j) < 0) *p->error_flag = 1;
  }
}

/* What needs no entries is divergence's own. */
static void run(tigon_queue *queue, const topk *p, bool backward) {
  const int64_t row_bytes = p->base.cols * v_size(p->dtype) * (p->base.dinput.data ? 2 : 1);
  const job j = {p, backward, tigon_cpu_row_tasks(p->base.space.rows, row_bytes)};
  tigon_divergence_problem part = p->base;
  if (!queue->record) raise_error(p); /* a recorder's tensors may have no data */
  part.parts = TIGON_DIVERGENCE_COUNT;
  TIGON_CPU(divergence_fwd)(queue, &part);
  tigon_cpu_parallel(queue, j.tasks, task, &j);
  part.parts = TIGON_DIVERGENCE_REDUCE;
  if (!backward) TIGON_CPU(divergence_fwd)(queue, &part);
}

tigon_status TIGON_CPU(topk_divergence_fwd)(tigon_queue *queue, const topk *p) {
  run(queue, p, false);
  return TIGON_OK;
}

tigon_status TIGON_CPU(topk_divergence_bwd)(tigon_queue *queue, const topk *p) {
  run(queue, p, true);
  return TIGON_OK;
}
