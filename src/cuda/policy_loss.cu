/* policy_loss. The blocks of a cluster walk over the sequences. Each warp has one at a time. If sequences are long, some or all
 * warps of a block have the same one. What threads add up of a sequence, and in the end of all, is added up in one order. */
#include "core/policy_loss.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/policy_loss.h"

/* What the v of all of a team's threads add up to. */
template <int TEAM, class V> __device__ inline V team_total(V v) {
  if constexpr (TEAM == WARP) return warp_all<op_sum>(v);
  if constexpr (TEAM == POLICY_THREADS) return block_total(v);
  __shared__ V parts[MOST_WARPS];
  const team tm = team_of(TEAM);
  const V *of = parts + tm.index * (TEAM / WARP);
  v = warp_all<op_sum>(v);
  team_sync<true>(tm); /* a team may come here again */
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  team_sync<true>(tm);
  v = of[0];
#pragma unroll
  for (int i = 1; i < TEAM / WARP; ++i) v += of[i];
  return v;
}

/* What blocks of a cluster tell each other. */
struct policy_mail {
  long long counted[POLICY_MOST_BLOCKS];
  tigon_policy_sums sums[POLICY_MOST_BLOCKS];
};

/* The tokens of all blocks. */
__device__ inline long long policy_counted(const cluster &cl, policy_mail &mail, long long own) {
  if ((int)threadIdx.x < cl.size) *cluster_box(cl, &mail.counted[cl.rank], (int)threadIdx.x) = own;
  cluster_meet(cl);
  long long counted = 0;
  for (int b = 0; b < cl.size; ++b) counted += mail.counted[b];
  return counted == 0 ? 1 : counted;
}

template <int TEAM> __device__ inline void policy_loss(const tigon_policy_loss_fwd_problem &p) {
  __shared__ policy_mail mail;
  const cluster cl = cluster_of_block();
  cluster_meet(cl);
  const int64_t rank = threadIdx.x % TEAM, threads = (int64_t)cl.size * POLICY_THREADS;
  const int64_t thread = (int64_t)cl.rank * POLICY_THREADS + threadIdx.x;
  long long counted = 0;
#pragma unroll 4
  for (int64_t t = thread; t < p.tokens; t += threads) counted += tigon_policy_counts(&p, t);
  counted = policy_counted(cl, mail, block_total(counted));
  const float entropy_slope = tigon_policy_entropy_slope(&p, counted);

  tigon_policy_sums sums = {};
  const bool shares = tigon_policy_shares(&p);
  int64_t done = 0;
  for (int64_t s = thread / TEAM; s < p.sequences; s += threads / TEAM, ++done) {
    tigon_policy_sequence at = tigon_policy_sequence_at(&p, s);
    for (int64_t t = at.begin + rank; t < at.end; t += TEAM)
      if (tigon_policy_counts(&p, t)) tigon_policy_add(&p, t, &at);
    at.counted = team_total<TEAM>((long long)at.counted);
    at.log_ratio = team_total<TEAM>(at.log_ratio);
    tigon_policy_weigh(&p, s, counted, &at);
    for (int64_t t = at.begin + rank; t < at.end; t += TEAM) tigon_policy_visit(&p, &at, s, t, entropy_slope, &sums);
    if (!shares) continue;
    at.shared = team_total<TEAM>(at.shared);
    for (int64_t t = at.begin + rank; t < at.end; t += TEAM) tigon_policy_share(&p, &at, t);
  }
  if (TEAM > WARP && TEAM < POLICY_THREADS) {
    const int64_t first = (int64_t)cl.rank * POLICY_THREADS / TEAM,
                  most = (p.sequences - first + threads / TEAM - 1) / (threads / TEAM);
    team_catch_up(team_of(TEAM), (most < 0 ? 0 : most - done) * (shares ? 6 : 4));
  }
  sums.loss = block_total(sums.loss);
  sums.kl = block_total(sums.kl);
  sums.entropy = block_total(sums.entropy);
  sums.ratio = block_total(sums.ratio);
  sums.low = block_total((long long)sums.low);
  sums.high = block_total((long long)sums.high);
  if (threadIdx.x == 0) *cluster_box(cl, &mail.sums[cl.rank], 0) = sums;
  cluster_meet(cl);
  if (thread > 0) return;
  for (int b = 1; b < cl.size; ++b) {
    sums.loss += mail.sums[b].loss, sums.kl += mail.sums[b].kl;
    sums.entropy += mail.sums[b].entropy, sums.ratio += mail.sums[b].ratio;
    sums.low += mail.sums[b].low, sums.high += mail.sums[b].high;
  }
  tigon_policy_finish(&p, counted, &sums);
}

extern "C" __global__ void __launch_bounds__(POLICY_THREADS)
    policy_loss_many(const __grid_constant__ tigon_policy_loss_fwd_problem p) {
  policy_loss<WARP>(p);
}

extern "C" __global__ void __launch_bounds__(POLICY_THREADS)
    policy_loss_few(const __grid_constant__ tigon_policy_loss_fwd_problem p) {
  policy_loss<POLICY_THREADS>(p);
}

extern "C" __global__ void __launch_bounds__(POLICY_THREADS)
    policy_loss_some(const __grid_constant__ tigon_policy_loss_fwd_problem p) {
  policy_loss<POLICY_TEAM>(p);
}
