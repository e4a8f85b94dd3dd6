/* topk_divergence: the front's own sentences, and a vocabulary of many windows of columns, over the logits. */
#include "api.h"

enum { ROWS = 2, V = 50003, K = 40 };

static _Alignas(64) char workspace[128];
static float loss, other;

static struct {
  float x[ROWS * V], t[ROWS * K];
  int64_t ids[ROWS * K];
} row;

static tigon_topk_divergence_fwd_args legal(void) {
  api_fill(row.x, ROWS * V, 0.5f);
  for (int i = 0; i < ROWS * K; ++i) {
    row.t[i] = -5 - (float)(i % 7) / 4;
    row.ids[i] = i % 9 == 8 ? row.ids[i - 3] : (int64_t)(i * 7919 % V); /* some repeat */
  }
  row.ids[1] = V - 1;
  return (tigon_topk_divergence_fwd_args){.input = tigon_tensor_2d(row.x, TIGON_F32, ROWS, V),
                                          .target = tigon_tensor_2d(row.t, TIGON_F32, ROWS, K),
                                          .target_ids = tigon_tensor_2d(row.ids, TIGON_I64, ROWS, K),
                                          .options = {.target_is = TIGON_DISTRIBUTION_LOG_PROBABILITIES, .tail = 1},
                                          .out = {.loss = tigon_tensor_1d(&loss, TIGON_F32, 1)},
                                          .workspace = workspace,
                                          .workspace_bytes = sizeof workspace};
}

static void test_refusals(void **state) {
  tigon_context *c = *state;
  tigon_topk_divergence_fwd_args a;
#define REFUSED(change, sentence) \
  (a = legal(), change,           \
   api_expect(c, tigon_topk_divergence_fwd(c, &a), TIGON_ERROR_INVALID, "topk_divergence_fwd: " sentence))
  REFUSED(a.options.kind = TIGON_DIVERGENCE_COSINE, "options.kind is 4, must be 0 to 3");
  REFUSED(row.ids[41] = V, "target_ids[41] is 50003, must be 0 to 50002 (input.shape[1] - 1)");
  REFUSED(row.ids[41] = -1, "target_ids[41] is -1, must be 0 to 50002 (input.shape[1] - 1)");
  REFUSED(a.target_ids.shape[1] = a.target_ids.strides[0] = K - 1,
          "target_ids.shape[1] is 39, must be 40 (target.shape[1])");
  REFUSED(a.out.loss = (tigon_tensor){0}, "out.loss is absent, must be there but with options.reduction none");
  REFUSED((a.options.reduction = TIGON_REDUCTION_SUM, a.options.denominator = tigon_tensor_1d(&other, TIGON_F32, 1)),
          "options.denominator is there, must be absent but with options.reduction mean");
  REFUSED((a.options.by_temperature_squared = 1, a.options.temperature = 1e20),
          "options.temperature is 1e+20, must have a square that is a normal f32");
  REFUSED((a.input.shape[0] = a.target.shape[0] = a.target_ids.shape[0] = 0,
           a.target.shape[1] = a.target_ids.shape[1] = INT64_C(1) << 31,
           a.target.strides[0] = a.target_ids.strides[0] = INT64_C(1) << 31),
          "target.shape[1] is 2147483648, must be below 2^31");
  a = legal();
  a.input.shape[0] = a.target.shape[0] = a.target_ids.shape[0] = INT64_MAX / 15;
  a.input.shape[1] = 8;
  a.input.strides[0] = a.target.strides[0] = 0;
  a.target.shape[1] = a.target_ids.shape[1] = a.target_ids.strides[0] = 1;
  size_t bytes = 5;
  api_expect(c, tigon_topk_divergence_fwd_workspace(c, &a, &bytes), TIGON_ERROR_INVALID,
             "topk_divergence_fwd: input has more rows than a workspace can hold numbers for");
}

static void test_workspace(void **state) {
  tigon_context *c = *state;
  tigon_topk_divergence_fwd_args a = legal();
  size_t bytes = 5;
  assert_int_equal(tigon_topk_divergence_fwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 128);
  float token_loss[ROWS];
  a.out.token_loss = tigon_tensor_1d(token_loss, TIGON_F32, ROWS);
  assert_int_equal(tigon_topk_divergence_fwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 64);
}

/* The oracle's, within the rounding of a sum of 50000 exponentials; ids out of range raise the flag and are none. */
static void test_windows(void **state) {
  static float gradient[2][ROWS * V];
  int32_t error[2] = {0, 0};
  float losses[2];
  for (int i = 0; i < 2; ++i) {
    tigon_context *c = *state;
    const tigon_context_desc ref = {.device = "ref"};
    if (i) assert_int_equal(tigon_context_create(&ref, &c), TIGON_OK);
    tigon_topk_divergence_fwd_args a = legal();
    row.ids[5] = V, row.ids[47] = INT64_MIN, row.ids[48] = INT64_MAX;
    a.dinput = a.input;
    a.out.error = tigon_tensor_1d(&error[i], TIGON_I32, 1);
    assert_int_equal(tigon_topk_divergence_fwd(c, &a), TIGON_OK);
    memcpy(gradient[i], row.x, sizeof row.x);
    losses[i] = loss;
    if (i) tigon_context_destroy(c);
  }
  assert_int_equal(error[0], 1);
  assert_int_equal(error[1], 1);
  assert_true(fabsf(losses[0] - losses[1]) <= 1e-6f * fabsf(losses[1]));
  for (int i = 0; i < ROWS * V; ++i)
    assert_true(fabsf(gradient[0][i] - gradient[1][i]) <= 2e-6f * fabsf(gradient[1][i]) + 1e-12f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_workspace),
                                     cmocka_unit_test(test_windows)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
