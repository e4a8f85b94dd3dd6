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

/* Row r's label; -1 when the row does not count: ignored or, which *out_of_range then says, outside the vocabulary. */
TIGON_SHARED int64_t tigon_cross_entropy_label(const tigon_cross_entropy_problem *p, int64_t r, bool *out_of_range) {
  const int64_t label = p->label_dtype == TIGON_I64 ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r];
  const bool ignored = p->has_ignore_index && label == p->ignore_index;
  *out_of_range = !ignored && (label < 0 || label >= tigon_cross_entropy_vocab(p));
  return ignored || *out_of_range ? -1 : label;
}

TIGON_SHARED int64_t tigon_divergence_label(const tigon_divergence_problem *p, int64_t r) {
  return p->label_dtype == TIGON_I64 ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r];
}

/* Does row r of a divergence count? Where labels are classes, one out of range does not. */
TIGON_SHARED bool tigon_divergence_counts(const tigon_divergence_problem *p, int64_t r) {
  if (!p->labels) return true;
  const int64_t label = tigon_divergence_label(p, r);
  return label != p->ignore_index && (p->hard == 0 || (label >= 0 && label < (p->vocab ? p->vocab : p->cols)));
}

/* The column of row r's class; -1 where no column is. */
TIGON_SHARED int64_t tigon_divergence_class(const tigon_divergence_problem *p, int64_t r) {
  if (p->hard == 0) return -1;
  const int64_t column = tigon_divergence_label(p, r) - p->panel_begin;
  return column >= 0 && column < p->cols ? column : -1;
}

/* 1 / mean's denominator, which is the tensor or the number of rows that count. */
TIGON_SHARED float tigon_divergence_inverse(const tigon_divergence_problem *p, int64_t counted) {
  const double by = p->denominator ? (double)*p->denominator : (double)counted;
  return p->reduction != TIGON_REDUCTION_MEAN ? 1 : by == 0 ? 0 : (float)(1 / by);
}

#endif
