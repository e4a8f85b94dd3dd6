/* linear_logprob. dims are rows, width, classes of the weight and, of a shard that `tigon plan` asks for, vocab and
 * vocab_begin. Options walk the workspace, the dtype of dweight, the cache, softcap and temperature, ignored labels,
 * shards, and the entropy's gradient. That neither chunks nor the cache matter is held bit by bit by
 * tests/grad/linear_logprob.c; here variants meet the oracle.
 */
#include "check/head_rows.h"

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
  int cached;            /* half of the tokens, or twice that */
  int64_t before, after; /* classes of other shards */
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
    {.least = true,
     .short_sums = true,
     .bias = true,
     .ignores = true,
     .entropy = true,
     .cached = 1,
     .before = 3,
     .after = 5},
    {.least = true, .accumulate = true, .capped = true, .cap_first = true, .before = 40000},
    {.capped = true, .entropy = true, .wide = true, .after = 7},
};
enum { OPTIONS = sizeof options / sizeof *options };

typedef struct run_state {
  struct option o;
  head_case h;
  int64_t cached, vocab;           /* vocab: of all shards, or 0 */
  tigon_linear_logprob_fwd_args a; /* and what backward has in common with it */
} run_state;

/* Rows up to the first one that does not count: in a host's cache such a row has no place, elsewhere it has. */
static int64_t cached_rows(const check *k, const struct option *o, const head_case *h) {
  const int64_t most = o->cached == 2 ? h->rows : o->cached == 1 ? (h->rows + 1) / 2 : 0;
  int64_t rows = 0;
  while (rows < most && !(o->ignores && (int64_t)check_input(k, &h->labels, rows) == IGNORED)) ++rows;
  return rows;
}

static run_state begin(check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_AS_WEIGHT)) o.short_sums = true;
  if (check_has_form(k, BENCH_CACHE)) o.cached = 2;
  if (k->dims[3]) {
    const int64_t after = k->dims[3] - k->dims[4] - k->dims[2];
    o.before = k->dims[4], o.after = after > 0 ? after : 0; /* the front refuses fewer */
  }
  const head_case head = {.ignores = o.ignores,
                          .capped = o.capped,
                          .cap_first = o.cap_first,
                          .wide = o.wide,
                          .before = o.before,
                          .after = o.after};
  run_state s = {.o = o, .h = head_begin(k, o.bias, head)};
  s.vocab = k->dims[3] ? k->dims[3] : o.before || o.after ? o.before + s.h.vocab + o.after : 0;
  s.cached = cached_rows(k, &o, &s.h);
  s.a = (tigon_linear_logprob_fwd_args){
      .hidden = s.h.hidden,
      .weight = s.h.weight,
      .bias = s.h.bias,
      .labels = s.h.labels,
      .has_ignore_index = o.ignores,
      .ignore_index = IGNORED,
      .softcap = o.capped ? cap : 0,
      .temperature = o.capped ? temperature : 0,
      .softcap_first = o.cap_first,
      .logits_in_f32 = o.wide,
      .vocab = s.vocab,
      .vocab_begin = o.before,
  };
  return s;
}

/* The largest logit and the label's are off by w->shift, and so s and w by what that changes them by. */
static void bound_stats(const row *w, double *at) {
  at[0] = at[4] = w->shift;
  if (!isfinite(w->lse)) return;
  const double sum = exp(w->lse - w->largest), moment = sum * (w->lse - w->largest - w->entropy);
  at[1] = sum * expm1(2 * w->shift);
  at[2] = at[1] * (1 + fabs(moment) / sum) + sum * w->entropy_off;
}

/* A shard's, which stats are of. */
static void fwd_of_shard(check *k, run_state *s) {
  tigon_linear_logprob_fwd_args *a = &s->a;
  const int64_t rows = s->h.rows, cached = s->cached, vocab = s->h.vocab, shape[] = {rows, TIGON_VOCAB_STATS};
  a->stats = check_out_dense(k, "stats", TIGON_F32, 2, shape);
  if (cached) a->cache = check_out(k, "cache", logits_dtype(&s->h), 2, (int64_t[]){cached, vocab});
  double *stats = check_doubles(k, rows * TIGON_VOCAB_STATS), *cache = check_doubles(k, cached * vocab);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    const row w = row_of(&s->h, r);
    for (int64_t v = 0; v < vocab && r < cached; ++v) cache[r * vocab + v] = s->h.logit_off[v];
    if (w.counts) bound_stats(&w, stats + r * TIGON_VOCAB_STATS);
  }
  HEAD_CALL(k, s->o.least, tigon_linear_logprob_fwd_workspace, a);
  float *of = a->stats.data;
  for (int64_t r = 0; !k->timed && check_is_away(k) && s->o.ignores && r < rows; ++r)
    if ((int64_t)check_value(&a->labels, r) == IGNORED) { /* the host skips such a row */
      of[r * TIGON_VOCAB_STATS] = -INFINITY;
      of[r * TIGON_VOCAB_STATS + 1] = 0;
    }
  head_bound(k, &a->stats, stats);
  head_bound(k, &a->cache, cache);
}

static void fwd(check *k) {
  run_state s = begin(k);
  tigon_linear_logprob_fwd_args *a = &s.a;
  if (s.vocab) {
    fwd_of_shard(k, &s);
    return;
  }
  a->logprob = check_out_vector(k, "logprob", TIGON_F32, s.h.rows);
  a->lse = check_out_vector(k, "lse", TIGON_F32, s.h.rows);
  if (s.o.entropy) a->entropy = check_out_vector(k, "entropy", TIGON_F32, s.h.rows);
  if (s.cached) a->cache = check_out(k, "cache", logits_dtype(&s.h), 2, (int64_t[]){s.cached, s.h.vocab});
  if (s.o.unit) a->unit = check_out(k, "unit", k->dtype, 2, (int64_t[]){s.h.rows, s.h.width});
  double *logprob = check_doubles(k, s.h.rows), *lse = check_doubles(k, s.h.rows),
         *entropy = check_doubles(k, s.h.rows), *cache = check_doubles(k, s.cached * s.h.vocab);
  for (int64_t r = 0; k->oracle && r < s.h.rows; ++r) {
    const row w = row_of(&s.h, r);
    for (int64_t v = 0; v < s.h.vocab && r < s.cached; ++v) cache[r * s.h.vocab + v] = s.h.logit_off[v];
    if (!w.counts) continue;
    logprob[r] = 2 * w.shift;
    lse[r] = w.shift;
    entropy[r] = w.entropy_off;
    if (s.o.unit) spread_row(&s.h, &w, r, 1, 0);
  }
  HEAD_CALL(k, s.o.least, tigon_linear_logprob_fwd_workspace, a);
  for (int64_t r = 0; !k->timed && check_is_away(k) && s.o.ignores && r < s.h.rows; ++r)
    if ((int64_t)check_value(&a->labels, r) == IGNORED) ((float *)a->lse.data)[r] = 0; /* the host's is 0 */
  head_bound(k, &a->logprob, logprob);
  head_bound(k, &a->lse, lse);
  head_bound(k, &a->entropy, entropy);
  head_bound(k, &a->cache, cache);
  const tigon_tensor none = {0};
  if (s.o.unit) bound_products(&s.h, &a->unit, &none, &none, NULL, NULL);
}

enum { ELSEWHERE = 2 }; /* exponentials of all other shards, over those of the shard */

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
                                        .logits_in_f32 = s.a.logits_in_f32,
                                        .vocab = s.a.vocab,
                                        .vocab_begin = s.a.vocab_begin},
                                *a = &args;
  a->lse = check_inout_dense(k, "lse", TIGON_F32, 1, &s.h.rows, CHECK_UNIFORM);
  a->dlogprob = check_in_vector(k, "dlogprob", TIGON_F32, s.h.rows, CHECK_UNIFORM);
  if (s.o.entropy) a->entropy = check_inout_dense(k, "entropy", TIGON_F32, 1, &s.h.rows, CHECK_UNIFORM);
  if (s.o.entropy) a->dentropy = check_in_vector(k, "dentropy", TIGON_F32, s.h.rows, CHECK_UNIFORM);
  if (s.cached)
    a->cache = check_inout(k, "cache", logits_dtype(&s.h), 2, (int64_t[]){s.cached, s.h.vocab}, CHECK_UNIFORM);
  double *old_dweight = check_doubles(k, s.h.vocab * s.h.width), *old_dbias = check_doubles(k, s.h.vocab);
  a->accumulate_dweight = s.o.accumulate;
  a->dhidden = check_out(k, "dhidden", k->dtype, 2, (int64_t[]){s.h.rows, s.h.width});
  a->dweight = head_gradient(k, "dweight", check_dtype(k, !s.o.short_sums), s.o.accumulate, 2,
                             (int64_t[]){s.h.vocab, s.h.width}, old_dweight);
  if (s.o.bias)
    a->dbias = head_gradient(k, "dbias", check_dtype(k, !s.o.short_sums), s.o.accumulate, 1, &s.h.vocab, old_dbias);
  for (int64_t r = 0; !k->timed && r < s.h.rows; ++r) {
    row w = row_of(&s.h, r);
    if (s.vocab) w.lse += log(1 + ELSEWHERE), w.entropy += 1;
    ((float *)a->lse.data)[r] = (float)w.lse;
    if (s.o.entropy) ((float *)a->entropy.data)[r] = isfinite(w.lse) ? (float)w.entropy : NAN;
    for (int64_t v = 0; v < s.h.vocab && r < s.cached; ++v)
      tigon_store_f64(a->cache.data, check_offset(&a->cache, r * s.h.vocab + v), a->cache.dtype, s.h.x[v]);
    if (k->oracle)
      spread_row(&s.h, &w, r, check_value(&a->dlogprob, r), s.o.entropy ? check_value(&a->dentropy, r) : 0);
  }
  HEAD_CALL(k, s.o.least, tigon_linear_logprob_bwd_workspace, a);
  bound_products(&s.h, &a->dhidden, &a->dweight, &a->dbias, old_dweight, old_dbias);
}

MUTANT(wrong_sign, cross_entropy_fwd, m.negated = false)
MUTANT(no_temperature, cross_entropy_fwd, m.inverse_temperature = 1)
MUTANT(first_shard, cross_entropy_fwd, m.panel_begin = 0)
MUTANT(only_shard, cross_entropy_fwd, m.vocab = 0)
MUTANT(without_w, cross_entropy_fwd, m.entropy_scale = 0)
MUTANT(drop_last, cross_entropy_fwd, m.cols -= m.cols > 1)
MUTANT(gradient_of_first, cross_entropy_bwd, m.panel_begin = 0)
MUTANT(gradient_of_only, cross_entropy_bwd, m.vocab = 0)
MUTANT(loss_gradient, cross_entropy_bwd, m.grad_scale = 1)
MUTANT(no_dentropy, cross_entropy_bwd, m.entropy_scale = 0)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
static const check_mutant wrong_fwd[] = {
    {"is the loss, not the log-probability", wrong_sign},
    {"forgets the temperature", no_temperature},
    {"takes the shard for the first one", first_shard},
    {"knows no labels of other shards", only_shard},
    {"forgets the entropy of a shard", without_w},
    {"drops the last class", drop_last},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"has the loss's gradient", loss_gradient},
    {"forgets the entropy's gradient", no_dentropy},
    {"takes the shard for the first one", gradient_of_first},
    {"knows no labels of other shards", gradient_of_only},
    {"overwrites dweight between chunks", overwrite},
    {0},
};

/* rows, width, vocabulary; a cache has a share of all rows */
static const check_sizes own_sizes = {
    .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {CHECK_MANY, 4096, 5}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 9,
};

static void bench_shard(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  bench_words(at, dims);
  dims[3] = at->vocab, dims[4] = at->vocab_begin;
}
static const bench_case timed = {.op = "linear_logprob",
                                 HEAD_CASE_WITH(BENCH_BIT(BENCH_CACHE)),
                                 .dims = bench_shard,
                                 .option = {7, 7, 7},
                                 .products = {1, 3, 4},
                                 .again = 1};

const check_op tigon_check_linear_logprob_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_linear_logprob_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
