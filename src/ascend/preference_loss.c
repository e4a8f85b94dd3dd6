/* preference_loss on Ascend: one launch of one block. Where it has tokens, launches before and after it walk over them. */
#include "ascend/kernel/preference_loss.h"

#include "ascend/kernel/embedding.h"
#include "ascend/kernel/preference_tokens.h"
#include "ascend/sequences.h"

static tigon_status add_tokens(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p,
                               const token_sequences *of, int64_t blocks) {
  const preference_sums_arguments a = {.of = *of,
                                       .logprob = (gm_ptr)p->token_logprob,
                                       .sums = (gm_ptr)p->sums,
                                       .counts = (gm_ptr)p->sums_of,
                                       .flags = (gm_ptr)ascend_scratch(queue, blocks)};
  const tigon_status status = ascend_launch(queue, "preference_sums", preference_sums, &a, blocks);
  if (status != TIGON_OK || !p->error_flag) return status;
  const error_flag_arguments flag = {a.flags, (gm_ptr)p->error_flag, blocks};
  return ascend_launch(queue, "error_flag", error_flag, &flag, 1);
}

static tigon_status return_tokens(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p,
                                  const token_sequences *of, int64_t blocks) {
  const preference_slopes_arguments a = {.of = *of,
                                         .dlogps = (gm_ptr)p->dlogps,
                                         .counts = (gm_ptr)p->sums_of,
                                         .dloss = (gm_ptr)p->dloss,
                                         .dlogprob = (gm_ptr)p->dtoken_logprob,
                                         .nll_sequences = p->nll_sequences,
                                         .nll_weight = p->nll_weight};
  return ascend_launch(queue, "preference_slopes", preference_slopes, &a, blocks);
}

static tigon_status of_sequences(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p) {
  const preference_loss_arguments a = {.logps = (gm_ptr)p->logps,
                                       .ref = (gm_ptr)p->ref,
                                       .counts = (gm_ptr)p->counts.data,
                                       .labels = (gm_ptr)p->labels.data,
                                       .shift = (gm_ptr)p->shift,
                                       .denominator = (gm_ptr)p->denominator,
                                       .nll_logps = (gm_ptr)p->nll_logps,
                                       .nll_counts = (gm_ptr)p->nll_counts.data,
                                       .loss = (gm_ptr)p->loss,
                                       .pair_loss = (gm_ptr)p->pair_loss,
                                       .rewards = (gm_ptr)p->rewards,
                                       .dlogps = (gm_ptr)p->dlogps,
                                       .dnll_logps = (gm_ptr)p->dnll_logps,
                                       .accuracy = (gm_ptr)p->accuracy,
                                       .margin = (gm_ptr)p->margin,
                                       .kind = p->kind,
                                       .sequences = p->sequences,
                                       .items = p->items,
                                       .nll_sequences = p->nll_sequences,
                                       .shifts = p->shifts,
                                       .counts_dtype = p->counts.dtype,
                                       .labels_dtype = p->labels.dtype,
                                       .nll_dtype = p->nll_counts.dtype,
                                       .beta = p->beta,
                                       .label_smoothing = p->label_smoothing,
                                       .gamma = p->gamma,
                                       .tau = p->tau,
                                       .nll_weight = p->nll_weight,
                                       .weight = {p->weight[0], p->weight[1]}};
  return ascend_launch(queue, "preference_loss", preference_loss, &a, 1);
}

tigon_status ascend_preference_loss_fwd(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p) {
  const token_sequences of = ascend_sequences(p->segments, p->length, p->sequences, p->tokens, &p->mask);
  const int64_t blocks = p->token_logprob ? least(p->sequences, ascend_of(queue)->soc->device.cores) : 0;
  tigon_status status = blocks > 0 ? add_tokens(queue, p, &of, blocks) : TIGON_OK;
  if (status == TIGON_OK) status = of_sequences(queue, p);
  return status == TIGON_OK && blocks > 0 ? return_tokens(queue, p, &of, blocks) : status;
}
