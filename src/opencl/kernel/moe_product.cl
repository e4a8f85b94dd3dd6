/* The products of fused_moe, of the slots of each expert: gemm_tile.h with rows that are looked up. Where an expert's slots are is known on the
 * device alone, so there are tiles for the most that may be needed. */
#include "common.cl"
#include "moe.h"

/* Lines that begin `pitch` apart, or, with `slot`, as the rows of slots' tokens; line i is number from + i of them. */
typedef struct gemm_lines {
  long base, pitch, from;
  __global const int *slot;
  const moe_product *q;
  const cl_pitch *of;
} gemm_lines;
static inline long gemm_line(const gemm_lines *l, long i) {
  if (!l->slot) return l->base + (l->from + i) * l->pitch;
  return row_offset(&l->q->space, l->of, l->slot[l->from + i] / l->q->order.top_k);
}

/* The tile's sums go to `at` and on; `w` NULL: not weighted. */
typedef struct gemm_result {
  memory out, bias, w;
  __global const int *slot; /* the slot of the tile's first row */
  long at, pitch, bias_at;
  int dtype, bias_dtype, w_dtype, accumulate;
} gemm_result;
static inline void gemm_put(const gemm_result *to, int row, int col, int n, vf v) {
  const long at = to->at + row * to->pitch + col;
  if (to->bias) v += load_n(to->bias, to->bias_at + col, to->bias_dtype, n);
  if (to->w) v *= load_one(to->w, to->slot[row], to->w_dtype);
  if (to->accumulate) v += load_n(to->out, at, to->dtype, n);
  store_n(to->out, at, to->dtype, n, v);
}
#include "gemm_tile.h"

static inline gemm_lines lines_of(const moe_product *q, const moe_rows *r, __global const int *slot, long from) {
  return (gemm_lines){0, r->pitch.of[2], from, r->of_tokens ? slot : 0, q, &r->pitch};
}

/* Expert e has the places from first[e] / TILE + e on, which are enough for it; some have no rows. */
static inline long first_place(__global const int *first, long e) { return first[e] / GEMM_TILE + e; }
static inline long expert_at(__global const int *first, long experts, long place) {
  long e = 0, past = experts;
  while (past - e > 1) {
    const long middle = e + (past - e) / 2;
    if (first_place(first, middle) <= place)
      e = middle;
    else
      past = middle;
  }
  return e;
}

__kernel void moe_by_rows(TENSOR(a), TENSOR(b), TENSOR(out), TENSOR(bias), TENSOR(w), TENSOR(first), TENSOR(slot),
                          const moe_product q) {
  GEMM_MEMORY
  __global const int *const firsts = (__global const int *)memory_of(first);
  __global const int *const slots = (__global const int *)memory_of(slot);
  const long across = (q.n + GEMM_TILE - 1) / GEMM_TILE, place = (long)get_group_id(0) / across;
  const long e = expert_at(firsts, q.order.experts, place), col = (long)get_group_id(0) % across * GEMM_TILE;
  const long row = firsts[e] + (place - first_place(firsts, e)) * GEMM_TILE, end = firsts[e + 1];
  if (row >= end) return;
  const gemm_side of_a = {memory_of(a), q.a.dtype, true, gemm_extent(end, row), row, lines_of(&q, &q.a, slots, 0)};
  const gemm_side of_b = {memory_of(b), T, !q.by_term, gemm_extent(q.n, col), col, {e * q.expert, q.pitch, 0, 0, &q, 0}};
  const gemm_result to = {memory_of(out), or_null(bias), or_null(w),
                          slots + row, row * q.n + col, q.n, e * q.n + col, q.out_dtype, q.bias_dtype, q.w_dtype, false};
  gemm_multiply(&of_a, &of_b, q.k, &to);
}

__kernel void moe_by_terms(TENSOR(a), TENSOR(b), TENSOR(out), TENSOR(first), TENSOR(slot), const moe_product q) {
  GEMM_MEMORY
  __global const int *const firsts = (__global const int *)memory_of(first);
  __global const int *const slots = (__global const int *)memory_of(slot);
  const long across = (q.n + GEMM_TILE - 1) / GEMM_TILE, down = (q.m + GEMM_TILE - 1) / GEMM_TILE;
  const long tile = (long)get_group_id(0), e = tile / (across * down);
  const long row = tile / across % down * GEMM_TILE, col = tile % across * GEMM_TILE;
  const long begin = firsts[e], terms = firsts[e + 1] - begin;
  if (q.accumulate && terms == 0) return;
  const gemm_side of_a = {memory_of(a), T, false, gemm_extent(q.m, row), row, lines_of(&q, &q.a, slots, begin)};
  const gemm_side of_b = {memory_of(b), T, false, gemm_extent(q.n, col), col, lines_of(&q, &q.b, slots, begin)};
  const gemm_result to = {memory_of(out), 0, 0, 0, e * q.expert + row * q.pitch + col, q.pitch, 0,
                          q.out_dtype, 0, 0, q.accumulate};
  gemm_multiply(&of_a, &of_b, terms, &to);
}
