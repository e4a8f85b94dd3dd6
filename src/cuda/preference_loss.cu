/* preference_loss: one block walks over the pairs or sequences, of which a batch has some hundred. What a thread adds up of its own
 * ones is added up over the block in one order. */
#include "cuda/kernel/team.cuh"
#include "cuda/preference_loss.h"

/* A warp has a sequence at a time. */
__device__ inline void add_tokens(const tigon_preference_loss_fwd_problem &p) {
  for (int64_t s = threadIdx.x / WARP; s < p.sequences; s += PREFERENCE_THREADS / WARP) {
    const tigon_span of = tigon_preference_span(&p, s);
    tigon_preference_total total = {};
    for (int64_t t = of.begin + threadIdx.x % WARP; t < of.end; t += WARP) tigon_preference_add(&p, t, &total);
    total.logprob = warp_all<op_sum>(total.logprob);
    total.count = warp_all<op_sum>((long long)total.count);
    if (threadIdx.x % WARP == 0) tigon_preference_put_total(&p, s, &total);
  }
  __syncthreads();
}

__device__ inline void return_tokens(const tigon_preference_loss_fwd_problem &p, double nll_tokens) {
  __syncthreads();
  for (int64_t s = threadIdx.x / WARP; s < p.sequences; s += PREFERENCE_THREADS / WARP) {
    const tigon_span of = tigon_preference_span(&p, s);
    const float slope = tigon_preference_slope(&p, s, nll_tokens);
    for (int64_t t = of.begin + threadIdx.x % WARP; t < of.end; t += WARP) tigon_preference_return(&p, t, slope);
  }
}

/* The problem with what is known of a plain one. Its kernel has no code for the rest, which a call with nothing in the caches would wait
 * for. */
template <bool PLAIN>
__device__ inline tigon_preference_loss_fwd_problem preference_known(const tigon_preference_loss_fwd_problem &p) {
  tigon_preference_loss_fwd_problem known = p;
  if (PLAIN) {
    known.kind = TIGON_PREFERENCE_SIGMOID;
    known.token_logprob = known.shift = known.nll_logps = nullptr;
    known.counts.data = nullptr;
    known.nll_sequences = 0;
    known.dnll_logps = nullptr;
  }
  return known;
}

template <bool PLAIN> __device__ inline void preference(const tigon_preference_loss_fwd_problem &given) {
  const tigon_preference_loss_fwd_problem p = preference_known<PLAIN>(given);
  const float scale = tigon_preference_scale(&p);
  tigon_preference_sums sums = {};
  if (p.token_logprob) add_tokens(p);
  for (int64_t i = threadIdx.x; i < p.items; i += PREFERENCE_THREADS) tigon_preference_item(&p, i, scale, &sums);
  for (int64_t i = threadIdx.x; i < p.nll_sequences; i += PREFERENCE_THREADS) tigon_preference_nll_item(&p, i, &sums);

  if (p.nll_sequences > 0) sums.nll_tokens = block_total(sums.nll_tokens);
  if (p.dnll_logps)
    for (int64_t i = threadIdx.x; i < p.nll_sequences; i += PREFERENCE_THREADS)
      p.dnll_logps[i] = tigon_preference_dnll(&p, i, sums.nll_tokens);
  if (p.token_logprob) return_tokens(p, sums.nll_tokens);

  enum { SUMS = 8, LANES = WARP / SUMS };
  __shared__ double space[MOST_WARPS][SUMS];
  const double of[SUMS] = {sums.loss,      sums.nll,           sums.reward[0],
                           sums.reward[1], (double)sums.right, (double)sums.chosen};
  const int lane = (int)threadIdx.x % WARP;
  const double total = block_each(space, warp_each(of), lane % LANES == 0, lane / LANES);
  if (threadIdx.x >= WARP) return;
  const auto sum = [&](int k) { return __shfl_sync(0xffffffffu, total, k); };
  sums = tigon_preference_sums{sum(0), {sum(2), sum(3)}, (int64_t)sum(4), (int64_t)sum(5), sum(1), sums.nll_tokens};
  if (threadIdx.x == 0) tigon_preference_finish(&p, scale, &sums);
}

extern "C" __global__ void __launch_bounds__(PREFERENCE_THREADS)
    preference_plain(const __grid_constant__ tigon_preference_loss_fwd_problem p) {
  preference<true>(p);
}
extern "C" __global__ void __launch_bounds__(PREFERENCE_THREADS)
    preference_any(const __grid_constant__ tigon_preference_loss_fwd_problem p) {
  preference<false>(p);
}
