/* fused_linear_cross_entropy: what its description cannot say; labels out of range, tokens that do not count, no tokens,
 * workspaces. Its values: tests/grad/fused_linear_cross_entropy.c. */
#include "api.h"

enum { ROWS = 5, WIDTH = 6, VOCAB = 7 };

typedef struct data {
  float hidden[ROWS * WIDTH], weight[VOCAB * WIDTH], bias[VOCAB], classes[VOCAB], scale[ROWS], dloss[ROWS];
  int64_t labels[ROWS];
  float loss[1], token_loss[ROWS], lse[ROWS], z_loss[ROWS], entropy[ROWS];
  int64_t argmax[ROWS], correct[1];
  int32_t error[1];
  float dhidden[ROWS * WIDTH], dweight[VOCAB * WIDTH], dbias[VOCAB];
  _Alignas(64) char workspace[1 << 14];
} data;

typedef tigon_fused_linear_cross_entropy_args arguments;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.hidden, ROWS * WIDTH, 0.5f);
  api_fill(d.weight, VOCAB * WIDTH, 0.25f);
  api_fill(d.bias, VOCAB, 0.125f);
  for (int r = 0; r < ROWS; ++r) d.scale[r] = d.dloss[r] = 1, d.labels[r] = r;
  for (int v = 0; v < VOCAB; ++v) d.classes[v] = 1;
  return &d;
}

static arguments fwd_args(data *d) {
  return (arguments){
      .hidden = tigon_tensor_2d(d->hidden, TIGON_F32, ROWS, WIDTH),
      .weight = tigon_tensor_2d(d->weight, TIGON_F32, VOCAB, WIDTH),
      .bias = tigon_tensor_1d(d->bias, TIGON_F32, VOCAB),
      .labels = tigon_tensor_1d(d->labels, TIGON_I64, ROWS),
      .options = {.weight = tigon_tensor_1d(d->classes, TIGON_F32, VOCAB),
                  .token_scale = tigon_tensor_1d(d->scale, TIGON_F32, ROWS)},
      .out = {.loss = tigon_tensor_1d(d->loss, TIGON_F32, 1),
              .token_loss = tigon_tensor_1d(d->token_loss, TIGON_F32, ROWS),
              .lse = tigon_tensor_1d(d->lse, TIGON_F32, ROWS),
              .z_loss = tigon_tensor_1d(d->z_loss, TIGON_F32, ROWS),
              .entropy = tigon_tensor_1d(d->entropy, TIGON_F32, ROWS),
              .argmax = tigon_tensor_1d(d->argmax, TIGON_I64, ROWS),
              .correct = tigon_tensor_1d(d->correct, TIGON_I64, 1)},
      .dhidden = tigon_tensor_2d(d->dhidden, TIGON_F32, ROWS, WIDTH),
      .dweight = tigon_tensor_2d(d->dweight, TIGON_F32, VOCAB, WIDTH),
      .dbias = tigon_tensor_1d(d->dbias, TIGON_F32, VOCAB),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

static arguments bwd_args(data *d) {
  arguments a = fwd_args(d);
  memset(&a.out, 0, sizeof a.out);
  return a;
}

/* 2 x 2 rows, which lie apart by two strides. */
static arguments two_strides(data *d) {
  arguments a = fwd_args(d);
  a.hidden = (tigon_tensor){d->hidden, TIGON_F32, 3, {2, 2, WIDTH}, {15, 6, 1}};
  a.labels.shape[0] = 4;
  memset(&a.dhidden, 0, sizeof a.dhidden);
  memset(&a.options, 0, sizeof a.options);
  memset(&a.out.token_loss, 0, sizeof a.out - offsetof(tigon_cross_entropy_outputs, token_loss));
  return a;
}

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(fused_linear_cross_entropy_fwd, two_strides, (void)a, INVALID,
              "the leading dimensions collapse to 2 strides, must collapse to 1");
  API_REFUSES(fused_linear_cross_entropy_fwd, fwd_args, memset(&a.out.loss, 0, sizeof a.out.loss), INVALID,
              "out.loss is absent, must be there but with options.reduction none");
  API_REFUSES(fused_linear_cross_entropy_bwd, bwd_args, a.out.lse = tigon_tensor_1d(d->lse, TIGON_F32, ROWS), INVALID,
              "out.lse is there, must be absent");
  API_REFUSES(fused_linear_cross_entropy_bwd, bwd_args, a.out.correct = tigon_tensor_1d(d->correct, TIGON_I64, 1),
              INVALID, "out.correct is there, must be absent");
}

static void test_workspace(void **state) {
  tigon_context *c = *state;
  data *d = made();
  arguments a = fwd_args(d);
  size_t least, good;
  assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &least, &good), TIGON_OK);
  assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, NULL, NULL), TIGON_OK);
  assert_true(least <= good);
  a.hidden.data = a.weight.data = a.labels.data = NULL; /* a query reads no data */
  size_t again;
  assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &again, NULL), TIGON_OK);
  assert_int_equal(again, least);
}

/* 1 MiB is enough for a 32000 x 1024 head with 16-bit dweight and 8192 tokens. */
static void test_one_mebibyte(void **state) {
  tigon_context *c = *state;
  arguments a = {
      .hidden = tigon_tensor_2d(NULL, TIGON_BF16, 8192, 1024),
      .weight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, 1024),
      .labels = tigon_tensor_1d(NULL, TIGON_I32, 8192),
      .dhidden = tigon_tensor_2d(NULL, TIGON_BF16, 8192, 1024),
      .dweight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, 1024),
      .dbias = tigon_tensor_1d(NULL, TIGON_BF16, 32000),
  };
  float loss;
  size_t least;
  assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &least, NULL), TIGON_OK);
  assert_true(least <= 1 << 20);
  a.out.loss = tigon_tensor_1d(&loss, TIGON_F32, 1);
  assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, &least, NULL), TIGON_OK);
  assert_true(least <= 1 << 20);
}

/* One chunk for all tokens, or one of 1024 and the sums of a 16-bit dweight, whichever is smaller. */
static void test_recommended(void **state) {
  tigon_context *c = *state;
  for (int64_t tokens = 2048; tokens <= 65536; tokens *= 2) {
    arguments a = {
        .hidden = tigon_tensor_2d(NULL, TIGON_BF16, tokens, 4096),
        .weight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, 4096),
        .labels = tigon_tensor_1d(NULL, TIGON_I32, tokens),
        .dweight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, 4096),
    };
    size_t good;
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(c, &a, NULL, &good), TIGON_OK);
    const size_t row = (32000 + 4096) * 2, all = (size_t)tokens * row, chunked = 1024 * row + (size_t)32000 * 4096 * 4;
    const size_t expected = all < chunked ? all : chunked;
    assert_true(good >= expected && good < expected + (1 << 20));
  }
}

static void test_out_of_range_flag(void **state) {
  tigon_context *c = *state;
  data *d = made();
  d->labels[2] = 70;
  d->error[0] = 0;
  arguments a = fwd_args(d);
  a.out.error = tigon_tensor_1d(d->error, TIGON_I32, 1);
  assert_int_equal(tigon_fused_linear_cross_entropy_fwd(c, &a), TIGON_OK);
  assert_int_equal(d->error[0], 1);
  assert_true(d->token_loss[2] == 0 && d->lse[2] == 0 && d->z_loss[2] == 0 && d->entropy[2] == 0);
  assert_int_equal(d->argmax[2], -1);
  for (int i = 0; i < WIDTH; ++i) assert_true(d->dhidden[2 * WIDTH + i] == 0 && d->dhidden[3 * WIDTH + i] != 0);
  a = bwd_args(d);
  a.out.error = tigon_tensor_1d(d->error, TIGON_I32, 1);
  d->error[0] = 0;
  assert_int_equal(tigon_fused_linear_cross_entropy_bwd(c, &a), TIGON_OK);
  assert_int_equal(d->error[0], 1);
}

/* Nothing counts: the loss is 0, gradients are 0, and with accumulation they stay. */
static void test_all_ignored(void **state) {
  tigon_context *c = *state;
  for (int empty = 0; empty < 2; ++empty)
    for (int accumulate = 0; accumulate < 2; ++accumulate) {
      data *d = made();
      api_fill(d->dweight, VOCAB * WIDTH, 1);
      api_fill(d->dbias, VOCAB, 1);
      static data before;
      before = *d;
      for (int r = 0; r < ROWS; ++r) d->labels[r] = -100;
      arguments a = fwd_args(d);
      a.options.has_ignore_index = 1;
      a.options.ignore_index = -100;
      a.accumulate_dweight = accumulate;
      if (empty) {
        tigon_tensor *rows[] = {&a.hidden,  &a.dhidden,    &a.labels,      &a.options.token_scale, &a.out.token_loss,
                                &a.out.lse, &a.out.z_loss, &a.out.entropy, &a.out.argmax};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) rows[i]->shape[0] = 0, rows[i]->data = NULL;
      }
      assert_int_equal(tigon_fused_linear_cross_entropy_fwd(c, &a), TIGON_OK);
      assert_true(d->loss[0] == 0);
      assert_int_equal(d->correct[0], 0);
      for (int i = 0; i < VOCAB * WIDTH; ++i) assert_true(d->dweight[i] == (accumulate ? before.dweight[i] : 0));
      for (int i = 0; i < VOCAB; ++i) assert_true(d->dbias[i] == (accumulate ? before.dbias[i] : 0));
      for (int r = 0; !empty && r < ROWS; ++r) assert_true(d->token_loss[r] == 0 && d->argmax[r] == -1);
      for (int i = 0; !empty && i < ROWS * WIDTH; ++i) assert_true(d->dhidden[i] == 0);
    }
}

/* Not a hidden NaN of an ignored token comes out anywhere. */
static void test_ignored_nan(void **state) {
  tigon_context *c = *state;
  data *d = made();
  d->labels[2] = -100;
  for (int i = 0; i < WIDTH; ++i) d->hidden[2 * WIDTH + i] = NAN;
  arguments a = fwd_args(d);
  a.options.has_ignore_index = 1;
  a.options.ignore_index = -100;
  assert_int_equal(tigon_fused_linear_cross_entropy_fwd(c, &a), TIGON_OK);
  assert_true(isfinite(d->loss[0]));
  for (int i = 0; i < VOCAB * WIDTH; ++i) assert_true(isfinite(d->dweight[i]));
  for (int i = 0; i < ROWS * WIDTH; ++i) assert_true(isfinite(d->dhidden[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses),           cmocka_unit_test(test_workspace),
                                     cmocka_unit_test(test_one_mebibyte),      cmocka_unit_test(test_recommended),
                                     cmocka_unit_test(test_out_of_range_flag), cmocka_unit_test(test_all_ignored),
                                     cmocka_unit_test(test_ignored_nan)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
