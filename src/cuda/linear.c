/* linear as three products, a library's where it takes them, and what is left beside them. */
#include "cuda/blaslt.h"
#include "cuda/column_sum.h"
#include "cuda/kernels.h"
#include "cuda/linear.h"

/* ---- products ---- */

static tigon_status built_in(tigon_queue *queue, const cuda_gemm *p) {
  static cuda_kernel kernel = CUDA_KERNEL(linear, linear_gemm);
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->m, GEMM_TILE) * cuda_ceil_div(p->n, GEMM_TILE),
                            .threads = GEMM_THREADS};
  return cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)p));
}

/* ---- rounding ---- */

static tigon_status round_sums(tigon_queue *queue, linear_round p, tigon_dtype dtype) {
  static cuda_kernel wide_kernels[3] = CUDA_KERNELS(linear, linear_round_wide);
  static cuda_kernel any_kernels[3] = CUDA_KERNELS(linear, linear_round_any);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(dtype);
  if (p.to_pitch == p.cols && (p.from_pitch == p.cols || !p.from) && !p.bias)
    p.cols *= p.rows, p.rows = 1, p.from_pitch = p.to_pitch = p.cols;
  const bool wide = p.cols % lanes == 0 && cuda_wide(p.to) && (p.rows == 1 || p.to_pitch % lanes == 0) &&
                    cuda_wide(p.from) && (p.rows == 1 || !p.from || p.from_pitch % 4 == 0);
  const int64_t each = (int64_t)ROUND_THREADS * ROUND_EACH * (wide ? lanes : 1);
  const cuda_shape shape = {.blocks = p.rows * cuda_ceil_div(p.cols, each), .threads = ROUND_THREADS};
  return cuda_launch(queue, cuda_by_dtype(wide ? wide_kernels : any_kernels, dtype), shape, CUDA_ARGUMENTS(&p));
}

/* For a bias that the library cannot add, and for 16-bit sums, whose product it rounds before it adds it. Rows of the product
 * are f32, in c itself or in scratch memory. The other terms are added while the rows are rounded. */
static tigon_status multiply_apart(tigon_queue *queue, const cuda_gemm *y) {
  enum { SUMS_BYTES = CUDA_SCRATCH_BYTES / 4 * 3, ALIGNED_ROWS = 128 };
  const bool in_place = y->c_dtype == TIGON_F32;
  char *scratch = cuda_of(queue)->scratch;
  int64_t step = in_place ? y->m : (int64_t)(SUMS_BYTES / sizeof(float)) / y->n;
  if (step > ALIGNED_ROWS) step = in_place ? step : step - step % ALIGNED_ROWS;
  if (step == 0) return built_in(queue, y);
  for (int64_t r = 0; r < y->m; r += step) {
    cuda_gemm part = *y;
    part.m = y->m - r < step ? y->m - r : step;
    part.a.data =
        (const char *)y->a.data + r * (y->a.transposed ? 1 : y->a.pitch) * (int64_t)tigon_dtype_size(y->a.dtype);
    part.c = (char *)y->c + r * y->c_pitch * (int64_t)tigon_dtype_size(y->c_dtype);
    cuda_gemm sums = part;
    sums.bias = NULL;
    sums.accumulate = in_place && y->accumulate;
    if (!in_place) sums.c = scratch, sums.c_dtype = TIGON_F32, sums.c_pitch = y->n;
    bool taken;
    tigon_status status = cuda_blaslt_gemm(queue, &sums, scratch + SUMS_BYTES, CUDA_SCRATCH_BYTES - SUMS_BYTES, &taken);
    if (status == TIGON_OK && !taken) status = built_in(queue, &part);
    const linear_round add = {.from = sums.c,
                              .from_pitch = sums.c_pitch,
                              .to = part.c,
                              .to_pitch = y->c_pitch,
                              .bias = y->bias,
                              .bias_dtype = y->bias_dtype,
                              .accumulate = !in_place && y->accumulate,
                              .rows = part.m,
                              .cols = y->n};
    if (status == TIGON_OK && taken) status = round_sums(queue, add, y->c_dtype);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}

static tigon_status multiply(tigon_queue *queue, const cuda_gemm *p) {
  const bool rounds_first = p->accumulate && p->c_dtype != TIGON_F32 && !p->sums;
  bool taken = false;
  tigon_status status = TIGON_OK;
  if (!rounds_first) status = cuda_blaslt_gemm(queue, p, cuda_of(queue)->scratch, CUDA_SCRATCH_BYTES, &taken);
  if (status != TIGON_OK || taken) return status;
  return p->bias || rounds_first ? multiply_apart(queue, p) : built_in(queue, p);
}

/* ---- forward ---- */

tigon_status tigon_cuda_linear_fwd(tigon_queue *queue, const tigon_linear_fwd_problem *p) {
  const cuda_gemm y = {.m = p->rows,
                       .n = p->n,
                       .k = p->k,
                       .a = {p->x, p->dtype, p->x_pitch, false},
                       .b = {p->w, p->dtype, p->w_pitch, true},
                       .c = p->y,
                       .c_dtype = p->y_dtype,
                       .c_pitch = p->y_pitch,
                       .bias = p->b,
                       .bias_dtype = p->b_dtype};
  return multiply(queue, &y);
}

/* ---- backward ---- */

/* Ranges of rows: enough blocks for all SMs, while a range has rows for all its warps and the slabs fit the scratch memory. */
static int64_t bias_ranges(const tigon_queue *queue, const linear_bias_sums *sums, int64_t panels) {
  enum { BLOCKS_A_CORE = 8, LEAST_ROWS = 8 * BIAS_WARPS };
  int64_t ranges = BLOCKS_A_CORE * cuda_of(queue)->desc.cores / panels;
  if (ranges > sums->rows / LEAST_ROWS) ranges = sums->rows / LEAST_ROWS;
  const int64_t most = (int64_t)(CUDA_SCRATCH_BYTES / sizeof(float)) / sums->cols;
  if (ranges > most) ranges = most;
  return ranges < 1 ? 1 : ranges;
}

static tigon_status bias_gradient(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  static cuda_kernel wide_kernels[3] = CUDA_KERNELS(linear, linear_bias_wide);
  static cuda_kernel any_kernels[3] = CUDA_KERNELS(linear, linear_bias_any);
  enum { LANES = 32 };
  linear_bias_sums sums = {.dy = p->dy,
                           .rows = p->rows,
                           .cols = p->n,
                           .pitch = p->dy_pitch,
                           .slabs = cuda_of(queue)->scratch,
                           .to = p->db,
                           .dtype = p->db_dtype,
                           .sums = p->db_sums,
                           .accumulate = p->accumulate};
  const int64_t pack = 16 / (int64_t)tigon_dtype_size(p->dy_dtype);
  const bool wide = p->n % pack == 0 && p->dy_pitch % pack == 0 && cuda_wide(p->dy);
  const int64_t panels = cuda_ceil_div(p->n, LANES * (wide ? pack : 1));
  sums.ranges = bias_ranges(queue, &sums, panels);
  const cuda_shape shape = {.blocks = panels * sums.ranges, .threads = LANES * BIAS_WARPS};
  const tigon_status status =
      cuda_launch(queue, cuda_by_dtype(wide ? wide_kernels : any_kernels, p->dy_dtype), shape, CUDA_ARGUMENTS(&sums));
  if (status != TIGON_OK || sums.ranges == 1) return status;
  const column_sums all = {
      .of = {{sums.slabs, p->db, p->db_dtype, p->n}}, .count = sums.ranges, .step = p->n, .accumulate = p->accumulate};
  return cuda_column_sums(queue, &all);
}

/* Without rows: what sums a composite has made. */
static tigon_status round_gradients(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  const linear_round dw = {.from = p->dw_sums,
                           .to = p->dw,
                           .rows = p->n,
                           .cols = p->k,
                           .from_pitch = p->k,
                           .to_pitch = p->dw_pitch,
                           .accumulate = p->accumulate};
  const linear_round db = {.from = p->db_sums,
                           .to = p->db,
                           .rows = 1,
                           .cols = p->n,
                           .from_pitch = p->n,
                           .to_pitch = p->n,
                           .accumulate = p->accumulate};
  tigon_status status = p->dw ? round_sums(queue, dw, p->dw_dtype) : TIGON_OK;
  if (status == TIGON_OK && p->db) status = round_sums(queue, db, p->db_dtype);
  return status;
}

tigon_status tigon_cuda_linear_bwd(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  if (p->rows == 0) return round_gradients(queue, p);
  const cuda_gemm dw = {.m = p->n,
                        .n = p->k,
                        .k = p->rows,
                        .a = {p->dy, p->dy_dtype, p->dy_pitch, true},
                        .b = {p->x, p->dtype, p->x_pitch, false},
                        .c = p->dw,
                        .c_dtype = p->dw_dtype,
                        .c_pitch = p->dw_pitch,
                        .sums = p->dw_sums,
                        .accumulate = p->accumulate};
  const cuda_gemm dx = {.m = p->rows,
                        .n = p->k,
                        .k = p->n,
                        .a = {p->dy, p->dy_dtype, p->dy_pitch, false},
                        .b = {p->w, p->dtype, p->w_pitch, false},
                        .c = p->dx,
                        .c_dtype = p->dx_dtype,
                        .c_pitch = p->dx_pitch,
                        .accumulate = p->accumulate_dx};
  tigon_status status = p->dw ? multiply(queue, &dw) : TIGON_OK;
  if (status == TIGON_OK && p->db) status = bias_gradient(queue, p);
  if (status == TIGON_OK && p->dx) status = multiply(queue, &dx);
  return status;
}
