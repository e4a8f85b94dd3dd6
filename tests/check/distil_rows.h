/* Code that the checks of distillation through a head share: a student's logits, the bounds of a divergence of two rows of
 * log-probabilities, and the terms of the cross entropy and a softcap.
 *
 * The bounds follow one perturbation through the op, as fused_linear_cross_entropy's do. A logit is off by its f32 sum's error
 * and, in 16 bits, by one ulp. A softcap's f32 adds its own error. So a log-probability is off by twice the most of a row, and
 * by what divergence's own f32 adds: `off_q` and `off_p`. */
#ifndef TIGON_CHECK_DISTIL_ROWS_H
#define TIGON_CHECK_DISTIL_ROWS_H

#include "check/divergence.h"
#include "check/head_rows.h"

/* check_sizes: rows, width, vocabulary. The denominator counts all rows. */
#define DISTIL_SIZES                                                              \
  .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {CHECK_MANY, 512, 5}}, \
  .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}}

/* bench_case: a step's tokens with few classes, because a teacher's logits take as much memory again. */
#define DISTIL_CASE \
  .rows_f32 = 256, .rows_16bit = 256, .cols = 1024, .other = 16000, .dims = bench_words, .of_model = head_of_model

/* A side's softcap and scale. */
typedef struct map {
  double cap, scale;
} map;
static inline map map_of(double cap, double scale) { return (map){cap, scale != 0 ? (double)(float)scale : 1}; }

/* A call, and the student's logits of a row. */
typedef struct distil {
  check *k;
  bool wide;
  int kind;
  double beta, it; /* it: 1 / temperature, as f32 */
  map of;
  double *x;                 /* [vocab] */
  double *steep, *steep_off; /* [vocab]: d x / d u, and what it is off by */
} distil;

static inline distil distil_of(check *k, int kind, double beta, double temperature, map of, bool wide) {
  const int64_t vocab = k->dims[2];
  return (distil){.k = k,
                  .wide = wide,
                  .kind = kind,
                  .beta = (double)(float)beta,
                  .it = temperature != 0 ? (double)(float)(1 / temperature) : 1,
                  .of = of,
                  .x = check_doubles(k, vocab),
                  .steep = check_doubles(k, vocab),
                  .steep_off = check_doubles(k, vocab)};
}

/* A cap's slope at u, which may be off by `shift`: that of 1 / cosh^2 a is 2 |tanh a| times a's, and 6 ulps. It is 1 at
 * most, and below e^-87 it may be 0. */
static inline void slope_of(const distil *c, const map *m, double u, double shift, int64_t v) {
  const double a = fabs(u) * m->scale / m->cap, cosine = cosh(fmin(a, 300)), slope = 1 / (cosine * cosine);
  const double off = expm1(2 * (a * 0x1p-22 + shift * m->scale / m->cap)) + 0x1p-24 * (12 + check_calls(c->k, 2, 1));
  c->steep[v] = m->scale * slope;
  c->steep_off[v] = m->scale * (fmin(1, slope * off) + 0x1p-123);
}

/* `known` logits of a head, and how far one of them may be off. `of_student`: their slopes, too. */
static inline double side_logits(const distil *c, const tigon_tensor *hidden, const tigon_tensor *weight,
                                 const tigon_tensor *bias, const map *m, int64_t r, int64_t width, int64_t known,
                                 bool of_student, double *to) {
  double shift = 0;
  for (int64_t v = 0; v < known; ++v) {
    double absolute = 0, x = head_dot(hidden, r, weight, v, width, &absolute);
    if (bias->ndim) x += check_value(bias, v), absolute += fabs(check_value(bias, v));
    const double own = 16 * 0x1p-24 * absolute + head_ulp(c->wide ? TIGON_F32 : c->k->dtype) * fabs(x);
    if (isfinite(x)) shift = fmax(shift, own);
    to[v] = m->cap != 0 ? m->cap * tanh(x * m->scale / m->cap) : x * m->scale;
    if (of_student) c->steep[v] = m->scale, c->steep_off[v] = 0;
    if (of_student && m->cap != 0) slope_of(c, m, x, own, v);
  }
  shift *= m->scale;
  /* a tanh of 5, its argument's two roundings and the product's */
  if (m->cap != 0) shift = fmin(shift, 2 * m->cap) + 0x1p-24 * m->cap * (8 + check_calls(c->k, 0.5, 2));
  return shift;
}

/* Log-probabilities of `known` logits times `by`, and how far one of them is off. */
static inline double normalise(const check *k, const double *x, int64_t known, int64_t vocab, double by, double shift,
                               double *lse, double *to) {
  double largest = -INFINITY, sum = 0, reach = 0;
  for (int64_t v = 0; v < known; ++v) largest = fmax(largest, x[v] * by);
  for (int64_t v = 0; v < known; ++v) sum += exp(x[v] * by - largest);
  *lse = isfinite(largest) ? largest + log(sum) : largest;
  for (int64_t v = 0; v < vocab; ++v) {
    to[v] = v < known ? x[v] * by - *lse : -INFINITY;
    if (isfinite(to[v])) reach = fmax(reach, fabs(to[v]) + fabs(x[v] * by));
  }
  return 2 * shift * by + 0x1p-24 * (64 + 9 * reach + 4 * check_calls(k, 2, 0));
}

/* log a - log m of jsd, m = share a + (1 - share) b. */
static inline double to_mixture(double a, double b, double share) {
  const double v = b - a + log1p(-share) - log(share);
  return -(log(share) + (v > 0 ? v : 0) + log1p(exp(-fabs(v))));
}

/* log-probabilities of `count` classes of both sides. */
typedef struct both {
  int64_t count;
  const double *q, *p, *off_p; /* [count] */
  double off_q;
} both;

/* A probability, what it may be off by, and at most. */
typedef struct chance {
  double of, off, most;
} chance;
static inline chance chance_of(double log_of, double off) {
  const double of = exp(log_of), most = fmax(of, exp(fmin(0, log_of + off)));
  return (chance){of, fmax(most - of, times(of, -expm1(-off))), most};
}

/* D's error, and of its gradient by each x, before the factor of its row. f32's own additions are within 42 roundings of the
 * sizes. */
static inline double bound_both(const distil *c, const both *w, double *off, double *size) {
  const double b = c->beta, add = 42 * 0x1p-24;
  double error = 0, mean = 0, mean_error = 0, all = 0;
  for (int64_t v = 0; v < w->count; ++v) {
    const double u = w->q[v] - w->p[v], off_p = w->off_p[v], of_both = off_p + w->off_q, of_m = fmax(off_p, w->off_q);
    const chance q = chance_of(w->q[v], w->off_q), p = chance_of(w->p[v], off_p);
    double d = 0, of_slope = 0, slope = 0;
    if (c->kind == KL) {
      d = times(p.of, -u), error += times(p.most, of_both) + times(p.off, fabs(u)), all += p.of;
    } else if (c->kind == REVERSE) {
      d = times(q.of, u), slope = u, of_slope = of_both;
      error += times(q.most, of_both) + times(q.off, fabs(u));
    } else if (c->kind == JSD) {
      const double to_q = w->q[v] == -INFINITY ? 0 : to_mixture(w->q[v], w->p[v], 1 - b),
                   to_p = w->p[v] == -INFINITY ? 0 : to_mixture(w->p[v], w->q[v], b);
      const double own = 0x1p-24 * (16 + 4 * fabs(log(b)) + 4 * fabs(log1p(-b)));
      d = b * times(p.of, to_p) + (1 - b) * times(q.of, to_q);
      slope = (1 - b) * to_q, of_slope = (1 - b) * (w->off_q + of_m + own);
      error += b * (times(p.most, off_p + of_m + own) + times(p.off, fabs(to_p)));
      error += (1 - b) * (times(q.most, w->off_q + of_m + own) + times(q.off, fabs(to_q)));
    } else {
      const double may = q.off + p.off + 0x1p-125;
      d = 0.5 * fabs(q.of - p.of), slope = q.of > p.of ? 0.5 : q.of < p.of ? -0.5 : 0;
      of_slope = fabs(q.of - p.of) <= may ? 1 : 0;
      error += 0.5 * may;
    }
    error += add * fabs(d);
    mean += times(q.of, slope);
    mean_error += times(q.most, of_slope) + times(q.off, fabs(slope)) + add * times(q.of, fabs(slope));
    off[v] = of_slope, size[v] = slope;
  }
  for (int64_t v = 0; v < w->count; ++v) {
    const chance q = chance_of(w->q[v], w->off_q), p = chance_of(w->p[v], w->off_p[v]);
    const double apart = fabs(size[v] - mean), wrong = off[v] + mean_error, sizes = fabs(size[v]) + fabs(mean);
    if (c->kind == KL) {
      off[v] = all * (q.off + q.of * add) + p.off, size[v] = q.of * all + p.of;
    } else {
      off[v] = times(q.most, wrong) + times(q.off, apart) + times(q.of, 0x1p-22 * apart + 0x1p-23 * sizes);
      size[v] = times(q.of, apart);
    }
    /* exp's least is 2^-126, in place of all below it: a probability may be too large by that, and so may what it weighs. */
    const double least = 0x1p-125 * (1 + (isfinite(apart) && c->kind != KL ? apart : 0));
    off[v] = c->it * (off[v] + 0x1p-22 * size[v] + least), size[v] *= c->it;
  }
  return error;
}

/* What a row's gradient by u is made of: factors of the divergence and the cross entropy, that of both, and the class. */
typedef struct mixed {
  double soft, hard, by, hard_lse, off_hard;
  int64_t label; /* -1: none */
} mixed;

/* The divergence's gradient by x, then the whole gradient by u. */
static inline void mix_row(const distil *c, const mixed *m, double *off, double *size) {
  for (int64_t v = 0; v < c->k->dims[2]; ++v) {
    const chance q = chance_of(c->x[v] - m->hard_lse, m->off_hard);
    const double all = m->soft * size[v] + m->hard * (q.of + (v == m->label ? 1 : 0));
    const double wrong = m->soft * off[v] + m->hard * q.off;
    size[v] = m->by * c->steep[v] * all;
    off[v] = m->by * (wrong * (c->steep[v] + c->steep_off[v]) + all * c->steep_off[v]) +
             (head_ulp(c->k->dtype) + 0x1p-20) * size[v] +
             0x1p-126 * fmax(1, m->by * c->of.scale * (m->soft + m->hard));
    if (!isfinite(off[v]) || !isfinite(size[v])) off[v] = size[v] = 0;
  }
}

#endif
