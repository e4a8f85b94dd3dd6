/* linear. dims are rows, n, k. Options walk the bias and the dtypes of y, dy, dw and db, absent outputs and
 * accumulation. */
#include <math.h>
#include <string.h>

#include "check/cases.h"

/* Around the built-in GEMM's strips (12, 6, 4 rows), panels (2 vectors) and blocks (264 rows, 256 columns, 256 of k).
 */
static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {
      {1, 1, 1},          {3, t, 5},       {2, t + 1, t}, {5, 2 * t - 1, 2 * t + 1},
      {9, 2 * t + 1, 19}, {12, 2 * t, 33}, {13, 33, 40},  {11, 3 * t, 255},
      {24, 4 * t, 256},   {25, 31, 257},   {4, 131, 7},   {1, 64, 512},
      {265, 17, 3},       {7, 257, 13},    {19, 5, 4097}, {300, 270, 9},
      {64, 7, 1031},      {1, 513, 300},
  };
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d] > 0 ? list[index][d] : 1;
  return true;
}

/* A sum of `terms` products in f32. Each of the chain's roundings is at most 2^-24 of the absolute sum. In practice a long chain
 * loses less than 8 f32 epsilons, as docs/reliability.md promises. */
static double sum_factor(int64_t terms) { return terms + 2 < 16 ? (double)terms + 2 : 16; }

/* |a| [m, k] times |b| [k, n] into out [m, n]; a(i, j) = a[i * k + j], or a[j * m + i] when transposed; b alike. */
static void magnitudes(double *out, const tigon_tensor *a, bool a_transposed, const tigon_tensor *b, bool b_transposed,
                       int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const double value = fabs(check_value(a, a_transposed ? j * m + i : i * k + j));
      for (int64_t v = 0; v < n; ++v)
        out[i * n + v] += value * fabs(check_value(b, b_transposed ? v * k + j : j * n + v));
    }
}

static double output_ulps(tigon_dtype dtype) { return dtype == TIGON_F32 ? 0 : 1; }

static const struct fwd_option {
  bool b, b_f32, y_f32;
} fwd_options[] = {{true, false, false}, {false, false, false}, {true, true, true}, {true, true, false}};

static void fwd(check *k) {
  struct fwd_option o = fwd_options[k->option];
  if (check_has_form(k, BENCH_BIASES)) o.b = true;
  const int64_t rows = k->dims[0], n = k->dims[1], depth = k->dims[2];
  const tigon_dtype y_dtype = check_dtype(k, o.y_f32);
  const tigon_tensor x = check_in(k, "x", k->dtype, 2, (int64_t[]){rows, depth}, k->fill);
  const tigon_tensor w = check_in(k, "w", k->dtype, 2, (int64_t[]){n, depth}, CHECK_UNIFORM);
  const tigon_tensor b = o.b ? check_in_vector(k, "b", check_dtype(k, o.b_f32), n, CHECK_UNIFORM) : (tigon_tensor){0};
  const tigon_tensor y = check_out(k, "y", y_dtype, 2, (int64_t[]){rows, n});
  double *scale = check_doubles(k, rows * n);
  if (k->oracle) magnitudes(scale, &x, false, &w, true, rows, n, depth);
  for (int64_t i = 0; k->oracle && o.b && i < rows * n; ++i) scale[i] += fabs(check_value(&b, i % n));
  const tigon_linear_fwd_args args = {.x = x, .w = w, .b = b, .y = y};
  check_call(k, &args);
  check_bound(k, &y, output_ulps(y_dtype), sum_factor(depth), scale);
}

static const struct bwd_option {
  bool dx, dw, db, dy_f32, dw_f32, accumulate;
} bwd_options[] = {
    {true, true, true, false, true, false},  {true, true, true, false, false, true},
    {false, true, false, true, true, true},  {true, false, false, true, true, false},
    {true, true, false, true, false, false}, {false, false, true, false, false, true},
    {true, true, false, false, true, false}, {true, true, false, false, false, false},
};

static tigon_tensor gradient(check *k, const char *name, bool there, bool accumulate, tigon_dtype dtype, int ndim,
                             const int64_t *shape) {
  if (!there) return (tigon_tensor){0};
  if (ndim == 1)
    return accumulate ? check_inout_dense(k, name, dtype, ndim, shape, CHECK_UNIFORM)
                      : check_out_dense(k, name, dtype, ndim, shape);
  return accumulate ? check_inout(k, name, dtype, ndim, shape, CHECK_UNIFORM) : check_out(k, name, dtype, ndim, shape);
}

static void bwd(check *k) {
  struct bwd_option o = bwd_options[k->option];
  if (check_has_form(k, BENCH_BIASES)) o.db = true;
  if (check_has_form(k, BENCH_AS_WEIGHT)) o.dw_f32 = false;
  const int64_t rows = k->dims[0], n = k->dims[1], depth = k->dims[2];
  const tigon_dtype dw_dtype = check_dtype(k, o.dw_f32);
  const tigon_tensor dy = check_in(k, "dy", check_dtype(k, o.dy_f32), 2, (int64_t[]){rows, n}, k->fill);
  const tigon_tensor x =
      o.dw ? check_in(k, "x", k->dtype, 2, (int64_t[]){rows, depth}, CHECK_UNIFORM) : (tigon_tensor){0};
  const tigon_tensor w =
      o.dx || !o.dw ? check_in(k, "w", k->dtype, 2, (int64_t[]){n, depth}, CHECK_UNIFORM) : (tigon_tensor){0};
  const tigon_tensor dx = gradient(k, "dx", o.dx, false, k->dtype, 2, (int64_t[]){rows, depth});
  const tigon_tensor dw = gradient(k, "dw", o.dw, o.accumulate, dw_dtype, 2, (int64_t[]){n, depth});
  const tigon_tensor db = gradient(k, "db", o.db, o.accumulate, dw_dtype, 1, &n);
  double *dx_scale = check_doubles(k, rows * depth), *dw_scale = check_doubles(k, n * depth),
         *db_scale = check_doubles(k, n);
  if (k->oracle && o.dx) magnitudes(dx_scale, &dy, false, &w, false, rows, depth, n);
  if (k->oracle && o.dw) magnitudes(dw_scale, &dy, true, &x, false, n, depth, rows);
  for (int64_t i = 0; k->oracle && i < rows * n; ++i) db_scale[i % n] += fabs(check_value(&dy, i));
  for (int64_t i = 0; k->oracle && o.dw && o.accumulate && i < n * depth; ++i) dw_scale[i] += fabs(check_value(&dw, i));
  for (int64_t i = 0; k->oracle && o.db && o.accumulate && i < n; ++i) db_scale[i] += fabs(check_value(&db, i));
  tigon_linear_bwd_args args = {.dy = dy, .x = x, .w = w, .dx = dx, .dw = dw, .db = db, .accumulate_dw = o.accumulate};
  check_call_in_workspace(k, tigon_linear_bwd_workspace, &args);
  if (o.dx) check_bound(k, &dx, output_ulps(k->dtype), sum_factor(n), dx_scale);
  if (o.dw) check_bound(k, &dw, output_ulps(dw_dtype), sum_factor(rows), dw_scale);
  if (o.db) check_bound(k, &db, output_ulps(dw_dtype), sum_factor(rows), db_scale);
}

enum { FWD_OPTIONS = sizeof fwd_options / sizeof *fwd_options, BWD_OPTIONS = sizeof bwd_options / sizeof *bwd_options };

MUTANT(no_bias, linear_fwd, m.b = NULL)
MUTANT(drop_k, linear_fwd, m.k -= m.k > 1)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
MUTANT(no_db, linear_bwd, m.db = NULL)
static const check_mutant wrong_fwd[] = {
    {"forgets the bias", no_bias},
    {"drops the last product", drop_k},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"overwrites dw instead of adding", overwrite},
    {"forgets db", no_db},
    {0},
};

/* rows, n, k */
static const check_sizes own_sizes = {
    .of = {{3, 5, 7}, {37, 34, 65}, {300, 9, 13}, {3, 3, 64}, {CHECK_MANY, 4096, 8}},
    .walks = {{CHECK_N, 5, 7}, {5, CHECK_N, 7}, {5, 7, CHECK_N}},
};

static void product(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows, dims[1] = at->other, dims[2] = at->cols;
}
static bool of_model(const bench_model *m, bench_point *point) {
  point->rows = 512, point->other = m->intermediate;
  return true;
}
static const bench_case timed = {.op = "linear",
                                 .shape_note = "rows x K, N = K",
                                 .rows_f32 = 512,
                                 .rows_16bit = 512,
                                 .cols = 2048,
                                 .other = BENCH_AS_COLS,
                                 .dims = product,
                                 .of_model = of_model,
                                 .option = {1, 6},
                                 .forms = BENCH_BIT(BENCH_AS_WEIGHT) | BENCH_BIT(BENCH_BIASES),
                                 .products = {1, 2, 3}};

const check_op tigon_check_linear_fwd = {fwd, shapes, FWD_OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_linear_bwd = {bwd, shapes, BWD_OPTIONS, true, wrong_bwd, &timed, &own_sizes};
