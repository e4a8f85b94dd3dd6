/* What the kernels of fused_moe share: integers and weights that the scalar pipe reads. */
#ifndef TIGON_ASCEND_KERNEL_MOE_WORDS_H
#define TIGON_ASCEND_KERNEL_MOE_WORDS_H

#include "ascend/kernel/moe.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

/* The first of `count` words of global memory; `room` keeps all of them. */
AICORE int64_t moe_word(ub_f32 room, gm_ptr from, int64_t count) {
  loads_after_scalar();
  load_f32(room, from, 1, count);
  scalar_after_loads();
  return s_read_i32(room, 0);
}

/* The position of the first slot of no expert. */
AICORE int64_t moe_used(ub_f32 room, const moe_sorted *order, int64_t experts) {
  return moe_word(room, order->first + experts * 4, 1);
}

/* n weights, which were loaded to `raw`, in f32 for the scalar pipe; `wide` has room for them. */
AICORE ub_f32 moe_weights(int64_t dtype, ub_f32 wide, ub_f32 raw, int64_t n) {
  if (dtype == TIGON_F32) return raw;
  vectors_after_loads();
  vectors_after_scalar();
  widen(dtype, wide, raw, n);
  scalar_after_vectors();
  return wide;
}

/* The expert of index i, `experts` for none. */
AICORE int64_t moe_expert(int64_t dtype, ub_f32 indices, int64_t i, int64_t experts) {
  const int64_t e = s_read_index(dtype, indices, i);
  return e >= 0 && e < experts ? e : experts;
}

/* An f32 tile to the output's place, rounded to its dtype. */
AICORE void put(int64_t dtype, ub_f32 to, ub_f32 from, int64_t n) {
  if (dtype == TIGON_F32)
    mul_scalar(to, from, 1, n);
  else
    narrow(dtype, to, from, n);
}

/* Rows that lie end to end. */
AICORE gm_space moe_space(int64_t rows) { return (gm_space){rows, 1, rows, 1}; }
AICORE gm_rows moe_rows(gm_ptr data, int64_t cols) { return (gm_rows){data, {0, 0, cols}, 1}; }

#endif
