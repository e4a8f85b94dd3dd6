#include "cuda/softmax.h"

#include "cuda/map.h"
#include "cuda/kernels.h"
#include "cuda/row_cut.h"

static int packed_bytes(int threads) { return (SOFTMAX_PACKS - SOFTMAX_OWN) * threads * 16; }

/* `wider` takes rows that need a cluster, or so many threads with 4 packs that few blocks share an SM. They are packed: an SM
 * has room for 256 KiB of them, and some are loaded while others wait for their sums. Or they are walked, with two blocks on an
 * SM. */
static row_cut cut_row(const cuda_device *device, row_kernels *k, cuda_kernel *wider, int64_t cols, int64_t lanes) {
  const int64_t items = cuda_ceil_div(cols, lanes), wanted = cuda_ceil_div(items, cuda_row_each(items, lanes));
  if (lanes > 1 && wider == k->walk && wanted > ROW_WIDE_THREADS && wanted <= ROW_MOST_THREADS)
    return (row_cut){.kernel = wider, .team = ROW_WIDE_THREADS, .cluster = 1, .held = "walked"};
  if (lanes > 1 && wider != k->walk && wanted > ROW_THREADS) {
    const int team = cuda_team_for(cuda_ceil_div(items, SOFTMAX_PACKS), ROW_MOST_THREADS);
    const int bytes = packed_bytes(team);
    if (items <= team * SOFTMAX_PACKS && bytes <= device->desc.onchip_bytes)
      return (row_cut){.kernel = wider, .team = team, .cluster = 1, .bytes = bytes, .held = "packed"};
  }
  return cuda_cut_row(device, k, cols, lanes);
}

tigon_status tigon_cuda_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  static row_kernels plain = ROW_KERNELS(softmax, fwd), masked = ROW_KERNELS(softmax, fwd_mask);
  static cuda_kernel plain_packed[3] = CUDA_KERNELS(softmax, softmax_fwd_packed);
  static cuda_kernel masked_packed[3] = CUDA_KERNELS(softmax, softmax_fwd_mask_packed);
  const int64_t lanes =
      map_wide(&p->space, &p->mask, p->mask_dtype) ? cuda_row_lanes(&p->space, p->cols, p->dtype, &p->x, &p->y) : 1;
  row_kernels *all = p->mask.data ? &masked : &plain;
  cuda_kernel *wider = p->causal ? all->walk : p->mask.data ? masked_packed : plain_packed;
  const row_cut c = cut_row(cuda_of(queue), all, wider, p->cols, lanes);
  return cuda_launch_rows(queue, &c, p->dtype, p->space.rows, p);
}

tigon_status tigon_cuda_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  static row_kernels all = ROW_KERNELS(softmax, bwd);
  const int64_t lanes = cuda_row_lanes(&p->space, p->cols, p->dtype, &p->dy, &p->y, &p->dx);
  const row_cut c = cuda_cut_row(cuda_of(queue), &all, p->cols, lanes);
  return cuda_launch_rows(queue, &c, p->dtype, p->space.rows, p);
}
