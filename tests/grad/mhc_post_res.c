#include "grad.h"

/* Tokens, streams in and out, channels. */
enum { T = 3, I = 2, J = 4, C = 5 };

typedef struct state {
  double x[T * I * C], f[T * C], h_res[T * J * I], h_post[T * J], o[T * J * C], g[T * J * C];
  double dx[T * I * C], df[T * C], dh_res[T * J * I], dh_post[T * J];
} state;

static tigon_mhc_post_res_problem problem(state *t, double *o) {
  return (tigon_mhc_post_res_problem){.in_space = {T * I, 1, T * I},
                                      .out_space = {T * J, 1, T * J},
                                      .tokens = {T, 1, T},
                                      .in = I,
                                      .out = J,
                                      .cols = C,
                                      .dtype = GRAD_F64,
                                      .x = grad_rows(t->x, C),
                                      .f = grad_rows(t->f, C),
                                      .o = grad_rows(o, C),
                                      .dx = grad_rows(t->dx, C),
                                      .df = grad_rows(t->df, C),
                                      .h_res = grad_vector(t->h_res),
                                      .h_post = grad_vector(t->h_post),
                                      .dh_res = grad_vector(t->dh_res),
                                      .dh_post = grad_vector(t->dh_post)};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_mhc_post_res_problem p = problem(t, t->o);
  tigon_ref_mhc_post_res_fwd(NULL, &p);
  return grad_dot(t->o, t->g, T * J * C);
}

static void test_gradients(void **s) {
  (void)s;
  state t;
  grad_fill(t.x, T * I * C, 1);
  grad_fill(t.f, T * C, 2);
  grad_fill(t.h_res, T * J * I, 3);
  grad_fill(t.h_post, T * J, 4);
  grad_fill(t.g, T * J * C, 5);
  const tigon_mhc_post_res_problem p = problem(&t, t.g);
  tigon_ref_mhc_post_res_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, T * I * C, 1e-9);
  grad_expect("df", loss, &t, t.f, t.df, T * C, 1e-9);
  grad_expect("dh_res", loss, &t, t.h_res, t.dh_res, T * J * I, 1e-9);
  grad_expect("dh_post", loss, &t, t.h_post, t.dh_post, T * J, 1e-9);
}

GRAD_MAIN(cmocka_unit_test(test_gradients))
