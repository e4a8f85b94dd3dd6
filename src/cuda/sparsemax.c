#include "cuda/sparsemax.h"

#include "cuda/kernels.h"
#include "cuda/row_cut.h"

static int list_bytes(int threads) { return threads * SPARSEMAX_FEW * (int)sizeof(float); }

/* Rows of more than ROW_THREADS would have at 4 packs each are packed, where they fit a block. */
static row_cut cut_fwd(const cuda_device *device, row_kernels *k, cuda_kernel *packed, int64_t cols, int64_t lanes) {
  const int64_t items = cuda_ceil_div(cols, lanes), wanted = cuda_ceil_div(items, cuda_row_each(items, lanes));
  if (lanes > 1 && wanted > ROW_THREADS) {
    const int team = cuda_team_for(cuda_ceil_div(items, SPARSEMAX_PACKS), ROW_MOST_THREADS);
    const int bytes = list_bytes(team) + (SPARSEMAX_PACKS - SPARSEMAX_OWN) * team * 16;
    if (items <= team * SPARSEMAX_PACKS && bytes <= device->desc.onchip_bytes)
      return (row_cut){.kernel = packed, .team = team, .cluster = 1, .bytes = bytes, .held = "packed"};
  }
  row_cut c = cuda_cut_row(device, k, cols, lanes);
  c.bytes = list_bytes(cuda_block_for(c.team, ROW_THREADS));
  return c;
}

tigon_status tigon_cuda_sparsemax_fwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  static row_kernels all = ROW_KERNELS(sparsemax, fwd);
  static cuda_kernel packed[3] = CUDA_KERNELS(sparsemax, sparsemax_fwd_packed);
  const int64_t lanes = cuda_row_lanes(&p->space, p->cols, p->dtype, &p->x, &p->y);
  const row_cut c = cut_fwd(cuda_of(queue), &all, packed, p->cols, lanes);
  return cuda_launch_rows(queue, &c, p->dtype, p->space.rows, p);
}

tigon_status tigon_cuda_sparsemax_bwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  static row_kernels all = ROW_KERNELS(sparsemax, bwd);
  const int64_t lanes = cuda_row_lanes(&p->space, p->cols, p->dtype, &p->dy, &p->y, &p->dx);
  const row_cut c = cuda_cut_row(cuda_of(queue), &all, p->cols, lanes);
  return cuda_launch_rows(queue, &c, p->dtype, p->space.rows, p);
}
