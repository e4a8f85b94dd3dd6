/* geglu: a packed gate, both forms of gelu. */
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

static tigon_geglu_fwd_args fwd_args(data *d) {
  return (tigon_geglu_fwd_args){.a = view(d->a), .b = view(d->b), .c = view(d->c)};
}

/* Two views of one [ROWS, 2 * COLS] tensor. */
static void test_packed(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_geglu_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
  float expected[N];
  memcpy(expected, d->c, sizeof expected);
  for (int r = 0; r < ROWS; ++r) {
    memcpy(d->packed + 2 * r * COLS, d->a + r * COLS, COLS * sizeof(float));
    memcpy(d->packed + (2 * r + 1) * COLS, d->b + r * COLS, COLS * sizeof(float));
  }
  f.a = view(d->packed);
  f.b = view(d->packed + COLS);
  f.a.strides[0] = f.b.strides[0] = 2 * COLS;
  assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->c, expected, sizeof expected);
  f.c = f.b;
  assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
  for (int r = 0; r < ROWS; ++r)
    assert_memory_equal(d->packed + (2 * r + 1) * COLS, expected + r * COLS, COLS * sizeof(float));
}

/* The default is tanh, and the two differ. */
static void test_approx(void **state) {
  tigon_context *c = *state;
  data *d = made();
  for (int form = 0; form < 2; ++form) {
    tigon_geglu_fwd_args f = fwd_args(d);
    f.approx = form ? TIGON_GELU_ERF : (tigon_gelu)0;
    assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
    for (int i = 0; i < N; ++i) {
      const double x = (double)d->a[i], u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
      const double gelu = form ? x * erfc(-x * 0.7071067811865476) / 2 : x / (1 + exp(-2 * u));
      assert_true(fabs((double)d->c[i] - gelu * (double)d->b[i]) <= 4e-7 * fabs(gelu * (double)d->b[i]));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed), cmocka_unit_test(test_approx)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
