#include <inttypes.h>
#include <tigon/op/attention.h>

#include "op/front.h"

/* The tensors that forward and backward share. */
typedef struct shared {
  const char *call;
  const tigon_tensor *q, *k, *v, *o, *lse;
  double scale;
  int causal;
  int64_t window;
} shared;

static tigon_status check_like(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                               const char *like_name, const tigon_tensor *like) {
  TIGON_TRY(tigon_check_same_shape(context, call, name, a, like_name, like));
  return tigon_check_same_dtype(context, call, name, a, like_name, like, TIGON_DTYPE_NONE);
}

static tigon_status check_shared(tigon_context *context, const shared *s) {
  const char *call = s->call;
  const tigon_tensor *q = s->q, *k = s->k;
  TIGON_TRY(tigon_check_ndim(context, call, "q", q, 4));
  TIGON_TRY(tigon_check_ndim(context, call, "k", k, 4));
  TIGON_TRY(tigon_check_extent(context, call, "k", k, 0, q->shape[0], "q.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, call, "k", k, 3, q->shape[3], "q.shape[3]"));
  TIGON_TRY(tigon_check_same_dtype(context, call, "k", k, "q", q, TIGON_DTYPE_NONE));
  TIGON_TRY(check_like(context, call, "v", s->v, "k", k));
  TIGON_TRY(check_like(context, call, "o", s->o, "q", q));
  if (q->shape[3] == 0) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: q.shape[3] is 0, must be >= 1", call);
  if (k->shape[2] == 0 ? q->shape[2] != 0 : q->shape[2] % k->shape[2] != 0)
    return tigon_fail(context, TIGON_ERROR_INVALID,
                      "%s: q.shape[2] is %" PRId64 ", must be a multiple of %" PRId64 " (k.shape[2])", call,
                      q->shape[2], k->shape[2]);
  TIGON_TRY(tigon_check_ndim(context, call, "lse", s->lse, 3));
  TIGON_TRY(tigon_check_extent(context, call, "lse", s->lse, 0, q->shape[0], "q.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, call, "lse", s->lse, 1, q->shape[2], "q.shape[2]"));
  TIGON_TRY(tigon_check_extent(context, call, "lse", s->lse, 2, q->shape[1], "q.shape[1]"));
  TIGON_TRY(tigon_check_number(context, call, "scale", s->scale, -FLT_MAX, FLT_MAX));
  TIGON_TRY(tigon_check_flag(context, call, "causal", s->causal));
  if (s->window < 0)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: window is %" PRId64 ", must be >= 0", call, s->window);
  return TIGON_OK;
}

static float scale_of(const shared *s) { return (float)(s->scale != 0 ? s->scale : 1 / sqrt((double)s->q->shape[3])); }

/* A window that reaches over all keys from every query is none; kernels may then add it to any index. */
static int64_t window_of(const shared *s) {
  const int64_t tokens = s->q->shape[1], keys = s->k->shape[1];
  return s->window >= (tokens > keys ? tokens : keys) ? 0 : s->window;
}

static tigon_heads heads_of(const tigon_tensor *t) {
  return (tigon_heads){.data = t->data,
                       .heads = t->shape[2],
                       .batch_pitch = t->strides[0],
                       .token_pitch = t->strides[1],
                       .head_pitch = t->strides[2]};
}

tigon_status tigon_attention_fwd(tigon_context *context, const tigon_attention_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "attention_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_attention_fwd_args a = *args;
  tigon_arg list[] = {
      {"q", &a.q, TIGON_FLOATS, TIGON_IN, NULL},
      {"k", &a.k, TIGON_FLOATS, TIGON_IN, NULL},
      {"v", &a.v, TIGON_FLOATS, TIGON_IN, NULL},
      {"o", &a.o, TIGON_FLOATS, TIGON_OUT, NULL},
      {"lse", &a.lse, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  const shared s = {call, &a.q, &a.k, &a.v, &a.o, &a.lse, a.scale, a.causal, a.window};
  TIGON_TRY(check_shared(context, &s));
  if (tigon_tensor_count(&a.q) == 0) return TIGON_OK;

  const tigon_attention_fwd_problem p = {
      .batch = a.q.shape[0],
      .tokens = a.q.shape[1],
      .keys = a.k.shape[1],
      .head_dim = a.q.shape[3],
      .dtype = a.q.dtype,
      .q = heads_of(&a.q),
      .k = heads_of(&a.k),
      .v = heads_of(&a.v),
      .o = heads_of(&a.o),
      .lse = a.lse.data,
      .scale = scale_of(&s),
      .causal = a.causal != 0,
      .window = window_of(&s),
  };
  return TIGON_CALL_SLOT(context, attention_fwd, p.dtype, &p);
}

/* Bytes of delta and, where the dtype is narrow, of the f32 sums of dq that a backend on host memory adds up tile by tile;
 * false when 64 bits do not count them. */
static bool bwd_workspace(const tigon_context *context, const tigon_tensor *q, size_t *delta_bytes, size_t *bytes) {
  int64_t delta = (int64_t)sizeof(float), sums;
  for (int i = 0; i < 3; ++i)
    if (__builtin_mul_overflow(delta, q->shape[i], &delta)) return false;
  if (__builtin_mul_overflow(delta, q->shape[3], &sums) || delta > INT64_MAX - 63) return false;
  if (q->dtype == TIGON_F32 || !context->queue.backend->host_memory) sums = 0;
  delta = (delta + 63) & ~INT64_C(63);
  if (__builtin_add_overflow(delta, sums, &sums)) return false;
  *delta_bytes = (size_t)delta;
  *bytes = (size_t)sums;
  return true;
}

/* Checks the call and fills in the problem; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_attention_bwd_args *args, bool shape_only,
                                tigon_attention_bwd_problem *p, size_t *bytes) {
  const char *call = "attention_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_attention_bwd_args a = *args;
  tigon_arg list[] = {
      {"d_o", &a.d_o, TIGON_FLOATS, TIGON_IN, NULL},
      {"q", &a.q, TIGON_FLOATS, TIGON_IN, NULL},
      {"k", &a.k, TIGON_FLOATS, TIGON_IN, NULL},
      {"v", &a.v, TIGON_FLOATS, TIGON_IN, NULL},
      {"o", &a.o, TIGON_FLOATS, TIGON_IN, NULL},
      {"lse", &a.lse, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dq", &a.dq, TIGON_FLOATS, TIGON_OUT, NULL},
      {"dk", &a.dk, TIGON_FLOATS, TIGON_OUT, NULL},
      {"dv", &a.dv, TIGON_FLOATS, TIGON_OUT, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  const shared s = {call, &a.q, &a.k, &a.v, &a.o, &a.lse, a.scale, a.causal, a.window};
  TIGON_TRY(check_shared(context, &s));
  TIGON_TRY(check_like(context, call, "d_o", &a.d_o, "q", &a.q));
  TIGON_TRY(check_like(context, call, "dq", &a.dq, "q", &a.q));
  TIGON_TRY(check_like(context, call, "dk", &a.dk, "k", &a.k));
  TIGON_TRY(check_like(context, call, "dv", &a.dv, "k", &a.k));
  size_t delta_bytes;
  if (!bwd_workspace(context, &a.q, &delta_bytes, bytes))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: the workspace has more bytes than 64 bits count", call);

  *p = (tigon_attention_bwd_problem){
      .batch = a.q.shape[0],
      .tokens = a.q.shape[1],
      .keys = a.k.shape[1],
      .head_dim = a.q.shape[3],
      .dtype = a.q.dtype,
      .q = heads_of(&a.q),
      .k = heads_of(&a.k),
      .v = heads_of(&a.v),
      .o = heads_of(&a.o),
      .d_o = heads_of(&a.d_o),
      .dq = heads_of(&a.dq),
      .dk = heads_of(&a.dk),
      .dv = heads_of(&a.dv),
      .lse = a.lse.data,
      .delta = a.workspace,
      .scale = scale_of(&s),
      .causal = a.causal != 0,
      .window = window_of(&s),
  };
  if (*bytes > delta_bytes && a.workspace) p->dq_sums = (float *)((char *)a.workspace + delta_bytes);
  return TIGON_OK;
}

tigon_status tigon_attention_bwd(tigon_context *context, const tigon_attention_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_attention_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, "attention_bwd", args->workspace, args->workspace_bytes, bytes));
  /* Without queries dk and dv are 0, and without keys dq is. */
  if (p.batch == 0 || p.q.heads + p.k.heads == 0 || p.tokens + p.keys == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, attention_bwd, p.dtype, &p);
}

tigon_status tigon_attention_bwd_workspace(tigon_context *context, const tigon_attention_bwd_args *args,
                                           size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_attention_bwd_problem p;
  size_t needed;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "attention_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p, &needed));
  *bytes = needed;
  return TIGON_OK;
}
