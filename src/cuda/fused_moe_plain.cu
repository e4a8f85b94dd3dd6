/* The products of fused_moe for f32, and for what is not aligned: f32 arithmetic. A block has one tile, through shared memory; a warp has
 * 16 x 64 of it. The products of SUM terms are summed by themselves, so that a long sum loses little. */
#include "cuda/kernel/moe_use.cuh"

enum { ROWS = MOE_PLAIN_ROWS, COLUMNS = MOE_PLAIN_COLUMNS, DEPTH = MOE_PLAIN_DEPTH, PAD = 4, SUM = 64 };
enum { WARP_COLUMNS = 64, NJ = WARP_COLUMNS / 8, ACROSS = COLUMNS / WARP_COLUMNS };
static_assert(ROWS / 16 * ACROSS == MOE_WARPS && SUM % DEPTH == 0, "16 rows a warp");

/* Column `at` of the tile in the expert's matrix; -1: there is none. */
template <int USE> __device__ inline int64_t column_of(const moe_product &q, const moe_area &area, int at) {
  if (USE == MOE_GATE && !q.p.interleaved) {
    const int64_t j = area.col / 2 + at / 16 * 8 + at % 8;
    return j < q.p.inner ? j + (at / 8 % 2 ? q.p.inner : 0) : -1;
  }
  return area.col + at < q.n ? area.col + at : -1;
}

/* tile[d][i] = get(i, d). Neighbouring threads have neighbouring terms, or rows. */
template <bool BY_TERM, int EXTENT, class F> __device__ inline void fill(float (&tile)[DEPTH][EXTENT + PAD], F get) {
#pragma unroll
  for (int e = 0; e < EXTENT * DEPTH / MOE_THREADS; ++e) {
    const int at = e * MOE_THREADS + (int)threadIdx.x;
    const int d = BY_TERM ? at / EXTENT : at % DEPTH, i = BY_TERM ? at % EXTENT : at / DEPTH;
    tile[d][i] = get(i, d);
  }
}

template <class T, int USE, bool BY_TERM> __device__ inline void multiply_tile(const moe_product &q) {
  __shared__ float as[DEPTH][ROWS + PAD], bs[DEPTH][COLUMNS + PAD];
  __shared__ int64_t rows[ROWS];
  moe_area area;
  if (!moe_area_of<USE, ROWS, COLUMNS>(q, moe_tile_count<USE>(q), (int)blockIdx.x, &area)) return;
  const int warp = (int)threadIdx.x / 32;
  const moe_place place(warp / ACROSS * 16, warp % ACROSS * WARP_COLUMNS);
  const int64_t terms = USE == MOE_WEIGHTS ? area.end - area.begin : q.k;
  if (USE != MOE_WEIGHTS && threadIdx.x < ROWS)
    rows[threadIdx.x] =
        (int)threadIdx.x < area.rows ? moe_row_offset(q.order, q.p.space, q.a, area.row + (int)threadIdx.x) : -1;
  __syncthreads();
  /* A row of slots as a term. */
  const auto slot_term = [&](const moe_rows &of, int64_t term, int64_t column, int64_t columns) {
    if (term >= terms || column >= columns) return 0.0f;
    const int64_t row = moe_row_offset(q.order, q.p.space, of, area.begin + (int)term);
    return to_f32(((const T *)of.rows.data)[row + column]);
  };
  const T *matrix = (const T *)q.weights.data + area.expert * q.weights.expert;
  const moe_needs<1> needs = moe_need<USE, T, 1, NJ>(q, area, place);
  float total[1][NJ][4] = {}, part[NJ][4] = {};
  for (int64_t k0 = 0; k0 < terms; k0 += DEPTH) {
    if constexpr (USE == MOE_WEIGHTS) {
      fill<true, ROWS>(as, [&](int i, int d) { return slot_term(q.a, k0 + d, area.row + i, q.m); });
      fill<true, COLUMNS>(bs, [&](int i, int d) { return slot_term(q.b, k0 + d, area.col + i, q.n); });
    } else {
      fill<false, ROWS>(as, [&](int i, int d) {
        return rows[i] >= 0 && k0 + d < terms ? to_f32(((const T *)q.a.rows.data)[rows[i] + k0 + d]) : 0.0f;
      });
      fill<BY_TERM, COLUMNS>(bs, [&](int i, int d) {
        const int64_t column = column_of<USE>(q, area, i), term = k0 + d;
        if (column < 0 || term >= terms) return 0.0f;
        return to_f32(matrix[BY_TERM ? term * q.weights.pitch + column : column * q.weights.pitch + term]);
      });
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      const float a[2] = {as[d][place.row + place.g], as[d][place.row + place.g + 8]};
#pragma unroll
      for (int j = 0; j < NJ; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          part[j][e] = fmaf(a[e / 2], bs[d][place.col + 8 * j + 2 * place.t + e % 2], part[j][e]);
    }
    __syncthreads();
    if ((k0 + DEPTH) % SUM != 0 && k0 + DEPTH < terms) continue;
#pragma unroll
    for (int j = 0; j < NJ; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) total[0][j][e] += part[j][e], part[j][e] = 0;
  }
  moe_use_sums<USE, T, false>(q, area, place, needs, total);
}

#define KERNELS(name, use, by_term)                                                               \
  KERNEL_BY_DTYPE(fused_moe_plain_##name, (MOE_THREADS), (const __grid_constant__ moe_product q), \
                  (multiply_tile<T, use, by_term>(q)))
KERNELS(gate_rows, MOE_GATE, false)
KERNELS(gate_terms, MOE_GATE, true)
KERNELS(store_rows, MOE_STORE, false)
KERNELS(store_terms, MOE_STORE, true)
KERNELS(slopes_rows, MOE_SLOPES, false)
KERNELS(slopes_terms, MOE_SLOPES, true)
KERNELS(weights, MOE_WEIGHTS, true)
