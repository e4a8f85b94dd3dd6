#include <tigon/op/modulated_rms_norm.h>

#include <inttypes.h>

#include "op/front.h"

/* scale [G, C] of x with several leading dimensions: G is the product of the first of them, so that a group of rows is not
 * cut across a dimension. */
static tigon_status check_groups(tigon_context *context, const char *call, const tigon_tensor *scale,
                                 const tigon_tensor *x) {
  int64_t product = 1;
  for (int i = 0; product != scale->shape[0] && i < x->ndim - 1; ++i) product *= x->shape[i];
  if (product == scale->shape[0]) return TIGON_OK;
  return tigon_fail(context, TIGON_ERROR_INVALID,
                    "%s: scale.shape[0] is %" PRId64 ", must be 1 or a product of the first dimensions of x", call,
                    scale->shape[0]);
}

/* scale [..., C] of several leading dimensions: those of x, and 1 from one of them on. */
static tigon_status check_leading(tigon_context *context, const char *call, const tigon_tensor *scale,
                                  const tigon_tensor *x) {
  if (scale->ndim > x->ndim)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: scale.ndim is %d, must be %d (x.ndim) or less", call,
                      (int)scale->ndim, (int)x->ndim);
  bool ones = false;
  for (int i = 0; i < scale->ndim - 1; ++i) {
    const int64_t extent = scale->shape[i];
    if (ones) TIGON_TRY(tigon_check_extent(context, call, "scale", scale, i, 1, "as the dimension before it"));
    if (extent == x->shape[i]) continue;
    if (extent != 1)
      return tigon_fail(context, TIGON_ERROR_INVALID,
                        "%s: scale.shape[%d] is %" PRId64 ", must be %" PRId64 " (x.shape[%d]) or 1", call, i, extent,
                        x->shape[i], i);
    ones = true;
  }
  return TIGON_OK;
}

/* scale's shape against x's, and the groups of rows that share one of its rows: *share of each. */
static tigon_status check_scale(tigon_context *context, const char *call, const tigon_tensor *scale,
                                const tigon_tensor *x, int64_t *share) {
  const int64_t cols = tigon_last_extent(x);
  TIGON_TRY(tigon_check_same_extent(context, call, "scale", scale, scale->ndim - 1, tigon_last_dim("x", x)));
  TIGON_TRY(tigon_check_same_dtype(context, call, "scale", scale, "x", x, TIGON_F32));
  if (scale->ndim > 2) TIGON_TRY(check_leading(context, call, scale, x));
  if (scale->ndim == 2 && x->ndim > 2) TIGON_TRY(check_groups(context, call, scale, x));
  const int64_t groups = cols ? tigon_tensor_count(scale) / cols : 0, rows = cols ? tigon_tensor_count(x) / cols : 0;
  *share = groups ? rows / groups : 0;
  if (*share * groups == rows) return TIGON_OK;
  return tigon_fail(context, TIGON_ERROR_INVALID,
                    "%s: scale has %" PRId64 " rows, must have a number that divides %" PRId64 " (rows)", call, groups,
                    rows);
}

tigon_status tigon_modulated_rms_norm_fwd(tigon_context *context, const tigon_modulated_rms_norm_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "modulated_rms_norm_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_modulated_rms_norm_fwd_args a = *args;
  tigon_arg list[] = {
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"scale", &a.scale, TIGON_FLOATS, TIGON_IN, NULL},
      {"shift", &a.shift, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL, NULL},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT, "x"},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  TIGON_TRY(tigon_check_same_shape(context, call, "y", &a.y, "x", &a.x));
  TIGON_TRY(tigon_check_same_dtype(context, call, "y", &a.y, "x", &a.x, TIGON_DTYPE_NONE));
  const tigon_norm_args norm = {.call = call,
                                .x_name = "x",
                                .x = &a.x,
                                .w = &a.w,
                                .rstd = &a.rstd,
                                .eps = a.eps,
                                .w_offset = a.w_offset,
                                .casting = a.casting};
  TIGON_TRY(tigon_check_norm(context, &norm));

  tigon_modulated_rms_norm_fwd_problem p = {
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .w = a.w.data,
      .rstd = a.rstd.data,
      .eps = (float)a.eps,
      .w_offset = (float)a.w_offset,
      .casting = a.casting,
      .scale_dtype = a.scale.dtype,
      .shift_dtype = a.shift.dtype,
  };
  TIGON_TRY(check_scale(context, call, &a.scale, &a.x, &p.share));
  TIGON_TRY(tigon_check_same_shape(context, call, "shift", &a.shift, "scale", &a.scale));
  TIGON_TRY(tigon_check_same_dtype(context, call, "shift", &a.shift, "x", &a.x, TIGON_F32));
  const tigon_tensor *const tensors[] = {&a.x, &a.y}, *const modulation[] = {&a.scale, &a.shift};
  tigon_rows *const rows[] = {&p.x, &p.y}, *const modulation_rows[] = {&p.scale, &p.shift};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(modulation), modulation, modulation_rows, &p.groups));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, modulated_rms_norm_fwd, p.dtype, &p);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_modulated_rms_norm_bwd_args *args, bool shape_only,
                                tigon_modulated_rms_norm_bwd_problem *p) {
  const char *call = "modulated_rms_norm_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_modulated_rms_norm_bwd_args a = *args;
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN, NULL},
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"scale", &a.scale, TIGON_FLOATS, TIGON_IN, NULL},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dx", &a.dx, TIGON_FLOATS, TIGON_OUT, "dy x"},
      {"dw", &a.dw, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"dscale", &a.dscale, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL, NULL},
      {"dshift", &a.dshift, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  TIGON_TRY(tigon_check_same_shape(context, call, "dy", &a.dy, "x", &a.x));
  TIGON_TRY(tigon_check_same_shape(context, call, "dx", &a.dx, "x", &a.x));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dy", &a.dy, "x", &a.x, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dx", &a.dx, "x", &a.x, TIGON_DTYPE_NONE));
  const tigon_norm_args norm = {.call = call,
                                .x_name = "x",
                                .x = &a.x,
                                .w = &a.w,
                                .rstd = &a.rstd,
                                .dw = &a.dw,
                                .w_offset = a.w_offset,
                                .casting = a.casting,
                                .accumulate_dw = a.accumulate_dw};
  TIGON_TRY(tigon_check_norm(context, &norm));

  *p = (tigon_modulated_rms_norm_bwd_problem){
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .dw_dtype = a.dw.dtype,
      .w = a.w.data,
      .rstd = a.rstd.data,
      .dw = a.dw.data,
      .slabs = a.workspace,
      .w_offset = (float)a.w_offset,
      .casting = a.casting,
      .accumulate_dw = a.accumulate_dw != 0,
      .scale_dtype = a.scale.dtype,
      .dscale_dtype = a.dscale.dtype,
      .dshift_dtype = a.dshift.dtype,
      .accumulate_dscale = a.accumulate_dscale != 0,
  };
  TIGON_TRY(check_scale(context, call, &a.scale, &a.x, &p->share));
  TIGON_TRY(tigon_check_same_shape(context, call, "dscale", &a.dscale, "scale", &a.scale));
  TIGON_TRY(tigon_check_same_shape(context, call, "dshift", &a.dshift, "scale", &a.scale));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dscale", &a.dscale, "scale", &a.scale, TIGON_F32));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dshift", &a.dshift, "scale", &a.scale, TIGON_F32));
  TIGON_TRY(tigon_check_flag(context, call, "accumulate_dscale", a.accumulate_dscale));
  const tigon_tensor *const tensors[] = {&a.dy, &a.x, &a.dx}, *const modulation[] = {&a.scale, &a.dscale, &a.dshift};
  tigon_rows *const rows[] = {&p->dy, &p->x, &p->dx}, *const modulation_rows[] = {&p->scale, &p->dscale, &p->dshift};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  return tigon_collapse(context, call, 1, TIGON_COUNT(modulation), modulation, modulation_rows, &p->groups);
}

static bool has_sums(const tigon_modulated_rms_norm_bwd_args *args) {
  return tigon_present(&args->dw) || tigon_present(&args->dscale) || tigon_present(&args->dshift);
}

/* A call with dx alone needs no slabs. */
static tigon_status bwd_workspace(tigon_context *context, const tigon_modulated_rms_norm_bwd_args *args,
                                  const tigon_modulated_rms_norm_bwd_problem *p, size_t *bytes) {
  *bytes = 0;
  return has_sums(args) ? TIGON_ASK_WORKSPACE(context, modulated_rms_norm_bwd, p->dtype, p, bytes) : TIGON_OK;
}

tigon_status tigon_modulated_rms_norm_bwd(tigon_context *context, const tigon_modulated_rms_norm_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_modulated_rms_norm_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  TIGON_TRY(bwd_workspace(context, args, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, "modulated_rms_norm_bwd", args->workspace, args->workspace_bytes, bytes));
  if (p.cols == 0 || (p.space.rows == 0 && !has_sums(args))) return TIGON_OK;
  return TIGON_CALL_SLOT(context, modulated_rms_norm_bwd, p.dtype, &p);
}

tigon_status tigon_modulated_rms_norm_bwd_workspace(tigon_context *context,
                                                    const tigon_modulated_rms_norm_bwd_args *args, size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_modulated_rms_norm_bwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "modulated_rms_norm_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return bwd_workspace(context, args, &p, bytes);
}
