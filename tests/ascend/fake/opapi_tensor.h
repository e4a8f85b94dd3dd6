/* What the files of the fake library of operators share: tensors, and what plans and runs a call. */
#ifndef FAKE_OPAPI_TENSOR_H
#define FAKE_OPAPI_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/half.h"

enum { F32 = 0, F16 = 1, U8 = 4, BF16 = 27, FORMAT_ND = 2, MOST_DIMS = 4 };
enum {
  PARAM_NULLPTR = 161001,
  PARAM_INVALID = 161002,
  NO_MEMORY = 207001,
  TILING_ERROR = 561002,
  INNER_NULLPTR = 561103
};

typedef struct tensor {
  int dtype, ndim;
  int64_t shape[MOST_DIMS], strides[MOST_DIMS];
  char *first;
} tensor;

static inline int64_t size_of(int dtype) { return dtype == F32 ? 4 : dtype == U8 ? 1 : 2; }

static inline float load(const tensor *x, int64_t at) {
  float value;
  uint16_t bits;
  const char *from = x->first + at * size_of(x->dtype);
  if (x->dtype == F32) return memcpy(&value, from, sizeof value), value;
  memcpy(&bits, from, sizeof bits);
  return x->dtype == F16 ? tigon_f32_from_f16(bits) : tigon_f32_from_bf16(bits);
}

static inline void store(const tensor *x, int64_t at, float value) {
  const uint16_t bits = x->dtype == F16 ? tigon_f16_from_f32(value) : tigon_bf16_from_f32(value);
  memcpy(x->first + at * size_of(x->dtype), x->dtype == F32 ? (const void *)&value : &bits, (size_t)size_of(x->dtype));
}

static inline bool is_contiguous(const tensor *x) {
  int64_t dense = 1;
  for (int i = x->ndim - 1; i >= 0; --i) {
    if (x->shape[i] > 1 && x->strides[i] != dense) return false;
    dense *= x->shape[i];
  }
  return true;
}
static inline uint64_t bytes_of(const tensor *x) {
  int64_t bytes = size_of(x->dtype);
  for (int i = 0; i < x->ndim; ++i) bytes *= x->shape[i];
  return (uint64_t)bytes;
}

/* A call that is planned, which is used once. */
enum { MOST_TENSORS = 11 };
typedef struct executor {
  tensor t[MOST_TENSORS];
  int (*run)(const struct executor *e);
  double scale;
  int64_t before, after, sparse;
  bool heads_first, repeatable;
  int sums; /* dtype in which a product's sums come out */
  uint64_t bytes;
} executor;

/* Takes a copy that wants e->bytes, and what a test adds, of workspace. */
int executor_planned(executor e, uint64_t *bytes, void **made);
/* Runs it if it is one of `run`; it is gone afterwards, whatever this returns. */
int executor_run(const char *call, int (*run)(const executor *e), void *workspace, uint64_t bytes, void *planned,
                 void *stream);

#endif
