#include "cuda/topk_divergence.h"

#include "cuda/kernels.h"

typedef tigon_topk_divergence_problem problem;

#define TOPK_KERNELS(name) CUDA_KERNELS(topk_divergence, topk_divergence_##name)

/* What needs no entries is divergence's own. */
static tigon_status run_part(tigon_queue *queue, const problem *p, int part) {
  tigon_divergence_problem base = p->base;
  if (base.parts == TIGON_DIVERGENCE_ROWS) return TIGON_OK;
  base.parts = part;
  return tigon_cuda_divergence_fwd(queue, &base);
}

static tigon_status run_rows(tigon_queue *queue, const problem *p, bool backward) {
  static cuda_kernel packs[3] = TOPK_KERNELS(packs), any[3] = TOPK_KERNELS(any);
  static cuda_kernel head_packs[3] = TOPK_KERNELS(head_packs), head_any[3] = TOPK_KERNELS(head_any);
  const tigon_divergence_problem *base = &p->base;
  const bool head = base->parts == TIGON_DIVERGENCE_ROWS;
  cuda_kernel *wide_kernels = head ? head_packs : packs, *any_kernels = head ? head_any : any;
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = base->cols % lanes == 0 && cuda_wide_rows(&base->space, &base->input, p->dtype) &&
                    cuda_wide_rows(&base->space, &base->dinput, p->dtype);
  const int64_t items = wide ? base->cols / lanes : base->cols;
  cuda_shape shape = {.threads = cuda_team_for(items > p->k ? items : p->k, TOPK_THREADS), .held = "walked"};
  topk_walk walk = {.backward = backward};
  tigon_status status = TIGON_OK;
  for (; walk.first_row < base->space.rows && status == TIGON_OK; walk.first_row += INT32_MAX) {
    const int64_t left = base->space.rows - walk.first_row;
    shape.blocks = left < INT32_MAX ? left : INT32_MAX;
    status = cuda_launch(queue, cuda_by_dtype(wide ? wide_kernels : any_kernels, p->dtype), shape,
                         CUDA_ARGUMENTS((void *)p, &walk));
  }
  return status;
}

tigon_status tigon_cuda_topk_divergence_fwd(tigon_queue *queue, const problem *p) {
  tigon_status status = run_part(queue, p, TIGON_DIVERGENCE_COUNT);
  if (status == TIGON_OK) status = run_rows(queue, p, false);
  return status == TIGON_OK && p->base.loss ? run_part(queue, p, TIGON_DIVERGENCE_REDUCE) : status;
}

tigon_status tigon_cuda_topk_divergence_bwd(tigon_queue *queue, const problem *p) {
  const tigon_status status = run_part(queue, p, TIGON_DIVERGENCE_COUNT);
  return status == TIGON_OK ? run_rows(queue, p, true) : status;
}
