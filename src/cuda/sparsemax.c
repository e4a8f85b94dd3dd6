#include "cuda/kernels.h"
#include "cuda/row_cut.h"

tigon_status tigon_cuda_sparsemax_fwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  static row_kernels all = ROW_KERNELS(sparsemax, fwd);
  const int64_t lanes = cuda_row_lanes(&p->space, p->cols, p->dtype, &p->x, &p->y);
  const row_cut c = cuda_cut_row(cuda_of(queue), &all, p->cols, lanes);
  return cuda_launch_rows(queue, &c, p->dtype, p->space.rows, p);
}

tigon_status tigon_cuda_sparsemax_bwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  static row_kernels all = ROW_KERNELS(sparsemax, bwd);
  const int64_t lanes = cuda_row_lanes(&p->space, p->cols, p->dtype, &p->dy, &p->y, &p->dx);
  const row_cut c = cuda_cut_row(cuda_of(queue), &all, p->cols, lanes);
  return cuda_launch_rows(queue, &c, p->dtype, p->space.rows, p);
}
