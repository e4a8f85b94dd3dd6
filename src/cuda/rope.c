#include "cuda/rope.h"

#include <stdlib.h>

#include "cuda/kernels.h"

static bool wide_heads(const tigon_rope_problem *p, const tigon_heads *t) {
  return !t->data || cuda_wide_heads(t, p->dtype, 16 / (int)tigon_dtype_size(p->dtype));
}

/* A table whose rows are read pair by pair: of axes, or of complex numbers. */
static bool by_pairs(const tigon_rope_problem *p) { return p->axes > 1 || p->table_step > 1; }

/* May a head be worked on in packs of pairs? */
static bool wide_problem(const tigon_rope_problem *p, int64_t lanes) {
  const int64_t size = (int64_t)tigon_dtype_size(p->table_dtype);
  const bool wide_tables = by_pairs(p) || (cuda_wide(p->cos) && cuda_wide(p->sin) && p->table_pitch * size % 16 == 0 &&
                                           p->table_batch_pitch * size % 16 == 0);
  return p->rotary_dim / 2 % lanes == 0 && (p->head_dim - p->rotary_dim) % lanes == 0 && wide_tables &&
         wide_heads(p, &p->q) && wide_heads(p, &p->k) && wide_heads(p, &p->q_out) && wide_heads(p, &p->k_out);
}

static bool plain_heads(const tigon_rope_problem *p, const tigon_heads *t) {
  const int64_t reach = p->batch * p->tokens * llabs(t->token_pitch) + t->heads * llabs(t->head_pitch) + p->head_dim;
  return !t->data || (t->batch_pitch == p->tokens * t->token_pitch && reach <= INT32_MAX);
}

/* Whether a wide problem is plain. */
static bool is_plain(const tigon_rope_problem *p, const rope_walk *w) {
  enum { MOST_BATCHES = 65535 }; /* a grid's second extent */
  const int64_t table = p->axes * llabs(p->table_axis_pitch) + p->batch * llabs(p->table_batch_pitch) +
                        p->table_rows * llabs(p->table_pitch) + p->rotary_dim * p->table_step;
  return p->layout == TIGON_ROPE_HALF && w->pairs == w->pieces && w->groups * w->pieces <= ROPE_PLAIN_MOST &&
         p->batch <= MOST_BATCHES && p->batch * p->tokens <= INT32_MAX - ROPE_PLAIN_THREADS && table <= INT32_MAX &&
         p->axes * llabs(p->position_axis_pitch) + p->batch * llabs(p->position_pitch) + p->tokens <= INT32_MAX &&
         plain_heads(p, &p->q) && plain_heads(p, &p->k) && plain_heads(p, &p->q_out) && plain_heads(p, &p->k_out);
}

static rope_divisor divisor(int64_t by) { return (rope_divisor){(unsigned)by, (unsigned)cuda_ceil_div(1LL << 31, by)}; }
static rope_plain_heads heads_of(const tigon_heads *t) {
  return (rope_plain_heads){t->data, (int)t->heads, (int)t->token_pitch, (int)t->head_pitch};
}
static rope_plain plain_of(const tigon_rope_problem *p, const rope_walk *w, int block_tokens) {
  return (rope_plain){.of_token = divisor(w->groups * w->pieces),
                      .pieces = divisor(w->pieces),
                      .block_tokens = block_tokens,
                      .tokens = (int)p->tokens,
                      .groups = (int)w->groups,
                      .q = heads_of(&p->q),
                      .k = heads_of(&p->k),
                      .positions = p->positions,
                      .cos = p->cos,
                      .sin = p->sin,
                      .position_pitch = (int)p->position_pitch,
                      .table_batch_pitch = (int)p->table_batch_pitch,
                      .table_pitch = (int)p->table_pitch,
                      .table_rows = (int)p->table_rows,
                      .rotary_dim = (int)p->rotary_dim,
                      .position_dtype = p->position_dtype,
                      .table_dtype = p->table_dtype,
                      .sign = w->sign,
                      .q_out = heads_of(&p->q_out),
                      .k_out = heads_of(&p->k_out),
                      .error_flag = p->error_flag};
}

typedef cuda_kernel by_dtype[3];

static rope_plain_axes axes_of(const tigon_rope_problem *p) {
  rope_plain_axes of = {p->axes, (int)p->position_axis_pitch, (int)p->table_axis_pitch, (int)p->table_step, {{0}}};
  for (int i = 0; i < TIGON_ROPE_AXES; ++i)
    of.of[i] = (rope_plain_pairs){(int)p->pairs_of[i].first, (int)p->pairs_of[i].end, (int)p->pairs_of[i].step};
  return of;
}

/* By layout, then in packs or not; without and with axes or complex numbers. */
static cuda_kernel *kernel_of(const tigon_rope_problem *p, bool wide) {
  static by_dtype plain[2][2] = {{CUDA_KERNELS(rope, rope_half_any), CUDA_KERNELS(rope, rope_half_wide)},
                                 {CUDA_KERNELS(rope, rope_interleaved_any), CUDA_KERNELS(rope, rope_interleaved_wide)}};
  static by_dtype axes[2][2] = {
      {CUDA_KERNELS(rope, rope_half_axes_any), CUDA_KERNELS(rope, rope_half_axes_wide)},
      {CUDA_KERNELS(rope, rope_interleaved_axes_any), CUDA_KERNELS(rope, rope_interleaved_axes_wide)}};
  return (by_pairs(p) ? axes : plain)[p->layout == TIGON_ROPE_INTERLEAVED][wide];
}

static tigon_status turn(tigon_queue *queue, const tigon_rope_problem *p, float sign) {
  static cuda_kernel half_plain[3] = CUDA_KERNELS(rope, rope_half_plain),
                     half_plain_axes[3] = CUDA_KERNELS(rope, rope_half_plain_axes);
  const int64_t most = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = wide_problem(p, most);
  const int64_t lanes = wide ? most : 1;
  rope_walk w = {
      .groups = cuda_ceil_div(p->q.heads + p->k.heads, ROPE_HEADS), .pairs = p->rotary_dim / 2 / lanes, .sign = sign};
  w.pieces = w.pairs + (p->head_dim - p->rotary_dim) / lanes;
  const int64_t threads = p->batch * p->tokens * w.groups * w.pieces;
  w.few = threads <= UINT32_MAX - ROPE_THREADS;
  const cuda_shape shape = {.blocks = cuda_ceil_div(threads, ROPE_THREADS), .threads = ROPE_THREADS};
  if (!wide || !is_plain(p, &w))
    return cuda_launch(queue, cuda_by_dtype(kernel_of(p, wide), p->dtype), shape, CUDA_ARGUMENTS((void *)p, &w));
  const int of_token = (int)(w.groups * w.pieces),
            tokens = of_token < ROPE_PLAIN_THREADS ? ROPE_PLAIN_THREADS / of_token : 1;
  cuda_shape shape_plain = {
      .blocks = cuda_ceil_div(p->tokens, tokens), .rows = (int)p->batch, .threads = tokens * of_token};
  rope_plain plain = plain_of(p, &w, tokens);
  if (by_pairs(p)) {
    rope_plain_axes axes = axes_of(p);
    shape_plain.shared_bytes = tokens * (int)p->rotary_dim * (int)sizeof(float);
    return cuda_launch(queue, cuda_by_dtype(half_plain_axes, p->dtype), shape_plain, CUDA_ARGUMENTS(&plain, &axes));
  }
  return cuda_launch(queue, cuda_by_dtype(half_plain, p->dtype), shape_plain, CUDA_ARGUMENTS(&plain));
}

tigon_status tigon_cuda_rope_fwd(tigon_queue *queue, const tigon_rope_problem *p) { return turn(queue, p, 1); }

tigon_status tigon_cuda_rope_bwd(tigon_queue *queue, const tigon_rope_problem *p) { return turn(queue, p, -1); }
