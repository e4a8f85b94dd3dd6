/* Results of a tile on their way to memory: the warpgroups that multiply leave their rounded sums in shared memory and go on, and one more
 * warpgroup does the rest. 16-bit T; a warpgroup that multiplies has 64 rows of the tile, and a warp of it 16. */
#ifndef TIGON_CUDA_KERNEL_MOE_STAGED_CUH
#define TIGON_CUDA_KERNEL_MOE_STAGED_CUH

#include "cuda/kernel/moe_use.cuh"

/* Bytes from a staged row to the next: eight rows at the same column are in different banks. f32 ones are of half the tile's columns. */
enum { MOE_STAGED_PITCH = 2 * (MOE_WGMMA_COLUMNS + 8), MOE_STAGED_F32_PITCH = MOE_WGMMA_STAGED };
static_assert(MOE_STAGED_PITCH <= MOE_WGMMA_STAGED, "as there is room for");

/* Are results staged? MOE_SLOPES: those of the second half of the columns, as f32. Of others the sums rounded, but for the bias and the row's
 * weight. */
template <int USE> __device__ inline bool moe_is_staged(const moe_product &q) {
  return USE != MOE_WEIGHTS || (!q.p.accumulate && q.weights.dtype != TIGON_F32);
}

/* The first half of a tile has columns of the gate, and the second those of up. */
template <int USE> __device__ inline bool moe_halves(const moe_product &q) {
  return USE == MOE_GATE && !q.p.interleaved;
}

template <int USE, int NJ>
__device__ inline void moe_add_biases(const moe_product &q, const moe_area &area, int t, float (&acc)[NJ][4]) {
  const bool halves = moe_halves<USE>(q);
  const int n = (int)q.n, first = halves ? area.col / 2 : area.col, end = halves ? n / 2 : n;
  const int64_t bias = (int64_t)area.expert * n;
#pragma unroll
  for (int j = 0; j < NJ; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool second = j >= NJ / 2 && halves;
      const int c = first + 8 * (second ? j - NJ / 2 : j) + 2 * t + e;
      const float v = c < end ? load_any(q.bias.data, bias + (second ? end : 0) + c, q.bias.dtype) : 0;
      acc[j][e] += v, acc[j][2 + e] += v;
    }
}

/* The warp's sums to its 16 rows, which begin at `rows`. */
template <int USE, class T, int NJ>
__device__ inline void moe_stage(const moe_product &q, const moe_area &area, int t, const moe_needs<1> &needs,
                                 float (&acc)[NJ][4], unsigned rows) {
  if (USE != MOE_WEIGHTS && q.bias.data) moe_add_biases<USE>(q, area, t, acc);
  if (USE == MOE_STORE && q.weighted) {
#pragma unroll
    for (int j = 0; j < NJ; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[j][e] *= needs.w[0][e / 2];
  }
  const int lane = (int)threadIdx.x % 32;
  const unsigned at = rows + lane % 16 * MOE_STAGED_PITCH + lane / 16 * 16;
#pragma unroll
  for (int j = 0; j < NJ; j += 2)
    stmatrix(at + j * 16, packed_two<T>(acc[j][0], acc[j][1]), packed_two<T>(acc[j][2], acc[j][3]),
             packed_two<T>(acc[j + 1][0], acc[j + 1][1]), packed_two<T>(acc[j + 1][2], acc[j + 1][3]));
}

/* The same of MOE_SLOPES, in f32: of the second half of the columns. */
template <int NJ>
__device__ inline void moe_stage_f32(const moe_place &place, const float (&acc)[NJ][4], unsigned rows) {
  const unsigned at = rows + place.g * MOE_STAGED_F32_PITCH + place.t * 8;
#pragma unroll
  for (int j = 0; j < NJ; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      store_shared_8_bytes(at + h * 8 * MOE_STAGED_F32_PITCH + j * 32, acc[j][2 * h], acc[j][2 * h + 1]);
}

/* Eight columns of a gate and of up as moe_gate takes them, and back. `turns`: they lie by turns in both packs. */
template <class T>
__device__ inline void moe_spread_packs(const uint4 &a, const uint4 &b, bool turns, float (&gates)[4][2],
                                        float (&ups)[4][2]) {
  const unsigned words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float2 low = unpacked_two<T>(turns ? words[2 * k] : words[k]);
    const float2 high = unpacked_two<T>(turns ? words[2 * k + 1] : words[k + 4]);
    gates[k][0] = low.x, gates[k][1] = turns ? high.x : low.y;
    ups[k][0] = turns ? low.y : high.x, ups[k][1] = high.y;
  }
}
template <class T> __device__ inline uint4 moe_pack_of(const float (&v)[4][2]) {
  return uint4{packed_two<T>(v[0][0], v[0][1]), packed_two<T>(v[1][0], v[1][1]), packed_two<T>(v[2][0], v[2][1]),
               packed_two<T>(v[3][0], v[3][1])};
}

/* dpre, w * c and a part of dw of the second half of the tile's columns; `rank` of THREADS threads, of which whole warps take part. */
template <class T, int ROWS, int THREADS>
__device__ inline void moe_put_slopes(const moe_product &q, const moe_area &area, int first, unsigned from, int rank) {
  enum { PACK = 8, HALF = MOE_WGMMA_COLUMNS / 2, ACROSS = HALF / PACK, STEP = THREADS / ACROSS };
  const int inner = (int)q.p.inner, piece = rank % ACROSS, col = area.col + HALF + piece * PACK;
  const int rows = min(ROWS, area.rows - first);
  const bool turns = q.p.interleaved, inside = col < inner;
  const moe_gate<T> gate(q.p);
  if (area.col + HALF >= inner) return;
#pragma unroll 1
  for (int r0 = 0; r0 < rows; r0 += STEP) {
    const int r = r0 + rank / ACROSS;
    const bool there = r < rows && inside;
    const int64_t position = area.row + first + r, at = position * 2 * inner + (turns ? 2 * col : col);
    const int second = turns ? PACK : inner;
    float dot = 0;
    if (there) {
      const T *pre = (const T *)q.pre + at;
      const uint4 pre_a = *(const uint4 *)pre, pre_b = *(const uint4 *)(pre + second);
      const unsigned staged = from + r * MOE_STAGED_F32_PITCH + piece * 32;
      const uint4 low = load_shared_16_bytes(staged), high = load_shared_16_bytes(staged + 16);
      const float w = load_any(q.p.w.data, q.order.slot[position], q.p.w.dtype);
      const unsigned d_bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float a[4][2], b[4][2], c[4][2], dc[4][2];
#pragma unroll
      for (int k = 0; k < 8; ++k) dc[k / 2][k % 2] = w * __uint_as_float(d_bits[k]);
      moe_spread_packs<T>(pre_a, pre_b, turns, a, b);
      gate.slopes(dc, a, b, c);
#pragma unroll
      for (int k = 0; k < 8; ++k) dot = fmaf(__uint_as_float(d_bits[k]), c[k / 2][k % 2], dot);
      T *dpre = (T *)q.out + at;
      if (turns) {
        const float low_half[4][2] = {{a[0][0], b[0][0]}, {a[0][1], b[0][1]}, {a[1][0], b[1][0]}, {a[1][1], b[1][1]}};
        const float high_half[4][2] = {{a[2][0], b[2][0]}, {a[2][1], b[2][1]}, {a[3][0], b[3][0]}, {a[3][1], b[3][1]}};
        store_16_bytes(dpre, moe_pack_of<T>(low_half));
        store_16_bytes(dpre + second, moe_pack_of<T>(high_half));
      } else {
        store_16_bytes(dpre, moe_pack_of<T>(a));
        store_16_bytes(dpre + second, moe_pack_of<T>(b));
      }
      moe_scale(c, w);
      store_16_bytes((T *)q.c + position * inner + col, moe_pack_of<T>(c));
    }
#pragma unroll
    for (int d = ACROSS / 2; d > 0; d /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, d);
    if (q.dots && r < rows && piece == 0) q.dots[position * q.parts + (area.col + HALF) / HALF] = dot;
  }
}

/* From ROWS staged rows to memory, which are the tile's from `first` on; `rank` of THREADS threads. */
template <int USE, class T, int ROWS, int THREADS>
__device__ inline void moe_put_staged(const moe_product &q, const moe_area &area, int first, unsigned from, int rank) {
  enum { PACK = 8, COLUMNS = MOE_WGMMA_COLUMNS };
  if constexpr (USE == MOE_SLOPES) {
    moe_put_slopes<T, ROWS, THREADS>(q, area, first, from, rank);
  } else if constexpr (USE == MOE_GATE) {
    enum { ACROSS = COLUMNS / 2 / PACK, STEP = THREADS / ACROSS };
    const int inner = (int)q.p.inner, piece = rank % ACROSS, col = area.col / 2 + piece * PACK;
    const bool turns = q.p.interleaved;
    const moe_gate<T> gate(q.p);
    if (col >= inner) return;
#pragma unroll 2
    for (int r = rank / ACROSS; r < min(ROWS, area.rows - first); r += STEP) {
      const int64_t position = area.row + first + r;
      const unsigned at = from + r * MOE_STAGED_PITCH + piece * (turns ? 32 : 16);
      const uint4 a = load_shared_16_bytes(at), b = load_shared_16_bytes(at + (turns ? 16 : COLUMNS));
      T *pre = (T *)q.out + position * 2 * inner;
      if (q.out) store_16_bytes(turns ? pre + 2 * col : pre + col, a);
      if (q.out) store_16_bytes(turns ? pre + 2 * col + PACK : pre + inner + col, b);
      if (!q.c) continue;
      const float w = q.weighted ? load_any(q.p.w.data, q.order.slot[position], q.p.w.dtype) : 1;
      float gates[4][2], ups[4][2], c[4][2];
      moe_spread_packs<T>(a, b, turns, gates, ups);
      gate.c(gates, ups, c);
      moe_scale(c, w);
      store_16_bytes((T *)q.c + position * inner + col, moe_pack_of<T>(c));
    }
  } else {
    enum { ACROSS = COLUMNS / PACK, STEP = THREADS / ACROSS };
    const int piece = rank % ACROSS, col = area.col + piece * PACK;
    const int64_t pitch = USE == MOE_WEIGHTS ? q.weights.pitch : q.n;
    T *to = USE == MOE_WEIGHTS ? (T *)q.weights.data + area.expert * q.weights.expert : (T *)q.out;
    if (col >= q.n) return;
#pragma unroll 4
    for (int r = rank / ACROSS; r < min(ROWS, area.rows - first); r += STEP)
      store_16_bytes(to + (area.row + first + r) * pitch + col,
                     load_shared_16_bytes(from + r * MOE_STAGED_PITCH + piece * 16));
  }
}

#endif
