/* The oracle's slots: scalar C, double accumulation from inputs rounded to the dtype, one rounding at the store. */
#ifndef TIGON_REF_REF_H
#define TIGON_REF_REF_H

#include <math.h>

#include "backend.h"
#include "core/half.h"

#define TIGON_SLOT(op, entry) tigon_##op##_##entry##_fn tigon_ref_##op##_##entry;
#include "ops.def"

/* Column c of row r of a problem. */
static inline double tigon_ref_at(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype, int64_t r,
                                  int64_t c) {
  return tigon_load_f64(t->data, tigon_row_offset(space, t, r) + c, dtype);
}
static inline void tigon_ref_put(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype, int64_t r,
                                 int64_t c, double value) {
  tigon_store_f64(t->data, tigon_row_offset(space, t, r) + c, dtype, value);
}

/* Element i of a vector, 0 where it is absent. */
static inline double tigon_ref_vector_at(tigon_vector v, int64_t i) {
  return v.data ? tigon_load_f64(v.data, i, v.dtype) : 0;
}
static inline void tigon_ref_vector_put(tigon_vector v, int64_t i, double value, bool accumulate) {
  if (v.data) tigon_store_f64(v.data, i, v.dtype, accumulate ? tigon_ref_vector_at(v, i) + value : value);
}

/* libm sets errno where a result underflows or overflows, and a call must leave it alone. */
static inline double tigon_ref_exp(double x) { return x < -708 ? 0 : x > 709 ? (double)INFINITY : exp(x); }

/* z of a head's u, and dz / du: 1 / cosh^2 keeps its digits where 1 - tanh^2 has none. */
static inline double tigon_ref_logit(const tigon_logit_map *m, double u) {
  const double x = m->scale != 0 ? u * (double)m->scale : u, cap = (double)m->cap;
  return cap > 0 ? cap * tanh(x / cap) : x;
}
static inline double tigon_ref_logit_slope(const tigon_logit_map *m, double u) {
  const double scale = m->scale != 0 ? (double)m->scale : 1;
  const double c = m->cap > 0 ? cosh(u * scale / (double)m->cap) : 1;
  return scale / (c * c);
}

/* An elementwise operator: f makes an element of each output of one of each input. */
tigon_status tigon_ref_map(const tigon_map_problem *p,
                           void (*f)(const tigon_map_numbers *numbers, const double *in, double *out));

/* A slot made of its formula. */
#define TIGON_REF_MAP(slot, f)                                                    \
  tigon_status tigon_ref_##slot(tigon_queue *queue, const tigon_map_problem *p) { \
    (void)queue;                                                                  \
    return tigon_ref_map(p, f);                                                   \
  }

#endif
