/* What divergence works out of an element of both distributions. */
#ifndef TIGON_CPU_DIVERGENCE_H
#define TIGON_CPU_DIVERGENCE_H

#include <math.h>

#include "core/logit_map.h"
#include "cpu/kernels.h"
#include "cpu/simd_math.h"

typedef tigon_divergence_problem problem;

/* Sums are f32 over a block of 32 vectors, and f64 across blocks. */
enum { BLOCK = 32 * LANES };

/* A row of either distribution. The log-probability of an x is (x - base) * scale - rest, but of probabilities: with a base
 * close to the largest element no product is rounded where it is large. */
typedef struct side {
  const void *row;
  int64_t cols;  /* that it has; elements beyond are `missing` */
  float missing; /* what has no probability */
  tigon_distribution is;
  double lse;                       /* 0 but for logits */
  float times;                      /* what logits are multiplied by */
  vf scale, base, minus_rest, most; /* most: of a log-probability */
  bool capped;                      /* elements z are cap * tanh(x * inner) of those of the row */
  vf cap, inner;
} side;

/* The side of a row that nothing is known of yet. */
TIGON_INLINE side side_of(tigon_dtype dtype, const problem *p, const tigon_rows *t, const tigon_logit_map *map,
                          tigon_distribution is, int64_t cols, int64_t r) {
  side s = {.row = tigon_row(&p->space, t, (size_t)v_size(dtype), r), .cols = cols, .is = is, .capped = map->cap > 0};
  s.cap = vf_set(map->cap), s.inner = vf_set(tigon_logit_inner(map));
  s.missing = p->kind == TIGON_DIVERGENCE_COSINE || is == TIGON_DISTRIBUTION_PROBABILITIES ? 0 : -INFINITY;
  s.times = is == TIGON_DISTRIBUTION_LOGITS ? p->inverse_temperature : 1;
  if (!s.capped) s.times *= tigon_logit_scale(map);
  s.scale = vf_set(s.times);
  s.base = s.minus_rest = vf_zero(), s.most = vf_set(INFINITY);
  return s;
}
/* The same without the temperature. */
TIGON_INLINE side hard_side_of(const side *q, const tigon_logit_map *map) {
  side s = *q;
  s.times = s.capped ? 1 : tigon_logit_scale(map);
  s.scale = vf_set(s.times);
  return s;
}

/* Takes the log-sum-exp of a row of logits. One of f32 is a rounded one, which of huge logits says nothing of their probabilities: e is
 * enough. */
TIGON_INLINE void know(side *s, double lse) {
  const float base = s->times != 0 ? (float)(lse / (double)s->times) : 0;
  const bool finite = isfinite(base);
  s->base = vf_set(finite ? base : 0), s->most = vf_set(fabs(lse) > 0x1p20 ? 1 : INFINITY);
  s->minus_rest = vf_set((float)(finite ? (double)base * (double)s->times - lse : -lse));
}

/* The n elements at c; 0 after them. */
TIGON_INLINE vf load(tigon_dtype dtype, const void *row, int64_t c, int n) {
  return n == LANES ? v_load(row, c, dtype) : v_load_n(row, c, dtype, n);
}
TIGON_INLINE void store(tigon_dtype dtype, void *row, int64_t c, vf v, int n) {
  if (n == LANES)
    v_store(row, c, dtype, v);
  else
    v_store_n(row, c, dtype, v, n);
}

/* The first n lanes of v, 0 after them. An exponential of the others might be NaN, which times 0 stays one. */
TIGON_INLINE vf first(vf v, int n) {
  static const float lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return n == LANES ? v : vf_select(vf_lt(vf_load(lane), vf_set((float)n)), v, vf_zero());
}

TIGON_INLINE vf capped(const side *s, vf x) { return s->capped ? vf_mul(s->cap, vf_tanh(vf_mul(x, s->inner))) : x; }

/* The n elements at c of a side that may have fewer. */
TIGON_INLINE vf load_known(tigon_dtype dtype, const side *s, int64_t c, int n) {
  static const float lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  if (c + n <= s->cols) return capped(s, load(dtype, s->row, c, n));
  const vf missing = vf_set(s->missing);
  if (c >= s->cols) return missing;
  const int known = (int)(s->cols - c);
  const vf z = capped(s, load(dtype, s->row, c, known));
  return vf_select(vf_lt(vf_load(lane), vf_set((float)known)), z, missing);
}

/* An element's probability and its logarithm. */
typedef struct chance {
  vf log, of;
} chance;

/* A probability that underflows is still none of 0, so that it times Inf is Inf. */
TIGON_INLINE chance chance_of(tigon_dtype dtype, const side *s, int64_t c, int n) {
  const vf x = load_known(dtype, s, c, n);
  if (s->is == TIGON_DISTRIBUTION_PROBABILITIES) return (chance){vf_log(x), x};
  const vf log = vf_min(s->most, vf_fma(vf_sub(x, s->base), s->scale, s->minus_rest));
  const vf of = vf_max(vf_set(0x1p-126f), vf_exp(log));
  return (chance){log, vf_select(vf_eq(log, vf_set(-INFINITY)), vf_zero(), of)};
}

TIGON_INLINE vf unless_0(vf factor, vf v) { return vf_select(vf_eq(factor, vf_zero()), vf_zero(), v); }

/* -1, 0, 1 or NaN. */
TIGON_INLINE vf sign(vf v) {
  return vf_select(vf_lt(vf_zero(), v), vf_set(1.0f), vf_select(vf_lt(v, vf_zero()), vf_set(-1.0f), v));
}

/* beta's numbers, for jsd: log m - log q = log (1 - beta) + log(1 + e^v), log m - log p = log beta + log(1 + e^-v) with
 * v = log p - log q + log beta - log (1 - beta). m itself is never formed. */
typedef struct mixing {
  vf beta, rest, log_beta, log_rest, odds;
} mixing;
static inline mixing mixing_of(const problem *p) {
  if (p->kind != TIGON_DIVERGENCE_JSD) return (mixing){vf_zero(), vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  const double beta = (double)p->beta, log_beta = log(beta), log_rest = log1p(-beta);
  return (mixing){vf_set((float)beta), vf_set((float)(1 - beta)), vf_set((float)log_beta), vf_set((float)log_rest),
                  vf_set((float)(log_beta - log_rest))};
}
typedef struct logs {
  vf q, p; /* log q - log m, log p - log m */
} logs;
TIGON_INLINE logs to_mixture(const mixing *m, chance q, chance p) {
  const vf v = vf_add(vf_sub(p.log, q.log), m->odds), minus = vf_sub(vf_zero(), v);
  const vf near = vf_log(vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), vf_abs(v)))));
  const vf of_q = vf_add(m->log_rest, vf_add(vf_max(vf_zero(), v), near));
  const vf of_p = vf_add(m->log_beta, vf_add(vf_max(vf_zero(), minus), near));
  return (logs){vf_sub(vf_zero(), of_q), vf_sub(vf_zero(), of_p)};
}

/* What an element adds to the divergence, and to what the gradient of logits takes off. */
typedef struct terms {
  vf loss, mean;
} terms;
TIGON_INLINE terms terms_of(tigon_divergence_kind kind, const mixing *m, chance q, chance p) {
  const vf half = vf_set(0.5f);
  switch (kind) {
    case TIGON_DIVERGENCE_KL: return (terms){unless_0(p.of, vf_mul(p.of, vf_sub(p.log, q.log))), p.of};
    case TIGON_DIVERGENCE_REVERSE_KL: {
      const vf loss = unless_0(q.of, vf_mul(q.of, vf_sub(q.log, p.log)));
      return (terms){loss, loss};
    }
    case TIGON_DIVERGENCE_JSD: {
      const logs to = to_mixture(m, q, p);
      const vf of_q = vf_mul(m->rest, unless_0(q.of, vf_mul(q.of, to.q)));
      return (terms){vf_fma(m->beta, unless_0(p.of, vf_mul(p.of, to.p)), of_q), of_q};
    }
    default: {
      const vf apart = vf_sub(q.of, p.of);
      return (terms){vf_mul(half, vf_abs(apart)), vf_mul(half, vf_mul(q.of, sign(apart)))};
    }
  }
}

/* The gradient in what the input says. `off`: what logits take off, else -1 for reverse_kl, whose slope by q has a 1,
 * or 0. */
TIGON_INLINE vf slope_of(tigon_divergence_kind kind, tigon_distribution is, const mixing *m, vf off, chance q,
                         chance p) {
  vf slope;
  switch (kind) {
    case TIGON_DIVERGENCE_KL:
      if (is == TIGON_DISTRIBUTION_LOGITS) return vf_sub(vf_mul(q.of, off), p.of);
      if (is == TIGON_DISTRIBUTION_LOG_PROBABILITIES) return vf_sub(vf_zero(), p.of);
      return unless_0(p.of, vf_sub(vf_zero(), vf_div(p.of, q.of)));
    case TIGON_DIVERGENCE_REVERSE_KL: slope = vf_sub(q.log, p.log); break;
    case TIGON_DIVERGENCE_JSD: slope = vf_mul(m->rest, to_mixture(m, q, p).q); break;
    default: slope = vf_mul(vf_set(0.5f), sign(vf_sub(q.of, p.of))); break;
  }
  slope = vf_sub(slope, off);
  if (is != TIGON_DISTRIBUTION_PROBABILITIES) return unless_0(q.of, vf_mul(q.of, slope));
  return vf_select(vf_eq(q.of, vf_zero()), unless_0(p.of, slope), slope);
}

#endif
