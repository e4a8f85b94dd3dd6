/* A row is a token. MHC_AT_ONCE streams come out of one sweep over those that go in, so that x is read once for as many of o. Backward has such
 * sweeps for dx with df, and for the products of MHC_AT_ONCE gradients with as many streams. One more stream, as f is, goes along with the last.
 * How many there are is known to the compiler where there are four and f. */
#include "rows.cl"
#include "mhc.h"

#if GROUP == 1
#define UNROLL _Pragma("unroll")
#else /* each copy of a loop that holds a barrier takes a compiler for CPUs seconds */
#define UNROLL
#endif

enum { MHC_MOST = MHC_AT_ONCE + 1, MHC_TERMS = MHC_STREAMS + 1 };

static inline int at_once(long left) { return (int)min(left, (long)(left == MHC_MOST ? MHC_MOST : MHC_AT_ONCE)); }

/* The weight of stream i, or of f after them, in o's stream j. */
static inline float weight_of(const mhc_mix_numbers *k, floats res, floats post, long t, long j, long i) {
  return i < k->in ? res[(t * k->out + j) * k->in + i] : post[t * k->out + j];
}

/* Some of a token's rows. */
typedef struct streams {
  memory of[MHC_TERMS];
  long at[MHC_TERMS];
} streams;
/* `count` rows from i on of x's streams, and f's row after them. */
static inlined void inputs(streams *to, const mhc_mix_numbers *k, memory x, const cl_pitch *x_pitch, memory f,
                           const cl_pitch *f_pitch, long t, long i, const int count) {
  for (int q = 0; q < count; ++q) {
    const bool of_x = i + q < k->in;
    to->of[q] = of_x ? x : f;
    to->at[q] = of_x ? row_offset(&k->in_space, x_pitch, t * k->in + i + q) : row_offset(&k->tokens, f_pitch, t);
  }
}
/* The same of o's streams from j on. */
static inlined void outputs(streams *to, const mhc_mix_numbers *k, memory o, long t, long j, const int count) {
  for (int q = 0; q < count; ++q) to->of[q] = o, to->at[q] = row_offset(&k->out_space, &k->o, t * k->out + j + q);
}

/* `made` sums of `terms` rows, which have weights. */
static inlined void mix(const mhc_mix_numbers *k, const streams *from, const int terms,
                        const float (*weights)[MHC_TERMS], const streams *to, const int made) {
  FOR_ROW(c, n, k->cols) {
    vf sums[MHC_MOST];
    UNROLL for (int q = 0; q < MHC_MOST; ++q) sums[q] = 0;
    for (int i = 0; i < terms; ++i) {
      const vf v = load_n(from->of[i], from->at[i] + c, T, n);
      UNROLL for (int q = 0; q < MHC_MOST; ++q)
        if (q < made) sums[q] = fma((vf)(weights[q][i]), v, sums[q]);
    }
    UNROLL for (int q = 0; q < MHC_MOST; ++q)
      if (q < made) store_n(to->of[q], to->at[q] + c, T, n, sums[q]);
  }
}

/* Sums of `a`'s rows, x's from i on, times `b`'s, o's from j on. */
static inlined void multiply(room space, const mhc_mix_numbers *k, const streams *a, long i, const int rows,
                             const streams *b, long j, const int columns, long t, floats dres, floats dpost) {
  vf sums[MHC_MOST][MHC_AT_ONCE];
  UNROLL for (int q = 0; q < MHC_MOST; ++q)
    UNROLL for (int p = 0; p < MHC_AT_ONCE; ++p) sums[q][p] = 0;
  FOR_ROW(c, n, k->cols) {
    vf w[MHC_AT_ONCE];
    UNROLL for (int p = 0; p < MHC_AT_ONCE; ++p) w[p] = p < columns ? load_n(b->of[p], b->at[p] + c, T, n) : (vf)(0.0f);
    UNROLL for (int q = 0; q < MHC_MOST; ++q) {
      if (q >= rows) continue;
      const vf v = load_n(a->of[q], a->at[q] + c, T, n);
      UNROLL for (int p = 0; p < MHC_AT_ONCE; ++p) sums[q][p] = fma(v, w[p], sums[q][p]);
    }
  }
  float all[MHC_MOST][MHC_AT_ONCE];
  UNROLL for (int q = 0; q < MHC_MOST; ++q)
    UNROLL for (int p = 0; p < MHC_AT_ONCE; ++p) all[q][p] = sum_of(sums[q][p]);
  for (int q = 0; q < rows; ++q)
    for (int p = 0; p < columns; ++p) {
      const float sum = row_sum(all[q][p]);
      const long of = t * k->out + j + p;
      if (!row_leads()) continue;
      if (i + q < k->in)
        dres[of * k->in + i + q] = sum;
      else
        dpost[of] = sum;
    }
}

__kernel void mhc_post_res_fwd(TENSOR(x), TENSOR(f), TENSOR(h_res), TENSOR(h_post), TENSOR(o),
                               const mhc_mix_numbers k) {
  const floats res = FLOATS_OF(h_res), post = FLOATS_OF(h_post);
  const int terms = (int)k.in + is_there(f);
  for (long t = row_first(); t < k.rows; t += row_step()) {
    streams from, to;
    inputs(&from, &k, memory_of(x), &k.x, memory_of(f), &k.f, t, 0, terms);
    int made;
    for (long j = 0; j < k.out; j += made) {
      float weights[MHC_MOST][MHC_TERMS];
      made = at_once(k.out - j);
      outputs(&to, &k, memory_of(o), t, j, made);
      for (int q = 0; q < made; ++q)
        for (int i = 0; i < terms; ++i) weights[q][i] = weight_of(&k, res, post, t, j + q, i);
      if (IS_ALONE && terms == MHC_MOST && made == MHC_AT_ONCE)
        mix(&k, &from, MHC_MOST, weights, &to, MHC_AT_ONCE);
      else
        mix(&k, &from, terms, weights, &to, made);
    }
  }
}

__kernel void mhc_post_res_bwd(TENSOR(g), TENSOR(x), TENSOR(f), TENSOR(h_res), TENSOR(h_post), TENSOR(dx), TENSOR(df),
                               TENSOR(dh_res), TENSOR(dh_post), const mhc_mix_numbers k) {
  ROOM
  const floats res = FLOATS_OF(h_res), post = FLOATS_OF(h_post);
  const long gradients = k.in + is_there(df), products = k.in + is_there(dh_post);
  for (long t = row_first(); t < k.rows; t += row_step()) {
    int made;
    for (long i = is_there(dx) ? 0 : k.in; i < gradients; i += made) {
      float weights[MHC_MOST][MHC_TERMS];
      streams from, to;
      made = at_once(gradients - i);
      outputs(&from, &k, memory_of(g), t, 0, (int)k.out);
      inputs(&to, &k, memory_of(dx), &k.dx, memory_of(df), &k.df, t, i, made);
      for (int q = 0; q < made; ++q)
        for (int j = 0; j < k.out; ++j) weights[q][j] = weight_of(&k, res, post, t, j, i + q);
      if (IS_ALONE && k.out == MHC_AT_ONCE && made == MHC_MOST)
        mix(&k, &from, MHC_AT_ONCE, weights, &to, MHC_MOST);
      else
        mix(&k, &from, (int)k.out, weights, &to, made);
    }
    for (long i = is_there(dh_res) ? 0 : k.in; i < products; i += made) {
      made = at_once(products - i);
      for (long j = 0; j < k.out; j += MHC_AT_ONCE) {
        const int columns = (int)min(k.out - j, (long)MHC_AT_ONCE);
        streams a, b;
        inputs(&a, &k, memory_of(x), &k.x, memory_of(f), &k.f, t, i, made);
        outputs(&b, &k, memory_of(g), t, j, columns);
        if (IS_ALONE && made == MHC_MOST && columns == MHC_AT_ONCE)
          multiply(space, &k, &a, i, MHC_MOST, &b, j, MHC_AT_ONCE, t, FLOATS_OF(dh_res), FLOATS_OF(dh_post));
        else
          multiply(space, &k, &a, i, made, &b, j, columns, t, FLOATS_OF(dh_res), FLOATS_OF(dh_post));
      }
    }
  }
}
