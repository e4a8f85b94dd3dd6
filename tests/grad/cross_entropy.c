/* cross_entropy against finite differences of the oracle, double throughout: with TIGON_F64 its row outputs and its
 * loss are f64 too. And the sum rule on every variant of the CPU: the dlogits of a row add up to 0. */
#include "grad.h"

enum { ROWS = 5, COLS = 7, N = ROWS * COLS };

static const int32_t labels[ROWS] = {3, 0, -100, 6, 9}; /* the third row is ignored, the last one's is out of range */
static const float weight[COLS] = {0.5f, 1.25f, 2, 0.75f, 0, 1, 1.5f};
static const float token_scale[ROWS] = {1, -0.5f, 2, 0.25f, 3};
static const float dloss[ROWS] = {0.75f, -2, 1, 0.5f, 4};
static const float denominator = 2.5f;
static const float dentropy[ROWS] = {1.5f, -0.75f, 3, 0, -2};

typedef struct state {
  tigon_cross_entropy_problem p;
  double x[N], dx[N], inverse, loss, token_loss[ROWS], lse[ROWS], entropy[ROWS], z_loss[ROWS];
  int64_t argmax[ROWS], correct;
  int32_t error;
} state;

/* Outputs that are f32 to a caller are f64 here. */
static float *as_f32(double *data) { return (float *)(void *)data; }

static void start(state *t, const tigon_cross_entropy_problem *options) {
  memset(t, 0, sizeof *t);
  grad_fill(t->x, N, 7);
  for (int i = 0; i < N; ++i) t->x[i] *= 3;
  t->p = *options;
  t->p.parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS | TIGON_CROSS_ENTROPY_REDUCE;
  t->p.space = (tigon_row_space){ROWS, 1, ROWS};
  t->p.cols = COLS;
  t->p.dtype = GRAD_F64;
  t->p.label_dtype = TIGON_I32;
  t->p.logits = grad_rows(t->x, COLS);
  t->p.labels = labels;
  t->p.inverse = as_f32(&t->inverse);
  t->p.token_loss = as_f32(t->token_loss);
  t->p.lse = as_f32(t->lse);
  t->p.entropy = as_f32(t->entropy);
  t->p.z_loss = as_f32(t->z_loss);
  t->p.argmax = t->argmax;
  t->p.correct = &t->correct;
  t->p.error_flag = &t->error;
  t->p.loss = as_f32(&t->loss);
  t->p.has_ignore_index = true;
  t->p.ignore_index = -100;
  if (t->p.inverse_temperature == 0) t->p.inverse_temperature = 1;
  if (t->p.grad_scale == 0) t->p.grad_scale = 1;
  if (t->p.dentropy) t->p.entropy_scale = t->p.grad_scale;
}

/* What dlogits is the gradient of. */
static double objective(void *argument) {
  state *t = argument;
  tigon_cross_entropy_problem p = t->p;
  p.dlogits.data = NULL;
  tigon_ref_cross_entropy_fwd(NULL, &p);
  double sum = 0;
  for (int r = 0; r < ROWS; ++r) sum += t->token_loss[r] * (p.dloss ? (double)p.dloss[r] : 1);
  if (p.reduction != TIGON_REDUCTION_NONE) sum = t->loss * (p.dloss ? (double)*p.dloss : 1);
  for (int r = 0; p.dentropy && r < ROWS; ++r) sum += t->entropy[r] * (double)p.dentropy[r];
  return sum * (double)p.grad_scale;
}

static void compare(tigon_cross_entropy_problem options) {
  static state t;
  start(&t, &options);
  t.p.dlogits = grad_rows(t.dx, COLS);
  tigon_ref_cross_entropy_fwd(NULL, &t.p);
  double forward[N];
  memcpy(forward, t.dx, sizeof forward);
  for (int c = 0; c < COLS; ++c) assert_true(forward[2 * COLS + c] == 0 && forward[4 * COLS + c] == 0);
  assert_int_equal(t.error, 1);
  assert_true(t.argmax[2] == -1 && t.argmax[4] == -1);
  grad_expect("dlogits", objective, &t, t.x, forward, N, 1e-6);

  t.p.dlogits = grad_rows(t.dx, COLS);
  tigon_ref_cross_entropy_bwd(NULL, &t.p);
  for (int i = 0; i < N; ++i) assert_true(fabs(t.dx[i] - forward[i]) <= 1e-14);
  tigon_rows in_place = t.p.logits;
  t.p.dlogits = in_place;
  tigon_ref_cross_entropy_bwd(NULL, &t.p);
  assert_memory_equal(t.x, t.dx, sizeof t.x);
}

static void test_plain(void **s) { (void)s, compare((tigon_cross_entropy_problem){0}); }
static void test_sum_dloss(void **s) {
  (void)s;
  compare((tigon_cross_entropy_problem){.reduction = TIGON_REDUCTION_SUM, .dloss = dloss, .grad_scale = -3});
}
static void test_none(void **s) {
  (void)s;
  compare((tigon_cross_entropy_problem){.reduction = TIGON_REDUCTION_NONE, .dloss = dloss, .token_scale = token_scale});
}
static void test_weight(void **s) { (void)s, compare((tigon_cross_entropy_problem){.weight = weight}); }
static void test_denominator(void **s) {
  (void)s;
  compare((tigon_cross_entropy_problem){.weight = weight, .denominator = &denominator});
}
static void test_smoothing(void **s) { (void)s, compare((tigon_cross_entropy_problem){.label_smoothing = 0.3f}); }
static void test_z_loss(void **s) { (void)s, compare((tigon_cross_entropy_problem){.lse_square_scale = 0.25f}); }
static void test_softcap(void **s) { (void)s, compare((tigon_cross_entropy_problem){.softcap = 1.5f}); }
static void test_temperature(void **s) {
  (void)s, compare((tigon_cross_entropy_problem){.inverse_temperature = 1.75f});
}
static void test_entropy(void **s) {
  (void)s;
  compare((tigon_cross_entropy_problem){.dentropy = dentropy, .grad_scale = -3});
  compare((tigon_cross_entropy_problem){.dentropy = dentropy, .softcap = 1.5f, .inverse_temperature = 1.75f});
}
static void test_all(void **s) {
  (void)s;
  compare((tigon_cross_entropy_problem){.weight = weight,
                                        .token_scale = token_scale,
                                        .dloss = dloss,
                                        .dentropy = dentropy,
                                        .label_smoothing = 0.2f,
                                        .lse_square_scale = 0.125f,
                                        .softcap = 2.5f,
                                        .inverse_temperature = 0.625f,
                                        .grad_scale = 1.5f});
}

/* Forward's values, from the formulas of the header written another way. */
static void test_values(void **s) {
  (void)s;
  static state t;
  const tigon_cross_entropy_problem options = {.weight = weight, .label_smoothing = 0.2f, .lse_square_scale = 0.5f};
  start(&t, &options);
  tigon_ref_cross_entropy_fwd(NULL, &t.p);
  double sum = 0, weights = 0;
  for (int r = 0; r < ROWS; ++r) {
    double z = 0, entropy = 0, smooth = 0;
    for (int v = 0; v < COLS; ++v) z += exp(t.x[r * COLS + v]);
    assert_true(fabs(t.lse[r] - log(z)) < 1e-14);
    if (r == 2 || r == 4) {
      assert_true(t.token_loss[r] == 0 && t.entropy[r] == 0 && t.z_loss[r] == 0);
      continue;
    }
    for (int v = 0; v < COLS; ++v) {
      const double p = exp(t.x[r * COLS + v]) / z;
      entropy -= p * log(p);
      smooth -= (double)weight[v] * log(p) * (double)0.2f / COLS;
    }
    const double w = (double)weight[labels[r]], z_loss = w * 0.5 * log(z) * log(z);
    const double loss = -(1 - (double)0.2f) * w * log(exp(t.x[r * COLS + labels[r]]) / z) + smooth + z_loss;
    assert_true(fabs(t.entropy[r] - entropy) < 1e-13);
    assert_true(fabs(t.z_loss[r] - z_loss) < 1e-13);
    assert_true(fabs(t.token_loss[r] - loss) < 1e-13);
    sum += loss;
    weights += w;
  }
  assert_true(fabs(t.loss - sum / weights) < 1e-13);
}

/* No row counts: the loss and every gradient are 0, also where all weights are. */
static void test_nothing_counts(void **s) {
  (void)s;
  static state t;
  static const float zeros[COLS] = {0};
  const tigon_cross_entropy_problem options = {.softcap = 0};
  static const float zero = 0;
  for (int k = 0; k < 3; ++k) {
    start(&t, &options);
    int32_t ignored[ROWS] = {-100, -100, -100, -100, -100};
    if (k == 0)
      t.p.labels = ignored;
    else if (k == 1)
      t.p.weight = zeros;
    else
      t.p.denominator = &zero;
    t.p.dlogits = grad_rows(t.dx, COLS);
    tigon_ref_cross_entropy_fwd(NULL, &t.p);
    assert_true(t.loss == 0 && t.inverse == 0);
    for (int i = 0; i < N; ++i) assert_true(t.dx[i] == 0);
  }
}

/* A masked class has neither a share of the entropy nor a gradient; a row of nothing else has NaN. */
static void test_masked(void **s) {
  (void)s;
  static state t;
  const tigon_cross_entropy_problem options = {.dentropy = dentropy, .reduction = TIGON_REDUCTION_SUM};
  start(&t, &options);
  for (int c = 1; c < COLS; ++c) t.x[c] = t.x[COLS + c] = -INFINITY;
  t.x[3] = t.x[0]; /* the label of the first row, as likely as the only other class */
  t.x[COLS] = -INFINITY;
  t.p.dlogits = grad_rows(t.dx, COLS);
  for (int backward = 0; backward < 2; ++backward) {
    memset(t.dx, 1, sizeof t.dx);
    (backward ? tigon_ref_cross_entropy_bwd : tigon_ref_cross_entropy_fwd)(NULL, &t.p);
    assert_true(fabs(t.entropy[0] - log(2)) < 1e-14);
    for (int c = 0; c < COLS; ++c) {
      const double expected = c == 0 ? 0.5 : c == 3 ? -0.5 : 0; /* the entropy is at its largest */
      assert_true(fabs(t.dx[c] - expected) < 1e-14);
      assert_true(isnan(t.dx[COLS + c]));
    }
  }
}

/* f32 dlogits: sum p - 1 is off by the rounding of the sum of exp and of each p. */
static void test_sum_rule(void **s) {
  (void)s;
  enum { V = 4099 };
  static float x[2 * V], dx[2 * V], loss;
  static _Alignas(64) char workspace[1024];
  for (int i = 0; i < 2 * V; ++i) x[i] = (float)((i * 7919) % 1000) * (i < V ? 0.01f : 0.03f) - 5;
  int64_t where[2] = {17, V - 1};
  x[17] = 30; /* p of the label is nearly 1 */
  const tigon_kernels *const *variants = tigon_backend_find("cpu")->variants();
  for (; *variants; ++variants) {
    tigon_context *context;
    const tigon_context_desc desc = {.device = "cpu", .variant = (*variants)->variant};
    assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
    for (int smooth = 0; smooth < 2; ++smooth) {
      const tigon_cross_entropy_fwd_args args = {
          .logits = tigon_tensor_2d(x, TIGON_F32, 2, V),
          .labels = tigon_tensor_1d(where, TIGON_I64, 2),
          .options = {.reduction = TIGON_REDUCTION_SUM, .label_smoothing = smooth ? 0.125 : 0},
          .out = {.loss = tigon_tensor_1d(&loss, TIGON_F32, 1)},
          .dlogits = tigon_tensor_2d(dx, TIGON_F32, 2, V),
          .workspace = workspace,
          .workspace_bytes = sizeof workspace};
      assert_int_equal(tigon_cross_entropy_fwd(context, &args), TIGON_OK);
      for (int r = 0; r < 2; ++r) {
        double sum = 0;
        for (int v = 0; v < V; ++v) sum += (double)dx[r * V + v];
        assert_true(fabs(sum) <= 4 * 0x1p-24);
      }
    }
    tigon_context_destroy(context);
  }
}

GRAD_MAIN(cmocka_unit_test(test_plain), cmocka_unit_test(test_sum_dloss), cmocka_unit_test(test_none),
          cmocka_unit_test(test_weight), cmocka_unit_test(test_denominator), cmocka_unit_test(test_smoothing),
          cmocka_unit_test(test_z_loss), cmocka_unit_test(test_softcap), cmocka_unit_test(test_temperature),
          cmocka_unit_test(test_entropy), cmocka_unit_test(test_all), cmocka_unit_test(test_masked),
          cmocka_unit_test(test_values), cmocka_unit_test(test_nothing_counts), cmocka_unit_test(test_sum_rule))
