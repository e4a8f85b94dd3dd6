#include <tigon/op/modulated_rms_norm.h>

#include <inttypes.h>

#include "op/norm.h"

#define A tigon_modulated_rms_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    IN(scale, "&c", SAME_OR_F32, ROWS),
    MAY(shift, "&c", SAME_OR_F32, ROWS),
    OUT(y, "*c", SAME, ROWS, "x"),
    WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    RMS_NORM_NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_modulated_rms_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    IN(scale, "&c", SAME_OR_F32_GIVES_SECOND, ROWS),
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    WANT(dscale, "&c", SECOND_OR_F32, ROWS, NULL),
    WANT(dshift, "&c", SECOND_OR_F32, ROWS, NULL),
    RMS_NORM_NUMBERS,
    FLAG(accumulate_dw),
    FLAG(accumulate_dscale),
    WORKSPACE,
    RESERVED(reserved),
};

/* scale [G, C] of x with several leading dimensions: G is the product of the first of them, so that a group of rows is not
 * cut across a dimension. */
static tigon_status check_groups(tigon_context *context, const tigon_tensor *scale, const tigon_tensor *x) {
  int64_t product = 1;
  for (int i = 0; product != scale->shape[0] && i < x->ndim - 1; ++i) product *= x->shape[i];
  if (product == scale->shape[0]) return TIGON_OK;
  return tigon_refuse(context, "scale.shape[0] is %" PRId64 ", must be 1 or a product of the first dimensions of x",
                      scale->shape[0]);
}

/* scale [..., C] of several leading dimensions: those of x, and 1 from one of them on. */
static tigon_status check_leading(tigon_context *context, const tigon_tensor *scale, const tigon_tensor *x) {
  if (scale->ndim > x->ndim)
    return tigon_refuse(context, "scale.ndim is %d, must be %d (x.ndim) or less", (int)scale->ndim, (int)x->ndim);
  bool ones = false;
  for (int i = 0; i < scale->ndim - 1; ++i) {
    const int64_t extent = scale->shape[i];
    if (ones) TIGON_TRY(tigon_check_extent(context, "scale", scale, i, 1, "as the dimension before it"));
    if (extent == x->shape[i]) continue;
    if (extent != 1)
      return tigon_refuse(context, "scale.shape[%d] is %" PRId64 ", must be %" PRId64 " (x.shape[%d]) or 1", i, extent,
                          x->shape[i], i);
    ones = true;
  }
  return TIGON_OK;
}

/* scale's shape against x's, and the groups of rows that share one of its rows: *share of each. */
static tigon_status check_scale(tigon_context *context, const tigon_tensor *scale, const tigon_tensor *x,
                                int64_t *share) {
  const int64_t cols = tigon_last_extent(x);
  if (scale->ndim > 2) TIGON_TRY(check_leading(context, scale, x));
  if (scale->ndim == 2 && x->ndim > 2) TIGON_TRY(check_groups(context, scale, x));
  const int64_t groups = cols ? tigon_tensor_count(scale) / cols : 0, rows = cols ? tigon_tensor_count(x) / cols : 0;
  *share = groups ? rows / groups : 0;
  if (*share * groups == rows) return TIGON_OK;
  return tigon_refuse(context, "scale has %" PRId64 " rows, must have a number that divides %" PRId64 " (rows)", groups,
                      rows);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_modulated_rms_norm_fwd_args *a,
                                tigon_norm_fwd_problem *p) {
  *p = (tigon_norm_fwd_problem){
      NORM_FWD(x),
      RMS_NORM,
      .scale_dtype = a->scale.dtype,
      .shift_dtype = a->shift.dtype,
  };
  TIGON_TRY(check_scale(context, &a->scale, &a->x, &p->share));
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->y}));
  return TIGON_COLLAPSE(context, &p->groups, {&a->scale, &p->scale}, {&a->shift, &p->shift});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_modulated_rms_norm_bwd_args *a,
                                tigon_norm_bwd_problem *p, size_t *bytes) {
  *p = (tigon_norm_bwd_problem){
      NORM_BWD(x),
      RMS_NORM,
      .scale_dtype = a->scale.dtype,
      .dscale_dtype = a->dscale.dtype,
      .dshift_dtype = a->dshift.dtype,
      .accumulate_dscale = a->accumulate_dscale != 0,
  };
  TIGON_TRY(check_scale(context, &a->scale, &a->x, &p->share));
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->x, &p->x}, {&a->dx, &p->dx}));
  TIGON_TRY(
      TIGON_COLLAPSE(context, &p->groups, {&a->scale, &p->scale}, {&a->dscale, &p->dscale}, {&a->dshift, &p->dshift}));
  return TIGON_NORM_WORKSPACE(context, modulated_rms_norm_bwd, p, bytes);
}

TIGON_ENTRY(modulated_rms_norm, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY_WITH_WORKSPACE(modulated_rms_norm, bwd, bwd, prepare_bwd, tigon_norm_bwd_is_empty(&p))
