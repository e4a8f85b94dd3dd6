/* preference_loss: a batch has some hundred sequences, which are over before another thread would have begun. */
#include "core/preference_loss.h"

#include "cpu/kernels.h"

static void task(const void *argument, int64_t index) {
  (void)index;
  const tigon_preference_loss_fwd_problem *p = argument;
  const float scale = tigon_preference_scale(p), shift = p->shift ? *p->shift : 0;
  tigon_preference_sums sums = {0};
  for (int64_t i = 0; i < p->items; ++i) tigon_preference_item(p, i, scale, shift, &sums);
  for (int64_t i = 0; i < p->nll_sequences; ++i) tigon_preference_nll_item(p, i, &sums);
  for (int64_t i = 0; p->dnll_logps && i < p->nll_sequences; ++i)
    p->dnll_logps[i] = tigon_preference_dnll(p, i, sums.nll_tokens);
  tigon_preference_finish(p, scale, &sums);
}

tigon_status TIGON_CPU(preference_loss_fwd)(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p) {
  tigon_cpu_parallel(queue, 1, task, p);
  return TIGON_OK;
}
