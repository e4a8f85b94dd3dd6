/* Matrix products of a mixture's experts. Rows are by position: expert e has rows first[e] .. first[e + 1] of either side. */
#ifndef TIGON_ASCEND_GROUPED_H
#define TIGON_ASCEND_GROUPED_H

#include "backend.h"

typedef struct ascend_groups {
  const int32_t *first; /* [experts + 2], in the device's memory */
  int64_t experts;
  tigon_dtype dtype; /* rows and matrices have it */
} ascend_groups;

/* to [slots, n] f32 = a [slots, k] times the row's expert's matrix. The matrix' element (column, term) is b's [column, term], or with
 * `by_term` b's [term, column]. Rows of no expert are not written. */
tigon_status ascend_grouped_rows(tigon_queue *queue, const ascend_groups *of, const void *a,
                                 const tigon_expert_weights *b, bool by_term, int64_t n, int64_t k, float *to);

/* to[e] [n, k] = the sum over e's rows of a's [n] times b's [k], onto the old to[e] if `accumulate`. */
tigon_status ascend_grouped_terms(tigon_queue *queue, const ascend_groups *of, const void *a, int64_t n, const void *b,
                                  int64_t k, const tigon_expert_weights *to, bool accumulate);

#endif
