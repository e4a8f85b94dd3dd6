/* mhc_coeffs, as its header writes it. */
#include <math.h>
#include <stdlib.h>

#include "ref/ref.h"

typedef struct token {
  double l[TIGON_MHC_COEFFS]; /* l in forward; dl in backward */
  double p[TIGON_MHC_STREAMS * TIGON_MHC_STREAMS], m[TIGON_MHC_STREAMS * TIGON_MHC_STREAMS]; /* softmax; h_res */
  double denominator[2 * TIGON_MHC_TMAX][TIGON_MHC_STREAMS]; /* even ones of columns, odd ones of rows */
} token;

static double x_at(const tigon_mhc_coeffs_problem *p, int64_t t, int64_t k) {
  return tigon_ref_at(&p->space, &p->x, p->dtype, t * p->streams + k / p->cols, k % p->cols);
}
static double phi_at(const tigon_mhc_coeffs_problem *p, int64_t k, int64_t m) {
  return tigon_load_f64(p->phi, k * tigon_mhc_coeffs(p->streams) + m, p->phi_dtype);
}
static double alpha_at(const tigon_mhc_coeffs_problem *p, int64_t m) {
  return tigon_ref_vector_at(p->alpha[tigon_mhc_part(p->streams, m)], 0);
}
static double sigmoid(double x) { return 1 / (1 + tigon_ref_exp(-x)); }

/* The element of row or column v that is its w-th. */
static int64_t place(int64_t n, int step, int64_t v, int64_t w) { return step % 2 ? v * n + w : w * n + v; }

static void sinkhorn(const tigon_mhc_coeffs_problem *p, const double *l, token *of) {
  const int64_t n = p->streams;
  for (int64_t j = 0; j < n; ++j) {
    double most = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; ++i) most = l[j * n + i] > most || isnan(l[j * n + i]) ? l[j * n + i] : most;
    for (int64_t i = 0; i < n; ++i) sum += of->p[j * n + i] = tigon_ref_exp(l[j * n + i] - most);
    for (int64_t i = 0; i < n; ++i) of->m[j * n + i] = (of->p[j * n + i] /= sum) + (double)p->sinkhorn_eps;
  }
  for (int step = 0; step < 2 * p->tmax - 1; ++step)
    for (int64_t v = 0; v < n; ++v) {
      double sum = 0;
      for (int64_t w = 0; w < n; ++w) sum += of->m[place(n, step, v, w)];
      of->denominator[step][v] = sum + (double)p->sinkhorn_eps;
      for (int64_t w = 0; w < n; ++w) of->m[place(n, step, v, w)] /= of->denominator[step][v];
    }
}

/* dl of g, the gradient of h_res, in its place. */
static void sinkhorn_bwd(const tigon_mhc_coeffs_problem *p, token *of, double *g) {
  const int64_t n = p->streams;
  for (int step = (int)(2 * p->tmax - 2); step >= 0; --step)
    for (int64_t v = 0; v < n; ++v) {
      double dot = 0;
      for (int64_t w = 0; w < n; ++w) dot += g[place(n, step, v, w)] * of->m[place(n, step, v, w)];
      for (int64_t w = 0; w < n; ++w) {
        const int64_t at = place(n, step, v, w);
        g[at] = (g[at] - dot) / of->denominator[step][v];
        of->m[at] *= of->denominator[step][v];
      }
    }
  for (int64_t j = 0; j < n; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < n; ++i) dot += g[j * n + i] * of->p[j * n + i];
    for (int64_t i = 0; i < n; ++i) g[j * n + i] = of->p[j * n + i] * (g[j * n + i] - dot);
  }
}

tigon_status tigon_ref_mhc_coeffs_fwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  (void)queue;
  const int64_t n = p->streams, k_of = n * p->cols, m_of = tigon_mhc_coeffs(n);
  for (int64_t t = 0; t < p->tokens.rows; ++t) {
    token of;
    double squares = 0;
    for (int64_t k = 0; k < k_of; ++k) squares += x_at(p, t, k) * x_at(p, t, k);
    const double rstd = 1 / sqrt(squares / (double)k_of + (double)p->rms_eps);
    tigon_ref_vector_put(p->rstd, t, rstd, false);
    for (int64_t m = 0; m < m_of; ++m) {
      double sum = 0;
      for (int64_t k = 0; k < k_of; ++k) sum += x_at(p, t, k) * phi_at(p, k, m);
      tigon_ref_vector_put(p->mix, t * m_of + m, sum * rstd, false);
      of.l[m] = alpha_at(p, m) * sum * rstd + tigon_ref_vector_at(p->b, m);
    }
    for (int64_t i = 0; i < n; ++i) {
      of.l[i] = sigmoid(of.l[i]) + (double)p->pre_eps;
      tigon_ref_vector_put(p->h[0], t * n + i, of.l[i], false);
      tigon_ref_vector_put(p->h[1], t * n + i, (double)p->post_mult * sigmoid(of.l[n + i]), false);
    }
    sinkhorn(p, of.l + 2 * n, &of);
    for (int64_t i = 0; i < n * n; ++i) tigon_ref_vector_put(p->h[2], t * n * n + i, of.m[i], false);
    for (int64_t c = 0; c < p->cols && p->y.data; ++c) {
      double y = 0;
      for (int64_t i = 0; i < n; ++i) y += of.l[i] * x_at(p, t, i * p->cols + c);
      tigon_ref_put(&p->tokens, &p->y, p->dtype, t, c, y);
    }
  }
  return TIGON_OK;
}

/* dl of a token, and h_pre. */
static void token_bwd(const tigon_mhc_coeffs_problem *p, int64_t t, double *h_pre, token *of) {
  const int64_t n = p->streams, m_of = tigon_mhc_coeffs(n);
  double l[TIGON_MHC_COEFFS];
  for (int64_t m = 0; m < m_of; ++m)
    l[m] = alpha_at(p, m) * tigon_ref_vector_at(p->mix, t * m_of + m) + tigon_ref_vector_at(p->b, m);
  for (int64_t i = 0; i < n; ++i) {
    const double pre = sigmoid(l[i]), post = sigmoid(l[n + i]);
    double dh = tigon_ref_vector_at(p->h[0], t * n + i);
    for (int64_t c = 0; c < p->cols && p->y.data; ++c)
      dh += tigon_ref_at(&p->tokens, &p->y, p->dtype, t, c) * x_at(p, t, i * p->cols + c);
    h_pre[i] = pre + (double)p->pre_eps;
    of->l[i] = dh * pre * (1 - pre);
    of->l[n + i] = (double)p->post_mult * tigon_ref_vector_at(p->h[1], t * n + i) * post * (1 - post);
  }
  for (int64_t i = 0; i < n * n; ++i) of->l[2 * n + i] = tigon_ref_vector_at(p->h[2], t * n * n + i);
  sinkhorn(p, l + 2 * n, of);
  sinkhorn_bwd(p, of, of->l + 2 * n);
}

/* dphi's row k adds up in a row of its own, because sums over tokens are of doubles. */
static void dphi_row(const tigon_mhc_coeffs_problem *p, int64_t k, const double *dmix) {
  const int64_t m_of = tigon_mhc_coeffs(p->streams);
  double sum[TIGON_MHC_COEFFS] = {0};
  for (int64_t t = 0; t < p->tokens.rows; ++t)
    for (int64_t m = 0; m < m_of; ++m) sum[m] += x_at(p, t, k) * tigon_ref_vector_at(p->rstd, t) * dmix[t * m_of + m];
  for (int64_t m = 0; m < m_of; ++m) tigon_ref_vector_put(p->dphi, k * m_of + m, sum[m], p->accumulate);
}

tigon_status tigon_ref_mhc_coeffs_bwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  (void)queue;
  const int64_t n = p->streams, k_of = n * p->cols, m_of = tigon_mhc_coeffs(n), tokens = p->tokens.rows;
  double *dmix = malloc((size_t)(tokens * m_of + 1) * sizeof *dmix), db[TIGON_MHC_COEFFS] = {0}, dalpha[3] = {0};
  if (!dmix) return TIGON_ERROR_OUT_OF_MEMORY;
  for (int64_t t = 0; t < tokens; ++t) {
    token of;
    double h_pre[TIGON_MHC_STREAMS], dot = 0;
    token_bwd(p, t, h_pre, &of);
    for (int64_t m = 0; m < m_of; ++m) {
      const double mix = tigon_ref_vector_at(p->mix, t * m_of + m);
      db[m] += of.l[m];
      dalpha[tigon_mhc_part(n, m)] += of.l[m] * mix;
      dmix[t * m_of + m] = alpha_at(p, m) * of.l[m];
      dot += dmix[t * m_of + m] * mix;
    }
    const double rstd = tigon_ref_vector_at(p->rstd, t);
    for (int64_t k = 0; k < k_of && p->dx.data; ++k) {
      double sum = 0;
      for (int64_t m = 0; m < m_of; ++m) sum += phi_at(p, k, m) * dmix[t * m_of + m];
      double dx = rstd * sum - x_at(p, t, k) * rstd * rstd * dot / (double)k_of;
      if (p->y.data) dx += h_pre[k / p->cols] * tigon_ref_at(&p->tokens, &p->y, p->dtype, t, k % p->cols);
      tigon_ref_put(&p->space, &p->dx, p->dtype, t * n + k / p->cols, k % p->cols, dx);
    }
  }
  for (int64_t k = 0; k < k_of && p->dphi.data; ++k) dphi_row(p, k, dmix);
  for (int64_t m = 0; m < m_of; ++m) tigon_ref_vector_put(p->db, m, db[m], p->accumulate);
  for (int i = 0; i < 3; ++i) tigon_ref_vector_put(p->dalpha[i], 0, dalpha[i], p->accumulate);
  free(dmix);
  return TIGON_OK;
}
