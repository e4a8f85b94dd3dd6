/* What the bounds of fused_moe are made of: a slot's numbers with their rounding errors. */
#ifndef TIGON_CHECK_FUSED_MOE_H
#define TIGON_CHECK_FUSED_MOE_H

#include "check/number.h"
#include "core/context.h"
#include "core/half.h"

/* A case's sizes, options and inputs; gate_up and down are [E, 2I, H] and [E, H, I], whatever they are stored as. */
typedef struct moe_case {
  int64_t tokens, hidden, inner, experts, top_k;
  bool interleaved, before, has_pre;
  tigon_moe_act act;
  double gate_mult, down_mult, clamp, up_offset; /* as f32 has them, 0 where the call has 0 */
  tigon_tensor x, idx, w, gate_up, gate_up_bias, down, down_bias, pre, dy;
  int64_t *position; /* [tokens * top_k] in the order of experts */
} moe_case;

/* A sum of `terms` products in f32, as linear's. */
static inline double moe_sum_units(int64_t terms) { return terms + 2 < 16 ? (double)terms + 2 : 16; }

/* A rounding to the dtype, of which the oracle has another result only where one lies between. */
static inline num moe_rounded(const check *k, num a) {
  const double at = tigon_round_f64(a.v, k->dtype), off = a.e * 0x1p-24;
  if (!isfinite(at)) return (num){at, 0};
  const double up = tigon_round_f64(a.v + off, k->dtype) - at, down = at - tigon_round_f64(a.v - off, k->dtype);
  return (num){at, fmin(fmax(up, down) * 0x1p24, 0x1p500)};
}

/* What a backend may round to the dtype and store for each slot; a host adds it in f32. In units of 2^-24. */
static inline double moe_share_units(const check *k) {
  const bool host = k->context->queue.backend->host_memory;
  return host || k->dtype == TIGON_F32 ? 1 : k->dtype == TIGON_BF16 ? 0x1p16 : 0x1p13;
}

static inline int64_t moe_expert(const moe_case *m, int64_t slot) {
  const int64_t e = tigon_load_index(m->idx.data, slot, m->idx.dtype);
  return e >= 0 && e < m->experts ? e : -1;
}
static inline double moe_w(const moe_case *m, int64_t slot) { return check_value(&m->w, slot); }
static inline double moe_vector(const tigon_tensor *t, int64_t i) { return t->ndim ? check_value(t, i) : 0; }
static inline double moe_gate_up(const moe_case *m, int64_t e, int64_t i, int64_t h) {
  return check_value(&m->gate_up, (e * 2 * m->inner + i) * m->hidden + h);
}
static inline double moe_down(const moe_case *m, int64_t e, int64_t h, int64_t j) {
  return check_value(&m->down, (e * m->hidden + h) * m->inner + j);
}
static inline int64_t moe_gate_at(const moe_case *m, int64_t j) { return m->interleaved ? 2 * j : j; }
static inline int64_t moe_up_at(const moe_case *m, int64_t j) { return m->interleaved ? 2 * j + 1 : m->inner + j; }

/* Makes room for the positions and, where bounds are needed, fills them in: by expert, slots of none last. */
static inline void moe_order(check *k, moe_case *m) {
  const int64_t slots = m->tokens * m->top_k;
  int64_t next = 0;
  m->position = check_list(k, "position", (size_t)(slots + 1) * sizeof *m->position);
  for (int64_t e = 0; k->oracle && e <= m->experts; ++e)
    for (int64_t s = 0; s < slots; ++s)
      if (moe_expert(m, s) == (e < m->experts ? e : -1)) m->position[s] = next++;
}

/* Before it is rounded: element i of slot s's pre. */
static inline num moe_pre(const moe_case *m, int64_t s, int64_t e, int64_t i) {
  const double bias = moe_vector(&m->gate_up_bias, e * 2 * m->inner + i);
  double sum = bias, size = fabs(bias);
  for (int64_t h = 0; h < m->hidden; ++h) {
    const double term = check_value(&m->x, s / m->top_k * m->hidden + h) * moe_gate_up(m, e, i, h);
    sum += term, size += fabs(term);
  }
  return made(sum, moe_sum_units(m->hidden) * size);
}

/* Column j's c, its slopes, 0 where a clamp is, and what an uncertain clamp adds to these. */
typedef struct moe_gated {
  num c, by_a, by_b;
} moe_gated;

static inline num moe_clamped(num a, double low, double high) {
  return (num){a.v > high ? high : a.v < low ? low : a.v, a.e};
}
/* Is it clamped? Where that is not sure, the slope may be 0 or not. */
static inline num moe_through(num slope, num at, double low, double high) {
  const double off = at.e * 0x1p-24;
  const bool beyond = at.v > high || at.v < low;
  const bool sure = at.e == 0 || (fabs(at.v - high) > off && fabs(at.v - low) > off);
  const num is = beyond ? exactly(0) : slope;
  return sure ? is : (num){is.v, is.e + fabs(slope.v) * 0x1p24};
}

static inline moe_gated moe_gate(const check *k, const moe_case *m, num a, num b) {
  const double inf = (double)INFINITY, clamp = m->clamp > 0 ? m->clamp : inf;
  const double mult = m->gate_mult == 0 ? 1 : m->gate_mult, factor = m->down_mult == 0 ? 1 : m->down_mult;
  const num one = exactly(1), down = exactly(factor), by_mult = exactly(mult);
  const num u = times(by_mult, moe_clamped(a, -inf, clamp));
  const num up = plus(moe_clamped(b, -clamp, clamp), exactly(m->up_offset));
  const bool gelu = m->act == TIGON_MOE_GELU_TANH;
  const num scale = made(1.5957691216057308, 1), cubic = made(0.07135481282647283, 1);
  const num square = times(u, u), inner = gelu ? times(u, plus(scale, times(cubic, square))) : u;
  const num steep = gelu ? plus(scale, times(exactly(3), times(cubic, square))) : one;
  const num s = logistic(k, inner), rest = logistic(k, minus(inner)), product = times(u, s);
  const num value = times(down, (num){product.v, product.e + check_flushed(k)}); /* a division of u may be flushed */
  const num slope = plus(s, times(times(u, times(s, rest)), steep));
  return (moe_gated){times(value, up), moe_through(times(times(times(down, by_mult), up), slope), a, -inf, clamp),
                     moe_through(value, b, -clamp, clamp)};
}

/* The sum of terms with errors in f32. */
typedef struct moe_sum {
  double v, e, size;
  int64_t terms;
} moe_sum;
static inline void moe_add(moe_sum *sum, num a) { sum->v += a.v, sum->e += a.e, sum->size += fabs(a.v), ++sum->terms; }
static inline num moe_total(const moe_sum *sum) { return made(sum->v, sum->e + moe_sum_units(sum->terms) * sum->size); }
/* A product with a number that has no error, whose own rounding is the sum's. */
static inline num moe_scaled(num a, double by) { return (num){a.v * by, a.e * fabs(by)}; }

#endif
