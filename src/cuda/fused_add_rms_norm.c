#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

static norm_row rows[] = {
#define FUSED_ADD_RMS_NORM(...) NORM_ROW(fused_add_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};
static norm_row without_ds[] = {
/* then nothing is left to add */
#define RMS_NORM(...) NORM_ROW(rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};

tigon_status tigon_cuda_fused_add_rms_norm_fwd(tigon_queue *queue, const tigon_fused_add_rms_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, rows);
}

int64_t tigon_cuda_fused_add_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return tigon_slab_bytes(cuda_norm_slabs(queue, p), 1, p->cols);
}

tigon_status tigon_cuda_fused_add_rms_norm_bwd(tigon_queue *queue, const tigon_fused_add_rms_norm_bwd_problem *p) {
  return cuda_norm_bwd(queue, p, 1, p->ds.data ? rows : without_ds);
}
