/* What the oracles of the norms share. */
#ifndef TIGON_REF_NORM_H
#define TIGON_REF_NORM_H

#include "ref/ref.h"

static inline double tigon_ref_weight(const void *w, tigon_dtype dtype, int64_t c, double w_offset) {
  return w ? tigon_load_f64(w, c, dtype) + w_offset : 1.0;
}

/* Rounds where `casting` rounds between x and y: llama xhat, none everything. */
static inline double tigon_ref_xhat(double v, tigon_casting casting, tigon_dtype dtype) {
  return casting == TIGON_CASTING_GEMMA ? v : tigon_round_f64(v, dtype);
}

/* rms_norm's statistic of a row of `in`. */
static inline double tigon_ref_rstd(const tigon_norm_fwd_problem *p, const tigon_rows *in, int64_t r) {
  const bool rounds = p->casting == TIGON_CASTING_NONE;
  double sum = 0;
  for (int64_t c = 0; c < p->cols; ++c) {
    const double x = tigon_ref_at(&p->space, in, p->dtype, r, c);
    sum += x * x;
  }
  const double mean = rounds ? tigon_round_f64(sum / (double)p->cols, p->dtype) : sum / (double)p->cols;
  const double rstd = 1.0 / sqrt(mean + (double)p->eps);
  return rounds ? tigon_round_f64(rstd, p->dtype) : rstd;
}

/* silu of a gate, and its slope. */
static inline double tigon_ref_silu(double z) { return z / (1 + tigon_ref_exp(-z)); }
static inline double tigon_ref_silu_slope(double z) {
  return (1 + z / (1 + tigon_ref_exp(z))) / (1 + tigon_ref_exp(-z));
}

/* A gradient that is a sum over rows; `to` may be NULL. */
static inline void tigon_ref_put_sum(void *to, tigon_dtype dtype, int64_t c, double sum, bool accumulate) {
  if (to) tigon_store_f64(to, c, dtype, sum + (accumulate ? tigon_load_f64(to, c, dtype) : 0));
}

#endif
