#include "grad.h"

/* Tokens, streams, channels, coefficients, channels of a token. */
enum { T = 3, S = 3, C = 4, M = S * (S + 2), K = S * C };

typedef struct state {
  double x[T * K], phi[K * M], b[M], alpha[3];
  double h[3][T * S * S], y[T * C], mix[T * M], rstd[T];
  double dh[3][T * S * S], dy[T * C];
  double dx[T * K], dphi[K * M], db[M], dalpha[3];
  int64_t tmax;
} state;

static tigon_mhc_coeffs_problem problem(state *t, double h[3][T * S * S], double *y) {
  tigon_mhc_coeffs_problem p = {.space = {T * S, 1, T * S},
                                .tokens = {T, 1, T},
                                .streams = S,
                                .cols = C,
                                .dtype = GRAD_F64,
                                .phi_dtype = GRAD_F64,
                                .x = grad_rows(t->x, C),
                                .dx = grad_rows(t->dx, C),
                                .y = grad_rows(y, C),
                                .phi = t->phi,
                                .b = grad_vector(t->b),
                                .mix = grad_vector(t->mix),
                                .rstd = grad_vector(t->rstd),
                                .dphi = grad_vector(t->dphi),
                                .db = grad_vector(t->db),
                                .tmax = t->tmax,
                                .rms_eps = 1e-3f,
                                .pre_eps = 0.125f,
                                .sinkhorn_eps = 1e-2f,
                                .post_mult = 2};
  for (int i = 0; i < 3; ++i) {
    p.alpha[i] = grad_vector(&t->alpha[i]);
    p.dalpha[i] = grad_vector(&t->dalpha[i]);
    p.h[i] = grad_vector(h[i]);
  }
  return p;
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_mhc_coeffs_problem p = problem(t, t->h, t->y);
  tigon_ref_mhc_coeffs_fwd(NULL, &p);
  double sum = grad_dot(t->y, t->dy, T * C);
  for (int i = 0; i < 3; ++i) sum += grad_dot(t->h[i], t->dh[i], i < 2 ? T * S : T * S * S);
  return sum;
}

static void expect_gradients(int64_t tmax) {
  state t = {.alpha = {0.5, -0.75, 1.25}, .tmax = tmax};
  grad_fill(t.x, T * K, 1);
  grad_fill(t.phi, K * M, 2);
  grad_fill(t.b, M, 3);
  grad_fill(t.dy, T * C, 4);
  for (unsigned i = 0; i < 3; ++i) grad_fill(t.dh[i], T * S * S, 5 + i);
  loss(&t);
  const tigon_mhc_coeffs_problem p = problem(&t, t.dh, t.dy);
  tigon_ref_mhc_coeffs_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, T * K, 1e-6);
  grad_expect("dphi", loss, &t, t.phi, t.dphi, K * M, 1e-6);
  grad_expect("db", loss, &t, t.b, t.db, M, 1e-6);
  grad_expect("dalpha", loss, &t, t.alpha, t.dalpha, 3, 1e-6);
}

static void test_gradients(void **s) {
  (void)s;
  expect_gradients(1);
  expect_gradients(2);
  expect_gradients(20);
}

/* After many rounds rows and columns add up to 1. */
static void test_manifold(void **s) {
  (void)s;
  state t = {.alpha = {0.125, 0.125, 0.125}, .tmax = 64};
  grad_fill(t.x, T * K, 1);
  grad_fill(t.phi, K * M, 2);
  tigon_mhc_coeffs_problem p = problem(&t, t.h, t.y);
  p.sinkhorn_eps = 0;
  tigon_ref_mhc_coeffs_fwd(NULL, &p);
  for (int line = 0; line < T * S; ++line) {
    double row = 0, column = 0;
    for (int i = 0; i < S; ++i) {
      row += t.h[2][line * S + i];
      column += t.h[2][line / S * S * S + i * S + line % S];
    }
    assert_true(fabs(row - 1) < 1e-9 && fabs(column - 1) < 1e-12);
  }
}

GRAD_MAIN(cmocka_unit_test(test_gradients), cmocka_unit_test(test_manifold))
