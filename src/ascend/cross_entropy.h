/* What the launchers of cross_entropy and of vocab_parallel_cross_entropy's merge share. */
#ifndef TIGON_ASCEND_CROSS_ENTROPY_H
#define TIGON_ASCEND_CROSS_ENTROPY_H

#include "ascend/ascend.h"
#include "ascend/kernel/cross_entropy.h"
#include "core/labels.h"

static inline label_rule ascend_label_rule(const tigon_cross_entropy_problem *p) {
  return (label_rule){p->label_dtype, tigon_cross_entropy_vocab(p), p->has_ignore_index, p->ignore_index};
}

/* The denominator and the error flag are asked for: without a mean nothing else needs the labels of all rows. */
static inline bool ascend_counts_labels(const tigon_cross_entropy_problem *p) {
  return (p->parts & TIGON_CROSS_ENTROPY_COUNT) && (p->reduction == TIGON_REDUCTION_MEAN || p->error_flag);
}

/* A call's totals over rows, for its plan: TIGON_TOTAL_ or-ed. */
static inline uint8_t ascend_loss_totals(const tigon_cross_entropy_problem *p) {
  const bool counts = ascend_counts_labels(p), mean = counts && p->reduction == TIGON_REDUCTION_MEAN;
  const bool loss = (p->parts & TIGON_CROSS_ENTROPY_REDUCE) && p->loss;
  return (uint8_t)((counts ? TIGON_TOTAL_LABELS : 0) | (mean ? TIGON_TOTAL_MEAN : 0) | (loss ? TIGON_TOTAL_LOSS : 0));
}

#endif
