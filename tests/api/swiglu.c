/* swiglu: a small clamp. */
#include "api.h"

/* The smallest clamp is still one. */
static void test_clamp(void **state) {
  enum { N = 40 };
  float a[N], b[N], c[N];
  api_fill(a, N, 0.5f);
  api_fill(b, N, 0.25f);
  const tigon_swiglu_fwd_args f = {.a = tigon_tensor_1d(a, TIGON_F32, N),
                                   .b = tigon_tensor_1d(b, TIGON_F32, N),
                                   .c = tigon_tensor_1d(c, TIGON_F32, N),
                                   .clamp = 1e-300};
  assert_int_equal(tigon_swiglu_fwd(*state, &f), TIGON_OK);
  for (int i = 0; i < N; ++i) assert_true(fabsf(c[i]) <= 1e-37f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_clamp)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
