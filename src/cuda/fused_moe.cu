/* What of fused_moe is no product: the order of slots, sums over a token's choices and over an expert's slots, dw. */
#include "cuda/kernel/moe_order.cuh"
#include "cuda/kernel/team.cuh"

/* ---- the order, where fused_moe_order has no room ---- */

/* A warp's range of slots. */
struct chunk {
  int32_t *count; /* [experts + 1] */
  int begin, end, lane;

  __device__ chunk(const moe_order &o, int index)
      : count(o.count + (int64_t)index * (o.experts + 1)), begin(index * o.chunk),
        end(min(o.slots - begin, o.chunk) + begin), lane((int)threadIdx.x % WARP) {}
};
__device__ static inline int warp_index() { return (int)((blockIdx.x * MOE_THREADS + threadIdx.x) / WARP); }

/* count[chunk, e]: a warp has a chunk. */
extern "C" __global__ void __launch_bounds__(MOE_THREADS) fused_moe_count(const __grid_constant__ moe_order o) {
  if (warp_index() >= o.chunks) return;
  const chunk c(o, warp_index());
  for (int e = c.lane; e <= o.experts; e += WARP) c.count[e] = 0;
  __syncwarp();
  for (int s = c.begin + c.lane; s < c.end; s += WARP) atomicAdd(&c.count[moe_expert_of(o, s)], 1);
}

/* Sums over the chunks before each one; first[e] = all of them. A block of one warp has an expert, and a lane a range of chunks. Each count
 * has a line of its own, so many processors share the lines. */
extern "C" __global__ void __launch_bounds__(WARP) fused_moe_before(const __grid_constant__ moe_order o) {
  const int e = (int)blockIdx.x, lane = (int)threadIdx.x, each = (o.chunks + WARP - 1) / WARP;
  const int begin = min(lane * each, o.chunks), end = min(begin + each, o.chunks);
  const int64_t step = o.experts + 1;
  enum { AT_ONCE = 8 }; /* loads, which stores would keep apart */
  int sum = 0;
#pragma unroll AT_ONCE
  for (int c = begin; c < end; ++c) sum += o.count[c * step + e];
  const int until = lanes_until(sum);
  int before = until - sum;
  for (int c0 = begin; c0 < end; c0 += AT_ONCE) {
    int own[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) own[i] = c0 + i < end ? o.count[(c0 + i) * step + e] : 0;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (c0 + i < end) o.count[(c0 + i) * step + e] = before;
      before += own[i];
    }
  }
  if (lane == WARP - 1) o.first[e] = until;
}

/* The sums of v over the block's threads before this one, and over all of them. */
struct block_sums {
  int before, all;
};
__device__ static inline block_sums sums_of(int v, int (&space)[MOE_WARPS]) {
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int sum = lanes_until(v);
  if (lane == WARP - 1) space[warp] = sum;
  __syncthreads();
  block_sums of = {sum - v, 0};
  for (int w = 0; w < MOE_WARPS; ++w) {
    if (w < warp) of.before += space[w];
    of.all += space[w];
  }
  __syncthreads(); /* the space may be used again */
  return of;
}

/* first and tiles, by one block. */
extern "C" __global__ void __launch_bounds__(MOE_THREADS) fused_moe_tiles(const __grid_constant__ moe_order o) {
  __shared__ int space[MOE_WARPS];
  int slots = 0, tiles = 0;
  for (int e0 = 0; e0 < o.experts; e0 += MOE_THREADS) {
    const int e = e0 + (int)threadIdx.x;
    const int own = e < o.experts ? o.first[e] : 0, own_tiles = (own + o.tile_rows - 1) / o.tile_rows;
    const block_sums of = sums_of(own, space), of_tiles = sums_of(own_tiles, space);
    const int first = slots + of.before;
    if (e < o.experts) o.first[e] = first;
    for (int i = 0; i < own_tiles; ++i)
      o.tiles[tiles + of_tiles.before + i] =
          moe_tile{e, first + i * o.tile_rows, min(own - i * o.tile_rows, o.tile_rows), 0};
    slots += of.all, tiles += of_tiles.all;
  }
  if (threadIdx.x == 0) {
    o.first[o.experts] = slots;
    o.first[o.experts + 1] = o.slots;
    *o.tile_count = tiles;
  }
}

/* slot, token and position: a warp has a chunk, and goes through it in order. */
extern "C" __global__ void __launch_bounds__(MOE_THREADS) fused_moe_place(const __grid_constant__ moe_order o) {
  if (warp_index() >= o.chunks) return;
  const chunk c(o, warp_index());
  for (int s0 = c.begin; s0 < c.end; s0 += WARP) {
    const int s = s0 + c.lane, e = s < c.end ? moe_expert_of(o, s) : -1;
    const unsigned same = __match_any_sync(0xffffffffu, e);
    const int before = __popc(same & ((1u << c.lane) - 1));
    const int next = e >= 0 ? c.count[e] : 0;
    __syncwarp();
    if (e >= 0) {
      const int position = o.first[e] + next + before;
      o.slot[position] = s;
      o.token[position] = s / o.top_k;
      o.position[s] = position;
      if (before == 0) c.count[e] = next + __popc(same);
    }
    __syncwarp();
  }
}

/* Zeros in the rows of pre, [slots, cols], of slots of no expert. */
template <class T> __device__ inline void clear(const moe_order &o, T *pre, int64_t cols) {
  const int64_t end = o.slots * cols, step = (int64_t)gridDim.x * MOE_THREADS;
  for (int64_t i = o.first[o.experts] * cols + blockIdx.x * MOE_THREADS + threadIdx.x; i < end; i += step)
    pre[i] = from_f32<T>(0);
}
KERNEL_BY_DTYPE(fused_moe_clear, (MOE_THREADS), (const __grid_constant__ moe_order o, void *pre, int64_t cols),
                clear(o, (T *)pre, cols))

/* ---- sums over choices ---- */

enum { MOE_COMBINE_BLOCKS = 4 }; /* a processor's: nvcc keeps all loads of a round in registers then */

/* Adds the shares of choices [k0, k0 + AT_ONCE) of those of a token, in order. No load has a condition: nvcc would wait for each. */
template <int AT_ONCE, class T, int N>
__device__ inline void add_choices(const moe_combine &q, const int32_t *positions, int none, int k0, const T *shares,
                                   float (&sum)[N]) {
  int position[AT_ONCE];
  pack<T, N> share[AT_ONCE];
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) position[i] = positions[min(k0 + i, q.order.top_k - 1)];
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i)
    share[i] = load_pack<T, N>(shares + (position[i] < none ? position[i] : 0) * q.cols);
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) {
    float v[N];
    unpack<T, N>(k0 + i < q.order.top_k && position[i] < none ? share[i] : zero_pack<T, N>(), v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += v[j];
  }
}

/* N columns of a token, a pack or one. */
template <class T, int N> __device__ inline void combine(const moe_combine &q) {
  enum { MANY = 8, FEW = 4 };
  const int64_t items = q.cols / N, index = (int64_t)blockIdx.x * MOE_THREADS + threadIdx.x;
  if (index >= q.space.rows * items) return;
  const int64_t row = index / items, c = (index - row * items) * N;
  const int32_t *positions = q.order.position + row * q.order.top_k;
  const int none = q.order.first[q.order.experts];
  const T *shares = (const T *)q.shares + c;
  float sum[N] = {};
  int k = 0;
  for (; q.order.top_k - k > FEW; k += MANY) add_choices<MANY>(q, positions, none, k, shares, sum);
  if (k < q.order.top_k) add_choices<FEW>(q, positions, none, k, shares, sum);
  store_pack<T, N>(row_of<T>(q.space, q.to, row) + c, packed<T, N>(sum));
}
KERNEL_BY_DTYPE(fused_moe_combine_wide, (MOE_THREADS, MOE_COMBINE_BLOCKS), (const __grid_constant__ moe_combine q),
                (combine<T, pack<T>::N>(q)))
KERNEL_BY_DTYPE(fused_moe_combine_any, (MOE_THREADS), (const __grid_constant__ moe_combine q), (combine<T, 1>(q)))

/* ---- dw ---- */

/* A warp has a slot: the parts in order, then what the bias of down adds. */
template <class T> __device__ inline void dots(const moe_dots &q) {
  const int s = warp_index(), lane = (int)threadIdx.x % WARP;
  const moe_order &o = q.order;
  if (s >= o.slots) return;
  const int position = o.position[s], expert = moe_expert_of(o, s);
  float sum = 0;
  if (expert < o.experts) {
    for (int64_t i = lane; i < q.parts; i += WARP) sum += q.dots[position * q.parts + i];
    if (q.p.down_bias.data && !q.p.weight_before_down) {
      const T *dy = row_of<T>(q.p.space, q.p.y, s / o.top_k);
      for (int64_t h = lane; h < q.p.cols; h += WARP)
        sum = fmaf(to_f32(dy[h]), load_any(q.p.down_bias.data, expert * q.p.cols + h, q.p.down_bias.dtype), sum);
    }
  }
  sum = warp_all<op_sum>(sum);
  if (lane == 0) store_any(q.p.dw.data, s, q.p.dw.dtype, sum);
}
KERNEL_BY_DTYPE(fused_moe_dots, (MOE_THREADS), (const __grid_constant__ moe_dots q), dots<T>(q))

/* ---- gradients of biases ---- */

/* A block has 32 columns of an expert, and a warp every eighth of its positions. Up to 64 rows are summed in f32. */
template <class T> __device__ inline void bias_sums(const moe_sums &q) {
  __shared__ double parts[MOE_WARPS][MOE_SUM_COLUMNS];
  const moe_order &o = q.order;
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int64_t panels = (q.cols + MOE_SUM_COLUMNS - 1) / MOE_SUM_COLUMNS, expert = blockIdx.x / panels;
  const int64_t c = blockIdx.x % panels * MOE_SUM_COLUMNS + lane;
  const int begin = o.first[expert], end = o.first[expert + 1];
  double total = 0;
  if (q.accumulate && begin == end) return;
  for (int i0 = begin + warp; c < q.cols && i0 < end; i0 += 64 * MOE_WARPS) {
    const int stop = end - i0 < 64 * MOE_WARPS ? end : i0 + 64 * MOE_WARPS;
    float sum = 0;
#pragma unroll 4
    for (int i = i0; i < stop; i += MOE_WARPS) {
      const float v = to_f32(((const T *)q.from.rows.data)[moe_row_offset(o, q.space, q.from, i) + c]);
      sum = q.weighted ? fmaf(load_any(q.w.data, o.slot[i], q.w.dtype), v, sum) : sum + v;
    }
    total += sum;
  }
  parts[warp][lane] = total;
  __syncthreads();
  if (warp > 0 || c >= q.cols) return;
  for (int w = 1; w < MOE_WARPS; ++w) total += parts[w][lane];
  const int64_t at = expert * q.cols + c;
  if (q.accumulate) total += load_any(q.to.data, at, q.to.dtype);
  store_any(q.to.data, at, q.to.dtype, (float)total);
}
KERNEL_BY_DTYPE(fused_moe_sums, (MOE_THREADS), (const __grid_constant__ moe_sums q), bias_sums<T>(q))
