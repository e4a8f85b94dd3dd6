/* A row is a token. MHC_AT_ONCE streams come out of one sweep over those that go in, so that x is read once for as many of o. Backward has such
 * sweeps for dx with df, and for the products of MHC_AT_ONCE gradients with as many streams. */
#include "rows.cl"
#include "mhc.h"

/* The weight of stream i, or of f after them, in o's stream j. */
static inline float weight_of(const mhc_mix_numbers *k, floats res, floats post, long t, long j, long i) {
  return i < k->in ? res[(t * k->out + j) * k->in + i] : post[t * k->out + j];
}

__kernel void mhc_post_res_fwd(TENSOR(x), TENSOR(f), TENSOR(h_res), TENSOR(h_post), TENSOR(o),
                               const mhc_mix_numbers k) {
  const floats res = FLOATS_OF(h_res), post = FLOATS_OF(h_post);
  const long terms = k.in + is_there(f);
  for (long t = row_first(); t < k.rows; t += row_step())
    for (long j = 0; j < k.out; j += MHC_AT_ONCE) FOR_ROW(c, n, k.cols) {
        vf sums[MHC_AT_ONCE] = {0, 0, 0, 0};
        for (long i = 0; i < terms; ++i) {
          const vf v = i < k.in ? load_n(memory_of(x), row_offset(&k.in_space, &k.x, t * k.in + i) + c, T, n)
                                : load_n(memory_of(f), row_offset(&k.tokens, &k.f, t) + c, T, n);
          for (int q = 0; q < MHC_AT_ONCE; ++q)
            if (j + q < k.out) sums[q] = fma((vf)(weight_of(&k, res, post, t, j + q, i)), v, sums[q]);
        }
        for (int q = 0; q < MHC_AT_ONCE && j + q < k.out; ++q)
          store_n(memory_of(o), row_offset(&k.out_space, &k.o, t * k.out + j + q) + c, T, n, sums[q]);
      }
}

__kernel void mhc_post_res_bwd(TENSOR(g), TENSOR(x), TENSOR(f), TENSOR(h_res), TENSOR(h_post), TENSOR(dx), TENSOR(df),
                               TENSOR(dh_res), TENSOR(dh_post), const mhc_mix_numbers k) {
  ROOM
  const floats res = FLOATS_OF(h_res), post = FLOATS_OF(h_post);
  for (long t = row_first(); t < k.rows; t += row_step()) {
    const long f_at = is_there(f) ? row_offset(&k.tokens, &k.f, t) : 0;
    const long df_at = is_there(df) ? row_offset(&k.tokens, &k.df, t) : 0;
    const long outputs = k.in + is_there(df), products = k.in + is_there(dh_post);
    for (long i = is_there(dx) ? 0 : k.in; i < outputs; i += MHC_AT_ONCE) FOR_ROW(c, n, k.cols) {
        vf sums[MHC_AT_ONCE] = {0, 0, 0, 0};
        for (long j = 0; j < k.out; ++j) {
          const vf v = load_n(memory_of(g), row_offset(&k.out_space, &k.o, t * k.out + j) + c, T, n);
          for (int q = 0; q < MHC_AT_ONCE; ++q)
            if (i + q < outputs) sums[q] = fma((vf)(weight_of(&k, res, post, t, j, i + q)), v, sums[q]);
        }
        for (int q = 0; q < MHC_AT_ONCE && i + q < outputs; ++q)
          if (i + q < k.in)
            store_n(memory_of(dx), row_offset(&k.in_space, &k.dx, t * k.in + i + q) + c, T, n, sums[q]);
          else
            store_n(memory_of(df), df_at + c, T, n, sums[q]);
      }
    for (long i = is_there(dh_res) ? 0 : k.in; i < products; i += MHC_AT_ONCE)
      for (long j = 0; j < k.out; j += MHC_AT_ONCE) {
        vf sums[MHC_AT_ONCE][MHC_AT_ONCE];
        for (int q = 0; q < MHC_AT_ONCE; ++q)
          for (int p = 0; p < MHC_AT_ONCE; ++p) sums[q][p] = 0;
        FOR_ROW(c, n, k.cols) {
          vf v[MHC_AT_ONCE], w[MHC_AT_ONCE];
          for (int q = 0; q < MHC_AT_ONCE; ++q) {
            const long a = i + q, b = j + q;
            v[q] = a >= products ? (vf)(0.0f)
                   : a < k.in    ? load_n(memory_of(x), row_offset(&k.in_space, &k.x, t * k.in + a) + c, T, n)
                                 : load_n(memory_of(f), f_at + c, T, n);
            w[q] =
                b >= k.out ? (vf)(0.0f) : load_n(memory_of(g), row_offset(&k.out_space, &k.o, t * k.out + b) + c, T, n);
          }
          for (int q = 0; q < MHC_AT_ONCE; ++q)
            for (int p = 0; p < MHC_AT_ONCE; ++p) sums[q][p] = fma(v[q], w[p], sums[q][p]);
        }
        for (int q = 0; q < MHC_AT_ONCE && i + q < products; ++q)
          for (int p = 0; p < MHC_AT_ONCE && j + p < k.out; ++p) {
            const float sum = row_sum(sum_of(sums[q][p]));
            const long of = t * k.out + j + p;
            if (!row_leads()) continue;
            if (i + q < k.in)
              FLOATS_OF(dh_res)[of * k.in + i + q] = sum;
            else
              FLOATS_OF(dh_post)[of] = sum;
          }
      }
  }
}
