/* policy_loss: one block walks over the sequences, of which each warp has one at a time or, where they are long, all warps the same
 * one. What threads add up of a sequence, and in the end of all, is added up in one order. */
#include "core/policy_loss.h"
#include "cuda/kernel/team.cuh"
#include "cuda/policy_loss.h"

/* What the v of all of a team's threads add up to: a warp, or the block. */
template <int TEAM, class V> __device__ inline V team_total(V v) {
  if constexpr (TEAM == WARP)
    return warp_all<op_sum>(v);
  else
    return block_total(v);
}

template <int TEAM> __device__ inline void policy_loss(const tigon_policy_loss_fwd_problem &p) {
  const int64_t rank = threadIdx.x % TEAM;
  long long counted = 0;
  for (int64_t t = threadIdx.x; t < p.tokens; t += POLICY_THREADS) counted += tigon_policy_counts(&p, t);
  counted = block_total(counted);
  if (counted == 0) counted = 1;
  const float entropy_slope = tigon_policy_entropy_slope(&p, counted);

  tigon_policy_sums sums = {};
  for (int64_t s = threadIdx.x / TEAM; s < p.sequences; s += POLICY_THREADS / TEAM) {
    tigon_policy_sequence at = tigon_policy_sequence_at(&p, s);
    for (int64_t t = at.begin + rank; t < at.end; t += TEAM)
      if (tigon_policy_counts(&p, t)) tigon_policy_add(&p, t, &at);
    at.counted = team_total<TEAM>((long long)at.counted);
    at.log_ratio = team_total<TEAM>(at.log_ratio);
    tigon_policy_weigh(&p, s, counted, &at);
    for (int64_t t = at.begin + rank; t < at.end; t += TEAM) tigon_policy_visit(&p, &at, s, t, entropy_slope, &sums);
    if (!tigon_policy_shares(&p)) continue;
    at.shared = team_total<TEAM>(at.shared);
    for (int64_t t = at.begin + rank; t < at.end; t += TEAM) tigon_policy_share(&p, &at, t);
  }
  sums.loss = block_total(sums.loss);
  sums.kl = block_total(sums.kl);
  sums.entropy = block_total(sums.entropy);
  sums.ratio = block_total(sums.ratio);
  sums.low = block_total((long long)sums.low);
  sums.high = block_total((long long)sums.high);
  if (threadIdx.x == 0) tigon_policy_finish(&p, counted, &sums);
}

extern "C" __global__ void __launch_bounds__(POLICY_THREADS)
    policy_loss_many(const __grid_constant__ tigon_policy_loss_fwd_problem p) {
  policy_loss<WARP>(p);
}

extern "C" __global__ void __launch_bounds__(POLICY_THREADS)
    policy_loss_few(const __grid_constant__ tigon_policy_loss_fwd_problem p) {
  policy_loss<POLICY_THREADS>(p);
}
