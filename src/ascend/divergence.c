/* divergence on Ascend: one launch for the rows. The loss of all is joined as cross_entropy's is, and so is a mean's denominator where
 * labels say which rows count. */
#include "ascend/divergence.h"

#include <math.h>

#include "ascend/kernel/divergence.h"
#include "core/labels.h"
#include "core/logit_map.h"

enum { TOTALS = TIGON_TOTAL_BLOCKS * TOTAL_WORDS };

static bool counts_labels(const tigon_divergence_problem *p) {
  return p->labels && p->reduction == TIGON_REDUCTION_MEAN && !p->denominator;
}
/* Is it in memory what a mean divides by? A head's call has some of its rows. */
static bool has_inverse(const tigon_divergence_problem *p) {
  return counts_labels(p) || p->denominator || p->parts != TIGON_DIVERGENCE_ALL;
}
/* 1 / the rows of a mean whose rows all count; else 1. */
static double share_of(const tigon_divergence_problem *p) {
  if (p->reduction != TIGON_REDUCTION_MEAN || has_inverse(p)) return 1;
  return p->space.rows > 0 ? 1 / (double)p->space.rows : 0;
}

static label_rule rule_of(const tigon_divergence_problem *p) {
  const bool classes = p->classes || p->hard != 0;
  return (label_rule){p->label_dtype, classes ? tigon_divergence_vocab(p) : ANY_LABEL, true, p->ignore_index};
}

logit_map ascend_logit_map(const tigon_logit_map *map, float times) {
  const bool capped = map->cap > 0;
  return (logit_map){map->cap, capped ? times : times * tigon_logit_scale(map),
                     twofold_of(capped ? (double)tigon_logit_scale(map) / (double)map->cap : 0)};
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
                     .soft_losses = forward ? (gm_ptr)p->soft_losses : NULL,
                     .hard_losses = forward ? (gm_ptr)p->hard_losses : NULL,
                     .hard_lse = forward || p->hard != 0 ? (gm_ptr)p->hard_lse : NULL,
                     .panel_begin = p->panel_begin,
                     .backward = !forward,
                     .gradient = p->dinput.data != NULL,
                     .dloss_rows = spreads(p),
                     .soft = p->soft,
                     .hard = p->hard,
                     .hard_grad = twofold_of((double)p->grad_scale * (double)p->hard * share_of(p) *
                                             (double)tigon_logit_scale(&p->input_map)),
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
  const bool cosine = p->kind == TIGON_DIVERGENCE_COSINE;
  const bool logits = p->input_is == TIGON_DISTRIBUTION_LOGITS && !cosine;
  /* no scale changes a cosine */
  const double scale = !cosine || p->input_map.cap > 0 ? (double)tigon_logit_scale(&p->input_map) : 1;
  const logit_map map[] = {ascend_logit_map(&p->input_map, p->inverse_temperature),
                           ascend_logit_map(&p->target_map, p->inverse_temperature)};
  const double beta = (double)p->beta, log_beta = log(beta), log_rest = log1p(-beta);
  divergence_arguments a = {
      .w = ascend_walk(&plan),
      .space = ascend_space(&p->space),
      .input = ascend_rows(&p->input),
      .target = ascend_rows(&p->target),
      .dinput = ascend_rows(&p->dinput),
      .rows = ascend_divergence_rows(p, forward, logits ? scale * (double)p->inverse_temperature : scale),
      .dtype = p->dtype,
      .kind = p->kind,
      .input_is = p->input_is,
      .target_is = p->target_is,
      .target_cols = p->target_cols,
      .map = {{map[0].cap, 1, map[0].argument}, {map[1].cap, 1, map[1].argument}},
      .hard_map = ascend_logit_map(&p->input_map, 1),
      .times = {map[0].times, map[1].times},
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

tigon_status ascend_divergence_run(tigon_queue *queue, const tigon_divergence_problem *p, bool forward,
                                   ascend_divergence_launch *launch, const void *call) {
  tigon_status status = TIGON_OK;
  if (p->parts & TIGON_DIVERGENCE_COUNT && has_inverse(p)) {
    cross_entropy_join_arguments join = {.divisor = (gm_ptr)p->denominator,
                                         .inverse = (gm_ptr)p->inverse,
                                         .mean = p->reduction == TIGON_REDUCTION_MEAN,
                                         .share = 1};
    const bool counts = counts_labels(p);
    if (!counts && !p->denominator && join.mean && p->space.rows > 0) join.given = (float)(1 / (double)p->space.rows);
    status = counts ? total(queue, p, NULL, &join)
                    : ascend_launch(queue, "cross_entropy_join", cross_entropy_join, &join, 1);
  }
  if (status == TIGON_OK && p->parts & TIGON_DIVERGENCE_ROWS && p->space.rows > 0)
    status = launch(queue, call, forward);
  if (status != TIGON_OK || !forward || !p->loss || !(p->parts & TIGON_DIVERGENCE_REDUCE)) return status;
  cross_entropy_join_arguments join = {
      .loss = (gm_ptr)p->loss, .scale = has_inverse(p) ? (gm_ptr)p->inverse : NULL, .share = (float)share_of(p)};
  return total(queue, p, p->token_loss, &join);
}

tigon_status ascend_divergence_fwd(tigon_queue *queue, const tigon_divergence_problem *p) {
  return ascend_divergence_run(queue, p, true, rows, p);
}
tigon_status ascend_divergence_bwd(tigon_queue *queue, const tigon_divergence_problem *p) {
  return ascend_divergence_run(queue, p, false, rows, p);
}
