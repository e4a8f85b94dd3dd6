/* Options walk casting, weight, offset, shift, how many rows share a scale, dtypes, in place and accumulation. */
#include <math.h>

#include "check/cases.h"

static const struct option {
  tigon_casting casting;
  bool w, w_f32;
  double w_offset;
  bool shift, scale_f32;
  enum { ALL_ROWS, MANY_ROWS, FEW_ROWS, ONE_ROW, AN_EIGHTH } sharing;
  bool in_place, f32_sums, accumulate;
} options[] = {
    {TIGON_CASTING_LLAMA, true, false, 0, true, false, MANY_ROWS, false, true, false},
    {TIGON_CASTING_GEMMA, true, true, 1, true, true, ALL_ROWS, false, false, false},
    {TIGON_CASTING_NONE, true, false, 0, true, false, ONE_ROW, false, true, true},
    {TIGON_CASTING_LLAMA, false, false, 0, false, true, FEW_ROWS, true, true, true},
    {TIGON_CASTING_GEMMA, true, false, 1, true, false, FEW_ROWS, true, false, true},
    {TIGON_CASTING_GEMMA, false, false, 0, true, false, ONE_ROW, true, true, false},
    {TIGON_CASTING_LLAMA, true, false, 0, true, false, AN_EIGHTH, false, true, false},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* scale's shape into `shape`: its dimensions; *share: the rows that share one of its rows. */
static int scale_shape(const check *k, int64_t shape[2], int64_t *share) {
  const int64_t rows = k->dims[0];
  int64_t divisor = 2;
  while (divisor < rows && rows % divisor) ++divisor;
  const int sharing = options[k->option].sharing;
  const int64_t groups = sharing == ONE_ROW     ? rows
                         : sharing == MANY_ROWS ? divisor
                         : sharing == AN_EIGHTH ? (rows % 8 == 0 ? 8 : 1)
                                                : rows / divisor;
  shape[0] = sharing == ALL_ROWS || rows == 1 ? 1 : groups;
  shape[1] = k->dims[1];
  *share = rows / shape[0];
  if (sharing != ALL_ROWS) return 2;
  shape[0] = shape[1];
  return 1;
}

/* A flip of an intermediate that is rounded to the dtype, in units of 2^-24 of it. */
static double flip_of(const check *k) {
  if (options[k->option].casting == TIGON_CASTING_GEMMA || k->dtype == TIGON_F32) return 0;
  return k->dtype == TIGON_F16 ? 0x1p14 : 0x1p17;
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  int64_t shape[2], share;
  const int ndim = scale_shape(k, shape, &share);
  const check_fill vectors = k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM;
  const tigon_tensor none = {0};
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), cols, vectors, o.w);
  const tigon_tensor scale = check_in(k, "scale", check_dtype(k, o.scale_f32), ndim, shape, vectors);
  const tigon_tensor shift = o.shift ? check_in(k, "shift", k->dtype, ndim, shape, vectors) : none;
  const tigon_tensor x = check_rows(k, "x", k->fill, o.in_place);
  /* Magnitudes: the product and the shift. llama rounds xhat, which may flip. An ulp is at most 2^-7 or 2^-10 of it, and one and
   * a half allow for rstd's last bits. none rounds mean, rstd and xhat. */
  const double flips = o.casting == TIGON_CASTING_NONE ? 4 : 1.5;
  const double of_rstd = check_calls(k, 1, 1.5); /* 1 / sqrt(sum / cols + eps): the sum's division under the root */
  double *y_scale = check_doubles(k, rows * cols);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += check_value(&x, r * cols + c) * check_value(&x, r * cols + c);
    const double rstd = 1 / sqrt(sum / (double)cols + (double)1e-6f);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = r / share * cols + c;
      const double n = check_value(&x, r * cols + c) * rstd * (o.w ? check_value(&w, c) + o.w_offset : 1);
      y_scale[r * cols + c] = (8 + flips * flip_of(k) + of_rstd) * fabs((1 + check_value(&scale, at)) * n) +
                              (o.shift ? 8 * fabs(check_value(&shift, at)) : 0);
    }
  }
  const tigon_tensor rstd = check_out_vector(k, "rstd", TIGON_F32, rows);
  const tigon_tensor y = o.in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  const tigon_modulated_rms_norm_fwd_args args = {.x = x,
                                                  .w = w,
                                                  .scale = scale,
                                                  .shift = shift,
                                                  .y = y,
                                                  .rstd = rstd,
                                                  .eps = 1e-6,
                                                  .w_offset = o.w_offset,
                                                  .casting = o.casting};
  check_call(k, &args);
  check_bound(k, &y, k->dtype == TIGON_F32 ? 0 : 1, 1, y_scale);
  check_bound_relative(k, &rstd, 4 + (o.casting == TIGON_CASTING_NONE ? 0.75 * flip_of(k) : 0), 0, NULL, of_rstd);
}

/* A gradient that is a sum, of any shape; its values before the call count among the terms. */
static tigon_tensor sum_of(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape, bool dense,
                           double *terms) {
  const struct option o = options[k->option];
  if (!o.accumulate)
    return dense ? check_out_dense(k, name, dtype, ndim, shape) : check_out(k, name, dtype, ndim, shape);
  const tigon_tensor t = dense ? check_inout_dense(k, name, dtype, ndim, shape, CHECK_UNIFORM)
                               : check_inout(k, name, dtype, ndim, shape, CHECK_UNIFORM);
  const int64_t count = shape[0] * (ndim == 2 ? shape[1] : 1);
  for (int64_t i = 0; k->oracle && i < count; ++i) terms[i] += 8 * fabs(check_value(&t, i));
  return t;
}

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  int64_t shape[2], share;
  const int ndim = scale_shape(k, shape, &share);
  const int64_t groups = rows / share;
  const check_fill words = k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM;
  const tigon_tensor none = {0};
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), cols, CHECK_UNIFORM, o.w);
  const tigon_tensor scale = check_in(k, "scale", check_dtype(k, o.scale_f32), ndim, shape, CHECK_UNIFORM);
  const tigon_tensor x = check_in(k, "x", k->dtype, 2, k->dims, k->fill);
  const tigon_tensor dy = check_rows(k, "dy", CHECK_UNIFORM, o.in_place);
  const tigon_tensor rstd = check_in_vector(k, "rstd", TIGON_F32, rows, words);
  const tigon_tensor dx = o.in_place ? dy : check_out(k, "dx", k->dtype, 2, k->dims);

  /* Magnitudes: what is added up, each in absolute value; where xhat is rounded, twice the largest flip besides. Below f32's
   * normal numbers an xhat, a sum and its product with a weight may each be off by half of 2^-149, here in units of 2^-24. */
  const double half = 0x1p-126;
  double *dx_scale = check_doubles(k, rows * cols), *dw_scale = check_doubles(k, cols),
         *dw_most = check_doubles(k, cols), *dscale_scale = check_doubles(k, groups * cols),
         *dscale_most = check_doubles(k, groups * cols), *dshift_scale = check_doubles(k, groups * cols);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    const double factor = fabs(check_value(&rstd, r));
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = r / share * cols + c;
      const double up = fabs(check_value(&dy, r * cols + c)), xhat = fabs(check_value(&x, r * cols + c)) * factor;
      const double weight = o.w ? fabs(check_value(&w, c) + o.w_offset) : 1, times = fabs(1 + check_value(&scale, at));
      dx_scale[r * cols + c] = up * weight * times;
      dw_scale[c] += 8 * up * times * xhat + half * (up * times + times + 1);
      dw_most[c] = fmax(dw_most[c], up * times * xhat);
      dscale_scale[at] += 8 * up * xhat * weight + half * (up * weight + weight + 1);
      dscale_most[at] = fmax(dscale_most[at], up * xhat * weight);
      dshift_scale[at] += 8 * up;
      sum += up * weight * times * xhat;
    }
    for (int64_t c = 0; c < cols; ++c) {
      double *at = &dx_scale[r * cols + c];
      *at = factor * (*at + fabs(check_value(&x, r * cols + c)) * factor * sum / (double)cols);
    }
  }
  for (int64_t c = 0; k->oracle && c < cols; ++c) dw_scale[c] += 2 * flip_of(k) * dw_most[c];
  for (int64_t i = 0; k->oracle && i < groups * cols; ++i) dscale_scale[i] += 2 * flip_of(k) * dscale_most[i];

  const tigon_dtype dscale_dtype = o.f32_sums ? TIGON_F32 : scale.dtype;
  const tigon_tensor dw = o.w ? sum_of(k, "dw", check_dtype(k, o.f32_sums), 1, &cols, true, dw_scale) : none;
  const tigon_tensor dscale = sum_of(k, "dscale", dscale_dtype, ndim, shape, false, dscale_scale);
  const tigon_tensor dshift = o.shift ? sum_of(k, "dshift", dscale_dtype, ndim, shape, false, dshift_scale) : none;
  tigon_modulated_rms_norm_bwd_args args = {.dy = dy,
                                            .x = x,
                                            .w = w,
                                            .scale = scale,
                                            .rstd = rstd,
                                            .dx = dx,
                                            .dw = dw,
                                            .dscale = dscale,
                                            .dshift = dshift,
                                            .w_offset = o.w_offset,
                                            .casting = o.casting,
                                            .accumulate_dw = o.accumulate,
                                            .accumulate_dscale = o.accumulate};
  check_call_in_workspace(k, tigon_modulated_rms_norm_bwd_workspace, &args);
  check_bound(k, &dx, k->dtype == TIGON_F32 ? 0 : 1, 8, dx_scale);
  if (o.w) check_bound(k, &dw, dw.dtype == TIGON_F32 ? 0 : 1, 1, dw_scale);
  check_bound(k, &dscale, dscale_dtype == TIGON_F32 ? 0 : 1, 1, dscale_scale);
  if (o.shift) check_bound(k, &dshift, dscale_dtype == TIGON_F32 ? 0 : 1, 1, dshift_scale);
}

/* Besides the usual ones, rows wider than what a kernel keeps of the weights, some of which share a scale. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  static const int64_t wide[][2] = {{5, 8200}, {8, 9001}, {9, 8704}};
  int usual = 0;
  while (usual <= index && check_row_shapes(usual, tile, dims)) ++usual;
  if (usual > index) return true;
  if (index - usual >= (int)(sizeof wide / sizeof *wide)) return false;
  dims[0] = wide[index - usual][0];
  dims[1] = wide[index - usual][1];
  return true;
}

MUTANT(no_shift, modulated_rms_norm_fwd, m.shift.data = NULL)
MUTANT(first_scale, modulated_rms_norm_fwd, m.share = m.space.rows)
MUTANT(no_weight, modulated_rms_norm_bwd, m.w = NULL)
MUTANT(overwrite, modulated_rms_norm_bwd, m.accumulate_dscale = false)
MUTANT(first_gradient, modulated_rms_norm_bwd, m.scale.pitch[2] = 0)
static const check_mutant wrong_fwd[] = {
    {"forgets shift", no_shift},
    {"takes the first scale for all rows", first_scale},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets w", no_weight},
    {"overwrites dscale instead of adding", overwrite},
    {"takes the first scale for all rows", first_gradient},
    {0},
};

/* rows, columns; which rows share a scale follows from how many there are */
static const check_sizes own_sizes = {
    .of = {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {CHECK_MANY, 4096}, {3, CHECK_THIRD}},
    .walks = {{3, CHECK_N}, {CHECK_N, 5}, {1, CHECK_N}},
    .coupled = 1 << 0 | 1 << 3 | 1 << 4,
};

static const bench_case timed = {.op = "modulated_rms_norm",
                                 .shape_note = "8 scales and shifts",
                                 .rows_f32 = 4096,
                                 .rows_16bit = 8192,
                                 .cols = 4096,
                                 .option = {6, 6}};

const check_op tigon_check_modulated_rms_norm_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_modulated_rms_norm_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
