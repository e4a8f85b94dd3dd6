/* attention. Options walk masks, scales, memory layouts and which input has the unusual values. Sums carry 8 eps of the sum
 * of their terms' absolute values, eps = 2^-24: a tile's 64 terms one after the other, then the tiles. */
#include <math.h>

#include "check/cases.h"
#include "core/half.h"
#include "ref/span.h"

typedef enum layout { TOKENS_FIRST, PACKED, HEADS_FIRST } layout;

static const struct option {
  int causal;
  int64_t window;
  double scale;
  layout layout; /* PACKED needs as many keys as queries, else it is TOKENS_FIRST */
  bool no_lse;
  char unusual; /* q, k, v, or g for do */
} options[] = {
    {.unusual = 'q'},
    {.causal = 1, .layout = PACKED, .unusual = 'k'},
    {.causal = 1, .window = 5, .layout = HEADS_FIRST, .unusual = 'v'},
    {.window = 3, .scale = 0.3, .unusual = 'g'},
    {.causal = 1, .window = 40, .scale = -0.2, .no_lse = true, .unusual = 'k'},
    {.causal = 1, .unusual = 'q'},
    {.causal = 1, .window = 2, .layout = PACKED, .unusual = 'v'},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* B, T, S, Hq, Hk, D: tiles of 64 and their neighbours, heads of more than 64 and of more than 256, every option for the small
 * ones and three for the others. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  static const int64_t shapes[][CHECK_DIMS] = {
      {1, 1, 1, 1, 1, 1},     {2, 3, 5, 2, 1, 7},      {1, 7, 8, 2, 2, 16},    {1, 33, 33, 1, 1, 5},
      {1, 9, 70, 2, 1, 5},    {1, 64, 64, 2, 1, 32},   {2, 65, 65, 3, 3, 33},  {1, 63, 129, 2, 2, 64},
      {1, 130, 66, 4, 1, 65}, {1, 129, 129, 2, 1, 24}, {1, 40, 40, 2, 2, 128}, {1, 20, 70, 2, 1, 257},
      {1, 3, 200, 1, 1, 512}, {1, 5, 3, 1, 1, 600},    {3, 17, 17, 6, 2, 40},  {1, 257, 257, 1, 1, 16},
      {1, 1, 300, 4, 2, 64},  {1, 70, 136, 2, 1, 128},
  };
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  (void)tile;
  if (index >= 3 * SHAPES) return false;
  for (int i = 0; i < CHECK_DIMS; ++i) dims[i] = shapes[index % SHAPES][i];
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
  double scale;
  heads q, k, v, o_, d_o, dq, dk, dv;
  double *z, *magnitude; /* [keys], of the query at work: q . k_j times scale, and the same of absolute values */
} call;

static tigon_tensor made(check *k, const char *name, int64_t b, int64_t t, int64_t h, int64_t d, layout l, bool out,
                         check_fill fill) {
  const int64_t dims[] = {b, l == HEADS_FIRST ? h : t, l == HEADS_FIRST ? t : h, d};
  return out ? check_out(k, name, k->dtype, 4, dims) : check_inout(k, name, k->dtype, 4, dims, fill);
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

static call begin(check *k) {
  static const char *const names[] = {"q", "k", "v", "qkv"};
  call c = {.o = options[k->option],
            .batch = k->dims[0],
            .tokens = k->dims[1],
            .keys = k->dims[2],
            .q_heads = k->dims[3],
            .k_heads = k->dims[4],
            .head_dim = k->dims[5]};
  c.scale = (double)(float)(c.o.scale != 0 ? c.o.scale : 1 / sqrt((double)c.head_dim));
  make_three(k, &c, names, false, &c.q, &c.k, &c.v);
  return c;
}

/* ---- one query in double ---- */

typedef struct query {
  int64_t b, t, h, kv, begin, end;
  double max, lse;
} query;

static void score(const call *c, const query *q, int64_t j) {
  double sum = 0, all = 0;
  for (int64_t d = 0; d < c->head_dim; ++d) {
    const double term = value(&c->q, q->b, q->t, q->h, d) * value(&c->k, q->b, j, q->kv, d);
    sum += term;
    all += fabs(term);
  }
  c->z[j] = c->scale * sum, c->magnitude[j] = fabs(c->scale) * all;
}

/* Of the query, which then is the one at work. */
static query query_of(const call *c, int64_t b, int64_t t, int64_t h) {
  query q = {.b = b, .t = t, .h = h, .kv = h / (c->q_heads / c->k_heads), .max = -INFINITY};
  tigon_attention_span(c->tokens, c->keys, c->o.causal, c->o.window, t, &q.begin, &q.end);
  double sum = 0;
  for (int64_t j = q.begin; j < q.end; ++j) {
    score(c, &q, j);
    q.max = fmax(q.max, c->z[j]);
  }
  for (int64_t j = q.begin; j < q.end; ++j) sum += exp(c->z[j] - (q.max == -INFINITY ? 0 : q.max));
  q.lse = sum == 0 ? -INFINITY : q.max + log(sum);
  return q;
}

/* The relative error of p_j in eps: of the score, of z - max (or lse), of exp. */
static double weight_error(double z, double magnitude, double base) { return 8 * magnitude + fabs(z - base) + 3; }

/* p below 2^-126 may be 0, and so may be products; each of n additions may lose half a denormal. In eps. */
static double underflow(double factor, int64_t n) { return 0x1p-102 * factor + (double)n * 0x1p-125; }

/* ---- forward ---- */

/* o and lse of a query, and what they may be off by. */
static void bound_query(const call *c, const query *q, double *o, double *o_bound, double *lse_bound) {
  double mean_error = 0;
  for (int64_t d = 0; d < c->head_dim; ++d) o[d] = 0, o_bound[d] = underflow(1, q->end - q->begin);
  for (int64_t j = q->begin; j < q->end; ++j) {
    const double z = c->z[j], magnitude = c->magnitude[j], w = exp(z - q->lse);
    if (w > 0) mean_error += w * weight_error(z, magnitude, q->max);
  }
  for (int64_t j = q->begin; j < q->end; ++j) {
    const double z = c->z[j], magnitude = c->magnitude[j], w = exp(z - q->lse);
    for (int64_t d = 0; d < c->head_dim; ++d) {
      const double v = value(&c->v, q->b, j, q->kv, d);
      o[d] += w * v;
      if (w > 0) o_bound[d] += fabs(w * v) * (weight_error(z, magnitude, q->max) + mean_error + 18);
      o_bound[d] += underflow(fabs(v), 0);
    }
  }
  *lse_bound = mean_error + 8;
}

static void fwd(check *k) {
  call c = begin(k);
  const int64_t dims[] = {c.batch, c.q_heads, c.tokens};
  const layout l = c.q.layout == PACKED ? TOKENS_FIRST : c.q.layout;
  c.o_ = viewed(made(k, "o", c.batch, c.tokens, c.q_heads, c.head_dim, l, true, CHECK_UNIFORM), l, 0, c.q_heads);
  const tigon_tensor lse = c.o.no_lse ? (tigon_tensor){0} : check_out_dense(k, "lse", TIGON_F32, 3, dims);
  c.z = check_doubles(k, c.keys), c.magnitude = check_doubles(k, c.keys);
  double *o = check_doubles(k, c.head_dim), *bound = check_doubles(k, c.head_dim);
  double *o_bound = check_doubles(k, c.batch * c.tokens * c.q_heads * c.head_dim);
  double *lse_bound = check_doubles(k, c.batch * c.tokens * c.q_heads);
  for (int64_t i = 0; k->oracle && i < c.batch * c.q_heads * c.tokens; ++i) {
    const query q = query_of(&c, i / c.tokens / c.q_heads, i % c.tokens, i / c.tokens % c.q_heads);
    bound_query(&c, &q, o, bound, &lse_bound[i]);
    for (int64_t d = 0; d < c.head_dim; ++d) o_bound[index_of(&c.o_, q.b, q.t, q.h, d)] = bound[d];
  }
  const tigon_attention_fwd_args args = {.q = c.q.view,
                                         .k = c.k.view,
                                         .v = c.v.view,
                                         .o = c.o_.view,
                                         .lse = lse,
                                         .scale = c.o.scale,
                                         .causal = c.o.causal,
                                         .window = c.o.window};
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
  for (int64_t j = q->begin; j < q->end; ++j) {
    double dp_all;
    const double z = c->z[j], magnitude = c->magnitude[j], p = exp(z - lse);
    const double dp = dot(c, q, &c->v, j, q->kv, &dp_all);
    const double error = p > 0 ? weight_error(z, magnitude, lse) : 0;
    const double dz = fabs(c->scale) * p * fabs(dp - delta);
    const double dz_error = dz * (error + 12) + fabs(c->scale) * p * 8 * (dp_all + delta_all);
    const double least = underflow(1 + fabs(c->scale) * (dp_all + delta_all), 1);
    for (int64_t d = 0; d < c->head_dim; ++d) {
      const double kd = fabs(value(&c->k, q->b, j, q->kv, d)), qd = fabs(value(&c->q, q->b, q->t, q->h, d));
      const double g = fabs(value(&c->d_o, q->b, q->t, q->h, d));
      dq[index_of(&c->dq, q->b, q->t, q->h, d)] += kd * (dz_error + least) + underflow(0, 1);
      dk[index_of(&c->dk, q->b, j, q->kv, d)] += qd * (dz_error + least) + underflow(0, 1);
      dv[index_of(&c->dv, q->b, j, q->kv, d)] += g * (p * (error + 8) + underflow(1, 0)) + underflow(0, 1);
    }
  }
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
  const tigon_tensor lse = check_inout_dense(k, "lse", TIGON_F32, 3, dims, CHECK_UNIFORM);
  make_three(k, &c, names, true, &c.dq, &c.dk, &c.dv);
  const bool packed = c.q.layout == PACKED;
  c.z = check_doubles(k, c.keys), c.magnitude = check_doubles(k, c.keys);
  double *dq = check_doubles(k, elements(&c.dq));
  double *dk = packed ? dq : check_doubles(k, elements(&c.dk)), *dv = packed ? dq : check_doubles(k, elements(&c.dv));
  double *o = check_doubles(k, c.head_dim), *ignored = check_doubles(k, c.head_dim + 1);
  for (int64_t i = 0; !k->timed && i < c.batch * c.q_heads * c.tokens; ++i) { /* forward's o and lse */
    const query q = query_of(&c, i / c.tokens / c.q_heads, i % c.tokens, i / c.tokens % c.q_heads);
    bound_query(&c, &q, o, ignored, &ignored[c.head_dim]);
    for (int64_t d = 0; d < c.head_dim; ++d)
      tigon_store_f64(c.o_.view.data, place(&c.o_.view, q.b, q.t, q.h, d), k->dtype, q.lse == -INFINITY ? 0 : o[d]);
    ((float *)lse.data)[i] = (float)q.lse;
    if (k->oracle) bound_gradients(&c, &q, (double)(float)q.lse, dq, dk, dv);
  }
  tigon_attention_bwd_args args = {.d_o = c.d_o.view,
                                   .q = c.q.view,
                                   .k = c.k.view,
                                   .v = c.v.view,
                                   .o = c.o_.view,
                                   .lse = lse,
                                   .dq = c.dq.view,
                                   .dk = c.dk.view,
                                   .dv = c.dv.view,
                                   .scale = c.o.scale,
                                   .causal = c.o.causal,
                                   .window = c.o.window};
  check_call_in_workspace(k, tigon_attention_bwd_workspace, &args);
  check_bound(k, &c.dq.base, 1, 1, dq);
  if (packed) return;
  check_bound(k, &c.dk.base, 1, 1, dk);
  check_bound(k, &c.dv.base, 1, 1, dv);
}

MUTANT(not_causal, attention_fwd, m.causal = false)
MUTANT(no_window, attention_fwd, m.window = 0)
MUTANT(lose_key, attention_fwd, m.keys -= !m.causal && m.window == 0 && m.keys > 1)
MUTANT(bwd_window, attention_bwd, m.window += m.window > 0)
MUTANT(bwd_causal, attention_bwd, m.causal = false)
static const check_mutant wrong_fwd[] = {
    {"forgets causal", not_causal},
    {"forgets the window", no_window},
    {"loses the last key", lose_key},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"sees one key too many in a window", bwd_window},
    {"forgets causal", bwd_causal},
    {0},
};

/* batch, queries, keys, query heads, key heads, head_dim. Backward has e^(z - lse) from a lse in f32, so scores are small
 * beside 2^24. */
static const check_sizes own_sizes = {
    .of = {{1, 4, 4, 2, 1, 3},
           {2, 17, 65, 2, 1, 8},
           {300, 3, 5, 2, 1, 4},
           {3, 2, 2, 2, 1, 16},
           {CHECK_MANY / 4, 4, 4, 32, 4, 128}},
    .walks = {{1, CHECK_N, CHECK_N, 1, 1, 3}, {1, 2, CHECK_N, 1, 1, 5}, {1, 3, 5, 2, 1, CHECK_N}},
    .large = 0x1p10,
};

/* One causal sequence. */
static void sequence(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = 1, dims[1] = dims[2] = at->rows;
  bench_heads(at, 64, dims + 3);
}
static bool of_model(const bench_model *m, bench_point *point) {
  bench_model_heads(m, point);
  point->rows = 2048;
  return !m->latent;
}
static const bench_case timed = {.op = "attention",
                                 .shape_note = "tokens x (heads * 64), causal",
                                 .rows_f32 = 512,
                                 .rows_16bit = 512,
                                 .cols = 1024,
                                 .dims = sequence,
                                 .of_model = of_model,
                                 .option = {5, 5},
                                 .products = {1, 2.5, 3.5}};

const check_op tigon_check_attention_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_attention_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
