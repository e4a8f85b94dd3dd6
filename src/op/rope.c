#include <tigon/op/rope.h>

#include "op/front.h"

#define A tigon_rope_args
static const tigon_field fields[] = {
    IN(q, "bthd", SAME, ROWS),
    MAY(k, "btkd", SAME, ROWS),
    IN(cos, "?pd", SAME_OR_F32_GIVES_SECOND, ROWS),
    IN(sin, "?pd", SECOND, ROWS),
    MAY(positions, "?bt", INDEX('p'), DENSE),
    OUT(q_out, "bthd", SAME, ROWS, "q"),
    WANT(k_out, "btkd", SAME, ROWS, "k"),
    WANT(error, "1 one flag", I32, DENSE, NULL),
    CHOICE(layout, TIGON_ROPE_INTERLEAVED),
    ANY(rotary_dim),
    RESERVED(reserved),
};

/* cos is [P, W] or [B, P, W] with W = rotary_dim / 2 or rotary_dim; sin is alike. */
static tigon_status check_tables(tigon_context *context, const tigon_rope_args *a, int64_t rotary_dim) {
  const tigon_tensor *cosine = &a->cos;
  if (cosine->ndim != 2 && cosine->ndim != 3)
    return tigon_refuse(context, "cos.ndim is %d, must be 2 or 3", (int)cosine->ndim);
  const int last = cosine->ndim - 1;
  if (cosine->ndim == 3) TIGON_TRY(tigon_check_same_extent(context, "cos", cosine, 0, (tigon_dim){"q", &a->q, 0}));
  if (cosine->shape[last] != rotary_dim && cosine->shape[last] != rotary_dim / 2)
    return tigon_refuse(context, "cos.shape[%d] is %lld, must be %lld or %lld (rotary_dim)", last,
                        (long long)cosine->shape[last], (long long)rotary_dim / 2, (long long)rotary_dim);
  if (!tigon_present(&a->positions) && cosine->shape[last - 1] < a->q.shape[1])
    return tigon_refuse(context, "cos.shape[%d] is %lld, must be %lld or more (q.shape[1])", last - 1,
                        (long long)cosine->shape[last - 1], (long long)a->q.shape[1]);
  TIGON_TRY(tigon_check_same_shape(context, "sin", &a->sin, "cos", cosine));
  for (int i = 0; i < last; ++i)
    if (a->sin.shape[i] > 1 && a->sin.strides[i] != cosine->strides[i])
      return tigon_refuse(context, "sin.strides[%d] is %lld, must be %lld (cos.strides[%d])", i,
                          (long long)a->sin.strides[i], (long long)cosine->strides[i], i);
  return TIGON_OK;
}

static tigon_status check_positions(tigon_context *context, const tigon_rope_args *a, int32_t **flag) {
  const tigon_tensor *ids = &a->positions;
  if (!tigon_present(ids)) return TIGON_OK;
  TIGON_TRY(tigon_check_ndim(context, "positions", ids, 2));
  if (ids->shape[0] != 1) TIGON_TRY(tigon_check_same_extent(context, "positions", ids, 0, (tigon_dim){"q", &a->q, 0}));
  TIGON_TRY(tigon_check_same_extent(context, "positions", ids, 1, (tigon_dim){"q", &a->q, 1}));
  return tigon_check_indices(context, "positions", ids, (tigon_dim){"cos", &a->cos, a->cos.ndim - 2}, false, 0,
                             &a->error, flag);
}

static tigon_status prepare(tigon_context *context, const tigon_rope_args *a, tigon_rope_problem *p) {
  const bool has_k = tigon_present(&a->k);
  if (has_k != tigon_present(&a->k_out))
    return tigon_refuse(context, "%s is absent, must be given with %s", has_k ? "k_out" : "k", has_k ? "k" : "k_out");
  const int64_t head_dim = a->q.shape[3], rotary_dim = a->rotary_dim ? a->rotary_dim : head_dim;
  if (rotary_dim < 0 || rotary_dim > head_dim || rotary_dim % 2)
    return tigon_refuse(context, "rotary_dim is %lld, must be even and 2 to %lld (q.shape[3])", (long long)rotary_dim,
                        (long long)head_dim);
  TIGON_TRY(check_tables(context, a, rotary_dim));
  const int last = a->cos.ndim - 1;
  *p = (tigon_rope_problem){
      .batch = a->q.shape[0],
      .tokens = a->q.shape[1],
      .head_dim = head_dim,
      .rotary_dim = rotary_dim,
      .dtype = a->q.dtype,
      .table_dtype = a->cos.dtype,
      .position_dtype = a->positions.dtype,
      .q = tigon_heads_of(&a->q),
      .k = tigon_heads_of(&a->k),
      .q_out = tigon_heads_of(&a->q_out),
      .k_out = tigon_heads_of(&a->k_out),
      .cos = a->cos.data,
      .sin = a->sin.data,
      .table_batch_pitch = last == 2 ? a->cos.strides[0] : 0,
      .table_pitch = a->cos.strides[last - 1],
      .table_rows = a->cos.shape[last - 1],
      .positions = a->positions.data,
      .position_pitch = a->positions.shape[0] > 1 ? a->positions.strides[0] : 0,
      .layout = a->layout,
  };
  return check_positions(context, a, &p->error_flag);
}

static bool is_empty(const tigon_rope_problem *p) {
  return p->batch == 0 || p->tokens == 0 || p->head_dim == 0 || (p->q.heads == 0 && p->k.heads == 0);
}

typedef tigon_rope_args tigon_rope_fwd_args, tigon_rope_bwd_args;
TIGON_ENTRY(rope, fwd, fields, prepare, is_empty(&p))
TIGON_ENTRY(rope, bwd, fields, prepare, is_empty(&p))
