/* rope on Ascend. */
#include "ascend/kernel/rope.h"

#include "ascend/ascend.h"

static gm_heads heads_of(const tigon_heads *t) {
  if (!t->data) return (gm_heads){0};
  return (gm_heads){t->data, t->heads, t->batch_pitch, t->token_pitch, t->head_pitch};
}

_Static_assert((int)ROPE_TOKENS == (int)TIGON_ROPE_TOKENS, "the kernel holds the rows of so many tokens");

static tigon_status raise_flag(tigon_queue *queue, const tigon_rope_problem *p, const float *flags, int64_t count) {
  const rope_flag_arguments a = {.flags = (gm_ptr)flags, .error = (gm_ptr)p->error_flag, .count = count};
  return ascend_launch(queue, "rope_flag", rope_flag, &a, 1);
}

/* The heads of queries and keys are the columns. */
static tigon_status plan_of(tigon_queue *queue, const tigon_rope_problem *p, bool backward, tigon_plan *plan) {
  const tigon_call_words words = {.given = p->positions != NULL,
                                  .in = (uint8_t)(p->axes * (p->position_dtype == TIGON_I64 ? 2 : 1)),
                                  .table_bytes = (uint8_t)tigon_dtype_size(p->table_dtype),
                                  .tables = (uint8_t)(2 * p->axes)};
  const tigon_plan_request call = {.op = "rope",
                                   .entry = p->positions ? backward ? "bwd_positions" : "fwd_positions"
                                            : backward   ? "bwd"
                                                         : "fwd",
                                   .dtype = p->dtype,
                                   .rows = p->batch * p->tokens,
                                   .cols = (p->q.heads + p->k.heads) * p->head_dim,
                                   .col_unit = p->head_dim,
                                   .table_cols = p->rotary_dim / 2,
                                   .key_cols = p->k.heads * p->head_dim,
                                   .sequence = p->tokens,
                                   .words = words};
  return ascend_plan(queue, &call, plan);
}

static tigon_status run(tigon_queue *queue, const tigon_rope_problem *p, bool backward) {
  tigon_plan plan;
  tigon_status status = plan_of(queue, p, backward, &plan);
  if (status != TIGON_OK) return status;
  const bool flagged = p->positions && p->error_flag;
  float *flags = flagged ? ascend_scratch(queue, plan.grid) : NULL;
  const rope_arguments a = {.batch = p->batch,
                            .tokens = p->tokens,
                            .head_dim = p->head_dim,
                            .rotary_dim = p->rotary_dim,
                            .in = {heads_of(&p->q), heads_of(&p->k)},
                            .out = {heads_of(&p->q_out), heads_of(&p->k_out)},
                            .cosine = (gm_ptr)p->cos,
                            .sine = p->table_step == 2 ? NULL : (gm_ptr)p->sin,
                            .table_axis_pitch = p->table_axis_pitch,
                            .table_batch_pitch = p->table_batch_pitch,
                            .table_pitch = p->table_pitch,
                            .table_rows = p->table_rows,
                            .positions = (gm_ptr)p->positions,
                            .position_axis_pitch = p->position_axis_pitch,
                            .position_pitch = p->position_pitch,
                            .position_words = p->position_dtype == TIGON_I64 ? 2 : 1,
                            .axes = p->axes,
                            .pairs_of = {{0}, p->pairs_of[1], p->pairs_of[2]},
                            .flags = (gm_ptr)flags,
                            .dtype = p->dtype,
                            .table_dtype = p->table_dtype,
                            .interleaved = p->layout == TIGON_ROPE_INTERLEAVED,
                            .tile_tokens = plan.rows_per_tile,
                            .tile_heads = plan.cols_per_tile / p->head_dim,
                            .sign = backward ? -1 : 1};
  status = ascend_launch(queue, "rope", rope, &a, plan.grid);
  return status != TIGON_OK || !flagged ? status : raise_flag(queue, p, flags, plan.grid);
}

tigon_status ascend_rope_fwd(tigon_queue *queue, const tigon_rope_problem *p) { return run(queue, p, false); }

tigon_status ascend_rope_bwd(tigon_queue *queue, const tigon_rope_problem *p) { return run(queue, p, true); }
