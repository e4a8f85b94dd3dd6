/* The second stage of a column accumulator: slabs summed in index order. */
#ifndef TIGON_CPU_COLUMN_SUM_H
#define TIGON_CPU_COLUMN_SUM_H

#include "core/half.h"
#include "cpu/kernels.h"
#include "problem/columns.h"

/* out[c] = (accumulate ? out[c] : 0) + sum over s < count of slabs[s * pitch + c], 0 <= c < cols. */
typedef struct column_sum {
  const float *slabs;
  int64_t count, pitch, cols;
  void *out;
  tigon_dtype dtype;
  bool accumulate;
} column_sum;

enum { COLUMN_SUM_COLUMNS = 1024 }; /* a task */

static inline int64_t column_sum_tasks(int64_t cols) { return (cols + COLUMN_SUM_COLUMNS - 1) / COLUMN_SUM_COLUMNS; }

static inline void column_sum_task(const column_sum *j, int64_t index) {
  const int64_t begin = index * COLUMN_SUM_COLUMNS;
  const int64_t end = j->cols - begin < COLUMN_SUM_COLUMNS ? j->cols : begin + COLUMN_SUM_COLUMNS;
  for (int64_t c = begin; c < end; c += LANES) {
    const int n = end - c >= LANES ? LANES : (int)(end - c);
    vf sum = vf_zero();
    for (int64_t s = 0; s < j->count; ++s) sum = vf_add(sum, vf_load_n(j->slabs + s * j->pitch + c, n));
    if (j->accumulate) sum = vf_add(sum, v_load_n(j->out, c, j->dtype, n));
    v_store_n(j->out, c, j->dtype, sum, n);
  }
}

/* Vector `which` of `vectors` whose slabs lie side by side, [count, vectors, cols]; out NULL: not asked for. */
static inline column_sum column_sum_of(const float *slabs, int64_t count, int which, int vectors, int64_t cols,
                                       void *out, tigon_dtype dtype, bool accumulate) {
  return (column_sum){count ? slabs + which * cols : NULL, count, vectors * cols, cols, out, dtype, accumulate};
}

/* A task over a list of sums of one width, column_sum_tasks() for each. */
static inline void column_sum_list_task(const void *list, int64_t index) {
  const column_sum *sums = list;
  const int64_t tasks = column_sum_tasks(sums->cols);
  if (sums[index / tasks].out) column_sum_task(&sums[index / tasks], index % tasks);
}
static inline void column_sum_list(const tigon_queue *queue, const column_sum *sums, int vectors) {
  tigon_cpu_parallel_bytes(queue, vectors * column_sum_tasks(sums->cols),
                           vectors * (sums->count + 1) * sums->cols * (int64_t)sizeof(float), column_sum_list_task,
                           sums);
}

/* Element i, 0 where the vector is absent. */
static inline double vector_at(tigon_vector v, int64_t i) { return v.data ? tigon_load_f64(v.data, i, v.dtype) : 0; }

/* Element i of `to`, where that is present, = (accumulate ? itself : 0) + sum over k < count of parts[first + k * step]. A
 * recorded call has no memory. */
static inline void column_sum_one(const tigon_queue *queue, tigon_vector to, int64_t i, const double *parts,
                                  int64_t count, int64_t first, int64_t step, bool accumulate) {
  if (!to.data || queue->record) return;
  double sum = accumulate ? vector_at(to, i) : 0;
  for (int64_t k = 0; k < count; ++k) sum += parts[first + k * step];
  tigon_store_f64(to.data, i, to.dtype, sum);
}

#endif
