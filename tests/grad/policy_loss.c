/* policy_loss against finite differences of the oracle for every kind at both levels, double throughout. Its values are compared
 * with formulas written another way. Known errors of other implementations are tested on every variant of the CPU. */
#include "grad.h"

enum { SEQUENCES = 4, N = 11 };

static const int64_t segments[SEQUENCES + 1] = {0, 3, 8, 8, 11};  /* the third sequence is empty */
static const int32_t mask[N] = {1, 1, 0, 1, 2, 1, 0, 1, 0, 0, 0}; /* no token of the last one counts */

typedef struct state {
  tigon_policy_loss_fwd_problem p;
  double l[N], old[N], ref[N], entropy[N], advantage[N], ratio[N], fixed[N]; /* fixed: l in what is a constant */
  double dl[N], dentropy[N], loss, token_loss[N], kl, low, high, mean_entropy, mean_ratio, denominator;
} state;

/* What is f32 to a caller is f64 here. */
static float *as_f32(double *data) { return (float *)(void *)data; }

static void start(state *t, tigon_policy_kind kind, bool sequence) {
  memset(t, 0, sizeof *t);
  double *const vectors[] = {t->l, t->old, t->ref, t->entropy, t->advantage, t->ratio};
  for (unsigned i = 0; i < 6; ++i) grad_fill(vectors[i], N, 3 + i);
  for (int i = 0; i < N; ++i)
    t->l[i] -= 1.5, t->old[i] = t->l[i] + 0.6 * t->old[i], t->ref[i] -= 1.5, t->ratio[i] += 1.25;
  t->p = (tigon_policy_loss_fwd_problem){.dtype = GRAD_F64,
                                         .kind = kind,
                                         .sequence_level = sequence,
                                         .tokens = N,
                                         .sequences = SEQUENCES,
                                         .segments = {(void *)segments, TIGON_I64},
                                         .logprob = as_f32(t->l),
                                         .advantage = as_f32(t->advantage),
                                         .old = as_f32(t->old),
                                         .eps_low = 0.2f,
                                         .eps_high = kind == TIGON_POLICY_CISPO ? 1.25f : 0.28f,
                                         .delta = INFINITY,
                                         .tau = {1.05f, 1},
                                         .k = {3, 2},
                                         .lambda = {2, 3},
                                         .max_length = 6,
                                         .loss = as_f32(&t->loss),
                                         .token_loss = as_f32(t->token_loss),
                                         .dlogprob = as_f32(t->dl),
                                         .dentropy = as_f32(t->dentropy),
                                         .kl = as_f32(&t->kl),
                                         .clip_low = as_f32(&t->low),
                                         .clip_high = as_f32(&t->high),
                                         .mean_entropy = as_f32(&t->mean_entropy),
                                         .mean_ratio = as_f32(&t->mean_ratio)};
}

static double objective(void *argument) {
  state *t = argument;
  tigon_policy_loss_fwd_problem p = t->p;
  p.dlogprob = p.dentropy = NULL;
  tigon_ref_policy_loss_fwd(NULL, &p);
  return t->loss;
}

/* For CISPO and VESPO, whose factor of l is a constant. The loss is that of `fixed` in it, by dl at that place times l. */
static double objective_of_constants(void *argument) {
  state *t = argument;
  double sum = 0;
  for (int i = 0; i < N; ++i) sum += t->fixed[i] * t->l[i];
  return sum;
}

static void compare(const char *name, state *t) {
  const bool constants = t->p.kind == TIGON_POLICY_CISPO || t->p.kind == TIGON_POLICY_VESPO;
  tigon_ref_policy_loss_fwd(NULL, &t->p);
  double dl[N], dentropy[N];
  memcpy(dl, t->dl, sizeof dl);
  memcpy(dentropy, t->dentropy, sizeof dentropy);
  if (!constants) {
    grad_expect(name, objective, t, t->l, dl, N, 1e-6);
  } else if (t->p.kl_weight == 0) { /* f = -[factor] a l: the gradient is f / l, weighted as f is */
    const double loss = t->loss;
    memcpy(t->fixed, dl, sizeof dl);
    assert_true(fabs(objective_of_constants(t) - loss) <= 1e-12 * (1 + fabs(loss)));
  }
  if (t->p.entropy) grad_expect("entropy", objective, t, t->entropy, dentropy, N, 1e-6);
}

static const char *const names[] = {"grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"};

/* Each kind at each level, bare; then with all that it may have. */
static void test_every_kind(void **s) {
  (void)s;
  static state t;
  for (int kind = 0; kind <= TIGON_POLICY_VESPO; ++kind)
    for (int sequence = 0; sequence < 2; ++sequence) {
      start(&t, (tigon_policy_kind)kind, sequence);
      compare(names[kind], &t);
      for (int more = 0; more < 4; ++more) {
        start(&t, (tigon_policy_kind)kind, sequence);
        t.p.mask.of = (tigon_vector){(void *)mask, TIGON_I32};
        t.p.ref = as_f32(t.ref);
        t.p.kl_weight = 0.3f;
        t.p.kl_bias_corrected = more % 2;
        t.p.entropy = as_f32(t.entropy);
        t.p.entropy_weight = 0.7f;
        t.p.ratio = as_f32(t.ratio);
        t.p.token_ratio = t.p.token_advantage = more / 2;
        t.p.delta = more ? 1.1f : 1.6f; /* below and above the clip's end */
        t.denominator = 2.5;
        if (more == 3) t.p.denominator = as_f32(&t.denominator);
        compare(names[kind], &t);
        for (int i = 0; i < N; ++i)
          assert_true(mask[i] || (t.dl[i] == 0 && t.dentropy[i] == 0 && t.token_loss[i] == 0));
      }
    }
}

/* The KL part of CISPO and VESPO alone, which has no constant but CISPO's rho. */
static void test_kl_of_constants(void **s) {
  (void)s;
  static state t;
  for (int kind = TIGON_POLICY_CISPO; kind <= TIGON_POLICY_VESPO; kind += TIGON_POLICY_VESPO - TIGON_POLICY_CISPO)
    for (int way = 0; way < 4; ++way) {
      start(&t, (tigon_policy_kind)kind, way / 2);
      memset(t.advantage, 0, sizeof t.advantage);
      t.p.ref = as_f32(t.ref);
      t.p.kl_weight = 0.5f;
      t.p.kl_bias_corrected = way % 2;
      tigon_ref_policy_loss_fwd(NULL, &t.p);
      double dl[N];
      memcpy(dl, t.dl, sizeof dl);
      grad_expect(names[kind], objective, &t, t.l, dl, N, 1e-6);
    }
}

/* ---- values ---- */

static double clamp(double x, double low, double high) { return fmin(fmax(x, low), high); }

/* A token's f of the papers, with rho of tokens or of its sequence. */
static double paper(const state *t, double rho, double w, double a, double l) {
  const double low = (double)(1 - t->p.eps_low), high = (double)(1 + t->p.eps_high), cap = (double)t->p.eps_high;
  const double tau = a > 0 ? 1 : (double)1.05f, k = a >= 0 ? 2 : 3, lambda = a >= 0 ? 3 : 2;
  switch (t->p.kind) {
    case TIGON_POLICY_CISPO: return -fmin(rho, cap) * a * l;
    case TIGON_POLICY_SAPO: return -4 / tau / (1 + exp(-tau * (rho - 1))) * a;
    case TIGON_POLICY_VESPO: return -exp(lambda) * pow(exp(w), k) * exp(-lambda * exp(w)) * a * l;
    default: return -fmin(rho * a, clamp(rho, low, high) * a);
  }
}

/* Masks and weights as the trainers' code has them: of a loss of each token. */
static double reduced(const state *t, const double *f) {
  double by_sequence = 0, by_length = 0, sum = 0, all = 0;
  for (int s = 0; s < SEQUENCES; ++s) {
    double own = 0, n = 0;
    for (int64_t i = segments[s]; i < segments[s + 1]; ++i)
      if (mask[i]) own += f[i], n += 1;
    by_sequence += own / fmax(1, n) / SEQUENCES;
    by_length += own * n / (SEQUENCES * 6.0);
    sum += own, all += n;
  }
  switch (t->p.kind) {
    case TIGON_POLICY_GRPO:
    case TIGON_POLICY_SAPO: return by_sequence;
    case TIGON_POLICY_DR_GRPO: return sum / (SEQUENCES * 6.0);
    case TIGON_POLICY_LUSPO: return t->p.sequence_level ? sum / SEQUENCES : by_length;
    default: return sum / all;
  }
}

static void test_values(void **s) {
  (void)s;
  static state t;
  for (int kind = 0; kind <= TIGON_POLICY_VESPO; ++kind)
    for (int level = 0; level < 2; ++level) {
      start(&t, (tigon_policy_kind)kind, level);
      t.p.mask.of = (tigon_vector){(void *)mask, TIGON_I32};
      tigon_ref_policy_loss_fwd(NULL, &t.p);
      double f[N] = {0};
      for (int q = 0; q < SEQUENCES; ++q) {
        double sum = 0, n = 0;
        for (int64_t i = segments[q]; i < segments[q + 1]; ++i)
          if (mask[i]) sum += t.l[i] - t.old[i], n += 1;
        for (int64_t i = segments[q]; i < segments[q + 1]; ++i) {
          if (!mask[i]) continue;
          const double rho = exp(level ? sum / n : t.l[i] - t.old[i]);
          f[i] = paper(&t, rho, sum, t.advantage[q], t.l[i]);
          assert_true(fabs(t.token_loss[i] - f[i]) <= 1e-12);
        }
      }
      assert_true(fabs(t.loss - reduced(&t, f)) <= 1e-12);
    }
}

/* ---- what others have wrong, as calls of every variant ---- */

typedef struct f32_call {
  float l[8], old[8], ref[8], ratio[8], advantage[8], dl[8], token_loss[8], loss, low, high, kl, denominator;
  int32_t mask[8], segments[5];
  tigon_policy_loss_fwd_args args;
} f32_call;

/* Two sequences of four tokens. */
static void begin_f32(f32_call *c, tigon_policy_kind kind) {
  memset(c, 0, sizeof *c);
  for (int i = 0; i < 8; ++i) c->l[i] = -0.5f - 0.25f * (float)i, c->old[i] = c->l[i], c->mask[i] = 1, c->ratio[i] = 2;
  c->segments[1] = 4, c->segments[2] = 8;
  c->advantage[0] = 1, c->advantage[1] = -1;
  c->args = (tigon_policy_loss_fwd_args){.logprob = tigon_tensor_1d(c->l, TIGON_F32, 8),
                                         .segments = tigon_tensor_1d(c->segments, TIGON_I32, 3),
                                         .advantage = tigon_tensor_1d(c->advantage, TIGON_F32, 2),
                                         .old = tigon_tensor_1d(c->old, TIGON_F32, 8),
                                         .mask = tigon_tensor_1d(c->mask, TIGON_I32, 8),
                                         .options = {.kind = kind},
                                         .loss = tigon_tensor_1d(&c->loss, TIGON_F32, 1),
                                         .token_loss = tigon_tensor_1d(c->token_loss, TIGON_F32, 8),
                                         .dlogprob = tigon_tensor_1d(c->dl, TIGON_F32, 8),
                                         .kl = tigon_tensor_1d(&c->kl, TIGON_F32, 1),
                                         .clip_low = tigon_tensor_1d(&c->low, TIGON_F32, 1),
                                         .clip_high = tigon_tensor_1d(&c->high, TIGON_F32, 1)};
}

static void call_f32(tigon_context *context, f32_call *c) {
  if (tigon_policy_loss_fwd(context, &c->args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

static void for_every_variant(void (*test)(tigon_context *context)) {
  const tigon_kernels *const *variants = tigon_backend_find("cpu")->variants();
  for (; *variants; ++variants) {
    tigon_context *context;
    const tigon_context_desc desc = {.device = "cpu", .variant = (*variants)->variant};
    assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
    test(context);
    tigon_context_destroy(context);
  }
}

/* With a < 0 and delta below the clip's end, min takes the clip, whose gradient is not lost: rho 1.15 of delta 1.1. */
static void delta_below_the_clip(tigon_context *context) {
  f32_call c;
  begin_f32(&c, TIGON_POLICY_BNPO);
  c.args.options.delta = 1.1;
  for (int i = 0; i < 8; ++i) c.old[i] = c.l[i] - logf(1.15f);
  call_f32(context, &c);
  for (int i = 0; i < 4; ++i) assert_true(c.dl[i] == 0); /* a > 0: delta */
  for (int i = 4; i < 8; ++i) assert_true(fabsf(c.dl[i] * 8 - 1.15f) <= 1e-6f);
}
static void test_delta_below_the_clip(void **s) { (void)s, for_every_variant(delta_below_the_clip); }

/* VESPO's ratio of a sequence counts once, not once a token; the same spread over its tokens is the same. */
static void ratio_of_a_sequence(tigon_context *context) {
  f32_call whole, spread;
  begin_f32(&whole, TIGON_POLICY_VESPO);
  whole.ratio[0] = whole.ratio[1] = 1.5f;
  whole.args.ratio = tigon_tensor_1d(whole.ratio, TIGON_F32, 2);
  call_f32(context, &whole);
  begin_f32(&spread, TIGON_POLICY_VESPO);
  for (int i = 0; i < 8; ++i) spread.ratio[i] = powf(1.5f, 0.25f);
  spread.args.options.token_ratio = 1;
  spread.args.ratio = tigon_tensor_1d(spread.ratio, TIGON_F32, 8);
  call_f32(context, &spread);
  assert_true(fabsf(whole.loss - spread.loss) <= 1e-5f * fabsf(whole.loss) && whole.loss != 0);
  for (int i = 0; i < 8; ++i) assert_true(fabsf(whole.dl[i] - spread.dl[i]) <= 1e-5f * fabsf(whole.dl[i]));
}
static void test_ratio_of_a_sequence(void **s) { (void)s, for_every_variant(ratio_of_a_sequence); }

/* What is in padding does not matter, nor how much there is of it: a padded batch and a packed one. */
static void padding(tigon_context *context) {
  f32_call padded, packed;
  for (int kind = 0; kind <= TIGON_POLICY_VESPO; ++kind)
    for (int level = 0; level < 2; ++level) {
      begin_f32(&padded, (tigon_policy_kind)kind);
      padded.args.options.sequence_level = level;
      padded.args.options.max_length = 4;
      padded.mask[3] = padded.mask[6] = padded.mask[7] = 0;
      padded.l[3] = NAN, padded.old[6] = INFINITY, padded.l[7] = -INFINITY;
      for (int i = 0; i < 8; ++i) padded.old[i] -= 0.125f * (float)(i % 3);
      call_f32(context, &padded);
      begin_f32(&packed, (tigon_policy_kind)kind);
      packed.args.options = padded.args.options;
      static const int from[5] = {0, 1, 2, 4, 5};
      for (int i = 0; i < 5; ++i) packed.l[i] = padded.l[from[i]], packed.old[i] = padded.old[from[i]];
      packed.segments[1] = 3, packed.segments[2] = 5;
      packed.args.mask = (tigon_tensor){0};
      tigon_tensor *const vectors[] = {&packed.args.logprob, &packed.args.old, &packed.args.token_loss,
                                       &packed.args.dlogprob};
      for (int i = 0; i < 4; ++i) vectors[i]->shape[0] = 5;
      call_f32(context, &packed);
      assert_true(isfinite(padded.loss) && padded.loss == packed.loss);
      for (int i = 0; i < 5; ++i) assert_true(padded.dl[from[i]] == packed.dl[i]);
      assert_true(padded.dl[3] == 0 && padded.dl[6] == 0 && padded.dl[7] == 0);
    }
}
static void test_padding(void **s) { (void)s, for_every_variant(padding); }

/* The denominator of a whole window of accumulation takes the place of the batch's own tokens. */
static void window(tigon_context *context) {
  f32_call one, all;
  begin_f32(&one, TIGON_POLICY_DAPO);
  one.advantage[1] = 3;
  call_f32(context, &one);
  begin_f32(&all, TIGON_POLICY_DAPO);
  all.advantage[1] = 3;
  all.denominator = 32;
  all.args.denominator = tigon_tensor_1d(&all.denominator, TIGON_F32, 1);
  call_f32(context, &all);
  assert_true(one.loss == -2 && all.loss == -0.5f && one.dl[0] == 4 * all.dl[0]);
}
static void test_window(void **s) { (void)s, for_every_variant(window); }

/* Nothing counts: all is 0. */
static void nothing_counts(tigon_context *context) {
  f32_call c;
  for (int kind = 0; kind <= TIGON_POLICY_VESPO; ++kind) {
    begin_f32(&c, (tigon_policy_kind)kind);
    memset(c.mask, 0, sizeof c.mask);
    c.loss = c.kl = c.low = c.high = 5;
    c.dl[2] = 5;
    call_f32(context, &c);
    assert_true(c.loss == 0 && c.kl == 0 && c.low == 0 && c.high == 0 && c.dl[2] == 0);
  }
}
static void test_nothing_counts(void **s) { (void)s, for_every_variant(nothing_counts); }

/* On policy: rho is 1, and no old one is the same as an equal one. */
static void on_policy(tigon_context *context) {
  f32_call with, without;
  for (int kind = 0; kind <= TIGON_POLICY_VESPO; ++kind) {
    begin_f32(&with, (tigon_policy_kind)kind);
    call_f32(context, &with);
    begin_f32(&without, (tigon_policy_kind)kind);
    without.args.old = (tigon_tensor){0};
    call_f32(context, &without);
    assert_true(with.loss == without.loss && memcmp(with.dl, without.dl, sizeof with.dl) == 0 && with.dl[0] < 0);
  }
}
static void test_on_policy(void **s) { (void)s, for_every_variant(on_policy); }

GRAD_MAIN(cmocka_unit_test(test_every_kind), cmocka_unit_test(test_kl_of_constants), cmocka_unit_test(test_values),
          cmocka_unit_test(test_delta_below_the_clip), cmocka_unit_test(test_ratio_of_a_sequence),
          cmocka_unit_test(test_padding), cmocka_unit_test(test_window), cmocka_unit_test(test_nothing_counts),
          cmocka_unit_test(test_on_policy))
