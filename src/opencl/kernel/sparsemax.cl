/* Forward reads a row once for the largest x, once a round of Newton's method, and once for y; backward reads it twice. */
#include "rows.cl"
#include "softmax.h"

__kernel void sparsemax_fwd(TENSOR(x), TENSOR(y), const softmax_numbers k) {
  ROOM
  const memory ys = memory_of(y);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const source from = {memory_of(x), row_offset(&k.space, &k.in[0], r), T};
    const long to = row_offset(&k.space, &k.out, r);
    vf most = -INFINITY;
    FOR_ROW(i, n, k.cols) {
      ask_for(ys, to + i, T);
      most = larger(most, first_or(source_n(&from, i, n), n, -INFINITY));
    }
    const float largest = row_max(max_of(most)), base = largest == -INFINITY ? 0 : largest;
    const float tau = sparse_tau(space, &from, k.cols, base, most);
    const long after = row_offset(&k.space, &k.in[0], row_after(r, k.space.rows));
    FOR_ROW(i, n, k.cols) {
      const vf v = source_n(&from, i, n) - base - tau;
      ask_for(from.of, after + i, T);
      store_n(ys, to + i, T, n, either(v <= 0, (vf)(0.0f), v)); /* a NaN stays */
    }
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
