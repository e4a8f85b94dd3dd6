/* dyt. Options walk beta, the parameters' dtypes, in place, the sums' dtypes, accumulation, and whether sums are wanted. */
#include <math.h>

#include "check/cases.h"

static const struct option {
  bool beta, f32, sums, sums_f32, accumulate;
  int in_place; /* y over x; dx over dy, over x: 1, 2 */
} options[] = {
    {true, false, true, true, false, 0}, {false, true, true, true, false, 1},   {true, true, true, false, true, 2},
    {true, false, true, true, true, 1},  {false, true, false, false, false, 0},
};
enum { OPTIONS = sizeof options / sizeof *options };

static tigon_tensor parameter(check *k, const char *name, int64_t n, bool present) {
  return check_may_vector(k, name, check_dtype(k, options[k->option].f32), n, CHECK_UNIFORM, present);
}
static tigon_tensor sum(check *k, const char *name, int64_t n, bool present) {
  const struct option o = options[k->option];
  return check_sum_vector(k, name, check_dtype(k, o.sums_f32), n, o.sums && present, o.accumulate);
}

/* An element in double, and its errors in units of 2^-24. tanh is within 8 of it and the slope within 12 + 2 |u|, for 16-bit
 * dtypes 2^-15 and 2^-15 + 4 |u|, and 0 below 2^-123; both take an exponential and a division. alpha * x is rounded once, which
 * moves tanh by its own relative error at most, and the slope by 2 |u| of it. */
typedef struct element {
  double t, slope, t_error, slope_error;
} element;

static element element_of(const check *k, double u) {
  const bool f32 = k->dtype == TIGON_F32;
  const double size = fabs(u), e = exp(-2 * size), slope = 4 * e / ((1 + e) * (1 + e)), calls = check_calls(k, 2, 2);
  const double of_t = (f32 ? 8 : 0x1p9) + 1 + calls, of_slope = f32 ? 12 + 4 * size + calls : 0x1p9 + 6 * size + calls;
  return (element){fabs(tanh(u)), slope, of_t * fabs(tanh(u)) + 0x1p-125 + check_flushed(k),
                   (slope > 0 ? of_slope * slope : 0) + 0x1p-99 + check_flushed(k)};
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const tigon_tensor x = check_rows(k, "x", k->fill, o.in_place > 0), alpha = parameter(k, "alpha", 1, true);
  const tigon_tensor gamma = parameter(k, "gamma", cols, true), beta = parameter(k, "beta", cols, o.beta);
  const tigon_tensor y = o.in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  double *size = check_doubles(k, rows * cols);
  for (int64_t i = 0; k->oracle && i < rows * cols; ++i)
    size[i] = fabs(check_value(&gamma, i % cols)) * element_of(k, check_value(&alpha, 0) * check_value(&x, i)).t_error;
  const tigon_dyt_fwd_args args = {.x = x, .alpha = alpha, .gamma = gamma, .beta = beta, .y = y};
  check_call(k, &args);
  check_bound(k, &y, 1, 1, size);
}

/* Three products round q * alpha. Sums lose 8 * 2^-24 of their terms besides. */
static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const tigon_tensor x = check_rows(k, "x", k->fill, o.in_place == 2),
                     dy = check_rows(k, "dy", CHECK_UNIFORM, o.in_place == 1);
  const tigon_tensor alpha = parameter(k, "alpha", 1, true), gamma = parameter(k, "gamma", cols, true);
  const tigon_tensor dx = o.in_place == 1 ? dy : o.in_place == 2 ? x : check_out(k, "dx", k->dtype, 2, k->dims);
  const tigon_tensor dalpha = sum(k, "dalpha", 1, true), dgamma = sum(k, "dgamma", cols, true),
                     dbeta = sum(k, "dbeta", cols, o.beta);
  double *dx_size = check_doubles(k, rows * cols), *dgamma_size = check_doubles(k, cols),
         *dbeta_size = check_doubles(k, cols), *dalpha_size = check_doubles(k, 1);
  for (int64_t i = 0; k->oracle && i < rows * cols; ++i) {
    const double up = fabs(check_value(&dy, i)), at = fabs(check_value(&x, i)), a = check_value(&alpha, 0);
    const double g = up * fabs(check_value(&gamma, i % cols));
    const element e = element_of(k, a * at);
    dx_size[i] = fabs(a) * g * (e.slope_error + 3 * e.slope) + 0x1p-125;
    dgamma_size[i % cols] += up * (e.t_error + 8 * e.t);
    dbeta_size[i % cols] += 8 * up;
    if (e.slope > 0) dalpha_size[0] += g * at * (e.slope_error + (3 + 8) * e.slope);
  }
  for (int64_t c = 0; k->oracle && o.accumulate && c < cols; ++c) {
    dgamma_size[c] += fabs(check_value(&dgamma, c));
    if (o.beta) dbeta_size[c] += fabs(check_value(&dbeta, c));
  }
  if (k->oracle && o.accumulate) dalpha_size[0] += fabs(check_value(&dalpha, 0));
  tigon_dyt_bwd_args args = {.dy = dy,
                             .x = x,
                             .alpha = alpha,
                             .gamma = gamma,
                             .dx = dx,
                             .dalpha = dalpha,
                             .dgamma = dgamma,
                             .dbeta = dbeta,
                             .accumulate_dgamma = o.accumulate};
  check_call_in_workspace(k, tigon_dyt_bwd_workspace, &args);
  check_bound(k, &dx, 1, 1, dx_size);
  if (o.sums) check_bound(k, &dalpha, 1, 1, dalpha_size);
  if (o.sums) check_bound(k, &dgamma, 1, 1, dgamma_size);
  if (o.sums && o.beta) check_bound(k, &dbeta, 1, 1, dbeta_size);
}

MUTANT(drop_tail, dyt_fwd, m.cols -= m.cols > 1)
MUTANT(no_beta, dyt_fwd, m.vector[1].data = NULL)
MUTANT(lose_row, dyt_bwd, check_drop_last_row(&m.space))
MUTANT(overwrite, dyt_bwd, m.accumulate = false)
static const check_mutant wrong_fwd[] = {{"drops the last column", drop_tail}, {"forgets beta", no_beta}, {0}};
static const check_mutant wrong_bwd[] = {{"drops the last row", lose_row}, {"overwrites sums", overwrite}, {0}};

static const bench_case timed = {.op = "dyt", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_dyt_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_dyt_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, NULL};
