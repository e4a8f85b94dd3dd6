#include <tigon/op/softmax.h>

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
#undef A

#define A tigon_softmax_bwd_args
static const tigon_field bwd[] = {
    IN(y, "*c", SAME, ROWS), IN(dy, "*c", SAME, ROWS), OUT(dx, "*c", SAME, ROWS, "dy y"),
    FINITE(scale),           RESERVED(reserved),
};

/* mask [C], [T, C] or x's shape, as a view of x's shape whose missing dimensions have stride 0. T of x [C] is 1. */
static tigon_status broadcast_mask(tigon_context *context, const tigon_tensor *mask, const tigon_tensor *x,
                                   tigon_tensor *wide) {
  *wide = *mask;
  if (!tigon_present(mask)) return TIGON_OK;
  if (x->ndim == 1 && mask->ndim == 2)
    TIGON_TRY(tigon_check_extent(context, "mask", mask, 0, 1, "x has one row"));
  else if (mask->ndim > 2)
    TIGON_TRY(tigon_check_same_shape(context, "mask", mask, "x", x));
  const int missing = x->ndim - mask->ndim;
  for (int i = 0; i < x->ndim; ++i) {
    if (i >= missing) TIGON_TRY(tigon_check_same_extent(context, "mask", mask, i - missing, (tigon_dim){"x", x, i}));
    wide->shape[i] = x->shape[i];
    wide->strides[i] = i >= missing ? mask->strides[i - missing] : 0;
  }
  wide->ndim = x->ndim;
  return TIGON_OK;
}

static float scale_of(double scale) { return scale != 0 ? (float)scale : 1; }

static tigon_status prepare_fwd(tigon_context *context, const tigon_softmax_fwd_args *a, tigon_softmax_fwd_problem *p) {
  tigon_tensor mask;
  TIGON_TRY(broadcast_mask(context, &a->mask, &a->x, &mask));
  *p = (tigon_softmax_fwd_problem){
      .cols = tigon_last_extent(&a->x),
      .tokens = a->x.ndim > 1 ? a->x.shape[a->x.ndim - 2] : 1,
      .dtype = a->x.dtype,
      .mask_dtype = a->mask.dtype,
      .scale = scale_of(a->scale),
      .causal = a->causal != 0,
  };
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->y}, {&mask, &p->mask});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_softmax_bwd_args *a, tigon_softmax_bwd_problem *p) {
  *p = (tigon_softmax_bwd_problem){TIGON_ROWS_OF(y), .scale = scale_of(a->scale)};
  return TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->y, &p->y}, {&a->dx, &p->dx});
}

TIGON_ENTRY(softmax, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY(softmax, bwd, bwd, prepare_bwd, TIGON_NO_ELEMENTS(p))
