#include <tigon/op/mhc_post_res.h>

#include "op/mhc.h"

#define A tigon_mhc_post_res_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*hc", SAME, ROWS),      MAY(f, "*c", SAME, ROWS),        IN(h_res, "*nh", F32, DENSE),
    MAY(h_post, "*n", F32, DENSE), OUT(o, "*nc", SAME, ROWS, NULL), RESERVED(reserved),
};
#undef A

#define A tigon_mhc_post_res_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*hc", SAME, ROWS),
    IN(g, "*nc", SAME, ROWS),
    MAY(f, "*c", SAME, ROWS),
    IN(h_res, "*nh", F32, DENSE),
    MAY(h_post, "*n", F32, DENSE),
    WANT(dx, "*hc", SAME, ROWS, NULL),
    WANT(df, "*c", SAME, ROWS, NULL),
    WANT(dh_res, "*nh", F32, DENSE, NULL),
    WANT(dh_post, "*n", F32, DENSE, NULL),
    RESERVED(reserved),
};

/* Both are present, or neither. */
static tigon_status check_together(tigon_context *context, const tigon_tensor *f, const tigon_tensor *h_post) {
  if (tigon_present(f) == tigon_present(h_post)) return TIGON_OK;
  const bool has = tigon_present(f);
  return tigon_refuse(context, "%s is absent, must be present as %s is", has ? "h_post" : "f", has ? "f" : "h_post");
}

#define COMMON .dtype = a->x.dtype, .h_res = tigon_vector_of(&a->h_res), .h_post = tigon_vector_of(&a->h_post)

static tigon_status prepare_fwd(tigon_context *context, const tigon_mhc_post_res_fwd_args *a,
                                tigon_mhc_post_res_problem *p) {
  *p = (tigon_mhc_post_res_problem){COMMON};
  TIGON_TRY(tigon_mhc_check(context, "x", &a->x, &p->in, &p->cols));
  TIGON_TRY(tigon_mhc_check(context, "o", &a->o, &p->out, &p->cols));
  TIGON_TRY(check_together(context, &a->f, &a->h_post));
  TIGON_TRY(TIGON_COLLAPSE(context, &p->in_space, {&a->x, &p->x}));
  TIGON_TRY(TIGON_COLLAPSE(context, &p->out_space, {&a->o, &p->o}));
  return TIGON_COLLAPSE(context, &p->tokens, {&a->f, &p->f});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_mhc_post_res_bwd_args *a,
                                tigon_mhc_post_res_problem *p) {
  *p = (tigon_mhc_post_res_problem){COMMON, .dh_res = tigon_vector_of(&a->dh_res),
                                    .dh_post = tigon_vector_of(&a->dh_post)};
  TIGON_TRY(tigon_mhc_check(context, "x", &a->x, &p->in, &p->cols));
  TIGON_TRY(tigon_mhc_check(context, "g", &a->g, &p->out, &p->cols));
  TIGON_TRY(check_together(context, &a->f, &a->h_post));
  if (!tigon_present(&a->f) && (tigon_present(&a->df) || tigon_present(&a->dh_post)))
    return tigon_refuse(context, "%s is present, must be absent as f is", tigon_present(&a->df) ? "df" : "dh_post");
  TIGON_TRY(TIGON_COLLAPSE(context, &p->in_space, {&a->x, &p->x}, {&a->dx, &p->dx}));
  TIGON_TRY(TIGON_COLLAPSE(context, &p->out_space, {&a->g, &p->o}));
  return TIGON_COLLAPSE(context, &p->tokens, {&a->f, &p->f}, {&a->df, &p->df});
}

TIGON_ENTRY(mhc_post_res, fwd, fwd, prepare_fwd, p.in_space.rows == 0)
TIGON_ENTRY(mhc_post_res, bwd, bwd, prepare_bwd, p.in_space.rows == 0)
