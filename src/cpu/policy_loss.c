/* policy_loss: one thread walks over the tokens, of which there are fewer than a row of logits has. */
#include "core/policy_loss.h"

#include "cpu/kernels.h"

static void sequence(const tigon_policy_loss_fwd_problem *p, int64_t s, int64_t counted, float entropy_slope,
                     tigon_policy_sums *sums) {
  tigon_policy_sequence at = tigon_policy_sequence_at(p, s);
  for (int64_t t = at.begin; t < at.end; ++t)
    if (tigon_policy_counts(p, t)) tigon_policy_add(p, t, &at);
  tigon_policy_weigh(p, s, counted, &at);
  for (int64_t t = at.begin; t < at.end; ++t) tigon_policy_visit(p, &at, s, t, entropy_slope, sums);
  for (int64_t t = at.begin; tigon_policy_shares(p) && t < at.end; ++t) tigon_policy_share(p, &at, t);
}

static void task(const void *argument, int64_t index) {
  (void)index;
  const tigon_policy_loss_fwd_problem *p = argument;
  int64_t counted = 0;
  for (int64_t t = 0; t < p->tokens; ++t) counted += tigon_policy_counts(p, t);
  if (counted == 0) counted = 1;
  const float entropy_slope = tigon_policy_entropy_slope(p, counted);
  tigon_policy_sums sums = {0};
  for (int64_t s = 0; s < p->sequences; ++s) sequence(p, s, counted, entropy_slope, &sums);
  tigon_policy_finish(p, counted, &sums);
}

tigon_status TIGON_CPU(policy_loss_fwd)(tigon_queue *queue, const tigon_policy_loss_fwd_problem *p) {
  tigon_cpu_parallel(queue, 1, task, p);
  return TIGON_OK;
}
