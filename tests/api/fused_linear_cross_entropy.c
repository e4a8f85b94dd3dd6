/* fused_linear_cross_entropy: how much workspace it needs. Its values: tests/grad/fused_linear_cross_entropy.c. */
#include "api.h"

static tigon_fused_linear_cross_entropy_args head(int64_t tokens, int64_t width) {
  return (tigon_fused_linear_cross_entropy_args){.hidden = tigon_tensor_2d(NULL, TIGON_BF16, tokens, width),
                                                 .weight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, width),
                                                 .labels = tigon_tensor_1d(NULL, TIGON_I32, tokens),
                                                 .dweight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, width)};
}

/* 1 MiB is enough for a 32000 x 1024 head with 16-bit dweight and 8192 tokens. */
static void test_one_mebibyte(void **state) {
  tigon_fused_linear_cross_entropy_args a = head(8192, 1024);
  a.dhidden = a.hidden;
  a.dbias = tigon_tensor_1d(NULL, TIGON_BF16, 32000);
  float loss;
  for (int forward = 0; forward < 2; ++forward) {
    size_t least;
    if (forward) a.out.loss = tigon_tensor_1d(&loss, TIGON_F32, 1);
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(*state, &a, &least, NULL), TIGON_OK);
    assert_true(least <= 1 << 20);
  }
}

/* One chunk for all tokens, or one of 1024 and the sums of a 16-bit dweight, whichever is smaller. */
static void test_recommended(void **state) {
  for (int64_t tokens = 2048; tokens <= 65536; tokens *= 2) {
    const tigon_fused_linear_cross_entropy_args a = head(tokens, 4096);
    size_t good;
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(*state, &a, NULL, &good), TIGON_OK);
    const size_t row = (32000 + 4096) * 2, all = (size_t)tokens * row, chunked = 1024 * row + (size_t)32000 * 4096 * 4;
    const size_t expected = all < chunked ? all : chunked;
    assert_true(good >= expected && good < expected + (1 << 20));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_mebibyte), cmocka_unit_test(test_recommended)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
