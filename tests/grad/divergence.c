/* divergence against finite differences of the oracle, double throughout: with TIGON_F64 its row outputs and its loss
 * are f64 too. And values that other implementations get wrong. */
#include "grad.h"

enum { ROWS = 4, COLS = 6, N = ROWS * COLS };

static const int64_t labels[ROWS] = {3, -100, 0, 5}; /* the second row is ignored */
static const float token_scale[ROWS] = {1, -0.5f, 2, 0.25f};
static const float dloss[ROWS] = {0.75f, -2, 1.5f, 0.5f};

typedef struct state {
  tigon_divergence_problem p;
  double x[N], t[N], dx[N], inverse, loss, token_loss[ROWS], stats[3 * ROWS], hard_lse[ROWS];
} state;

/* Outputs that are f32 to a caller are f64 here. */
static float *as_f32(double *data) { return (float *)(void *)data; }

/* Numbers that mean what they are said to; those of a row do not add up to 1 unless they are logits. */
static void fill(double *x, tigon_distribution is, unsigned seed) {
  grad_fill(x, N, seed);
  for (int i = 0; i < N; ++i)
    x[i] = is == TIGON_DISTRIBUTION_LOGITS              ? 2 * x[i]
           : is == TIGON_DISTRIBUTION_LOG_PROBABILITIES ? x[i] - 1.5
                                                        : 0.6 + 0.5 * x[i];
}

static void start(state *s, const tigon_divergence_problem *options) {
  memset(s, 0, sizeof *s);
  s->p = *options;
  fill(s->x, s->p.input_is, 7);
  fill(s->t, s->p.target_is, 1285); /* p is 0.017 from q or more, where tvd has no slope */
  s->p.space = (tigon_row_space){ROWS, 1, ROWS};
  if (s->p.parts == 0) s->p.parts = TIGON_DIVERGENCE_ALL;
  s->p.cols = COLS;
  if (s->p.target_cols == 0) s->p.target_cols = COLS;
  s->p.dtype = GRAD_F64;
  s->p.label_dtype = TIGON_I64;
  s->p.labels = labels;
  s->p.ignore_index = -100;
  s->p.input = grad_rows(s->x, COLS);
  s->p.target = grad_rows(s->t, COLS);
  s->p.inverse = as_f32(&s->inverse);
  s->p.token_loss = as_f32(s->token_loss);
  s->p.stats = as_f32(s->stats);
  s->p.hard_lse = as_f32(s->hard_lse);
  s->p.loss = as_f32(&s->loss);
  if (s->p.inverse_temperature == 0) s->p.inverse_temperature = 1;
  if (s->p.soft == 0) s->p.soft = 1;
  if (s->p.grad_scale == 0) s->p.grad_scale = 1;
}

/* What dinput is the gradient of. */
static double objective(void *argument) {
  state *s = argument;
  tigon_divergence_problem p = s->p;
  p.dinput.data = NULL;
  tigon_ref_divergence_fwd(NULL, &p);
  double sum = 0;
  for (int r = 0; r < ROWS; ++r) sum += s->token_loss[r] * (p.dloss ? (double)p.dloss[r] : 1);
  if (p.reduction != TIGON_REDUCTION_NONE) sum = s->loss * (p.dloss ? (double)*p.dloss : 1);
  return sum * (double)p.grad_scale;
}

static void compare(tigon_divergence_problem options) {
  static state s;
  start(&s, &options);
  s.p.dinput = grad_rows(s.dx, COLS);
  tigon_ref_divergence_fwd(NULL, &s.p);
  double forward[N];
  memcpy(forward, s.dx, sizeof forward);
  for (int c = 0; c < COLS; ++c) assert_true(forward[COLS + c] == 0);
  assert_true(s.token_loss[1] == 0);
  grad_expect("dinput", objective, &s, s.x, forward, N, 1e-6);
  tigon_ref_divergence_fwd(NULL, &s.p); /* the stats of x as it is */

  s.p.dinput = grad_rows(s.dx, COLS);
  tigon_ref_divergence_bwd(NULL, &s.p);
  for (int i = 0; i < N; ++i) assert_true(fabs(s.dx[i] - forward[i]) <= 1e-14);
  s.p.dinput = s.p.input;
  tigon_ref_divergence_bwd(NULL, &s.p);
  assert_memory_equal(s.x, s.dx, sizeof s.x);
}

/* Every kind, of everything that the two sides may be. */
static void test_kinds(void **unused) {
  (void)unused;
  for (int kind = 0; kind < TIGON_DIVERGENCE_COSINE; ++kind)
    for (int is = 0; is < 9; ++is)
      compare((tigon_divergence_problem){.kind = (tigon_divergence_kind)kind,
                                         .input_is = (tigon_distribution)(is % 3),
                                         .target_is = (tigon_distribution)(is / 3),
                                         .beta = 0.3f,
                                         .inverse_temperature = 0.625f});
  compare((tigon_divergence_problem){.kind = TIGON_DIVERGENCE_COSINE});
}

static void test_options(void **unused) {
  (void)unused;
  compare((tigon_divergence_problem){.reduction = TIGON_REDUCTION_SUM, .dloss = dloss, .grad_scale = -3});
  compare((tigon_divergence_problem){.reduction = TIGON_REDUCTION_NONE, .dloss = dloss, .token_scale = token_scale});
  compare((tigon_divergence_problem){
      .kind = TIGON_DIVERGENCE_JSD, .beta = 0.75f, .token_scale = token_scale, .dloss = dloss, .grad_scale = 1.5f});
}

/* The cross entropy beside D, and a target of fewer classes. */
static void test_hard(void **unused) {
  (void)unused;
  for (int kind = 0; kind <= TIGON_DIVERGENCE_COSINE; ++kind)
    for (int known = COLS - 2; known <= COLS; known += 2) {
      if (kind == TIGON_DIVERGENCE_REVERSE_KL && known < COLS) continue; /* Inf */
      compare((tigon_divergence_problem){.kind = (tigon_divergence_kind)kind,
                                         .beta = 0.3f,
                                         .inverse_temperature = 0.625f,
                                         .soft = 0.75f,
                                         .hard = 1.5f,
                                         .target_cols = known,
                                         .token_scale = token_scale,
                                         .denominator = dloss});
    }
}

/* Softcaps and scales, and the loss of the logits that they make. */
static void test_maps(void **unused) {
  (void)unused;
  static state s, plain;
  const tigon_logit_map maps[] = {{1.5f, 2}, {0, 0.5f}, {3, 0}, {0, 0}};
  for (int kind = 0; kind <= TIGON_DIVERGENCE_COSINE; ++kind)
    for (int i = 0; i < 4; ++i) {
      const tigon_logit_map of_x = maps[i], of_t = maps[(i + 1) % 4];
      tigon_divergence_problem options = {.kind = (tigon_divergence_kind)kind,
                                          .beta = 0.3f,
                                          .inverse_temperature = 0.625f,
                                          .hard = 1.5f,
                                          .input_map = of_x,
                                          .target_map = of_t};
      compare(options);
      start(&s, &options);
      tigon_ref_divergence_fwd(NULL, &s.p);
      options.input_map = options.target_map = (tigon_logit_map){0};
      start(&plain, &options);
      for (int n = 0; n < N; ++n) {
        const double x_scale = of_x.scale != 0 ? (double)of_x.scale : 1,
                     t_scale = of_t.scale != 0 ? (double)of_t.scale : 1;
        plain.x[n] *= x_scale, plain.t[n] *= t_scale;
        if (of_x.cap > 0) plain.x[n] = (double)of_x.cap * tanh(plain.x[n] / (double)of_x.cap);
        if (of_t.cap > 0) plain.t[n] = (double)of_t.cap * tanh(plain.t[n] / (double)of_t.cap);
      }
      tigon_ref_divergence_fwd(NULL, &plain.p);
      for (int r = 0; r < ROWS; ++r) assert_true(fabs(s.token_loss[r] - plain.token_loss[r]) < 1e-13);
    }
}

/* Backward panel by panel has forward's gradient. */
static void test_panels(void **unused) {
  (void)unused;
  static state s;
  double whole[N];
  const tigon_divergence_problem options = {
      .kind = TIGON_DIVERGENCE_JSD, .beta = 0.3f, .hard = 0.5f, .input_map = {2, 1.5f}, .target_map = {0, 0.5f}};
  start(&s, &options);
  s.p.dinput = grad_rows(s.dx, COLS);
  tigon_ref_divergence_fwd(NULL, &s.p);
  memcpy(whole, s.dx, sizeof whole);
  memset(s.dx, 0, sizeof s.dx);
  for (int from = 0; from < COLS; from += 2) {
    tigon_divergence_problem p = s.p;
    p.parts = TIGON_DIVERGENCE_ROWS;
    p.cols = p.target_cols = 2, p.vocab = COLS, p.panel_begin = from;
    p.input = grad_rows(s.x + from, COLS), p.target = grad_rows(s.t + from, COLS);
    p.dinput = grad_rows(s.dx + from, COLS);
    tigon_ref_divergence_bwd(NULL, &p);
  }
  assert_memory_equal(whole, s.dx, sizeof whole);
}

/* Forward's values from the formulas of the header, written another way. */
static void test_values(void **unused) {
  (void)unused;
  static state s;
  for (int kind = 0; kind < TIGON_DIVERGENCE_COSINE; ++kind) {
    const tigon_divergence_problem options = {.kind = (tigon_divergence_kind)kind, .beta = 0.3f};
    start(&s, &options);
    tigon_ref_divergence_fwd(NULL, &s.p);
    double sum = 0;
    for (int r = 0; r < ROWS; ++r) {
      double zq = 0, zp = 0, loss = 0;
      for (int v = 0; v < COLS; ++v) zq += exp(s.x[r * COLS + v]), zp += exp(s.t[r * COLS + v]);
      for (int v = 0; v < COLS; ++v) {
        const double q = exp(s.x[r * COLS + v]) / zq, p = exp(s.t[r * COLS + v]) / zp, b = (double)0.3f;
        const double m = b * p + (1 - b) * q;
        const double of[] = {p * log(p / q), q * log(q / p), b * p * log(p / m) + (1 - b) * q * log(q / m),
                             0.5 * fabs(p - q)};
        loss += of[kind];
      }
      if (r == 1) loss = 0;
      assert_true(fabs(s.token_loss[r] - loss) < 1e-14);
      sum += loss;
    }
    assert_true(fabs(s.loss - sum / 3) < 1e-14);
  }
}

/* No row counts: the loss and the gradient are 0. */
static void test_nothing_counts(void **unused) {
  (void)unused;
  static state s;
  const tigon_divergence_problem options = {.kind = TIGON_DIVERGENCE_TVD};
  const int64_t ignored[ROWS] = {-100, -100, -100, -100};
  start(&s, &options);
  s.p.labels = ignored;
  s.p.dinput = grad_rows(s.dx, COLS);
  s.loss = s.dx[0] = 5;
  tigon_ref_divergence_fwd(NULL, &s.p);
  assert_true(s.loss == 0 && s.inverse == 0);
  for (int i = 0; i < N; ++i) assert_true(s.dx[i] == 0);
}

GRAD_MAIN(cmocka_unit_test(test_kinds), cmocka_unit_test(test_options), cmocka_unit_test(test_hard),
          cmocka_unit_test(test_maps), cmocka_unit_test(test_panels), cmocka_unit_test(test_values),
          cmocka_unit_test(test_nothing_counts))
