/* How the norms are launched: the kernels that NORM_KERNELS() made, and which of them takes a call. */
#ifndef TIGON_CUDA_NORM_LAUNCH_H
#define TIGON_CUDA_NORM_LAUNCH_H

#include "cuda/cuda.h"
#include "cuda/norm.h"

typedef struct norm_kernels {
  cuda_kernel fwd_2[3], fwd_4[3], fwd_held[3], fwd_shared[3], fwd_wide[3], fwd_any[3];
  cuda_kernel fwd_late[3];    /* layer_norm's fwd_4 of rows that are not whole */
  cuda_kernel fwd_stashed[3]; /* modulated's of groups of NORM_GROUP_ROWS rows and more */
  cuda_kernel fwd_swept[3];   /* a fused add has none */
  int early_cols;             /* a row of so many columns, or fewer, is held two packs a thread */
  int held_cols; /* of many rows with more columns all are swept; 0: those alone that a block cannot hold well */
  cuda_kernel bwd_few[3], bwd_plain[3]; /* of plain rows, as held and staged; modulated has held, the others the rest */
  cuda_kernel bwd_held[3], bwd_held_any[3], bwd_staged[3], bwd_staged_any[3], bwd_wide[3], bwd_any[3];
} norm_kernels;

#define NORM_SHARED_KERNELS(op)                                                                     \
  .fwd_2 = CUDA_KERNELS(op, op##_fwd_2), .fwd_4 = CUDA_KERNELS(op, op##_fwd_4),                     \
  .fwd_held = CUDA_KERNELS(op, op##_fwd_held), .fwd_shared = CUDA_KERNELS(op, op##_fwd_shared),     \
  .fwd_wide = CUDA_KERNELS(op, op##_fwd_wide), .fwd_any = CUDA_KERNELS(op, op##_fwd_any),           \
  .bwd_held_any = CUDA_KERNELS(op, op##_bwd_held_any), .bwd_wide = CUDA_KERNELS(op, op##_bwd_wide), \
  .bwd_any = CUDA_KERNELS(op, op##_bwd_any)
#define NORM_SWEPT(op) .fwd_swept = CUDA_KERNELS(op, op##_fwd_swept)
#define NORM_MODULATED_KERNELS(op)                                            \
  NORM_SHARED_KERNELS(op), .fwd_stashed = CUDA_KERNELS(op, op##_fwd_stashed), \
                           .bwd_held = CUDA_KERNELS(op, op##_bwd_held)
#define NORM_KERNELS(op)                                                                                             \
  NORM_SHARED_KERNELS(op), .bwd_few = CUDA_KERNELS(op, op##_bwd_few), .bwd_plain = CUDA_KERNELS(op, op##_bwd_plain), \
                           .bwd_staged = CUDA_KERNELS(op, op##_bwd_staged),                                          \
                           .bwd_staged_any = CUDA_KERNELS(op, op##_bwd_staged_any)

tigon_status cuda_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p, norm_kernels *kernels);
/* Slabs of a gradient over rows: a block that sums over a range has an SM to itself. */
static inline int64_t cuda_norm_slabs(const tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return tigon_slabs(p->space.rows, cuda_of(queue)->desc.cores);
}

/* dx, and the slabs of walk->ranges ranges of rows, of which there may be fewer afterwards; walk->team is chosen here. */
tigon_status cuda_norm_bwd_rows(tigon_queue *queue, const tigon_norm_bwd_problem *p, norm_walk *walk,
                                norm_kernels *kernels);
/* All of it; a slab has `sums` sums: dw, and db where there are 2. */
tigon_status cuda_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, int sums, norm_kernels *kernels);

#endif
