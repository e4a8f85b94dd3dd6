/* linear on an NPU: products through aclnn, in f32 where more is added to them, and kernels that add it and round
 * once. */
#include "ascend/kernel/linear.h"

#include "ascend/ascend.h"
#include "ascend/npu.h"

/* A matrix whose element (i, j) is at data[i * pitch + j]; transposed: at data[j * pitch + i]. */
typedef struct matrix {
  const void *data;
  tigon_dtype dtype;
  int64_t pitch;
  bool transposed;
} matrix;

/* c[m, n] = a[m, k] b[k, n] + bias[n] + sums[m, n] + (accumulate ? c : 0), summed in f32 and rounded once. */
typedef struct product {
  int64_t m, n, k;
  matrix a, b, c;
  const void *bias; /* may be NULL */
  tigon_dtype bias_dtype;
  const float *sums; /* contiguous, may be NULL */
  bool accumulate;
} product;

static const char *element(const matrix *x, int64_t at) {
  return (const char *)x->data + at * (int64_t)tigon_dtype_size(x->dtype);
}

/* ---- aclnn ---- */

/* A transpose is its strides. */
static void *tensor_of(const aclnn_api *aclnn, const matrix *x, int64_t rows, int64_t cols) {
  const int64_t lines = x->transposed ? cols : rows, width = x->transposed ? rows : cols;
  const int64_t pitch = lines == 1 ? width : x->pitch; /* that of a single row is free */
  const int64_t shape[] = {rows, cols}, strides[] = {x->transposed ? 1 : pitch, x->transposed ? pitch : 1};
  return ascend_aclnn_tensor(aclnn, x->data, ascend_aclnn_dtype(x->dtype), 2, shape, strides);
}

static tigon_status enqueue(tigon_queue *queue, ascend_npu *npu, const void *a, const void *b, void *c,
                            int8_t cube_math) {
  const aclnn_api *aclnn = npu->aclnn;
  uint64_t bytes = 0;
  void *executor = NULL;
  const tigon_status status = ascend_check(
      queue, npu, aclnn->mm_get_workspace_size(a, b, c, cube_math, &bytes, &executor), "aclnnMmGetWorkspaceSize");
  return status == TIGON_OK ? ascend_aclnn_enqueue(queue, npu, "aclnnMm", aclnn->mm, bytes, executor) : status;
}

/* c = a b, of which k > 0. */
static tigon_status multiply_matrices(tigon_queue *queue, const product *p) {
  if (queue->record) {
    queue->record(queue->record_to, &(tigon_launch){.kernel = "aclnnMm", .grid = 1});
    return TIGON_OK;
  }
  ascend_npu *npu = ascend_of(queue)->npu;
  const aclnn_api *aclnn = npu->aclnn;
  const bool is_short = p->a.dtype != TIGON_F32 && p->a.dtype == p->b.dtype;
  int32_t before;
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK) {
    void *a = tensor_of(aclnn, &p->a, p->m, p->k), *b = tensor_of(aclnn, &p->b, p->k, p->n),
         *c = tensor_of(aclnn, &p->c, p->m, p->n);
    if (a && b && c) {
      status = enqueue(queue, npu, a, b, c, is_short && p->c.dtype == TIGON_F32 ? ACLNN_KEEP_SUMS : ACLNN_KEEP_DTYPE);
    } else {
      queue->reason = "aclCreateTensor returned none";
      status = TIGON_ERROR_DEVICE;
    }
    if (a) aclnn->destroy_tensor(a);
    if (b) aclnn->destroy_tensor(b);
    if (c) aclnn->destroy_tensor(c);
  }
  ascend_leave(npu, before);
  return status;
}

/* ---- what is added ---- */

static void add_term(linear_sum_arguments *to, const void *data, int64_t pitch, tigon_dtype dtype) {
  if (data) to->term[to->terms++] = (linear_term){(gm_ptr)data, pitch, dtype};
}

/* c = the product's f32 sums, which may be NULL, and all that is added to them. */
static tigon_status add_up(tigon_queue *queue, const product *p, const float *product_sums) {
  linear_sum_arguments a = {.to = {(gm_ptr)p->c.data, p->c.pitch, p->c.dtype}, .rows = p->m, .cols = p->n};
  add_term(&a, product_sums, p->n, TIGON_F32);
  add_term(&a, p->bias, 0, p->bias_dtype);
  add_term(&a, p->sums, p->n, TIGON_F32);
  add_term(&a, p->accumulate ? p->c.data : NULL, p->c.pitch, p->c.dtype);
  const int64_t tile_rows = linear_tile_rows(a.cols);
  const int64_t tiles = ((a.rows - 1) / tile_rows + 1) * ((a.cols - 1) / LINEAR_TILE + 1);
  return ascend_launch(queue, "linear_sum", linear_sum, &a, least(tiles, ascend_of(queue)->soc->device.cores));
}

/* Does aclnn's own rounding do, into c as it lies? */
static bool is_plain(const product *p) {
  return !p->bias && !p->sums && !p->accumulate && (p->c.pitch == p->n || p->m == 1) &&
         (uintptr_t)p->c.data % ACLNN_ALIGNMENT == 0 && (p->c.dtype == TIGON_F32 || p->a.dtype == p->b.dtype);
}

/* Memory for f32 sums, and how many rows of n it has; NULL with queue->reason when not one. */
static float *sums_of(tigon_queue *queue, int64_t n, int64_t *rows) {
  *rows = ASCEND_SUMS_BYTES / (int64_t)sizeof(float) / n;
  if (*rows > 0) return ascend_of(queue)->npu->products;
  queue->reason = "the device's scratch of 32 MiB is too small for one row of f32 sums";
  return NULL;
}

/* By rows whose f32 sums fit the device's scratch. */
static tigon_status multiply_apart(tigon_queue *queue, const product *p) {
  int64_t step;
  float *sums = sums_of(queue, p->n, &step);
  tigon_status status = sums ? TIGON_OK : TIGON_ERROR_OUT_OF_MEMORY;
  for (int64_t r = 0; r < p->m && status == TIGON_OK; r += step) {
    product part = *p;
    part.m = least(step, p->m - r);
    part.a.data = element(&p->a, p->a.transposed ? r : r * p->a.pitch);
    part.c.data = element(&p->c, r * p->c.pitch);
    if (p->sums) part.sums = p->sums + r * p->n;
    product apart = part;
    apart.c = (matrix){sums, TIGON_F32, p->n, false};
    status = multiply_matrices(queue, &apart);
    if (status == TIGON_OK) status = add_up(queue, &part, sums);
  }
  return status;
}

static tigon_status multiply(tigon_queue *queue, const product *p) {
  if (p->k == 0) return add_up(queue, p, NULL);
  return is_plain(p) ? multiply_matrices(queue, p) : multiply_apart(queue, p);
}

/* ---- forward and backward ---- */

tigon_status ascend_linear_fwd(tigon_queue *queue, const tigon_linear_fwd_problem *p) {
  const product y = {.m = p->rows,
                     .n = p->n,
                     .k = p->k,
                     .a = {p->x, p->dtype, p->x_pitch, false},
                     .b = {p->w, p->dtype, p->w_pitch, true},
                     .c = {p->y, p->y_dtype, p->y_pitch, false},
                     .bias = p->b,
                     .bias_dtype = p->b_dtype};
  return multiply(queue, &y);
}

/* In as many ranges of rows as keep all cores at work, of a tile or more each. */
static tigon_status bias_gradient(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  int64_t most;
  float *slabs = sums_of(queue, p->n, &most);
  if (!slabs) return TIGON_ERROR_OUT_OF_MEMORY;
  const int64_t cores = ascend_of(queue)->soc->device.cores, panels = (p->n - 1) / LINEAR_PANEL + 1;
  const int64_t tiles = p->rows / linear_tile_rows(least(p->n, LINEAR_PANEL));
  const int64_t ranges = least(least(cores / panels, tiles), most);
  const linear_column_sums_arguments a = {.x = {(gm_ptr)p->dy, p->dy_pitch, p->dy_dtype},
                                          .more = (gm_ptr)p->db_sums,
                                          .slabs = (gm_ptr)slabs,
                                          .rows = p->rows,
                                          .cols = p->n,
                                          .ranges = ranges > 0 ? ranges : 1};
  const tigon_status status =
      ascend_launch(queue, "linear_column_sums", linear_column_sums, &a, least(a.ranges * panels, cores));
  if (status != TIGON_OK) return status;
  return ascend_column_sums(queue, slabs, a.ranges, p->n, p->n, p->db, p->db_dtype, p->accumulate);
}

tigon_status ascend_linear_bwd(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  const product dw = {.m = p->n,
                      .n = p->k,
                      .k = p->rows,
                      .a = {p->dy, p->dy_dtype, p->dy_pitch, true},
                      .b = {p->x, p->dtype, p->x_pitch, false},
                      .c = {p->dw, p->dw_dtype, p->dw_pitch, false},
                      .sums = p->dw_sums,
                      .accumulate = p->accumulate};
  const product dx = {.m = p->rows,
                      .n = p->k,
                      .k = p->n,
                      .a = {p->dy, p->dy_dtype, p->dy_pitch, false},
                      .b = {p->w, p->dtype, p->w_pitch, false},
                      .c = {p->dx, p->dx_dtype, p->dx_pitch, false},
                      .accumulate = p->accumulate_dx};
  tigon_status status = p->dw ? multiply(queue, &dw) : TIGON_OK;
  if (status == TIGON_OK && p->db) status = bias_gradient(queue, p);
  if (status == TIGON_OK && p->dx) status = multiply(queue, &dx);
  return status;
}
