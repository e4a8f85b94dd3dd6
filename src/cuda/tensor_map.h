/* Tensors of which kernels load boxes into shared memory by the bulk copy engine (kernel/tma.cuh), on GPUs from sm_90 on. */
#ifndef TIGON_CUDA_TENSOR_MAP_H
#define TIGON_CUDA_TENSOR_MAP_H

#include "cuda/cuda.h"

enum { CUDA_BOX_RANK = 4, CUDA_BOX_ROW_BYTES = 128 };

/* A tensor of `rank` dimensions, 2 at least, and a box of it. The first dimension is the innermost: its elements lie end to end, and those
 * of a box are 128 bytes at most. Pitches are in elements; the first is not read, nor is one of an extent of 1. */
typedef struct cuda_boxes {
  const void *data;
  int element_bytes; /* 2 or 4 */
  int rank;
  int64_t extent[CUDA_BOX_RANK], pitch[CUDA_BOX_RANK];
  int box[CUDA_BOX_RANK];
} cuda_boxes;

/* Can the engine load these? The tensor begins, and its pitches are, on 16 bytes. */
bool cuda_boxes_fit(const cuda_boxes *of);

/* The map, a kernel's parameter. A box has rows of 128 bytes one after the other, under the swizzle that wgmma_operand() (kernel/wgmma.cuh)
 * expects; elements outside of the tensor are 0. `of` has to fit. When calls are recorded no map is made. */
tigon_status cuda_tensor_map(tigon_queue *queue, const cuda_boxes *of, cu_tensor_map *map);

#endif
