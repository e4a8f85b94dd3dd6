#include <inttypes.h>
#include <tigon/op/attention.h>

#include "op/front.h"

#define QUERIES_KEYS_VALUES \
  IN(q, "bthd", SAME, ROWS), IN(k, "bskd", SAME_GIVES_SECOND, ROWS), IN(v, "bskd", SECOND, ROWS)
#define NUMBERS FINITE(scale), FLAG(causal), AT_LEAST(window, 0)
#define A tigon_attention_fwd_args
static const tigon_field fwd[] = {
    QUERIES_KEYS_VALUES, OUT(o, "bthd", SAME, ROWS, NULL), WANT(lse, "bht", F32, DENSE, NULL), NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_attention_bwd_args
static const tigon_field bwd[] = {
    QUERIES_KEYS_VALUES,
    IN(o, "bthd", SAME, ROWS),
    IN(lse, "bht", F32, DENSE),
    IN(d_o, "bthd", SAME, ROWS),
    OUT(dq, "bthd", SAME, ROWS, NULL),
    OUT(dk, "bskd", SECOND, ROWS, NULL),
    OUT(dv, "bskd", SECOND, ROWS, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status check_heads(tigon_context *context, const tigon_tensor *q, const tigon_tensor *k) {
  if (q->shape[3] == 0) return tigon_refuse(context, "q.shape[3] is 0, must be >= 1");
  if (k->shape[2] == 0 ? q->shape[2] != 0 : q->shape[2] % k->shape[2] != 0)
    return tigon_refuse(context, "q.shape[2] is %" PRId64 ", must be a multiple of %" PRId64 " (k.shape[2])",
                        q->shape[2], k->shape[2]);
  return TIGON_OK;
}

static float scale_of(double scale, const tigon_tensor *q) {
  return (float)(scale != 0 ? scale : 1 / sqrt((double)q->shape[3]));
}

/* A window that reaches over all keys from every query is none; kernels may then add it to any index. */
static int64_t window_of(int64_t window, const tigon_tensor *q, const tigon_tensor *k) {
  const int64_t tokens = q->shape[1], keys = k->shape[1];
  return window >= (tokens > keys ? tokens : keys) ? 0 : window;
}

/* Fields of a problem that either direction fills from its arguments `a`. */
#define ATTENTION                                                                                               \
  .batch = a->q.shape[0], .tokens = a->q.shape[1], .keys = a->k.shape[1], .head_dim = a->q.shape[3],            \
  .dtype = a->q.dtype, .q = tigon_heads_of(&a->q), .k = tigon_heads_of(&a->k), .v = tigon_heads_of(&a->v),      \
  .o = tigon_heads_of(&a->o), .lse = a->lse.data, .scale = scale_of(a->scale, &a->q), .causal = a->causal != 0, \
  .window = window_of(a->window, &a->q, &a->k)

static tigon_status prepare_fwd(tigon_context *context, const tigon_attention_fwd_args *a,
                                tigon_attention_fwd_problem *p) {
  TIGON_TRY(check_heads(context, &a->q, &a->k));
  *p = (tigon_attention_fwd_problem){ATTENTION};
  return TIGON_OK;
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_attention_bwd_args *a,
                                tigon_attention_bwd_problem *p, size_t *bytes) {
  TIGON_TRY(check_heads(context, &a->q, &a->k));
  /* delta and, where the dtype is narrow, f32 sums of dq, which a backend on host memory adds up tile by tile. Of q the
   * check has counted the elements. */
  const int64_t queries = a->q.shape[0] * a->q.shape[1] * a->q.shape[2], head_dim = a->q.shape[3];
  const bool summed = a->q.dtype != TIGON_F32 && context->queue.backend->host_memory;
  if (queries > (INT64_MAX / 4 - 16) / (head_dim + 1))
    return tigon_refuse(context, "the workspace has more bytes than 64 bits count");
  const int64_t delta_bytes = tigon_pad(4 * queries), sum_bytes = summed ? 4 * queries * head_dim : 0;
  *bytes = (size_t)(delta_bytes + sum_bytes);
  *p = (tigon_attention_bwd_problem){
      ATTENTION,
      .d_o = tigon_heads_of(&a->d_o),
      .dq = tigon_heads_of(&a->dq),
      .dk = tigon_heads_of(&a->dk),
      .dv = tigon_heads_of(&a->dv),
      .delta = a->workspace,
  };
  if (sum_bytes > 0 && a->workspace) p->dq_sums = (float *)a->workspace + delta_bytes / 4;
  return TIGON_OK;
}

TIGON_ENTRY(attention, fwd, fwd, prepare_fwd, p.batch == 0 || p.tokens == 0 || p.q.heads == 0)
/* Without queries dk and dv are 0, and without keys dq is. */
TIGON_ENTRY_WITH_WORKSPACE(attention, bwd, bwd, prepare_bwd,
                           p.batch == 0 || p.q.heads + p.k.heads == 0 || p.tokens + p.keys == 0)
