#include "cuda/rope.h"

#include "cuda/kernels.h"

static bool wide_heads(const tigon_rope_problem *p, const tigon_heads *t) {
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype);
  return !t->data ||
         (cuda_wide(t->data) && (p->batch == 1 || t->batch_pitch * size % 16 == 0) &&
          (p->tokens == 1 || t->token_pitch * size % 16 == 0) && (t->heads == 1 || t->head_pitch * size % 16 == 0));
}

/* May a head be worked on in packs of pairs? */
static bool wide_problem(const tigon_rope_problem *p, int64_t lanes) {
  const int64_t size = (int64_t)tigon_dtype_size(p->table_dtype);
  return p->rotary_dim / 2 % lanes == 0 && (p->head_dim - p->rotary_dim) % lanes == 0 && cuda_wide(p->cos) &&
         cuda_wide(p->sin) && p->table_pitch * size % 16 == 0 && p->table_batch_pitch * size % 16 == 0 &&
         wide_heads(p, &p->q) && wide_heads(p, &p->k) && wide_heads(p, &p->q_out) && wide_heads(p, &p->k_out);
}

static tigon_status turn(tigon_queue *queue, const tigon_rope_problem *p, float sign) {
  static cuda_kernel half_wide[3] = CUDA_KERNELS(rope, rope_half_wide);
  static cuda_kernel half_any[3] = CUDA_KERNELS(rope, rope_half_any);
  static cuda_kernel interleaved_wide[3] = CUDA_KERNELS(rope, rope_interleaved_wide);
  static cuda_kernel interleaved_any[3] = CUDA_KERNELS(rope, rope_interleaved_any);
  const int64_t most = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = wide_problem(p, most), half = p->layout == TIGON_ROPE_HALF;
  const int64_t lanes = wide ? most : 1;
  rope_walk w = {
      .groups = cuda_ceil_div(p->q.heads + p->k.heads, ROPE_HEADS), .pairs = p->rotary_dim / 2 / lanes, .sign = sign};
  w.pieces = w.pairs + (p->head_dim - p->rotary_dim) / lanes;
  const int64_t threads = p->batch * p->tokens * w.groups * w.pieces;
  w.few = threads <= UINT32_MAX - ROPE_THREADS;
  cuda_kernel *kernels = half ? (wide ? half_wide : half_any) : (wide ? interleaved_wide : interleaved_any);
  const cuda_shape shape = {.blocks = cuda_ceil_div(threads, ROPE_THREADS), .threads = ROPE_THREADS};
  return cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &w));
}

tigon_status tigon_cuda_rope_fwd(tigon_queue *queue, const tigon_rope_problem *p, const tigon_plan *plan) {
  (void)plan;
  return turn(queue, p, 1);
}

tigon_status tigon_cuda_rope_bwd(tigon_queue *queue, const tigon_rope_problem *p, const tigon_plan *plan) {
  (void)plan;
  return turn(queue, p, -1);
}
