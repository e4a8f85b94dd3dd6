/* relu_squared: NaN, Inf and zeros; no elements. */
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_empty)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
