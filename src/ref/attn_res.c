/* attn_res, as its header writes it. With TIGON_F64 a and rstd are f64, too. */
#include <stdlib.h>

#include "ref/ref.h"

typedef tigon_attn_res_problem problem;

static bool is_f64(const problem *p) { return (int)p->dtype == TIGON_F64; }
static tigon_dtype scalar_dtype(const problem *p) { return is_f64(p) ? p->dtype : TIGON_F32; }

/* Token r's row of block i. */
static tigon_rows row(const problem *p, const tigon_blocks *b, int64_t i) {
  tigon_rows rows = b->rows;
  rows.data = tigon_block(b, is_f64(p) ? sizeof(double) : tigon_dtype_size(p->dtype), i);
  return rows;
}
static double at(const problem *p, const tigon_rows *t, int64_t r, int64_t c) {
  return tigon_ref_at(&p->space, t, p->dtype, r, c);
}
static double c_at(const problem *p, int64_t c) { return tigon_ref_vector_at(p->q, c) * tigon_ref_vector_at(p->wn, c); }

static double rstd_of(const problem *p, const tigon_rows *v, int64_t r) {
  double sum = 0;
  for (int64_t c = 0; c < p->cols; ++c) sum += at(p, v, r, c) * at(p, v, r, c);
  return 1 / sqrt((p->cols > 0 ? sum / (double)p->cols : 0) + (double)p->eps);
}
static double score(const problem *p, const tigon_rows *v, int64_t r, double rstd) {
  double sum = 0;
  for (int64_t c = 0; c < p->cols; ++c) sum += c_at(p, c) * at(p, v, r, c);
  return p->cols > 0 ? rstd * sum : 0;
}

/* a [blocks] has the scores, and then the weights. */
static void softmax(const problem *p, double *a) {
  double largest = -(double)INFINITY, sum = 0;
  for (int64_t i = 0; i < p->blocks; ++i) largest = fmax(largest, a[i]);
  for (int64_t i = 0; i < p->blocks; ++i) sum += a[i] = tigon_ref_exp(a[i] - largest);
  for (int64_t i = 0; i < p->blocks; ++i) a[i] /= sum;
}

tigon_status tigon_ref_attn_res_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  double *a = calloc((size_t)p->blocks + 1, sizeof *a);
  if (!a) return TIGON_ERROR_OUT_OF_MEMORY;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    for (int64_t i = 0; i < p->blocks; ++i) {
      const tigon_rows v = row(p, &p->v, i);
      const double rstd = rstd_of(p, &v, r);
      a[i] = score(p, &v, r, rstd);
      if (p->rstd) tigon_store_f64(p->rstd, r * p->blocks + i, scalar_dtype(p), rstd);
    }
    softmax(p, a);
    for (int64_t i = 0; p->a && i < p->blocks; ++i) tigon_store_f64(p->a, r * p->blocks + i, scalar_dtype(p), a[i]);
    for (int64_t c = 0; c < p->cols; ++c) {
      double h = 0;
      for (int64_t i = 0; i < p->blocks; ++i) {
        const tigon_rows v = row(p, &p->v, i);
        h += a[i] * at(p, &v, r, c);
      }
      tigon_ref_put(&p->space, &p->h, p->dtype, r, c, h);
    }
  }
  free(a);
  return TIGON_OK;
}

/* dv of a token, and its terms of u. ds [blocks] has room. */
static void backward_token(const problem *p, int64_t r, double *ds, double *u) {
  double mean = 0;
  for (int64_t i = 0; i < p->blocks; ++i) {
    const tigon_rows v = row(p, &p->v, i);
    ds[i] = 0;
    for (int64_t c = 0; c < p->cols; ++c) ds[i] += at(p, &p->h, r, c) * at(p, &v, r, c);
    mean += tigon_load_f64(p->a, r * p->blocks + i, scalar_dtype(p)) * ds[i];
  }
  for (int64_t i = 0; i < p->blocks; ++i) {
    const tigon_rows v = row(p, &p->v, i), dv = row(p, &p->dv, i);
    const double a = tigon_load_f64(p->a, r * p->blocks + i, scalar_dtype(p));
    const double rstd = tigon_load_f64(p->rstd, r * p->blocks + i, scalar_dtype(p));
    const double s = score(p, &v, r, rstd);
    ds[i] = a * (ds[i] - mean);
    for (int64_t c = 0; c < p->cols; ++c) {
      const double x = at(p, &v, r, c);
      u[c] += ds[i] * rstd * x;
      tigon_ref_put(&p->space, &dv, p->dtype, r, c,
                    a * at(p, &p->h, r, c) + ds[i] * rstd * (c_at(p, c) - s * rstd / (double)p->cols * x));
    }
  }
}

tigon_status tigon_ref_attn_res_bwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  double *u = calloc((size_t)(p->cols + p->blocks) + 1, sizeof *u);
  if (!u) return TIGON_ERROR_OUT_OF_MEMORY;
  for (int64_t r = 0; r < p->space.rows; ++r) backward_token(p, r, u + p->cols, u);
  for (int64_t c = 0; c < p->cols; ++c) {
    tigon_ref_vector_put(p->dq, c, u[c] * tigon_ref_vector_at(p->wn, c), p->accumulate);
    tigon_ref_vector_put(p->dwn, c, u[c] * tigon_ref_vector_at(p->q, c), p->accumulate);
  }
  free(u);
  return TIGON_OK;
}
