#include "grad.h"

enum { ROWS = 4, N = 5, K = 3 };

typedef struct state {
  double x[ROWS * K], w[N * K], b[N], y[ROWS * N], dy[ROWS * N], dx[ROWS * K], dw[N * K], db[N];
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_linear_fwd_problem p = {.rows = ROWS,
                                      .n = N,
                                      .k = K,
                                      .dtype = GRAD_F64,
                                      .b_dtype = GRAD_F64,
                                      .y_dtype = GRAD_F64,
                                      .x = t->x,
                                      .w = t->w,
                                      .b = t->b,
                                      .y = t->y,
                                      .x_pitch = K,
                                      .w_pitch = K,
                                      .y_pitch = N};
  tigon_ref_linear_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, ROWS * N);
}

static tigon_linear_bwd_problem backward(state *t) {
  return (tigon_linear_bwd_problem){.rows = ROWS,
                                    .n = N,
                                    .k = K,
                                    .dtype = GRAD_F64,
                                    .dy_dtype = GRAD_F64,
                                    .dx_dtype = GRAD_F64,
                                    .dw_dtype = GRAD_F64,
                                    .db_dtype = GRAD_F64,
                                    .dy = t->dy,
                                    .x = t->x,
                                    .w = t->w,
                                    .dx = t->dx,
                                    .dw = t->dw,
                                    .db = t->db,
                                    .dy_pitch = N,
                                    .x_pitch = K,
                                    .w_pitch = K,
                                    .dx_pitch = K,
                                    .dw_pitch = K};
}

static state made(void) {
  state t;
  grad_fill(t.x, ROWS * K, 1);
  grad_fill(t.w, N * K, 2);
  grad_fill(t.b, N, 3);
  grad_fill(t.dy, ROWS * N, 4);
  return t;
}

static void test_gradients(void **s) {
  (void)s;
  state t = made();
  const tigon_linear_bwd_problem p = backward(&t);
  tigon_ref_linear_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, ROWS * K, 1e-6);
  grad_expect("dw", loss, &t, t.w, t.dw, N * K, 1e-6);
  grad_expect("db", loss, &t, t.b, t.db, N, 1e-6);
}

/* Rows in two calls with accumulation, and in two calls with f32 sums in between, give the sums of one. */
static void test_parts(void **s) {
  (void)s;
  state whole = made(), parts = made();
  tigon_linear_bwd_problem p = backward(&whole);
  tigon_ref_linear_bwd(NULL, &p);
  p = backward(&parts);
  p.rows = 1;
  tigon_ref_linear_bwd(NULL, &p);
  p = backward(&parts);
  p.rows = ROWS - 1;
  p.dy = parts.dy + N;
  p.x = parts.x + K;
  p.dx = parts.dx + K;
  p.accumulate = true;
  tigon_ref_linear_bwd(NULL, &p);
  for (int i = 0; i < N * K; ++i) assert_float_equal(parts.dw[i], whole.dw[i], 1e-14);
  for (int i = 0; i < N; ++i) assert_float_equal(parts.db[i], whole.db[i], 1e-14);
  for (int i = 0; i < ROWS * K; ++i) assert_true(parts.dx[i] == whole.dx[i]);

  float dw_sums[N * K], db_sums[N];
  for (int i = 0; i < N * K; ++i) dw_sums[i] = (float)i;
  for (int i = 0; i < N; ++i) db_sums[i] = (float)i;
  state rounded = made();
  p = backward(&rounded);
  p.rows = 0;
  p.dx = NULL;
  p.dw_sums = dw_sums;
  p.db_sums = db_sums;
  tigon_ref_linear_bwd(NULL, &p);
  for (int i = 0; i < N * K; ++i) assert_true(rounded.dw[i] == (double)i);
  for (int i = 0; i < N; ++i) assert_true(rounded.db[i] == (double)i);
}

GRAD_MAIN(cmocka_unit_test(test_gradients), cmocka_unit_test(test_parts))
