/* sparsemax. Options walk what is in x, and in place. */
#include <math.h>
#include <stdlib.h>

#include "check/cases.h"
#include "core/half.h"

typedef enum content { AS_FILLED, SHIFTED, MINUS_INF, TIES, ROUNDS } content;

static const struct option {
  content content; /* content of x; from MINUS_INF on the run writes it */
  bool in_place;
} options[] = {{AS_FILLED, false}, {AS_FILLED, true}, {SHIFTED, false},
               {MINUS_INF, true},  {TIES, false},     {ROUNDS, true}};
enum { OPTIONS = sizeof options / sizeof *options, BWD_OPTIONS = 3 };

/* The check's rows, and one that is wider than 16 bits count. */
static bool shape(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  if (index > CHECK_ROW_SHAPES) return false;
  dims[0] = 2, dims[1] = 65539;
  return index == CHECK_ROW_SHAPES || check_row_shapes(index, tile, dims);
}

/* Element j of a row of which each round of tau but the last takes off one, counted from the end; -4 past the last one. Less the
 * first, the others are near -1/2, and each is less than the mean of those before it by ever more. */
static double round_element(int64_t j) {
  double v = 0.5, sum = 0, less = 0x1p-22;
  if (j == 0) return 1;
  for (int64_t k = 1; k < j; ++k) {
    sum += v;
    v = sum / (double)(k + 1) - less;
    less *= (double)(k + 2);
    if (v <= 0) return -4;
  }
  return v;
}

/* One of five, by a row's first element: a row has the same in any batch. */
static int kind_of(double first) { return isfinite(first) ? (int)(4096 * fabs(first)) % 5 : 0; }

static double element(content content, double v, int kind, int64_t c, int64_t cols) {
  const double low = round_element((c + kind) % cols);
  switch (content) {
    case MINUS_INF: return kind == 0 || c % 3 == kind % 3 ? -(double)INFINITY : v;
    case TIES: return isfinite(v) ? floor(4 * v) / 4 : v;
    default: return low < 0 ? v + low : low;
  }
}

static tigon_tensor make_x(check *k, const struct option *o) {
  const bool written = o->content >= MINUS_INF && !k->timed;
  const tigon_tensor x = check_rows(k, "x", o->content == SHIFTED ? CHECK_SHIFTED : k->fill, o->in_place || written);
  for (int64_t r = 0; written && r < k->dims[0]; ++r) {
    const int64_t cols = k->dims[1], at = r * x.strides[0];
    const int kind = kind_of(tigon_load_f64(x.data, at, x.dtype));
    for (int64_t c = 0; c < cols; ++c) {
      const double v = tigon_load_f64(x.data, at + c, x.dtype);
      tigon_store_f64(x.data, at + c, x.dtype, element(o->content, v, kind, c, cols));
    }
  }
  return x;
}

/* tau of x - max x in double. */
static double threshold(const double *x, int64_t cols, double most) {
  for (double tau = -1;;) {
    double sum = 0, count = 0;
    for (int64_t c = 0; c < cols; ++c)
      if (x[c] - most > tau) sum += x[c] - most, ++count;
    if (count == 0 || !((sum - 1) / count > tau)) return tau;
    tau = (sum - 1) / count;
  }
}

/* In units of 2^-24 |tau|, which no z of the support exceeds: z is off by 1, tau as far by that, by 8 where its sum is f32's, by 1 for
 * 1 less, the division and the store each, by 2 where it is a part's and not moved since; y is rounded once more. What is lower is
 * exactly 0. */
enum { UNITS = 16 };

static void bound_row(const double *x, int64_t cols, double units, double *bound) {
  double most = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) most = fmax(most, x[c]);
  const double tau = threshold(x, cols, most);
  for (int64_t c = 0; c < cols; ++c) bound[c] = x[c] - most > tau * (1 + units * 0x1p-24) ? fabs(tau) : 0;
}

static void fwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const tigon_tensor x = make_x(k, &o), y = o.in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  const double units = UNITS + check_calls(k, 0, 1);
  double *before = check_doubles(k, rows * cols), *bound = check_doubles(k, rows * cols);
  for (int64_t i = 0; k->oracle && i < rows * cols; ++i) before[i] = check_value(&x, i);
  for (int64_t r = 0; k->oracle && r < rows; ++r) bound_row(before + r * cols, cols, units, bound + r * cols);
  const tigon_sparsemax_fwd_args args = {.x = x, .y = y};
  check_call(k, &args);
  check_bound(k, &y, 1, units, bound);
}

/* What forward could have written, mostly: of some rows no column is supported, of some one. */
static tigon_tensor make_y(check *k, bool overwritten) {
  const tigon_tensor y = check_rows(k, "y", CHECK_UNIFORM, !k->timed || overwritten);
  for (int64_t r = 0; !k->timed && r < k->dims[0]; ++r) {
    const int64_t cols = k->dims[1], at = r * y.strides[0];
    const int kind = kind_of(tigon_load_f64(y.data, at, y.dtype));
    for (int64_t c = 0; c < cols; ++c) {
      const bool left_out = kind == 3 || (kind == 4 && c != cols / 2);
      if (left_out || tigon_load_f64(y.data, at + c, y.dtype) <= 0) tigon_store_f64(y.data, at + c, y.dtype, 0);
    }
  }
  return y;
}

/* The sum of dy loses 8 * 2^-24 of its terms, the division and the mean's store 1 each, and the difference 1. dy, the sum's
 * terms, the mean and the difference may be flushed. */
static void bwd(check *k) {
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const bool in_dy = k->option == 1, in_y = k->option == 2;
  const tigon_tensor y = make_y(k, in_y), dy = check_rows(k, "dy", k->fill, in_dy);
  const tigon_tensor dx = in_dy ? dy : in_y ? y : check_out(k, "dx", k->dtype, 2, k->dims);
  const double units = 8 + 1 + 1 + 1 + check_calls(k, 0, 1);
  double *bound = check_doubles(k, rows * cols);
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    double sum = 0, count = 0;
    for (int64_t i = r * cols; i < (r + 1) * cols; ++i)
      if (check_value(&y, i) > 0) sum += fabs(check_value(&dy, i)), ++count;
    for (int64_t i = r * cols; i < (r + 1) * cols; ++i)
      if (check_value(&y, i) > 0) bound[i] = fabs(check_value(&dy, i)) + units * sum / count + 4 * check_flushed(k);
  }
  const tigon_sparsemax_bwd_args args = {.dy = dy, .y = y, .dx = dx};
  check_call(k, &args);
  check_bound(k, &dx, 1, 1, bound);
}

/* ---- mutants: kernels of their own, row by row through the host's memory, with a fault that implementations have had ---- */

typedef enum fault { UNSHIFTED, A_ROUND_SHORT, TIES_ONCE, MEAN_OF_ALL, ROUNDED_MEAN } fault;

/* A row's elements in double, from the device, or to it. */
static void copy_row(tigon_queue *queue, const tigon_sparsemax_problem *p, const tigon_rows *t, int64_t r, double *row,
                     bool store) {
  const size_t size = tigon_dtype_size(p->dtype), bytes = (size_t)p->cols * size;
  char *at = tigon_row(&p->space, t, size, r), *raw = malloc(bytes);
  if (!raw) abort();
  for (int64_t c = 0; store && c < p->cols; ++c) tigon_store_f64(raw, c, p->dtype, row[c]);
  if (queue->backend->copy(queue, store ? at : raw, store ? raw : at, bytes) != TIGON_OK) abort();
  for (int64_t c = 0; !store && c < p->cols; ++c) row[c] = tigon_load_f64(raw, c, p->dtype);
  free(raw);
}

static void wrong_y(const tigon_sparsemax_problem *p, double *x, fault fault) {
  double most = -INFINITY;
  for (int64_t c = 0; c < p->cols; ++c) most = fmax(most, x[c]);
  const float off = fault == UNSHIFTED ? 0 : (float)most;
  float tau = (float)most - off - 1, before = tau;
  for (;;) {
    float sum = 0, count = 0;
    for (int64_t c = 0; c < p->cols; ++c)
      if ((float)x[c] - off > tau) sum += (float)x[c] - off, count += fault != TIES_ONCE || count == 0 || x[c] < most;
    const float next = (sum - 1) / count;
    if (!(next > tau)) break;
    before = tau, tau = next;
  }
  if (fault == A_ROUND_SHORT) tau = before;
  for (int64_t c = 0; c < p->cols; ++c) x[c] = fmax((double)((float)x[c] - off - tau), 0);
}

static void wrong_dx(const tigon_sparsemax_problem *p, double *dy, const double *y, fault fault) {
  double sum = 0, count = 0;
  for (int64_t c = 0; c < p->cols; ++c)
    if (y[c] > 0 || fault == MEAN_OF_ALL) sum += dy[c], ++count;
  double mean = count > 0 ? sum / count : 0;
  if (fault == ROUNDED_MEAN) tigon_store_f64(&mean, 0, p->dtype, mean), mean = tigon_load_f64(&mean, 0, p->dtype);
  for (int64_t c = 0; c < p->cols; ++c) dy[c] = y[c] > 0 ? dy[c] - mean : 0;
}

static tigon_status run_wrong(tigon_queue *queue, const tigon_sparsemax_problem *p, fault fault) {
  const bool forward = fault < MEAN_OF_ALL;
  double *row = malloc(2 * (size_t)p->cols * sizeof *row);
  if (!row) abort();
  for (int64_t r = 0; r < p->space.rows; ++r) {
    copy_row(queue, p, forward ? &p->x : &p->dy, r, row, false);
    if (!forward) copy_row(queue, p, &p->y, r, row + p->cols, false);
    if (forward)
      wrong_y(p, row, fault);
    else
      wrong_dx(p, row, row + p->cols, fault);
    copy_row(queue, p, forward ? &p->y : &p->dx, r, row, true);
  }
  free(row);
  return TIGON_OK;
}

MUTANT(drop_tail, sparsemax_fwd, m.cols -= m.cols > 1)
MUTANT(lose_part, sparsemax_fwd, m.cols = check_without_last_part(queue, p->cols))
MUTANT(narrow, sparsemax_fwd, if (m.cols > 65536) m.cols = 65536)
MUTANT(unshifted, sparsemax_fwd, return run_wrong(queue, p, UNSHIFTED))
MUTANT(round_short, sparsemax_fwd, return run_wrong(queue, p, A_ROUND_SHORT))
MUTANT(ties_once, sparsemax_fwd, return run_wrong(queue, p, TIES_ONCE))
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {"loses a part of a split row", lose_part},
    {"takes 65536 columns at most", narrow},
    {"takes nothing off before it sums", unshifted},
    {"ends one round too early", round_short},
    {"counts the largest once where there are ties", ties_once},
    {0},
};
MUTANT(lose_row, sparsemax_bwd, check_drop_last_row(&m.space))
MUTANT(other_support, sparsemax_bwd, m.y = p->dy)
MUTANT(mean_of_all, sparsemax_bwd, return run_wrong(queue, p, MEAN_OF_ALL))
MUTANT(rounded_mean, sparsemax_bwd, return run_wrong(queue, p, ROUNDED_MEAN))
static const check_mutant wrong_bwd[] = {
    {"drops the last row", lose_row},
    {"takes dy's support", other_support},
    {"takes the mean over all columns", mean_of_all},
    {"rounds the mean to the dtype", rounded_mean},
    {0},
};

static const bench_case timed = {.op = "sparsemax", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_sparsemax_fwd = {fwd, shape, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_sparsemax_bwd = {bwd, shape, BWD_OPTIONS, true, wrong_bwd, &timed, NULL};
