/* modulated_rms_norm backward, from P and Q of each group (norm_bwd.c): dscale = (w + w_offset) * P, dshift = Q, and over the
 * groups in order dw += (1 + scale) * P. */
#include "ascend/kernel/modulated_rms_norm.h"

#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"

typedef struct state {
  const modulated_sums_arguments *a;
  ring in, before, out;
  columns w, scale;
  ub_f32 sum, dw;
} state;

/* sum = P (0) or Q (1) of a group, columns [c, c + n). */
AICORE void sum_of_group(state *s, int64_t which, int64_t group, int64_t c, int64_t n) {
  const modulated_sums_arguments *a = s->a;
  const int64_t groups = a->space.rows;
  add_slabs(&s->in, s->sum, a->slabs + ((which * groups + group) * a->cols + c) * 4, a->count,
            MODULATED_SUMS * groups * a->cols, n);
}

AICORE void gradients_of_group(state *s, int64_t group, int64_t c, int64_t n) {
  const modulated_sums_arguments *a = s->a;
  const int64_t filled = round_up(n, 8), pitch = round_up(n, 16); /* elements of f32; elements of any dtype */
  if (a->dw || a->dscale.data) sum_of_group(s, 0, group, c, n);
  if (a->dw) {
    s->scale.from = row_at(&a->space, &a->scale, dtype_bytes(a->scale_dtype), group, 0);
    columns_load(&s->scale, c, n, pitch);
    mul(s->scale.values, s->scale.values, s->sum, filled);
    v_add_f32(s->dw, s->dw, s->scale.values, filled);
    sync_pipe(PIPE_V);
  }
  if (a->dscale.data) {
    if (a->weight) mul(s->sum, s->sum, s->w.values, filled);
    put_sums(&s->before, &s->out, s->sum, row_at(&a->space, &a->dscale, dtype_bytes(a->dscale_dtype), group, c),
             a->dscale_dtype, a->accumulate_dscale, n);
  }
  if (!a->dshift.data) return;
  sum_of_group(s, 1, group, c, n);
  put_sums(&s->before, &s->out, s->sum, row_at(&a->space, &a->dshift, dtype_bytes(a->dshift_dtype), group, c),
           a->dshift_dtype, a->accumulate_dscale, n);
}

AICORE_KERNEL(modulated_sums, modulated_sums_arguments) {
  state s = {.a = a};
  s.in = ring_of(ub, 0, 2, a->chunk * 4);
  s.before = ring_of(ub, 2, 1, a->chunk * 4);
  s.out = ring_of(ub, 0, 1, a->chunk * 4);
  const ub_f32 stage = ub_alloc_f32(ub, a->chunk);
  s.w = columns_of(ub, 3, a->weight, a->w_dtype, a->w_offset, a->chunk, stage, true);
  s.scale = columns_of(ub, 3, a->scale.data, a->scale_dtype, 1, a->chunk, stage, true);
  s.sum = ub_alloc_f32(ub, a->chunk);
  s.dw = ub_alloc_f32(ub, a->chunk);
  in_open(&s.in);
  in_open(&s.before);
  in_open(&s.w.stage);
  out_open(&s.out);
  for (int64_t c = block_index() * a->chunk; c < a->cols; c += block_count() * a->chunk) {
    const int64_t n = least(a->chunk, a->cols - c);
    if (a->weight && a->dscale.data) columns_load(&s.w, c, n, round_up(n, 16));
    v_duplicate_f32(s.dw, 0, a->chunk);
    sync_pipe(PIPE_V);
    for (int64_t group = 0; group < a->space.rows; ++group) gradients_of_group(&s, group, c, n);
    if (a->dw)
      put_sums(&s.before, &s.out, s.dw, a->dw + c * dtype_bytes(a->dw_dtype), a->dw_dtype, a->accumulate_dw, n);
  }
  in_close(&s.in);
  in_close(&s.before);
  in_close(&s.w.stage);
  out_close(&s.out);
}
