/* policy_loss on Ascend: with a mask the tokens that count are counted first, as cross_entropy counts its labels. */
#include "ascend/kernel/policy_loss.h"

#include "ascend/sequences.h"

/* The scratch: what blocks have counted, then what they leave of sequences. */
enum { COUNTS = TIGON_TOTAL_BLOCKS * TOTAL_WORDS };

static tigon_status count(tigon_queue *queue, const token_sequences *of, float *counts, int64_t *blocks) {
  const cross_entropy_totals_arguments a = {
      .labels = of->mask, .totals = (gm_ptr)counts, .count = of->tokens, .rule = of->rule};
  *blocks = tigon_plan_total_blocks(&ascend_of(queue)->soc->device, of->tokens);
  return *blocks > 0 ? ascend_launch(queue, "cross_entropy_totals", cross_entropy_totals, &a, *blocks) : TIGON_OK;
}

static policy_loss_arguments arguments_of(const tigon_policy_loss_fwd_problem *p) {
  const float length = (float)p->max_length;
  return (policy_loss_arguments){.of = ascend_sequences(p->segments, p->length, p->sequences, p->tokens, &p->mask),
                                 .logprob = (gm_ptr)p->logprob,
                                 .advantage = (gm_ptr)p->advantage,
                                 .old = (gm_ptr)p->old,
                                 .ref = (gm_ptr)p->ref,
                                 .entropy = (gm_ptr)p->entropy,
                                 .ratio = (gm_ptr)p->ratio,
                                 .denominator = (gm_ptr)p->denominator,
                                 .dloss = (gm_ptr)p->dloss,
                                 .token_loss = (gm_ptr)p->token_loss,
                                 .dlogprob = (gm_ptr)p->dlogprob,
                                 .dentropy = (gm_ptr)p->dentropy,
                                 .kind = p->kind,
                                 .sequence_level = p->sequence_level,
                                 .token_advantage = p->token_advantage,
                                 .token_ratio = p->token_ratio,
                                 .kl_bias_corrected = p->kl_bias_corrected,
                                 .eps_low = p->eps_low,
                                 .eps_high = p->eps_high,
                                 .delta = p->delta,
                                 .kl_weight = p->kl_weight,
                                 .entropy_weight = p->entropy_weight,
                                 .tau = {p->tau[0], p->tau[1]},
                                 .k = {p->k[0], p->k[1]},
                                 .lambda = {p->lambda[0], p->lambda[1]},
                                 .max_length = {length, (float)(p->max_length - (double)length)}};
}

tigon_status ascend_policy_loss_fwd(tigon_queue *queue, const tigon_policy_loss_fwd_problem *p) {
  const int64_t cores = ascend_of(queue)->soc->device.cores, blocks = p->sequences < cores ? p->sequences : cores;
  float *scratch = ascend_scratch(queue, COUNTS + cores * POLICY_WORDS);
  policy_loss_arguments a = arguments_of(p);
  a.totals = (gm_ptr)(scratch + COUNTS);
  if (p->mask.of.data) {
    a.counted = (gm_ptr)scratch;
    const tigon_status status = count(queue, &a.of, scratch, &a.count_blocks);
    if (status != TIGON_OK) return status;
  }
  const policy_loss_join_arguments join = {.counted = a.counted,
                                           .totals = a.totals,
                                           .loss = (gm_ptr)p->loss,
                                           .kl = (gm_ptr)p->kl,
                                           .clip_low = (gm_ptr)p->clip_low,
                                           .clip_high = (gm_ptr)p->clip_high,
                                           .mean_entropy = (gm_ptr)p->mean_entropy,
                                           .mean_ratio = (gm_ptr)p->mean_ratio,
                                           .error = (gm_ptr)p->error_flag,
                                           .blocks = blocks,
                                           .count_blocks = a.count_blocks,
                                           .tokens = p->tokens,
                                           .entropy_weight = p->entropy_weight};
  tigon_status status = TIGON_OK;
  if (blocks > 0) status = ascend_launch(queue, "policy_loss", policy_loss, &a, blocks);
  return status == TIGON_OK ? ascend_launch(queue, "policy_loss_join", policy_loss_join, &join, 1) : status;
}
