/* Problems of hyper-connections: tokens of a few streams, whose rows are [tokens, streams] collapsed. */
#ifndef TIGON_PROBLEM_MHC_H
#define TIGON_PROBLEM_MHC_H

#include "problem/columns.h"

enum {
  TIGON_MHC_STREAMS = 16, /* the most streams of a token */
  TIGON_MHC_TMAX = 64,    /* rounds of Sinkhorn, at most */
  TIGON_MHC_COEFFS = TIGON_MHC_STREAMS * (TIGON_MHC_STREAMS + 2),
};

/* Coefficients of n streams. */
TIGON_SHARED int64_t tigon_mhc_coeffs(int64_t n) { return n * (n + 2); }
/* Coefficients are those of h_pre, h_post and h_res, one after the other: which of these three number m is of. */
TIGON_SHARED int tigon_mhc_part(int64_t n, int64_t m) { return m < n ? 0 : m < 2 * n ? 1 : 2; }

/* mhc_coeffs, forward and backward. In backward h and y are their gradients, and any of them may be absent. */
typedef struct tigon_mhc_coeffs_problem {
  tigon_row_space space;  /* rows of x, dx: row t * streams + i is stream i of token t */
  tigon_row_space tokens; /* rows of y */
  int64_t streams, cols;
  tigon_dtype dtype, phi_dtype;
  tigon_rows x, dx, y;
  const void *phi; /* [streams * cols, tigon_mhc_coeffs(streams)] */
  tigon_vector b, alpha[3];
  tigon_vector mix, rstd; /* [tokens, coefficients], [tokens]; f32 as h, but in tests/grad */
  tigon_vector h[3];      /* [tokens, streams] twice, [tokens, streams, streams] */
  tigon_vector dphi, db, dalpha[3];
  void *workspace;
  int64_t tmax;
  float rms_eps, pre_eps, sinkhorn_eps, post_mult;
  bool accumulate;
} tigon_mhc_coeffs_problem;
typedef tigon_mhc_coeffs_problem tigon_mhc_coeffs_fwd_problem, tigon_mhc_coeffs_bwd_problem;

/* Is any gradient wanted that is a sum over tokens? A query has no data. */
TIGON_SHARED bool tigon_mhc_sums(const tigon_mhc_coeffs_problem *p) {
  return p->dphi.dtype || p->db.dtype || p->dalpha[0].dtype || p->dalpha[1].dtype || p->dalpha[2].dtype;
}

/* mhc_post_res, forward and backward. In backward o is its gradient. */
typedef struct tigon_mhc_post_res_problem {
  tigon_row_space in_space, out_space, tokens; /* rows of x, dx; rows of o; rows of f, df */
  int64_t in, out, cols;                       /* streams, channels */
  tigon_dtype dtype;
  tigon_rows x, dx, o, f, df;
  tigon_vector h_res, h_post, dh_res, dh_post; /* [tokens, out, in], [tokens, out]; f32 but in tests/grad */
} tigon_mhc_post_res_problem;
typedef tigon_mhc_post_res_problem tigon_mhc_post_res_fwd_problem, tigon_mhc_post_res_bwd_problem;

/* y of mhc_coeffs: x with the weights h_pre, [tokens, 1, streams], of one stream that comes out. */
TIGON_SHARED tigon_mhc_post_res_problem tigon_mhc_pre_of(const tigon_mhc_coeffs_problem *p) {
  return (tigon_mhc_post_res_problem){.in_space = p->space,
                                      .out_space = p->tokens,
                                      .tokens = p->tokens,
                                      .in = p->streams,
                                      .out = 1,
                                      .cols = p->cols,
                                      .dtype = p->dtype,
                                      .x = p->x,
                                      .o = p->y,
                                      .h_res = p->h[0]};
}

#endif
