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

static double capped(float softcap, double z) { return softcap > 0 ? (double)softcap * tanh(z / (double)softcap) : z; }

/* The slope of capped(): 1 / cosh^2, which keeps its digits where 1 - tanh^2 has none. */
static double cap_slope(float softcap, double z) {
  if (!(softcap > 0)) return 1;
  const double e = exp(-2 * fabs(z / (double)softcap));
  return 4 * e / ((1 + e) * (1 + e));
}

static double sink_of(tigon_vector sinks, int64_t h) {
  return sinks.data ? tigon_load_f64(sinks.data, h, sinks.dtype) : -INFINITY;
}

static double fwd_score(const tigon_attention_fwd_problem *p, int64_t b, int64_t t, int64_t h, int64_t j) {
  const int64_t kv = h / (p->q.heads / p->k.heads);
  return capped(p->softcap, (double)p->scale * dot(p->dtype, p->head_dim, p->q.data, element(&p->q, b, t, h), p->k.data,
                                                   element(&p->k, b, j, kv)));
}

static void fwd_query(const tigon_attention_fwd_problem *p, int64_t b, int64_t t, int64_t h) {
  const int64_t kv = h / (p->q.heads / p->k.heads), o = element(&p->o, b, t, h);
  const tigon_attention_seen seen = tigon_attention_span(&p->cuts, p->causal, p->window, t);
  const double sink = sink_of(p->sinks, h);
  double max = sink;
  for (int64_t j = seen.begin; j < seen.end; j += seen.step) {
    const double z = fwd_score(p, b, t, h, j);
    if (z > max) max = z; /* NaN comes back from exp(z - max) */
  }
  if (!(max > -INFINITY)) max = 0;
  const double own = sink == INFINITY ? 1 : exp(sink - max);
  double total = 0;
  for (int64_t d0 = 0; d0 < p->head_dim; d0 += PART) {
    double sum[PART] = {0};
    total = own;
    for (int64_t j = seen.begin; j < seen.end; j += seen.step) {
      const double weight = exp(fwd_score(p, b, t, h, j) - max);
      total += weight;
      for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d)
        sum[d] += weight * tigon_load_f64(p->v.data, element(&p->v, b, j, kv) + d0 + d, p->dtype);
    }
    const bool nothing = total == 0 || (sink == INFINITY && total == 1); /* whatever v is */
    for (int64_t d = 0; d < part_width(p->head_dim, d0); ++d)
      tigon_store_f64(p->o.data, o + d0 + d, p->dtype, nothing ? 0 : sum[d] / total);
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

static double delta_of(const tigon_attention_bwd_problem *p, int64_t b, int64_t t, int64_t h) {
  return dot(p->dtype, p->head_dim, p->d_o.data, element(&p->d_o, b, t, h), p->o.data, element(&p->o, b, t, h));
}

/* p_j and the slope by q . k_j, but for the scale, of query t, head h and key j. */
static void pair(const tigon_attention_bwd_problem *p, int64_t b, int64_t t, int64_t h, int64_t j, double *weight,
                 double *dz) {
  const int64_t kv = h / (p->q.heads / p->k.heads), d_o = element(&p->d_o, b, t, h);
  const double lse = (double)p->lse[(b * p->q.heads + h) * p->tokens + t];
  const double z = (double)p->scale *
                   dot(p->dtype, p->head_dim, p->q.data, element(&p->q, b, t, h), p->k.data, element(&p->k, b, j, kv));
  const double dp = dot(p->dtype, p->head_dim, p->d_o.data, d_o, p->v.data, element(&p->v, b, j, kv));
  *weight = exp(capped(p->softcap, z) - (lse == -INFINITY ? INFINITY : lse)); /* lse = -inf: every z is */
  *dz = *weight * (dp - delta_of(p, b, t, h)) * cap_slope(p->softcap, z);
}

static void bwd_query(const tigon_attention_bwd_problem *p, int64_t b, int64_t t, int64_t h) {
  const int64_t kv = h / (p->q.heads / p->k.heads);
  const tigon_attention_seen seen = tigon_attention_span(&p->cuts, p->causal, p->window, t);
  for (int64_t d0 = 0; d0 < p->head_dim; d0 += PART) {
    double dq[PART] = {0};
    for (int64_t j = seen.begin; j < seen.end; j += seen.step) {
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
        const tigon_attention_seen seen = tigon_attention_span(&p->cuts, p->causal, p->window, t);
        if (j < seen.begin || j >= seen.end || (j - seen.begin) % seen.step != 0) continue;
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

static void bwd_sink(const tigon_attention_bwd_problem *p, int64_t h) {
  const double sink = sink_of(p->sinks, h);
  double sum = 0;
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t t = 0; t < p->tokens; ++t) {
      const double lse = (double)p->lse[(b * p->q.heads + h) * p->tokens + t];
      const double weight = sink == INFINITY ? 1 : lse == -INFINITY ? 0 : exp(sink - lse);
      sum -= weight * delta_of(p, b, t, h);
    }
  tigon_store_f64(p->dsinks.data, h, p->dsinks.dtype, sum);
}

tigon_status tigon_ref_attention_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  (void)queue;
  for (int64_t h = 0; p->dsinks.data && h < p->q.heads; ++h) bwd_sink(p, h);
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t h = 0; h < p->q.heads; ++h)
      for (int64_t t = 0; t < p->tokens; ++t) bwd_query(p, b, t, h);
    for (int64_t kv = 0; kv < p->k.heads; ++kv)
      for (int64_t j = 0; j < p->keys; ++j) bwd_key(p, b, j, kv);
  }
  return TIGON_OK;
}
