#include <tigon/op/policy_loss.h>

#include <inttypes.h>

#include "core/half.h"
#include "op/front.h"

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
    WANT(kl, "1 a scalar", F32, DENSE, NULL),
    WANT(clip_low, "1 a scalar", F32, DENSE, NULL),
    WANT(clip_high, "1 a scalar", F32, DENSE, NULL),
    WANT(mean_entropy, "1 a scalar", F32, DENSE, NULL),
    WANT(mean_ratio, "1 a scalar", F32, DENSE, NULL),
    CHOICE(options.kind, TIGON_POLICY_VESPO),
    FLAG(options.sequence_level),
    CHOICE(options.token_advantage, 1), /* of two shapes */
    CHOICE(options.token_ratio, 1),
    FLAG(options.kl_bias_corrected),
    OR_ZERO(options.eps_low),
    OR_ZERO(options.eps_high),
    OR_ZERO(options.delta),
    OR_ZERO(options.tau_positive),
    OR_ZERO(options.tau_negative),
    OR_ZERO(options.k_positive),
    OR_ZERO(options.lambda_positive),
    OR_ZERO(options.k_negative),
    OR_ZERO(options.lambda_negative),
    NUMBER(options.kl_weight, 0, FLT_MAX),
    FINITE(options.entropy_weight),
    AT_LEAST(options.max_length, 0),
    RESERVED(options.reserved),
    RESERVED(reserved),
};

/* Only a host device looks at them before the call. */
static tigon_status check_segments(tigon_context *context, const tigon_tensor *t, int64_t tokens) {
  if (context->shape_only || !context->queue.backend->host_memory || context->queue.record) return TIGON_OK;
  int64_t before = 0;
  for (int64_t s = 0; s < t->shape[0]; ++s) {
    const int64_t at = tigon_load_index(t->data, s, t->dtype);
    const bool first = s == 0, last = s == t->shape[0] - 1;
    if (first && at != 0) return tigon_refuse(context, "segments[0] is %" PRId64 ", must be 0", at);
    if (last && at != tokens)
      return tigon_refuse(context, "segments[%" PRId64 "] is %" PRId64 ", must be %" PRId64 " (logprob.shape[0])", s,
                          at, tokens);
    if (at < before || at > tokens)
      return tigon_refuse(context, "segments[%" PRId64 "] is %" PRId64 ", must be %" PRId64 " to %" PRId64, s, at,
                          before, tokens);
    before = at;
  }
  return TIGON_OK;
}

/* A vector of sequences, or of tokens. */
static tigon_status check_each(tigon_context *context, const char *name, const tigon_tensor *t, bool of_tokens,
                               int64_t tokens, int64_t sequences) {
  return of_tokens ? tigon_check_vector(context, name, t, tokens, "logprob.shape[0]")
                   : tigon_check_vector(context, name, t, sequences, "segments.shape[0] - 1");
}

static float number_or(double given, double otherwise) { return (float)(given != 0 ? given : otherwise); }

static tigon_status prepare_fwd(tigon_context *context, const A *a, tigon_policy_loss_fwd_problem *p) {
  const tigon_policy_loss_options *o = &a->options;
  TIGON_TRY(tigon_check_ndim(context, "segments", &a->segments, 1));
  if (a->segments.shape[0] < 1) return tigon_refuse(context, "segments.shape[0] is 0, must be >= 1");
  const int64_t tokens = a->logprob.shape[0], sequences = a->segments.shape[0] - 1;
  TIGON_TRY(check_each(context, "advantage", &a->advantage, o->token_advantage, tokens, sequences));
  TIGON_TRY(check_each(context, "ratio", &a->ratio, o->token_ratio, tokens, sequences));
  TIGON_TRY(check_segments(context, &a->segments, tokens));
  *p = (tigon_policy_loss_fwd_problem){
      .dtype = TIGON_F32,
      .kind = o->kind,
      .sequence_level = o->sequence_level != 0,
      .token_advantage = o->token_advantage != 0,
      .token_ratio = o->token_ratio != 0,
      .kl_bias_corrected = o->kl_bias_corrected != 0,
      .tokens = tokens,
      .sequences = sequences,
      .segments = tigon_vector_of(&a->segments),
      .mask = tigon_vector_of(&a->mask),
      .logprob = a->logprob.data,
      .advantage = a->advantage.data,
      .old = a->old.data,
      .ref = a->ref.data,
      .entropy = a->entropy.data,
      .ratio = a->ratio.data,
      .denominator = a->denominator.data,
      .eps_low = number_or(o->eps_low, 0.2),
      .eps_high = number_or(o->eps_high, o->kind == TIGON_POLICY_CISPO ? 5 : 0.2),
      .delta = number_or(o->delta, (double)INFINITY),
      .tau = {number_or(o->tau_negative, 1.05), number_or(o->tau_positive, 1)},
      .k = {number_or(o->k_negative, 3), number_or(o->k_positive, 2)},
      .lambda = {number_or(o->lambda_negative, 2), number_or(o->lambda_positive, 3)},
      .kl_weight = (float)o->kl_weight,
      .entropy_weight = (float)o->entropy_weight,
      .max_length = o->max_length   ? (double)o->max_length
                    : sequences > 0 ? (double)tokens / (double)sequences
                                    : 1,
      .error_flag = context->queue.error_flag,
      .loss = a->loss.data,
      .token_loss = a->token_loss.data,
      .dlogprob = a->dlogprob.data,
      .dentropy = a->dentropy.data,
      .kl = a->kl.data,
      .clip_low = a->clip_low.data,
      .clip_high = a->clip_high.data,
      .mean_entropy = a->mean_entropy.data,
      .mean_ratio = a->mean_ratio.data,
  };
  return TIGON_OK;
}

/* Without tokens the numbers of the whole call are written still. */
TIGON_ENTRY(policy_loss, fwd, fwd, prepare_fwd, false)
