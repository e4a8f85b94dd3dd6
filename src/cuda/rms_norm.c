#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

static norm_row rows[] = {
#define RMS_NORM(...) NORM_ROW(rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};
static norm_row gated[] = {
#define GATED_RMS_NORM(...) NORM_ROW(gated_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};

tigon_status tigon_cuda_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, p->z.data ? gated : rows);
}

int64_t tigon_cuda_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return tigon_slab_bytes(cuda_norm_slabs(queue, p), 1, p->cols);
}

tigon_status tigon_cuda_rms_norm_bwd(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  return cuda_norm_bwd(queue, p, 1, p->z.data ? gated : rows);
}
