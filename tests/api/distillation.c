/* fused_linear_divergence and fused_linear_topk_divergence: the fronts' own sentences. */
#include "api.h"

enum { ROWS = 3, H = 6, D = 5, V = 37, K = 4 };

static _Alignas(64) char workspace[1 << 16];
static float loss;

static struct {
  float hidden[ROWS * H], weight[V * H], teacher_hidden[ROWS * D], teacher_weight[(V + 1) * D], teacher_bias[V + 1];
  float target[ROWS * K];
  int64_t labels[ROWS], ids[ROWS * K];
} of;

static tigon_fused_linear_divergence_fwd_args legal(void) {
  return (tigon_fused_linear_divergence_fwd_args){.hidden = tigon_tensor_2d(of.hidden, TIGON_F32, ROWS, H),
                                                  .weight = tigon_tensor_2d(of.weight, TIGON_F32, V, H),
                                                  .teacher_hidden =
                                                      tigon_tensor_2d(of.teacher_hidden, TIGON_F32, ROWS, D),
                                                  .teacher_weight = tigon_tensor_2d(of.teacher_weight, TIGON_F32, V, D),
                                                  .labels = tigon_tensor_1d(of.labels, TIGON_I64, ROWS),
                                                  .loss = tigon_tensor_1d(&loss, TIGON_F32, 1),
                                                  .workspace = workspace,
                                                  .workspace_bytes = sizeof workspace};
}

static void test_head(void **state) {
  tigon_context *c = *state;
  tigon_fused_linear_divergence_fwd_args a;
  loss = 7;
#define REFUSED(change, sentence)                                                     \
  (a = legal(), change,                                                               \
   api_expect(c, tigon_fused_linear_divergence_fwd(c, &a), TIGON_ERROR_INVALID, "%s", \
              "fused_linear_divergence_fwd: " sentence))
  REFUSED((a.weight_hard = 1, a.labels = (tigon_tensor){0}), "labels is absent, must be there with weight_hard");
  REFUSED(++a.teacher_weight.shape[0],
          "teacher_weight.shape[0] is 38, must be at most 37 (weight.shape[0]) without truncate_teacher");
  REFUSED((--a.teacher_weight.shape[0], a.kind = TIGON_DIVERGENCE_REVERSE_KL),
          "teacher_weight.shape[0] is 36, must be 37 (weight.shape[0]) or more with kind reverse_kl");
  REFUSED(--a.teacher_weight.shape[1], "teacher_weight.shape[1] is 4, must be 5 (teacher_hidden.shape[1])");
  REFUSED(a.teacher_bias = tigon_tensor_1d(of.teacher_bias, TIGON_F32, V + 1),
          "teacher_bias.shape[0] is 38, must be 37 (teacher_weight.shape[0])");
  REFUSED((a.by_temperature_squared = 1, a.temperature = 1e20),
          "weight_soft times the square of temperature is 1e+40, must be a normal f32");
  REFUSED((a.softcap = 1e30, a.logit_scale = 1e-30), "logit_scale divided by softcap is 1e-60, must be a normal f32");
  REFUSED((a.teacher_logit_scale = 1e30, a.temperature = 1e-30),
          "teacher_logit_scale divided by temperature is 1e+60, must be a normal f32");
  REFUSED((a.teacher_logit_scale = 1e30, a.teacher_softcap = 1e-30),
          "teacher_logit_scale divided by teacher_softcap is 1e+60, must be a normal f32");
#undef REFUSED
  assert_true(loss == 7);
}

static tigon_fused_linear_topk_divergence_fwd_args legal_lists(void) {
  memset(of.ids, 0, sizeof of.ids);
  return (tigon_fused_linear_topk_divergence_fwd_args){.hidden = tigon_tensor_2d(of.hidden, TIGON_F32, ROWS, H),
                                                       .weight = tigon_tensor_2d(of.weight, TIGON_F32, V, H),
                                                       .target = tigon_tensor_2d(of.target, TIGON_F32, ROWS, K),
                                                       .target_ids = tigon_tensor_2d(of.ids, TIGON_I64, ROWS, K),
                                                       .labels = tigon_tensor_1d(of.labels, TIGON_I64, ROWS),
                                                       .loss = tigon_tensor_1d(&loss, TIGON_F32, 1),
                                                       .workspace = workspace,
                                                       .workspace_bytes = sizeof workspace};
}

static void test_lists(void **state) {
  tigon_context *c = *state;
  tigon_fused_linear_topk_divergence_fwd_args a;
  loss = 7;
#define REFUSED(change, sentence)                                                          \
  (a = legal_lists(), change,                                                              \
   api_expect(c, tigon_fused_linear_topk_divergence_fwd(c, &a), TIGON_ERROR_INVALID, "%s", \
              "fused_linear_topk_divergence_fwd: " sentence))
  REFUSED((a.weight_hard = 1, a.labels = (tigon_tensor){0}), "labels is absent, must be there with weight_hard");
  REFUSED(a.kind = TIGON_DIVERGENCE_COSINE, "kind is 4, must be 0 to 3");
  REFUSED(of.ids[5] = V, "target_ids[5] is 37, must be 0 to 36 (weight.shape[0] - 1)");
  REFUSED(of.ids[11] = -1, "target_ids[11] is -1, must be 0 to 36 (weight.shape[0] - 1)");
  REFUSED(a.target_ids.shape[1] = a.target_ids.strides[0] = K - 1,
          "target_ids.shape[1] is 3, must be 4 (target.shape[1])");
  REFUSED((a.by_temperature_squared = 1, a.temperature = 1e20),
          "weight_soft times the square of temperature is 1e+40, must be a normal f32");
  REFUSED((a.softcap = 1e30, a.logit_scale = 1e-30), "logit_scale divided by softcap is 1e-60, must be a normal f32");
  REFUSED((a.hidden.shape[0] = a.target.shape[0] = a.target_ids.shape[0] = a.labels.shape[0] = 0,
           a.target.shape[1] = a.target_ids.shape[1] = INT64_C(1) << 31,
           a.target.strides[0] = a.target_ids.strides[0] = INT64_C(1) << 31),
          "target.shape[1] is 2147483648, must be below 2^31");
#undef REFUSED
  assert_true(loss == 7);
}

/* An id out of range raises the flag, though its token does not count, and host kernels skip it. */
static void test_error(void **state) {
  int32_t error = 0;
  tigon_fused_linear_topk_divergence_fwd_args a = legal_lists();
  a.has_ignore_index = 1, a.ignore_index = of.labels[0];
  a.error = tigon_tensor_1d(&error, TIGON_I32, 1);
  assert_int_equal(tigon_fused_linear_topk_divergence_fwd(*state, &a), TIGON_OK);
  assert_int_equal(error, 0);
  for (int below = 0; below < 2; ++below) {
    of.ids[1] = below ? -1 : V, error = 0;
    assert_int_equal(tigon_fused_linear_topk_divergence_fwd(*state, &a), TIGON_OK);
    assert_int_equal(error, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_head), cmocka_unit_test(test_lists),
                                     cmocka_unit_test(test_error)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
