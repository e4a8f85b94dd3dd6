/* The sizes that an operator is timed at: its own, those of models, or a sweep. */
#include <string.h>

#include "bench.h"

static int64_t scaled(int64_t size, int doublings) { return doublings < 0 ? size >> -doublings : size << doublings; }

/* Rows, and where two are too many half the columns, until the tensors of all modes have at most hot_bytes. A multiple of 8
 * rows, where there are as many, can be a batch of 4 or 8. */
static void make_hot(const bench_case *chosen, const bench_choice *choice, tigon_context *context, tigon_dtype dtype,
                     bench_point *point) {
  enum { LEAST_ROWS = 2 };
  double a_row;
  for (;; point->cols /= 2) {
    bench_data data;
    bench_point at = *point;
    at.rows = LEAST_ROWS;
    at.other = bench_other(chosen, &at);
    (void)bench_data_open(&data, chosen, context, dtype, &at, 0); /* which counts the bytes */
    a_row = (double)data.bytes / LEAST_ROWS;
    if (LEAST_ROWS * a_row <= (double)choice->hot_bytes || point->cols % 2 != 0) break;
  }
  point->rows = (int64_t)((double)choice->hot_bytes / a_row);
  if (point->rows < LEAST_ROWS) point->rows = LEAST_ROWS;
  if (point->rows > 8) point->rows -= point->rows % 8;
}

int bench_points(const bench_case *chosen, const bench_choice *choice, tigon_context *context, tigon_dtype dtype,
                 bench_point points[BENCH_MOST_POINTS]) {
  bench_point base = {
      .rows = choice->rows, .cols = choice->cols, .threads = choice->threads, .forms = choice->forms & chosen->forms};
  int count = 0;
  if (!base.rows)
    base.rows = tigon_dtype_size(dtype) == 2 ? chosen->rows_16bit : chosen->rows_f32, base.cols = chosen->cols;
  if (choice->hot_bytes && !choice->rows) make_hot(chosen, choice, context, dtype, &base);
  switch (choice->axis) {
    case BENCH_ONE: points[count++] = base; break;
    case BENCH_MODELS:
      for (int i = 0; bench_model_names()[i]; ++i)
        if ((!choice->model || strcmp(choice->model, bench_model_names()[i]) == 0) &&
            bench_model_point(chosen, i, &points[count]))
          points[count++].threads = base.threads;
      break;
    case BENCH_THREADS:
      for (int threads = 1; threads < 2 * base.threads && count < BENCH_MOST_POINTS; threads *= 2) {
        points[count] = base;
        points[count++].threads = threads < base.threads ? threads : base.threads;
      }
      break;
    case BENCH_ROWS:
    case BENCH_WIDTH: /* an eighth to fourfold, and a 32nd to twofold */
      for (int k = choice->axis == BENCH_ROWS ? -5 : -3, last = choice->axis == BENCH_ROWS ? 1 : 2; k <= last; ++k) {
        points[count] = base;
        int64_t *size = choice->axis == BENCH_ROWS ? &points[count].rows : &points[count].cols;
        *size = scaled(*size, k);
        if (*size > 0) ++count;
      }
      break;
  }
  for (int i = 0; i < count; ++i) points[i].other = bench_other(chosen, &points[i]), points[i].forms = base.forms;
  return count;
}
