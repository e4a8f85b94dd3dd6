/* What divergence works out of an element of both distributions. */
#ifndef TIGON_CUDA_KERNEL_DIVERGENCE_MATH_CUH
#define TIGON_CUDA_KERNEL_DIVERGENCE_MATH_CUH

#include <float.h>
#include <math.h>

#include "core/logit_map.h"
#include "cuda/divergence.h"
#include "cuda/kernel/element.cuh"

typedef tigon_divergence_problem div_problem;

/* A row of either distribution: the log-probability of an x is (x * scale - reference) - log_sum, but of probabilities. */
struct div_side {
  tigon_distribution is;
  float scale, reference, log_sum;
};

/* `by`: the logits' scale, where no cap comes after it. */
__device__ static inline div_side div_side_of(const div_problem &p, tigon_distribution is, float by) {
  return div_side{is, is == TIGON_DISTRIBUTION_LOGITS ? p.inverse_temperature * by : 1, 0, 0};
}

/* z of an element u; CAP: a side of the call has a cap, else z is u. */
template <bool CAP> struct div_map {
  float cap, inner; /* cap 0: none */

  __device__ explicit inline div_map(const tigon_logit_map &m) : cap(m.cap), inner(tigon_logit_inner(&m)) {}
  __device__ inline float z(float u) const { return CAP && cap > 0 ? cap * tanhf(u * inner) : u; }
  /* dz / du but for the scale: 1 / cosh^2, which keeps its digits where 1 - tanh^2 has none. */
  __device__ inline float slope(float u) const {
    if (!CAP || !(cap > 0)) return 1;
    const float q = expf(-2 * fabsf(u * inner));
    return 4 * q / ((1 + q) * (1 + q));
  }
};
/* What z is multiplied by. */
__device__ static inline float div_scale(const tigon_logit_map &m) { return m.cap > 0 ? 1 : tigon_logit_scale(&m); }

/* What the target says of a class that it does not know. */
__device__ static inline float div_missing(const div_problem &p) {
  return p.kind == TIGON_DIVERGENCE_COSINE || p.target_is == TIGON_DISTRIBUTION_PROBABILITIES ? 0 : -INFINITY;
}

/* An element's probability and its logarithm. */
struct div_chance {
  float log, of;
};

/* A probability that underflows is still none of 0, so that it times Inf is Inf. A NaN stays one. */
__device__ static inline div_chance div_chance_of(const div_side &s, float x) {
  if (s.is == TIGON_DISTRIBUTION_PROBABILITIES) return div_chance{logf(x), x};
  const float log = fmaf(x, s.scale, -s.reference) - s.log_sum, e = expf(log);
  return div_chance{log, e < FLT_MIN ? (log == -INFINITY ? 0.0f : FLT_MIN) : e};
}

__device__ static inline float div_unless_0(float factor, float v) { return factor == 0 ? 0 : v; }

/* -1, 0, 1 or NaN. */
__device__ static inline float div_sign(float v) { return v > 0 ? 1 : v < 0 ? -1 : v; }

/* jsd: log m - log q = log (1 - beta) + log(1 + e^v), log m - log p = log beta + log(1 + e^-v) with
 * v = log p - log q + log beta - log (1 - beta). m itself is never formed. */
struct div_logs {
  float q, p; /* log q - log m, log p - log m */
};
/* log(1 + e^-|v|). e^-|v| is at most 1, so that the hardware's exp and log are within 4 * 2^-24 of the true ones; one that is flushed to 0 is
 * nothing beside 1. */
__device__ static inline float div_softplus(float v) {
  float e, log2;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-fabsf(v) * 1.4426950408889634f));
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(1 + e));
  return log2 * 0.6931471805599453f;
}
__device__ static inline div_logs div_to_mixture(const div_mixing &m, float v) {
  const float near = div_softplus(v);
  return div_logs{-(m.log_rest + (fmaxf(v, 0) + near)), -(m.log_beta + (fmaxf(-v, 0) + near))};
}
__device__ static inline div_logs div_to_mixture(const div_mixing &m, div_chance q, div_chance p) {
  return div_to_mixture(m, p.log - q.log + m.odds);
}
/* What an element adds to jsd, and to what the gradient of logits takes off. */
__device__ static inline void div_add_mixed(const div_mixing &m, div_logs to, float q, float p, float &loss,
                                            float &mean) {
  const float of_q = m.rest * div_unless_0(q, q * to.q);
  loss += fmaf(m.beta, div_unless_0(p, p * to.p), of_q);
  mean += of_q;
}

/* What an element adds to the divergence, and to what the gradient of logits takes off. */
__device__ static inline void div_add(tigon_divergence_kind kind, const div_mixing &m, div_chance q, div_chance p,
                                      float &loss, float &mean) {
  switch (kind) {
    case TIGON_DIVERGENCE_KL:
      loss += div_unless_0(p.of, p.of * (p.log - q.log));
      mean += p.of;
      break;
    case TIGON_DIVERGENCE_REVERSE_KL: {
      const float d = div_unless_0(q.of, q.of * (q.log - p.log));
      loss += d, mean += d;
      break;
    }
    case TIGON_DIVERGENCE_JSD: div_add_mixed(m, div_to_mixture(m, q, p), q.of, p.of, loss, mean); break;
    default: {
      const float apart = q.of - p.of;
      loss = fmaf(0.5f, fabsf(apart), loss);
      mean = fmaf(0.5f * q.of, div_sign(apart), mean);
    }
  }
}

/* The gradient of logits in two steps: before and after what all of them take off, `off`, is known. */
__device__ static inline float div_part(tigon_divergence_kind kind, const div_mixing &m, div_chance q, div_chance p) {
  if (kind == TIGON_DIVERGENCE_KL) return p.of;
  if (kind == TIGON_DIVERGENCE_REVERSE_KL) return q.log - p.log;
  if (kind == TIGON_DIVERGENCE_JSD) return m.rest * div_to_mixture(m, q, p).q;
  return 0.5f * div_sign(q.of - p.of);
}
__device__ static inline float div_of_logits(tigon_divergence_kind kind, float q, float part, float off) {
  if (kind == TIGON_DIVERGENCE_KL) return q * off - part;
  return div_unless_0(q, q * (part - off));
}

/* The gradient in what the input says. `off`: what logits take off, else -1 for reverse_kl, whose slope by q has a 1, or 0. */
__device__ static inline float div_slope(tigon_divergence_kind kind, tigon_distribution is, const div_mixing &m,
                                         float off, div_chance q, div_chance p) {
  const float part = div_part(kind, m, q, p);
  if (is == TIGON_DISTRIBUTION_LOGITS) return div_of_logits(kind, q.of, part, off);
  if (kind == TIGON_DIVERGENCE_KL)
    return is == TIGON_DISTRIBUTION_LOG_PROBABILITIES ? -p.of : div_unless_0(p.of, -p.of / q.of);
  const float slope = part - off;
  if (is != TIGON_DISTRIBUTION_PROBABILITIES) return div_unless_0(q.of, q.of * slope);
  return q.of == 0 ? div_unless_0(p.of, slope) : slope;
}

/* ---- cosine: elements are scaled by a power of two before they are squared ---- */

/* 2^-k for a number around 2^k. */
__device__ static inline float div_scale_down(float size) {
  if (!(size > 0) || size == INFINITY) return 1;
  const int k = ilogbf(size);
  return ldexpf(1, k > 126 ? -126 : k < -126 ? 126 : -k);
}

/* The gradient is (x * x_scale * of_x - t * t_scale * of_t) * factor * x_scale. */
struct div_cosine {
  float x_scale, of_x, t_scale, of_t, factor;
};
__device__ static inline div_cosine div_cosine_of(float x_norm, float t_norm, float cosine, double by) {
  const float x_scale = div_scale_down(x_norm), t_scale = div_scale_down(t_norm);
  const double size = (double)x_norm * (double)x_scale;
  return div_cosine{x_scale, (float)((double)cosine / size), t_scale, (float)(1 / ((double)t_norm * (double)t_scale)),
                    (float)(by / size)};
}
__device__ static inline float div_cosine_slope(const div_cosine &c, float x, float t) {
  return (x * c.x_scale * c.of_x - t * c.t_scale * c.of_t) * c.factor * c.x_scale;
}

/* ---- a row ---- */

/* A row's losses. */
__device__ static inline void div_put(const div_problem &p, int64_t r, bool counts, double soft, double hard,
                                      float hard_lse) {
  const double loss = (double)p.soft * soft + (double)p.hard * hard;
  p.token_loss[r] = (float)(counts && p.token_scale ? loss * (double)p.token_scale[r] : loss);
  if (p.soft_losses) p.soft_losses[r] = (float)soft;
  if (p.hard_losses) p.hard_losses[r] = (float)hard;
  if (p.hard_lse) p.hard_lse[r] = hard_lse;
}

/* What dinput is multiplied by. */
__device__ static inline double div_factor(const div_problem &p, const div_walk &walk, int64_t r) {
  double by = (double)p.grad_scale * (double)(walk.inverse != 0 ? walk.inverse : *p.inverse);
  if (p.dloss) by *= (double)p.dloss[p.reduction == TIGON_REDUCTION_NONE ? r : 0];
  return p.token_scale ? by * (double)p.token_scale[r] : by;
}

/* The gradient of a row, of both elements. */
struct div_gradient {
  bool cosine, nothing; /* nothing: it is 0 */
  div_side q, t;
  float off, factor;
  div_cosine along;
  div_side hard; /* the cross entropy's: hard_factor * (exp(x - lse) - 1 in column of_class) */
  float hard_factor;
  int64_t of_class;
};
/* stats as the header says. */
__device__ static inline div_gradient div_gradient_of(const div_problem &p, const div_side &q, const div_side &t,
                                                      const div_side &h, int64_t of_class, const float (&stats)[3],
                                                      double by_both) {
  const bool cosine = p.kind == TIGON_DIVERGENCE_COSINE, logits = p.input_is == TIGON_DISTRIBUTION_LOGITS;
  const double scale = (double)tigon_logit_scale(&p.input_map);
  const double by = by_both * (double)p.soft * (cosine && !(p.input_map.cap > 0) ? 1 : scale); /* no cosine has one */
  div_gradient g = {cosine, cosine && (stats[0] == 0 || stats[1] == 0), q,       t, 0, 0, {0, 0, 0, 0, 0},
                    h,      (float)(by_both * (double)p.hard * scale),  of_class};
  if (cosine) {
    g.along = div_cosine_of(stats[0], stats[1], stats[2], by);
  } else {
    g.off = logits ? stats[2] : p.kind == TIGON_DIVERGENCE_REVERSE_KL ? -1 : 0;
    g.factor = (float)(logits ? by * (double)p.inverse_temperature : by);
  }
  return g;
}
/* The gradient of an element in `column`. */
__device__ static inline float div_dinput(const div_problem &p, const div_mixing &m, const div_gradient &g, float x,
                                          float t, int64_t column) {
  float d = 0;
  if (g.cosine)
    d = g.nothing ? 0 : div_cosine_slope(g.along, x, t);
  else
    d = div_slope(p.kind, p.input_is, m, g.off, div_chance_of(g.q, x), div_chance_of(g.t, t)) * g.factor;
  if (p.hard == 0) return d;
  return fmaf(g.hard_factor, div_chance_of(g.hard, x).of - (column == g.of_class ? 1.0f : 0.0f), d);
}

#endif
