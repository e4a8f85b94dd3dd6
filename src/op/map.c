/* What the fronts of elementwise operators share. */
#include "op/front.h"

tigon_status tigon_map(tigon_context *context, int inputs, int count, const tigon_tensor *const *tensors,
                       tigon_map_problem *p) {
  tigon_row_tensor of[TIGON_MAP_IN + TIGON_MAP_OUT];
  for (int i = 0; i < count; ++i) of[i] = (tigon_row_tensor){tensors[i], i < inputs ? &p->in[i] : &p->out[i - inputs]};
  p->inputs = inputs;
  p->outputs = count - inputs;
  p->cols = tigon_last_extent(tensors[0]);
  p->dtype = tensors[0]->dtype;
  TIGON_TRY(tigon_collapse_rows(context, &p->space, of, count));
  if (!TIGON_NO_ELEMENTS(*p)) tigon_flatten(&p->space, &p->cols, of, count);
  return TIGON_OK;
}
