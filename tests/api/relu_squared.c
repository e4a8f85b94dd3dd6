/* relu_squared: NaN, Inf and zeros. */
#include "api.h"

/* NaN passes, -Inf is 0, a large slope times a small dy does not overflow on the way. */
static void test_values(void **state) {
  tigon_context *c = *state;
  float x[] = {NAN, -INFINITY, INFINITY, -0.0f, -3, 3, 3e38f}, dy[] = {1, 1, 1, 1, NAN, -0.5f, 0.25f}, y[7], dx[7];
  const tigon_relu_squared_fwd_args f = {.x = tigon_tensor_1d(x, TIGON_F32, 7), .y = tigon_tensor_1d(y, TIGON_F32, 7)};
  const tigon_relu_squared_bwd_args b = {
      .dy = tigon_tensor_1d(dy, TIGON_F32, 7), .x = f.x, .dx = tigon_tensor_1d(dx, TIGON_F32, 7)};
  assert_int_equal(tigon_relu_squared_fwd(c, &f), TIGON_OK);
  assert_int_equal(tigon_relu_squared_bwd(c, &b), TIGON_OK);
  const float y_expected[] = {NAN, 0, INFINITY, 0, 0, 9, INFINITY},
              dx_expected[] = {NAN, 0, INFINITY, 0, NAN, -3, 1.5e38f};
  for (int i = 0; i < 7; ++i) {
    assert_true(isnan(y_expected[i]) ? isnan(y[i]) : y[i] == y_expected[i]);
    assert_true(isnan(dx_expected[i]) ? isnan(dx[i]) : dx[i] == dx_expected[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
