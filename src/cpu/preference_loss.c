/* preference_loss: a batch has some hundred sequences, which are over before another thread would have begun. Their tokens, where it has
 * them, are fewer than a row of logits has words. */
#include "core/preference_loss.h"

#include "cpu/kernels.h"

static void add_tokens(const tigon_preference_loss_fwd_problem *p, int64_t s) {
  const tigon_span of = tigon_preference_span(p, s);
  tigon_preference_total total = {0};
  for (int64_t t = of.begin; t < of.end; ++t) tigon_preference_add(p, t, &total);
  tigon_preference_put_total(p, s, &total);
}

static void return_tokens(const tigon_preference_loss_fwd_problem *p, int64_t s, double nll_tokens) {
  const tigon_span of = tigon_preference_span(p, s);
  const float slope = tigon_preference_slope(p, s, nll_tokens);
  for (int64_t t = of.begin; t < of.end; ++t) tigon_preference_return(p, t, slope);
}

static void task(const void *argument, int64_t index) {
  (void)index;
  const tigon_preference_loss_fwd_problem *p = argument;
  const float scale = tigon_preference_scale(p);
  tigon_preference_sums sums = {0};
  for (int64_t s = 0; p->token_logprob && s < p->sequences; ++s) add_tokens(p, s);
  for (int64_t i = 0; i < p->items; ++i) tigon_preference_item(p, i, scale, &sums);
  for (int64_t i = 0; i < p->nll_sequences; ++i) tigon_preference_nll_item(p, i, &sums);
  for (int64_t i = 0; p->dnll_logps && i < p->nll_sequences; ++i)
    p->dnll_logps[i] = tigon_preference_dnll(p, i, sums.nll_tokens);
  for (int64_t s = 0; p->token_logprob && s < p->sequences; ++s) return_tokens(p, s, sums.nll_tokens);
  tigon_preference_finish(p, scale, &sums);
}

tigon_status TIGON_CPU(preference_loss_fwd)(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p) {
  tigon_cpu_parallel(queue, 1, task, p);
  return TIGON_OK;
}
