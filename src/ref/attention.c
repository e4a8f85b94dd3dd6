/* attention, as its header writes it: every score is worked out anew wherever it is needed. */
#include "ref/ref.h"
#include "ref/span.h"

enum { PART = 64 }; /* columns of the head that are summed together */

static int64_t element(const tigon_heads *t, int64_t batch, int64_t token, int64_t head) {
  return batch * t->batch_pitch + token * t->token_pitch + head * t->head_pitch;
}

/* a . b over the head. */
static double dot(tigon_dtype dtype, int64_t head_dim, const void *a, int64_t a_at, const void *b, int64_t b_at) {
  double sum = 0;
  for (int64_t d = 0; d < head_dim; ++d) sum += tigon_load_f64(a, a_at + d, dtype) * tigon_load_f64(b, b_at + d, dtype);
  return sum;
}

static int64_t part_width(int64_t head_dim, int64_t d0) { return head_dim - d0 < PART ? head_dim - d0 : PART; }

static double fwd_score(const tigon_attention_fwd_problem *p, int64_t b, int64_t t, int64_t h, int64_t j) {
  const int64_t kv = h / (p->q.heads / p->k.heads);
  return (double)p->scale *
         dot(p->dtype, p->head_dim, p->q.data, element(&p->q, b, t, h), p->k.data, element(&p->k, b, j, kv));
}

static void fwd_query(const tigon_attention_fwd_problem *p, int64_t b, int64_t t, int64_t h) {
  const int64_t kv = h / (p->q.heads / p->k.heads), o = element(&p->o, b, t, h);
  int64_t begin, end;
  tigon_attention_span(p->tokens, p->keys, p->causal, p->window, t, &begin, &end);
  double max = -INFINITY;
  for (int64_t j = begin; j < end; ++j) {
    const double z = fwd_score(p, b, t, h, j);
    if (z > max) max = z; /* NaN comes back from exp(z - max) */
  }
  if (max == -INFINITY) max = 0;
  double total = 0;
  for (int64_t d0 = 0; d0 < p->head_dim; d0 += PART) {
    double sum[PART] = {0};
    total = 0;
    for (int64_t j = begin; j < end; ++j) {
      const double weight = exp(fwd_score(p, b, t, h, j) - max);
      total += weight;
      for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d)
        sum[d] += weight * tigon_load_f64(p->v.data, element(&p->v, b, j, kv) + d0 + d, p->dtype);
    }
    for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d)
      tigon_store_f64(p->o.data, o + d0 + d, p->dtype, total == 0 ? 0 : sum[d] / total);
  }
  if (p->lse) p->lse[(b * p->q.heads + h) * p->tokens + t] = (float)(total == 0 ? -INFINITY : max + log(total));
}

tigon_status tigon_ref_attention_fwd(tigon_queue *queue, const tigon_attention_fwd_problem *p) {
  (void)queue;
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t h = 0; h < p->q.heads; ++h)
      for (int64_t t = 0; t < p->tokens; ++t) fwd_query(p, b, t, h);
  return TIGON_OK;
}

/* p_j and dz_j of query t, head h and key j. */
static void pair(const tigon_attention_bwd_problem *p, int64_t b, int64_t t, int64_t h, int64_t j, double *weight,
                 double *dz) {
  const int64_t kv = h / (p->q.heads / p->k.heads), d_o = element(&p->d_o, b, t, h);
  const double lse = (double)p->lse[(b * p->q.heads + h) * p->tokens + t];
  const double z = (double)p->scale *
                   dot(p->dtype, p->head_dim, p->q.data, element(&p->q, b, t, h), p->k.data, element(&p->k, b, j, kv));
  const double dp = dot(p->dtype, p->head_dim, p->d_o.data, d_o, p->v.data, element(&p->v, b, j, kv));
  const double delta = dot(p->dtype, p->head_dim, p->d_o.data, d_o, p->o.data, element(&p->o, b, t, h));
  *weight = exp(z - (lse == -INFINITY ? INFINITY : lse)); /* lse = -inf: every z is */
  *dz = *weight * (dp - delta);
}

static void bwd_query(const tigon_attention_bwd_problem *p, int64_t b, int64_t t, int64_t h) {
  const int64_t kv = h / (p->q.heads / p->k.heads);
  int64_t begin, end;
  tigon_attention_span(p->tokens, p->keys, p->causal, p->window, t, &begin, &end);
  for (int64_t d0 = 0; d0 < p->head_dim; d0 += PART) {
    double dq[PART] = {0};
    for (int64_t j = begin; j < end; ++j) {
      double weight, dz;
      pair(p, b, t, h, j, &weight, &dz);
      for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d)
        dq[d] += dz * tigon_load_f64(p->k.data, element(&p->k, b, j, kv) + d0 + d, p->dtype);
    }
    for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d)
      tigon_store_f64(p->dq.data, element(&p->dq, b, t, h) + d0 + d, p->dtype, (double)p->scale * dq[d]);
  }
}

static void bwd_key(const tigon_attention_bwd_problem *p, int64_t b, int64_t j, int64_t kv) {
  const int64_t group = p->q.heads / p->k.heads;
  for (int64_t d0 = 0; d0 < p->head_dim; d0 += PART) {
    double dk[PART] = {0}, dv[PART] = {0};
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
      for (int64_t t = 0; t < p->tokens; ++t) {
        int64_t begin, end;
        tigon_attention_span(p->tokens, p->keys, p->causal, p->window, t, &begin, &end);
        if (j < begin || j >= end) continue;
        double weight, dz;
        pair(p, b, t, h, j, &weight, &dz);
        for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d) {
          dk[d] += dz * tigon_load_f64(p->q.data, element(&p->q, b, t, h) + d0 + d, p->dtype);
          dv[d] += weight * tigon_load_f64(p->d_o.data, element(&p->d_o, b, t, h) + d0 + d, p->dtype);
        }
      }
    for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d) {
      tigon_store_f64(p->dk.data, element(&p->dk, b, j, kv) + d0 + d, p->dtype, (double)p->scale * dk[d]);
      tigon_store_f64(p->dv.data, element(&p->dv, b, j, kv) + d0 + d, p->dtype, dv[d]);
    }
  }
}

tigon_status tigon_ref_attention_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  (void)queue;
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t h = 0; h < p->q.heads; ++h)
      for (int64_t t = 0; t < p->tokens; ++t) bwd_query(p, b, t, h);
    for (int64_t kv = 0; kv < p->k.heads; ++kv)
      for (int64_t j = 0; j < p->keys; ++j) bwd_key(p, b, j, kv);
  }
  return TIGON_OK;
}
