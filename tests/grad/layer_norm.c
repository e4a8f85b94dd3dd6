#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double x[N], w[COLS], b[COLS], y[N], dy[N], dx[N], dw[COLS], db[COLS];
  float mean[ROWS], rstd[ROWS];
  bool has_w, has_b;
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_layer_norm_fwd_problem p = {GRAD_SHAPE,
                                          .w_dtype = GRAD_F64,
                                          .b_dtype = GRAD_F64,
                                          .x = grad_rows(t->x, COLS),
                                          .y = grad_rows(t->y, COLS),
                                          .w = t->has_w ? t->w : NULL,
                                          .b = t->has_b ? t->b : NULL,
                                          .mean = t->mean,
                                          .rstd = t->rstd,
                                          .eps = 1e-5f};
  tigon_ref_layer_norm_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

/* mean and rstd pass from forward to backward in f32: 6e-8 of them is lost, which bounds what the comparison can show. */
static void compare(bool has_w, bool has_b) {
  state t = {.has_w = has_w, .has_b = has_b};
  grad_fill(t.x, N, 1);
  grad_fill(t.w, COLS, 2);
  grad_fill(t.b, COLS, 3);
  grad_fill(t.dy, N, 4);
  loss(&t);
  const tigon_layer_norm_bwd_problem p = {GRAD_SHAPE,
                                          .w_dtype = GRAD_F64,
                                          .dw_dtype = GRAD_F64,
                                          .db_dtype = GRAD_F64,
                                          .dy = grad_rows(t.dy, COLS),
                                          .x = grad_rows(t.x, COLS),
                                          .dx = grad_rows(t.dx, COLS),
                                          .w = has_w ? t.w : NULL,
                                          .mean = t.mean,
                                          .rstd = t.rstd,
                                          .dw = has_w ? t.dw : NULL,
                                          .db = has_b ? t.db : NULL};
  tigon_ref_layer_norm_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
  if (has_w) grad_expect("dw", loss, &t, t.w, t.dw, COLS, 1e-6);
  if (has_b) grad_expect("db", loss, &t, t.b, t.db, COLS, 1e-6);
}

static void test_affine(void **s) { (void)s, compare(true, true); }
static void test_no_bias(void **s) { (void)s, compare(true, false); }
static void test_no_weight(void **s) { (void)s, compare(false, true); }
static void test_no_affine(void **s) { (void)s, compare(false, false); }

GRAD_MAIN(cmocka_unit_test(test_affine), cmocka_unit_test(test_no_bias), cmocka_unit_test(test_no_weight),
          cmocka_unit_test(test_no_affine))
