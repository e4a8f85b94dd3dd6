/* topk_divergence on Ascend: divergence's launches, but the one for the rows. */
#include "ascend/divergence.h"

#include <math.h>

#include "ascend/kernel/embedding.h"
#include "ascend/kernel/topk_divergence.h"
#include "core/labels.h"
#include "core/logit_map.h"

typedef tigon_topk_divergence_problem topk;

static tigon_status plan_of(tigon_queue *queue, const topk *p, bool forward, tigon_plan *plan) {
  const tigon_divergence_problem *base = &p->base;
  tigon_plan_request call = {.op = "topk_divergence",
                             .entry = !forward            ? "bwd"
                                      : base->dinput.data ? "fwd_dinput"
                                                          : "fwd",
                             .dtype = p->dtype,
                             .rows = base->space.rows,
                             .cols = base->cols,
                             .table_cols = p->k,
                             .words = ascend_divergence_words(base, forward)};
  call.words.temporaries = base->input_map.cap > 0 ? 2 : 0;
  call.words.table_bytes = (uint8_t)(tigon_dtype_size(p->id_dtype) + tigon_dtype_size(p->target_dtype));
  return ascend_plan(queue, &call, plan);
}

/* The kernel takes ids as 4-byte words. */
static gm_rows words_of_ids(const topk *p) {
  gm_rows ids = ascend_rows(&p->ids);
  for (int i = 0; i < 3; ++i) ids.pitch[i] *= index_words(p->id_dtype);
  return ids;
}

static tigon_status rows(tigon_queue *queue, const void *call, bool forward) {
  const topk *p = call;
  const tigon_divergence_problem *base = &p->base;
  const double beta = (double)base->beta, scale = (double)tigon_logit_scale(&base->input_map);
  tigon_plan plan;
  tigon_status status = plan_of(queue, p, forward, &plan);
  if (status != TIGON_OK) return status;
  topk_divergence_arguments a = {
      .w = ascend_walk(&plan),
      .space = ascend_space(&base->space),
      .input = ascend_rows(&base->input),
      .target = ascend_rows(&base->target),
      .ids = words_of_ids(p),
      .dinput = ascend_rows(&base->dinput),
      .rows = ascend_divergence_rows(base, forward, (double)base->inverse_temperature * scale),
      .dtype = p->dtype,
      .target_dtype = p->target_dtype,
      .id_dtype = p->id_dtype,
      .k = p->k,
      .kind = base->kind,
      .target_is = base->target_is,
      .tail = p->tail,
      .vocab = tigon_divergence_vocab(base),
      .map = ascend_logit_map(&base->input_map, base->inverse_temperature),
      .hard_map = ascend_logit_map(&base->input_map, 1),
      .inverse_temperature = base->inverse_temperature,
      .beta = base->beta,
      .rest = twofold_of(1 - beta),
      .log_beta = twofold_of(base->kind == TIGON_DIVERGENCE_JSD ? log(beta) : 0),
      .log_rest = twofold_of(base->kind == TIGON_DIVERGENCE_JSD ? log1p(-beta) : 0),
      .least_tail = twofold_of(p->least_tail),
  };
  int64_t grid = plan.grid;
  if (base->cols == 0) {
    a.w = ascend_walk_no_columns(base->space.rows);
    a.all_out_of_range = a.k > 0;
    a.k = 0;
    grid = 1;
  }
  float *flags = p->error_flag ? ascend_scratch(queue, grid) : NULL;
  if (p->error_flag && !flags) return TIGON_ERROR_DEVICE;
  a.flags = (gm_ptr)flags;
  status = ascend_launch(queue, "topk_divergence", topk_divergence, &a, grid);
  if (status != TIGON_OK || !flags) return status;
  const error_flag_arguments flag = {(gm_ptr)flags, (gm_ptr)p->error_flag, grid};
  return ascend_launch(queue, "error_flag", error_flag, &flag, 1);
}

tigon_status ascend_topk_divergence_fwd(tigon_queue *queue, const topk *p) {
  return ascend_divergence_run(queue, &p->base, true, rows, p);
}
tigon_status ascend_topk_divergence_bwd(tigon_queue *queue, const topk *p) {
  return ascend_divergence_run(queue, &p->base, false, rows, p);
}
