#include "grad.h"

enum { ROWS = 6, COLS = 9, N = ROWS * COLS };

typedef struct state {
  double x[N], y[N], dy[N], dx[N];
} state;

static tigon_sparsemax_problem problem(state *t) {
  return (tigon_sparsemax_problem){GRAD_SHAPE, .x = grad_rows(t->x, COLS), .y = grad_rows(t->y, COLS),
                                   .dy = grad_rows(t->dy, COLS), .dx = grad_rows(t->dx, COLS)};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_sparsemax_problem p = problem(t);
  tigon_ref_sparsemax_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

static void run(state *t) {
  const tigon_sparsemax_problem p = problem(t);
  tigon_ref_sparsemax_fwd(NULL, &p);
  tigon_ref_sparsemax_bwd(NULL, &p);
}

/* Moves an x that is within 0.01 of its row's threshold, which a step of the quotient would cross; false when none is. */
static bool move_off(state *t) {
  for (int r = 0; r < ROWS; ++r) {
    double tau = 0;
    for (int i = r * COLS; i < (r + 1) * COLS; ++i)
      if (t->y[i] > 0) tau = t->x[i] - t->y[i];
    for (int i = r * COLS; i < (r + 1) * COLS; ++i)
      if (fabs(t->x[i] - tau) < 0.01) return t->x[i] += 0.03, true;
  }
  return false;
}

static void test_gradients(void **s) {
  (void)s;
  for (int scale = 1; scale <= 16; scale *= 4) {
    state t = {.x = {0}};
    grad_fill(t.x, N, 1);
    grad_fill(t.dy, N, 3);
    for (int i = 0; i < N; ++i) t.x[i] *= scale;
    do run(&t);
    while (move_off(&t));
    grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-9);
  }
}

static int descending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* y by the formula of the paper: the largest k with 1 + k x_k > the sum of the k largest. */
static void by_sorting(const double *x, double *y) {
  double z[COLS], sum = 0, tau = 0;
  memcpy(z, x, sizeof z);
  qsort(z, COLS, sizeof *z, descending);
  for (int k = 1; k <= COLS; ++k) {
    sum += z[k - 1];
    if (1 + k * z[k - 1] > sum) tau = (sum - 1) / k;
  }
  for (int c = 0; c < COLS; ++c) y[c] = fmax(x[c] - tau, 0);
}

static void test_is_the_projection(void **s) {
  (void)s;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    state t = {.x = {0}};
    grad_fill(t.x, N, seed);
    for (int i = 0; i < N; ++i) t.x[i] = seed % 3 ? t.x[i] * (1 << seed % 7) : floor(3 * t.x[i]) / 2; /* or ties */
    run(&t);
    for (int r = 0; r < ROWS; ++r) {
      double wanted[COLS], sum = 0;
      by_sorting(t.x + r * COLS, wanted);
      for (int c = 0; c < COLS; ++c) {
        sum += t.y[r * COLS + c];
        assert_true(fabs(t.y[r * COLS + c] - wanted[c]) < 1e-13);
      }
      assert_true(fabs(sum - 1) < 1e-13);
    }
  }
}

/* A huge x takes all, ties share, -inf has nothing, and what is no number stays in its row. */
static void test_edges(void **s) {
  (void)s;
  state t = {.x = {0}};
  const double inf = (double)INFINITY;
  grad_fill(t.x, N, 7);
  grad_fill(t.dy, N, 8);
  t.x[4] = 1e300;
  for (int c = 0; c < COLS; ++c)
    t.x[COLS + c] = 1e300, t.x[2 * COLS + c] = -inf, t.x[3 * COLS + c] = c == 5 ? -3 : -inf;
  t.x[4 * COLS + 1] = (double)NAN, t.x[5 * COLS + 2] = inf;
  run(&t);
  for (int c = 0; c < COLS; ++c) {
    assert_true(t.y[c] == (c == 4) && t.dx[c] == 0);
    assert_true(fabs(t.y[COLS + c] - 1.0 / COLS) < 1e-15);
    assert_true(t.y[2 * COLS + c] == 0 && t.dx[2 * COLS + c] == 0);
    assert_true(t.y[3 * COLS + c] == (c == 5));
    for (int r = 4; r < 6; ++r) assert_true(isnan(t.y[r * COLS + c]) && isnan(t.dx[r * COLS + c]));
  }
}

GRAD_MAIN(cmocka_unit_test(test_gradients), cmocka_unit_test(test_is_the_projection), cmocka_unit_test(test_edges))
