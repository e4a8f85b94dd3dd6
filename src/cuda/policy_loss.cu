/* policy_loss. A team has a sequence at a time: a warp, a block or, of few long sequences, the blocks of a cluster. What threads add up
 * of a sequence, and blocks of all of them, is added up in one order. */
#include "cuda/policy_loss.h"
#include "cuda/kernel/cluster.cuh"

typedef tigon_policy_loss_fwd_problem policy_problem;

/* A thread's next tokens: t, t + step, .. of which POLICY_AT_ONCE are on their way together. Places are counted from t in 32 bits. */
struct policy_reach {
  int64_t t;
  int step, left; /* left: tokens from t to the end */
  __device__ policy_reach(int64_t t, int64_t end, int step)
      : t(t), step(step), left(end <= t            ? 0
                               : end - t < INT_MAX ? (int)(end - t)
                                                   : INT_MAX) {}
  __device__ bool has(int k) const { return k * step < left; }
  __device__ int at(int k) const { return has(k) ? k * step : 0; } /* what is loaded beyond the end is not used */
};

/* Which tokens count. The dtype is asked for once, so that all loads are on their way together. */
__device__ static inline void policy_count(const policy_problem &p, const policy_reach &to,
                                           bool (&counts)[POLICY_AT_ONCE]) {
  const tigon_vector mask = p.mask.of;
  int64_t value[POLICY_AT_ONCE];
#pragma unroll
  for (int k = 0; k < POLICY_AT_ONCE; ++k) counts[k] = to.has(k);
  if (!mask.data) return;
  if (mask.dtype == TIGON_I64) {
#pragma unroll
    for (int k = 0; k < POLICY_AT_ONCE; ++k) value[k] = ((const int64_t *)mask.data + to.t)[to.at(k)];
  } else {
#pragma unroll
    for (int k = 0; k < POLICY_AT_ONCE; ++k) value[k] = ((const int32_t *)mask.data + to.t)[to.at(k)];
  }
#pragma unroll
  for (int k = 0; k < POLICY_AT_ONCE; ++k) counts[k] = counts[k] && tigon_value_counts(&p.mask, value[k]);
}

/* How many tokens of all sequences count, or 1, for every thread of the grid. */
__device__ static inline int64_t policy_counted(const policy_problem &p, const policy_walk &walk) {
  if (!walk.counts) return p.tokens == 0 ? 1 : p.tokens;
  long long own = 0;
  const int threads = (int)(gridDim.x * blockDim.x);
  for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < p.tokens;
       t += (int64_t)POLICY_AT_ONCE * threads) {
    bool counts[POLICY_AT_ONCE];
    policy_count(p, policy_reach(t, p.tokens, threads), counts);
#pragma unroll
    for (int k = 0; k < POLICY_AT_ONCE; ++k) own += counts[k];
  }
  own = block_total(own);
  if (threadIdx.x == 0) walk.counts[blockIdx.x] = (double)own;
  grid_meets(walk.arrived);
  double counted = 0;
  for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) counted += __ldcg(&walk.counts[b]);
  counted = block_total(counted);
  return counted == 0 ? 1 : (int64_t)counted;
}

/* The problem with what is known of a plain one, so that its kernel has no code for the rest. */
template <bool PLAIN> __device__ inline policy_problem policy_known(const policy_problem &p) {
  policy_problem known = p;
  if (PLAIN) {
    known.sequence_level = false;
    known.ratio = known.ref = known.entropy = nullptr;
    known.dentropy = nullptr;
    known.kl_weight = known.entropy_weight = 0;
  }
  return known;
}
/* The same for the formulas of a token, in which all plain kinds are one. */
template <bool PLAIN> __device__ inline policy_problem policy_formulas(const policy_problem &p) {
  policy_problem known = policy_known<PLAIN>(p);
  if (PLAIN) known.kind = TIGON_POLICY_GRPO;
  return known;
}

/* A thread's next tokens. */
struct policy_tokens {
  bool counts[POLICY_AT_ONCE];
  float entropy[POLICY_AT_ONCE];
  tigon_policy_values of[POLICY_AT_ONCE];
};
__device__ static inline policy_tokens policy_load(const policy_problem &p, int64_t s, const policy_reach &from) {
  policy_tokens to = {};
  if (!from.has(0)) return to;
  const int64_t t = from.t;
#pragma unroll
  for (int k = 0; k < POLICY_AT_ONCE; ++k) {
    const int at = from.at(k);
    to.of[k] = tigon_policy_values{(p.logprob + t)[at],
                                   p.token_advantage ? (p.advantage + t)[at] : p.advantage[s],
                                   0,
                                   0,
                                   1,
                                   p.old != nullptr,
                                   p.ref != nullptr,
                                   p.ratio != nullptr};
    if (p.entropy) to.entropy[k] = (p.entropy + t)[at];
    if (p.old) to.of[k].old = (p.old + t)[at];
    if (p.ref) to.of[k].ref = (p.ref + t)[at];
    if (p.ratio) to.of[k].ratio = p.token_ratio ? (p.ratio + t)[at] : p.ratio[s];
  }
  policy_count(p, from, to.counts);
  return to;
}

/* Adds up what the weight and the ratio of a sequence are made of. */
template <bool RATIOS>
__device__ inline void policy_add(const policy_problem &p, const policy_tokens &tokens, tigon_policy_sequence &to) {
#pragma unroll
  for (int k = 0; k < POLICY_AT_ONCE; ++k) {
    if (!tokens.counts[k]) continue;
    ++to.counted;
    if (!RATIOS || !tigon_policy_adds_ratios(&p)) continue;
    const tigon_policy_values &of = tokens.of[k];
    const bool vespo = p.kind == TIGON_POLICY_VESPO;
    const float x = p.old ? of.logprob - of.old : 0;
    if (vespo && p.ratio && p.token_ratio) to.log_ratio += (double)tigon_policy_log_ratio(of.ratio);
    to.log_ratio += (double)(vespo ? tigon_policy_within(x, -20, 20) : x);
  }
}

/* Writes what is a token's own, and adds the rest. */
__device__ static inline void policy_visit(const policy_problem &p, const policy_problem &formulas,
                                           const policy_tokens &tokens, const policy_reach &to, float entropy_slope,
                                           tigon_policy_sequence &at, tigon_policy_sums &sums) {
  int low = 0, high = 0;
#pragma unroll
  for (int k = 0; k < POLICY_AT_ONCE; ++k) {
    if (!to.has(k)) break;
    const int at_token = k * to.step;
    const bool counts = tokens.counts[k];
    tigon_policy_token made = {};
    if (counts) made = tigon_policy_token_of(&formulas, &tokens.of[k], at.ratio);
    if (p.token_loss) (p.token_loss + to.t)[at_token] = made.loss;
    if (p.dlogprob) (p.dlogprob + to.t)[at_token] = counts ? at.slope * made.own : 0;
    if (p.dentropy) (p.dentropy + to.t)[at_token] = counts ? entropy_slope : 0;
    at.shared += (double)made.shared;
    sums.loss += (double)at.weight * (double)made.loss;
    if (p.ref) sums.kl += (double)made.kl;
    sums.ratio += (double)made.ratio;
    if (counts && p.entropy) sums.entropy += (double)tokens.entropy[k];
    low += made.low;
    high += made.high;
  }
  sums.low += low;
  sums.high += high;
}

/* What a thread adds up over its tokens of all sequences, and how many of these count. The first ones of a sequence are kept from one walk
 * over it to the next. */
template <bool PLAIN>
__device__ inline tigon_policy_sums policy_sequences(const policy_problem &given, const policy_walk &walk,
                                                     int64_t &counted) {
  __shared__ team_space<2, double> space;
  __shared__ cluster_space<2, double> between;
  const policy_problem p = policy_known<PLAIN>(given), formulas = policy_formulas<PLAIN>(given);
  const cluster cl = cluster_of_block();
  const team tm = team_of(walk.team);
  const int64_t all = policy_counted(p, walk), rank = cl.rank * tm.threads + tm.rank;
  const int step = (int)(cl.size * tm.threads);
  const float entropy_slope = tigon_policy_entropy_slope(&p, all);
  const bool shares = tigon_policy_shares(&p), adds = tigon_policy_adds_ratios(&p) || tigon_policy_adds_tokens(&p);
  tigon_policy_sums sums = {};
  int turn = 0;
  const auto add_up = [&](double(&v)[2]) {
    team_all<op_sum>(tm, space, turn, v);
    cluster_all<op_sum>(cl, between, turn, v);
    turn ^= 1;
  };
  for (int64_t s = blockIdx.x / cl.size * tm.count + tm.index; s < p.sequences; s += gridDim.x / cl.size * tm.count) {
    tigon_policy_sequence at = tigon_policy_sequence_at(&p, s);
    const int64_t first = at.begin + rank, stride = (int64_t)POLICY_AT_ONCE * step;
    policy_tokens of = policy_load(p, s, policy_reach(first, at.end, step));
    if (adds) policy_add<!PLAIN>(p, of, at);
    for (int64_t t = first + stride; adds && t < at.end; t += stride)
      policy_add<!PLAIN>(p, policy_load(p, s, policy_reach(t, at.end, step)), at);
    double both[2] = {(double)at.counted, at.log_ratio};
    if (adds) add_up(both);
    at.counted = (int64_t)both[0], at.log_ratio = both[1];
    tigon_policy_weigh(&p, s, all, &at);
    for (int64_t t = first; t < at.end; t += stride) {
      const policy_reach to(t, at.end, step);
      if (t > first) of = policy_load(p, s, to);
      policy_visit(p, formulas, of, to, entropy_slope, at, sums);
#pragma unroll
      for (int k = 0; k < POLICY_AT_ONCE; ++k) counted += of.counts[k];
    }
    if (!shares) continue;
    both[0] = at.shared;
    add_up(both);
    at.shared = both[0];
    for (int64_t t = first; t < at.end; t += step) tigon_policy_share(&p, &at, t);
  }
  cluster_end(cl);
  return sums;
}

template <bool PLAIN> __device__ inline void policy_rows(const policy_problem &given, const policy_walk &walk) {
  enum { LANES = WARP / POLICY_SUMS };
  __shared__ double space[2][MOST_WARPS][POLICY_SUMS];
  __shared__ bool last;
  int64_t counted = 0;
  tigon_policy_sums sums = policy_sequences<PLAIN>(given, walk, counted);
  const double of[POLICY_SUMS] = {sums.loss,        sums.kl,           sums.entropy,   sums.ratio,
                                  (double)sums.low, (double)sums.high, (double)counted};
  const int lane = (int)threadIdx.x % WARP;
  double total = block_each(space[0], warp_each(of), lane % LANES == 0, lane / LANES);
  if (threadIdx.x < POLICY_SUMS) walk.sums[(int64_t)blockIdx.x * POLICY_SUMS + threadIdx.x] = total;
  if (threadIdx.x < WARP) __syncwarp();
  if (threadIdx.x == 0) last = ends_last(walk.ticket);
  __syncthreads();
  if (!last) return;

  if (threadIdx.x == 0 && walk.counts) *walk.arrived = 0;
  total = 0;
  for (int i = threadIdx.x; i < gridDim.x * POLICY_SUMS; i += blockDim.x) total += __ldcg(&walk.sums[i]);
#pragma unroll
  for (int d = POLICY_SUMS; d < WARP; d *= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
  total = block_each(space[1], total, lane < POLICY_SUMS, lane);
  if (threadIdx.x < POLICY_SUMS) space[0][0][threadIdx.x] = total;
  if (threadIdx.x < WARP) __syncwarp();
  if (threadIdx.x > 0) return;
  const double *all = space[0][0];
  sums = tigon_policy_sums{all[POLICY_LOSS],  all[POLICY_KL],           all[POLICY_ENTROPY],
                           all[POLICY_RATIO], (int64_t)all[POLICY_LOW], (int64_t)all[POLICY_HIGH]};
  const policy_problem p = policy_known<PLAIN>(given);
  tigon_policy_finish(&p, all[POLICY_COUNTED] == 0 ? 1 : (int64_t)all[POLICY_COUNTED], &sums);
}

extern "C" __global__ void __launch_bounds__(POLICY_THREADS, 2)
    policy_plain_rows(const __grid_constant__ policy_problem p, const __grid_constant__ policy_walk walk) {
  policy_rows<true>(p, walk);
}
extern "C" __global__ void __launch_bounds__(POLICY_THREADS, 2)
    policy_any_rows(const __grid_constant__ policy_problem p, const __grid_constant__ policy_walk walk) {
  policy_rows<false>(p, walk);
}
