#include "opencl/loss.h"

#include "core/labels.h"

tigon_status opencl_sum_losses(tigon_queue *queue, const opencl_totals *t) {
  static const opencl_kernel kernel = {"totals", "loss_totals"};
  const totals_numbers k = {
      .rows = t->rows, .rule = t->rule, .counts = t->counts, .reduces = t->reduces, .mean = t->mean};
  return opencl_launch(queue, &kernel, TIGON_F32, opencl_total_shape(),
                       OPENCL_MEMORY(t->labels, t->weight, t->denominator, t->token_loss, t->argmax, t->inverse,
                                     t->loss, t->correct, t->error_flag),
                       &k, sizeof k);
}

tigon_status opencl_sum_floats(tigon_queue *queue, const float *values, int64_t count, const void **to) {
  static const opencl_kernel kernel = {"totals", "loss_sum"};
  const totals_numbers k = {.rows = count};
  *to = opencl_scratch(queue);
  return opencl_launch(queue, &kernel, TIGON_F32, opencl_total_shape(), OPENCL_MEMORY(values, *to), &k, sizeof k);
}

logit_map opencl_logit_map(float cap, double inner, double outer) {
  enum { SLACK = 16 };
  return (logit_map){.cap = cap > 0 ? cap : 0,
                     .times = (float)(cap > 0 ? outer : inner * outer),
                     .argument = opencl_pair(cap > 0 ? inner / (double)cap : 0),
                     .slack = (float)(SLACK / (inner * outer))};
}

label_rule opencl_label_rule(const tigon_cross_entropy_problem *p) {
  return (label_rule){.limit = tigon_cross_entropy_vocab(p),
                      .ignore_index = p->ignore_index,
                      .dtype = (int32_t)p->label_dtype,
                      .has_ignore = p->has_ignore_index};
}

opencl_shape opencl_item_shape(const tigon_queue *queue, int64_t items) {
  const opencl_device *d = opencl_of(queue);
  if (d->model == OPENCL_ITEMS) return opencl_row_shape(queue, items);
  return opencl_row_shape(queue, opencl_ceil_div(items, d->group));
}
