/* mhc_post_res, as its header writes it. */
#include "ref/ref.h"

static double x_at(const tigon_mhc_post_res_problem *p, int64_t t, int64_t i, int64_t c) {
  return tigon_ref_at(&p->in_space, &p->x, p->dtype, t * p->in + i, c);
}
static double g_at(const tigon_mhc_post_res_problem *p, int64_t t, int64_t j, int64_t c) {
  return tigon_ref_at(&p->out_space, &p->o, p->dtype, t * p->out + j, c);
}
static double f_at(const tigon_mhc_post_res_problem *p, int64_t t, int64_t c) {
  return p->f.data ? tigon_ref_at(&p->tokens, &p->f, p->dtype, t, c) : 0;
}
static double h_res(const tigon_mhc_post_res_problem *p, int64_t t, int64_t j, int64_t i) {
  return tigon_ref_vector_at(p->h_res, (t * p->out + j) * p->in + i);
}
static double h_post(const tigon_mhc_post_res_problem *p, int64_t t, int64_t j) {
  return tigon_ref_vector_at(p->h_post, t * p->out + j);
}

tigon_status tigon_ref_mhc_post_res_fwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  (void)queue;
  for (int64_t t = 0; t < p->in_space.rows / p->in; ++t)
    for (int64_t j = 0; j < p->out; ++j)
      for (int64_t c = 0; c < p->cols; ++c) {
        double o = h_post(p, t, j) * f_at(p, t, c);
        for (int64_t i = 0; i < p->in; ++i) o += h_res(p, t, j, i) * x_at(p, t, i, c);
        tigon_ref_put(&p->out_space, &p->o, p->dtype, t * p->out + j, c, o);
      }
  return TIGON_OK;
}

static void token_bwd(const tigon_mhc_post_res_problem *p, int64_t t) {
  for (int64_t c = 0; c < p->cols; ++c) {
    double df = 0;
    for (int64_t i = 0; i < p->in && p->dx.data; ++i) {
      double dx = 0;
      for (int64_t j = 0; j < p->out; ++j) dx += h_res(p, t, j, i) * g_at(p, t, j, c);
      tigon_ref_put(&p->in_space, &p->dx, p->dtype, t * p->in + i, c, dx);
    }
    for (int64_t j = 0; j < p->out; ++j) df += h_post(p, t, j) * g_at(p, t, j, c);
    if (p->df.data) tigon_ref_put(&p->tokens, &p->df, p->dtype, t, c, df);
  }
  for (int64_t j = 0; j < p->out; ++j) {
    double of_f = 0;
    for (int64_t c = 0; c < p->cols; ++c) of_f += g_at(p, t, j, c) * f_at(p, t, c);
    tigon_ref_vector_put(p->dh_post, t * p->out + j, of_f, false);
    for (int64_t i = 0; i < p->in; ++i) {
      double of_x = 0;
      for (int64_t c = 0; c < p->cols; ++c) of_x += g_at(p, t, j, c) * x_at(p, t, i, c);
      tigon_ref_vector_put(p->dh_res, (t * p->out + j) * p->in + i, of_x, false);
    }
  }
}

tigon_status tigon_ref_mhc_post_res_bwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  (void)queue;
  for (int64_t t = 0; t < p->in_space.rows / p->in; ++t) token_bwd(p, t);
  return TIGON_OK;
}
