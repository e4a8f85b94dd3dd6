/* preference_loss: one block walks over the pairs or sequences, of which a batch has some hundred. What a thread adds up of its own
 * ones is added up over the block in one order. */
#include "core/preference_loss.h"
#include "cuda/kernel/team.cuh"
#include "cuda/preference_loss.h"

extern "C" __global__ void __launch_bounds__(PREFERENCE_THREADS)
    preference_loss_fwd(const __grid_constant__ tigon_preference_loss_fwd_problem p) {
  const float scale = tigon_preference_scale(&p), shift = p.shift ? *p.shift : 0;
  tigon_preference_sums sums = {};
  for (int64_t i = threadIdx.x; i < p.items; i += PREFERENCE_THREADS) tigon_preference_item(&p, i, scale, shift, &sums);
  for (int64_t i = threadIdx.x; i < p.nll_sequences; i += PREFERENCE_THREADS) tigon_preference_nll_item(&p, i, &sums);

  sums.nll_tokens = block_total((long long)sums.nll_tokens);
  if (p.dnll_logps)
    for (int64_t i = threadIdx.x; i < p.nll_sequences; i += PREFERENCE_THREADS)
      p.dnll_logps[i] = tigon_preference_dnll(&p, i, sums.nll_tokens);

  sums.loss = block_total(sums.loss);
  sums.nll = block_total(sums.nll);
  sums.reward[0] = block_total(sums.reward[0]);
  sums.reward[1] = block_total(sums.reward[1]);
  sums.right = block_total((long long)sums.right);
  sums.chosen = block_total((long long)sums.chosen);
  if (threadIdx.x == 0) tigon_preference_finish(&p, scale, &sums);
}
