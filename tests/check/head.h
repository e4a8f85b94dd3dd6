/* What the checks of language-model heads share: a logit and its rounding, a bound, the models' sizes. */
#ifndef TIGON_CHECK_HEAD_H
#define TIGON_CHECK_HEAD_H

#include <math.h>

#include "check/cases.h"
#include "check/internal.h"
#include "core/half.h"

/* One ulp of a 16-bit number as a share of it: an element next to a rounding boundary may fall to either side. */
static inline double head_ulp(tigon_dtype dtype) {
  return dtype == TIGON_BF16 ? 0x1p-7 : dtype == TIGON_F16 ? 0x1p-10 : 0;
}

/* Row r of hidden times row v of the weight, and what its terms add up to in absolute value. */
static inline double head_dot(const tigon_tensor *hidden, int64_t r, const tigon_tensor *weight, int64_t v,
                              int64_t width, double *absolute) {
  double sum = 0;
  const int64_t row = check_offset(hidden, r * width), column = check_offset(weight, v * width);
  for (int64_t i = 0; i < width; ++i) {
    const double product =
        tigon_load_f64(hidden->data, row + i, hidden->dtype) * tigon_load_f64(weight->data, column + i, weight->dtype);
    sum += product;
    *absolute += fabs(product);
  }
  return sum;
}

/* A head's weight. A timed one makes logits of a model's size: beyond 90 apart, gradients are denormal, which products make twice. */
static inline tigon_tensor head_weight(check *k, const char *name, int64_t vocab, int64_t width) {
  const int64_t shape[] = {vocab, width};
  if (k->timed) return check_timed_tensor(k, name, k->dtype, 2, shape, CHECK_ROLE_IN, 4 / sqrt((double)width));
  return check_in(k, name, k->dtype, 2, shape, CHECK_UNIFORM);
}

/* Bound of |out - oracle| as an absolute number. */
static inline void head_bound(check *k, const tigon_tensor *out, const double *absolute) {
  if (out->ndim) check_bound(k, out, out->dtype == TIGON_F32 ? 4 : 1, 0x1p24, absolute);
}

static inline bool head_of_model(const bench_model *m, bench_point *point) {
  point->rows = 256, point->other = m->vocabulary;
  return true;
}

/* What the timed cases of heads have alike; `more` forms. */
#define HEAD_CASE_WITH(more)                                                                                      \
  .shape_note = "tokens x hidden, 16000 words", .rows_f32 = 256, .rows_16bit = 256, .cols = 1024, .other = 16000, \
  .of_model = head_of_model, .forms = BENCH_BIT(BENCH_AS_WEIGHT) | (more)
#define HEAD_CASE HEAD_CASE_WITH(0)

#endif
