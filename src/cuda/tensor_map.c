#include "cuda/tensor_map.h"

bool cuda_boxes_fit(const cuda_boxes *of) {
  const int64_t most_pitch = (int64_t)1 << 40, most_extent = (int64_t)1 << 32;
  enum { MOST_BOX = 256, UNIT = 16 };
  if (!cuda_wide(of->data) || of->box[0] * of->element_bytes > CUDA_BOX_ROW_BYTES) return false;
  for (int d = 0; d < of->rank; ++d) {
    const int64_t pitch = of->pitch[d] * of->element_bytes;
    if (of->extent[d] < 1 || of->extent[d] > most_extent || of->box[d] > MOST_BOX) return false;
    if (d > 0 && of->extent[d] > 1 && (pitch < UNIT || pitch >= most_pitch || pitch % UNIT != 0)) return false;
  }
  return true;
}

tigon_status cuda_tensor_map(tigon_queue *queue, const cuda_boxes *of, cu_tensor_map *map) {
  enum { NATURAL_PITCH = 16 };
  uint64_t extents[CUDA_BOX_RANK], pitches[CUDA_BOX_RANK]; /* a pitch is of the next dimension, in bytes */
  uint32_t box[CUDA_BOX_RANK], steps[CUDA_BOX_RANK];
  if (queue->record) return TIGON_OK;
  for (int d = 0; d < of->rank; ++d) {
    extents[d] = (uint64_t)of->extent[d];
    box[d] = (uint32_t)of->box[d];
    steps[d] = 1;
    if (d > 0) pitches[d - 1] = of->extent[d] > 1 ? (uint64_t)(of->pitch[d] * of->element_bytes) : NATURAL_PITCH;
  }
  const int type = of->element_bytes == 2 ? CU_TENSOR_16_BITS : CU_TENSOR_32_BITS;
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed); /* the driver wants a context */
  if (status == TIGON_OK)
    status = cuda_check(queue,
                        cuda_of(queue)->cu->tensor_map_encode_tiled(map, type, (uint32_t)of->rank, (cu_memory)of->data,
                                                                    extents, pitches, box, steps, 0,
                                                                    CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_256, 0),
                        "cuTensorMapEncodeTiled");
  cuda_leave(queue, pushed);
  return status;
}
