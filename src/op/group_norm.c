#include <tigon/op/group_norm.h>

#include "op/front.h"

#define A tigon_group_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "bn*", SAME, FREE),           DIVISOR(groups, "g", 'n'),      MAY(w, "n", SAME_OR_F32, DENSE),
    MAY(b, "n", SAME_OR_F32, DENSE),    OUT(y, "bn*", SAME, FREE, "x"), WANT(mean, "bg", F32, DENSE, NULL),
    WANT(rstd, "bg", F32, DENSE, NULL), NUMBER(eps, 0, FLT_MAX),        RESERVED(reserved),
};
#undef A

#define A tigon_group_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "bn*", SAME, FREE),
    DIVISOR(groups, "g", 'n'),
    IN(dy, "bn*", SAME, FREE),
    MAY(w, "n", SAME_OR_F32, DENSE),
    IN(mean, "bg", F32, DENSE),
    IN(rstd, "bg", F32, DENSE),
    OUT(dx, "bn*", SAME, FREE, "dy x"),
    WANT(dw, "n", SAME_OR_F32, DENSE, NULL),
    WANT(db, "n", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

/* x is [B, C, ...]: planes of *run elements end to end, over all dimensions but the first two. */
static tigon_status planes(tigon_context *context, const char *name, const tigon_tensor *t, tigon_planes *out,
                           int64_t *run) {
  *run = 1;
  for (int d = t->ndim - 1; d >= 2; --d) {
    if (t->shape[d] != 1 && t->strides[d] != *run)
      return tigon_refuse(context, "%s.strides[%d] is %lld, must be %lld (a contiguous run)", name, d,
                          (long long)t->strides[d], (long long)*run);
    *run *= t->shape[d];
  }
  *out = (tigon_planes){t->data, t->strides[0], t->strides[1]};
  return TIGON_OK;
}

/* Fields of a problem that either direction fills from its arguments `a`. */
#define GROUP_NORM                                                                                         \
  .batch = a->x.shape[0], .groups = a->groups, .channels = a->x.shape[1] / a->groups, .dtype = a->x.dtype, \
  .w_dtype = a->w.dtype, .w = a->w.data, .mean = a->mean.data, .rstd = a->rstd.data

static tigon_status prepare_fwd(tigon_context *context, const tigon_group_norm_fwd_args *a,
                                tigon_group_norm_fwd_problem *p) {
  *p = (tigon_group_norm_fwd_problem){
      GROUP_NORM,
      .b_dtype = a->b.dtype,
      .b = a->b.data,
      .eps = (float)a->eps,
  };
  TIGON_TRY(planes(context, "x", &a->x, &p->x, &p->run));
  return planes(context, "y", &a->y, &p->y, &p->run);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_group_norm_bwd_args *a,
                                tigon_group_norm_bwd_problem *p, size_t *bytes) {
  *p = (tigon_group_norm_bwd_problem){
      GROUP_NORM,
      .dw_dtype = a->dw.dtype,
      .db_dtype = a->db.dtype,
      .dw = a->dw.data,
      .db = a->db.data,
      .slabs = a->workspace,
      .accumulate = a->accumulate_dw != 0,
  };
  TIGON_TRY(planes(context, "dy", &a->dy, &p->dy, &p->run));
  TIGON_TRY(planes(context, "x", &a->x, &p->x, &p->run));
  TIGON_TRY(planes(context, "dx", &a->dx, &p->dx, &p->run));
  return TIGON_ASK_WORKSPACE(context, group_norm_bwd, p->dtype, p, bytes);
}

TIGON_ENTRY(group_norm, fwd, fwd, prepare_fwd, p.batch == 0 || p.channels == 0 || p.run == 0)
TIGON_ENTRY_WITH_WORKSPACE(group_norm, bwd, bwd, prepare_bwd,
                           p.channels == 0 || ((p.batch == 0 || p.run == 0) && !p.dw && !p.db))
