/* layer_norm: a large mean costs no digits. */
#include "api.h"

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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cancelling)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
