#include "ref/ref.h"

tigon_status tigon_ref_map(const tigon_map_problem *p,
                           void (*f)(const tigon_map_numbers *numbers, const double *in, double *out)) {
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      double in[TIGON_MAP_IN], out[TIGON_MAP_OUT];
      for (int i = 0; i < p->inputs; ++i) in[i] = tigon_ref_at(&p->space, &p->in[i], p->dtype, r, c);
      f(&p->numbers, in, out);
      for (int i = 0; i < p->outputs; ++i) tigon_ref_put(&p->space, &p->out[i], p->dtype, r, c, out[i]);
    }
  return TIGON_OK;
}
