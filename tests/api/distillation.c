/* fused_linear_divergence: the front's own sentences. */
#include "api.h"

enum { ROWS = 3, H = 6, D = 5, V = 37 };

static _Alignas(64) char workspace[1 << 16];
static float loss;

static struct {
  float hidden[ROWS * H], weight[V * H], teacher_hidden[ROWS * D], teacher_weight[(V + 1) * D], teacher_bias[V + 1];
  int64_t labels[ROWS];
} of;

static tigon_fused_linear_divergence_fwd_args legal(void) {
  return (tigon_fused_linear_divergence_fwd_args){
      .hidden = tigon_tensor_2d(of.hidden, TIGON_F32, ROWS, H),
      .weight = tigon_tensor_2d(of.weight, TIGON_F32, V, H),
      .teacher_hidden = tigon_tensor_2d(of.teacher_hidden, TIGON_F32, ROWS, D),
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_head)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
