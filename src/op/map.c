/* What the fronts of elementwise operators share. */
#include "op/front.h"

tigon_status tigon_map(tigon_context *context, const char *call, int inputs, int count,
                       const tigon_tensor *const *tensors, tigon_map_problem *p) {
  tigon_rows *rows[TIGON_MAP_IN + TIGON_MAP_OUT];
  for (int i = 0; i < count; ++i) rows[i] = i < inputs ? &p->in[i] : &p->out[i - inputs];
  p->inputs = inputs;
  p->outputs = count - inputs;
  p->cols = tigon_last_extent(tensors[0]);
  p->dtype = tensors[0]->dtype;
  TIGON_TRY(tigon_collapse(context, call, 1, count, tensors, rows, &p->space));
  if (!tigon_map_is_empty(p)) tigon_flatten(count, rows, &p->space, &p->cols);
  return TIGON_OK;
}
