/* softmax: rows without a column that counts. */
#include "api.h"

/* One dimension; a mask of -inf; more rows than columns under a causal mask, whose first rows count nothing. */
static void test_rows_of_nothing(void **state) {
  tigon_context *c = *state;
  float x[] = {1, 2, 3}, mask[] = {-INFINITY, -INFINITY, -INFINITY}, y[] = {7, 7, 7};
  tigon_softmax_fwd_args a = {.x = tigon_tensor_1d(x, TIGON_F32, 3),
                              .y = tigon_tensor_1d(y, TIGON_F32, 3),
                              .mask = tigon_tensor_1d(mask, TIGON_F32, 3)};
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < 3; ++i) assert_true(y[i] == 0);
  a = (tigon_softmax_fwd_args){
      .x = tigon_tensor_2d(x, TIGON_F32, 3, 1), .y = tigon_tensor_2d(y, TIGON_F32, 3, 1), .causal = 1};
  y[0] = y[1] = y[2] = 7;
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_of_nothing)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
