/* embedding: copies forward; backward a stable counting sort of the positions by index, then one sum per table row in the
 * order of the positions. */
#include <string.h>

#include "cpu/kernels.h"

static void fwd_task(const void *argument, int64_t index) {
  const tigon_embedding_fwd_problem *p = argument;
  const size_t size = tigon_dtype_size(p->dtype), row_bytes = size * (size_t)p->cols;
  int64_t begin, end;
  tigon_plan_range(p->space.rows, tigon_cpu_row_tasks(p->space.rows, (int64_t)row_bytes), index, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t i = tigon_load_index(p->idx, r, p->idx_dtype);
    char *y = tigon_row(&p->space, &p->y, size, r);
    if (i >= 0 && i < p->vocab) {
      memcpy(y, (const char *)p->table + (size_t)(i * p->table_pitch) * size, row_bytes);
    } else {
      memset(y, 0, row_bytes);
      if (p->error_flag) __atomic_store_n(p->error_flag, 1, __ATOMIC_RELAXED);
    }
  }
}

tigon_status TIGON_CPU(embedding_fwd)(tigon_queue *queue, const tigon_embedding_fwd_problem *p, const tigon_plan *plan) {
  (void)plan;
  const int64_t row_bytes = p->cols * (int64_t)tigon_dtype_size(p->dtype);
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, row_bytes), fwd_task, p);
  return TIGON_OK;
}

/* order[v] .. order[v + 1] are the slots of table row v in order + vocab + 1, which hold its positions, rising. */
static void sort_positions(const tigon_embedding_bwd_problem *p) {
  int64_t *first = p->order, *positions = first + p->vocab + 1;
  memset(first, 0, (size_t)(p->vocab + 1) * sizeof *first);
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const int64_t i = tigon_load_index(p->idx, r, p->idx_dtype);
    if (i >= 0 && i < p->vocab)
      first[i] += i != p->padding_idx;
    else if (p->error_flag)
      *p->error_flag = 1;
  }
  int64_t sum = 0;
  for (int64_t v = 0; v <= p->vocab; ++v) {
    const int64_t count = first[v];
    first[v] = sum;
    sum += count;
  }
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const int64_t i = tigon_load_index(p->idx, r, p->idx_dtype);
    if (i >= 0 && i < p->vocab && i != p->padding_idx) positions[first[i]++] = r;
  }
  /* first[v] now ends row v: shift back. */
  memmove(first + 1, first, (size_t)p->vocab * sizeof *first);
  first[0] = 0;
}

enum { ROWS = 64 }; /* table rows of a task */

TIGON_INLINE void sum_rows(tigon_dtype dtype, const tigon_embedding_bwd_problem *p, int64_t begin, int64_t end) {
  const size_t size = tigon_dtype_size(dtype), out_size = tigon_dtype_size(p->dtable_dtype);
  const int64_t *first = p->order, *positions = first + p->vocab + 1;
  for (int64_t v = begin; v < end; ++v) {
    char *out = (char *)p->dtable + (size_t)(v * p->cols) * out_size;
    if (first[v] == first[v + 1]) {
      if (!p->accumulate) memset(out, 0, (size_t)p->cols * out_size);
      continue;
    }
    for (int64_t c = 0; c < p->cols; c += LANES) {
      const int n = p->cols - c >= LANES ? LANES : (int)(p->cols - c);
      vf sum = vf_zero();
      for (int64_t k = first[v]; k < first[v + 1]; ++k)
        sum = vf_add(sum, v_load_n(tigon_row(&p->space, &p->dy, size, positions[k]), c, dtype, n));
      if (p->accumulate) sum = vf_add(sum, v_load_n(out, c, p->dtable_dtype, n));
      v_store_n(out, c, p->dtable_dtype, sum, n);
    }
  }
}

static void bwd_task(const void *argument, int64_t index) {
  const tigon_embedding_bwd_problem *p = argument;
  const int64_t begin = index * ROWS, end = p->vocab - begin < ROWS ? p->vocab : begin + ROWS;
  TIGON_FOR_DTYPE(p->dtype, sum_rows, p, begin, end);
}

tigon_status TIGON_CPU(embedding_bwd)(tigon_queue *queue, const tigon_embedding_bwd_problem *p, const tigon_plan *plan) {
  (void)plan;
  sort_positions(p);
  tigon_cpu_parallel(queue, (p->vocab + ROWS - 1) / ROWS, bwd_task, p);
  return TIGON_OK;
}
