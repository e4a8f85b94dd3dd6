/* Forward reads a row three times, the second and third out of a cache: for the largest score, the sum, and y. A work-item alone keeps the
 * exponentials of a short row, and reads it twice. So does backward. */
#include "rows.cl"
#include "softmax.h"

/* A row's scores, of which those of the first `seen` columns count. */
typedef struct scores {
  source x, mask;
  bool masked;
  float scale;
  long seen;
} scores;

/* Those at i, -Inf past the last one that counts. */
static inlined vf scores_at(const scores *s, long i, long n) {
  vf z = source_n(&s->x, i, n);
  z = s->masked ? fma(z, (vf)(s->scale), source_n(&s->mask, i, n)) : z * s->scale;
  return first_or(z, n, -INFINITY);
}

static inline long columns_seen(const softmax_numbers *k, long r) {
  const long last = r % k->tokens + k->cols - k->tokens;
  return k->causal ? max(last + 1, 0L) : k->cols;
}

__kernel void softmax_fwd(TENSOR(x), TENSOR(mask), TENSOR(y), const softmax_numbers k) {
  ROOM
  const memory ys = memory_of(y);
  const bool keeps = IS_ALONE && k.cols <= KEPT * LANES;
  vf kept[KEPT];
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const scores s = {{memory_of(x), row_offset(&k.space, &k.in[0], r), T},
                      {memory_of(mask), row_offset(&k.space, &k.in[1], r), k.mask_dtype},
                      is_there(mask),
                      k.scale,
                      columns_seen(&k, r)};
    const long to = row_offset(&k.space, &k.out, r);
    vf most = -INFINITY;
    FOR_ROW(i, n, s.seen) most = larger(most, scores_at(&s, i, n)); /* the largest number */
    const long after = row_offset(&k.space, &k.in[0], row_after(r, k.space.rows));
    const float largest = row_max(max_of(most)), base = largest == -INFINITY ? 0 : largest;
    vpair sums = {(vf)(0.0f), (vf)(0.0f)};
    FOR_ROW(i, n, s.seen) {
      const vf e = exp_to_64_of(scores_at(&s, i, n) - base);
      if (keeps) kept[i / LANES] = e;
      ask_for(s.x.of, after + i, T);
      ask_for(ys, to + i, T);
      sums = vpair_add(sums, e);
    }
    const float sum = pair_value(row_pair(pair_of(sums))), inverse = sum == 0 ? 0 : 1 / sum;
    FOR_ROW(i, n, s.seen) {
      const vf e = keeps ? kept[i / LANES] : exp_to_64_of(scores_at(&s, i, n) - base);
      store_n(ys, to + i, T, n, e * inverse);
    }
    FOR_ROW(i, n, k.cols - s.seen) store_n(ys, to + s.seen + i, T, n, (vf)(0.0f)); /* beside a NaN, too */
  }
}

__kernel void softmax_bwd(TENSOR(dy), TENSOR(y), TENSOR(dx), const softmax_numbers k) {
  ROOM
  const memory out = memory_of(dx);
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const source g = {memory_of(dy), row_offset(&k.space, &k.in[0], r), T};
    const source p = {memory_of(y), row_offset(&k.space, &k.in[1], r), T};
    const long to = row_offset(&k.space, &k.out, r);
    vpair sums = {(vf)(0.0f), (vf)(0.0f)};
    FOR_ROW(i, n, k.cols) {
      ask_for(out, to + i, T);
      sums = vpair_add_product(sums, source_n(&g, i, n), source_n(&p, i, n));
    }
    const long after = row_after(r, k.space.rows);
    const long g_after = row_offset(&k.space, &k.in[0], after), p_after = row_offset(&k.space, &k.in[1], after);
    const float dot = pair_value(row_pair(pair_of(sums)));
    FOR_ROW(i, n, k.cols) {
      const vf w = source_n(&p, i, n);
      ask_for(g.of, g_after + i, T);
      ask_for(p.of, p_after + i, T);
      store_n(out, to + i, T, n, k.scale * (w * (source_n(&g, i, n) - dot)));
    }
  }
}
