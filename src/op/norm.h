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

#endif
