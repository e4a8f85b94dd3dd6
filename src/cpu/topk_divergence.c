/* A row of logits is read for the largest one outside of the support, for the sum of exponentials there and for the
 * gradient, in windows of classes. In each the support's classes are marked first; the walk over the entries that takes the
 * marks off again meets each class at its first entry. Backward may have the logits of a panel alone, and all entries. */
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
  side q, hard; /* the input; as the cross entropy has it */
  void *out;
  tigon_topk_row s;
  double hard_lse;
  uint16_t *marks; /* [WINDOW], of the window from class `begin` to `end` */
  int64_t begin, end;
} work;

TIGON_INLINE bool next_window(work *w, int64_t last) {
  w->begin = w->end;
  if (w->begin >= last) return false;
  w->end = last - w->begin < WINDOW ? last : w->begin + WINDOW;
  for (int64_t j = 0; j < w->p->k; ++j) {
    const int64_t v = tigon_topk_class(w->p, &w->s, j);
    if (v >= w->begin && v < w->end) w->marks[v - w->begin] = MARK;
  }
  return true;
}
/* Loops over the windows of all classes, or of the panel's. */
#define FOR_WINDOWS(w) for ((w)->end = 0; next_window(w, tigon_divergence_vocab(&(w)->p->base));)
#define FOR_PANEL(w) \
  for ((w)->end = (w)->p->base.panel_begin; next_window(w, (w)->p->base.panel_begin + (w)->p->base.cols);)

/* Is entry j the first one of a class of the window? Then *class is that. */
TIGON_INLINE bool take(work *w, int64_t j, int64_t *class) {
  const int64_t v = tigon_topk_class(w->p, &w->s, j);
  if (v < w->begin || v >= w->end || !w->marks[v - w->begin]) return false;
  w->marks[v - w->begin] = 0;
  *class = v;
  return true;
}

/* What the row has of class v, and its logit without the temperature. */
TIGON_INLINE double element(tigon_dtype dtype, const work *w, int64_t v) {
  return (double)s_load(w->q.row, v - w->p->base.panel_begin, dtype);
}
TIGON_INLINE double logit(tigon_dtype dtype, const work *w, int64_t v) {
  return tigon_logit(&w->p->base.input_map, element(dtype, w, v));
}
TIGON_INLINE double target_at(const work *w, int64_t j) {
  return tigon_load_f64(w->p->base.target.data, w->s.target + j, w->p->target_dtype);
}
TIGON_INLINE tigon_topk_element entry_at(tigon_dtype dtype, const work *w, int64_t j, int64_t v) {
  return tigon_topk_entry(w->p, &w->s, element(dtype, w, v), target_at(w, j));
}

/* f(c, n) for each vector of the window, c a class. */
#define FOR_VECTORS(w, f)                                     \
  do {                                                        \
    int64_t at = (w)->begin;                                  \
    for (; at + LANES <= (w)->end; at += LANES) f(at, LANES); \
    if (at < (w)->end) f(at, (int)((w)->end - at));           \
  } while (0)

/* The largest of a row's elements outside, of the logits in the support, and of a target's. A NaN is one in the support alone:
 * outside it comes with the sum. */
typedef struct largest {
  float outside;
  double inside, target;
  int64_t classes; /* classes of the support */
} largest;
TIGON_INLINE double more(double a, double b) { return a > b || a != a ? a : b; }

TIGON_INLINE largest find_largest(tigon_dtype dtype, work *w, bool backward) {
  const double scale = (double)w->p->base.inverse_temperature;
  largest of = {-INFINITY, -INFINITY, -INFINITY, 0};
  FOR_WINDOWS(w) {
    vf most = vf_set(-INFINITY);
#define MOST(c, n)                                                                                                   \
  do {                                                                                                               \
    const vf x = vf_add(load(dtype, w->q.row, c, n), load(TIGON_BF16, w->marks, (c)-w->begin, n));                   \
    most = vf_max(n == LANES ? x : vf_select(vf_eq(first(vf_set(1.0f), n), vf_zero()), vf_set(-INFINITY), x), most); \
  } while (0)
    if (!backward) FOR_VECTORS(w, MOST);
#undef MOST
    const float found = vf_max_across(most);
    if (found > of.outside) of.outside = found;
    for (int64_t j = 0, v; j < w->p->k; ++j) {
      if (!take(w, j, &v)) continue;
      ++of.classes;
      if (!backward) of.inside = more(logit(dtype, w, v), of.inside);
      of.target = more(scale * target_at(w, j), of.target);
    }
  }
  return of;
}

/* The base of the columns outside is their largest; unless no column has `any`, what it comes to: else that is -Inf. */
TIGON_INLINE double refer(side *s, float most, bool any) {
  if (!any) return -(double)INFINITY;
  const float base = vf_max_across(capped(s, vf_set(most)));
  s->base = vf_set(base > -INFINITY ? base : 0);
  return (double)base * (double)s->times;
}

/* The sum of e^((x - base) * scale) over the window's columns outside. */
TIGON_INLINE double sum_outside(tigon_dtype dtype, const work *w, const side *s) {
  double all = 0;
  for (int64_t begin = w->begin; begin < w->end; begin += BLOCK) {
    const work block = {.begin = begin, .end = w->end - begin < BLOCK ? w->end : begin + BLOCK};
    vf sum = vf_zero();
#define ADD(c, n)                                                                         \
  do {                                                                                    \
    const vf mark = load(TIGON_BF16, w->marks, (c)-w->begin, n);                          \
    const vf z = vf_mul(vf_sub(capped(s, load(dtype, s->row, c, n)), s->base), s->scale); \
    const exp_parts e = vf_exp_split(first(vf_add(z, mark), n));                          \
    sum = vf_fma(e.p, first(e.scale, n), sum);                                            \
  } while (0)
    FOR_VECTORS(&block, ADD);
#undef ADD
    all += (double)vf_sum(sum);
  }
  return all;
}

/* The log-sum-exps: backward that of the target alone. */
TIGON_INLINE void find_sums(tigon_dtype dtype, work *w, bool backward) {
  const double scale = (double)w->p->base.inverse_temperature;
  const largest most = find_largest(dtype, w, backward);
  const bool hard = w->p->base.hard != 0;
  const bool any = most.outside > -INFINITY || (w->q.capped && most.classes < w->p->base.cols);
  const double outside = refer(&w->q, most.outside, any), hard_outside = refer(&w->hard, most.outside, any);
  double in = 0, out = 0, target = 0, hard_in = 0, hard_out = 0;
  FOR_WINDOWS(w) {
    if (!backward) out += sum_outside(dtype, w, &w->q);
    if (!backward && hard) hard_out += sum_outside(dtype, w, &w->hard);
    for (int64_t j = 0, v; j < w->p->k; ++j) {
      if (!take(w, j, &v)) continue;
      target += tigon_topk_share(scale * target_at(w, j), most.target);
      if (backward) continue;
      const double z = logit(dtype, w, v);
      in += tigon_topk_share(scale * z, scale * most.inside);
      if (hard) hard_in += tigon_topk_share(z, most.inside);
    }
  }
  if (w->p->base.target_is == TIGON_DISTRIBUTION_LOGITS) w->s.target_lse = tigon_topk_lse(most.target, target);
  if (backward) return;
  tigon_topk_know(&w->s, tigon_topk_lse(scale * most.inside, in), tigon_topk_lse(outside, out));
  if (hard)
    w->hard_lse = tigon_topk_log_add(tigon_topk_lse(most.inside, hard_in), tigon_topk_lse(hard_outside, hard_out));
}

/* p_t; and D, M, forward. */
TIGON_INLINE double sum_terms(tigon_dtype dtype, work *w, bool backward) {
  double sum = 0, loss = 0, mean = 0;
  int64_t classes = 0;
  FOR_WINDOWS(w)
  for (int64_t j = 0, v; j < w->p->k; ++j) {
    if (!take(w, j, &v)) continue;
    const tigon_topk_element e = backward ? tigon_topk_target(w->p, &w->s, target_at(w, j)) : entry_at(dtype, w, j, v);
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

/* The support's logits are left in place, where they may be, until the walk over the entries comes to them. `label`: the class
 * of the cross entropy, -1 without one here. */
TIGON_INLINE void store_gradient(tigon_dtype dtype, work *w, const tigon_topk_factors *f, int64_t label) {
  const tigon_topk_outside o = tigon_topk_outside_of(w->p, &w->s);
  const int64_t base = w->p->base.panel_begin;
  const double of_label = label >= 0 ? element(dtype, w, label) : 0;
  side q = w->q, h = w->hard;
  know(&q, o.lse), know(&h, w->hard_lse);
  const vf by = vf_set((float)(o.by * f->soft)), hard_by = vf_set((float)f->hard);
  const bool hard = w->p->base.hard != 0;
  FOR_PANEL(w) {
#define PUT(c, n)                                                                                     \
  do {                                                                                                \
    const vf x = load(dtype, q.row, (c)-base, n), mark = load(TIGON_BF16, w->marks, (c)-w->begin, n); \
    const vf share = chance_of(dtype, &q, (c)-base, n).of;                                            \
    vf d = unless_0(share, vf_mul(share, by)), slope;                                                 \
    if (hard) d = vf_fma(hard_by, chance_of(dtype, &h, (c)-base, n).of, d);                           \
    if (q.capped) vf_tanh_slope(vf_mul(x, q.inner), &slope), d = vf_mul(d, slope);                    \
    store(dtype, w->out, (c)-base, vf_select(vf_eq(mark, vf_zero()), d, x), n);                       \
  } while (0)
    FOR_VECTORS(w, PUT);
#undef PUT
    if (label >= w->begin && label < w->end && !w->marks[label - w->begin]) {
      const double z = (double)w->p->base.inverse_temperature * tigon_logit(&w->p->base.input_map, of_label);
      const double soft = o.by * tigon_topk_chance(tigon_topk_log_chance(z, o.lse));
      s_store(w->out, label - base, dtype, (float)tigon_topk_dinput(w->p, f, w->hard_lse, of_label, soft, true));
    }
    for (int64_t j = 0, v; j < w->p->k; ++j) {
      if (!take(w, j, &v)) continue;
      const tigon_topk_element e = entry_at(dtype, w, j, v);
      const double soft = tigon_topk_gradient(w->p, &w->s, &e), u = element(dtype, w, v);
      s_store(w->out, v - base, dtype, (float)tigon_topk_dinput(w->p, f, w->hard_lse, u, soft, v == label));
    }
  }
}

/* D. */
TIGON_INLINE double one_row(tigon_dtype dtype, const job *j, work *w, int64_t r) {
  const tigon_divergence_problem *base = &j->p->base;
  w->s = tigon_topk_row_of(j->p, r);
  w->q = side_of(dtype, base, &base->input, &base->input_map, TIGON_DISTRIBUTION_LOGITS, base->cols, r);
  w->hard = hard_side_of(&w->q, &base->input_map);
  find_sums(dtype, w, j->backward);
  if (j->backward) {
    const float *stats = base->stats + 3 * r;
    w->s.lse = (double)stats[0], w->s.outside = (double)stats[1], w->s.mean = (double)stats[2];
    if (base->hard != 0) w->hard_lse = (double)base->hard_lse[r];
  }
  const double loss = sum_terms(dtype, w, j->backward);
  if (!w->out) return loss;
  const int64_t column = tigon_divergence_class(base, r);
  const tigon_topk_factors f = tigon_topk_factors_of(j->p, (double)*base->inverse, r);
  store_gradient(dtype, w, &f, column < 0 ? -1 : base->panel_begin + column);
  return loss;
}

TIGON_INLINE void rows(tigon_dtype dtype, const job *j, int64_t begin, int64_t end) {
  const tigon_divergence_problem *base = &j->p->base;
  const size_t size = (size_t)v_size(dtype);
  const int64_t vocab = tigon_divergence_vocab(base);
  uint16_t marks[WINDOW];
  memset(marks, 0, (size_t)(vocab < WINDOW ? vocab : WINDOW) * sizeof *marks);
  for (int64_t r = begin; r < end; ++r) {
    const bool counts = tigon_divergence_counts(base, r);
    const int64_t column = counts ? tigon_divergence_class(base, r) : -1;
    work w = {.p = j->p, .marks = marks};
    w.out = tigon_row(&base->space, &base->dinput, size, r);
    /* before the gradient may be written over it */
    const void *x = tigon_row(&base->space, &base->input, size, r);
    const double of_label = column >= 0 ? tigon_logit(&base->input_map, (double)s_load(x, column, dtype)) : 0;
    const double apart = counts ? one_row(dtype, j, &w, r) : 0;
    if (!counts && w.out) memset(w.out, 0, (size_t)base->cols * size);
    if (j->backward) continue;
    const double entropy = column >= 0 ? w.hard_lse - of_label : 0;
    const double loss = (double)base->soft * apart + (double)base->hard * entropy;
    base->token_loss[r] = (float)(counts && base->token_scale ? loss * (double)base->token_scale[r] : loss);
    if (base->soft_losses) base->soft_losses[r] = (float)apart;
    if (base->hard_losses) base->hard_losses[r] = (float)entropy;
    if (base->hard_lse) base->hard_lse[r] = (float)w.hard_lse;
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
  const bool all = p->base.parts != TIGON_DIVERGENCE_ROWS;
  tigon_divergence_problem part = p->base;
  if (!queue->record) raise_error(p); /* a recorder's tensors may have no data */
  part.parts = TIGON_DIVERGENCE_COUNT;
  if (all) TIGON_CPU(divergence_fwd)(queue, &part);
  tigon_cpu_parallel(queue, j.tasks, task, &j);
  part.parts = TIGON_DIVERGENCE_REDUCE;
  if (all && !backward) TIGON_CPU(divergence_fwd)(queue, &part);
}

tigon_status TIGON_CPU(topk_divergence_fwd)(tigon_queue *queue, const topk *p) {
  run(queue, p, false);
  return TIGON_OK;
}

tigon_status TIGON_CPU(topk_divergence_bwd)(tigon_queue *queue, const topk *p) {
  run(queue, p, true);
  return TIGON_OK;
}
