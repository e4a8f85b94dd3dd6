/* The second stage of a gradient that is a sum over rows. */
#ifndef TIGON_ASCEND_KERNEL_COLUMN_SUMS_H
#define TIGON_ASCEND_KERNEL_COLUMN_SUMS_H

#include "ascend/kernel/rows.h"

enum { SUMS_LINE = 128 }; /* columns: 512 bytes, what a transfer at full rate starts on */

typedef struct column_sums_arguments {
  gm_ptr slabs, to;                 /* [count, cols] f32, `step` elements apart; [cols] */
  int64_t count, cols, step, chunk; /* chunk: columns of a task */
  int64_t dtype, accumulate;        /* dtype of `to`; 1: adds to what is there */
} column_sums_arguments;

void column_sums(ub_arena *ub, const void *arguments);

/* sum = the first n columns of `count` slabs, in index order. */
AICORE void add_slabs(ring *in, ub_f32 sum, gm_ptr slabs, int64_t count, int64_t step, int64_t n) {
  const int64_t filled = round_up(n, 8);
  v_duplicate_f32(sum, 0, filled);
  sync_pipe(PIPE_V);
  for (int64_t i = 0; i < count; ++i) {
    in_begin(in);
    load_f32(ring_now(in), slabs + i * step * 4, 1, n);
    in_ready(in);
    v_add_f32(sum, sum, ring_now(in), filled);
    sync_pipe(PIPE_V);
    in_done(in);
  }
}

/* to[0, n) = sum, onto what is there when asked, rounded once; sum is used up. Both rings have one buffer. */
AICORE void put_sums(ring *before, ring *out, ub_f32 sum, gm_ptr to, int64_t dtype, bool accumulate, int64_t n) {
  const int64_t filled = round_up(n, 8);
  out_begin(out);
  if (accumulate) {
    in_begin(before);
    load(dtype, before->start, to, 1, n);
    in_ready(before);
    const ub_f32 old = dtype == TIGON_F32 ? before->start : out->start;
    if (dtype != TIGON_F32) widen(dtype, old, before->start, filled);
    v_add_f32(sum, sum, old, filled);
    sync_pipe(PIPE_V);
    in_done(before);
  }
  if (dtype == TIGON_F32)
    v_mul_scalar_f32(out->start, sum, 1, filled);
  else
    narrow(dtype, out->start, sum, filled);
  sync_pipe(PIPE_V);
  out_ready(out);
  store(dtype, to, out->start, 1, n);
  out_done(out);
}

#endif
