/* An expert's products in the simulator, whose memory is the host's: the CPU's kernels, one expert after the other. */
#include "ascend/grouped.h"

#include "ascend/borrowed.h"
#include "ascend/launch.h"

static bool records(const tigon_queue *queue, const ascend_groups *of) {
  if (queue->record)
    queue->record(queue->record_to, &(tigon_launch){.kernel = "grouped_products", .grid = of->experts});
  return queue->record;
}

static const char *row_of(const ascend_groups *of, const void *rows, int64_t row, int64_t cols) {
  return (const char *)rows + row * cols * (int64_t)tigon_dtype_size(of->dtype);
}

tigon_status ascend_grouped_rows(tigon_queue *queue, const ascend_groups *of, const void *a,
                                 const tigon_expert_weights *b, bool by_term, int64_t n, int64_t k, float *to) {
  const tigon_kernels *cpu = ascend_borrowed();
  tigon_queue *host = &ascend_of(queue)->host;
  if (records(queue, of)) return TIGON_OK;
  tigon_status status = TIGON_OK;
  for (int64_t e = 0; e < of->experts && status == TIGON_OK; ++e) {
    const int64_t first = of->first[e], rows = of->first[e + 1] - first;
    const void *from = row_of(of, a, first, k), *w = tigon_moe_matrix(b, tigon_dtype_size(of->dtype), e);
    /* Stored [n, k], as a weight of linear is, or [k, n]. */
    const tigon_linear_fwd_problem straight = {.rows = rows,
                                               .n = n,
                                               .k = k,
                                               .dtype = of->dtype,
                                               .y_dtype = TIGON_F32,
                                               .x = from,
                                               .w = w,
                                               .y = to + first * n,
                                               .x_pitch = k,
                                               .w_pitch = b->pitch,
                                               .y_pitch = n};
    const tigon_linear_bwd_problem transposed = {.rows = rows,
                                                 .n = k,
                                                 .k = n,
                                                 .dtype = of->dtype,
                                                 .dy_dtype = of->dtype,
                                                 .dx_dtype = TIGON_F32,
                                                 .dy = from,
                                                 .w = w,
                                                 .dx = to + first * n,
                                                 .dy_pitch = k,
                                                 .w_pitch = b->pitch,
                                                 .dx_pitch = n};
    if (rows == 0) continue;
    status = by_term == b->turned ? cpu->linear_fwd.run(host, &straight) : cpu->linear_bwd.run(host, &transposed);
  }
  return status;
}

tigon_status ascend_grouped_terms(tigon_queue *queue, const ascend_groups *of, const void *a, int64_t n, const void *b,
                                  int64_t k, const tigon_expert_weights *to, bool accumulate) {
  tigon_queue *host = &ascend_of(queue)->host;
  if (records(queue, of)) return TIGON_OK;
  tigon_status status = TIGON_OK;
  for (int64_t e = 0; e < of->experts && status == TIGON_OK; ++e) {
    const int64_t first = of->first[e], rows = of->first[e + 1] - first, lines = to->turned ? k : n,
                  cols = to->turned ? n : k;
    const char *of_a = row_of(of, a, first, n), *of_b = row_of(of, b, first, k);
    const tigon_linear_bwd_problem p = {.rows = rows,
                                        .n = lines,
                                        .k = cols,
                                        .dtype = of->dtype,
                                        .dy_dtype = of->dtype,
                                        .dw_dtype = to->dtype,
                                        .dy = to->turned ? of_b : of_a,
                                        .x = to->turned ? of_a : of_b,
                                        .dw = tigon_moe_matrix(to, tigon_dtype_size(to->dtype), e),
                                        .dy_pitch = lines,
                                        .x_pitch = cols,
                                        .dw_pitch = to->pitch,
                                        .accumulate = accumulate};
    if (rows > 0 || !accumulate) status = ascend_borrowed()->linear_bwd.run(host, &p);
  }
  return status;
}
