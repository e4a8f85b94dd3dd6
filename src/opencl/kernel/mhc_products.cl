/* mhc_coeffs' matrix products, a tile of MHC_SIDE by MHC_SIDE a group, of which a work-item has MHC_EACH by MHC_EACH. Terms are added up in f32
 * MHC_DEPTH at a time, and these sums in two floats. x is read once forward, for the logits and their rstd, and twice backward. */
#include "rows.cl"
#include "mhc.h"

#define GROUP_OF_TILE __attribute__((reqd_work_group_size(MHC_ITEMS, 1, 1)))
typedef __local float panel[MHC_DEPTH][MHC_SIDE];

typedef struct tile {
  float4 high[MHC_EACH], low[MHC_EACH];
} tile;

static inline int tile_item() { return (int)get_local_id(0) % MHC_ITEMS; }
static inline int tile_row() { return tile_item() / (MHC_SIDE / MHC_EACH) * MHC_EACH; }
static inline int tile_col() { return tile_item() % (MHC_SIDE / MHC_EACH) * MHC_EACH; }

static inline void tile_begin(tile *t) {
  for (int q = 0; q < MHC_EACH; ++q) t->high[q] = t->low[q] = 0;
}
/* Adds the products of a's column and b's. */
static inlined void tile_add(tile *t, __local float (*a)[MHC_SIDE], __local float (*b)[MHC_SIDE]) {
  float4 part[MHC_EACH];
  for (int q = 0; q < MHC_EACH; ++q) part[q] = 0;
  for (int d = 0; d < MHC_DEPTH; ++d) {
    const float4 v = vload4(0, b[d] + tile_col());
    for (int q = 0; q < MHC_EACH; ++q) part[q] = fma((float4)(a[d][tile_row() + q]), v, part[q]);
  }
  for (int q = 0; q < MHC_EACH; ++q) {
    const float4 sum = t->high[q] + part[q];
    t->low[q] += LOST(t->high[q], part[q], sum);
    t->high[q] = sum;
  }
}
static inline float tile_value(const tile *t, int q, int j) {
  float high[4], low[4];
  vstore4(t->high[q], 0, high);
  vstore4(t->low[q], 0, low);
  return pair_value((pair){high[j], low[j]});
}

static inline long x_at(const mhc_numbers *k, const cl_pitch *pitch, long token, long stream) {
  return row_offset(&k->space, pitch, token * k->streams + stream);
}
/* Where coefficient m's column of phi's row of a channel is. */
static inline long phi_at(const mhc_numbers *k, long stream, long c, long m) {
  return (stream * k->cols + c) * k->coefficients + m;
}
/* Work-items take the elements of a panel, those along its depth side by side, or those along its side. */
#define FOR_DEPTH(d, s)                                                                     \
  for (int e = tile_item(), d = e % MHC_DEPTH, s = e / MHC_DEPTH; e < MHC_DEPTH * MHC_SIDE; \
       e += MHC_ITEMS, d = e % MHC_DEPTH, s = e / MHC_DEPTH)
#define FOR_SIDE(d, s)                                                                    \
  for (int e = tile_item(), d = e / MHC_SIDE, s = e % MHC_SIDE; e < MHC_DEPTH * MHC_SIDE; \
       e += MHC_ITEMS, d = e / MHC_SIDE, s = e % MHC_SIDE)

/* mix = (x as one row times phi) * rstd, into h_pre, h_post and h_res, one after the other, and into mix. As there are few tiles, MHC_SHARES teams of
 * MHC_ITEMS have one; each takes every MHC_SHARES-th panel of the terms, and the first adds up what all have. */
__kernel __attribute__((reqd_work_group_size(MHC_SHARES * MHC_ITEMS, 1, 1))) void
mhc_logits(TENSOR(x), TENSOR(phi), TENSOR(h_pre), TENSOR(h_post), TENSOR(h_res), TENSOR(mixed), TENSOR(rstd),
           const mhc_numbers k) {
  __local float a[MHC_SHARES][MHC_DEPTH][MHC_SIDE], b[MHC_SHARES][MHC_DEPTH][MHC_SIDE];
  __local float shares[MHC_ITEMS][MHC_EACH][MHC_EACH + 1];
  const long t0 = (long)get_group_id(0) * MHC_SIDE, m0 = (long)get_group_id(1) * MHC_SIDE, n = k.streams;
  const long panels = (k.cols + MHC_DEPTH - 1) / MHC_DEPTH; /* a stream's */
  const int share = (int)get_local_id(0) / MHC_ITEMS, item = tile_item();
  tile products;
  pair squares[MHC_EACH];
  tile_begin(&products);
  for (int q = 0; q < MHC_EACH; ++q) squares[q] = (pair){0, 0};
  for (long first = 0; first < n * panels; first += MHC_SHARES) {
    const long at = first + share, i = at / panels, c0 = at % panels * MHC_DEPTH;
    const long depth = i < n ? k.cols - c0 : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_DEPTH(d, s)
    a[share][d][s] = t0 + s < k.rows && d < depth ? load_one(memory_of(x), x_at(&k, &k.x, t0 + s, i) + c0 + d, T) : 0;
    FOR_SIDE(d, s)
    b[share][d][s] =
        m0 + s < k.coefficients && d < depth ? load_one(memory_of(phi), phi_at(&k, i, c0 + d, m0 + s), k.phi_dtype) : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    tile_add(&products, a[share], b[share]);
    for (int q = 0; q < MHC_EACH; ++q) {
      float some = 0;
      for (int d = 0; d < MHC_DEPTH; ++d) some = fma(a[share][d][tile_row() + q], a[share][d][tile_row() + q], some);
      squares[q] = pair_add(squares[q], some);
    }
  }
  for (int from = 1; from < MHC_SHARES; ++from) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < MHC_EACH && share == from; ++q) {
      for (int j = 0; j < MHC_EACH; ++j) shares[item][q][j] = tile_value(&products, q, j);
      shares[item][q][MHC_EACH] = pair_value(squares[q]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < MHC_EACH && share == 0; ++q) {
      products.low[q] += vload4(0, shares[item][q]);
      squares[q] = pair_add(squares[q], shares[item][q][MHC_EACH]);
    }
  }
  for (int q = 0; q < MHC_EACH && share == 0; ++q) {
    const long t = t0 + tile_row() + q;
    if (t >= k.rows) break;
    const float of = 1 / sqrt(pair_value(squares[q]) / (float)(n * k.cols) + k.rms_eps);
    if (is_there(rstd) && m0 == 0 && tile_col() == 0) FLOATS_OF(rstd)[t] = of;
    for (int j = 0; j < MHC_EACH; ++j) {
      const long m = m0 + tile_col() + j;
      if (m >= k.coefficients) break;
      const float v = tile_value(&products, q, j) * of;
      if (is_there(mixed)) FLOATS_OF(mixed)[t * k.coefficients + m] = v;
      if (m < n)
        FLOATS_OF(h_pre)[t * n + m] = v;
      else if (m < 2 * n)
        FLOATS_OF(h_post)[t * n + m - n] = v;
      else
        FLOATS_OF(h_res)[t * n * n + m - 2 * n] = v;
    }
  }
}

/* dx of dmix, rstd times dmix of each token; back, what of x it takes away; h_pre and dy. */
__kernel GROUP_OF_TILE void mhc_dx(TENSOR(dmix), TENSOR(phi), TENSOR(x), TENSOR(back), TENSOR(h_pre), TENSOR(dy),
                                   TENSOR(dx), const mhc_numbers k) {
  panel a, b;
  const long panels = (k.cols + MHC_SIDE - 1) / MHC_SIDE, i = (long)get_group_id(1) / panels;
  const long t0 = (long)get_group_id(0) * MHC_SIDE, c0 = (long)get_group_id(1) % panels * MHC_SIDE;
  tile products;
  tile_begin(&products);
  for (long m0 = 0; m0 < k.coefficients; m0 += MHC_DEPTH) {
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_DEPTH(d, s)
    a[d][s] = t0 + s < k.rows && m0 + d < k.coefficients ? FLOATS_OF(dmix)[(t0 + s) * k.coefficients + m0 + d] : 0;
    FOR_DEPTH(d, s)
    b[d][s] = c0 + s < k.cols && m0 + d < k.coefficients
                  ? load_one(memory_of(phi), phi_at(&k, i, c0 + s, m0 + d), k.phi_dtype)
                  : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    tile_add(&products, a, b);
  }
  for (int q = 0; q < MHC_EACH; ++q) {
    const long t = t0 + tile_row() + q;
    if (t >= k.rows) break;
    for (int j = 0; j < MHC_EACH; ++j) {
      const long c = c0 + tile_col() + j;
      if (c >= k.cols) break;
      float v =
          fma(-FLOATS_OF(back)[t], load_one(memory_of(x), x_at(&k, &k.x, t, i) + c, T), tile_value(&products, q, j));
      if (is_there(dy))
        v = fma(FLOATS_OF(h_pre)[t * k.streams + i], load_one(memory_of(dy), row_offset(&k.tokens, &k.y, t) + c, T), v);
      store_one(memory_of(dx), x_at(&k, &k.dx, t, i) + c, T, v);
    }
  }
}

__kernel GROUP_OF_TILE void mhc_dphi(TENSOR(x), TENSOR(dmix), TENSOR(dphi), const mhc_numbers k) {
  panel a, b;
  const long panels = (k.cols + MHC_SIDE - 1) / MHC_SIDE, i = (long)get_group_id(0) / panels;
  const long c0 = (long)get_group_id(0) % panels * MHC_SIDE, m0 = (long)get_group_id(1) * MHC_SIDE;
  tile products;
  tile_begin(&products);
  for (long t0 = 0; t0 < k.rows; t0 += MHC_DEPTH) {
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_SIDE(d, s)
    a[d][s] = t0 + d < k.rows && c0 + s < k.cols ? load_one(memory_of(x), x_at(&k, &k.x, t0 + d, i) + c0 + s, T) : 0;
    FOR_SIDE(d, s)
    b[d][s] = t0 + d < k.rows && m0 + s < k.coefficients ? FLOATS_OF(dmix)[(t0 + d) * k.coefficients + m0 + s] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    tile_add(&products, a, b);
  }
  for (int q = 0; q < MHC_EACH; ++q)
    for (int j = 0; j < MHC_EACH; ++j) {
      const long c = c0 + tile_row() + q, m = m0 + tile_col() + j, at = phi_at(&k, i, c, m);
      if (c >= k.cols || m >= k.coefficients) continue;
      float v = tile_value(&products, q, j);
      if (k.accumulate) v += load_one(memory_of(dphi), at, k.dphi_dtype);
      store_one(memory_of(dphi), at, k.dphi_dtype, v);
    }
}
