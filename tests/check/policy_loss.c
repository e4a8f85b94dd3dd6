/* policy_loss. Options walk every kind at both levels, with and without what it may have. dims are sequences, and tokens of one on
 * average. */
#include <math.h>

#include "check/cases.h"
#include "check/internal.h"
#include "check/number.h"

static const struct option {
  tigon_policy_kind kind;
  bool sequence, old, ref, entropy, mask, denominator, outputs;
  int advantage, ratio; /* 1: of tokens; ratio 2: of sequences */
  bool bias;
  double eps_low, eps_high, delta, kl, entropy_weight;
  int64_t max_length;
} options[] = {
    {.kind = TIGON_POLICY_GRPO, .old = true, .mask = true, .outputs = true},
    {.kind = TIGON_POLICY_GRPO, .ref = true, .kl = 0.5, .outputs = true, .advantage = 1},
    {.kind = TIGON_POLICY_GRPO,
     .sequence = true,
     .old = true,
     .ref = true,
     .entropy = true,
     .mask = true,
     .outputs = true,
     .ratio = 1,
     .bias = true,
     .kl = 0.25,
     .entropy_weight = 0.125},
    {.kind = TIGON_POLICY_BNPO,
     .old = true,
     .ref = true,
     .mask = true,
     .outputs = true,
     .ratio = 2,
     .bias = true,
     .delta = 1.5,
     .kl = 2},
    {.kind = TIGON_POLICY_BNPO, .sequence = true, .old = true, .outputs = true, .advantage = 1, .delta = 1.0625},
    {.kind = TIGON_POLICY_DR_GRPO, .old = true, .mask = true, .outputs = true, .eps_high = 0.5, .max_length = 64},
    {.kind = TIGON_POLICY_DR_GRPO, .sequence = true, .old = true, .mask = true, .eps_low = 0.5},
    {.kind = TIGON_POLICY_DAPO,
     .old = true,
     .entropy = true,
     .mask = true,
     .denominator = true,
     .outputs = true,
     .eps_high = 0.28,
     .entropy_weight = -0.5},
    {.kind = TIGON_POLICY_DAPO,
     .sequence = true,
     .old = true,
     .ref = true,
     .mask = true,
     .outputs = true,
     .kl = 0.0625},
    {.kind = TIGON_POLICY_LUSPO, .old = true, .mask = true, .outputs = true},
    {.kind = TIGON_POLICY_LUSPO, .sequence = true, .old = true, .mask = true, .outputs = true, .ratio = 2},
    {.kind = TIGON_POLICY_CISPO, .old = true, .ref = true, .mask = true, .outputs = true, .ratio = 1, .kl = 1},
    {.kind = TIGON_POLICY_CISPO,
     .sequence = true,
     .old = true,
     .ref = true,
     .mask = true,
     .outputs = true,
     .bias = true,
     .eps_high = 1.25,
     .kl = 1},
    {.kind = TIGON_POLICY_SAPO, .old = true, .mask = true, .outputs = true, .ratio = 2},
    {.kind = TIGON_POLICY_SAPO, .sequence = true, .old = true, .mask = true, .outputs = true, .advantage = 1},
    {.kind = TIGON_POLICY_VESPO, .old = true, .mask = true, .outputs = true, .ratio = 2},
    {.kind = TIGON_POLICY_VESPO,
     .sequence = true,
     .old = true,
     .ref = true,
     .mask = true,
     .outputs = true,
     .ratio = 1,
     .advantage = 1,
     .bias = true,
     .kl = 0.5},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- a call ---- */

typedef struct call {
  check *k;
  struct option o;
  int64_t sequences, tokens;
  tigon_policy_loss_fwd_args a;
  double *loss, *token_loss, *dlogprob, *kl, *low, *high, *entropy, *ratio; /* magnitudes */
} call;

/* Tokens of a sequence: half, all or one and a half times of T, and every seventh has none. A timed batch is padded. */
static int64_t length_of(const check *k, int64_t s) {
  const int64_t t = k->dims[1];
  return k->timed ? t : s % 7 == 6 ? 0 : t + (s * 5 % 3 - 1) * (t / 2);
}

static tigon_tensor segments_of(check *k, int64_t sequences) {
  const int64_t count = sequences + 1;
  const tigon_tensor made = check_inout_dense(k, "segments", TIGON_I64, 1, &count, CHECK_UNIFORM);
  int64_t at = 0;
  for (int64_t s = 0; made.data && s <= sequences; ++s) {
    if (k->timed)
      (void)tigon_copy(k->context, (int64_t *)made.data + s, &at, sizeof at);
    else
      ((int64_t *)made.data)[s] = at;
    at += s < sequences ? length_of(k, s) : 0;
  }
  return made;
}

static tigon_tensor in(check *k, const char *name, int64_t n, bool there, check_fill fill) {
  return check_may_vector(k, name, TIGON_F32, n, fill, there);
}
static tigon_tensor out(check *k, const char *name, int64_t n, bool there) {
  return there ? check_out_vector(k, name, TIGON_F32, n) : (tigon_tensor){0};
}

static call begin(check *k) {
  const struct option o = options[k->option];
  call c = {.k = k, .o = o, .sequences = k->dims[0]};
  for (int64_t s = 0; s < c.sequences; ++s) c.tokens += length_of(k, s);
  const int64_t n = c.tokens, each = c.sequences;
  tigon_policy_loss_fwd_args *a = &c.a;
  /* rho k3 is 0 * Inf in f32 where l is -10^4, and Inf by f64's exponents. */
  const bool far = o.bias && o.sequence && k->fill == CHECK_OUTLIER;
  a->logprob = in(k, "logprob", n, true, far ? CHECK_HEAVY : k->fill);
  a->segments = segments_of(k, each);
  a->advantage = in(k, "advantage", o.advantage ? n : each, true, CHECK_UNIFORM);
  a->old = in(k, "old", n, o.old, CHECK_UNIFORM);
  a->ref = in(k, "ref", n, o.ref, CHECK_UNIFORM);
  a->entropy = in(k, "entropy", n, o.entropy, CHECK_UNIFORM);
  if (o.ratio) {
    const int64_t ratios = o.ratio == 1 ? n : each;
    a->ratio = check_inout_dense(k, "ratio", TIGON_F32, 1, &ratios, CHECK_UNIFORM);
    check_make_positive(k, &a->ratio);
  }
  if (o.mask) a->mask = check_indices(k, "mask", o.advantage ? TIGON_I64 : TIGON_I32, 1, &n, 0, 4);
  a->denominator = in(k, "denominator", 1, o.denominator, CHECK_UNIFORM);
  a->options = (tigon_policy_loss_options){.kind = o.kind,
                                           .sequence_level = o.sequence,
                                           .token_advantage = o.advantage == 1,
                                           .token_ratio = o.ratio == 1,
                                           .kl_bias_corrected = o.bias,
                                           .eps_low = o.eps_low,
                                           .eps_high = o.eps_high,
                                           .delta = o.delta,
                                           .kl_weight = o.kl,
                                           .entropy_weight = o.entropy_weight,
                                           .max_length = o.max_length};
  a->loss = out(k, "loss", 1, true);
  a->dlogprob = out(k, "dlogprob", n, true);
  a->dentropy = out(k, "dentropy", n, o.entropy);
  a->token_loss = out(k, "token_loss", n, o.outputs);
  a->kl = out(k, "kl", 1, o.outputs);
  a->clip_low = out(k, "clip_low", 1, o.outputs);
  a->clip_high = out(k, "clip_high", 1, o.outputs);
  a->mean_entropy = out(k, "mean_entropy", 1, o.outputs);
  a->mean_ratio = out(k, "mean_ratio", 1, o.outputs);
  c.loss = check_doubles(k, 1), c.kl = check_doubles(k, 1), c.low = check_doubles(k, 1), c.high = check_doubles(k, 1);
  c.entropy = check_doubles(k, 1), c.ratio = check_doubles(k, 1);
  c.token_loss = check_doubles(k, n), c.dlogprob = check_doubles(k, n);
  return c;
}

/* ---- what the kernels compute, with its error (number.h) ---- */

typedef struct sequence {
  int64_t index, begin, end;
  double tokens;
  num rho, w, weight;
} sequence;

static bool counts(const call *c, int64_t t) { return !c->o.mask || check_value(&c->a.mask, t) != 0; }

static num log_ratio(const call *c, int64_t t) {
  if (!c->o.old) return exactly(0);
  return less(exactly(check_value(&c->a.logprob, t)), exactly(check_value(&c->a.old, t)));
}
static num within(num x, double low, double high) { return (num){fmin(fmax(x.v, low), high), x.e}; }
static num log_of(const call *c, int64_t i) {
  const double v = log(fmin(fmax(check_value(&c->a.ratio, i), 1e-8), exp(20)));
  return made(v, (4 + check_calls(c->k, 1, 0)) * fabs(v) + 1); /* the limits are of f32 */
}

/* A sum in f64, which loses nothing. */
static num sum(num a, num b) { return made(a.v + b.v, a.e + b.e); }
/* An f64 as f32. */
static num stored(num x) { return made(x.v, x.e + fabs(x.v)); }

static double divisor(const call *c, double own, double all) {
  const double width = c->o.max_length ? (double)c->o.max_length : (double)c->tokens / (double)c->sequences;
  const bool of_tokens = c->o.kind == TIGON_POLICY_BNPO || c->o.kind == TIGON_POLICY_DAPO ||
                         c->o.kind == TIGON_POLICY_CISPO || c->o.kind == TIGON_POLICY_VESPO;
  const double d = c->o.denominator ? fmax(1, check_value(&c->a.denominator, 0))
                   : of_tokens      ? all
                                    : (double)c->sequences;
  if (c->o.kind == TIGON_POLICY_GRPO || c->o.kind == TIGON_POLICY_SAPO) return d * own;
  if (c->o.kind == TIGON_POLICY_DR_GRPO) return d * width;
  return c->o.kind == TIGON_POLICY_LUSPO && !c->o.sequence ? d * width / own : d;
}

static sequence sequence_at(const call *c, int64_t s, double all) {
  sequence q = {
      .index = s, .begin = (int64_t)check_value(&c->a.segments, s), .end = (int64_t)check_value(&c->a.segments, s + 1)};
  num of_rho = {0}, w = {0};
  for (int64_t t = q.begin; t < q.end; ++t) {
    if (!counts(c, t)) continue;
    q.tokens += 1;
    of_rho = sum(of_rho, log_ratio(c, t));
    w = sum(w, within(log_ratio(c, t), -20, 20));
    if (c->o.ratio == 1) w = sum(w, log_of(c, t));
  }
  if (c->o.ratio == 2) w = sum(w, log_of(c, s));
  if (q.tokens == 0) q.tokens = 1;
  q.rho = exponential(c->k, stored(made(of_rho.v / q.tokens, of_rho.e / q.tokens)));
  q.w = within(stored(w), log(1e-8), 20);
  q.weight = stored(exactly(1 / divisor(c, q.tokens, all)));
  return q;
}

/* A jump at `at` may be on either side of x. */
static bool jumps(num x, double at) { return fabs(x.v - at) <= x.e * 0x1p-24; }

typedef struct token {
  num loss, own, shared, k3, rho;
  bool low, high; /* may the metric be otherwise? */
} token;

static void clip_loss(const call *c, num rho, num a, num *f, num *slope) {
  const double low = (double)(1 - (float)(c->o.eps_low > 0 ? c->o.eps_low : 0.2));
  const double high = (double)(1 + (float)(c->o.eps_high > 0 ? c->o.eps_high : 0.2));
  const double delta = c->o.delta > 0 ? (double)(float)c->o.delta : (double)INFINITY;
  const num free = times(within(rho, -(double)INFINITY, delta), a), clipped = times(within(rho, low, high), a);
  const bool is_free = free.v <= clipped.v;
  const bool moves = is_free ? rho.v <= delta : rho.v >= low && rho.v <= high;
  const num all = times(rho, a);
  *f = made(is_free ? -free.v : -clipped.v, fmax(free.e, clipped.e));
  *slope = moves ? minus(all) : exactly(0);
  if (jumps(rho, delta) || jumps(rho, low) || jumps(rho, high)) slope->e = 0x1p24 * fabs(all.v) + all.e;
}

static num expm1_of(const check *k, num x) {
  const double v = expm1(x.v);
  return made(v, (4 + check_calls(k, 1, 0)) * fabs(v) + x.e * exp(x.v) * growth(x));
}

static token token_at(const call *c, const sequence *q, int64_t t) {
  const check *k = c->k;
  const struct option *o = &c->o;
  const num l = exactly(check_value(&c->a.logprob, t));
  const num a = exactly(check_value(&c->a.advantage, o->advantage ? t : q->index)), beta = exactly(o->kl);
  const num d = o->ref ? less(exactly(check_value(&c->a.ref, t)), l) : exactly(0), grown = expm1_of(k, d);
  const bool vespo = o->kind == TIGON_POLICY_VESPO, together = o->sequence && !vespo;
  token at = {.rho = together ? q->rho : o->old ? exponential(k, log_ratio(c, t)) : exactly(1), .k3 = less(grown, d)};
  const double high = o->eps_high > 0 ? o->eps_high : o->kind == TIGON_POLICY_CISPO ? 5 : 0.2;
  num slope = {0};
  if (vespo) {
    const double by[2] = {3, 2}; /* k; lambda is the other one */
    const num lambda = exactly(by[a.v < 0]), w = times(exactly(by[a.v >= 0]), q->w);
    slope = minus(times(exponential(k, less(plus(lambda, w), times(lambda, exponential(k, q->w)))), a));
    at.loss = times(slope, l);
  } else if (o->kind == TIGON_POLICY_CISPO) {
    slope = minus(times(within(at.rho, -(double)INFINITY, high), a));
    at.loss = times(slope, l);
    at.high = jumps(at.rho, high);
  } else if (o->kind == TIGON_POLICY_SAPO) {
    const double tau = a.v > 0 ? 1 : (double)1.05f;
    const num x = times(exactly(tau), less(at.rho, exactly(1)));
    const num bend = times(logistic(k, x), logistic(k, minus(x)));
    at.loss = times(times(over(k, exactly(-4), tau), logistic(k, x)), a);
    slope = bend.v == 0 ? exactly(0) : times(times(exactly(-4), times(bend, at.rho)), a);
  } else {
    clip_loss(c, at.rho, a, &at.loss, &slope);
    at.low = jumps(at.rho, (double)(1 - (float)(o->eps_low > 0 ? o->eps_low : 0.2)));
    at.high = jumps(at.rho, (double)(1 + (float)high));
  }
  if (o->ratio && !vespo) {
    const num by = exactly(check_value(&c->a.ratio, o->ratio == 1 ? t : q->index));
    at.loss = times(at.loss, by);
    slope = times(slope, by);
  }
  *(together && o->kind != TIGON_POLICY_CISPO ? &at.shared : &at.own) = slope;
  if (o->kl == 0) return at;
  const num by = o->bias ? times(beta, at.rho) : beta;
  at.loss = plus(at.loss, times(by, at.k3));
  at.own = less(at.own, times(by, o->bias && !together ? d : grown));
  if (o->bias && together) at.shared = plus(at.shared, times(by, at.k3));
  return at;
}

static void bound(const call *c) {
  double all = 0;
  for (int64_t t = 0; t < c->tokens; ++t) all += counts(c, t);
  if (all == 0) all = 1;
  for (int64_t s = 0; s < c->sequences; ++s) {
    const sequence q = sequence_at(c, s, all);
    num shared = {0};
    for (int64_t t = q.begin; t < q.end; ++t) {
      if (!counts(c, t)) continue;
      const token at = token_at(c, &q, t);
      c->token_loss[t] = at.loss.e;
      c->dlogprob[t] = times(q.weight, at.own).e;
      shared = sum(shared, at.shared);
      *c->loss += times(q.weight, at.loss).e;
      *c->kl += at.k3.e / all;
      *c->ratio += at.rho.e / all;
      *c->low += at.low ? 0x1p24 / all : 0;
      *c->high += at.high ? 0x1p24 / all : 0;
      if (c->o.entropy) *c->entropy += fabs(check_value(&c->a.entropy, t)) / all;
    }
    const num each = times(q.weight, stored(made(shared.v / q.tokens, shared.e / q.tokens)));
    for (int64_t t = q.begin; c->o.sequence && t < q.end; ++t) /* both terms are rounded, and their sum is */
      if (counts(c, t)) c->dlogprob[t] += each.e + 2 * fabs(each.v);
  }
  *c->loss += 0x1p-20 * fabs(c->o.entropy_weight) * *c->entropy;
}

static void fwd(check *k) {
  const call c = begin(k);
  const tigon_policy_loss_fwd_args *a = &c.a;
  if (k->oracle) bound(&c);
  check_call(k, a);
  check_bound(k, &a->loss, 1, 1, c.loss);
  check_bound(k, &a->dlogprob, 1, 1, c.dlogprob);
  if (c.o.entropy) check_bound(k, &a->dentropy, 1, 0, NULL);
  if (!c.o.outputs) return;
  check_bound(k, &a->token_loss, 0, 1, c.token_loss);
  check_bound(k, &a->kl, 1, 1, c.kl);
  check_bound(k, &a->clip_low, 1, 1, c.low);
  check_bound(k, &a->clip_high, 1, 1, c.high);
  check_bound(k, &a->mean_entropy, 1, 0x1p-20, c.entropy); /* in f64 */
  check_bound(k, &a->mean_ratio, 1, 1, c.ratio);
}

MUTANT(no_mask, policy_loss_fwd, m.mask.data = NULL)
MUTANT(no_old, policy_loss_fwd, m.old = NULL)
MUTANT(no_kl, policy_loss_fwd, m.kl_weight = 0)
MUTANT(no_bias, policy_loss_fwd, m.kl_bias_corrected = false)
MUTANT(no_delta, policy_loss_fwd, m.delta = INFINITY)
MUTANT(no_ratio, policy_loss_fwd, m.ratio = NULL)
MUTANT(no_entropy, policy_loss_fwd, m.entropy_weight = 0)
MUTANT(no_denominator, policy_loss_fwd, m.denominator = NULL)
MUTANT(no_level, policy_loss_fwd, m.sequence_level = false)
MUTANT(one_tau, policy_loss_fwd, m.tau[0] = m.tau[1])
MUTANT(one_lambda, policy_loss_fwd, m.lambda[0] = m.lambda[1])
MUTANT(one_side, policy_loss_fwd, m.eps_high = m.eps_low)
MUTANT(drop_sequence, policy_loss_fwd, m.sequences -= m.sequences > 1)
static const check_mutant wrong[] = {
    {"counts masked tokens", no_mask},
    {"forgets the old policy", no_old},
    {"forgets the KL divergence", no_kl},
    {"forgets its correction", no_bias},
    {"forgets delta", no_delta},
    {"forgets the sampler's ratio", no_ratio},
    {"forgets the entropy", no_entropy},
    {"forgets the denominator", no_denominator},
    {"takes sequences for tokens", no_level},
    {"has one tau", one_tau},
    {"has one lambda", one_lambda},
    {"clips both sides alike", one_side},
    {"drops the last sequence", drop_sequence},
    {0},
};

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t sizes[][2] = {{1, 1},   {2, 3},    {7, tile}, {9, 33},   {16, 20},   {3, 1025},
                              {40, 31}, {2, 3000}, {300, 7},  {33, 257}, {1, 140001}};
  if (index >= (int)(sizeof sizes / sizeof *sizes)) return false;
  dims[0] = sizes[index][0], dims[1] = sizes[index][1];
  return true;
}

/* Sequences and their tokens, which are added up: none of them is apart. */
static const check_sizes own_sizes = {
    .of = {{3, 11}, {31, 131}, {300, 5}}, .walks = {{3, CHECK_N}, {CHECK_N, 3}}, .coupled = ~0u};

static const bench_case timed = {
    .op = "policy_loss", .shape_note = "sequences x tokens", .rows_f32 = 64, .rows_16bit = 64, .cols = 1024};

const check_op tigon_check_policy_loss_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
