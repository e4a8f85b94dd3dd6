/* How swiglu and geglu are launched: the kernels that GATE_KERNELS() made. */
#ifndef TIGON_CUDA_GATE_H
#define TIGON_CUDA_GATE_H

enum { GATE_FWD_PACKS = 1, GATE_BWD_PACKS = 1 }; /* of a thread and tensor */

#ifndef __CUDACC__
#include "cuda/cuda.h"

typedef struct gate_kernels {
  cuda_kernel fwd_wide[3], fwd_any[3], bwd_wide[3], bwd_any[3];
} gate_kernels;

#define GATE_KERNELS(image, op)                                                                   \
  {                                                                                               \
    .fwd_wide = CUDA_KERNELS(image, op##_fwd_wide), .fwd_any = CUDA_KERNELS(image, op##_fwd_any), \
    .bwd_wide = CUDA_KERNELS(image, op##_bwd_wide), .bwd_any = CUDA_KERNELS(image, op##_bwd_any), \
  }

tigon_status cuda_gate_fwd(tigon_queue *queue, const tigon_gate_fwd_problem *p, gate_kernels *kernels);
tigon_status cuda_gate_bwd(tigon_queue *queue, const tigon_gate_bwd_problem *p, gate_kernels *kernels);
#endif

#endif
