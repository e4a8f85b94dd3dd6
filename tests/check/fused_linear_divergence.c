/* fused_linear_divergence. dims are rows, width, vocab; the teacher's width is another one. Options walk the workspace,
 * kinds, the teacher's vocabulary, and what the loss and the gradients are made of.
 *
 * The bounds follow one perturbation through the op, as fused_linear_cross_entropy's do: a logit is off by its f32 sum's
 * error and, of 16 bits, by one ulp, and a softcap's f32 adds its own. So a log-probability is off by twice the most of a row, and by what divergence's own
 * f32 adds: `off_q` and `off_p`. */
#include "check/head_rows.h"

enum { KL, REVERSE, JSD, TVD, COSINE };
enum room { GOOD, LEAST, PARKS };
enum teacher { SAME_CLASSES, FEWER, MORE };

static const struct option {
  enum room room;
  int kind;
  double beta, temperature, soft, hard, grad_scale;
  enum teacher teacher;
  double cap, scale, teacher_cap, teacher_scale;
  bool short_sums, accumulate, bias, denominator, token_scale, dloss, squared, no_labels, parts, loss_only, wide;
} options[] = {
    {GOOD, JSD, .beta = 0.5, .temperature = 2, .hard = 0.5, .soft = 0.5, .bias = true, .parts = true},
    {LEAST, KL, .short_sums = true, .bias = true, .hard = 0.25, .token_scale = true},
    {LEAST, REVERSE, .temperature = 1.5, .short_sums = true, .accumulate = true, .dloss = true, .no_labels = true,
     .wide = true},
    {LEAST, TVD, .accumulate = true, .bias = true, .teacher = FEWER, .denominator = true, .hard = 2},
    {GOOD, COSINE, .short_sums = true, .hard = 0.5, .soft = 2, .teacher = MORE, .parts = true, .wide = true},
    {LEAST, JSD, .beta = 0.1, .temperature = 3, .squared = true, .teacher = FEWER, .short_sums = true,
     .grad_scale = -3},
    {PARKS, KL, .temperature = 0.7, .short_sums = true, .no_labels = true, .teacher = MORE},
    {LEAST, COSINE, .teacher = FEWER, .short_sums = true},
    {LEAST, JSD, .beta = 0.5, .temperature = 2, .hard = 0.5, .cap = 3, .scale = 1.5, .teacher_cap = 5,
     .teacher_scale = 0.25, .short_sums = true, .bias = true},
    {GOOD, KL, .hard = 0.5, .scale = 0.5, .teacher_cap = 2, .teacher = FEWER, .parts = true},
    {LEAST, REVERSE, .temperature = 0.5, .cap = 1.5, .teacher_scale = 3, .short_sums = true, .wide = true},
    {LEAST, COSINE, .hard = 0.5, .cap = 2, .scale = 2, .teacher_cap = 0.5, .teacher = FEWER, .bias = true},
    {GOOD, COSINE, .hard = 0.5, .scale = 3, .teacher_scale = 2, .short_sums = true},
    {GOOD, JSD, .beta = 0.5, .no_labels = true, .loss_only = true},
    {GOOD, JSD, .beta = 0.5, .no_labels = true},
};
enum { OPTIONS = sizeof options / sizeof *options, LOSS_ONLY = OPTIONS - 2, FULL = OPTIONS - 1 };

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {{1, 1, 1},     {3, 5, t + 1}, {7, t, 33},   {4, 2 * t + 1, 2 * t}, {9, 16, 19},
                             {37, 16, 131}, {130, 7, 40},  {5, 64, 509}, {64, 130, 129}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d];
  return true;
}

static int64_t teacher_width(const check *k) { return k->dims[1] / 2 + 1; }
static int64_t teacher_classes(const check *k) {
  const enum teacher t = options[k->option].teacher;
  return k->dims[2] + (t == MORE ? 2 : t == FEWER ? -(k->dims[2] / 3) : 0);
}

typedef struct call {
  check *k;
  struct option o;
  tigon_fused_linear_divergence_fwd_args a;
  double inverse, total, soft_total, hard_total;
  double *off, *size;                   /* [rows, vocab] */
  double *token_loss, *x, *t, *lq, *lp; /* [rows], [vocab] */
  double *steep, *steep_off;            /* [vocab]: d x / d u, and what it is off by */
} call;

/* A side's softcap and scale. */
typedef struct map {
  double cap, scale;
} map;
static map map_of(double cap, double scale) { return (map){cap, scale != 0 ? (double)(float)scale : 1}; }

/* What a row's bounds are made of. */
typedef struct shifts {
  double x_shift, t_shift;       /* how far a logit may be off */
  double off_q, off_p, off_hard; /* a log-probability */
  double hard_lse;
} shifts;

/* A cap's slope at u, which may be off by `shift`: that of 1 / cosh^2 a is 2 |tanh a| times a's, and 6 ulps. It is 1 at
 * most, and below e^-87 it may be 0. */
static void slope_of(call *c, const map *m, double u, double shift, int64_t v) {
  const double a = fabs(u) * m->scale / m->cap, cosine = cosh(fmin(a, 300)), slope = 1 / (cosine * cosine);
  const double off = expm1(2 * (a * 0x1p-22 + shift * m->scale / m->cap)) + 0x1p-24 * (12 + check_calls(c->k, 2, 1));
  c->steep[v] = m->scale * slope;
  c->steep_off[v] = m->scale * (fmin(1, slope * off) + 0x1p-123);
}

/* `known` logits of a head, and how far one of them may be off. `of_student`: their slopes, too. */
static double logits(call *c, const tigon_tensor *hidden, const tigon_tensor *weight, const tigon_tensor *bias,
                     const map *m, int64_t r, int64_t width, int64_t known, bool of_student, double *to) {
  double shift = 0;
  for (int64_t v = 0; v < known; ++v) {
    double absolute = 0, x = head_dot(hidden, r, weight, v, width, &absolute);
    if (bias->ndim) x += check_value(bias, v), absolute += fabs(check_value(bias, v));
    const double own = 16 * 0x1p-24 * absolute + head_ulp(c->o.wide ? TIGON_F32 : c->k->dtype) * fabs(x);
    if (isfinite(x)) shift = fmax(shift, own);
    to[v] = m->cap != 0 ? m->cap * tanh(x * m->scale / m->cap) : x * m->scale;
    if (of_student) c->steep[v] = m->scale, c->steep_off[v] = 0;
    if (of_student && m->cap != 0) slope_of(c, m, x, own, v);
  }
  shift *= m->scale;
  /* a tanh of 5, its argument's two roundings and the product's */
  if (m->cap != 0) shift = fmin(shift, 2 * m->cap) + 0x1p-24 * m->cap * (8 + check_calls(c->k, 0.5, 2));
  return shift;
}

/* Log-probabilities of `known` logits times `by`, and how far one of them is off. */
static double normalise(const check *k, const double *x, int64_t known, int64_t vocab, double by, double shift,
                        double *lse, double *to) {
  double largest = -INFINITY, sum = 0, reach = 0;
  for (int64_t v = 0; v < known; ++v) largest = fmax(largest, x[v] * by);
  for (int64_t v = 0; v < known; ++v) sum += exp(x[v] * by - largest);
  *lse = largest + log(sum);
  for (int64_t v = 0; v < vocab; ++v) {
    to[v] = v < known ? x[v] * by - *lse : -INFINITY;
    if (isfinite(to[v])) reach = fmax(reach, fabs(to[v]) + fabs(x[v] * by));
  }
  return 2 * shift * by + 0x1p-24 * (64 + 9 * reach + 4 * check_calls(k, 2, 0));
}

static double times(double factor, double terms) { return factor == 0 ? 0 : factor * terms; }

/* log a - log m of jsd, m = share a + (1 - share) b. */
static double to_mixture(double a, double b, double share) {
  const double v = b - a + log1p(-share) - log(share);
  return -(log(share) + (v > 0 ? v : 0) + log1p(exp(-fabs(v))));
}

/* D's error, and of dlogits[v], before the factor of its row. f32's own additions are within 42 roundings of the sizes. */
static double bound_row(const call *c, const shifts *w, double *off, double *size) {
  const int64_t vocab = c->k->dims[2];
  const double b = (double)(float)c->o.beta, grow_q = expm1(w->off_q), grow_p = expm1(w->off_p), add = 42 * 0x1p-24;
  const double of_both = w->off_p + w->off_q, of_m = fmax(w->off_p, w->off_q);
  double error = 0, mean = 0, mean_error = 0, all = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    const double q = exp(c->lq[v]), p = exp(c->lp[v]), u = c->lq[v] - c->lp[v];
    double d = 0, of_slope = 0, slope = 0;
    if (c->o.kind == KL) {
      d = times(p, -u), error += times(p, (1 + grow_p) * of_both + grow_p * fabs(u)), all += p;
    } else if (c->o.kind == REVERSE) {
      d = times(q, u), slope = u, of_slope = of_both;
      error += times(q, (1 + grow_q) * of_both + grow_q * fabs(u));
    } else if (c->o.kind == JSD) {
      const double to_q = c->lq[v] == -INFINITY ? 0 : to_mixture(c->lq[v], c->lp[v], 1 - b),
                   to_p = p == 0 ? 0 : to_mixture(c->lp[v], c->lq[v], b);
      const double own = 0x1p-24 * (16 + 4 * fabs(log(b)) + 4 * fabs(log1p(-b)));
      d = b * p * to_p + (1 - b) * q * to_q;
      slope = (1 - b) * to_q, of_slope = (1 - b) * (w->off_q + of_m + own);
      error += b * p * ((1 + grow_p) * (w->off_p + of_m + own) + grow_p * fabs(to_p));
      error += (1 - b) * q * ((1 + grow_q) * (w->off_q + of_m + own) + grow_q * fabs(to_q));
    } else {
      const double may = q * grow_q + p * grow_p + 0x1p-125;
      d = 0.5 * fabs(q - p), slope = q > p ? 0.5 : q < p ? -0.5 : 0;
      of_slope = fabs(q - p) <= may ? 1 : 0;
      error += 0.5 * may;
    }
    error += add * fabs(d);
    mean += times(q, slope);
    mean_error += times(q, (1 + grow_q) * of_slope + grow_q * fabs(slope)) + add * times(q, fabs(slope));
    off[v] = of_slope, size[v] = slope;
  }
  const double it = c->o.temperature != 0 ? (double)(float)(1 / c->o.temperature) : 1;
  for (int64_t v = 0; v < vocab; ++v) {
    const double q = exp(c->lq[v]), p = exp(c->lp[v]);
    const double apart = size[v] - mean;
    off[v] = c->o.kind == KL ? q * (grow_q + all * add) + p * grow_p
                             : times(q, (1 + grow_q) * (off[v] + mean_error) + (grow_q + 0x1p-22) * fabs(apart) +
                                            0x1p-23 * (fabs(size[v]) + fabs(mean)));
    size[v] = c->o.kind == KL ? q + p : times(q, fabs(apart));
    /* exp's least is 2^-126, in place of all below it: a probability may be too large by that, and so may what it weighs. */
    const double least = 0x1p-125 * (1 + (isfinite(apart) && c->o.kind != KL ? fabs(apart) : 0));
    off[v] = it * (off[v] + 0x1p-22 * size[v] + least), size[v] *= it;
  }
  return error;
}

/* The logits' own vectors: |x| is off by `x_shift` of each element. */
static double bound_cosine(const call *c, const shifts *w, double *off, double *size) {
  const int64_t vocab = c->k->dims[2];
  double xx = 0, tt = 0, xt = 0;
  for (int64_t v = 0; v < vocab; ++v) xx += c->x[v] * c->x[v], tt += c->t[v] * c->t[v], xt += c->x[v] * c->t[v];
  const double x = sqrt(xx), t = sqrt(tt), own = 64 * 0x1p-24, root = sqrt((double)vocab);
  const double x_off = x == 0 ? 0 : w->x_shift * root / x + own, t_off = t == 0 ? 0 : w->t_shift * root / t + own;
  const double cosine = x == 0 || t == 0 ? 0 : xt / x / t, error = 4 * (x_off + t_off);
  for (int64_t v = 0; v < vocab; ++v) {
    off[v] = size[v] = 0;
    if (x == 0 || t == 0) continue;
    const double of_x = fabs(c->x[v]) / x, of_t = fabs(c->t[v]) / t;
    size[v] = (of_t + fabs(cosine) * of_x) / x;
    off[v] =
        (2 * w->t_shift / t + 4 * t_off * of_t + error * of_x + 2 * fabs(cosine) * w->x_shift / x + 4 * x_off * of_x) /
            x +
        4 * x_off * size[v];
    /* a vector that may be half as long as it is has no direction to hold it to */
    if (x_off > 0.125 || t_off > 0.125) off[v] = 8 * size[v] / (x_off < 0.9 ? 1 - x_off : 0.1) + 8 / x;
  }
  return error + own;
}

static bool counts(const call *c, int64_t r) {
  return c->o.no_labels || (int64_t)check_value(&c->a.labels, r) != IGNORED;
}

static void spread_token(call *c, int64_t r) {
  check *k = c->k;
  const int64_t vocab = k->dims[2], classes = teacher_classes(k), known = classes < vocab ? classes : vocab;
  const tigon_fused_linear_divergence_fwd_args *a = &c->a;
  const double it = c->o.temperature != 0 ? (double)(float)(1 / c->o.temperature) : 1;
  double *off = c->off + r * vocab, *size = c->size + r * vocab, lse;
  const map m = map_of(c->o.cap, c->o.scale), of_teacher = map_of(c->o.teacher_cap, c->o.teacher_scale);
  shifts w = {.x_shift = logits(c, &a->hidden, &a->weight, &a->bias, &m, r, k->dims[1], vocab, true, c->x)};
  w.t_shift = logits(c, &a->teacher_hidden, &a->teacher_weight, &a->teacher_bias, &of_teacher, r, teacher_width(k),
                     known, false, c->t);
  for (int64_t v = known; v < vocab; ++v) c->t[v] = 0;
  if (!counts(c, r)) return;
  const double square = c->o.squared ? c->o.temperature * c->o.temperature : 1;
  const double soft = (c->o.soft != 0 ? c->o.soft : 1) * square, hard = c->o.hard;
  w.off_hard = normalise(k, c->x, vocab, vocab, 1, w.x_shift, &w.hard_lse, c->lq);
  w.off_q = normalise(k, c->x, vocab, vocab, it, w.x_shift, &lse, c->lq);
  w.off_p = normalise(k, c->t, known, vocab, it, w.t_shift, &lse, c->lp);
  const double error = c->o.kind == COSINE ? bound_cosine(c, &w, off, size) : bound_row(c, &w, off, size);
  double by = fabs(c->inverse);
  const double scale = c->o.token_scale ? fabs(check_value(&a->token_scale, r)) : 1;
  if (isfinite(error)) {
    c->token_loss[r] = scale * (soft * error + hard * 2 * w.off_hard);
    c->total += by * c->token_loss[r], c->soft_total += by * error, c->hard_total += by * 2 * w.off_hard;
  }
  by *= scale;
  if (c->o.dloss) by *= fabs(check_value(&a->dloss, 0));
  if (c->o.grad_scale != 0) by *= fabs(c->o.grad_scale);
  for (int64_t v = 0; v < vocab; ++v) {
    const double own = hard * exp(fmin(0, c->x[v] - w.hard_lse));
    const bool of_class = !c->o.no_labels && v == (int64_t)check_value(&a->labels, r);
    const double all = soft * size[v] + own + (of_class ? hard : 0), wrong = soft * off[v] + own * expm1(w.off_hard);
    size[v] = by * c->steep[v] * all;
    off[v] = by * (wrong * (c->steep[v] + c->steep_off[v]) + all * c->steep_off[v]) +
             (head_ulp(k->dtype) + 0x1p-20) * size[v] + 0x1p-126 * fmax(1, by * m.scale * (soft + hard));
    if (!isfinite(off[v]) || !isfinite(size[v])) off[v] = size[v] = 0;
  }
}

static void fwd(check *k) {
  call c = {.k = k, .o = options[k->option]};
  const struct option o = c.o;
  const int64_t rows = k->dims[0], width = k->dims[1], vocab = k->dims[2], other = teacher_width(k);
  const tigon_dtype sums = o.short_sums ? k->dtype : TIGON_F32;
  tigon_fused_linear_divergence_fwd_args *a = &c.a;
  *a = (tigon_fused_linear_divergence_fwd_args){
      .hidden = check_in(k, "hidden", k->dtype, 2, (int64_t[]){rows, width}, k->fill),
      .weight = check_in(k, "weight", k->dtype, 2, (int64_t[]){vocab, width}, CHECK_UNIFORM),
      .teacher_hidden = check_in(k, "teacher_hidden", k->dtype, 2, (int64_t[]){rows, other}, CHECK_UNIFORM),
      .teacher_weight =
          check_in(k, "teacher_weight", k->dtype, 2, (int64_t[]){teacher_classes(k), other}, CHECK_UNIFORM),
      .kind = (tigon_divergence_kind)o.kind,
      .beta = o.beta,
      .temperature = o.temperature,
      .softcap = o.cap,
      .logit_scale = o.scale,
      .teacher_softcap = o.teacher_cap,
      .teacher_logit_scale = o.teacher_scale,
      .weight_soft = o.soft,
      .weight_hard = o.hard,
      .has_ignore_index = 1,
      .ignore_index = IGNORED,
      .by_temperature_squared = o.squared,
      .truncate_teacher = o.teacher == MORE,
      .logits_in_f32 = o.wide,
      .accumulate_dweight = o.accumulate,
      .grad_scale = o.grad_scale,
  };
  if (!o.no_labels) a->labels = check_indices(k, "labels", k->option % 2 ? TIGON_I32 : TIGON_I64, 1, &rows, 0, vocab);
  if (o.bias) a->bias = check_in_vector(k, "bias", k->dtype, vocab, CHECK_UNIFORM);
  if (o.bias) a->teacher_bias = check_in_vector(k, "teacher_bias", k->dtype, teacher_classes(k), CHECK_UNIFORM);
  if (o.token_scale) a->token_scale = check_in_vector(k, "token_scale", TIGON_F32, rows, CHECK_UNIFORM);
  if (o.dloss) a->dloss = check_in_vector(k, "dloss", TIGON_F32, 1, CHECK_UNIFORM);
  if (o.denominator) {
    a->denominator = check_inout_dense(k, "denominator", TIGON_F32, 1, (int64_t[]){1}, CHECK_UNIFORM);
    check_make_positive(k, &a->denominator);
  }
  double *old_dweight = check_doubles(k, vocab * width), *old_dbias = check_doubles(k, vocab);
  a->loss = check_out_vector(k, "loss", TIGON_F32, 1);
  if (o.parts) a->soft_loss = check_out_vector(k, "soft_loss", TIGON_F32, 1);
  if (o.parts) a->hard_loss = check_out_vector(k, "hard_loss", TIGON_F32, 1);
  if (k->option < LOSS_ONLY) a->token_loss = check_out_vector(k, "token_loss", TIGON_F32, rows);
  if (!o.loss_only) {
    a->dhidden = check_out(k, "dhidden", k->dtype, 2, (int64_t[]){rows, width});
    a->dweight = head_gradient(k, "dweight", sums, o.accumulate, 2, (int64_t[]){vocab, width}, old_dweight);
    if (k->option < LOSS_ONLY) a->dbias = head_gradient(k, "dbias", sums, o.accumulate, 1, &vocab, old_dbias);
  }
  double counted = 0;
  for (int64_t r = 0; k->oracle && r < rows; ++r) counted += counts(&c, r);
  if (k->oracle && o.denominator) counted = check_value(&a->denominator, 0);
  c.inverse = counted == 0 ? 0 : 1 / counted;
  c.off = check_doubles(k, rows * vocab), c.size = check_doubles(k, rows * vocab);
  c.token_loss = check_doubles(k, rows), c.x = check_doubles(k, vocab), c.t = check_doubles(k, vocab);
  c.lq = check_doubles(k, vocab), c.lp = check_doubles(k, vocab);
  c.steep = check_doubles(k, vocab), c.steep_off = check_doubles(k, vocab);
  for (int64_t r = 0; k->oracle && r < rows; ++r) spread_token(&c, r);
  size_t least, good;
  tigon_fused_linear_divergence_fwd_workspace(k->context, a, &least, &good);
  a->workspace_bytes = o.room == GOOD ? good : o.room == LEAST ? least : least + (good - least) / 4;
  a->workspace = check_workspace(k, a->workspace_bytes);
  check_call(k, a);
  const head_case head = {k,
                          .rows = rows,
                          .width = width,
                          .vocab = vocab,
                          .hidden = a->hidden,
                          .weight = a->weight,
                          .off = c.off,
                          .size = c.size};
  if (!o.loss_only) bound_products(&head, &a->dhidden, &a->dweight, &a->dbias, old_dweight, old_dbias);
  head_bound(k, &a->loss, &c.total);
  head_bound(k, &a->soft_loss, &c.soft_total);
  head_bound(k, &a->hard_loss, &c.hard_total);
  head_bound(k, &a->token_loss, c.token_loss);
}

MUTANT(no_hard, divergence_fwd, m.hard = 0)
MUTANT(all_known, divergence_fwd, m.target_cols = m.cols)
MUTANT(no_temperature, divergence_fwd, m.inverse_temperature = 1)
MUTANT(no_soft, divergence_fwd, m.soft = 1)
MUTANT(no_denominator, cross_entropy_fwd, m.denominator = NULL)
MUTANT(no_cap, divergence_fwd, m.input_map.cap = 0)
MUTANT(no_scale, divergence_fwd, m.input_map.scale = 1)
MUTANT(no_teacher_cap, divergence_fwd, m.target_map.cap = 0)
MUTANT(no_teacher_scale, divergence_fwd, m.target_map.scale = 1)
MUTANT(no_cap_backward, divergence_bwd, m.input_map.cap = 0)
MUTANT(no_panel, divergence_bwd, m.panel_begin = 0)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
static const check_mutant wrong[] = {
    {"forgets the cross entropy", no_hard},           {"reads classes that the teacher has not", all_known},
    {"forgets the temperature", no_temperature},      {"forgets weight_soft and temperature^2", no_soft},
    {"forgets the denominator", no_denominator},      {"takes a panel for the first", no_panel},
    {"forgets the student's softcap", no_cap},        {"forgets the student's scale", no_scale},
    {"forgets the teacher's softcap", no_teacher_cap}, {"forgets the teacher's scale", no_teacher_scale},
    {"forgets the softcap in panels", no_cap_backward}, {"overwrites dweight between chunks", overwrite}, {0},
};

/* rows, width, vocabulary; the denominator is of all rows */
static const check_sizes own_sizes = {
    .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {CHECK_MANY, 512, 5}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = (1 << OPTIONS) - 1,
};

static const bench_case timed = {.op = "fused_linear_divergence",
                                 .shape_note = "tokens x hidden, 16000 words, jsd",
                                 .rows_f32 = 256,
                                 .rows_16bit = 256,
                                 .cols = 1024,
                                 .other = 16000,
                                 .dims = bench_words,
                                 .of_model = head_of_model,
                                 .option = {LOSS_ONLY, FULL, FULL},
                                 .full_in_one = true,
                                 .products = {2, 4, 4}};

const check_op tigon_check_fused_linear_divergence_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
