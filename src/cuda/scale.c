#include "cuda/scale.h"

#include "cuda/kernels.h"
#include "cuda/map.h"

tigon_status tigon_cuda_scale_fwd(tigon_queue *queue, const tigon_map_problem *p) {
  static cuda_kernel wide[3] = CUDA_KERNELS(scale, scale_fwd_wide), any[3] = CUDA_KERNELS(scale, scale_fwd_any);
  const bool is_wide = map_wide(&p->space, &p->in[0], p->dtype) && map_wide(&p->space, &p->out[0], p->dtype);
  const int64_t lanes = is_wide ? 16 / (int64_t)tigon_dtype_size(p->dtype) : 1;
  const int64_t items = p->space.rows * cuda_ceil_div(p->cols, lanes);
  const int64_t most = cuda_of(queue)->desc.cores * SCALE_BLOCKS, all = cuda_ceil_div(items, SCALE_THREADS);
  const cuda_shape shape = {.blocks = all < most ? all : most, .threads = SCALE_THREADS};
  return cuda_launch(queue, cuda_by_dtype(is_wide ? wide : any, p->dtype), shape, CUDA_ARGUMENTS((void *)p));
}
