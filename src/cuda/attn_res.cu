/* attn_res. A block of threads has a token at a time. It sums over its rows, of which there is one for each of the token's blocks, and
 * then makes h, or dv and terms of u. Aligned rows are held in shared memory where they fit, where a thread reads only what it loaded
 * itself; others are read twice. */
#include "cuda/attn_res.h"

#include <cuda_pipeline.h>

#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/norm.cuh"

extern __shared__ uint4 attn_res_held[]; /* [rows, units], then u [N, units], then words */

typedef tigon_attn_res_problem attn_res_problem;

/* Where block i begins. */
template <class T>
__device__ inline T *attn_res_block(const tigon_blocks &b, const attn_res_places &places, int64_t i) {
  if (!b.at) return (T *)b.rows.data + i * b.step;
  return (T *)(places.table ? places.table[i] : places.here[i]);
}

template <class T, int N, bool BACKWARD> struct attn_res_work {
  static constexpr int SUMS = 2 * ATTN_RES_GROUP;
  const attn_res_problem &p;
  const attn_res_cut &cut;
  const int64_t own, step; /* columns: this thread's first one, and from its pack to its next one */
  const int units;         /* units of a held row */
  float *parts, *weight, *slope, *back;
  float *u; /* the block's own sums: in shared memory, or its slab; NULL: not wanted */

  __device__ attn_res_work(const attn_res_problem &problem, const attn_res_cut &c)
      : p(problem), cut(c), own((int64_t)threadIdx.x * N), step((int64_t)blockDim.x * N), units((int)cut.units) {
    float *shared = (float *)(attn_res_held + cut.held_rows * units);
    float *slab = BACKWARD && cut.slabs ? cut.slabs + blockIdx.x * p.cols : NULL;
    u = cut.sums_held ? shared : slab;
    if (cut.sums_held) shared += N * units;
    const int64_t words = attn_res_words(p.blocks, (int)blockDim.x);
    parts = cut.words ? cut.words + blockIdx.x * words : shared;
    weight = parts + 2 * (int64_t)(blockDim.x / WARP) * p.blocks;
    slope = weight + p.blocks, back = slope + p.blocks;
    if (u)
      for (int64_t c = own; c < p.cols; c += step)
#pragma unroll
        for (int j = 0; j < N; ++j) sum_at(c, j) = 0;
  }

  __device__ uint4 *held(int64_t row, int64_t c) const {
    return attn_res_held + (int)row * units + (int)c / N; /* int: they are in shared memory */
  }
  /* u of column c + j. Threads side by side have words side by side. */
  __device__ float &sum_at(int64_t c, int j) const { return cut.sums_held ? u[j * units + (int)c / N] : u[c + j]; }
  __device__ const T *row_of_block(int64_t i, int64_t offset) const {
    return attn_res_block<T>(p.v, cut.v, i) + offset;
  }

  /* All rows of a token, into shared memory. */
  __device__ void fetch(int64_t offset, const T *dh) const {
    for (int64_t i = 0; i < cut.held_rows; ++i) {
      const T *from = i < p.blocks ? row_of_block(i, offset) : dh;
      for (int64_t c = own; c < p.cols; c += step) __pipeline_memcpy_async(held(i, c), from + c, 16);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }

  template <bool HELD> __device__ void take(int64_t row, const T *from, int64_t c, float (&to)[N]) const {
    if constexpr (HELD && N > 1)
      unpack(pack_of<T>(*held(row, c)), to);
    else
      unpack(load_pack<T, N>(from + c), to);
  }
  __device__ void take_c(int64_t c, float (&to)[N]) const {
    float q[N], wn[N];
    norm_vector<T>(p.q.data, p.q.dtype, 0, c, q);
    norm_vector<T>(p.wn.data, p.wn.dtype, 0, c, wn);
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = q[j] * wn[j];
  }

  /* The sums of each warp over the rows of all blocks: of c * v, and of v * v or dh * v. */
  template <bool HELD> __device__ void sum_rows(int64_t offset, const T *dh) const {
    for (int64_t first = 0; first < p.blocks; first += ATTN_RES_GROUP) {
      const int count = p.blocks - first < ATTN_RES_GROUP ? (int)(p.blocks - first) : ATTN_RES_GROUP;
      const T *from[ATTN_RES_GROUP];
#pragma unroll
      for (int k = 0; k < ATTN_RES_GROUP; ++k) from[k] = row_of_block(first + (k < count ? k : 0), offset);
      double all[SUMS] = {0};
      norm_strips(own, p.cols, step, all, [&](int64_t c, float(&part)[SUMS]) {
        float of_c[N], of_dh[N];
        take_c(c, of_c);
        if constexpr (BACKWARD) take<HELD>(p.blocks, dh, c, of_dh);
#pragma unroll
        for (int k = 0; k < ATTN_RES_GROUP; ++k) {
          if (k >= count) break;
          float v[N];
          take<HELD>(first + k, from[k], c, v);
#pragma unroll
          for (int j = 0; j < N; ++j) {
            part[2 * k] = fmaf(of_c[j], v[j], part[2 * k]);
            part[2 * k + 1] = fmaf(BACKWARD ? of_dh[j] : v[j], v[j], part[2 * k + 1]);
          }
        }
      });
#pragma unroll
      for (int k = 0; k < SUMS; ++k) {
        const float sum = warp_all<op_sum>((float)all[k]);
        if (threadIdx.x % WARP == 0 && k / 2 < count)
          parts[(threadIdx.x / WARP * p.blocks + first + k / 2) * 2 + k % 2] = sum;
      }
    }
    __syncthreads();
  }

  /* Sum `which` of block i, over the warps in their order. */
  __device__ float sum_of(int64_t i, int which) const {
    float sum = 0;
    for (int w = 0; w < (int)(blockDim.x / WARP); ++w) sum += parts[(w * p.blocks + i) * 2 + which];
    return sum;
  }

  /* Numbers of the blocks, by the first warp. */
  __device__ void find_weights(int64_t r) const {
    float largest = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < p.blocks; i += WARP) {
      const float mean = p.cols > 0 ? sum_of(i, 1) / (float)p.cols : 0, rstd = 1 / sqrtf(mean + p.eps);
      const float score = p.cols > 0 ? rstd * sum_of(i, 0) : 0;
      if (p.rstd) p.rstd[r * p.blocks + i] = rstd;
      weight[i] = score;
      largest = op_max::of(largest, score);
    }
    largest = warp_all<op_max>(largest);
    for (int64_t i = threadIdx.x; i < p.blocks; i += WARP) sum += weight[i] = expf(weight[i] - largest);
    sum = warp_all<op_sum>(sum);
    for (int64_t i = threadIdx.x; i < p.blocks; i += WARP) {
      weight[i] /= sum;
      if (p.a) p.a[r * p.blocks + i] = weight[i];
    }
  }
  __device__ void find_slopes(int64_t r) const {
    float mean = 0;
    for (int64_t i = threadIdx.x; i < p.blocks; i += WARP) {
      const float rstd = p.rstd[r * p.blocks + i];
      weight[i] = p.a[r * p.blocks + i];
      slope[i] = sum_of(i, 1);
      back[i] = rstd * sum_of(i, 0) * rstd / (float)p.cols;
      mean = fmaf(weight[i], slope[i], mean);
    }
    mean = warp_all<op_sum>(mean);
    for (int64_t i = threadIdx.x; i < p.blocks; i += WARP)
      slope[i] = weight[i] * (slope[i] - mean) * p.rstd[r * p.blocks + i];
  }

  template <bool HELD> __device__ void mix(int64_t offset, T *h) const {
    for (int64_t c = own; c < p.cols; c += step) {
      float sum[N] = {0};
#pragma unroll 4
      for (int64_t i = 0; i < p.blocks; ++i) {
        float v[N];
        take<HELD>(i, row_of_block(i, offset), c, v);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] = fmaf(weight[i], v[j], sum[j]);
      }
      store_pack(h + c, packed<T, N>(sum));
    }
  }

  template <bool HELD> __device__ void differentiate(int64_t offset, int64_t to_offset, const T *dh) const {
    for (int64_t c = own; c < p.cols; c += step) {
      float of_c[N], of_dh[N], sum[N] = {0};
      take_c(c, of_c);
      take<HELD>(p.blocks, dh, c, of_dh);
#pragma unroll 2
      for (int64_t i = 0; i < p.blocks; ++i) {
        float v[N], dv[N];
        take<HELD>(i, row_of_block(i, offset), c, v);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          dv[j] = fmaf(slope[i], fmaf(-back[i], v[j], of_c[j]), weight[i] * of_dh[j]);
          sum[j] = fmaf(slope[i], v[j], sum[j]);
        }
        store_pack(attn_res_block<T>(p.dv, cut.dv, i) + to_offset + c, packed<T, N>(dv));
      }
      if (u)
#pragma unroll
        for (int j = 0; j < N; ++j) sum_at(c, j) += sum[j];
    }
  }

  /* u of the block becomes its slab. */
  __device__ void end() const {
    next_kernel_may_begin();
    if (!cut.sums_held) return;
    float *slab = cut.slabs + blockIdx.x * p.cols;
    for (int64_t c = own; c < p.cols; c += step)
#pragma unroll
      for (int j = 0; j < N; ++j) slab[c + j] = sum_at(c, j);
  }
};

template <class T, int N, bool HELD>
__device__ inline void attn_res_forward(const attn_res_problem &p, const attn_res_cut &cut) {
  const attn_res_work<T, N, false> work(p, cut);
  for (int64_t r = blockIdx.x; r < p.space.rows; r += gridDim.x) {
    const int64_t offset = tigon_row_offset(&p.space, &p.v.rows, r);
    if (HELD) work.fetch(offset, NULL);
    work.template sum_rows<HELD>(offset, NULL);
    if (threadIdx.x < WARP) work.find_weights(r);
    __syncthreads();
    work.template mix<HELD>(offset, row_of<T>(p.space, p.h, r));
  }
}

template <class T, int N, bool HELD>
__device__ inline void attn_res_backward(const attn_res_problem &p, const attn_res_cut &cut) {
  const attn_res_work<T, N, true> work(p, cut);
  for (int64_t r = blockIdx.x; r < p.space.rows; r += gridDim.x) {
    const int64_t offset = tigon_row_offset(&p.space, &p.v.rows, r), to = tigon_row_offset(&p.space, &p.dv.rows, r);
    const T *dh = row_of<T>(p.space, p.h, r);
    if (HELD) work.fetch(offset, dh);
    work.template sum_rows<HELD>(offset, dh);
    if (threadIdx.x < WARP) work.find_slopes(r);
    __syncthreads();
    work.template differentiate<HELD>(offset, to, dh);
  }
  work.end();
}

#define ATTN_RES_KERNEL(name, blocks, ...)                                                                           \
  KERNEL_BY_DTYPE(name, (ATTN_RES_THREADS, blocks),                                                                  \
                  (const __grid_constant__ attn_res_problem p, const __grid_constant__ attn_res_cut cut, int lanes), \
                  __VA_ARGS__)
ATTN_RES_KERNEL(attn_res_fwd_held, 2, attn_res_forward<T, pack<T>::N, true>(p, cut))
ATTN_RES_KERNEL(attn_res_bwd_held, 2, attn_res_backward<T, pack<T>::N, true>(p, cut))
ATTN_RES_KERNEL(attn_res_fwd_walked, 1,
                lanes > 1 ? attn_res_forward<T, pack<T>::N, false>(p, cut) : attn_res_forward<T, 1, false>(p, cut))
ATTN_RES_KERNEL(attn_res_bwd_walked, 1,
                lanes > 1 ? attn_res_backward<T, pack<T>::N, false>(p, cut) : attn_res_backward<T, 1, false>(p, cut))

/* Addresses, into the device's memory. */
extern "C" __global__ void __launch_bounds__(ATTN_RES_WRITTEN)
    attn_res_table(const __grid_constant__ attn_res_addresses a) {
  if (threadIdx.x < a.count) a.to[threadIdx.x] = a.address[threadIdx.x];
}

/* dq = u * wn and dwn = u * q, u being the slabs' sum. */
extern "C" __global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS)
    attn_res_sums(const __grid_constant__ attn_res_problem p, const float *slabs, int64_t count) {
  await_kernel();
  column_sum_each<COLUMN_SUM_COLUMNS>(
      slabs, count, p.cols, (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, p.cols, [&](int64_t c, float u) {
        const tigon_vector *const to[] = {&p.dq, &p.dwn}, *const factor[] = {&p.wn, &p.q};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          if (!to[k]->data) continue;
          float sum = u * load_any(factor[k]->data, c, factor[k]->dtype);
          if (p.accumulate) sum += load_any(to[k]->data, c, to[k]->dtype);
          store_any(to[k]->data, c, to[k]->dtype, sum);
        }
      });
}
