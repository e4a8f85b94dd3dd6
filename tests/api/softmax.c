/* softmax: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of place. */
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

static tigon_softmax_bwd_args bwd_args(data *d) {
  return (tigon_softmax_bwd_args){
      .dy = tigon_tensor_3d(d->dy, TIGON_F32, BATCH, TOKENS, COLS),
      .y = tigon_tensor_3d(d->y, TIGON_F32, BATCH, TOKENS, COLS),
      .dx = tigon_tensor_3d(d->dx, TIGON_F32, BATCH, TOKENS, COLS),
      .scale = 0.5,
  };
}

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  before = *d;
  tigon_softmax_fwd_args a;
#define REFUSE(change, status, sentence)                                                   \
  a = fwd_args(d);                                                                         \
  change;                                                                                  \
  api_expect(c, tigon_softmax_fwd(c, &a), TIGON_ERROR_##status, "softmax_fwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.x, 0, sizeof a.x), INVALID, "x is absent");
  REFUSE(memset(&a.y, 0, sizeof a.y), INVALID, "y is absent");
  REFUSE(a.x.data = NULL, INVALID, "x.data is NULL");
  REFUSE(a.x.dtype = TIGON_I64, INVALID, "x.dtype is i64, must be f32, f16, bf16");
  REFUSE(a.x.ndim = 9, INVALID, "x.ndim is 9, must be 1 to 8");
  REFUSE(a.x.strides[2] = 2, INVALID, "x.strides[2] is 2, must be 1");
  REFUSE(a.y.shape[1] = 2, INVALID, "y.shape[1] is 2, must be 3 (x.shape[1])");
  REFUSE(a.y = tigon_tensor_2d(d->y, TIGON_F32, TOKENS, COLS), INVALID, "y.ndim is 2, must be 3 (x.ndim)");
  REFUSE(a.y.dtype = TIGON_F16, INVALID, "y.dtype is f16, must be f32 (x.dtype)");
  REFUSE(a.mask.dtype = TIGON_BF16, INVALID, "mask.dtype is bf16, must be f32 (x.dtype)");
  REFUSE(a.mask.shape[0] = 2, INVALID, "mask.shape[0] is 2, must be 3 (x.shape[1])");
  REFUSE(a.mask = tigon_tensor_1d(d->mask, TIGON_F32, 4), INVALID, "mask.shape[0] is 4, must be 5 (x.shape[2])");
  REFUSE(a.mask = tigon_tensor_4d(d->mask, TIGON_F32, 1, 1, TOKENS, COLS), INVALID,
         "mask.ndim is 4, must be 3 (x.ndim)");
  REFUSE(a.mask = tigon_tensor_3d(d->mask, TIGON_F32, 1, TOKENS, COLS), INVALID,
         "mask.shape[0] is 1, must be 2 (x.shape[0])");
  REFUSE(a.scale = (double)INFINITY, INVALID, "scale is inf, must be -3.40282e+38 to 3.40282e+38");
  REFUSE(a.scale = (double)NAN, INVALID, "scale is nan, must be -3.40282e+38 to 3.40282e+38");
  REFUSE(a.causal = 2, INVALID, "causal is 2, must be 0 or 1");
  REFUSE(a.reserved[3] = 1, INVALID, "reserved[3] is 1, must be 0");
  REFUSE(a.y.data = d->x + 1, ALIAS, "y overlaps x in part, must be the same view or apart");
  REFUSE(a.y.data = d->mask, ALIAS, "y overlaps mask, must be apart");
  REFUSE(a.y.strides[0] = 4, ALIAS, "y overlaps itself, its strides must keep elements apart");
#undef REFUSE
  api_expect(c, tigon_softmax_fwd(c, NULL), TIGON_ERROR_INVALID, "softmax_fwd: args is NULL");
  api_expect(NULL, tigon_softmax_fwd(NULL, &a), TIGON_ERROR_INVALID, "softmax_fwd: context is NULL");
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  before = *d;
  tigon_softmax_bwd_args a;
#define REFUSE(change, status, sentence)                                                   \
  a = bwd_args(d);                                                                         \
  change;                                                                                  \
  api_expect(c, tigon_softmax_bwd(c, &a), TIGON_ERROR_##status, "softmax_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.dy, 0, sizeof a.dy), INVALID, "dy is absent");
  REFUSE(a.dy.shape[2] = 4, INVALID, "dy.shape[2] is 4, must be 5 (y.shape[2])");
  REFUSE(a.dx.shape[0] = 1, INVALID, "dx.shape[0] is 1, must be 2 (y.shape[0])");
  REFUSE(a.dx.dtype = TIGON_F16, INVALID, "dx.dtype is f16, must be f32 (y.dtype)");
  REFUSE(a.dy.dtype = TIGON_BF16, INVALID, "dy.dtype is bf16, must be f32 (y.dtype)");
  REFUSE(a.scale = -(double)INFINITY, INVALID, "scale is -inf, must be -3.40282e+38 to 3.40282e+38");
  REFUSE(a.reserved[0] = 9, INVALID, "reserved[0] is 9, must be 0");
  REFUSE(a.dx.data = d->dy - 1, ALIAS, "dx overlaps dy in part, must be the same view or apart");
  REFUSE(a.dx.data = d->y - 1, ALIAS, "dx overlaps y in part, must be the same view or apart");
#undef REFUSE
  api_expect(c, tigon_softmax_bwd(c, NULL), TIGON_ERROR_INVALID, "softmax_bwd: args is NULL");
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_softmax_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_softmax_fwd(c, &f), TIGON_OK);
  f.y = f.x;
  assert_int_equal(tigon_softmax_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->x, d->y, sizeof d->y);

  float y[N], dy[N];
  memcpy(y, d->y, sizeof y);
  memcpy(dy, d->dy, sizeof dy);
  tigon_softmax_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_softmax_bwd(c, &b), TIGON_OK);
  b.dx = b.dy;
  assert_int_equal(tigon_softmax_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d->dy, d->dx, sizeof d->dx);
  memcpy(d->dy, dy, sizeof dy);
  b.dx = b.y;
  assert_int_equal(tigon_softmax_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d->y, d->dx, sizeof d->dx);
}

static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_softmax_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = 0;
  f.x.data = f.y.data = NULL;
  assert_int_equal(tigon_softmax_fwd(c, &f), TIGON_OK);
  tigon_softmax_bwd_args b = bwd_args(d);
  b.dy.shape[2] = b.y.shape[2] = b.dx.shape[2] = 0;
  assert_int_equal(tigon_softmax_bwd(c, &b), TIGON_OK);
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses), cmocka_unit_test(test_bwd_refuses),     cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_empty),       cmocka_unit_test(test_rows_of_nothing), cmocka_unit_test(test_mask_shapes),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
