#include "opencl/kernel/topk_divergence.h"

#include "core/context.h"
#include "core/labels.h"
#include "opencl/divergence.h"
#include "opencl/tables.h"

typedef tigon_topk_divergence_problem problem;

static tigon_status rows(tigon_queue *queue, const problem *p, bool backward) {
  static const opencl_kernel forward = {"topk_divergence", "topk_divergence_fwd"},
                             back = {"topk_divergence", "topk_divergence_bwd"};
  const tigon_divergence_problem *base = &p->base;
  const topk_numbers k = {.of = opencl_divergence_numbers(base, TIGON_DISTRIBUTION_LOGITS),
                          .ids = opencl_pitch(&p->ids),
                          .k = p->k,
                          .vocab = tigon_divergence_vocab(base),
                          .target_dtype = (int32_t)p->target_dtype,
                          .id_dtype = (int32_t)p->id_dtype,
                          .tail = p->tail,
                          .inverse_temperature = base->inverse_temperature,
                          .least_tail = opencl_pair(p->least_tail),
                          .rest = opencl_pair(1 - (double)base->beta)};
  const opencl_shape shape = opencl_row_shape(queue, base->space.rows);
  if (backward)
    return opencl_launch(queue, &back, p->dtype, shape,
                         OPENCL_MEMORY(base->input.data, base->target.data, p->ids.data, base->labels,
                                       base->token_scale, base->dloss, base->inverse, base->hard_lse, base->stats,
                                       p->error_flag, base->dinput.data),
                         &k, sizeof k);
  return opencl_launch(queue, &forward, p->dtype, shape,
                       OPENCL_MEMORY(base->input.data, base->target.data, p->ids.data, base->labels, base->token_scale,
                                     base->dloss, base->inverse, base->token_loss, base->soft_losses, base->hard_losses,
                                     base->hard_lse, base->stats, p->error_flag, base->dinput.data),
                       &k, sizeof k);
}

/* What needs no entries is divergence's own. */
static tigon_status run(tigon_queue *queue, const problem *p, bool backward) {
  const bool all = p->base.parts != TIGON_DIVERGENCE_ROWS;
  if (all) TIGON_TRY(opencl_divergence_totals(queue, &p->base, TIGON_DIVERGENCE_COUNT));
  TIGON_TRY(rows(queue, p, backward));
  return all && !backward ? opencl_divergence_totals(queue, &p->base, TIGON_DIVERGENCE_REDUCE) : TIGON_OK;
}

tigon_status tigon_opencl_topk_divergence_fwd(tigon_queue *queue, const problem *p) { return run(queue, p, false); }
tigon_status tigon_opencl_topk_divergence_bwd(tigon_queue *queue, const problem *p) { return run(queue, p, true); }
