#include "cuda/copy.h"

tigon_status cuda_stream(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  static cuda_kernel copy = CUDA_KERNEL(copy, copy), read = CUDA_KERNEL(copy, copy_read);
  int64_t packs = (int64_t)(bytes / 16);
  void *sink = cuda_of(queue)->scratch;
  const cuda_shape shape = {.blocks = cuda_ceil_div(packs, COPY_THREADS * COPY_EACH), .threads = COPY_THREADS};
  return to ? cuda_launch(queue, &copy, shape, CUDA_ARGUMENTS(&to, &from, &packs))
            : cuda_launch(queue, &read, shape, CUDA_ARGUMENTS(&sink, &from, &packs));
}
