#include "cuda/copy.h"

tigon_status cuda_stream(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  static cuda_kernel copy = CUDA_KERNEL(copy, copy), read = CUDA_KERNEL(copy, copy_read);
  int64_t packs = (int64_t)(bytes / 16);
  void *sink = cuda_of(queue)->scratch;
  const cuda_shape shape = {.blocks = cuda_ceil_div(packs, COPY_THREADS * COPY_EACH), .threads = COPY_THREADS};
  return to ? cuda_launch(queue, &copy, shape, CUDA_ARGUMENTS(&to, &from, &packs))
            : cuda_launch(queue, &read, shape, CUDA_ARGUMENTS(&sink, &from, &packs));
}

tigon_status cuda_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t bytes, int64_t rows) {
  static cuda_kernel wide_kernel = CUDA_KERNEL(copy, copy_rows_wide), any_kernel = CUDA_KERNEL(copy, copy_rows_any);
  const bool wide = cuda_wide(to) && cuda_wide(from) && (to_pitch | from_pitch | bytes) % 16 == 0;
  const int64_t parts = cuda_ceil_div((int64_t)bytes / (wide ? 16 : 2), COPY_THREADS * COPY_EACH);
  copy_rows p = {to, from, (int64_t)to_pitch, (int64_t)from_pitch, (int64_t)bytes, (unsigned)parts};
  const cuda_shape shape = {.blocks = rows * parts, .threads = COPY_THREADS};
  return cuda_launch(queue, wide ? &wide_kernel : &any_kernel, shape, CUDA_ARGUMENTS(&p));
}
