#include "cpu/column_sum.h"

typedef struct job {
  const float *slabs;
  int64_t count, pitch, cols;
  void *out;
  tigon_dtype dtype;
  bool accumulate;
} job;

enum { COLUMNS = 1024 }; /* a task */

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  const int64_t end = j->cols - index * COLUMNS < COLUMNS ? j->cols : (index + 1) * COLUMNS;
  for (int64_t c = index * COLUMNS; c < end; c += LANES) {
    const int n = end - c >= LANES ? LANES : (int)(end - c);
    vf sum = vf_zero();
    for (int64_t s = 0; s < j->count; ++s) sum = vf_add(sum, vf_load_n(j->slabs + s * j->pitch + c, n));
    if (j->accumulate) sum = vf_add(sum, v_load_n(j->out, c, j->dtype, n));
    v_store_n(j->out, c, j->dtype, sum, n);
  }
}

void TIGON_CPU(column_sum)(const tigon_queue *queue, const float *slabs, int64_t count, int64_t pitch, int64_t cols,
                           void *out, tigon_dtype dtype, bool accumulate) {
  const job j = {slabs, count, pitch, cols, out, dtype, accumulate};
  tigon_cpu_parallel(queue, (cols + COLUMNS - 1) / COLUMNS, task, &j);
}
