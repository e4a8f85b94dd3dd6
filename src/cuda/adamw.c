#include "cuda/adamw.h"

#include <math.h>

#include "cuda/kernels.h"

static int64_t elements(const tigon_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

static bool aligned(const tigon_tensor *t) {
  return (uintptr_t)t->data % (ADAMW_LANES * tigon_dtype_size(t->dtype)) == 0;
}

static adamw_tensor tensor_of(const tigon_adamw_step_problem *p, const tigon_adamw_param *t, int64_t chunks) {
  const bool master = t->master.data != NULL;
  const int64_t count = elements(&t->param);
  return (adamw_tensor){
      .param = t->param.data,
      .master = t->master.data,
      .grad = t->grad.data,
      .exp_avg = t->exp_avg.data,
      .exp_avg_sq = t->exp_avg_sq.data,
      .count = count,
      .chunks = chunks + cuda_ceil_div(count, ADAMW_CHUNK),
      .decay = (float)(p->lr * t->weight_decay),
      .grad_f32 = t->grad.dtype == TIGON_F32,
      .wide = aligned(&t->param) && (!master || aligned(&t->master)) && aligned(&t->grad) && aligned(&t->exp_avg) &&
              aligned(&t->exp_avg_sq),
  };
}

static tigon_status launch_step(tigon_queue *queue, adamw_batch *b, tigon_dtype dtype) {
  static cuda_kernel kernels[3] = CUDA_KERNELS(adamw, adamw_step);
  if (b->tensors == 0) return TIGON_OK;
  const cuda_shape shape = {.blocks = b->of[b->tensors - 1].chunks, .threads = ADAMW_THREADS};
  const tigon_status status = cuda_launch(queue, cuda_by_dtype(kernels, dtype), shape, CUDA_ARGUMENTS(b));
  b->tensors = 0;
  return status;
}

/* The list's tensors of one dtype. */
static tigon_status step_dtype(tigon_queue *queue, const tigon_adamw_step_problem *p, tigon_dtype dtype) {
  adamw_batch b = {.clip_factor = p->clip_factor,
                   .beta1 = (float)p->beta1,
                   .beta2 = (float)p->beta2,
                   .rest1 = (float)(1 - p->beta1),
                   .rest2 = (float)(1 - p->beta2),
                   .eps = (float)p->eps,
                   .rate = (float)(p->lr / p->correction1),
                   .root = (float)(1 / sqrt(p->correction2))};
  _Static_assert(sizeof b <= 4096, "a launch's parameters");
  tigon_status status = TIGON_OK;
  for (int64_t i = 0; i < p->count && status == TIGON_OK; ++i) {
    const tigon_adamw_param *t = &p->params[i];
    if (t->param.dtype != dtype || elements(&t->param) == 0) continue;
    b.of[b.tensors] = tensor_of(p, t, b.tensors > 0 ? b.of[b.tensors - 1].chunks : 0);
    if (++b.tensors == ADAMW_TENSORS) status = launch_step(queue, &b, dtype);
  }
  return status == TIGON_OK ? launch_step(queue, &b, dtype) : status;
}

tigon_status tigon_cuda_adamw_step(tigon_queue *queue, const tigon_adamw_step_problem *p) {
  tigon_status status = TIGON_OK;
  for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16 && status == TIGON_OK; ++dtype)
    status = step_dtype(queue, p, dtype);
  return status;
}

static tigon_status launch_squares(tigon_queue *queue, adamw_clip_batch *b) {
  static cuda_kernel kernel = CUDA_KERNEL(adamw, adamw_squares);
  if (b->tensors == 0 && !b->first) return TIGON_OK;
  const cuda_shape shape = {.blocks = TIGON_ADAMW_PARTIALS, .threads = ADAMW_CLIP_THREADS};
  const tigon_status status = cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS(b));
  b->tensors = 0;
  b->first = false;
  return status;
}

tigon_status tigon_cuda_adamw_clip(tigon_queue *queue, const tigon_adamw_clip_problem *p) {
  static cuda_kernel factor = CUDA_KERNEL(adamw, adamw_factor);
  adamw_clip_batch b = {.first = true, .partials = p->partials};
  _Static_assert(sizeof b <= 4096, "a launch's parameters");
  tigon_status status = TIGON_OK;
  for (int64_t i = 0; i < p->count && status == TIGON_OK; ++i) {
    const tigon_tensor *t = &p->grads[i];
    const int64_t count = elements(t);
    if (count == 0) continue;
    b.of[b.tensors++] = (adamw_grad){t->data, count, (int)t->dtype, cuda_wide(t->data)};
    if (b.tensors == ADAMW_CLIP_TENSORS) status = launch_squares(queue, &b);
  }
  if (status == TIGON_OK) status = launch_squares(queue, &b);
  const cuda_shape shape = {.blocks = 1, .threads = TIGON_ADAMW_PARTIALS};
  return status == TIGON_OK ? cuda_launch(queue, &factor, shape, CUDA_ARGUMENTS((void *)p)) : status;
}
