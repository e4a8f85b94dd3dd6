/* What the tests of distillation through a head share: the cross entropy beside it, and that a sum of both has the gradients of both. */
#ifndef TIGON_TESTS_DISTIL_HEAD_H
#define TIGON_TESTS_DISTIL_HEAD_H

#include "fused_head.h"

/* The cross entropy of f32, with all gradients. */
static inline void hard_by_parts(tigon_context *c, const head_problem *p, double softcap, head_results *out) {
  const tigon_fused_linear_cross_entropy_args a = {
      .hidden = batch(p, p->hidden),
      .weight = matrix(p->weight, TIGON_F32, VOCAB, WIDTH),
      .bias = words(p->bias, VOCAB),
      .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS),
      .options = {.has_ignore_index = 1, .ignore_index = IGNORE, .softcap = softcap},
      .dloss = words(&p->dloss, 1),
      .out = {.loss = words(&out->loss, 1)},
      .dhidden = batch(p, out->dhidden),
      .dweight = matrix(out->dweight, TIGON_F32, VOCAB, WIDTH),
      .dbias = words(out->dbias, VOCAB),
      .workspace = workspace,
      .workspace_bytes = WORKSPACE};
  assert_int_equal(tigon_fused_linear_cross_entropy_fwd(c, &a), TIGON_OK);
}

static inline void expect_mix(const float *both, const float *soft, const float *hard, int count) {
  for (int i = 0; i < count; ++i) assert_true(fabsf(both[i] - 0.5f * soft[i] - 0.25f * hard[i]) <= 1e-6f);
}

/* `both` has weight_soft 1/2 and weight_hard 1/4; its metrics are soft_loss and hard_loss. */
static inline void expect_both(const head_results *both, const head_results *soft, const head_results *hard) {
  assert_memory_equal(&both->metrics[0], &soft->loss, sizeof(float));
  assert_true(fabsf(both->metrics[1] - hard->loss) <= 1e-6f * hard->loss);
  assert_true(fabsf(both->loss - 0.5f * soft->loss - 0.25f * hard->loss) <= 1e-6f * both->loss);
  expect_mix(both->dhidden, soft->dhidden, hard->dhidden, ROWS * WIDTH);
  expect_mix(both->dweight, soft->dweight, hard->dweight, VOCAB * WIDTH);
  expect_mix(both->dbias, soft->dbias, hard->dbias, VOCAB);
}

#endif
