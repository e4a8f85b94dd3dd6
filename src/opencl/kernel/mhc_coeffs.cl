/* mhc_coeffs between the matrix products of mhc_products.cl: gates and Sinkhorn, a token a work-item, and sums over tokens. */
#include "rows.cl"
#include "mhc.h"

static inline int part_of(const mhc_numbers *k, long m) { return m < k->streams ? 0 : m < 2 * k->streams ? 1 : 2; }

/* The numbers of all coefficients. */
typedef struct gate {
  memory b, alpha[3];
} gate;
static inline float alpha_of(const mhc_numbers *k, const gate *g, long m) {
  return load_one(g->alpha[part_of(k, m)], 0, k->alpha_dtype[part_of(k, m)]);
}
static inline float logit(const mhc_numbers *k, const gate *g, long m, float mix) {
  return fma(alpha_of(k, g, m), mix, load_one(g->b, m, k->b_dtype));
}

/* ---- Sinkhorn: even steps divide columns by their sums, odd ones rows ---- */

/* The w-th element of row or column v. */
static inline int place_of(int n, int step, int v, int w) { return step % 2 ? v * n + w : w * n + v; }

/* m has logits, and gets h_res. p gets the softmax, and `by` [2 tmax - 1, n] what was divided by, where there are these. */
static inline void sinkhorn(const mhc_numbers *k, float *m, float *p, floats by) {
  const int n = (int)k->streams;
  for (int j = 0; j < n * n; j += n) {
    float most = -INFINITY, sum = 0;
    for (int i = 0; i < n; ++i) most = LARGER(most, m[j + i]);
    for (int i = 0; i < n; ++i) sum += m[j + i] = exp_one(m[j + i] - most);
    for (int i = 0; i < n; ++i) {
      const float part = m[j + i] / sum;
      if (p) p[j + i] = part;
      m[j + i] = part + k->sinkhorn_eps;
    }
  }
  for (int step = 0; step < 2 * (int)k->tmax - 1; ++step)
    for (int v = 0; v < n; ++v) {
      float sum = 0;
      for (int w = 0; w < n; ++w) sum += m[place_of(n, step, v, w)];
      sum += k->sinkhorn_eps;
      if (by) by[step * n + v] = sum;
      for (int w = 0; w < n; ++w) m[place_of(n, step, v, w)] /= sum;
    }
}

/* g, the gradient of h_res, becomes that of the logits: a matrix before a division is the one after it times what it was divided by. */
static inline void sinkhorn_back(const mhc_numbers *k, float *m, const float *p, floats by, float *g) {
  const int n = (int)k->streams;
  for (int step = 2 * (int)k->tmax - 2; step >= 0; --step)
    for (int v = 0; v < n; ++v) {
      const float of = by[step * n + v];
      float dot = 0;
      for (int w = 0; w < n; ++w) dot = fma(g[place_of(n, step, v, w)], m[place_of(n, step, v, w)], dot);
      for (int w = 0; w < n; ++w) {
        const int at = place_of(n, step, v, w);
        g[at] = (g[at] - dot) / of;
        m[at] *= of;
      }
    }
  for (int j = 0; j < n * n; j += n) {
    float dot = 0;
    for (int i = 0; i < n; ++i) dot = fma(g[j + i], p[j + i], dot);
    for (int i = 0; i < n; ++i) g[j + i] = p[j + i] * (g[j + i] - dot);
  }
}

/* ---- a token ---- */

/* pre, post and res have the token's mix, and get h. */
static inline void token_fwd(const mhc_numbers *k, const gate *of, floats pre, floats post, floats res, float *m) {
  const int n = (int)k->streams;
  for (int i = 0; i < n; ++i) {
    pre[i] = logistic_one(logit(k, of, i, pre[i])) + k->pre_eps;
    post[i] = k->post_mult * logistic_one(logit(k, of, n + i, post[i]));
  }
  for (int i = 0; i < n * n; ++i) m[i] = logit(k, of, 2 * n + i, res[i]);
  sinkhorn(k, m, 0, 0);
  for (int i = 0; i < n * n; ++i) res[i] = m[i];
}

#define FWD(name, STREAMS)                                                                                      \
  __kernel void name(TENSOR(b), TENSOR(alpha_pre), TENSOR(alpha_post), TENSOR(alpha_res), TENSOR(h_pre),        \
                     TENSOR(h_post), TENSOR(h_res), const mhc_numbers k) {                                      \
    const gate of = {memory_of(b), {memory_of(alpha_pre), memory_of(alpha_post), memory_of(alpha_res)}};        \
    const long n = k.streams, first = (long)get_global_id(0);                                                   \
    float m[STREAMS * STREAMS];                                                                                 \
    for (long t = first; t < k.rows && first < k.items; t += k.items)                                           \
      token_fwd(&k, &of, FLOATS_OF(h_pre) + t * n, FLOATS_OF(h_post) + t * n, FLOATS_OF(h_res) + t * n * n, m); \
  }
FWD(mhc_gates_few, MHC_FEW)
FWD(mhc_gates_any, MHC_STREAMS)

/* A token's mix, and the gradients of h, which may be NULL; dots is dy . x. It gets dl, dmix times rstd, and h_pre. */
typedef struct token {
  floats mix, dh_pre, dh_post, dh_res, dots, dl, dmix, h_pre;
} token;

/* What of x dx takes away. */
static inline float token_bwd(const mhc_numbers *k, const gate *of, const token *t, float rstd, floats by, float *m,
                              float *p, float *g) {
  const int n = (int)k->streams;
  for (int i = 0; i < n; ++i) {
    const float pre = logit(k, of, i, t->mix[i]), post = logit(k, of, n + i, t->mix[n + i]), s = logistic_one(pre);
    const float dpre = (t->dh_pre ? t->dh_pre[i] : 0) + (t->dots ? t->dots[i] : 0);
    const float dpost = t->dh_post ? k->post_mult * t->dh_post[i] : 0;
    t->h_pre[i] = s + k->pre_eps;
    t->dl[i] = dpre * (s * logistic_one(-pre));
    t->dl[n + i] = dpost * (logistic_one(post) * logistic_one(-post));
  }
  for (int i = 0; i < n * n; ++i) {
    m[i] = logit(k, of, 2 * n + i, t->mix[2 * n + i]);
    g[i] = t->dh_res ? t->dh_res[i] : 0;
  }
  sinkhorn(k, m, p, by);
  sinkhorn_back(k, m, p, by, g);
  for (int i = 0; i < n * n; ++i) t->dl[2 * n + i] = g[i];
  pair dot = {0, 0};
  for (int i = 0; i < (int)k->coefficients; ++i) {
    const float d = alpha_of(k, of, i) * t->dl[i];
    t->dmix[i] = rstd * d;
    dot = pair_add(dot, d * t->mix[i]);
  }
  return rstd * (rstd * pair_value(dot)) / (float)(k->streams * k->cols);
}

#define OF_TOKEN(name, each) (is_there(name) ? FLOATS_OF(name) + t * (each) : (floats)0)
#define BWD(name, STREAMS)                                                                                             \
  __kernel void name(TENSOR(b), TENSOR(alpha_pre), TENSOR(alpha_post), TENSOR(alpha_res), TENSOR(mixed), TENSOR(rstd), \
                     TENSOR(dh_pre), TENSOR(dh_post), TENSOR(dh_res), TENSOR(dots), TENSOR(by), TENSOR(dl),            \
                     TENSOR(dmix), TENSOR(h_pre), TENSOR(back), const mhc_numbers k) {                                 \
    const gate of = {memory_of(b), {memory_of(alpha_pre), memory_of(alpha_post), memory_of(alpha_res)}};               \
    const long n = k.streams, count = k.coefficients, first = (long)get_global_id(0);                                  \
    const long room = first * (2 * k.tmax - 1) * n;                                                                    \
    float m[STREAMS * STREAMS], p[STREAMS * STREAMS], g[STREAMS * STREAMS];                                            \
    for (long t = first; t < k.rows && first < k.items; t += k.items) {                                                \
      const token at = {OF_TOKEN(mixed, count), OF_TOKEN(dh_pre, n), OF_TOKEN(dh_post, n),  OF_TOKEN(dh_res, n * n),   \
                        OF_TOKEN(dots, n),      OF_TOKEN(dl, count), OF_TOKEN(dmix, count), OF_TOKEN(h_pre, n)};       \
      FLOATS_OF(back)[t] = token_bwd(&k, &of, &at, FLOATS_OF(rstd)[t], FLOATS_OF(by) + room, m, p, g);                 \
    }                                                                                                                  \
  }
BWD(mhc_gates_bwd_few, MHC_FEW)
BWD(mhc_gates_bwd_any, MHC_STREAMS)

/* ---- sums over tokens ---- */

/* A work-item has slabs' sums of a coefficient: [slabs, 2, coefficients] of dl and of dl * mix. */
__kernel void mhc_sums(TENSOR(dl), TENSOR(mixed), TENSOR(slabs), const mhc_numbers k) {
  const long count = k.coefficients;
  for (long at = (long)get_global_id(0); at < k.slabs * count; at += (long)get_global_size(0)) {
    const long slab = at / count, m = at % count;
    pair of_dl = {0, 0}, of_mix = {0, 0};
    for (long t = slab; t < k.rows; t += k.slabs) {
      const float d = FLOATS_OF(dl)[t * count + m];
      of_dl = pair_add(of_dl, d);
      of_mix = pair_add(of_mix, d * FLOATS_OF(mixed)[t * count + m]);
    }
    FLOATS_OF(slabs)[2 * slab * count + m] = pair_value(of_dl);
    FLOATS_OF(slabs)[(2 * slab + 1) * count + m] = pair_value(of_mix);
  }
}

static inline void put_sum(memory to, long i, int dtype, float v, bool accumulate) {
  if (accumulate) v += load_one(to, i, dtype);
  store_one(to, i, dtype, v);
}

/* A work-item has an element of db, or one of the dalphas, which has the coefficients of its part. */
__kernel void mhc_end(TENSOR(slabs), TENSOR(db), TENSOR(dalpha_pre), TENSOR(dalpha_post), TENSOR(dalpha_res),
                      const mhc_numbers k) {
  const long count = k.coefficients, n = k.streams, at = (long)get_global_id(0), part = at - count;
  const long begin = part < 0 ? at : part * n, end = part < 0 ? at + 1 : part < 2 ? (part + 1) * n : count;
  if (part >= 3) return;
  pair sum = {0, 0};
  for (long s = 0; s < k.slabs; ++s)
    for (long m = begin; m < end; ++m) sum = pair_add(sum, FLOATS_OF(slabs)[(2 * s + (part >= 0)) * count + m]);
  const memory to[] = {memory_of(dalpha_pre), memory_of(dalpha_post), memory_of(dalpha_res)};
  const bool wanted[] = {is_there(dalpha_pre), is_there(dalpha_post), is_there(dalpha_res)};
  if (part >= 0 && wanted[part]) put_sum(to[part], 0, k.dalpha_dtype[part], pair_value(sum), k.accumulate);
  if (part < 0 && is_there(db)) put_sum(memory_of(db), at, k.db_dtype, pair_value(sum), k.accumulate);
}
