/* DLPack (https://dmlc.github.io/dlpack): the tensor struct that PyTorch, JAX, CuPy, NumPy and others share. The three
 * declarations below have upstream's layout and names. A program that also includes upstream's header includes that first. */
#ifndef TIGON_DLPACK_H
#define TIGON_DLPACK_H

#include <tigon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLOpenCL = 4, kDLExtDev = 12 } DLDeviceType;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U, kDLFloat8_e4m3fn = 10U } DLDataTypeCode;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* DLDataTypeCode */
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL means contiguous */
  uint64_t byte_offset;
} DLTensor;
#endif

/* A view of `from`, without a copy. These are INVALID:
 *   - NULL, more than TIGON_MAX_DIMS dimensions, a negative extent or stride, lanes other than 1;
 *   - a dtype that is none of f32, f16, bf16, i32, i64, f8e4m3, i8;
 *   - a broadcast tensor whose strides are all zero.
 * The sentence is tigon_last_error(NULL). */
TIGON_API tigon_status tigon_tensor_from_dlpack(const DLTensor *from, tigon_tensor *tensor);

/* Fills *to with the same view on the host. *to borrows `tensor`'s shape and strides: keep it alive. */
TIGON_API tigon_status tigon_tensor_to_dlpack(const tigon_tensor *tensor, DLTensor *to);

#ifdef __cplusplus
}
#endif

#endif
