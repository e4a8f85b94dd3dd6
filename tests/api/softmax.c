/* softmax: masks of each shape; rows without a column that counts. */
#include "api.h"

enum { BATCH = 2, TOKENS = 3, COLS = 5, N = BATCH * TOKENS * COLS };

typedef struct data {
  float x[N + 4], mask[TOKENS * COLS], gap[4], y[N], hole[4], dy[N], dx[N]; /* gap, hole: room for an overlap */
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, N, 0.5f);
  api_fill(d.dy, N, 0.125f);
  api_fill(d.mask, TOKENS * COLS, 0.25f);
  return &d;
}

static tigon_softmax_fwd_args fwd_args(data *d) {
  return (tigon_softmax_fwd_args){
      .x = tigon_tensor_3d(d->x, TIGON_F32, BATCH, TOKENS, COLS),
      .mask = tigon_tensor_2d(d->mask, TIGON_F32, TOKENS, COLS),
      .y = tigon_tensor_3d(d->y, TIGON_F32, BATCH, TOKENS, COLS),
      .scale = 0.5,
  };
}

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(softmax_fwd, fwd_args, a.mask.shape[0] = 2, INVALID, "mask.shape[0] is 2, must be 3 (x.shape[1])");
  API_REFUSES(softmax_fwd, fwd_args, a.mask = tigon_tensor_1d(d->mask, TIGON_F32, 4), INVALID,
              "mask.shape[0] is 4, must be 5 (x.shape[2])");
  API_REFUSES(softmax_fwd, fwd_args, a.mask = tigon_tensor_4d(d->mask, TIGON_F32, 1, 1, TOKENS, COLS), INVALID,
              "mask.ndim is 4, must be 3 (x.ndim)");
  API_REFUSES(softmax_fwd, fwd_args, a.mask = tigon_tensor_3d(d->mask, TIGON_F32, 1, TOKENS, COLS), INVALID,
              "mask.shape[0] is 1, must be 2 (x.shape[0])");
}

/* One dimension; a mask of -inf; more rows than columns under a causal mask, whose first rows count nothing. */
static void test_rows_of_nothing(void **state) {
  tigon_context *c = *state;
  float x[] = {1, 2, 3}, mask[] = {-INFINITY, -INFINITY, -INFINITY}, y[] = {7, 7, 7};
  tigon_softmax_fwd_args a = {.x = tigon_tensor_1d(x, TIGON_F32, 3),
                              .y = tigon_tensor_1d(y, TIGON_F32, 3),
                              .mask = tigon_tensor_1d(mask, TIGON_F32, 3)};
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < 3; ++i) assert_true(y[i] == 0);
  a = (tigon_softmax_fwd_args){
      .x = tigon_tensor_2d(x, TIGON_F32, 3, 1), .y = tigon_tensor_2d(y, TIGON_F32, 3, 1), .causal = 1};
  y[0] = y[1] = y[2] = 7;
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1);
}

/* The mask of every shape is the mask written out. */
static void test_mask_shapes(void **state) {
  tigon_context *c = *state;
  data *d = made();
  float full[N], y[N];
  tigon_softmax_fwd_args a = fwd_args(d);
  for (int i = 0; i < N; ++i) full[i] = d->mask[i % (TOKENS * COLS)];
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  memcpy(y, d->y, sizeof y);
  a.mask = tigon_tensor_3d(full, TIGON_F32, BATCH, TOKENS, COLS);
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  assert_memory_equal(y, d->y, sizeof y);

  for (int i = 0; i < N; ++i) full[i] = d->mask[i % COLS];
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  memcpy(y, d->y, sizeof y);
  a.mask = tigon_tensor_1d(d->mask, TIGON_F32, COLS);
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  assert_memory_equal(y, d->y, sizeof y);

  /* One dimension is one row: [1, C] is [T, C]. */
  a.x = tigon_tensor_1d(d->x, TIGON_F32, COLS);
  a.y = tigon_tensor_1d(d->y, TIGON_F32, COLS);
  a.mask = tigon_tensor_2d(d->mask, TIGON_F32, 1, COLS);
  memset(d->y, 0, sizeof d->y);
  assert_int_equal(tigon_softmax_fwd(c, &a), TIGON_OK);
  assert_memory_equal(y, d->y, COLS * sizeof *y);
  a.mask.shape[0] = 2;
  api_expect(c, tigon_softmax_fwd(c, &a), TIGON_ERROR_INVALID,
             "softmax_fwd: mask.shape[0] is 2, must be 1 (x has one row)");
  a.mask = tigon_tensor_2d(d->mask, TIGON_F32, 1, COLS - 1);
  api_expect(c, tigon_softmax_fwd(c, &a), TIGON_ERROR_INVALID,
             "softmax_fwd: mask.shape[1] is 4, must be 5 (x.shape[0])");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses), cmocka_unit_test(test_rows_of_nothing),
                                     cmocka_unit_test(test_mask_shapes)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
