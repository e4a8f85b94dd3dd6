/* Teams: a warp, or all of a block, with a row of its own. A sum over a team has one order.
 *
 * NAMED: several teams of more than a warp share a block, each with a barrier of its own. It then takes all 16 of a block's, which an SM
 * has for four such blocks only: for kernels whose blocks fill an SM. */
#ifndef TIGON_CUDA_KERNEL_TEAM_CUH
#define TIGON_CUDA_KERNEL_TEAM_CUH

#include <stdint.h>

enum { WARP = 32, MOST_WARPS = 32 };

struct team {
  int threads, rank; /* threads of the team; this thread's place in it */
  int index, count;  /* this team's place among the block's; how many there are */
};

__device__ static inline team team_of(int threads) {
  /* Nobody waits for the division; as a shift it makes ptxas 13.0 spill in group_norm's backward. */
  return team{threads, (int)threadIdx.x & (threads - 1), (int)threadIdx.x >> (31 - __clz(threads)),
              (int)blockDim.x / threads};
}

template <bool NAMED = false> __device__ inline void team_sync(const team &t) {
  if (t.threads <= WARP)
    __syncwarp();
  else if (!NAMED || t.count == 1)
    __syncthreads();
  else /* the first is __syncthreads(): at most 15 teams */
    asm volatile("bar.sync %0, %1;" ::"r"(t.index + 1), "r"(t.threads) : "memory");
}

/* For a team that has passed `turns` fewer of NAMED barriers than the first of its block: where teams differ in that,
 * compute-sanitizer's racecheck sees hazards across a later __syncthreads(). */
__device__ static inline void team_catch_up(const team &t, int64_t turns) {
  for (int64_t i = 0; i < turns; ++i) team_sync<true>(t);
}

struct op_sum {
  template <class V> __device__ static V of(V a, V b) { return a + b; }
};
/* A NaN stays one. */
struct op_max {
  __device__ static float of(float a, float b) {
    float v;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
    return v;
  }
};

template <class Op, class V> __device__ inline V warp_all(V v) {
#pragma unroll
  for (int d = WARP / 2; d > 0; d /= 2) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

/* Each of D sums over the warp, a power of two: lane l has the one numbered l / (WARP / D). Half of them are given for the other half of the
 * lanes' sums, and so on, which takes D shuffles where one by one they would take five each. */
template <int D, int AT = WARP / 2, class V> __device__ inline V warp_each(const V (&v)[D]) {
  if constexpr (D == 1) {
    V sum = v[0];
#pragma unroll
    for (int d = AT; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    return sum;
  } else {
    const bool upper = threadIdx.x & AT;
    V half[D / 2];
#pragma unroll
    for (int k = 0; k < D / 2; ++k) {
      const V give = upper ? v[k] : v[k + D / 2], keep = upper ? v[k + D / 2] : v[k];
      half[k] = keep + __shfl_xor_sync(0xffffffffu, give, AT);
    }
    return warp_each<D / 2, AT / 2>(half);
  }
}

/* What the v of all the block's threads add up to. */
template <class V> __device__ inline V block_total(V v) {
  __shared__ V parts[MOST_WARPS];
  const int lane = (int)threadIdx.x % WARP, warps = (int)blockDim.x / WARP;
  v = warp_all<op_sum>(v);
  __syncthreads(); /* a block may come here again */
  if (lane == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  return warp_all<op_sum>(lane < warps ? parts[lane] : V(0));
}

/* Sum k of D in thread k, and in no other. In each warp, threads that have one give their number for k. */
template <int D> __device__ inline double block_each(double (&space)[MOST_WARPS][D], double warp_sum, bool has, int k) {
  if (has) space[threadIdx.x / WARP][k] = warp_sum;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x < D)
    for (int w = 0; w < (int)blockDim.x / WARP; ++w) sum += space[w][threadIdx.x];
  return sum;
}

/* For one thread of each block, when the block's work is written: is it the last of the grid? It then sees what all wrote. The ticket
 * is 0 before the first and after the last of them. */
__device__ static inline bool ends_last(unsigned *ticket) {
  __threadfence();
  const bool last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  if (last) __threadfence();
  return last;
}

/* For all threads of a grid that cooperates: goes on when every block is here, and sees what all wrote before. `arrived` is 0 before the
 * kernel; when it ends, a thread makes it 0 again. */
__device__ static inline void grid_meets(unsigned *arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile unsigned *)arrived < gridDim.x) continue;
    __threadfence();
  }
  __syncthreads();
}

/* Shared memory of team_all(): two places a warp and value, taken in turn, so that one barrier a call is enough. */
template <int VALUES, class V = float> struct team_space { V of[2][VALUES][MOST_WARPS]; };

/* Each of `v` becomes what Op makes of that of the whole team, in every thread. `turn` is 0, 1, 0, 1, ... from call to call. Teams of
 * fewer threads than a warp do not exist. */
template <class Op, bool NAMED = false, int VALUES, class V>
__device__ inline void team_all(const team &t, team_space<VALUES, V> &space, int turn, V (&v)[VALUES]) {
#pragma unroll
  for (int i = 0; i < VALUES; ++i) v[i] = warp_all<Op>(v[i]);
  if (t.threads <= WARP) return;
  const int warp = (int)threadIdx.x / WARP, first = t.index * (t.threads / WARP), warps = t.threads / WARP;
  const int lane = (int)threadIdx.x % WARP;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) space.of[turn][i][warp] = v[i];
  }
  team_sync<NAMED>(t);
#pragma unroll
  for (int i = 0; i < VALUES; ++i) v[i] = space.of[turn][i][first + (lane & (warps - 1))];
  for (int d = warps / 2; d > 0; d /= 2)
#pragma unroll
    for (int i = 0; i < VALUES; ++i) v[i] = Op::of(v[i], __shfl_xor_sync(0xffffffffu, v[i], d));
}

#endif
