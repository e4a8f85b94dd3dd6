/* The kernels of multi_token_attention that have norm() or its gradient. A row is read three times for softmax: for the largest number, the sum, and
 * norm(); its gradient reads it twice. */
#include "mta_planes.cl"

/* ---- norm() of a row ---- */

/* What norm() takes off, of n numbers: log(sum of exp), or tau. */
static inlined float find_stat(room space, bool sparse, const source *x, long n) {
  vf most[STARTS];
  const float largest = row_largest(space, x, n, most, NULL), base = largest == -INFINITY ? 0 : largest;
  if (sparse) {
    kept_row kept;
    int count;
    return base + sparse_tau(space, x, n, base, most, &kept, &count, NULL);
  }
  vpair sums = {(vf)(0.0f), (vf)(0.0f)};
  FOR_ROW(j, left, n) sums = vpair_add(sums, exp_to_64_of(first_or(source_n(x, j, left) - base, left, -INFINITY)));
  const float sum = pair_value(row_members(((members){pair_of(sums), 0})).sum);
  return sum == 0 ? -INFINITY : base + log_one(sum); /* a NaN stays */
}
static inline vf norm_of(bool sparse, vf x, float stat) {
  const vf z = x - (!sparse && stat == -INFINITY ? 0 : stat);
  return sparse ? positive(z) : exp_to_64_of(z);
}

/* to = norm'(q), and 0 from n to cols; `normal`: p is norm() already. A NaN in p is of the support, and makes the mean one. */
static inlined void norm_slope(room space, bool sparse, const source *p, bool normal, float stat, const source *q,
                              const source *to, long n, long cols) {
  vpair sums = {(vf)(0.0f), (vf)(0.0f)};
  vf counts = 0;
  FOR_ROW(j, left, n) {
    const vf x = source_n(p, j, left), w = first_or(normal ? x : norm_of(sparse, x, stat), left, 0);
    const vf v = source_n(q, j, left);
    sums = vpair_add(sums, sparse ? either(w <= 0, (vf)(0.0f), fma(w, (vf)(0.0f), v)) : w * v);
    counts += either(w <= 0, (vf)(0.0f), (vf)(1.0f));
  }
  const members of = row_members(((members){pair_of(sums), sum_of(counts)}));
  const float sum = pair_value(of.sum), off = !sparse ? sum : of.count > 0 ? sum / of.count : 0;
  FOR_ROW(j, left, cols) {
    vf v = 0;
    if (j < n) {
      const long here = n - j;
      const vf x = source_n(p, j, here), w = normal ? x : norm_of(sparse, x, stat), d = source_n(q, j, here) - off;
      v = first_or(sparse ? either(w <= 0, (vf)(0.0f), d) : w * d, here, 0);
    }
    put_n(to, j, left, v);
  }
}

/* ---- rows ---- */

/* u: the scores, or norm() of them. */
__kernel void mta_u(TENSOR(s), TENSOR(stat), TENSOR(u), const mta_numbers k) {
  ROOM
  FOR_BAND(plane, y, k.batch * k.in, k.reach) {
    const long r = plane * k.tokens + y, n = y + 1;
    const source x = {memory_of(s), row_offset(&k.space, &k.s, r), T}, to = u_row(&k, memory_of(u), plane, y);
    float off = 0;
    if (!k.pre) {
      off = k.known ? FLOATS_OF(stat)[r] : find_stat(space, k.sparse, &x, n);
      if (!k.known && is_there(stat) && row_leads()) FLOATS_OF(stat)[r] = off;
    }
    FOR_ROW(j, left, k.tokens) {
      vf v = 0;
      if (j < n) {
        v = source_n(&x, j, n - j);
        if (!k.pre) v = norm_of(k.sparse, v, off);
        v = first_or(v, n - j, 0);
      }
      put_n(&to, j, left, v);
    }
  }
}

/* PRE: o is norm() of c. */
__kernel void mta_o(TENSOR(c), TENSOR(stat), TENSOR(o), const mta_numbers k) {
  ROOM
  FOR_BAND(plane, i, k.batch * k.out, k.own) {
    const long r = plane * k.rows + i, n = allowed(i, k.cols);
    const source x = o_row(&k, memory_of(c), plane, i), to = {memory_of(o), row_offset(&k.out_space, &k.o, r), T};
    const float off = find_stat(space, k.sparse, &x, n);
    if (is_there(stat) && row_leads()) FLOATS_OF(stat)[r] = off;
    FOR_ROW(j, left, k.cols) {
      vf v = 0;
      if (j < n) v = first_or(norm_of(k.sparse, source_n(&x, j, n - j), off), n - j, 0);
      put_n(&to, j, left, v);
    }
  }
}

/* POST: g is o's gradient. */
__kernel void mta_g(TENSOR(o), TENSOR(g), const mta_numbers k) {
  FOR_BAND(plane, i, k.batch * k.out, k.made) {
    const source q = {memory_of(o), row_offset(&k.out_space, &k.o, plane * k.rows + i), T};
    const source to = o_row(&k, memory_of(g), plane, i);
    const long n = allowed(i, k.cols);
    FOR_ROW(j, left, k.cols) put_n(&to, j, left, source_n(&q, j, n - j));
  }
}

/* PRE: g is norm'() of o's gradient; c has the convolution. */
__kernel void mta_o_slope(TENSOR(o), TENSOR(c), TENSOR(stat), TENSOR(g), const mta_numbers k) {
  ROOM
  FOR_BAND(plane, i, k.batch * k.out, k.made) {
    const long r = plane * k.rows + i;
    const source q = {memory_of(o), row_offset(&k.out_space, &k.o, r), T}, x = o_row(&k, memory_of(c), plane, i);
    const source to = o_row(&k, memory_of(g), plane, i);
    norm_slope(space, k.sparse, &x, false, FLOATS_OF(stat)[r], &q, &to, allowed(i, k.cols), k.cols);
  }
}

/* POST: ds of p in u and its gradient in c. */
__kernel void mta_ds(TENSOR(u), TENSOR(c), TENSOR(ds), const mta_numbers k) {
  ROOM
  FOR_BAND(plane, y, k.batch * k.in, k.y) {
    const source p = u_row(&k, memory_of(u), plane, y), q = y_row(&k, memory_of(c), plane, y);
    const source to = {memory_of(ds), row_offset(&k.space, &k.ds, plane * k.tokens + y), T};
    norm_slope(space, k.sparse, &p, true, 0, &q, &to, y + 1, k.tokens);
  }
}
