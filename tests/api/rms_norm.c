/* rms_norm: workspaces; strides. */
#include "api.h"

/* Sums need a workspace, and nothing else does. */
static void test_workspace(void **state) {
  tigon_rms_norm_bwd_args a = {.dy = tigon_tensor_2d(NULL, TIGON_F32, 3, 8),
                               .x = tigon_tensor_2d(NULL, TIGON_F32, 3, 8),
                               .rstd = tigon_tensor_1d(NULL, TIGON_F32, 3),
                               .dx = tigon_tensor_2d(NULL, TIGON_F32, 3, 8),
                               .dw = tigon_tensor_1d(NULL, TIGON_F32, 8)};
  size_t bytes;
  assert_int_equal(tigon_rms_norm_bwd_workspace(*state, &a, &bytes), TIGON_OK);
  assert_true(bytes > 0);
  a.dw = (tigon_tensor){0};
  assert_int_equal(tigon_rms_norm_bwd_workspace(*state, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_workspace), cmocka_unit_test(test_strided),
                                     cmocka_unit_test(test_strides_refused)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
