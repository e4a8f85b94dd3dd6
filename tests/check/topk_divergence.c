/* topk_divergence. Options walk kinds, what the teacher says, the tail, reductions, labels, ids that repeat or are out of range, and
 * what is written where. Shapes are [tokens, vocabulary, k]. */
#include "check/divergence.h"

#include "check/cases.h"
#include "core/half.h"

static const struct option {
  int kind, target_is, reduction;
  double beta, temperature, grad_scale, least_tail;
  bool tail, dinput, stats, token_scale, dloss, denominator, squared, in_place, f32;
  bool over;          /* the entries add up to more than 1 */
  bool out_of_range;  /* some ids are */
  tigon_dtype labels; /* 0: none */
  tigon_dtype ids;    /* 0: i64 */
} options[] = {
    {KL, LOGS, MEAN, .tail = true, .dinput = true, .f32 = true},
    {KL, LOGS, MEAN, .tail = true, .stats = true, .f32 = true},
    {KL, LOGS, MEAN, .dinput = true, .stats = true, .labels = TIGON_I64},
    {KL, CHANCES, SUM, .tail = true, .dinput = true, .dloss = true, .in_place = true, .ids = TIGON_I32},
    {KL, LOGITS, NONE, .temperature = 2, .dinput = true, .dloss = true, .labels = TIGON_I32, .out_of_range = true},
    {KL, CHANCES, MEAN, .temperature = 0.5, .dinput = true, .token_scale = true, .f32 = true},
    {KL, LOGS, SUM, .tail = true, .least_tail = 0.02, .over = true, .grad_scale = -3, .dinput = true, .stats = true},
    {REVERSE, LOGS, MEAN, .temperature = 0.7, .dinput = true, .stats = true, .in_place = true, .labels = TIGON_I64},
    {REVERSE, CHANCES, NONE, .dinput = true, .token_scale = true, .ids = TIGON_I32, .out_of_range = true},
    {REVERSE, LOGITS, SUM, .temperature = 3, .least_tail = 0.001, .dinput = true},
    {JSD, LOGS, MEAN, .beta = 0.5, .dinput = true, .f32 = true},
    {JSD, LOGS, MEAN, .beta = 0.1, .temperature = 3, .dinput = true, .stats = true, .in_place = true,
     .labels = TIGON_I32},
    {JSD, LOGITS, NONE, .beta = 0.9, .dinput = true, .dloss = true, .token_scale = true},
    {JSD, CHANCES, MEAN, .beta = 0, .dinput = true, .stats = true},
    {JSD, LOGS, SUM, .beta = 1, .dinput = true, .labels = TIGON_I64},
    {TVD, CHANCES, MEAN, .dinput = true, .stats = true, .labels = TIGON_I64},
    {TVD, LOGS, SUM, .temperature = 0.5, .dinput = true, .in_place = true},
    {KL, LOGS, MEAN, .tail = true, .temperature = 3, .dinput = true, .denominator = true, .squared = true,
     .labels = TIGON_I64},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The arguments of a run, and what they come to. */
typedef struct call {
  check *k;
  struct option o;
  int kind;
  bool tail;
  int64_t rows, cols, entries;
  tigon_topk_divergence_fwd_args a;
  const double *x; /* [rows, cols] as they were before the call */
  row_loss l;
} call;

/* A class or the tail, and its errors: of log q, absolute and in eps, and of p, absolute. */
typedef struct element {
  double log_q, q, log_p, p, q_error, p_error;
} element;

/* A row; errors are in eps. Of `of` entry j is that of the first entry of a class, else q is -1; of [entries] is the tail. */
typedef struct row {
  element *of;
  int64_t *entry; /* [cols] entry of a column, -1: outside */
  double lse, outside, outside_error, d, d_error, m, m_error;
} row;

/* Log-probabilities of which k add up to 1 at most, or, `over`, to more; probabilities of the same kind. */
static tigon_tensor make_target(const call *c) {
  check *k = c->k;
  const tigon_dtype dtype = check_dtype(k, c->o.f32);
  const int64_t shape[] = {c->rows, c->entries};
  const tigon_tensor t = check_inout(k, "target", dtype, 2, shape, CHECK_UNIFORM);
  for (int64_t r = 0; c->o.target_is != LOGITS && !k->timed && r < c->rows; ++r)
    for (int64_t j = 0; j < c->entries; ++j) {
      const int64_t at = r * t.strides[0] + j;
      const double size = fabs(tigon_load_f64(t.data, at, dtype));
      const double log_p = c->o.over ? -size / 4 : -0.05 - 3 * size - log((double)c->entries);
      tigon_store_f64(t.data, at, dtype, c->o.target_is == LOGS ? log_p : exp(log_p));
    }
  return t;
}

static double logit(const call *c, int64_t r, int64_t v) { return c->l.it * c->x[r * c->cols + v]; }
static double target_at(const call *c, int64_t r, int64_t j) { return check_value(&c->a.target, r * c->entries + j); }

/* What f64, or two floats, round of numbers so large, which kernels add in their own order; and of a number between their roundings. */
static double of_wide(const call *c, double size) {
  return isfinite(size) ? check_wide(c->k) / eps * (fabs(size) + 1) : 0;
}
static double wide(const call *c) { return 64 * check_wide(c->k) / eps; }

/* Which entry a column has, and the log-sum-exp of the columns outside. Its terms carry the rounding of z - largest, exp's 5 eps,
 * and at most 32 + 8 additions. Where there is no fma, the temperature rounds z - largest once more. */
static void find_outside(const call *c, int64_t r, row *w) {
  double largest = -INFINITY, sum = 0, inside = 0, most = -INFINITY;
  for (int64_t v = 0; v < c->cols; ++v) w->entry[v] = -1;
  for (int64_t j = c->entries - 1; j >= 0; --j) {
    const double v = check_value(&c->a.target_ids, r * c->entries + j);
    if (v >= 0 && v < (double)c->cols) w->entry[(int64_t)v] = j;
  }
  for (int64_t v = 0; v < c->cols; ++v) {
    const double z = logit(c, r, v);
    if (isnan(z) || z == INFINITY) most = NAN;
    if (z > most) most = z;
    if (w->entry[v] < 0 && z > largest) largest = z;
  }
  for (int64_t v = 0; v < c->cols; ++v) {
    const double z = logit(c, r, v);
    inside += exp(z - most);
    if (w->entry[v] < 0 && largest != -INFINITY) sum += exp(z - largest);
  }
  w->lse = most + log(inside);
  w->outside = isnan(w->lse) ? w->lse : largest == -INFINITY ? largest : largest + log(sum);
  w->outside_error = largest == -INFINITY ? 0 : 46 + check_calls(c->k, 1, 0) + of_wide(c, w->outside);
  for (int64_t v = 0; v < c->cols; ++v) {
    const double p = w->entry[v] < 0 && isfinite(w->outside) ? exp(logit(c, r, v) - w->outside) : 0;
    if (p > 0) w->outside_error += p * (largest - logit(c, r, v)) * (check_has_fma(c->k) || c->l.it == 1 ? 1 : 2);
  }
}

static void find_elements(const call *c, int64_t r, row *w) {
  const double in_tail = w->outside == -INFINITY ? 0 : exp(w->outside - w->lse);
  double sum = 0, lse = 0, largest = -INFINITY;
  int64_t classes = 0;
  for (int64_t j = 0; j <= c->entries; ++j) w->of[j].q = -1;
  for (int64_t v = 0; c->o.target_is == LOGITS && v < c->cols; ++v)
    if (w->entry[v] >= 0) largest = fmax(largest, c->l.it * target_at(c, r, w->entry[v]));
  for (int64_t v = 0; c->o.target_is == LOGITS && v < c->cols; ++v)
    if (w->entry[v] >= 0) lse += exp(c->l.it * target_at(c, r, w->entry[v]) - largest);
  lse = largest + log(lse);
  for (int64_t v = 0; v < c->cols; ++v) {
    if (w->entry[v] < 0) continue;
    const double t = target_at(c, r, w->entry[v]);
    element *e = &w->of[w->entry[v]];
    e->log_q = logit(c, r, v) - w->lse, e->q = exp(e->log_q);
    e->log_p = c->o.target_is == CHANCES ? log(t) : c->o.target_is == LOGS ? t : c->l.it * t - lse;
    e->p = c->o.target_is == CHANCES ? t : exp(e->log_p);
    e->q_error = in_tail * w->outside_error + of_wide(c, w->lse) + of_wide(c, logit(c, r, v));
    e->p_error = e->p * of_wide(c, lse);
    sum += e->p;
    ++classes;
  }
  element *tail = &w->of[c->entries];
  tail->log_q = w->outside - w->lse, tail->q = exp(tail->log_q);
  tail->q_error = (1 - in_tail) * w->outside_error + of_wide(c, w->lse);
  tail->p = fmax(1 - sum, c->o.least_tail);
  tail->p_error = of_wide(c, sum) * (double)(classes + 1);
  if (!c->tail || classes == c->cols) tail->p = tail->p_error = 0;
  tail->log_p = log(tail->p);
}

/* log a - log m of jsd, m = share a + (1 - share) b. */
static double to_mixture(double log_a, double log_b, double share) {
  const double v = log_b - log_a + log(1 - share) - log(share);
  return -(log(share) + (v > 0 ? v : 0) + log1p(exp(-fabs(v))));
}
/* s of the header, and its error: log m moves by no more than log q and log p do. */
static double slope(const call *c, const element *e, double *error) {
  const double b = (double)(float)c->o.beta, p_error = e->p > 0 ? e->p_error / e->p : 0;
  *error = e->q_error + p_error;
  if (c->kind == REVERSE) return e->log_q - e->log_p;
  if (c->kind == JSD) return (1 - b) * to_mixture(e->log_q, e->log_p, 1 - b);
  *error = fabs(e->q - e->p) <= eps * (e->q * e->q_error + e->p_error) + tiny ? 1 / eps : 0;
  return e->q > e->p ? 0.5 : e->q < e->p ? -0.5 : 0;
}

static void add_terms(const call *c, row *w) {
  const double b = (double)(float)c->o.beta;
  for (int64_t j = 0; j <= c->entries; ++j) {
    const element *e = &w->of[j];
    double error, d;
    if (e->q < 0) continue;
    const double s = slope(c, e, &error), u = e->log_p - e->log_q, of_q = times(e->q, s);
    const double m_error = times(e->q, error + fabs(s) * (e->q_error + wide(c))), both = e->q_error + fabs(u) * wide(c);
    switch (c->kind) {
      case KL:
        w->d += times(e->p, u), w->m += e->p;
        w->d_error += times(e->p, both) + times(e->p_error, fabs(u) + 1), w->m_error += e->p_error;
        continue;
      case REVERSE: w->d += of_q, w->d_error += m_error; break;
      case JSD:
        d = to_mixture(e->log_p, e->log_q, b);
        w->d += of_q + b * times(e->p, d);
        w->d_error += m_error + b * times(e->p, e->q_error + fabs(d) * wide(c)) + b * times(e->p_error, fabs(d) + 1);
        break;
      default: w->d += 0.5 * fabs(e->q - e->p), w->d_error += 0.5 * (e->q * e->q_error + e->p_error); break;
    }
    w->m += of_q, w->m_error += m_error;
  }
}

static void find_row(const call *c, int64_t r, row *w) {
  w->d = w->d_error = w->m = w->m_error = 0;
  find_outside(c, r, w);
  find_elements(c, r, w);
  add_terms(c, w);
}

/* Backward is given stats of f32, whose errors then are none. */
static void give_stats(const call *c, int64_t r, row *w, const float stats[3]) {
  w->lse = (double)stats[0], w->m = (double)stats[2];
  w->outside = (double)stats[1];
  w->outside_error = w->m_error = 0;
  find_elements(c, r, w);
}

/* e of the header, and its error. */
static double gradient(const call *c, const row *w, const element *e, double *error) {
  if (c->kind == KL) {
    *error = e->q * (fabs(w->m) * e->q_error + w->m_error) + e->p_error + wide(c) * (e->q * fabs(w->m) + e->p);
    return times(e->q, w->m) - e->p;
  }
  const double s = slope(c, e, error);
  *error = times(e->q, *error + w->m_error + (fabs(s) + fabs(w->m)) * (e->q_error + wide(c)));
  return times(e->q, s - w->m);
}

/* A column outside has the rounding of z - lse, twice that of its result, exp's, and those of two products. */
static void bound_dinput(const call *c, const row *w, int64_t r, double *at) {
  const double by = row_factor(&c->l, r) * c->l.it;
  double error;
  for (int64_t v = 0; v < c->cols; ++v) {
    const bool outside = w->entry[v] < 0;
    const double e = gradient(c, w, &w->of[outside ? c->entries : w->entry[v]], &error);
    if (outside) {
      const double log_share = logit(c, r, v) - w->outside, share = exp(log_share);
      const double own = 3 * fabs(log_share) + w->outside_error + of_wide(c, w->outside) + 8 + check_calls(c->k, 1, 0);
      error = times(share, fabs(e) * own + error) + tiny / eps * fabs(e);
    }
    at[v] = by * (error + tiny / eps) + tiny / eps;
    if (!isfinite(at[v])) at[v] = 0;
  }
}

/* Every run makes the same buffers, and those that use them fill them. */
static row begin_rows(call *c, bool used) {
  double *x = check_doubles(c->k, c->rows * c->cols);
  for (int64_t i = 0; used && i < c->rows * c->cols; ++i) x[i] = check_value(&c->a.input, i);
  c->x = x;
  return (row){.of = check_list(c->k, "elements", (size_t)(c->entries + 1) * sizeof(element)),
               .entry = check_list(c->k, "columns", (size_t)c->cols * sizeof(int64_t))};
}

/* The arguments that are alike in both directions. */
static call begin(check *k) {
  call c = {.k = k, .o = options[k->option], .rows = k->dims[0], .cols = k->dims[1], .entries = k->dims[2]};
  const struct option o = c.o;
  const int64_t of_entries[] = {c.rows, c.entries}, out = o.out_of_range;
  c.kind = kind_of(o.kind, o.beta);
  c.tail = o.tail || c.kind != KL;
  c.a.input = check_rows(k, "input", k->fill, o.in_place);
  c.a.target = make_target(&c);
  c.a.target_ids = check_indices(k, "target_ids", o.ids ? o.ids : TIGON_I64, 2, of_entries, -out, c.cols + 2 * out);
  if (o.out_of_range) c.a.out.error = check_error_flag(k);
  c.a.options = (tigon_topk_divergence_options){.kind = (tigon_divergence_kind)o.kind,
                                                .target_is = (tigon_distribution)o.target_is,
                                                .beta = o.beta,
                                                .temperature = o.temperature,
                                                .reduction = (tigon_reduction)o.reduction,
                                                .by_temperature_squared = o.squared,
                                                .tail = o.tail,
                                                .least_tail = o.least_tail};
  c.l = make_row_loss(k, ROW_OPTIONS(o));
  GIVE_ROW_LOSS(c.a, c.l);
  return c;
}

static tigon_tensor make_dinput(const call *c) {
  return c->o.in_place ? c->a.input : check_out(c->k, "dinput", c->k->dtype, 2, c->k->dims);
}

static void fwd(check *k) {
  call c = begin(k);
  const struct option o = c.o;
  const row_outputs out = make_row_outputs(k, &c.l, o.stats);
  c.a.out.loss = out.out.loss, c.a.out.token_loss = out.out.token_loss, c.a.out.stats = out.out.stats;
  if (o.dinput) c.a.dinput = make_dinput(&c);
  double *dinput = check_doubles(k, c.rows * c.cols);
  row w = begin_rows(&c, k->oracle != NULL);
  for (int64_t r = 0; k->oracle && r < c.rows; ++r) {
    if (!row_counts(&c.l, r)) continue;
    find_row(&c, r, &w);
    const element *tail = &w.of[c.entries];
    const double of_d = of_wide(&c, 0) + (isfinite(w.d_error) ? w.d_error : 0);
    const double of_lse = exp(tail->log_q) * w.outside_error + of_wide(&c, w.lse);
    const double errors[] = {of_d, of_lse, w.outside_error, w.m_error};
    bound_row(&out, &c.l, r, w.d, errors);
    if (o.dinput) bound_dinput(&c, &w, r, dinput + r * c.cols);
  }
  check_call_in_workspace(k, tigon_topk_divergence_fwd_workspace, &c.a);
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
  row w = begin_rows(&c, !derived);
  for (int64_t r = 0; !derived && r < c.rows; ++r) {
    find_row(&c, r, &w);
    float *at = (float *)stats.data + 3 * r;
    at[0] = (float)w.lse, at[1] = (float)w.outside, at[2] = (float)w.m;
    give_stats(&c, r, &w, at);
    if (k->oracle && row_counts(&c.l, r)) bound_dinput(&c, &w, r, bound + r * c.cols);
  }
  if (!derived) check_remember(k, &stats, 0);
  tigon_topk_divergence_bwd_args args = {.input = c.a.input,
                                         .target = c.a.target,
                                         .target_ids = c.a.target_ids,
                                         .labels = c.a.labels,
                                         .stats = stats,
                                         .options = c.a.options,
                                         .dloss = c.a.dloss,
                                         .dinput = dinput,
                                         .error = c.a.out.error,
                                         .grad_scale = c.a.grad_scale};
  check_call_in_workspace(k, tigon_topk_divergence_bwd_workspace, &args);
  check_bound(k, &dinput, 1, 1, bound);
}

MUTANT(no_temperature, topk_divergence_fwd, m.base.inverse_temperature = 1)
MUTANT(no_ignore, topk_divergence_fwd, m.base.labels = NULL)
MUTANT(other_way, topk_divergence_fwd,
       if (m.base.kind < TIGON_DIVERGENCE_JSD) m.base.kind = TIGON_DIVERGENCE_REVERSE_KL - m.base.kind)
MUTANT(other_beta, topk_divergence_fwd, m.base.beta = 1 - m.base.beta)
MUTANT(last_column, topk_divergence_fwd, m.base.cols -= m.base.cols > 1)
MUTANT(last_entry, topk_divergence_fwd, m.k -= m.k > 1)
MUTANT(no_tail, topk_divergence_fwd, m.tail = false)
MUTANT(any_tail, topk_divergence_fwd, m.least_tail = 0)
MUTANT(raw_target, topk_divergence_fwd, m.base.target_is += m.base.target_is == TIGON_DISTRIBUTION_LOGITS)
MUTANT(no_error, topk_divergence_fwd, m.error_flag = NULL)
MUTANT(no_token_scale, topk_divergence_fwd, m.base.token_scale = NULL)
MUTANT(no_denominator, topk_divergence_fwd, m.base.denominator = NULL)
MUTANT(no_square, topk_divergence_fwd, m.base.soft = 1)
MUTANT(as_sum, topk_divergence_fwd, m.base.reduction = TIGON_REDUCTION_SUM)
MUTANT(bwd_grad_scale, topk_divergence_bwd, m.base.grad_scale = 1)
MUTANT(bwd_ignore, topk_divergence_bwd, m.base.labels = NULL)
MUTANT(bwd_no_tail, topk_divergence_bwd, m.tail = false)
MUTANT(bwd_last_entry, topk_divergence_bwd, m.k -= m.k > 1)
static const check_mutant wrong_fwd[] = {
    {"forgets the temperature", no_temperature},
    {"counts ignored rows", no_ignore},
    {"takes kl for reverse_kl and the reverse", other_way},
    {"swaps beta and 1 - beta", other_beta},
    {"drops the last column", last_column},
    {"drops the last entry", last_entry},
    {"forgets the tail", no_tail},
    {"forgets least_tail", any_tail},
    {"takes logits for log-probabilities", raw_target},
    {"says nothing of ids out of range", no_error},
    {"forgets token_scale", no_token_scale},
    {"does not divide a mean", as_sum},
    {"forgets the denominator", no_denominator},
    {"forgets temperature^2", no_square},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets grad_scale", bwd_grad_scale},
    {"counts ignored rows", bwd_ignore},
    {"forgets the tail", bwd_no_tail},
    {"drops the last entry", bwd_last_entry},
    {0},
};

/* Few entries, many, and as many as there are columns or more, so that nothing may be outside. */
static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  if (!check_row_shapes(index, tile, dims)) return false;
  const int64_t of[] = {1, 3, dims[1] < 64 ? dims[1] : 64, 17, dims[1] < 9 ? 4 * dims[1] : 8};
  dims[2] = of[index % 5];
  return true;
}

/* Rows, columns, entries; a mean's denominator is of all rows. */
static const check_sizes own_sizes = {
    .of = {{2, 35, 4}, {67, 131, 9}, {300, 37, 5}, {3, 64, 6}, {CHECK_MANY, 4096, 2}, {3, CHECK_THIRD, 3}},
    .walks = {{3, CHECK_N, 5}, {CHECK_N, 5, 3}, {2, 40, CHECK_N}},
    .coupled = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 15 | 1 << 17,
};

static void bench_sizes(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows, dims[1] = at->cols, dims[2] = 64;
}
static const bench_case timed = {.op = "topk_divergence",
                                 .shape_note = "tokens x vocabulary, kl with the tail of 64 entries",
                                 .rows_f32 = 512,
                                 .rows_16bit = 1024,
                                 .cols = 32000,
                                 .dims = bench_sizes,
                                 .option = {1, 0, 0},
                                 .full_in_one = true};

const check_op tigon_check_topk_divergence_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_topk_divergence_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
