#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double x[N], alpha[1], gamma[COLS], beta[COLS], y[N], dy[N], dx[N], dalpha[1], dgamma[COLS], dbeta[COLS];
} state;

/* Forward has x alone, and takes no gradients. */
static tigon_columns_problem problem(state *t, bool backward) {
  return (tigon_columns_problem){GRAD_SHAPE,
                                 .in = {grad_rows(backward ? t->dy : t->x, COLS), grad_rows(t->x, COLS)},
                                 .out = grad_rows(backward ? t->dx : t->y, COLS),
                                 .number = grad_vector(t->alpha),
                                 .vector = {grad_vector(t->gamma), grad_vector(t->beta)},
                                 .dnumber = grad_vector(t->dalpha),
                                 .dvector = {grad_vector(t->dgamma), grad_vector(t->dbeta)}};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_columns_problem p = problem(t, false);
  tigon_ref_dyt_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

static void test_gradients(void **s) {
  (void)s;
  state t = {.alpha = {0.7}};
  grad_fill(t.x, N, 1);
  grad_fill(t.gamma, COLS, 2);
  grad_fill(t.beta, COLS, 3);
  grad_fill(t.dy, N, 4);
  const tigon_columns_problem p = problem(&t, true);
  tigon_ref_dyt_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
  grad_expect("dalpha", loss, &t, t.alpha, t.dalpha, 1, 1e-6);
  grad_expect("dgamma", loss, &t, t.gamma, t.dgamma, COLS, 1e-6);
  grad_expect("dbeta", loss, &t, t.beta, t.dbeta, COLS, 1e-6);
}

GRAD_MAIN(cmocka_unit_test(test_gradients))
