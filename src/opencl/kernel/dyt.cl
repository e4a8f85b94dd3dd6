/* Rows are read once. Backward each work-item or group has a slab, [2, cols], of what its rows add to dgamma and dbeta, and a word of dalpha. */
#include "dyt.h"
#include "math.cl"
#include "sum.cl"

enum { TOGETHER = IS_ALONE ? 4 : 1 }; /* rows */

/* src/cpu/dyt.c's, which says how far they are off: tanh(u) = c P(c^2) / Q(c^2), c = u cut off where tanh is 1. */
static inline vf dyt_tanh(vf u) {
  const vf c = between_of(-8.4f, u, 8.4f), s = c * c;
  vf p = (vf)(1.44578463e-08f);
  p = fma(p, s, (vf)(2.13797692e-05f));
  p = fma(p, s, (vf)(0.00354161715f));
  p = fma(p, s, (vf)(0.134195795f));
  p = fma(p, s, (vf)(0.99999999f));
  vf q = (vf)(8.21995845e-07f);
  q = fma(q, s, (vf)(0.000336142679f));
  q = fma(q, s, (vf)(0.0260514386f));
  q = fma(q, s, (vf)(0.467529033f));
  q = fma(q, s, (vf)(1.0f));
  return c * p / q;
}

/* And *slope = 1 - tanh(u)^2. Of e = 2^y, y = -2 |u| / ln 2, and of e - 1 from its own polynomial, so that nothing cancels. */
static inline vf dyt_tanh_slope(vf u, vf *slope) {
  const vf exponent = fabs(u) * -2.88539008f, y = at_least_of(-126.0f, exponent);
  const vf near = y + 0x1.8p23f, f = y - (near - 0x1.8p23f); /* near has the whole number in its last bits */
  vf less = (vf)(0.000154035116f); /* (2^f - 1) / f */
  less = fma(less, f, (vf)(0.00133907355f));
  less = fma(less, f, (vf)(0.0096182375f));
  less = fma(less, f, (vf)(0.0555035743f));
  less = fma(less, f, (vf)(0.240226498f));
  less = fma(less, f, (vf)(0.693147188f));
  const vf fraction = f * less, power = as_vf((as_vi(near) + 127) << 23);
  const vf rest = fma(fraction, power, power - 1), share = 1 / (2 + rest), size = rest * share; /* rest: e - 1 */
  const vf e = either(exponent < -126.0f, (vf)(0.0f), fma(fraction, power, power));
  *slope = 4 * e * (share * share);
  return either(u < 0, size, -size);
}

__kernel void dyt_fwd(TENSOR(x), TENSOR(alpha), TENSOR(gamma), TENSOR(beta), TENSOR(y), const dyt_numbers k) {
  const memory xs = memory_of(x), weights = memory_of(gamma), shifts = or_null(beta), ys = memory_of(y);
  const float slope = load_one(memory_of(alpha), 0, k.alpha_dtype);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long at = row_offset(&k.space, &k.x, r), to = row_offset(&k.space, &k.out, r);
    FOR_ROW(i, n, k.cols) {
      const vf t = dyt_tanh(slope * load_n(xs, at + i, T, n)), w = load_n(weights, i, k.gamma_dtype, n);
      store_n(ys, to + i, T, n, shifts ? fma(w, t, load_n(shifts, i, k.beta_dtype, n)) : w * t);
    }
  }
}

typedef struct dyt_bwd_memory {
  memory dy, x, weights, dx, slab;
} dyt_bwd_memory;

/* `count` rows from r on, a step apart. They share what is read and written of the slab. */
static inlined void dyt_slopes(const int count, const dyt_bwd_memory *m, const dyt_numbers *k, long r, float number,
                               vpair *dalpha) {
  const long of_gamma = row_first() * 2 * k->cols, of_beta = of_gamma + k->cols;
  const bool first = r == row_first();
  long from[TOGETHER], at[TOGETHER], to[TOGETHER];
#pragma unroll
  for (int j = 0; j < count; ++j) {
    const long row = r + j * row_step();
    from[j] = row_offset(&k->space, &k->dy, row), at[j] = row_offset(&k->space, &k->x, row);
    to[j] = row_offset(&k->space, &k->out, row);
  }
  FOR_ROW(i, n, k->cols) {
    const bool adds = m->slab && !first;
    const vf w = load_n(m->weights, i, k->gamma_dtype, n);
    vf dgamma = adds ? load_n(m->slab, of_gamma + i, F32, n) : (vf)(0.0f), some = 0;
    vf dbeta = adds ? load_n(m->slab, of_beta + i, F32, n) : (vf)(0.0f);
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const vf d = load_n(m->dy, from[j] + i, T, n), v = load_n(m->x, at[j] + i, T, n);
      vf slope;
      const vf t = dyt_tanh_slope(number * v, &slope), q = d * w * slope;
      store_n(m->dx, to[j] + i, T, n, number * q);
      dgamma = fma(d, t, dgamma), dbeta += d, some = fma(first_or(q, n, 0), v, some);
    }
    if (!m->slab) continue;
    store_n(m->slab, of_gamma + i, F32, n, dgamma);
    store_n(m->slab, of_beta + i, F32, n, dbeta);
    *dalpha = vpair_add(*dalpha, some);
  }
}

__kernel void dyt_bwd(TENSOR(dy), TENSOR(x), TENSOR(alpha), TENSOR(gamma), TENSOR(dx), TENSOR(slabs), TENSOR(words),
                      const dyt_numbers k) {
  ROOM
  const dyt_bwd_memory m = {memory_of(dy), memory_of(x), memory_of(gamma), memory_of(dx), or_null(slabs)};
  const float number = load_one(memory_of(alpha), 0, k.alpha_dtype);
  vpair dalpha = VPAIR_START;
  long r = row_first();
  for (; r + (TOGETHER - 1) * row_step() < k.space.rows; r += TOGETHER * row_step())
    dyt_slopes(TOGETHER, &m, &k, r, number, &dalpha);
  for (; r < k.space.rows; r += row_step()) dyt_slopes(1, &m, &k, r, number, &dalpha);
  if (!m.slab) return;
  const float sum = row_total(dalpha);
  if (row_leads()) FLOATS_OF(words)[row_first()] = sum;
}
