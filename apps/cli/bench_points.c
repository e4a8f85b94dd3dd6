/* The sizes that an operator is timed at: its own, those of models, or a sweep. */
#include <string.h>

#include "bench.h"

static int64_t scaled(int64_t size, int doublings) { return doublings < 0 ? size >> -doublings : size << doublings; }

int bench_points(const bench_case *chosen, const bench_choice *choice, tigon_dtype dtype,
                 bench_point points[BENCH_MOST_POINTS]) {
  bench_point base = {.rows = choice->rows, .cols = choice->cols, .threads = choice->threads};
  int count = 0;
  if (!base.rows)
    base.rows = tigon_dtype_size(dtype) == 2 ? chosen->rows_16bit : chosen->rows_f32, base.cols = chosen->cols;
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
  for (int i = 0; i < count; ++i) points[i].other = bench_other(chosen, &points[i]);
  return count;
}
