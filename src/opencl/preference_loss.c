#include "opencl/kernel/preference_loss.h"

#include "core/context.h"
#include "opencl/sequences.h"
#include "opencl/tables.h"

typedef tigon_preference_loss_fwd_problem problem;

static tigon_status sum_tokens(tigon_queue *queue, const problem *p, const preference_numbers *k) {
  static const opencl_kernel kernel = {"preference_loss", "preference_sums"};
  return opencl_launch(
      queue, &kernel, TIGON_F32, opencl_row_shape(queue, p->sequences),
      OPENCL_MEMORY(p->token_logprob, p->mask.of.data, p->segments.data, p->sums, p->sums_of, p->error_flag), k,
      sizeof *k);
}

static tigon_status return_tokens(tigon_queue *queue, const problem *p, const preference_numbers *k) {
  static const opencl_kernel kernel = {"preference_loss", "preference_slopes"};
  return opencl_launch(queue, &kernel, TIGON_F32, opencl_row_shape(queue, p->sequences),
                       OPENCL_MEMORY(p->dlogps, p->nll_counts.data, opencl_scratch(queue), p->dloss, p->mask.of.data,
                                     p->segments.data, p->dtoken_logprob, p->error_flag),
                       k, sizeof *k);
}

tigon_status tigon_opencl_preference_loss_fwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel kernel = {"preference_loss", "preference_items"};
  const preference_numbers k = {
      .of = opencl_sequences(p->sequences, p->tokens, p->length, &p->segments, &p->mask),
      .items = p->items,
      .shifts = p->shifts,
      .nll_sequences = p->nll_sequences,
      .kind = (int32_t)p->kind,
      .counts_dtype = (int32_t)p->counts.dtype,
      .labels_dtype = (int32_t)p->labels.dtype,
      .nll_dtype = (int32_t)p->nll_counts.dtype,
      .beta = p->beta,
      .label_smoothing = p->label_smoothing,
      .gamma = p->gamma,
      .tau = p->tau,
      .weight = {p->weight[0], p->weight[1]},
      .nll_weight = p->nll_weight,
  };
  if (p->token_logprob) TIGON_TRY(sum_tokens(queue, p, &k));
  TIGON_TRY(opencl_launch(queue, &kernel, TIGON_F32, opencl_total_shape(),
                          OPENCL_MEMORY(p->logps, p->ref, p->counts.data, p->labels.data, p->shift, p->denominator,
                                        p->nll_logps, p->nll_counts.data, p->loss, p->pair_loss, p->rewards, p->dlogps,
                                        p->dnll_logps, p->accuracy, p->margin, opencl_scratch(queue)),
                          &k, sizeof k));
  return p->token_logprob ? return_tokens(queue, p, &k) : TIGON_OK;
}
