/* fused_add_rms_norm: what it adds to rms_norm's checks. */
#include "api.h"

enum { ROWS = 3, COLS = 8, N = ROWS * COLS };

typedef struct data {
  float x[N], residual[N], w[COLS], s[N], y[N], rstd[ROWS], dy[N], ds[N], dx[N], dw[COLS];
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, N, 0.5f);
  api_fill(d.residual, N, -0.25f);
  api_fill(d.w, COLS, 0.25f);
  api_fill(d.s, N, 0.5f);
  api_fill(d.dy, N, 0.125f);
  api_fill(d.ds, N, 0.375f);
  for (int r = 0; r < ROWS; ++r) d.rstd[r] = 0.5f;
  return &d;
}

static tigon_fused_add_rms_norm_fwd_args fwd_args(data *d) {
  return (tigon_fused_add_rms_norm_fwd_args){
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .residual = tigon_tensor_2d(d->residual, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .s = tigon_tensor_2d(d->s, TIGON_F32, ROWS, COLS),
      .y = tigon_tensor_2d(d->y, TIGON_F32, ROWS, COLS),
      .eps = 1e-6,
  };
}

static tigon_fused_add_rms_norm_bwd_args bwd_args(data *d) {
  return (tigon_fused_add_rms_norm_bwd_args){
      .dy = tigon_tensor_2d(d->dy, TIGON_F32, ROWS, COLS),
      .ds = tigon_tensor_2d(d->ds, TIGON_F32, ROWS, COLS),
      .s = tigon_tensor_2d(d->s, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .dx = tigon_tensor_2d(d->dx, TIGON_F32, ROWS, COLS),
      .dw = tigon_tensor_1d(d->dw, TIGON_F32, COLS),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

static void test_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
#define REFUSE(type, change, status, sentence)                                  \
  do {                                                                          \
    tigon_fused_add_rms_norm_##type##_args a = type##_args(d);                  \
    change;                                                                     \
    before = *d;                                                                \
    api_expect(c, tigon_fused_add_rms_norm_##type(c, &a), TIGON_ERROR_##status, \
               "fused_add_rms_norm_" #type ": " sentence);                      \
    assert_memory_equal(d, &before, sizeof before);                             \
  } while (0)
  REFUSE(fwd, memset(&a.residual, 0, sizeof a.residual), INVALID, "residual is absent");
  REFUSE(fwd, a.residual.shape[1] = 4, INVALID, "residual.shape[1] is 4, must be 8 (x.shape[1])");
  REFUSE(fwd, a.residual.dtype = TIGON_BF16, INVALID, "residual.dtype is bf16, must be f32 (x.dtype)");
  REFUSE(fwd, a.s = tigon_tensor_1d(d->s, TIGON_F32, N), INVALID, "s.ndim is 1, must be 2 (x.ndim)");
  REFUSE(fwd, a.y.data = d->s, ALIAS, "s overlaps y, must be apart");
  REFUSE(fwd, a.s.data = d->x + 1, ALIAS, "s overlaps x in part, must be the same view or apart");
  REFUSE(fwd, a.reserved[0] = 1, INVALID, "reserved[0] is 1, must be 0");
  REFUSE(bwd, a.ds.shape[0] = 2, INVALID, "ds.shape[0] is 2, must be 3 (s.shape[0])");
  REFUSE(bwd, a.dx.dtype = TIGON_F16, INVALID, "dx.dtype is f16, must be f32 (s.dtype)");
  REFUSE(bwd, a.rstd.shape[0] = 4, INVALID, "rstd.shape[0] is 4, must be 3 (rows)");
  REFUSE(bwd, a.workspace = NULL; a.dw.data = d->y, WORKSPACE, "workspace is NULL, must have 128 bytes");
  REFUSE(bwd, a.dx.data = d->ds + 1, ALIAS, "dx overlaps ds in part, must be the same view or apart");
#undef REFUSE
}

static void test_in_place(void **state) {
  tigon_context *c = *state;
  float s[N], y[N], dx[N];
  data *d = made();
  tigon_fused_add_rms_norm_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_fused_add_rms_norm_fwd(c, &f), TIGON_OK);
  memcpy(s, d->s, sizeof s);
  memcpy(y, d->y, sizeof y);
  for (int swap = 0; swap < 2; ++swap) {
    d = made();
    f = fwd_args(d);
    f.s = swap ? f.x : f.residual;
    f.y = swap ? f.residual : f.x;
    assert_int_equal(tigon_fused_add_rms_norm_fwd(c, &f), TIGON_OK);
    assert_memory_equal(f.s.data, s, sizeof s);
    assert_memory_equal(f.y.data, y, sizeof y);
  }
  d = made();
  tigon_fused_add_rms_norm_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_fused_add_rms_norm_bwd(c, &b), TIGON_OK);
  memcpy(dx, d->dx, sizeof dx);
  for (int i = 0; i < 3; ++i) {
    d = made();
    b = bwd_args(d);
    b.dx = i == 0 ? b.dy : i == 1 ? b.ds : b.s;
    assert_int_equal(tigon_fused_add_rms_norm_bwd(c, &b), TIGON_OK);
    assert_memory_equal(b.dx.data, dx, sizeof dx);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses), cmocka_unit_test(test_in_place)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
