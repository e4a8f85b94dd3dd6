#include <inttypes.h>
#include <tigon/op/attention.h>

#include "op/describe.h"
#include "op/front.h"

#define KEYS .dtypes = TIGON_FLOATS, .as = 'T', GIVES_SECOND
#define A tigon_attention_fwd_args
static const tigon_field fwd[] = {
    IN(q, "bthd", SAME, ROWS),
    IN(k, "bskd", KEYS, ROWS),
    IN(v, "bskd", SECOND, ROWS),
    OUT(o, "bthd", SAME, ROWS, NULL),
    WANT(lse, "bht", F32, DENSE, NULL),
    FINITE(scale),
    FLAG(causal),
    AT_LEAST(window, 0),
    RESERVED(reserved),
};
DESCRIBE(attention, fwd, fwd);
#undef A

#define A tigon_attention_bwd_args
static const tigon_field bwd[] = {
    IN(q, "bthd", SAME, ROWS),
    IN(k, "bskd", KEYS, ROWS),
    IN(v, "bskd", SECOND, ROWS),
    IN(o, "bthd", SAME, ROWS),
    IN(lse, "bht", F32, DENSE),
    IN(d_o, "bthd", SAME, ROWS),
    OUT(dq, "bthd", SAME, ROWS, NULL),
    OUT(dk, "bskd", SECOND, ROWS, NULL),
    OUT(dv, "bskd", SECOND, ROWS, NULL),
    FINITE(scale),
    FLAG(causal),
    AT_LEAST(window, 0),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(attention, bwd, bwd);
#undef A

/* The tensors that forward and backward share. */
typedef struct shared {
  const char *call;
  const tigon_tensor *q, *k;
  double scale;
  int64_t window;
} shared;

static tigon_status check_shared(tigon_context *context, const shared *s) {
  const tigon_tensor *q = s->q, *k = s->k;
  if (q->shape[3] == 0) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: q.shape[3] is 0, must be >= 1", s->call);
  if (k->shape[2] == 0 ? q->shape[2] != 0 : q->shape[2] % k->shape[2] != 0)
    return tigon_fail(context, TIGON_ERROR_INVALID,
                      "%s: q.shape[2] is %" PRId64 ", must be a multiple of %" PRId64 " (k.shape[2])", s->call,
                      q->shape[2], k->shape[2]);
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
  tigon_attention_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_attention_fwd_schema, args, &a, false));
  const shared s = {call, &a.q, &a.k, a.scale, a.window};
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
  tigon_attention_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_attention_bwd_schema, args, &a, shape_only));
  const shared s = {call, &a.q, &a.k, a.scale, a.window};
  TIGON_TRY(check_shared(context, &s));
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
  size_t bytes = 0;
  TIGON_TRY(prepare_bwd(context, args, false, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, args->workspace, args->workspace_bytes, bytes));
  /* Without queries dk and dv are 0, and without keys dq is. */
  if (p.batch == 0 || p.q.heads + p.k.heads == 0 || p.tokens + p.keys == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, attention_bwd, p.dtype, &p);
}

tigon_status tigon_attention_bwd_workspace(tigon_context *context, const tigon_attention_bwd_args *args,
                                           size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_attention_bwd_problem p;
  size_t needed = 0;
  TIGON_TRY(tigon_check_query(context, &tigon_attention_bwd_schema, bytes));
  TIGON_TRY(prepare_bwd(context, args, true, &p, &needed));
  *bytes = needed;
  return TIGON_OK;
}
