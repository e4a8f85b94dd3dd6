/* multi_token_attention, as its header writes it: planes of doubles, [channels, rows, columns] of one batch. */
#include <stdlib.h>

#include "ref/ref.h"

typedef tigon_multi_token_attention_problem problem;

/* What norm() takes off a row's `count` numbers: log(sum of exp), or tau. */
static double stat_of(const problem *p, const double *x, int64_t count) {
  double most = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < count; ++j) most = x[j] > most || isnan(x[j]) ? x[j] : most;
  if (!p->sparse) {
    if (most == -(double)INFINITY) return most;
    for (int64_t j = 0; j < count; ++j) sum += tigon_ref_exp(x[j] - most);
    return most + log(sum);
  }
  const double base = most == -(double)INFINITY ? 0 : most;
  for (double tau = -1;;) {
    double members = 0;
    sum = 0;
    for (int64_t j = 0; j < count; ++j)
      if (!(x[j] - base <= tau)) sum += x[j] - base, ++members;
    const double next = members > 0 ? (sum - 1) / members : tau;
    if (next <= tau || isnan(next)) return base + (isnan(next) ? next : tau);
    tau = next;
  }
}
static double norm(const problem *p, double x, double stat) {
  if (p->sparse) return x - stat <= 0 ? 0 : x - stat;
  return tigon_ref_exp(stat == -(double)INFINITY ? x : x - stat);
}
/* q of a row becomes norm'(q). */
static void norm_bwd(const problem *p, const double *weights, double *q, int64_t count) {
  double sum = 0, members = 0;
  for (int64_t j = 0; j < count; ++j)
    if (!p->sparse)
      sum += weights[j] * q[j];
    else if (!(weights[j] <= 0))
      sum += q[j] + 0 * weights[j], ++members;
  for (int64_t j = 0; j < count; ++j)
    q[j] = !p->sparse ? weights[j] * (q[j] - sum) : weights[j] <= 0 ? 0 : q[j] - sum / members;
}

static int64_t allowed(int64_t row, int64_t cols) { return row < cols ? row + 1 : cols; }

/* Every term of the convolution that is not masked: add(o, u, weight) of their places. */
typedef void term(double *o, double *u, double *weight);
static void add_o(double *o, double *u, double *weight) { *o += *weight * *u; }
static void add_u(double *o, double *u, double *weight) { *u += *weight * *o; }
static void add_weight(double *o, double *u, double *weight) { *weight += *o * *u; }
static void convolve(const problem *p, double *o, double *u, double *weight, term *add) {
  const int64_t inputs = p->in / p->groups, outputs = p->out / p->groups, taps = p->h.taps * p->w.taps;
  for (int64_t co = 0; co < p->out; ++co)
    for (int64_t i = 0; i < p->rows; ++i)
      for (int64_t j = 0; j < allowed(i, p->cols); ++j)
        for (int64_t ci = 0; ci < inputs; ++ci)
          for (int64_t t = 0; t < taps; ++t) {
            const int64_t y = i * p->h.stride - p->h.padding + t / p->w.taps * p->h.dilation;
            const int64_t x = j * p->w.stride - p->w.padding + t % p->w.taps * p->w.dilation;
            if (y < 0 || y >= p->tokens || x < 0 || x > y) {
              if (add == add_o) o[(co * p->rows + i) * p->cols + j] += weight[(co * inputs + ci) * taps + t] * 0;
              continue;
            }
            const int64_t channel = co / outputs * inputs + ci;
            add(&o[(co * p->rows + i) * p->cols + j], &u[(channel * p->tokens + y) * p->tokens + x],
                &weight[(co * inputs + ci) * taps + t]);
          }
}

/* A tap that meets no element of o multiplies 0, which shows where the weight is no finite number. */
static void add_zeros_to_u(const problem *p, double *u, const double *weight) {
  const int64_t inputs = p->in / p->groups, outputs = p->out / p->groups, taps = p->h.taps * p->w.taps;
  for (int64_t at = 0; at < p->out * inputs * taps; ++at) {
    const int64_t t = at % taps, channel = at / taps / inputs / outputs * inputs + at / taps % inputs;
    for (int64_t y = 0; y < p->tokens && !isfinite(weight[at]); ++y)
      for (int64_t x = 0; x <= y; ++x) {
        const int64_t down = y + p->h.padding - t / p->w.taps * p->h.dilation, i = down / p->h.stride;
        const int64_t right = x + p->w.padding - t % p->w.taps * p->w.dilation, j = right / p->w.stride;
        const bool met = down >= 0 && down % p->h.stride == 0 && i < p->rows && right >= 0 &&
                         right % p->w.stride == 0 && j < allowed(i, p->cols);
        if (!met) u[(channel * p->tokens + y) * p->tokens + x] += weight[at] * 0;
      }
  }
}

typedef struct planes {
  int64_t u_count, o_count, weights;
  double *u, *du, *o, *q, *weight, *dweight, *dbias;
} planes;

static bool open_planes(const problem *p, planes *of) {
  const int64_t u = p->in * p->tokens * p->tokens, o = p->out * p->rows * p->cols;
  const int64_t weights = p->out * (p->in / p->groups) * p->h.taps * p->w.taps;
  double *at = calloc((size_t)(2 * u + 2 * o + 2 * weights + p->out + 1), sizeof *at);
  if (!at) return false;
  *of = (planes){.u_count = u, .o_count = o, .weights = weights, .u = at, .du = at + u, .o = at + 2 * u};
  of->q = of->o + o, of->weight = of->q + o, of->dweight = of->weight + weights, of->dbias = of->dweight + weights;
  for (int64_t i = 0; i < weights; ++i) of->weight[i] = tigon_ref_vector_at(p->weight, i);
  return true;
}

/* The scores of batch b, or norm() of them. A stat that is not given is found, and stored. */
static void load_scores(const problem *p, int64_t b, bool known, bool normal, double *u) {
  for (int64_t r = 0; r < p->in * p->tokens; ++r) {
    double *row = u + r * p->tokens;
    const int64_t count = allowed(r % p->tokens, p->tokens), at = b * p->in * p->tokens + r;
    for (int64_t j = 0; j < count; ++j) row[j] = tigon_ref_at(&p->space, &p->s, p->dtype, at, j);
    if (!normal) continue;
    const double stat = known ? tigon_ref_vector_at(p->stat, at) : stat_of(p, row, count);
    if (!known) tigon_ref_vector_put(p->stat, at, stat, false);
    for (int64_t j = 0; j < count; ++j) row[j] = norm(p, row[j], stat);
  }
}

tigon_status tigon_ref_multi_token_attention_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  planes of;
  if (!open_planes(p, &of)) return TIGON_ERROR_OUT_OF_MEMORY;
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t i = 0; i < of.o_count; ++i) of.o[i] = 0;
    load_scores(p, b, false, !p->pre, of.u);
    convolve(p, of.o, of.u, of.weight, add_o);
    for (int64_t r = 0; r < p->out * p->rows; ++r) {
      double *row = of.o + r * p->cols;
      const int64_t count = allowed(r % p->rows, p->cols), at = b * p->out * p->rows + r;
      const double bias = tigon_ref_vector_at(p->bias, r / p->rows), stat = p->pre ? stat_of(p, row, count) : 0;
      if (p->pre) tigon_ref_vector_put(p->stat, at, stat, false);
      for (int64_t j = 0; j < p->cols; ++j) {
        const double value = j >= count ? 0 : p->pre ? norm(p, row[j], stat) : row[j] + bias;
        tigon_ref_put(&p->out_space, &p->o, p->dtype, at, j, value);
      }
    }
  }
  free(of.u);
  return TIGON_OK;
}

/* norm'(q) over the rows of o, whose numbers before norm() are in of->o. */
static void rows_bwd(const problem *p, int64_t b, planes *of) {
  for (int64_t r = 0; r < p->out * p->rows; ++r) {
    double *row = of->o + r * p->cols;
    const int64_t count = allowed(r % p->rows, p->cols);
    const double stat = tigon_ref_vector_at(p->stat, b * p->out * p->rows + r);
    for (int64_t j = 0; j < count; ++j) row[j] = norm(p, row[j], stat);
    norm_bwd(p, row, of->q + r * p->cols, count);
  }
}

tigon_status tigon_ref_multi_token_attention_bwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  planes of;
  if (!open_planes(p, &of)) return TIGON_ERROR_OUT_OF_MEMORY;
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t i = 0; i < of.o_count; ++i) of.o[i] = 0;
    for (int64_t i = 0; i < of.u_count; ++i) of.du[i] = 0;
    for (int64_t r = 0; r < p->out * p->rows; ++r)
      for (int64_t j = 0; j < allowed(r % p->rows, p->cols); ++j) {
        const double q = tigon_ref_at(&p->out_space, &p->o, p->dtype, b * p->out * p->rows + r, j);
        of.q[r * p->cols + j] = q;
        of.dbias[r / p->rows] += q;
      }
    load_scores(p, b, true, !p->pre, of.u);
    if (p->pre) {
      convolve(p, of.o, of.u, of.weight, add_o);
      rows_bwd(p, b, &of);
    }
    convolve(p, of.q, of.du, of.weight, add_u);
    add_zeros_to_u(p, of.du, of.weight);
    convolve(p, of.q, of.u, of.dweight, add_weight);
    for (int64_t r = 0; r < p->in * p->tokens; ++r) {
      const int64_t count = allowed(r % p->tokens, p->tokens);
      double *row = of.du + r * p->tokens;
      if (!p->pre) norm_bwd(p, of.u + r * p->tokens, row, count);
      for (int64_t j = 0; j < p->tokens; ++j)
        tigon_ref_put(&p->space, &p->ds, p->dtype, b * p->in * p->tokens + r, j, j < count ? row[j] : 0);
    }
  }
  for (int64_t i = 0; i < of.weights; ++i) tigon_ref_vector_put(p->dweight, i, of.dweight[i], p->accumulate);
  for (int64_t i = 0; i < p->out; ++i) tigon_ref_vector_put(p->dbias, i, of.dbias[i], p->accumulate);
  free(of.u);
  return TIGON_OK;
}
