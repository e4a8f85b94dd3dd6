/* A row is read twice, the second time from a cache: for its sums, and for what is made of them. Backward each work-item or group has POLY_SUMS
 * words of dw and db. */
#include "poly_norm.h"
#include "sum.cl"

__kernel void poly_norm_fwd(TENSOR(x), TENSOR(w), TENSOR(b), TENSOR(y), TENSOR(rstd), const poly_numbers k) {
  ROOM
  const memory xs = memory_of(x), ys = memory_of(y), ws = memory_of(w);
  const float shift = is_there(b) ? load_one(memory_of(b), 0, k.b_dtype) : 0;
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long at = row_offset(&k.space, &k.x, r), to = row_offset(&k.space, &k.out, r);
    vpair sums[POLY] = {VPAIR_START, VPAIR_START, VPAIR_START};
    float factor[POLY];
    const long after = row_offset(&k.space, &k.x, row_after(r, k.space.rows));
    FOR_ROW(i, n, k.cols) {
      const vf v = load_n(xs, at + i, T, n), square = v * v, cube = square * v;
      ask_for(ys, to + i, T);
      sums[0] = vpair_add(sums[0], cube * cube);
      sums[1] = vpair_add(sums[1], square * square);
      sums[2] = vpair_add(sums[2], square);
    }
    for (int p = 0; p < POLY; ++p) {
      const float scale = 1 / sqrt(row_total(sums[p]) / (float)k.cols + k.eps);
      if (is_there(rstd) && row_leads()) FLOATS_OF(rstd)[POLY * r + p] = scale;
      factor[p] = load_one(ws, p, k.w_dtype) * scale;
    }
    FOR_ROW(i, n, k.cols) {
      const vf v = load_n(xs, at + i, T, n);
      ask_for(xs, after + i, T);
      const vf high = fma(fma((vf)(factor[0]), v, (vf)(factor[1])), v, (vf)(factor[2]));
      store_n(ys, to + i, T, n, fma(high, v, (vf)(shift)));
    }
  }
}

/* dx = sum over p of slope_p * x^(p-1) * (dy - x^p * back_p) */
__kernel void poly_norm_bwd(TENSOR(dy), TENSOR(x), TENSOR(w), TENSOR(rstd), TENSOR(dx), TENSOR(words),
                            const poly_numbers k) {
  ROOM
  const memory dys = memory_of(dy), xs = memory_of(x), dxs = memory_of(dx), ws = memory_of(w);
  pair all[POLY_SUMS] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const long from = row_offset(&k.space, &k.dy, r), at = row_offset(&k.space, &k.x, r);
    const long to = row_offset(&k.space, &k.out, r);
    vpair sums[POLY_SUMS] = {VPAIR_START, VPAIR_START, VPAIR_START, VPAIR_START};
    float slope[POLY], back[POLY];
    const long after = row_after(r, k.space.rows);
    const long dy_after = row_offset(&k.space, &k.dy, after), x_after = row_offset(&k.space, &k.x, after);
    FOR_ROW(i, n, k.cols) {
      const vf d = load_n(dys, from + i, T, n), v = load_n(xs, at + i, T, n), square = v * v;
      ask_for(dxs, to + i, T);
      sums[0] = vpair_add(sums[0], d * (square * v));
      sums[1] = vpair_add(sums[1], d * square);
      sums[2] = vpair_add_product(sums[2], d, v);
      sums[3] = vpair_add(sums[3], d);
    }
    for (int p = 0; p < POLY; ++p) {
      const float scale = FLOATS_OF(rstd)[POLY * r + p], sum = row_total(sums[p]) * scale;
      all[p] = pair_add(all[p], sum);
      slope[p] = load_one(ws, p, k.w_dtype) * (POLY - p) * scale;
      back[p] = sum / (float)k.cols * scale;
    }
    all[POLY] = pair_add(all[POLY], row_total(sums[POLY]));
    FOR_ROW(i, n, k.cols) {
      const vf d = load_n(dys, from + i, T, n), v = load_n(xs, at + i, T, n), square = v * v;
      ask_for(dys, dy_after + i, T);
      ask_for(xs, x_after + i, T);
      const vf third = slope[0] * fma(-(square * v), (vf)(back[0]), d);
      const vf second = slope[1] * fma(-square, (vf)(back[1]), d);
      const vf first = slope[2] * fma(-v, (vf)(back[2]), d);
      store_n(dxs, to + i, T, n, fma(fma(third, v, second), v, first));
    }
  }
  if (is_there(words) && row_leads())
    for (int p = 0; p < POLY_SUMS; ++p) FLOATS_OF(words)[row_first() * POLY_SUMS + p] = pair_value(all[p]);
}
