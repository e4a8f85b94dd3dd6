#include <tigon/op/softmax.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_softmax_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    MAY(mask, "?tc", SAME_OR_F32, ROWS),
    OUT(y, "*c", SAME, ROWS, "x"),
    FINITE(scale),
    FLAG(causal),
    RESERVED(reserved),
};
DESCRIBE(softmax, fwd, fwd);
#undef A

#define A tigon_softmax_bwd_args
static const tigon_field bwd[] = {
    IN(y, "*c", SAME, ROWS), IN(dy, "*c", SAME, ROWS), OUT(dx, "*c", SAME, ROWS, "dy y"),
    FINITE(scale),           RESERVED(reserved),
};
DESCRIBE(softmax, bwd, bwd);
#undef A

/* mask [C], [T, C] or x's shape, as a view of x's shape whose missing dimensions have stride 0. T of x [C] is 1. */
static tigon_status broadcast_mask(tigon_context *context, const char *call, const tigon_tensor *mask,
                                   const tigon_tensor *x, tigon_tensor *wide) {
  *wide = *mask;
  if (!tigon_present(mask)) return TIGON_OK;
  if (x->ndim == 1 && mask->ndim == 2) {
    TIGON_TRY(tigon_check_extent(context, call, "mask", mask, 0, 1, "x has one row"));
    TIGON_TRY(tigon_check_same_extent(context, call, "mask", mask, 1, tigon_last_dim("x", x)));
    *wide = (tigon_tensor){mask->data, mask->dtype, 1, {mask->shape[1]}, {mask->strides[1]}};
    return TIGON_OK;
  }
  if (mask->ndim > 2 || mask->ndim > x->ndim) TIGON_TRY(tigon_check_same_shape(context, call, "mask", mask, "x", x));
  const int missing = x->ndim - mask->ndim;
  for (int i = 0; i < x->ndim; ++i) {
    if (i >= missing)
      TIGON_TRY(tigon_check_same_extent(context, call, "mask", mask, i - missing, (tigon_dim){"x", x, i}));
    wide->shape[i] = x->shape[i];
    wide->strides[i] = i >= missing ? mask->strides[i - missing] : 0;
  }
  wide->ndim = x->ndim;
  return TIGON_OK;
}

tigon_status tigon_softmax_fwd(tigon_context *context, const tigon_softmax_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "softmax_fwd";
  tigon_softmax_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_softmax_fwd_schema, args, &a, false));
  tigon_tensor mask;
  TIGON_TRY(broadcast_mask(context, call, &a.mask, &a.x, &mask));

  tigon_softmax_fwd_problem p = {
      .cols = tigon_last_extent(&a.x),
      .tokens = a.x.ndim > 1 ? a.x.shape[a.x.ndim - 2] : 1,
      .dtype = a.x.dtype,
      .mask_dtype = a.mask.dtype,
      .scale = a.scale != 0 ? (float)a.scale : 1,
      .causal = a.causal != 0,
  };
  const tigon_tensor *const tensors[] = {&a.x, &a.y, &mask};
  tigon_rows *const rows[] = {&p.x, &p.y, &p.mask};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, softmax_fwd, p.dtype, &p);
}

tigon_status tigon_softmax_bwd(tigon_context *context, const tigon_softmax_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "softmax_bwd";
  tigon_softmax_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_softmax_bwd_schema, args, &a, false));
  tigon_softmax_bwd_problem p = {
      .cols = tigon_last_extent(&a.y), .dtype = a.y.dtype, .scale = a.scale != 0 ? (float)a.scale : 1};
  const tigon_tensor *const tensors[] = {&a.dy, &a.y, &a.dx};
  tigon_rows *const rows[] = {&p.dy, &p.y, &p.dx};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, softmax_bwd, p.dtype, &p);
}
