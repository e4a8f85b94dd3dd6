#include "grad.h"

enum { BATCH = 2, TOKENS = 3, COLS = 5, ROWS = BATCH * TOKENS, N = ROWS * COLS };

typedef struct state {
  double x[N], mask[TOKENS * COLS], y[N], dy[N], dx[N];
  float scale;
  bool masked, causal;
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_softmax_fwd_problem p = {.space = {ROWS, BATCH, TOKENS},
                                       .cols = COLS,
                                       .tokens = TOKENS,
                                       .dtype = GRAD_F64,
                                       .mask_dtype = GRAD_F64,
                                       .x = {t->x, {0, TOKENS * COLS, COLS}},
                                       .y = {t->y, {0, TOKENS * COLS, COLS}},
                                       .mask = {t->masked ? t->mask : NULL, {0, 0, COLS}},
                                       .scale = t->scale,
                                       .causal = t->causal};
  tigon_ref_softmax_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

static void compare(bool masked, bool causal, float scale) {
  state t = {.masked = masked, .causal = causal, .scale = scale};
  grad_fill(t.x, N, 1);
  grad_fill(t.mask, TOKENS * COLS, 2);
  grad_fill(t.dy, N, 3);
  loss(&t);
  const tigon_softmax_bwd_problem p = {GRAD_SHAPE, .dy = grad_rows(t.dy, COLS), .y = grad_rows(t.y, COLS),
                                       .dx = grad_rows(t.dx, COLS), .scale = scale};
  tigon_ref_softmax_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-9);
}

static void test_plain(void **s) { (void)s, compare(false, false, 1); }
static void test_scale(void **s) { (void)s, compare(false, false, -2.5f); }
static void test_mask(void **s) { (void)s, compare(true, false, 0.5f); }
static void test_causal(void **s) { (void)s, compare(true, true, 2); }

/* A row of y sums to 1, a row of dx to 0, and columns that do not count are 0. */
static void test_sums(void **s) {
  (void)s;
  state t = {.causal = true, .scale = 3};
  grad_fill(t.x, N, 4);
  grad_fill(t.dy, N, 5);
  loss(&t);
  const tigon_softmax_bwd_problem p = {GRAD_SHAPE, .dy = grad_rows(t.dy, COLS), .y = grad_rows(t.y, COLS),
                                       .dx = grad_rows(t.dx, COLS), .scale = 3};
  tigon_ref_softmax_bwd(NULL, &p);
  for (int r = 0; r < ROWS; ++r) {
    double y = 0, dx = 0;
    for (int c = 0; c < COLS; ++c) {
      y += t.y[r * COLS + c];
      dx += t.dx[r * COLS + c];
      if (c > r % TOKENS + COLS - TOKENS) assert_true(t.y[r * COLS + c] == 0 && t.dx[r * COLS + c] == 0);
    }
    assert_true(fabs(y - 1) < 1e-14 && fabs(dx) < 1e-14);
  }
}

GRAD_MAIN(cmocka_unit_test(test_plain), cmocka_unit_test(test_scale), cmocka_unit_test(test_mask),
          cmocka_unit_test(test_causal), cmocka_unit_test(test_sums))
