/* Tigon's vocabulary: version, status, dtype, tensor view. C11, also valid C++17. */
#ifndef TIGON_BASE_H
#define TIGON_BASE_H

#include <stddef.h>
#include <stdint.h>

#define TIGON_VERSION_MAJOR 0
#define TIGON_VERSION_MINOR 1
#define TIGON_VERSION_PATCH 0
/* The headers' version as one number, for `#if TIGON_VERSION >= 10200`. */
#define TIGON_VERSION (TIGON_VERSION_MAJOR * 10000 + TIGON_VERSION_MINOR * 100 + TIGON_VERSION_PATCH)

#define TIGON_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a call. Every value except TIGON_OK comes with one sentence: tigon_last_error(). After an error nothing
 * was written. Exceptions: tigon_context_sync(), and "the launch on .. failed", as earlier launches may have run. */
typedef enum tigon_status {
  TIGON_OK = 0,
  TIGON_ERROR_INVALID = 1,       /* an argument breaks the op's contract */
  TIGON_ERROR_UNSUPPORTED = 2,   /* legal, but this backend has no kernel for it */
  TIGON_ERROR_WORKSPACE = 3,     /* the workspace is absent, too small or misaligned */
  TIGON_ERROR_ALIAS = 4,         /* buffers overlap where the op does not allow it */
  TIGON_ERROR_SCRATCH = 5,       /* the problem does not fit the device's on-chip memory in any case of the planner */
  TIGON_ERROR_DEVICE = 6,        /* the device or its driver failed, or is absent */
  TIGON_ERROR_OUT_OF_MEMORY = 7, /* host or device memory ran out */
} tigon_status;

/* "TIGON_ERROR_INVALID" for TIGON_ERROR_INVALID; "unknown status" for a value outside the enum. */
TIGON_API const char *tigon_status_name(tigon_status status);

typedef enum tigon_dtype {
  TIGON_DTYPE_NONE = 0, /* "not given" */
  TIGON_F32 = 1,
  TIGON_F16 = 2,  /* IEEE binary16 */
  TIGON_BF16 = 3, /* the upper half of an IEEE binary32 */
  TIGON_I32 = 4,
  TIGON_I64 = 5,
  /* Only for operators whose header names them. */
  TIGON_F8E4M3 = 6, /* 4 bits of exponent, 3 of mantissa; 448 at most, no infinity (torch.float8_e4m3fn) */
  TIGON_I8 = 7,
} tigon_dtype;

/* Bytes of one element; 0 for TIGON_DTYPE_NONE and for a value outside the enum. */
TIGON_API size_t tigon_dtype_size(tigon_dtype dtype);

/* "f32", "f16", "bf16", "i32", "i64", "f8e4m3", "i8"; "none" otherwise. */
TIGON_API const char *tigon_dtype_name(tigon_dtype dtype);

/* The inverse of tigon_dtype_name(); TIGON_DTYPE_NONE for NULL and for any other text. */
TIGON_API tigon_dtype tigon_dtype_from_name(const char *name);

#define TIGON_MAX_DIMS 8

/* A view of memory that the caller owns: nothing is copied or kept. A zeroed tensor (data NULL, ndim 0) means "absent".
 * shape and strides count elements. All strides zero means contiguous, last dimension fastest. The stride of an extent
 * of 1 is ignored. `data` points at the first element, aligned to the element size. A tensor of zero elements may have
 * data NULL. */
typedef struct tigon_tensor {
  void *data;
  tigon_dtype dtype;
  int32_t ndim; /* 1..TIGON_MAX_DIMS; 0 for an absent tensor */
  int64_t shape[TIGON_MAX_DIMS];
  int64_t strides[TIGON_MAX_DIMS];
} tigon_tensor;

/* Contiguous views of 1 to 4 dimensions. */
static inline tigon_tensor tigon_tensor_1d(void *data, tigon_dtype dtype, int64_t n0) {
  tigon_tensor t = {data, dtype, 1, {n0}, {1}};
  return t;
}
static inline tigon_tensor tigon_tensor_2d(void *data, tigon_dtype dtype, int64_t n0, int64_t n1) {
  tigon_tensor t = {data, dtype, 2, {n0, n1}, {n1, 1}};
  return t;
}
static inline tigon_tensor tigon_tensor_3d(void *data, tigon_dtype dtype, int64_t n0, int64_t n1, int64_t n2) {
  tigon_tensor t = {data, dtype, 3, {n0, n1, n2}, {n1 * n2, n2, 1}};
  return t;
}
static inline tigon_tensor tigon_tensor_4d(void *data, tigon_dtype dtype, int64_t n0, int64_t n1, int64_t n2,
                                           int64_t n3) {
  tigon_tensor t = {data, dtype, 4, {n0, n1, n2, n3}, {n1 * n2 * n3, n2 * n3, n3, 1}};
  return t;
}

/* The library's version, which may be newer than the header's: major * 10000 + minor * 100 + patch. */
TIGON_API int tigon_version(void);

#ifdef __cplusplus
}
#endif

#endif
