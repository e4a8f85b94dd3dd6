/* divergence on Ascend: one launch for the rows. The loss of all is joined as cross_entropy's is, and so is a mean's denominator where
 * labels say which rows count. */
#include "ascend/divergence.h"

#include <math.h>

#include "ascend/kernel/divergence.h"

enum { TOTALS = TIGON_TOTAL_BLOCKS * TOTAL_WORDS };

static bool counts_labels(const tigon_divergence_problem *p) {
  return p->labels && p->reduction == TIGON_REDUCTION_MEAN && !p->denominator;
}
/* Does the device alone know what a mean divides by? */
static bool has_inverse(const tigon_divergence_problem *p) { return counts_labels(p) || p->denominator; }
/* 1 / the rows of a mean whose rows all count; else 1. */
static double share_of(const tigon_divergence_problem *p) {
  if (p->reduction != TIGON_REDUCTION_MEAN || has_inverse(p)) return 1;
  return p->space.rows > 0 ? 1 / (double)p->space.rows : 0;
}

static label_rule rule_of(const tigon_divergence_problem *p) {
  return (label_rule){p->label_dtype, ANY_LABEL, true, p->ignore_index};
}

static tigon_status total(tigon_queue *queue, const tigon_divergence_problem *p, const float *values,
                          cross_entropy_join_arguments *join) {
  const cross_entropy_totals_arguments a = {.values = (gm_ptr)values,
                                            .labels = (gm_ptr)p->labels,
                                            .totals = (gm_ptr)ascend_scratch(queue, TOTALS),
                                            .count = p->space.rows,
                                            .rule = rule_of(p)};
  join->totals = a.totals;
  join->blocks = tigon_plan_total_blocks(&ascend_of(queue)->soc->device, a.count);
  tigon_status status = TIGON_OK;
  if (join->blocks > 0) status = ascend_launch(queue, "cross_entropy_totals", cross_entropy_totals, &a, join->blocks);
  return status == TIGON_OK ? ascend_launch(queue, "cross_entropy_join", cross_entropy_join, join, 1) : status;
}

static bool spreads(const tigon_divergence_problem *p) { return p->dloss && p->reduction == TIGON_REDUCTION_NONE; }

tigon_call_words ascend_divergence_words(const tigon_divergence_problem *p, bool forward) {
  const int label = !p->labels ? 0 : p->label_dtype == TIGON_I64 ? 2 : 1;
  const unsigned mean = counts_labels(p) ? TIGON_TOTAL_LABELS | TIGON_TOTAL_MEAN : 0;
  return (tigon_call_words){.given = 1,
                            .label = (uint8_t)label,
                            .in = (uint8_t)(label + spreads(p) + !!p->token_scale + (forward ? 0 : LOSS_STATS)),
                            .out = (uint8_t)(forward ? 1 + (p->stats ? LOSS_STATS : 0) : 0),
                            .totals = (uint8_t)(mean | (forward && p->loss ? TIGON_TOTAL_LOSS : 0))};
}

loss_rows ascend_divergence_rows(const tigon_divergence_problem *p, bool forward, double factor) {
  return (loss_rows){.rule = rule_of(p),
                     .labels = (gm_ptr)p->labels,
                     .token_scale = (gm_ptr)p->token_scale,
                     .dloss = (gm_ptr)p->dloss,
                     .inverse = has_inverse(p) ? (gm_ptr)p->inverse : NULL,
                     .token_loss = (gm_ptr)p->token_loss,
                     .stats = (gm_ptr)p->stats,
                     .backward = !forward,
                     .gradient = p->dinput.data != NULL,
                     .dloss_rows = spreads(p),
                     .soft = p->soft,
                     .grad = twofold_of((double)p->grad_scale * (double)p->soft * share_of(p) * factor)};
}

static tigon_status plan_of(tigon_queue *queue, const tigon_divergence_problem *p, bool forward, tigon_plan *plan) {
  const tigon_plan_request call = {.op = "divergence",
                                   .entry = !forward         ? "bwd"
                                            : p->dinput.data ? "fwd_dinput"
                                                             : "fwd",
                                   .dtype = p->dtype,
                                   .rows = p->space.rows,
                                   .cols = p->cols,
                                   .words = ascend_divergence_words(p, forward)};
  return ascend_plan(queue, &call, plan);
}

static tigon_status rows(tigon_queue *queue, const void *call, bool forward) {
  const tigon_divergence_problem *p = call;
  tigon_plan plan;
  const tigon_status planned = plan_of(queue, p, forward, &plan);
  if (planned != TIGON_OK) return planned;
  const bool logits = p->input_is == TIGON_DISTRIBUTION_LOGITS && p->kind != TIGON_DIVERGENCE_COSINE;
  const double beta = (double)p->beta, log_beta = log(beta), log_rest = log1p(-beta);
  divergence_arguments a = {
      .w = ascend_walk(&plan),
      .space = ascend_space(&p->space),
      .input = ascend_rows(&p->input),
      .target = ascend_rows(&p->target),
      .dinput = ascend_rows(&p->dinput),
      .rows = ascend_divergence_rows(p, forward, logits ? (double)p->inverse_temperature : 1),
      .dtype = p->dtype,
      .kind = p->kind,
      .input_is = p->input_is,
      .target_is = p->target_is,
      .inverse_temperature = p->inverse_temperature,
      .beta = p->beta,
      .rest = (float)(1 - beta),
      .log_beta = (float)log_beta,
      .log_rest = (float)log_rest,
      .odds = (float)(log_beta - log_rest),
  };
  int64_t grid = plan.grid;
  if (p->cols == 0) {
    if (!forward) return TIGON_OK;
    a.w = ascend_walk_no_columns(p->space.rows);
    grid = 1;
  }
  return ascend_launch(queue, "divergence", divergence, &a, grid);
}

/* What fused_linear_divergence alone asks for. */
static bool is_of_head(const tigon_divergence_problem *p) {
  return p->parts != TIGON_DIVERGENCE_ALL || p->target_cols != p->cols || p->vocab || p->classes || p->hard != 0 ||
         p->soft_losses || p->hard_losses || p->hard_lse || p->input_map.cap > 0 || p->input_map.scale != 0 ||
         p->target_map.cap > 0 || p->target_map.scale != 0;
}

tigon_status ascend_divergence_run(tigon_queue *queue, const tigon_divergence_problem *p, bool forward,
                                   ascend_divergence_launch *launch, const void *call) {
  tigon_status status = TIGON_OK;
  if (has_inverse(p)) {
    cross_entropy_join_arguments join = {
        .divisor = (gm_ptr)p->denominator, .inverse = (gm_ptr)p->inverse, .mean = true, .share = 1};
    status = p->denominator ? ascend_launch(queue, "cross_entropy_join", cross_entropy_join, &join, 1)
                            : total(queue, p, NULL, &join);
  }
  if (status == TIGON_OK && p->space.rows > 0) status = launch(queue, call, forward);
  if (status != TIGON_OK || !forward || !p->loss) return status;
  cross_entropy_join_arguments join = {
      .loss = (gm_ptr)p->loss, .scale = has_inverse(p) ? (gm_ptr)p->inverse : NULL, .share = (float)share_of(p)};
  return total(queue, p, p->token_loss, &join);
}

static tigon_status run(tigon_queue *queue, const tigon_divergence_problem *p, bool forward) {
  return is_of_head(p) ? TIGON_ERROR_UNSUPPORTED : ascend_divergence_run(queue, p, forward, rows, p);
}

tigon_status ascend_divergence_fwd(tigon_queue *queue, const tigon_divergence_problem *p) {
  return run(queue, p, true);
}
tigon_status ascend_divergence_bwd(tigon_queue *queue, const tigon_divergence_problem *p) {
  return run(queue, p, false);
}
