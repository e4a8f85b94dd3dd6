/* preference_loss on Ascend: one launch of one block. */
#include "ascend/kernel/preference_loss.h"

#include "ascend/ascend.h"

tigon_status ascend_preference_loss_fwd(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p) {
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
