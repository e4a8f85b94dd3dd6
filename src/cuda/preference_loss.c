#include "cuda/preference_loss.h"

#include "cuda/kernels.h"

tigon_status tigon_cuda_preference_loss_fwd(tigon_queue *queue, const tigon_preference_loss_fwd_problem *p) {
  static cuda_kernel plain = CUDA_KERNEL(preference_loss, preference_plain),
                     any = CUDA_KERNEL(preference_loss, preference_any);
  const cuda_shape shape = {.blocks = 1, .threads = PREFERENCE_THREADS};
  return cuda_launch(queue, preference_is_plain(p) ? &plain : &any, shape, CUDA_ARGUMENTS((void *)p));
}
