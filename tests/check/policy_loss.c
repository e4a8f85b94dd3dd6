/* policy_loss. Options walk every kind at both levels, with and without what it may have. dims are sequences, and tokens of one on
 * average. */
#include "check/cases.h"
#include "check/policy_terms.h"

static const policy_option options[] = {
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

static policy_call begin(check *k) {
  const policy_option o = options[k->option];
  policy_call c = {.k = k, .o = o, .sequences = k->dims[0]};
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
  c.entropy_off = check_doubles(k, 1), c.ratio = check_doubles(k, 1);
  c.token_loss = check_doubles(k, n), c.dlogprob = check_doubles(k, n);
  return c;
}

static void fwd(check *k) {
  const policy_call c = begin(k);
  const tigon_policy_loss_fwd_args *a = &c.a;
  if (k->oracle) bound_policy(&c);
  check_call(k, a);
  check_bound(k, &a->loss, 1, 1, c.loss);
  check_bound(k, &a->dlogprob, 1, 1, c.dlogprob);
  if (c.o.entropy) check_bound(k, &a->dentropy, 1, 0, NULL);
  if (!c.o.outputs) return;
  check_bound(k, &a->token_loss, 0, 1, c.token_loss);
  check_bound(k, &a->kl, 1, 1, c.kl);
  check_bound(k, &a->clip_low, 1, 1, c.low);
  check_bound(k, &a->clip_high, 1, 1, c.high);
  check_bound(k, &a->mean_entropy, 1, 0x1p-20, c.entropy_off); /* in f64 */
  check_bound(k, &a->mean_ratio, 1, 1, c.ratio);
}

MUTANT(no_mask, policy_loss_fwd, m.mask.of.data = NULL)
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
