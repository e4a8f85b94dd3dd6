/* aclnnFlashAttentionScore and its gradient in plain loops. They refuse what the reference does, and what no test should ask for:
 * shifts, drop-out, prefixes. A query that sees no key gets NaN, because the reference does not say what it gets. */
#include <math.h>
#include <stdlib.h>

#include "acl.h"
#include "opapi.h"
#include "opapi_tensor.h"

enum { Q, K, V, O, MAX, SUM, MASK, D_O, DQ, DK, DV };
enum { NONE = 0, CAUSAL = 3, BAND = 4, COPIES = 8, MASKED = 2048, MOST_HEADS = 256, MOST_HEAD_DIM = 512 };

static uint64_t of_heads;
static int calls;

void fake_opapi_workspace_of_heads(uint64_t each) { of_heads = each; }
int fake_opapi_attention_calls(void) { return calls; }

/* ---- shapes ---- */

static int64_t tokens_of(const executor *e, int x) { return e->t[x].shape[e->heads_first ? 2 : 1]; }
static int64_t heads_of(const executor *e, int x) { return e->t[x].shape[e->heads_first ? 1 : 2]; }

/* The row of batch b, token t, head h. */
static int64_t row_of(const executor *e, int x, int64_t b, int64_t t, int64_t h) {
  const int64_t *s = e->t[x].strides;
  return b * s[0] + t * s[e->heads_first ? 2 : 1] + h * s[e->heads_first ? 1 : 2];
}
static double value(const executor *e, int x, int64_t row, int64_t d) {
  return (double)load(&e->t[x], row + d * e->t[x].strides[3]);
}

static bool alike(const tensor *a, const tensor *b) {
  return a->ndim == 4 && b->ndim == 4 && a->dtype == b->dtype && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

static int check_tensors(const executor *e, int64_t heads) {
  const tensor *q = &e->t[Q], *k = &e->t[K];
  if (q->ndim != 4 || k->ndim != 4 || q->dtype == U8 || k->dtype != q->dtype || !alike(k, &e->t[V]))
    return PARAM_INVALID;
  if (!alike(q, &e->t[O]) || k->shape[0] != q->shape[0] || k->shape[3] != q->shape[3]) return PARAM_INVALID;
  const int64_t queries = heads_of(e, Q), keys = heads_of(e, K);
  if (heads != queries || queries % keys || queries > MOST_HEADS || q->shape[3] > MOST_HEAD_DIM) return PARAM_INVALID;
  for (int i = MAX; i <= SUM; ++i) {
    const tensor *x = &e->t[i];
    const int64_t shape[] = {q->shape[0], queries, tokens_of(e, Q), COPIES};
    if (x->dtype != F32 || x->ndim != 4 || memcmp(x->shape, shape, sizeof shape) != 0 || !is_contiguous(x))
      return PARAM_INVALID;
  }
  return 0;
}

/* A band is counted from the last query and key; there must be some of it within the first ones' reach, too. */
static int check_mask(executor *e, const void *mask) {
  if (e->sparse == NONE) return mask ? PARAM_INVALID : 0;
  if (e->sparse != CAUSAL && e->sparse != BAND) return PARAM_INVALID;
  if (!mask) return PARAM_INVALID;
  e->t[MASK] = *(const tensor *)mask;
  const tensor *m = &e->t[MASK];
  if (m->dtype != U8 || m->ndim != 2 || m->shape[0] != MASKED || m->shape[1] != MASKED || !is_contiguous(m))
    return PARAM_INVALID;
  if (e->sparse == CAUSAL) return 0;
  const int64_t queries = tokens_of(e, Q), keys = tokens_of(e, K), apart = keys - queries;
  const int64_t before = e->before - apart, after = e->after + apart;
  const bool wrong =
      (before < 0 && (after < -before || -before >= keys)) || (after < 0 && (before < -after || -after >= queries));
  return wrong ? TILING_ERROR : 0;
}

static int planned(executor *e, const void *mask, double keep, int64_t heads, const char *layout, int64_t precise,
                   uint64_t *bytes, void **made) {
  e->heads_first = strcmp(layout, "BNSD") == 0;
  if ((!e->heads_first && strcmp(layout, "BSND") != 0) || keep != 1 || precise != 0) return PARAM_INVALID;
  int code = check_tensors(e, heads);
  if (!code) code = check_mask(e, mask);
  if (code) return code;
  for (int i = 0; i < MOST_TENSORS; ++i)
    if (e->t[i].first && !is_contiguous(&e->t[i])) e->bytes += bytes_of(&e->t[i]);
  e->bytes += of_heads * (uint64_t)(e->t[Q].shape[0] * heads);
  return executor_planned(*e, bytes, made);
}

/* ---- at work ---- */

static bool mask_is_right(const executor *e) {
  for (int64_t i = 0; e->sparse != NONE && i < MASKED; ++i)
    for (int64_t j = 0; j < MASKED; ++j)
      if (e->t[MASK].first[i * MASKED + j] != (j > i)) return false;
  return true;
}

static bool sees(const executor *e, int64_t t, int64_t j) {
  const int64_t at = j - t - (tokens_of(e, K) - tokens_of(e, Q));
  return e->sparse == NONE || (e->sparse == CAUSAL ? at <= 0 : at >= -e->before && at <= e->after);
}

static double dot(const executor *e, int x, int64_t x_row, int y, int64_t y_row) {
  double sum = 0;
  for (int64_t d = 0; d < e->t[Q].shape[3]; ++d) sum += value(e, x, x_row, d) * value(e, y, y_row, d);
  return sum;
}

/* The first of a query's copies, in MAX and SUM. */
static int64_t word_of(const executor *e, int64_t b, int64_t h, int64_t t) {
  return ((b * heads_of(e, Q) + h) * tokens_of(e, Q) + t) * COPIES;
}

static void score_query(const executor *e, int64_t b, int64_t h, int64_t t, double *z, double *o) {
  const int64_t keys = tokens_of(e, K), dim = e->t[Q].shape[3], kv = h / (heads_of(e, Q) / heads_of(e, K));
  const int64_t q = row_of(e, Q, b, t, h), to = row_of(e, O, b, t, h);
  double max = -INFINITY, sum = 0;
  bool blind = true, nan = false;
  for (int64_t j = 0; j < keys; ++j) {
    if (!sees(e, t, j)) continue;
    blind = false;
    z[j] = e->scale * dot(e, Q, q, K, row_of(e, K, b, j, kv));
    nan = nan || isnan(z[j]);
    max = fmax(max, z[j]);
  }
  if (blind || nan) max = NAN;
  memset(o, 0, (size_t)dim * sizeof *o);
  for (int64_t j = 0; j < keys; ++j) {
    if (!sees(e, t, j)) continue;
    const double p = exp(z[j] - max);
    sum += p;
    for (int64_t d = 0; d < dim; ++d) o[d] += p * value(e, V, row_of(e, V, b, j, kv), d);
  }
  for (int64_t d = 0; d < dim; ++d) store(&e->t[O], to + d * e->t[O].strides[3], (float)(o[d] / sum));
  for (int i = 0; i < COPIES; ++i) {
    store(&e->t[MAX], word_of(e, b, h, t) + i, (float)max);
    store(&e->t[SUM], word_of(e, b, h, t) + i, (float)sum);
  }
}

static int score(const executor *e) {
  double *z = calloc((size_t)(tokens_of(e, K) + e->t[Q].shape[3]), sizeof *z);
  if (!z) return NO_MEMORY;
  if (!mask_is_right(e)) return free(z), PARAM_INVALID;
  for (int64_t b = 0; b < e->t[Q].shape[0]; ++b)
    for (int64_t h = 0; h < heads_of(e, Q); ++h)
      for (int64_t t = 0; t < tokens_of(e, Q); ++t) score_query(e, b, h, t, z, z + tokens_of(e, K));
  free(z);
  ++calls;
  return 0;
}

/* Adds a query's terms to the gradients of the keys that it sees, and stores its own. */
static void grad_query(const executor *e, int64_t b, int64_t h, int64_t t, double *dq, double *dk, double *dv) {
  const int64_t dim = e->t[Q].shape[3], kv = h / (heads_of(e, Q) / heads_of(e, K));
  const int64_t q = row_of(e, Q, b, t, h), d_o = row_of(e, D_O, b, t, h);
  const double max = (double)load(&e->t[MAX], word_of(e, b, h, t)), sum = (double)load(&e->t[SUM], word_of(e, b, h, t));
  const double delta = dot(e, D_O, d_o, O, row_of(e, O, b, t, h));
  memset(dq, 0, (size_t)dim * sizeof *dq);
  for (int64_t j = 0; j < tokens_of(e, K); ++j) {
    if (!sees(e, t, j)) continue;
    const int64_t k = row_of(e, K, b, j, kv);
    const double p = exp(e->scale * dot(e, Q, q, K, k) - max) / sum;
    const double dz = e->scale * p * (dot(e, D_O, d_o, V, row_of(e, V, b, j, kv)) - delta);
    for (int64_t d = 0; d < dim; ++d) {
      dq[d] += dz * value(e, K, k, d);
      dk[j * dim + d] += dz * value(e, Q, q, d);
      dv[j * dim + d] += p * value(e, D_O, d_o, d);
    }
  }
  for (int64_t d = 0; d < dim; ++d) store(&e->t[DQ], row_of(e, DQ, b, t, h) + d * e->t[DQ].strides[3], (float)dq[d]);
}

static void grad_head(const executor *e, int64_t b, int64_t kv, double *room) {
  const int64_t dim = e->t[Q].shape[3], keys = tokens_of(e, K), group = heads_of(e, Q) / heads_of(e, K);
  double *dk = room, *dv = dk + keys * dim, *dq = dv + keys * dim;
  memset(room, 0, (size_t)(2 * keys * dim) * sizeof *room);
  for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
    for (int64_t t = 0; t < tokens_of(e, Q); ++t) grad_query(e, b, h, t, dq, dk, dv);
  for (int64_t j = 0; j < keys; ++j)
    for (int64_t d = 0; d < dim; ++d) {
      store(&e->t[DK], row_of(e, DK, b, j, kv) + d * e->t[DK].strides[3], (float)dk[j * dim + d]);
      store(&e->t[DV], row_of(e, DV, b, j, kv) + d * e->t[DV].strides[3], (float)dv[j * dim + d]);
    }
}

/* Copies of one query's word are the same bits. */
static bool copies_are_right(const tensor *x) {
  const int64_t count = x->shape[0] * x->shape[1] * x->shape[2];
  for (int64_t i = 0; i < count; ++i)
    for (int k = 1; k < COPIES; ++k)
      if (memcmp(x->first + i * COPIES * 4, x->first + (i * COPIES + k) * 4, 4) != 0) return false;
  return true;
}

static int grad(const executor *e) {
  if (!mask_is_right(e) || !copies_are_right(&e->t[MAX]) || !copies_are_right(&e->t[SUM])) return PARAM_INVALID;
  double *room = calloc((size_t)(e->t[Q].shape[3] * (2 * tokens_of(e, K) + 1)), sizeof *room);
  if (!room) return NO_MEMORY;
  for (int64_t b = 0; b < e->t[Q].shape[0]; ++b)
    for (int64_t kv = 0; kv < heads_of(e, K); ++kv) grad_head(e, b, kv, room);
  free(room);
  ++calls;
  return 0;
}

/* ---- the library's functions ---- */

int aclnnFlashAttentionScoreGetWorkspaceSize(const void *q, const void *k, const void *v, const void *shift,
                                             const void *drop, const void *padding, const void *mask,
                                             const void *prefix, double scale, double keep, int64_t before,
                                             int64_t after, int64_t heads, char *layout, int64_t precise,
                                             int64_t sparse, const void *max, const void *sum, const void *softmax,
                                             const void *out, uint64_t *bytes, void **made) {
  const int code = fake_acl_code(__func__);
  if (code) return code;
  if (!q || !k || !v || !max || !sum || !out || !layout) return PARAM_NULLPTR;
  if (shift || drop || padding || prefix || softmax) return PARAM_INVALID;
  executor e = {.run = score, .scale = scale, .before = before, .after = after, .sparse = sparse};
  const void *const given[] = {q, k, v, out, max, sum};
  for (int i = 0; i < 6; ++i) e.t[i] = *(const tensor *)given[i];
  return planned(&e, mask, keep, heads, layout, precise, bytes, made);
}

int aclnnFlashAttentionScore(void *workspace, uint64_t bytes, void *planned_call, void *stream) {
  return executor_run(__func__, score, workspace, bytes, planned_call, stream);
}

int aclnnFlashAttentionScoreGradGetWorkspaceSize(const void *q, const void *k, const void *v, const void *d_out,
                                                 const void *shift, const void *drop, const void *padding,
                                                 const void *mask, const void *max, const void *sum,
                                                 const void *softmax, const void *out, const void *prefix, double scale,
                                                 double keep, int64_t before, int64_t after, int64_t heads,
                                                 char *layout, int64_t precise, int64_t sparse, const void *dq,
                                                 const void *dk, const void *dv, const void *d_shift, uint64_t *bytes,
                                                 void **made) {
  const int code = fake_acl_code(__func__);
  if (code) return code;
  if (!q || !k || !v || !d_out || !max || !sum || !out || !dq || !dk || !dv || !layout) return PARAM_NULLPTR;
  if (shift || drop || padding || prefix || softmax || d_shift) return PARAM_INVALID;
  executor e = {.run = grad, .scale = scale, .before = before, .after = after, .sparse = sparse};
  const void *const given[] = {q, k, v, out, max, sum, NULL, d_out, dq, dk, dv};
  for (int i = 0; i < MOST_TENSORS; ++i)
    if (given[i]) e.t[i] = *(const tensor *)given[i];
  if (!alike(&e.t[Q], &e.t[D_O]) || !alike(&e.t[Q], &e.t[DQ]) || !alike(&e.t[K], &e.t[DK]) || !alike(&e.t[K], &e.t[DV]))
    return PARAM_INVALID;
  return planned(&e, mask, keep, heads, layout, precise, bytes, made);
}

int aclnnFlashAttentionScoreGrad(void *workspace, uint64_t bytes, void *planned_call, void *stream) {
  return executor_run(__func__, grad, workspace, bytes, planned_call, stream);
}
