/* embedding. Forward copies. Backward is a stable sort of the positions by index. Then it makes a sum for each table row in the
 * order of the positions, and zeros for the rows between. */
#include "cuda/embedding.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/map.cuh"

/* ---- forward ---- */

/* Works on a row's columns first, first + step, ..., N from each on. to: y's element `first`. */
template <class T, int N, int EACH, class P, class I>
__device__ inline void fwd_copy(const P &p, I row, I first, int step, T *to) {
  const int64_t index = load_index(p.idx, row, p.idx_dtype);
  const I left = p.cols - first;
  const bool legal = index >= 0 && index < p.vocab;
  const T *from = (const T *)p.table + (legal ? (I)index * (int64_t)p.table_pitch + first : 0);
  pack<T, N> x[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) x[k] = legal && k * step < left ? load_pack<T, N>(from + k * step) : zero_pack<T, N>();
#pragma unroll
  for (int k = 0; k < EACH; ++k)
    if (k * step < left) store_pack<T, N>(to + k * step, x[k]);
  if (!legal && first == 0 && p.error_flag) *p.error_flag = 1;
}

template <class T, int N> __device__ inline void fwd(const tigon_embedding_fwd_problem &p, const map_walk &walk) {
  constexpr int EACH = N == 1 ? EMBEDDING_FWD_PACKS * MAP_ANY : EMBEDDING_FWD_PACKS;
  const map_place at = map_place_of(walk, blockIdx.x, EACH * N, N);
  if (at.row < p.space.rows)
    fwd_copy<T, N, EACH>(p, at.row, at.first, walk.team * N, row_of<T>(p.space, p.y, at.row) + at.first);
}

template <class T> __device__ inline void fwd_plain(const embedding_plain &p) {
  constexpr int N = pack<T>::N, EACH = EMBEDDING_FWD_PACKS;
  const int team = 1 << p.team_bits, rank = (int)threadIdx.x & (team - 1);
  const int row = (int)(blockIdx.y * EMBEDDING_PLAIN_THREADS + threadIdx.x) >> p.team_bits;
  const int first = ((int)(blockIdx.x * EACH) << p.team_bits) * N + rank * N;
  if (row < p.rows) fwd_copy<T, N, EACH>(p, row, first, team * N, (T *)p.y + row * (int64_t)p.y_pitch + first);
}

/* ---- backward: the sort ---- */

enum { SORT_WARPS = EMBEDDING_SORT_THREADS / WARP, DIGITS = 1 << EMBEDDING_DIGIT_BITS, AT_ONCE = 4 };
static_assert(DIGITS <= EMBEDDING_SORT_THREADS, "a thread has a digit");

/* The item of a position before the sort. */
__device__ static inline uint64_t make_item(const tigon_embedding_bwd_problem &p, int position_bits, int64_t position,
                                            bool flag) {
  const int64_t index = load_index(p.idx, position, p.idx_dtype);
  const bool legal = index >= 0 && index < p.vocab;
  if (flag && !legal && p.error_flag) *p.error_flag = 1;
  const uint64_t key = (uint64_t)(legal && index != p.padding_idx ? index : p.vocab);
  return key << position_bits | (uint64_t)position;
}

/* Barrier of all blocks of the cluster, after which they see each other's memory. */
__device__ static inline void sync_all(const cluster &cl) {
#if __CUDA_ARCH__ >= 900
  if (cl.size > 1) {
    __threadfence();
    cooperative_groups::this_cluster().sync();
    return;
  }
#endif
  __syncthreads();
}

/* The sum of v over the threads before this one. */
__device__ static inline unsigned sum_before(unsigned v, unsigned (&space)[SORT_WARPS]) {
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  unsigned sum = v;
  for (int d = 1; d < WARP; d *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == WARP - 1) space[warp] = sum;
  __syncthreads();
  unsigned before = sum - v;
  for (int w = 0; w < warp; ++w) before += space[w];
  return before;
}

/* A radix sort from the lowest digit of the key on by one cluster. Its warps, in order, have equal ranges of the items. In a
 * pass each counts its digits. An item goes behind the items of lower digits, those of its digit in earlier warps, and those
 * before it in its own warp. */
extern "C" __global__ void __launch_bounds__(EMBEDDING_SORT_THREADS)
    embedding_sort(const __grid_constant__ tigon_embedding_bwd_problem p, const __grid_constant__ embedding_order o) {
  __shared__ unsigned next[SORT_WARPS][DIGITS], total[DIGITS], space[SORT_WARPS];
  const cluster cl = cluster_of_block();
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, mine = (int)threadIdx.x;
  const int64_t warps = (int64_t)cl.size * SORT_WARPS, rows = p.space.rows;
  const int64_t each = ((rows + warps - 1) / warps + WARP - 1) / WARP * WARP;
  const int64_t begin = (cl.rank * SORT_WARPS + warp) * each, end = begin + each < rows ? begin + each : rows;
  const int digits = 1 << o.digit_bits;
  for (int pass = 0; pass < o.passes; ++pass) {
    const uint64_t *from = o.items[(pass + 1) % 2];
    uint64_t *to = o.items[pass % 2];
    const int shift = o.position_bits + pass * o.digit_bits;
    for (int d = lane; d < digits; d += WARP) next[warp][d] = 0;
    __syncwarp();
    for (int64_t first = begin + lane; first < end; first += AT_ONCE * WARP) {
      uint64_t item[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) {
        const int64_t i = first + k * WARP;
        if (i < end) item[k] = pass == 0 ? make_item(p, o.position_bits, i, true) : __ldcg(from + i);
      }
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k)
        if (first + k * WARP < end) atomicAdd(&next[warp][item[k] >> shift & (digits - 1)], 1u);
    }
    __syncthreads();
    if (mine < digits) {
      unsigned sum = 0;
      for (int w = 0; w < SORT_WARPS; ++w) {
        const unsigned count = next[w][mine];
        next[w][mine] = sum;
        sum += count;
      }
      total[mine] = sum;
    }
    sync_all(cl);
    unsigned before = 0, all = 0;
    for (int b = 0; b < cl.size && mine < digits; ++b) {
      const unsigned count = cluster_box(cl, total, b)[mine];
      if (b < cl.rank) before += count;
      all += count;
    }
    before += sum_before(all, space);
    for (int w = 0; w < SORT_WARPS && mine < digits; ++w) next[w][mine] += before;
    __syncthreads();
    for (int64_t first = begin; first < end; first += AT_ONCE * WARP) {
      uint64_t item[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) {
        const int64_t i = first + k * WARP + lane;
        item[k] = i >= end ? 0 : pass == 0 ? make_item(p, o.position_bits, i, false) : __ldcg(from + i);
      }
#pragma unroll
      for (int k = 0; k < AT_ONCE; ++k) {
        const bool there = first + k * WARP + lane < end;
        const int digit = there ? (int)(item[k] >> shift & (digits - 1)) : digits;
        const unsigned peers = __match_any_sync(0xffffffffu, digit), earlier = __popc(peers & ((1u << lane) - 1));
        const unsigned at = there ? next[warp][digit] + earlier : 0;
        __syncwarp();
        if (there && earlier == 0) next[warp][digit] = at + __popc(peers);
        __syncwarp();
        if (there) __stcg(to + at, item[k]);
      }
    }
    sync_all(cl);
  }
}

/* ---- backward: the sums ---- */

__device__ static inline int64_t key_at(const embedding_walk &w, int64_t i) {
  return (int64_t)(w.items[i] >> w.position_bits);
}

/* The first sorted position whose key is `key` or beyond. */
__device__ static inline int64_t find_key(const embedding_walk &w, int64_t rows, int64_t key) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (key_at(w, middle) < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* N columns of the table's gradient from element `at` on become v, or more by v. */
template <class T, int N> __device__ inline void put(const tigon_embedding_bwd_problem &p, int64_t at, float (&v)[N]) {
  if constexpr (N == 1) {
    if (p.accumulate) v[0] += load_any(p.dtable, at, p.dtable_dtype);
    store_any(p.dtable, at, p.dtable_dtype, v[0]);
  } else if (p.dtable_dtype == TIGON_F32) {
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      float4 *to = (float4 *)((float *)p.dtable + at + j);
      const float4 old = p.accumulate ? *to : float4{0, 0, 0, 0};
      *to = float4{v[j] + old.x, v[j + 1] + old.y, v[j + 2] + old.z, v[j + 3] + old.w};
    }
  } else {
    T *to = (T *)p.dtable + at;
    if (p.accumulate) {
      float old[N];
      unpack<T, N>(load_pack<T, N>(to), old);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] += old[j];
    }
    store_pack<T, N>(to, packed<T, N>(v));
  }
}

template <class T, int N>
__device__ inline void sum_rows(const tigon_embedding_bwd_problem &p, const embedding_walk &w) {
  constexpr int EACH = N == 1 ? EMBEDDING_BWD_PACKS * MAP_ANY : EMBEDDING_BWD_PACKS;
  const int64_t rows = p.space.rows;
  const map_place at = map_place_of(w.sums, blockIdx.x, EACH * N, N);
  const int64_t slot = at.row, left = p.cols - at.first;
  const int step = w.sums.team * N;
  if (slot >= rows) return;
  const int64_t key = key_at(w, slot);
  const bool head = slot == 0 || key_at(w, slot - 1) != key;
  if (key >= p.vocab || (!head && slot % w.chunk != 0)) return;
  const int64_t next_chunk = (slot / w.chunk + 1) * w.chunk, end = next_chunk < rows ? next_chunk : rows;
  const uint64_t position_mask = ((uint64_t)1 << w.position_bits) - 1;
  float sum[EACH][N] = {};
  int64_t i = slot;
  for (bool more = true; more && i < end;) {
    /* Rows are loaded together and added up by themselves, so that no term meets a far longer sum often. */
    uint64_t item[AT_ONCE];
    bool same[AT_ONCE];
#pragma unroll
    for (int b = 0; b < AT_ONCE; ++b) item[b] = w.items[i + b < end ? i + b : end - 1];
#pragma unroll
    for (int b = 0; b < AT_ONCE; ++b) same[b] = i + b < end && (int64_t)(item[b] >> w.position_bits) == key;
    pack<T, N> x[AT_ONCE][EACH];
#pragma unroll
    for (int b = 0; b < AT_ONCE; ++b) {
      const T *dy = row_of<T>(p.space, p.dy, (int64_t)(item[b] & position_mask)) + at.first;
#pragma unroll
      for (int k = 0; k < EACH; ++k)
        x[b][k] = same[b] && k * step < left ? load_pack<T, N>(dy + k * step) : zero_pack<T, N>();
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      float part[N];
      unpack<T, N>(x[0][k], part);
#pragma unroll
      for (int b = 1; b < AT_ONCE; ++b) {
        float v[N];
        unpack<T, N>(x[b][k], v);
#pragma unroll
        for (int j = 0; j < N; ++j) part[j] += v[j];
      }
#pragma unroll
      for (int j = 0; j < N; ++j) sum[k][j] += part[j];
    }
#pragma unroll
    for (int b = 0; b < AT_ONCE; ++b) i += same[b];
    more = same[AT_ONCE - 1];
  }
  const bool goes_on = i == end && end < rows && key_at(w, end) == key;
  float *parts = w.parts + (2 * (slot / w.chunk) + head) * p.cols;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int64_t c = at.first + k * step;
    if (c >= p.cols) continue;
    if (head && !goes_on) {
      put<T, N>(p, key * p.cols + c, sum[k]);
      continue;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) parts[c + j] = sum[k][j];
  }
}

/* Zeros in those of a few table rows that no position points at. */
template <int N>
__device__ inline void zero_rows(const tigon_embedding_bwd_problem &p, const embedding_walk &w, int64_t block) {
  __shared__ bool touched[EMBEDDING_ZERO_ROWS];
  const int64_t first = block / w.zero_tiles * w.zero_rows, tile = block % w.zero_tiles;
  const int64_t end = first + w.zero_rows < p.vocab ? first + w.zero_rows : p.vocab;
  for (int i = (int)threadIdx.x; i < end - first; i += MAP_THREADS) touched[i] = false;
  __syncthreads();
  for (int64_t i = find_key(w, p.space.rows, first) + threadIdx.x; i < p.space.rows; i += MAP_THREADS) {
    const int64_t key = key_at(w, i);
    if (key >= end) break;
    touched[key - first] = true;
  }
  __syncthreads();
  const int64_t items = (end - first) * w.row_items, start = tile * EMBEDDING_ZERO_ITEMS;
  const int64_t stop = w.zero_tiles > 1 && start + EMBEDDING_ZERO_ITEMS < items ? start + EMBEDDING_ZERO_ITEMS : items;
  for (int64_t i = start + threadIdx.x; i < stop; i += MAP_THREADS) {
    if (touched[w.zero_rows == 1 ? 0 : (unsigned)i / (unsigned)w.row_items]) continue;
    if (N > 1)
      ((uint4 *)p.dtable)[first * w.row_items + i] = uint4{0, 0, 0, 0};
    else
      store_any(p.dtable, first * w.row_items + i, p.dtable_dtype, 0);
  }
}

template <class T, int N> __device__ inline void bwd(const tigon_embedding_bwd_problem &p, const embedding_walk &w) {
  if (blockIdx.x < w.sum_blocks)
    sum_rows<T, N>(p, w);
  else
    zero_rows<N>(p, w, blockIdx.x - w.sum_blocks);
}

/* The rows that were left in parts: a block has some columns of the row that goes on after chunk blockIdx.x / tiles and begins in it. */
extern "C" __global__ void __launch_bounds__(MAP_THREADS)
    embedding_join(const __grid_constant__ tigon_embedding_bwd_problem p, const __grid_constant__ embedding_walk w) {
  const int64_t tiles = (p.cols + MAP_THREADS - 1) / MAP_THREADS, chunk = blockIdx.x / tiles, rows = p.space.rows;
  const int64_t c = blockIdx.x % tiles * MAP_THREADS + threadIdx.x, begin = chunk * w.chunk, end = begin + w.chunk;
  if (end >= rows || c >= p.cols) return;
  const int64_t key = key_at(w, end - 1);
  if (key >= p.vocab || key_at(w, end) != key) return;
  if (begin > 0 && key_at(w, begin - 1) == key) return;
  const int64_t last = (find_key(w, rows, key + 1) - 1) / w.chunk;
  double sum = w.parts[(2 * chunk + 1) * p.cols + c];
#pragma unroll 8
  for (int64_t i = chunk + 1; i <= last; ++i) sum += w.parts[2 * i * p.cols + c];
  float v[1] = {(float)sum};
  put<float, 1>(p, key * p.cols + c, v);
}

#define FWD(name, n)                                                                                              \
  KERNEL_BY_DTYPE(embedding_fwd_##name, (MAP_THREADS),                                                            \
                  (const __grid_constant__ tigon_embedding_fwd_problem p, const __grid_constant__ map_walk walk), \
                  fwd<T, n>(p, walk))
#define BWD(name, n)                                                                                        \
  KERNEL_BY_DTYPE(                                                                                          \
      embedding_bwd_##name, (MAP_THREADS, 3),                                                               \
      (const __grid_constant__ tigon_embedding_bwd_problem p, const __grid_constant__ embedding_walk walk), \
      bwd<T, n>(p, walk))

KERNEL_BY_DTYPE(embedding_fwd_plain, (EMBEDDING_PLAIN_THREADS, SM_THREADS / EMBEDDING_PLAIN_THREADS),
                (const __grid_constant__ embedding_plain p), fwd_plain<T>(p))
FWD(wide, pack<T>::N)
FWD(any, 1)
BWD(wide, pack<T>::N)
BWD(any, 1)
