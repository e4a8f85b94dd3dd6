/* topk_divergence against finite differences of the oracle, double throughout: with TIGON_F64 its row outputs and its loss are
 * f64 too. And its values from the definitions, among them divergence's own of a teacher whose every class is an entry. */
#include "grad.h"

enum { ROWS = 4, COLS = 9, K = 4, N = ROWS * COLS };

static const int64_t labels[ROWS] = {3, -100, 0, 5}; /* the second row is ignored */
static const float token_scale[ROWS] = {1, -0.5f, 2, 0.25f};
static const float dloss[ROWS] = {0.75f, -2, 1.5f, 0.5f};
/* A class twice, and one out of the vocabulary. */
static const int64_t ids[ROWS * K] = {7, 0, 3, 5, 1, 1, 1, 1, 8, 2, 8, 4, 6, 9, 0, -1};
static const int64_t all[ROWS * COLS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0,
                                         4, 5, 6, 7, 8, 0, 1, 2, 3, 1, 0, 3, 2, 5, 4, 7, 6, 8};

typedef struct state {
  tigon_topk_divergence_problem p;
  double x[N], t[N], dx[N], inverse, loss, token_loss[ROWS], stats[3 * ROWS], hard_lse[ROWS];
} state;

/* Outputs that are f32 to a caller are f64 here. */
static float *as_f32(double *data) { return (float *)(void *)data; }

/* Entries of a row add up to 0.9 or less, of one with `sum` to more. */
static void fill_target(state *s) {
  grad_fill(s->t, N, 1285);
  for (int i = 0; i < N; ++i) {
    const double log_p = s->t[i] - 2.6;
    s->t[i] = s->p.base.target_is == TIGON_DISTRIBUTION_LOGITS              ? 2 * s->t[i]
              : s->p.base.target_is == TIGON_DISTRIBUTION_LOG_PROBABILITIES ? log_p
                                                                            : exp(log_p);
  }
}

static void start(state *s, const tigon_topk_divergence_problem *options) {
  memset(s, 0, sizeof *s);
  s->p = *options;
  tigon_divergence_problem *base = &s->p.base;
  grad_fill(s->x, N, 7);
  for (int i = 0; i < N; ++i) s->x[i] *= 2;
  if (s->p.k == 0) s->p.k = K;
  fill_target(s);
  base->space = (tigon_row_space){ROWS, 1, ROWS};
  base->cols = COLS;
  base->dtype = s->p.dtype = s->p.target_dtype = GRAD_F64;
  base->label_dtype = s->p.id_dtype = TIGON_I64;
  base->labels = labels;
  base->ignore_index = -100;
  base->input = grad_rows(s->x, COLS);
  base->target = grad_rows(s->t, s->p.k);
  s->p.ids = (tigon_rows){(void *)(uintptr_t)(s->p.k == K ? ids : all), {0, 0, s->p.k}};
  base->inverse = as_f32(&s->inverse);
  base->token_loss = as_f32(s->token_loss);
  base->stats = as_f32(s->stats);
  base->hard_lse = as_f32(s->hard_lse);
  base->loss = as_f32(&s->loss);
  if (base->inverse_temperature == 0) base->inverse_temperature = 1;
  if (base->soft == 0) base->soft = 1;
  if (base->grad_scale == 0) base->grad_scale = 1;
  if (base->kind != TIGON_DIVERGENCE_KL) s->p.tail = true;
}

/* What dinput is the gradient of. */
static double objective(void *argument) {
  state *s = argument;
  tigon_topk_divergence_problem p = s->p;
  p.base.dinput.data = NULL;
  tigon_ref_topk_divergence_fwd(NULL, &p);
  double sum = 0;
  for (int r = 0; r < ROWS; ++r) sum += s->token_loss[r] * (p.base.dloss ? (double)p.base.dloss[r] : 1);
  if (p.base.reduction != TIGON_REDUCTION_NONE) sum = s->loss * (p.base.dloss ? (double)*p.base.dloss : 1);
  return sum * (double)p.base.grad_scale;
}

static void compare(tigon_topk_divergence_problem options) {
  static state s;
  start(&s, &options);
  s.p.base.dinput = grad_rows(s.dx, COLS);
  tigon_ref_topk_divergence_fwd(NULL, &s.p);
  double forward[N];
  memcpy(forward, s.dx, sizeof forward);
  for (int c = 0; c < COLS; ++c) assert_true(forward[COLS + c] == 0);
  assert_true(s.token_loss[1] == 0);
  grad_expect("dinput", objective, &s, s.x, forward, N, 1e-6);
  tigon_ref_topk_divergence_fwd(NULL, &s.p); /* the stats of x as it is */

  tigon_ref_topk_divergence_bwd(NULL, &s.p);
  for (int i = 0; i < N; ++i) assert_true(fabs(s.dx[i] - forward[i]) <= 1e-14);
  s.p.base.dinput = s.p.base.input;
  tigon_ref_topk_divergence_bwd(NULL, &s.p);
  assert_memory_equal(s.x, s.dx, sizeof s.x);
}

/* Every kind, of everything that the teacher may be, with the tail and without, with columns outside and without. */
static void test_kinds(void **unused) {
  (void)unused;
  for (int kind = 0; kind <= TIGON_DIVERGENCE_TVD; ++kind)
    for (int is = 0; is < 3; ++is)
      for (int how = 0; how < 4; ++how)
        compare((tigon_topk_divergence_problem){.base = {.kind = (tigon_divergence_kind)kind,
                                                         .target_is = (tigon_distribution)is,
                                                         .beta = 0.3f,
                                                         .inverse_temperature = 0.625f},
                                                .k = how / 2 ? COLS : K,
                                                .tail = how % 2,
                                                .least_tail = is == TIGON_DISTRIBUTION_LOGITS ? 0.01 : 0});
}

/* What a head asks for besides: the cross entropy, a softcap and a scale. */
static void test_head(void **unused) {
  (void)unused;
  const tigon_logit_map maps[] = {{1.5f, 2}, {0, 0.5f}, {3, 0}, {0, 0}};
  for (int kind = 0; kind <= TIGON_DIVERGENCE_TVD; ++kind)
    for (int i = 0; i < 8; ++i)
      compare((tigon_topk_divergence_problem){.base = {.kind = (tigon_divergence_kind)kind,
                                                       .target_is = TIGON_DISTRIBUTION_LOG_PROBABILITIES,
                                                       .beta = 0.3f,
                                                       .inverse_temperature = 0.625f,
                                                       .input_map = maps[i / 2],
                                                       .soft = 0.75f,
                                                       .hard = i % 2 ? 1.5f : 0,
                                                       .token_scale = token_scale,
                                                       .denominator = dloss},
                                              .tail = true});
}

/* Backward panel by panel has forward's gradient. */
static void test_panels(void **unused) {
  (void)unused;
  static state s;
  double whole[N];
  for (int is = 0; is < 3; ++is) {
    const tigon_topk_divergence_problem options = {.base = {.kind = TIGON_DIVERGENCE_JSD,
                                                            .target_is = (tigon_distribution)is,
                                                            .beta = 0.3f,
                                                            .hard = 0.5f,
                                                            .input_map = {2, 1.5f}},
                                                   .least_tail = 0.01};
    start(&s, &options);
    s.p.base.dinput = grad_rows(s.dx, COLS);
    tigon_ref_topk_divergence_fwd(NULL, &s.p);
    memcpy(whole, s.dx, sizeof whole);
    memset(s.dx, 0, sizeof s.dx);
    for (int from = 0; from < COLS; from += 3) {
      tigon_topk_divergence_problem p = s.p;
      p.base.parts = TIGON_DIVERGENCE_ROWS;
      p.base.cols = 3, p.base.vocab = COLS, p.base.panel_begin = from;
      p.base.input = grad_rows(s.x + from, COLS);
      p.base.dinput = grad_rows(s.dx + from, COLS);
      tigon_ref_topk_divergence_bwd(NULL, &p);
    }
    assert_memory_equal(whole, s.dx, sizeof whole);
  }
}

static void test_options(void **unused) {
  (void)unused;
  compare((tigon_topk_divergence_problem){
      .base = {.reduction = TIGON_REDUCTION_SUM, .dloss = dloss, .grad_scale = -3, .target_is = 1, .soft = 4}});
  compare((tigon_topk_divergence_problem){
      .base = {.reduction = TIGON_REDUCTION_NONE, .dloss = dloss, .token_scale = token_scale, .target_is = 2},
      .tail = true,
      .least_tail = 0.97});
  compare((tigon_topk_divergence_problem){.base = {.kind = TIGON_DIVERGENCE_JSD,
                                                   .beta = 0.75f,
                                                   .token_scale = token_scale,
                                                   .dloss = dloss,
                                                   .grad_scale = 1.5f}});
}

/* A term of a class or of the tail, straight from the formulas. */
static double term(int kind, double b, double q, double p) {
  const double m = b * p + (1 - b) * q;
  if (kind == TIGON_DIVERGENCE_KL) return p > 0 ? p * log(p / q) : 0;
  if (kind == TIGON_DIVERGENCE_REVERSE_KL) return q * log(q / p);
  if (kind == TIGON_DIVERGENCE_JSD) return b * p * log(p / m) + (1 - b) * q * log(q / m);
  return 0.5 * fabs(p - q);
}

static void test_values(void **unused) {
  (void)unused;
  static state s;
  for (int kind = 0; kind <= TIGON_DIVERGENCE_TVD; ++kind)
    for (int tail = kind != TIGON_DIVERGENCE_KL; tail < 2; ++tail) {
      const tigon_topk_divergence_problem options = {
          .base = {.kind = (tigon_divergence_kind)kind, .target_is = 1, .beta = 0.3f}, .tail = tail};
      start(&s, &options);
      tigon_ref_topk_divergence_fwd(NULL, &s.p);
      double sum = 0;
      for (int r = 0; r < ROWS; ++r) {
        const int first = r == 2 ? 1 : 0, last = r == 3 ? 3 : K; /* see ids */
        double z = 0, in_p = 0, in_q = 0, loss = 0;
        for (int v = 0; v < COLS; ++v) z += exp(s.x[r * COLS + v]);
        for (int j = first; j < last; ++j) {
          if (r == 3 && j == 1) continue;
          if (r == 2 && j == 2) continue;
          const double q = exp(s.x[r * COLS + ids[r * K + j]]) / z, p = exp(s.t[r * K + j]);
          in_p += p, in_q += q, loss += term(kind, (double)0.3f, q, p);
        }
        if (r == 2) { /* class 8 by its first entry */
          const double q = exp(s.x[r * COLS + 8]) / z, p = exp(s.t[r * K]);
          in_p += p, in_q += q, loss += term(kind, (double)0.3f, q, p);
        }
        if (tail) loss += term(kind, (double)0.3f, 1 - in_q, 1 - in_p);
        if (r == 1) loss = 0;
        assert_true(fabs(s.token_loss[r] - loss) < 1e-14);
        sum += loss;
      }
      assert_true(fabs(s.loss - sum / 3) < 1e-14);
    }
}

/* Every class is an entry: what divergence makes of the same teacher. */
static void test_whole_vocabulary(void **unused) {
  (void)unused;
  static state s;
  static double t[N], dx[N];
  for (int kind = 0; kind <= TIGON_DIVERGENCE_TVD; ++kind)
    for (int is = 0; is < 3; ++is) {
      const tigon_topk_divergence_problem options = {
          .base = {.kind = (tigon_divergence_kind)kind, .target_is = (tigon_distribution)is, .beta = 0.3f},
          .k = COLS,
          .tail = true,
          .least_tail = 0.5};
      start(&s, &options);
      s.p.base.dinput = grad_rows(s.dx, COLS);
      tigon_ref_topk_divergence_fwd(NULL, &s.p);
      const double loss = s.loss;
      for (int i = 0; i < N; ++i) t[i / COLS * COLS + (int)all[i]] = s.t[i];
      tigon_divergence_problem whole = s.p.base;
      whole.parts = TIGON_DIVERGENCE_ALL;
      whole.target_cols = COLS;
      whole.target = grad_rows(t, COLS);
      whole.dinput = grad_rows(dx, COLS);
      tigon_ref_divergence_fwd(NULL, &whole);
      assert_true(fabs(s.loss - loss) < 1e-14);
      for (int i = 0; i < N; ++i) assert_true(fabs(s.dx[i] - dx[i]) < 1e-14);
    }
}

/* log q_t far below what 1 - sum q can say, and a tail whose every column is masked. */
static void test_small_tail(void **unused) {
  (void)unused;
  static state s;
  const tigon_topk_divergence_problem options = {.base = {.target_is = 1}, .tail = true};
  start(&s, &options);
  s.p.base.dinput = grad_rows(s.dx, COLS);
  for (int v = 0; v < COLS; ++v) s.x[v] = -100;
  for (int j = 0; j < K; ++j) s.x[ids[j]] = 1 + j;
  tigon_ref_topk_divergence_fwd(NULL, &s.p);
  assert_true(fabs(s.stats[1] - (log(5.0) - 100)) < 1e-12);
  double p = 1;
  for (int j = 0; j < K; ++j) p -= exp(s.t[j]);
  for (int v = 0; v < COLS; ++v)
    if (v != 7 && v != 0 && v != 3 && v != 5) assert_true(fabs(s.dx[v] + p / 5 / 3) < 1e-14);
  for (int v = 0; v < COLS; ++v)
    if (v != 7 && v != 0 && v != 3 && v != 5) s.x[v] = -(double)INFINITY;
  tigon_ref_topk_divergence_fwd(NULL, &s.p);
  assert_true(s.token_loss[0] == (double)INFINITY && s.dx[1] == 0);
}

/* No row counts: the loss and the gradient are 0. */
static void test_nothing_counts(void **unused) {
  (void)unused;
  static state s;
  const tigon_topk_divergence_problem options = {.base = {.kind = TIGON_DIVERGENCE_TVD}};
  const int64_t ignored[ROWS] = {-100, -100, -100, -100};
  start(&s, &options);
  s.p.base.labels = ignored;
  s.p.base.dinput = grad_rows(s.dx, COLS);
  s.loss = s.dx[0] = 5;
  tigon_ref_topk_divergence_fwd(NULL, &s.p);
  assert_true(s.loss == 0 && s.inverse == 0);
  for (int i = 0; i < N; ++i) assert_true(s.dx[i] == 0);
}

GRAD_MAIN(cmocka_unit_test(test_kinds), cmocka_unit_test(test_options), cmocka_unit_test(test_head),
          cmocka_unit_test(test_panels), cmocka_unit_test(test_values), cmocka_unit_test(test_whole_vocabulary),
          cmocka_unit_test(test_small_tail), cmocka_unit_test(test_nothing_counts))
