/* adamw: a step by hand; lists of any shape. */
#include "api.h"

enum { N = 10, ENTRIES = 3 };

typedef struct data {
  float param[ENTRIES][N], master[ENTRIES][N], grad[ENTRIES][N], m[ENTRIES][N], v[ENTRIES][N];
  float clip[2], norm[2], factor[2];
  _Alignas(64) char workspace[1 << 13];
  tigon_adamw_param params[ENTRIES];
  tigon_tensor grads[ENTRIES];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  for (int i = 0; i < ENTRIES; ++i) {
    api_fill(d.param[i], N, 0.5f);
    api_fill(d.master[i], N, 0.5f);
    api_fill(d.grad[i], N, 0.125f);
    api_fill(d.m[i], N, 0.0625f);
    for (int e = 0; e < N; ++e) d.v[i][e] = 0.01f * (float)(e + 1);
    d.params[i] = (tigon_adamw_param){.param = tigon_tensor_2d(d.param[i], TIGON_F32, 2, N / 2),
                                      .master = tigon_tensor_2d(d.master[i], TIGON_F32, 2, N / 2),
                                      .grad = tigon_tensor_2d(d.grad[i], TIGON_F32, 2, N / 2),
                                      .exp_avg = tigon_tensor_2d(d.m[i], TIGON_F32, 2, N / 2),
                                      .exp_avg_sq = tigon_tensor_2d(d.v[i], TIGON_F32, 2, N / 2),
                                      .weight_decay = 0.1};
    d.grads[i] = d.params[i].grad;
  }
  d.clip[0] = 0.5f;
  return &d;
}

static tigon_adamw_step_args step_args(data *d) {
  return (tigon_adamw_step_args){.params = d->params,
                                 .count = ENTRIES,
                                 .clip_factor = tigon_tensor_1d(d->clip, TIGON_F32, 1),
                                 .lr = 1e-2,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .step = 3};
}
static tigon_adamw_clip_args clip_args(data *d) {
  return (tigon_adamw_clip_args){.grads = d->grads,
                                 .count = ENTRIES,
                                 .max_norm = 1,
                                 .norm = tigon_tensor_1d(d->norm, TIGON_F32, 1),
                                 .factor = tigon_tensor_1d(d->factor, TIGON_F32, 1),
                                 .workspace = d->workspace,
                                 .workspace_bytes = sizeof d->workspace};
}

/* The header's formula, in double. */
static void test_step(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  before = *d;
  memset(&d->params[1].master, 0, sizeof(tigon_tensor)); /* its own master */
  const tigon_adamw_step_args a = step_args(d);
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  for (int i = 0; i < ENTRIES; ++i)
    for (int e = 0; e < N; ++e) {
      const double g = 0.5 * (double)before.grad[i][e], old = (double)(i == 1 ? before.param : before.master)[i][e];
      const double m = 0.9 * (double)before.m[i][e] + 0.1 * g, v = 0.999 * (double)before.v[i][e] + 0.001 * g * g;
      const double step = m / (1 - pow(0.9, 3)) / (sqrt(v / (1 - pow(0.999, 3))) + 1e-8);
      const double value = old - 1e-2 * (0.1 * old + step);
      assert_true(fabs((double)d->m[i][e] - m) <= 3e-7 * fabs(m));
      assert_true(fabs((double)d->v[i][e] - v) <= 3e-7 * v);
      assert_true(fabs((double)d->param[i][e] - value) <= 3e-7 * (fabs(old) + fabs(step)));
      if (i != 1) assert_true(d->param[i][e] == d->master[i][e]);
    }
}

static void test_clip(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_adamw_clip_args a = clip_args(d);
  double sum = 0;
  for (int i = 0; i < ENTRIES; ++i)
    for (int e = 0; e < N; ++e) sum += (double)d->grad[i][e] * (double)d->grad[i][e];
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d->norm[0] == (float)sqrt(sum));
  assert_true(d->factor[0] == (float)(1 / sqrt(sum)));
  a.max_norm = 0;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d->factor[0] == 1);
  /* Squares that f32 cannot hold, then what is not a number. */
  for (int e = 0; e < N; ++e) d->grad[1][e] = 1e30f;
  a.max_norm = 1;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(fabs((double)d->norm[0] / (1e30 * sqrt(N)) - 1) < 1e-6 && d->factor[0] > 0);
  d->grad[2][9] = INFINITY;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(d->norm[0] == INFINITY && d->factor[0] == 0);
  d->grad[0][0] = NAN;
  assert_int_equal(tigon_adamw_clip(c, &a), TIGON_OK);
  assert_true(isnan(d->norm[0]) && isnan(d->factor[0]));
}

static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_adamw_step_args a = step_args(d);
  a.count = 0;
  a.params = NULL;
  before = *d;
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  tigon_tensor *const tensors[] = {&d->params[1].param, &d->params[1].master, &d->params[1].grad, &d->params[1].exp_avg,
                                   &d->params[1].exp_avg_sq};
  for (int i = 0; i < 5; ++i) tensors[i]->shape[0] = 0, tensors[i]->data = NULL;
  a = step_args(d);
  assert_int_equal(tigon_adamw_step(c, &a), TIGON_OK);
  assert_memory_equal(d->param[1], before.param[1], sizeof d->param[1]);
  assert_true(memcmp(d->param[2], before.param[2], sizeof d->param[2]) != 0);
  tigon_adamw_clip_args clip = clip_args(d);
  clip.count = 0;
  clip.grads = NULL;
  assert_int_equal(tigon_adamw_clip(c, &clip), TIGON_OK);
  assert_true(d->norm[0] == 0 && d->factor[0] == 1);
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
