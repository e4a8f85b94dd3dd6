/* attn_res of few blocks and whole packs. A block of threads stays with its tokens. The rows of the next tokens are on their way
 * into a ring of stages in shared memory. A thread reads there only what it loaded itself. So threads meet once a token, for the
 * sums. */
#include "cuda/attn_res.h"
#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/mma.cuh"
#include "cuda/kernel/norm.cuh"

extern __shared__ uint4 attn_res_ring[]; /* [stages, rows, units], then sums of each warp, for two tokens */

typedef tigon_attn_res_problem attn_res_problem;

enum { FEW = ATTN_RES_FEW };
static_assert(4 * FEW == WARP, "two lanes a sum");

template <class T> __device__ inline T *ring_block(const tigon_blocks &b, const attn_res_places &places, int i) {
  return b.at ? (T *)places.here[i] : (T *)b.rows.data + i * b.step;
}

/* The numbers of a token's blocks, in all threads. */
struct ring_numbers {
  float weight[FEW], slope[FEW], back[FEW]; /* forward: weights only */
};

template <class T, int EACH, bool BACKWARD> struct ring_work {
  static constexpr int N = pack<T>::N;
  const attn_res_problem &p;
  const attn_res_cut &cut;
  const int own, step, width, rows, units, blocks; /* units: of a row, that threads have */
  float *const parts;
  const T *base[FEW]; /* each block's, at the thread's first column */
  float c[EACH][N], u[BACKWARD ? EACH : 1][N];

  __device__ ring_work(const attn_res_problem &problem, const attn_res_cut &of)
      : p(problem), cut(of), own((int)threadIdx.x * N), step((int)blockDim.x * N), width((int)problem.cols),
        rows((int)problem.blocks + BACKWARD), units((int)of.units), blocks((int)problem.blocks),
        parts((float *)(attn_res_ring + of.stages * rows * units)) {
#pragma unroll
    for (int i = 0; i < FEW; ++i) base[i] = i < blocks ? ring_block<T>(p.v, cut.v, i) + own : NULL;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int at = own + e * step;
      float q[N], wn[N];
#pragma unroll
      for (int j = 0; j < N; ++j) q[j] = wn[j] = 0;
      if (at < width) {
        norm_vector<T>(p.q.data, p.q.dtype, 0, at, q);
        norm_vector<T>(p.wn.data, p.wn.dtype, 0, at, wn);
      }
#pragma unroll
      for (int j = 0; j < N; ++j) {
        c[e][j] = q[j] * wn[j];
        if (BACKWARD) u[e][j] = 0;
      }
    }
  }

  __device__ uint4 *held(int slot, int row, int e) const {
    return attn_res_ring + (slot * rows + row) * units + threadIdx.x + e * blockDim.x;
  }
  __device__ void fetch(int slot, int64_t r) const {
    const int64_t offset = tigon_row_offset(&p.space, &p.v.rows, r);
    const unsigned first = (unsigned)__cvta_generic_to_shared(held(slot, 0, 0));
    const auto bring = [&](int row, const T *from) {
#pragma unroll
      for (int e = 0; e < EACH; ++e)
        if (own + e * step < width)
          cp_async(first + (unsigned)(row * units + e * (int)blockDim.x) * 16, from + e * step, true);
    };
#pragma unroll
    for (int i = 0; i < FEW; ++i)
      if (i < blocks) bring(i, base[i] + offset);
    if (BACKWARD) bring(blocks, row_of<T>(p.space, p.h, r) + own);
  }
  /* f(pack's place among the thread's, column), for each of them. */
  template <class F> __device__ void each(F f) const {
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (own + e * step < width) f(e, own + e * step);
  }
  __device__ void take(int slot, int row, int e, float (&to)[N]) const { unpack(pack_of<T>(*held(slot, row, e)), to); }

  /* Sums of c * v, and of v * v or dh * v, over the row of each block. Lane 2 k has the k-th, those of c * v first. */
  __device__ float find_sums(int slot, int turn) const {
    const int lane = (int)threadIdx.x % WARP, warps = (int)blockDim.x / WARP;
    float *const mine = parts + turn * (warps * 2 * FEW);
    float sum[2 * FEW] = {0};
    each([&](int e, int) {
      float dh[N];
      if (BACKWARD) take(slot, blocks, e, dh);
#pragma unroll
      for (int i = 0; i < FEW; ++i) {
        if (i >= blocks) break;
        float v[N], of[2] = {0, 0};
        take(slot, i, e, v);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          of[0] = fmaf(c[e][j], v[j], of[0]);
          of[1] = fmaf(BACKWARD ? dh[j] : v[j], v[j], of[1]);
        }
        sum[i] += of[0], sum[FEW + i] += of[1];
      }
    });
    const float own_sum = warp_each(sum);
    if (lane % 2 == 0) mine[threadIdx.x / WARP * (2 * FEW) + lane / 2] = own_sum;
    __syncthreads();
    float all = 0;
    for (int w = lane % 2; w < warps; w += 2) all += mine[w * (2 * FEW) + lane / 2];
    return all + __shfl_xor_sync(0xffffffffu, all, 1);
  }

  template <class Op> __device__ static float over_blocks(float v) {
#pragma unroll
    for (int d = 2; d < 2 * FEW; d *= 2) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
  }
  __device__ static void spread(float v, float (&to)[FEW]) {
#pragma unroll
    for (int i = 0; i < FEW; ++i) to[i] = __shfl_sync(0xffffffffu, v, 2 * i);
  }

  /* `a`, `rstd`: backward, those of the lane's block. */
  __device__ void find_numbers(int64_t r, float sum, float a, float rstd, ring_numbers &to) const {
    const int lane = (int)threadIdx.x % WARP, i = lane / 2 % FEW;
    const float other = __shfl_xor_sync(0xffffffffu, sum, WARP / 2);
    const float of_c = lane < WARP / 2 ? sum : other, of_v = lane < WARP / 2 ? other : sum;
    if (BACKWARD) {
      const float mean = over_blocks<op_sum>(a * of_v);
      spread(a, to.weight);
      spread(a * (of_v - mean) * rstd, to.slope);
      spread(rstd * of_c * rstd / (float)width, to.back);
      return;
    }
    rstd = 1 / sqrtf(of_v / (float)width + p.eps);
    const float score = i < blocks ? rstd * of_c : -INFINITY, largest = over_blocks<op_max>(score);
    const float e = i < blocks ? expf(score - largest) : 0;
    const float weight = e / over_blocks<op_sum>(e);
    if (threadIdx.x < WARP / 2 && lane % 2 == 0 && i < blocks) {
      if (p.a) p.a[r * blocks + i] = weight;
      if (p.rstd) p.rstd[r * blocks + i] = rstd;
    }
    spread(weight, to.weight);
  }

  __device__ void mix(int slot, const ring_numbers &of, T *h) const {
    each([&](int e, int at) {
      float sum[N] = {0};
#pragma unroll
      for (int i = 0; i < FEW; ++i) {
        if (i >= blocks) break;
        float v[N];
        take(slot, i, e, v);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] = fmaf(of.weight[i], v[j], sum[j]);
      }
      store_pack(h + at, packed<T, N>(sum));
    });
  }

  __device__ void differentiate(int slot, const ring_numbers &of, int64_t offset) {
    each([&](int e, int at) {
      float dh[N];
      take(slot, blocks, e, dh);
#pragma unroll
      for (int i = 0; i < FEW; ++i) {
        if (i >= blocks) break;
        float v[N], dv[N];
        take(slot, i, e, v);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          dv[j] = fmaf(of.slope[i], fmaf(-of.back[i], v[j], c[e][j]), of.weight[i] * dh[j]);
          u[e][j] = fmaf(of.slope[i], v[j], u[e][j]);
        }
        store_pack(ring_block<T>(p.dv, cut.dv, i) + offset + at, packed<T, N>(dv));
      }
    });
  }

  __device__ void run() {
    const int i = (int)threadIdx.x % WARP / 2 % FEW, ahead = cut.stages - 1;
    int64_t next = blockIdx.x;
    int slot = 0, turn = 0;
    for (int k = 0; k < ahead; ++k, next += gridDim.x) {
      if (next < p.space.rows) fetch(k, next);
      cp_async_commit();
    }
    for (int64_t r = blockIdx.x; r < p.space.rows; r += gridDim.x, next += gridDim.x, turn ^= 1) {
      float a = 0, rstd = 0;
      if (BACKWARD && i < blocks) a = p.a[r * blocks + i], rstd = p.rstd[r * blocks + i];
      if (ahead == 2)
        cp_async_wait_for<1>();
      else
        cp_async_wait_for<0>();
      const int free = slot == 0 ? ahead : slot - 1;
      if (next < p.space.rows) fetch(free, next);
      cp_async_commit();
      ring_numbers of;
      find_numbers(r, find_sums(slot, turn), a, rstd, of);
      if constexpr (BACKWARD)
        differentiate(slot, of, tigon_row_offset(&p.space, &p.dv.rows, r));
      else
        mix(slot, of, row_of<T>(p.space, p.h, r));
      slot = slot == ahead ? 0 : slot + 1;
    }
    if constexpr (BACKWARD) {
      next_kernel_may_begin();
      if (!cut.slabs) return;
      each([&](int e, int at) {
#pragma unroll
        for (int j = 0; j < N; ++j) cut.slabs[(int64_t)blockIdx.x * width + at + j] = u[e][j];
      });
    }
  }
};

#define ATTN_RES_RING(name, each, backward)                                                               \
  KERNEL_BY_DTYPE(attn_res_##name, (ATTN_RES_THREADS, 1),                                                 \
                  (const __grid_constant__ attn_res_problem p, const __grid_constant__ attn_res_cut cut), \
                  (ring_work<T, each, backward>(p, cut).run()))
ATTN_RES_RING(fwd_ring_1, 1, false)
ATTN_RES_RING(fwd_ring_2, 2, false)
ATTN_RES_RING(bwd_ring_1, 1, true)
ATTN_RES_RING(bwd_ring_2, 2, true)
