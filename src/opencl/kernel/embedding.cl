/* Forward reads a row of the table and writes it once. Backward sorts the positions by index, stably, in passes of a digit. Sorters count the
 * digits of their ranges. One group turns the counts into places for each sorter's digits, and sorters put their positions there. Then a row of
 * the table gets the sum of dy's rows in the order of the positions, and those without a position get zeros. dy is read once. */
#include "common.cl"
#include "embedding.h"

__kernel void embedding_fwd(TENSOR(table), TENSOR(idx), TENSOR(y), TENSOR(error), const embedding_fwd_numbers k) {
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long index = load_int(memory_of(idx), r, k.idx_dtype), to = row_offset(&k.space, &k.y, r);
    const bool legal = index >= 0 && index < k.vocab;
    if (!legal && is_there(error) && row_leads()) *(__global int *)memory_of(error) = 1;
    FOR_ROW(i, n, k.cols)
    store_n(memory_of(y), to + i, T, n, legal ? load_n(memory_of(table), index * k.table_pitch + i, T, n) : (vf)(0.0f));
  }
}

/* ---- the sort ---- */

static inline long key_of(memory idx, int dtype, long position, long vocab, long padding) {
  const long index = load_int(idx, position, dtype);
  return index >= 0 && index < vocab && index != padding ? index : vocab;
}
static inline int digit_of(const embedding_sort_numbers *k, memory idx, long position) {
  return (int)(key_of(idx, k->idx_dtype, position, k->vocab, k->padding_idx) >> k->shift) & (EMBEDDING_DIGITS - 1);
}
static inline long range_begin(const embedding_sort_numbers *k, long sorter) {
  const long each = k->rows / k->sorters, more = k->rows % k->sorters;
  return sorter * each + min(sorter, more);
}

/* counts: [digits, sorters] */
__kernel void embedding_count(TENSOR(idx), TENSOR(from), TENSOR(counts), TENSOR(error),
                              const embedding_sort_numbers k) {
  const long sorter = (long)get_global_id(0);
  if (sorter >= k.sorters) return;
  const memory of = memory_of(idx);
  long found[EMBEDDING_DIGITS];
  bool all_legal = true;
  for (int d = 0; d < EMBEDDING_DIGITS; ++d) found[d] = 0;
  for (long i = range_begin(&k, sorter); i < range_begin(&k, sorter + 1); ++i) {
    const long position = k.first ? i : ((__global const long *)memory_of(from))[i];
    ++found[digit_of(&k, of, position)];
    const long index = k.first ? load_int(of, position, k.idx_dtype) : 0;
    all_legal = all_legal && index >= 0 && index < k.vocab;
  }
  for (int d = 0; d < EMBEDDING_DIGITS; ++d) ((__global long *)memory_of(counts))[d * k.sorters + sorter] = found[d];
  if (!all_legal && is_there(error)) *(__global int *)memory_of(error) = 1;
}

/* Each count becomes the sum of those before it, by one group. */
__kernel void embedding_offsets(TENSOR(counts), const embedding_sort_numbers k) {
  __local long sums[GROUP];
  __global long *of = (__global long *)memory_of(counts);
  const long count = EMBEDDING_DIGITS * k.sorters, each = (count + GROUP - 1) / GROUP, lane = row_lane();
  const long begin = min(lane * each, count), end = min(begin + each, count);
  long sum = 0, before = 0;
  for (long i = begin; i < end; ++i) sum += of[i];
  sums[lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long i = 0; i < lane; ++i) before += sums[i];
  for (long i = begin; i < end; ++i) {
    const long own = of[i];
    of[i] = before;
    before += own;
  }
}

__kernel void embedding_scatter(TENSOR(idx), TENSOR(from), TENSOR(counts), TENSOR(to), const embedding_sort_numbers k) {
  const long sorter = (long)get_global_id(0);
  if (sorter >= k.sorters) return;
  long next[EMBEDDING_DIGITS];
  for (int d = 0; d < EMBEDDING_DIGITS; ++d)
    next[d] = ((__global const long *)memory_of(counts))[d * k.sorters + sorter];
  for (long i = range_begin(&k, sorter); i < range_begin(&k, sorter + 1); ++i) {
    const long position = k.first ? i : ((__global const long *)memory_of(from))[i];
    ((__global long *)memory_of(to))[next[digit_of(&k, memory_of(idx), position)]++] = position;
  }
}

/* ---- the sums ---- */

static inline long key_at(const embedding_bwd_numbers *k, memory idx, __global const long *order, long i) {
  return key_of(idx, k->idx_dtype, order[i], k->vocab, k->padding_idx);
}

/* A row is a sorted position, of which the first one of an index has the index's sum, in a panel of columns. */
__kernel void embedding_sum(TENSOR(dy), TENSOR(idx), TENSOR(order), TENSOR(dtable), const embedding_bwd_numbers k) {
  const memory of = memory_of(idx), out = memory_of(dtable);
  __global const long *sorted = (__global const long *)memory_of(order);
  const long panel = (long)get_global_id(1) * k.panel, wide = min(k.cols - panel, (long)k.panel);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long key = key_at(&k, of, sorted, r);
    if (key == k.vocab || (r > 0 && key_at(&k, of, sorted, r - 1) == key)) continue;
    long end = r + 1;
    while (end < k.space.rows && key_at(&k, of, sorted, end) == key) ++end;
    const long after = row_offset(&k.space, &k.dy, sorted[row_after(r, k.space.rows)]) + panel;
    FOR_ROW(i, n, wide) {
      const long at = key * k.cols + panel + i;
      ask_for(memory_of(dy), after + i, T);
      vpair sum = {(vf)(0.0f), (vf)(0.0f)};
      if (k.accumulate) sum.high = load_n(out, at, k.dtable_dtype, n);
      for (long s = r; s < end; ++s)
        sum = vpair_add(sum, load_n(memory_of(dy), row_offset(&k.space, &k.dy, sorted[s]) + panel + i, T, n));
      store_n(out, at, k.dtable_dtype, n, vpair_value(sum));
    }
  }
}

/* A row is one of the table. */
__kernel void embedding_zero(TENSOR(idx), TENSOR(order), TENSOR(dtable), const embedding_bwd_numbers k) {
  __global const long *sorted = (__global const long *)memory_of(order);
  for (long v = row_first(); v < k.vocab; v += row_step()) {
    long low = 0, high = k.space.rows; /* the first sorted position of row v or beyond */
    while (low < high) {
      const long middle = low + (high - low) / 2;
      if (key_at(&k, memory_of(idx), sorted, middle) < v)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < k.space.rows && key_at(&k, memory_of(idx), sorted, low) == v) continue;
    FOR_ROW(i, n, k.cols) store_n(memory_of(dtable), v * k.cols + i, k.dtable_dtype, n, (vf)(0.0f));
  }
}
