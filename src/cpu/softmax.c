/* softmax: three sweeps over a row, of which the second and third find it in the cache: largest, sum, store. exp is computed
 * twice rather than kept, because y's dtype would round it. A NaN gets into the sum and from there into the whole row. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/simd_math.h"

enum { BLOCK = 256 * LANES }; /* columns of one f32 partial sum */

typedef struct row {
  const void *x, *mask; /* mask may be NULL */
  tigon_dtype mask_dtype;
  float scale;
} row;

/* scale * x + mask; lanes from n on are -Inf. */
TIGON_INLINE vf logits(tigon_dtype dtype, const row *in, int64_t c, int n) {
  vf z = vf_mul(v_load_n(in->x, c, dtype, n), vf_set(in->scale));
  if (in->mask) z = vf_add(z, v_load_n(in->mask, c, in->mask_dtype, n));
  if (n == LANES) return z;
  float lanes[LANES];
  vf_store(lanes, z);
  for (int i = n; i < LANES; ++i) lanes[i] = -INFINITY;
  return vf_load(lanes);
}

TIGON_INLINE int lanes_at(int64_t count, int64_t c) { return count - c >= LANES ? LANES : (int)(count - c); }

TIGON_INLINE void fwd_row(tigon_dtype dtype, const row *in, void *y, int64_t count, int64_t cols, bool stream) {
  vf most = vf_set(-INFINITY);
  for (int64_t c = 0; c < count; c += LANES) most = vf_max(logits(dtype, in, c, lanes_at(count, c)), most);
  const float largest = vf_max_across(most);
  const vf reference = vf_set(largest == -INFINITY ? 0 : largest);
  double sum = 0;
  for (int64_t block = 0; block < count; block += BLOCK) {
    const int64_t end = count - block < BLOCK ? count : block + BLOCK;
    vf s = vf_zero();
    for (int64_t c = block; c < end; c += LANES)
      s = vf_add(s, vf_exp(vf_sub(logits(dtype, in, c, lanes_at(count, c)), reference)));
    sum += (double)vf_sum(s);
  }
  const vf inverse = vf_set(sum == 0 ? 0 : (float)(1 / sum));
  for (int64_t c = 0; c < count; c += LANES) {
    const int n = lanes_at(count, c);
    const vf v = vf_mul(vf_exp(vf_sub(logits(dtype, in, c, n), reference)), inverse);
    if (n == LANES)
      v_put(y, c, dtype, v, stream);
    else
      v_store_n(y, c, dtype, v, n);
  }
  /* Columns that the row does not see. */
  memset((char *)y + (size_t)count * tigon_dtype_size(dtype), 0, (size_t)(cols - count) * tigon_dtype_size(dtype));
}

TIGON_INLINE void fwd_rows(tigon_dtype dtype, const tigon_softmax_fwd_problem *p, int64_t begin, int64_t end, bool stream_call) {
  const size_t size = tigon_dtype_size(dtype);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t last = r % p->tokens + p->cols - p->tokens;
    const int64_t count = !p->causal || last >= p->cols ? p->cols : last + 1 > 0 ? last + 1 : 0;
    const row in = {tigon_row(&p->space, &p->x, size, r), tigon_row(&p->space, &p->mask, tigon_dtype_size(p->mask_dtype), r),
                    p->mask_dtype, p->scale};
    void *y = tigon_row(&p->space, &p->y, size, r);
    fwd_row(dtype, &in, y, count, p->cols, stream_call && v_aligned(y, dtype));
  }
  if (stream_call) vf_fence();
}

static void fwd_task(const void *argument, int64_t index) {
  const tigon_softmax_fwd_problem *p = argument;
  const int64_t row_bytes = 2 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  int64_t begin, end;
  tigon_plan_range(p->space.rows, tigon_cpu_row_tasks(p->space.rows, row_bytes), index, &begin, &end);
  TIGON_FOR_DTYPE(p->dtype, fwd_rows, p, begin, end, tigon_cpu_streams(p->space.rows * row_bytes));
}

tigon_status TIGON_CPU(softmax_fwd)(tigon_queue *queue, const tigon_softmax_fwd_problem *p, const tigon_plan *plan) {
  (void)plan;
  const int64_t row_bytes = 2 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, row_bytes), fwd_task, p);
  return TIGON_OK;
}

TIGON_INLINE double dot(tigon_dtype dtype, const void *a, const void *b, int64_t cols) {
  double sum = 0;
  for (int64_t block = 0; block < cols; block += BLOCK) {
    const int64_t end = cols - block < BLOCK ? cols : block + BLOCK;
    vf s0 = vf_zero(), s1 = vf_zero();
    int64_t c = block;
    for (; c + 2 * LANES <= end; c += 2 * LANES) {
      s0 = vf_fma(v_load(a, c, dtype), v_load(b, c, dtype), s0);
      s1 = vf_fma(v_load(a, c + LANES, dtype), v_load(b, c + LANES, dtype), s1);
    }
    for (; c < end; c += LANES) s0 = vf_fma(v_load_n(a, c, dtype, lanes_at(end, c)), v_load_n(b, c, dtype, lanes_at(end, c)), s0);
    sum += (double)vf_sum(vf_add(s0, s1));
  }
  return sum;
}

TIGON_INLINE void bwd_rows(tigon_dtype dtype, const tigon_softmax_bwd_problem *p, int64_t begin, int64_t end, bool stream_call) {
  const size_t size = tigon_dtype_size(dtype);
  for (int64_t r = begin; r < end; ++r) {
    const void *dy = tigon_row(&p->space, &p->dy, size, r), *y = tigon_row(&p->space, &p->y, size, r);
    void *dx = tigon_row(&p->space, &p->dx, size, r);
    const vf sum = vf_set((float)dot(dtype, dy, y, p->cols)), scale = vf_set(p->scale);
    const bool stream = stream_call && v_aligned(dx, dtype);
    for (int64_t c = 0; c < p->cols; c += LANES) {
      const int n = lanes_at(p->cols, c);
      const vf v = vf_mul(vf_mul(scale, v_load_n(y, c, dtype, n)), vf_sub(v_load_n(dy, c, dtype, n), sum));
      if (n == LANES)
        v_put(dx, c, dtype, v, stream);
      else
        v_store_n(dx, c, dtype, v, n);
    }
  }
  if (stream_call) vf_fence();
}

static void bwd_task(const void *argument, int64_t index) {
  const tigon_softmax_bwd_problem *p = argument;
  const int64_t row_bytes = 3 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  int64_t begin, end;
  tigon_plan_range(p->space.rows, tigon_cpu_row_tasks(p->space.rows, row_bytes), index, &begin, &end);
  TIGON_FOR_DTYPE(p->dtype, bwd_rows, p, begin, end, tigon_cpu_streams(p->space.rows * row_bytes));
}

tigon_status TIGON_CPU(softmax_bwd)(tigon_queue *queue, const tigon_softmax_bwd_problem *p, const tigon_plan *plan) {
  (void)plan;
  const int64_t row_bytes = 3 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, row_bytes), bwd_task, p);
  return TIGON_OK;
}
