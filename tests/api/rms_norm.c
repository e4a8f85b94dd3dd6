/* rms_norm: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of place. */
#include "api.h"

enum { ROWS = 3, COLS = 8 };

typedef struct data {
  float x[ROWS * COLS + 4], w[COLS], y[ROWS * COLS], rstd[ROWS], dy[ROWS * COLS], dx[ROWS * COLS], dw[COLS];
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, ROWS * COLS, 0.5f);
  api_fill(d.w, COLS, 0.25f);
  api_fill(d.dy, ROWS * COLS, 0.125f);
  for (int r = 0; r < ROWS; ++r) d.rstd[r] = 0.5f;
  return &d;
}

static tigon_rms_norm_fwd_args fwd_args(data *d) {
  return (tigon_rms_norm_fwd_args){
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .y = tigon_tensor_2d(d->y, TIGON_F32, ROWS, COLS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .eps = 1e-6,
  };
}

static tigon_rms_norm_bwd_args bwd_args(data *d) {
  return (tigon_rms_norm_bwd_args){
      .dy = tigon_tensor_2d(d->dy, TIGON_F32, ROWS, COLS),
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .dx = tigon_tensor_2d(d->dx, TIGON_F32, ROWS, COLS),
      .dw = tigon_tensor_1d(d->dw, TIGON_F32, COLS),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

static void refuse_fwd(tigon_context *context, const tigon_rms_norm_fwd_args *args, data *d, tigon_status status,
                       const char *sentence) {
  static data before;
  before = *d;
  api_expect(context, tigon_rms_norm_fwd(context, args), status, sentence);
  assert_memory_equal(d, &before, sizeof before);
}

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_rms_norm_fwd_args a;
#define REFUSE(change, status, sentence) \
  a = fwd_args(d);                       \
  change;                                \
  refuse_fwd(c, &a, d, TIGON_ERROR_##status, "rms_norm_fwd: " sentence)
  REFUSE(memset(&a.x, 0, sizeof a.x), INVALID, "x is absent");
  REFUSE(a.x.data = NULL, INVALID, "x.data is NULL");
  REFUSE(a.x.dtype = TIGON_I32, INVALID, "x.dtype is i32, must be f32, f16, bf16");
  REFUSE(a.x.dtype = (tigon_dtype)99, INVALID, "x.dtype is 99, must be f32, f16, bf16");
  REFUSE(a.x.ndim = 9, INVALID, "x.ndim is 9, must be 1 to 8");
  REFUSE(a.x.ndim = -1, INVALID, "x.ndim is -1, must be 1 to 8");
  REFUSE(a.x.shape[0] = -1, INVALID, "x.shape[0] is -1, must be >= 0");
  REFUSE(a.x.strides[0] = -8, INVALID, "x.strides[0] is -8, must be >= 0");
  REFUSE(a.x.strides[1] = 2, INVALID, "x.strides[1] is 2, must be 1");
  REFUSE(a.x.shape[0] = INT64_MAX, INVALID, "x has more elements than 64 bits count");
  REFUSE(a.x.strides[0] = INT64_MAX, INVALID, "x reaches further than 64 bits address");
  REFUSE(a.x.data = (char *)d->x + 2, INVALID, "x.data is not aligned to 4 bytes (f32)");
  REFUSE(a.y.shape[1] = 7, INVALID, "y.shape[1] is 7, must be 8 (x.shape[1])");
  REFUSE(a.y.dtype = TIGON_BF16, INVALID, "y.dtype is bf16, must be f32 (x.dtype)");
  REFUSE(a.w.shape[0] = 7, INVALID, "w.shape[0] is 7, must be 8 (x.shape[1])");
  REFUSE(a.w.dtype = TIGON_F16, INVALID, "w.dtype is f16, must be f32 (x.dtype)");
  REFUSE(a.rstd.shape[0] = 2, INVALID, "rstd.shape[0] is 2, must be 3 (rows)");
  REFUSE(a.rstd.dtype = TIGON_F16, INVALID, "rstd.dtype is f16, must be f32");
  REFUSE(a.eps = -1, INVALID, "eps is -1, must be 0 to 3.40282e+38");
  REFUSE(a.eps = (double)NAN, INVALID, "eps is nan, must be 0 to 3.40282e+38");
  REFUSE(a.w_offset = (double)INFINITY, INVALID, "w_offset is inf, must be -3.40282e+38 to 3.40282e+38");
  REFUSE(a.casting = (tigon_casting)3, INVALID, "casting is 3, must be 0 to 2");
  REFUSE(a.casting = (tigon_casting)-1, INVALID, "casting is -1, must be 0 to 2");
  REFUSE(a.reserved[2] = 7, INVALID, "reserved[2] is 7, must be 0");
  REFUSE(a.y.data = d->x + 1, ALIAS, "y overlaps x in part, must be the same view or apart");
  REFUSE(a.y.data = d->w, ALIAS, "y overlaps w, must be apart");
  REFUSE(a.y.strides[0] = 4, ALIAS, "y overlaps itself, its strides must keep elements apart");
#undef REFUSE
  api_expect(c, tigon_rms_norm_fwd(c, NULL), TIGON_ERROR_INVALID, "rms_norm_fwd: args is NULL");
  api_expect(NULL, tigon_rms_norm_fwd(NULL, &a), TIGON_ERROR_INVALID, "rms_norm_fwd: context is NULL");
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_rms_norm_bwd_args a;
#define REFUSE(change, status, sentence)                                                     \
  a = bwd_args(d);                                                                           \
  change;                                                                                    \
  before = *d;                                                                               \
  api_expect(c, tigon_rms_norm_bwd(c, &a), TIGON_ERROR_##status, "rms_norm_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.rstd, 0, sizeof a.rstd), INVALID, "rstd is absent");
  REFUSE(a.dy.shape[0] = 2, INVALID, "dy.shape[0] is 2, must be 3 (x.shape[0])");
  REFUSE(a.dw.shape[0] = 9, INVALID, "dw.shape[0] is 9, must be 8 (x.shape[1])");
  REFUSE(a.accumulate_dw = 2, INVALID, "accumulate_dw is 2, must be 0 or 1");
  REFUSE(a.workspace = d->workspace + 1, WORKSPACE, "workspace is not aligned to 64 bytes");
  REFUSE(a.dy = tigon_tensor_2d(d->workspace, TIGON_F32, a.x.shape[0], a.x.shape[1]), ALIAS,
         "workspace overlaps dy, must be apart");
  REFUSE(a.dx.data = d->w, ALIAS, "dx overlaps w, must be apart");
  REFUSE(a.dx.data = d->dy + 1, ALIAS, "dx overlaps dy in part, must be the same view or apart");
#undef REFUSE
  a = bwd_args(d);
  size_t bytes;
  assert_int_equal(tigon_rms_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  char sentence[128];
  snprintf(sentence, sizeof sentence, "rms_norm_bwd: workspace is NULL, must have %zu bytes", bytes);
  a.workspace = NULL;
  api_expect(c, tigon_rms_norm_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
  snprintf(sentence, sizeof sentence, "rms_norm_bwd: workspace_bytes is %zu, must be %zu or more", bytes - 1, bytes);
  a.workspace = d->workspace;
  a.workspace_bytes = bytes - 1;
  api_expect(c, tigon_rms_norm_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
  memset(&a.dw, 0, sizeof a.dw);
  assert_int_equal(tigon_rms_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_rms_norm_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_rms_norm_fwd(c, &f), TIGON_OK);
  float y[ROWS * COLS];
  memcpy(y, d->y, sizeof y);
  f.y = f.x;
  assert_int_equal(tigon_rms_norm_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->x, y, sizeof y);

  d = made();
  tigon_rms_norm_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_rms_norm_bwd(c, &b), TIGON_OK);
  float dx[ROWS * COLS], dw[COLS];
  memcpy(dx, d->dx, sizeof dx);
  memcpy(dw, d->dw, sizeof dw);
  b.dx = b.dy;
  assert_int_equal(tigon_rms_norm_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d->dy, dx, sizeof dx);
  assert_memory_equal(d->dw, dw, sizeof dw);
  d = made();
  b = bwd_args(d);
  b.dx = b.x;
  assert_int_equal(tigon_rms_norm_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d->x, dx, sizeof dx);
  assert_memory_equal(d->dw, dw, sizeof dw);
}

/* No rows: nothing to do, but dw is still the sum over no rows. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_rms_norm_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = f.rstd.shape[0] = 0;
  f.x.data = f.y.data = NULL;
  assert_int_equal(tigon_rms_norm_fwd(c, &f), TIGON_OK);
  tigon_rms_norm_bwd_args b = bwd_args(d);
  b.x.shape[0] = b.dy.shape[0] = b.dx.shape[0] = b.rstd.shape[0] = 0;
  assert_int_equal(tigon_rms_norm_bwd(c, &b), TIGON_OK);
  for (int i = 0; i < COLS; ++i) assert_true(d->dw[i] == 0);
}

/* Leading dimensions that do not collapse to one pitch: a [B, H, T, D] view of [B, T, H, D] memory. */
static void test_strided(void **state) {
  tigon_context *c = *state;
  enum { B = 2, H = 3, T = 5, D = 4, N = B * H * T * D };
  float x[N], y[N], flat[N], w[D];
  api_fill(x, N, 0.5f);
  api_fill(w, D, 0.25f);
  tigon_rms_norm_fwd_args a = {.w = tigon_tensor_1d(w, TIGON_F32, D), .eps = 1e-6};
  a.x = tigon_tensor_2d(x, TIGON_F32, B * T * H, D);
  a.y = tigon_tensor_2d(flat, TIGON_F32, B * T * H, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  a.x = (tigon_tensor){x, TIGON_F32, 4, {B, H, T, D}, {T * H * D, D, H * D, 1}};
  a.y = tigon_tensor_4d(y, TIGON_F32, B, H, T, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < H; ++h)
      for (int t = 0; t < T; ++t)
        assert_memory_equal(&y[((b * H + h) * T + t) * D], &flat[((b * T + t) * H + h) * D], D * sizeof *y);
}

/* Three leading strides are taken, four are not; nor are negative ones. */
static void test_strides_refused(void **state) {
  tigon_context *c = *state;
  enum { D = 2 };
  float x[2 * 3 * 2 * 3 * D], y[2 * 3 * 2 * 3 * D], flat[2 * 3 * 2 * 3 * D];
  api_fill(x, 72, 0.5f);
  tigon_rms_norm_fwd_args a = {.eps = 1e-6};
  a.x = tigon_tensor_2d(x, TIGON_F32, 36, D);
  a.y = tigon_tensor_2d(flat, TIGON_F32, 36, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  a.x = (tigon_tensor){x, TIGON_F32, 5, {3, 3, 2, 2, D}, {2, 12, 36, 6, 1}}; /* all four turned */
  a.y = (tigon_tensor){y, TIGON_F32, 5, {3, 3, 2, 2, D}, {24, 8, 4, 2, 1}};
  memset(y, 0, sizeof y);
  api_expect(c, tigon_rms_norm_fwd(c, &a), TIGON_ERROR_INVALID,
             "rms_norm_fwd: the leading dimensions collapse to 4 strides, must collapse to 3 or fewer");
  for (int i = 0; i < 72; ++i) assert_true(y[i] == 0);
  /* x, [3, 4, 3, D] turned, as [3, 3, 4, D]: 2 dimensions of y lie end to end, none of x does. */
  a.x = (tigon_tensor){x, TIGON_F32, 4, {3, 3, 4, D}, {2, 24, 6, 1}};
  a.y = tigon_tensor_4d(y, TIGON_F32, 3, 3, 4, D);
  assert_int_equal(tigon_rms_norm_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        assert_memory_equal(&y[((i * 3 + j) * 4 + k) * D], &flat[(j * 12 + k * 3 + i) * D], D * sizeof *y);
  a.x.strides[1] = -24;
  api_expect(c, tigon_rms_norm_fwd(c, &a), TIGON_ERROR_INVALID, "rms_norm_fwd: x.strides[1] is -24, must be >= 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses), cmocka_unit_test(test_bwd_refuses), cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_empty),       cmocka_unit_test(test_strided),     cmocka_unit_test(test_strides_refused),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
