/* Forward reads a row once for the largest x, and once more for what may be members; a long row once a round of Newton's method, and once for
 * y. Backward reads it twice. */
#include "rows.cl"
#include "softmax.h"

__kernel void sparsemax_fwd(TENSOR(x), TENSOR(y), const softmax_numbers k) {
  ROOM
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const source from = {memory_of(x), row_offset(&k.space, &k.in[0], r), T};
    const row_places out = {memory_of(y), row_offset(&k.space, &k.out, r),
                            row_offset(&k.space, &k.in[0], row_after(r, k.space.rows))};
    vf most[STARTS];
    const float largest = row_largest(space, &from, k.cols, most, &out), base = largest == -INFINITY ? 0 : largest;
    kept_row kept;
    int count;
    const float tau = sparse_tau(space, &from, k.cols, base, most, &kept, &count, &out);
    if (keeps_row(k.cols) && !isnan(tau)) {
      for (int j = 0; j < count; ++j)
        store_n(out.y, out.to + kept.at[j], T, k.cols - kept.at[j], positive(kept.z[j] - tau));
      continue;
    }
    FOR_ROW(i, n, k.cols) store_n(out.y, out.to + i, T, n, positive(source_n(&from, i, n) - base - tau));
  }
}

/* v where y is of the support. */
static inline vf of_support(vf y, vf v) { return either(y <= 0, (vf)(0.0f), v); }

__kernel void sparsemax_bwd(TENSOR(dy), TENSOR(y), TENSOR(dx), const softmax_numbers k) {
  ROOM
  const memory out = memory_of(dx);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const source g = {memory_of(dy), row_offset(&k.space, &k.in[0], r), T};
    const source p = {memory_of(y), row_offset(&k.space, &k.in[1], r), T};
    const long to = row_offset(&k.space, &k.out, r);
    vpair sums = {(vf)(0.0f), (vf)(0.0f)};
    vf counts = 0;
    FOR_ROW(i, n, k.cols) { /* past the last column y is 0 */
      const vf w = source_n(&p, i, n);
      sums = vpair_add(sums, of_support(w, fma(w, (vf)(0.0f), source_n(&g, i, n)))); /* a NaN or Inf in y makes a NaN */
      counts += of_support(w, (vf)(1.0f));
    }
    const members of = row_members(((members){pair_of(sums), sum_of(counts)}));
    const float mean = of.count > 0 ? pair_value(of.sum) / of.count : 0;
    FOR_ROW(i, n, k.cols) {
      const vf w = source_n(&p, i, n);
      store_n(out, to + i, T, n, of_support(w, source_n(&g, i, n) - mean));
    }
  }
}
