/* rms_norm: workspaces; no rows; strides. */
#include "api.h"

enum { ROWS = 3, COLS = 8 };

typedef struct data {
  float x[ROWS * COLS + 4], w[COLS], y[ROWS * COLS], rstd[ROWS], dy[ROWS * COLS], dx[ROWS * COLS], dw[COLS];
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, ROWS * COLS, 0.5f);
  api_fill(d.w, COLS, 0.25f);
  api_fill(d.dy, ROWS * COLS, 0.125f);
  for (int r = 0; r < ROWS; ++r) d.rstd[r] = 0.5f;
  return &d;
}

static tigon_rms_norm_fwd_args fwd_args(data *d) {
  return (tigon_rms_norm_fwd_args){
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .y = tigon_tensor_2d(d->y, TIGON_F32, ROWS, COLS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .eps = 1e-6,
  };
}

static tigon_rms_norm_bwd_args bwd_args(data *d) {
  return (tigon_rms_norm_bwd_args){
      .dy = tigon_tensor_2d(d->dy, TIGON_F32, ROWS, COLS),
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .dx = tigon_tensor_2d(d->dx, TIGON_F32, ROWS, COLS),
      .dw = tigon_tensor_1d(d->dw, TIGON_F32, COLS),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

/* Sums need a workspace, and nothing else does. */
static void test_workspace(void **state) {
  tigon_context *c = *state;
  tigon_rms_norm_bwd_args a = bwd_args(made());
  size_t bytes;
  a.dw = (tigon_tensor){0};
  assert_int_equal(tigon_rms_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
  a.workspace = NULL;
  assert_int_equal(tigon_rms_norm_bwd(c, &a), TIGON_OK);
}

/* No rows: nothing to do, but dw is still the sum over no rows. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_rms_norm_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = f.rstd.shape[0] = 0;
  f.x.data = f.y.data = NULL;
  assert_int_equal(tigon_rms_norm_fwd(c, &f), TIGON_OK);
  tigon_rms_norm_bwd_args b = bwd_args(d);
  b.x.shape[0] = b.dy.shape[0] = b.dx.shape[0] = b.rstd.shape[0] = 0;
  assert_int_equal(tigon_rms_norm_bwd(c, &b), TIGON_OK);
  for (int i = 0; i < COLS; ++i) assert_true(d->dw[i] == 0);
}

/* Leading dimensions that do not collapse to one pitch: a [B, H, T, D] view of [B, T, H, D] memory. */
static void test_strided(void **state) {
  tigon_context *c = *state;
  enum { B = 2, H = 3, T = 5, D = 4, N = B * H * T * D };
  float x[N], y[N], flat[N], w[D];
  api_fill(x, N, 0.5f);
  api_fill(w, D, 0.25f);
  tigon_rms_norm_fwd_args a = {.w = tigon_tensor_1d(w, TIGON_F32, D), .eps = 1e-6};
  a.x = tigon_tensor_2d(x, TIGON_F32, B * T * H, D);
  a.y = tigon_tensor_2d(flat, TIGON_F32, B * T * H, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  a.x = (tigon_tensor){x, TIGON_F32, 4, {B, H, T, D}, {T * H * D, D, H * D, 1}};
  a.y = tigon_tensor_4d(y, TIGON_F32, B, H, T, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      for (int t = 0; t < T; ++t)
        assert_memory_equal(&y[((b * H + h) * T + t) * D], &flat[((b * T + t) * H + h) * D], D * sizeof *y);
}

/* Three leading strides are taken, four are not; nor are negative ones. */
static void test_strides_refused(void **state) {
  tigon_context *c = *state;
  enum { D = 2 };
  float x[2 * 3 * 2 * 3 * D], y[2 * 3 * 2 * 3 * D], flat[2 * 3 * 2 * 3 * D];
  api_fill(x, 72, 0.5f);
  tigon_rms_norm_fwd_args a = {.eps = 1e-6};
  a.x = tigon_tensor_2d(x, TIGON_F32, 36, D);
  a.y = tigon_tensor_2d(flat, TIGON_F32, 36, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  a.x = (tigon_tensor){x, TIGON_F32, 5, {3, 3, 2, 2, D}, {2, 12, 36, 6, 1}}; /* all four turned */
  a.y = (tigon_tensor){y, TIGON_F32, 5, {3, 3, 2, 2, D}, {24, 8, 4, 2, 1}};
  memset(y, 0, sizeof y);
  api_expect(c, tigon_rms_norm_fwd(c, &a), TIGON_ERROR_INVALID,
             "rms_norm_fwd: the leading dimensions collapse to 4 strides, must collapse to 3 or fewer");
  for (int i = 0; i < 72; ++i) assert_true(y[i] == 0);
  /* x, [3, 4, 3, D] turned, as [3, 3, 4, D]: 2 dimensions of y lie end to end, none of x does. */
  a.x = (tigon_tensor){x, TIGON_F32, 4, {3, 3, 4, D}, {2, 24, 6, 1}};
  a.y = tigon_tensor_4d(y, TIGON_F32, 3, 3, 4, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        assert_memory_equal(&y[((i * 3 + j) * 4 + k) * D], &flat[(j * 12 + k * 3 + i) * D], D * sizeof *y);
  a.x.strides[1] = -24;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_workspace), cmocka_unit_test(test_empty),
                                     cmocka_unit_test(test_strided), cmocka_unit_test(test_strides_refused)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
