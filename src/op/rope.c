#include <tigon/op/rope.h>

#include "op/front.h"

static tigon_heads heads_of(const tigon_tensor *t) {
  if (!tigon_present(t)) return (tigon_heads){0};
  return (tigon_heads){t->data, t->shape[2], t->strides[0], t->strides[1], t->strides[2]};
}

/* x is [B, T, H, D] like q but for H. */
static tigon_status check_heads(tigon_context *context, const char *call, const char *name, const tigon_tensor *x,
                                const tigon_tensor *q) {
  TIGON_TRY(tigon_check_ndim(context, call, name, x, 4));
  TIGON_TRY(tigon_check_extent(context, call, name, x, 0, q->shape[0], "q.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, call, name, x, 1, q->shape[1], "q.shape[1]"));
  TIGON_TRY(tigon_check_extent(context, call, name, x, 3, q->shape[3], "q.shape[3]"));
  return tigon_check_same_dtype(context, call, name, x, "q", q, TIGON_DTYPE_NONE);
}

/* cos is [P, W] or [B, P, W] with W = rotary_dim / 2 or rotary_dim; sin is alike. */
static tigon_status check_tables(tigon_context *context, const char *call, const tigon_rope_args *a,
                                 int64_t rotary_dim) {
  const tigon_tensor *cosine = &a->cos;
  if (cosine->ndim != 2 && cosine->ndim != 3)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: cos.ndim is %d, must be 2 or 3", call, (int)cosine->ndim);
  const int last = cosine->ndim - 1;
  if (cosine->ndim == 3) TIGON_TRY(tigon_check_extent(context, call, "cos", cosine, 0, a->q.shape[0], "q.shape[0]"));
  if (cosine->shape[last] != rotary_dim && cosine->shape[last] != rotary_dim / 2)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: cos.shape[%d] is %lld, must be %lld or %lld (rotary_dim)",
                      call, last, (long long)cosine->shape[last], (long long)rotary_dim / 2, (long long)rotary_dim);
  if (!tigon_present(&a->positions) && cosine->shape[last - 1] < a->q.shape[1])
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: cos.shape[%d] is %lld, must be %lld or more (q.shape[1])",
                      call, last - 1, (long long)cosine->shape[last - 1], (long long)a->q.shape[1]);
  TIGON_TRY(tigon_check_same_dtype(context, call, "cos", cosine, "q", &a->q, TIGON_F32));
  TIGON_TRY(tigon_check_same_shape(context, call, "sin", &a->sin, "cos", cosine));
  TIGON_TRY(tigon_check_same_dtype(context, call, "sin", &a->sin, "cos", cosine, TIGON_DTYPE_NONE));
  for (int i = 0; i < last; ++i)
    if (a->sin.shape[i] > 1 && a->sin.strides[i] != cosine->strides[i])
      return tigon_fail(context, TIGON_ERROR_INVALID, "%s: sin.strides[%d] is %lld, must be %lld (cos.strides[%d])",
                        call, i, (long long)a->sin.strides[i], (long long)cosine->strides[i], i);
  return TIGON_OK;
}

static tigon_status check_positions(tigon_context *context, const char *call, const tigon_rope_args *a,
                                    int32_t **flag) {
  const tigon_tensor *ids = &a->positions;
  *flag = NULL;
  if (!tigon_present(ids)) return TIGON_OK;
  TIGON_TRY(tigon_check_ndim(context, call, "positions", ids, 2));
  if (ids->shape[0] != 1)
    TIGON_TRY(tigon_check_extent(context, call, "positions", ids, 0, a->q.shape[0], "q.shape[0]"));
  TIGON_TRY(tigon_check_extent(context, call, "positions", ids, 1, a->q.shape[1], "q.shape[1]"));
  return tigon_check_indices(context, call, "positions", ids, (tigon_dim){"cos", &a->cos, a->cos.ndim - 2}, false, 0,
                             &a->error, flag);
}

static tigon_status prepare(tigon_context *context, const char *call, const tigon_rope_args *args,
                            tigon_rope_problem *p) {
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_rope_args a = *args;
  tigon_arg list[] = {
      {"q", &a.q, TIGON_FLOATS, TIGON_IN, NULL},
      {"k", &a.k, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL, NULL},
      {"cos", &a.cos, TIGON_FLOATS, TIGON_IN, NULL},
      {"sin", &a.sin, TIGON_FLOATS, TIGON_IN, NULL},
      {"positions", &a.positions, TIGON_INTS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"q_out", &a.q_out, TIGON_FLOATS, TIGON_OUT, "q"},
      {"k_out", &a.k_out, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL, "k"},
      {"error", &a.error, TIGON_BIT(TIGON_I32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  TIGON_TRY(check_heads(context, call, "q", &a.q, &a.q));
  TIGON_TRY(check_heads(context, call, "k", &a.k, &a.q));
  TIGON_TRY(tigon_check_same_shape(context, call, "q_out", &a.q_out, "q", &a.q));
  TIGON_TRY(tigon_check_same_dtype(context, call, "q_out", &a.q_out, "q", &a.q, TIGON_DTYPE_NONE));
  if (tigon_present(&a.k) != tigon_present(&a.k_out))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: %s is absent, must be given with %s", call,
                      tigon_present(&a.k) ? "k_out" : "k", tigon_present(&a.k) ? "k" : "k_out");
  TIGON_TRY(tigon_check_same_shape(context, call, "k_out", &a.k_out, "k", &a.k));
  TIGON_TRY(tigon_check_same_dtype(context, call, "k_out", &a.k_out, "k", &a.k, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_vector(context, call, "error", &a.error, 1, "one flag"));
  TIGON_TRY(tigon_check_choice(context, call, "layout", (int)a.layout, TIGON_ROPE_INTERLEAVED));
  const int64_t head_dim = a.q.shape[3], rotary_dim = a.rotary_dim ? a.rotary_dim : head_dim;
  if (rotary_dim < 0 || rotary_dim > head_dim || rotary_dim % 2)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: rotary_dim is %lld, must be even and 2 to %lld (q.shape[3])",
                      call, (long long)rotary_dim, (long long)head_dim);
  TIGON_TRY(check_tables(context, call, &a, rotary_dim));
  int32_t *flag;
  TIGON_TRY(check_positions(context, call, &a, &flag));
  const int last = a.cos.ndim - 1;
  *p = (tigon_rope_problem){
      .batch = a.q.shape[0],
      .tokens = a.q.shape[1],
      .head_dim = head_dim,
      .rotary_dim = rotary_dim,
      .dtype = a.q.dtype,
      .table_dtype = a.cos.dtype,
      .position_dtype = a.positions.dtype,
      .q = heads_of(&a.q),
      .k = heads_of(&a.k),
      .q_out = heads_of(&a.q_out),
      .k_out = heads_of(&a.k_out),
      .cos = a.cos.data,
      .sin = a.sin.data,
      .table_batch_pitch = last == 2 ? a.cos.strides[0] : 0,
      .table_pitch = a.cos.strides[last - 1],
      .table_rows = a.cos.shape[last - 1],
      .positions = a.positions.data,
      .position_pitch = a.positions.shape[0] > 1 ? a.positions.strides[0] : 0,
      .error_flag = flag,
      .layout = a.layout,
  };
  return TIGON_OK;
}

static bool empty(const tigon_rope_problem *p) {
  return p->batch == 0 || p->tokens == 0 || p->head_dim == 0 || (p->q.heads == 0 && p->k.heads == 0);
}

tigon_status tigon_rope_fwd(tigon_context *context, const tigon_rope_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_rope_problem p;
  TIGON_TRY(prepare(context, "rope_fwd", args, &p));
  if (empty(&p)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, rope_fwd, p.dtype, &p);
}

tigon_status tigon_rope_bwd(tigon_context *context, const tigon_rope_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_rope_problem p;
  TIGON_TRY(prepare(context, "rope_bwd", args, &p));
  if (empty(&p)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, rope_bwd, p.dtype, &p);
}
