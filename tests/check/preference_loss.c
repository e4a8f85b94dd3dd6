/* preference_loss. Options walk every kind, with and without what it may have. dims[0] is the number of pairs or sequences. */
#include <math.h>

#include "check/cases.h"
#include "check/number.h"

static const struct option {
  tigon_preference_kind kind;
  tigon_dtype counts; /* TIGON_DTYPE_NONE: there are none */
  bool ref, shift, denominator, nll, outputs;
  double beta, e, gamma, tau, desirable, undesirable, nll_weight;
} options[] = {
    {.kind = TIGON_PREFERENCE_SIGMOID, .ref = true, .outputs = true},
    {.kind = TIGON_PREFERENCE_SIGMOID,
     .counts = TIGON_I64,
     .nll = true,
     .outputs = true,
     .beta = 2,
     .e = 0.125,
     .gamma = 0.5},
    {.kind = TIGON_PREFERENCE_HINGE, .ref = true, .denominator = true, .outputs = true, .beta = 0.75, .gamma = -0.25},
    {.kind = TIGON_PREFERENCE_IPO, .counts = TIGON_I32, .ref = true, .outputs = true},
    {.kind = TIGON_PREFERENCE_EXO_PAIR, .ref = true, .outputs = true, .beta = 1, .gamma = 0.5},
    {.kind = TIGON_PREFERENCE_EXO_PAIR, .outputs = true, .beta = 3, .e = 0.25},
    {.kind = TIGON_PREFERENCE_NCA_PAIR, .ref = true, .outputs = true, .beta = 0.5},
    {.kind = TIGON_PREFERENCE_ROBUST, .ref = true, .outputs = true, .beta = 0.5, .e = 0.375},
    {.kind = TIGON_PREFERENCE_BCO_PAIR, .ref = true, .shift = true, .outputs = true, .beta = 0.5},
    {.kind = TIGON_PREFERENCE_BCO_PAIR, .nll = true, .nll_weight = 0.25},
    {.kind = TIGON_PREFERENCE_SPPO_HARD, .ref = true, .outputs = true},
    {.kind = TIGON_PREFERENCE_APO_ZERO, .ref = true, .outputs = true},
    {.kind = TIGON_PREFERENCE_APO_DOWN, .ref = true, .outputs = true, .gamma = 0.125},
    {.kind = TIGON_PREFERENCE_DISCOPOP, .ref = true, .outputs = true, .beta = 0.0625},
    {.kind = TIGON_PREFERENCE_DISCOPOP, .outputs = true, .beta = 1, .tau = 1},
    {.kind = TIGON_PREFERENCE_ORPO, .counts = TIGON_I64, .nll = true, .outputs = true},
    {.kind = TIGON_PREFERENCE_KTO, .ref = true, .shift = true, .outputs = true, .desirable = 1.5, .undesirable = 0.75},
    {.kind = TIGON_PREFERENCE_KTO, .counts = TIGON_I32, .denominator = true, .outputs = true, .beta = 4},
    {.kind = TIGON_PREFERENCE_BCO, .ref = true, .shift = true, .outputs = true, .undesirable = 2},
    {.kind = TIGON_PREFERENCE_ROBUST, .denominator = true},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- the kinds, by the rewards a and b, as the kernels compute them ---- */

typedef struct terms {
  num loss, chosen, rejected;
} terms;

static terms of_difference(num loss, num slope) { return (terms){loss, slope, minus(slope)}; }

static terms sigmoid(const check *k, num h, double down, double up) {
  const num zero = {0}, loss = times(made(down, 4), soft(k, minus(h)));
  return of_difference(
      plus(loss, up != 0 ? times(made(up, 4 * fabs(up)), soft(k, h)) : zero),
      less(times(made(up, 4 * fabs(up)), logistic(k, h)), times(made(down, 4), logistic(k, minus(h)))));
}

static terms exo(const check *k, num h, double e) {
  const num log_e = made(log(e), 4 * fabs(log(e))), log_rest = made(log1p(-e), 4 * fabs(log1p(-e)));
  const num s = logistic(k, h), rest = logistic(k, minus(h));
  const num of_s = times(s, less(minus(soft(k, minus(h))), log_rest));
  return of_difference(plus(of_s, times(rest, less(minus(soft(k, h)), log_e))),
                       times(times(s, rest), less(h, less(log_rest, log_e))));
}

static terms discopop(const check *k, num h, double tau) {
  const num t = over(k, h, tau), m = logistic(k, t), rest = logistic(k, minus(t)), of_h = soft(k, minus(h));
  const num mixed = exponential(k, less(minus(h), soft(k, minus(t))));
  const num slope = less(minus(times(logistic(k, minus(h)), rest)), mixed);
  return of_difference(plus(times(of_h, rest), mixed),
                       plus(slope, over(k, times(rest, less(mixed, times(m, of_h))), tau)));
}

/* 1 - e^l of a mean l, and its log. */
static num rest_of(num l) { return made(-expm1(l.v), l.e * exp(l.v) + 4 * -expm1(l.v)); }
static num log_rest_of(num l) {
  const double q = -expm1(l.v);
  return made(log(q), l.e * exp(l.v) / q + 4 + 4 * fabs(log(q)));
}
static num over_num(const check *k, num a, num b) {
  const num by = over(k, a, b.v);
  return made(by.v, by.e + fabs(by.v) * b.e / b.v);
}

/* About o = 0 either way of the chosen derivative may be taken. */
static terms orpo(const check *k, num a, bool counts_a, num b, bool counts_b, double beta) {
  const num zero = {0}, odds_b = counts_b ? less(b, log_rest_of(b)) : zero;
  const num o = less(counts_a ? less(a, log_rest_of(a)) : zero, odds_b), wrong = logistic(k, minus(o));
  const num far = times(logistic(k, o), exponential(k, less(odds_b, a))), near = over_num(k, wrong, rest_of(a));
  num by_a = o.v > 0 ? far : near;
  if (fabs(o.v) < 1) by_a.e = fmax(far.e, near.e);
  return (terms){times(exactly(beta), soft(k, minus(o))), counts_a ? minus(by_a) : zero,
                 counts_b ? over_num(k, wrong, rest_of(b)) : zero};
}

static num half_of(num x) { return made(x.v / 2, x.e / 2); }
static num slope_of(const check *k, num x) { return times(logistic(k, x), logistic(k, minus(x))); }

static terms of_pair(const check *k, const struct option *o, num a, num b, double shift) {
  const num h = less(less(a, b), exactly(o->gamma)), no = {0};
  const double e = o->e > 0 ? o->e : o->kind == TIGON_PREFERENCE_EXO_PAIR ? (double)1e-3f : 0;
  switch (o->kind) {
    case TIGON_PREFERENCE_HINGE: {
      const bool either = fabs(h.v - 1) <= h.e * 0x1p-24; /* side of the corner */
      const double slope = h.v >= 1 ? 0 : h.v < 1 ? -1 : h.v;
      return of_difference((num){h.v >= 1 ? 0 : 1 - h.v, h.e + fabs(1 - h.v)}, (num){slope, either ? 0x1p24 : 0});
    }
    case TIGON_PREFERENCE_IPO: {
      const num far = over(k, less(h, exactly(0.5)), o->beta);
      return of_difference(times(far, far), over(k, times(exactly(2), far), o->beta));
    }
    case TIGON_PREFERENCE_EXO_PAIR: return exo(k, h, e);
    case TIGON_PREFERENCE_NCA_PAIR:
      return (terms){plus(plus(soft(k, minus(a)), half_of(soft(k, a))), half_of(soft(k, b))),
                     less(half_of(logistic(k, a)), logistic(k, minus(a))), half_of(logistic(k, b))};
    case TIGON_PREFERENCE_ROBUST: return sigmoid(k, h, (1 - e) / (1 - 2 * e), -e / (1 - 2 * e));
    case TIGON_PREFERENCE_BCO_PAIR: {
      const num up = less(exactly(shift), a), down = less(b, exactly(shift));
      return (terms){plus(soft(k, up), soft(k, down)), minus(logistic(k, up)), logistic(k, down)};
    }
    case TIGON_PREFERENCE_SPPO_HARD: {
      const num up = over(k, less(a, exactly(0.5)), o->beta), down = over(k, plus(b, exactly(0.5)), o->beta);
      return (terms){plus(times(up, up), times(down, down)), over(k, times(exactly(2), up), o->beta),
                     over(k, times(exactly(2), down), o->beta)};
    }
    case TIGON_PREFERENCE_APO_ZERO:
      return (terms){plus(logistic(k, minus(a)), logistic(k, b)), minus(slope_of(k, a)), slope_of(k, b)};
    case TIGON_PREFERENCE_APO_DOWN:
      return (terms){plus(logistic(k, a), logistic(k, minus(h))), less(slope_of(k, a), slope_of(k, h)), slope_of(k, h)};
    case TIGON_PREFERENCE_DISCOPOP: return discopop(k, h, o->tau);
    case TIGON_PREFERENCE_SIGMOID: return sigmoid(k, h, 1 - e, e);
    default: return (terms){no, no, no};
  }
}

static terms of_one(const check *k, const struct option *o, num l, double y, double shift) {
  const num no = {0}, weight = exactly(y > 0 ? o->desirable : o->undesirable), beta = exactly(o->beta);
  if (o->kind == TIGON_PREFERENCE_KTO) {
    const num x = times(times(exactly(y), beta), less(l, exactly(shift))), slope = slope_of(k, x);
    return (terms){times(weight, logistic(k, minus(x))), times(exactly(-y), times(weight, slope)), no};
  }
  const num x = times(exactly(y), less(times(beta, l), exactly(shift)));
  return (terms){times(weight, soft(k, minus(x))), times(exactly(-y), times(weight, logistic(k, minus(x)))), no};
}

/* ---- a call ---- */

typedef struct call {
  check *k;
  struct option o; /* with the numbers that 0 stands for, as f32 has them */
  int64_t items, sequences;
  tigon_preference_loss_fwd_args a;
  double *loss, *pair_loss, *rewards, *dlogps, *accuracy, *margin; /* magnitudes */
} call;

static double f32_or(double given, double otherwise) { return (double)(float)(given != 0 ? given : otherwise); }
static bool of_pairs(const call *c) { return c->o.kind < TIGON_PREFERENCE_KTO; }

static tigon_tensor counts_of(check *k, const char *name, tigon_dtype dtype, int64_t n) {
  return check_indices(k, name, dtype, 1, &n, -1, 40); /* some have no token */
}

/* Below 0, and no mean so near that 1 / (1 - e^l) overflows. */
static tigon_tensor orpo_logps(check *k, int64_t n) {
  const tigon_tensor made = check_inout_dense(k, "logps", TIGON_F32, 1, &n, k->fill);
  for (int64_t s = 0; !k->timed && s < n; ++s) ((float *)made.data)[s] = -fabsf(((float *)made.data)[s]) - 0x1p-20f;
  return made;
}

static call begin(check *k) {
  const struct option o = options[k->option];
  call c = {.k = k, .o = o, .items = k->dims[0]};
  c.sequences = of_pairs(&c) ? 2 * c.items : c.items;
  const int64_t n = c.sequences, nll = c.items / 2 + 1;
  tigon_preference_loss_fwd_args *a = &c.a;
  a->logps = o.kind == TIGON_PREFERENCE_ORPO ? orpo_logps(k, n) : check_in_vector(k, "logps", TIGON_F32, n, k->fill);
  if (o.ref) a->ref = check_in_vector(k, "ref", TIGON_F32, n, CHECK_UNIFORM);
  if (o.counts) a->counts = counts_of(k, "counts", o.counts, n);
  if (!of_pairs(&c)) a->labels = check_indices(k, "labels", o.counts ? TIGON_I64 : TIGON_I32, 1, &n, 0, 2);
  if (o.shift) a->shift = check_in_vector(k, "shift", TIGON_F32, 1, CHECK_UNIFORM);
  if (o.denominator) a->denominator = check_in_vector(k, "denominator", TIGON_F32, 1, CHECK_UNIFORM);
  if (o.nll) a->nll_logps = check_in_vector(k, "nll_logps", TIGON_F32, nll, CHECK_UNIFORM);
  if (o.nll) a->nll_counts = counts_of(k, "nll_counts", o.counts == TIGON_I64 ? TIGON_I32 : TIGON_I64, nll);
  a->options = (tigon_preference_loss_options){.kind = o.kind,
                                               .beta = o.beta,
                                               .label_smoothing = o.e,
                                               .gamma = o.gamma,
                                               .tau = o.tau,
                                               .desirable_weight = o.desirable,
                                               .undesirable_weight = o.undesirable,
                                               .nll_weight = o.nll_weight};
  a->loss = check_out_vector(k, "loss", TIGON_F32, 1);
  a->dlogps = check_out_vector(k, "dlogps", TIGON_F32, n);
  if (o.nll) a->dnll_logps = check_out_vector(k, "dnll_logps", TIGON_F32, nll);
  if (o.outputs) {
    a->pair_loss = check_out_vector(k, "pair_loss", TIGON_F32, c.items);
    a->rewards = check_out_vector(k, "rewards", TIGON_F32, n);
    a->accuracy = check_out_vector(k, "accuracy", TIGON_F32, 1);
    a->margin = check_out_vector(k, "margin", TIGON_F32, 1);
  }
  c.o.beta = f32_or(o.beta, 0.1), c.o.tau = f32_or(o.tau, 0.05), c.o.nll_weight = f32_or(o.nll_weight, 1);
  c.o.desirable = f32_or(o.desirable, 1), c.o.undesirable = f32_or(o.undesirable, 1);
  c.loss = check_doubles(k, 1), c.accuracy = check_doubles(k, 1), c.margin = check_doubles(k, 1);
  c.pair_loss = check_doubles(k, c.items), c.rewards = check_doubles(k, n), c.dlogps = check_doubles(k, n);
  return c;
}

typedef struct sequence {
  num l, reward;
  double count; /* 0: it has no token */
} sequence;

static sequence sequence_at(const call *c, int64_t s) {
  sequence at = {.count = 1};
  if (c->o.counts) at.count = fmax(0, check_value(&c->a.counts, s));
  const num ref = exactly(c->o.ref ? check_value(&c->a.ref, s) : 0);
  if (at.count > 0) at.l = over(c->k, less(exactly(check_value(&c->a.logps, s)), ref), at.count);
  at.reward = times(exactly(c->o.beta), at.l);
  return at;
}

static void bound_sequence(const call *c, int64_t s, const sequence *at, num derivative, num scale) {
  c->rewards[s] = at->reward.e;
  if (at->count > 0) c->dlogps[s] = over(c->k, times(derivative, times(exactly(c->o.beta), scale)), at->count).e;
}

/* Are two rewards so near that f32 may order them otherwise? */
static bool undecided(num a, num b) { return fabs(a.v - b.v) <= (a.e + b.e) * 0x1p-24; }

static void bound(const call *c) {
  const double shift = c->o.shift ? check_value(&c->a.shift, 0) : 0;
  const double d = c->o.denominator ? check_value(&c->a.denominator, 0) : (double)c->items;
  const num scale = over(c->k, exactly(1), d < 1 ? 1 : d), none = {0};
  double sides[2] = {0, 0}, of[2] = {0, 0};
  for (int64_t i = 0; i < c->items; ++i) {
    const sequence a = sequence_at(c, i), b = of_pairs(c) ? sequence_at(c, c->items + i) : (sequence){.l = none};
    const bool desirable = of_pairs(c) || check_value(&c->a.labels, i) != 0;
    const terms t = c->o.kind == TIGON_PREFERENCE_ORPO ? orpo(c->k, a.l, a.count > 0, b.l, b.count > 0, c->o.beta)
                    : of_pairs(c)                      ? of_pair(c->k, &c->o, a.reward, b.reward, shift)
                                                       : of_one(c->k, &c->o, a.l, desirable ? 1 : -1, shift);
    c->pair_loss[i] = t.loss.e;
    *c->loss += times(t.loss, scale).e;
    *c->accuracy += undecided(a.reward, b.reward) ? 0x1p24 / (double)c->items : 0;
    sides[desirable] += a.reward.e, ++of[desirable];
    bound_sequence(c, i, &a, t.chosen, scale);
    if (!of_pairs(c)) continue;
    sides[0] += b.reward.e, ++of[0];
    bound_sequence(c, c->items + i, &b, t.rejected, scale);
  }
  *c->margin = sides[0] / fmax(1, of[0]) + sides[1] / fmax(1, of[1]);
}

static void fwd(check *k) {
  const call c = begin(k);
  const tigon_preference_loss_fwd_args *a = &c.a;
  if (k->oracle) bound(&c);
  check_call(k, a);
  /* Sums in f64 lose nothing beside the rounding at the store, nor does the NLL. */
  check_bound(k, &a->loss, 1, 1, c.loss);
  check_bound(k, &a->dlogps, 0, 1, c.dlogps);
  if (c.o.nll) check_bound(k, &a->dnll_logps, 1, 0, NULL);
  if (!c.o.outputs) return;
  check_bound(k, &a->pair_loss, 0, 1, c.pair_loss);
  check_bound(k, &a->rewards, 0, 1, c.rewards);
  check_bound(k, &a->accuracy, 1, 1, c.accuracy);
  check_bound(k, &a->margin, 1, 1, c.margin);
}

MUTANT(no_ref, preference_loss_fwd, m.ref = NULL)
MUTANT(no_counts, preference_loss_fwd, m.counts.data = NULL)
MUTANT(no_smoothing, preference_loss_fwd, m.label_smoothing = m.kind == TIGON_PREFERENCE_EXO_PAIR ? 1e-3f : 0)
MUTANT(no_gamma, preference_loss_fwd, m.gamma = 0)
MUTANT(no_shift, preference_loss_fwd, m.shift = NULL)
MUTANT(no_denominator, preference_loss_fwd, m.denominator = NULL)
MUTANT(no_nll, preference_loss_fwd, m.nll_weight = 0)
MUTANT(no_tau, preference_loss_fwd, m.tau = 1)
MUTANT(no_weight, preference_loss_fwd, m.weight[1] = 1)
MUTANT(drop_item, preference_loss_fwd, m.items -= m.items > 1)
MUTANT(ipo_of_hinge, preference_loss_fwd, if (m.kind == TIGON_PREFERENCE_IPO) m.kind = TIGON_PREFERENCE_HINGE)
static const check_mutant wrong[] = {
    {"forgets the reference", no_ref},
    {"takes sums for means", no_counts},
    {"forgets label smoothing", no_smoothing},
    {"forgets gamma", no_gamma},
    {"forgets the shift", no_shift},
    {"forgets the denominator", no_denominator},
    {"forgets the NLL", no_nll},
    {"forgets tau", no_tau},
    {"forgets the weight of desirable sequences", no_weight},
    {"drops the last pair", drop_item},
    {"takes one kind for another", ipo_of_hinge},
    {0},
};

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t sizes[] = {1, 2, 3, tile + 1, 31, 64, 255, 256, 257, 1000, 9973};
  if (index >= (int)(sizeof sizes / sizeof *sizes)) return false;
  dims[0] = sizes[index];
  return true;
}

/* Pairs, or sequences, which are added up: none of them is apart. No batch has as many as the larger sweeps want. */
static const check_sizes own_sizes = {.of = {{17}, {1021}, {300}}, .walks = {{CHECK_N}}, .coupled = ~0u};

static const bench_case timed = {
    .op = "preference_loss", .shape_note = "pairs x 1", .rows_f32 = 512, .rows_16bit = 512, .cols = 1};

const check_op tigon_check_preference_loss_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
