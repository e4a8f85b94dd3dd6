/* preference_loss, as its header writes it, by l and not by rewards. With TIGON_F64 all its floats but the options are f64. */
#include <math.h>

#include "ref/ref.h"

typedef tigon_preference_loss_fwd_problem problem;

static double log_s(double x) { return x < 0 ? x - log1p(tigon_ref_exp(x)) : -log1p(tigon_ref_exp(-x)); }
static double logistic(double x) { return tigon_ref_exp(log_s(x)); }
static double slope(double x) { return tigon_ref_exp(log_s(x) + log_s(-x)); }
static double square(double x) { return x * x; }
/* log(1 - e^l) */
static double log_rest(double l) { return log(-expm1(l)); }

/* A loss and its derivatives by l of the chosen sequence, or the only one, and of the rejected one. */
typedef struct parts {
  double f, da, db;
} parts;

static parts of_h(double beta, double f, double slope_of_h) {
  return (parts){f, beta * slope_of_h, -beta * slope_of_h};
}

static parts orpo(double beta, double a, bool counts_a, double b, bool counts_b) {
  const double odds_a = counts_a ? a - log_rest(a) : 0, odds_b = counts_b ? b - log_rest(b) : 0, o = odds_a - odds_b;
  parts made = {-beta * log_s(o), 0, 0};
  /* s(-o) is s(o) e^-o, where e^-o takes 1 - e^a along. */
  if (counts_a) made.da = -beta * exp(o > 0 ? log_s(o) + odds_b - a : log_s(-o) - log_rest(a));
  if (counts_b) made.db = beta * logistic(-o) / -expm1(b);
  return made;
}

static parts of_pair(const problem *p, double a, bool counts_a, double b, bool counts_b, double shift) {
  const double beta = (double)p->beta, e = (double)p->label_smoothing, tau = (double)p->tau;
  const double h = beta * (a - b) - (double)p->gamma, half = 0.5 / beta;
  switch (p->kind) {
    case TIGON_PREFERENCE_HINGE: return of_h(beta, h >= 1 ? 0 : 1 - h, h >= 1 ? 0 : h < 1 ? -1 : h);
    case TIGON_PREFERENCE_IPO: return of_h(beta, square((h - 0.5) / beta), 2 * (h - 0.5) / square(beta));
    case TIGON_PREFERENCE_EXO_PAIR:
      return of_h(beta, logistic(h) * (log_s(h) - log1p(-e)) + logistic(-h) * (log_s(-h) - log(e)),
                  slope(h) * (h - log1p(-e) + log(e)));
    case TIGON_PREFERENCE_NCA_PAIR:
      return (parts){-log_s(beta * a) - log_s(-beta * a) / 2 - log_s(-beta * b) / 2,
                     beta * (logistic(beta * a) / 2 - logistic(-beta * a)), beta * logistic(beta * b) / 2};
    case TIGON_PREFERENCE_ROBUST:
      return of_h(beta, (-(1 - e) * log_s(h) + (e > 0 ? e * log_s(-h) : 0)) / (1 - 2 * e),
                  (-(1 - e) * logistic(-h) - e * logistic(h)) / (1 - 2 * e));
    case TIGON_PREFERENCE_BCO_PAIR:
      return (parts){-log_s(beta * a - shift) - log_s(shift - beta * b), -beta * logistic(shift - beta * a),
                     beta * logistic(beta * b - shift)};
    case TIGON_PREFERENCE_SPPO_HARD:
      return (parts){square(a - half) + square(b + half), 2 * (a - half), 2 * (b + half)};
    case TIGON_PREFERENCE_APO_ZERO:
      return (parts){logistic(-beta * a) + logistic(beta * b), -beta * slope(beta * a), beta * slope(beta * b)};
    case TIGON_PREFERENCE_APO_DOWN:
      return (parts){logistic(beta * a) + logistic(-h), beta * (slope(beta * a) - slope(h)), beta * slope(h)};
    case TIGON_PREFERENCE_DISCOPOP: {
      const double m = logistic(h / tau), rest = logistic(-h / tau), mixed = tigon_ref_exp(log_s(h / tau) - h);
      return of_h(beta, -log_s(h) * rest + mixed, -logistic(-h) * rest - mixed + rest * (m * log_s(h) + mixed) / tau);
    }
    case TIGON_PREFERENCE_ORPO: return orpo(beta, a, counts_a, b, counts_b);
    default:
      return of_h(beta, -(1 - e) * log_s(h) - (e > 0 ? e * log_s(-h) : 0), e * logistic(h) - (1 - e) * logistic(-h));
  }
}

static parts of_one(const problem *p, double l, double y, double shift) {
  const double beta = (double)p->beta, weight = (double)p->weight[y > 0];
  if (p->kind == TIGON_PREFERENCE_BCO) {
    const double x = y * (beta * l - shift);
    return (parts){-weight * log_s(x), -weight * y * beta * logistic(-x), 0};
  }
  const double x = y * beta * (l - shift);
  return (parts){weight * logistic(-x), -weight * y * beta * slope(x), 0};
}

/* ---- memory ---- */

static double at(const problem *p, const float *from, int64_t i) { return tigon_load_f64(from, i, p->dtype); }
static void put(const problem *p, float *to, int64_t i, double value) {
  if (to) tigon_store_f64(to, i, p->dtype, value);
}

static int64_t tokens_of(tigon_vector counts, int64_t i) {
  const int64_t count = tigon_load_index(counts.data, i, counts.dtype);
  return count > 0 ? count : 0;
}

/* l of a sequence, and 1 / tokens; 0 without any. */
static double l_of(const problem *p, int64_t s, double *inverse) {
  *inverse = 1;
  if (p->counts.data) {
    const int64_t tokens = tokens_of(p->counts, s);
    if (tokens == 0) return *inverse = 0;
    *inverse = 1 / (double)tokens;
  }
  return (at(p, p->logps, s) - (p->ref ? at(p, p->ref, s) : 0)) * *inverse;
}

static void put_derivative(const problem *p, int64_t s, double l, double derivative, double inverse) {
  put(p, p->rewards, s, (double)p->beta * l);
  put(p, p->dlogps, s, inverse > 0 ? derivative * inverse : 0);
}

/* The NLL's weight over its tokens. */
static double nll_of_token(const problem *p) {
  double tokens = 0;
  for (int64_t i = 0; i < p->nll_sequences; ++i) tokens += (double)tokens_of(p->nll_counts, i);
  return (double)p->nll_weight / (tokens > 0 ? tokens : 1);
}

static void nll(const problem *p, double *loss) {
  const double each = nll_of_token(p);
  double sum = 0;
  for (int64_t i = 0; i < p->nll_sequences; ++i) sum += tokens_of(p->nll_counts, i) > 0 ? at(p, p->nll_logps, i) : 0;
  for (int64_t i = 0; i < p->nll_sequences; ++i) put(p, p->dnll_logps, i, tokens_of(p->nll_counts, i) > 0 ? -each : 0);
  *loss -= each * sum;
}

/* ---- tokens ---- */

static bool counts(const problem *p, int64_t t) {
  if (!p->mask.of.data) return true;
  const int64_t value = tigon_load_index(p->mask.of.data, t, p->mask.of.dtype);
  return value != p->mask.ignored && (p->mask.limit == 0 || (value >= 0 && value < p->mask.limit));
}

static int64_t first_token(const problem *p, int64_t s) {
  return p->segments.data ? tigon_load_index(p->segments.data, s, p->segments.dtype) : s * p->length;
}

static void add_tokens(const problem *p, int64_t s) {
  double sum = 0;
  p->sums_of[s] = 0;
  for (int64_t t = first_token(p, s); t < first_token(p, s + 1); ++t) {
    if (!counts(p, t)) continue;
    sum += at(p, p->token_logprob, t);
    ++p->sums_of[s];
  }
  put(p, p->sums, s, sum);
}

static void return_tokens(const problem *p, int64_t s) {
  double slope = at(p, p->dlogps, s);
  if (s < p->nll_sequences) slope -= nll_of_token(p);
  if (p->dloss) slope *= at(p, p->dloss, 0);
  for (int64_t t = first_token(p, s); t < first_token(p, s + 1); ++t)
    put(p, p->dtoken_logprob, t, counts(p, t) ? slope : 0);
}

tigon_status tigon_ref_preference_loss_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  const bool pairs = p->kind < TIGON_PREFERENCE_KTO;
  const double given = p->denominator ? at(p, p->denominator, 0) : (double)p->items, d = given < 1 ? 1 : given;
  double loss = 0, reward[2] = {0, 0};
  int64_t right = 0, of[2] = {0, 0};
  for (int64_t s = 0; p->token_logprob && s < p->sequences; ++s) add_tokens(p, s);
  for (int64_t i = 0; i < p->items; ++i) {
    double first, second = 0;
    const double a = l_of(p, i, &first), b = pairs ? l_of(p, p->items + i, &second) : 0;
    const double shift = p->shift ? at(p, p->shift, p->shifts > 1 ? i : 0) : 0;
    const bool desirable = pairs || tigon_load_index(p->labels.data, i, p->labels.dtype) != 0;
    const parts made = pairs ? of_pair(p, a, first > 0, b, second > 0, shift) : of_one(p, a, desirable ? 1 : -1, shift);
    put_derivative(p, i, a, made.da / d, first);
    put(p, p->pair_loss, i, made.f);
    loss += made.f / d;
    reward[desirable] += (double)p->beta * a;
    ++of[desirable];
    right += desirable ? a > b : a < b;
    if (!pairs) continue;
    put_derivative(p, p->items + i, b, made.db / d, second);
    reward[0] += (double)p->beta * b;
    ++of[0];
  }
  if (p->nll_logps) nll(p, &loss);
  for (int64_t s = 0; p->token_logprob && s < p->sequences; ++s) return_tokens(p, s);
  put(p, p->loss, 0, loss);
  put(p, p->accuracy, 0, p->items > 0 ? (double)right / (double)p->items : 0);
  put(p, p->margin, 0, (of[1] ? reward[1] / (double)of[1] : 0) - (of[0] ? reward[0] / (double)of[0] : 0));
  return TIGON_OK;
}
