#include <tigon/dlpack.h>

#include "core/context.h"

static tigon_dtype from_dl(DLDataType type) {
  if (type.lanes != 1) return TIGON_DTYPE_NONE;
  switch (type.code) {
    case kDLFloat: return type.bits == 32 ? TIGON_F32 : type.bits == 16 ? TIGON_F16 : TIGON_DTYPE_NONE;
    case kDLBfloat: return type.bits == 16 ? TIGON_BF16 : TIGON_DTYPE_NONE;
    case kDLFloat8_e4m3fn: return type.bits == 8 ? TIGON_F8E4M3 : TIGON_DTYPE_NONE;
    case kDLInt:
      return type.bits == 32 ? TIGON_I32 : type.bits == 64 ? TIGON_I64 : type.bits == 8 ? TIGON_I8 : TIGON_DTYPE_NONE;
    default: return TIGON_DTYPE_NONE;
  }
}

static DLDataType to_dl(tigon_dtype dtype) {
  const uint8_t bits = (uint8_t)(tigon_dtype_size(dtype) * 8);
  const uint8_t code = dtype == TIGON_BF16                        ? kDLBfloat
                       : dtype == TIGON_F8E4M3                    ? kDLFloat8_e4m3fn
                       : dtype == TIGON_F32 || dtype == TIGON_F16 ? kDLFloat
                                                                  : kDLInt;
  return (DLDataType){code, bits, 1};
}

tigon_status tigon_tensor_from_dlpack(const DLTensor *from, tigon_tensor *tensor) {
  const char *call = "tensor_from_dlpack";
  if (!from || !tensor) return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: from or tensor is NULL", call);
  if (from->ndim < 0 || from->ndim > TIGON_MAX_DIMS)
    return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: ndim is %d, must be 0 to %d", call, (int)from->ndim,
                      TIGON_MAX_DIMS);
  const tigon_dtype dtype = from_dl(from->dtype);
  if (dtype == TIGON_DTYPE_NONE)
    return tigon_fail(
        NULL, TIGON_ERROR_INVALID,
        "%s: dtype is code %d, %d bits, %d lanes, must be f32, f16, bf16, i32, i64, f8e4m3 or i8 with 1 lane", call,
        from->dtype.code, from->dtype.bits, from->dtype.lanes);
  if (from->ndim > 0 && !from->shape) return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: shape is NULL", call);

  /* A 0-dimensional tensor is one element. */
  tigon_tensor made = {.dtype = dtype, .ndim = from->ndim ? from->ndim : 1, .shape = {1}, .strides = {1}};
  made.data = from->data ? (char *)from->data + from->byte_offset : NULL;
  int64_t natural = 1, count = 1;
  bool moves = from->ndim == 0;
  for (int i = from->ndim - 1; i >= 0; --i) {
    const int64_t extent = from->shape[i], stride = from->strides ? from->strides[i] : natural;
    if (extent < 0 || stride < 0)
      return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: %s[%d] is %lld, must be >= 0", call,
                        extent < 0 ? "shape" : "strides", i, (long long)(extent < 0 ? extent : stride));
    if (__builtin_mul_overflow(natural, extent > 0 ? extent : 1, &natural))
      return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: the element count overflows 64 bits", call);
    count *= extent; /* which is natural, or 0 */
    made.shape[i] = extent;
    made.strides[i] = stride;
    moves = moves || stride != 0;
  }
  if (!moves && count > 1)
    return tigon_fail(NULL, TIGON_ERROR_INVALID,
                      "%s: strides are all 0 with %lld elements, must name distinct elements", call, (long long)count);
  *tensor = made;
  return TIGON_OK;
}

tigon_status tigon_tensor_to_dlpack(const tigon_tensor *tensor, DLTensor *to) {
  const char *call = "tensor_to_dlpack";
  if (!tensor || !to) return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: tensor or to is NULL", call);
  if (tensor->ndim < 1 || tensor->ndim > TIGON_MAX_DIMS || tigon_dtype_size(tensor->dtype) == 0)
    return tigon_fail(NULL, TIGON_ERROR_INVALID, "%s: tensor is absent or not valid", call);
  bool contiguous = true;
  for (int i = 0; i < tensor->ndim; ++i) contiguous = contiguous && tensor->strides[i] == 0;
  *to = (DLTensor){
      .data = tensor->data,
      .device = {kDLCPU, 0},
      .ndim = tensor->ndim,
      .dtype = to_dl(tensor->dtype),
      .shape = (int64_t *)tensor->shape,
      .strides = contiguous ? NULL : (int64_t *)tensor->strides,
  };
  return TIGON_OK;
}
