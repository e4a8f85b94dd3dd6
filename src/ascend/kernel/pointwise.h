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
  return p;
}

AICORE void pointwise_close(const pointwise *p) {
  in_close(&p->in);
  out_close(&p->out);
}

/* Loads a tile; value[] are its inputs, and result[] may be written after this. */
AICORE void pointwise_begin(pointwise *p, tile t, int64_t r, int64_t c) {
  in_begin(&p->in);
  for (int i = 0; i < p->inputs; ++i)
    load_tile(p->a->dtype, ub_at_f32(ring_now(&p->in), i * p->elements), &p->a->space, &p->a->in[i], t, r, c);
  in_ready(&p->in);
  out_begin(&p->out);
  for (int i = 0; i < p->inputs; ++i) {
    const ub_f32 raw = ub_at_f32(ring_now(&p->in), i * p->elements);
    p->value[i] = p->a->dtype == TIGON_F32 ? raw : ub_at_f32(p->wide, i * p->wide_elements);
    if (p->a->dtype != TIGON_F32) widen(p->a->dtype, p->value[i], raw, t.rows * t.pitch);
  }
  for (int i = 0; i < p->outputs; ++i)
    p->result[i] = p->a->dtype == TIGON_F32 ? ub_at_f32(ring_now(&p->out), i * p->elements) : p->value[i];
}

/* Stores the outputs. The vector pipe is in order. */
AICORE void pointwise_end(pointwise *p, tile t, int64_t r, int64_t c) {
  const int64_t dtype = p->a->dtype;
  in_done(&p->in);
  for (int i = 0; i < p->outputs && dtype != TIGON_F32; ++i)
    narrow(dtype, ub_at_f32(ring_now(&p->out), i * p->elements), p->result[i], t.rows * t.pitch);
  out_ready(&p->out);
  for (int i = 0; i < p->outputs; ++i)
    store_tile(dtype, &p->a->space, &p->a->out[i], ub_at_f32(ring_now(&p->out), i * p->elements), t, r, c);
  out_done(&p->out);
}

#endif
