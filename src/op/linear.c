#include <tigon/op/linear.h>

#include "op/front.h"

#define A tigon_linear_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*k", SAME, ROWS),
    IN(w, "nk", SAME, ROWS),
    MAY(b, "n", SAME_OR_F32, DENSE),
    OUT(y, "*n", SAME_OR_F32, ROWS, NULL),
    RESERVED(reserved),
};
#undef A

#define A tigon_linear_bwd_args
static const tigon_field bwd[] = {
    IN(dy, "*n", SAME_OR_F32, ROWS),
    MAY(w, "nk", SAME, ROWS),
    MAY(x, "*k", SAME, ROWS),
    WANT(dx, "*k", SAME, ROWS, NULL),
    WANT(dw, "nk", SAME_OR_F32, ROWS, NULL),
    WANT(db, "n", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_linear_fwd_args *a, tigon_linear_fwd_problem *p) {
  *p = (tigon_linear_fwd_problem){
      .n = a->w.shape[0],
      .k = a->w.shape[1],
      .dtype = a->x.dtype,
      .b_dtype = a->b.dtype,
      .y_dtype = a->y.dtype,
      .x = a->x.data,
      .w = a->w.data,
      .b = a->b.data,
      .y = a->y.data,
      .w_pitch = a->w.strides[0],
  };
  return TIGON_COLLAPSE_PITCHES(context, &p->rows, {&a->x, &p->x_pitch}, {&a->y, &p->y_pitch});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_linear_bwd_args *a, tigon_linear_bwd_problem *p,
                                size_t *bytes) {
  const bool has_w = tigon_present(&a->w), has_x = tigon_present(&a->x);
  if (tigon_present(&a->dx) && !has_w) return tigon_refuse(context, "w is absent, must be there for dx");
  if (tigon_present(&a->dw) && !has_x) return tigon_refuse(context, "x is absent, must be there for dw");
  const tigon_tensor *of_k = has_w ? &a->w : &a->x;
  const int64_t n = tigon_last_extent(&a->dy), k = has_w || has_x ? tigon_last_extent(of_k) : 0;
  *p = (tigon_linear_bwd_problem){
      .n = n,
      .k = k,
      .dtype = has_w || has_x ? of_k->dtype : a->dy.dtype,
      .dy_dtype = a->dy.dtype,
      .dx_dtype = a->dx.dtype,
      .dw_dtype = a->dw.dtype,
      .db_dtype = a->db.dtype,
      .dy = a->dy.data,
      .x = a->x.data,
      .w = a->w.data,
      .dx = a->dx.data,
      .dw = n && k ? a->dw.data : NULL,
      .db = n ? a->db.data : NULL,
      .w_pitch = a->w.strides[0],
      .dw_pitch = a->dw.strides[0],
      .workspace = a->workspace,
      .workspace_bytes = a->workspace_bytes,
      .accumulate = a->accumulate_dw != 0,
  };
  TIGON_TRY(
      TIGON_COLLAPSE_PITCHES(context, &p->rows, {&a->dy, &p->dy_pitch}, {&a->x, &p->x_pitch}, {&a->dx, &p->dx_pitch}));
  if (p->rows == 0 || k == 0) p->dx = NULL;
  return TIGON_ASK_WORKSPACE(context, linear_bwd, p->dtype, p, bytes); /* no backend needs any yet */
}

TIGON_ENTRY(linear, fwd, fwd, prepare_fwd, p.rows == 0 || p.n == 0)
TIGON_ENTRY_WITH_WORKSPACE(linear, bwd, bwd, prepare_bwd, !p.dx && !p.dw && !p.db)
