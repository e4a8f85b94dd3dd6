/* vocab_parallel_cross_entropy's merge on Ascend: a launch for the rows, then cross_entropy's for what needs all of them. stats and
 * bwd are cross_entropy's launchers. */
#include "core/vocab_parallel_cross_entropy.h"

#include "ascend/cross_entropy.h"
#include "ascend/kernel/vocab_parallel_cross_entropy.h"

typedef tigon_vocab_parallel_cross_entropy_merge_problem problem;

/* Rows without a shard still have outputs, as of one that is masked. */
static tigon_status plan_of(tigon_queue *queue, const problem *m, const tigon_cross_entropy_problem *totals,
                            tigon_plan *plan) {
  const tigon_cross_entropy_problem *p = &m->loss;
  const int label = p->label_dtype == TIGON_I64 ? 2 : 1;
  const tigon_call_words words = {.given = 1,
                                  .label = (uint8_t)label,
                                  .in = (uint8_t)label,
                                  .out = (uint8_t)(1 + !!p->lse + !!p->z_loss + !!p->entropy),
                                  .totals = ascend_loss_totals(totals)};
  const tigon_plan_request call = {.op = "vocab_parallel_cross_entropy",
                                   .entry = "merge",
                                   .dtype = TIGON_F32,
                                   .rows = p->space.rows,
                                   .cols = m->shards > 0 ? m->shards : 1,
                                   .words = words};
  return ascend_plan(queue, &call, plan);
}

static tigon_status rows(tigon_queue *queue, const problem *m, const tigon_plan *plan) {
  const tigon_cross_entropy_problem *p = &m->loss;
  const double smoothing = (double)p->label_smoothing;
  const vocab_merge_arguments a = {.w = ascend_walk(plan),
                                   .rule = ascend_label_rule(p),
                                   .stats = (gm_ptr)m->stats,
                                   .labels = (gm_ptr)p->labels,
                                   .token_loss = (gm_ptr)p->token_loss,
                                   .lse = (gm_ptr)p->lse,
                                   .z_loss = (gm_ptr)p->z_loss,
                                   .entropy = (gm_ptr)p->entropy,
                                   .shards = m->shards,
                                   .rank = m->rank,
                                   .keep = (float)(1 - smoothing),
                                   .smoothing = p->label_smoothing,
                                   .inverse_classes = (float)(1 / (double)tigon_cross_entropy_smoothed(p)),
                                   .lse_square = p->lse_square_scale};
  return ascend_launch(queue, "vocab_parallel_cross_entropy_merge", vocab_parallel_cross_entropy_merge, &a, plan->grid);
}

tigon_status ascend_vocab_parallel_cross_entropy_merge(tigon_queue *queue, const problem *m) {
  const tigon_cross_entropy_problem totals = tigon_vocab_parallel_totals(m);
  if (m->loss.space.rows > 0) {
    tigon_plan plan;
    tigon_status status = plan_of(queue, m, &totals, &plan);
    if (status == TIGON_OK) status = rows(queue, m, &plan);
    if (status != TIGON_OK) return status;
  }
  return ascend_cross_entropy_fwd(queue, &totals);
}
