#include "opencl/kernel/rope.h"

#include "opencl/opencl.h"
#include "opencl/tables.h"

static rope_heads heads_of(const tigon_heads *h) {
  return (rope_heads){h->heads, h->batch_pitch, h->token_pitch, h->head_pitch};
}

static tigon_status turn(tigon_queue *queue, const tigon_rope_problem *p, float sign) {
  static const opencl_kernel kernel = {"rope", "rope"};
  rope_numbers k = {.rows = p->batch * p->tokens,
                    .tokens = p->tokens,
                    .head_dim = p->head_dim,
                    .pairs = p->rotary_dim / 2,
                    .q = heads_of(&p->q),
                    .k = heads_of(&p->k),
                    .q_out = heads_of(&p->q_out),
                    .k_out = heads_of(&p->k_out),
                    .table_step = p->table_step,
                    .table_axis_pitch = p->table_axis_pitch,
                    .table_batch_pitch = p->table_batch_pitch,
                    .table_pitch = p->table_pitch,
                    .table_rows = p->table_rows,
                    .position_axis_pitch = p->position_axis_pitch,
                    .position_pitch = p->position_pitch,
                    .table_dtype = (int32_t)p->table_dtype,
                    .position_dtype = (int32_t)p->position_dtype,
                    .axes = p->axes,
                    .interleaved = p->layout == TIGON_ROPE_INTERLEAVED,
                    .sign = sign};
  for (int i = 1; i < p->axes; ++i)
    k.of[i] = (rope_pairs){p->pairs_of[i].first, p->pairs_of[i].end, p->pairs_of[i].step};
  return opencl_launch(
      queue, &kernel, p->dtype, opencl_row_shape(queue, k.rows),
      OPENCL_MEMORY(p->q.data, p->k.data, p->cos, p->sin, p->positions, p->q_out.data, p->k_out.data, p->error_flag),
      &k, sizeof k);
}

tigon_status tigon_opencl_rope_fwd(tigon_queue *queue, const tigon_rope_problem *p) { return turn(queue, p, 1); }
tigon_status tigon_opencl_rope_bwd(tigon_queue *queue, const tigon_rope_problem *p) { return turn(queue, p, -1); }
