/* preference_loss against finite differences of the oracle for every kind, double throughout. Its values are compared with the
 * formulas of the papers, written another way. Known errors of other implementations are tested on every variant of the CPU. */
#include "grad.h"

enum { PAIRS = 5, N = 2 * PAIRS, NLL = 3 };

static const int32_t counts[N] = {3, 1, 7, 0, 2, 4, 5, 1, 9, 0}; /* the fourth and the last sequence have no token */
static const int64_t labels[N] = {1, 0, 0, 1, 1, 0, 1, 0, 1, 0}, nll_counts[NLL] = {4, 0, 3};

typedef struct state {
  tigon_preference_loss_fwd_problem p;
  double x[N], ref[N], nll[NLL], dx[N], dnll[NLL], loss, pair_loss[N], rewards[N], accuracy, margin, shift, denominator;
} state;

/* What is f32 to a caller is f64 here. */
static float *as_f32(double *data) { return (float *)(void *)data; }

/* Log-probabilities from -6 to -0.5 times `scale`. */
static void start(state *t, tigon_preference_kind kind, double scale) {
  memset(t, 0, sizeof *t);
  grad_fill(t->x, N, 7);
  grad_fill(t->ref, N, 8);
  grad_fill(t->nll, NLL, 9);
  for (int i = 0; i < N; ++i) t->x[i] = scale * (2.75 * t->x[i] - 3.25), t->ref[i] = scale * (2.75 * t->ref[i] - 3.25);
  t->shift = 0.375;
  t->p = (tigon_preference_loss_fwd_problem){.dtype = GRAD_F64,
                                             .kind = kind,
                                             .sequences = N,
                                             .items = kind < TIGON_PREFERENCE_KTO ? PAIRS : N,
                                             .logps = as_f32(t->x),
                                             .ref = kind == TIGON_PREFERENCE_ORPO ? NULL : as_f32(t->ref),
                                             .labels = {(void *)labels, TIGON_I64},
                                             .beta = 0.75f,
                                             .tau = 0.5f,
                                             .nll_weight = 1,
                                             .weight = {0.75f, 1.5f},
                                             .loss = as_f32(&t->loss),
                                             .pair_loss = as_f32(t->pair_loss),
                                             .rewards = as_f32(t->rewards),
                                             .dlogps = as_f32(t->dx),
                                             .dnll_logps = as_f32(t->dnll),
                                             .accuracy = as_f32(&t->accuracy),
                                             .margin = as_f32(&t->margin)};
}

static double objective(void *argument) {
  state *t = argument;
  tigon_preference_loss_fwd_problem p = t->p;
  p.dlogps = p.dnll_logps = NULL;
  tigon_ref_preference_loss_fwd(NULL, &p);
  return t->loss;
}

static void compare(const char *name, state *t) {
  tigon_ref_preference_loss_fwd(NULL, &t->p);
  double dx[N], dnll[NLL];
  memcpy(dx, t->dx, sizeof dx);
  memcpy(dnll, t->dnll, sizeof dnll);
  grad_expect(name, objective, t, t->x, dx, N, 1e-6);
  if (t->p.nll_logps) grad_expect("nll_logps", objective, t, t->nll, dnll, NLL, 1e-6);
}

static const char *const names[] = {"sigmoid",   "hinge",    "ipo",      "exo_pair", "nca_pair", "robust", "bco_pair",
                                    "sppo_hard", "apo_zero", "apo_down", "discopop", "orpo",     "kto",    "bco"};

static bool has_shift(int kind) { return kind == TIGON_PREFERENCE_BCO_PAIR || kind >= TIGON_PREFERENCE_KTO; }

/* Each kind of sums, then of means with all that it may have. Hinge's corner lies within no step of any pair. */
static void test_every_kind(void **s) {
  (void)s;
  static state t;
  for (int kind = 0; kind <= TIGON_PREFERENCE_BCO; ++kind) {
    start(&t, (tigon_preference_kind)kind, 0.25);
    if (kind == TIGON_PREFERENCE_EXO_PAIR) t.p.label_smoothing = 1e-3f;
    compare(names[kind], &t);
    start(&t, (tigon_preference_kind)kind, 1);
    t.p.counts = (tigon_vector){(void *)counts, TIGON_I32};
    t.p.label_smoothing = 0.125f;
    t.p.gamma = 0.3f;
    if (has_shift(kind)) t.p.shift = as_f32(&t.shift);
    t.denominator = 3.5;
    t.p.denominator = as_f32(&t.denominator);
    t.p.nll_sequences = NLL;
    t.p.nll_logps = as_f32(t.nll);
    t.p.nll_counts = (tigon_vector){(void *)nll_counts, TIGON_I64};
    compare(names[kind], &t);
    assert_true(t.dx[3] == 0 && t.dx[9] == 0 && t.dnll[1] == 0);
    assert_true(kind >= TIGON_PREFERENCE_KTO || kind == TIGON_PREFERENCE_HINGE || (t.dx[4] != 0 && t.dx[8] != 0));
  }
}

/* ---- by tokens ---- */

enum { TOKENS = 24, SEQUENCES = 4, VOCAB = 9 };

typedef struct of_tokens {
  tigon_preference_loss_fwd_problem p;
  double l[TOKENS], dl[TOKENS], sums[SEQUENCES], dlogps[SEQUENCES], loss, factor;
  int64_t sums_of[SEQUENCES];
} of_tokens;

static double objective_of_tokens(void *argument) {
  of_tokens *t = argument;
  tigon_ref_preference_loss_fwd(NULL, &t->p);
  return t->loss * t->factor;
}

/* Sums and means of each kind by tokens, padded and packed; labels that are ignored or out of range do not count. */
static void test_tokens(void **s) {
  (void)s;
  static const int32_t words[TOKENS] = {1, 2, -7, 3, 0, 8, 4, 5, 6, 9, 1, 2, 3, 4, -1, 5, 6, 7, 8, -7, 0, 1, -7, 3};
  static const int64_t ends[SEQUENCES + 1] = {0, 5, 12, 17, TOKENS};
  static of_tokens t;
  for (int kind = 0; kind <= TIGON_PREFERENCE_BCO; ++kind)
    for (int way = 0; way < 4; ++way) {
      const bool pairs = kind < TIGON_PREFERENCE_KTO, means = way % 2 == 1 || kind == TIGON_PREFERENCE_ORPO;
      memset(&t, 0, sizeof t);
      grad_fill(t.l, TOKENS, 11);
      for (int i = 0; i < TOKENS; ++i) t.l[i] = 0.5 * t.l[i] - 0.75;
      t.factor = 1.5;
      t.p = (tigon_preference_loss_fwd_problem){.dtype = GRAD_F64,
                                                .kind = (tigon_preference_kind)kind,
                                                .sequences = SEQUENCES,
                                                .items = pairs ? SEQUENCES / 2 : SEQUENCES,
                                                .token_logprob = as_f32(t.l),
                                                .mask = {{(void *)words, TIGON_I32}, -7, VOCAB},
                                                .tokens = TOKENS,
                                                .length = TOKENS / SEQUENCES,
                                                .sums = as_f32(t.sums),
                                                .sums_of = t.sums_of,
                                                .logps = as_f32(t.sums),
                                                .dlogps = as_f32(t.dlogps),
                                                .dtoken_logprob = as_f32(t.dl),
                                                .dloss = as_f32(&t.factor),
                                                .labels = {(void *)labels, TIGON_I64},
                                                .beta = 0.75f,
                                                .label_smoothing = 0.125f,
                                                .tau = 0.5f,
                                                .nll_weight = 0.5f,
                                                .weight = {0.75f, 1.5f},
                                                .loss = as_f32(&t.loss)};
      if (way >= 2) t.p.segments = (tigon_vector){(void *)ends, TIGON_I64};
      if (means) t.p.counts = (tigon_vector){t.sums_of, TIGON_I64};
      t.p.nll_sequences = pairs ? SEQUENCES / 2 : 0;
      t.p.nll_logps = pairs ? as_f32(t.sums) : NULL;
      t.p.nll_counts = (tigon_vector){t.sums_of, TIGON_I64};
      objective_of_tokens(&t);
      double dl[TOKENS];
      memcpy(dl, t.dl, sizeof dl);
      grad_expect(names[kind], objective_of_tokens, &t, t.l, dl, TOKENS, 1e-6);
      for (int i = 0; i < TOKENS; ++i) assert_true((dl[i] != 0) == (words[i] >= 0 && words[i] < VOCAB));
      assert_int_equal(t.sums_of[0] + t.sums_of[1] + t.sums_of[2] + t.sums_of[3], TOKENS - 5);
    }
}

/* ---- values, as the papers write them ---- */

static double sig(double x) { return 1 / (1 + exp(-x)); }

/* The loss of a pair with the log-ratios a and b, beta .75, smoothing .125 and tau .5. */
static double paper(int kind, double a, double b, double shift) {
  const double beta = 0.75, e = 0.125, h = beta * (a - b), tau = 0.5;
  const double odds_a = exp(a) / (1 - exp(a)), odds_b = exp(b) / (1 - exp(b)), m = sig(h / tau);
  switch (kind) {
    case TIGON_PREFERENCE_SIGMOID: return -(1 - e) * log(sig(h)) - e * log(1 - sig(h));
    case TIGON_PREFERENCE_HINGE: return fmax(0, 1 - h);
    case TIGON_PREFERENCE_IPO: return pow(a - b - 1 / (2 * beta), 2);
    case TIGON_PREFERENCE_EXO_PAIR: return sig(h) * log(sig(h) / (1 - e)) + sig(-h) * log(sig(-h) / e);
    case TIGON_PREFERENCE_NCA_PAIR: return -log(sig(beta * a)) - 0.5 * log(sig(-beta * a)) - 0.5 * log(sig(-beta * b));
    case TIGON_PREFERENCE_ROBUST: return (-(1 - e) * log(sig(h)) + e * log(sig(-h))) / (1 - 2 * e);
    case TIGON_PREFERENCE_BCO_PAIR: return -log(sig(beta * a - shift)) - log(sig(-(beta * b - shift)));
    case TIGON_PREFERENCE_SPPO_HARD: return pow(a - 0.5 / beta, 2) + pow(b + 0.5 / beta, 2);
    case TIGON_PREFERENCE_APO_ZERO: return 1 - sig(beta * a) + sig(beta * b);
    case TIGON_PREFERENCE_APO_DOWN: return sig(beta * a) + 1 - sig(h);
    case TIGON_PREFERENCE_DISCOPOP: return -log(sig(h)) * (1 - m) + exp(-h) * m;
    default: return -beta * log(sig(log(odds_a / odds_b)));
  }
}

static void test_values(void **s) {
  (void)s;
  static state t;
  for (int kind = 0; kind < TIGON_PREFERENCE_KTO; ++kind) {
    start(&t, (tigon_preference_kind)kind, 0.5);
    t.p.label_smoothing = 0.125f;
    if (has_shift(kind)) t.p.shift = as_f32(&t.shift);
    tigon_ref_preference_loss_fwd(NULL, &t.p);
    double sum = 0, margin = 0, right = 0;
    for (int i = 0; i < PAIRS; ++i) {
      const double a = t.x[i] - (t.p.ref ? t.ref[i] : 0), b = t.x[PAIRS + i] - (t.p.ref ? t.ref[PAIRS + i] : 0);
      const double f = paper(kind, a, b, t.p.shift ? t.shift : 0);
      assert_true(fabs(t.pair_loss[i] - f) <= 1e-12 * (1 + fabs(f)));
      assert_true(fabs(t.rewards[i] - 0.75 * a) <= 1e-14 && fabs(t.rewards[PAIRS + i] - 0.75 * b) <= 1e-14);
      sum += f / PAIRS, margin += 0.75 * (a - b) / PAIRS, right += (a > b) / (double)PAIRS;
    }
    assert_true(fabs(t.loss - sum) <= 1e-12 && fabs(t.margin - margin) <= 1e-13 && fabs(t.accuracy - right) <= 1e-13);
  }
  for (int kind = TIGON_PREFERENCE_KTO; kind <= TIGON_PREFERENCE_BCO; ++kind) {
    start(&t, (tigon_preference_kind)kind, 0.5);
    t.p.shift = as_f32(&t.shift);
    tigon_ref_preference_loss_fwd(NULL, &t.p);
    for (int i = 0; i < N; ++i) {
      const double y = labels[i] ? 1 : -1, w = labels[i] ? 1.5 : 0.75, l = t.x[i] - t.ref[i];
      const double f = kind == TIGON_PREFERENCE_KTO ? w * (1 - sig(y * 0.75 * (l - t.shift)))
                                                    : -w * log(sig(y * (0.75 * l - t.shift)));
      assert_true(fabs(t.pair_loss[i] - f) <= 1e-13);
    }
  }
}

/* ---- what others have wrong, as calls of every variant ---- */

typedef struct f32_call {
  float x[4], dx[4], rewards[4], loss, pair_loss[4], accuracy, margin;
  int32_t counts[4], labels[4];
  tigon_preference_loss_fwd_args args;
} f32_call;

static void begin_f32(f32_call *c, tigon_preference_kind kind, const float x[4]) {
  memset(c, 0, sizeof *c);
  memcpy(c->x, x, sizeof c->x);
  const bool pairs = kind < TIGON_PREFERENCE_KTO;
  c->args = (tigon_preference_loss_fwd_args){.logps = tigon_tensor_1d(c->x, TIGON_F32, 4),
                                             .options = {.kind = kind, .beta = 1},
                                             .loss = tigon_tensor_1d(&c->loss, TIGON_F32, 1),
                                             .pair_loss = tigon_tensor_1d(c->pair_loss, TIGON_F32, pairs ? 2 : 4),
                                             .rewards = tigon_tensor_1d(c->rewards, TIGON_F32, 4),
                                             .dlogps = tigon_tensor_1d(c->dx, TIGON_F32, 4),
                                             .accuracy = tigon_tensor_1d(&c->accuracy, TIGON_F32, 1),
                                             .margin = tigon_tensor_1d(&c->margin, TIGON_F32, 1)};
  if (!pairs) c->args.labels = tigon_tensor_1d(c->labels, TIGON_I32, 4);
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

static void call_f32(tigon_context *context, f32_call *c) {
  if (tigon_preference_loss_fwd(context, &c->args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

/* Rewards of +-10^4: every loss and gradient is a number, and the saturated ones are exact. */
static void far_apart(tigon_context *context) {
  static const float x[4] = {1e4f, -1e4f, -1e4f, 1e4f}; /* the first pair is right, the second wrong */
  f32_call c;
  for (int kind = 0; kind <= TIGON_PREFERENCE_BCO; ++kind) {
    if (kind == TIGON_PREFERENCE_ORPO) continue; /* ORPO needs means below 0 */
    begin_f32(&c, (tigon_preference_kind)kind, x);
    c.labels[0] = c.labels[2] = 1;
    call_f32(context, &c);
    for (int i = 0; i < 4; ++i) assert_true(isfinite(c.dx[i]) && isfinite(c.pair_loss[i]));
    assert_true(isfinite(c.loss) && c.accuracy == 0.5f);
    if (kind == TIGON_PREFERENCE_SIGMOID) {
      assert_true(c.pair_loss[0] == 0 && c.pair_loss[1] == 2e4f && c.loss == 1e4f);
      assert_true(c.dx[0] == 0 && c.dx[1] == -0.5f && c.dx[2] == 0 && c.dx[3] == 0.5f);
    }
    if (kind == TIGON_PREFERENCE_DISCOPOP) /* e^20000 m is 0, and the other term alone is left */
      assert_true(c.pair_loss[0] == 0 && c.pair_loss[1] == 2e4f && c.dx[1] == -0.5f);
  }
}
static void test_far_apart(void **s) { (void)s, for_every_variant(far_apart); }

/* A sequence without a counted token: its mean is 0, not NaN, and it has no gradient, whatever its sum is. */
static void without_tokens(tigon_context *context) {
  f32_call c;
  for (int kind = 0; kind <= TIGON_PREFERENCE_BCO; ++kind)
    for (int empty = 0; empty < 4; ++empty) {
      begin_f32(&c, (tigon_preference_kind)kind, (const float[]){-3, -2, -1, -4});
      for (int i = 0; i < 4; ++i) c.counts[i] = i == empty ? 0 : 2;
      c.args.counts = tigon_tensor_1d(c.counts, TIGON_I32, 4);
      c.x[empty] = NAN;
      call_f32(context, &c);
      assert_true(isfinite(c.loss) && isfinite(c.margin) && c.rewards[empty] == 0 && c.dx[empty] == 0);
      for (int i = 0; i < 4; ++i) assert_true(isfinite(c.dx[i]) && isfinite(c.pair_loss[i]));
    }
}
static void test_without_tokens(void **s) { (void)s, for_every_variant(without_tokens); }

/* The mean's count is that of the tokens which count, not the padded length; and the gradient by a sum has it, too. */
static void means(tigon_context *context) {
  f32_call sums, means;
  begin_f32(&sums, TIGON_PREFERENCE_SIGMOID, (const float[]){-1, -2, -3, -0.5f});
  call_f32(context, &sums);
  begin_f32(&means, TIGON_PREFERENCE_SIGMOID, (const float[]){-4, -2, -24, -1});
  memcpy(means.counts, (const int32_t[]){4, 1, 8, 2}, sizeof means.counts);
  means.args.counts = tigon_tensor_1d(means.counts, TIGON_I32, 4);
  call_f32(context, &means);
  assert_true(means.loss == sums.loss);
  for (int i = 0; i < 4; ++i) assert_true(means.dx[i] == sums.dx[i] / (float)means.counts[i]);
}
static void test_means(void **s) { (void)s, for_every_variant(means); }

/* ORPO as the chosen mean goes to 0: its gradient goes to the odds of the rejected one, 1 / (e - 1) here, and stays. */
static void orpo_near_0(tigon_context *context) {
  static const float near[] = {-1e-3f, -1e-6f, -1e-12f, -1e-30f, 0};
  f32_call c;
  for (int i = 0; i < 5; ++i) {
    begin_f32(&c, TIGON_PREFERENCE_ORPO, (const float[]){near[i], -2, -1, -2});
    call_f32(context, &c);
    assert_true(isfinite(c.loss) && c.pair_loss[0] <= 1e-3f && c.pair_loss[0] >= 0);
    assert_true(fabs(-2 * (double)c.dx[0] * (exp(1) - 1) - 1) <= 2e-3);
    assert_true(fabs((double)c.pair_loss[1] - log(2)) <= 1e-6); /* equal odds */
  }
  assert_true(c.pair_loss[0] == 0 && c.dx[2] == 0);
}
static void test_orpo_near_0(void **s) { (void)s, for_every_variant(orpo_near_0); }

/* An odd batch is refused, not split. */
static void odd_batch(tigon_context *context) {
  f32_call c;
  begin_f32(&c, TIGON_PREFERENCE_SIGMOID, (const float[]){-1, -2, -3, 0});
  c.args.logps = c.args.rewards = c.args.dlogps = tigon_tensor_1d(c.x, TIGON_F32, 3);
  c.args.rewards.data = c.rewards, c.args.dlogps.data = c.dx;
  assert_int_equal(tigon_preference_loss_fwd(context, &c.args), TIGON_ERROR_INVALID);
  assert_string_equal(tigon_last_error(context),
                      "preference_loss_fwd: logps.shape[0] is 3, must be even with an options.kind of pairs");
  assert_true(c.loss == 0 && c.dx[0] == 0);
}
static void test_odd_batch(void **s) { (void)s, for_every_variant(odd_batch); }

GRAD_MAIN(cmocka_unit_test(test_every_kind), cmocka_unit_test(test_tokens), cmocka_unit_test(test_values),
          cmocka_unit_test(test_far_apart), cmocka_unit_test(test_without_tokens), cmocka_unit_test(test_means),
          cmocka_unit_test(test_orpo_near_0), cmocka_unit_test(test_odd_batch))
