#include "ref/ref.h"

tigon_status tigon_ref_embedding_fwd(tigon_queue *queue, const tigon_embedding_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const int64_t index = tigon_load_index(p->idx, r, p->idx_dtype);
    const bool legal = index >= 0 && index < p->vocab;
    if (!legal && p->error_flag) *p->error_flag = 1;
    for (int64_t c = 0; c < p->cols; ++c)
      tigon_ref_put(&p->space, &p->y, p->dtype, r, c,
                    legal ? tigon_load_f64(p->table, index * p->table_pitch + c, p->dtype) : 0);
  }
  return TIGON_OK;
}

tigon_status tigon_ref_embedding_bwd(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  (void)queue;
  for (int64_t v = 0; v < p->vocab; ++v) {
    for (int64_t c = 0; c < p->cols; ++c) {
      const int64_t at = v * p->cols + c;
      double sum = p->accumulate ? tigon_load_f64(p->dtable, at, p->dtable_dtype) : 0;
      for (int64_t r = 0; r < p->space.rows; ++r)
        if (v != p->padding_idx && tigon_load_index(p->idx, r, p->idx_dtype) == v)
          sum += tigon_ref_at(&p->space, &p->dy, p->dtype, r, c);
      tigon_store_f64(p->dtable, at, p->dtable_dtype, sum);
    }
  }
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const int64_t index = tigon_load_index(p->idx, r, p->idx_dtype);
    if ((index < 0 || index >= p->vocab) && p->error_flag) *p->error_flag = 1;
  }
  return TIGON_OK;
}
