/* How swiglu and geglu are launched: the kernels that GATE_KERNELS() made. */
#ifndef TIGON_CUDA_GATE_H
#define TIGON_CUDA_GATE_H

#include "cuda/flat.h"

/* swiglu with factors of 1 and no clamp; geglu has neither. A macro, for problems of both directions. */
#define gate_is_plain(p) ((p)->gate_mult == 1 && (p)->down_mult == 1 && !((p)->clamp > 0))

#ifndef __CUDACC__
typedef struct gate_kernels {
  flat_kernels fwd, bwd;
} gate_kernels;

#define GATE_KERNELS(image, op) \
  { .fwd = FLAT_KERNELS(image, op##_fwd), .bwd = FLAT_KERNELS(image, op##_bwd) }

/* `plain`: without factors and a clamp. */
tigon_status cuda_gate_fwd(tigon_queue *queue, const tigon_gate_fwd_problem *p, bool plain, gate_kernels *kernels);
tigon_status cuda_gate_bwd(tigon_queue *queue, const tigon_gate_bwd_problem *p, bool plain, gate_kernels *kernels);
#endif

#endif
