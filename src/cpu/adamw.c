/* adamw: the tensors of the list are cut into chunks of a fixed size, numbered across the list. A task takes a run of
 * chunks, and knows in which tensor its first one lies. */
#include <math.h>
#include <stddef.h>

#include "cpu/kernels.h"
#include "cpu/pair.h"

enum { CHUNK = 1 << 14, TASKS = TIGON_ADAMW_PARTIALS }; /* elements; tasks at most */

/* ---- the list ---- */

typedef struct list {
  const char *first; /* its tensors lie `pitch` bytes apart */
  size_t pitch;
  int64_t count, chunks, tasks;
  struct {
    int64_t tensor, chunk;
  } start[TASKS];
} list;

static const tigon_tensor *tensor_at(const list *l, int64_t i) {
  return (const tigon_tensor *)(const void *)(l->first + (size_t)i * l->pitch);
}

static int64_t elements(const tigon_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

static int64_t chunks_of(const list *l, int64_t i) { return (elements(tensor_at(l, i)) + CHUNK - 1) / CHUNK; }

static void fill_list(list *l, const void *first, size_t pitch, int64_t count) {
  l->first = first;
  l->pitch = pitch;
  l->count = count;
  l->chunks = 0;
  for (int64_t i = 0; i < count; ++i) l->chunks += chunks_of(l, i);
  l->tasks = l->chunks < TASKS ? l->chunks : TASKS;
  int64_t before = 0, task = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t n = chunks_of(l, i);
    for (int64_t begin, end; task < l->tasks; ++task) {
      tigon_plan_range(l->chunks, l->tasks, task, &begin, &end);
      if (begin >= before + n) break;
      l->start[task].tensor = i;
      l->start[task].chunk = begin - before;
    }
    before += n;
  }
}

/* Calls visit(argument, tensor, first element, one past the last) for the ranges of elements of a task. */
TIGON_INLINE void walk(const list *l, int64_t task, void (*visit)(void *, int64_t, int64_t, int64_t), void *argument) {
  int64_t begin, end;
  tigon_plan_range(l->chunks, l->tasks, task, &begin, &end);
  int64_t chunk = l->start[task].chunk;
  for (int64_t i = l->start[task].tensor, left = end - begin; left > 0; ++i, chunk = 0) {
    const int64_t n = chunks_of(l, i) - chunk < left ? chunks_of(l, i) - chunk : left,
                  count = elements(tensor_at(l, i));
    if (n > 0) visit(argument, i, chunk * CHUNK, count < (chunk + n) * CHUNK ? count : (chunk + n) * CHUNK);
    left -= n;
  }
}

/* ---- step ---- */

typedef struct constants {
  vf clip, beta1, beta2, rest1, rest2, rate, root, eps, decay;
} constants;

/* value -= lr * decay * value + (lr / correction1) * m / (sqrt(v) / sqrt(correction2) + eps) */
TIGON_INLINE vf update(const constants *k, vf value, vf grad, vf *m, vf *v) {
  const vf g = vf_mul(grad, k->clip);
  *m = vf_fma(k->beta1, *m, vf_mul(k->rest1, g));
  *v = vf_fma(k->beta2, *v, vf_mul(k->rest2, vf_mul(g, g)));
  const vf move = vf_div(vf_mul(k->rate, *m), vf_fma(vf_sqrt(*v), k->root, k->eps));
  return vf_sub(vf_fnma(k->decay, value, value), move);
}

TIGON_INLINE vf load(const void *data, int64_t i, tigon_dtype dtype, int n) {
  return n == LANES ? v_load(data, i, dtype) : v_load_n(data, i, dtype, n);
}
TIGON_INLINE void store(void *data, int64_t i, tigon_dtype dtype, vf a, int n) {
  if (n == LANES)
    v_store(data, i, dtype, a);
  else
    v_store_n(data, i, dtype, a, n);
}

TIGON_INLINE void step_lanes(tigon_dtype dtype, tigon_dtype grad_dtype, bool master, const tigon_adamw_param *t,
                             int64_t i, int n, const constants *k) {
  vf m = load(t->exp_avg.data, i, TIGON_F32, n), v = load(t->exp_avg_sq.data, i, TIGON_F32, n);
  const vf value = master ? load(t->master.data, i, TIGON_F32, n) : load(t->param.data, i, dtype, n);
  const vf updated = update(k, value, load(t->grad.data, i, grad_dtype, n), &m, &v);
  store(t->exp_avg.data, i, TIGON_F32, m, n);
  store(t->exp_avg_sq.data, i, TIGON_F32, v, n);
  if (master) store(t->master.data, i, TIGON_F32, updated, n);
  store(t->param.data, i, dtype, updated, n);
}

/* The constants are copied: a float that is stored could be one of theirs for all that the compiler knows. */
TIGON_INLINE void step_range(tigon_dtype dtype, tigon_dtype grad_dtype, bool master, const tigon_adamw_param *param,
                             int64_t begin, int64_t end, const constants *constant) {
  const tigon_adamw_param t = *param;
  const constants k = *constant;
  int64_t i = begin;
  for (; i + LANES <= end; i += LANES) step_lanes(dtype, grad_dtype, master, &t, i, LANES, &k);
  if (i < end) step_lanes(dtype, grad_dtype, master, &t, i, (int)(end - i), &k);
}

TIGON_INLINE void step_dtype(tigon_dtype dtype, const tigon_adamw_param *t, int64_t begin, int64_t end,
                             const constants *k) {
  const bool master = t->master.data != NULL, grad_f32 = t->grad.dtype == TIGON_F32;
  if (master && grad_f32)
    step_range(dtype, TIGON_F32, true, t, begin, end, k);
  else if (master)
    step_range(dtype, dtype, true, t, begin, end, k);
  else if (grad_f32)
    step_range(dtype, TIGON_F32, false, t, begin, end, k);
  else
    step_range(dtype, dtype, false, t, begin, end, k);
}

typedef struct step_job {
  const tigon_adamw_step_problem *p;
  list list;
} step_job;

static void step_visit(void *argument, int64_t i, int64_t begin, int64_t end) {
  const tigon_adamw_step_problem *p = argument;
  const tigon_adamw_param *t = &p->params[i];
  const constants k = {
      .clip = vf_set(p->clip_factor ? *p->clip_factor : 1),
      .beta1 = vf_set((float)p->beta1),
      .beta2 = vf_set((float)p->beta2),
      .rest1 = vf_set((float)(1 - p->beta1)),
      .rest2 = vf_set((float)(1 - p->beta2)),
      .rate = vf_set((float)(p->lr / p->correction1)),
      .root = vf_set((float)(1 / sqrt(p->correction2))),
      .eps = vf_set((float)p->eps),
      .decay = vf_set((float)(p->lr * t->weight_decay)),
  };
  TIGON_FOR_DTYPE(t->param.dtype, step_dtype, t, begin, end, &k);
}

static void step_task(const void *argument, int64_t index) {
  const step_job *j = argument;
  tigon_adamw_step_problem p = *j->p;
  walk(&j->list, index, step_visit, &p);
}

tigon_status TIGON_CPU(adamw_step)(tigon_queue *queue, const tigon_adamw_step_problem *p) {
  step_job j = {.p = p};
  _Static_assert(offsetof(tigon_adamw_param, param) == 0, "the list is one of param");
  fill_list(&j.list, p->params, sizeof *p->params, p->count);
  tigon_cpu_parallel(queue, j.list.tasks, step_task, &j);
  return TIGON_OK;
}

/* ---- clip: sums of squares in f64, which no square of an f32 overflows or underflows ---- */

TIGON_INLINE void add_squares(tigon_dtype dtype, const void *data, int64_t begin, int64_t end, double *sum) {
  vd s0 = vd_zero(), s1 = vd_zero();
  int64_t i = begin;
  for (; i + 2 * LANES <= end; i += 2 * LANES) {
    const vf2 g = v2_load(data, i, dtype, STEP);
    s0 = vd_add_square(s0, g.a);
    s1 = vd_add_square(s1, g.b);
  }
  const vf2 rest = v2_load(data, i, dtype, (int)(end - i));
  *sum += vd_sum(vd_add_square(s0, rest.a)) + vd_sum(vd_add_square(s1, rest.b));
}

typedef struct clip_job {
  const tigon_adamw_clip_problem *p;
  list list;
} clip_job;

typedef struct clip_part {
  const tigon_adamw_clip_problem *p;
  double sum;
} clip_part;

static void clip_visit(void *argument, int64_t i, int64_t begin, int64_t end) {
  clip_part *part = argument;
  const tigon_tensor *t = &part->p->grads[i];
  TIGON_FOR_DTYPE(t->dtype, add_squares, t->data, begin, end, &part->sum);
}

static void clip_task(const void *argument, int64_t index) {
  const clip_job *j = argument;
  clip_part part = {j->p, 0};
  walk(&j->list, index, clip_visit, &part);
  j->p->partials[index] = part.sum;
}

tigon_status TIGON_CPU(adamw_clip)(tigon_queue *queue, const tigon_adamw_clip_problem *p) {
  clip_job j = {.p = p};
  fill_list(&j.list, p->grads, sizeof *p->grads, p->count);
  tigon_cpu_parallel(queue, j.list.tasks, clip_task, &j);
  double sum = 0;
  for (int64_t i = 0; i < j.list.tasks; ++i) sum += p->partials[i];
  const double norm = sqrt(sum);
  *p->norm = (float)norm;
  *p->factor = p->max_norm > 0 && norm > p->max_norm ? (float)(p->max_norm / norm) : norm != norm ? (float)norm : 1;
  return TIGON_OK;
}
