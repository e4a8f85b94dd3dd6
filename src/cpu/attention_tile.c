#include <string.h>

#include "cpu/attention.h"

/* The sum over k of a(r, k) * b[k][lanes] for ROWS rows; a(r, k) = a[r * a_row + k * a_step]. */
TIGON_INLINE void product(vf sum[ROWS][VECTORS], const float *a, int a_row, int a_step, const float *b, int depth) {
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) sum[r][v] = vf_zero();
  for (int k = 0; k < depth; ++k, a += a_step, b += BLOCK) {
    vf lanes[VECTORS];
    for (int v = 0; v < VECTORS; ++v) lanes[v] = vf_load(b + v * LANES);
    for (int r = 0; r < ROWS; ++r) {
      const vf factor = vf_set(a[r * a_row]);
      for (int v = 0; v < VECTORS; ++v) sum[r][v] = vf_fma(factor, lanes[v], sum[r][v]);
    }
  }
}

void TIGON_CPU(attention_multiply)(const float *a, const float *b, int depth, float *c, int64_t c_pitch, int rows,
                                   bool add) {
  for (int row = 0; row < rows; row += ROWS, a += ROWS * BLOCK) {
    vf sum[ROWS][VECTORS];
    product(sum, a, BLOCK, 1, b, depth);
    for (int r = 0; r < ROWS; ++r, c += c_pitch)
      for (int v = 0; v < VECTORS; ++v) {
        float *to = c + v * LANES;
        vf_store(to, add ? vf_add(vf_load(to), sum[r][v]) : sum[r][v]);
      }
  }
}

void TIGON_CPU(attention_multiply_transposed)(const float *a, const float *b, int depth, float *c, int rows,
                                              const float *factor) {
  vf scale[VECTORS];
  for (int v = 0; v < VECTORS; ++v) scale[v] = factor ? vf_load(factor + v * LANES) : vf_set(1.0f);
  for (int row = 0; row < rows; row += ROWS, a += ROWS) {
    vf sum[ROWS][VECTORS];
    product(sum, a, 1, BLOCK, b, depth);
    for (int r = 0; r < ROWS; ++r, c += BLOCK)
      for (int v = 0; v < VECTORS; ++v) {
        float *to = c + v * LANES;
        vf_store(to, vf_fma(vf_load(to), scale[v], sum[r][v]));
      }
  }
}

void TIGON_CPU(attention_multiply_masked)(const tile *t, span s, int lane0, const float *a, const float *b, float *c,
                                          int rows, const float *factor) {
  const edges e = group_edges(t, lane0);
  for (int row = 0; row < rows; ++row)
    for (int v = 0; v < VECTORS; ++v) {
      vf sum = vf_zero();
      for (int y = s.begin; y < s.end; ++y)
        sum = seen_or(&e, v, y, vf_fma(vf_set(a[y * BLOCK + row]), vf_load(b + y * BLOCK + v * LANES), sum), sum);
      float *to = c + row * BLOCK + v * LANES;
      vf_store(to, vf_fma(vf_load(to), factor ? vf_load(factor + v * LANES) : vf_set(1.0f), sum));
    }
}

/* Columns [c, c + LANES) of row r, zeros past the last column. */
TIGON_INLINE vf load_row(tigon_dtype dtype, const source *s, int r, int c) {
  const int n = s->cols - c;
  return n >= LANES ? v_load(s->data, r * s->pitch + c, dtype) : v_load_n(s->data, r * s->pitch + c, dtype, n);
}

enum { CHAINS = 4 }; /* independent sums of 0 * v, which Inf and NaN turn into NaN */

/* Columns [c, c + n) of all rows; n = LANES but at the end of a row. */
TIGON_INLINE void pack_column(tigon_dtype dtype, source s, int c, int n, float *out, vf chains[CHAINS]) {
  int r = 0;
  for (; r + CHAINS <= s.rows; r += CHAINS)
    for (int i = 0; i < CHAINS; ++i) {
      const int64_t at = (r + i) * s.pitch + c;
      const vf v = n == LANES ? v_load(s.data, at, dtype) : v_load_n(s.data, at, dtype, n);
      chains[i] = vf_fma(v, vf_zero(), chains[i]);
      vf_store(out + (r + i) * BLOCK + c, v);
    }
  for (; r < s.rows; ++r) {
    const vf v = v_load_n(s.data, r * s.pitch + c, dtype, n);
    chains[0] = vf_fma(v, vf_zero(), chains[0]);
    vf_store(out + r * BLOCK + c, v);
  }
}

TIGON_INLINE void pack(tigon_dtype dtype, const source *s, int following, float *out, bool *finite) {
  const source from = *s;
  prefetch_rows(&from, BLOCK, BLOCK + following);
  vf chains[CHAINS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int c = 0;
  for (; c + LANES <= from.cols; c += LANES) pack_column(dtype, from, c, LANES, out, chains);
  if (c < from.cols) pack_column(dtype, from, c, from.cols - c, out, chains);
  const int cols = round_up(from.cols, GROUP > UNIT ? GROUP : UNIT), rows = round_up(from.rows, UNIT);
  for (c = round_up(from.cols, LANES); c < cols; c += LANES)
    for (int r = 0; r < rows; ++r) vf_store(out + r * BLOCK + c, vf_zero());
  for (int r = from.rows; r < rows; ++r) memset(out + r * BLOCK, 0, (size_t)cols * sizeof *out);
  *finite = vf_sum(vf_add(vf_add(chains[0], chains[1]), vf_add(chains[2], chains[3]))) == 0;
}

TIGON_INLINE void pack_transposed(tigon_dtype dtype, const source *from, float *out) {
  const source copy = *from, *s = &copy;
  const int lanes = round_up(s->rows, GROUP);
  for (int r0 = 0; r0 < lanes; r0 += LANES)
    for (int c = 0; c < s->cols; c += LANES) {
      vf square[LANES];
      if (r0 + LANES <= s->rows)
        for (int r = 0; r < LANES; ++r) square[r] = load_row(dtype, s, r0 + r, c);
      else
        for (int r = 0; r < LANES; ++r) square[r] = r0 + r < s->rows ? load_row(dtype, s, r0 + r, c) : vf_zero();
      vf_transpose(square);
      for (int r = 0; r < LANES; ++r) vf_store(out + (c + r) * BLOCK + r0, square[r]);
    }
}

TIGON_INLINE void unpack(tigon_dtype dtype, const float *in, const source *to) {
  const source s = *to;
  for (int r = 0; r < s.rows; ++r)
    for (int c = 0; c < s.cols; c += LANES) {
      const vf v = vf_load(in + r * BLOCK + c);
      if (s.cols - c >= LANES)
        v_store(s.data, r * s.pitch + c, dtype, v);
      else
        v_store_n(s.data, r * s.pitch + c, dtype, v, s.cols - c);
    }
}

/* Columns [c, c + n) of up to LANES rows from r0 on. */
TIGON_INLINE void unpack_square(tigon_dtype dtype, const float *in, const source *s, const float *factor, int r0, int c,
                                int n, bool stream) {
  vf square[LANES];
  for (int r = 0; r < LANES; ++r) square[r] = vf_load(in + (c + r) * BLOCK + r0);
  if (factor) {
    const vf scale = vf_load(factor + r0);
    for (int r = 0; r < LANES; ++r) square[r] = vf_select(vf_eq(scale, vf_zero()), vf_zero(), vf_mul(scale, square[r]));
  }
  vf_transpose(square);
  const int64_t at = r0 * s->pitch + c;
  if (n == LANES && s->rows - r0 >= LANES)
    for (int r = 0; r < LANES; ++r) v_put(s->data, at + r * s->pitch, dtype, square[r], stream);
  else
    for (int r = 0; r < s->rows - r0 && r < LANES; ++r) v_store_n(s->data, at + r * s->pitch, dtype, square[r], n);
}

TIGON_INLINE void unpack_transposed(tigon_dtype dtype, const float *in, const source *to, const float *factor,
                                    bool past) {
  const source s = *to;
  /* A vector of f32 is a line and leaves at once; half lines would wait for their other half. */
  const bool stream = past && dtype == TIGON_F32 && v_aligned(s.data, dtype) && s.pitch % LANES == 0;
  for (int r0 = 0; r0 < s.rows; r0 += LANES)
    for (int c = 0; c < s.cols; c += LANES) {
      const int n = s.cols - c < LANES ? s.cols - c : LANES;
      if (stream)
        unpack_square(dtype, in, &s, factor, r0, c, n, true);
      else
        unpack_square(dtype, in, &s, factor, r0, c, n, false);
    }
  if (stream) vf_fence();
}

void TIGON_CPU(attention_pack)(const source *s, int following, packed *out) {
  TIGON_FOR_DTYPE(s->dtype, pack, s, following, out->rows, &out->finite);
}

void TIGON_CPU(attention_pack_transposed)(const source *s, float *out) {
  TIGON_FOR_DTYPE(s->dtype, pack_transposed, s, out);
}

void TIGON_CPU(attention_unpack)(const float *in, const source *s) { TIGON_FOR_DTYPE(s->dtype, unpack, in, s); }

void TIGON_CPU(attention_unpack_transposed)(const float *in, const source *s, const float *factor, bool past) {
  TIGON_FOR_DTYPE(s->dtype, unpack_transposed, in, s, factor, past);
}
