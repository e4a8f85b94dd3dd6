#include "opencl/kernel/cross_entropy.h"

#include "core/context.h"
#include "core/labels.h"
#include "opencl/loss.h"
#include "opencl/tables.h"

typedef tigon_cross_entropy_problem problem;

_Static_assert((int)STAT_WORDS == TIGON_VOCAB_STATS, "the columns of stats");

static tigon_status totals(tigon_queue *queue, const problem *p, int parts) {
  const opencl_totals t = {.counts = parts & TIGON_CROSS_ENTROPY_COUNT,
                           .reduces = parts & TIGON_CROSS_ENTROPY_REDUCE,
                           .mean = p->reduction == TIGON_REDUCTION_MEAN,
                           .rows = p->space.rows,
                           .rule = opencl_label_rule(p),
                           .labels = p->labels,
                           .weight = p->weight,
                           .denominator = p->denominator,
                           .token_loss = p->token_loss,
                           .argmax = p->correct ? p->argmax : NULL,
                           .inverse = p->inverse,
                           .loss = p->loss,
                           .correct = p->correct,
                           .error_flag = p->error_flag};
  return parts ? opencl_sum_losses(queue, &t) : TIGON_OK;
}

static cross_entropy_numbers numbers_of(const problem *p) {
  const double smoothing = (double)p->label_smoothing, keep = 1 - smoothing;
  const double share = smoothing / (double)tigon_cross_entropy_smoothed(p), times = (double)p->inverse_temperature;
  return (cross_entropy_numbers){.space = p->space,
                                 .cols = p->cols,
                                 .panel_begin = p->panel_begin,
                                 .logits = opencl_pitch(&p->logits),
                                 .dlogits = opencl_pitch(&p->dlogits),
                                 .rule = opencl_label_rule(p),
                                 .map = opencl_logit_map(p->softcap, times, 1),
                                 .smoothing = p->label_smoothing,
                                 .lse_square = p->lse_square_scale,
                                 .keep = opencl_pair(keep),
                                 .share = opencl_pair(share),
                                 .minus = opencl_pair(keep + share),
                                 .grad = opencl_pair((double)p->grad_scale * times),
                                 .entropy_scale = opencl_pair((double)p->entropy_scale * times),
                                 .classes = opencl_pair((double)tigon_cross_entropy_smoothed(p)),
                                 .dloss_rows = p->reduction == TIGON_REDUCTION_NONE,
                                 .negated = p->negated};
}

static tigon_status rows(tigon_queue *queue, const problem *p, bool backward) {
  static const opencl_kernel forward = {"cross_entropy", "cross_entropy_fwd"},
                             back = {"cross_entropy", "cross_entropy_bwd"};
  const cross_entropy_numbers k = numbers_of(p);
  const opencl_shape shape = opencl_row_shape(queue, p->space.rows);
  const void *weight_sum = NULL;
  if (p->weight && p->label_smoothing != 0)
    TIGON_TRY(opencl_sum_floats(queue, p->weight, tigon_cross_entropy_vocab(p), &weight_sum));
  if (backward)
    return opencl_launch(queue, &back, p->dtype, shape,
                         OPENCL_MEMORY(p->logits.data, p->labels, p->weight, weight_sum, p->token_scale, p->dloss,
                                       p->dentropy, p->inverse, p->lse, p->entropy, p->dlogits.data),
                         &k, sizeof k);
  return opencl_launch(queue, &forward, p->dtype, shape,
                       OPENCL_MEMORY(p->logits.data, p->labels, p->weight, weight_sum, p->token_scale, p->dloss,
                                     p->dentropy, p->inverse, p->lse, p->token_loss, p->z_loss, p->entropy, p->argmax,
                                     p->stats, p->dlogits.data),
                       &k, sizeof k);
}

/* A gradient asks for what is counted before it. */
static tigon_status run(tigon_queue *queue, const problem *p, bool backward) {
  const int asked = backward ? p->parts & ~TIGON_CROSS_ENTROPY_REDUCE : p->parts;
  const int before = p->dlogits.data ? asked & TIGON_CROSS_ENTROPY_COUNT : 0;
  const int wanted = p->loss || p->correct ? asked : asked & ~TIGON_CROSS_ENTROPY_REDUCE;
  const int after = wanted & ~before & ~TIGON_CROSS_ENTROPY_ROWS;
  TIGON_TRY(totals(queue, p, before));
  if (asked & TIGON_CROSS_ENTROPY_ROWS && (p->cols > 0 || !backward)) TIGON_TRY(rows(queue, p, backward));
  return totals(queue, p, after);
}

tigon_status tigon_opencl_cross_entropy_fwd(tigon_queue *queue, const problem *p) { return run(queue, p, false); }
tigon_status tigon_opencl_cross_entropy_bwd(tigon_queue *queue, const problem *p) { return run(queue, p, true); }
