/* divergence. Options walk kinds, what the two sides say, reductions, labels, and what is written where. */
#include "check/divergence.h"

#include "check/cases.h"
#include "core/half.h"

enum { OVER_INPUT = 1, OVER_TARGET = 2 };

static const struct option {
  int kind, input_is, target_is, reduction;
  double beta, temperature, grad_scale;
  bool dinput, stats, token_scale, dloss, denominator, squared;
  int in_place;
  tigon_dtype labels; /* 0: none */
} options[] = {
    {JSD, LOGITS, LOGITS, MEAN, .beta = 0.5, .dinput = true},
    {JSD, LOGITS, LOGITS, MEAN, .beta = 0.5, .stats = true},
    {KL, LOGITS, LOGITS, MEAN, .dinput = true, .stats = true, .labels = TIGON_I64},
    {KL, LOGS, CHANCES, SUM, .dinput = true, .dloss = true},
    {KL, LOGS, LOGS, NONE, .dloss = true, .dinput = true, .labels = TIGON_I32},
    {KL, LOGITS, CHANCES, MEAN, .temperature = 2, .dinput = true, .token_scale = true},
    {KL, CHANCES, LOGITS, SUM, .temperature = 2, .dinput = true, .stats = true},
    {REVERSE, LOGITS, LOGITS, MEAN, .temperature = 0.7, .dinput = true, .in_place = OVER_TARGET, .labels = TIGON_I64},
    {REVERSE, LOGS, LOGITS, SUM, .grad_scale = -3, .dinput = true, .stats = true},
    {REVERSE, CHANCES, CHANCES, NONE, .dinput = true, .token_scale = true},
    {JSD, LOGITS, LOGITS, MEAN, .beta = 0.1, .temperature = 3, .dinput = true, .stats = true, .in_place = OVER_INPUT,
     .labels = TIGON_I32},
    {JSD, LOGS, LOGS, SUM, .beta = 0.9, .dinput = true, .token_scale = true},
    {JSD, CHANCES, LOGS, NONE, .beta = 0.25, .dloss = true, .dinput = true},
    {JSD, LOGITS, LOGS, MEAN, .beta = 0, .dinput = true, .stats = true},
    {JSD, LOGS, LOGITS, MEAN, .beta = 1, .dinput = true, .labels = TIGON_I64},
    {TVD, CHANCES, CHANCES, MEAN, .dinput = true, .labels = TIGON_I64},
    {TVD, LOGITS, LOGITS, SUM, .temperature = 0.5, .dinput = true, .stats = true, .in_place = OVER_INPUT},
    {TVD, LOGS, CHANCES, NONE, .dloss = true, .token_scale = true, .dinput = true},
    {COSINE, LOGITS, LOGITS, MEAN, .dinput = true, .stats = true, .in_place = OVER_TARGET, .labels = TIGON_I64},
    {COSINE, LOGITS, LOGITS, SUM, .dloss = true, .grad_scale = -3, .dinput = true},
    {KL, LOGITS, LOGITS, MEAN, .temperature = 3, .dinput = true, .denominator = true, .squared = true,
     .labels = TIGON_I64},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The arguments of a run, and what they come to. */
typedef struct call {
  check *k;
  struct option o;
  int kind;
  int64_t rows, cols;
  tigon_divergence_fwd_args a;
  const double *x, *t; /* [rows, cols] as they were before the call */
  row_loss l;
} call;

/* One side of a row. Errors are in eps. */
typedef struct side {
  const double *row;
  int is;
  double lse, sum_error;
} side;

/* An element of one side, and its errors: of the logarithm, and of the probability relative to itself. */
typedef struct chance {
  double log, of, log_error, error;
} chance;

/* What a row's bounds are made of; `m` as the header's stats say. */
typedef struct row {
  side q, t;
  double d, d_error, m, m_error;
} row;

/* Values that are what a side says. */
static void make_chances(check *k, const tigon_tensor *t, int is) {
  for (int64_t r = 0; is != LOGITS && !k->timed && r < t->shape[0]; ++r)
    for (int64_t c = 0; c < t->shape[1]; ++c) {
      const int64_t at = r * t->strides[0] + c;
      const double size = fabs(tigon_load_f64(t->data, at, t->dtype));
      tigon_store_f64(t->data, at, t->dtype, is == LOGS ? -size : size == INFINITY ? 1 : size);
    }
}

static tigon_tensor make_rows(check *k, const char *name, int is, bool overwritten) {
  const tigon_tensor t = check_rows(k, name, k->fill, overwritten || is != LOGITS);
  make_chances(k, &t, is);
  return t;
}

/* The log-sum-exp: its terms carry the rounding of z - largest, of z itself where there is a temperature, exp's 5 eps,
 * and at most 32 + 8 additions. */
static side side_of(const call *c, const double *x, int is, int64_t r) {
  side s = {.row = x + r * c->cols, .is = is};
  double largest = -INFINITY, sum = 0;
  if (is != LOGITS) return s;
  for (int64_t v = 0; v < c->cols; ++v) {
    if (isnan(s.row[v])) largest = NAN;
    if (s.row[v] * c->l.it > largest) largest = s.row[v] * c->l.it;
  }
  s.lse = largest;
  if (!isfinite(largest)) return s;
  for (int64_t v = 0; v < c->cols; ++v) sum += exp(s.row[v] * c->l.it - largest);
  s.lse += log(sum);
  s.sum_error = 46 + check_calls(c->k, 1, 0) * (1 + log(sum));
  for (int64_t v = 0; v < c->cols; ++v) {
    const double z = s.row[v] * c->l.it, p = exp(z - s.lse);
    if (p > 0) s.sum_error += p * (largest - z + (c->l.it != 1 ? fabs(z) : 0));
  }
  return s;
}

/* Rounded are z - largest, the logarithm of the sum, and their difference: each is at most the result, in absolute
 * value. */
static chance chance_of(const call *c, const side *s, int64_t v) {
  const double x = s->row[v], z = x * c->l.it;
  const double call = check_calls(c->k, 1, 0);
  if (s->is == CHANCES) return (chance){log(x), x, (2 + call) * fabs(log(x)), 0};
  chance e = {.log = s->is == LOGITS ? z - s->lse : x};
  e.of = exp(e.log);
  if (e.log == -INFINITY) return e;
  if (s->is == LOGITS) e.log_error = 3 * fabs(e.log) + s->sum_error + (c->l.it != 1 ? fabs(z) : 0);
  e.error = e.log_error + 5 + call;
  return e;
}

/* log a - log m of jsd, m = share a + (1 - share) b, and its error: of both logarithms and their difference, of log
 * shares and their difference, of exp and log, and of three sums. */
static double to_mixture(const check *k, chance a, chance b, double share, double *error) {
  const double odds = log(1 - share) - log(share), v = b.log - a.log + odds;
  const double soft = (v > 0 ? v : 0) + log1p(exp(-fabs(v))), log_share = log(share);
  *error = 10 + fabs(log_share) + 2 * fabs(odds) + check_calls(k, 1, 0) * (1 + log1p(exp(-fabs(v))));
  if (isfinite(v)) *error += a.log_error + b.log_error + 2 * fabs(v) + 3 * soft + fabs(b.log - a.log);
  return -(log_share + soft);
}

/* An element's term of the divergence and of stats' sum, and their errors. */
typedef struct term {
  double d, d_error, m, m_error;
} term;
static bool is_unsure(chance q, chance p) {
  return fabs(q.of - p.of) <= eps * (q.of * (q.error + 1) + p.of * (p.error + 1)) + 4 * tiny;
}
static term term_of(const call *c, chance q, chance p) {
  const double u = p.log - q.log, e = q.log_error + p.log_error, b = (double)(float)c->o.beta;
  double dq = 0, dp = 0, dq_error = 0, dp_error = 0;
  if (c->kind == JSD) {
    dq = to_mixture(c->k, q, p, 1 - b, &dq_error);
    dp = to_mixture(c->k, p, q, b, &dp_error);
  }
  switch (c->kind) {
    case KL: return (term){times(p.of, u), times(p.of, fabs(u) * (p.error + 3) + e), p.of, p.of * p.error};
    case REVERSE: {
      const double d = times(q.of, -u), error = times(q.of, fabs(u) * (q.error + 3) + e);
      return (term){d, error, d, error};
    }
    case JSD: {
      const double of_q = (1 - b) * times(q.of, dq);
      const double q_error = (1 - b) * times(q.of, fabs(dq) * (q.error + 4) + dq_error);
      const double p_error = b * times(p.of, fabs(dp) * (p.error + 4) + dp_error);
      return (term){of_q + b * times(p.of, dp), q_error + p_error, of_q, q_error};
    }
    default: {
      const double apart = q.of - p.of, way = apart > 0 ? 0.5 : apart < 0 ? -0.5 : 0;
      return (term){0.5 * fabs(apart), 0.5 * (q.of * (q.error + 1) + p.of * (p.error + 1)), q.of * way,
                    q.of * (0.5 * q.error + (is_unsure(q, p) ? 1 / eps : 0))};
    }
  }
}

/* Norms have the error of a sum of squares of 32 + 8 additions, halved by the root; of the cosine that of the
 * products, too. */
static row cosine_of(const call *c, int64_t r) {
  row w = {.q.row = c->x + r * c->cols, .t.row = c->t + r * c->cols};
  double xx = 0, tt = 0, xt = 0, size = 0;
  for (int64_t v = 0; v < c->cols; ++v) {
    const double x = w.q.row[v], t = w.t.row[v];
    xx += x * x, tt += t * t, xt += x * t, size += fabs(x * t);
  }
  w.q.lse = sqrt(xx), w.t.lse = sqrt(tt);
  const double root = 24 + check_calls(c->k, 1, 0), of_cosine = 50 + check_calls(c->k, 2, 2);
  w.q.sum_error = root * w.q.lse, w.t.sum_error = root * w.t.lse;
  if (w.q.lse != 0 && w.t.lse != 0) {
    w.m = xt / w.q.lse / w.t.lse;
    w.m_error = 44 * size / w.q.lse / w.t.lse + of_cosine * fabs(w.m);
  }
  w.d = 1 - w.m, w.d_error = w.m_error + 2;
  return w;
}

/* A sum has, besides the errors of its terms, at most 32 + 8 additions' of their sizes. */
static row row_of(const call *c, int64_t r) {
  if (c->kind == COSINE) return cosine_of(c, r);
  row w = {.q = side_of(c, c->x, c->o.input_is, r), .t = side_of(c, c->t, c->o.target_is, r)};
  for (int64_t v = 0; v < c->cols; ++v) {
    const term e = term_of(c, chance_of(c, &w.q, v), chance_of(c, &w.t, v));
    w.d += e.d, w.m += e.m;
    w.d_error += e.d_error + 42 * fabs(e.d) + tiny / eps;
    w.m_error += e.m_error + 42 * fabs(e.m) + tiny / eps;
  }
  return w;
}

/* Backward is given stats of f32, whose errors then are none. */
static void give_stats(row *w, const float stats[3]) {
  w->q.lse = (double)stats[0], w->t.lse = (double)stats[1], w->m = (double)stats[2];
  w->q.sum_error = w->t.sum_error = w->m_error = 0;
}

/* The gradient's error by an element, before the factor of its row. */
static double slope_error(const call *c, const row *w, chance q, chance p) {
  const bool logits = c->o.input_is == LOGITS, chances = c->o.input_is == CHANCES;
  const double b = (double)(float)c->o.beta, m = logits ? w->m : c->kind == REVERSE ? -1 : 0;
  const double m_error = logits ? w->m_error + fabs(w->m) : 0, u = q.log - p.log;
  double slope = 0, error = 0;
  switch (c->kind) {
    case KL:
      if (chances)
        return times(p.of, (p.error + 3 + check_calls(c->k, 0, 1)) / q.of) +
               (p.error != 0 ? tiny / eps / q.of : 0); /* p may be 2^-126 */
      if (!logits) return p.of * (p.error + 2);
      return p.of * (p.error + 2) + times(q.of, fabs(m) * (q.error + 3) + m_error) + tiny / eps * fabs(m);
    case REVERSE:
      slope = u - m;
      error = q.log_error + p.log_error + fabs(u);
      break;
    case JSD:
      slope = (1 - b) * to_mixture(c->k, q, p, 1 - b, &error);
      error = (1 - b) * error + 2 * fabs(slope);
      slope -= m;
      break;
    default: slope = (q.of > p.of ? 0.5 : q.of < p.of ? -0.5 : 0) - m; error = is_unsure(q, p) ? 1 / eps : 0;
  }
  error += m_error + fabs(slope);
  return chances ? error : times(q.of, error + fabs(slope) * (q.error + 2)) + tiny / eps * fabs(slope);
}

static void bound_dinput(const call *c, const row *w, int64_t r, double *at) {
  double by = row_factor(&c->l, r);
  if (c->o.input_is == LOGITS && c->kind != COSINE) by *= c->l.it;
  for (int64_t v = 0; v < c->cols; ++v) {
    if (c->kind == COSINE) {
      const double x = w->q.lse != 0 ? fabs(w->q.row[v]) / w->q.lse : 0,
                   t = w->t.lse != 0 ? fabs(w->t.row[v]) / w->t.lse : 0;
      const double own = 56 + check_calls(c->k, 3, 3), error = own * t + x * (own * fabs(w->m) + w->m_error) + 0x1p-90;
      at[v] = w->q.lse != 0 && w->t.lse != 0 ? by / w->q.lse * error : 0;
    } else {
      const chance q = chance_of(c, &w->q, v), p = chance_of(c, &w->t, v);
      at[v] = by * (slope_error(c, w, q, p) + tiny / eps) + tiny / eps;
    }
    if (!isfinite(at[v])) at[v] = 0;
  }
}

/* Every run makes the same buffers, and those that use them fill them. */
static const double *read(const call *c, const tigon_tensor *t, bool used) {
  double *x = check_doubles(c->k, c->rows * c->cols);
  for (int64_t i = 0; used && i < c->rows * c->cols; ++i) x[i] = check_value(t, i);
  return x;
}

/* The arguments that are alike in both directions. */
static call begin(check *k) {
  call c = {.k = k, .o = options[k->option], .rows = k->dims[0], .cols = k->dims[1]};
  if (check_has_form(k, BENCH_KL)) c.o.kind = KL;
  const struct option o = c.o;
  c.kind = kind_of(o.kind, o.beta);
  c.a.input = make_rows(k, "input", o.input_is, o.in_place == OVER_INPUT);
  c.a.target = make_rows(k, "target", o.target_is, o.in_place == OVER_TARGET);
  c.a.options = (tigon_divergence_options){.kind = (tigon_divergence_kind)o.kind,
                                           .input_is = (tigon_distribution)o.input_is,
                                           .target_is = (tigon_distribution)o.target_is,
                                           .beta = o.beta,
                                           .temperature = o.temperature,
                                           .reduction = (tigon_reduction)o.reduction,
                                           .by_temperature_squared = o.squared};
  c.l = make_row_loss(k, ROW_OPTIONS(o));
  GIVE_ROW_LOSS(c.a, c.l);
  return c;
}

static tigon_tensor make_dinput(const call *c) {
  if (c->o.in_place) return c->o.in_place == OVER_INPUT ? c->a.input : c->a.target;
  return check_out(c->k, "dinput", c->k->dtype, 2, c->k->dims);
}

static void fwd(check *k) {
  call c = begin(k);
  const struct option o = c.o;
  const row_outputs out = make_row_outputs(k, &c.l, o.stats);
  c.a.out = out.out;
  if (o.dinput) c.a.dinput = make_dinput(&c);
  double *dinput = check_doubles(k, c.rows * c.cols);
  c.x = read(&c, &c.a.input, k->oracle != NULL), c.t = read(&c, &c.a.target, k->oracle != NULL);
  for (int64_t r = 0; k->oracle && r < c.rows; ++r) {
    if (!row_counts(&c.l, r)) continue;
    const row w = row_of(&c, r);
    const double errors[] = {w.d_error, w.q.sum_error, w.t.sum_error, w.m_error};
    bound_row(&out, &c.l, r, w.d, errors);
    if (o.dinput) bound_dinput(&c, &w, r, dinput + r * c.cols);
  }
  check_call_in_workspace(k, tigon_divergence_fwd_workspace, &c.a);
  bound_row_outputs(k, &out);
  if (o.dinput) check_bound(k, &c.a.dinput, 1, 1, dinput);
}

static void bwd(check *k) {
  call c = begin(k);
  const int64_t of_stats[] = {c.rows, 3};
  const tigon_tensor stats = check_inout_dense(k, "stats", TIGON_F32, 2, of_stats, CHECK_UNIFORM);
  const tigon_tensor dinput = make_dinput(&c);
  double *bound = check_doubles(k, c.rows * c.cols);
  const bool derived = check_recall(k, &stats, 0);
  c.x = read(&c, &c.a.input, !derived), c.t = read(&c, &c.a.target, !derived);
  for (int64_t r = 0; !derived && r < c.rows; ++r) {
    row w = row_of(&c, r);
    float *at = (float *)stats.data + 3 * r;
    at[0] = (float)w.q.lse, at[1] = (float)w.t.lse, at[2] = (float)w.m;
    give_stats(&w, at);
    if (k->oracle && row_counts(&c.l, r)) bound_dinput(&c, &w, r, bound + r * c.cols);
  }
  if (!derived) check_remember(k, &stats, 0);
  tigon_divergence_bwd_args args = {.input = c.a.input,
                                    .target = c.a.target,
                                    .labels = c.a.labels,
                                    .stats = stats,
                                    .options = c.a.options,
                                    .dloss = c.a.dloss,
                                    .dinput = dinput,
                                    .grad_scale = c.a.grad_scale};
  check_call_in_workspace(k, tigon_divergence_bwd_workspace, &args);
  check_bound(k, &dinput, 1, 1, bound);
}

MUTANT(no_temperature, divergence_fwd, m.inverse_temperature = 1)
MUTANT(no_ignore, divergence_fwd, m.labels = NULL)
MUTANT(other_way, divergence_fwd, if (m.kind < TIGON_DIVERGENCE_JSD) m.kind = TIGON_DIVERGENCE_REVERSE_KL - m.kind)
MUTANT(other_beta, divergence_fwd, m.beta = 1 - m.beta)
MUTANT(drop_tail, divergence_fwd, m.cols -= m.cols > 1)
MUTANT(no_token_scale, divergence_fwd, m.token_scale = NULL)
MUTANT(no_denominator, divergence_fwd, m.denominator = NULL)
MUTANT(no_square, divergence_fwd, m.soft = 1)
MUTANT(as_sum, divergence_fwd, m.reduction = TIGON_REDUCTION_SUM)
MUTANT(bwd_grad_scale, divergence_bwd, m.grad_scale = 1)
MUTANT(bwd_swapped, divergence_bwd, (m.input = p->target, m.target = p->input))
MUTANT(bwd_as_logs, divergence_bwd, m.input_is = TIGON_DISTRIBUTION_LOG_PROBABILITIES)
MUTANT(bwd_ignore, divergence_bwd, m.labels = NULL)
static const check_mutant wrong_fwd[] = {
    {"forgets the temperature", no_temperature},
    {"counts ignored rows", no_ignore},
    {"takes kl for reverse_kl and the reverse", other_way},
    {"swaps beta and 1 - beta", other_beta},
    {"drops the last column", drop_tail},
    {"forgets token_scale", no_token_scale},
    {"does not divide a mean", as_sum},
    {"forgets the denominator", no_denominator},
    {"forgets temperature^2", no_square},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets grad_scale", bwd_grad_scale},
    {"swaps student and teacher", bwd_swapped},
    {"takes nothing off the gradient of logits", bwd_as_logs},
    {"counts ignored rows", bwd_ignore},
    {0},
};

/* Rows, columns; a mean's denominator is of all rows. */
static const check_sizes own_sizes = {
    .of = {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {CHECK_MANY, 4096}, {3, CHECK_THIRD}},
    .walks = {{3, CHECK_N}, {CHECK_N, 5}, {1, CHECK_N}},
    .coupled = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 18,
};

static const bench_case timed = {.op = "divergence",
                                 .shape_note = "tokens x vocabulary of logits, jsd",
                                 .rows_f32 = 512,
                                 .rows_16bit = 1024,
                                 .cols = 32000,
                                 .option = {1, 0, 0},
                                 .forms = BENCH_BIT(BENCH_KL),
                                 .full_in_one = true};

const check_op tigon_check_divergence_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_divergence_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
