#include <inttypes.h>
#include <tigon/op/attention.h>

#include "op/front.h"

#define QUERIES_KEYS_VALUES \
  IN(q, "bthd", SAME, ROWS), IN(k, "bskd", SAME_GIVES_SECOND, ROWS), IN(v, "bskd", SECOND, ROWS)
#define OPTIONAL \
  MAY(sinks, "h", SAME_OR_F32, DENSE), MAY(cu_seqlens_q, "n", INTEGER, DENSE), MAY(cu_seqlens_k, "n", INTEGER, DENSE)
#define NUMBERS FINITE(scale), FLAG(causal), AT_LEAST(window, 0), OR_ZERO(softcap), AT_LEAST(dilation, 0), FLAG(exact)
#define A tigon_attention_fwd_args
static const tigon_field fwd[] = {
    QUERIES_KEYS_VALUES, OPTIONAL, OUT(o, "bthd", SAME, ROWS, NULL), WANT(lse, "bht", F32, DENSE, NULL), NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_attention_bwd_args
static const tigon_field bwd[] = {
    QUERIES_KEYS_VALUES,
    IN(o, "bthd", SAME, ROWS),
    IN(lse, "bht", F32, DENSE),
    IN(d_o, "bthd", SAME, ROWS),
    OPTIONAL,
    OUT(dq, "bthd", SAME, ROWS, NULL),
    OUT(dk, "bskd", SECOND, ROWS, NULL),
    OUT(dv, "bskd", SECOND, ROWS, NULL),
    WANT(dsinks, "h", SAME_OR_F32, DENSE, NULL),
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

/* Both are clamped to values that make a difference, so that kernels may add them to any index. Queries and keys are less than
 * `most` apart, and a window of all of these is no window. */
static int64_t most_of(const tigon_tensor *q, const tigon_tensor *k) {
  const int64_t tokens = q->shape[1], keys = k->shape[1], most = tokens > keys ? tokens : keys;
  return most > 1 ? most : 1;
}
static int64_t dilation_of(int64_t dilation, const tigon_tensor *q, const tigon_tensor *k) {
  const int64_t most = most_of(q, k);
  return dilation < 1 ? 1 : dilation < most ? dilation : most;
}
static int64_t window_of(int64_t window, int64_t dilation, const tigon_tensor *q, const tigon_tensor *k) {
  return window > (most_of(q, k) - 1) / dilation ? 0 : window;
}

/* One vector of cu_seqlens, which a host device looks into. */
static tigon_status check_lengths(tigon_context *context, const char *name, const tigon_tensor *t, int64_t rows,
                                  const char *of) {
  if (t->shape[0] == 0) return tigon_refuse(context, "%s.shape[0] is 0, must be >= 1", name);
  if (context->shape_only || !context->queue.backend->host_memory || context->queue.record) return TIGON_OK;
  int64_t before = 0;
  for (int64_t i = 0; i < t->shape[0]; ++i) {
    const int64_t at = tigon_vector_index(tigon_vector_of(t), i);
    if (at < before || at > rows)
      return tigon_refuse(context, "%s[%" PRId64 "] is %" PRId64 ", must be %" PRId64 " to %" PRId64 " (%s.shape[1])",
                          name, i, at, before, rows, of);
    before = at;
  }
  return TIGON_OK;
}

static tigon_status check_cuts(tigon_context *context, const tigon_tensor *q, const tigon_tensor *k,
                               const tigon_tensor *cu_q, const tigon_tensor *cu_k) {
  if (tigon_present(cu_q) != tigon_present(cu_k))
    return tigon_refuse(context, "cu_seqlens_%c is absent, must be given with cu_seqlens_%c",
                        tigon_present(cu_q) ? 'k' : 'q', tigon_present(cu_q) ? 'q' : 'k');
  if (!tigon_present(cu_q)) return TIGON_OK;
  if (q->shape[0] != 1)
    return tigon_refuse(context, "q.shape[0] is %" PRId64 ", must be 1 with cu_seqlens_q", q->shape[0]);
  TIGON_TRY(check_lengths(context, "cu_seqlens_q", cu_q, q->shape[1], "q"));
  return check_lengths(context, "cu_seqlens_k", cu_k, k->shape[1], "k");
}

/* Fields of a problem that either direction fills from its arguments `a`. */
#define ATTENTION                                                                                               \
  .batch = a->q.shape[0], .tokens = a->q.shape[1], .keys = a->k.shape[1], .head_dim = a->q.shape[3],            \
  .dtype = a->q.dtype, .q = tigon_heads_of(&a->q), .k = tigon_heads_of(&a->k), .v = tigon_heads_of(&a->v),      \
  .o = tigon_heads_of(&a->o), .lse = a->lse.data, .scale = scale_of(a->scale, &a->q), .causal = a->causal != 0, \
  .exact = a->exact != 0, .window = window_of(a->window, dilation_of(a->dilation, &a->q, &a->k), &a->q, &a->k), \
  .cuts = {.tokens = a->q.shape[1],                                                                             \
           .keys = a->k.shape[1],                                                                               \
           .cu_q = tigon_vector_of(&a->cu_seqlens_q),                                                           \
           .cu_k = tigon_vector_of(&a->cu_seqlens_k),                                                           \
           .segments = tigon_present(&a->cu_seqlens_q) ? a->cu_seqlens_q.shape[0] - 1 : 0,                      \
           .dilation = dilation_of(a->dilation, &a->q, &a->k)},                                                 \
  .sinks = tigon_vector_of(&a->sinks), .softcap = (float)a->softcap

static tigon_status prepare_fwd(tigon_context *context, const tigon_attention_fwd_args *a,
                                tigon_attention_fwd_problem *p) {
  TIGON_TRY(check_heads(context, &a->q, &a->k));
  TIGON_TRY(check_cuts(context, &a->q, &a->k, &a->cu_seqlens_q, &a->cu_seqlens_k));
  *p = (tigon_attention_fwd_problem){ATTENTION};
  return TIGON_OK;
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_attention_bwd_args *a,
                                tigon_attention_bwd_problem *p, size_t *bytes) {
  TIGON_TRY(check_heads(context, &a->q, &a->k));
  TIGON_TRY(check_cuts(context, &a->q, &a->k, &a->cu_seqlens_q, &a->cu_seqlens_k));
  if (tigon_present(&a->dsinks) && !tigon_present(&a->sinks))
    return tigon_refuse(context, "sinks is absent, must be given with dsinks");
  /* The slot's own: delta, then what else it wants. */
  const int64_t queries = a->q.shape[0] * a->q.shape[1] * a->q.shape[2]; /* the check has counted q's elements */
  if (queries > (INT64_MAX / 8 - 16) / (a->q.shape[3] + 1))
    return tigon_refuse(context, "the workspace has more bytes than 64 bits count");
  const int64_t delta_bytes = tigon_pad(4 * queries);
  *p = (tigon_attention_bwd_problem){
      ATTENTION,
      .d_o = tigon_heads_of(&a->d_o),
      .dq = tigon_heads_of(&a->dq),
      .dk = tigon_heads_of(&a->dk),
      .dv = tigon_heads_of(&a->dv),
      .delta = a->workspace,
      .dsinks = tigon_vector_of(&a->dsinks),
  };
  TIGON_TRY(TIGON_ASK_WORKSPACE(context, attention_bwd, p->dtype, p, bytes));
  if (*bytes > (size_t)delta_bytes && a->workspace) p->own = (char *)a->workspace + delta_bytes;
  return TIGON_OK;
}

TIGON_ENTRY(attention, fwd, fwd, prepare_fwd, p.batch == 0 || p.tokens == 0 || p.q.heads == 0)
/* Without queries dk, dv and dsinks are 0, and without keys dq is. */
TIGON_ENTRY_WITH_WORKSPACE(attention, bwd, bwd, prepare_bwd,
                           p.q.heads + p.k.heads == 0 || (!p.dsinks.data && (p.batch == 0 || p.tokens + p.keys == 0)))
