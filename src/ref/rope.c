#include <math.h>

#include "ref/ref.h"

static void turn_head(const tigon_rope_problem *p, const void *x, void *y, int64_t table, bool legal, double sign) {
  const int64_t pairs = p->rotary_dim / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t first = p->layout == TIGON_ROPE_HALF ? i : 2 * i,
                  second = p->layout == TIGON_ROPE_HALF ? i + pairs : 2 * i + 1;
    const double c = legal ? tigon_load_f64(p->cos, table + i, p->table_dtype) : (double)NAN;
    const double s = legal ? sign * tigon_load_f64(p->sin, table + i, p->table_dtype) : (double)NAN;
    const double u = tigon_load_f64(x, first, p->dtype), v = tigon_load_f64(x, second, p->dtype);
    tigon_store_f64(y, first, p->dtype, u * c - v * s);
    tigon_store_f64(y, second, p->dtype, v * c + u * s);
  }
  for (int64_t i = p->rotary_dim; i < p->head_dim; ++i)
    tigon_store_f64(y, i, p->dtype, legal ? tigon_load_f64(x, i, p->dtype) : (double)NAN);
}

static void turn(const tigon_rope_problem *p, double sign) {
  const size_t size = (int)p->dtype == TIGON_F64 ? sizeof(double) : tigon_dtype_size(p->dtype);
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t t = 0; t < p->tokens; ++t) {
      const int64_t at =
          p->positions ? tigon_load_index(p->positions, b * p->position_pitch + t, p->position_dtype) : t;
      const bool legal = at >= 0 && at < p->table_rows;
      if (!legal && p->error_flag) *p->error_flag = 1;
      const int64_t table = legal ? b * p->table_batch_pitch + at * p->table_pitch : 0;
      for (int64_t h = 0; h < p->q.heads; ++h)
        turn_head(p, tigon_head(&p->q, size, b, t, h), tigon_head(&p->q_out, size, b, t, h), table, legal, sign);
      for (int64_t h = 0; h < p->k.heads; ++h)
        turn_head(p, tigon_head(&p->k, size, b, t, h), tigon_head(&p->k_out, size, b, t, h), table, legal, sign);
    }
  }
}

tigon_status tigon_ref_rope_fwd(tigon_queue *queue, const tigon_rope_problem *p) {
  (void)queue;
  turn(p, 1);
  return TIGON_OK;
}

tigon_status tigon_ref_rope_bwd(tigon_queue *queue, const tigon_rope_problem *p) {
  (void)queue;
  turn(p, -1);
  return TIGON_OK;
}
