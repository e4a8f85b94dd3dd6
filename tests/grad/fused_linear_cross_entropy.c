/* The composite against its parts: linear, cross_entropy and linear's backward with all logits in memory, on the oracle
 * and on the CPU with the built-in GEMM, for workspaces of every size. Loss, row outputs and dhidden do not depend on
 * the chunks: their bits must be those of the parts. dweight and dbias are sums over tokens and may differ by their
 * order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

#include "core/half.h"

enum { ROWS = 203, WIDTH = 24, VOCAB = 57, WORKSPACE = 1 << 18, IGNORE = -100 };

/* Buffers hold up to 4 bytes an element; 16-bit dtypes use half of them. */
typedef struct results {
  float loss[1], token_loss[ROWS], lse[ROWS], z_loss[ROWS], entropy[ROWS], dhidden[ROWS * WIDTH],
      dweight[VOCAB * WIDTH], dbias[VOCAB];
  int64_t argmax[ROWS], correct[1];
  int32_t error[1];
} results;

typedef struct problem {
  tigon_dtype dtype, sum_dtype; /* sum_dtype: of dweight and dbias */
  int rows;
  float hidden[ROWS * WIDTH], weight[VOCAB * WIDTH], bias[VOCAB], classes[VOCAB], scale[ROWS], dloss[ROWS],
      dentropy[ROWS], denominator[1];
  int64_t labels[ROWS];
  tigon_cross_entropy_options options;
  bool accumulate, one_dloss, with_dentropy, with_error, few_outputs;
} problem;

static float uniform(unsigned *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) * 0x1p-23f - 1;
}

static void fill(void *data, tigon_dtype dtype, int count, double scale, unsigned *seed) {
  for (int i = 0; i < count; ++i) tigon_store_f64(data, i, dtype, scale * (double)uniform(seed));
}

/* ignored: of every ten rows, scattered. */
static problem *made(tigon_dtype dtype, tigon_dtype sum_dtype, int rows, int ignored) {
  static problem p;
  memset(&p, 0, sizeof p);
  unsigned seed = 7;
  p.dtype = dtype;
  p.sum_dtype = sum_dtype;
  p.rows = rows;
  fill(p.hidden, dtype, ROWS * WIDTH, 1, &seed);
  fill(p.weight, dtype, VOCAB * WIDTH, 1, &seed);
  fill(p.bias, dtype, VOCAB, 1, &seed);
  for (int v = 0; v < VOCAB; ++v) p.classes[v] = 1.1f + uniform(&seed);
  for (int r = 0; r < ROWS; ++r) {
    p.scale[r] = 1.5f + uniform(&seed);
    p.dloss[r] = uniform(&seed);
    p.dentropy[r] = r % 7 == 0 ? 0 : uniform(&seed);
    p.labels[r] = (int64_t)(seed >> 8) % VOCAB;
    if ((int)(seed >> 4) % 10 < ignored) p.labels[r] = IGNORE;
  }
  p.denominator[0] = 150;
  p.options = (tigon_cross_entropy_options){.has_ignore_index = 1, .ignore_index = IGNORE};
  return &p;
}

static tigon_context *opened(const char *device) {
  setenv("TIGON_GEMM", "builtin", 1);
  const tigon_context_desc desc = {.device = device, .threads = 2};
  tigon_context *context;
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  return context;
}

static tigon_cross_entropy_outputs outputs(const problem *p, results *out) {
  if (p->few_outputs)
    return (tigon_cross_entropy_outputs){.loss = tigon_tensor_1d(out->loss, TIGON_F32, 1),
                                         .correct = tigon_tensor_1d(out->correct, TIGON_I64, 1)};
  return (tigon_cross_entropy_outputs){
      .loss =
          p->options.reduction == TIGON_REDUCTION_NONE ? (tigon_tensor){0} : tigon_tensor_1d(out->loss, TIGON_F32, 1),
      .token_loss = tigon_tensor_1d(out->token_loss, TIGON_F32, p->rows),
      .lse = tigon_tensor_1d(out->lse, TIGON_F32, p->rows),
      .z_loss = tigon_tensor_1d(out->z_loss, TIGON_F32, p->rows),
      .entropy = tigon_tensor_1d(out->entropy, TIGON_F32, p->rows),
      .argmax = tigon_tensor_1d(out->argmax, TIGON_I64, p->rows),
      .correct = tigon_tensor_1d(out->correct, TIGON_I64, 1),
      .error = p->with_error ? tigon_tensor_1d(out->error, TIGON_I32, 1) : (tigon_tensor){0},
  };
}

static tigon_tensor dloss_of(const problem *p) {
  if (p->one_dloss) return tigon_tensor_1d((void *)p->dloss, TIGON_F32, 1);
  return p->options.reduction == TIGON_REDUCTION_NONE ? tigon_tensor_1d((void *)p->dloss, TIGON_F32, p->rows)
                                                      : (tigon_tensor){0};
}

static tigon_fused_linear_cross_entropy_args arguments(const problem *p, results *out, void *workspace, size_t bytes) {
  return (tigon_fused_linear_cross_entropy_args){
      .hidden = tigon_tensor_2d((void *)p->hidden, p->dtype, p->rows, WIDTH),
      .weight = tigon_tensor_2d((void *)p->weight, p->dtype, VOCAB, WIDTH),
      .bias = tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB),
      .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, p->rows),
      .options = p->options,
      .out = outputs(p, out),
      .dloss = dloss_of(p),
      .dentropy = p->with_dentropy ? tigon_tensor_1d((void *)p->dentropy, TIGON_F32, p->rows) : (tigon_tensor){0},
      .grad_scale = 0.75,
      .dhidden = tigon_tensor_2d(out->dhidden, p->dtype, p->rows, WIDTH),
      .dweight = tigon_tensor_2d(out->dweight, p->sum_dtype, VOCAB, WIDTH),
      .dbias = tigon_tensor_1d(out->dbias, p->sum_dtype, VOCAB),
      .accumulate_dweight = p->accumulate,
      .workspace = workspace,
      .workspace_bytes = bytes,
  };
}

/* What gradients are added to. */
static void start(const problem *p, results *out) {
  memset(out, 0, sizeof *out);
  unsigned seed = 99;
  fill(out->dweight, p->sum_dtype, VOCAB * WIDTH, 1, &seed);
  fill(out->dbias, p->sum_dtype, VOCAB, 1, &seed);
}

static void unfused(tigon_context *c, const problem *p, results *out) {
  static float logits[ROWS * VOCAB];
  _Alignas(64) static char workspace[WORKSPACE];
  start(p, out);
  const tigon_fused_linear_cross_entropy_args a = arguments(p, out, NULL, 0);
  const tigon_tensor u = tigon_tensor_2d(logits, p->dtype, p->rows, VOCAB);
  const tigon_linear_fwd_args f = {.x = a.hidden, .w = a.weight, .b = a.bias, .y = u};
  assert_int_equal(tigon_linear_fwd(c, &f), TIGON_OK);
  const tigon_cross_entropy_fwd_args l = {.logits = u,
                                          .labels = a.labels,
                                          .options = p->options,
                                          .out = a.out,
                                          .dlogits = u,
                                          .dloss = a.dloss,
                                          .dentropy = a.dentropy,
                                          .grad_scale = a.grad_scale,
                                          .workspace = workspace,
                                          .workspace_bytes = sizeof workspace};
  assert_int_equal(tigon_cross_entropy_fwd(c, &l), TIGON_OK);
  const tigon_linear_bwd_args b = {.dy = u,
                                   .x = a.hidden,
                                   .w = a.weight,
                                   .dx = a.dhidden,
                                   .dw = a.dweight,
                                   .db = a.dbias,
                                   .accumulate_dw = p->accumulate};
  assert_int_equal(tigon_linear_bwd(c, &b), TIGON_OK);
  for (int r = 0; r < p->rows; ++r)
    if (p->labels[r] == IGNORE || p->labels[r] >= VOCAB) out->lse[r] = 0; /* the composite skips such a row */
}

static void expect_sum(const problem *p, const char *name, const float *got, const float *expected, int count) {
  const double ulp = p->sum_dtype == TIGON_F32 ? 0 : p->sum_dtype == TIGON_BF16 ? 0x1p-7 : 0x1p-10;
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = fmax(largest, fabs(tigon_load_f64(expected, i, p->sum_dtype)));
  for (int i = 0; i < count; ++i) {
    const double g = tigon_load_f64(got, i, p->sum_dtype), e = tigon_load_f64(expected, i, p->sum_dtype);
    /* A panel makes dlogits from the f32 log-sum-exp: 16-bit ones may fall to the other side of a rounding boundary. */
    const double flip = p->dtype == TIGON_F32 ? 0 : p->dtype == TIGON_BF16 ? 0x1p-11 : 0x1p-14;
    if (!(fabs(g - e) <= ulp * fabs(e) + (4e-6 + flip) * largest))
      print_error("%s[%d] is %g, must be %g\n", name, i, g, e), fail();
  }
}

static void expect(const problem *p, const results *got, const results *expected, bool forward) {
  if (forward) {
    assert_memory_equal(got->loss, expected->loss, sizeof got->loss);
    assert_memory_equal(got->token_loss, expected->token_loss, sizeof got->token_loss);
    assert_memory_equal(got->lse, expected->lse, sizeof got->lse);
    assert_memory_equal(got->z_loss, expected->z_loss, sizeof got->z_loss);
    assert_memory_equal(got->entropy, expected->entropy, sizeof got->entropy);
    assert_memory_equal(got->argmax, expected->argmax, sizeof got->argmax);
    assert_memory_equal(got->correct, expected->correct, sizeof got->correct);
  }
  assert_memory_equal(got->error, expected->error, sizeof got->error);
  assert_memory_equal(got->dhidden, expected->dhidden, sizeof got->dhidden);
  expect_sum(p, "dweight", got->dweight, expected->dweight, VOCAB * WIDTH);
  expect_sum(p, "dbias", got->dbias, expected->dbias, VOCAB);
}

/* Forward and backward with exactly `bytes` of workspace, nothing after which may change. */
static void run_with(tigon_context *c, const problem *p, const results *expected, size_t bytes) {
  _Alignas(64) static char workspace[WORKSPACE];
  static results got;
  static problem inputs;
  inputs = *p;
  for (int forward = 0; forward < 2; ++forward) {
    memset(workspace, 0x7f, sizeof workspace);
    start(p, &got);
    tigon_fused_linear_cross_entropy_args a = arguments(p, &got, workspace, bytes);
    if (!forward) a.out = (tigon_cross_entropy_outputs){.error = a.out.error};
    const tigon_status status =
        forward ? tigon_fused_linear_cross_entropy_fwd(c, &a) : tigon_fused_linear_cross_entropy_bwd(c, &a);
    if (status != TIGON_OK) print_error("%s\n", tigon_last_error(c));
    assert_int_equal(status, TIGON_OK);
    for (size_t i = bytes; i < sizeof workspace; ++i) assert_int_equal(workspace[i], 0x7f);
    expect(p, &got, expected, forward);
    assert_memory_equal(p, &inputs, sizeof inputs);
  }
}

static void compare(const problem *p) {
  static results expected;
  const char *devices[] = {"ref", "cpu"};
  for (int d = 0; d < 2; ++d) {
    tigon_context *c = opened(devices[d]);
    unfused(c, p, &expected);
    results unused;
    tigon_fused_linear_cross_entropy_args a = arguments(p, &unused, NULL, 0);
    size_t least, good;
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &least, &good), TIGON_OK);
    a.out = (tigon_cross_entropy_outputs){0};
    size_t backward;
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &backward, NULL), TIGON_OK);
    if (backward > least) least = backward;
    assert_in_range(good, least, WORKSPACE);
    for (size_t bytes = least; bytes < good; bytes += (good - least) / 9 + 1) run_with(c, p, &expected, bytes);
    run_with(c, p, &expected, least + 1);
    run_with(c, p, &expected, good);
    run_with(c, p, &expected, WORKSPACE);
    tigon_context_destroy(c);
  }
}

static void test_f32(void **s) { (void)s, compare(made(TIGON_F32, TIGON_F32, ROWS, 0)); }
static void test_bf16_f32(void **s) { (void)s, compare(made(TIGON_BF16, TIGON_F32, ROWS, 3)); }
static void test_bf16_bf16(void **s) { (void)s, compare(made(TIGON_BF16, TIGON_BF16, ROWS, 0)); }
static void test_f16_f16_ignored(void **s) { (void)s, compare(made(TIGON_F16, TIGON_F16, ROWS, 6)); }

/* Few enough rows for their dlogits to be parked in dweight. */
static void test_parked(void **s) {
  (void)s;
  compare(made(TIGON_BF16, TIGON_BF16, WIDTH, 0));
  compare(made(TIGON_F16, TIGON_F16, WIDTH - 1, 0));
}

/* Some classes' dlogits are, of two to four times as many rows; with one row more none are. */
static void test_parked_partly(void **s) {
  (void)s;
  for (int rows = WIDTH + 1; rows <= 4 * WIDTH + 1; rows += WIDTH - 1) compare(made(TIGON_BF16, TIGON_BF16, rows, 0));
  compare(made(TIGON_F16, TIGON_F16, 4 * WIDTH, 0));
  problem *p = made(TIGON_BF16, TIGON_BF16, 3 * WIDTH, 0);
  p->with_dentropy = true;
  compare(p);
}

static void test_accumulate(void **s) {
  (void)s;
  const tigon_dtype sums[] = {TIGON_F32, TIGON_BF16};
  for (int i = 0; i < 2; ++i) {
    problem *p = made(TIGON_BF16, sums[i], ROWS, 5);
    p->accumulate = true;
    compare(p);
  }
}

static void test_every_option(void **s) {
  (void)s;
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int i = 0; i < 2; ++i) {
    problem *p = made(dtypes[i], dtypes[i], ROWS, 4);
    p->options.weight = tigon_tensor_1d(p->classes, TIGON_F32, VOCAB);
    p->options.token_scale = tigon_tensor_1d(p->scale, TIGON_F32, ROWS);
    p->options.label_smoothing = 0.1;
    p->options.lse_square_scale = 1e-2;
    p->options.softcap = 5;
    p->options.temperature = 0.8;
    p->one_dloss = true;
    compare(p);
    p->options.softcap_first = 1;
    p->options.denominator = tigon_tensor_1d(p->denominator, TIGON_F32, 1);
    compare(p);
    p->options.denominator = (tigon_tensor){0};
    p->one_dloss = false;
    p->options.reduction = TIGON_REDUCTION_NONE;
    compare(p);
    p->options.reduction = TIGON_REDUCTION_SUM;
    compare(p);
  }
}

/* With few outputs the panels have the entropy from the workspace. */
static void test_dentropy(void **s) {
  (void)s;
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  for (int i = 0; i < 3; ++i) {
    problem *p = made(dtypes[i], dtypes[i], i == 2 ? WIDTH : ROWS, 2 - i);
    p->with_dentropy = true;
    compare(p);
    p->few_outputs = true;
    compare(p);
    p->few_outputs = false;
    p->options.reduction = TIGON_REDUCTION_NONE;
    p->options.softcap = 3;
    compare(p);
  }
}

/* Labels out of range count as ignored and raise the flag. */
static void test_out_of_range(void **s) {
  (void)s;
  problem *p = made(TIGON_BF16, TIGON_BF16, ROWS, 2);
  p->labels[0] = VOCAB;
  p->labels[77] = VOCAB + 5;
  p->with_error = true;
  compare(p);
}

static void test_all_ignored(void **s) {
  (void)s;
  for (int accumulate = 0; accumulate < 2; ++accumulate) {
    problem *p = made(TIGON_BF16, TIGON_BF16, ROWS, 10);
    p->accumulate = accumulate;
    compare(p);
  }
}

static void test_few_outputs(void **s) {
  (void)s;
  problem *p = made(TIGON_BF16, TIGON_BF16, ROWS, 2);
  p->few_outputs = true;
  compare(p);
}

/* dhidden in hidden's place, direct and with panels. */
static void test_in_place(void **s) {
  (void)s;
  static results expected, got;
  static float hidden[ROWS * WIDTH];
  _Alignas(64) static char workspace[WORKSPACE];
  tigon_context *c = opened("cpu");
  const problem *p = made(TIGON_BF16, TIGON_BF16, ROWS, 3);
  unfused(c, p, &expected);
  for (int small = 0; small < 2; ++small)
    for (int forward = 0; forward < 2; ++forward) {
      start(p, &got);
      memcpy(hidden, p->hidden, sizeof hidden);
      tigon_fused_linear_cross_entropy_args a = arguments(p, &got, workspace, sizeof workspace);
      if (!forward) a.out = (tigon_cross_entropy_outputs){0};
      if (small)
        assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &a.workspace_bytes, NULL), TIGON_OK);
      a.hidden.data = a.dhidden.data = hidden;
      assert_int_equal(forward ? tigon_fused_linear_cross_entropy_fwd(c, &a)
                               : tigon_fused_linear_cross_entropy_bwd(c, &a),
                       TIGON_OK);
      expect_sum(p, "dweight", got.dweight, expected.dweight, VOCAB * WIDTH);
      assert_memory_equal(hidden, expected.dhidden, sizeof(uint16_t) * ROWS * WIDTH);
    }
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_f32),         cmocka_unit_test(test_bf16_f32),
      cmocka_unit_test(test_bf16_bf16),   cmocka_unit_test(test_f16_f16_ignored),
      cmocka_unit_test(test_parked),      cmocka_unit_test(test_parked_partly),
      cmocka_unit_test(test_accumulate),  cmocka_unit_test(test_every_option),
      cmocka_unit_test(test_dentropy),    cmocka_unit_test(test_out_of_range),
      cmocka_unit_test(test_all_ignored), cmocka_unit_test(test_few_outputs),
      cmocka_unit_test(test_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
