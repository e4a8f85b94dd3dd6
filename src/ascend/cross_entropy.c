/* cross_entropy on Ascend: the launches of a call. Totals over rows are left in the device's scratch by each core, and joined by one
 * block in a launch of their own. */
#include "ascend/cross_entropy.h"

_Static_assert((int)STAT_WORDS == TIGON_VOCAB_STATS, "the columns of stats");

/* The scratch: two sets of totals, then what splits of rows hand over. */
enum { TOTALS = TIGON_TOTAL_BLOCKS * TOTAL_WORDS };

static twofold twofold_of(double x) { return (twofold){(float)x, (float)(x - (double)(float)x)}; }

static tigon_status totals(tigon_queue *queue, const cross_entropy_totals_arguments *a, int64_t *blocks) {
  *blocks = tigon_plan_total_blocks(&ascend_of(queue)->soc->device, a->count);
  if (*blocks == 0) return TIGON_OK;
  return ascend_launch(queue, "cross_entropy_totals", cross_entropy_totals, a, *blocks);
}

/* The denominator, and the error flag. */
static tigon_status count(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  const bool mean = p->reduction == TIGON_REDUCTION_MEAN;
  const cross_entropy_totals_arguments a = {.labels = (gm_ptr)p->labels,
                                            .weight = mean ? (gm_ptr)p->weight : NULL,
                                            .totals = (gm_ptr)ascend_scratch(queue, TOTALS),
                                            .count = p->space.rows,
                                            .rule = ascend_label_rule(p)};
  cross_entropy_join_arguments joined = {.totals = a.totals,
                                         .divisor = (gm_ptr)p->denominator,
                                         .inverse = (gm_ptr)p->inverse,
                                         .error = (gm_ptr)p->error_flag,
                                         .mean = mean,
                                         .share = 1};
  const tigon_status status = totals(queue, &a, &joined.blocks);
  if (status != TIGON_OK) return status;
  return ascend_launch(queue, "cross_entropy_join", cross_entropy_join, &joined, 1);
}

static tigon_status reduce(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  if (!p->loss && !p->correct) return TIGON_OK;
  const cross_entropy_totals_arguments a = {.values = (gm_ptr)p->token_loss,
                                            .labels = (gm_ptr)p->labels,
                                            .argmax = p->correct ? (gm_ptr)p->argmax : NULL,
                                            .totals = (gm_ptr)ascend_scratch(queue, TOTALS),
                                            .count = p->space.rows,
                                            .rule = ascend_label_rule(p)};
  cross_entropy_join_arguments joined = {.totals = a.totals,
                                         .scale = p->reduction == TIGON_REDUCTION_MEAN ? (gm_ptr)p->inverse : NULL,
                                         .loss = (gm_ptr)p->loss,
                                         .correct = (gm_ptr)p->correct,
                                         .share = 1};
  const tigon_status status = totals(queue, &a, &joined.blocks);
  if (status != TIGON_OK) return status;
  return ascend_launch(queue, "cross_entropy_join", cross_entropy_join, &joined, 1);
}

/* ---- the rows ---- */

static tigon_status plan_of(tigon_queue *queue, const tigon_cross_entropy_problem *p, bool forward, tigon_plan *plan) {
  const bool spreads = p->dloss && p->reduction == TIGON_REDUCTION_NONE;
  const int label = p->label_dtype == TIGON_I64 ? 2 : 1;
  const bool plain = p->softcap == 0 && p->inverse_temperature == 1;
  const bool apart = p->dtype == TIGON_F32 && !plain;                         /* logits, apart from x */
  const bool more = p->softcap > 0 || (p->weight && p->label_smoothing != 0); /* a tanh's, or weights */
  const tigon_call_words words = {
      .given = 1,
      .label = (uint8_t)label,
      .in = (uint8_t)(label + !forward + spreads + !!p->token_scale + !!p->dentropy +
                      (!forward && p->entropy_scale != 0)),
      .out = (uint8_t)(forward && p->stats ? TIGON_VOCAB_STATS
                       : forward           ? !!p->lse + !!p->token_loss + !!p->z_loss + !!p->entropy + 2 * !!p->argmax
                                           : 0),
      .totals = ascend_loss_totals(p),
      .temporaries = (uint8_t)(apart + more)};
  const tigon_plan_request call = {.op = p->stats ? "vocab_parallel_cross_entropy" : "cross_entropy",
                                   .entry = p->stats          ? "stats"
                                            : !forward        ? "bwd"
                                            : p->dlogits.data ? "fwd_dlogits"
                                                              : "fwd",
                                   .dtype = p->dtype,
                                   .rows = p->space.rows,
                                   .cols = p->cols,
                                   .words = words};
  return ascend_plan(queue, &call, plan);
}

static cross_entropy_arguments rows_of(const tigon_cross_entropy_problem *p, const tigon_plan *plan, bool forward) {
  const double smoothing = (double)p->label_smoothing, keep = 1 - smoothing,
               share = smoothing / (double)tigon_cross_entropy_smoothed(p);
  const bool spreads = p->dloss && p->reduction == TIGON_REDUCTION_NONE;
  return (cross_entropy_arguments){
      .w = ascend_walk(plan),
      .space = ascend_space(&p->space),
      .logits = ascend_rows(&p->logits),
      .dlogits = ascend_rows(&p->dlogits),
      .rule = ascend_label_rule(p),
      .labels = (gm_ptr)p->labels,
      .weight = (gm_ptr)p->weight,
      .token_scale = (gm_ptr)p->token_scale,
      .dloss = (gm_ptr)p->dloss,
      .dentropy = (gm_ptr)p->dentropy,
      .inverse = p->reduction == TIGON_REDUCTION_MEAN ? (gm_ptr)p->inverse : NULL,
      .lse = (gm_ptr)p->lse,
      .token_loss = (gm_ptr)p->token_loss,
      .z_loss = (gm_ptr)p->z_loss,
      .entropy = (gm_ptr)p->entropy,
      .argmax = (gm_ptr)p->argmax,
      .stats = (gm_ptr)p->stats,
      .classes = tigon_cross_entropy_smoothed(p),
      .dtype = p->dtype,
      .parts = PART_SUMS | PART_ROWS,
      .forward = forward,
      .dloss_rows = spreads,
      .negated = p->negated,
      .panel_begin = p->panel_begin,
      .smoothing = p->label_smoothing,
      .lse_square = p->lse_square_scale,
      .map = {p->softcap, p->inverse_temperature,
              twofold_of(p->softcap > 0 ? (double)p->inverse_temperature / (double)p->softcap : 0)},
      .keep = twofold_of(keep),
      .share = twofold_of(share),
      .minus = twofold_of(keep + share),
      .grad = twofold_of((double)p->grad_scale * (double)p->inverse_temperature),
      .entropy_scale = twofold_of((double)p->entropy_scale * (double)p->inverse_temperature),
  };
}

static tigon_status rows(tigon_queue *queue, const tigon_cross_entropy_problem *p, const tigon_plan *plan,
                         bool forward) {
  if (p->cols > INT32_MAX) {
    queue->reason = "cross_entropy has rows of more than 2^31 - 1 columns, which columns of 32 bits cannot tell apart";
    return TIGON_ERROR_DEVICE;
  }
  cross_entropy_arguments a = rows_of(p, plan, forward);
  int64_t grid = plan->grid;
  if (p->cols == 0) {
    if (!forward) return TIGON_OK;
    a.w = ascend_walk_no_columns(p->space.rows);
    grid = 1;
  }
  if (p->weight && p->label_smoothing != 0) {
    const cross_entropy_totals_arguments sum = {.values = (gm_ptr)p->weight,
                                                .totals = (gm_ptr)(ascend_scratch(queue, 2 * TOTALS) + TOTALS),
                                                .count = a.rule.vocab,
                                                .rule = a.rule};
    const tigon_status status = totals(queue, &sum, &a.weight_blocks);
    if (status != TIGON_OK) return status;
    a.weight_sums = sum.totals;
  }
  const bool split = forward && a.w.splits > 1;
  const int64_t partials = split ? plan->rows * plan->splits * SPLIT_WORDS : 0;
  float *scratch = split ? ascend_scratch(queue, 2 * TOTALS + partials) : NULL;
  if (split && !scratch) return TIGON_ERROR_DEVICE;
  if (split) {
    a.partials = (gm_ptr)(scratch + 2 * TOTALS);
    a.parts = PART_SUMS;
    const tigon_status status = ascend_launch(queue, "cross_entropy_rows", cross_entropy_rows, &a, grid);
    if (status != TIGON_OK) return status;
    a.parts = PART_ROWS;
  }
  return ascend_launch(queue, "cross_entropy_rows", cross_entropy_rows, &a, grid);
}

static tigon_status run(tigon_queue *queue, const tigon_cross_entropy_problem *p, bool forward) {
  const bool has_rows = (p->parts & TIGON_CROSS_ENTROPY_ROWS) && p->space.rows > 0;
  tigon_plan plan;
  tigon_status status = has_rows ? plan_of(queue, p, forward, &plan) : TIGON_OK;
  if (status == TIGON_OK && ascend_counts_labels(p)) status = count(queue, p);
  if (status == TIGON_OK && has_rows) status = rows(queue, p, &plan, forward);
  if (status == TIGON_OK && forward && (p->parts & TIGON_CROSS_ENTROPY_REDUCE)) status = reduce(queue, p);
  return status;
}

tigon_status ascend_cross_entropy_fwd(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return run(queue, p, true);
}
tigon_status ascend_cross_entropy_bwd(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return run(queue, p, false);
}
