/* The two sweeps over a row of cross_entropy.
 *
 * The first one finds its largest logit and its sums of e^(z - reference). The reference is the logit of some earlier x. It
 * moves, and the sums are rescaled, only for an x whose logit may be more than SLACK above it. Sums are f32 within a block of
 * columns and f64 across blocks. The second one writes dlogits; forward's finds the row in a cache. */
#ifndef TIGON_CPU_CROSS_ENTROPY_H
#define TIGON_CPU_CROSS_ENTROPY_H

#include <math.h>

#include "cpu/kernels.h"
#include "cpu/simd_math.h"

typedef tigon_cross_entropy_problem problem;

enum { BLOCK = 128 * LANES, UNROLL = 4 };

/* Bytes from what is worked on to what is fetched into the first and second-level cache. Past a row's end lies the next
 * row, or nothing, which a prefetch does not mind. */
enum { NEAR = 1024, FAR = 8192 };
enum { ROW_IN_CACHE = 768 << 10 }; /* bytes of a row which, with the next one, stays in a second-level cache */

#define SLACK 16.0f /* e^16 * BLOCK is far from f32's end */

/* e^x counts as 0 below ln 2^-126: denormals cost a microcode assist each. */
static const float exp_low = -87.33654f;

static const float lane_index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static inline vm first_n(int n) { return vf_lt(vf_load(lane_index), vf_set((float)n)); }

/* What the first sweep finds. */
typedef struct row_sums {
  float largest;   /* the largest x; NaN does not count */
  int64_t block;   /* the block where it is first met */
  float reference; /* finite */
  float limit;     /* an x above it moves the reference; -Inf before the first one */
  double sum;      /* sum of e^(z - reference) */
  double moment;   /* sum of e^(z - reference) * (z - reference) */
  double weighted; /* sum of weight * z */
} row_sums;

/* Their part in a block, by lanes. */
typedef struct lane_sums {
  vf sum, moment, weighted;
} lane_sums;

/* ---- logits: z = x / temperature, softcapped; `plain` when z is x ---- */

/* Arithmetic with denormals costs a microcode assist an instruction, but for additions. What is that small counts as 0
 * before it is multiplied, and a plain row's reference is kept away from it: x - reference is then a normal number. */
#define TINY 0x1p-100f

TIGON_INLINE vf scaled(const problem *p, vf x) {
  return vf_mul(vf_select(vf_lt(vf_abs(x), vf_set(TINY)), vf_zero(), x), vf_set(p->inverse_temperature));
}

TIGON_INLINE vf logit(bool plain, const problem *p, vf x) {
  if (plain) return x;
  const vf u = scaled(p, x);
  return p->softcap > 0 ? vf_mul(vf_set(p->softcap), vf_tanh(vf_mul(u, vf_set(1.0f / p->softcap)))) : u;
}

static inline float away_from_0(float reference) {
  return reference != 0 && fabsf(reference) < TINY ? 0x1p-60f : reference;
}

static double logit_f64(const problem *p, double x) {
  const double u = x * (double)p->inverse_temperature, cap = (double)p->softcap;
  return cap > 0 ? cap * tanh(u / cap) : u;
}

/* ---- first sweep ---- */

/* The slope of z in x is at most 1 / temperature, so logits stay below reference + SLACK up to the new limit. */
TIGON_INLINE void raise(bool plain, const problem *p, float largest, row_sums *s, lane_sums lanes[UNROLL]) {
  const float reference = away_from_0(vf_max_across(logit(plain, p, vf_set(largest))));
  const bool first = s->limit == -INFINITY;
  s->limit = isfinite(reference) ? largest + SLACK / p->inverse_temperature : INFINITY;
  if (!isfinite(reference)) return;
  const double shift = fmax((double)s->reference - (double)reference, -1000);
  s->reference = reference;
  if (first && !(p->softcap > 0)) return; /* nothing but -Inf and NaN so far; softcapped, -Inf counts */
  const double factor = exp(shift);
  s->moment = (s->moment + s->sum * shift) * factor;
  s->sum *= factor;
  for (int k = 0; k < UNROLL; ++k) {
    lanes[k].moment = vf_mul(vf_fma(lanes[k].sum, vf_set((float)shift), lanes[k].moment), vf_set((float)factor));
    lanes[k].sum = vf_mul(lanes[k].sum, vf_set((float)factor));
  }
}

/* Adds a vector of x, of which n lanes count; the others are -Inf. */
TIGON_INLINE void add_lanes(bool plain, bool more, const problem *p, vf x, int64_t c, int n, vf minus_reference,
                            lane_sums *to) {
  vf z = logit(plain, p, x);
  const vf d = vf_add(z, minus_reference);
  exp_parts e = vf_exp_split(d);
  if (n < LANES) e.scale = vf_select(first_n(n), e.scale, vf_zero());
  to->sum = vf_fma(e.p, e.scale, to->sum);
  if (!more) return;
  to->moment = vf_fma(vf_mul(e.p, e.scale), vf_max(vf_set(exp_low), d), to->moment); /* 0 * -Inf is 0 here */
  if (n < LANES) z = vf_select(first_n(n), z, vf_zero());
  to->weighted = p->weight ? vf_fma(vf_add(z, vf_set(0x1p-60f)), vf_load_n(p->weight + c, n), to->weighted)
                           : vf_add(to->weighted, z);
}

/* What a sweep carries from group to group, in every lane. */
typedef struct sweep_state {
  vf largest; /* by lanes */
  vf limit, minus_reference;
} sweep_state;

/* The `count` vectors at c; n lanes of the last one count. */
TIGON_INLINE void add_group(tigon_dtype dtype, bool plain, bool more, const problem *p, const void *x, int64_t c,
                            int count, int n, sweep_state *at, row_sums *s, lane_sums lanes[UNROLL]) {
  vf v[UNROLL];
  v[0] = n == LANES ? v_load(x, c, dtype) : vf_select(first_n(n), v_load_n(x, c, dtype, n), vf_set(-INFINITY));
  for (int k = 1; k < count; ++k) v[k] = v_load(x, c + k * LANES, dtype);
  const vf top = count == UNROLL ? vf_max(vf_max(v[0], v[1]), vf_max(v[2], v[3])) : v[0];
  at->largest = vf_max(top, at->largest);
  if (vm_any(vf_lt(at->limit, top))) {
    raise(plain, p, vf_max_across(at->largest), s, lanes);
    at->limit = vf_set(s->limit);
    at->minus_reference = vf_set(-s->reference);
  }
  for (int k = 0; k < count; ++k) add_lanes(plain, more, p, v[k], c + k * LANES, n, at->minus_reference, &lanes[k]);
}

TIGON_INLINE float sum_lanes(vf a, vf b, vf c, vf d) { return vf_sum(vf_add(vf_add(a, b), vf_add(c, d))); }

TIGON_INLINE void sweep(tigon_dtype dtype, bool plain, bool more, const problem *p, const void *x, row_sums *s) {
  const int group_bytes = UNROLL * LANES * (dtype == TIGON_F32 ? 4 : 2);
  const vf lowest = vf_set(-INFINITY);
  *s = (row_sums){.largest = -INFINITY, .limit = -INFINITY, .reference = -p->softcap};
  sweep_state at = {lowest, lowest, vf_set(-s->reference)};
  for (int64_t begin = 0; begin < p->cols; begin += BLOCK) {
    const int64_t end = p->cols - begin < BLOCK ? p->cols : begin + BLOCK;
    lane_sums lanes[UNROLL];
    for (int k = 0; k < UNROLL; ++k) lanes[k] = (lane_sums){vf_zero(), vf_zero(), vf_zero()};
    int64_t c = begin;
    const char *now = (const char *)x + c * (group_bytes / (UNROLL * LANES));
    for (; c + UNROLL * LANES <= end; c += UNROLL * LANES, now += group_bytes) {
      for (int i = 0; i < group_bytes; i += 64) vf_prefetch(now + NEAR + i), vf_prefetch_l2(now + FAR + i);
      add_group(dtype, plain, more, p, x, c, UNROLL, LANES, &at, s, lanes);
    }
    for (; c < end; c += LANES)
      add_group(dtype, plain, more, p, x, c, 1, end - c < LANES ? (int)(end - c) : LANES, &at, s, lanes);
    const float top = vf_max_across(at.largest);
    if (top > s->largest) s->largest = top, s->block = begin;
    s->sum += (double)sum_lanes(lanes[0].sum, lanes[1].sum, lanes[2].sum, lanes[3].sum);
    if (!more) continue;
    s->moment += (double)sum_lanes(lanes[0].moment, lanes[1].moment, lanes[2].moment, lanes[3].moment);
    s->weighted += (double)sum_lanes(lanes[0].weighted, lanes[1].weighted, lanes[2].weighted, lanes[3].weighted);
  }
}

/* The first column from `begin` on that is `wanted`, or any NaN when that is; -1: none. */
TIGON_INLINE int64_t find(tigon_dtype dtype, const problem *p, const void *x, int64_t begin, float wanted) {
  for (int64_t c = begin; c < p->cols; c += LANES) {
    const int n = p->cols - c < LANES ? (int)(p->cols - c) : LANES;
    const vf v = v_load_n(x, c, dtype, n);
    if (!vm_any(wanted != wanted ? vf_nan(v) : vf_eq(v, vf_set(wanted)))) continue;
    for (int64_t i = c; i < c + n; ++i) { /* lanes past the end are 0 */
      const float f = s_load(x, i, dtype);
      if (f == wanted || (wanted != wanted && f != f)) return i;
    }
  }
  return -1;
}

/* The log-sum-exp and, when wanted, the first largest column; a NaN counts as the largest. */
TIGON_INLINE double finish(tigon_dtype dtype, const problem *p, const void *x, const row_sums *s, int64_t *argmax) {
  const float largest = (float)logit_f64(p, (double)s->largest);
  const bool suspect = s->sum != s->sum || !isfinite(largest);
  const int64_t nan = suspect ? find(dtype, p, x, 0, NAN) : -1;
  if (argmax) *argmax = nan >= 0 ? nan : find(dtype, p, x, s->block, s->largest);
  if (nan >= 0) return (double)NAN;
  return isfinite(largest) ? (double)s->reference + log(s->sum) : (double)largest;
}

/* ---- second sweep ---- */

/* A logit is its x, without and with smoothing; any logits; the entropy's gradient besides. */
typedef enum gradient_kind { PLAIN, PLAIN_SMOOTH, GENERAL, ENTROPY } gradient_kind;

/* dlogits[c] = slope * (factor * e^(z - reference) - share * w[c]), in every lane, where the factor is
 * scale - entropy_scale * (z - reference + entropy): of the loss, and of the entropy */
typedef struct gradient {
  vf minus_reference, scale, share;
  vf entropy_scale, entropy; /* entropy: lse's distance from the reference is taken away */
  vf low;                    /* z - reference below it counts as -Inf */
  const float *weight;       /* may be NULL */
} gradient;

TIGON_INLINE void gradient_lanes(tigon_dtype dtype, gradient_kind kind, const problem *p, const gradient *g,
                                 const void *x, void *out, int64_t c, int n, bool stream) {
  const bool plain = kind == PLAIN || kind == PLAIN_SMOOTH;
  vf z = n == LANES ? v_load(x, c, dtype) : v_load_n(x, c, dtype, n), slope = vf_set(1.0f);
  if (!plain) {
    z = scaled(p, z);
    if (p->softcap > 0) z = vf_mul(vf_set(p->softcap), vf_tanh_slope(vf_mul(z, vf_set(1.0f / p->softcap)), &slope));
  }
  const vf d = vf_add(z, g->minus_reference);
  exp_parts e = vf_exp_split(d);
  e.scale = vf_select(vf_lt(d, g->low), vf_zero(), e.scale);
  vf factor = g->scale;
  if (kind == ENTROPY)
    factor = vf_fnma(g->entropy_scale, vf_add(vf_max(vf_set(exp_low), d), g->entropy), factor); /* 0 * -Inf is 0 */
  vf y = vf_mul(e.p, vf_mul(e.scale, factor));
  if (kind != PLAIN) y = vf_fnma(g->share, g->weight ? vf_load_n(g->weight + c, n) : vf_set(1.0f), y);
  if (!plain) y = vf_mul(y, slope);
  if (n == LANES)
    v_put(out, c, dtype, y, stream);
  else
    v_store_n(out, c, dtype, y, n);
}

/* far: what to fetch into the second-level cache meanwhile. */
TIGON_INLINE void gradient_sweep(tigon_dtype dtype, gradient_kind kind, const problem *p, const gradient *shared,
                                 const void *x, void *out, const char *far, bool stream) {
  const problem call = *p; /* which, as the next, no store through `out` can reach */
  const gradient g = *shared;
  const int64_t cols = p->cols;
  const int64_t size = dtype == TIGON_F32 ? 4 : 2, line = 64 / size, step = line > LANES ? line : LANES;
  int64_t c = 0;
  if (stream && !v_aligned(out, dtype)) {
    const int64_t vector = LANES * size, head = (vector - (int64_t)((uintptr_t)out % (uintptr_t)vector)) / size;
    c = head < cols ? head : cols;
    gradient_lanes(dtype, kind, &call, &g, x, out, 0, (int)c, false);
  }
  for (; c + step <= cols; c += step) {
    vf_prefetch((const char *)x + c * size + NEAR);
    vf_prefetch_l2(far + c * size);
    for (int64_t i = 0; i < step; i += LANES) gradient_lanes(dtype, kind, &call, &g, x, out, c + i, LANES, stream);
  }
  for (; c < cols; c += LANES)
    gradient_lanes(dtype, kind, &call, &g, x, out, c, cols - c < LANES ? (int)(cols - c) : LANES, false);
}

#endif
