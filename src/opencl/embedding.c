#include "opencl/kernel/embedding.h"

#include "core/context.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

tigon_status tigon_opencl_embedding_fwd(tigon_queue *queue, const tigon_embedding_fwd_problem *p) {
  static const opencl_kernel kernel = {"embedding", "embedding_fwd"};
  const embedding_fwd_numbers k = {.space = p->space,
                                   .y = opencl_pitch(&p->y),
                                   .cols = p->cols,
                                   .vocab = p->vocab,
                                   .table_pitch = p->table_pitch,
                                   .idx_dtype = (int32_t)p->idx_dtype};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->table, p->idx, p->y.data, p->error_flag), &k, sizeof k);
}

/* ---- backward ---- */

typedef tigon_embedding_bwd_problem problem;

static int64_t sorters_of(const problem *p) {
  enum { EACH = 64, MOST = 1024 };
  const int64_t worth = opencl_ceil_div(p->space.rows, EACH);
  return worth < MOST ? worth : MOST;
}

/* The workspace: two lists of positions, then the counts. */
int64_t tigon_opencl_embedding_bwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return tigon_pad((2 * p->space.rows + EMBEDDING_DIGITS * sorters_of(p)) * (int64_t)sizeof(int64_t));
}

/* The positions by index go into *order. */
static tigon_status sort(tigon_queue *queue, const problem *p, const int64_t **order) {
  static const opencl_kernel count = {"embedding", "embedding_count"}, offsets = {"embedding", "embedding_offsets"},
                             scatter = {"embedding", "embedding_scatter"};
  const int64_t local = opencl_of(queue)->model == OPENCL_ITEMS ? 1 : opencl_of(queue)->group;
  embedding_sort_numbers k = {.rows = p->space.rows,
                              .vocab = p->vocab,
                              .padding_idx = p->padding_idx,
                              .sorters = sorters_of(p),
                              .idx_dtype = (int32_t)p->idx_dtype,
                              .first = 1};
  const opencl_shape sorters = {.global = {opencl_ceil_div(k.sorters, local) * local}, .local = {local}};
  int64_t *to = p->order, *from = to + k.rows, *const counts = from + k.rows;
  for (; k.first || p->vocab >> k.shift > 0; k.shift += EMBEDDING_DIGIT_BITS, k.first = 0) {
    TIGON_TRY(opencl_launch(queue, &count, p->dtype, sorters, OPENCL_MEMORY(p->idx, from, counts, p->error_flag), &k,
                            sizeof k));
    TIGON_TRY(opencl_launch(queue, &offsets, p->dtype, (opencl_shape){.global = {local}, .local = {local}},
                            OPENCL_MEMORY(counts), &k, sizeof k));
    TIGON_TRY(opencl_launch(queue, &scatter, p->dtype, sorters, OPENCL_MEMORY(p->idx, from, counts, to), &k, sizeof k));
    *order = to;
    to = from, from = (int64_t *)*order;
  }
  return TIGON_OK;
}

tigon_status tigon_opencl_embedding_bwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel sum = {"embedding", "embedding_sum"}, zero = {"embedding", "embedding_zero"};
  const embedding_bwd_numbers k = {.space = p->space,
                                   .dy = opencl_pitch(&p->dy),
                                   .cols = p->cols,
                                   .vocab = p->vocab,
                                   .padding_idx = p->padding_idx,
                                   .panel = opencl_of(queue)->model == OPENCL_ITEMS ? p->cols : EMBEDDING_PANEL,
                                   .idx_dtype = (int32_t)p->idx_dtype,
                                   .dtable_dtype = (int32_t)p->dtable_dtype,
                                   .accumulate = p->accumulate};
  const int64_t *order = NULL;
  if (p->space.rows > 0) {
    TIGON_TRY(sort(queue, p, &order));
    opencl_shape shape = opencl_row_shape(queue, p->space.rows);
    shape.global[1] = p->cols > 0 ? opencl_ceil_div(p->cols, k.panel) : 0;
    TIGON_TRY(
        opencl_launch(queue, &sum, p->dtype, shape, OPENCL_MEMORY(p->dy.data, p->idx, order, p->dtable), &k, sizeof k));
  }
  if (p->accumulate) return TIGON_OK;
  return opencl_launch(queue, &zero, p->dtype, opencl_row_shape(queue, p->vocab),
                       OPENCL_MEMORY(p->idx, order, p->dtable), &k, sizeof k);
}
