/* layer_norm: workspaces; no rows; a large mean costs no digits. */
#include "api.h"

enum { ROWS = 3, COLS = 8 };

typedef struct data {
  float x[ROWS * COLS + 4], w[COLS], b[COLS], y[ROWS * COLS], mean[ROWS], rstd[ROWS];
  float dy[ROWS * COLS], dx[ROWS * COLS], dw[COLS], db[COLS];
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, ROWS * COLS, 0.5f);
  api_fill(d.w, COLS, 0.25f);
  api_fill(d.b, COLS, 0.5f);
  api_fill(d.dy, ROWS * COLS, 0.125f);
  for (int r = 0; r < ROWS; ++r) d.mean[r] = 0.25f, d.rstd[r] = 0.5f;
  return &d;
}

static tigon_layer_norm_fwd_args fwd_args(data *d) {
  return (tigon_layer_norm_fwd_args){
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .b = tigon_tensor_1d(d->b, TIGON_F32, COLS),
      .y = tigon_tensor_2d(d->y, TIGON_F32, ROWS, COLS),
      .mean = tigon_tensor_1d(d->mean, TIGON_F32, ROWS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .eps = 1e-6,
  };
}

static tigon_layer_norm_bwd_args bwd_args(data *d) {
  return (tigon_layer_norm_bwd_args){
      .dy = tigon_tensor_2d(d->dy, TIGON_F32, ROWS, COLS),
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .mean = tigon_tensor_1d(d->mean, TIGON_F32, ROWS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .dx = tigon_tensor_2d(d->dx, TIGON_F32, ROWS, COLS),
      .dw = tigon_tensor_1d(d->dw, TIGON_F32, COLS),
      .db = tigon_tensor_1d(d->db, TIGON_F32, COLS),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

/* Sums need a workspace, and nothing else does. */
static void test_workspace(void **state) {
  tigon_context *c = *state;
  tigon_layer_norm_bwd_args a = bwd_args(made());
  size_t bytes;
  assert_int_equal(tigon_layer_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  const size_t both = bytes;
  a.dw = (tigon_tensor){0};
  assert_int_equal(tigon_layer_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, both);
  a.db = (tigon_tensor){0};
  assert_int_equal(tigon_layer_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
  a.workspace = NULL;
  assert_int_equal(tigon_layer_norm_bwd(c, &a), TIGON_OK);
}

/* No rows: nothing to do, but dw and db are still sums over no rows. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_layer_norm_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = f.mean.shape[0] = f.rstd.shape[0] = 0;
  f.x.data = f.y.data = NULL;
  assert_int_equal(tigon_layer_norm_fwd(c, &f), TIGON_OK);
  tigon_layer_norm_bwd_args b = bwd_args(d);
  b.x.shape[0] = b.dy.shape[0] = b.dx.shape[0] = b.mean.shape[0] = b.rstd.shape[0] = 0;
  assert_int_equal(tigon_layer_norm_bwd(c, &b), TIGON_OK);
  for (int i = 0; i < COLS; ++i) assert_true(d->dw[i] == 0 && d->db[i] == 0);
}

/* 10^4 + an alternating 2^-7, exact in f32: xhat is +-1 but for eps, which E[x^2] - mean^2 in f32 would miss wholly. A row of
 * one value has no variance at all. */
static void test_cancelling(void **state) {
  tigon_context *c = *state;
  enum { WIDE = 10000 };
  static float x[2 * WIDE], y[2 * WIDE];
  float mean[2], rstd[2];
  for (int i = 0; i < WIDE; ++i) x[i] = 1e4f + (i % 2 ? 0x1p-7f : -0x1p-7f), x[WIDE + i] = 1234.567f;
  const tigon_layer_norm_fwd_args a = {.x = tigon_tensor_2d(x, TIGON_F32, 2, WIDE),
                                       .y = tigon_tensor_2d(y, TIGON_F32, 2, WIDE),
                                       .mean = tigon_tensor_1d(mean, TIGON_F32, 2),
                                       .rstd = tigon_tensor_1d(rstd, TIGON_F32, 2),
                                       .eps = 1e-12};
  assert_int_equal(tigon_layer_norm_fwd(c, &a), TIGON_OK);
  const double expected = 0x1p-7 / sqrt(0x1p-14 + 1e-12);
  for (int i = 0; i < WIDE; ++i) {
    assert_true(fabs((double)y[i] - (i % 2 ? expected : -expected)) <= 0x1p-21);
    assert_true(y[WIDE + i] == 0);
  }
  assert_true(mean[0] == 1e4f && mean[1] == 1234.567f);
  assert_true(fabs((double)rstd[1] - 1e6) <= 0.1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_workspace), cmocka_unit_test(test_empty),
                                     cmocka_unit_test(test_cancelling)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
