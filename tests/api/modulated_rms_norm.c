/* modulated_rms_norm: scale and shift in each of their shapes; workspaces. */
#include "api.h"

enum { ROWS = 6, BATCH = 2, COLS = 8 };

typedef struct data {
  float x[ROWS * COLS + 4], w[COLS], y[ROWS * COLS], rstd[ROWS], dy[ROWS * COLS], dx[ROWS * COLS], dw[COLS];
  float modulation[ROWS * 2 * COLS], gradient[ROWS * 2 * COLS]; /* a row: scale, shift */
  _Alignas(64) char workspace[1 << 16];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.x, ROWS * COLS, 0.5f);
  api_fill(d.w, COLS, 0.25f);
  api_fill(d.dy, ROWS * COLS, 0.125f);
  api_fill(d.modulation, ROWS * 2 * COLS, 0.0625f);
  for (int r = 0; r < ROWS; ++r) d.rstd[r] = 0.5f;
  return &d;
}

/* Columns `part` of `rows` rows that hold scale and shift. */
static tigon_tensor half(float *rows_of_both, int part, int64_t rows) {
  return (tigon_tensor){rows_of_both + part * COLS, TIGON_F32, 2, {rows, COLS}, {2 * COLS, 1}};
}

static tigon_modulated_rms_norm_fwd_args fwd_args(data *d) {
  return (tigon_modulated_rms_norm_fwd_args){
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .scale = half(d->modulation, 0, BATCH),
      .shift = half(d->modulation, 1, BATCH),
      .y = tigon_tensor_2d(d->y, TIGON_F32, ROWS, COLS),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .eps = 1e-6,
  };
}

static tigon_modulated_rms_norm_bwd_args bwd_args(data *d) {
  return (tigon_modulated_rms_norm_bwd_args){
      .dy = tigon_tensor_2d(d->dy, TIGON_F32, ROWS, COLS),
      .x = tigon_tensor_2d(d->x, TIGON_F32, ROWS, COLS),
      .w = tigon_tensor_1d(d->w, TIGON_F32, COLS),
      .scale = half(d->modulation, 0, BATCH),
      .rstd = tigon_tensor_1d(d->rstd, TIGON_F32, ROWS),
      .dx = tigon_tensor_2d(d->dx, TIGON_F32, ROWS, COLS),
      .dw = tigon_tensor_1d(d->dw, TIGON_F32, COLS),
      .dscale = half(d->gradient, 0, BATCH),
      .dshift = half(d->gradient, 1, BATCH),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(modulated_rms_norm_fwd, fwd_args, a.scale.shape[0] = a.shift.shape[0] = 4, INVALID,
              "scale has 4 rows, must have a number that divides 6 (rows)");
  API_REFUSES(modulated_rms_norm_fwd, fwd_args, a.scale.shape[0] = a.shift.shape[0] = 0, INVALID,
              "scale has 0 rows, must have a number that divides 6 (rows)");
  API_REFUSES(modulated_rms_norm_bwd, bwd_args, a.scale.shape[0] = a.dscale.shape[0] = a.dshift.shape[0] = 4, INVALID,
              "scale has 4 rows, must have a number that divides 6 (rows)");
}

/* Sums need a workspace, and nothing else does. */
static void test_workspace(void **state) {
  tigon_context *c = *state;
  tigon_modulated_rms_norm_bwd_args a = bwd_args(made());
  size_t bytes;
  a.dw = a.dscale = a.dshift = (tigon_tensor){0};
  assert_int_equal(tigon_modulated_rms_norm_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
  a.workspace = NULL;
  assert_int_equal(tigon_modulated_rms_norm_bwd(c, &a), TIGON_OK);
}

/* The same numbers as one row, one a batch and one a row of x give the same y and dx, and sums that agree. */
static void test_shapes_of_scale(void **state) {
  tigon_context *c = *state;
  data *d = made();
  for (int r = 1; r < ROWS; ++r) memcpy(d->modulation + r * 2 * COLS, d->modulation, 2 * COLS * sizeof(float));
  static const int64_t groups[] = {1, BATCH, ROWS};
  float y[ROWS * COLS], dx[ROWS * COLS], total[2 * COLS];
  for (int i = 0; i < 3; ++i) {
    tigon_modulated_rms_norm_fwd_args f = fwd_args(d);
    tigon_modulated_rms_norm_bwd_args b = bwd_args(d);
    f.scale = b.scale = half(d->modulation, 0, groups[i]);
    f.shift = half(d->modulation, 1, groups[i]);
    b.dscale = half(d->gradient, 0, groups[i]);
    b.dshift = half(d->gradient, 1, groups[i]);
    memset(&f.rstd, 0, sizeof f.rstd);
    if (i == 0) {
      tigon_tensor *const one_row[] = {&f.scale, &f.shift, &b.scale, &b.dscale, &b.dshift};
      for (int t = 0; t < 5; ++t) *one_row[t] = tigon_tensor_1d(one_row[t]->data, TIGON_F32, COLS);
    }
    assert_int_equal(tigon_modulated_rms_norm_fwd(c, &f), TIGON_OK);
    assert_int_equal(tigon_modulated_rms_norm_bwd(c, &b), TIGON_OK);
    if (i == 0) {
      memcpy(y, d->y, sizeof y);
      memcpy(dx, d->dx, sizeof dx);
      memcpy(total, d->gradient, sizeof total);
    }
    assert_memory_equal(d->y, y, sizeof y);
    assert_memory_equal(d->dx, dx, sizeof dx);
    for (int at = 0; at < 2 * COLS; ++at) {
      double sum = 0;
      for (int64_t g = 0; g < groups[i]; ++g) sum += (double)d->gradient[g * 2 * COLS + at];
      assert_true(fabs(sum - (double)total[at]) <= 1e-5);
    }
  }
}

/* x [2, 3, C] has groups of rows that are not cut across a dimension; [3, C] would be one row per 2 rows of x. */
static void test_groups_of_scale(void **state) {
  tigon_context *c = *state;
  data *d = made();
  float y[ROWS * COLS];
  enum { TOKENS = ROWS / BATCH };
  tigon_modulated_rms_norm_fwd_args a = fwd_args(d);
  memset(&a.rstd, 0, sizeof a.rstd);
  assert_int_equal(tigon_modulated_rms_norm_fwd(c, &a), TIGON_OK);
  memcpy(y, d->y, sizeof y);
  a.x = tigon_tensor_3d(d->x, TIGON_F32, BATCH, TOKENS, COLS);
  a.y = tigon_tensor_3d(d->y, TIGON_F32, BATCH, TOKENS, COLS);
  const tigon_modulated_rms_norm_fwd_args good = a;
  for (int i = 0; i < 2; ++i) {
    memset(d->y, 0, sizeof d->y);
    assert_int_equal(tigon_modulated_rms_norm_fwd(c, &a), TIGON_OK);
    assert_memory_equal(d->y, y, sizeof y);
    a.scale = a.shift = (tigon_tensor){d->modulation, TIGON_F32, 3, {BATCH, 1, COLS}, {2 * COLS, 2 * COLS, 1}};
    a.shift.data = d->modulation + COLS;
  }
#define REFUSE(change, sentence) \
  a = good;                      \
  change;                        \
  a.shift = a.scale;             \
  api_expect(c, tigon_modulated_rms_norm_fwd(c, &a), TIGON_ERROR_INVALID, "modulated_rms_norm_fwd: " sentence)
  REFUSE(a.scale = half(d->modulation, 0, TOKENS),
         "scale.shape[0] is 3, must be 1 or a product of the first dimensions of x");
  REFUSE(a.scale = tigon_tensor_3d(d->modulation, TIGON_F32, 1, TOKENS, COLS),
         "scale.shape[1] is 3, must be 1 (as the dimension before it)");
  REFUSE(a.scale = tigon_tensor_3d(d->modulation, TIGON_F32, BATCH, BATCH, COLS),
         "scale.shape[1] is 2, must be 3 (x.shape[1]) or 1");
  REFUSE(a.scale = tigon_tensor_4d(d->modulation, TIGON_F32, BATCH, 1, 1, COLS),
         "scale.ndim is 4, must be 3 (x.ndim) or less");
#undef REFUSE
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses), cmocka_unit_test(test_workspace),
                                     cmocka_unit_test(test_shapes_of_scale), cmocka_unit_test(test_groups_of_scale)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
