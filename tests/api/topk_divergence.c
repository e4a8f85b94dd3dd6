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

/* The oracle's on each device, within the rounding of a sum of 50000 exponentials; ids out of range raise the flag and are none. */
static void test_windows(void **state) {
  (void)state;
  static const char *const devices[] = {"ref", "cpu", "ascend-sim:910B4"};
  enum { DEVICES = sizeof devices / sizeof *devices };
  static float gradient[DEVICES][ROWS * V];
  float losses[DEVICES];
  for (int d = 0; d < DEVICES; ++d) {
    int32_t error = 0;
    tigon_context *c;
    assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = devices[d]}, &c), TIGON_OK);
    tigon_topk_divergence_fwd_args a = legal();
    row.ids[5] = V, row.ids[47] = INT64_MIN, row.ids[48] = INT64_MAX;
    a.dinput = a.input;
    a.out.error = tigon_tensor_1d(&error, TIGON_I32, 1);
    assert_int_equal(tigon_topk_divergence_fwd(c, &a), TIGON_OK);
    assert_int_equal(error, 1);
    memcpy(gradient[d], row.x, sizeof row.x);
    losses[d] = loss;
    tigon_context_destroy(c);
    assert_true(fabsf(losses[d] - losses[0]) <= 1e-6f * fabsf(losses[0]));
    for (int i = 0; i < ROWS * V; ++i)
      assert_true(fabsf(gradient[d][i] - gradient[0][i]) <= 2e-6f * fabsf(gradient[0][i]) + 1e-12f);
  }
}

/* Rows without entries are all tail; without columns all ids are out of range; without rows there is a loss. */
static void test_nothing(void **state) {
  (void)state;
  static const char *const devices[] = {"ref", "cpu", "ascend-sim:tiny"};
  for (size_t d = 0; d < sizeof devices / sizeof *devices; ++d) {
    tigon_context *c;
    float losses[ROWS], stats[3 * ROWS];
    int32_t error = 0;
    assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = devices[d]}, &c), TIGON_OK);
    tigon_topk_divergence_fwd_args a = legal();
    a.options.reduction = TIGON_REDUCTION_NONE;
    a.out = (tigon_topk_divergence_outputs){.token_loss = tigon_tensor_1d(losses, TIGON_F32, ROWS),
                                            .stats = tigon_tensor_2d(stats, TIGON_F32, ROWS, 3),
                                            .error = tigon_tensor_1d(&error, TIGON_I32, 1)};
    a.target = tigon_tensor_2d(row.t, TIGON_F32, ROWS, 0), a.target_ids = tigon_tensor_2d(row.ids, TIGON_I64, ROWS, 0);
    a.target.strides[0] = a.target_ids.strides[0] = 1;
    assert_int_equal(tigon_topk_divergence_fwd(c, &a), TIGON_OK);
    for (int r = 0; r < ROWS; ++r)
      assert_true(losses[r] == 0 && stats[3 * r] == stats[3 * r + 1] && stats[3 * r + 2] == 1);
    assert_int_equal(error, 0);
    a.target = tigon_tensor_2d(row.t, TIGON_F32, ROWS, K), a.target_ids = tigon_tensor_2d(row.ids, TIGON_I64, ROWS, K);
    a.input.shape[1] = 0, a.input.strides[0] = 1;
    assert_int_equal(tigon_topk_divergence_fwd(c, &a), TIGON_OK);
    assert_int_equal(error, 1);
    for (int r = 0; r < ROWS; ++r)
      assert_true(losses[r] == 0 && stats[3 * r] == -INFINITY && stats[3 * r + 1] == -INFINITY &&
                  stats[3 * r + 2] == 0);
    a = legal();
    a.input.shape[0] = a.target.shape[0] = a.target_ids.shape[0] = 0;
    loss = 7;
    assert_int_equal(tigon_topk_divergence_fwd(c, &a), TIGON_OK);
    assert_true(loss == 0);
    tigon_context_destroy(c);
  }
}

/* On Ascend a row's entries have to fit on chip. */
static void test_too_many_entries(void **state) {
  (void)state;
  enum { MANY = 20000 };
  static int64_t ids[MANY];
  static float target[MANY];
  tigon_context *c;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "ascend-sim:910B4"}, &c), TIGON_OK);
  tigon_topk_divergence_fwd_args a = legal();
  a.input.shape[0] = 1;
  a.target = tigon_tensor_2d(target, TIGON_F32, 1, MANY), a.target_ids = tigon_tensor_2d(ids, TIGON_I64, 1, MANY);
  loss = 7;
  api_expect(
      c, tigon_topk_divergence_fwd(c, &a), TIGON_ERROR_SCRATCH,
      "topk_divergence_fwd: case E needs 401728 on-chip bytes, the least of all cases, ascend910b4 has 188160; a row's "
      "entries take 400000");
  assert_true(loss == 7);
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_workspace),
                                     cmocka_unit_test(test_windows), cmocka_unit_test(test_nothing),
                                     cmocka_unit_test(test_too_many_entries)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
