#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double x[N], y[N], dy[N], dx[N];
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_map_problem p = {GRAD_SHAPE, .inputs = 1, .outputs = 1, .in = {grad_rows(t->x, COLS)},
                               .out = {grad_rows(t->y, COLS)}};
  tigon_ref_relu_squared_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

static void test_gradient(void **s) {
  (void)s;
  state t;
  grad_fill(t.x, N, 1);
  grad_fill(t.dy, N, 2);
  /* The difference quotient must not straddle the bend of the slope. */
  for (int i = 0; i < N; ++i)
    if (fabs(t.x[i]) < 0.01) t.x[i] += 0.05;
  const tigon_map_problem p = {GRAD_SHAPE, .inputs = 2, .outputs = 1,
                               .in = {grad_rows(t.dy, COLS), grad_rows(t.x, COLS)}, .out = {grad_rows(t.dx, COLS)}};
  tigon_ref_relu_squared_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
}

GRAD_MAIN(cmocka_unit_test(test_gradient))
