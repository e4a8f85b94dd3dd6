/* swiglu: a packed gate, factors, strides. */
#include "api.h"

enum { ROWS = 3, COLS = 40, N = ROWS * COLS };

typedef struct data {
  float a[N + 4], b[N + 4], c[N], packed[2 * N];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.a, N, 0.5f);
  api_fill(d.b, N, 0.25f);
  return &d;
}

static tigon_tensor view(float *data) { return tigon_tensor_2d(data, TIGON_F32, ROWS, COLS); }

static tigon_swiglu_fwd_args fwd_args(data *d) {
  return (tigon_swiglu_fwd_args){.a = view(d->a), .b = view(d->b), .c = view(d->c)};
}

/* Two views of one [ROWS, 2 * COLS] tensor. */
static void test_packed(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_swiglu_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  float expected[N];
  memcpy(expected, d->c, sizeof expected);
  for (int r = 0; r < ROWS; ++r) {
    memcpy(d->packed + 2 * r * COLS, d->a + r * COLS, COLS * sizeof(float));
    memcpy(d->packed + (2 * r + 1) * COLS, d->b + r * COLS, COLS * sizeof(float));
  }
  f.a = view(d->packed);
  f.b = view(d->packed + COLS);
  f.a.strides[0] = f.b.strides[0] = 2 * COLS;
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->c, expected, sizeof expected);
  f.c = f.b;
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  for (int r = 0; r < ROWS; ++r)
    assert_memory_equal(d->packed + (2 * r + 1) * COLS, expected + r * COLS, COLS * sizeof(float));
}

/* 0 means 1, and the smallest clamp is still one. */
static void test_factors(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_swiglu_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  float expected[N];
  memcpy(expected, d->c, sizeof expected);
  f.gate_mult = f.down_mult = 1;
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->c, expected, sizeof expected);
  f.clamp = 1e-300;
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  for (int i = 0; i < N; ++i) assert_true(fabsf(d->c[i]) <= 1e-37f);
}

/* A [B, H, T, D] view of [B, T, H, D] memory does not collapse to one pitch. */
static void test_strided(void **state) {
  tigon_context *c = *state;
  enum { B = 2, H = 3, T = 5, D = 20, M = B * H * T * D };
  float a[M], b[M], y[M], flat[M];
  api_fill(a, M, 0.5f);
  api_fill(b, M, 0.25f);
  tigon_swiglu_fwd_args f = {.a = tigon_tensor_2d(a, TIGON_F32, B * T * H, D),
                             .b = tigon_tensor_2d(b, TIGON_F32, B * T * H, D),
                             .c = tigon_tensor_2d(flat, TIGON_F32, B * T * H, D)};
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  f.a = (tigon_tensor){a, TIGON_F32, 4, {B, H, T, D}, {T * H * D, D, H * D, 1}};
  f.b = (tigon_tensor){b, TIGON_F32, 4, {B, H, T, D}, {T * H * D, D, H * D, 1}};
  f.c = tigon_tensor_4d(y, TIGON_F32, B, H, T, D);
  assert_int_equal(tigon_swiglu_fwd(c, &f), TIGON_OK);
  for (int i = 0; i < B * H * T; ++i) {
    const int at = i / (H * T) * H * T + i % T * H + i / T % H;
    assert_memory_equal(y + i * D, flat + at * D, D * sizeof *y);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed), cmocka_unit_test(test_factors),
                                     cmocka_unit_test(test_strided)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
