/* divergence, as its header writes it. With TIGON_F64 the row outputs, the loss and `inverse` are f64 too, so that
 * finite differences see no rounding. */
#include <float.h>
#include <math.h>

#include "core/labels.h"
#include "ref/ref.h"

typedef tigon_divergence_problem problem;

/* The dtype of every output that is f32 in a public call. */
static tigon_dtype scalar_dtype(const problem *p) { return (int)p->dtype == TIGON_F64 ? p->dtype : TIGON_F32; }

static void put(const problem *p, void *out, int64_t i, double value) {
  if (out) tigon_store_f64(out, i, scalar_dtype(p), value);
}

/* What backward knows of a row. */
typedef struct row {
  double input, target; /* log-sum-exp; cosine: norm */
  double mean;          /* what logits' gradient takes off; cosine: the cosine */
  double hard;          /* log-sum-exp of the cross entropy */
} row;

/* An element of both distributions. */
typedef struct element {
  double log_q, q, log_p, p;
} element;

static double input_at(const problem *p, int64_t r, int64_t v) {
  return tigon_ref_logit(&p->input_map, tigon_ref_at(&p->space, &p->input, p->dtype, r, v));
}
/* What a target says of a class that it does not know. */
static double target_at(const problem *p, int64_t r, int64_t v) {
  const bool sums = p->kind != TIGON_DIVERGENCE_COSINE && p->target_is != TIGON_DISTRIBUTION_PROBABILITIES;
  if (v >= p->target_cols) return sums ? -(double)INFINITY : 0;
  return tigon_ref_logit(&p->target_map, tigon_ref_at(&p->space, &p->target, p->dtype, r, v));
}

/* The log-sum-exp of the first `cols` elements of a side, each times `scale`. */
static double log_sum_exp(const problem *p, double (*at)(const problem *, int64_t, int64_t), int64_t cols, double scale,
                          int64_t r) {
  double largest = -INFINITY, sum = 0;
  for (int64_t v = 0; v < cols; ++v) {
    const double z = scale * at(p, r, v);
    if (z != z) return z;
    largest = fmax(largest, z);
  }
  if (!isfinite(largest)) return largest;
  for (int64_t v = 0; v < cols; ++v) sum += exp(scale * at(p, r, v) - largest);
  return largest + log(sum);
}

/* A probability that underflows is still none of 0. */
static void read(const problem *p, tigon_distribution is, double x, double lse, double *log_of, double *of) {
  if (is == TIGON_DISTRIBUTION_PROBABILITIES) {
    *of = x;
    *log_of = x > 0 ? log(x) : x == 0 ? -(double)INFINITY : (double)NAN;
    return;
  }
  *log_of = is == TIGON_DISTRIBUTION_LOGITS ? x * (double)p->inverse_temperature - lse : x;
  *of = tigon_ref_exp(*log_of);
  if (*of < DBL_MIN) *of = *log_of == -(double)INFINITY ? 0 : DBL_MIN;
}

static element element_at(const problem *p, const row *s, int64_t r, int64_t v) {
  element e;
  read(p, p->input_is, input_at(p, r, v), s->input, &e.log_q, &e.q);
  read(p, p->target_is, target_at(p, r, v), s->target, &e.log_p, &e.p);
  return e;
}

static double log_mixture(const problem *p, const element *e) {
  const double a = e->log_p + log((double)p->beta), b = e->log_q + log1p(-(double)p->beta);
  const double high = a > b ? a : b, low = a > b ? b : a;
  return low == -(double)INFINITY ? high : high + log1p(tigon_ref_exp(low - high));
}

static double sign(double v) { return v > 0 ? 1 : v < 0 ? -1 : v; }

/* factor * terms, 0 where the factor is. */
static double times(double factor, double terms) { return factor == 0 ? 0 : factor * terms; }

static double term(const problem *p, const element *e) {
  const double beta = (double)p->beta;
  switch (p->kind) {
    case TIGON_DIVERGENCE_KL: return times(e->p, e->log_p - e->log_q);
    case TIGON_DIVERGENCE_REVERSE_KL: return times(e->q, e->log_q - e->log_p);
    case TIGON_DIVERGENCE_JSD:
      return beta * times(e->p, e->log_p - log_mixture(p, e)) + (1 - beta) * times(e->q, e->log_q - log_mixture(p, e));
    default: return 0.5 * fabs(e->p - e->q);
  }
}

/* d D / d log q = q * slope, but for kl, whose is -p. */
static double slope(const problem *p, const element *e) {
  switch (p->kind) {
    case TIGON_DIVERGENCE_REVERSE_KL: return e->log_q - e->log_p;
    case TIGON_DIVERGENCE_JSD: return (1 - (double)p->beta) * (e->log_q - log_mixture(p, e));
    default: return 0.5 * sign(e->q - e->p);
  }
}

static double gradient(const problem *p, const row *s, const element *e) {
  const bool kl = p->kind == TIGON_DIVERGENCE_KL;
  const double one = p->kind == TIGON_DIVERGENCE_REVERSE_KL ? 1 : 0;
  switch (p->input_is) {
    case TIGON_DISTRIBUTION_LOGITS:
      return (double)p->inverse_temperature * (kl ? e->q * s->mean - e->p : times(e->q, slope(p, e) - s->mean));
    case TIGON_DISTRIBUTION_LOG_PROBABILITIES: return kl ? -e->p : times(e->q, slope(p, e) + one);
    default:
      if (e->p == 0 && e->q == 0) return 0;
      return kl ? times(-e->p, 1 / e->q) : slope(p, e) + one;
  }
}

static double cosine_gradient(const row *s, double x, double t) {
  return s->input == 0 || s->target == 0 ? 0 : -(t / s->target - s->mean * x / s->input) / s->input;
}

/* D. */
static double forward_row(const problem *p, int64_t r, row *s) {
  double sum = 0, squares = 0, products = 0;
  s->mean = 0;
  if (p->kind == TIGON_DIVERGENCE_COSINE) {
    for (int64_t v = 0; v < p->cols; ++v) {
      const double x = input_at(p, r, v), t = target_at(p, r, v);
      sum += x * x, squares += t * t, products += x * t;
    }
    s->input = sqrt(sum), s->target = sqrt(squares);
    if (s->input != 0 && s->target != 0) s->mean = products / s->input / s->target;
    return 1 - s->mean;
  }
  const double scale = (double)p->inverse_temperature;
  s->input = p->input_is == TIGON_DISTRIBUTION_LOGITS ? log_sum_exp(p, input_at, p->cols, scale, r) : 0;
  s->target = p->target_is == TIGON_DISTRIBUTION_LOGITS ? log_sum_exp(p, target_at, p->target_cols, scale, r) : 0;
  for (int64_t v = 0; v < p->cols; ++v) {
    const element e = element_at(p, s, r, v);
    sum += term(p, &e);
    s->mean += p->kind == TIGON_DIVERGENCE_KL ? e.p : times(e.q, slope(p, &e));
  }
  return sum;
}

static void gradient_row(const problem *p, int64_t r, const row *s, bool counts) {
  double scale = (double)p->grad_scale * tigon_load_f64(p->inverse, 0, scalar_dtype(p));
  if (p->dloss) scale *= (double)p->dloss[p->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (p->token_scale) scale *= (double)p->token_scale[r];
  const int64_t class = counts ? tigon_divergence_class(p, r) : -1;
  for (int64_t v = 0; v < p->cols; ++v) {
    double d = 0;
    if (counts && p->kind == TIGON_DIVERGENCE_COSINE) {
      d = (double)p->soft * cosine_gradient(s, input_at(p, r, v), target_at(p, r, v));
    } else if (counts) {
      const element e = element_at(p, s, r, v);
      d = (double)p->soft * gradient(p, s, &e);
    }
    if (counts && p->hard != 0) d += (double)p->hard * (tigon_ref_exp(input_at(p, r, v) - s->hard) - (v == class));
    d *= tigon_ref_logit_slope(&p->input_map, tigon_ref_at(&p->space, &p->input, p->dtype, r, v));
    tigon_ref_put(&p->space, &p->dinput, p->dtype, r, v, counts ? scale * d : 0);
  }
}

static void count(const problem *p) {
  double denominator = p->denominator ? (double)*p->denominator : 0;
  if (!(p->parts & TIGON_DIVERGENCE_COUNT)) return;
  for (int64_t r = 0; !p->denominator && r < p->space.rows; ++r) denominator += tigon_divergence_counts(p, r);
  const double inverse = denominator == 0 ? 0 : 1 / denominator;
  put(p, p->inverse, 0, p->reduction == TIGON_REDUCTION_MEAN ? inverse : 1);
}

tigon_status tigon_ref_divergence_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  count(p);
  for (int64_t r = 0; p->parts & TIGON_DIVERGENCE_ROWS && r < p->space.rows; ++r) {
    const bool counts = tigon_divergence_counts(p, r), hard = counts && p->hard != 0;
    row s = {0, 0, 0, hard ? log_sum_exp(p, input_at, p->cols, 1, r) : 0};
    const double apart = counts ? forward_row(p, r, &s) : 0;
    const double entropy = hard ? s.hard - input_at(p, r, tigon_divergence_class(p, r)) : 0;
    double loss = (double)p->soft * apart + (double)p->hard * entropy;
    if (counts && p->token_scale) loss *= (double)p->token_scale[r];
    put(p, p->token_loss, r, loss);
    put(p, p->soft_losses, r, apart);
    put(p, p->hard_losses, r, entropy);
    put(p, p->stats, 3 * r, s.input);
    put(p, p->stats, 3 * r + 1, s.target);
    put(p, p->stats, 3 * r + 2, s.mean);
    put(p, p->hard_lse, r, s.hard);
    if (p->dinput.data) gradient_row(p, r, &s, counts);
  }
  if (!(p->parts & TIGON_DIVERGENCE_REDUCE)) return TIGON_OK;
  double sum = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) sum += tigon_load_f64(p->token_loss, r, scalar_dtype(p));
  put(p, p->loss, 0, sum * tigon_load_f64(p->inverse, 0, scalar_dtype(p)));
  return TIGON_OK;
}

tigon_status tigon_ref_divergence_bwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  count(p);
  for (int64_t r = 0; p->parts & TIGON_DIVERGENCE_ROWS && r < p->space.rows; ++r) {
    const row s = {tigon_load_f64(p->stats, 3 * r, scalar_dtype(p)),
                   tigon_load_f64(p->stats, 3 * r + 1, scalar_dtype(p)),
                   tigon_load_f64(p->stats, 3 * r + 2, scalar_dtype(p)),
                   p->hard != 0 ? tigon_load_f64(p->hard_lse, r, scalar_dtype(p)) : 0};
    gradient_row(p, r, &s, tigon_divergence_counts(p, r));
  }
  return TIGON_OK;
}
