/* Rows of logits as a loss sees them, and how far its sums over a row may be off, in units of 2^-24 ("eps"). */
#ifndef TIGON_CHECK_LOGITS_H
#define TIGON_CHECK_LOGITS_H

#include <math.h>

#include "check/check.h"

typedef struct logits {
  const check *k;
  int64_t rows, cols;
  double softcap, temperature; /* 0: none; 0 means 1 */
  bool softcap_first;
  const double *x, *z; /* [rows, cols] as they were before the call, as given and as the op sees them */
} logits;

typedef struct logits_row {
  double largest, lse;
  double entropy;      /* NaN without a finite lse */
  double lse_error;    /* error of lse, in eps */
  double moment_error; /* error of sum p (z - reference), in eps */
  double range;        /* largest - smallest finite logit */
} logits_row;

static inline double logits_temperature(const logits *l) { return l->temperature != 0 ? l->temperature : 1; }

/* What z is never larger than. */
static inline double logits_cap(const logits *l) { return l->softcap / (l->softcap_first ? logits_temperature(l) : 1); }

static inline double logit_of(const logits *l, double x) {
  const double cap = l->softcap, temperature = logits_temperature(l);
  if (cap > 0 && l->softcap_first) return cap * tanh(x / cap) / temperature;
  return cap > 0 ? cap * tanh(x / temperature / cap) : x / temperature;
}

/* Every run makes the same buffers, and those that use them fill them. */
static inline void read_logits(check *k, logits *l, const tigon_tensor *from, bool used) {
  double *x = check_doubles(k, l->rows * l->cols), *z = check_doubles(k, l->rows * l->cols);
  for (int64_t i = 0; used && i < l->rows * l->cols; ++i) {
    x[i] = check_value(from, i);
    z[i] = logit_of(l, x[i]);
  }
  l->x = x, l->z = z;
}

/* What a kernel may take z - reference for: the reference is a logit of the row, at most 16 below the largest. */
static inline double logit_distance(double z, double largest, double range) {
  return fmin(fmax(largest - z, 16), range);
}

/* Error of a logit in eps: tanh's 5 and the roundings of three products; that of x / temperature. By a device's own calls tanh is a
 * division of near + far by 1 + near * far, and far is 1 - 2 / (e^y + 1), to which e^y's error counts by half at most. */
static inline double logit_error(const logits *l, double z) {
  const double calls =
      l->softcap > 0 ? logits_cap(l) * check_calls(l->k, 0.5, 1) + fabs(z) * check_calls(l->k, 0, 1) : 0;
  return (l->softcap > 0 ? 8 : l->temperature != 0 ? 1 : 0) * fabs(z) + calls;
}

static inline double lse_of(const logits *l, int64_t r, double *largest) {
  const double *z = l->z + r * l->cols;
  double sum = 0;
  *largest = -INFINITY;
  for (int64_t v = 0; v < l->cols; ++v) *largest = fmax(*largest, z[v]);
  for (int64_t v = 0; v < l->cols && isfinite(*largest); ++v) sum += exp(z[v] - *largest);
  return isfinite(*largest) ? *largest + log(sum) : *largest;
}

/* NaN without a finite lse. */
static inline double entropy_of(const logits *l, int64_t r) {
  double largest, entropy = 0;
  const double lse = lse_of(l, r, &largest);
  for (int64_t v = 0; v < l->cols && isfinite(lse); ++v) {
    const double below = lse - l->z[r * l->cols + v];
    if (isfinite(below)) entropy += exp(-below) * below;
  }
  return isfinite(lse) ? entropy : NAN;
}

/* A term of the sum carries the error of its logit, the rounding of z - reference and, without fma, of its reduction
 * (2 eps of |z - reference|), exp's (5 eps) and that of at most 32 + 6 additions: 20 eps beside what grows with z.
 * Terms weigh as their probability does. */
static inline logits_row logits_row_of(const logits *l, int64_t r) {
  logits_row w = {.entropy = entropy_of(l, r)};
  double smallest = INFINITY;
  w.lse = lse_of(l, r, &w.largest);
  for (int64_t v = 0; v < l->cols; ++v)
    if (isfinite(l->z[r * l->cols + v])) smallest = fmin(smallest, l->z[r * l->cols + v]);
  w.range = isfinite(w.lse) ? w.largest - smallest : 0;
  /* A device's own calls: ln, and exp of a score and of what the largest so far grew by. */
  w.lse_error = 20 + check_calls(l->k, 2, 0) + (isfinite(w.lse) ? check_calls(l->k, 1, 0) * (w.lse - w.largest) : 0);
  for (int64_t v = 0; v < l->cols && isfinite(w.lse); ++v) {
    const double z = l->z[r * l->cols + v], p = exp(z - w.lse), d = logit_distance(z, w.largest, w.range),
                 e = logit_error(l, z);
    if (!isfinite(z)) continue;
    w.lse_error += p * (2 * d + e);
    w.moment_error += p * (d * (20 + check_calls(l->k, 2, 1) + 2 * d + e) + d + e);
  }
  return w;
}

/* Magnitudes of what makes a row's dlogits of class v:
 *   slope * (scale * (factor * p - share) - by_entropy * p * (z - lse + entropy)) */
typedef struct logits_gradient {
  double factor, share, scale, by_entropy;
} logits_gradient;

/* Its error. p's is that of e^(z - reference), where backward's reference is lse, and of the sum; the slope's is 11 eps and what the
 * rounding of tanh's argument makes of it. z - lse + entropy is added up from the reference: its error is that of the moment and of
 * the logit, and a rounding or two of each term. What is below 2^-126 may be 0. */
static inline double dlogit_error(const logits *l, const logits_row *w, const logits_gradient *g, int64_t r,
                                  int64_t v) {
  const double z = l->z[r * l->cols + v], p = exp(z - w->lse), cap = logits_cap(l);
  const double d = fmax(fabs(z - w->lse), fmin(16, w->range));
  const double u = cap > 0 ? l->x[r * l->cols + v] / logits_temperature(l) / cap : 0;
  const double slope_error = cap > 0 ? 11 + 4 * fabs(u) + check_calls(l->k, 1, 1) : 0;
  const double relative = w->lse_error + 2 * d + logit_error(l, z) + 12 + check_calls(l->k, 1, 1) + slope_error;
  const double terms = isfinite(z) ? g->factor * p * relative : 0;
  const double added = d + fmin(16, w->range) + w->entropy, error = w->moment_error + logit_error(l, z) + 4 * added;
  const double of_entropy = isfinite(z) ? g->by_entropy * p * (error + (fabs(z - w->lse) + w->entropy) * relative) : 0;
  const double sum = (g->scale * (terms + g->share * (12 + slope_error)) + of_entropy) / (cosh(u) * cosh(u));
  return (isfinite(sum) ? sum : 0) /* an infinite u: the slope is 0 */ + 0x1p-102 * fmax(1, g->scale * g->factor);
}

#endif
