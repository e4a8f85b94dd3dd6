#include "opencl/kernel/policy_loss.h"

#include "core/context.h"
#include "opencl/sequences.h"
#include "opencl/tables.h"

typedef tigon_policy_loss_fwd_problem problem;

/* The scratch: how many tokens count, then what each program leaves. */
enum { LEFT = 64 };
_Static_assert(LEFT + POLICY_PROGRAMS * sizeof(policy_sums) <= OPENCL_SCRATCH, "the scratch");

static policy_numbers numbers_of(const problem *p) {
  policy_numbers k = {.of = opencl_sequences(p->sequences, p->tokens, p->length, &p->segments, &p->mask),
                      .kind = (int32_t)p->kind,
                      .sequence_level = p->sequence_level,
                      .token_advantage = p->token_advantage,
                      .token_ratio = p->token_ratio,
                      .kl_bias_corrected = p->kl_bias_corrected,
                      .eps_low = p->eps_low,
                      .eps_high = p->eps_high,
                      .delta = p->delta,
                      .kl_weight = p->kl_weight,
                      .entropy_weight = p->entropy_weight,
                      .max_length = opencl_pair(p->max_length)};
  for (int i = 0; i < 2; ++i) k.tau[i] = p->tau[i], k.k[i] = p->k[i], k.lambda[i] = p->lambda[i];
  return k;
}

tigon_status tigon_opencl_policy_loss_fwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel count = {"policy_loss", "policy_count"}, rows = {"policy_loss", "policy_rows"},
                             join = {"policy_loss", "policy_join"};
  const opencl_shape shape = opencl_row_shape(queue, p->sequences < POLICY_PROGRAMS ? p->sequences : POLICY_PROGRAMS);
  const void *counted = opencl_scratch(queue), *left = (char *)opencl_scratch(queue) + LEFT;
  policy_numbers k = numbers_of(p);
  k.programs = p->sequences > 0 ? shape.global[0] / shape.local[0] : 0;
  TIGON_TRY(opencl_launch(queue, &count, TIGON_F32, opencl_total_shape(), OPENCL_MEMORY(p->mask.of.data, counted), &k,
                          sizeof k));
  TIGON_TRY(opencl_launch(queue, &rows, TIGON_F32, shape,
                          OPENCL_MEMORY(p->mask.of.data, p->segments.data, p->logprob, p->advantage, p->old, p->ref,
                                        p->entropy, p->ratio, p->denominator, p->dloss, p->token_loss, p->dlogprob,
                                        p->dentropy, counted, left, p->error_flag),
                          &k, sizeof k));
  return opencl_launch(
      queue, &join, TIGON_F32, opencl_total_shape(),
      OPENCL_MEMORY(counted, left, p->loss, p->kl, p->clip_low, p->clip_high, p->mean_entropy, p->mean_ratio), &k,
      sizeof k);
}
