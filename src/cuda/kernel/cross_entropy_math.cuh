/* What cross_entropy's kernels work out for a row and its elements.
 *
 * e^(z - reference) is 2^(z * times + plus) by one fma and the hardware's 2^x (2 ulp). The product is exact in the fma, so the
 * error grows only with |z - reference|. The rounding of reference * times is the same for all columns. Where a row is so large
 * (2^30) that no other number of f32 is near its largest logit, `times` is a power of two and e^(z - reference) is 1 or 0. */
#ifndef TIGON_CUDA_KERNEL_CROSS_ENTROPY_MATH_CUH
#define TIGON_CUDA_KERNEL_CROSS_ENTROPY_MATH_CUH

#include <float.h>
#include <math.h>

#include "core/labels.h"
#include "cuda/cross_entropy.h"
#include "cuda/kernel/element.cuh"

typedef tigon_cross_entropy_problem ce_problem;

constexpr float CE_LOG2_E = 0x1.715476p+0f;         /* f32's */
constexpr double CE_LN_2 = 1.0 / (double)CE_LOG2_E; /* its inverse */
/* A reference is that far below the largest logit at most: e^8 * columns is far from f32's end. */
constexpr float CE_SLACK = 8;

__device__ static inline float exp2_fast(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
  return e;
}

/* ---- logits: z = x / temperature, softcapped; PLAIN when z is x ---- */

struct logit_map {
  float inverse_temperature, cap, inverse_cap; /* cap 0: none */
};

__device__ static inline logit_map logit_map_of(const ce_problem &p) {
  return logit_map{p.inverse_temperature, p.softcap, p.softcap > 0 ? 1.0f / p.softcap : 0};
}

template <bool PLAIN> __device__ inline float logit(const logit_map &map, float x) {
  if (PLAIN) return x;
  const float u = x * map.inverse_temperature;
  return map.cap > 0 ? map.cap * tanhf(u * map.inverse_cap) : u;
}

/* d z / d u = 1 / cosh^2, which keeps its digits where 1 - tanh^2 has none. */
__device__ static inline float logit_slope(const logit_map &map, float x) {
  if (!(map.cap > 0)) return 1;
  const float q = expf(-2 * fabsf(x * map.inverse_temperature * map.inverse_cap));
  return 4 * q / ((1 + q) * (1 + q));
}

/* ---- exponents ---- */

struct exponent {
  float times, plus;
};

/* The exponent for a reference that is no NaN. -Inf: no logit was met yet. Inf: its own term is Inf, and all others are 0. */
__device__ static inline exponent exponent_of(float reference) {
  const float size = fabsf(reference);
  if (size < 0x1p30f) return exponent{CE_LOG2_E, -reference * CE_LOG2_E};
  if (size == INFINITY) return exponent{CE_LOG2_E, reference > 0 ? -FLT_MAX : 0};
  const float times = size < 0x1p126f ? 2 : 0x1p-90f;
  return exponent{times, -reference * times};
}

__device__ static inline float exp2_of(const exponent &e, float z) { return exp2_fast(fmaf(z, e.times, e.plus)); }

/* ---- sums over a row ---- */

struct row_sums {
  float top;      /* the largest x; NaN does not count */
  float limit;    /* an x above it moves the reference */
  exponent at;    /* exponent of the reference */
  float sum;      /* sum of e^(z - reference); NaN if and only if there is a NaN */
  float moment;   /* sum of that times its log2; this and the next not with PLAIN */
  float weighted; /* sum of weight * z */
};

template <bool PLAIN> __device__ inline row_sums no_sums(const logit_map &map) {
  return row_sums{-INFINITY, -INFINITY, exponent_of(logit<PLAIN>(map, -INFINITY)), 0, 0, 0};
}

/* To the reference of the largest x of more columns; that is none below the present one. */
template <bool PLAIN> __device__ inline void move_reference(const logit_map &map, float x, row_sums &s) {
  const exponent to = exponent_of(logit<PLAIN>(map, x));
  const float shift = to.times == s.at.times ? fmaxf(fminf(to.plus - s.at.plus, 0), -1000) : -1000;
  const float factor = exp2_fast(shift);
  if (!PLAIN) s.moment = (s.moment + s.sum * shift) * factor;
  s.sum *= factor;
  s.at = to;
}

/* Adds a pack whose first element is column c; those outside of the row are -Inf. */
template <class T, bool PLAIN>
__device__ inline void add_pack(const ce_problem &p, const logit_map &map, const uint4 &v, int64_t c, row_sums &s) {
  constexpr int N = pack<T>::N;
  float x[N];
  unpack(pack_of<T>(v), x);
  float top = x[0];
#pragma unroll
  for (int j = 1; j < N; ++j) top = fmaxf(top, x[j]);
  s.top = fmaxf(s.top, top);
  if (top > s.limit) {
    move_reference<PLAIN>(map, top, s);
    /* The slope of z is 1 / temperature at most. */
    s.limit = top + (PLAIN ? CE_SLACK : CE_SLACK / map.inverse_temperature);
  }
  if constexpr (PLAIN) {
    float part[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < N; ++j) part[j % 2] += exp2_of(s.at, x[j]);
    s.sum += part[0] + part[1];
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (c + j < 0 || c + j >= p.cols) continue;
      const float z = logit<PLAIN>(map, x[j]), t = fmaf(z, s.at.times, s.at.plus), e = exp2_fast(t);
      s.sum += e;
      if (p.entropy || p.entropy_scale != 0) s.moment = fmaf(e, fmaxf(t, -150), s.moment); /* 0 * -Inf is 0 here */
      if (p.label_smoothing != 0) s.weighted = p.weight ? fmaf(p.weight[c + j], z, s.weighted) : s.weighted + z;
    }
  }
}

/* The log-sum-exp, in F. */
template <class F, bool PLAIN> __device__ inline F lse_of(const logit_map &map, const row_sums &s) {
  const float largest = logit<PLAIN>(map, s.top);
  if (s.sum != s.sum) return (F)s.sum;
  if (fabsf(largest) == INFINITY) return (F)largest;
  return (s.at.times == CE_LOG2_E ? (F)-s.at.plus * (F)CE_LN_2 : (F)largest) + log((F)s.sum);
}

/* ---- a row's outputs besides dlogits, by one thread ---- */

struct row_terms {
  double weight_sum; /* sum over all classes */
  double by;         /* factor of dlogits: grad_scale * dloss * token_scale / denominator / temperature */
  double by_entropy; /* entropy_scale * dentropy / temperature */
};

/* FEW rows: if the call has COUNT, the blocks have `counted` the inverse themselves. */
template <bool FEW>
__device__ static inline row_terms row_terms_of(const ce_problem &p, const ce_walk &walk, int64_t r, float counted) {
  double by = (double)p.grad_scale * (double)p.inverse_temperature;
  if (p.dlogits.data) by *= (double)(FEW && (p.parts & TIGON_CROSS_ENTROPY_COUNT) ? counted : *p.inverse);
  if (p.dloss) by *= (double)p.dloss[p.reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (p.token_scale) by *= (double)p.token_scale[r];
  double by_entropy = (double)p.entropy_scale * (double)p.inverse_temperature;
  if (p.dentropy) by_entropy *= (double)p.dentropy[r];
  return row_terms{walk.weight_sum ? *walk.weight_sum : (double)tigon_cross_entropy_smoothed(&p), by, by_entropy};
}

template <bool PLAIN> __device__ inline double logit_f64(const ce_problem &p, float x) {
  const double u = (double)x * (double)p.inverse_temperature, cap = (double)p.softcap;
  return PLAIN ? (double)x : cap > 0 ? cap * tanh(u / cap) : u;
}

/* The row's label, and whether it is one of the columns. */
__device__ static inline bool is_here(const ce_problem &p, int64_t label) {
  return label >= p.panel_begin && label - p.panel_begin < p.cols;
}

/* A shard's stats, which are about the largest logit as f32 has it, in place of the reference. `y`: of the label, where it is here. */
template <bool PLAIN>
__device__ inline void store_stats(const ce_problem &p, int64_t r, int64_t label, float x_label, double lse,
                                   const row_sums &s) {
  const bool finite = isfinite(lse), counts = label >= 0;
  const float m = (float)(finite ? logit_f64<PLAIN>(p, s.top) : lse), none = isnan(lse) ? NAN : 0;
  const double reference = s.at.times == CE_LOG2_E ? -(double)s.at.plus * CE_LN_2 : (double)m;
  const double shift = reference - (double)m, factor = finite ? exp(shift) : 0;
  const double w = ((double)s.moment * CE_LN_2 + (double)s.sum * shift) * factor;
  float *to = p.stats + r * TIGON_VOCAB_STATS;
  to[0] = m;
  to[1] = finite ? (float)((double)s.sum * factor) : none;
  to[2] = !counts || p.entropy_scale == 0 ? 0 : finite ? (float)w : none;
  to[3] = counts && p.label_smoothing != 0 ? s.weighted : 0;
  to[4] = is_here(p, label) ? (float)logit_f64<PLAIN>(p, x_label) : 0;
}

/* A row that does not count. */
__device__ static inline void store_nothing(const ce_problem &p, int64_t r) {
  p.token_loss[r] = 0;
  if (p.z_loss) p.z_loss[r] = 0;
  if (p.entropy) p.entropy[r] = 0;
  if (p.argmax) p.argmax[r] = -1;
}

template <bool PLAIN>
__device__ inline void store_losses(const ce_problem &p, int64_t r, int64_t label, float x_label, double weight_sum,
                                    double lse, const row_sums &s) {
  const double w = p.weight ? (double)p.weight[label] : 1, smoothing = (double)p.label_smoothing;
  const double scale = p.token_scale ? (double)p.token_scale[r] : 1;
  double loss = (1 - smoothing) * w * (lse - logit_f64<PLAIN>(p, x_label)), z_loss = 0;
  if (!PLAIN && smoothing != 0) loss += smoothing / (double)p.cols * (weight_sum * lse - (double)s.weighted);
  if (p.lse_square_scale != 0) z_loss = w * (double)p.lse_square_scale * lse * lse;
  const double token = scale * (loss + z_loss);
  p.token_loss[r] = (float)(p.negated ? 0 - token : token);
  if (p.z_loss) p.z_loss[r] = (float)(scale * z_loss);
  if (!PLAIN && p.entropy)
    p.entropy[r] =
        isfinite(lse) ? (float)(log((double)s.sum) - (double)s.moment / (double)s.sum * CE_LN_2) : (float)NAN;
}

/* ---- dlogits ---- */

/* dlogits[c] = slope * (factor * e^(z - reference) - share * weight[c] - (c is the label's ? own : 0)), where the factor is
 * scale - entropy_scale * (log2 e^(z - reference) + entropy) */
struct gradient {
  exponent at;
  float scale, share;
  float entropy_scale, entropy; /* in base 2, lse's distance from the reference is taken away; not with PLAIN */
  double own;
  const float *weight; /* weight of column 0; NULL: 1 */
  int64_t label;       /* its column, which may be none of these */
};

/* `sum` is that of e^(z - reference) of `at`, where lse is finite, and `entropy` as in the gradient. */
__device__ static inline gradient gradient_of(const ce_problem &p, const row_terms &terms, int64_t label, float lse,
                                              exponent at, float sum, float entropy) {
  const double w = p.weight ? (double)p.weight[label] : 1, smoothing = (double)p.label_smoothing;
  const double spread = smoothing / (double)tigon_cross_entropy_smoothed(&p);
  double factor = (1 - smoothing) * w;
  if (smoothing != 0) factor += spread * terms.weight_sum;
  if (p.lse_square_scale != 0) factor += 2 * (double)p.lse_square_scale * w * (double)lse;
  if (!isfinite(lse)) at = exponent{CE_LOG2_E, -lse}, sum = 1;
  return gradient{at,
                  (float)(terms.by * factor) / sum,
                  (float)(terms.by * spread),
                  (float)(terms.by_entropy * CE_LN_2) / sum,
                  entropy,
                  terms.by * (1 - smoothing) * w,
                  p.weight ? p.weight + p.panel_begin : NULL,
                  label - p.panel_begin};
}

/* Works on a pack whose first element is column c. */
template <class T, bool PLAIN>
__device__ inline uint4 gradient_pack(const ce_problem &p, const logit_map &map, const gradient &g, const uint4 &v,
                                      int64_t c) {
  constexpr int N = pack<T>::N;
  const int label = g.label - c >= 0 && g.label - c < N ? (int)(g.label - c) : -1;
  float x[N];
  unpack(pack_of<T>(v), x);
  if constexpr (PLAIN) {
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = exp2_of(g.at, x[j]) * g.scale;
    if (label >= 0) {
#pragma unroll
      for (int j = 0; j < N; ++j) x[j] -= j == label ? (float)g.own : 0;
    }
  } else {
    /* The label's own share is what is left of it where p is small: its slope has all digits. */
    float own_high = 0, own_low = 0;
    if (label >= 0) {
      float at_label = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) at_label += j == label ? x[j] : 0;
      const double bend =
          p.softcap > 0 ? cosh((double)at_label * (double)p.inverse_temperature / (double)p.softcap) : 1;
      const double own = g.own / (bend * bend);
      own_high = (float)own, own_low = isfinite(own_high) ? (float)(own - (double)own_high) : 0;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool inside = c + j >= 0 && c + j < p.cols;
      const float minus = p.label_smoothing != 0 ? g.share * (g.weight && inside ? g.weight[c + j] : 1) : 0;
      const float t = fmaf(logit<PLAIN>(map, x[j]), g.at.times, g.at.plus);
      float factor = g.scale;
      if (g.entropy_scale != 0) factor -= g.entropy_scale * (fmaxf(t, -150) + g.entropy); /* 0 * -Inf is 0 here */
      x[j] = (exp2_fast(t) * factor - minus) * logit_slope(map, x[j]);
      if (j == label) x[j] = x[j] - own_low - own_high;
    }
  }
  const pack<T> out = packed<T>(x);
  return *(const uint4 *)&out;
}

#endif
