/* preference_loss. Options walk every kind, with and without what it may have. dims[0] is the number of pairs or sequences. */
#include "check/cases.h"
#include "check/preference_terms.h"

static const preference_option options[] = {
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
    {.kind = TIGON_PREFERENCE_BCO_PAIR, .ref = true, .shift = true, .shift_of_each = true, .outputs = true},
    {.kind = TIGON_PREFERENCE_KTO, .ref = true, .shift = true, .shift_of_each = true, .outputs = true},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* ---- a call ---- */

static tigon_tensor counts_of(check *k, const char *name, tigon_dtype dtype, int64_t n) {
  return check_indices(k, name, dtype, 1, &n, -1, 40); /* some have no token */
}

/* Below 0, and no mean so near that 1 / (1 - e^l) overflows. */
static tigon_tensor orpo_logps(check *k, int64_t n) {
  const tigon_tensor made = check_inout_dense(k, "logps", TIGON_F32, 1, &n, k->fill);
  for (int64_t s = 0; !k->timed && s < n; ++s) ((float *)made.data)[s] = -fabsf(((float *)made.data)[s]) - 0x1p-20f;
  return made;
}

static preference_call begin(check *k) {
  const preference_option o = options[k->option];
  preference_call c = {.k = k, .o = o, .items = k->dims[0]};
  c.sequences = of_pairs(&c) ? 2 * c.items : c.items;
  const int64_t n = c.sequences, nll = c.items / 2 + 1;
  tigon_preference_loss_fwd_args *a = &c.a;
  a->logps = o.kind == TIGON_PREFERENCE_ORPO ? orpo_logps(k, n) : check_in_vector(k, "logps", TIGON_F32, n, k->fill);
  if (o.ref) a->ref = check_in_vector(k, "ref", TIGON_F32, n, CHECK_UNIFORM);
  if (o.counts) a->counts = counts_of(k, "counts", o.counts, n);
  if (!of_pairs(&c)) a->labels = check_indices(k, "labels", o.counts ? TIGON_I64 : TIGON_I32, 1, &n, 0, 2);
  if (o.shift) a->shift = check_in_vector(k, "shift", TIGON_F32, o.shift_of_each ? c.items : 1, CHECK_UNIFORM);
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
  preference_begin(&c);
  return c;
}

static void fwd(check *k) {
  const preference_call c = begin(k);
  const tigon_preference_loss_fwd_args *a = &c.a;
  if (k->oracle) bound_preference(&c);
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
MUTANT(one_shift, preference_loss_fwd, m.shifts = 1)
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
    {"shifts all by the first shift", one_shift},
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
