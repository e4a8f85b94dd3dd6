/* The front of a policy loss of a head: policy_loss is what the chunks of fused_linear_cross_entropy have in the middle. */
#include <tigon/op/fused_linear_policy.h>

#include "op/fused_linear_cross_entropy.h"
#include "op/policy_loss.h"

#define A tigon_fused_linear_policy_fwd_args
static const tigon_field fwd[] = {
    HEAD_TENSORS,
    IN(advantage, "?s", F32, DENSE),
    MAY(segments, "?", INTEGER, DENSE),
    MAY(old, "@", F32, DENSE),
    MAY(ref, "@", F32, DENSE),
    MAY(ratio, "?s", F32, DENSE),
    MAY(denominator, "1 one number", F32, DENSE),
    MAY(dloss, "1 a scalar", F32, DENSE),
    OUT(loss, "1 a scalar", F32, DENSE, NULL),
    OUT(logprob, "@", F32, DENSE, NULL),
    WANT(entropy, "@", F32, DENSE, NULL),
    WANT(token_loss, "@", F32, DENSE, NULL),
    POLICY_METRICS,
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    HEAD_GRADIENTS,
    POLICY_NUMBERS,
    HEAD_NUMBERS,
    FINITE(grad_scale),
    FLAG(accumulate_dweight),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(fused_linear_policy, fwd, fwd);

static tigon_status run_middle(const fused *f, const void *problem) {
  tigon_policy_loss_fwd_problem p = *(const tigon_policy_loss_fwd_problem *)problem;
  p.logprob = f->loss.token_loss;
  p.entropy = f->more.middle->entropy ? f->loss.entropy : NULL;
  p.dlogprob = f->dlogprob;
  p.dentropy = f->dentropy;
  return TIGON_CALL_FOUND_SLOT(f->context, policy_loss_fwd, p.dtype, &p);
}

/* A call, or with `least` a query, whose description holds. */
static tigon_status forward(tigon_context *context, const A *a, size_t *least, size_t *good) {
  tigon_policy_loss_fwd_problem p;
  tigon_sequences of = {.tokens = tigon_tensor_count(&a->labels), .tokens_name = "rows of hidden"};
  TIGON_TRY(tigon_check_sequences(context, &a->segments, &a->hidden, &of));
  TIGON_TRY(tigon_check_policy(context, &a->options, &of, &a->advantage, &a->ratio, &p));
  TIGON_TRY(TIGON_REQUIRE_SLOT(context, policy_loss_fwd, p.dtype));
  p.mask = (tigon_counted){tigon_vector_of(&a->labels), a->has_ignore_index ? a->ignore_index : -1, a->weight.shape[0]};
  p.old = a->old.data;
  p.ref = a->ref.data;
  p.denominator = a->denominator.data;
  p.dloss = a->dloss.data;
  p.loss = a->loss.data;
  p.token_loss = a->token_loss.data;
  p.kl = a->kl.data;
  p.clip_low = a->clip_low.data;
  p.clip_high = a->clip_high.data;
  p.mean_entropy = a->mean_entropy.data;
  p.mean_ratio = a->mean_ratio.data;
  const bool weighs_entropy = p.entropy_weight != 0;
  const head_middle middle = {.run = run_middle,
                              .problem = &p,
                              .entropy =
                                  weighs_entropy || tigon_present(&a->entropy) || tigon_present(&a->mean_entropy),
                              .dentropy = weighs_entropy,
                              .of_sequences = p.kind == TIGON_POLICY_VESPO || p.sequence_level,
                              .of = &of};
  const head_args head = {HEAD_ARGS(least), .out = {.token_loss = a->logprob, .entropy = a->entropy, .error = a->error},
                          .grad_scale = a->grad_scale, HEAD_GRADIENT_ARGS};
  return tigon_head_call(context, &head, true, &(head_more){.negated = true, .middle = &middle}, least, good);
}

TIGON_CALL_AND_RANGE_QUERY(fused_linear_policy, fwd, forward)
