/* group_norm: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of place. */
#include "api.h"

enum { BATCH = 2, CHANNELS = 6, RUN = 5, GROUPS = 3, N = BATCH * CHANNELS * RUN };

typedef struct data {
  float x[N + 4], w[CHANNELS], b[CHANNELS], y[N], mean[BATCH * GROUPS], rstd[BATCH * GROUPS], dy[N], dx[N],
      dw[CHANNELS], db[CHANNELS];
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, N, 0.5f);
  api_fill(d.w, CHANNELS, 0.25f);
  api_fill(d.b, CHANNELS, 0.75f);
  api_fill(d.dy, N, 0.125f);
  for (int r = 0; r < BATCH * GROUPS; ++r) d.mean[r] = d.rstd[r] = 0.5f;
  return &d;
}

static tigon_tensor image(float *values) { return tigon_tensor_3d(values, TIGON_F32, BATCH, CHANNELS, RUN); }
static tigon_tensor vector(float *values) { return tigon_tensor_1d(values, TIGON_F32, CHANNELS); }
static tigon_tensor statistic(float *values) { return tigon_tensor_2d(values, TIGON_F32, BATCH, GROUPS); }

static tigon_group_norm_fwd_args fwd_args(data *d) {
  return (tigon_group_norm_fwd_args){.x = image(d->x),
                                     .w = vector(d->w),
                                     .b = vector(d->b),
                                     .y = image(d->y),
                                     .mean = statistic(d->mean),
                                     .rstd = statistic(d->rstd),
                                     .groups = GROUPS,
                                     .eps = 1e-5};
}

static tigon_group_norm_bwd_args bwd_args(data *d) {
  return (tigon_group_norm_bwd_args){.dy = image(d->dy),
                                     .x = image(d->x),
                                     .w = vector(d->w),
                                     .mean = statistic(d->mean),
                                     .rstd = statistic(d->rstd),
                                     .dx = image(d->dx),
                                     .dw = vector(d->dw),
                                     .db = vector(d->db),
                                     .groups = GROUPS,
                                     .workspace = d->workspace,
                                     .workspace_bytes = sizeof d->workspace};
}

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  before = *d;
  tigon_group_norm_fwd_args a;
#define REFUSE(change, status, sentence)                                                         \
  a = fwd_args(d);                                                                               \
  change;                                                                                        \
  api_expect(c, tigon_group_norm_fwd(c, &a), TIGON_ERROR_##status, "group_norm_fwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.x, 0, sizeof a.x), INVALID, "x is absent");
  REFUSE(a.groups = 0, INVALID, "groups is 0, must divide 6 (x.shape[1])");
  REFUSE(a.groups = 4, INVALID, "groups is 4, must divide 6 (x.shape[1])");
  REFUSE(a.groups = -3, INVALID, "groups is -3, must divide 6 (x.shape[1])");
  REFUSE(a.x = tigon_tensor_1d(d->x, TIGON_F32, N);
         a.y = tigon_tensor_1d(d->y, TIGON_F32, N), INVALID, "x.ndim is 1, must be 2 or more");
  REFUSE(a.x = tigon_tensor_4d(d->x, TIGON_F32, BATCH, CHANNELS, 1, RUN);
         a.y = tigon_tensor_4d(d->y, TIGON_F32, BATCH, CHANNELS, RUN, 1), INVALID,
         "y.shape[2] is 5, must be 1 (x.shape[2])");
  REFUSE(a.x.ndim = a.y.ndim = 4; a.x.shape[2] = a.y.shape[2] = 2; a.x.shape[3] = a.y.shape[3] = 2;
         a.x.strides[2] = a.y.strides[2] = 3;
         a.x.strides[3] = a.y.strides[3] = 1, INVALID, "x.strides[2] is 3, must be 2 (a contiguous run)");
  REFUSE(a.w.shape[0] = 5, INVALID, "w.shape[0] is 5, must be 6 (x.shape[1])");
  REFUSE(a.b.dtype = TIGON_F16, INVALID, "b.dtype is f16, must be f32 (x.dtype)");
  REFUSE(a.mean = tigon_tensor_2d(d->mean, TIGON_F32, BATCH, 2), INVALID, "mean.shape[1] is 2, must be 3 (groups)");
  REFUSE(a.rstd = tigon_tensor_1d(d->rstd, TIGON_F32, BATCH * GROUPS), INVALID, "rstd.ndim is 1, must be 2");
  REFUSE(a.eps = (double)NAN, INVALID, "eps is nan, must be 0 to 3.40282e+38");
  REFUSE(a.reserved[0] = 1, INVALID, "reserved[0] is 1, must be 0");
  REFUSE(a.y.data = d->x + 1, ALIAS, "y overlaps x in part, must be the same view or apart");
  REFUSE(a.mean.data = d->rstd, ALIAS, "mean overlaps rstd, must be apart");
#undef REFUSE
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  before = *d;
  tigon_group_norm_bwd_args a;
#define REFUSE(change, status, sentence)                                                         \
  a = bwd_args(d);                                                                               \
  change;                                                                                        \
  api_expect(c, tigon_group_norm_bwd(c, &a), TIGON_ERROR_##status, "group_norm_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.mean, 0, sizeof a.mean), INVALID, "mean is absent");
  REFUSE(a.dx.shape[2] = 4, INVALID, "dx.shape[2] is 4, must be 5 (x.shape[2])");
  REFUSE(a.db.shape[0] = 7, INVALID, "db.shape[0] is 7, must be 6 (x.shape[1])");
  REFUSE(a.accumulate_dw = 2, INVALID, "accumulate_dw is 2, must be 0 or 1");
  REFUSE(a.workspace = d->workspace + 1, WORKSPACE, "workspace is not aligned to 64 bytes");
  REFUSE(a.dx.data = d->w, ALIAS, "dx overlaps w, must be apart");
#undef REFUSE
  size_t bytes;
  a = bwd_args(d);
  assert_int_equal(tigon_group_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  a.workspace_bytes = bytes - 1;
  char sentence[128];
  snprintf(sentence, sizeof sentence, "group_norm_bwd: workspace_bytes is %zu, must be %zu or more", bytes - 1, bytes);
  api_expect(c, tigon_group_norm_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_group_norm_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_group_norm_fwd(c, &f), TIGON_OK);
  f.y = f.x;
  assert_int_equal(tigon_group_norm_fwd(c, &f), TIGON_OK);
  assert_memory_equal(d->x, d->y, sizeof d->y);
  d = made();
  tigon_group_norm_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_group_norm_bwd(c, &b), TIGON_OK);
  b.dx = b.dy;
  assert_int_equal(tigon_group_norm_bwd(c, &b), TIGON_OK);
  assert_memory_equal(d->dy, d->dx, sizeof d->dx);
}

/* [B, C] with a stride between channels is [B, C, 1] of the same memory, and each is what lies end to end. */
static void test_channel_stride(void **state) {
  tigon_context *c = *state;
  data *d = made();
  enum { APART = 3, ALL = BATCH * CHANNELS };
  float x[ALL * APART], dy[ALL * APART], y[3][ALL], dx[3][ALL], dw[3][CHANNELS], wide[ALL * APART];
  for (int i = 0; i < ALL * APART; ++i) x[i] = dy[i] = NAN;
  for (int i = 0; i < ALL; ++i) x[i * APART] = d->x[i], dy[i * APART] = d->dy[i];
  const tigon_tensor flat = tigon_tensor_2d(NULL, TIGON_F32, BATCH, CHANNELS);
  const tigon_tensor apart = {NULL, TIGON_F32, 2, {BATCH, CHANNELS}, {CHANNELS * APART, APART}};
  const tigon_tensor planes = {NULL, TIGON_F32, 3, {BATCH, CHANNELS, 1}, {CHANNELS * APART, APART, 1}};
  for (int i = 0; i < 3; ++i) {
    tigon_group_norm_fwd_args f = fwd_args(d);
    tigon_group_norm_bwd_args b = bwd_args(d);
    f.x = b.x = b.dy = i == 0 ? flat : i == 1 ? apart : planes;
    f.y = b.dx = flat;
    if (i == 2) f.y = b.dx = tigon_tensor_3d(NULL, TIGON_F32, BATCH, CHANNELS, 1);
    f.x.data = b.x.data = i ? x : d->x;
    b.dy.data = i ? dy : d->dy;
    f.y.data = y[i];
    b.dx.data = dx[i];
    b.dw.data = dw[i];
    assert_int_equal(tigon_group_norm_fwd(c, &f), TIGON_OK);
    assert_int_equal(tigon_group_norm_bwd(c, &b), TIGON_OK);
    assert_memory_equal(y[i], y[0], sizeof y[0]);
    assert_memory_equal(dx[i], dx[0], sizeof dx[0]);
    assert_memory_equal(dw[i], dw[0], sizeof dw[0]);
    if (i != 1) continue;
    f.y = apart; /* the output, too */
    f.y.data = wide;
    assert_int_equal(tigon_group_norm_fwd(c, &f), TIGON_OK);
    for (int at = 0; at < ALL; ++at) assert_true(wide[at * APART] == y[0][at]);
    f.y.strides[1] = 0;
    api_expect(c, tigon_group_norm_fwd(c, &f), TIGON_ERROR_ALIAS,
               "group_norm_fwd: y overlaps itself, its strides must keep elements apart");
  }
}

/* Nothing to do, and sums over nothing. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_group_norm_fwd_args f = fwd_args(d);
  f.x.shape[0] = f.y.shape[0] = f.mean.shape[0] = f.rstd.shape[0] = 0;
  assert_int_equal(tigon_group_norm_fwd(c, &f), TIGON_OK);
  tigon_group_norm_bwd_args b = bwd_args(d);
  b.x.shape[2] = b.dy.shape[2] = b.dx.shape[2] = 0;
  assert_int_equal(tigon_group_norm_bwd(c, &b), TIGON_OK);
  for (int i = 0; i < CHANNELS; ++i) assert_true(d->dw[i] == 0 && d->db[i] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses),    cmocka_unit_test(test_bwd_refuses), cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_channel_stride), cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
