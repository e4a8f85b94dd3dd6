/* Dimensions: batch, channels, positions, groups. Options walk weight, bias, their dtypes, in place, the sums' dtypes,
 * accumulation and two-dimensional input (one position a channel is a dimension less). */
#include <math.h>

#include "check/cases.h"

static const struct option {
  bool w, b, w_f32, in_place, f32_sums, accumulate, shifted;
} options[] = {
    {true, true, false, false, true, false, false},  {true, true, true, false, false, false, true},
    {true, false, false, true, true, true, false},   {false, true, false, true, true, false, true},
    {false, false, false, false, true, false, true},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* Around the tile; one channel a group; one group; few huge groups, which are split by positions and by channels;
 * C = G = 32 with 4096 positions; 8192 rows; channels that begin anywhere in a chunk of 64 KiB of UB; whole packs a
 * channel, whose number is no power of two. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t shapes[][4] = {
      {1, 1, 1, 1},     {2, 4, tile, 2},  {3, 6, 2 * tile + 1, 3}, {1, 3, 2 * tile - 1, 1},
      {5, 12, 37, 4},   {2, 63, 131, 21}, {7, 32, 7, 8},           {9, 24, 1, 3},
      {1, 8, 9000, 2},  {1, 512, 40, 1},  {1, 32, 4096, 32},       {40, 6, 11, 6},
      {1, 1, 70001, 1}, {2, 1, 1, 1},     {256, 32, 3, 32},        {5, 3, 1667, 1},
      {3, 10, 488, 2},
  };
  if (index >= (int)(sizeof shapes / sizeof *shapes)) return false;
  for (int d = 0; d < 4; ++d) dims[d] = shapes[index][d];
  return true;
}

static int dimensions(const check *k) { return k->dims[2] == 1 ? 2 : 3; }

static check_fill fill_of_x(const check *k) {
  return options[k->option].shifted && k->fill == CHECK_UNIFORM ? CHECK_SHIFTED : k->fill;
}
static check_fill fill_of_vector(const check *k) { return k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM; }

static tigon_tensor parameter(check *k, const char *name, bool present, bool f32) {
  return check_may_vector(k, name, check_dtype(k, f32), k->dims[1], fill_of_vector(k), present);
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t batch = k->dims[0], channels = k->dims[1], run = k->dims[2], groups = k->dims[3];
  const int64_t row = channels / groups * run, statistics[] = {batch, groups};
  const tigon_tensor w = parameter(k, "w", o.w, o.w_f32), b = parameter(k, "b", o.b, o.w_f32);
  const tigon_tensor x = o.in_place ? check_inout(k, "x", k->dtype, dimensions(k), k->dims, fill_of_x(k))
                                    : check_in(k, "x", k->dtype, dimensions(k), k->dims, fill_of_x(k));
  /* Magnitudes: the terms of y and of the mean, each in absolute value; the mean's are differences from it. */
  double *y_scale = check_doubles(k, batch * channels * run), *mean_scale = check_doubles(k, batch * groups);
  for (int64_t r = 0; k->oracle && r < batch * groups; ++r) {
    double sum = 0, spread = 0, squares = 0;
    for (int64_t i = r * row; i < (r + 1) * row; ++i) sum += check_value(&x, i) / (double)row;
    for (int64_t i = r * row; i < (r + 1) * row; ++i) {
      const double d = check_value(&x, i) - sum;
      spread += fabs(d) / (double)row, squares += d * d / (double)row;
    }
    mean_scale[r] = spread;
    for (int64_t i = r * row; i < (r + 1) * row; ++i) {
      const int64_t c = i / run % channels;
      y_scale[i] = (fabs(check_value(&x, i) - sum) + spread) / sqrt(squares + (double)1e-5f) *
                       (o.w ? fabs(check_value(&w, c)) : 1) +
                   (o.b ? fabs(check_value(&b, c)) : 0);
    }
  }
  const tigon_tensor mean = check_out_dense(k, "mean", TIGON_F32, 2, statistics),
                     rstd = check_out_dense(k, "rstd", TIGON_F32, 2, statistics),
                     y = o.in_place ? x : check_out(k, "y", k->dtype, dimensions(k), k->dims);
  const tigon_group_norm_fwd_args args = {
      .x = x, .w = w, .b = b, .y = y, .mean = mean, .rstd = rstd, .groups = groups, .eps = 1e-5};
  check_call(k, &args);
  const double of_rstd = check_calls(k, 1, 1.5); /* 1 / sqrt(squares / cols + eps): the first division under the root */
  check_bound(k, &y, k->dtype == TIGON_F32 ? 0 : 1, 8 + of_rstd, y_scale);
  check_bound(k, &mean, 1, 4, mean_scale);
  check_bound_relative(k, &rstd, 4, 0, NULL, of_rstd);
}

static tigon_tensor channel_sum(check *k, const char *name, bool present) {
  const struct option o = options[k->option];
  return check_sum_vector(k, name, check_dtype(k, o.f32_sums), k->dims[1], present, o.accumulate);
}

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t batch = k->dims[0], channels = k->dims[1], run = k->dims[2], groups = k->dims[3];
  const int64_t row = channels / groups * run, statistics[] = {batch, groups};
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), channels, CHECK_UNIFORM, o.w);
  const tigon_tensor dw = channel_sum(k, "dw", o.w), db = channel_sum(k, "db", o.b);
  const tigon_tensor x = check_in(k, "x", k->dtype, dimensions(k), k->dims, fill_of_x(k));
  const tigon_tensor dy = o.in_place ? check_inout(k, "dy", k->dtype, dimensions(k), k->dims, CHECK_UNIFORM)
                                     : check_in(k, "dy", k->dtype, dimensions(k), k->dims, CHECK_UNIFORM);
  const tigon_tensor mean =
                         check_in_dense(k, "mean", TIGON_F32, 2, statistics, o.shifted ? CHECK_SHIFTED : CHECK_UNIFORM),
                     rstd = check_in_dense(k, "rstd", TIGON_F32, 2, statistics, CHECK_UNIFORM);
  const tigon_tensor dx = o.in_place ? dy : check_out(k, "dx", k->dtype, dimensions(k), k->dims);

  /* Magnitudes: what is added up, each in absolute value. */
  double *dx_scale = check_doubles(k, batch * channels * run), *dw_scale = check_doubles(k, channels),
         *db_scale = check_doubles(k, channels);
  for (int64_t r = 0; k->oracle && r < batch * groups; ++r) {
    const double scale = fabs(check_value(&rstd, r)), center = check_value(&mean, r);
    double sum = 0, dot = 0;
    for (int64_t i = r * row; i < (r + 1) * row; ++i) {
      const int64_t c = i / run % channels;
      const double up = fabs(check_value(&dy, i)), g = up * (o.w ? fabs(check_value(&w, c)) : 1);
      const double xhat = fabs(check_value(&x, i) - center) * scale;
      dx_scale[i] = g;
      dw_scale[c] += up * xhat, db_scale[c] += up;
      sum += g / (double)row, dot += g * xhat / (double)row;
    }
    for (int64_t i = r * row; i < (r + 1) * row; ++i)
      dx_scale[i] = scale * (dx_scale[i] + sum + fabs(check_value(&x, i) - center) * scale * dot);
  }
  for (int64_t c = 0; k->oracle && o.accumulate && c < channels; ++c) {
    if (o.w) dw_scale[c] += fabs(check_value(&dw, c));
    if (o.b) db_scale[c] += fabs(check_value(&db, c));
  }

  tigon_group_norm_bwd_args args = {.dy = dy,
                                    .x = x,
                                    .w = w,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .dx = dx,
                                    .dw = dw,
                                    .db = db,
                                    .groups = groups,
                                    .accumulate_dw = o.accumulate};
  check_call_in_workspace(k, tigon_group_norm_bwd_workspace, &args);
  check_bound(k, &dx, k->dtype == TIGON_F32 ? 0 : 1, 8, dx_scale);
  if (o.w) check_bound(k, &dw, dw.dtype == TIGON_F32 ? 0 : 1, 8, dw_scale);
  if (o.b) check_bound(k, &db, db.dtype == TIGON_F32 ? 0 : 1, 8, db_scale);
}

MUTANT(lose_batch, group_norm_fwd, m.batch -= m.batch > 1)
MUTANT(lose_position, group_norm_fwd, m.run -= m.run > 1)
MUTANT(skip_eps, group_norm_fwd, m.eps = 0)
MUTANT(no_bias, group_norm_fwd, m.b = NULL)
MUTANT(bwd_overwrite, group_norm_bwd, m.accumulate = false)
MUTANT(bwd_no_weight, group_norm_bwd, m.w = NULL)
static const check_mutant wrong_fwd[] = {
    {"forgets the last batch", lose_batch},
    {"drops the last position", lose_position},
    {"skips eps", skip_eps},
    {"forgets the bias", no_bias},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"overwrites dw", bwd_overwrite},
    {"forgets the weight", bwd_no_weight},
    {0},
};

/* batch, channels, positions, groups */
static const check_sizes own_sizes = {
    .of = {{2, 4, 5, 2},
           {5, 12, 131, 4},
           {300, 4, 5, 2},
           {3, 4, 16, 2},
           {CHECK_MANY / 32, 32, 4096, 8},
           {3, 4, CHECK_THIRD / 4, 2}},
    .walks = {{2, 4, CHECK_N, 2}, {2, CHECK_2N, 3, 2}, {CHECK_N, 2, 3, 1}},
};

/* 512 channels where the columns allow it, in groups of 16 of them. */
static void images(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  const int64_t channels = at->cols % 512 == 0 ? 512 : at->cols % 32 == 0 ? 32 : 1;
  dims[0] = at->rows, dims[1] = channels, dims[2] = at->cols / channels, dims[3] = channels == 512 ? 32 : 1;
}
static const bench_case timed = {.op = "group_norm",
                                 .shape_note = "batch x (512 channels * positions), 32 groups",
                                 .rows_f32 = 64,
                                 .rows_16bit = 128,
                                 .cols = 262144,
                                 .dims = images};

const check_op tigon_check_group_norm_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_group_norm_bwd = {bwd, shape, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
