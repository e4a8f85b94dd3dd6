/* The products of mhc_coeffs, and the formulas of LANES tokens. */
#ifndef TIGON_CPU_MHC_PRODUCT_H
#define TIGON_CPU_MHC_PRODUCT_H

#include "cpu/mhc.h"
#include "cpu/simd_math.h"
#include "cpu/transpose.h"

enum {
  MHC_DEPTH = 256,                          /* products of one f32 sum */
  MHC_ROWS = LANES == 16 ? 8 : 4,           /* rows of a tile in registers */
  MHC_VECTORS = LANES == 16 ? 2 : 3,        /* vectors of columns there */
  MHC_PITCH = TIGON_MHC_COEFFS + 2 * LANES, /* pitch of sums of all coefficients, to which whole tiles are stored */
};

/* out[a, n] = (add ? itself : 0) + sum over b < depth of left[a * row + b * step] * right[b * pitch + n]. Whole tiles of rows are
 * read and stored, and whole vectors of columns are stored. */
typedef struct mhc_product {
  const float *left;
  int64_t row, step;
  const void *right;
  int64_t pitch, rows, depth, cols;
  float *out;
  int64_t out_pitch;
  bool add;
} mhc_product;

TIGON_INLINE void mhc_tile(tigon_dtype dtype, int vectors, const mhc_product *p, int64_t a0, int64_t n0, int last) {
  vf sum[MHC_ROWS][MHC_VECTORS];
  for (int a = 0; a < MHC_ROWS; ++a)
    for (int v = 0; v < vectors; ++v) sum[a][v] = vf_zero();
  const float *left = p->left + a0 * p->row;
  for (int64_t b = 0; b < p->depth; ++b) {
    vf right[MHC_VECTORS];
    for (int v = 0; v < vectors; ++v) {
      const int64_t at = b * p->pitch + n0 + v * LANES;
      right[v] = v == vectors - 1 && last < LANES ? v_load_n(p->right, at, dtype, last) : v_load(p->right, at, dtype);
    }
    for (int a = 0; a < MHC_ROWS; ++a) {
      const vf l = vf_set(left[a * p->row + b * p->step]);
      for (int v = 0; v < vectors; ++v) sum[a][v] = vf_fma(l, right[v], sum[a][v]);
    }
  }
  for (int a = 0; a < MHC_ROWS; ++a)
    for (int v = 0; v < vectors; ++v) {
      float *out = p->out + (a0 + a) * p->out_pitch + n0 + v * LANES;
      vf_store(out, p->add ? vf_add(vf_load(out), sum[a][v]) : sum[a][v]);
    }
}

TIGON_INLINE void mhc_multiply(tigon_dtype dtype, const mhc_product *p) {
  for (int64_t n0 = 0; n0 < p->cols; n0 += MHC_VECTORS * LANES) {
    const int64_t rest = p->cols - n0;
    const int vectors = rest < MHC_VECTORS * LANES ? (int)((rest + LANES - 1) / LANES) : MHC_VECTORS;
    const int last = rest < vectors * LANES ? (int)(rest - (vectors - 1) * LANES) : LANES;
    for (int64_t a0 = 0; a0 < p->rows; a0 += MHC_ROWS) {
      if (vectors == 1)
        mhc_tile(dtype, 1, p, a0, n0, last);
      else if (vectors == 2)
        mhc_tile(dtype, 2, p, a0, n0, last);
      else
        mhc_tile(dtype, MHC_VECTORS, p, a0, n0, last);
    }
  }
}

/* s(x) and 1 - s(x), each without a cancellation. */
TIGON_INLINE vf mhc_sigmoid(vf x, vf *rest) {
  const vf e = vf_exp_all(vf_sub(vf_zero(), vf_abs(x))), near = vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), e));
  const vf far = vf_mul(e, near);
  const vm negative = vf_lt(x, vf_zero());
  *rest = vf_select(negative, near, far);
  return vf_select(negative, far, near);
}

/* ---- Sinkhorn of LANES tokens: matrices [n, n], elements as they lie ---- */

typedef struct mhc_sinkhorn {
  vf p[TIGON_MHC_STREAMS * TIGON_MHC_STREAMS], m[TIGON_MHC_STREAMS * TIGON_MHC_STREAMS]; /* softmax; h_res */
  vf denominator[2 * TIGON_MHC_TMAX][TIGON_MHC_STREAMS]; /* even ones of columns, odd ones of rows */
} mhc_sinkhorn;

/* Elements from one of a row or column to the next, and from one row or column to the next. */
TIGON_INLINE int mhc_inside(int n, int step) { return step % 2 ? 1 : n; }
TIGON_INLINE int mhc_across(int n, int step) { return step % 2 ? n : 1; }

/* l holds LANES tokens' logits, `pitch` floats apart. */
static inline void mhc_sinkhorn_of(int n, int tmax, float eps, const float *l, int64_t pitch, mhc_sinkhorn *s) {
  const vf e = vf_set(eps);
  for (int j = 0; j < n; ++j) {
    vf most = vf_load(l + j * n * pitch), sum = vf_zero();
    for (int i = 1; i < n; ++i) most = vf_max(most, vf_load(l + (j * n + i) * pitch));
    for (int i = 0; i < n; ++i) {
      s->p[j * n + i] = vf_exp_all(vf_sub(vf_load(l + (j * n + i) * pitch), most));
      sum = vf_add(sum, s->p[j * n + i]);
    }
    for (int i = 0; i < n; ++i) {
      s->p[j * n + i] = vf_div(s->p[j * n + i], sum);
      s->m[j * n + i] = vf_add(s->p[j * n + i], e);
    }
  }
  for (int step = 0; step < 2 * tmax - 1; ++step)
    for (int v = 0; v < n; ++v) {
      vf *line = s->m + v * mhc_across(n, step), sum = vf_zero();
      for (int w = 0; w < n; ++w) sum = vf_add(sum, line[w * mhc_inside(n, step)]);
      const vf by = vf_add(sum, e);
      for (int w = 0; w < n; ++w) line[w * mhc_inside(n, step)] = vf_div(line[w * mhc_inside(n, step)], by);
      s->denominator[step][v] = by;
    }
}

/* g, the gradients of h_res as l lies, become those of the logits. */
static inline void mhc_sinkhorn_back(int n, int tmax, float *g, int64_t pitch, mhc_sinkhorn *s) {
  for (int step = 2 * tmax - 2; step >= -1; --step)
    for (int v = 0; v < n; ++v) { /* the last step is softmax's, over rows */
      const int first = v * mhc_across(n, step & 1), next = mhc_inside(n, step & 1);
      vf *m = step < 0 ? s->p : s->m, dot = vf_zero();
      const vf by = step < 0 ? vf_set(1.0f) : s->denominator[step][v];
      for (int w = 0; w < n; ++w) {
        const int at = first + w * next;
        dot = vf_fma(vf_load(g + at * pitch), m[at], dot);
      }
      for (int w = 0; w < n; ++w) {
        const int at = first + w * next;
        const vf less = vf_sub(vf_load(g + at * pitch), dot);
        vf_store(g + at * pitch, step < 0 ? vf_mul(less, m[at]) : vf_div(less, by));
        m[at] = vf_mul(m[at], by);
      }
    }
}

#endif
