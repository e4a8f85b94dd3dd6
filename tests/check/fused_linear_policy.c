/* fused_linear_policy. dims are tokens, width, vocab. Options walk kinds at both levels, padded and packed batches, the workspace, the
 * dtype of dweight and what may be absent. That chunks and groups do not matter is held bit by bit by tests/grad/fused_linear_policy.c.
 * Bounds: a token's log-probability and entropy are off as head_rows.h says, the loss's gradients follow by policy_terms.h. */
#include "check/head_rows.h"
#include "check/policy_terms.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {{1, 1, 1}, {3, 5, t + 1}, {8, t, 33}, {4, 2 * t + 1, 2 * t}, {130, 7, 40}, {64, 57, 257}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d];
  return true;
}

static const struct option {
  policy_option policy;
  bool padded, least, short_sums, accumulate, bias, capped, wide, dloss, frozen; /* frozen: no dweight */
} options[] = {
    {.policy = {.kind = TIGON_POLICY_GRPO, .old = true, .outputs = true}, .bias = true},
    {.policy = {.kind = TIGON_POLICY_DAPO,
                .old = true,
                .entropy = true,
                .mask = true,
                .outputs = true,
                .denominator = true,
                .entropy_weight = 0.25},
     .least = true,
     .capped = true,
     .bias = true,
     .short_sums = true,
     .dloss = true},
    {.policy = {.kind = TIGON_POLICY_CISPO, .ref = true, .mask = true, .outputs = true, .kl = 0.5, .ratio = 1},
     .padded = true,
     .least = true,
     .accumulate = true},
    {.policy = {.kind = TIGON_POLICY_GRPO, .sequence = true, .old = true, .mask = true, .outputs = true},
     .padded = true,
     .short_sums = true,
     .bias = true},
    {.policy = {.kind = TIGON_POLICY_VESPO, .old = true, .mask = true, .outputs = true, .ratio = 2},
     .least = true,
     .dloss = true,
     .frozen = true},
    {.policy = {.kind = TIGON_POLICY_GRPO, .old = true},
     .padded = true}, /* which the benchmark times, as the next two */
    {.policy = {.kind = TIGON_POLICY_GRPO, .old = true}, .padded = true, .short_sums = true},
    {.policy = {.kind = TIGON_POLICY_GRPO, .old = true, .sequence = true}, .padded = true},
    {.policy = {.kind = TIGON_POLICY_SAPO,
                .sequence = true,
                .old = true,
                .entropy = true,
                .advantage = 1,
                .outputs = true,
                .entropy_weight = -0.5},
     .least = true,
     .short_sums = true,
     .accumulate = true,
     .wide = true,
     .capped = true},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* Sequences of a batch: of a padded one the most that divide it. */
static int64_t sequences_of(const check *k, bool padded) {
  const int64_t rows = k->dims[0];
  if (k->timed) return rows % 1024 == 0 ? rows / 1024 : 1;
  if (!padded) return rows / 5 + 1;
  return rows % 3 == 0 ? 3 : rows % 2 == 0 ? 2 : 1;
}

static tigon_tensor tokens(check *k, const char *name, int64_t n, bool there) {
  return check_may_vector(k, name, TIGON_F32, n, CHECK_UNIFORM, there);
}
static tigon_tensor out(check *k, const char *name, int64_t n, bool there) {
  return there ? check_out_vector(k, name, TIGON_F32, n) : (tigon_tensor){0};
}

typedef struct run_state {
  struct option o;
  head_case h;
  policy_call c;
  tigon_fused_linear_policy_fwd_args a;
  num *logprob, *entropy;
  double *logprob_off, *entropy_off;
} run_state;

static run_state begin(check *k) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_AS_WEIGHT)) o.short_sums = true;
  const policy_option *p = &o.policy;
  const head_case head = {.ignores = p->mask, .capped = o.capped, .wide = o.wide};
  run_state s = {.o = o, .h = head_begin(k, o.bias, head)};
  const int64_t n = s.h.rows, each = sequences_of(k, o.padded);
  s.c = (policy_call){.k = k, .o = *p, .sequences = each, .tokens = n, .length = each ? n / each : 0};
  tigon_fused_linear_policy_fwd_args *a = &s.a;
  *a = (tigon_fused_linear_policy_fwd_args){.hidden = head_view(&s.h.hidden, o.padded ? each : 0),
                                            .weight = s.h.weight,
                                            .labels = s.h.labels,
                                            .bias = s.h.bias,
                                            .has_ignore_index = p->mask,
                                            .ignore_index = IGNORED,
                                            .softcap = o.capped ? cap : 0,
                                            .temperature = o.capped ? temperature : 0,
                                            .logits_in_f32 = o.wide,
                                            .accumulate_dweight = o.accumulate};
  a->options = (tigon_policy_loss_options){.kind = p->kind,
                                           .sequence_level = p->sequence,
                                           .token_advantage = p->advantage == 1,
                                           .token_ratio = p->ratio == 1,
                                           .kl_weight = p->kl,
                                           .entropy_weight = p->entropy_weight};
  if (!o.padded) a->segments = head_segments(k, each, n);
  a->advantage = tokens(k, "advantage", p->advantage ? n : each, true);
  /* Timed, the policy is its own old one: by drawn numbers the ratios would be near 0, and all gradients denormal. */
  a->old = tokens(k, "old", n, p->old && !k->timed);
  a->ref = tokens(k, "ref", n, p->ref);
  a->denominator = tokens(k, "denominator", 1, p->denominator);
  a->dloss = tokens(k, "dloss", 1, o.dloss);
  if (p->ratio) {
    const int64_t ratios = p->ratio == 1 ? n : each;
    a->ratio = check_inout_dense(k, "ratio", TIGON_F32, 1, &ratios, CHECK_UNIFORM);
    check_make_positive(k, &a->ratio);
  }
  a->loss = out(k, "loss", 1, true);
  a->logprob = out(k, "logprob", n, true);
  a->entropy = out(k, "entropy", n, p->entropy);
  a->token_loss = out(k, "token_loss", n, p->outputs);
  a->kl = out(k, "kl", 1, p->outputs);
  a->clip_low = out(k, "clip_low", 1, p->outputs);
  a->clip_high = out(k, "clip_high", 1, p->outputs);
  a->mean_entropy = out(k, "mean_entropy", 1, p->outputs && p->entropy);
  a->mean_ratio = out(k, "mean_ratio", 1, p->outputs);
  return s;
}

/* What policy_terms.h reads, and its magnitudes. */
static void begin_bounds(run_state *s) {
  check *k = s->h.k;
  policy_call *c = &s->c;
  const int64_t n = s->h.rows;
  num *logprob = check_list(k, "logprob of the bound", (size_t)n * sizeof *logprob);
  num *entropy = check_list(k, "entropy of the bound", (size_t)n * sizeof *entropy);
  bool *counted = check_list(k, "tokens of the bound", (size_t)n * sizeof *counted);
  s->logprob = logprob, s->entropy = entropy;
  s->logprob_off = check_doubles(k, n), s->entropy_off = check_doubles(k, n);
  c->a = (tigon_policy_loss_fwd_args){.segments = s->a.segments,
                                      .advantage = s->a.advantage,
                                      .old = s->a.old,
                                      .ref = s->a.ref,
                                      .ratio = s->a.ratio,
                                      .denominator = s->a.denominator};
  c->logprob = logprob, c->entropy = s->o.policy.entropy ? entropy : NULL, c->counted = counted;
  c->loss = check_doubles(k, 1), c->kl = check_doubles(k, 1), c->low = check_doubles(k, 1);
  c->high = check_doubles(k, 1), c->entropy_off = check_doubles(k, 1), c->ratio = check_doubles(k, 1);
  c->token_loss = check_doubles(k, n), c->dlogprob = check_doubles(k, n), c->slope = check_doubles(k, n);
  for (int64_t r = 0; k->oracle && r < n; ++r) {
    const row w = row_of(&s->h, r);
    counted[r] = w.counts;
    if (!w.counts) continue;
    logprob[r] = made(w.logprob, 2 * w.shift * 0x1p24 + fabs(w.logprob));
    entropy[r] = made(w.entropy, w.entropy_off * 0x1p24 + fabs(w.entropy));
    s->logprob_off[r] = 2 * w.shift;
    s->entropy_off[r] = w.entropy_off;
  }
}

/* By the upstream gradients and what these may be off by. */
static void spread(run_state *s) {
  check *k = s->h.k;
  double counted = 0;
  for (int64_t r = 0; r < s->h.rows; ++r) counted += s->c.counted[r];
  const double upstream = s->o.dloss ? fabs(check_value(&s->a.dloss, 0)) : 1;
  const double dentropy = upstream * fabs(s->o.policy.entropy_weight) / fmax(1, counted);
  for (int64_t r = 0; k->oracle && r < s->h.rows; ++r) {
    const row w = row_of(&s->h, r);
    spread_row(&s->h, &w, r, upstream * s->c.slope[r], dentropy);
    widen_row(&s->h, &w, r, upstream * (s->c.dlogprob[r] + 2 * s->c.slope[r]) * 0x1p-24);
  }
}

static void fwd(check *k) {
  run_state s = begin(k);
  tigon_fused_linear_policy_fwd_args *a = &s.a;
  const struct option *o = &s.o;
  double *old_dweight = check_doubles(k, s.h.vocab * s.h.width), *old_dbias = check_doubles(k, s.h.vocab);
  const tigon_dtype sums = check_dtype(k, !o->short_sums);
  const tigon_tensor dhidden = check_out(k, "dhidden", k->dtype, 2, (int64_t[]){s.h.rows, s.h.width});
  a->dhidden = head_view(&dhidden, o->padded ? s.c.sequences : 0);
  if (!o->frozen)
    a->dweight = head_gradient(k, "dweight", sums, o->accumulate, 2, (int64_t[]){s.h.vocab, s.h.width}, old_dweight);
  if (o->bias) a->dbias = head_gradient(k, "dbias", sums, o->accumulate, 1, &s.h.vocab, old_dbias);
  begin_bounds(&s);
  if (k->oracle) bound_policy(&s.c);
  if (k->oracle) spread(&s);
  HEAD_CALL(k, o->least, tigon_fused_linear_policy_fwd_workspace, a);
  check_bound(k, &a->loss, 1, 1, s.c.loss);
  head_bound(k, &a->logprob, s.logprob_off);
  head_bound(k, &a->entropy, s.entropy_off);
  if (o->policy.outputs) {
    check_bound(k, &a->token_loss, 1, 1, s.c.token_loss);
    check_bound(k, &a->kl, 1, 1, s.c.kl);
    check_bound(k, &a->clip_low, 1, 1, s.c.low);
    check_bound(k, &a->clip_high, 1, 1, s.c.high);
    check_bound(k, &a->mean_ratio, 1, 1, s.c.ratio);
    if (o->policy.entropy) check_bound(k, &a->mean_entropy, 1, 0x1p-20, s.c.entropy_off);
  }
  bound_products(&s.h, &dhidden, &a->dweight, &a->dbias, old_dweight, old_dbias);
}

MUTANT(no_old, policy_loss_fwd, m.old = NULL)
MUTANT(all_count, policy_loss_fwd, m.mask.of.data = NULL)
MUTANT(no_dloss, policy_loss_fwd, m.dloss = NULL)
MUTANT(one_sequence, policy_loss_fwd, if (!m.segments.data) m.length *= m.sequences;
       if (!m.segments.data) m.sequences = 1)
MUTANT(loss_gradient, cross_entropy_bwd, m.grad_scale = 1)
MUTANT(no_dentropy, cross_entropy_bwd, m.entropy_scale = 0)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
static const check_mutant wrong[] = {
    {"forgets the old policy", no_old},
    {"counts ignored tokens", all_count},
    {"forgets the upstream gradient", no_dloss},
    {"takes a padded batch for one sequence", one_sequence},
    {"has the gradient of a loss", loss_gradient},
    {"forgets the entropy's gradient", no_dentropy},
    {"overwrites dweight between chunks", overwrite},
    {0},
};

/* tokens, width, vocabulary */
static const check_sizes own_sizes = {
    .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = ~0u,
};

static const bench_case timed = {
    .op = "fused_linear_policy", HEAD_CASE, .dims = bench_words, .option = {5}, .products = {3}};

const check_op tigon_check_fused_linear_policy_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
