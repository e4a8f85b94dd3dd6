/* What the integers of a loss mean. */
#ifndef TIGON_CORE_LABELS_H
#define TIGON_CORE_LABELS_H

#include "problem/loss.h"

/* Element i of a vector of i32 or i64. */
TIGON_SHARED int64_t tigon_vector_index(tigon_vector of, int64_t i) {
  return of.dtype == TIGON_I64 ? ((const int64_t *)of.data)[i] : ((const int32_t *)of.data)[i];
}

TIGON_SHARED int64_t tigon_cross_entropy_vocab(const tigon_cross_entropy_problem *p) {
  return p->vocab ? p->vocab : p->cols;
}

/* The classes that smoothing is spread over. */
TIGON_SHARED int64_t tigon_cross_entropy_smoothed(const tigon_cross_entropy_problem *p) {
  return p->smoothed ? p->smoothed : tigon_cross_entropy_vocab(p);
}

/* Row r's label; -1 when the row does not count: ignored or, which *out_of_range then says, outside the vocabulary. */
TIGON_SHARED int64_t tigon_cross_entropy_label(const tigon_cross_entropy_problem *p, int64_t r, bool *out_of_range) {
  const int64_t label = p->label_dtype == TIGON_I64 ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r];
  const bool ignored = p->has_ignore_index && label == p->ignore_index;
  *out_of_range = !ignored && (label < 0 || label >= tigon_cross_entropy_vocab(p));
  return ignored || *out_of_range ? -1 : label;
}

/* Does row r of a divergence count? */
TIGON_SHARED bool tigon_divergence_counts(const tigon_divergence_problem *p, int64_t r) {
  if (!p->labels) return true;
  return p->ignore_index !=
         (p->label_dtype == TIGON_I64 ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r]);
}

#endif
