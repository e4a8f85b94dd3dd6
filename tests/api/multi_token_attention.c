/* multi_token_attention: what its header asks of shapes and windows and no description can say. Each call is a legal one with a
 * change: 2 batches of 4 channels of 3 tokens, and 3 x 3 taps with a padding of 1. */
#include "rules.h"

#define MTA_RULE(entry, change, sentence) RULE(multi_token_attention_##entry, change, sentence)

static void test_shapes(void **state) {
  MTA_RULE(fwd, a->weight.ndim = 3, "weight.ndim is 3, must be 4");
  MTA_RULE(fwd, a->groups = 3, "groups is 3, must divide 4 (scores.shape[1])");
  MTA_RULE(fwd, (a->groups = 2, a->weight.shape[0] = a->bias.shape[0] = 3),
           "groups is 2, must divide 3 (weight.shape[0])");
  MTA_RULE(fwd, a->groups = 2, "weight.shape[1] is 4, must be 2 (channels of a group of scores)");
  MTA_RULE(bwd, a->dweight.shape[3] = 2, "dweight.shape[3] is 2, must be 3 (weight.shape[3])");
  MTA_RULE(fwd, a->o.ndim = 3, "o.ndim is 3, must be 4");
  MTA_RULE(fwd, a->o.shape[0] = 1, "o.shape[0] is 1, must be 2 (scores.shape[0])");
  MTA_RULE(fwd, a->o.shape[1] = 3, "o.shape[1] is 3, must be 4 (weight.shape[0])");
  MTA_RULE(bwd, a->d_o.shape[2] = 2, "d_o.shape[2] is 2, must be 3 (places of a window)");
  MTA_RULE(fwd, a->stride_w = 2, "o.shape[3] is 3, must be 2 (places of a window)");
  MTA_RULE(fwd, a->stat.ndim = 2, "stat.ndim is 2, must be 3");
  MTA_RULE(fwd, a->stat.shape[0] = 1, "stat.shape[0] is 1, must be 2 (scores.shape[0])");
  MTA_RULE(fwd, a->stat.shape[1] = 3, "stat.shape[1] is 3, must be 4 (scores.shape[1])");
  MTA_RULE(bwd, a->stat.shape[2] = 2, "stat.shape[2] is 2, must be 3 (scores.shape[2])");
}

static void test_windows(void **state) {
  MTA_RULE(fwd, a->weight.shape[2] = 0, "weight.shape[2] is 0, must be 1 to 64");
  MTA_RULE(fwd, (a->weight.data = memory + ARENA, a->weight.shape[3] = 65), "weight.shape[3] is 65, must be 1 to 64");
  MTA_RULE(fwd, (a->weight.data = memory + ARENA, a->weight.shape[3] = 64),
           "a window of weight.shape[3] reaches over 64 elements, must over 5 at most (padded scores)");
  MTA_RULE(fwd, a->padding_h = 3, "padding_h is 3, must be 0 to 2 (a window less one)");
  MTA_RULE(bwd, a->padding_w = 3, "padding_w is 3, must be 0 to 2 (a window less one)");
  MTA_RULE(fwd, a->dilation_h = 5,
           "a window of weight.shape[2] reaches over 11 elements, must over 5 at most (padded scores)");
}

static void test_bias_before(void **state) {
  MTA_RULE(fwd, a->place = TIGON_MTA_PRE, "bias is given, must be absent with place 1 (PRE)");
  MTA_RULE(bwd, a->place = TIGON_MTA_PRE, "dbias is given, must be absent with place 1 (PRE)");
}

/* Without a query backward still writes sums. */
static void test_no_tokens(void **state) {
  call c;
  tigon_multi_token_attention_bwd_args *a = legal(&c, "multi_token_attention_bwd");
  a->scores.shape[2] = a->scores.shape[3] = a->dscores.shape[2] = a->dscores.shape[3] = 0;
  a->d_o.shape[2] = a->d_o.shape[3] = a->stat.shape[2] = 0;
  assert_int_equal(call_run(&c, *state), TIGON_OK);
  for (int i = 0; i < 4 * 4 * 9; ++i) assert_true(((float *)a->dweight.data)[i] == 0);
  for (int i = 0; i < 4; ++i) assert_true(((float *)a->dbias.data)[i] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_windows),
                                     cmocka_unit_test(test_bias_before), cmocka_unit_test(test_no_tokens)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
