/* poly_norm. Options walk b, the parameters' dtypes, rstd, in place, the sums, their dtypes and accumulation. */
#include <math.h>

#include "check/cases.h"

static const struct option {
  bool b, f32, rstd, sums, sums_f32, accumulate;
  int in_place; /* y over x; dx over dy, over x: 1, 2 */
} options[] = {
    {true, false, true, true, true, false, 0},   {false, true, true, true, false, false, 1},
    {true, true, false, true, true, true, 2},    {true, false, true, true, false, true, 1},
    {false, true, true, false, false, false, 0},
};
enum { OPTIONS = sizeof options / sizeof *options, POWERS = 3 };

/* The size of the terms of y's element. x^p has 2 roundings at most and x^2p 5; their sum loses 8 * 2^-24 of its terms, of which
 * a root has half; w_p * r_p has 2 and the polynomial 3. In all 14 * 2^-24 of the terms, and r_p 7 of itself. */
static void fwd_sizes(check *k, const tigon_tensor *x, const tigon_tensor *w, const tigon_tensor *b, double *size) {
  const int64_t rows = k->dims[0], cols = k->dims[1];
  for (int64_t i = 0; k->oracle && b->ndim && i < rows * cols; ++i) size[i] = fabs(check_value(b, 0));
  for (int64_t r = 0; k->oracle && r < rows; ++r)
    for (int p = POWERS; p >= 1; --p) {
      double squares = 0;
      for (int64_t c = 0; c < cols; ++c) squares += pow(check_value(x, r * cols + c), 2 * p);
      const double factor = fabs(check_value(w, POWERS - p)) / sqrt(squares / (double)cols + (double)1e-6f);
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) size[i] += factor * pow(fabs(check_value(x, i)), p);
    }
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t of_rstd[] = {k->dims[0], POWERS};
  const tigon_tensor x = check_rows(k, "x", k->fill, o.in_place > 0);
  const tigon_tensor w = check_in_vector(k, "w", check_dtype(k, o.f32), POWERS, CHECK_UNIFORM);
  const tigon_tensor b = check_may_vector(k, "b", check_dtype(k, o.f32), 1, CHECK_UNIFORM, o.b);
  const tigon_tensor y = o.in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  const tigon_tensor rstd = o.rstd ? check_out_dense(k, "rstd", TIGON_F32, 2, of_rstd) : (tigon_tensor){0};
  double *size = check_doubles(k, k->dims[0] * k->dims[1]);
  fwd_sizes(k, &x, &w, &b, size);
  const tigon_poly_norm_fwd_args args = {.x = x, .w = w, .b = b, .y = y, .rstd = rstd, .eps = 1e-6};
  check_call(k, &args);
  const double calls = check_calls(k, 1, 1.5);
  check_bound(k, &y, 1, 14 + calls, size);
  if (o.rstd) check_bound_relative(k, &rstd, 1, 0, NULL, 7 + calls);
}

/* The sizes of the terms of dx, and of dw and db. dy * x^p has 3 roundings, and a sum loses 8 * 2^-24 of its terms. The factors
 * of dx have 2 each, x^p 2, and their combination 5. Together these are 20 * 2^-24. */
static void bwd_sizes(check *k, const tigon_poly_norm_bwd_args *a, double *dx, double *sums) {
  const int64_t rows = k->dims[0], cols = k->dims[1];
  for (int64_t i = 0; k->oracle && i < rows * cols; ++i) sums[POWERS] += fabs(check_value(&a->dy, i));
  for (int64_t r = 0; k->oracle && r < rows; ++r)
    for (int p = POWERS; p >= 1; --p) {
      const double scale = fabs(check_value(&a->rstd, r * POWERS + POWERS - p));
      const double slope = p * fabs(check_value(&a->w, POWERS - p)) * scale;
      double terms = 0;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i)
        terms += fabs(check_value(&a->dy, i) * pow(check_value(&a->x, i), p)) * scale;
      sums[POWERS - p] += terms;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        const double x = fabs(check_value(&a->x, i)), back = pow(x, p) * scale * terms / (double)cols;
        dx[i] += slope * pow(x, p - 1) * (fabs(check_value(&a->dy, i)) + back);
      }
    }
}

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t of_rstd[] = {k->dims[0], POWERS};
  tigon_poly_norm_bwd_args a = {.x = check_rows(k, "x", k->fill, o.in_place == 2), .accumulate_dw = o.accumulate};
  a.dy = check_rows(k, "dy", CHECK_UNIFORM, o.in_place == 1);
  a.w = check_in_vector(k, "w", check_dtype(k, o.f32), POWERS, CHECK_UNIFORM);
  a.rstd = check_in_dense(k, "rstd", TIGON_F32, 2, of_rstd, CHECK_UNIFORM);
  a.dx = o.in_place == 1 ? a.dy : o.in_place == 2 ? a.x : check_out(k, "dx", k->dtype, 2, k->dims);
  a.dw = check_sum_vector(k, "dw", check_dtype(k, o.sums_f32), POWERS, o.sums, o.accumulate);
  a.db = check_sum_vector(k, "db", check_dtype(k, o.sums_f32), 1, o.sums, o.accumulate);
  double *dx = check_doubles(k, k->dims[0] * k->dims[1]), *sums = check_doubles(k, POWERS + 1);
  bwd_sizes(k, &a, dx, sums);
  for (int i = 0; k->oracle && o.accumulate && i <= POWERS; ++i)
    sums[i] += fabs(i < POWERS ? check_value(&a.dw, i) : check_value(&a.db, 0));
  check_call_in_workspace(k, tigon_poly_norm_bwd_workspace, &a);
  check_bound(k, &a.dx, 1, 20, dx);
  if (o.sums) check_bound(k, &a.dw, 1, 12, sums);
  if (o.sums) check_bound(k, &a.db, 1, 8, sums + POWERS);
}

MUTANT(drop_tail, poly_norm_fwd, m.cols -= m.cols > 1)
MUTANT(no_eps, poly_norm_fwd, m.eps = 0)
MUTANT(no_b, poly_norm_fwd, m.b.data = NULL)
MUTANT(lose_row, poly_norm_bwd, check_drop_last_row(&m.space))
MUTANT(overwrite, poly_norm_bwd, m.accumulate = false)
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail}, {"skips eps", no_eps}, {"forgets b", no_b}, {0}};
static const check_mutant wrong_bwd[] = {{"drops the last row", lose_row}, {"overwrites sums", overwrite}, {0}};

static const check_sizes own_sizes = {
    .of = {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {CHECK_MANY, 4096}, {3, CHECK_THIRD}},
    .walks = {{3, CHECK_N}, {CHECK_N, 5}, {1, CHECK_N}},
    .large = 0x1p18, /* x^6 is finite */
};
static const bench_case timed = {.op = "poly_norm", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_poly_norm_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_poly_norm_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
