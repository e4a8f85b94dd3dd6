/* vocab_parallel_cross_entropy against cross_entropy of the whole vocabulary, and its gradient against finite differences of the
 * oracle, double throughout. With TIGON_F64 the stats, the row outputs and the loss are f64 too. */
#include "grad.h"

enum { ROWS = 5, COLS = 11, SHARDS = 3, N = ROWS * COLS };

static const int64_t begins[SHARDS + 1] = {0, 4, 9, COLS};
static const int32_t labels[ROWS] = {3, 9, -100, 6,
                                     COLS}; /* the third row is ignored, the last one's is out of range */
static const float dloss[ROWS] = {0.75f, -2, 1, 0.5f, 4}, dentropy[ROWS] = {1.5f, -0.75f, 3, 0, -2};
static const float denominator = 2.5f;

typedef struct options {
  tigon_reduction reduction;
  const float *dloss, *dentropy, *denominator;
  float smoothing, lse_square_scale, softcap, inverse_temperature, grad_scale;
  int64_t rank; /* rank of a partition, less 1; 0: none */
} options;

typedef struct state {
  tigon_cross_entropy_problem p; /* the problem with all columns */
  int64_t rank;
  double x[N], dx[N], stats[SHARDS][ROWS][TIGON_VOCAB_STATS];
  double inverse, loss, token_loss[ROWS], lse[ROWS], entropy[ROWS], z_loss[ROWS];
  int32_t error;
} state;

static float *as_f32(double *data) { return (float *)(void *)data; }

static void start(state *t, const options *o) {
  memset(t, 0, sizeof *t);
  grad_fill(t->x, N, 7);
  for (int i = 0; i < N; ++i) t->x[i] *= 3;
  t->rank = o->rank - 1;
  t->p = (tigon_cross_entropy_problem){
      .space = {ROWS, 1, ROWS},
      .cols = COLS,
      .vocab = COLS,
      .smoothed = o->rank ? begins[o->rank] - begins[o->rank - 1] : 0,
      .dtype = GRAD_F64,
      .label_dtype = TIGON_I32,
      .labels = labels,
      .denominator = o->denominator,
      .dloss = o->dloss,
      .dentropy = o->dentropy,
      .inverse = as_f32(&t->inverse),
      .token_loss = as_f32(t->token_loss),
      .lse = as_f32(t->lse),
      .entropy = as_f32(t->entropy),
      .z_loss = as_f32(t->z_loss),
      .loss = as_f32(&t->loss),
      .error_flag = &t->error,
      .has_ignore_index = true,
      .ignore_index = -100,
      .label_smoothing = o->smoothing,
      .lse_square_scale = o->lse_square_scale,
      .softcap = o->softcap,
      .inverse_temperature = o->inverse_temperature != 0 ? o->inverse_temperature : 1,
      .grad_scale = o->grad_scale != 0 ? o->grad_scale : 1,
      .reduction = o->reduction,
  };
  t->p.entropy_scale = o->dentropy ? t->p.grad_scale : 0;
}

static tigon_cross_entropy_problem shard_of(state *t, int k) {
  tigon_cross_entropy_problem p = t->p;
  p.panel_begin = begins[k];
  p.cols = begins[k + 1] - begins[k];
  p.logits = grad_rows(t->x + begins[k], COLS);
  return p;
}

static void forward(state *t) {
  for (int k = 0; k < SHARDS; ++k) {
    tigon_cross_entropy_problem p = shard_of(t, k);
    p.parts = TIGON_CROSS_ENTROPY_ROWS;
    p.stats = as_f32(&t->stats[k][0][0]);
    p.entropy_scale = 1;
    tigon_ref_vocab_parallel_cross_entropy_stats(NULL, &p);
  }
  const tigon_vocab_parallel_cross_entropy_merge_problem m = {
      .dtype = GRAD_F64, .loss = t->p, .stats = as_f32(&t->stats[0][0][0]), .shards = SHARDS, .rank = t->rank};
  tigon_ref_vocab_parallel_cross_entropy_merge(NULL, &m);
}

/* What dlogits is the gradient of. */
static double objective(void *argument) {
  state *t = argument;
  const tigon_cross_entropy_problem *p = &t->p;
  double sum = 0;
  forward(t);
  for (int r = 0; r < ROWS; ++r) sum += t->token_loss[r] * (p->dloss ? (double)p->dloss[r] : 1);
  if (p->reduction != TIGON_REDUCTION_NONE) sum = t->loss * (p->dloss ? (double)*p->dloss : 1);
  for (int r = 0; p->dentropy && r < ROWS; ++r) sum += t->entropy[r] * (double)p->dentropy[r];
  return sum * (double)p->grad_scale;
}

static void expect_rows(const double *got, const double *must) {
  for (int r = 0; r < ROWS; ++r) assert_true(fabs(got[r] - must[r]) <= 1e-13);
}

/* Without a partition the losses and dlogits are those of cross_entropy, too. */
static void expect_cross_entropy(const state *t, const double dx[N]) {
  static state whole;
  whole = *t;
  tigon_cross_entropy_problem p = whole.p;
  double own[N];
  p.parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS | TIGON_CROSS_ENTROPY_REDUCE;
  p.vocab = 0;
  p.logits = grad_rows(whole.x, COLS);
  p.dlogits = grad_rows(own, COLS);
  p.inverse = as_f32(&whole.inverse);
  p.loss = as_f32(&whole.loss);
  p.token_loss = as_f32(whole.token_loss);
  p.lse = as_f32(whole.lse);
  p.entropy = as_f32(whole.entropy);
  p.z_loss = as_f32(whole.z_loss);
  tigon_ref_cross_entropy_fwd(NULL, &p);
  expect_rows(t->token_loss, whole.token_loss);
  expect_rows(t->lse, whole.lse);
  expect_rows(t->entropy, whole.entropy);
  expect_rows(t->z_loss, whole.z_loss);
  assert_true(fabs(t->loss - whole.loss) <= 1e-13);
  for (int i = 0; i < N; ++i) assert_true(fabs(dx[i] - own[i]) <= 1e-13);
}

static void compare(options o) {
  static state t;
  start(&t, &o);
  forward(&t);
  assert_int_equal(t.error, 1);
  assert_true(t.token_loss[2] == 0 && t.token_loss[4] == 0 && t.entropy[2] == 0 && t.z_loss[4] == 0);
  for (int k = 0; k < SHARDS; ++k) {
    tigon_cross_entropy_problem p = shard_of(&t, k);
    p.parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS;
    p.dlogits = grad_rows(t.dx + begins[k], COLS);
    tigon_ref_vocab_parallel_cross_entropy_bwd(NULL, &p);
  }
  for (int c = 0; c < COLS; ++c) assert_true(t.dx[2 * COLS + c] == 0 && t.dx[4 * COLS + c] == 0);
  if (!o.rank) expect_cross_entropy(&t, t.dx);
  double dx[N];
  memcpy(dx, t.dx, sizeof dx);
  /* With a partition a shard's own loss is differentiated by its own logits; of rows that count. */
  for (int r = 0; o.rank && r < 4; r += r == 1 ? 2 : 1) {
    const int64_t first = r * COLS + begins[o.rank - 1];
    grad_expect("dlogits of a partition", objective, &t, t.x + first, dx + first,
                (int)(begins[o.rank] - begins[o.rank - 1]), 1e-6);
  }
  if (!o.rank) grad_expect("dlogits", objective, &t, t.x, dx, N, 1e-6);
}

static void test_plain(void **s) { (void)s, compare((options){0}); }
static void test_sum(void **s) {
  (void)s, compare((options){.reduction = TIGON_REDUCTION_SUM, .dloss = dloss, .grad_scale = -3});
}
static void test_none(void **s) { (void)s, compare((options){.reduction = TIGON_REDUCTION_NONE, .dloss = dloss}); }
static void test_denominator(void **s) { (void)s, compare((options){.denominator = &denominator}); }
static void test_smoothing(void **s) { (void)s, compare((options){.smoothing = 0.3f}); }
/* Megatron's smoothing may be above 1. */
static void test_large_smoothing(void **s) { (void)s, compare((options){.smoothing = 1.1f}); }
static void test_z_loss(void **s) { (void)s, compare((options){.lse_square_scale = 0.25f}); }
static void test_logits(void **s) { (void)s, compare((options){.softcap = 1.5f, .inverse_temperature = 1.75f}); }
static void test_entropy(void **s) { (void)s, compare((options){.dentropy = dentropy, .grad_scale = -3}); }
static void test_partition(void **s) {
  (void)s;
  for (int k = 1; k <= SHARDS; ++k) compare((options){.rank = k, .smoothing = 0.3f, .lse_square_scale = 0.25f});
}
static void test_all(void **s) {
  (void)s;
  compare((options){.dloss = dloss,
                    .dentropy = dentropy,
                    .smoothing = 0.2f,
                    .lse_square_scale = 0.125f,
                    .softcap = 2.5f,
                    .inverse_temperature = 0.625f,
                    .grad_scale = 1.5f});
}

/* A shard of -Inf alone adds nothing; a row of nothing else has lse -Inf, and NaN for the rest. */
static void test_masked(void **s) {
  (void)s;
  static state t;
  const options o = {.reduction = TIGON_REDUCTION_SUM};
  start(&t, &o);
  for (int c = 4; c < 9; ++c) t.x[c] = -INFINITY;
  for (int c = 0; c < COLS; ++c) t.x[COLS + c] = -INFINITY;
  forward(&t);
  assert_true(t.stats[1][0][0] == -INFINITY && t.stats[1][0][1] == 0 && t.stats[1][0][2] == 0);
  double sum = 0;
  for (int c = 0; c < COLS; ++c) sum += exp(t.x[c]);
  assert_true(fabs(t.lse[0] - log(sum)) < 1e-14 && fabs(t.token_loss[0] - (log(sum) - t.x[3])) < 1e-14);
  assert_true(t.lse[1] == -INFINITY && isnan(t.token_loss[1]) && isnan(t.entropy[1]));
}

/* Where exp(x - m) is 0 its logarithm is -Inf; the sum of logits is not, and so the smoothed loss is a number. */
static void test_far_logits(void **s) {
  (void)s;
  static state t;
  const options o = {.reduction = TIGON_REDUCTION_NONE, .smoothing = 0.1f};
  start(&t, &o);
  for (int c = 0; c < COLS; ++c) t.x[c] = c == 3 ? 0 : -2000;
  forward(&t);
  assert_true(fabs(t.token_loss[0] - (double)0.1f * 2000 * (COLS - 1) / COLS) < 1e-9);
}

GRAD_MAIN(cmocka_unit_test(test_plain), cmocka_unit_test(test_sum), cmocka_unit_test(test_none),
          cmocka_unit_test(test_denominator), cmocka_unit_test(test_smoothing), cmocka_unit_test(test_large_smoothing),
          cmocka_unit_test(test_z_loss), cmocka_unit_test(test_logits), cmocka_unit_test(test_entropy),
          cmocka_unit_test(test_partition), cmocka_unit_test(test_all), cmocka_unit_test(test_masked),
          cmocka_unit_test(test_far_logits))
