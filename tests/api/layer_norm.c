/* layer_norm: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of place; a
 * large mean costs no digits. */
#include "api.h"

enum { ROWS = 3, COLS = 8 };

typedef struct data {
  float x[ROWS * COLS + 4], w[COLS], b[COLS], y[ROWS * COLS], mean[ROWS], rstd[ROWS];
  float dy[ROWS * COLS], dx[ROWS * COLS], dw[COLS], db[COLS];
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, ROWS * COLS, 0.5f);
  api_fill(d.w, COLS, 0.25f);
  api_fill(d.b, COLS, 0.5f);
  api_fill(d.dy, ROWS * COLS, 0.125f);
  for (int r = 0; r < ROWS; ++r) d.mean[r] = 0.25f, d.rstd[r] = 0.5f;
  return &d;
}

static tigon_layer_norm_fwd_args fwd_args(data *d) {
  return (tigon_layer_norm_fwd_args){
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .b = tigon_tensor_1d(d->b, TIGON_F32, COLS),
      .y = tigon_tensor_2d(d->y, TIGON_F32, ROWS, COLS),
      .mean = tigon_tensor_1d(d->mean, TIGON_F32, ROWS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .eps = 1e-6,
  };
}

static tigon_layer_norm_bwd_args bwd_args(data *d) {
  return (tigon_layer_norm_bwd_args){
      .dy = tigon_tensor_2d(d->dy, TIGON_F32, ROWS, COLS),
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .mean = tigon_tensor_1d(d->mean, TIGON_F32, ROWS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .dx = tigon_tensor_2d(d->dx, TIGON_F32, ROWS, COLS),
      .dw = tigon_tensor_1d(d->dw, TIGON_F32, COLS),
      .db = tigon_tensor_1d(d->db, TIGON_F32, COLS),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_layer_norm_fwd_args a;
#define REFUSE(change, status, sentence)                                                         \
  a = fwd_args(d);                                                                               \
  change;                                                                                        \
  before = *d;                                                                                   \
  api_expect(c, tigon_layer_norm_fwd(c, &a), TIGON_ERROR_##status, "layer_norm_fwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.x, 0, sizeof a.x), INVALID, "x is absent");
  REFUSE(a.x.dtype = TIGON_I32, INVALID, "x.dtype is i32, must be f32, f16, bf16");
  REFUSE(a.y.shape[1] = 7, INVALID, "y.shape[1] is 7, must be 8 (x.shape[1])");
  REFUSE(a.y.dtype = TIGON_BF16, INVALID, "y.dtype is bf16, must be f32 (x.dtype)");
  REFUSE(a.w.shape[0] = 7, INVALID, "w.shape[0] is 7, must be 8 (x.shape[1])");
  REFUSE(a.b.shape[0] = 7, INVALID, "b.shape[0] is 7, must be 8 (x.shape[1])");
  REFUSE(a.b.dtype = TIGON_F16, INVALID, "b.dtype is f16, must be f32 (x.dtype)");
  REFUSE(a.b = a.x, INVALID, "b.ndim is 2, must be 1");
  REFUSE(a.mean.shape[0] = 2, INVALID, "mean.shape[0] is 2, must be 3 (rows)");
  REFUSE(a.mean.dtype = TIGON_F16, INVALID, "mean.dtype is f16, must be f32");
  REFUSE(a.rstd.shape[0] = 2, INVALID, "rstd.shape[0] is 2, must be 3 (rows)");
  REFUSE(a.eps = -1, INVALID, "eps is -1, must be 0 to 3.40282e+38");
  REFUSE(a.eps = (double)NAN, INVALID, "eps is nan, must be 0 to 3.40282e+38");
  REFUSE(a.reserved[3] = 7, INVALID, "reserved[3] is 7, must be 0");
  REFUSE(a.y.data = d->x + 1, ALIAS, "y overlaps x in part, must be the same view or apart");
  REFUSE(a.y.data = d->b, ALIAS, "y overlaps b, must be apart");
  REFUSE(a.mean.data = d->rstd, ALIAS, "mean overlaps rstd, must be apart");
#undef REFUSE
  api_expect(c, tigon_layer_norm_fwd(c, NULL), TIGON_ERROR_INVALID, "layer_norm_fwd: args is NULL");
  api_expect(NULL, tigon_layer_norm_fwd(NULL, &a), TIGON_ERROR_INVALID, "layer_norm_fwd: context is NULL");
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_layer_norm_bwd_args a;
#define REFUSE(change, status, sentence)                                                         \
  a = bwd_args(d);                                                                               \
  change;                                                                                        \
  before = *d;                                                                                   \
  api_expect(c, tigon_layer_norm_bwd(c, &a), TIGON_ERROR_##status, "layer_norm_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.mean, 0, sizeof a.mean), INVALID, "mean is absent");
  REFUSE(memset(&a.rstd, 0, sizeof a.rstd), INVALID, "rstd is absent");
  REFUSE(a.dy.shape[0] = 2, INVALID, "dy.shape[0] is 2, must be 3 (x.shape[0])");
  REFUSE(a.mean.shape[0] = 2, INVALID, "mean.shape[0] is 2, must be 3 (rows)");
  REFUSE(a.dw.shape[0] = 7, INVALID, "dw.shape[0] is 7, must be 8 (x.shape[1])");
  REFUSE(a.db.shape[0] = 7, INVALID, "db.shape[0] is 7, must be 8 (x.shape[1])");
  REFUSE(a.db.dtype = TIGON_BF16, INVALID, "db.dtype is bf16, must be f32 (x.dtype)");
  REFUSE(a.accumulate_dw = 2, INVALID, "accumulate_dw is 2, must be 0 or 1");
  REFUSE(a.workspace = d->workspace + 1, WORKSPACE, "workspace is not aligned to 64 bytes");
  REFUSE(a.dx.data = d->w, ALIAS, "dx overlaps w, must be apart");
  REFUSE(a.dx.data = d->dy + 1, ALIAS, "dx overlaps dy in part, must be the same view or apart");
  REFUSE(a.db.data = d->dw, ALIAS, "dw overlaps db, must be apart");
#undef REFUSE
  a = bwd_args(d);
  size_t bytes;
  assert_int_equal(tigon_layer_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  char sentence[128];
  snprintf(sentence, sizeof sentence, "layer_norm_bwd: workspace is NULL, must have %zu bytes", bytes);
  a.workspace = NULL;
  api_expect(c, tigon_layer_norm_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
  snprintf(sentence, sizeof sentence, "layer_norm_bwd: workspace_bytes is %zu, must be %zu or more", bytes - 1, bytes);
  a.workspace = d->workspace;
  a.workspace_bytes = bytes - 1;
  api_expect(c, tigon_layer_norm_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
  memset(&a.dw, 0, sizeof a.dw);
  size_t with_db;
  assert_int_equal(tigon_layer_norm_bwd_workspace(c, &a, &with_db), TIGON_OK);
  assert_int_equal(with_db, bytes);
  memset(&a.db, 0, sizeof a.db);
  assert_int_equal(tigon_layer_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_layer_norm_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_layer_norm_fwd(c, &f), TIGON_OK);
  float y[ROWS * COLS];
  memcpy(y, d->y, sizeof y);
  f.y = f.x;
  assert_int_equal(tigon_layer_norm_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->x, y, sizeof y);

  d = made();
  tigon_layer_norm_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_layer_norm_bwd(c, &b), TIGON_OK);
  float dx[ROWS * COLS], dw[COLS], db[COLS];
  memcpy(dx, d->dx, sizeof dx);
  memcpy(dw, d->dw, sizeof dw);
  memcpy(db, d->db, sizeof db);
  for (int i = 0; i < 2; ++i) {
    d = made();
    b = bwd_args(d);
    b.dx = i ? b.x : b.dy;
    assert_int_equal(tigon_layer_norm_bwd(c, &b), TIGON_OK);
    assert_memory_equal(b.dx.data, dx, sizeof dx);
    assert_memory_equal(d->dw, dw, sizeof dw);
    assert_memory_equal(d->db, db, sizeof db);
  }
}

/* No rows: nothing to do, but dw and db are still sums over no rows. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_layer_norm_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = f.mean.shape[0] = f.rstd.shape[0] = 0;
  f.x.data = f.y.data = NULL;
  assert_int_equal(tigon_layer_norm_fwd(c, &f), TIGON_OK);
  tigon_layer_norm_bwd_args b = bwd_args(d);
  b.x.shape[0] = b.dy.shape[0] = b.dx.shape[0] = b.mean.shape[0] = b.rstd.shape[0] = 0;
  assert_int_equal(tigon_layer_norm_bwd(c, &b), TIGON_OK);
  for (int i = 0; i < COLS; ++i) assert_true(d->dw[i] == 0 && d->db[i] == 0);
}

/* 10^4 + an alternating 2^-7, exact in f32: xhat is +-1 but for eps, which E[x^2] - mean^2 in f32 would miss wholly. A row of
 * one value has no variance at all. */
static void test_cancelling(void **state) {
  tigon_context *c = *state;
  enum { WIDE = 10000 };
  static float x[2 * WIDE], y[2 * WIDE];
  float mean[2], rstd[2];
  for (int i = 0; i < WIDE; ++i) x[i] = 1e4f + (i % 2 ? 0x1p-7f : -0x1p-7f), x[WIDE + i] = 1234.567f;
  const tigon_layer_norm_fwd_args a = {.x = tigon_tensor_2d(x, TIGON_F32, 2, WIDE),
                                       .y = tigon_tensor_2d(y, TIGON_F32, 2, WIDE),
                                       .mean = tigon_tensor_1d(mean, TIGON_F32, 2),
                                       .rstd = tigon_tensor_1d(rstd, TIGON_F32, 2),
                                       .eps = 1e-12};
  assert_int_equal(tigon_layer_norm_fwd(c, &a), TIGON_OK);
  const double expected = 0x1p-7 / sqrt(0x1p-14 + 1e-12);
  for (int i = 0; i < WIDE; ++i) {
    assert_true(fabs((double)y[i] - (i % 2 ? expected : -expected)) <= 0x1p-21);
    assert_true(y[WIDE + i] == 0);
  }
  assert_true(mean[0] == 1e4f && mean[1] == 1234.567f);
  assert_true(fabs((double)rstd[1] - 1e6) <= 0.1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses), cmocka_unit_test(test_bwd_refuses), cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_empty),       cmocka_unit_test(test_cancelling),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
