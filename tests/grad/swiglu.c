#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double a[N], b[N], c[N], dc[N], da[N], db[N];
  float gate_mult, down_mult, clamp, up_offset;
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_map_problem p = {
      GRAD_SHAPE,
      .inputs = 2,
      .outputs = 1,
      .in = {grad_rows(t->a, COLS), grad_rows(t->b, COLS)},
      .out = {grad_rows(t->c, COLS)},
      .numbers = {.gate_mult = t->gate_mult, .down_mult = t->down_mult, .clamp = t->clamp, .up_offset = t->up_offset}};
  tigon_ref_swiglu_fwd(NULL, &p);
  return grad_dot(t->c, t->dc, N);
}

static void compare(float gate_mult, float down_mult, float clamp, float up_offset) {
  state t = {.gate_mult = gate_mult, .down_mult = down_mult, .clamp = clamp, .up_offset = up_offset};
  grad_fill(t.a, N, 1);
  grad_fill(t.b, N, 2);
  grad_fill(t.dc, N, 3);
  for (int i = 0; i < N; ++i) {
    t.a[i] *= 4;
    t.b[i] *= 4;
    /* The difference quotient must not straddle the clamp. */
    if (clamp > 0 && fabs(t.a[i] - (double)clamp) < 0.01) t.a[i] += 0.05;
    if (clamp > 0 && fabs(fabs(t.b[i]) - (double)clamp) < 0.01) t.b[i] += 0.05;
  }
  const tigon_map_problem p = {
      GRAD_SHAPE,
      .inputs = 3,
      .outputs = 2,
      .in = {grad_rows(t.dc, COLS), grad_rows(t.a, COLS), grad_rows(t.b, COLS)},
      .out = {grad_rows(t.da, COLS), grad_rows(t.db, COLS)},
      .numbers = {.gate_mult = gate_mult, .down_mult = down_mult, .clamp = clamp, .up_offset = up_offset}};
  tigon_ref_swiglu_bwd(NULL, &p);
  grad_expect("da", loss, &t, t.a, t.da, N, 1e-6);
  grad_expect("db", loss, &t, t.b, t.db, N, 1e-6);
}

static void test_plain(void **s) { (void)s, compare(1, 1, 0, 0); }
static void test_factors(void **s) { (void)s, compare(1.702f, -0.5f, 0, 0); }
static void test_clamp(void **s) { (void)s, compare(1, 1, 1.5f, 0); }
static void test_all(void **s) { (void)s, compare(0.7f, 2, 2.5f, 1); }

GRAD_MAIN(cmocka_unit_test(test_plain), cmocka_unit_test(test_factors), cmocka_unit_test(test_clamp),
          cmocka_unit_test(test_all))
