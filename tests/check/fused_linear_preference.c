/* fused_linear_preference. dims are tokens, width, vocab. Options walk kinds, padded and packed batches, sums and means, the NLL, the
 * workspace, the dtype of dweight and what may be absent. That chunks and groups do not matter is held bit by bit by
 * tests/grad/fused_linear_preference.c. Bounds: a token's log-probability is off as head_rows.h says, the loss's gradients follow by
 * preference_terms.h. */
#include "check/head_rows.h"
#include "check/preference_terms.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {{2, 1, 2}, {3, 5, t + 1}, {8, t, 33}, {4, 2 * t + 1, 2 * t}, {130, 7, 40}, {64, 57, 257}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d];
  return true;
}

static const struct option {
  preference_option loss;                                                                 /* its counts: means */
  bool padded, ignores, least, short_sums, accumulate, bias, capped, wide, dloss, frozen; /* frozen: no dweight */
} options[] = {
    {.loss = {.kind = TIGON_PREFERENCE_SIGMOID, .ref = true, .outputs = true}, .bias = true, .ignores = true},
    {.loss = {.kind = TIGON_PREFERENCE_SIGMOID,
              .counts = TIGON_I64,
              .nll = true,
              .outputs = true,
              .beta = 2,
              .gamma = 0.5,
              .nll_weight = 0.5},
     .padded = true,
     .ignores = true,
     .least = true,
     .short_sums = true,
     .capped = true},
    {.loss = {.kind = TIGON_PREFERENCE_IPO, .counts = TIGON_I64, .ref = true, .denominator = true, .outputs = true},
     .padded = true,
     .dloss = true,
     .accumulate = true},
    {.loss = {.kind = TIGON_PREFERENCE_KTO,
              .counts = TIGON_I64,
              .ref = true,
              .shift = true,
              .outputs = true,
              .desirable = 1.5},
     .ignores = true,
     .least = true,
     .bias = true},
    {.loss = {.kind = TIGON_PREFERENCE_BCO, .shift = true, .shift_of_each = true, .outputs = true},
     .padded = true,
     .frozen = true,
     .dloss = true},
    {.loss = {.kind = TIGON_PREFERENCE_SIGMOID, .ref = true},
     .padded = true}, /* which the benchmark times, as the next */
    {.loss = {.kind = TIGON_PREFERENCE_SIGMOID, .ref = true}, .padded = true, .short_sums = true},
    {.loss = {.kind = TIGON_PREFERENCE_SPPO_HARD, .counts = TIGON_I64, .ref = true, .outputs = true},
     .ignores = true,
     .least = true,
     .short_sums = true,
     .accumulate = true,
     .wide = true,
     .capped = true},
};
enum { OPTIONS = sizeof options / sizeof *options };

static bool is_padded(const check *k, const struct option *o) { return o->padded && k->dims[0] % 2 == 0; }

static int64_t sequences_of(const check *k, const struct option *o) {
  const int64_t rows = k->dims[0];
  if (k->timed) return rows % 2048 == 0 ? rows / 1024 : 2;
  return is_padded(k, o) ? (rows % 4 == 0 ? 4 : 2) : rows / 10 * 2 + 2;
}

static tigon_tensor in(check *k, const char *name, int64_t n, bool there) {
  return check_may_vector(k, name, TIGON_F32, n, CHECK_UNIFORM, there);
}
static tigon_tensor out(check *k, const char *name, int64_t n, bool there) {
  return there ? check_out_vector(k, name, TIGON_F32, n) : (tigon_tensor){0};
}

typedef struct run_state {
  struct option o;
  head_case h;
  preference_call c;
  tigon_fused_linear_preference_fwd_args a;
  double *logprob_off, *logps_off; /* [tokens], [sequences] */
  int64_t *sequence;               /* [tokens], -1: the token does not count */
  double *tokens;                  /* [sequences] that count */
} run_state;

static run_state begin(check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_AS_WEIGHT)) o.short_sums = true;
  const preference_option *p = &o.loss;
  const head_case head = {.ignores = o.ignores, .capped = o.capped, .wide = o.wide};
  run_state s = {.o = o, .h = head_begin(k, o.bias, head)};
  const int64_t n = s.h.rows, each = sequences_of(k, &o), padded = is_padded(k, &o) ? each : 0;
  s.c = (preference_call){.k = k, .o = *p, .sequences = each};
  s.c.items = of_pairs(&s.c) ? each / 2 : each;
  tigon_fused_linear_preference_fwd_args *a = &s.a;
  *a = (tigon_fused_linear_preference_fwd_args){.hidden = head_view(&s.h.hidden, padded),
                                                .weight = s.h.weight,
                                                .labels = s.h.labels,
                                                .bias = s.h.bias,
                                                .has_ignore_index = o.ignores,
                                                .ignore_index = IGNORED,
                                                .softcap = o.capped ? cap : 0,
                                                .temperature = o.capped ? temperature : 0,
                                                .logits_in_f32 = o.wide,
                                                .means = p->counts != TIGON_DTYPE_NONE,
                                                .nll = p->nll,
                                                .accumulate_dweight = o.accumulate};
  a->options = (tigon_preference_loss_options){.kind = p->kind,
                                               .beta = p->beta,
                                               .label_smoothing = p->e,
                                               .gamma = p->gamma,
                                               .tau = p->tau,
                                               .desirable_weight = p->desirable,
                                               .undesirable_weight = p->undesirable,
                                               .nll_weight = p->nll_weight};
  if (!padded) a->segments = head_segments(k, each, n);
  if (!of_pairs(&s.c)) a->desirable = check_indices(k, "desirable", TIGON_I32, 1, &each, 0, 2);
  a->ref = in(k, "ref", each, p->ref);
  a->shift = in(k, "shift", p->shift_of_each ? s.c.items : 1, p->shift);
  a->denominator = in(k, "denominator", 1, p->denominator);
  a->dloss = in(k, "dloss", 1, o.dloss);
  a->loss = out(k, "loss", 1, true);
  a->logprob = out(k, "logprob", n, true);
  a->logps = out(k, "logps", each, p->outputs);
  a->pair_loss = out(k, "pair_loss", s.c.items, p->outputs);
  a->rewards = out(k, "rewards", each, p->outputs);
  a->accuracy = out(k, "accuracy", 1, p->outputs);
  a->margin = out(k, "margin", 1, p->outputs);
  return s;
}

static int64_t first_token(const run_state *s, int64_t i) {
  return s->a.segments.ndim ? (int64_t)check_value(&s->a.segments, i) : i * (s->h.rows / s->c.sequences);
}

/* Sums of sequences, with what they may be off by; what preference_terms.h reads, and its magnitudes. */
static void begin_bounds(run_state *s) {
  check *k = s->h.k;
  preference_call *c = &s->c;
  num *logps = check_list(k, "logps of the bound", (size_t)c->sequences * sizeof *logps);
  s->sequence = check_list(k, "tokens of the bound", (size_t)s->h.rows * sizeof *s->sequence);
  s->logprob_off = check_doubles(k, s->h.rows), s->logps_off = check_doubles(k, c->sequences);
  s->tokens = check_doubles(k, c->sequences);
  c->a = (tigon_preference_loss_fwd_args){
      .ref = s->a.ref, .labels = s->a.desirable, .shift = s->a.shift, .denominator = s->a.denominator};
  c->logps = logps, c->tokens = s->tokens, c->slope = check_doubles(k, c->sequences);
  preference_begin(c);
  for (int64_t i = 0; k->oracle && i < c->sequences; ++i) {
    num sum = {0};
    for (int64_t r = first_token(s, i); r < first_token(s, i + 1); ++r) {
      const row w = row_of(&s->h, r);
      s->sequence[r] = w.counts ? i : -1;
      if (!w.counts) continue;
      s->logprob_off[r] = 2 * w.shift;
      sum = (num){sum.v + w.logprob, sum.e + 2 * w.shift * 0x1p24 + fabs(w.logprob)};
      s->tokens[i] += 1;
    }
    logps[i] = made(sum.v, sum.e + fabs(sum.v));
    s->logps_off[i] = logps[i].e * 0x1p-24;
  }
}

/* The NLL's share of the loss's error and of a token's gradient. */
static double bound_nll(run_state *s) {
  double tokens = 0, off = 0;
  for (int64_t i = 0; i < s->c.items; ++i) tokens += s->tokens[i], off += s->logps_off[i] * 0x1p24;
  const double each = s->c.o.nll_weight / fmax(1, tokens);
  *s->c.loss += each * off;
  return each;
}

static void spread(run_state *s) {
  const double nll = s->o.loss.nll ? bound_nll(s) : 0;
  const double upstream = s->o.dloss ? fabs(check_value(&s->a.dloss, 0)) : 1;
  for (int64_t r = 0; r < s->h.rows; ++r) {
    const int64_t i = s->sequence[r];
    if (i < 0) continue;
    const row w = row_of(&s->h, r);
    const double slope = upstream * (s->c.slope[i] + (i < s->c.items ? nll : 0));
    spread_row(&s->h, &w, r, slope, 0);
    widen_row(&s->h, &w, r, (upstream * s->c.dlogps[i] + 4 * slope) * 0x1p-24);
  }
}

static void fwd(check *k) {
  run_state s = begin(k);
  tigon_fused_linear_preference_fwd_args *a = &s.a;
  const struct option *o = &s.o;
  double *old_dweight = check_doubles(k, s.h.vocab * s.h.width), *old_dbias = check_doubles(k, s.h.vocab);
  const tigon_dtype sums = check_dtype(k, !o->short_sums);
  const tigon_tensor dhidden = check_out(k, "dhidden", k->dtype, 2, (int64_t[]){s.h.rows, s.h.width});
  a->dhidden = head_view(&dhidden, is_padded(k, o) ? s.c.sequences : 0);
  if (!o->frozen)
    a->dweight = head_gradient(k, "dweight", sums, o->accumulate, 2, (int64_t[]){s.h.vocab, s.h.width}, old_dweight);
  if (o->bias) a->dbias = head_gradient(k, "dbias", sums, o->accumulate, 1, &s.h.vocab, old_dbias);
  begin_bounds(&s);
  if (k->oracle) bound_preference(&s.c);
  if (k->oracle) spread(&s);
  HEAD_CALL(k, o->least, tigon_fused_linear_preference_fwd_workspace, a);
  check_bound(k, &a->loss, 1, 1, s.c.loss);
  head_bound(k, &a->logprob, s.logprob_off);
  if (o->loss.outputs) {
    head_bound(k, &a->logps, s.logps_off);
    check_bound(k, &a->pair_loss, 1, 1, s.c.pair_loss);
    check_bound(k, &a->rewards, 1, 1, s.c.rewards);
    check_bound(k, &a->accuracy, 1, 1, s.c.accuracy);
    check_bound(k, &a->margin, 1, 1, s.c.margin);
  }
  bound_products(&s.h, &dhidden, &a->dweight, &a->dbias, old_dweight, old_dbias);
}

MUTANT(no_ref, preference_loss_fwd, m.ref = NULL)
MUTANT(all_count, preference_loss_fwd, m.mask.of.data = NULL)
MUTANT(sums_for_means, preference_loss_fwd, m.counts.data = NULL)
MUTANT(no_nll, preference_loss_fwd, m.nll_sequences = 0)
MUTANT(no_dloss, preference_loss_fwd, m.dloss = NULL)
MUTANT(loss_gradient, cross_entropy_bwd, m.grad_scale = 1)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
static const check_mutant wrong[] = {
    {"forgets the reference", no_ref},
    {"counts ignored tokens", all_count},
    {"takes sums for means", sums_for_means},
    {"forgets the NLL", no_nll},
    {"forgets the upstream gradient", no_dloss},
    {"has the gradient of a loss", loss_gradient},
    {"overwrites dweight between chunks", overwrite},
    {0},
};

/* tokens, width, vocabulary */
static const check_sizes own_sizes = {
    .of = {{4, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = ~0u,
};

static const bench_case timed = {
    .op = "fused_linear_preference", HEAD_CASE, .dims = bench_words, .option = {5}, .products = {3}};

const check_op tigon_check_fused_linear_preference_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
