/* What a log-probability and an entropy of a head, and the gradients that flow back through them, may be off by. The bounds
 * follow one perturbation, as in fused_linear_cross_entropy's check. Logits are off by `shift`, and the log-sum-exp by as much.
 * So a log-probability is off by twice that, and a probability by a factor of e^(2 shift). */
#ifndef TIGON_CHECK_HEAD_ROWS_H
#define TIGON_CHECK_HEAD_ROWS_H

#include "check/head.h"

enum { IGNORED = 0 };

static const double cap = 4, temperature = 0.8;

/* A row. `off` and `size` of dx are [vocab]. */
typedef struct row {
  bool counts;
  int64_t label; /* as a row of the weight, which it need not be in a shard */
  double largest, lse, entropy, logprob;
  double shift, entropy_off;
} row;

/* A head's inputs. */
typedef struct head_case {
  check *k;
  bool ignores, capped, cap_first, wide;
  int64_t rows, width, vocab;
  int64_t before, after; /* classes of other shards, which labels may be */
  tigon_tensor hidden, weight, bias, labels;
  double *x, *z, *logit_off; /* [vocab] of a row */
  double *off, *size;        /* [rows, vocab] of dx, or of a unit's */
} head_case;

static inline double logit_of(const head_case *o, double x) {
  if (!o->capped) return x;
  return o->cap_first ? cap * tanh(x / cap) / temperature : cap * tanh(x / temperature / cap);
}

static inline tigon_dtype logits_dtype(const head_case *s) { return s->wide ? TIGON_F32 : s->k->dtype; }

static inline void logits_of(const head_case *s, int64_t r) {
  for (int64_t v = 0; v < s->vocab; ++v) {
    double absolute = 0, sum = head_dot(&s->hidden, r, &s->weight, v, s->width, &absolute);
    if (s->bias.ndim) sum += check_value(&s->bias, v), absolute += fabs(check_value(&s->bias, v));
    s->x[v] = sum;
    s->z[v] = logit_of(s, sum);
    s->logit_off[v] = 16 * 0x1p-24 * absolute + head_ulp(logits_dtype(s)) * fabs(sum);
  }
}

static inline row row_of(const head_case *s, int64_t r) {
  const int64_t label = (int64_t)check_value(&s->labels, r);
  row w = {.label = label - s->before};
  double largest = -INFINITY, sum = 0, moment = 0;
  w.counts = !s->ignores || label != IGNORED;
  logits_of(s, r);
  for (int64_t v = 0; v < s->vocab; ++v) {
    if (isfinite(s->x[v])) w.shift = fmax(w.shift, s->logit_off[v]); /* Inf is Inf for both */
    largest = fmax(largest, s->z[v]);
  }
  for (int64_t v = 0; v < s->vocab; ++v) sum += exp(s->z[v] - largest);
  w.largest = largest;
  w.lse = largest + log(sum);
  if (w.label >= 0 && w.label < s->vocab) w.logprob = s->z[w.label] - w.lse;
  for (int64_t v = 0; v < s->vocab && isfinite(w.lse); ++v) {
    const double below = w.lse - s->z[v], d = fmax(largest - s->z[v], 16), p = exp(-below);
    if (!isfinite(below)) continue;
    w.entropy += p * below;
    moment += p * d * (24 + check_calls(s->k, 2, 1) + 2 * d);
  }
  if (s->capped) w.shift = w.shift / temperature + 0x1p-24 * cap / temperature * (8 + check_calls(s->k, 0.5, 2));
  w.shift += 0x1p-21 * (1 + fabs(w.lse)) + 0x1p-24 * check_calls(s->k, 2, 0) +
             0x1p-24 * check_calls(s->k, 1, 0) * (w.lse - largest);
  w.entropy_off = expm1(2 * w.shift) * (w.entropy + 2 * w.shift) + 2 * w.shift + 0x1p-24 * moment;
  return w;
}

/* dx of row r for upstream gradients of the log-probability and of the entropy. */
static inline void spread_row(const head_case *s, const row *w, int64_t r, double dlogprob, double dentropy) {
  const double by = fabs(dlogprob) / (s->capped ? temperature : 1);
  const double by_entropy = fabs(dentropy) / (s->capped ? temperature : 1);
  const double cap_of = s->cap_first ? cap / temperature : cap;
  for (int64_t v = 0; v < s->vocab && w->counts && isfinite(w->lse); ++v) {
    const double below = fabs(w->lse - s->z[v]), high = fmin(1, exp(s->z[v] - w->lse + 2 * w->shift));
    /* The entropy may be off by more than any number. */
    const bool spreads = by_entropy > 0 && isfinite(below);
    const double spread = spreads ? below + 2 * w->shift + w->entropy + w->entropy_off : 0;
    const double of_entropy = spreads && high > 0 ? by_entropy * high * spread : 0;
    const double size = by * (high + (v == w->label)) + of_entropy;
    const int64_t at = r * s->vocab + v;
    s->size[at] = size;
    s->off[at] = fmin(1, 4 * w->shift) * (high * by + of_entropy) +
                 (spreads && high > 0 ? by_entropy * high * (2 * w->shift + w->entropy_off) : 0) +
                 size * ((s->capped ? fmin(1, 2 * w->shift / cap_of) : 0) + head_ulp(s->k->dtype) + 0x1p-19 +
                         0x1p-24 * check_calls(s->k, 2, 2)) +
                 0x1p-118 * fmax(1, by + by_entropy);
  }
}

/* What products of dx with hidden, weight and 1 may be off by. */
static inline void bound_products(const head_case *s, const tigon_tensor *dhidden, const tigon_tensor *dweight,
                                  const tigon_tensor *dbias, const double *old_dweight, const double *old_dbias) {
  check *k = s->k;
  const int64_t width = s->width;
  const double add = 16 * 0x1p-24; /* error of a f32 sum, as in linear's check */
  double *dx = check_doubles(k, s->rows * width), *dw = check_doubles(k, s->vocab * width),
         *db = check_doubles(k, s->vocab);
  for (int64_t at = 0; k->oracle && at < s->rows * s->vocab; ++at) {
    const int64_t r = at / s->vocab, v = at % s->vocab;
    const double off = s->off[at] + add * s->size[at];
    const int64_t hidden = check_offset(&s->hidden, r * width), weight = check_offset(&s->weight, v * width);
    db[v] += off;
    for (int64_t i = 0; off != 0 && i < width; ++i) {
      dx[r * width + i] += off * fabs(tigon_load_f64(s->weight.data, weight + i, k->dtype));
      dw[v * width + i] += off * fabs(tigon_load_f64(s->hidden.data, hidden + i, k->dtype));
    }
  }
  for (int64_t i = 0; old_dweight && i < s->vocab * width; ++i) dw[i] += add * old_dweight[i];
  for (int64_t v = 0; old_dbias && v < s->vocab; ++v) db[v] += add * old_dbias[v];
  head_bound(k, dhidden, dx);
  head_bound(k, dweight, dw);
  head_bound(k, dbias, db);
}

/* The same row for an upstream gradient of the log-probability that is off by `off`. */
static inline void widen_row(const head_case *s, const row *w, int64_t r, double off) {
  const double by = off / (s->capped ? temperature : 1);
  for (int64_t v = 0; v < s->vocab && w->counts && isfinite(w->lse); ++v)
    s->off[r * s->vocab + v] += by * (fmin(1, exp(s->z[v] - w->lse + 2 * w->shift)) + (v == w->label));
}

/* The rows of `t` as sequences [count, T, H]; with count 0 as they are. */
static inline tigon_tensor head_view(const tigon_tensor *t, int64_t count) {
  tigon_tensor view = *t;
  if (count == 0) return view;
  const int64_t length = t->shape[0] / count;
  view.ndim = 3;
  view.shape[0] = count, view.shape[1] = length, view.shape[2] = t->shape[1];
  view.strides[0] = length > 1 ? length * t->strides[0] : t->strides[0];
  view.strides[1] = t->strides[0], view.strides[2] = t->strides[1];
  return view;
}

/* `count` sequences of `tokens`, of which some are longer than others and, of few tokens, some are empty. */
static inline tigon_tensor head_segments(check *k, int64_t count, int64_t tokens) {
  const int64_t ends = count + 1;
  const tigon_tensor made = check_inout_dense(k, "segments", TIGON_I64, 1, &ends, CHECK_UNIFORM);
  int64_t before = 0;
  for (int64_t s = 0; !k->timed && s <= count; ++s) {
    int64_t at = s == count ? tokens : count > 0 ? tokens * s / count - (s % 3 == 1) : 0;
    at = at < before ? before : at;
    ((int64_t *)made.data)[s] = before = at;
  }
  return made;
}

/* The head's part of a case; `bias` says whether it has one. */
static inline head_case head_begin(check *k, bool bias, head_case s) {
  s.k = k;
  s.rows = k->dims[0], s.width = k->dims[1], s.vocab = k->dims[2];
  s.hidden = check_in(k, "hidden", k->dtype, 2, (int64_t[]){s.rows, s.width}, k->fill);
  s.weight = head_weight(k, "weight", s.vocab, s.width);
  const int64_t beside = s.vocab / 2 + 1; /* labels of either shard beside, so that most are here */
  const int64_t low = s.before > beside && !s.ignores ? s.before - beside : 0;
  const int64_t all = s.vocab + s.before + (s.after < beside ? s.after : beside);
  const int64_t words = s.ignores && all > 6 ? 6 : all; /* so that some are ignored */
  s.labels = check_indices(k, "labels", k->option % 2 ? TIGON_I32 : TIGON_I64, 1, &s.rows, low, words);
  if (bias) s.bias = check_in_vector(k, "bias", k->dtype, s.vocab, CHECK_UNIFORM);
  s.x = check_doubles(k, s.vocab), s.z = check_doubles(k, s.vocab), s.logit_off = check_doubles(k, s.vocab);
  s.off = check_doubles(k, s.rows * s.vocab), s.size = check_doubles(k, s.rows * s.vocab);
  return s;
}

/* dweight or dbias: rubbish, or with `accumulate` values, whose absolute ones are in `old` then. */
static inline tigon_tensor head_gradient(check *k, const char *name, tigon_dtype dtype, bool accumulate, int ndim,
                                         const int64_t *shape, double *old) {
  if (!accumulate)
    return ndim == 1 ? check_out_dense(k, name, dtype, ndim, shape) : check_out(k, name, dtype, ndim, shape);
  const tigon_tensor t = ndim == 1 ? check_inout_dense(k, name, dtype, ndim, shape, CHECK_UNIFORM)
                                   : check_inout(k, name, dtype, ndim, shape, CHECK_UNIFORM);
  for (int64_t i = 0; k->oracle && i < (ndim == 1 ? shape[0] : shape[0] * shape[1]); ++i)
    old[i] = fabs(check_value(&t, i));
  return t;
}

/* With the least workspace or the one recommended. */
#define HEAD_CALL(k, is_least, query, a)                       \
  do {                                                         \
    size_t least, good;                                        \
    query((k)->context, a, &least, &good);                     \
    (a)->workspace_bytes = (is_least) ? least : good;          \
    (a)->workspace = check_workspace(k, (a)->workspace_bytes); \
    check_call(k, a);                                          \
  } while (0)

#endif
