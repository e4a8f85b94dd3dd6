/* geglu: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of place. */
#include "api.h"

enum { ROWS = 3, COLS = 40, N = ROWS * COLS };

typedef struct data {
  float a[N + 4], b[N + 4], c[N], dc[N], da[N], db[N], packed[2 * N];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.a, N, 0.5f);
  api_fill(d.b, N, 0.25f);
  api_fill(d.dc, N, 0.125f);
  return &d;
}

static tigon_tensor view(float *data) { return tigon_tensor_2d(data, TIGON_F32, ROWS, COLS); }

static tigon_geglu_fwd_args fwd_args(data *d) {
  return (tigon_geglu_fwd_args){.a = view(d->a), .b = view(d->b), .c = view(d->c)};
}
static tigon_geglu_bwd_args bwd_args(data *d) {
  return (tigon_geglu_bwd_args){
      .dc = view(d->dc), .a = view(d->a), .b = view(d->b), .da = view(d->da), .db = view(d->db)};
}

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_geglu_fwd_args a;
#define REFUSE(change, status, sentence)                                               \
  a = fwd_args(d);                                                                     \
  change;                                                                              \
  before = *d;                                                                         \
  api_expect(c, tigon_geglu_fwd(c, &a), TIGON_ERROR_##status, "geglu_fwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.a, 0, sizeof a.a), INVALID, "a is absent");
  REFUSE(memset(&a.b, 0, sizeof a.b), INVALID, "b is absent");
  REFUSE(memset(&a.c, 0, sizeof a.c), INVALID, "c is absent");
  REFUSE(a.a.dtype = TIGON_I64, INVALID, "a.dtype is i64, must be f32, f16, bf16");
  REFUSE(a.b.dtype = TIGON_BF16, INVALID, "b.dtype is bf16, must be f32 (a.dtype)");
  REFUSE(a.c.dtype = TIGON_F16, INVALID, "c.dtype is f16, must be f32 (a.dtype)");
  REFUSE(a.b.shape[1] = 39, INVALID, "b.shape[1] is 39, must be 40 (a.shape[1])");
  REFUSE(a.c.shape[0] = 2, INVALID, "c.shape[0] is 2, must be 3 (a.shape[0])");
  REFUSE((a.c.ndim = 1, a.c.strides[0] = 1), INVALID, "c.ndim is 1, must be 2 (a.ndim)");
  REFUSE(a.b.strides[1] = 2, INVALID, "b.strides[1] is 2, must be 1");
  REFUSE(a.approx = (tigon_gelu)2, INVALID, "approx is 2, must be 0 to 1");
  REFUSE(a.reserved[0] = 1, INVALID, "reserved[0] is 1, must be 0");
  REFUSE(a.c.data = d->a + 1, ALIAS, "c overlaps a in part, must be the same view or apart");
  REFUSE(a.c.data = d->b + 3, ALIAS, "c overlaps b in part, must be the same view or apart");
#undef REFUSE
  api_expect(c, tigon_geglu_fwd(c, NULL), TIGON_ERROR_INVALID, "geglu_fwd: args is NULL");
  api_expect(NULL, tigon_geglu_fwd(NULL, &a), TIGON_ERROR_INVALID, "geglu_fwd: context is NULL");
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_geglu_bwd_args a;
#define REFUSE(change, status, sentence)                                               \
  a = bwd_args(d);                                                                     \
  change;                                                                              \
  before = *d;                                                                         \
  api_expect(c, tigon_geglu_bwd(c, &a), TIGON_ERROR_##status, "geglu_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.dc, 0, sizeof a.dc), INVALID, "dc is absent");
  REFUSE(memset(&a.db, 0, sizeof a.db), INVALID, "db is absent");
  REFUSE(a.dc.shape[1] = 39, INVALID, "dc.shape[1] is 39, must be 40 (a.shape[1])");
  REFUSE(a.da.dtype = TIGON_BF16, INVALID, "da.dtype is bf16, must be f32 (a.dtype)");
  REFUSE(a.approx = (tigon_gelu)7, INVALID, "approx is 7, must be 0 to 1");
  REFUSE(a.reserved[3] = 1, INVALID, "reserved[3] is 1, must be 0");
  REFUSE(a.db = a.da, ALIAS, "da overlaps db, must be apart");
  REFUSE(a.da.data = d->b + 1, ALIAS, "da overlaps b in part, must be the same view or apart");
  REFUSE(a.db.data = d->a + 2, ALIAS, "db overlaps a in part, must be the same view or apart");
#undef REFUSE
  api_expect(c, tigon_geglu_bwd(c, NULL), TIGON_ERROR_INVALID, "geglu_bwd: args is NULL");
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_geglu_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
  float expected[N], expected_b[N];
  memcpy(expected, d->c, sizeof expected);
  for (int k = 0; k < 2; ++k) {
    d = made();
    f.c = k ? f.b : f.a;
    assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
    assert_memory_equal(f.c.data, expected, sizeof expected);
  }
  d = made();
  tigon_geglu_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_geglu_bwd(c, &b), TIGON_OK);
  memcpy(expected, d->da, sizeof expected);
  memcpy(expected_b, d->db, sizeof expected_b);
  /* Every ordered pair of different ones of dc, a, b and a tensor of its own. */
  for (int k = 0; k < 16; ++k) {
    if (k / 4 == k % 4) continue;
    d = made();
    float *const da[] = {d->dc, d->a, d->b, d->da}, *const db[] = {d->dc, d->a, d->b, d->db};
    b.da = view(da[k / 4]);
    b.db = view(db[k % 4]);
    assert_int_equal(tigon_geglu_bwd(c, &b), TIGON_OK);
    assert_memory_equal(b.da.data, expected, sizeof expected);
    assert_memory_equal(b.db.data, expected_b, sizeof expected_b);
  }
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

static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_geglu_fwd_args f = fwd_args(d);
  f.a.shape[0] = f.b.shape[0] = f.c.shape[0] = 0;
  f.a.data = f.b.data = f.c.data = NULL;
  assert_int_equal(tigon_geglu_fwd(c, &f), TIGON_OK);
  tigon_geglu_bwd_args b = bwd_args(d);
  b.a.shape[1] = b.b.shape[1] = b.dc.shape[1] = b.da.shape[1] = b.db.shape[1] = 0;
  static data before;
  before = *d;
  assert_int_equal(tigon_geglu_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d, &before, sizeof before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses), cmocka_unit_test(test_bwd_refuses), cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_packed),      cmocka_unit_test(test_approx),      cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
