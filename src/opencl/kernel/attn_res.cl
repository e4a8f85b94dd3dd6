/* A launch has some blocks, as each may lie in a buffer of its own. Forward reads v twice: for the sums over a block's row, and for h. Backward
 * does so for its sums, and for dv with the terms of u, in slabs of every slabs-th token. With no more blocks than a launch has, one launch does
 * both token by token, so that the second time a cache has v. */
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

/* Words of token r: the sums of c * v, and of v * v, or of dh * v where there is a dh. */
static inlined void row_sums(room space, const memory v[ATTN_RES_BLOCKS], memory c, memory dh, floats words,
                             const attn_res_numbers *k, long r) {
  const long at = row_offset(&k->space, &k->v, r), other_at = dh ? row_offset(&k->space, &k->h, r) : at;
  for (long b = 0; b < k->count; ++b) {
    const memory own = v[b], other = dh ? dh : own;
    vpair of_c = VPAIR_START, of_other = VPAIR_START;
    vf c_part = 0, other_part = 0;
    FOR_SUMS(i, n, k->cols, (vpair_take(&of_c, &c_part), vpair_take(&of_other, &other_part))) {
      const vf x = load_n(own, at + i, T, n);
      c_part = fma(load_n(c, i, F32, n), x, c_part);
      other_part = fma(load_n(other, other_at + i, T, n), x, other_part);
    }
    const float c_sum = row_total(of_c), other_sum = row_total(of_other);
    floats to = words + r * k->blocks + k->first + b;
    if (row_leads()) to[0] = c_sum, to[k->space.rows * k->blocks] = other_sum;
  }
}
__kernel void attn_res_sums(BLOCKS_OF(v), TENSOR(c), TENSOR(dh), TENSOR(words), const attn_res_numbers k) {
  ROOM
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v);
  for (long r = row_first(); r < k.space.rows; r += row_step())
    row_sums(space, of, memory_of(c), or_null(dh), FLOATS_OF(words), &k, r);
}

/* ---- forward ---- */

/* Token r's first words become the weights. */
static inline void row_weights(floats words, floats a, floats rstd, const attn_res_numbers *k, long r) {
  floats w = words + r * k->blocks, squares = w + k->space.rows * k->blocks;
  float largest = -INFINITY;
  pair sum = {0, 0};
  for (long i = 0; i < k->blocks; ++i) {
    const float of = 1 / sqrt((k->cols > 0 ? squares[i] / (float)k->cols : 0) + k->eps);
    if (rstd) rstd[r * k->blocks + i] = of;
    w[i] = k->cols > 0 ? w[i] * of : 0;
    largest = fmax(w[i], largest);
  }
  for (long i = 0; i < k->blocks; ++i) {
    w[i] = exp_one(w[i] - largest);
    sum = pair_add(sum, w[i]);
  }
  for (long i = 0; i < k->blocks; ++i) {
    w[i] /= pair_value(sum);
    if (a) a[r * k->blocks + i] = w[i];
  }
}
/* A work-item has tokens. */
__kernel void attn_res_weights(TENSOR(words), TENSOR(a), TENSOR(rstd), const attn_res_numbers k) {
  for (long r = (long)get_global_id(0); r < k.space.rows; r += (long)get_global_size(0))
    row_weights(FLOATS_OF(words), (floats)or_null(a), (floats)or_null(rstd), &k, r);
}

/* Token r's h, or with blocks left to come its sum so far. */
static inlined void row_mix(const memory v[ATTN_RES_BLOCKS], floats words, memory sums, memory h,
                            const attn_res_numbers *k, long r) {
  const bool last = k->first + k->count == k->blocks;
  const long at = row_offset(&k->space, &k->v, r), to = row_offset(&k->space, &k->h, r);
  const long after = row_offset(&k->space, &k->v, row_after(r, k->space.rows));
  float w[ATTN_RES_BLOCKS];
  for (int b = 0; b < k->count; ++b) w[b] = words[r * k->blocks + k->first + b];
  FOR_ROW(i, n, k->cols) {
    vf sum = 0;
    if (k->first > 0) sum = load_n(sums, r * k->cols + i, F32, n);
#pragma unroll
    for (int b = 0; b < ATTN_RES_BLOCKS; ++b)
      if (b < k->count) {
        sum = fma((vf)(w[b]), load_n(v[b], at + i, T, n), sum);
        ask_for(v[b], after + i, T);
      }
    if (last)
      store_n(h, to + i, T, n, sum);
    else
      store_n(sums, r * k->cols + i, F32, n, sum);
  }
}
__kernel void attn_res_mix(BLOCKS_OF(v), TENSOR(words), TENSOR(sums), TENSOR(h), const attn_res_numbers k) {
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v);
  for (long r = row_first(); r < k.space.rows; r += row_step())
    row_mix(of, FLOATS_OF(words), memory_of(sums), memory_of(h), &k, r);
}

/* All of it, of no more blocks than a launch has. */
__kernel void attn_res_fwd(BLOCKS_OF(v), TENSOR(c), TENSOR(words), TENSOR(a), TENSOR(rstd), TENSOR(h),
                           const attn_res_numbers k) {
  ROOM
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    row_sums(space, of, memory_of(c), 0, FLOATS_OF(words), &k, r);
    if (row_leads()) row_weights(FLOATS_OF(words), (floats)or_null(a), (floats)or_null(rstd), &k, r);
    room_wait();
    row_mix(of, FLOATS_OF(words), 0, memory_of(h), &k, r);
  }
}

/* ---- backward ---- */

/* Token r's words become `back` and `slope`: dv = a dh + slope * (c - back * v). */
static inline void row_slopes(floats words, floats a, floats rstd, const attn_res_numbers *k, long r) {
  floats back = words + r * k->blocks, slope = back + k->space.rows * k->blocks;
  floats weights = a + r * k->blocks, scales = rstd + r * k->blocks;
  pair mean = {0, 0};
  for (long i = 0; i < k->blocks; ++i) mean = pair_add(mean, weights[i] * slope[i]);
  for (long i = 0; i < k->blocks; ++i) {
    slope[i] = weights[i] * (slope[i] - pair_value(mean)) * scales[i];
    back[i] = scales[i] * back[i] * scales[i] / (float)k->cols;
  }
}
/* A work-item has tokens. */
__kernel void attn_res_slopes(TENSOR(words), TENSOR(a), TENSOR(rstd), const attn_res_numbers k) {
  for (long r = (long)get_global_id(0); r < k.space.rows; r += (long)get_global_size(0))
    row_slopes(FLOATS_OF(words), FLOATS_OF(a), FLOATS_OF(rstd), &k, r);
}

/* Token r's dv, and its terms of u, of which each row of a slab has its own; u may be NULL. */
static inlined void row_dv(const memory v[ATTN_RES_BLOCKS], const memory dv[ATTN_RES_BLOCKS], memory c, memory dh,
                           floats words, floats a, memory u, const attn_res_numbers *k, long r) {
  const long at = row_offset(&k->space, &k->v, r), to = row_offset(&k->space, &k->dv, r);
  const long g_at = row_offset(&k->space, &k->h, r), word = r * k->blocks + k->first, slab = row_first();
  const long after = row_offset(&k->space, &k->v, row_after(r, k->space.rows));
  const long to_after = row_offset(&k->space, &k->dv, row_after(r, k->space.rows));
  const bool begins = k->first == 0 && r == slab;
  float back[ATTN_RES_BLOCKS], slope[ATTN_RES_BLOCKS], weight[ATTN_RES_BLOCKS];
  for (int b = 0; b < k->count; ++b) {
    back[b] = -words[word + b], slope[b] = words[word + b + k->space.rows * k->blocks];
    weight[b] = a[word + b];
  }
  FOR_ROW(i, n, k->cols) {
    const vf g = load_n(dh, g_at + i, T, n), of_c = load_n(c, i, F32, n);
    vf sum = 0;
    if (u && !begins) sum = load_n(u, slab * k->cols + i, F32, n);
#pragma unroll
    for (int b = 0; b < ATTN_RES_BLOCKS; ++b) {
      if (b >= k->count) break;
      const vf x = load_n(v[b], at + i, T, n), off = fma((vf)(back[b]), x, of_c);
      store_n(dv[b], to + i, T, n, fma((vf)(weight[b]), g, slope[b] * off));
      sum = fma((vf)(slope[b]), x, sum);
      ask_for(v[b], after + i, T);
      ask_for(dv[b], to_after + i, T);
    }
    if (u) store_n(u, slab * k->cols + i, F32, n, sum);
  }
}
/* A row is a slab. */
__kernel void attn_res_dv(BLOCKS_OF(v), BLOCKS_OF(dv), TENSOR(c), TENSOR(dh), TENSOR(words), TENSOR(a), TENSOR(u),
                          const attn_res_numbers k) {
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v), out[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(dv);
  for (long r = row_first(); r < k.space.rows; r += row_step())
    row_dv(of, out, memory_of(c), memory_of(dh), FLOATS_OF(words), FLOATS_OF(a), or_null(u), &k, r);
}

/* All but the end, of no more blocks than a launch has. */
__kernel void attn_res_bwd(BLOCKS_OF(v), BLOCKS_OF(dv), TENSOR(c), TENSOR(dh), TENSOR(words), TENSOR(a), TENSOR(rstd),
                           TENSOR(u), const attn_res_numbers k) {
  ROOM
  const memory of[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(v), out[ATTN_RES_BLOCKS] = MEMORY_OF_BLOCKS(dv);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    row_sums(space, of, memory_of(c), memory_of(dh), FLOATS_OF(words), &k, r);
    if (row_leads()) row_slopes(FLOATS_OF(words), FLOATS_OF(a), FLOATS_OF(rstd), &k, r);
    room_wait();
    row_dv(of, out, memory_of(c), memory_of(dh), FLOATS_OF(words), FLOATS_OF(a), or_null(u), &k, r);
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
