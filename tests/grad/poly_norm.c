#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double x[N], w[TIGON_POLY], b[1], y[N], dy[N], dx[N], dw[TIGON_POLY], db[1];
  float rstd[ROWS * TIGON_POLY];
} state;

static tigon_poly_norm_problem problem(state *t, double *out) {
  return (tigon_poly_norm_problem){GRAD_SHAPE,
                                   .x = grad_rows(t->x, COLS),
                                   .dy = grad_rows(t->dy, COLS),
                                   .out = grad_rows(out, COLS),
                                   .w = grad_vector(t->w),
                                   .b = grad_vector(t->b),
                                   .dw = grad_vector(t->dw),
                                   .db = grad_vector(t->db),
                                   .rstd = t->rstd,
                                   .eps = 1e-6f};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_poly_norm_problem p = problem(t, t->y);
  tigon_ref_poly_norm_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

static void test_gradients(void **s) {
  (void)s;
  state t = {.w = {0.5, -0.3, 0.8}, .b = {0.2}};
  grad_fill(t.x, N, 1);
  grad_fill(t.dy, N, 2);
  loss(&t);
  const tigon_poly_norm_problem p = problem(&t, t.dx);
  tigon_ref_poly_norm_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
  grad_expect("dw", loss, &t, t.w, t.dw, TIGON_POLY, 1e-6);
  grad_expect("db", loss, &t, t.b, t.db, 1, 1e-6);
}

GRAD_MAIN(cmocka_unit_test(test_gradients))
