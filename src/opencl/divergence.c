#include "opencl/divergence.h"

#include <math.h>

#include "core/context.h"
#include "core/labels.h"
#include "core/logit_map.h"
#include "opencl/tables.h"

typedef tigon_divergence_problem problem;

static label_rule rule_of(const problem *p) {
  const bool classes = p->classes || p->hard != 0;
  return (label_rule){.limit = classes ? tigon_divergence_vocab(p) : 0,
                      .ignore_index = p->ignore_index,
                      .dtype = (int32_t)p->label_dtype,
                      .has_ignore = 1};
}

static logit_map map_of(const problem *p, const tigon_logit_map *map, tigon_distribution is) {
  const double outer = is == TIGON_DISTRIBUTION_LOGITS ? (double)p->inverse_temperature : 1;
  return opencl_logit_map(map->cap, (double)tigon_logit_scale(map), outer);
}

divergence_numbers opencl_divergence_numbers(const problem *p, tigon_distribution input_is) {
  const bool cosine = p->kind == TIGON_DIVERGENCE_COSINE, jsd = p->kind == TIGON_DIVERGENCE_JSD;
  const double scale = (double)tigon_logit_scale(&p->input_map), hard_grad = (double)p->grad_scale * scale;
  double grad = (double)p->grad_scale * (double)p->soft;
  if (!cosine || p->input_map.cap > 0) grad *= scale; /* no scale changes a cosine */
  if (!cosine && input_is == TIGON_DISTRIBUTION_LOGITS) grad *= (double)p->inverse_temperature;
  return (divergence_numbers){.space = p->space,
                              .cols = p->cols,
                              .panel_begin = p->panel_begin,
                              .input = opencl_pitch(&p->input),
                              .target = opencl_pitch(&p->target),
                              .dinput = opencl_pitch(&p->dinput),
                              .rule = rule_of(p),
                              .q = map_of(p, &p->input_map, input_is),
                              .hard_map = opencl_logit_map(p->input_map.cap, scale, 1),
                              .kind = (int32_t)p->kind,
                              .input_is = (int32_t)input_is,
                              .target_is = (int32_t)p->target_is,
                              .dloss_rows = p->reduction == TIGON_REDUCTION_NONE,
                              .soft = p->soft,
                              .hard = p->hard,
                              .beta = p->beta,
                              .rest = (float)(1 - (double)p->beta),
                              .log_beta = opencl_pair(jsd ? log((double)p->beta) : 0),
                              .log_rest = opencl_pair(jsd ? log1p(-(double)p->beta) : 0),
                              .grad = opencl_pair(grad),
                              .hard_grad = opencl_pair(hard_grad * (double)p->hard)};
}

tigon_status opencl_divergence_totals(tigon_queue *queue, const problem *p, int parts) {
  const opencl_totals t = {.counts = parts & TIGON_DIVERGENCE_COUNT,
                           .reduces = parts & TIGON_DIVERGENCE_REDUCE,
                           .mean = p->reduction == TIGON_REDUCTION_MEAN,
                           .rows = p->space.rows,
                           .rule = rule_of(p),
                           .labels = p->labels,
                           .denominator = p->denominator,
                           .token_loss = p->token_loss,
                           .inverse = p->inverse,
                           .loss = p->loss};
  return t.counts || (t.reduces && p->loss) ? opencl_sum_losses(queue, &t) : TIGON_OK;
}

static divergence_pair pair_of(const problem *p) {
  return (divergence_pair){.of = opencl_divergence_numbers(p, p->input_is),
                           .target_cols = p->target_cols,
                           .p = map_of(p, &p->target_map, p->target_is)};
}

tigon_status tigon_opencl_divergence_fwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel kernels[] = {{"divergence", "divergence_fwd"}, {"divergence", "divergence_cosine_fwd"}};
  const divergence_pair k = pair_of(p);
  TIGON_TRY(opencl_divergence_totals(queue, p, p->parts & TIGON_DIVERGENCE_COUNT));
  if (p->parts & TIGON_DIVERGENCE_ROWS)
    TIGON_TRY(opencl_launch(
        queue, &kernels[p->kind == TIGON_DIVERGENCE_COSINE], p->dtype, opencl_row_shape(queue, p->space.rows),
        OPENCL_MEMORY(p->input.data, p->target.data, p->labels, p->token_scale, p->dloss, p->inverse, p->token_loss,
                      p->soft_losses, p->hard_losses, p->hard_lse, p->stats, p->dinput.data),
        &k, sizeof k));
  return opencl_divergence_totals(queue, p, p->parts & TIGON_DIVERGENCE_REDUCE);
}

tigon_status tigon_opencl_divergence_bwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel kernel = {"divergence", "divergence_bwd"};
  const divergence_pair k = pair_of(p);
  TIGON_TRY(opencl_divergence_totals(queue, p, p->parts & TIGON_DIVERGENCE_COUNT));
  if (!(p->parts & TIGON_DIVERGENCE_ROWS)) return TIGON_OK;
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->input.data, p->target.data, p->labels, p->token_scale, p->dloss, p->inverse,
                                     p->hard_lse, p->stats, p->dinput.data),
                       &k, sizeof k);
}
