/* adamw: a step by hand; lists of any shape. */
#include "api.h"

enum { N = 10, ENTRIES = 3, PARAM = 0, MASTER, GRAD, FIRST, SECOND, PARTS };

typedef struct data {
  float of[ENTRIES][PARTS][N], clip, norm, factor;
  _Alignas(64) char workspace[1 << 13];
  tigon_adamw_param params[ENTRIES];
  tigon_tensor grads[ENTRIES];
} data;

static void fill(data *d) {
  const float scales[PARTS] = {0.5f, 0.5f, 0.125f, 0.0625f, 0.01f};
  d->clip = 0.5f;
  for (int i = 0; i < ENTRIES; ++i) {
    tigon_tensor t[PARTS];
    for (int part = 0; part < PARTS; ++part) {
      api_fill(d->of[i][part], N, scales[part]);
      t[part] = tigon_tensor_2d(d->of[i][part], TIGON_F32, 2, N / 2);
    }
    for (int e = 0; e < N; ++e) d->of[i][SECOND][e] = fabsf(d->of[i][SECOND][e]);
    d->params[i] = (tigon_adamw_param){t[PARAM], t[MASTER], t[GRAD], t[FIRST], t[SECOND], .weight_decay = 0.1};
    d->grads[i] = t[GRAD];
  }
}

static tigon_adamw_step_args step_args(data *d) {
  fill(d);
  return (tigon_adamw_step_args){.params = d->params,
                                 .count = ENTRIES,
                                 .clip_factor = tigon_tensor_1d(&d->clip, TIGON_F32, 1),
                                 .lr = 1e-2,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .step = 3};
}

/* The header's formula, in double. */
static void test_step(void **state) {
  static data d, before;
  const tigon_adamw_step_args a = step_args(&d);
  before = d;
  memset(&d.params[1].master, 0, sizeof(tigon_tensor)); /* its own master */
  assert_int_equal(tigon_adamw_step(*state, &a), TIGON_OK);
  for (int i = 0; i < ENTRIES; ++i)
    for (int e = 0; e < N; ++e) {
      double was[PARTS], is[PARTS];
      for (int part = 0; part < PARTS; ++part)
        was[part] = (double)before.of[i][part][e], is[part] = (double)d.of[i][part][e];
      const double g = 0.5 * was[GRAD], old = was[i == 1 ? PARAM : MASTER];
      const double m = 0.9 * was[FIRST] + 0.1 * g, v = 0.999 * was[SECOND] + 0.001 * g * g;
      const double step = m / (1 - pow(0.9, 3)) / (sqrt(v / (1 - pow(0.999, 3))) + 1e-8);
      const double value = old - 1e-2 * (0.1 * old + step);
      assert_true(fabs(is[FIRST] - m) <= 3e-7 * fabs(m));
      assert_true(fabs(is[SECOND] - v) <= 3e-7 * v);
      assert_true(fabs(is[PARAM] - value) <= 3e-7 * (fabs(old) + fabs(step)));
      if (i != 1) assert_true(is[PARAM] == is[MASTER]);
    }
}

static void test_clip(void **state) {
  tigon_context *c = *state;
  static data d;
  fill(&d);
  tigon_adamw_clip_args a = {.grads = d.grads,
                             .count = ENTRIES,
                             .max_norm = 1,
                             .norm = tigon_tensor_1d(&d.norm, TIGON_F32, 1),
                             .factor = tigon_tensor_1d(&d.factor, TIGON_F32, 1),
                             .workspace = d.workspace,
                             .workspace_bytes = sizeof d.workspace};
  double sum = 0;
  for (int i = 0; i < ENTRIES; ++i)
    for (int e = 0; e < N; ++e) sum += (double)d.of[i][GRAD][e] * (double)d.of[i][GRAD][e];
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d.norm == (float)sqrt(sum) && d.factor == (float)(1 / sqrt(sum)));
  a.max_norm = 0;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d.factor == 1);
  /* Squares that f32 cannot hold, then what is not a number. */
  for (int e = 0; e < N; ++e) d.of[1][GRAD][e] = 1e30f;
  a.max_norm = 1;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(fabs((double)d.norm / (1e30 * sqrt(N)) - 1) < 1e-6 && d.factor > 0);
  d.of[2][GRAD][9] = INFINITY;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d.norm == INFINITY && d.factor == 0);
  d.of[0][GRAD][0] = NAN;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(isnan(d.norm) && isnan(d.factor));
  a.count = 0;
  a.grads = NULL;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d.norm == 0 && d.factor == 1);
}

/* An empty list, and a tensor without elements between others. */
static void test_empty(void **state) {
  static data d, before;
  tigon_adamw_step_args a = step_args(&d);
  before = d;
  tigon_adamw_param *none = &d.params[1];
  none->param = none->master = none->grad = none->exp_avg = none->exp_avg_sq =
      (tigon_tensor){NULL, TIGON_F32, 2, {0, N / 2}, {0}};
  assert_int_equal(tigon_adamw_step(*state, &a), TIGON_OK);
  assert_memory_equal(d.of[1], before.of[1], sizeof d.of[1]);
  assert_true(memcmp(d.of[2], before.of[2], sizeof d.of[2]) != 0);
  a.count = 0;
  a.params = NULL;
  assert_int_equal(tigon_adamw_step(*state, &a), TIGON_OK);
}

/* One entry of 50 000 elements gives the bits of 500 entries of 100, and every pair of entries is looked at. */
static void test_long_list(void **state) {
  tigon_context *c = *state;
  enum { COUNT = 500, EACH = 100, ALL = COUNT * EACH };
  static float whole[4][ALL], parts[4][ALL];
  static tigon_adamw_param list[COUNT];
  for (int t = 0; t < 4; ++t) {
    api_fill(whole[t], ALL, 0.01f);
    for (int i = 0; i < ALL; ++i) whole[t][i] = fabsf(whole[t][i]);
    memcpy(parts[t], whole[t], sizeof whole[t]);
  }
  tigon_adamw_param one = {.param = tigon_tensor_1d(whole[0], TIGON_F32, ALL),
                           .grad = tigon_tensor_1d(whole[1], TIGON_F32, ALL),
                           .exp_avg = tigon_tensor_1d(whole[2], TIGON_F32, ALL),
                           .exp_avg_sq = tigon_tensor_1d(whole[3], TIGON_F32, ALL)};
  for (int i = 0; i < COUNT; ++i) {
    const int at = (i * 37 % COUNT) * EACH;
    list[i] = (tigon_adamw_param){.param = tigon_tensor_1d(parts[0] + at, TIGON_F32, EACH),
                                  .grad = tigon_tensor_1d(parts[1] + at, TIGON_F32, EACH),
                                  .exp_avg = tigon_tensor_1d(parts[2] + at, TIGON_F32, EACH),
                                  .exp_avg_sq = tigon_tensor_1d(parts[3] + at, TIGON_F32, EACH)};
  }
  tigon_adamw_step_args a = {
      .params = &one, .count = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1};
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  a.params = list;
  a.count = COUNT;
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  assert_memory_equal(parts, whole, sizeof whole);
  list[499].exp_avg.data = (float *)list[3].param.data + 99;
  api_expect(c, tigon_adamw_step(c, &a), TIGON_ERROR_ALIAS,
             "adamw_step: params[3].param overlaps params[499].exp_avg, must be apart");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_step), cmocka_unit_test(test_clip),
                                     cmocka_unit_test(test_empty), cmocka_unit_test(test_long_list)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
