/* linear as three products and a sum over rows. */
#include "core/context.h"
#include "opencl/clblast.h"
#include "opencl/kernel/gemm.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

typedef struct operands {
  const void *a, *b, *bias;
  const float *sums;
  void *c;
} operands;

static tigon_status multiply_here(tigon_queue *queue, const operands *of, const gemm_numbers *k) {
  static const opencl_kernel kernel = {"linear", "linear_gemm"};
  const int64_t local = opencl_of(queue)->model == OPENCL_ITEMS ? 1 : GEMM_GROUP;
  const int64_t tiles = opencl_ceil_div(k->m, GEMM_TILE) * opencl_ceil_div(k->n, GEMM_TILE);
  const opencl_shape shape = {.global = {tiles * local}, .local = {local}};
  return opencl_launch(queue, &kernel, TIGON_F32, shape,
                       OPENCL_MEMORY(k->k ? of->a : NULL, k->k ? of->b : NULL, of->c, of->bias, of->sums), k,
                       sizeof *k);
}

/* CLBlast adds the product to what a kernel without terms has made of bias, sums and c. */
static tigon_status multiply(tigon_queue *queue, const operands *of, const gemm_numbers *k) {
  clblast_places at;
  const bool begins = of->bias || of->sums;
  gemm_numbers without = *k;
  without.k = 0;
  if (!of->c) return TIGON_OK;
  if (!opencl_clblast_takes(queue, of->a, of->b, of->c, k, &at)) return multiply_here(queue, of, k);
  if (begins) TIGON_TRY(multiply_here(queue, of, &without));
  return opencl_clblast_run(queue, &at, begins || k->accumulate, k);
}

tigon_status tigon_opencl_linear_fwd(tigon_queue *queue, const tigon_linear_fwd_problem *p) {
  const operands of = {.a = p->x, .b = p->w, .bias = p->b, .c = p->y};
  const gemm_numbers k = {.m = p->rows,
                          .n = p->n,
                          .k = p->k,
                          .c_pitch = p->y_pitch,
                          .a = {p->x_pitch, (int32_t)p->dtype, false},
                          .b = {p->w_pitch, (int32_t)p->dtype, true},
                          .c_dtype = (int32_t)p->y_dtype,
                          .bias_dtype = (int32_t)p->b_dtype};
  return multiply(queue, &of, &k);
}

static tigon_status bias_gradient(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  static const opencl_kernel kernel = {"linear", "linear_bias"};
  const int64_t local = opencl_of(queue)->model == OPENCL_ITEMS ? 1 : BIAS_GROUP;
  const opencl_shape shape = {.global = {opencl_ceil_div(p->n, BIAS_COLUMNS) * local}, .local = {local}};
  const bias_numbers k = {.rows = p->rows,
                          .cols = p->n,
                          .pitch = p->dy_pitch,
                          .dy_dtype = (int32_t)p->dy_dtype,
                          .dtype = (int32_t)p->db_dtype,
                          .accumulate = p->accumulate};
  return opencl_launch(queue, &kernel, TIGON_F32, shape, OPENCL_MEMORY(p->rows ? p->dy : NULL, p->db_sums, p->db), &k,
                       sizeof k);
}

/* Without rows the products have no terms, and round what sums a composite has made. */
tigon_status tigon_opencl_linear_bwd(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  const operands of_dw = {.a = p->dy, .b = p->x, .sums = p->dw_sums, .c = p->dw};
  const gemm_numbers dw = {.m = p->n,
                           .n = p->k,
                           .k = p->rows,
                           .c_pitch = p->dw_pitch,
                           .a = {p->dy_pitch, (int32_t)p->dy_dtype, true},
                           .b = {p->x_pitch, (int32_t)p->dtype, false},
                           .c_dtype = (int32_t)p->dw_dtype,
                           .accumulate = p->accumulate};
  const operands of_dx = {.a = p->dy, .b = p->w, .c = p->dx};
  const gemm_numbers dx = {.m = p->rows,
                           .n = p->k,
                           .k = p->n,
                           .c_pitch = p->dx_pitch,
                           .a = {p->dy_pitch, (int32_t)p->dy_dtype, false},
                           .b = {p->w_pitch, (int32_t)p->dtype, false},
                           .c_dtype = (int32_t)p->dx_dtype,
                           .accumulate = p->accumulate_dx};
  TIGON_TRY(multiply(queue, &of_dw, &dw));
  if (p->db) TIGON_TRY(bias_gradient(queue, p));
  return multiply(queue, &of_dx, &dx);
}
