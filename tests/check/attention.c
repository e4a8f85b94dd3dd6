/* attention. Options walk masks, scales, caps, sinks, parts, memory layouts and which input has the unusual values. Sums carry
 * 8 eps of the sum of their terms' absolute values, eps = 2^-24: a tile's 64 terms one after the other, then the tiles. */
#include <math.h>
#include <stdlib.h>

#include "check/cases.h"
#include "check/internal.h"
#include "core/half.h"
#include "ref/span.h"

typedef enum layout { TOKENS_FIRST, PACKED, HEADS_FIRST } layout;
typedef enum sinks { NO_SINKS, SINKS_F32, SINKS_SAME, SINKS_EDGES } sinks; /* EDGES: the first is -Inf, the last Inf */
typedef enum lengths { ONE_SEGMENT, ALIKE, APART } lengths;                /* lengths of queries and keys */

static const struct option {
  int causal;
  int64_t window;
  double scale;
  layout layout; /* PACKED needs as many keys as queries, else it is TOKENS_FIRST */
  bool no_lse;
  char unusual; /* q, k, v, s for sinks, or g for do */
  double softcap;
  sinks sinks;
  lengths lengths; /* lengths of segments; a batch is then one with all its rows */
  int64_t dilation;
  int exact;
} options[] = {
    {.exact = 1, .unusual = 'q'},
    {.causal = 1, .layout = PACKED, .unusual = 'k'},
    {.causal = 1, .window = 5, .layout = HEADS_FIRST, .unusual = 'v'},
    {.window = 3, .scale = 0.3, .unusual = 'g'},
    {.causal = 1, .window = 40, .scale = -0.2, .no_lse = true, .unusual = 'k'},
    {.causal = 1, .unusual = 'q'},
    {.causal = 1, .window = 2, .exact = 1, .layout = PACKED, .unusual = 'v'},
    {.causal = 1, .softcap = 2, .exact = 1, .unusual = 'q'},
    {.window = 3, .softcap = 30, .sinks = SINKS_SAME, .unusual = 'v'},
    {.causal = 1, .sinks = SINKS_F32, .exact = 1, .layout = HEADS_FIRST, .unusual = 's'},
    {.causal = 1, .window = 6, .sinks = SINKS_EDGES, .unusual = 'k'},
    {.causal = 1, .lengths = ALIKE, .unusual = 'k'},
    {.window = 4, .lengths = APART, .exact = 1, .layout = HEADS_FIRST, .unusual = 'v'},
    {.window = 3, .dilation = 2, .unusual = 'q'},
    {.causal = 1, .dilation = 7, .exact = 1, .no_lse = true, .unusual = 'v'},
    {.causal = 1, .window = 2, .softcap = 5, .sinks = SINKS_F32, .lengths = ALIKE, .dilation = 3, .layout = PACKED},
    {.scale = -0.2, .sinks = SINKS_SAME, .lengths = APART, .unusual = 'g'},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* B, T, S, Hq, Hk, D: tiles of 64 and their neighbours, heads of more than 64 and of more than 256, few queries of many keys. The
 * first ones are so small that they have every option; the others have seven, as ROUNDS is, of the 17. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  static const int64_t shapes[][CHECK_DIMS] = {
      {1, 1, 1, 1, 1, 1},     {2, 3, 5, 2, 1, 7},      {1, 7, 8, 2, 2, 16},    {1, 33, 33, 1, 1, 5},
      {1, 9, 70, 2, 1, 5},    {1, 64, 64, 2, 1, 32},   {2, 65, 65, 3, 3, 33},  {1, 63, 129, 2, 2, 64},
      {1, 130, 66, 4, 1, 65}, {1, 129, 129, 2, 1, 24}, {1, 40, 40, 2, 2, 128}, {1, 20, 70, 2, 1, 257},
      {1, 3, 200, 1, 1, 512}, {1, 5, 3, 1, 1, 600},    {3, 17, 17, 6, 2, 40},  {1, 257, 257, 1, 1, 16},
      {1, 1, 300, 4, 2, 64},  {1, 70, 136, 2, 1, 128}, {1, 3, 1300, 4, 2, 80}, {1, 20, 1030, 4, 1, 128},
  };
  enum { SMALL = 5, ROUNDS = 7, LARGE = sizeof shapes / sizeof *shapes - SMALL };
  (void)tile;
  if (index >= SMALL + ROUNDS * LARGE) return false;
  const int at = index < SMALL ? index : SMALL + (index - SMALL) % LARGE;
  for (int i = 0; i < CHECK_DIMS; ++i) dims[i] = shapes[at][i];
  return true;
}

/* ---- tensors of [B, T, H, D] in three layouts ---- */

typedef struct heads {
  tigon_tensor base, view; /* as made; as [B, T, H, D] */
  layout layout;
  int64_t first; /* PACKED: the first of its heads among all */
} heads;

static int64_t place(const tigon_tensor *view, int64_t b, int64_t t, int64_t h, int64_t d) {
  return b * view->strides[0] + t * view->strides[1] + h * view->strides[2] + d;
}

static double value(const heads *x, int64_t b, int64_t t, int64_t h, int64_t d) {
  return tigon_load_f64(x->view.data, place(&x->view, b, t, h, d), x->view.dtype);
}

/* The element's index in row-major order of the base. */
static int64_t index_of(const heads *x, int64_t b, int64_t t, int64_t h, int64_t d) {
  const int64_t *n = x->base.shape;
  if (x->layout == HEADS_FIRST) return ((b * n[1] + h) * n[2] + t) * n[3] + d;
  return ((b * n[1] + t) * n[2] + x->first + h) * n[3] + d;
}

typedef struct call {
  struct option o;
  int64_t batch, tokens, keys, q_heads, k_heads, head_dim;
  tigon_attention_cuts cuts;
  double scale, softcap;
  heads q, k, v, o_, d_o, dq, dk, dv;
  tigon_tensor sinks, cu_q, cu_k;
  double *z, *error,
      *slope;        /* [keys], of the query at work: z, how far off it may be in eps, its slope by scale * q . k_j */
  double *steepness; /* how far off the slope may be, relatively, in eps */
  double unit,
      half;     /* in eps, of rounding a weight to the dtype: its share of the weight, and half the smallest element */
  double below; /* forward's weights may be relative to a score that is so far below the largest */
} call;

static tigon_tensor made(check *k, const char *name, int64_t b, int64_t t, int64_t h, int64_t d, layout l, bool out,
                         check_fill fill) {
  const int64_t dims[] = {b, l == HEADS_FIRST ? h : t, l == HEADS_FIRST ? t : h, d};
  if (out) return check_out(k, name, k->dtype, 4, dims);
  return (k->point ? check_in : check_inout)(k, name, k->dtype, 4, dims,
                                             fill); /* a timed call's inputs are read once */
}

static heads viewed(tigon_tensor base, layout l, int64_t first, int64_t count) {
  heads x = {.base = base, .view = base, .layout = l, .first = first};
  if (l == HEADS_FIRST) {
    x.view.shape[1] = base.shape[2], x.view.shape[2] = base.shape[1];
    x.view.strides[1] = base.strides[2], x.view.strides[2] = base.strides[1];
  }
  x.view.shape[2] = count;
  x.view.data = (char *)base.data + first * x.view.strides[2] * (int64_t)tigon_dtype_size(base.dtype);
  return x;
}

/* q, k, v or their gradients. */
static void make_three(check *k, const call *c, const char *const names[4], bool out, heads *q, heads *key, heads *v) {
  const layout l = c->o.layout == PACKED && c->tokens != c->keys ? TOKENS_FIRST : c->o.layout;
  const int64_t hq = c->q_heads, hk = c->k_heads, d = c->head_dim;
  if (l == PACKED) {
    const tigon_tensor all = made(k, names[3], c->batch, c->tokens, hq + 2 * hk, d, l, out, k->fill);
    *q = viewed(all, l, 0, hq), *key = viewed(all, l, hq, hk), *v = viewed(all, l, hq + hk, hk);
    return;
  }
  *q = viewed(made(k, names[0], c->batch, c->tokens, hq, d, l, out, c->o.unusual == 'q' ? k->fill : CHECK_UNIFORM), l,
              0, hq);
  *key = viewed(made(k, names[1], c->batch, c->keys, hk, d, l, out, c->o.unusual == 'k' ? k->fill : CHECK_UNIFORM), l,
                0, hk);
  *v = viewed(made(k, names[2], c->batch, c->keys, hk, d, l, out, c->o.unusual == 'v' ? k->fill : CHECK_UNIFORM), l, 0,
              hk);
}

/* Where segment i of `count` begins. Of more than 8 rows the first one and the last two are in none. The first segment is
 * empty, and others are as long as each other or, but for `apart`, longer and longer: of one row, too. */
static int64_t length_at(int64_t i, int64_t count, int64_t rows, bool apart) {
  const int64_t first = rows > 8, all = rows > 8 ? rows - 3 : rows;
  if (i < 2) return first;
  return first + (apart ? all * (i - 1) / (count - 1) : all * (i - 1) * (i - 1) / ((count - 1) * (count - 1)));
}

static tigon_tensor lengths_of(check *k, const char *name, tigon_dtype dtype, int64_t count, int64_t rows, bool apart) {
  const int64_t n = count + 1;
  const tigon_tensor made = check_inout_dense(k, name, dtype, 1, &n, CHECK_UNIFORM);
  for (int64_t i = 0; !k->timed && i < n; ++i) {
    const int64_t at = length_at(i, count, rows, apart);
    if (dtype == TIGON_I64)
      ((int64_t *)made.data)[i] = at;
    else
      ((int32_t *)made.data)[i] = (int32_t)at;
  }
  return made;
}

/* cu_seqlens of a timed case: its sequences end to end, of rows that differ by one at most. */
static tigon_tensor sequences_of(check *k, const char *name, int64_t count, int64_t rows) {
  const int64_t n = count + 1;
  const tigon_tensor made = check_in_dense(k, name, TIGON_I64, 1, &n, CHECK_UNIFORM);
  int64_t *begin = check_need(malloc((size_t)n * sizeof *begin));
  for (int64_t i = 0; i < n; ++i) begin[i] = rows / count * i + (i < rows % count ? i : rows % count);
  if (made.data) (void)tigon_copy(k->context, made.data, begin, (size_t)n * sizeof *begin);
  free(begin);
  return made;
}

static void cut(call *c, tigon_tensor cu_q, tigon_tensor cu_k) {
  c->cu_q = cu_q, c->cu_k = cu_k;
  c->cuts.segments = cu_q.shape[0] - 1;
  c->cuts.cu_q = tigon_vector_of(&c->cu_q), c->cuts.cu_k = tigon_vector_of(&c->cu_k);
}

/* sinks and cu_seqlens. */
static void make_optional(check *k, call *c) {
  const sinks kind = c->o.sinks;
  const check_fill fill = c->o.unusual == 's' ? k->fill : CHECK_UNIFORM;
  const tigon_dtype dtype = kind == SINKS_SAME ? k->dtype : TIGON_F32;
  if (kind == SINKS_EDGES) {
    c->sinks = check_inout_dense(k, "sinks", dtype, 1, &c->q_heads, fill);
    for (int64_t h = 0; !k->timed && h<c->q_heads; h += c->q_heads> 1 ? c->q_heads - 1 : 1)
      ((float *)c->sinks.data)[h] = h == 0 ? -INFINITY : INFINITY;
  } else {
    c->sinks = check_may_vector(k, "sinks", dtype, c->q_heads, fill, kind != NO_SINKS);
  }
  if (k->point && k->point->attention.sequences > 0) {
    const tigon_tensor cu = sequences_of(k, "cu_seqlens", k->point->attention.sequences, c->tokens);
    cut(c, cu, cu);
  }
  if (c->o.lengths == ONE_SEGMENT) return;
  const int64_t count = k->dims[0] + 4;
  const tigon_tensor cu_q = lengths_of(k, "cu_seqlens_q", TIGON_I64, count, c->tokens, false);
  cut(c, cu_q, lengths_of(k, "cu_seqlens_k", TIGON_I32, count, c->keys, c->o.lengths == APART));
}

/* The case's option, with what a timed one is asked for. */
static struct option option_of(const check *k) {
  struct option o = options[k->option];
  if (!k->point) return o;
  const bench_attention *asked = &k->point->attention;
  o.causal = !asked->both_sides, o.window = asked->window, o.dilation = asked->dilation, o.softcap = asked->softcap;
  o.sinks = asked->sinks ? SINKS_F32 : NO_SINKS, o.exact = asked->exact;
  return o;
}

/* By default weights of 16-bit dtypes may be rounded: bf16 has 8 bits, f16 11, and none below 2^-24. Before it, they may be up to 2^8, so that
 * not every larger score asks for new sums. */
static void round_weights(call *c, tigon_dtype dtype) {
  if (c->o.exact || dtype == TIGON_F32) return;
  c->unit = dtype == TIGON_BF16 ? 0x1p16 : 0x1p13, c->half = dtype == TIGON_BF16 ? 0 : 0.5;
  c->below = 8 * log(2);
}

static call begin(check *k) {
  static const char *const names[] = {"q", "k", "v", "qkv"};
  call c = {.o = option_of(k),
            .batch = k->dims[0],
            .tokens = k->dims[1],
            .keys = k->dims[2],
            .q_heads = k->dims[3],
            .k_heads = k->dims[4],
            .head_dim = k->dims[5]};
  if (c.o.lengths != ONE_SEGMENT) c.tokens *= c.batch, c.keys *= c.batch, c.batch = 1;
  c.scale = (double)(float)(c.o.scale != 0 ? c.o.scale : 1 / sqrt((double)c.head_dim));
  c.softcap = (double)(float)c.o.softcap;
  round_weights(&c, k->dtype);
  c.cuts = (tigon_attention_cuts){.tokens = c.tokens, .keys = c.keys, .dilation = c.o.dilation ? c.o.dilation : 1};
  make_three(k, &c, names, false, &c.q, &c.k, &c.v);
  make_optional(k, &c);
  return c;
}

static void make_scores(check *k, call *c) {
  c->z = check_doubles(k, c->keys), c->error = check_doubles(k, c->keys);
  c->slope = check_doubles(k, c->keys), c->steepness = check_doubles(k, c->keys);
}

/* ---- one query in double ---- */

typedef struct query {
  int64_t b, t, h, kv;
  tigon_attention_seen seen;
  double max, sink, top, lse; /* top: the larger one of max and the sink */
} query;

/* 1 - tanh(u)^2 for u >= 0. */
static double cap_slope(double u) {
  const double e = exp(-2 * u);
  return 4 * e / ((1 + e) * (1 + e));
}

/* The score s = scale * q . k. A cap makes softcap * tanh(u) of it, u = s / softcap. u has the error of s and 2 eps of itself.
 * The slope is no larger than where |u| is smaller by that error. tanh, and the product by softcap, add 6 eps of z. The slope has an
 * error of 2 for each eps of u's error, and 16 + 4 |u| eps for its own exp. At an infinite score the slope is 0, without an error. */
static void score(const call *c, const query *q, int64_t j) {
  double sum = 0, all = 0;
  for (int64_t d = 0; d < c->head_dim; ++d) {
    const double term = value(&c->q, q->b, q->t, q->h, d) * value(&c->k, q->b, j, q->kv, d);
    sum += term;
    all += fabs(term);
  }
  c->z[j] = c->scale * sum, c->error[j] = 8 * fabs(c->scale) * all, c->slope[j] = 1, c->steepness[j] = 0;
  if (!(c->softcap > 0)) return;
  const double u = fabs(c->z[j] / c->softcap), off = isinf(u) ? 0 : c->error[j] / c->softcap + 2 * u;
  c->z[j] = c->softcap * tanh(c->z[j] / c->softcap);
  c->error[j] = off * c->softcap * cap_slope(fmax(0, u - off * 0x1p-24)) + 6 * fabs(c->z[j]);
  c->slope[j] = cap_slope(u), c->steepness[j] = isinf(u) ? 0 : 2 * off + 16 + 4 * u;
}

/* The query, on which the check works next. */
static query query_of(const call *c, int64_t b, int64_t t, int64_t h) {
  query q = {.b = b, .t = t, .h = h, .kv = h / (c->q_heads / c->k_heads), .max = -INFINITY, .sink = -INFINITY};
  q.seen = tigon_attention_span(&c->cuts, c->o.causal, c->o.window, t);
  if (c->sinks.ndim) q.sink = check_value(&c->sinks, h);
  for (int64_t j = q.seen.begin; j < q.seen.end; j += q.seen.step) {
    score(c, &q, j);
    q.max = fmax(q.max, c->z[j]);
  }
  q.top = fmax(q.max, q.sink);
  const double base = q.top == -INFINITY ? 0 : q.top;
  double sum = q.sink == INFINITY ? 1 : exp(q.sink - base);
  for (int64_t j = q.seen.begin; j < q.seen.end; j += q.seen.step) sum += exp(c->z[j] - base);
  q.lse = sum == 0 ? -INFINITY : q.top + log(sum);
  return q;
}

/* The relative error of p_j in eps: of the score, of z - max (or lse), of exp. */
static double weight_error(const call *c, int64_t j, double base) { return c->error[j] + fabs(c->z[j] - base) + 3; }

/* p below 2^-126 may be 0, and so may be products; each of n additions may lose half a denormal. In eps. */
static double underflow(double factor, int64_t n) { return 0x1p-102 * factor + (double)n * 0x1p-125; }

/* The fields that both directions have. */
#define OPTIONS_OF(c)                                                                             \
  .sinks = (c).sinks, .cu_seqlens_q = (c).cu_q, .cu_seqlens_k = (c).cu_k, .scale = (c).o.scale,   \
  .causal = (c).o.causal, .exact = (c).o.exact, .window = (c).o.window, .softcap = (c).o.softcap, \
  .dilation = (c).o.dilation

/* ---- forward ---- */

/* What a sink adds to each weight's error: all are multiplied by exp(max - top), and their sum, too. */
static double join_error(const query *q) { return q->sink > -INFINITY ? fabs(q->top - q->max) + 4 : 0; }

/* o and lse of a query, and what they may be off by. A weight is rounded while it is exp(z - max): only its product with v is
 * off by that, and the sum of weights is not. */
static void bound_query(const call *c, const query *q, double *o, double *o_bound, double *lse_bound) {
  const double join = join_error(q), own = exp(q->sink - q->lse);
  double mean_error = own > 0 ? own * (fabs(q->sink - q->top) + 3) : 0;
  for (int64_t d = 0; d < c->head_dim; ++d)
    o[d] = 0, o_bound[d] = underflow(1, (q->seen.end - q->seen.begin) / q->seen.step + 1);
  *lse_bound = 8;
  if (q->sink == INFINITY) return; /* whatever v is */
  for (int64_t j = q->seen.begin; j < q->seen.end; j += q->seen.step) {
    const double w = exp(c->z[j] - q->lse);
    if (w > 0) mean_error += w * (weight_error(c, j, q->max) + c->below + join);
  }
  for (int64_t j = q->seen.begin; j < q->seen.end; j += q->seen.step) {
    const double w = exp(c->z[j] - q->lse);
    for (int64_t d = 0; d < c->head_dim; ++d) {
      const double v = value(&c->v, q->b, j, q->kv, d);
      o[d] += w * v;
      if (w > 0) o_bound[d] += fabs(w * v) * (c->unit + weight_error(c, j, q->max) + c->below + join + mean_error + 18);
      if (q->max > -INFINITY) o_bound[d] += c->half * exp(q->max - q->lse) * fabs(v);
      o_bound[d] += underflow(fabs(v), 0);
    }
  }
  *lse_bound += mean_error;
}

static void fwd(check *k) {
  call c = begin(k);
  const int64_t dims[] = {c.batch, c.q_heads, c.tokens};
  const layout l = c.q.layout == PACKED ? TOKENS_FIRST : c.q.layout;
  c.o_ = viewed(made(k, "o", c.batch, c.tokens, c.q_heads, c.head_dim, l, true, CHECK_UNIFORM), l, 0, c.q_heads);
  const tigon_tensor lse = c.o.no_lse ? (tigon_tensor){0} : check_out_dense(k, "lse", TIGON_F32, 3, dims);
  make_scores(k, &c);
  double *o = check_doubles(k, c.head_dim), *bound = check_doubles(k, c.head_dim);
  double *o_bound = check_doubles(k, c.batch * c.tokens * c.q_heads * c.head_dim);
  double *lse_bound = check_doubles(k, c.batch * c.tokens * c.q_heads);
  for (int64_t i = 0; k->oracle && i < c.batch * c.q_heads * c.tokens; ++i) {
    const query q = query_of(&c, i / c.tokens / c.q_heads, i % c.tokens, i / c.tokens % c.q_heads);
    bound_query(&c, &q, o, bound, &lse_bound[i]);
    for (int64_t d = 0; d < c.head_dim; ++d) o_bound[index_of(&c.o_, q.b, q.t, q.h, d)] = bound[d];
  }
  const tigon_attention_fwd_args args = {
      .q = c.q.view, .k = c.k.view, .v = c.v.view, .o = c.o_.view, .lse = lse, OPTIONS_OF(c)};
  check_call(k, &args);
  check_bound(k, &c.o_.base, 1, 1, o_bound);
  if (lse.ndim) check_bound(k, &lse, 1, 1, lse_bound);
}

/* ---- backward ---- */

static double dot(const call *c, const query *q, const heads *other, int64_t token, int64_t head, double *magnitude) {
  double sum = 0;
  *magnitude = 0;
  for (int64_t d = 0; d < c->head_dim; ++d) {
    const double term = value(&c->d_o, q->b, q->t, q->h, d) * value(other, q->b, token, head, d);
    sum += term;
    *magnitude += fabs(term);
  }
  return sum;
}

/* Adds what a query's keys may be off by to the bounds of dq, dk and dv. */
static void bound_gradients(const call *c, const query *q, double lse, double *dq, double *dk, double *dv) {
  double delta_all;
  const double delta = dot(c, q, &c->o_, q->t, q->h, &delta_all);
  for (int64_t j = q->seen.begin; j < q->seen.end; j += q->seen.step) {
    double dp_all;
    const double p = isinf(lse) && c->z[j] < INFINITY ? 0 : exp(c->z[j] - lse),
                 dp = dot(c, q, &c->v, j, q->kv, &dp_all);
    const double error = p > 0 ? weight_error(c, j, lse) : 0, scale = fabs(c->scale) * c->slope[j];
    const double dz = scale * p * fabs(dp - delta);
    const double dz_error =
        dz * (c->unit + error + c->steepness[j] + 12) + scale * p * 8 * (dp_all + delta_all) + c->half * scale;
    /* A slope below 2^-123 may be 0. */
    const double flushed = c->softcap > 0 ? 8 * fabs(c->scale) * (dp_all + delta_all) : 0;
    const double least = underflow(1 + fabs(c->scale) * (dp_all + delta_all) + flushed, 1);
    for (int64_t d = 0; d < c->head_dim; ++d) {
      const double kd = fabs(value(&c->k, q->b, j, q->kv, d)), qd = fabs(value(&c->q, q->b, q->t, q->h, d));
      const double g = fabs(value(&c->d_o, q->b, q->t, q->h, d));
      dq[index_of(&c->dq, q->b, q->t, q->h, d)] += kd * (dz_error + least) + underflow(0, 1);
      dk[index_of(&c->dk, q->b, j, q->kv, d)] += qd * (dz_error + least) + underflow(0, 1);
      dv[index_of(&c->dv, q->b, j, q->kv, d)] +=
          g * (p * (c->unit + error + 8) + c->half + underflow(1, 0)) + underflow(0, 1);
    }
  }
}

/* Adds what a query's term of dsinks may be off by: exp(sink - lse) and delta. Terms are added up in f64. */
static void bound_sink(const call *c, const query *q, double lse, double *dsinks) {
  double delta_all;
  const double delta = fabs(dot(c, q, &c->o_, q->t, q->h, &delta_all));
  const double p = q->sink == INFINITY ? 1 : lse == -INFINITY ? 0 : exp(q->sink - lse);
  const double error = p > 0 && q->sink < INFINITY ? fabs(q->sink - lse) + 5 : 0;
  dsinks[q->h] += p * (error * delta + 8 * delta_all) + underflow(delta, 1);
}

static int64_t elements(const heads *x) {
  return x->base.shape[0] * x->base.shape[1] * x->base.shape[2] * x->base.shape[3];
}

static void bwd(check *k) {
  static const char *const names[] = {"dq", "dk", "dv", "dqkv"};
  call c = begin(k);
  const int64_t dims[] = {c.batch, c.q_heads, c.tokens};
  const layout l = c.q.layout == PACKED ? TOKENS_FIRST : c.q.layout;
  c.d_o = viewed(
      made(k, "do", c.batch, c.tokens, c.q_heads, c.head_dim, l, false, c.o.unusual == 'g' ? k->fill : CHECK_UNIFORM),
      l, 0, c.q_heads);
  c.o_ = viewed(made(k, "o", c.batch, c.tokens, c.q_heads, c.head_dim, l, false, CHECK_UNIFORM), l, 0, c.q_heads);
  const tigon_tensor lse = (k->point ? check_in_dense : check_inout_dense)(k, "lse", TIGON_F32, 3, dims, CHECK_UNIFORM);
  make_three(k, &c, names, true, &c.dq, &c.dk, &c.dv);
  const tigon_tensor dsinks =
      c.sinks.ndim ? check_out_vector(k, "dsinks", c.sinks.dtype, c.q_heads) : (tigon_tensor){0};
  const bool packed = c.q.layout == PACKED;
  make_scores(k, &c);
  double *sink_bound = check_doubles(k, c.q_heads);
  double *dq = check_doubles(k, elements(&c.dq));
  double *dk = packed ? dq : check_doubles(k, elements(&c.dk)), *dv = packed ? dq : check_doubles(k, elements(&c.dv));
  double *o = check_doubles(k, c.head_dim), *ignored = check_doubles(k, c.head_dim + 1);
  /* Forward's o and lse. */
  const bool derived = check_recall(k, &c.o_.base, 0) && check_recall(k, &lse, 1);
  for (int64_t i = 0; !derived && i < c.batch * c.q_heads * c.tokens; ++i) {
    const query q = query_of(&c, i / c.tokens / c.q_heads, i % c.tokens, i / c.tokens % c.q_heads);
    bound_query(&c, &q, o, ignored, &ignored[c.head_dim]);
    for (int64_t d = 0; d < c.head_dim; ++d)
      tigon_store_f64(c.o_.view.data, place(&c.o_.view, q.b, q.t, q.h, d), k->dtype, isinf(q.lse) ? 0 : o[d]);
    ((float *)lse.data)[i] = (float)q.lse;
    if (k->oracle) bound_gradients(&c, &q, (double)(float)q.lse, dq, dk, dv);
    if (k->oracle && dsinks.ndim) bound_sink(&c, &q, (double)(float)q.lse, sink_bound);
  }
  if (!derived) check_remember(k, &c.o_.base, 0), check_remember(k, &lse, 1);
  tigon_attention_bwd_args args = {.d_o = c.d_o.view,
                                   .q = c.q.view,
                                   .k = c.k.view,
                                   .v = c.v.view,
                                   .o = c.o_.view,
                                   .lse = lse,
                                   .dq = c.dq.view,
                                   .dk = c.dk.view,
                                   .dv = c.dv.view,
                                   .dsinks = dsinks,
                                   OPTIONS_OF(c)};
  check_call_in_workspace(k, tigon_attention_bwd_workspace, &args);
  check_bound(k, &c.dq.base, 1, 1, dq);
  if (dsinks.ndim) check_bound(k, &dsinks, 1, 1, sink_bound);
  if (packed) return;
  check_bound(k, &c.dk.base, 1, 1, dk);
  check_bound(k, &c.dv.base, 1, 1, dv);
}

MUTANT(not_causal, attention_fwd, m.causal = false)
MUTANT(no_window, attention_fwd, m.window = 0)
MUTANT(lose_key, attention_fwd, m.cuts.keys = m.keys -= !m.causal && m.window == 0 && m.keys > 1)
MUTANT(no_cap, attention_fwd, m.softcap = 0)
MUTANT(no_sinks, attention_fwd, m.sinks.data = NULL)
MUTANT(one_segment, attention_fwd, m.cuts.cu_q.data = NULL)
MUTANT(lose_segment, attention_fwd, m.cuts.segments -= m.cuts.segments > 0)
MUTANT(no_dilation, attention_fwd, m.cuts.dilation = 1)
/* Weights of a grade, in 16-bit dtypes alone, that are off by more than it allows, with the true lse. */
static bool in_grade(tigon_dtype dtype, bool exact, bool wanted) { return dtype != TIGON_F32 && exact == wanted; }
#define OFF(m, wanted, by)                                                         \
  if (in_grade((m).dtype, (m).exact, wanted)) {                                    \
    const tigon_status status = check_real_kernels.attention_fwd.run(queue, &(m)); \
    if (status != TIGON_OK) return status;                                         \
    (m).lse = NULL, (m).scale *= (by);                                             \
  }
MUTANT(off_by_default, attention_fwd, OFF(m, false, 1.05f))
MUTANT(off_if_exact, attention_fwd, OFF(m, true, 1.005f))
MUTANT(bwd_off_by_default, attention_bwd, m.scale *= in_grade(m.dtype, m.exact, false) ? 1.05f : 1)
MUTANT(bwd_off_if_exact, attention_bwd, m.scale *= in_grade(m.dtype, m.exact, true) ? 1.005f : 1)
MUTANT(bwd_window, attention_bwd, m.window += m.window > 0)
MUTANT(bwd_causal, attention_bwd, m.causal = false)
MUTANT(bwd_cap, attention_bwd, m.softcap *= 1.01f)
MUTANT(bwd_segments, attention_bwd, m.cuts.cu_k = m.cuts.cu_q)
MUTANT(bwd_dilation, attention_bwd, m.cuts.dilation += m.cuts.dilation > 1)
MUTANT(bwd_sinks, attention_bwd, m.dsinks.data = NULL)
static const check_mutant wrong_fwd[] = {
    {"forgets causal", not_causal},
    {"forgets the window", no_window},
    {"loses the last key", lose_key},
    {"forgets the softcap", no_cap},
    {"forgets the sinks", no_sinks},
    {"takes segments for one", one_segment},
    {"loses the last segment", lose_segment},
    {"forgets the dilation", no_dilation},
    {"has a scale of five per cent more, in 16 bits", off_by_default},
    {"has a scale of half a per cent more, exact in 16 bits", off_if_exact},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"sees one key too many in a window", bwd_window},
    {"forgets causal", bwd_causal},
    {"has a softcap of one per cent more", bwd_cap},
    {"takes the queries' segments for the keys'", bwd_segments},
    {"has the next dilation", bwd_dilation},
    {"does not write dsinks", bwd_sinks},
    {"has a scale of five per cent more, in 16 bits", bwd_off_by_default},
    {"has a scale of half a per cent more, exact in 16 bits", bwd_off_if_exact},
    {0},
};

/* batch, queries, keys, query heads, key heads, head_dim. Backward has e^(z - lse) from a lse in f32, so scores are small
 * beside 2^24. A batch of segments is one; dsinks is a sum over a batch. */
#define SIZES                                 \
  .of = {{1, 4, 4, 2, 1, 3},                  \
         {2, 17, 65, 2, 1, 8},                \
         {300, 3, 5, 2, 1, 4},                \
         {3, 2, 2, 2, 1, 16},                 \
         {CHECK_MANY / 4, 4, 4, 32, 4, 128}}, \
  .walks = {{1, CHECK_N, CHECK_N, 1, 1, 3}, {1, 2, CHECK_N, 1, 1, 5}, {1, 3, 5, 2, 1, CHECK_N}}, .large = 0x1p10
enum { OF_SEGMENTS = 1 << 11 | 1 << 12 | 1 << 15 | 1 << 16, OF_SINKS = 1 << 8 | 1 << 9 | 1 << 10 };
static const check_sizes fwd_sizes = {SIZES, .coupled = OF_SEGMENTS};
static const check_sizes bwd_sizes = {SIZES, .coupled = OF_SEGMENTS | OF_SINKS};

/* One causal sequence. */
static void sequence(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = 1, dims[1] = dims[2] = at->rows;
  bench_heads(at, 64, dims + 3);
}
/* Pairs of a query and a key that it sees, in a part of n queries and as many keys. */
static double pairs(double n, double window, bool both_sides) {
  const double left = window > 0 && window < n ? window * (window + 1) / 2 + (n - window) * window : n * (n + 1) / 2;
  return both_sides ? 2 * left - n : left;
}
/* The same of a sequence, of which a dilation makes parts whose lengths differ by one at most. */
static double pairs_of(int64_t tokens, const bench_attention *a) {
  const int64_t parts = a->dilation > 1 ? a->dilation : 1, longer = tokens % parts;
  const double n = (double)(tokens / parts), window = (double)a->window;
  return (double)longer * pairs(n + 1, window, a->both_sides) +
         (double)(parts - longer) * pairs(n, window, a->both_sides);
}
/* Keys that a query sees, on average. */
static double seen(const bench_point *at) {
  const bench_attention *a = &at->attention;
  const int64_t count = a->sequences > 0 ? a->sequences : 1, tokens = at->rows / count, longer = at->rows % count;
  return ((double)longer * pairs_of(tokens + 1, a) + (double)(count - longer) * pairs_of(tokens, a)) / (double)at->rows;
}
static bool of_model(const bench_model *m, bench_point *point) {
  bench_model_heads(m, point);
  point->rows = 2048;
  return !m->latent;
}
static const bench_case timed = {.op = "attention",
                                 .shape_note = "tokens x (heads * 64), causal where it does not say both sides",
                                 .rows_f32 = 512,
                                 .rows_16bit = 512,
                                 .cols = 1024,
                                 .dims = sequence,
                                 .of_model = of_model,
                                 .option = {5, 5},
                                 .products = {2, 5, 7},
                                 .depth = seen};

const check_op tigon_check_attention_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &fwd_sizes};
const check_op tigon_check_attention_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &bwd_sizes};
