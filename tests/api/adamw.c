/* adamw: norms that f32 cannot hold or that are no numbers; a long list. */
#include "api.h"

static void expect_clip(tigon_context *c, float grads[2][4], int count, float norm, float factor) {
  static _Alignas(64) char workspace[1 << 13];
  float is[2];
  const tigon_tensor list[] = {tigon_tensor_1d(grads[0], TIGON_F32, 4), tigon_tensor_1d(grads[1], TIGON_F32, 4)};
  const tigon_adamw_clip_args a = {.grads = list,
                                   .count = count,
                                   .max_norm = 1,
                                   .norm = tigon_tensor_1d(&is[0], TIGON_F32, 1),
                                   .factor = tigon_tensor_1d(&is[1], TIGON_F32, 1),
                                   .workspace = workspace,
                                   .workspace_bytes = sizeof workspace};
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(isnan(norm) ? isnan(is[0]) && isnan(is[1]) : is[0] == norm && is[1] == factor);
}

static void test_norms(void **state) {
  float grads[2][4] = {{0.5f}, {1e30f, 1e30f, 1e30f, 1e30f}};
  expect_clip(*state, grads, 0, 0, 1);
  expect_clip(*state, grads, 1, 0.5f, 1);
  expect_clip(*state, grads, 2, 2e30f, 0.5e-30f); /* its square is more than f32 holds */
  grads[1][3] = INFINITY;
  expect_clip(*state, grads, 2, INFINITY, 0);
  grads[0][0] = NAN;
  expect_clip(*state, grads, 2, NAN, NAN);
}

enum { COUNT = 500, EACH = 100, ALL = COUNT * EACH };

static tigon_adamw_param param(float of[4][ALL], int first, int count) {
  return (tigon_adamw_param){.param = tigon_tensor_1d(of[0] + first, TIGON_F32, count),
                             .grad = tigon_tensor_1d(of[1] + first, TIGON_F32, count),
                             .exp_avg = tigon_tensor_1d(of[2] + first, TIGON_F32, count),
                             .exp_avg_sq = tigon_tensor_1d(of[3] + first, TIGON_F32, count)};
}

/* One entry of 50 000 elements gives the bits of 500 entries of 100 and one of none, and every pair of entries is looked at. */
static void test_long_list(void **state) {
  tigon_context *c = *state;
  static float whole[4][ALL], parts[4][ALL];
  static tigon_adamw_param list[COUNT + 1];
  for (int t = 0; t < 4; ++t) {
    api_fill(whole[t], ALL, 0.01f);
    for (int i = 0; i < ALL; ++i) whole[t][i] = fabsf(whole[t][i]);
    memcpy(parts[t], whole[t], sizeof whole[t]);
  }
  for (int i = 0; i < COUNT; ++i) list[i] = param(parts, (i * 37 % COUNT) * EACH, EACH);
  list[COUNT] = list[7];
  list[7] = param(parts, 0, 0);
  const tigon_adamw_param one = param(whole, 0, ALL);
  tigon_adamw_step_args a = {
      .params = &one, .count = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1};
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  a.params = list;
  a.count = COUNT + 1;
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  assert_memory_equal(parts, whole, sizeof whole);
  list[499].exp_avg.data = (float *)list[3].param.data + 99;
  api_expect(c, tigon_adamw_step(c, &a), TIGON_ERROR_ALIAS,
             "adamw_step: params[3].param overlaps params[499].exp_avg, must be apart");
}

/* Inputs may lie over each other, also before all outputs. */
static void test_one_gradient(void **state) {
  static struct { float grad[4], of[2][3][4]; } lie;
  tigon_adamw_param list[2];
  api_fill(lie.grad, 4, 0.01f);
  for (int i = 0; i < 2; ++i)
    list[i] = (tigon_adamw_param){.param = tigon_tensor_1d(lie.of[i][0], TIGON_F32, 4),
                                  .grad = tigon_tensor_1d(lie.grad, TIGON_F32, 4),
                                  .exp_avg = tigon_tensor_1d(lie.of[i][1], TIGON_F32, 4),
                                  .exp_avg_sq = tigon_tensor_1d(lie.of[i][2], TIGON_F32, 4)};
  const tigon_adamw_step_args a = {
      .params = list, .count = 2, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1};
  assert_int_equal(tigon_adamw_step(*state, &a), TIGON_OK);
  assert_memory_equal(lie.of[0], lie.of[1], sizeof lie.of[0]);
  for (int i = 0; i < 4; ++i) assert_true(lie.of[0][0][i] != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_long_list),
                                     cmocka_unit_test(test_one_gradient)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
