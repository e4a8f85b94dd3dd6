#include <tigon/op/mhc_coeffs.h>

#include "op/mhc.h"

#define ALPHAS                                                                                           \
  IN(alpha_pre, "1 one number", SAME_OR_F32, DENSE), IN(alpha_post, "1 one number", SAME_OR_F32, DENSE), \
      IN(alpha_res, "1 one number", SAME_OR_F32, DENSE)
#define NUMBERS                                                                                   \
  NUMBER(tmax, 1, TIGON_MHC_TMAX), NUMBER(pre_eps, 0, FLT_MAX), NUMBER(sinkhorn_eps, 0, FLT_MAX), \
      NUMBER(post_mult, FLT_MIN, FLT_MAX)

#define A tigon_mhc_coeffs_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*hc", SAME, ROWS),
    IN(phi, "?kn", FLOAT, DENSE),
    IN(b, "n", SAME_OR_F32, DENSE),
    ALPHAS,
    OUT(h_pre, "*h", F32, DENSE, NULL),
    OUT(h_post, "*h", F32, DENSE, NULL),
    OUT(h_res, "*hh", F32, DENSE, NULL),
    WANT(y, "*c", SAME, ROWS, NULL),
    WANT(mix, "*n", F32, DENSE, NULL),
    WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(rms_eps, 0, FLT_MAX),
    NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_mhc_coeffs_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*hc", SAME, ROWS),
    MAY(dh_pre, "*h", F32, DENSE),
    MAY(dh_post, "*h", F32, DENSE),
    MAY(dh_res, "*hh", F32, DENSE),
    MAY(dy, "*c", SAME, ROWS),
    IN(phi, "?kn", FLOAT_GIVES_SECOND, DENSE),
    IN(b, "n", SAME_OR_F32, DENSE),
    ALPHAS,
    IN(mix, "*n", F32, DENSE),
    IN(rstd, "r", F32, DENSE),
    WANT(dx, "*hc", SAME, ROWS, NULL),
    WANT(dphi, "?kn", SECOND_OR_F32, DENSE, NULL),
    WANT(db, "n", SAME_OR_F32, DENSE, NULL),
    WANT(dalpha_pre, "1 one number", SAME_OR_F32, DENSE, NULL),
    WANT(dalpha_post, "1 one number", SAME_OR_F32, DENSE, NULL),
    WANT(dalpha_res, "1 one number", SAME_OR_F32, DENSE, NULL),
    NUMBERS,
    FLAG(accumulate_dphi),
    WORKSPACE,
    RESERVED(reserved),
};

/* [channels of all streams, coefficients] of x, and as many coefficients in b. */
static tigon_status check_phi(tigon_context *context, const char *name, const tigon_tensor *phi, int64_t channels,
                              int64_t coeffs) {
  TIGON_TRY(tigon_check_ndim(context, name, phi, 2));
  TIGON_TRY(tigon_check_extent(context, name, phi, 0, channels, "channels of all streams of x"));
  return tigon_check_extent(context, name, phi, 1, coeffs, "coefficients of the streams of x");
}
static tigon_status check_sizes(tigon_context *context, const tigon_tensor *x, const tigon_tensor *phi,
                                const tigon_tensor *dphi, const tigon_tensor *b) {
  int64_t channels, streams;
  TIGON_TRY(tigon_mhc_check(context, "x", x, &streams, &channels));
  const int64_t coeffs = tigon_mhc_coeffs(streams);
  TIGON_TRY(check_phi(context, "phi", phi, streams * channels, coeffs));
  TIGON_TRY(check_phi(context, "dphi", dphi, streams * channels, coeffs));
  return tigon_check_extent(context, "b", b, 0, coeffs, "coefficients of the streams of x");
}

/* Members that both problems have. */
#define COMMON(part)                                                                                              \
  TIGON_ROWS_OF(x),                                                                                               \
      .streams = a->x.shape[a->x.ndim - 2], .phi = a->phi.data, .phi_dtype = a->phi.dtype,                        \
      .b = tigon_vector_of(&a->b),                                                                                \
      .alpha = {tigon_vector_of(&a->alpha_pre), tigon_vector_of(&a->alpha_post), tigon_vector_of(&a->alpha_res)}, \
      .h = {tigon_vector_of(&a->part##_pre), tigon_vector_of(&a->part##_post), tigon_vector_of(&a->part##_res)},  \
      .mix = tigon_vector_of(&a->mix), .rstd = tigon_vector_of(&a->rstd), .tmax = a->tmax,                        \
      .pre_eps = (float)a->pre_eps, .sinkhorn_eps = (float)a->sinkhorn_eps, .post_mult = (float)a->post_mult

/* Rows of y may be absent: tokens are counted from the streams. */
static tigon_status collapse(tigon_context *context, const tigon_tensor *x, const tigon_tensor *dx,
                             const tigon_tensor *y, tigon_mhc_coeffs_problem *p) {
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {x, &p->x}, {dx, &p->dx}));
  TIGON_TRY(TIGON_COLLAPSE(context, &p->tokens, {y, &p->y}));
  const int64_t tokens = p->space.rows / p->streams;
  if (!tigon_present(y)) p->tokens = (tigon_row_space){tokens, 1, tokens};
  return TIGON_OK;
}

static const tigon_tensor none = {0};

static tigon_status prepare_fwd(tigon_context *context, const tigon_mhc_coeffs_fwd_args *a,
                                tigon_mhc_coeffs_problem *p) {
  *p = (tigon_mhc_coeffs_problem){COMMON(h), .rms_eps = (float)a->rms_eps};
  TIGON_TRY(check_sizes(context, &a->x, &a->phi, &none, &a->b));
  return collapse(context, &a->x, &none, &a->y, p);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_mhc_coeffs_bwd_args *a, tigon_mhc_coeffs_problem *p,
                                size_t *bytes) {
  *p = (tigon_mhc_coeffs_problem){
      COMMON(dh),
      .dphi = tigon_vector_of(&a->dphi),
      .db = tigon_vector_of(&a->db),
      .dalpha = {tigon_vector_of(&a->dalpha_pre), tigon_vector_of(&a->dalpha_post), tigon_vector_of(&a->dalpha_res)},
      .workspace = a->workspace,
      .accumulate = a->accumulate_dphi != 0};
  TIGON_TRY(check_sizes(context, &a->x, &a->phi, &a->dphi, &a->b));
  TIGON_TRY(collapse(context, &a->x, &a->dx, &a->dy, p));
  return TIGON_ASK_WORKSPACE(context, mhc_coeffs_bwd, p->dtype, p, bytes);
}

TIGON_ENTRY(mhc_coeffs, fwd, fwd, prepare_fwd, p.space.rows == 0)
TIGON_ENTRY_WITH_WORKSPACE(mhc_coeffs, bwd, bwd, prepare_bwd, p.space.rows == 0 && !tigon_mhc_sums(&p))
