/* What the fronts of rms_norm, fused_add_rms_norm, layer_norm and modulated_rms_norm share. */
#ifndef TIGON_OP_NORM_H
#define TIGON_OP_NORM_H

#include "op/front.h"

/* What the description of a norm with w_offset has, and its problem. */
#define RMS_NORM_NUMBERS FINITE(w_offset), CHOICE(casting, TIGON_CASTING_NONE)

/* Fields of a problem that each norm fills from its arguments `a`; `x` is the field whose rows are normalised. */
#define NORM_FWD(x) TIGON_ROWS_OF(x), .w_dtype = a->w.dtype, .w = a->w.data, .rstd = a->rstd.data, .eps = (float)a->eps
#define NORM_BWD(x)                                                                                       \
  TIGON_ROWS_OF(x), .w_dtype = a->w.dtype, .dw_dtype = a->dw.dtype, .w = a->w.data, .rstd = a->rstd.data, \
                    .dw = a->dw.data, .slabs = a->workspace, .accumulate_dw = a->accumulate_dw != 0
#define RMS_NORM .w_offset = (float)a->w_offset, .casting = a->casting

/* Sums over rows are wanted. */
static inline bool tigon_norm_sums(const tigon_norm_bwd_problem *p) {
  return p->dw_dtype || p->db_dtype || p->dscale_dtype || p->dshift_dtype;
}

static inline bool tigon_norm_bwd_is_empty(const tigon_norm_bwd_problem *p) {
  return p->cols == 0 || (p->space.rows == 0 && !tigon_norm_sums(p));
}

/* A call without sums needs no slabs. */
#define TIGON_NORM_WORKSPACE(context, slot, p, bytes) \
  (tigon_norm_sums(p) ? TIGON_ASK_WORKSPACE(context, slot, (p)->dtype, p, bytes) : TIGON_OK)

/* The entries of a norm whose tensors all have the rows of `x`. `more` are fields beside NORM_FWD's or NORM_BWD's, then
 * come the tensors. */
#define NORM_FWD_ENTRY(op, x, more, ...)                                                                               \
  static tigon_status prepare_fwd(tigon_context *context, const tigon_##op##_fwd_args *a, tigon_norm_fwd_problem *p) { \
    *p = (tigon_norm_fwd_problem){NORM_FWD(x), more};                                                                  \
    return TIGON_COLLAPSE(context, &p->space, __VA_ARGS__);                                                            \
  }                                                                                                                    \
  TIGON_ENTRY(op, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
#define NORM_BWD_ENTRY(op, x, more, ...)                                                                             \
  static tigon_status prepare_bwd(tigon_context *context, const tigon_##op##_bwd_args *a, tigon_norm_bwd_problem *p, \
                                  size_t *bytes) {                                                                   \
    *p = (tigon_norm_bwd_problem){NORM_BWD(x), more};                                                                \
    TIGON_TRY(TIGON_COLLAPSE(context, &p->space, __VA_ARGS__));                                                      \
    return TIGON_NORM_WORKSPACE(context, op##_bwd, p, bytes);                                                        \
  }                                                                                                                  \
  TIGON_ENTRY_WITH_WORKSPACE(op, bwd, bwd, prepare_bwd, tigon_norm_bwd_is_empty(&p))

#endif
