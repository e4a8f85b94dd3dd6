#include <tigon/op/rope.h>

#include "op/front.h"

#define A tigon_rope_args
static const tigon_field fields[] = {
    IN(q, "bthd", SAME, ROWS),
    MAY(k, "btkd", SAME, ROWS),
    IN(cos, "?pd", SAME_OR_F32_GIVES_SECOND, ROWS),
    MAY(sin, "?pd", SECOND, ROWS),
    MAY(positions, "?bt", INDEX('p'), DENSE),
    OUT(q_out, "bthd", SAME, ROWS, "q"),
    WANT(k_out, "btkd", SAME, ROWS, "k"),
    WANT(error, "1 one flag", I32, DENSE, NULL),
    CHOICE(layout, TIGON_ROPE_INTERLEAVED),
    ANY(rotary_dim),
    AT_LEAST(section_t, 0),
    AT_LEAST(section_h, 0),
    AT_LEAST(section_w, 0),
    FLAG(sections_interleaved),
    RESERVED(reserved),
};

/* Pairs turn by the positions of time, height and width. */
static bool has_axes(const tigon_rope_args *a) { return a->section_t || a->section_h || a->section_w; }

static tigon_status check_sections(tigon_context *context, const tigon_rope_args *a, int64_t pairs) {
  if (!has_axes(a) && a->sections_interleaved)
    return tigon_refuse(context, "sections_interleaved is 1, must be 0 without sections");
  if (!has_axes(a)) return TIGON_OK;
  if (pairs > INT32_MAX)
    return tigon_refuse(context, "rotary_dim is %lld, must be below 2^32 with sections", 2 * (long long)pairs);
  const struct {
    const char *name;
    int64_t pairs;
  } sections[] = {{"section_t", a->section_t}, {"section_h", a->section_h}, {"section_w", a->section_w}};
  int64_t sum = 0;
  for (int i = 0; i < TIGON_ROPE_AXES; ++i) {
    if (sections[i].pairs > pairs)
      return tigon_refuse(context, "%s is %lld, must be 0 to %lld (rotary_dim / 2)", sections[i].name,
                          (long long)sections[i].pairs, (long long)pairs);
    sum += sections[i].pairs;
  }
  if (sum == pairs) return TIGON_OK;
  return tigon_refuse(context, "section_t + section_h + section_w is %lld, must be %lld (rotary_dim / 2)",
                      (long long)sum, (long long)pairs);
}

/* cos without its first `leading` dimensions is [P, W], W = rotary_dim / 2 or rotary_dim, or [P, rotary_dim / 2, 2]. */
static tigon_status check_columns(tigon_context *context, const tigon_tensor *cosine, int leading, int64_t rotary_dim,
                                  bool complex) {
  const int at = leading + 1;
  const int64_t columns = cosine->shape[at], pairs = rotary_dim / 2;
  if (!complex && columns != rotary_dim && columns != pairs)
    return tigon_refuse(context, "cos.shape[%d] is %lld, must be %lld or %lld (rotary_dim)", at, (long long)columns,
                        (long long)pairs, (long long)rotary_dim);
  if (!complex) return TIGON_OK;
  TIGON_TRY(tigon_check_extent(context, "cos", cosine, at, pairs, "rotary_dim / 2"));
  TIGON_TRY(tigon_check_extent(context, "cos", cosine, at + 1, 2, "cos and sin, as sin is absent"));
  if (columns < 2 || cosine->strides[at] == 2) return TIGON_OK;
  return tigon_refuse(context, "cos.strides[%d] is %lld, must be 2 (complex numbers)", at,
                      (long long)cosine->strides[at]);
}

/* Before cos's rows: nothing, [B], and with axes [3] or [3, B]. sin is alike, or absent. */
static tigon_status check_tables(tigon_context *context, const tigon_rope_args *a, int64_t rotary_dim,
                                 tigon_rope_problem *p) {
  const tigon_tensor *cosine = &a->cos;
  const bool complex = !tigon_present(&a->sin), axes = has_axes(a);
  const int least = complex ? 3 : 2, most = least + (axes ? 2 : 1), rows = cosine->ndim - least, batch = rows - 1;
  if (rows < 0 || cosine->ndim > most)
    return tigon_refuse(context, "cos.ndim is %d, must be %d %s %d", (int)cosine->ndim, least, axes ? "to" : "or",
                        most);
  const bool own_axes = axes && rows > 0, own_batch = rows == (axes ? 2 : 1);
  if (own_axes) TIGON_TRY(tigon_check_extent(context, "cos", cosine, 0, TIGON_ROPE_AXES, "time, height, width"));
  if (own_batch) TIGON_TRY(tigon_check_same_extent(context, "cos", cosine, batch, (tigon_dim){"q", &a->q, 0}));
  TIGON_TRY(check_columns(context, cosine, rows, rotary_dim, complex));
  if (!tigon_present(&a->positions) && cosine->shape[rows] < a->q.shape[1])
    return tigon_refuse(context, "cos.shape[%d] is %lld, must be %lld or more (q.shape[1])", rows,
                        (long long)cosine->shape[rows], (long long)a->q.shape[1]);
  TIGON_TRY(tigon_check_same_shape(context, "sin", &a->sin, "cos", cosine));
  for (int i = 0; !complex && i <= rows; ++i)
    if (a->sin.shape[i] > 1 && a->sin.strides[i] != cosine->strides[i])
      return tigon_refuse(context, "sin.strides[%d] is %lld, must be %lld (cos.strides[%d])", i,
                          (long long)a->sin.strides[i], (long long)cosine->strides[i], i);
  p->cos = cosine->data;
  p->sin = complex ? (const char *)cosine->data + tigon_dtype_size(cosine->dtype) : a->sin.data;
  p->table_step = complex ? 2 : 1;
  p->table_axis_pitch = own_axes ? cosine->strides[0] : 0;
  p->table_batch_pitch = own_batch ? cosine->strides[batch] : 0;
  p->table_pitch = cosine->strides[rows];
  p->table_rows = cosine->shape[rows];
  return TIGON_OK;
}

/* [B, T] or [1, T], with axes [3, B, T] or [3, 1, T]. */
static tigon_status check_positions(tigon_context *context, const tigon_rope_args *a, tigon_rope_problem *p) {
  const tigon_tensor *ids = &a->positions;
  if (!tigon_present(ids)) return TIGON_OK;
  const int batch = has_axes(a), table = a->cos.ndim - (tigon_present(&a->sin) ? 2 : 3);
  TIGON_TRY(tigon_check_ndim(context, "positions", ids, batch + 2));
  if (batch) TIGON_TRY(tigon_check_extent(context, "positions", ids, 0, TIGON_ROPE_AXES, "time, height, width"));
  if (ids->shape[batch] != 1)
    TIGON_TRY(tigon_check_same_extent(context, "positions", ids, batch, (tigon_dim){"q", &a->q, 0}));
  TIGON_TRY(tigon_check_same_extent(context, "positions", ids, batch + 1, (tigon_dim){"q", &a->q, 1}));
  p->positions = ids->data;
  p->position_dtype = ids->dtype;
  p->position_axis_pitch = batch ? ids->strides[0] : 0;
  p->position_pitch = ids->shape[batch] > 1 ? ids->strides[batch] : 0;
  return tigon_check_indices(context, "positions", ids, (tigon_dim){"cos", &a->cos, table}, false, 0, &a->error,
                             &p->error_flag);
}

static void set_axes(const tigon_rope_args *a, tigon_rope_problem *p) {
  p->axes = has_axes(a) ? TIGON_ROPE_AXES : 1;
  const int64_t t = a->section_t, h = a->section_h, w = a->section_w;
  p->pairs_of[1] = a->sections_interleaved ? (tigon_rope_pairs){1, 3 * h, 3} : (tigon_rope_pairs){t, t + h, 1};
  p->pairs_of[2] = a->sections_interleaved ? (tigon_rope_pairs){2, 3 * w, 3} : (tigon_rope_pairs){t + h, t + h + w, 1};
}

static tigon_status prepare(tigon_context *context, const tigon_rope_args *a, tigon_rope_problem *p) {
  const bool has_k = tigon_present(&a->k);
  if (has_k != tigon_present(&a->k_out))
    return tigon_refuse(context, "%s is absent, must be given with %s", has_k ? "k_out" : "k", has_k ? "k" : "k_out");
  const int64_t head_dim = a->q.shape[3], rotary_dim = a->rotary_dim ? a->rotary_dim : head_dim;
  if (rotary_dim < 0 || rotary_dim > head_dim || rotary_dim % 2)
    return tigon_refuse(context, "rotary_dim is %lld, must be even and 2 to %lld (q.shape[3])", (long long)rotary_dim,
                        (long long)head_dim);
  *p = (tigon_rope_problem){
      .batch = a->q.shape[0],
      .tokens = a->q.shape[1],
      .head_dim = head_dim,
      .rotary_dim = rotary_dim,
      .dtype = a->q.dtype,
      .table_dtype = a->cos.dtype,
      .q = tigon_heads_of(&a->q),
      .k = tigon_heads_of(&a->k),
      .q_out = tigon_heads_of(&a->q_out),
      .k_out = tigon_heads_of(&a->k_out),
      .layout = a->layout,
  };
  TIGON_TRY(check_sections(context, a, rotary_dim / 2));
  TIGON_TRY(check_tables(context, a, rotary_dim, p));
  set_axes(a, p);
  return check_positions(context, a, p);
}

static bool is_empty(const tigon_rope_problem *p) {
  return p->batch == 0 || p->tokens == 0 || p->head_dim == 0 || (p->q.heads == 0 && p->k.heads == 0);
}

typedef tigon_rope_args tigon_rope_fwd_args, tigon_rope_bwd_args;
TIGON_ENTRY(rope, fwd, fields, prepare, is_empty(&p))
TIGON_ENTRY(rope, bwd, fields, prepare, is_empty(&p))
