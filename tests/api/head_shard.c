/* linear_logprob of a shard of the vocabulary: what it refuses, a shard without classes, labels out of range. */
#include "api.h"

enum { ROWS = 3, WIDTH = 4, CLASSES = 5, VOCAB = 9, BEGIN = 2, STATS = TIGON_VOCAB_STATS, ROOM = 1 << 14 };

static _Alignas(64) char room[ROOM];
static float hidden[ROWS * WIDTH], weight[CLASSES * WIDTH], stats[ROWS * STATS], words[ROWS], dhidden[ROWS * WIDTH],
    dweight[CLASSES * WIDTH];
static int64_t labels[ROWS], counted[1];
static int32_t error[1];

static tigon_tensor of_rows(float *data, int64_t cols) { return tigon_tensor_2d(data, TIGON_F32, ROWS, cols); }
static tigon_tensor of_classes(float *data) { return tigon_tensor_2d(data, TIGON_F32, CLASSES, WIDTH); }
static tigon_tensor vector(float *data) { return tigon_tensor_1d(data, TIGON_F32, ROWS); }

static tigon_linear_logprob_fwd_args legal_fwd(void) {
  api_fill(hidden, ROWS * WIDTH, 0.1f);
  api_fill(weight, CLASSES * WIDTH, 0.2f);
  for (int r = 0; r < ROWS; ++r) labels[r] = r * 4;
  for (int i = 0; i < ROWS * STATS; ++i) stats[i] = 5;
  return (tigon_linear_logprob_fwd_args){.hidden = of_rows(hidden, WIDTH),
                                         .weight = of_classes(weight),
                                         .labels = tigon_tensor_1d(labels, TIGON_I64, ROWS),
                                         .stats = of_rows(stats, STATS),
                                         .vocab = VOCAB,
                                         .vocab_begin = BEGIN,
                                         .workspace = room,
                                         .workspace_bytes = ROOM};
}

static tigon_linear_logprob_bwd_args legal_bwd(void) {
  const tigon_linear_logprob_fwd_args a = legal_fwd();
  for (int r = 0; r < ROWS; ++r) words[r] = 3;
  return (tigon_linear_logprob_bwd_args){.hidden = a.hidden,
                                         .weight = a.weight,
                                         .labels = a.labels,
                                         .lse = vector(words),
                                         .dlogprob = vector(words),
                                         .dhidden = of_rows(dhidden, WIDTH),
                                         .dweight = of_classes(dweight),
                                         .vocab = VOCAB,
                                         .vocab_begin = BEGIN,
                                         .workspace = room,
                                         .workspace_bytes = ROOM};
}

static void test_refusals(void **state) {
  tigon_linear_logprob_fwd_args f = legal_fwd(), *a = &f;
  tigon_linear_logprob_bwd_args b = legal_bwd(), *back = &b;
  assert_int_equal(tigon_linear_logprob_fwd(*state, a), TIGON_OK);
  assert_int_equal(tigon_linear_logprob_bwd(*state, back), TIGON_OK);
#define FWD(change, sentence)                                                                                      \
  do {                                                                                                             \
    f = legal_fwd();                                                                                               \
    change;                                                                                                        \
    api_expect(*state, tigon_linear_logprob_fwd(*state, a), TIGON_ERROR_INVALID, "linear_logprob_fwd: " sentence); \
    for (int i = 0; i < ROWS * STATS; ++i) assert_true(stats[i] == 5); /* nothing was written */                   \
  } while (0)
#define BWD(change, sentence)                                                                                         \
  do {                                                                                                                \
    b = legal_bwd();                                                                                                  \
    change;                                                                                                           \
    api_expect(*state, tigon_linear_logprob_bwd(*state, back), TIGON_ERROR_INVALID, "linear_logprob_bwd: " sentence); \
  } while (0)
  const tigon_tensor none = {0};
  FWD(a->stats = none, "stats is absent, must be there with vocab");
  FWD(a->logprob = vector(words), "logprob is there, must be absent with vocab");
  FWD(a->lse = vector(words), "lse is there, must be absent with vocab");
  FWD(a->entropy = vector(words), "entropy is there, must be absent with vocab");
  FWD(a->argmax = tigon_tensor_1d(room + ROOM / 2, TIGON_I64, ROWS);
      a->workspace_bytes = ROOM / 2, "argmax is there, must be absent with vocab");
  FWD(a->correct = tigon_tensor_1d(counted, TIGON_I64, 1), "correct is there, must be absent with vocab");
  FWD(a->unit = of_rows(dhidden, WIDTH), "unit is there, must be absent with vocab");
  FWD(a->vocab = 4, "weight.shape[0] is 5, must be at most 4 (vocab)");
  FWD(a->vocab_begin = 5, "vocab_begin is 5, must be 0 to 4 (vocab - weight.shape[0])");
  FWD(a->vocab_begin = INT64_MAX, "vocab_begin is 9223372036854775807, must be 0 to 4 (vocab - weight.shape[0])");
  FWD(a->vocab = -1, "vocab is -1, must be >= 0");
  FWD(labels[1] = VOCAB, "labels[1] is 9, must be 0 to 8 (vocab - 1)");
  FWD(a->vocab = a->vocab_begin = 0, "logprob is absent, must be there without vocab");
  FWD(a->vocab = a->vocab_begin = 0; a->logprob = vector(words), "stats is there, must be absent without vocab");
  FWD(a->vocab = a->vocab_begin = 0; a->logprob = vector(words); a->stats = none;
      labels[1] = 5, "labels[1] is 5, must be 0 to 4 (weight.shape[0] - 1)");
  FWD(a->vocab = 0; a->logprob = vector(words); a->stats = none, "vocab_begin is 2, must be 0 without vocab");
  BWD(back->vocab = 4, "weight.shape[0] is 5, must be at most 4 (vocab)");
  BWD(back->vocab_begin = 5, "vocab_begin is 5, must be 0 to 4 (vocab - weight.shape[0])");
  BWD(back->vocab = 0, "vocab_begin is 2, must be 0 without vocab");
  BWD(labels[1] = VOCAB, "labels[1] is 9, must be 0 to 8 (vocab - 1)");
}

/* Its stats add nothing, and its part of dhidden is 0. */
static void test_no_classes(void **state) {
  tigon_linear_logprob_fwd_args a = legal_fwd();
  tigon_linear_logprob_bwd_args b = legal_bwd();
  a.weight.shape[0] = b.weight.shape[0] = b.dweight.shape[0] = 0;
  a.vocab_begin = b.vocab_begin = VOCAB;
  assert_int_equal(tigon_linear_logprob_fwd(*state, &a), TIGON_OK);
  for (int i = 0; i < ROWS * STATS; ++i) assert_true(stats[i] == (i % STATS == 0 ? -INFINITY : 0));
  for (int i = 0; i < ROWS * WIDTH; ++i) dhidden[i] = 7;
  assert_int_equal(tigon_linear_logprob_bwd(*state, &b), TIGON_OK);
  for (int i = 0; i < ROWS * WIDTH; ++i) assert_true(dhidden[i] == 0);
}

/* A label of another shard is like any other, one of no shard sets `error`. */
static void test_labels(void **state) {
  tigon_linear_logprob_fwd_args a = legal_fwd();
  a.error = tigon_tensor_1d(error, TIGON_I32, 1);
  labels[0] = BEGIN - 1, labels[1] = BEGIN + CLASSES - 1, labels[2] = BEGIN + CLASSES;
  assert_int_equal(tigon_linear_logprob_fwd(*state, &a), TIGON_OK);
  assert_int_equal(error[0], 0);
  for (int r = 0; r < ROWS; ++r) assert_true(isfinite(stats[r * STATS]) && stats[r * STATS + 1] >= 1);
  for (int r = 0; r < ROWS; ++r) assert_true((stats[r * STATS + 4] != 0) == (r == 1));
  labels[2] = VOCAB;
  assert_int_equal(tigon_linear_logprob_fwd(*state, &a), TIGON_OK);
  assert_int_equal(error[0], 1);
  for (int i = 0; i < STATS; ++i) assert_true(stats[2 * STATS + i] == (i == 0 ? -INFINITY : 0));
}

/* The simulator has stats' kernel, and borrows products. */
static void test_ascend(void **state) {
  tigon_linear_logprob_fwd_args a = legal_fwd();
  tigon_linear_logprob_bwd_args b = legal_bwd();
  float of_cpu[ROWS * STATS], dhidden_of_cpu[ROWS * WIDTH], dweight_of_cpu[CLASSES * WIDTH];
  assert_int_equal(tigon_linear_logprob_fwd(*state, &a), TIGON_OK);
  assert_int_equal(tigon_linear_logprob_bwd(*state, &b), TIGON_OK);
  memcpy(of_cpu, stats, sizeof stats);
  memcpy(dhidden_of_cpu, dhidden, sizeof dhidden);
  memcpy(dweight_of_cpu, dweight, sizeof dweight);
  memset(stats, 0x5a, sizeof stats);
  memset(dhidden, 0x5a, sizeof dhidden);
  memset(dweight, 0x5a, sizeof dweight);
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  tigon_context *c;
  assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
  if (tigon_linear_logprob_fwd(c, &a) != TIGON_OK) fail_msg("%s", tigon_last_error(c));
  if (tigon_linear_logprob_bwd(c, &b) != TIGON_OK) fail_msg("%s", tigon_last_error(c));
  assert_int_equal(tigon_context_sync(c), TIGON_OK);
  for (int i = 0; i < ROWS * STATS; ++i) assert_true(fabsf(stats[i] - of_cpu[i]) <= 1e-5f * (1 + fabsf(of_cpu[i])));
  for (int i = 0; i < ROWS * WIDTH; ++i) assert_true(fabsf(dhidden[i] - dhidden_of_cpu[i]) <= 1e-5f);
  for (int i = 0; i < CLASSES * WIDTH; ++i) assert_true(fabsf(dweight[i] - dweight_of_cpu[i]) <= 1e-5f);
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_no_classes),
                                     cmocka_unit_test(test_labels), cmocka_unit_test(test_ascend)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
