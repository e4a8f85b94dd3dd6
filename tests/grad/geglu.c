#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double a[N], b[N], c[N], dc[N], da[N], db[N];
  tigon_gelu approx;
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_map_problem p = {GRAD_SHAPE,
                               .inputs = 2,
                               .outputs = 1,
                               .in = {grad_rows(t->a, COLS), grad_rows(t->b, COLS)},
                               .out = {grad_rows(t->c, COLS)},
                               .numbers = {.approx = t->approx}};
  tigon_ref_geglu_fwd(NULL, &p);
  return grad_dot(t->c, t->dc, N);
}

static void compare(tigon_gelu approx, double width) {
  state t = {.approx = approx};
  grad_fill(t.a, N, 1);
  grad_fill(t.b, N, 2);
  grad_fill(t.dc, N, 3);
  for (int i = 0; i < N; ++i) t.a[i] *= width;
  const tigon_map_problem p = {GRAD_SHAPE,
                               .inputs = 3,
                               .outputs = 2,
                               .in = {grad_rows(t.dc, COLS), grad_rows(t.a, COLS), grad_rows(t.b, COLS)},
                               .out = {grad_rows(t.da, COLS), grad_rows(t.db, COLS)},
                               .numbers = {.approx = approx}};
  tigon_ref_geglu_bwd(NULL, &p);
  grad_expect("da", loss, &t, t.a, t.da, N, 1e-6);
  grad_expect("db", loss, &t, t.b, t.db, N, 1e-6);
}

static void test_tanh(void **s) { (void)s, compare(TIGON_GELU_TANH, 4); }
static void test_erf(void **s) { (void)s, compare(TIGON_GELU_ERF, 4); }
static void test_tanh_small(void **s) { (void)s, compare(TIGON_GELU_TANH, 0.5); }
static void test_erf_small(void **s) { (void)s, compare(TIGON_GELU_ERF, 0.5); }

/* The oracle's forms without cancellation are the header's. */
static void test_value(void **s) {
  (void)s;
  state t = {.approx = TIGON_GELU_TANH};
  const double root = sqrt(2 / acos(-1));
  for (int form = 0; form < 2; ++form) {
    t.approx = form ? TIGON_GELU_ERF : TIGON_GELU_TANH;
    for (int i = 0; i < N; ++i) t.a[i] = 0.5 * (i - N / 2), t.b[i] = 1;
    loss(&t);
    for (int i = 0; i < N; ++i) {
      const double a = t.a[i], u = root * (a + 0.044715 * a * a * a);
      const double expected = form ? a * 0.5 * (1 + erf(a / sqrt(2))) : 0.5 * a * (1 + tanh(u));
      assert_true(fabs(t.c[i] - expected) <= 1e-14);
    }
  }
}

GRAD_MAIN(cmocka_unit_test(test_tanh), cmocka_unit_test(test_erf), cmocka_unit_test(test_tanh_small),
          cmocka_unit_test(test_erf_small), cmocka_unit_test(test_value))
