/* fused_linear_cross_entropy: tokens that do not count, workspaces. Its values: tests/grad/fused_linear_cross_entropy.c. */
#include "api.h"

typedef tigon_fused_linear_cross_entropy_args arguments;

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

enum { ROWS = 5, WIDTH = 6, VOCAB = 7 };

typedef struct data {
  float hidden[ROWS * WIDTH], weight[VOCAB * WIDTH], loss, token_loss[ROWS];
  int64_t labels[ROWS], argmax[ROWS], correct;
  float dhidden[ROWS * WIDTH], dweight[VOCAB * WIDTH], dbias[VOCAB];
  _Alignas(64) char workspace[1 << 14];
} data;

/* Label -100 is ignored. */
static arguments made(data *d) {
  memset(d, 0x5a, sizeof *d);
  api_fill(d->hidden, ROWS * WIDTH, 0.5f);
  api_fill(d->weight, VOCAB * WIDTH, 0.25f);
  api_fill(d->dweight, VOCAB * WIDTH, 1);
  api_fill(d->dbias, VOCAB, 1);
  for (int r = 0; r < ROWS; ++r) d->labels[r] = r;
  return (arguments){.hidden = tigon_tensor_2d(d->hidden, TIGON_F32, ROWS, WIDTH),
                     .weight = tigon_tensor_2d(d->weight, TIGON_F32, VOCAB, WIDTH),
                     .labels = tigon_tensor_1d(d->labels, TIGON_I64, ROWS),
                     .options = {.has_ignore_index = 1, .ignore_index = -100},
                     .out = {.loss = tigon_tensor_1d(&d->loss, TIGON_F32, 1),
                             .token_loss = tigon_tensor_1d(d->token_loss, TIGON_F32, ROWS),
                             .argmax = tigon_tensor_1d(d->argmax, TIGON_I64, ROWS),
                             .correct = tigon_tensor_1d(&d->correct, TIGON_I64, 1)},
                     .dhidden = tigon_tensor_2d(d->dhidden, TIGON_F32, ROWS, WIDTH),
                     .dweight = tigon_tensor_2d(d->dweight, TIGON_F32, VOCAB, WIDTH),
                     .dbias = tigon_tensor_1d(d->dbias, TIGON_F32, VOCAB),
                     .workspace = d->workspace,
                     .workspace_bytes = sizeof d->workspace};
}

/* No token counts: the loss is 0, gradients are 0, and with accumulation they stay. No tokens: tests/api/ways.c. */
static void test_all_ignored(void **state) {
  for (int accumulate = 0; accumulate < 2; ++accumulate) {
    static data d, before;
    arguments a = made(&d);
    for (int r = 0; r < ROWS; ++r) d.labels[r] = -100;
    a.accumulate_dweight = accumulate;
    before = d;
    assert_int_equal(tigon_fused_linear_cross_entropy_fwd(*state, &a), TIGON_OK);
    assert_true(d.loss == 0 && d.correct == 0);
    for (int i = 0; i < VOCAB * WIDTH; ++i) assert_true(d.dweight[i] == (accumulate ? before.dweight[i] : 0));
    for (int i = 0; i < VOCAB; ++i) assert_true(d.dbias[i] == (accumulate ? before.dbias[i] : 0));
    for (int r = 0; r < ROWS; ++r) assert_true(d.token_loss[r] == 0 && d.argmax[r] == -1);
    for (int i = 0; i < ROWS * WIDTH; ++i) assert_true(d.dhidden[i] == 0);
  }
}

/* Not a hidden NaN of an ignored token comes out anywhere. */
static void test_ignored_nan(void **state) {
  static data d;
  const arguments a = made(&d);
  d.labels[2] = -100;
  for (int i = 0; i < WIDTH; ++i) d.hidden[2 * WIDTH + i] = NAN;
  assert_int_equal(tigon_fused_linear_cross_entropy_fwd(*state, &a), TIGON_OK);
  assert_true(isfinite(d.loss));
  for (int i = 0; i < VOCAB * WIDTH; ++i) assert_true(isfinite(d.dweight[i]));
  for (int i = 0; i < ROWS * WIDTH; ++i) assert_true(isfinite(d.dhidden[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_mebibyte), cmocka_unit_test(test_recommended),
                                     cmocka_unit_test(test_all_ignored), cmocka_unit_test(test_ignored_nan)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
