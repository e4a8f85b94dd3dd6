/* adamw: the tensors of the list are cut into chunks of fixed size, numbered across the list; a chunk is a task. */
#include <math.h>

#include "cpu/kernels.h"

enum { CHUNK = 1 << 15 }; /* elements */

static int64_t elements(const tigon_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

static int64_t chunks(const tigon_tensor *t) { return (elements(t) + CHUNK - 1) / CHUNK; }

typedef struct constants {
  vf clip, beta1, beta2, rest1, rest2, step, root, eps, decay;
} constants;

/* p -= lr * decay * p + (lr / correction1) * m / (sqrt(v) / sqrt(correction2) + eps) */
TIGON_INLINE vf update(const constants *k, vf value, vf grad, vf *m, vf *v) {
  const vf g = vf_mul(grad, k->clip);
  *m = vf_fma(k->beta1, *m, vf_mul(k->rest1, g));
  *v = vf_fma(k->beta2, *v, vf_mul(k->rest2, vf_mul(g, g)));
  const vf move = vf_div(vf_mul(k->step, *m), vf_fma(vf_sqrt(*v), k->root, k->eps));
  return vf_sub(vf_fnma(k->decay, value, value), move);
}

TIGON_INLINE void step_chunk(tigon_dtype dtype, const tigon_adamw_param *t, int64_t begin, int64_t end, const constants *k) {
  float *m = t->exp_avg.data, *v = t->exp_avg_sq.data, *master = t->master.data;
  const tigon_dtype grad_dtype = t->grad.dtype;
  for (int64_t i = begin; i < end; i += LANES) {
    const int n = end - i >= LANES ? LANES : (int)(end - i);
    vf mean = vf_load_n(m + i, n), square = vf_load_n(v + i, n);
    const vf value = master ? vf_load_n(master + i, n) : v_load_n(t->param.data, i, dtype, n);
    const vf updated = update(k, value, v_load_n(t->grad.data, i, grad_dtype, n), &mean, &square);
    vf_store_n(m + i, mean, n);
    vf_store_n(v + i, square, n);
    if (master) vf_store_n(master + i, updated, n);
    v_store_n(t->param.data, i, dtype, updated, n);
  }
}

static void step_task(const void *argument, int64_t index) {
  const tigon_adamw_step_problem *p = argument;
  const tigon_adamw_param *t = p->params;
  for (int64_t n; index >= (n = chunks(&t->param)); ++t) index -= n;
  const int64_t count = elements(&t->param), begin = index * CHUNK, end = count - begin < CHUNK ? count : begin + CHUNK;
  const constants k = {
      .clip = vf_set(p->clip_factor ? *p->clip_factor : 1),
      .beta1 = vf_set(p->beta1),
      .beta2 = vf_set(p->beta2),
      .rest1 = vf_set(1 - p->beta1),
      .rest2 = vf_set(1 - p->beta2),
      .step = vf_set((float)((double)p->lr / p->correction1)),
      .root = vf_set((float)(1 / sqrt(p->correction2))),
      .eps = vf_set(p->eps),
      .decay = vf_set((float)((double)p->lr * t->weight_decay)),
  };
  TIGON_FOR_DTYPE(t->param.dtype, step_chunk, t, begin, end, &k);
}

tigon_status TIGON_CPU(adamw_step)(tigon_queue *queue, const tigon_adamw_step_problem *p, const tigon_plan *plan) {
  (void)plan;
  int64_t tasks = 0;
  for (int64_t i = 0; i < p->count; ++i) tasks += chunks(&p->params[i].param);
  tigon_cpu_parallel(queue, tasks, step_task, p);
  return TIGON_OK;
}

/* Sum of squares in f64, which no f32 square overflows or underflows; one partial sum a lane. */
TIGON_INLINE void square_chunk(tigon_dtype dtype, const void *data, int64_t begin, int64_t end, double *sum) {
  double lane_sums[LANES] = {0};
  for (int64_t i = begin; i < end; i += LANES) {
    float g[LANES];
    vf_store(g, v_load_n(data, i, dtype, end - i >= LANES ? LANES : (int)(end - i)));
    for (int l = 0; l < LANES; ++l) lane_sums[l] += (double)g[l] * (double)g[l];
  }
  for (int l = 0; l < LANES; ++l) *sum += lane_sums[l];
}

/* Task p sums chunks p, p + PARTIALS, ... */
static void clip_task(const void *argument, int64_t index) {
  const tigon_adamw_clip_problem *p = argument;
  double sum = 0;
  int64_t chunk = index;
  for (int64_t i = 0; i < p->count; ++i) {
    const int64_t count = elements(&p->grads[i]), n = chunks(&p->grads[i]);
    for (; chunk < n; chunk += TIGON_ADAMW_PARTIALS) {
      const int64_t begin = chunk * CHUNK, end = count - begin < CHUNK ? count : begin + CHUNK;
      TIGON_FOR_DTYPE(p->grads[i].dtype, square_chunk, p->grads[i].data, begin, end, &sum);
    }
    chunk -= n;
  }
  p->partials[index] = sum;
}

tigon_status TIGON_CPU(adamw_clip)(tigon_queue *queue, const tigon_adamw_clip_problem *p, const tigon_plan *plan) {
  (void)plan;
  tigon_cpu_parallel(queue, TIGON_ADAMW_PARTIALS, clip_task, p);
  double sum = 0;
  for (int i = 0; i < TIGON_ADAMW_PARTIALS; ++i) sum += p->partials[i];
  const double norm = sqrt(sum), limit = (double)p->max_norm;
  *p->norm = (float)norm;
  *p->factor = limit > 0 && norm > limit ? (float)(limit / norm) : norm != norm ? (float)norm : 1;
  return TIGON_OK;
}
