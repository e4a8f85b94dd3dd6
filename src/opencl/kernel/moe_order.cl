/* The order of fused_moe's slots. A work-item sorts a chunk, whose slots it goes through in order. */
#include "common.cl"
#include "moe.h"

static inline long expert_of(memory idx, const moe_order *o, long s) {
  const long e = load_int(idx, s, o->idx_dtype);
  return e >= 0 && e < o->experts ? e : o->experts;
}

#define CHUNK_OF(o)                                                                                   \
  const long chunk = (long)get_global_id(0);                                                          \
  if (chunk >= (o).chunks) return;                                                                    \
  const long begin = chunk * (o).chunk, end = min(begin + (o).chunk, (long)(o).slots);                \
  __global int *const counts = (__global int *)memory_of(count) + chunk * ((o).experts + 1);

__kernel void moe_count(TENSOR(idx), TENSOR(count), const moe_order o) {
  CHUNK_OF(o)
  for (long e = 0; e <= o.experts; ++e) counts[e] = 0;
  for (long s = begin; s < end; ++s) ++counts[expert_of(memory_of(idx), &o, s)];
}

/* A work-item has an expert: sums over the chunks before each one; first[e] = all of them. */
__kernel void moe_before(TENSOR(count), TENSOR(first), const moe_order o) {
  const long e = (long)get_global_id(0);
  if (e > o.experts) return;
  int before = 0;
  for (long c = 0; c < o.chunks; ++c) {
    __global int *const at = (__global int *)memory_of(count) + c * (o.experts + 1) + e;
    const int own = *at;
    *at = before;
    before += own;
  }
  ((__global int *)memory_of(first))[e] = before;
}

/* By one work-item: first from all counts. */
__kernel void moe_first(TENSOR(first), const moe_order o) {
  __global int *const firsts = (__global int *)memory_of(first);
  int before = 0;
  if (get_global_id(0) != 0) return;
  for (long e = 0; e <= o.experts; ++e) {
    const int own = firsts[e];
    firsts[e] = before;
    before += own;
  }
  firsts[o.experts + 1] = before;
}

__kernel void moe_place(TENSOR(idx), TENSOR(count), TENSOR(first), TENSOR(slot), TENSOR(position), const moe_order o) {
  CHUNK_OF(o)
  for (long s = begin; s < end; ++s) {
    const long e = expert_of(memory_of(idx), &o, s);
    const int at = ((__global const int *)memory_of(first))[e] + counts[e]++;
    ((__global int *)memory_of(slot))[at] = (int)s;
    ((__global int *)memory_of(position))[s] = at;
  }
}
