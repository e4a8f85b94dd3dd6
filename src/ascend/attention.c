/* attention on an NPU: the vendor's aclnnFlashAttentionScore and its gradient. What they cannot express is refused before anything
 * is written. Queries that see no key come first of all, because the last query stands at the last key: the vendor gets the others.
 * A call goes in parts of batches and key heads whose statistics and workspace fit what the context holds. */
#include "ascend/kernel/attention.h"

#include <stdio.h>

#include "ascend/ascend.h"
#include "ascend/kernel/linear.h"
#include "ascend/npu.h"

enum {
  MOST_HEAD_DIM = 512,
  MOST_HEADS = 256,
  MOST_BATCHES = 2048, /* the limit of CANN 8.0, which takes the fewest */
  STATISTICS_BYTES = ASCEND_SUMS_BYTES / 2,
  MOST_QUERIES = STATISTICS_BYTES / (4 * ATTENTION_COPIES), /* the most queries of a part, all heads together */
};
enum { SPARSE_NONE = 0, SPARSE_CAUSAL = 3, SPARSE_BAND = 4 }; /* their triangle stands at the last query and key */

/* Either direction's problem; what forward does not have is empty. */
typedef struct call {
  int64_t batch, tokens, keys, head_dim, group; /* group: query heads of a key head */
  int64_t blind;                                /* the first queries, which see no key */
  tigon_dtype dtype;
  tigon_heads q, k, v, o, d_o, dq, dk, dv;
  const float *lse; /* forward's output, may be NULL there */
  double scale;
  bool causal, backward;
  int64_t window;
} call;

#define CALL_OF(p)                                                                                               \
  .batch = (p)->batch, .tokens = (p)->tokens, .keys = (p)->keys, .head_dim = (p)->head_dim, .dtype = (p)->dtype, \
  .q = (p)->q, .k = (p)->k, .v = (p)->v, .o = (p)->o, .lse = (p)->lse, .scale = (double)(p)->scale,              \
  .group = (p)->q.heads ? (p)->q.heads / (p)->k.heads : 1,                                                       \
  .blind = blind_of((p)->tokens, (p)->keys, (p)->causal, (p)->window), .causal = (p)->causal, .window = (p)->window

/* Query t sees keys up to t + keys - tokens, and without causal as many more as are in the window after it. */
static int64_t blind_of(int64_t tokens, int64_t keys, bool causal, int64_t window) {
  if (keys == 0) return tokens;
  if (!causal && window == 0) return 0;
  const int64_t blind = tokens - keys - (causal ? 0 : window - 1);
  return blind > 0 ? blind : 0;
}

/* ---- what is refused ---- */

static tigon_status refuse(tigon_queue *queue, tigon_status status, const char *name, int64_t value, int64_t most) {
  ascend_npu *npu = ascend_of(queue)->npu;
  snprintf(npu->reason, sizeof npu->reason, "%s is %lld, must be at most %lld on npu", name, (long long)value,
           (long long)most);
  queue->reason = npu->reason;
  return status;
}

static tigon_status check_options(tigon_queue *queue, float softcap, bool sinks, const tigon_attention_cuts *cuts,
                                  bool exact) {
  queue->reason = softcap != 0 ? "softcap is above 0, must be 0 on npu"
                  : sinks      ? "sinks is given, must be absent on npu"
                  : cuts->cu_q.data
                      ? "cu_seqlens_q is given, must be absent on npu" /* aclnn takes the host's lengths */
                  : cuts->dilation > 1 ? "dilation is above 1, must be 0 or 1 on npu"
                  : exact              ? "exact is 1, must be 0 on npu" /* aclnn's documents do not say how it rounds */
                                       : NULL;
  return queue->reason ? TIGON_ERROR_UNSUPPORTED : TIGON_OK;
}

static tigon_status check_sizes(tigon_queue *queue, const call *c) {
  if (c->head_dim > MOST_HEAD_DIM)
    return refuse(queue, TIGON_ERROR_UNSUPPORTED, "q.shape[3]", c->head_dim, MOST_HEAD_DIM);
  if (c->group > MOST_HEADS)
    return refuse(queue, TIGON_ERROR_UNSUPPORTED, "q.shape[2] / k.shape[2]", c->group, MOST_HEADS);
  if (c->tokens - c->blind > MOST_QUERIES / c->group)
    return refuse(queue, TIGON_ERROR_SCRATCH, "q.shape[1]", c->tokens, c->blind + MOST_QUERIES / c->group);
  return TIGON_OK;
}

/* ---- parts ---- */

/* Batches [batch, batch + batches), and key heads with their queries', [head, head + heads). */
typedef struct part {
  int64_t batch, batches, head, heads;
} part;

/* A part's tensor [batches, tokens, heads, head_dim], or with heads outside of tokens [batches, heads, tokens, head_dim]. */
static void *tensor_of(const ascend_npu *npu, const call *c, const part *p, const tigon_heads *x, int64_t group,
                       int64_t skipped, int64_t tokens, bool heads_first) {
  const void *first = tigon_head(x, tigon_dtype_size(c->dtype), p->batch, skipped, p->head * group);
  const int64_t heads = p->heads * group;
  const int64_t shape[] = {p->batches, heads_first ? heads : tokens, heads_first ? tokens : heads, c->head_dim};
  const int64_t strides[] = {x->batch_pitch, heads_first ? x->head_pitch : x->token_pitch,
                             heads_first ? x->token_pitch : x->head_pitch, 1};
  return ascend_aclnn_tensor(npu->aclnn, first, ascend_aclnn_dtype(c->dtype), 4, shape, strides);
}

static void *statistic(const ascend_npu *npu, int which) { return (char *)npu->products + which * STATISTICS_BYTES; }
static void *statistic_of(const ascend_npu *npu, const call *c, const part *p, int which) {
  const int64_t heads = p->heads * c->group, tokens = c->tokens - c->blind;
  const int64_t shape[] = {p->batches, heads, tokens, ATTENTION_COPIES};
  const int64_t strides[] = {heads * tokens * ATTENTION_COPIES, tokens * ATTENTION_COPIES, ATTENTION_COPIES, 1};
  return ascend_aclnn_tensor(npu->aclnn, statistic(npu, which), ACLNN_F32, 4, shape, strides);
}

static void *mask_memory(const ascend_npu *npu) {
  return (char *)npu->products + ASCEND_SUMS_BYTES + ASCEND_ACLNN_BYTES;
}
static void *mask_of(const ascend_npu *npu) {
  const int64_t shape[] = {ASCEND_MASK, ASCEND_MASK}, strides[] = {ASCEND_MASK, 1};
  return ascend_aclnn_tensor(npu->aclnn, mask_memory(npu), ACLNN_U8, 2, shape, strides);
}

/* ---- the vendor's call ---- */

enum { Q, K, V, O, MAX, SUM, MASK, D_O, DQ, DK, DV, TENSORS };

static bool make_tensors(const ascend_npu *npu, const call *c, const part *p, bool masked, bool heads_first,
                         void *t[TENSORS]) {
  const int64_t seen = c->tokens - c->blind;
  const tigon_heads *const of_queries[] = {&c->q, &c->o, &c->d_o, &c->dq};
  const tigon_heads *const of_keys[] = {&c->k, &c->v, &c->dk, &c->dv};
  static const int queries[] = {Q, O, D_O, DQ}, keys[] = {K, V, DK, DV};
  bool made = true;
  for (int i = 0; i < 4; ++i) {
    if (of_queries[i]->data)
      made &= !!(t[queries[i]] = tensor_of(npu, c, p, of_queries[i], c->group, c->blind, seen, heads_first));
    if (of_keys[i]->data) made &= !!(t[keys[i]] = tensor_of(npu, c, p, of_keys[i], 1, 0, c->keys, heads_first));
  }
  made &= !!(t[MAX] = statistic_of(npu, c, p, 0));
  made &= !!(t[SUM] = statistic_of(npu, c, p, 1));
  if (masked) made &= !!(t[MASK] = mask_of(npu));
  return made;
}

/* Plans a part's call and enqueues it. *bytes is the workspace that it wants; if that is too much nothing is enqueued. */
static tigon_status enqueue(tigon_queue *queue, ascend_npu *npu, const call *c, const part *p, uint64_t *bytes) {
  const aclnn_attention_api *api = npu->attention;
  const bool masked = c->causal || c->window > 0, heads_first = c->q.head_pitch > c->q.token_pitch;
  const int64_t sparse = c->window > 0 ? SPARSE_BAND : c->causal ? SPARSE_CAUSAL : SPARSE_NONE;
  const int64_t before = c->window > 0 ? c->window - 1 : INT32_MAX;
  const int64_t after = c->causal ? 0 : c->window > 0 ? c->window - 1 : INT32_MAX;
  char layout[] = "BSND";
  if (heads_first) layout[1] = 'N', layout[2] = 'S';
  void *t[TENSORS] = {NULL}, *executor = NULL;
  tigon_status status = TIGON_ERROR_DEVICE;
  queue->reason = "aclCreateTensor returned none";
  if (make_tensors(npu, c, p, masked, heads_first, t)) {
    const int64_t heads = p->heads * c->group;
    const int code = c->backward
                         ? api->grad_get_workspace_size(t[Q], t[K], t[V], t[D_O], NULL, NULL, NULL, t[MASK], t[MAX],
                                                        t[SUM], NULL, t[O], NULL, c->scale, 1, before, after, heads,
                                                        layout, 0, sparse, t[DQ], t[DK], t[DV], NULL, bytes, &executor)
                         : api->score_get_workspace_size(t[Q], t[K], t[V], NULL, NULL, NULL, t[MASK], NULL, c->scale, 1,
                                                         before, after, heads, layout, 0, sparse, t[MAX], t[SUM], NULL,
                                                         t[O], bytes, &executor);
    status = ascend_check(queue, npu, code,
                          c->backward ? "aclnnFlashAttentionScoreGradGetWorkspaceSize"
                                      : "aclnnFlashAttentionScoreGetWorkspaceSize");
    if (status == TIGON_OK)
      status = c->backward
                   ? ascend_aclnn_enqueue(queue, npu, "aclnnFlashAttentionScoreGrad", api->grad, *bytes, executor)
                   : ascend_aclnn_enqueue(queue, npu, "aclnnFlashAttentionScore", api->score, *bytes, executor);
  }
  for (int i = 0; i < TENSORS; ++i)
    if (t[i]) npu->aclnn->destroy_tensor(t[i]);
  return status;
}

static tigon_status call_vendor(tigon_queue *queue, const call *c, const part *p, uint64_t *bytes) {
  ascend_npu *npu = ascend_of(queue)->npu;
  int32_t before;
  *bytes = 0;
  if (queue->record) {
    queue->record(queue->record_to,
                  &(tigon_launch){.kernel = c->backward ? "aclnnFlashAttentionScoreGrad" : "aclnnFlashAttentionScore",
                                  .grid = 1});
    return TIGON_OK;
  }
  tigon_status status = ascend_enter(queue, npu, &before);
  if (status == TIGON_OK) status = enqueue(queue, npu, c, p, bytes);
  ascend_leave(npu, before);
  return status;
}

/* ---- words and zeros, by kernels ---- */

static attention_words_arguments words_of(const call *c, const part *p, int64_t first, int64_t words) {
  const int64_t heads = p->heads * c->group;
  return (attention_words_arguments){
      .lse = (gm_ptr)(c->lse + (p->batch * c->q.heads + p->head * c->group) * c->tokens + first),
      .rows = p->batches * heads,
      .words = words,
      .heads = heads,
      .batch_pitch = c->q.heads * c->tokens,
      .head_pitch = c->tokens};
}
static int64_t blocks_of(const tigon_queue *queue, const attention_words_arguments *a) {
  return least(attention_tiles(a->rows, a->words), ascend_of(queue)->soc->device.cores);
}

/* lse from the statistics, or backward the reverse. The vendor's weights are exp(z - max) / sum: with max = lse and sum = 1
 * they are Tigon's exp(z - lse). */
static tigon_status launch_words(tigon_queue *queue, const call *c, const part *p) {
  const ascend_npu *npu = ascend_of(queue)->npu;
  attention_words_arguments a = words_of(c, p, c->blind, c->tokens - c->blind);
  a.max = statistic(npu, 0), a.sum = statistic(npu, 1);
  return c->backward ? ascend_launch(queue, "attention_words", attention_words, &a, blocks_of(queue, &a))
                     : ascend_launch(queue, "attention_lse", attention_lse, &a, blocks_of(queue, &a));
}

static tigon_status make_mask(tigon_queue *queue) {
  ascend_npu *npu = ascend_of(queue)->npu;
  const attention_mask_arguments a = {mask_memory(npu), ASCEND_MASK};
  if (npu->has_mask) return TIGON_OK;
  const tigon_status status =
      ascend_launch(queue, "attention_mask", attention_mask, &a, ascend_of(queue)->soc->device.cores);
  npu->has_mask = status == TIGON_OK && !queue->record;
  return status;
}

/* The first `tokens` rows of all heads. */
static tigon_status clear(tigon_queue *queue, const call *c, const tigon_heads *x, int64_t tokens) {
  tigon_status status = TIGON_OK;
  for (int64_t i = 0; tokens > 0 && i < c->batch * x->heads && status == TIGON_OK; ++i) {
    void *first = tigon_head(x, tigon_dtype_size(c->dtype), i / x->heads, 0, i % x->heads);
    const linear_sum_arguments a = {.to = {first, x->token_pitch, c->dtype}, .rows = tokens, .cols = c->head_dim};
    status = ascend_launch(queue, "linear_sum", linear_sum, &a, 1);
  }
  return status;
}

/* ---- forward and backward ---- */

static tigon_status run_part(tigon_queue *queue, const call *c, const part *p, uint64_t *bytes) {
  tigon_status status = c->backward ? launch_words(queue, c, p) : TIGON_OK;
  if (status == TIGON_OK) status = call_vendor(queue, c, p, bytes);
  return status == TIGON_OK && !c->backward && c->lse ? launch_words(queue, c, p) : status;
}

/* Half the batches, or then half the heads; false: there is one of each. */
static bool shrink(part *most) {
  int64_t *const of = most->batches > 1 ? &most->batches : &most->heads;
  if (*of == 1) return false;
  *of = (*of + 1) / 2;
  return true;
}

/* The first part finds out how large parts may be, and is the first that writes anything. */
static tigon_status run_parts(tigon_queue *queue, const call *c) {
  const int64_t queries = (c->tokens - c->blind) * c->group;
  part most = {.heads = least(c->k.heads, least(MOST_HEADS / c->group, MOST_QUERIES / queries))};
  most.batches = least(c->batch, least(MOST_BATCHES, MOST_QUERIES / (queries * most.heads)));
  tigon_status status = c->causal || c->window > 0 ? make_mask(queue) : TIGON_OK;
  for (part p = {0}; p.batch < c->batch && status == TIGON_OK;) {
    uint64_t bytes = 0;
    p.batches = least(most.batches, c->batch - p.batch);
    p.heads = least(most.heads, c->k.heads - p.head);
    status = run_part(queue, c, &p, &bytes);
    if (bytes > ASCEND_ACLNN_BYTES && p.batch + p.head == 0 && shrink(&most)) {
      status = TIGON_OK;
      continue;
    }
    p.head += p.heads;
    if (p.head < c->k.heads) continue;
    p.head = 0;
    p.batch += p.batches;
  }
  return status;
}

tigon_status ascend_attention_fwd(tigon_queue *queue, const tigon_attention_fwd_problem *p) {
  const call c = {CALL_OF(p)};
  tigon_status status = check_options(queue, p->softcap, p->sinks.data, &p->cuts, p->exact && p->dtype != TIGON_F32);
  if (status == TIGON_OK) status = check_sizes(queue, &c);
  if (status == TIGON_OK && c.blind < c.tokens) status = run_parts(queue, &c);
  if (status == TIGON_OK) status = clear(queue, &c, &c.o, c.blind);
  if (status != TIGON_OK || c.blind == 0 || !c.lse) return status;
  const part all = {.batches = c.batch, .heads = c.k.heads};
  const attention_words_arguments a = words_of(&c, &all, 0, c.blind);
  return ascend_launch(queue, "attention_lse", attention_lse, &a, blocks_of(queue, &a));
}

tigon_status ascend_attention_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  const call c = {CALL_OF(p), .d_o = p->d_o, .dq = p->dq, .dk = p->dk, .dv = p->dv, .backward = true};
  const bool nothing = c.batch == 0 || c.q.heads == 0 || c.blind == c.tokens; /* is seen */
  tigon_status status = check_options(queue, p->softcap, p->sinks.data, &p->cuts, p->exact && p->dtype != TIGON_F32);
  if (status == TIGON_OK) status = check_sizes(queue, &c);
  if (status == TIGON_OK && !nothing) status = run_parts(queue, &c);
  if (status == TIGON_OK) status = clear(queue, &c, &c.dq, c.blind);
  if (status == TIGON_OK && nothing) status = clear(queue, &c, &c.dk, c.keys);
  return status == TIGON_OK && nothing ? clear(queue, &c, &c.dv, c.keys) : status;
}
