/* attention, in the exact grade: weights are f32. */
#include "core/attention_part.h"
#include "core/context.h"
#include "opencl/kernel/attention.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

static attention_heads heads_of(const tigon_heads *t) {
  return (attention_heads){t->batch_pitch, t->token_pitch, t->head_pitch};
}

/* Rows of a tile. */
static int64_t block_of(const tigon_queue *queue) {
  return opencl_of(queue)->model == OPENCL_ITEMS ? ATTENTION_ITEM_BLOCK : ATTENTION_GROUP_BLOCK;
}

/* Fields that either direction fills from its problem `p`. */
#define NUMBERS                                                                                                      \
  .batch = p->batch, .tokens = p->tokens, .keys = p->keys, .head_dim = p->head_dim, .heads = p->q.heads,             \
  .kv_heads = p->k.heads, .segments = p->cuts.segments, .dilation = p->cuts.dilation, .window = p->window,           \
  .query_places = tigon_attention_places(&p->cuts, false, block_of(queue)),                                          \
  .key_places = tigon_attention_places(&p->cuts, true, block_of(queue)), .q = heads_of(&p->q), .k = heads_of(&p->k), \
  .v = heads_of(&p->v), .o = heads_of(&p->o), .scale = p->scale, .softcap = p->softcap, .causal = p->causal,         \
  .cut = p->cuts.cu_q.data != NULL, .cu_q_dtype = (int32_t)p->cuts.cu_q.dtype,                                       \
  .cu_k_dtype = (int32_t)p->cuts.cu_k.dtype, .sinks_dtype = (int32_t)p->sinks.dtype

/* A work-item or a group for each tile. */
static opencl_shape tiles_shape(const tigon_queue *queue, int64_t tiles) {
  const opencl_device *d = opencl_of(queue);
  const int64_t local = d->model == OPENCL_ITEMS ? 1 : d->group;
  return (opencl_shape){.global = {tiles * local}, .local = {local}, .held = "tiles"};
}

tigon_status tigon_opencl_attention_fwd(tigon_queue *queue, const tigon_attention_fwd_problem *p) {
  static const opencl_kernel kernel = {"attention", "attention_fwd"};
  const attention_numbers n = {NUMBERS};
  return opencl_launch(queue, &kernel, p->dtype, tiles_shape(queue, p->batch * n.heads * n.query_places),
                       OPENCL_MEMORY(p->q.data, p->keys ? p->k.data : NULL, p->keys ? p->v.data : NULL, p->o.data,
                                     p->lse, p->sinks.data, p->cuts.cu_q.data, p->cuts.cu_k.data),
                       &n, sizeof n);
}

/* delta */
int64_t tigon_opencl_attention_bwd_bytes(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  (void)queue;
  return tigon_pad(4 * p->batch * p->q.heads * p->tokens);
}

tigon_status tigon_opencl_attention_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  static const opencl_kernel of_delta = {"attention_bwd", "attention_bwd_delta"};
  static const opencl_kernel of_sinks = {"attention_bwd", "attention_bwd_sinks"};
  static const opencl_kernel of_keys = {"attention_bwd", "attention_bwd_keys"};
  static const opencl_kernel of_queries = {"attention_bwd", "attention_bwd_queries"};
  const attention_numbers n = {NUMBERS,
                               .d_o = heads_of(&p->d_o),
                               .dq = heads_of(&p->dq),
                               .dk = heads_of(&p->dk),
                               .dv = heads_of(&p->dv),
                               .dsinks_dtype = (int32_t)p->dsinks.dtype};
  const bool queries = p->batch * p->tokens * n.heads > 0, keys = p->batch * p->keys * n.kv_heads > 0;
  const void *q = queries ? p->q.data : NULL, *d_o = queries ? p->d_o.data : NULL, *o = queries ? p->o.data : NULL;
  const void *k = keys ? p->k.data : NULL, *v = keys ? p->v.data : NULL, *dk = keys ? p->dk.data : NULL;
  const void *dv = keys ? p->dv.data : NULL, *dq = queries ? p->dq.data : NULL, *lse = queries ? p->lse : NULL;
  const void *delta = queries ? p->delta : NULL, *cu_q = p->cuts.cu_q.data, *cu_k = p->cuts.cu_k.data;
  TIGON_TRY(opencl_launch(queue, &of_delta, p->dtype, opencl_row_shape(queue, p->batch * n.heads * p->tokens),
                          OPENCL_MEMORY(d_o, o, delta), &n, sizeof n));
  if (p->dsinks.data)
    TIGON_TRY(opencl_launch(queue, &of_sinks, p->dtype, opencl_row_shape(queue, n.heads),
                            OPENCL_MEMORY(p->sinks.data, lse, delta, p->dsinks.data), &n, sizeof n));
  if (keys)
    TIGON_TRY(opencl_launch(queue, &of_keys, p->dtype, tiles_shape(queue, p->batch * n.kv_heads * n.key_places),
                            OPENCL_MEMORY(q, k, v, d_o, lse, delta, dk, dv, cu_q, cu_k), &n, sizeof n));
  if (!queries) return TIGON_OK;
  return opencl_launch(queue, &of_queries, p->dtype, tiles_shape(queue, p->batch * n.heads * n.query_places),
                       OPENCL_MEMORY(q, k, v, d_o, lse, delta, dq, NULL, cu_q, cu_k), &n, sizeof n);
}
