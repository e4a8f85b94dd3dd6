/* Mean and variance of rows. The mean is kept as center + rest. The center is an f32 mean, so differences from it lose nothing
 * that counts. The rest is the mean of those differences. Squares are of differences from both. So a large mean costs no digits
 * and no lane decides anything. Chunks are joined after Chan, Golub & LeVeque 1983. */
#ifndef TIGON_ASCEND_KERNEL_MOMENTS_H
#define TIGON_ASCEND_KERNEL_MOMENTS_H

#include "ascend/kernel/rows.h"

/* A value a row each; squares: the sum of squared differences from the mean; lost: what that lost where chunks were joined. */
typedef struct moments {
  ub_f32 center, rest, squares, lost;
} moments;

enum { MOMENT_WORDS = 4 }; /* that a part of a split row hands over: center, rest, squares, count */

AICORE moments moments_of(ub_arena *ub, int64_t words) {
  const ub_f32 all = ub_alloc_f32(ub, 4 * words);
  v_duplicate_f32(all, 0, 4 * words);
  sync_pipe(PIPE_V);
  return (moments){all, ub_at_f32(all, words), ub_at_f32(all, 2 * words), ub_at_f32(all, 3 * words)};
}

/* A center is any finite number near the mean: an Inf goes into the rest, so that the sum of both is what the mean must be. */
AICORE void keep_finite(ub_f32 center, int64_t words) {
  v_min_scalar_f32(center, center, 0x1p100f, words);
  sync_pipe(PIPE_V);
  v_max_scalar_f32(center, center, -0x1p100f, words);
  sync_pipe(PIPE_V);
}

/* d = x - value of each row. */
AICORE void subtract_rows(ub_f32 d, ub_f32 x, ub_f32 value, ub_f32 work, tile t) {
  by_rows(ROW_SUB, d, x, value, work, t);
}

/* value = the mean of a row of x. */
AICORE void row_means(ub_f32 value, ub_f32 x, ub_f32 work, tile t) {
  row_sums_kept(value, work, x, t);
  v_mul_scalar_f32(value, value, 1.0f / (float)t.cols, round_up(t.rows, 8));
  sync_pipe(PIPE_V);
}

/* The moments of the rows of x, and d = x - mean; d may be x. */
AICORE void find_moments(moments m, ub_f32 d, ub_f32 x, ub_f32 work, tile t) {
  v_duplicate_f32(m.lost, 0, round_up(t.rows, 8));
  row_means(m.center, x, work, t);
  keep_finite(m.center, round_up(t.rows, 8));
  subtract_rows(d, x, m.center, work, t);
  row_means(m.rest, d, work, t);
  subtract_rows(d, d, m.rest, work, t);
  v_mul_f32(work, d, d, t.rows * t.pitch);
  sync_pipe(PIPE_V);
  row_sums(m.squares, work, t);
}

/* m, of `count` columns, and those of `more` others, which are used up. */
AICORE void join_moments(moments m, int64_t count, moments others, int64_t more, ub_f32 work, int64_t words) {
  const float all = (float)(count + more), share = (float)more / all;
  v_sub_f32(others.center, others.center, m.center, words);
  v_sub_f32(work, others.rest, m.rest, words);
  sync_pipe(PIPE_V);
  v_add_f32(work, work, others.center, words); /* from mean to mean */
  v_add_f32(others.rest, others.rest, others.center, words);
  v_mul_scalar_f32(m.rest, m.rest, (float)count / all, words);
  sync_pipe(PIPE_V);
  v_mul_f32(work, work, work, words);
  v_mul_scalar_f32(others.rest, others.rest, share, words);
  sync_pipe(PIPE_V);
  v_mul_scalar_f32(work, work, (float)count * share, words);
  v_add_f32(m.rest, m.rest, others.rest, words);
  sync_pipe(PIPE_V);
  v_add_f32(others.squares, others.squares, work, words);
  sync_pipe(PIPE_V);
  v_add_f32(work, m.squares, others.squares, words);
  sync_pipe(PIPE_V);
  v_sub_f32(others.rest, work, m.squares, words);
  sync_pipe(PIPE_V);
  v_sub_f32(others.rest, others.squares, others.rest, words);
  v_mul_scalar_f32(m.squares, work, 1, words);
  sync_pipe(PIPE_V);
  v_add_f32(m.lost, m.lost, others.rest, words);
  v_add_f32(work, m.center, m.rest, words);
  sync_pipe(PIPE_V);
  keep_finite(work, words);
  v_sub_f32(others.center, work, m.center, words);
  sync_pipe(PIPE_V);
  v_sub_f32(m.rest, m.rest, others.center, words);
  v_mul_scalar_f32(m.center, work, 1, words);
  sync_pipe(PIPE_V);
}
/* After the last of them. */
AICORE void end_joins(moments m, int64_t words) {
  v_add_f32(m.squares, m.squares, m.lost, words);
  sync_pipe(PIPE_V);
}

/* The moments of row r from those of its splits, [rows, MOMENT_WORDS, splits]; `arrival` has room for a row's. */
AICORE void join_split_moments(moments m, ring *arrival, gm_ptr partials, int64_t splits, int64_t cols, int64_t r,
                               ub_f32 work) {
  const tile t = tile_of(TIGON_F32, 1, splits);
  const ub_f32 mean = arrival->start, other = ub_at_f32(mean, t.pitch), squares = ub_at_f32(other, t.pitch),
               count = ub_at_f32(squares, t.pitch);
  in_begin(arrival);
  load_f32(arrival->start, partials + r * splits * MOMENT_WORDS * 4, MOMENT_WORDS, splits);
  in_ready(arrival);
  row_means(m.center, mean, work, t);
  keep_finite(m.center, 8);
  subtract_rows(mean, mean, m.center, work, t);
  v_add_f32(mean, mean, other, t.pitch);
  sync_pipe(PIPE_V);
  v_mul_f32(other, mean, count, t.pitch);
  sync_pipe(PIPE_V);
  row_sums(m.rest, other, t);
  v_mul_scalar_f32(m.rest, m.rest, 1.0f / (float)cols, 8);
  sync_pipe(PIPE_V);
  subtract_rows(mean, mean, m.rest, work, t);
  v_mul_f32(other, mean, mean, t.pitch);
  sync_pipe(PIPE_V);
  v_mul_f32(other, other, count, t.pitch);
  sync_pipe(PIPE_V);
  v_add_f32(other, other, squares, t.pitch);
  sync_pipe(PIPE_V);
  row_sums(m.squares, other, t);
  in_done(arrival);
}

#endif
