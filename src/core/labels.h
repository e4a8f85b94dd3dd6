/* What the integers of a loss mean. */
#ifndef TIGON_CORE_LABELS_H
#define TIGON_CORE_LABELS_H

#include "problem/loss.h"

/* Does a token of this value count? */
TIGON_SHARED bool tigon_value_counts(const tigon_counted *c, int64_t value) {
  return value != c->ignored && (!c->limit || (value >= 0 && value < c->limit));
}
/* Does token t? */
TIGON_SHARED bool tigon_token_counts(const tigon_counted *c, int64_t t) {
  return !c->of.data || tigon_value_counts(c, tigon_vector_index(c->of, t));
}

/* Tokens [begin, end). */
typedef struct tigon_span {
  int64_t begin, end;
} tigon_span;

/* Those of sequence s; without segments each has `length`. What a device cannot refuse stays within the tokens, and raises the flag. */
TIGON_SHARED tigon_span tigon_sequence_span(tigon_vector segments, int64_t length, int64_t sequences, int64_t tokens,
                                            int64_t s, int32_t *error_flag) {
  tigon_span of = {s * length, (s + 1) * length};
  if (!segments.data) return of;
  of.begin = tigon_vector_index(segments, s);
  of.end = tigon_vector_index(segments, s + 1);
  const bool first = s > 0 || of.begin == 0, last = s < sequences - 1 || of.end == tokens;
  if (first && last && of.begin >= 0 && of.begin <= of.end && of.end <= tokens) return of;
  if (error_flag) *error_flag = 1;
  if (of.begin < 0) of.begin = 0;
  if (of.end > tokens) of.end = tokens;
  return of;
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

TIGON_SHARED int64_t tigon_divergence_label(const tigon_divergence_problem *p, int64_t r) {
  return p->label_dtype == TIGON_I64 ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r];
}

TIGON_SHARED int64_t tigon_divergence_vocab(const tigon_divergence_problem *p) { return p->vocab ? p->vocab : p->cols; }

/* Does row r of a divergence count? Where labels are classes, one out of range does not. */
TIGON_SHARED bool tigon_divergence_counts(const tigon_divergence_problem *p, int64_t r) {
  if (!p->labels) return true;
  const int64_t label = tigon_divergence_label(p, r);
  const bool classes = p->classes || p->hard != 0;
  return label != p->ignore_index && (!classes || (label >= 0 && label < tigon_divergence_vocab(p)));
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
