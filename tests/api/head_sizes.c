/* What a head recommends for its workspace on a device whose memory the host does not read. Nobody touches the tensors. */
#include "api.h"
#include "core/context.h"

static tigon_status copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, int64_t rows) {
  return (void)queue, (void)to, (void)to_pitch, (void)from, (void)from_pitch, (void)bytes, (void)rows, TIGON_OK;
}

static const tigon_backend *host;
static tigon_backend device;

static int setup(void **state) {
  if (api_setup(state)) return 1;
  tigon_context *context = *state;
  device = *(host = context->queue.backend);
  device.host_memory = false, device.copy_rows = copy_rows;
  context->queue.backend = &device;
  return 0;
}
static int teardown(void **state) {
  ((tigon_context *)*state)->queue.backend = host;
  return api_teardown(state);
}

/* A chunk has up to 2048 rows. */
enum { ROWS = 3000, CHUNK = 2048, WIDTH = 4096, CLASSES = 800, SPARE = 3 * 64 };

static tigon_fused_linear_cross_entropy_args parking(void) {
  static float loss, lse[ROWS];
  return (tigon_fused_linear_cross_entropy_args){.hidden = tigon_tensor_2d(NULL, TIGON_BF16, ROWS, WIDTH),
                                                 .weight = tigon_tensor_2d(NULL, TIGON_BF16, CLASSES, WIDTH),
                                                 .labels = tigon_tensor_1d(NULL, TIGON_I32, ROWS),
                                                 .dhidden = tigon_tensor_2d(NULL, TIGON_BF16, ROWS, WIDTH),
                                                 .dweight = tigon_tensor_2d(NULL, TIGON_BF16, CLASSES, WIDTH),
                                                 .out.loss = tigon_tensor_1d(&loss, TIGON_F32, 1),
                                                 .out.lse = tigon_tensor_1d(lse, TIGON_F32, ROWS)};
}

static size_t ask(tigon_context *context, const tigon_fused_linear_cross_entropy_args *a) {
  size_t least, good;
  if (tigon_fused_linear_cross_entropy_workspace(context, a, &least, &good) != TIGON_OK)
    fail_msg("%s", tigon_last_error(context));
  assert_true(least < good);
  return good;
}

/* Beside a chunk lies one panel of dlogits that dweight has no room for, of 64 of 800 classes. Where it has room for none, all sums would,
 * and logits of all rows take less. */
static void test_parking(void **state) {
  tigon_context *context = *state;
  tigon_fused_linear_cross_entropy_args a = parking();
  const size_t all = (size_t)ROWS * CLASSES * 2, chunk = (size_t)CHUNK * CLASSES * 2, panel = (size_t)ROWS * 64 * 2;
  const size_t whole = ask(context, &a) - chunk - panel + all;
  device.copy_rows = NULL;
  assert_int_equal(ask(context, &a), whole);
  device.copy_rows = copy_rows;
#define NONE(change) (a = parking(), change, assert_int_equal(ask(context, &a), whole))
  NONE(a.accumulate_dweight = 1);
  NONE(a.dweight.strides[0] = WIDTH + 8);
  static char there[2];
  NONE((a.hidden.data = a.dhidden.data = there));
  device.host_memory = true; /* whose labels may skip rows, and which gathers the others */
  a = parking();
  assert_true(ask(context, &a) > all);
  device.host_memory = false;
}

/* Sequences are whole in a chunk, unless the logits of one take more than GROUP_LIMIT of src/op/fused_linear_cross_entropy.c. */
static void test_sequences(void **state) {
  static const struct {
    int64_t length, classes, rows;
  } each[] = {{1000, 64000, 2000},
              {3000, 64000, 3000},
              {3000, 128000, 3000},
              {1000, 300000, 1000},
              {5000, 128000, CHUNK},
              {5000, 256000, 1046},
              {5000, INT64_C(300000000) / 64 * 64, 1}};
  float number;
  for (size_t i = 0; i < sizeof each / sizeof *each; ++i) {
    const int64_t tokens = 4 * each[i].length, row = 2 * each[i].classes;
    size_t least, good;
    const tigon_fused_linear_policy_fwd_args a = {.hidden = tigon_tensor_3d(NULL, TIGON_BF16, 4, each[i].length, 64),
                                                  .weight = tigon_tensor_2d(NULL, TIGON_BF16, each[i].classes, 64),
                                                  .labels = tigon_tensor_1d(NULL, TIGON_I32, tokens),
                                                  .advantage = tigon_tensor_1d(NULL, TIGON_F32, 4),
                                                  .old = tigon_tensor_1d(NULL, TIGON_F32, tokens),
                                                  .loss = tigon_tensor_1d(&number, TIGON_F32, 1),
                                                  .logprob = tigon_tensor_1d(NULL, TIGON_F32, tokens),
                                                  .options.sequence_level = 1};
    if (tigon_fused_linear_policy_fwd_workspace(*state, &a, &least, &good) != TIGON_OK)
      fail_msg("%s", tigon_last_error(*state));
    /* The least is of one row, and both have what lies beside chunks. */
    assert_int_equal(good - least, (size_t)((each[i].rows - 1) * row) + SPARE - 2 * 64);
  }
}

/* Dlogits in hidden's dtype lie beside logits that are wider, where a gradient is made of them. */
static void test_wide_logits(void **state) {
  for (int which = 0; which < 3; ++which) {
    tigon_fused_linear_cross_entropy_args a = parking();
    a.hidden.shape[0] = a.labels.shape[0] = a.out.lse.shape[0] = CHUNK;
    a.dhidden = a.dweight = (tigon_tensor){0};
    if (which == 0) a.dhidden = a.hidden;
    if (which == 1) a.dweight = a.weight, a.dweight.dtype = TIGON_F32;
    if (which == 2) a.dbias = tigon_tensor_1d(NULL, TIGON_F32, CLASSES), a.bias = a.dbias;
    const size_t narrow = ask(*state, &a);
    a.logits_in_f32 = 1;
    assert_int_equal(ask(*state, &a) - narrow, (size_t)CHUNK * CLASSES * 4);
  }
}

/* With pairs both sides' hidden are put together in dhidden's memory, which takes no more workspace. */
static void test_pairs(void **state) {
  enum { PAIRS = 2, LENGTH = 100 };
  const int64_t tokens = 2 * PAIRS * LENGTH;
  float number;
  tigon_fused_linear_preference_fwd_args a = {.hidden = tigon_tensor_3d(NULL, TIGON_F32, 2 * PAIRS, LENGTH, WIDTH),
                                              .weight = tigon_tensor_2d(NULL, TIGON_F32, CLASSES, WIDTH),
                                              .labels = tigon_tensor_1d(NULL, TIGON_I32, tokens),
                                              .loss = tigon_tensor_1d(&number, TIGON_F32, 1),
                                              .logprob = tigon_tensor_1d(NULL, TIGON_F32, tokens),
                                              .dhidden = tigon_tensor_3d(NULL, TIGON_F32, 2 * PAIRS, LENGTH, WIDTH)};
  size_t good[3];
  for (int i = 0; i < 3; ++i) {
    if (i > 0) a.dweight = a.weight;
    if (i > 1) device.copy_rows = NULL;
    if (tigon_fused_linear_preference_fwd_workspace(*state, &a, NULL, &good[i]) != TIGON_OK)
      fail_msg("%s", tigon_last_error(*state));
  }
  device.copy_rows = copy_rows;
  assert_true(good[1] == good[0] && good[2] == good[0]);
}

/* Pairs of 2 x 1024 tokens have 512 MiB with 128256 classes, and with more of them still a chunk of their own. */
static void test_long_vocabularies(void **state) {
  float number;
  for (int i = 0; i < 2; ++i) {
    const int64_t vocab = i ? 152064 : 128256;
    size_t good;
    const tigon_fused_linear_preference_fwd_args a = {.hidden = tigon_tensor_3d(NULL, TIGON_BF16, 8, 1024, WIDTH),
                                                      .weight = tigon_tensor_2d(NULL, TIGON_BF16, vocab, WIDTH),
                                                      .labels = tigon_tensor_1d(NULL, TIGON_I32, 8192),
                                                      .loss = tigon_tensor_1d(&number, TIGON_F32, 1),
                                                      .logprob = tigon_tensor_1d(NULL, TIGON_F32, 8192),
                                                      .dweight = tigon_tensor_2d(NULL, TIGON_F32, vocab, WIDTH)};
    if (tigon_fused_linear_preference_fwd_workspace(*state, &a, NULL, &good) != TIGON_OK)
      fail_msg("%s", tigon_last_error(*state));
    assert_in_range(good, (size_t)(2048 * 2 * vocab), (size_t)(i ? 600 : 512) << 20);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parking), cmocka_unit_test(test_sequences),
                                     cmocka_unit_test(test_wide_logits), cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_long_vocabularies)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
