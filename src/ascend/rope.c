/* rope on Ascend. */
#include "ascend/kernel/rope.h"

#include "ascend/ascend.h"

static gm_heads heads_of(const tigon_heads *t) {
  if (!t->data) return (gm_heads){0};
  return (gm_heads){t->data, t->heads, t->batch_pitch, t->token_pitch, t->head_pitch};
}

static void uses_heads(tigon_queue *queue, const char *name, const tigon_rope_problem *p, const tigon_heads *t,
                       unsigned flags) {
  if (!t->data || t->heads == 0) return;
  const int64_t last =
      (p->batch - 1) * t->batch_pitch + (p->tokens - 1) * t->token_pitch + (t->heads - 1) * t->head_pitch;
  ascend_uses(queue, name, t->data, last + p->head_dim, p->dtype, flags);
}

_Static_assert((int)ROPE_TOKENS == (int)TIGON_ROPE_TOKENS, "the kernel holds the rows of so many tokens");

static tigon_status raise_flag(tigon_queue *queue, const tigon_rope_problem *p, const float *flags, int64_t count) {
  const rope_flag_arguments a = {.flags = (gm_ptr)flags, .error = (gm_ptr)p->error_flag, .count = count};
  ascend_uses(queue, "flags", flags, count, TIGON_F32, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "error", p->error_flag, 1, TIGON_I32, SIM_WRITES);
  return ascend_launch(queue, "rope_flag", rope_flag, &a, 1);
}

static tigon_status run(tigon_queue *queue, const tigon_rope_problem *p, const tigon_plan *plan, float sign) {
  const bool flagged = p->positions && p->error_flag;
  float *flags = flagged ? ascend_scratch(queue, plan->grid) : NULL;
  const rope_arguments a = {.batch = p->batch,
                            .tokens = p->tokens,
                            .head_dim = p->head_dim,
                            .rotary_dim = p->rotary_dim,
                            .in = {heads_of(&p->q), heads_of(&p->k)},
                            .out = {heads_of(&p->q_out), heads_of(&p->k_out)},
                            .cosine = (gm_ptr)p->cos,
                            .sine = (gm_ptr)p->sin,
                            .table_batch_pitch = p->table_batch_pitch,
                            .table_pitch = p->table_pitch,
                            .table_rows = p->table_rows,
                            .positions = (gm_ptr)p->positions,
                            .position_pitch = p->position_pitch,
                            .position_words = p->position_dtype == TIGON_I64 ? 2 : 1,
                            .flags = (gm_ptr)flags,
                            .dtype = p->dtype,
                            .table_dtype = p->table_dtype,
                            .interleaved = p->layout == TIGON_ROPE_INTERLEAVED,
                            .tile_tokens = plan->rows_per_tile,
                            .tile_heads = plan->cols_per_tile / p->head_dim,
                            .sign = sign};
  const int64_t grid = plan->grid, sequences = p->table_batch_pitch ? p->batch : 1;
  const int64_t table =
      (sequences - 1) * p->table_batch_pitch + (p->table_rows - 1) * p->table_pitch + p->rotary_dim / 2;
  const int64_t ids = (p->position_pitch ? p->batch : 1) * p->tokens;
  uses_heads(queue, "q", p, &p->q, SIM_READS);
  uses_heads(queue, "k", p, &p->k, SIM_READS);
  uses_heads(queue, "q_out", p, &p->q_out, SIM_WRITES);
  uses_heads(queue, "k_out", p, &p->k_out, SIM_WRITES);
  ascend_uses(queue, "cos", p->table_rows ? p->cos : NULL, table, p->table_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "sin", p->table_rows ? p->sin : NULL, table, p->table_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "positions", p->positions, p->positions ? ids : 0, p->position_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "flags", flags, flags ? grid : 0, TIGON_F32, SIM_WRITES);
  const tigon_status status = ascend_launch(queue, "rope", rope, &a, grid);
  return status != TIGON_OK || !flagged ? status : raise_flag(queue, p, flags, grid);
}

tigon_status ascend_rope_fwd(tigon_queue *queue, const tigon_rope_problem *p) { return run(queue, p, queue->plan, 1); }

tigon_status ascend_rope_bwd(tigon_queue *queue, const tigon_rope_problem *p) { return run(queue, p, queue->plan, -1); }
