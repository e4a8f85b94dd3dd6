/* Options walk weight, bias, their dtypes, a large mean, in place, the sums' dtypes and accumulation. */
#include <math.h>

#include "check/cases.h"

static const struct option {
  bool w, b, w_f32, b_f32, shifted, in_place, f32_sums, accumulate;
} options[] = {
    {true, true, false, false, false, false, true, false}, {true, true, true, true, true, false, false, false},
    {true, false, false, false, true, false, true, true},  {false, true, false, true, false, true, true, false},
    {true, true, false, true, false, true, false, true},   {false, false, false, false, true, true, true, false},
};
enum { OPTIONS = sizeof options / sizeof *options };

static check_fill fill_of_x(const check *k) {
  return options[k->option].shifted && k->fill == CHECK_UNIFORM ? CHECK_SHIFTED : k->fill;
}

static tigon_tensor parameter(check *k, const char *name, bool present, bool f32) {
  const check_fill fill = k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM;
  return check_may_vector(k, name, check_dtype(k, f32), k->dims[1], fill, present);
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const tigon_tensor w = parameter(k, "w", o.w, o.w_f32), b = parameter(k, "b", o.b, o.b_f32);
  const tigon_tensor x = check_rows(k, "x", fill_of_x(k), o.in_place);
  /* Magnitudes: the terms of y and of the mean, each in absolute value; the mean's are differences from it. */
  double *y_scale = check_doubles(k, rows * cols), *mean_scale = check_doubles(k, rows);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    double sum = 0, spread = 0, squares = 0;
    for (int64_t c = 0; c < cols; ++c) sum += check_value(&x, r * cols + c);
    const double mean = sum / (double)cols;
    for (int64_t c = 0; c < cols; ++c) {
      const double d = check_value(&x, r * cols + c) - mean;
      spread += fabs(d) / (double)cols, squares += d * d / (double)cols;
    }
    mean_scale[r] = spread;
    for (int64_t c = 0; c < cols; ++c) {
      const double terms = fabs(check_value(&x, r * cols + c) - mean) + spread;
      y_scale[r * cols + c] = terms / sqrt(squares + (double)1e-5f) * (o.w ? fabs(check_value(&w, c)) : 1) +
                              (o.b ? fabs(check_value(&b, c)) : 0);
    }
  }
  const bool statistics = k->option != 4;
  const tigon_tensor none = {0};
  const tigon_tensor mean = statistics ? check_out_vector(k, "mean", TIGON_F32, rows) : none,
                     rstd = statistics ? check_out_vector(k, "rstd", TIGON_F32, rows) : none,
                     y = o.in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  const tigon_layer_norm_fwd_args args = {.x = x, .w = w, .b = b, .y = y, .mean = mean, .rstd = rstd, .eps = 1e-5};
  check_call(k, &args);
  const double of_rstd = check_calls(k, 1, 1.5); /* 1 / sqrt(squares / cols + eps): the first division under the root */
  check_bound(k, &y, k->dtype == TIGON_F32 ? 0 : 1, 8 + of_rstd, y_scale);
  if (!statistics) return;
  check_bound(k, &mean, 1, 4, mean_scale);
  check_bound_relative(k, &rstd, 4, 0, NULL, of_rstd);
}

static tigon_tensor column_sum(check *k, const char *name, bool present) {
  const struct option o = options[k->option];
  return check_sum_vector(k, name, check_dtype(k, o.f32_sums), k->dims[1], present, o.accumulate);
}

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const tigon_tensor w = check_may_vector(k, "w", check_dtype(k, o.w_f32), cols, CHECK_UNIFORM, o.w);
  const tigon_tensor dw = column_sum(k, "dw", o.w), db = column_sum(k, "db", o.b);
  const tigon_tensor x = check_in(k, "x", k->dtype, 2, k->dims, fill_of_x(k));
  const tigon_tensor dy = check_rows(k, "dy", CHECK_UNIFORM, o.in_place);
  const check_fill words = k->fill == CHECK_SPECIAL ? CHECK_SPECIAL : CHECK_UNIFORM;
  const tigon_tensor mean = check_in_vector(k, "mean", TIGON_F32, rows, o.shifted ? CHECK_SHIFTED : words),
                     rstd = check_in_vector(k, "rstd", TIGON_F32, rows, words);
  const tigon_tensor dx = o.in_place ? dy : check_out(k, "dx", k->dtype, 2, k->dims);

  /* Magnitudes: what is added up, each in absolute value. */
  double *dx_scale = check_doubles(k, rows * cols), *dw_scale = check_doubles(k, cols),
         *db_scale = check_doubles(k, cols);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    const double scale = fabs(check_value(&rstd, r));
    double sum = 0, dot = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double up = fabs(check_value(&dy, r * cols + c)), g = up * (o.w ? fabs(check_value(&w, c)) : 1);
      const double xhat = fabs(check_value(&x, r * cols + c) - check_value(&mean, r)) * scale;
      dx_scale[r * cols + c] = g;
      dw_scale[c] += up * xhat, db_scale[c] += up;
      sum += g, dot += g * xhat;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const double xhat = fabs(check_value(&x, r * cols + c) - check_value(&mean, r)) * scale;
      double *at = &dx_scale[r * cols + c];
      *at = scale * (*at + sum / (double)cols + xhat * dot / (double)cols);
    }
  }
  for (int64_t c = 0; k->oracle && o.accumulate && c < cols; ++c) {
    if (o.w) dw_scale[c] += fabs(check_value(&dw, c));
    if (o.b) db_scale[c] += fabs(check_value(&db, c));
  }

  tigon_layer_norm_bwd_args args = {.dy = dy,
                                    .x = x,
                                    .w = w,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .dx = dx,
                                    .dw = dw,
                                    .db = db,
                                    .accumulate_dw = o.accumulate};
  check_call_in_workspace(k, tigon_layer_norm_bwd_workspace, &args);
  check_bound(k, &dx, k->dtype == TIGON_F32 ? 0 : 1, 8, dx_scale);
  if (o.w) check_bound(k, &dw, dw.dtype == TIGON_F32 ? 0 : 1, 8, dw_scale);
  if (o.b) check_bound(k, &db, db.dtype == TIGON_F32 ? 0 : 1, 8, db_scale);
}

MUTANT(drop_tail, layer_norm_fwd, m.cols -= m.cols > 1)
MUTANT(skip_eps, layer_norm_fwd, m.eps = 0)
MUTANT(no_bias, layer_norm_fwd, m.b = NULL)
MUTANT(lose_row, layer_norm_bwd, check_drop_last_row(&m.space))
MUTANT(overwrite, layer_norm_bwd, m.accumulate_dw = false)
MUTANT(wrong_mean, layer_norm_bwd, m.mean = p->rstd)
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {"skips eps", skip_eps},
    {"forgets b", no_bias},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"drops the last row", lose_row},
    {"overwrites dw and db instead of adding", overwrite},
    {"takes rstd for the mean", wrong_mean},
    {0},
};

static const bench_case timed = {.op = "layer_norm", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_layer_norm_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_layer_norm_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, NULL};
