/* fused_linear_policy against linear_logprob, policy_loss and linear_logprob's backward, on the oracle and on the CPU with the
 * built-in GEMM. Workspaces have every size: chunks of tokens, groups of sequences, and sequences too long for a chunk. */
#include "fused_head.h"

static void by_parts(tigon_context *c, const head_problem *p, const void *options, head_results *out) {
  static float lse[ROWS], entropy[ROWS], dlogprob[ROWS], dentropy[ROWS];
  static int32_t mask[ROWS];
  const tigon_policy_loss_options *o = options;
  const tigon_linear_logprob_fwd_args head = logprob_by_parts(c, p, out, lse, entropy);
  for (int r = 0; r < ROWS; ++r) mask[r] = p->labels[r] != IGNORE;
  const tigon_policy_loss_fwd_args a = {.logprob = head.logprob,
                                        .segments = segments_of(p),
                                        .advantage = words(p->vectors[0], o->token_advantage ? ROWS : SEQUENCES),
                                        .old = words(p->vectors[1], ROWS),
                                        .ref = words(p->vectors[2], ROWS),
                                        .entropy = head.entropy,
                                        .mask = tigon_tensor_1d(mask, TIGON_I32, ROWS),
                                        .options = *o,
                                        .loss = words(&out->loss, 1),
                                        .token_loss = words(out->each, ROWS),
                                        .dlogprob = words(dlogprob, ROWS),
                                        .dentropy = words(dentropy, ROWS),
                                        .kl = words(&out->metrics[0], 1),
                                        .clip_low = words(&out->metrics[1], 1),
                                        .clip_high = words(&out->metrics[2], 1),
                                        .mean_entropy = words(&out->metrics[3], 1),
                                        .mean_ratio = words(&out->metrics[4], 1)};
  assert_int_equal(tigon_policy_loss_fwd(c, &a), TIGON_OK);
  for (int r = 0; r < ROWS; ++r) dlogprob[r] *= p->dloss, dentropy[r] *= p->dloss;
  gradients_by_parts(c, p, &head, dlogprob, o->entropy_weight != 0 ? dentropy : NULL, out);
}

static void run(tigon_context *c, const head_problem *p, const void *options, int room, head_results *out) {
  const tigon_policy_loss_options *o = options;
  tigon_fused_linear_policy_fwd_args a = {HEAD_FIELDS(p, out),
                                          .advantage = words(p->vectors[0], o->token_advantage ? ROWS : SEQUENCES),
                                          .old = words(p->vectors[1], ROWS),
                                          .ref = words(p->vectors[2], ROWS),
                                          .options = *o,
                                          .token_loss = words(out->each, ROWS),
                                          .kl = words(&out->metrics[0], 1),
                                          .clip_low = words(&out->metrics[1], 1),
                                          .clip_high = words(&out->metrics[2], 1),
                                          .mean_entropy = words(&out->metrics[3], 1),
                                          .mean_ratio = words(&out->metrics[4], 1)};
  CALL_IN_ROOM(fused_linear_policy, c, p, &a, out, room);
}

static void test_tokens(void **s) {
  (void)s;
  compare_all(&(tigon_policy_loss_options){.kind = TIGON_POLICY_DAPO}, true, by_parts, run);
  compare_all(&(tigon_policy_loss_options){.kind = TIGON_POLICY_GRPO,
                                           .token_advantage = 1,
                                           .kl_weight = 0.25,
                                           .kl_bias_corrected = 1,
                                           .entropy_weight = 0.5},
              true, by_parts, run);
  compare_all(&(tigon_policy_loss_options){.kind = TIGON_POLICY_CISPO, .eps_high = 1.25}, true, by_parts, run);
}

static void test_sequences(void **s) {
  (void)s;
  compare_all(&(tigon_policy_loss_options){.kind = TIGON_POLICY_GRPO, .sequence_level = 1, .eps_high = 0.5}, true,
              by_parts, run);
  compare_all(&(tigon_policy_loss_options){.kind = TIGON_POLICY_VESPO, .entropy_weight = -0.25}, true, by_parts, run);
}

/* hidden's memory takes dhidden. */
static void test_in_place(void **s) {
  (void)s;
  const tigon_policy_loss_options options[] = {{.kind = TIGON_POLICY_DAPO},
                                               {.kind = TIGON_POLICY_GRPO, .sequence_level = 1}};
  static head_results apart, together;
  static head_problem copy;
  tigon_context *c;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  for (int i = 0; i < 2; ++i) {
    const head_problem *p = made(TIGON_BF16, TIGON_BF16, false, true);
    for (int room = 0; room < ROOMS; ++room) {
      memset(&apart, 0, sizeof apart), memset(&together, 0, sizeof together);
      run(c, p, &options[i], room, &apart);
      copy = *p;
      tigon_fused_linear_policy_fwd_args a = {
          HEAD_FIELDS(&copy, &together), .advantage = words(p->vectors[0], SEQUENCES),
          .old = words(p->vectors[1], ROWS), .ref = words(p->vectors[2], ROWS), .options = options[i]};
      a.dhidden = a.hidden;
      CALL_IN_ROOM(fused_linear_policy, c, &copy, &a, &together, room);
      assert_memory_equal(copy.hidden, apart.dhidden, ROWS * WIDTH * 2);
      assert_memory_equal(&together.loss, &apart.loss, sizeof apart.loss);
    }
  }
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens), cmocka_unit_test(test_sequences),
                                     cmocka_unit_test(test_in_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
