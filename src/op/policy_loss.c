#include "op/policy_loss.h"

#define A tigon_policy_loss_fwd_args
static const tigon_field fwd[] = {
    IN(logprob, "n", F32, DENSE),
    IN(segments, "?", INTEGER, DENSE),
    IN(advantage, "?s", F32, DENSE),
    MAY(old, "n", F32, DENSE),
    MAY(ref, "n", F32, DENSE),
    MAY(entropy, "n", F32, DENSE),
    MAY(ratio, "?s", F32, DENSE),
    MAY(mask, "n", INTEGER, DENSE),
    MAY(denominator, "1 one number", F32, DENSE),
    OUT(loss, "1 a scalar", F32, DENSE, NULL),
    WANT(token_loss, "n", F32, DENSE, NULL),
    WANT(dlogprob, "n", F32, DENSE, NULL),
    WANT(dentropy, "n", F32, DENSE, NULL),
    POLICY_METRICS,
    POLICY_NUMBERS,
    RESERVED(reserved),
};

tigon_status tigon_check_policy(tigon_context *context, const tigon_policy_loss_options *o, const tigon_sequences *of,
                                const tigon_tensor *advantage, const tigon_tensor *ratio,
                                tigon_policy_loss_fwd_problem *p) {
  TIGON_TRY(tigon_check_of_sequences(context, "advantage", advantage, o->token_advantage, of));
  TIGON_TRY(tigon_check_of_sequences(context, "ratio", ratio, o->token_ratio, of));
  *p = (tigon_policy_loss_fwd_problem){
      .dtype = TIGON_F32,
      .kind = o->kind,
      .sequence_level = o->sequence_level != 0,
      .token_advantage = o->token_advantage != 0,
      .token_ratio = o->token_ratio != 0,
      .kl_bias_corrected = o->kl_bias_corrected != 0,
      .tokens = of->tokens,
      .sequences = of->count,
      .segments = of->segments,
      .length = of->length,
      .advantage = advantage->data,
      .ratio = ratio->data,
      .eps_low = tigon_number_or(o->eps_low, 0.2),
      .eps_high = tigon_number_or(o->eps_high, o->kind == TIGON_POLICY_CISPO ? 5 : 0.2),
      .delta = tigon_number_or(o->delta, (double)INFINITY),
      .tau = {tigon_number_or(o->tau_negative, 1.05), tigon_number_or(o->tau_positive, 1)},
      .k = {tigon_number_or(o->k_negative, 3), tigon_number_or(o->k_positive, 2)},
      .lambda = {tigon_number_or(o->lambda_negative, 2), tigon_number_or(o->lambda_positive, 3)},
      .kl_weight = (float)o->kl_weight,
      .entropy_weight = (float)o->entropy_weight,
      .max_length = o->max_length   ? (double)o->max_length
                    : of->count > 0 ? (double)of->tokens / (double)of->count
                                    : 1,
      .error_flag = context->queue.error_flag,
  };
  return TIGON_OK;
}

static tigon_status prepare_fwd(tigon_context *context, const A *a, tigon_policy_loss_fwd_problem *p) {
  tigon_sequences of = {.tokens = a->logprob.shape[0], .tokens_name = "logprob.shape[0]"};
  TIGON_TRY(tigon_check_sequences(context, &a->segments, NULL, &of));
  TIGON_TRY(tigon_check_policy(context, &a->options, &of, &a->advantage, &a->ratio, p));
  TIGON_TRY(tigon_check_segments(context, &of));
  p->mask.of = tigon_vector_of(&a->mask);
  p->logprob = a->logprob.data;
  p->old = a->old.data;
  p->ref = a->ref.data;
  p->entropy = a->entropy.data;
  p->denominator = a->denominator.data;
  p->loss = a->loss.data;
  p->token_loss = a->token_loss.data;
  p->dlogprob = a->dlogprob.data;
  p->dentropy = a->dentropy.data;
  p->kl = a->kl.data;
  p->clip_low = a->clip_low.data;
  p->clip_high = a->clip_high.data;
  p->mean_entropy = a->mean_entropy.data;
  p->mean_ratio = a->mean_ratio.data;
  return TIGON_OK;
}

/* Without tokens the numbers of the whole call are written still. */
TIGON_ENTRY(policy_loss, fwd, fwd, prepare_fwd, false)
