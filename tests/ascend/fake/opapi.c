/* A library of operators of ours in place of CANN's: aclnnMm alone, over the memory and streams of acl.c, in plain
 * loops. It is as strict as the reference: storage on 32 bytes, an executor that is used once, and f32 sums of
 * 16-bit products only where they are asked for; else it rounds them to 16 bits first. */
#include "opapi.h"

#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "core/half.h"

enum { F32 = 0, F16 = 1, BF16 = 27, FORMAT_ND = 2, KEEP_DTYPE = 0, KEEP_SUMS = -1 };
enum { PARAM_NULLPTR = 161001, PARAM_INVALID = 161002, INNER_NULLPTR = 561103, SYSTEM_WORKSPACE = 1 << 20 };

/* ---- tensors ---- */

typedef struct tensor {
  int dtype;
  int64_t rows, cols, row_stride, col_stride;
  char *first;
} tensor;

static int64_t size_of(int dtype) { return dtype == F32 ? 4 : 2; }

void *aclCreateTensor(const int64_t *shape, uint64_t ndim, int dtype, const int64_t *strides, int64_t offset,
                      int format, const int64_t *storage_shape, uint64_t storage_ndim, void *storage) {
  if (fake_acl_code(__func__)) return NULL;
  if (ndim != 2 || storage_ndim != 1 || format != FORMAT_ND || (uintptr_t)storage % 32 || offset < 0) return NULL;
  if (dtype != F32 && dtype != F16 && dtype != BF16) return NULL;
  if (shape[0] < 1 || shape[1] < 1 || strides[0] < 0 || strides[1] < 0) return NULL;
  const int64_t last = offset + (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1];
  const int64_t size = size_of(dtype);
  if (last >= storage_shape[0]) return NULL;
  if (!fake_acl_on_device((char *)storage + offset * size, (size_t)((storage_shape[0] - offset) * size))) return NULL;
  tensor *made = malloc(sizeof *made);
  *made = (tensor){dtype, shape[0], shape[1], strides[0], strides[1], (char *)storage + offset * size};
  fake_acl_add_alive(1);
  return made;
}

int aclDestroyTensor(const void *x) {
  free((void *)x);
  fake_acl_add_alive(-1);
  return fake_acl_code(__func__);
}

static char *at(const tensor *x, int64_t row, int64_t col) {
  return x->first + (row * x->row_stride + col * x->col_stride) * size_of(x->dtype);
}

static float load(const tensor *x, int64_t row, int64_t col) {
  float value;
  uint16_t bits;
  if (x->dtype == F32) return memcpy(&value, at(x, row, col), sizeof value), value;
  memcpy(&bits, at(x, row, col), sizeof bits);
  return x->dtype == F16 ? tigon_f32_from_f16(bits) : tigon_f32_from_bf16(bits);
}

static float rounded(int dtype, float value) {
  if (dtype == F16) return tigon_f32_from_f16(tigon_f16_from_f32(value));
  return dtype == BF16 ? tigon_f32_from_bf16(tigon_bf16_from_f32(value)) : value;
}

static void store(const tensor *x, int64_t row, int64_t col, float value) {
  const uint16_t bits = x->dtype == F16 ? tigon_f16_from_f32(value) : tigon_bf16_from_f32(value);
  memcpy(at(x, row, col), x->dtype == F32 ? (const void *)&value : &bits, (size_t)size_of(x->dtype));
}

/* ---- aclnnMm ---- */

typedef struct executor {
  tensor a, b, c;
  int sums; /* dtype in which a product's sums come out */
  uint64_t bytes;
  bool repeatable;
} executor;

static uint64_t more_workspace;

void fake_opapi_workspace(uint64_t more) { more_workspace = more; }

/* What is not contiguous, as it lies or transposed, is copied. */
static uint64_t copy_bytes(const tensor *x) {
  const bool plain = x->col_stride == 1 && x->row_stride == x->cols,
             transposed = x->row_stride == 1 && x->col_stride == x->rows;
  return plain || transposed ? 0 : (uint64_t)(x->rows * x->cols * size_of(x->dtype));
}

int aclnnMmGetWorkspaceSize(const void *self, const void *mat2, void *out, int8_t cube_math, uint64_t *bytes,
                            void **made) {
  const int code = fake_acl_code(__func__);
  if (code) return code;
  if (!self || !mat2 || !out) return PARAM_NULLPTR;
  executor e = {.a = *(const tensor *)self, .b = *(const tensor *)mat2, .c = *(const tensor *)out};
  if (e.a.cols != e.b.rows || e.a.rows != e.c.rows || e.b.cols != e.c.cols) return PARAM_INVALID;
  e.sums = e.a.dtype == e.b.dtype ? e.a.dtype : F32;
  if (cube_math == KEEP_SUMS && e.sums != F32)
    e.sums = F32;
  else if (cube_math != KEEP_DTYPE)
    return PARAM_INVALID;
  const bool narrows = e.sums == F32 && e.c.dtype != F32, strided = copy_bytes(&e.c) > 0;
  if (narrows || strided) return PARAM_INVALID; /* the reference promises neither */
  e.bytes = SYSTEM_WORKSPACE + copy_bytes(&e.a) + copy_bytes(&e.b) + more_workspace;
  executor *kept = malloc(sizeof *kept);
  *kept = e;
  *made = kept;
  *bytes = e.bytes;
  fake_acl_add_alive(1);
  return 0;
}

int aclSetAclOpExecutorRepeatable(void *e) {
  ((executor *)e)->repeatable = true;
  return 0;
}

int aclDestroyAclOpExecutor(void *e) {
  if (!e || !((executor *)e)->repeatable) return INNER_NULLPTR;
  free(e);
  fake_acl_add_alive(-1);
  return 0;
}

static void multiply(const executor *e) {
  for (int64_t i = 0; i < e->c.rows; ++i)
    for (int64_t j = 0; j < e->c.cols; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < e->a.cols; ++k) sum += (double)load(&e->a, i, k) * (double)load(&e->b, k, j);
      store(&e->c, i, j, rounded(e->sums, (float)sum));
    }
}

/* The executor is gone afterwards, whatever this returns. */
int aclnnMm(void *workspace, uint64_t bytes, void *planned, void *stream) {
  const executor e = *(const executor *)planned;
  free(planned);
  fake_acl_add_alive(-1);
  const int code = fake_acl_code(__func__);
  if (code) return code;
  if (bytes != e.bytes || !fake_acl_on_stream(stream) || !fake_acl_on_device(workspace, bytes)) return PARAM_INVALID;
  memset(workspace, 0xff, bytes); /* whoever keeps anything there loses it */
  multiply(&e);
  return 0;
}
