/* linear_logprob. dims are rows, width, vocab. Options walk the workspace, the dtype of dweight, the cache, softcap and
 * temperature, ignored labels, and the entropy's gradient. That neither chunks nor the cache matter is held bit by bit by
 * tests/grad/linear_logprob.c; here variants meet the oracle.
 *
 * The bounds follow one perturbation, as in fused_linear_cross_entropy: logits are off by `shift`, so the log-sum-exp is by
 * as much, a log-probability by twice that, a probability by a factor of e^(2 shift). */
#include "check/head.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {{1, 1, 1},   {3, 5, t + 1}, {7, t, 33},    {4, 2 * t + 1, 2 * t},
                             {9, 16, 19}, {130, 7, 40},  {5, 64, 1009}, {64, 57, 257}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d];
  return true;
}

static const struct option {
  bool least, short_sums, accumulate, bias, ignores, capped, cap_first, entropy, unit, wide;
  int cached; /* half of the tokens, or twice that */
} options[] = {
    {.bias = true, .entropy = true, .unit = true},
    {.least = true, .short_sums = true, .bias = true, .capped = true, .entropy = true, .cached = 1},
    {.least = true, .ignores = true, .accumulate = true, .entropy = true},
    {.short_sums = true, .accumulate = true, .capped = true, .cap_first = true, .cached = 2, .unit = true},
    {.least = true, .short_sums = true, .ignores = true, .capped = true},
    {.cached = 1, .entropy = true},
    {.short_sums = true}, /* which the benchmark times, as the next */
    {0},
    {.least = true, .short_sums = true, .bias = true, .entropy = true, .unit = true, .wide = true, .cached = 1},
};
enum { OPTIONS = sizeof options / sizeof *options, IGNORED = 0 };

static const double cap = 4, temperature = 0.8;

/* Of a row; `off` and `size` of dx are [vocab]. */
typedef struct row {
  bool counts;
  int64_t label;
  double lse, entropy;
  double shift, entropy_off;
} row;

typedef struct run_state {
  check *k;
  struct option o;
  int64_t rows, width, vocab, cached;
  tigon_linear_logprob_fwd_args a; /* and what backward has in common with it */
  double *x, *z, *logit_off;       /* [vocab] of a row */
  double *off, *size;              /* [rows, vocab] of dx, or of a unit's */
} run_state;

static double logit_of(const struct option *o, double x) {
  if (!o->capped) return x;
  return o->cap_first ? cap * tanh(x / cap) / temperature : cap * tanh(x / temperature / cap);
}

static tigon_dtype logits_dtype(const run_state *s) { return s->o.wide ? TIGON_F32 : s->k->dtype; }

static void logits_of(const run_state *s, int64_t r) {
  const tigon_linear_logprob_fwd_args *a = &s->a;
  for (int64_t v = 0; v < s->vocab; ++v) {
    double absolute = 0, sum = head_dot(&a->hidden, r, &a->weight, v, s->width, &absolute);
    if (s->o.bias) sum += check_value(&a->bias, v), absolute += fabs(check_value(&a->bias, v));
    s->x[v] = sum;
    s->z[v] = logit_of(&s->o, sum);
    s->logit_off[v] = 16 * 0x1p-24 * absolute + head_ulp(logits_dtype(s)) * fabs(sum);
  }
}

static row row_of(const run_state *s, int64_t r) {
  row w = {.label = (int64_t)check_value(&s->a.labels, r)};
  double largest = -INFINITY, sum = 0, moment = 0;
  w.counts = !s->o.ignores || w.label != IGNORED;
  logits_of(s, r);
  for (int64_t v = 0; v < s->vocab; ++v) {
    if (isfinite(s->x[v])) w.shift = fmax(w.shift, s->logit_off[v]); /* Inf is Inf for both */
    largest = fmax(largest, s->z[v]);
  }
  for (int64_t v = 0; v < s->vocab; ++v) sum += exp(s->z[v] - largest);
  w.lse = largest + log(sum);
  for (int64_t v = 0; v < s->vocab && isfinite(w.lse); ++v) {
    const double below = w.lse - s->z[v], d = fmax(largest - s->z[v], 16), p = exp(-below);
    if (!isfinite(below)) continue;
    w.entropy += p * below;
    moment += p * d * (24 + check_calls(s->k, 2, 1) + 2 * d);
  }
  if (s->o.capped) w.shift = w.shift / temperature + 0x1p-24 * cap / temperature * (8 + check_calls(s->k, 0.5, 2));
  w.shift += 0x1p-21 * (1 + fabs(w.lse)) + 0x1p-24 * check_calls(s->k, 2, 0) +
             0x1p-24 * check_calls(s->k, 1, 0) * (w.lse - largest);
  w.entropy_off = expm1(2 * w.shift) * (w.entropy + 2 * w.shift) + 2 * w.shift + 0x1p-24 * moment;
  return w;
}

/* dx of row r for upstream gradients of the log-probability and of the entropy. */
static void spread_row(const run_state *s, const row *w, int64_t r, double dlogprob, double dentropy) {
  const double by = fabs(dlogprob) / (s->o.capped ? temperature : 1);
  const double by_entropy = fabs(dentropy) / (s->o.capped ? temperature : 1);
  const double cap_of = s->o.cap_first ? cap / temperature : cap;
  for (int64_t v = 0; v < s->vocab && w->counts && isfinite(w->lse); ++v) {
    const double below = fabs(w->lse - s->z[v]), high = fmin(1, exp(s->z[v] - w->lse + 2 * w->shift));
    /* The entropy may be off by more than any number. */
    const bool spreads = by_entropy > 0 && isfinite(below);
    const double spread = spreads ? below + 2 * w->shift + w->entropy + w->entropy_off : 0;
    const double of_entropy = spreads && high > 0 ? by_entropy * high * spread : 0;
    const double size = by * (high + (v == w->label)) + of_entropy;
    const int64_t at = r * s->vocab + v;
    s->size[at] = size;
    s->off[at] = fmin(1, 4 * w->shift) * (high * by + of_entropy) +
                 (spreads && high > 0 ? by_entropy * high * (2 * w->shift + w->entropy_off) : 0) +
                 size * ((s->o.capped ? fmin(1, 2 * w->shift / cap_of) : 0) + head_ulp(s->k->dtype) + 0x1p-19 +
                         0x1p-24 * check_calls(s->k, 2, 2)) +
                 0x1p-118 * fmax(1, by + by_entropy);
  }
}

/* What products of dx with hidden, weight and 1 may be off by. */
static void bound_products(const run_state *s, const tigon_tensor *dhidden, const tigon_tensor *dweight,
                           const tigon_tensor *dbias, const double *old_dweight, const double *old_dbias) {
  check *k = s->k;
  const tigon_linear_logprob_fwd_args *a = &s->a;
  const int64_t width = s->width;
  const double add = 16 * 0x1p-24; /* of a f32 sum, as in linear's check */
  double *dx = check_doubles(k, s->rows * width), *dw = check_doubles(k, s->vocab * width),
         *db = check_doubles(k, s->vocab);
  for (int64_t at = 0; k->oracle && at < s->rows * s->vocab; ++at) {
    const int64_t r = at / s->vocab, v = at % s->vocab;
    const double off = s->off[at] + add * s->size[at];
    const int64_t hidden = check_offset(&a->hidden, r * width), weight = check_offset(&a->weight, v * width);
    db[v] += off;
    for (int64_t i = 0; off != 0 && i < width; ++i) {
      dx[r * width + i] += off * fabs(tigon_load_f64(a->weight.data, weight + i, k->dtype));
      dw[v * width + i] += off * fabs(tigon_load_f64(a->hidden.data, hidden + i, k->dtype));
    }
  }
  for (int64_t i = 0; old_dweight && i < s->vocab * width; ++i) dw[i] += add * old_dweight[i];
  for (int64_t v = 0; old_dbias && v < s->vocab; ++v) db[v] += add * old_dbias[v];
  head_bound(k, dhidden, dx);
  head_bound(k, dweight, dw);
  head_bound(k, dbias, db);
}

static run_state begin(check *k) {
  const struct option o = options[k->option];
  run_state s = {.k = k, .o = o, .rows = k->dims[0], .width = k->dims[1], .vocab = k->dims[2]};
  s.cached = o.cached == 2 ? s.rows : o.cached == 1 ? (s.rows + 1) / 2 : 0;
  s.a = (tigon_linear_logprob_fwd_args){
      .hidden = check_in(k, "hidden", k->dtype, 2, (int64_t[]){s.rows, s.width}, k->fill),
      .weight = check_in(k, "weight", k->dtype, 2, (int64_t[]){s.vocab, s.width}, CHECK_UNIFORM),
      .labels = check_indices(k, "labels", k->option % 2 ? TIGON_I32 : TIGON_I64, 1, &s.rows, 0, s.vocab),
      .has_ignore_index = o.ignores,
      .ignore_index = IGNORED,
      .softcap = o.capped ? cap : 0,
      .temperature = o.capped ? temperature : 0,
      .softcap_first = o.cap_first,
      .logits_in_f32 = o.wide,
  };
  if (o.bias) s.a.bias = check_in_vector(k, "bias", k->dtype, s.vocab, CHECK_UNIFORM);
  s.x = check_doubles(k, s.vocab), s.z = check_doubles(k, s.vocab), s.logit_off = check_doubles(k, s.vocab);
  s.off = check_doubles(k, s.rows * s.vocab), s.size = check_doubles(k, s.rows * s.vocab);
  return s;
}

/* With the least workspace or the one recommended. */
#define CALL(k, o, query, a)                                   \
  do {                                                         \
    size_t least, good;                                        \
    query((k)->context, a, &least, &good);                     \
    (a)->workspace_bytes = (o).least ? least : good;           \
    (a)->workspace = check_workspace(k, (a)->workspace_bytes); \
    check_call(k, a);                                          \
  } while (0)

static void fwd(check *k) {
  run_state s = begin(k);
  tigon_linear_logprob_fwd_args *a = &s.a;
  a->logprob = check_out_vector(k, "logprob", TIGON_F32, s.rows);
  a->lse = check_out_vector(k, "lse", TIGON_F32, s.rows);
  if (s.o.entropy) a->entropy = check_out_vector(k, "entropy", TIGON_F32, s.rows);
  if (s.cached) a->cache = check_out(k, "cache", logits_dtype(&s), 2, (int64_t[]){s.cached, s.vocab});
  if (s.o.unit) a->unit = check_out(k, "unit", k->dtype, 2, (int64_t[]){s.rows, s.width});
  double *logprob = check_doubles(k, s.rows), *lse = check_doubles(k, s.rows), *entropy = check_doubles(k, s.rows),
         *cache = check_doubles(k, s.cached * s.vocab);
  for (int64_t r = 0; k->oracle && r < s.rows; ++r) {
    const row w = row_of(&s, r);
    for (int64_t v = 0; v < s.vocab && r < s.cached; ++v) cache[r * s.vocab + v] = s.logit_off[v];
    if (!w.counts) continue;
    logprob[r] = 2 * w.shift;
    lse[r] = w.shift;
    entropy[r] = w.entropy_off;
    if (s.o.unit) spread_row(&s, &w, r, 1, 0);
  }
  CALL(k, s.o, tigon_linear_logprob_fwd_workspace, a);
  for (int64_t r = 0; !k->timed && check_is_away(k) && s.o.ignores && r < s.rows; ++r)
    if ((int64_t)check_value(&a->labels, r) == IGNORED) ((float *)a->lse.data)[r] = 0; /* the host's is 0 */
  head_bound(k, &a->logprob, logprob);
  head_bound(k, &a->lse, lse);
  head_bound(k, &a->entropy, entropy);
  head_bound(k, &a->cache, cache);
  const tigon_tensor none = {0};
  if (s.o.unit) bound_products(&s, &a->unit, &none, &none, NULL, NULL);
}

static tigon_tensor gradient(const run_state *s, const char *name, int ndim, const int64_t *shape, double *old) {
  check *k = s->k;
  const tigon_dtype dtype = s->o.short_sums ? k->dtype : TIGON_F32;
  if (!s->o.accumulate)
    return ndim == 1 ? check_out_dense(k, name, dtype, ndim, shape) : check_out(k, name, dtype, ndim, shape);
  const tigon_tensor t = ndim == 1 ? check_inout_dense(k, name, dtype, ndim, shape, CHECK_UNIFORM)
                                   : check_inout(k, name, dtype, ndim, shape, CHECK_UNIFORM);
  for (int64_t i = 0; k->oracle && i < (ndim == 1 ? shape[0] : shape[0] * shape[1]); ++i)
    old[i] = fabs(check_value(&t, i));
  return t;
}

/* lse, entropy and the cache are forward's. */
static void bwd(check *k) {
  run_state s = begin(k);
  tigon_linear_logprob_bwd_args args = {.hidden = s.a.hidden,
                                        .weight = s.a.weight,
                                        .bias = s.a.bias,
                                        .labels = s.a.labels,
                                        .has_ignore_index = s.a.has_ignore_index,
                                        .ignore_index = s.a.ignore_index,
                                        .softcap = s.a.softcap,
                                        .temperature = s.a.temperature,
                                        .softcap_first = s.a.softcap_first,
                                        .logits_in_f32 = s.a.logits_in_f32},
                                *a = &args;
  a->lse = check_inout_dense(k, "lse", TIGON_F32, 1, &s.rows, CHECK_UNIFORM);
  a->dlogprob = check_in_vector(k, "dlogprob", TIGON_F32, s.rows, CHECK_UNIFORM);
  if (s.o.entropy) a->entropy = check_inout_dense(k, "entropy", TIGON_F32, 1, &s.rows, CHECK_UNIFORM);
  if (s.o.entropy) a->dentropy = check_in_vector(k, "dentropy", TIGON_F32, s.rows, CHECK_UNIFORM);
  if (s.cached) a->cache = check_inout(k, "cache", logits_dtype(&s), 2, (int64_t[]){s.cached, s.vocab}, CHECK_UNIFORM);
  double *old_dweight = check_doubles(k, s.vocab * s.width), *old_dbias = check_doubles(k, s.vocab);
  a->accumulate_dweight = s.o.accumulate;
  a->dhidden = check_out(k, "dhidden", k->dtype, 2, (int64_t[]){s.rows, s.width});
  a->dweight = gradient(&s, "dweight", 2, (int64_t[]){s.vocab, s.width}, old_dweight);
  if (s.o.bias) a->dbias = gradient(&s, "dbias", 1, &s.vocab, old_dbias);
  for (int64_t r = 0; !k->timed && r < s.rows; ++r) {
    const row w = row_of(&s, r);
    ((float *)a->lse.data)[r] = (float)w.lse;
    if (s.o.entropy) ((float *)a->entropy.data)[r] = isfinite(w.lse) ? (float)w.entropy : NAN;
    for (int64_t v = 0; v < s.vocab && r < s.cached; ++v)
      tigon_store_f64(a->cache.data, check_offset(&a->cache, r * s.vocab + v), a->cache.dtype, s.x[v]);
    if (k->oracle) spread_row(&s, &w, r, check_value(&a->dlogprob, r), s.o.entropy ? check_value(&a->dentropy, r) : 0);
  }
  CALL(k, s.o, tigon_linear_logprob_bwd_workspace, a);
  bound_products(&s, &a->dhidden, &a->dweight, &a->dbias, old_dweight, old_dbias);
}

MUTANT(wrong_sign, cross_entropy_fwd, m.negated = false)
MUTANT(no_temperature, cross_entropy_fwd, m.inverse_temperature = 1)
MUTANT(loss_gradient, cross_entropy_bwd, m.grad_scale = 1)
MUTANT(no_dentropy, cross_entropy_bwd, m.entropy_scale = 0)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
static const check_mutant wrong_fwd[] = {
    {"is the loss, not the log-probability", wrong_sign},
    {"forgets the temperature", no_temperature},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"has the loss's gradient", loss_gradient},
    {"forgets the entropy's gradient", no_dentropy},
    {"overwrites dweight between chunks", overwrite},
    {0},
};

/* rows, width, vocabulary; a cache has a share of all rows */
static const check_sizes own_sizes = {
    .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {CHECK_MANY, 4096, 5}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 8,
};

static const bench_case timed = {.op = "linear_logprob",
                                 .shape_note = "tokens x hidden, 16000 words",
                                 .rows_f32 = 256,
                                 .rows_16bit = 256,
                                 .cols = 1024,
                                 .other = 16000,
                                 .dims = bench_words,
                                 .of_model = head_of_model,
                                 .option = {7, 7, 7},
                                 .has_as_weight = true,
                                 .as_weight = {6, 6, 6},
                                 .products = {1, 3, 4}};

const check_op tigon_check_linear_logprob_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_linear_logprob_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
