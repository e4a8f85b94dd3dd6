/* sparsemax: y = max(z - tau, 0) of z = x - max x, and backward dx = dy - the mean of dy, where y > 0. What is so is a factor of 1 or
 * 0, a NaN of NaN; nothing is compared.
 *
 * Forward, tau grows from round to round to (sum of its members, which are above it, minus 1) / (how many). The first rounds are
 * over a few large z, whose tau is less than the row's. For a row by itself they are the largest of 64 or fewer groups. If a row
 * comes in chunks, they are the largest of the columns at one place in each chunk. Then they are over all of a tile's rows at
 * once, until none of them grows. */
#include "ascend/kernel/bits.h"
#include "ascend/kernel/reduce.h"

#define LOWEST (-0x1.fffffep127f) /* in the place of a largest x of -inf, so that -inf - it is -inf */

void sparsemax_fwd(ub_arena *ub, const void *arguments);
void sparsemax_bwd(ub_arena *ub, const void *arguments);

enum { SUM, COUNT }; /* the engine's sums */

typedef struct state {
  reduction rows;
  ub_f32 z, factor; /* f32 tiles */
  /* Forward's: a value a row; the largest z of groups of one row. */
  ub_f32 largest, tau, next, grew, ones, groups;
} state;

AICORE ub_f32 words_of(const state *s, ub_arena *ub, float value) {
  const ub_f32 array = ub_alloc_f32(ub, s->rows.words);
  duplicate(array, value, s->rows.words);
  return array;
}

AICORE state open_state(ub_arena *ub, const reduce_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  state s = {.rows = reduce_open(ub, a, 2)};
  s.z = ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.factor = ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  return s;
}

AICORE void open_words(state *s, ub_arena *ub) {
  s->largest = words_of(s, ub, 0);
  s->tau = words_of(s, ub, 0);
  s->next = words_of(s, ub, 0);
  s->grew = words_of(s, ub, 0);
  s->ones = words_of(s, ub, 1);
  s->groups = ub_alloc_f32(ub, V_LANES);
}

/* ---- forward ---- */

/* Sums of the members of a tile of z, and how many there are. */
AICORE void add_members(const state *s, ub_f32 z, tile t, ub_f32 sum, ub_f32 count) {
  const int64_t n = t.rows * t.pitch;
  by_rows(ROW_SUB, s->factor, z, s->tau, s->rows.work, t);
  make_factor(s->factor, n);
  row_sums_kept(count, s->rows.work, s->factor, t);
  mul(s->factor, s->factor, z, n);
  row_sums(sum, s->factor, t);
}

/* A round's end, from the sums of its members. Does tau of some row grow? */
AICORE bool grow(const state *s) {
  const reduction *r = &s->rows;
  const ub_f32 count = reduce_sum(r, COUNT);
  at_least(count, count, 1, r->rows);
  add_scalar(s->next, reduce_sum(r, SUM), -1, r->rows);
  divide(s->next, s->next, count, r->rows);
  sub(s->grew, s->next, s->tau, r->rows);
  v_max_f32(s->tau, s->tau, s->next, r->rows);
  make_factor(s->grew, r->rows);
  mul_scalar(s->grew, s->grew, -1, r->rows);
  v_i32_from_f32(s->grew, s->grew, r->rows); /* a NaN does not grow any more */
  sync_pipe(PIPE_V);
  v_and_f32(s->grew, s->grew, s->ones, r->rows);
  sync_pipe(PIPE_V);
  row_maxima(s->next, s->grew, tile_of(TIGON_F32, 1, r->rows));
  scalar_waits();
  const bool grows = s_read_f32(s->next, 0) > 0;
  vector_waits();
  return grows;
}

AICORE void grow_over(const state *s, ub_f32 z, tile t) {
  const reduction *r = &s->rows;
  do add_members(s, z, t, reduce_sum(r, SUM), reduce_sum(r, COUNT));
  while (grow(s));
}

/* Does a row stay on chip in one chunk? */
AICORE bool is_whole(const state *s) { return s->rows.a->w.cached && s->rows.a->w.tile_cols == s->rows.a->w.cols; }

/* z of the chunk at work, from -1 on: what is less is no member. */
AICORE void find_z(const state *s, ub_f32 x, tile t) {
  by_rows(ROW_SUB, s->z, x, s->largest, s->rows.work, t);
  at_least(s->z, s->z, -1, t.rows * t.pitch);
}

/* z, with what fills up a row hidden. */
AICORE void load_z(const state *s) {
  const reduction *r = &s->rows;
  mul_scalar(s->z, r->value[0], 1, r->n);
  hide_filling(s->z, r->work, r->t);
  find_z(s, s->z, r->t);
}

/* The largest x of each row; in `z` the rows' z, or of chunks the largest at each place. That tile is returned. */
AICORE tile find_largest(state *s) {
  reduction *r = &s->rows;
  tile first = r->t;
  while (reduce_next_chunk(r)) {
    if (r->col == r->b.col) {
      first = r->t;
      mul_scalar(s->z, r->value[0], 1, r->n);
      hide_filling(s->z, r->work, r->t);
    } else { /* chunks are of one row */
      v_max_f32(s->z, s->z, r->value[0], r->t.cols);
      sync_pipe(PIPE_V);
    }
  }
  row_maxima_kept(s->largest, s->factor, s->z, first);
  at_least(s->largest, s->largest, LOWEST, first.rows);
  find_z(s, s->z, first);
  return first;
}

/* The same over the largest of groups, where there is one wide row. */
AICORE void grow_over_groups(const state *s, tile t) {
  int64_t left = t.cols;
  if (t.rows > 1 || left <= 4 * V_LANES) return;
  mul_scalar(s->factor, s->z, 1, left);
  while (left > V_LANES) {
    const int64_t half = round_up((left + 1) / 2, 8);
    v_max_f32(s->factor, s->factor, ub_at_f32(s->factor, half), left - half);
    sync_pipe(PIPE_V);
    left = half;
  }
  mul_scalar(s->groups, s->factor, 1, left);
  grow_over(s, s->groups, tile_of(TIGON_F32, 1, left));
}

AICORE void find_tau(state *s) {
  reduction *r = &s->rows;
  const tile t = find_largest(s);
  duplicate(s->tau, -1, r->words);
  grow_over_groups(s, t);
  grow_over(s, s->z, t);
  if (is_whole(s)) return;
  do
    while (reduce_next_sums(r)) {
      load_z(s);
      add_members(s, s->z, r->t, reduce_chunk_sum(r, SUM), reduce_chunk_sum(r, COUNT));
    }
  while (grow(s));
}

AICORE_KERNEL(sparsemax_fwd, reduce_arguments) {
  state s = open_state(ub, a);
  reduction *r = &s.rows;
  open_words(&s, ub);
  while (reduce_next_task(r))
    while (reduce_next_rows(r)) {
      find_tau(&s);
      while (reduce_next_out(r)) {
        if (!is_whole(&s)) find_z(&s, r->value[0], r->t);
        by_rows(ROW_SUB, r->result, s.z, s.tau, r->work, r->t);
        at_least(r->result, r->result, 0, r->n);
      }
    }
  reduce_close(r);
}

/* ---- backward ---- */

/* z: the factor of y. factor: all of an element's bits where that is 1, none where it is 0 or a NaN. */
AICORE void find_support(const state *s) {
  const reduction *r = &s->rows;
  mul_scalar(s->z, r->value[1], 1, r->n);
  make_factor(s->z, r->n);
  mul_scalar(s->factor, s->z, -1, r->n);
  v_i32_from_f32(s->factor, s->factor, r->n);
  sync_pipe(PIPE_V);
}

/* x where y is of the support, else 0; a NaN or Inf in y makes a NaN. `factor` is used up. */
AICORE void of_support(const state *s, ub_f32 d, ub_f32 x) {
  const reduction *r = &s->rows;
  v_and_f32(d, x, s->factor, r->n);
  sync_pipe(PIPE_V);
  at_least(s->factor, r->value[1], 0, r->n);
  mul_scalar(s->factor, s->factor, 0, r->n);
  add(d, d, s->factor, r->n);
}

AICORE_KERNEL(sparsemax_bwd, reduce_arguments) {
  state s = open_state(ub, a);
  reduction *r = &s.rows;
  while (reduce_next_task(r))
    while (reduce_next_rows(r)) {
      while (reduce_next_sums(r)) {
        find_support(&s);
        row_sums_kept(reduce_chunk_sum(r, COUNT), r->work, s.z, r->t);
        of_support(&s, s.z, r->value[0]);
        row_sums(reduce_chunk_sum(r, SUM), s.z, r->t);
      }
      if (a->parts & PART_ROWS) {
        at_least(reduce_sum(r, COUNT), reduce_sum(r, COUNT), 1, r->rows);
        divide(reduce_sum(r, SUM), reduce_sum(r, SUM), reduce_sum(r, COUNT), r->rows);
      }
      while (reduce_next_out(r)) {
        find_support(&s);
        by_rows(ROW_SUB, s.z, r->value[0], reduce_sum(r, SUM), r->work, r->t);
        of_support(&s, r->result, s.z);
      }
    }
  reduce_close(r);
}
