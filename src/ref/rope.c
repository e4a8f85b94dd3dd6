#include <math.h>

#include "ref/ref.h"

/* at: the token's row of each axis's table. */
static void turn_head(const tigon_rope_problem *p, const void *x, void *y, const int64_t at[TIGON_ROPE_AXES],
                      bool legal, double sign) {
  const int64_t pairs = p->rotary_dim / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t first = p->layout == TIGON_ROPE_HALF ? i : 2 * i,
                  second = p->layout == TIGON_ROPE_HALF ? i + pairs : 2 * i + 1;
    const int64_t table = at[tigon_rope_axis(p->pairs_of, p->axes, i)] + i * p->table_step;
    const double c = legal ? tigon_load_f64(p->cos, table, p->table_dtype) : (double)NAN;
    const double s = legal ? sign * tigon_load_f64(p->sin, table, p->table_dtype) : (double)NAN;
    const double u = tigon_load_f64(x, first, p->dtype), v = tigon_load_f64(x, second, p->dtype);
    tigon_store_f64(y, first, p->dtype, u * c - v * s);
    tigon_store_f64(y, second, p->dtype, v * c + u * s);
  }
  for (int64_t i = p->rotary_dim; i < p->head_dim; ++i)
    tigon_store_f64(y, i, p->dtype, legal ? tigon_load_f64(x, i, p->dtype) : (double)NAN);
}

static bool find_rows(const tigon_rope_problem *p, int64_t b, int64_t t, int64_t at[TIGON_ROPE_AXES]) {
  bool legal = true;
  for (int axis = 0; axis < p->axes; ++axis) {
    const int64_t id = axis * p->position_axis_pitch + b * p->position_pitch + t;
    const int64_t row = p->positions ? tigon_load_index(p->positions, id, p->position_dtype) : t;
    legal = legal && row >= 0 && row < p->table_rows;
    at[axis] = legal ? axis * p->table_axis_pitch + b * p->table_batch_pitch + row * p->table_pitch : 0;
  }
  return legal;
}

static void turn(const tigon_rope_problem *p, double sign) {
  const size_t size = (int)p->dtype == TIGON_F64 ? sizeof(double) : tigon_dtype_size(p->dtype);
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t t = 0; t < p->tokens; ++t) {
      int64_t at[TIGON_ROPE_AXES];
      const bool legal = find_rows(p, b, t, at);
      if (!legal && p->error_flag) *p->error_flag = 1;
      for (int64_t h = 0; h < p->q.heads; ++h)
        turn_head(p, tigon_head(&p->q, size, b, t, h), tigon_head(&p->q_out, size, b, t, h), at, legal, sign);
      for (int64_t h = 0; h < p->k.heads; ++h)
        turn_head(p, tigon_head(&p->k, size, b, t, h), tigon_head(&p->k_out, size, b, t, h), at, legal, sign);
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
