/* Forward reads a row three times, the second and third out of a cache: for the largest score, the sum, and y. Backward reads it twice. */
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
static inlined vf scores_at(const scores *s, long i) {
  const long n = s->seen - i;
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
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const scores s = {{memory_of(x), row_offset(&k.space, &k.in[0], r), T},
                      {memory_of(mask), row_offset(&k.space, &k.in[1], r), k.mask_dtype},
                      is_there(mask),
                      k.scale,
                      columns_seen(&k, r)};
    const long to = row_offset(&k.space, &k.out, r);
    vf most = -INFINITY;
    FOR_ROW(i, n, s.seen) most = fmax(most, scores_at(&s, i)); /* the largest number */
    const float largest = row_max(max_of(most)), base = largest == -INFINITY ? 0 : largest;
    vpair sums = {(vf)(0.0f), (vf)(0.0f)};
    FOR_ROW(i, n, s.seen) sums = vpair_add(sums, exp_of(scores_at(&s, i) - base));
    const float sum = pair_value(row_pair(pair_of(sums))), inverse = sum == 0 ? 0 : 1 / sum;
    FOR_ROW(i, n, k.cols) {
      vf v = 0;
      if (i < s.seen) v = first_or(exp_of(scores_at(&s, i) - base) * inverse, s.seen - i, 0); /* 0 beside a NaN, too */
      store_n(ys, to + i, T, n, v);
    }
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
    FOR_ROW(i, n, k.cols) sums = vpair_fma(sums, source_n(&g, i, n), source_n(&p, i, n));
    const float dot = pair_value(row_pair(pair_of(sums)));
    FOR_ROW(i, n, k.cols) {
      const vf w = source_n(&p, i, n);
      store_n(out, to + i, T, n, k.scale * (w * (source_n(&g, i, n) - dot)));
    }
  }
}
