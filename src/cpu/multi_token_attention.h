/* Rows of multi_token_attention in f32: what norm() does with one, and the convolution of some. Rows lie in a workspace, where
 * MTA_SLACK floats after a row may be read and, but for rows with zeros around them, written. */
#ifndef TIGON_CPU_MULTI_TOKEN_ATTENTION_H
#define TIGON_CPU_MULTI_TOKEN_ATTENTION_H

#include <math.h>

#include "cpu/kernels.h"
#include "cpu/simd_math.h"
#include "problem/multi_token_attention.h"

enum {
  MTA_AT_ONCE = 4 * LANES, /* columns that are convolved at once */
  MTA_SLACK = MTA_AT_ONCE,
  MTA_BLOCK = 256 * LANES, /* elements of one f32 sum: 256 additions a lane */
};

static inline int mta_lanes(int64_t left) { return left < LANES ? (int)left : LANES; }
/* Keys that a query may see. */
static inline int64_t mta_allowed(int64_t row, int64_t cols) { return row < cols ? row + 1 : cols; }

/* ---- norm() ---- */

static inline double mta_sum_exp(const float *x, int64_t n, float base) {
  vd sum = vd_zero();
  for (int64_t j = 0; j < n; j += LANES) {
    const vf e = vf_exp(vf_sub(vf_load_n(x + j, mta_lanes(n - j)), vf_set(base)));
    float lanes[LANES] = {0};
    vf_store_n(lanes, e, mta_lanes(n - j));
    sum = vd_add(sum, vf_load(lanes));
  }
  return vd_sum(sum);
}

/* tau of x - base, by Newton's method from the left; a NaN in x makes it NaN. */
static inline float mta_threshold(const float *x, int64_t n, float base) {
  for (float tau = -1;;) {
    vd sum = vd_zero();
    int64_t members = 0;
    for (int64_t j = 0; j < n; j += LANES) {
      float lanes[LANES];
      vf_store(lanes, vf_set(-INFINITY));
      vf_store_n(lanes, vf_sub(vf_load_n(x + j, mta_lanes(n - j)), vf_set(base)), mta_lanes(n - j));
      const vf z = vf_load(lanes);
      const vm member = vf_above(z, vf_set(tau));
      sum = vd_add(sum, vf_select(member, z, vf_zero()));
      members += vm_count(member);
    }
    const float next = members > 0 ? (float)((vd_sum(sum) - 1) / (double)members) : tau;
    if (next <= tau) return tau;
    tau = next;
    if (isnan(tau)) return tau;
  }
}

/* What norm() takes off: log(sum of exp), or tau. */
static inline float mta_stat(bool sparse, const float *x, int64_t n) {
  vf most = vf_set(-INFINITY);
  for (int64_t j = 0; j < n; j += LANES) {
    const int lanes = mta_lanes(n - j);
    float part[LANES];
    vf_store(part, vf_set(-INFINITY));
    vf_store_n(part, vf_load_n(x + j, lanes), lanes);
    most = vf_max(vf_load(part), most); /* not of a NaN */
  }
  const float largest = vf_max_across(most), base = largest == -INFINITY ? 0 : largest;
  if (sparse) return base + mta_threshold(x, n, base);
  const double sum = mta_sum_exp(x, n, base);
  return sum > 0 ? (float)((double)base + log(sum)) : sum == 0 ? -INFINITY : NAN;
}

static inline void mta_norm(bool sparse, float *x, int64_t n, float stat) {
  const vf off = vf_set(!sparse && stat == -INFINITY ? 0 : stat);
  for (int64_t j = 0; j < n; j += LANES) {
    const vf z = vf_sub(vf_load_n(x + j, mta_lanes(n - j)), off);
    vf_store_n(x + j, sparse ? vf_max(vf_zero(), z) : vf_exp_all(z), mta_lanes(n - j)); /* a NaN stays */
  }
}

/* q becomes norm'(q), with p = norm(x). A NaN in p is of the support, and makes the mean one. */
static inline void mta_norm_bwd(bool sparse, const float *p, float *q, int64_t n) {
  vd sum = vd_zero();
  int64_t members = 0;
  for (int64_t j = 0; j < n; j += LANES) {
    const vf pj = vf_load_n(p + j, mta_lanes(n - j)), qj = vf_load_n(q + j, mta_lanes(n - j));
    if (!sparse) {
      sum = vd_add(sum, vf_mul(pj, qj));
      continue;
    }
    const vm member = vf_above(pj, vf_zero());
    sum = vd_add(sum, vf_select(member, vf_fma(pj, vf_zero(), qj), vf_zero()));
    members += vm_count(member);
  }
  const vf off = vf_set((float)(sparse ? vd_sum(sum) / (double)(members > 0 ? members : 1) : vd_sum(sum)));
  for (int64_t j = 0; j < n; j += LANES) {
    const vf pj = vf_load_n(p + j, mta_lanes(n - j)), d = vf_sub(vf_load_n(q + j, mta_lanes(n - j)), off);
    const vf of = sparse ? vf_select(vf_above(pj, vf_zero()), d, vf_zero()) : vf_mul(pj, d);
    vf_store_n(q + j, of, mta_lanes(n - j));
  }
}

/* ---- sums ---- */

static inline double mta_dot(const float *a, const float *b, int64_t n) {
  double all = 0;
  for (int64_t begin = 0; begin < n; begin += MTA_BLOCK) {
    const int64_t end = n - begin < MTA_BLOCK ? n : begin + MTA_BLOCK;
    vf sum = vf_zero();
    for (int64_t j = begin; j < end; j += LANES)
      sum = vf_fma(vf_load_n(a + j, mta_lanes(end - j)), vf_load_n(b + j, mta_lanes(end - j)), sum);
    all += (double)vf_sum(sum);
  }
  return all;
}
static inline double mta_sum(const float *a, int64_t n) {
  vd sum = vd_zero();
  for (int64_t j = 0; j < n; j += LANES) sum = vd_add(sum, vf_load_n(a + j, mta_lanes(n - j)));
  return vd_sum(sum);
}

/* The same of every `step`-th element of both. */
static inline double mta_dot_by(const float *a, const float *b, int64_t n, int64_t step) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += (double)(a[j * step] * b[j * step]);
  return sum;
}

/* ---- a row of the convolution ---- */

/* to[j] = more + sum over channels k, rows r, taps t of w[k * w_channel + w_row[r] + t * w_tap] *
 *                                                     from[k * channel + row[r] + j * stride + t * dilation] */
typedef struct mta_row {
  const float *from, *w;
  float *to, more;
  int64_t channels, channel, w_channel, w_tap;
  int64_t taps, stride, dilation, cols;
  int rows;
  int64_t row[TIGON_MTA_TAPS], w_row[TIGON_MTA_TAPS];
} mta_row;

/* A row of taps that meets nothing: zeros, or NaN where a weight is no finite number. */
static inline void mta_meet_nothing(mta_row *c, int64_t w_row) {
  for (int64_t k = 0; k < c->channels; ++k)
    for (int64_t t = 0; t < c->taps; ++t) c->more += 0 * c->w[k * c->w_channel + w_row + t * c->w_tap];
}

/* A channel's terms add up first. */
static inline void mta_convolve(const mta_row *c) {
  for (int64_t j = 0; j < c->cols && c->stride == 1; j += MTA_AT_ONCE) {
    const vf more = vf_set(c->more);
    vf all[4] = {more, more, more, more};
    for (int64_t k = 0; k < c->channels; ++k) {
      vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
      for (int r = 0; r < c->rows; ++r) {
        const float *from = c->from + k * c->channel + c->row[r] + j, *w = c->w + k * c->w_channel + c->w_row[r];
        for (int64_t t = 0; t < c->taps; ++t, from += c->dilation, w += c->w_tap)
          for (int v = 0; v < 4; ++v) sum[v] = vf_fma(vf_set(*w), vf_load(from + v * LANES), sum[v]);
      }
      for (int v = 0; v < 4; ++v) all[v] = vf_add(all[v], sum[v]);
    }
    for (int v = 0; v < 4; ++v) vf_store(c->to + j + v * LANES, all[v]);
  }
  for (int64_t j = 0; j < c->cols && c->stride != 1; ++j) {
    float all = c->more;
    for (int64_t k = 0; k < c->channels; ++k) {
      float sum = 0;
      for (int r = 0; r < c->rows; ++r) {
        const float *from = c->from + k * c->channel + c->row[r] + j * c->stride;
        const float *w = c->w + k * c->w_channel + c->w_row[r];
        for (int64_t t = 0; t < c->taps; ++t) sum += w[t * c->w_tap] * from[t * c->dilation];
      }
      all += sum;
    }
    c->to[j] = all;
  }
}

#endif
