/* Kernels without a reduction: all of the plan's cases are tiles of rows and columns, each loaded, worked on and stored once. */
#ifndef TIGON_ASCEND_KERNEL_POINTWISE_H
#define TIGON_ASCEND_KERNEL_POINTWISE_H

#include "ascend/kernel/rows.h"

enum { POINTWISE_IN = 3, POINTWISE_OUT = 2, POINTWISE_WORK = 5 };

typedef struct pointwise_arguments {
  walk w;
  gm_space space;
  gm_rows in[POINTWISE_IN], out[POINTWISE_OUT];
  int64_t dtype;
  /* What the operator has of tigon_map_numbers. */
  int64_t approx;
  float gate, down, clamp, up_offset;
  gm_ptr factor; /* [1] f32 */
} pointwise_arguments;

/* value[i]: input i in f32, where it was loaded or a copy, which may be worked on. work[i]: more f32 tiles.
 * result[i]: where output i is worked out in f32: its own buffer, or with 16-bit dtypes the place of input i, unless a kernel
 * chooses another. */
typedef struct pointwise {
  const pointwise_arguments *a;
  int inputs, outputs;
  ring in, out;
  int64_t elements; /* f32 elements of one tensor's tile in a buffer */
  ub_f32 wide, value[POINTWISE_IN], work[POINTWISE_WORK], result[POINTWISE_OUT];
  int64_t wide_elements;
  /* The tile that is worked on: its place, its task's box, and its elements, the padding of its rows included. */
  int64_t task, row, col, n;
  box b;
  tile t;
} pointwise;

AICORE pointwise pointwise_open(ub_arena *ub, const pointwise_arguments *a, int inputs, int outputs, int work) {
  const tile t = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const int64_t bytes = round_up(tile_bytes(a->dtype, t), UB_BLOCK);
  pointwise p = {.a = a, .inputs = inputs, .outputs = outputs, .elements = bytes / 4};
  p.in = ring_of(ub, 0, 2, inputs * bytes);
  p.out = ring_of(ub, 0, 2, outputs * bytes);
  p.wide_elements = a->dtype == TIGON_F32 ? 0 : t.rows * t.pitch;
  p.wide = ub_alloc_f32(ub, inputs * p.wide_elements);
  for (int i = 0; i < work; ++i) p.work[i] = ub_alloc_f32(ub, t.rows * t.pitch);
  in_open(&p.in);
  out_open(&p.out);
  p.task = -1;
  return p;
}

AICORE void pointwise_close(const pointwise *p) {
  in_close(&p->in);
  out_close(&p->out);
}

/* The next tile's place; false after the last one. */
AICORE bool pointwise_step(pointwise *p) {
  const walk *w = &p->a->w;
  const bool first = p->task < 0;
  if (!first) p->col += w->tile_cols;
  if (!first && p->col >= p->b.col_end) p->col = p->b.col, p->row += w->tile_rows;
  if (!first && p->row < p->b.row_end) return true;
  p->task = first ? block_index() : p->task + block_count();
  if (p->task >= w->tasks) return false;
  p->b = walk_task(w, p->task);
  p->row = p->b.row;
  p->col = p->b.col;
  return true;
}

/* Loads the next tile; value[] are its inputs, and result[] may be written after this. */
AICORE bool pointwise_next(pointwise *p) {
  const int64_t dtype = p->a->dtype;
  if (!pointwise_step(p)) return false;
  p->t =
      tile_of(dtype, least(p->a->w.tile_rows, p->b.row_end - p->row), least(p->a->w.tile_cols, p->b.col_end - p->col));
  p->n = p->t.rows * p->t.pitch;
  in_begin(&p->in);
  for (int i = 0; i < p->inputs; ++i)
    load_tile(dtype, ub_at_f32(ring_now(&p->in), i * p->elements), &p->a->space, &p->a->in[i], p->t, p->row, p->col);
  in_ready(&p->in);
  out_begin(&p->out);
  for (int i = 0; i < p->inputs; ++i) {
    const ub_f32 raw = ub_at_f32(ring_now(&p->in), i * p->elements);
    p->value[i] = dtype == TIGON_F32 ? raw : ub_at_f32(p->wide, i * p->wide_elements);
    if (dtype != TIGON_F32) widen(dtype, p->value[i], raw, p->n);
  }
  for (int i = 0; i < p->outputs; ++i)
    p->result[i] = dtype == TIGON_F32 ? ub_at_f32(ring_now(&p->out), i * p->elements) : p->value[i];
  return true;
}

/* Stores the outputs. The vector pipe is in order. */
AICORE void pointwise_end(pointwise *p) {
  const int64_t dtype = p->a->dtype;
  in_done(&p->in);
  for (int i = 0; i < p->outputs && dtype != TIGON_F32; ++i)
    narrow(dtype, ub_at_f32(ring_now(&p->out), i * p->elements), p->result[i], p->n);
  out_ready(&p->out);
  for (int i = 0; i < p->outputs; ++i)
    store_tile(dtype, &p->a->space, &p->a->out[i], ub_at_f32(ring_now(&p->out), i * p->elements), p->t, p->row, p->col);
  out_done(&p->out);
}

/* A kernel that works on each tile by formula(&p). `work`: tiles that it takes besides. */
#define POINTWISE_KERNEL(name, inputs, outputs, work, formula)  \
  AICORE_KERNEL(name, pointwise_arguments) {                    \
    pointwise p = pointwise_open(ub, a, inputs, outputs, work); \
    while (pointwise_next(&p)) {                                \
      formula(&p);                                              \
      pointwise_end(&p);                                        \
    }                                                           \
    pointwise_close(&p);                                        \
  }

/* The kernels. */
void swiglu_fwd(ub_arena *ub, const void *arguments);
void swiglu_bwd(ub_arena *ub, const void *arguments);
void geglu_fwd(ub_arena *ub, const void *arguments);
void geglu_bwd(ub_arena *ub, const void *arguments);
void relu_squared_fwd(ub_arena *ub, const void *arguments);
void relu_squared_bwd(ub_arena *ub, const void *arguments);
void scale_fwd(ub_arena *ub, const void *arguments);

#endif
