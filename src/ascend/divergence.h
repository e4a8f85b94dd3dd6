/* What the launchers of divergence and topk_divergence share: all but the launch for the rows themselves. */
#ifndef TIGON_ASCEND_DIVERGENCE_H
#define TIGON_ASCEND_DIVERGENCE_H

#include "ascend/ascend.h"
#include "ascend/kernel/loss_rows.h"

static inline twofold twofold_of(double x) { return (twofold){(float)x, (float)(x - (double)(float)x)}; }

/* What a head's logits become, `times` as large where no cap comes first. */
logit_map ascend_logit_map(const tigon_logit_map *map, float times);

/* A call's words of a row, for its plan. */
tigon_call_words ascend_divergence_words(const tigon_divergence_problem *p, bool forward);

/* A kernel's part of arguments; the gradient is multiplied by `factor`, too. */
loss_rows ascend_divergence_rows(const tigon_divergence_problem *p, bool forward, double factor);

/* A mean's denominator, the rows as `launch` has them for `call`, and the loss of all. */
typedef tigon_status ascend_divergence_launch(tigon_queue *queue, const void *call, bool forward);
tigon_status ascend_divergence_run(tigon_queue *queue, const tigon_divergence_problem *p, bool forward,
                                   ascend_divergence_launch *launch, const void *call);

#endif
