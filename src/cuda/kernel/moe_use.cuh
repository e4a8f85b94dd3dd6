/* From a tile's sums to memory. T is the problem's dtype, and WIDE as in moe_fragment.cuh. */
#ifndef TIGON_CUDA_KERNEL_MOE_USE_CUH
#define TIGON_CUDA_KERNEL_MOE_USE_CUH

#include "cuda/kernel/moe_fragment.cuh"
#include "cuda/kernel/moe_gate.cuh"
#include "cuda/kernel/moe_rows.cuh"

/* A lane's row of a tile. */
struct moe_row {
  int position;
  bool there;
};
__device__ static inline moe_row moe_row_of(const moe_area &area, const moe_place &place, int i, int h) {
  const int r = place.row + 16 * i + place.g + 8 * h;
  return moe_row{area.row + r, r < area.rows};
}

/* What a lane needs after the sums, on its way before them: the weights of its rows. */
template <int MI> struct moe_needs { float w[MI][2]; };
template <int USE, class T, int MI, int NJ>
__device__ inline moe_needs<MI> moe_need(const moe_product &q, const moe_area &area, const moe_place &place) {
  moe_needs<MI> needs;
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const moe_row row = moe_row_of(area, place, i, h);
      const bool weighted = USE == MOE_SLOPES || (USE != MOE_WEIGHTS && q.weighted);
      needs.w[i][h] = weighted && row.there ? load_any(q.p.w.data, q.order.slot[row.position], q.p.w.dtype) : 1;
      if constexpr (USE == MOE_SLOPES) { /* lines of pre that the warp's rows have in the tile, a quarter a lane */
        enum { LINE = 128 / sizeof(T) };
        const int inner = (int)q.p.inner, each = q.p.interleaved ? 1 : 2, columns = 16 * NJ / each;
        const int begin = (area.col + place.col) * 2 / each;
        const T *pre = (const T *)q.pre + (int64_t)row.position * 2 * inner;
        for (int half = 0; half < each; ++half)
          for (int c = begin + place.t * LINE; c < min(begin + columns, 2 * inner / each); c += 4 * LINE)
            if (row.there) prefetch(pre + half * inner + c);
      }
    }
  return needs;
}

/* v += the bias of columns `col`.. of the expert, which begin at `from` of its vector and are `end`. */
__device__ static inline void moe_add_bias(const moe_product &q, int64_t from, int col, int end, int t,
                                           float (&v)[4][2]) {
  if (!q.bias.data) return;
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int c = col + 8 * k + 2 * t + e;
      if (c < end) v[k][e] += load_any(q.bias.data, from + c, q.bias.dtype);
    }
}

/* Row h of block i: of the four blocks j, j + STEP, .. */
template <int STEP, int MI, int NJ>
__device__ inline void moe_take(const float (&acc)[MI][NJ][4], int i, int j, int h, float (&v)[4][2]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k][0] = acc[i][j + STEP * k][2 * h], v[k][1] = acc[i][j + STEP * k][2 * h + 1];
}

/* The same of unit `at`: four blocks in order, by rows h, by i, and the row's weight. The branch only chooses registers. An index that is not
 * constant would put all sums into memory, and a body for each unit would not fit the instruction cache. */
template <int MI, int NJ>
__device__ inline float moe_take_unit(const float (&acc)[MI][NJ][4], const moe_needs<MI> &needs, int at,
                                      float (&v)[4][2]) {
  enum { FOURS = NJ / 4, UNITS = 2 * MI * FOURS };
  static_assert(UNITS <= 16, "as many as are listed");
  float w = 0;
  switch (at) {
#define UNIT(u)                                                         \
  case u:                                                               \
    if constexpr (u < UNITS) {                                          \
      moe_take<1>(acc, u / 2 / FOURS, u % FOURS * 4, u / FOURS % 2, v); \
      w = needs.w[u / 2 / FOURS][u / FOURS % 2];                        \
    }                                                                   \
    break;
    UNIT(0)
    UNIT(1)
    UNIT(2)
    UNIT(3)
    UNIT(4)
    UNIT(5)
    UNIT(6)
    UNIT(7)
    UNIT(8)
    UNIT(9)
    UNIT(10)
    UNIT(11)
    UNIT(12)
    UNIT(13)
    UNIT(14)
    UNIT(15)
#undef UNIT
  }
  return w;
}

template <class T> __device__ inline void moe_round(float (&v)[4][2]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k][0] = rounded<T>(v[k][0]), v[k][1] = rounded<T>(v[k][1]);
}
__device__ static inline void moe_scale(float (&v)[4][2], float by) {
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k][0] *= by, v[k][1] *= by;
}

/* 32 columns of a row of the gate and of up, rounded, to pre, and c of them. The first one is column `first` of the product. Interleaved: a
 * and b are the first and the second half of these columns of pre. */
template <class T, bool WIDE>
__device__ inline void moe_put_gate(const moe_product &q, const moe_row &row, int first, int t, float w,
                                    const float (&a)[4][2], const float (&b)[4][2]) {
  const int inner = (int)q.p.inner, col = first / 2;
  const moe_gate<T> gate(q.p);
  T *pre = (T *)q.out + (int64_t)row.position * 2 * inner, *to = (T *)q.c + (int64_t)row.position * inner;
  const bool turns = q.p.interleaved;
  float c[4][2];
  if (q.out) moe_put<T, WIDE>(pre, row.there, turns ? first : col, turns ? 2 * inner : inner, t, a);
  if (q.out)
    moe_put<T, WIDE>(turns ? pre : pre + inner, row.there, turns ? first + 32 : col, turns ? 2 * inner : inner, t, b);
  if (!q.c) return;
  if (turns) { /* A lane has a and b of one column of c in each block. */
    const float gates[4][2] = {{a[0][0], a[1][0]}, {a[2][0], a[3][0]}, {b[0][0], b[1][0]}, {b[2][0], b[3][0]}};
    const float ups[4][2] = {{a[0][1], a[1][1]}, {a[2][1], a[3][1]}, {b[0][1], b[1][1]}, {b[2][1], b[3][1]}};
    float by_turns[8];
    gate.c(gates, ups, c);
#pragma unroll
    for (int k = 0; k < 8; ++k) by_turns[k] = c[k / 2][k % 2];
    moe_gather(by_turns, t, c);
  } else {
    gate.c(a, b, c);
  }
  moe_scale(c, w);
  moe_put<T, WIDE>(to, row.there, col, inner, t, c);
}

/* pre and c. Eight blocks are 32 columns of c. */
template <class T, bool WIDE, int MI, int NJ>
__device__ inline void moe_use_gate(const moe_product &q, const moe_area &area, const moe_place &place,
                                    const moe_needs<MI> &needs, const float (&acc)[MI][NJ][4]) {
  const int inner = (int)q.p.inner, t = place.t;
  const int64_t bias = (int64_t)area.expert * 2 * inner;
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int j = 0; j < NJ; j += 8) {
        const int first = area.col + place.col + 8 * j;
        float a[4][2], b[4][2];
        if (q.p.interleaved) {
          moe_take<1>(acc, i, j, h, a);
          moe_take<1>(acc, i, j + 4, h, b);
          moe_add_bias(q, bias, first, 2 * inner, t, a);
          moe_add_bias(q, bias, first + 32, 2 * inner, t, b);
        } else {
          moe_take<2>(acc, i, j, h, a);
          moe_take<2>(acc, i, j + 1, h, b);
          moe_add_bias(q, bias, first / 2, inner, t, a);
          moe_add_bias(q, bias + inner, first / 2, inner, t, b);
        }
        moe_round<T>(a), moe_round<T>(b);
        moe_put_gate<T, WIDE>(q, moe_row_of(area, place, i, h), first, t, needs.w[i][h], a, b);
      }
}

/* Rows of `out`. */
template <class T, bool WIDE, int MI, int NJ>
__device__ inline void moe_use_store(const moe_product &q, const moe_area &area, const moe_place &place,
                                     const moe_needs<MI> &needs, const float (&acc)[MI][NJ][4]) {
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const moe_row row = moe_row_of(area, place, i, h);
#pragma unroll
      for (int j = 0; j < NJ; j += 4) {
        const int col = area.col + place.col + 8 * j;
        float v[4][2];
        moe_take<1>(acc, i, j, h, v);
        moe_add_bias(q, area.expert * q.n, col, (int)q.n, place.t, v);
        if (q.weighted) moe_scale(v, needs.w[i][h]);
        moe_put<T, WIDE>((T *)q.out + row.position * q.n, row.there, col, (int)q.n, place.t, v);
      }
    }
}

/* a and b of four blocks of a row of pre. WIDE ones are on their way before they are needed. */
template <class T, bool WIDE> struct moe_pre {
  const T *row;
  bool there;
  int col, t;
  uint4 bits[2];

  __device__ void begin(const moe_product &q, const moe_row &of, int col_, int t_) {
    const int inner = (int)q.p.inner;
    row = (const T *)q.pre + (int64_t)of.position * 2 * inner, there = of.there, col = col_, t = t_;
    if constexpr (WIDE) {
      if (q.p.interleaved) return moe_fetch_turns(row, there, col, inner, t, bits);
      bits[0] = moe_fetch(row, there, col, inner, t), bits[1] = moe_fetch(row + inner, there, col, inner, t);
    }
  }
  __device__ void end(const moe_product &q, float (&a)[4][2], float (&b)[4][2]) const {
    const int inner = (int)q.p.inner;
    if constexpr (WIDE) {
      if (q.p.interleaved) return moe_spread_turns<T>(bits, a, b);
      moe_spread<T>(bits[0], t, a), moe_spread<T>(bits[1], t, b);
    } else {
      if (q.p.interleaved) return moe_get_turns(row, there, col, inner, t, a, b);
      moe_get(row, there, col, inner, t, a), moe_get(row + inner, there, col, inner, t, b);
    }
  }
};

/* dpre, w * c and a part of dw; the sums are d. */
template <class T, bool WIDE, int MI, int NJ>
__device__ inline void moe_use_slopes(const moe_product &q, const moe_area &area, const moe_place &place,
                                      const moe_needs<MI> &needs, const float (&acc)[MI][NJ][4]) {
  enum { FOURS = NJ / 4, UNITS = 2 * MI * FOURS, AHEAD = 2 };
  const int inner = (int)q.p.inner, t = place.t, first = area.col + place.col;
  const moe_gate<T> gate(q.p);
  moe_pre<T, WIDE> pre[AHEAD];
  float dot = 0;
  const auto row_of = [&](int unit) { return moe_row_of(area, place, unit / 2 / FOURS, unit / FOURS % 2); };
  const auto begin = [&](int unit, moe_pre<T, WIDE> &of) { of.begin(q, row_of(unit), first + unit % FOURS * 32, t); };
#pragma unroll
  for (int unit = 0; unit < AHEAD; ++unit) begin(unit, pre[unit]);
#pragma unroll 1
  for (int unit0 = 0; unit0 < UNITS; unit0 += AHEAD) {
#pragma unroll
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
      const int unit = unit0 + ahead, col = first + unit % FOURS * 32;
      const moe_row row = row_of(unit);
      T *dpre = (T *)q.out + (int64_t)row.position * 2 * inner, *to = (T *)q.c + (int64_t)row.position * inner;
      float d[4][2], dc[4][2], a[4][2], b[4][2], c[4][2];
      const float w = moe_take_unit(acc, needs, unit, d);
      pre[ahead].end(q, a, b);
      if (unit + AHEAD < UNITS) begin(unit + AHEAD, pre[ahead]);
#pragma unroll
      for (int k = 0; k < 4; ++k) dc[k][0] = w * d[k][0], dc[k][1] = w * d[k][1];
      gate.slopes(dc, a, b, c);
      /* beyond `inner` d is dy's product with 0, which may be NaN */
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (col + 8 * k + 2 * t + 1 < inner) dot = fmaf(d[k][1], c[k][1], dot);
        if (col + 8 * k + 2 * t < inner) dot = fmaf(d[k][0], c[k][0], dot);
      }
      if (q.p.interleaved) {
        moe_put_turns<T, WIDE>(dpre, row.there, col, inner, t, a, b);
      } else {
        moe_put<T, WIDE>(dpre, row.there, col, inner, t, a);
        moe_put<T, WIDE>(dpre + inner, row.there, col, inner, t, b);
      }
      moe_scale(c, w);
      moe_put<T, WIDE>(to, row.there, col, inner, t, c);
      if ((unit + 1) % FOURS != 0) continue;
      dot += __shfl_xor_sync(0xffffffffu, dot, 1);
      dot += __shfl_xor_sync(0xffffffffu, dot, 2);
      if (q.dots && row.there && first < inner && t == 0) q.dots[row.position * q.parts + first / (8 * NJ)] = dot;
      dot = 0;
    }
  }
}

/* Rows of the expert's gradient, whose dtype is f32 or T. */
template <class T, bool WIDE, int MI, int NJ>
__device__ inline void moe_use_weights(const moe_product &q, const moe_area &area, const moe_place &place,
                                       const float (&acc)[MI][NJ][4]) {
  const tigon_expert_weights &to = q.weights;
  const bool add = q.p.accumulate;
  if (add && area.begin == area.end) return;
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const moe_row row = moe_row_of(area, place, i, h); /* a row of the matrix */
      const int64_t at = area.expert * to.expert + row.position * to.pitch;
#pragma unroll
      for (int j = 0; j < NJ; j += 4) {
        const int col = area.col + place.col + 8 * j;
        float v[4][2];
        moe_take<1>(acc, i, j, h, v);
        if (WIDE && to.dtype == TIGON_F32) {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int c = col + 8 * k + 2 * place.t;
            if (!row.there || c >= q.n) continue;
            float2 *both = (float2 *)((float *)to.data + at + c);
            const float2 old = add ? *both : float2{0, 0};
            *both = float2{v[k][0] + old.x, v[k][1] + old.y};
          }
        } else if (to.dtype == TIGON_F32) {
          float *out = (float *)to.data + at;
          float old[4][2] = {};
          if (add) moe_get(out, row.there, col, (int)q.n, place.t, old);
#pragma unroll
          for (int k = 0; k < 4; ++k) v[k][0] += old[k][0], v[k][1] += old[k][1];
          moe_put<float, false>(out, row.there, col, (int)q.n, place.t, v);
        } else {
          T *out = (T *)to.data + at;
          float old[4][2] = {};
          if constexpr (WIDE) {
            if (add) moe_spread<T>(moe_fetch(out, row.there, col, (int)q.n, place.t), place.t, old);
          } else {
            if (add) moe_get(out, row.there, col, (int)q.n, place.t, old);
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) v[k][0] += old[k][0], v[k][1] += old[k][1];
          moe_put<T, WIDE>(out, row.there, col, (int)q.n, place.t, v);
        }
      }
    }
}

template <int USE, class T, bool WIDE, int MI, int NJ>
__device__ inline void moe_use_sums(const moe_product &q, const moe_area &area, const moe_place &place,
                                    const moe_needs<MI> &needs, const float (&acc)[MI][NJ][4]) {
  static_assert(NJ % 8 == 0, "blocks are taken by eight");
  if constexpr (USE == MOE_GATE)
    moe_use_gate<T, WIDE>(q, area, place, needs, acc);
  else if constexpr (USE == MOE_STORE)
    moe_use_store<T, WIDE>(q, area, place, needs, acc);
  else if constexpr (USE == MOE_SLOPES)
    moe_use_slopes<T, WIDE>(q, area, place, needs, acc);
  else
    moe_use_weights<T, WIDE>(q, area, place, acc);
}

#endif
