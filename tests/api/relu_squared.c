/* relu_squared: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of
 * place. */
#include "api.h"

enum { ROWS = 3, COLS = 40, N = ROWS * COLS };

typedef struct data {
  float x[N + 4], y[N], dy[N + 4], dx[N];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, N, 0.5f);
  api_fill(d.dy, N, 0.125f);
  return &d;
}

static tigon_tensor view(float *data) { return tigon_tensor_2d(data, TIGON_F32, ROWS, COLS); }

static tigon_relu_squared_fwd_args fwd_args(data *d) {
  return (tigon_relu_squared_fwd_args){.x = view(d->x), .y = view(d->y)};
}
static tigon_relu_squared_bwd_args bwd_args(data *d) {
  return (tigon_relu_squared_bwd_args){.dy = view(d->dy), .x = view(d->x), .dx = view(d->dx)};
}

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_relu_squared_fwd_args a;
#define REFUSE(change, status, sentence)                                                             \
  a = fwd_args(d);                                                                                   \
  change;                                                                                            \
  before = *d;                                                                                       \
  api_expect(c, tigon_relu_squared_fwd(c, &a), TIGON_ERROR_##status, "relu_squared_fwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.x, 0, sizeof a.x), INVALID, "x is absent");
  REFUSE(memset(&a.y, 0, sizeof a.y), INVALID, "y is absent");
  REFUSE(a.x.dtype = TIGON_I64, INVALID, "x.dtype is i64, must be f32, f16, bf16");
  REFUSE(a.y.dtype = TIGON_F16, INVALID, "y.dtype is f16, must be f32 (x.dtype)");
  REFUSE(a.y.shape[1] = 39, INVALID, "y.shape[1] is 39, must be 40 (x.shape[1])");
  REFUSE((a.y.ndim = 1, a.y.strides[0] = 1), INVALID, "y.ndim is 1, must be 2 (x.ndim)");
  REFUSE(a.x.strides[1] = 2, INVALID, "x.strides[1] is 2, must be 1");
  REFUSE(a.reserved[0] = 1, INVALID, "reserved[0] is 1, must be 0");
  REFUSE(a.y.data = d->x + 1, ALIAS, "y overlaps x in part, must be the same view or apart");
#undef REFUSE
  api_expect(c, tigon_relu_squared_fwd(c, NULL), TIGON_ERROR_INVALID, "relu_squared_fwd: args is NULL");
  api_expect(NULL, tigon_relu_squared_fwd(NULL, &a), TIGON_ERROR_INVALID, "relu_squared_fwd: context is NULL");
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_relu_squared_bwd_args a;
#define REFUSE(change, status, sentence)                                                             \
  a = bwd_args(d);                                                                                   \
  change;                                                                                            \
  before = *d;                                                                                       \
  api_expect(c, tigon_relu_squared_bwd(c, &a), TIGON_ERROR_##status, "relu_squared_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.dy, 0, sizeof a.dy), INVALID, "dy is absent");
  REFUSE(memset(&a.x, 0, sizeof a.x), INVALID, "x is absent");
  REFUSE(memset(&a.dx, 0, sizeof a.dx), INVALID, "dx is absent");
  REFUSE(a.dy.shape[0] = 2, INVALID, "dy.shape[0] is 2, must be 3 (x.shape[0])");
  REFUSE(a.dx.dtype = TIGON_BF16, INVALID, "dx.dtype is bf16, must be f32 (x.dtype)");
  REFUSE(a.reserved[3] = 1, INVALID, "reserved[3] is 1, must be 0");
  REFUSE(a.dx.data = d->dy + 1, ALIAS, "dx overlaps dy in part, must be the same view or apart");
  REFUSE(a.dx.data = d->x + 2, ALIAS, "dx overlaps x in part, must be the same view or apart");
#undef REFUSE
  api_expect(c, tigon_relu_squared_bwd(c, NULL), TIGON_ERROR_INVALID, "relu_squared_bwd: args is NULL");
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  float expected[N];
  data *d = made();
  tigon_relu_squared_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_relu_squared_fwd(c, &f), TIGON_OK);
  memcpy(expected, d->y, sizeof expected);
  f.y = f.x;
  assert_int_equal(tigon_relu_squared_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->x, expected, sizeof expected);
  d = made();
  tigon_relu_squared_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_relu_squared_bwd(c, &b), TIGON_OK);
  memcpy(expected, d->dx, sizeof expected);
  for (int k = 0; k < 2; ++k) {
    d = made();
    b.dx = k ? b.x : b.dy;
    assert_int_equal(tigon_relu_squared_bwd(c, &b), TIGON_OK);
    assert_memory_equal(b.dx.data, expected, sizeof expected);
  }
}

/* NaN passes, -Inf is 0, a large slope times a small dy does not overflow on the way. */
static void test_values(void **state) {
  tigon_context *c = *state;
  float x[] = {NAN, -INFINITY, INFINITY, -0.0f, -3, 3, 3e38f}, dy[] = {1, 1, 1, 1, NAN, -0.5f, 0.25f}, y[7], dx[7];
  const tigon_relu_squared_fwd_args f = {.x = tigon_tensor_1d(x, TIGON_F32, 7), .y = tigon_tensor_1d(y, TIGON_F32, 7)};
  const tigon_relu_squared_bwd_args b = {
      .dy = tigon_tensor_1d(dy, TIGON_F32, 7), .x = f.x, .dx = tigon_tensor_1d(dx, TIGON_F32, 7)};
  assert_int_equal(tigon_relu_squared_fwd(c, &f), TIGON_OK);
  assert_int_equal(tigon_relu_squared_bwd(c, &b), TIGON_OK);
  const float y_expected[] = {NAN, 0, INFINITY, 0, 0, 9, INFINITY},
              dx_expected[] = {NAN, 0, INFINITY, 0, NAN, -3, 1.5e38f};
  for (int i = 0; i < 7; ++i) {
    assert_true(isnan(y_expected[i]) ? isnan(y[i]) : y[i] == y_expected[i]);
    assert_true(isnan(dx_expected[i]) ? isnan(dx[i]) : dx[i] == dx_expected[i]);
  }
}

static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_relu_squared_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = 0;
  f.x.data = f.y.data = NULL;
  assert_int_equal(tigon_relu_squared_fwd(c, &f), TIGON_OK);
  tigon_relu_squared_bwd_args b = bwd_args(d);
  b.dy.shape[1] = b.x.shape[1] = b.dx.shape[1] = 0;
  static data before;
  before = *d;
  assert_int_equal(tigon_relu_squared_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d, &before, sizeof before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses), cmocka_unit_test(test_bwd_refuses), cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_values),      cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
