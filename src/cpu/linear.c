/* linear as three GEMMs and a column sum. */
#include "cpu/gemm_builtin.h"

tigon_status TIGON_CPU(linear_fwd)(tigon_queue *queue, const tigon_linear_fwd_problem *p) {
  const tigon_gemm_problem y = {
      .m = p->rows,
      .n = p->n,
      .k = p->k,
      .a = {p->x, p->dtype, p->x_pitch, false},
      .b = {p->w, p->dtype, p->w_pitch, true},
      .c = p->y,
      .c_dtype = p->y_dtype,
      .c_pitch = p->y_pitch,
      .bias = p->b,
      .bias_dtype = p->b_dtype,
  };
  TIGON_CPU(gemm)(queue, &y, 1);
  return TIGON_OK;
}

enum { SUM_COLUMNS = 256, SUM_ROWS = 256 }; /* columns of a task; rows of one partial sum */

TIGON_INLINE void bias_gradient(tigon_dtype dtype, const tigon_linear_bwd_problem *p, int64_t n0, int64_t n) {
  float total[SUM_COLUMNS] = {0};
  for (int64_t r0 = 0; r0 < p->rows; r0 += SUM_ROWS) {
    float sum[SUM_COLUMNS] = {0};
    const int64_t end = p->rows - r0 < SUM_ROWS ? p->rows : r0 + SUM_ROWS;
    for (int64_t r = r0; r < end; ++r) {
      const int64_t row = r * p->dy_pitch + n0;
      int64_t c = 0;
      for (; c + LANES <= n; c += LANES) vf_store(sum + c, vf_add(vf_load(sum + c), v_load(p->dy, row + c, dtype)));
      if (c < n) vf_store(sum + c, vf_add(vf_load(sum + c), v_load_n(p->dy, row + c, dtype, (int)(n - c))));
    }
    for (int64_t c = 0; c < n; ++c) total[c] += sum[c];
  }
  for (int64_t c = 0; c < n; ++c) {
    if (p->db_sums) total[c] += p->db_sums[n0 + c];
    if (p->accumulate) total[c] += s_load(p->db, n0 + c, p->db_dtype);
    s_store(p->db, n0 + c, p->db_dtype, total[c]);
  }
}

static void bias_task(const void *argument, int64_t index) {
  const tigon_linear_bwd_problem *p = argument;
  const int64_t n0 = index * SUM_COLUMNS, n = p->n - n0 < SUM_COLUMNS ? p->n - n0 : SUM_COLUMNS;
  TIGON_FOR_DTYPE(p->dy_dtype, bias_gradient, p, n0, n);
}

tigon_status TIGON_CPU(linear_bwd)(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  const tigon_gemm_problem dw = {
      .m = p->n,
      .n = p->k,
      .k = p->rows,
      .a = {p->dy, p->dy_dtype, p->dy_pitch, true},
      .b = {p->x, p->dtype, p->x_pitch, false},
      .c = p->dw,
      .c_dtype = p->dw_dtype,
      .c_pitch = p->dw_pitch,
      .sums = p->dw_sums,
      .accumulate = p->accumulate,
  };
  const tigon_gemm_problem dx = {
      .m = p->rows,
      .n = p->k,
      .k = p->n,
      .a = {p->dy, p->dy_dtype, p->dy_pitch, false},
      .b = {p->w, p->dtype, p->w_pitch, false},
      .c = p->dx,
      .c_dtype = p->dx_dtype,
      .c_pitch = p->dx_pitch,
      .accumulate = p->accumulate_dx,
  };
  if (p->dw) TIGON_CPU(gemm)(queue, &dw, 1);
  if (p->db)
    tigon_cpu_parallel_bytes(queue, (p->n + SUM_COLUMNS - 1) / SUM_COLUMNS,
                             p->rows * p->n * (int64_t)tigon_dtype_size(p->dy_dtype), bias_task, p);
  if (p->dx) TIGON_CPU(gemm)(queue, &dx, 1);
  return TIGON_OK;
}
