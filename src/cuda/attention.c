#include "cuda/attention.h"

#include "cuda/kernels.h"

/* Do heads of `t` begin, and have tokens, on a size of four elements? */
static bool wide_heads(const tigon_heads *t, tigon_dtype dtype) {
  return (uintptr_t)t->data % (4 * tigon_dtype_size(dtype)) == 0 &&
         (t->batch_pitch | t->token_pitch | t->head_pitch) % 4 == 0;
}

static bool all_wide(const tigon_heads *const *heads, int count, int64_t head_dim, tigon_dtype dtype) {
  bool wide = head_dim % 4 == 0;
  for (int i = 0; i < count; ++i) wide = wide && wide_heads(heads[i], dtype);
  return wide;
}

static int64_t tiles_of(int64_t n) { return cuda_ceil_div(n, ATTENTION_TILE); }

static int threads_for(tigon_dtype dtype) {
  return dtype == TIGON_F32 ? ATTENTION_FMA_THREADS : ATTENTION_TENSOR_THREADS;
}

tigon_status tigon_cuda_attention_fwd(tigon_queue *queue, const tigon_attention_fwd_problem *p,
                                      const tigon_plan *plan) {
  static cuda_kernel kernels[2][3] = {CUDA_KERNELS(attention, attention_fwd_1),
                                      CUDA_KERNELS(attention, attention_fwd_2)};
  (void)plan;
  const tigon_heads *const heads[] = {&p->q, &p->k, &p->v, &p->o};
  attention_walk walk = {.wide = all_wide(heads, 4, p->head_dim, p->dtype)};
  const int kept = p->head_dim > ATTENTION_TILE ? 2 : 1;
  const cuda_shape shape = {.blocks = p->batch * p->q.heads * tiles_of(p->tokens),
                            .threads = threads_for(p->dtype),
                            .shared_bytes = attention_fwd_tiles(kept, p->dtype == TIGON_F32) * ATTENTION_TILE_BYTES};
  return cuda_launch(queue, cuda_by_dtype(kernels[kept - 1], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

static tigon_status launch_delta(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  static cuda_kernel kernel[3] = CUDA_KERNELS(attention_bwd, attention_bwd_delta);
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->batch * p->q.heads * p->tokens, ATTENTION_DELTA_THREADS / 32),
                            .threads = ATTENTION_DELTA_THREADS};
  return cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p));
}

tigon_status tigon_cuda_attention_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p,
                                      const tigon_plan *plan) {
  static cuda_kernel keys[2][3] = {CUDA_KERNELS(attention_bwd, attention_bwd_keys_1),
                                   CUDA_KERNELS(attention_bwd, attention_bwd_keys_2)};
  static cuda_kernel queries[2][3] = {CUDA_KERNELS(attention_bwd, attention_bwd_queries_1),
                                      CUDA_KERNELS(attention_bwd, attention_bwd_queries_2)};
  (void)plan;
  const tigon_heads *const heads[] = {&p->q, &p->k, &p->v, &p->d_o, &p->dq, &p->dk, &p->dv};
  attention_walk walk = {.wide = all_wide(heads, 7, p->head_dim, p->dtype)};
  const bool f32 = p->dtype == TIGON_F32;
  int kept = p->head_dim > ATTENTION_TILE ? 2 : 1;
  if (attention_bwd_tiles(kept, f32) * ATTENTION_TILE_BYTES + 1024 > cuda_of(queue)->desc.onchip_bytes) kept = 1;
  cuda_shape shape = {.threads = threads_for(p->dtype),
                      .shared_bytes = attention_bwd_tiles(kept, f32) * ATTENTION_TILE_BYTES};
  tigon_status status = launch_delta(queue, p);
  shape.blocks = p->batch * p->k.heads * tiles_of(p->keys);
  if (status == TIGON_OK)
    status = cuda_launch(queue, cuda_by_dtype(keys[kept - 1], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
  shape.blocks = p->batch * p->q.heads * tiles_of(p->tokens);
  if (status == TIGON_OK)
    status = cuda_launch(queue, cuda_by_dtype(queries[kept - 1], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
  return status;
}
