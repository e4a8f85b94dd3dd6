/* What headers of losses share: which rows count and what class is theirs, a head's logits, a token's own numbers. */
#include "api/api.h"
#include "core/logit_map.h"
#include "core/policy_loss.h"

static const int64_t labels[] = {0, 4, 5, -1, -100, 2};
enum { ROWS = sizeof labels / sizeof *labels };

static tigon_divergence_problem divergence(void) {
  return (tigon_divergence_problem){.cols = 5, .labels = labels, .label_dtype = TIGON_I64, .ignore_index = -100};
}

static void expect_counts(const tigon_divergence_problem *p, const char *counts) {
  for (int64_t r = 0; r < ROWS; ++r) assert_int_equal(tigon_divergence_counts(p, r), counts[r] == '1');
}

/* Labels that are no classes only say which rows are ignored. */
static void test_rows_that_count(void **state) {
  (void)state;
  tigon_divergence_problem p = divergence();
  expect_counts(&p, "111101");
  p.classes = true;
  expect_counts(&p, "110001");
  p.classes = false, p.hard = 0.5f;
  expect_counts(&p, "110001");
  p.vocab = 6; /* a panel of 5 columns */
  expect_counts(&p, "111001");
  p.labels = NULL;
  expect_counts(&p, "111111");
}

static void test_classes_of_rows(void **state) {
  (void)state;
  tigon_divergence_problem p = divergence();
  assert_int_equal(tigon_divergence_class(&p, 0), -1);
  p.hard = 1;
  assert_int_equal(tigon_divergence_class(&p, 1), 4);
  assert_int_equal(tigon_divergence_class(&p, 2), -1);
  assert_int_equal(tigon_divergence_class(&p, 3), -1);
  p.vocab = 10, p.panel_begin = 3;
  assert_int_equal(tigon_divergence_class(&p, 0), -1);
  assert_int_equal(tigon_divergence_class(&p, 1), 1);
  assert_int_equal(tigon_divergence_class(&p, 2), 2);
}

static void test_logits(void **state) {
  (void)state;
  const tigon_logit_map plain = {0, 0}, scaled = {0, 3}, capped = {2, 3};
  assert_true(tigon_logit_scale(&plain) == 1 && tigon_logit_scale(&scaled) == 3);
  assert_true(tigon_logit_inner(&scaled) == 0 && tigon_logit_inner(&capped) == 1.5f);
  assert_true(tigon_logit(&scaled, 5) == 15 && tigon_logit_slope(&scaled, 5) == 1);
  assert_true(fabs(tigon_logit(&capped, 1) - 2 * tanh(1.5)) < 1e-15);
  assert_true(fabs(tigon_logit_slope(&capped, 1) - 1 / (cosh(1.5) * cosh(1.5))) < 1e-15);
  assert_true(tigon_logit_slope(&capped, 1000) == 0 && tigon_logit(&capped, 1000) == 2);
}

/* Numbers of a token that a call has not are not read. */
static void test_values_of_a_token(void **state) {
  (void)state;
  const tigon_policy_loss_fwd_problem p = {
      .kind = TIGON_POLICY_GRPO, .eps_low = 0.2f, .eps_high = 0.2f, .delta = INFINITY, .kl_weight = 2};
  const float log_half = -0.69314718f;
  for (int way = 0; way < 8; ++way) {
    const tigon_policy_values of = {.logprob = -1,
                                    .advantage = 0.5f,
                                    .old = way & 1 ? -1 - log_half : NAN,
                                    .ref = way & 2 ? -1 + log_half : NAN,
                                    .ratio = way & 4 ? 7 : NAN,
                                    .has_old = way & 1,
                                    .has_ref = way & 2,
                                    .has_ratio = way & 4};
    const tigon_policy_token made = tigon_policy_token_of(&p, &of, 1);
    const double rho = way & 1 ? 0.5 : 1, factor = way & 4 ? 7 : 1, kl = way & 2 ? -0.5 - (double)log_half : 0;
    assert_true(fabs((double)made.loss - (-rho * 0.5 * factor + 2 * kl)) < 1e-6);
    const double grown = way & 2 ? -0.5 : 0; /* exp(ref - logprob) - 1 */
    assert_true(fabs((double)made.own - (-rho * 0.5 * factor - 2 * grown)) < 1e-6);
    assert_true(fabs((double)made.kl - kl) < 1e-6 && made.shared == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_that_count), cmocka_unit_test(test_classes_of_rows),
                                     cmocka_unit_test(test_logits), cmocka_unit_test(test_values_of_a_token)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
