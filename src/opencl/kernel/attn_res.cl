/* A launch has some blocks, as each may lie in a buffer of its own. Forward reads v twice: for the sums over a block's row, and for h. Backward
 * does so for its sums, and for dv with the terms of u, in slabs of every slabs-th token. */
#include "rows.cl"
#include "attn_res.h"
#include "sum.cl"

#define BLOCKS_OF(name)                                                                                 \
  TENSOR(name##0), TENSOR(name##1), TENSOR(name##2), TENSOR(name##3), TENSOR(name##4), TENSOR(name##5), \
      TENSOR(name##6), TENSOR(name##7)
#define MEMORY_OF_BLOCKS(name)                                                                          \
  {                                                                                                     \
    memory_of(name##0), memory_of(name##1), memory_of(name##2), memory_of(name##3), memory_of(name##4), \
        memory_of(name##5), memory_of(name##6), memory_of(name##7)                                      \
  }

/* Column vectors of a work-item. */
#define FOR_COLUMNS(i, n, cols)                                           \
  for (long i = (long)get_global_id(0) * LANES, n = (cols)-i; i < (cols); \
       i += (long)get_global_size(0) * LANES, n = (cols)-i)

/* c = q * wn */
__kernel void attn_res_c(TENSOR(q), TENSOR(wn), TENSOR(c), const attn_res_numbers k) {
  FOR_COLUMNS(i, n, k.cols)
  store_n(memory_of(c), i, F32, n, load_n(memory_of(q), i, k.q_dtype, n) * load_n(memory_of(wn), i, k.wn_dtype, n));
}

/* Words: the sums of c * v, and of v * v, or of dh * v where there is a dh. */
__kernel void attn_res_sums(BLOCKS_OF(v), TENSOR(c), TENSOR(dh), TENSOR(words), const attn_res_numbers k) {
  ROOM
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long at = row_offset(&k.space, &k.v, r), other_at = is_there(dh) ? row_offset(&k.space, &k.h, r) : at;
    for (long b = 0; b < k.count; ++b) {
      const memory own = of[b], other = is_there(dh) ? memory_of(dh) : own;
      vpair of_c = VPAIR_START, of_other = VPAIR_START;
      vf c_part = 0, other_part = 0;
      FOR_SUMS(i, n, k.cols, (vpair_take(&of_c, &c_part), vpair_take(&of_other, &other_part))) {
        const vf x = load_n(own, at + i, T, n);
        c_part = fma(load_n(memory_of(c), i, F32, n), x, c_part);
        other_part = fma(load_n(other, other_at + i, T, n), x, other_part);
      }
      const float c_sum = row_total(of_c), other_sum = row_total(of_other);
      floats to = FLOATS_OF(words) + r * k.blocks + k.first + b;
      if (row_leads()) to[0] = c_sum, to[k.space.rows * k.blocks] = other_sum;
    }
  }
}

/* ---- forward ---- */

/* A work-item has tokens: their first words become the weights. */
__kernel void attn_res_weights(TENSOR(words), TENSOR(a), TENSOR(rstd), const attn_res_numbers k) {
  for (long r = (long)get_global_id(0); r < k.space.rows; r += (long)get_global_size(0)) {
    floats w = FLOATS_OF(words) + r * k.blocks, squares = w + k.space.rows * k.blocks;
    float largest = -INFINITY;
    pair sum = {0, 0};
    for (long i = 0; i < k.blocks; ++i) {
      const float of = 1 / sqrt((k.cols > 0 ? squares[i] / (float)k.cols : 0) + k.eps);
      if (is_there(rstd)) FLOATS_OF(rstd)[r * k.blocks + i] = of;
      w[i] = k.cols > 0 ? w[i] * of : 0;
      largest = fmax(w[i], largest);
    }
    for (long i = 0; i < k.blocks; ++i) {
      w[i] = exp_one(w[i] - largest);
      sum = pair_add(sum, w[i]);
    }
    for (long i = 0; i < k.blocks; ++i) {
      w[i] /= pair_value(sum);
      if (is_there(a)) FLOATS_OF(a)[r * k.blocks + i] = w[i];
    }
  }
}

/* h, or with blocks left to come its sum so far. */
__kernel void attn_res_mix(BLOCKS_OF(v), TENSOR(words), TENSOR(sums), TENSOR(h), const attn_res_numbers k) {
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v);
  const bool last = k.first + k.count == k.blocks;
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long at = row_offset(&k.space, &k.v, r), to = row_offset(&k.space, &k.h, r);
    float w[ATTN_RES_BLOCKS];
    for (int b = 0; b < k.count; ++b) w[b] = FLOATS_OF(words)[r * k.blocks + k.first + b];
    FOR_ROW(i, n, k.cols) {
      vf sum = 0;
      if (k.first > 0) sum = load_n(memory_of(sums), r * k.cols + i, F32, n);
#pragma unroll
      for (int b = 0; b < ATTN_RES_BLOCKS; ++b)
        if (b < k.count) sum = fma((vf)(w[b]), load_n(of[b], at + i, T, n), sum);
      if (last)
        store_n(memory_of(h), to + i, T, n, sum);
      else
        store_n(memory_of(sums), r * k.cols + i, F32, n, sum);
    }
  }
}

/* ---- backward ---- */

/* A work-item has tokens, whose words become `back` and `slope`: dv = a dh + slope * (c - back * v). */
__kernel void attn_res_slopes(TENSOR(words), TENSOR(a), TENSOR(rstd), const attn_res_numbers k) {
  for (long r = (long)get_global_id(0); r < k.space.rows; r += (long)get_global_size(0)) {
    floats back = FLOATS_OF(words) + r * k.blocks, slope = back + k.space.rows * k.blocks;
    floats weights = FLOATS_OF(a) + r * k.blocks, scales = FLOATS_OF(rstd) + r * k.blocks;
    pair mean = {0, 0};
    for (long i = 0; i < k.blocks; ++i) mean = pair_add(mean, weights[i] * slope[i]);
    for (long i = 0; i < k.blocks; ++i) {
      slope[i] = weights[i] * (slope[i] - pair_value(mean)) * scales[i];
      back[i] = scales[i] * back[i] * scales[i] / (float)k.cols;
    }
  }
}

enum { WIDE = IS_ALONE ? ATTN_RES_LONG : ATTN_RES_WIDE };

/* A row is a slab; a work-item has some vectors of columns of all its tokens. */
__kernel void attn_res_dv(BLOCKS_OF(v), BLOCKS_OF(dv), TENSOR(c), TENSOR(dh), TENSOR(words), TENSOR(a), TENSOR(u),
                          const attn_res_numbers k) {
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v), out[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(dv);
  const long slab = row_first(), begin = (long)get_global_id(1) * (WIDE * GROUP * LANES) + row_lane() * LANES;
  vf sums[WIDE];
  for (int w = 0; w < WIDE; ++w) sums[w] = 0;
  for (long r = slab; r < k.space.rows; r += row_step()) {
    const long at = row_offset(&k.space, &k.v, r), to = row_offset(&k.space, &k.dv, r);
    const long g_at = row_offset(&k.space, &k.h, r), word = r * k.blocks + k.first;
    float back[ATTN_RES_BLOCKS], slope[ATTN_RES_BLOCKS], weight[ATTN_RES_BLOCKS];
    for (int b = 0; b < k.count; ++b) {
      back[b] = -FLOATS_OF(words)[word + b], slope[b] = FLOATS_OF(words)[word + b + k.space.rows * k.blocks];
      weight[b] = FLOATS_OF(a)[word + b];
    }
    for (int w = 0; w < WIDE; ++w) {
      const long i = begin + w * (GROUP * LANES), n = k.cols - i;
      if (n <= 0) break;
      const vf g = load_n(memory_of(dh), g_at + i, T, n), of_c = load_n(memory_of(c), i, F32, n);
      vf sum = sums[w];
#pragma unroll
      for (int b = 0; b < ATTN_RES_BLOCKS; ++b) {
        if (b >= k.count) break;
        const vf x = load_n(of[b], at + i, T, n), off = fma((vf)(back[b]), x, of_c);
        store_n(out[b], to + i, T, n, fma((vf)(weight[b]), g, slope[b] * off));
        sum = fma((vf)(slope[b]), x, sum);
      }
      sums[w] = sum;
    }
  }
  for (int w = 0; w < WIDE && is_there(u); ++w) {
    const long i = begin + w * (GROUP * LANES), n = k.cols - i, at = slab * k.cols + i;
    if (n <= 0) break;
    if (k.first > 0) sums[w] += load_n(memory_of(u), at, F32, n);
    store_n(memory_of(u), at, F32, n, sums[w]);
  }
}

static inline void put_sum(memory to, long i, int dtype, long n, vf v, bool accumulate) {
  if (accumulate) v += load_n(to, i, dtype, n);
  store_n(to, i, dtype, n, v);
}

/* dq = u * wn and dwn = u * q. */
__kernel void attn_res_end(TENSOR(u), TENSOR(q), TENSOR(wn), TENSOR(dq), TENSOR(dwn), const attn_res_numbers k) {
  FOR_COLUMNS(i, n, k.cols) {
    vpair sum = {(vf)(0.0f), (vf)(0.0f)};
    for (long s = 0; s < k.slabs; ++s) sum = vpair_add(sum, load_n(memory_of(u), s * k.cols + i, F32, n));
    const vf all = vpair_value(sum);
    if (is_there(dq))
      put_sum(memory_of(dq), i, k.dq_dtype, n, all * load_n(memory_of(wn), i, k.wn_dtype, n), k.accumulate);
    if (is_there(dwn))
      put_sum(memory_of(dwn), i, k.dwn_dtype, n, all * load_n(memory_of(q), i, k.q_dtype, n), k.accumulate);
  }
}
