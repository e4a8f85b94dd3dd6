/* mhc_coeffs: a block of TILE tokens reads phi once, and its lanes are tokens where a formula is not over channels. Backward has a
 * second pass for dphi, over panels of channels, of which each reads all tokens. */
#include <math.h>
#include <stddef.h>

#include "cpu/column_sum.h"
#include "cpu/mhc_product.h"

enum {
  TILE = 16,                   /* tokens of a block, a multiple of LANES and MHC_ROWS */
  AT_ONCE = 6144,              /* elements of phi that are worked on at once; TILE rows are fewer */
  AHEAD = 16,                  /* tokens whose x is on its way meanwhile */
  TOKENS = 64,                 /* tokens of a block of dphi's sums */
  PITCH = MHC_DEPTH + 16,      /* pitch of these sums: their rows fall into different sets of a cache */
  SUMS = TIGON_MHC_COEFFS + 3, /* sums of db and the dalphas */
};

typedef struct job {
  const tigon_mhc_coeffs_problem *p;
  int64_t coeffs, blocks, tasks; /* blocks of tokens; tasks, each with a range of them */
  int64_t panel, panels;         /* channels of one in which dphi is summed, of each stream */
  float *g;                      /* [tokens, coeffs]: rstd * dmix; NULL: no sums are wanted */
  double *sums;                  /* [tasks, coeffs + 3]: of db and the dalphas */
  bool stream;
} job;

/* A block at work. Columns of its matrices are tokens but for `sums`. */
typedef struct block {
  int64_t first; /* token */
  int tokens;
  _Alignas(64) float l[TIGON_MHC_COEFFS][TILE], h_pre[TIGON_MHC_STREAMS][TILE];
  _Alignas(64) float g[TIGON_MHC_COEFFS][TILE]; /* backward: gradients of h, dl, then rstd * dmix */
  float rstd[TILE], back[TILE];                 /* back: rstd * (dmix . mix) / K */
} block;

TIGON_INLINE const char *stream_of(const tigon_mhc_coeffs_problem *p, const tigon_rows *t, int64_t token, int64_t i) {
  return tigon_row(&p->space, t, (size_t)v_size(p->dtype), token * p->streams + i);
}
TIGON_INLINE float *token_of(tigon_vector v, int64_t token, int64_t count) {
  return v.data ? (float *)v.data + token * count : NULL;
}

/* Columns [c, c + n) of a row, which need not be there. */
TIGON_INLINE void prefetch(tigon_dtype dtype, const char *row, int64_t c, int n) {
  for (int at = 0; at < n; at += 64 / v_size(dtype)) vf_prefetch_l2(row + (c + at) * v_size(dtype));
}

/* The logits of a block's tokens, whose `mix` [TILE] rows of `pitch` numbers are given; those past its end are 0. */
static void find_logits(const job *j, const float *mix, int64_t pitch, block *b) {
  const tigon_mhc_coeffs_problem *p = j->p;
  for (int64_t m = 0; m < j->coeffs; ++m) {
    const float alpha = (float)vector_at(p->alpha[tigon_mhc_part(p->streams, m)], 0), add = (float)vector_at(p->b, m);
    for (int t = 0; t < TILE; ++t) b->l[m][t] = t < b->tokens ? alpha * mix[t * pitch + m] + add : 0;
  }
}

/* ---- forward ---- */

/* Columns [c, c + n) of stream i of the block's tokens in f32, [n, TILE], and their squares' sums. */
TIGON_INLINE void turn_x(tigon_dtype dtype, const tigon_mhc_coeffs_problem *p, const block *b, int64_t i, int64_t c,
                         int n, float *x, double *squares) {
  for (int first = 0; first < b->tokens; first += LANES) {
    const int tokens = b->tokens - first < LANES ? b->tokens - first : LANES;
    const char *row[LANES];
    vf r[LANES], sum[LANES];
    for (int t = 0; t < LANES; ++t) {
      row[t] = t < tokens ? stream_of(p, &p->x, b->first + first + t, i) : NULL;
      sum[t] = vf_zero();
    }
    for (int at = 0; at < n; at += LANES) {
      const int count = n - at < LANES ? n - at : LANES;
      for (int t = 0; t < LANES; ++t) {
        r[t] = row[t] ? v_load_n(row[t], c + at, dtype, count) : vf_zero();
        sum[t] = vf_fma(r[t], r[t], sum[t]);
      }
      vf_transpose(r);
      for (int k = 0; k < LANES; ++k) vf_store(x + (at + k) * TILE + first, r[k]);
    }
    for (int t = 0; t < tokens; ++t) squares[first + t] += (double)vf_sum(sum[t]);
  }
}

/* The same, [TILE, MHC_DEPTH]. */
TIGON_INLINE void widen_x(tigon_dtype dtype, const tigon_mhc_coeffs_problem *p, const block *b, int64_t i, int64_t c,
                          int n, float *x, double *squares) {
  for (int t = 0; t < b->tokens; ++t) {
    const char *row = stream_of(p, &p->x, b->first + t, i);
    vf sum = vf_zero();
    for (int at = 0; at < n; at += LANES) {
      const vf v = v_load_n(row, c + at, dtype, n - at < LANES ? n - at : LANES);
      vf_store(x + t * MHC_DEPTH + at, v);
      sum = vf_fma(v, v, sum);
    }
    squares[t] += (double)vf_sum(sum);
  }
}

/* Elements [0, count) in f32. */
TIGON_INLINE void widen_phi(tigon_dtype dtype, const char *phi, int64_t count, float *to) {
  for (int64_t i = 0; i < count; i += LANES)
    vf_store_n(to + i, v_load_n(phi, i, dtype, count - i < LANES ? (int)(count - i) : LANES),
               count - i < LANES ? (int)(count - i) : LANES);
}

/* Coefficients [m, m + many) of n rows of phi in f32, [n, many]. */
static void phi_part(const job *j, const char *phi, int64_t m, int64_t many, int64_t n, float *to) {
  const tigon_dtype dtype = j->p->phi_dtype;
  const bool whole = many == j->coeffs;
  for (int64_t k = 0; k < (whole ? 1 : n); ++k)
    TIGON_FOR_DTYPE(dtype, widen_phi, phi + (k * j->coeffs + m) * v_size(dtype), whole ? n * many : many,
                    to + k * many);
}

/* What a block's products are made in, and their sums. */
typedef struct mix_room {
  _Alignas(64) float x[TILE * MHC_DEPTH];
  float phi[AT_ONCE + MHC_ROWS];
  double sums[TIGON_MHC_COEFFS][TILE], squares[TILE];
  _Alignas(64) float part[TILE * MHC_PITCH];
} mix_room;

/* Adds the products of columns [c, c + n) of stream i, whose rows are coefficients, PART at once, and whose columns are tokens. */
static void add_turned(const job *j, const block *b, int64_t i, int64_t c, int n, mix_room *r) {
  enum { PART = AT_ONCE / MHC_DEPTH };
  const tigon_mhc_coeffs_problem *p = j->p;
  const char *from = (const char *)p->phi + (i * p->cols + c) * j->coeffs * v_size(p->phi_dtype);
  TIGON_FOR_DTYPE(p->dtype, turn_x, p, b, i, c, n, r->x, r->squares);
  for (int64_t m = 0; m < j->coeffs; m += PART) {
    const int64_t many = j->coeffs - m < PART ? j->coeffs - m : PART;
    const mhc_product product = {r->phi, 1, many, r->x, TILE, many, n, TILE, r->part, TILE, false};
    phi_part(j, from, m, many, n, r->phi);
    mhc_multiply(TIGON_F32, &product);
    for (int64_t a = 0; a < many; ++a)
      for (int t = 0; t < TILE; ++t) r->sums[m + a][t] += (double)r->part[a * TILE + t];
  }
}

/* The same with rows of tokens and columns of coefficients. */
static void add_straight(const job *j, const block *b, int64_t i, int64_t c, int n, mix_room *r) {
  const tigon_mhc_coeffs_problem *p = j->p;
  const char *phi = (const char *)p->phi + (i * p->cols + c) * j->coeffs * v_size(p->phi_dtype);
  const mhc_product product = {r->x, MHC_DEPTH, 1, phi, j->coeffs, b->tokens, n, j->coeffs, r->part, MHC_PITCH, false};
  TIGON_FOR_DTYPE(p->dtype, widen_x, p, b, i, c, n, r->x, r->squares);
  TIGON_FOR_DTYPE(p->phi_dtype, mhc_multiply, &product);
  for (int t = 0; t < b->tokens; ++t)
    for (int64_t m = 0; m < j->coeffs; ++m) r->sums[m][t] += (double)r->part[t * MHC_PITCH + m];
}

/* mix and rstd of the block's tokens. The 24 coefficients of four streams are whole vectors of 8 lanes, but not of 16. */
static void find_mix(const job *j, block *b, float *mix) {
  const tigon_mhc_coeffs_problem *p = j->p;
  mix_room r;
  memset(&r, 0, offsetof(mix_room, part));
  for (int64_t i = 0; i < p->streams; ++i)
    for (int64_t c = 0; c < p->cols; c += MHC_DEPTH) {
      const int n = p->cols - c < MHC_DEPTH ? (int)(p->cols - c) : MHC_DEPTH;
      (LANES == 16 ? add_turned : add_straight)(j, b, i, c, n, &r);
    }
  for (int t = 0; t < b->tokens; ++t) {
    const double rstd = 1 / sqrt(r.squares[t] / (double)(p->streams * p->cols) + (double)p->rms_eps);
    float *to = token_of(p->mix, b->first + t, j->coeffs), *to_rstd = token_of(p->rstd, b->first + t, 1);
    if (to_rstd) *to_rstd = (float)rstd;
    for (int64_t m = 0; m < j->coeffs; ++m) mix[t * j->coeffs + m] = (float)(r.sums[m][t] * rstd);
    if (to) memcpy(to, mix + t * j->coeffs, (size_t)j->coeffs * sizeof *to);
  }
}

/* h of the tokens in lanes from `at` on. */
static void find_h(const job *j, block *b, int at) {
  const tigon_mhc_coeffs_problem *p = j->p;
  const int n = (int)p->streams, end = b->tokens - at < LANES ? b->tokens : at + LANES;
  _Alignas(64) mhc_sinkhorn s;
  vf rest;
  for (int m = 0; m < 2 * n; ++m) {
    const vf h = mhc_sigmoid(vf_load(&b->l[m][at]), &rest);
    if (m < n) vf_store(&b->h_pre[m][at], vf_add(h, vf_set(p->pre_eps)));
    if (m >= n) vf_store(&b->l[m][at], vf_mul(h, vf_set(p->post_mult)));
  }
  mhc_sinkhorn_of(n, (int)p->tmax, p->sinkhorn_eps, &b->l[2 * n][at], TILE, &s);
  for (int m = 0; m < n * n; ++m) vf_store(&b->l[2 * n + m][at], s.m[m]);
  for (int t = at; t < end; ++t) {
    const int64_t token = b->first + t;
    float *pre = token_of(p->h[0], token, n), *post = token_of(p->h[1], token, n),
          *res = token_of(p->h[2], token, n * n);
    for (int i = 0; i < n; ++i) pre[i] = b->h_pre[i][t], post[i] = b->l[n + i][t];
    for (int m = 0; m < n * n; ++m) res[m] = b->l[2 * n + m][t];
  }
}

TIGON_INLINE void find_y(tigon_dtype dtype, const job *j, const block *b) {
  const tigon_mhc_coeffs_problem *p = j->p;
  const char *x[TIGON_MHC_STREAMS];
  for (int t = 0; t < b->tokens; ++t) {
    char *y = tigon_row(&p->tokens, &p->y, (size_t)v_size(dtype), b->first + t);
    for (int64_t i = 0; i < p->streams; ++i) x[i] = stream_of(p, &p->x, b->first + t, i);
    mhc_mix(dtype, (int)p->streams, x, &b->h_pre[0][t], TILE, y, 0, p->cols, j->stream && v2_aligned(y));
  }
}

static void start_block(const job *j, int64_t index, block *b) {
  const int64_t rest = j->p->tokens.rows - index * TILE;
  b->first = index * TILE, b->tokens = rest < TILE ? (int)rest : TILE;
}

static void fwd_task(const void *argument, int64_t index) {
  const job *j = argument;
  int64_t begin, end;
  tigon_range(j->blocks, j->tasks, index, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    float mix[TILE * TIGON_MHC_COEFFS];
    block b;
    start_block(j, i, &b);
    find_mix(j, &b, mix);
    find_logits(j, mix, j->coeffs, &b);
    for (int at = 0; at < b.tokens; at += LANES) find_h(j, &b, at);
    if (j->p->y.data) TIGON_FOR_DTYPE(j->p->dtype, find_y, j, &b);
  }
  if (j->stream) vf_fence();
}

/* ---- backward ---- */

/* The gradients of h of the block's tokens. */
TIGON_INLINE void find_dh(tigon_dtype dtype, const job *j, block *b) {
  const tigon_mhc_coeffs_problem *p = j->p;
  const int64_t n = p->streams;
  memset(b->g, 0, sizeof b->g);
  for (int t = 0; t < b->tokens; ++t) {
    const int64_t token = b->first + t;
    const float *pre = token_of(p->h[0], token, n), *post = token_of(p->h[1], token, n);
    const float *res = token_of(p->h[2], token, n * n);
    const char *dy = tigon_row(&p->tokens, &p->y, (size_t)v_size(dtype), token);
    for (int64_t i = 0; i < n; ++i) {
      double sum = pre ? (double)pre[i] : 0;
      const char *x = dy ? stream_of(p, &p->x, token, i) : NULL;
      for (int64_t c = 0; dy && c < p->cols; c += MHC_BLOCK)
        sum += (double)mhc_dot(dtype, dy, x, c, p->cols - c < MHC_BLOCK ? p->cols : c + MHC_BLOCK);
      b->g[i][t] = (float)sum;
      b->g[n + i][t] = post ? post[i] : 0;
    }
    for (int64_t m = 0; res && m < n * n; ++m) b->g[2 * n + m][t] = res[m];
  }
}

/* dl in the place of dh, and h_pre, of the tokens in lanes from `at` on. */
static void find_dl(const job *j, block *b, int at) {
  const tigon_mhc_coeffs_problem *p = j->p;
  const int n = (int)p->streams;
  _Alignas(64) mhc_sinkhorn s;
  for (int m = 0; m < 2 * n; ++m) {
    vf rest, h = mhc_sigmoid(vf_load(&b->l[m][at]), &rest);
    const vf dh = vf_mul(vf_load(&b->g[m][at]), m < n ? vf_set(1.0f) : vf_set(p->post_mult));
    vf_store(&b->g[m][at], vf_mul(dh, vf_mul(h, rest)));
    if (m < n) vf_store(&b->h_pre[m][at], vf_add(h, vf_set(p->pre_eps)));
  }
  mhc_sinkhorn_of(n, (int)p->tmax, p->sinkhorn_eps, &b->l[2 * n][at], TILE, &s);
  mhc_sinkhorn_back(n, (int)p->tmax, &b->g[2 * n][at], TILE, &s);
}

/* rstd * dmix in the place of dl, and what the block's tokens add to the sums. */
static void find_dmix(const job *j, block *b, double *sums) {
  const tigon_mhc_coeffs_problem *p = j->p;
  for (int t = 0; t < b->tokens; ++t) {
    const float *mix = token_of(p->mix, b->first + t, j->coeffs);
    double dot = 0;
    b->rstd[t] = *token_of(p->rstd, b->first + t, 1);
    for (int64_t m = 0; m < j->coeffs; ++m) {
      const int part = tigon_mhc_part(p->streams, m);
      const double dl = (double)b->g[m][t], dmix = vector_at(p->alpha[part], 0) * dl;
      sums[m] += dl;
      sums[j->coeffs + part] += dl * (double)mix[m];
      dot += dmix * (double)mix[m];
      b->g[m][t] = (float)(dmix * (double)b->rstd[t]);
      if (j->g) j->g[(b->first + t) * j->coeffs + m] = b->g[m][t];
    }
    b->back[t] = (float)(dot * (double)b->rstd[t] / (double)(p->streams * p->cols));
  }
}

/* Columns [c, c + n) of stream i of dx, whose products with phi are given, [n, TILE]. */
TIGON_INLINE void put_dx(tigon_dtype dtype, const job *j, const block *b, int64_t i, int64_t c, int n,
                         const float *product) {
  const tigon_mhc_coeffs_problem *p = j->p;
  _Alignas(64) float turned[TILE][PITCH];
  for (int t = 0; t < b->tokens; t += LANES)
    for (int k = 0; k < n; k += LANES) {
      vf r[LANES];
      for (int l = 0; l < LANES; ++l) r[l] = vf_load(product + (k + l) * TILE + t);
      vf_transpose(r);
      for (int l = 0; l < LANES; ++l) vf_store(&turned[t + l][k], r[l]);
    }
  for (int t = 0; t < b->tokens; ++t) {
    const int64_t token = b->first + t;
    const char *x = stream_of(p, &p->x, token, i);
    const char *dy = tigon_row(&p->tokens, &p->y, (size_t)v_size(dtype), token);
    char *to = tigon_row(&p->space, &p->dx, (size_t)v_size(dtype), token * p->streams + i);
    prefetch(dtype, x, c + n, n);
    const vf rstd = vf_set(b->rstd[t]), back = vf_set(b->back[t]), h_pre = vf_set(b->h_pre[i][t]);
    for (int k = 0; k < n; k += LANES) {
      const int count = n - k < LANES ? n - k : LANES;
      vf dx = vf_fnma(vf_mul(v_load_n(x, c + k, dtype, count), rstd), back, vf_load(&turned[t][k]));
      if (dy) dx = vf_fma(h_pre, v_load_n(dy, c + k, dtype, count), dx);
      v_store_n(to, c + k, dtype, dx, count);
    }
  }
}

/* Channels at once, so that a panel of phi, and of sums like it, has AT_ONCE elements at most: a multiple of TILE. */
static int64_t panel_of(int64_t coeffs) {
  const int64_t channels = AT_ONCE / coeffs / TILE * TILE;
  return channels < TILE ? TILE : channels > MHC_DEPTH ? MHC_DEPTH : channels;
}

static void find_dx(const job *j, const block *b) {
  const tigon_mhc_coeffs_problem *p = j->p;
  _Alignas(64) float phi[AT_ONCE] = {0}, out[MHC_DEPTH * TILE];
  for (int64_t i = 0; i < p->streams; ++i)
    for (int64_t c = 0; c < p->cols; c += j->panel) {
      const int n = p->cols - c < j->panel ? (int)(p->cols - c) : (int)j->panel;
      const char *from = (const char *)p->phi + (i * p->cols + c) * j->coeffs * v_size(p->phi_dtype);
      TIGON_FOR_DTYPE(p->phi_dtype, widen_phi, from, n * j->coeffs, phi);
      for (int64_t m = 0; m < j->coeffs; m += MHC_DEPTH) {
        const int64_t depth = j->coeffs - m < MHC_DEPTH ? j->coeffs - m : MHC_DEPTH;
        const mhc_product product = {phi + m, j->coeffs, 1, b->g[m], TILE, n, depth, TILE, out, TILE, m > 0};
        mhc_multiply(TIGON_F32, &product);
      }
      TIGON_FOR_DTYPE(p->dtype, put_dx, j, b, i, c, n, out);
    }
}

static void bwd_task(const void *argument, int64_t index) {
  const job *j = argument;
  double sums[SUMS] = {0};
  int64_t begin, end;
  tigon_range(j->blocks, j->tasks, index, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    block b;
    start_block(j, i, &b);
    find_logits(j, token_of(j->p->mix, b.first, j->coeffs), j->coeffs, &b);
    TIGON_FOR_DTYPE(j->p->dtype, find_dh, j, &b);
    for (int at = 0; at < b.tokens; at += LANES) find_dl(j, &b, at);
    find_dmix(j, &b, sums);
    if (j->p->dx.data) find_dx(j, &b);
  }
  if (j->sums) memcpy(j->sums + index * (j->coeffs + 3), sums, (size_t)(j->coeffs + 3) * sizeof *sums);
}

/* One f32 copy of columns [c, c + n) of stream i of `count` tokens. */
TIGON_INLINE void gather(tigon_dtype dtype, const tigon_mhc_coeffs_problem *p, int64_t first, int count, int64_t i,
                         int64_t c, int n, float x[TOKENS][PITCH]) {
  for (int t = 0; t < count; ++t) {
    const char *row = stream_of(p, &p->x, first + t, i);
    if (first + t + AHEAD < p->tokens.rows) /* pieces of rows, which hardware does not foresee */
      prefetch(dtype, stream_of(p, &p->x, first + t + AHEAD, i), c, n);
    for (int at = 0; at < n; at += LANES)
      vf_store(&x[t][at], v_load_n(row, c + at, dtype, n - at < LANES ? n - at : LANES));
  }
}

/* A panel of dphi: sums over all tokens, in order. Coefficients are the rows of the products, channels their columns; what a whole tile
 * of rows reads beyond the last token's lies in the sums behind. */
static void dphi_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_mhc_coeffs_problem *p = j->p;
  const int64_t i = index / j->panels, c = index % j->panels * j->panel;
  const int n = p->cols - c < j->panel ? (int)(p->cols - c) : (int)j->panel;
  enum { WIDE = AT_ONCE + MHC_DEPTH * MHC_ROWS }; /* coefficients become whole tiles */
  const int64_t pitch = j->panel;
  _Alignas(64) float x[TOKENS][PITCH] = {{0}}, part[WIDE];
  double sums[WIDE] = {0};
  for (int64_t t = 0; t < p->tokens.rows; t += TOKENS) {
    const int count = p->tokens.rows - t < TOKENS ? (int)(p->tokens.rows - t) : TOKENS;
    const mhc_product product = {
        j->g + t * j->coeffs, 1, j->coeffs, x[0], PITCH, j->coeffs, count, n, part, pitch, false};
    TIGON_FOR_DTYPE(p->dtype, gather, p, t, count, i, c, n, x);
    mhc_multiply(TIGON_F32, &product);
    for (int64_t at = 0; at < j->coeffs * pitch; ++at) sums[at] += (double)part[at];
  }
  for (int k = 0; k < n; ++k)
    for (int64_t m = 0; m < j->coeffs; ++m) {
      const int64_t at = (i * p->cols + c + k) * j->coeffs + m;
      const double before = p->accumulate ? vector_at(p->dphi, at) : 0;
      tigon_store_f64(p->dphi.data, at, p->dphi.dtype, before + sums[m * pitch + k]);
    }
}

/* ---- calls ---- */

static job job_of(const tigon_mhc_coeffs_problem *p) {
  job j = {.p = p, .coeffs = tigon_mhc_coeffs(p->streams), .blocks = (p->tokens.rows + TILE - 1) / TILE};
  j.panel = panel_of(j.coeffs);
  j.panels = (p->cols + j.panel - 1) / j.panel;
  j.tasks = tigon_slabs(j.blocks, TIGON_CPU_TASKS);
  return j;
}
static int64_t token_bytes(const tigon_mhc_coeffs_problem *p) { return (p->streams + 1) * p->cols * v_size(p->dtype); }

tigon_status TIGON_CPU(mhc_coeffs_fwd)(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  job j = job_of(p);
  j.tasks = tigon_cpu_row_tasks(j.blocks, TILE * token_bytes(p));
  j.stream = tigon_cpu_streams(p->tokens.rows * token_bytes(p));
  tigon_cpu_parallel(queue, j.tasks, fwd_task, &j);
  return TIGON_OK;
}

static int64_t g_bytes(const job *j) { return tigon_slab_bytes(j->p->tokens.rows, 1, j->coeffs); }

int64_t TIGON_CPU(mhc_coeffs_bwd_bytes)(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  (void)queue;
  const job j = job_of(p);
  return tigon_mhc_sums(p) ? g_bytes(&j) + tigon_pad(j.tasks * (j.coeffs + 3) * (int64_t)sizeof(double)) : 0;
}

tigon_status TIGON_CPU(mhc_coeffs_bwd)(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  job j = job_of(p);
  const bool sums = tigon_mhc_sums(p);
  j.g = sums ? p->workspace : NULL;
  j.sums = j.g ? (double *)(void *)((char *)p->workspace + g_bytes(&j)) : NULL;
  tigon_cpu_note(queue, 1, sums ? j.tasks : 0);
  tigon_cpu_parallel(queue, j.tasks, bwd_task, &j);
  if (p->dphi.data) tigon_cpu_parallel(queue, p->streams * j.panels, dphi_task, &j);
  for (int64_t m = 0; m < j.coeffs; ++m)
    column_sum_one(queue, p->db, m, j.sums, j.tasks, m, j.coeffs + 3, p->accumulate);
  for (int i = 0; i < 3; ++i)
    column_sum_one(queue, p->dalpha[i], 0, j.sums, j.tasks, j.coeffs + i, j.coeffs + 3, p->accumulate);
  return TIGON_OK;
}
