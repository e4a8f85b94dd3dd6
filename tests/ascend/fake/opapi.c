/* A library of operators of ours in place of CANN's: aclnnMm and, in opapi_attention.c, attention, over the memory and streams
 * of acl.c, in plain loops. It is as strict as the reference: storage on 32 bytes, and an executor that is used once. It gives
 * f32 sums of 16-bit products only on request. Otherwise it rounds them to 16 bits first. */
#include "opapi.h"

#include <stdlib.h>

#include "acl.h"
#include "opapi_tensor.h"

enum { KEEP_DTYPE = 0, KEEP_SUMS = -1, SYSTEM_WORKSPACE = 1 << 20, SOILED = 8 << 20 };

/* ---- tensors ---- */

void *aclCreateTensor(const int64_t *shape, uint64_t ndim, int dtype, const int64_t *strides, int64_t offset,
                      int format, const int64_t *storage_shape, uint64_t storage_ndim, void *storage) {
  if (fake_acl_code(__func__)) return NULL;
  if (ndim < 1 || ndim > MOST_DIMS || storage_ndim != 1 || format != FORMAT_ND) return NULL;
  if ((uintptr_t)storage % 32 || offset < 0 || (dtype != F32 && dtype != F16 && dtype != BF16 && dtype != U8))
    return NULL;
  const int64_t size = size_of(dtype);
  tensor made = {.dtype = dtype, .ndim = (int)ndim, .first = (char *)storage + offset * size};
  int64_t last = offset;
  for (int i = 0; i < made.ndim; ++i) {
    if (shape[i] < 1 || strides[i] < 0) return NULL;
    made.shape[i] = shape[i], made.strides[i] = strides[i];
    last += (shape[i] - 1) * strides[i];
  }
  if (last >= storage_shape[0]) return NULL;
  if (!fake_acl_on_device(made.first, (size_t)((storage_shape[0] - offset) * size))) return NULL;
  tensor *kept = malloc(sizeof *kept);
  if (!kept) return NULL;
  *kept = made;
  fake_acl_add_alive(1);
  return kept;
}

int aclDestroyTensor(const void *x) {
  free((void *)x);
  fake_acl_add_alive(-1);
  return fake_acl_code(__func__);
}

static float rounded(int dtype, float value) {
  if (dtype == F16) return tigon_f32_from_f16(tigon_f16_from_f32(value));
  return dtype == BF16 ? tigon_f32_from_bf16(tigon_bf16_from_f32(value)) : value;
}

/* ---- executors ---- */

static uint64_t more_workspace;

void fake_opapi_workspace(uint64_t more) { more_workspace = more; }

int executor_planned(executor e, uint64_t *bytes, void **made) {
  executor *kept = malloc(sizeof *kept);
  if (!kept) return NO_MEMORY;
  e.bytes += SYSTEM_WORKSPACE + more_workspace;
  *kept = e;
  *made = kept;
  *bytes = e.bytes;
  fake_acl_add_alive(1);
  return 0;
}

int executor_run(const char *call, int (*run)(const executor *e), void *workspace, uint64_t bytes, void *planned,
                 void *stream) {
  const executor e = *(const executor *)planned;
  free(planned);
  fake_acl_add_alive(-1);
  const int code = fake_acl_code(call);
  if (code) return code;
  if (e.run != run || bytes != e.bytes || !fake_acl_on_stream(stream) || !fake_acl_on_device(workspace, bytes))
    return PARAM_INVALID;
  memset(workspace, 0xff, bytes < SOILED ? bytes : SOILED); /* whoever keeps anything there loses it */
  return run(&e);
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

/* ---- aclnnMm ---- */

/* What is not contiguous, as it lies or transposed, is copied. */
static uint64_t copy_bytes(const tensor *x) {
  const bool transposed = x->strides[0] == 1 && x->strides[1] == x->shape[0];
  return is_contiguous(x) || transposed ? 0 : bytes_of(x);
}

static int64_t place(const tensor *x, int64_t row, int64_t col) { return row * x->strides[0] + col * x->strides[1]; }

static int multiply(const executor *e) {
  const tensor *a = &e->t[0], *b = &e->t[1], *c = &e->t[2];
  for (int64_t i = 0; i < c->shape[0]; ++i)
    for (int64_t j = 0; j < c->shape[1]; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < a->shape[1]; ++k)
        sum += (double)load(a, place(a, i, k)) * (double)load(b, place(b, k, j));
      store(c, place(c, i, j), rounded(e->sums, (float)sum));
    }
  return 0;
}

int aclnnMmGetWorkspaceSize(const void *self, const void *mat2, void *out, int8_t cube_math, uint64_t *bytes,
                            void **made) {
  const int code = fake_acl_code(__func__);
  if (code) return code;
  if (!self || !mat2 || !out) return PARAM_NULLPTR;
  executor e = {.t = {*(const tensor *)self, *(const tensor *)mat2, *(const tensor *)out}, .run = multiply};
  const tensor *a = &e.t[0], *b = &e.t[1], *c = &e.t[2];
  if (a->ndim != 2 || b->ndim != 2 || c->ndim != 2 || a->dtype == U8 || b->dtype == U8 || c->dtype == U8)
    return PARAM_INVALID;
  if (a->shape[1] != b->shape[0] || a->shape[0] != c->shape[0] || b->shape[1] != c->shape[1]) return PARAM_INVALID;
  e.sums = a->dtype == b->dtype ? a->dtype : F32;
  if (cube_math == KEEP_SUMS && e.sums != F32)
    e.sums = F32;
  else if (cube_math != KEEP_DTYPE)
    return PARAM_INVALID;
  const bool narrows = e.sums == F32 && c->dtype != F32, strided = copy_bytes(c) > 0;
  if (narrows || strided) return PARAM_INVALID; /* the reference promises neither */
  e.bytes = copy_bytes(a) + copy_bytes(b);
  return executor_planned(e, bytes, made);
}

int aclnnMm(void *workspace, uint64_t bytes, void *planned, void *stream) {
  return executor_run(__func__, multiply, workspace, bytes, planned, stream);
}
