#include <tigon/op/rope.h>

#include "op/describe.h"
#include "op/front.h"

#define TABLE SAME_OR_F32, GIVES_SECOND
#define A tigon_rope_args
static const tigon_field fields[] = {
    IN(q, "bthd", SAME, ROWS),
    MAY(k, "btkd", SAME, ROWS),
    IN(cos, "?pd", TABLE, ROWS),
    IN(sin, "?pd", SECOND, ROWS),
    MAY(positions, "?bt", INDEX('p'), DENSE),
    OUT(q_out, "bthd", SAME, ROWS, "q"),
    WANT(k_out, "btkd", SAME, ROWS, "k"),
    WANT(error, "1 one flag", I32, DENSE, NULL),
    CHOICE(layout, TIGON_ROPE_INTERLEAVED),
    ANY(rotary_dim),
    RESERVED(reserved),
};
DESCRIBE(rope, fwd, fields);
DESCRIBE(rope, bwd, fields);
#undef A

static tigon_heads heads_of(const tigon_tensor *t) {
  if (!tigon_present(t)) return (tigon_heads){0};
  return (tigon_heads){t->data, t->shape[2], t->strides[0], t->strides[1], t->strides[2]};
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
  TIGON_TRY(tigon_check_same_shape(context, call, "sin", &a->sin, "cos", cosine));
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
  return tigon_check_indices(context, "positions", ids, (tigon_dim){"cos", &a->cos, a->cos.ndim - 2}, false, 0,
                             &a->error, flag);
}

static tigon_status prepare(tigon_context *context, const tigon_schema *schema, const tigon_rope_args *args,
                            tigon_rope_problem *p) {
  const char *call = schema->name;
  tigon_rope_args a;
  TIGON_TRY(tigon_check_entry(context, schema, args, &a, false));
  if (tigon_present(&a.k) != tigon_present(&a.k_out))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: %s is absent, must be given with %s", call,
                      tigon_present(&a.k) ? "k_out" : "k", tigon_present(&a.k) ? "k" : "k_out");
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
  TIGON_TRY(prepare(context, &tigon_rope_fwd_schema, args, &p));
  if (empty(&p)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, rope_fwd, p.dtype, &p);
}

tigon_status tigon_rope_bwd(tigon_context *context, const tigon_rope_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_rope_problem p;
  TIGON_TRY(prepare(context, &tigon_rope_bwd_schema, args, &p));
  if (empty(&p)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, rope_bwd, p.dtype, &p);
}
