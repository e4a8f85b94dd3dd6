/* group_norm: what its description cannot say; strides between channels. */
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

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(group_norm_fwd, fwd_args, a.x = a.y = tigon_tensor_1d(d->x, TIGON_F32, N), INVALID,
              "x.ndim is 1, must be 2 or more");
  API_REFUSES(group_norm_fwd, fwd_args, a.x.ndim = a.y.ndim = 4; a.x.shape[2] = a.y.shape[2] = 2;
              a.x.shape[3] = a.y.shape[3] = 2; a.x.strides[2] = a.y.strides[2] = 3;
              a.x.strides[3] = a.y.strides[3] = 1, INVALID, "x.strides[2] is 3, must be 2 (a contiguous run)");
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses), cmocka_unit_test(test_channel_stride)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
