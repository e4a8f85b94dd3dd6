/* What kernels of norms share: weights on chip, and a value a row from its sum. */
#ifndef TIGON_ASCEND_KERNEL_NORM_H
#define TIGON_ASCEND_KERNEL_NORM_H

#include "ascend/kernel/rows.h"

/* A vector of columns in f32, w + offset: of all columns where they stay on chip, else of the chunk that is worked
 * on. */
typedef struct columns {
  gm_ptr from; /* NULL: there is none */
  int64_t dtype;
  float offset;
  ub_f32 values;
  ring stage; /* where it arrives in its own dtype, one chunk ahead */
} columns;

AICORE columns columns_of(ub_arena *ub, int id, gm_ptr from, int64_t dtype, float offset, int64_t pitch, ub_f32 staged,
                          bool resident) {
  columns c = {from, dtype, offset, ub_alloc_f32(ub, pitch), {staged, 0, id, 1, 0}};
  if (!resident) c.stage = ring_of(ub, id, 1, pitch * 4);
  return c;
}
/* A stage that is a tile for other work in between: the next load waits for that. V waits for MTE2 in between, because a flag may
 * only be set when the wait before it is known to be done. */
AICORE void stage_again(ring *stage) {
  in_begin(stage);
  in_ready(stage);
  in_done(stage);
}
/* Columns [c, c + n), and 0 up to `pitch`, a multiple of 8. */
AICORE void columns_load(columns *w, int64_t c, int64_t n, int64_t pitch) {
  in_begin(&w->stage);
  load(w->dtype, w->stage.start, w->from + c * dtype_bytes(w->dtype), 1, n);
  in_ready(&w->stage);
  const int64_t filled = tile_of(w->dtype, 1, n).pitch;
  if (filled < pitch) v_duplicate_f32(ub_at_f32(w->values, filled), 0, pitch - filled);
  if (w->dtype == TIGON_F32) {
    v_add_scalar_f32(w->values, w->stage.start, w->offset, filled);
  } else {
    widen(w->dtype, w->values, w->stage.start, filled);
    v_add_scalar_f32(w->values, w->values, w->offset, filled);
  }
  sync_pipe(PIPE_V);
  in_done(&w->stage);
}

/* The first `count` elements of `from`, 16 at most, as numbers. Flag `id` is for nothing else. */
AICORE void read_numbers(ub_arena *ub, int id, gm_ptr from, int64_t dtype, int count, float *to) {
  enum { ROOM = 16 }; /* 32 bytes or more */
  columns c = columns_of(ub, id, from, dtype, 0, ROOM, ub_alloc_f32(ub, 0), false);
  in_open(&c.stage);
  columns_load(&c, 0, count, ROOM);
  scalar_waits();
  for (int i = 0; i < count; ++i) to[i] = s_read_f32(c.values, i);
  in_close(&c.stage);
}

/* sums /= cols, and not times 1 / cols, which is rounded. `scratch` has as many words. */
AICORE void divide_sums(ub_f32 sums, ub_f32 scratch, int64_t cols, int64_t words) {
  v_duplicate_f32(scratch, (float)cols, words);
  sync_pipe(PIPE_V);
  v_div_f32(sums, sums, scratch, words);
  sync_pipe(PIPE_V);
}
/* rstd = 1 / sqrt(of + eps); `of` is used up. */
AICORE void inverse_root(ub_f32 rstd, ub_f32 of, float eps, int64_t words) {
  v_add_scalar_f32(of, of, eps, words);
  v_duplicate_f32(rstd, 1, words);
  sync_pipe(PIPE_V);
  v_sqrt_f32(of, of, words);
  sync_pipe(PIPE_V);
  v_div_f32(rstd, rstd, of, words);
  sync_pipe(PIPE_V);
}

#endif
