/* cross_entropy. Options walk reductions, label dtypes, every option of the loss and every output. */
#include <math.h>
#include <string.h>

#include "check/cases.h"

static const struct option {
  tigon_reduction reduction;
  tigon_dtype labels;
  bool weight, token_scale, dloss, dentropy, outputs, dlogits, in_place, ignore, out_of_range, softcap_first,
      denominator;
  double smoothing, lse_square, softcap, temperature, grad_scale;
} options[] = {
    {.labels = TIGON_I64},
    {.labels = TIGON_I32,
     .weight = true,
     .token_scale = true,
     .outputs = true,
     .dlogits = true,
     .ignore = true,
     .smoothing = 0.1,
     .lse_square = 1e-2},
    {.reduction = TIGON_REDUCTION_SUM,
     .labels = TIGON_I64,
     .dloss = true,
     .dlogits = true,
     .in_place = true,
     .softcap = 5,
     .temperature = 0.7,
     .grad_scale = -3},
    {.reduction = TIGON_REDUCTION_NONE,
     .labels = TIGON_I32,
     .dloss = true,
     .outputs = true,
     .dlogits = true,
     .ignore = true,
     .smoothing = 0.3,
     .temperature = 2},
    {.labels = TIGON_I64,
     .token_scale = true,
     .dlogits = true,
     .in_place = true,
     .out_of_range = true,
     .softcap = 0.25},
    {.reduction = TIGON_REDUCTION_SUM, .labels = TIGON_I64, .weight = true, .outputs = true, .softcap = 30},
    {.labels = TIGON_I32,
     .weight = true,
     .dloss = true,
     .outputs = true,
     .dlogits = true,
     .out_of_range = true,
     .ignore = true,
     .smoothing = 1,
     .lse_square = 0.5,
     .softcap = 2},
    {.labels = TIGON_I64, .dlogits = true},
    {.reduction = TIGON_REDUCTION_NONE,
     .labels = TIGON_I64,
     .dloss = true,
     .dentropy = true,
     .outputs = true,
     .dlogits = true,
     .ignore = true},
    {.labels = TIGON_I32,
     .weight = true,
     .denominator = true,
     .dentropy = true,
     .dlogits = true,
     .in_place = true,
     .smoothing = 0.2,
     .softcap_first = true,
     .softcap = 4,
     .temperature = 0.8,
     .grad_scale = -2},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* The arguments of a run, and what they come to. */
typedef struct call {
  const check *k;
  struct option o;
  int64_t rows, cols;
  tigon_cross_entropy_fwd_args a;
  const double *x, *z; /* [rows, cols] of the logits as they were before the call, as given and as the op sees them */
  double inverse;      /* of mean's denominator */
} call;

/* What the bounds of a row are made of; eps is 2^-24. */
typedef struct row {
  int64_t label; /* -1: does not count */
  double weight, scale, lse;
  double entropy;      /* NaN without a finite lse */
  double lse_error;    /* of lse, in eps */
  double moment_error; /* of sum p (z - reference), in eps */
  double range;        /* largest - smallest finite logit */
  double smooth;       /* sum of |weight * z| */
  double weights;      /* sum of weight */
} row;

static double weight_of(const call *c, int64_t v) { return c->o.weight ? check_value(&c->a.options.weight, v) : 1; }

/* A class's weight in the part that is spread over all classes, 0 where there is none. */
static double smoothed_weight(const call *c, int64_t v) { return c->o.smoothing != 0 ? weight_of(c, v) : 0; }

static double temperature_of(const struct option *o) { return o->temperature != 0 ? o->temperature : 1; }

/* What z is never larger than. */
static double cap_of(const struct option *o) { return o->softcap / (o->softcap_first ? temperature_of(o) : 1); }

static double logit_of(const struct option *o, double x) {
  const double cap = o->softcap, temperature = temperature_of(o);
  if (cap > 0 && o->softcap_first) return cap * tanh(x / cap) / temperature;
  return cap > 0 ? cap * tanh(x / temperature / cap) : x / temperature;
}

/* Every run makes the same buffers, and those that use them fill them. */
static void read_logits(check *k, call *c, bool used) {
  double *x = check_doubles(k, c->rows * c->cols), *z = check_doubles(k, c->rows * c->cols);
  for (int64_t i = 0; used && i < c->rows * c->cols; ++i) {
    x[i] = check_value(&c->a.logits, i);
    z[i] = logit_of(&c->o, x[i]);
  }
  c->x = x, c->z = z;
}

static int64_t label_of(const call *c, int64_t r) {
  const int64_t label = (int64_t)check_value(&c->a.labels, r);
  return label < 0 || label >= c->cols || (c->o.ignore && label == c->a.options.ignore_index) ? -1 : label;
}

/* What a kernel may take z - reference for: the reference is a logit of the row, at most 16 below the largest. */
static double distance(double z, double largest, double range) { return fmin(fmax(largest - z, 16), range); }

/* Error of a logit in eps: tanh's 5 and the roundings of three products; that of x / temperature. By a device's own calls tanh is a
 * division of near + far by 1 + near * far, and far is 1 - 2 / (e^y + 1), to which e^y's error counts by half at most. */
static double logit_error(const call *c, double z) {
  const double calls =
      c->o.softcap > 0 ? cap_of(&c->o) * check_calls(c->k, 0.5, 1) + fabs(z) * check_calls(c->k, 0, 1) : 0;
  return (c->o.softcap > 0 ? 8 : c->o.temperature != 0 ? 1 : 0) * fabs(z) + calls;
}

static double lse_of(const call *c, int64_t r, double *largest) {
  const double *z = c->z + r * c->cols;
  double sum = 0;
  *largest = -INFINITY;
  for (int64_t v = 0; v < c->cols; ++v) *largest = fmax(*largest, z[v]);
  for (int64_t v = 0; v < c->cols && isfinite(*largest); ++v) sum += exp(z[v] - *largest);
  return isfinite(*largest) ? *largest + log(sum) : *largest;
}

/* NaN without a finite lse. */
static double entropy_of(const call *c, int64_t r) {
  double largest, entropy = 0;
  const double lse = lse_of(c, r, &largest);
  for (int64_t v = 0; v < c->cols && isfinite(lse); ++v) {
    const double below = lse - c->z[r * c->cols + v];
    if (isfinite(below)) entropy += exp(-below) * below;
  }
  return isfinite(lse) ? entropy : NAN;
}

/* A term of the sum carries the error of its logit, the rounding of z - reference and, without fma, of its reduction
 * (2 eps of |z - reference|), exp's (5 eps) and that of at most 32 + 6 additions: 20 eps beside what grows with z.
 * Terms weigh as their probability does. */
static row row_of(const call *c, int64_t r) {
  row w = {.label = label_of(c, r), .weight = 1, .scale = 1, .entropy = entropy_of(c, r)};
  double largest, smallest = INFINITY;
  w.lse = lse_of(c, r, &largest);
  for (int64_t v = 0; v < c->cols; ++v)
    if (isfinite(c->z[r * c->cols + v])) smallest = fmin(smallest, c->z[r * c->cols + v]);
  w.range = isfinite(w.lse) ? largest - smallest : 0;
  /* A device's own calls: ln, and exp of a score and of what the largest so far grew by. */
  w.lse_error = 20 + check_calls(c->k, 2, 0) + (isfinite(w.lse) ? check_calls(c->k, 1, 0) * (w.lse - largest) : 0);
  for (int64_t v = 0; v < c->cols && isfinite(w.lse); ++v) {
    const double z = c->z[r * c->cols + v], p = exp(z - w.lse), d = distance(z, largest, w.range),
                 e = logit_error(c, z);
    w.weights += smoothed_weight(c, v);
    if (!isfinite(z)) continue;
    w.smooth += smoothed_weight(c, v) * fabs(z);
    w.lse_error += p * (2 * d + e);
    w.moment_error += p * (d * (20 + check_calls(c->k, 2, 1) + 2 * d + e) + d + e);
  }
  if (w.label >= 0) w.weight = weight_of(c, w.label);
  if (c->o.token_scale) w.scale = check_value(&c->a.options.token_scale, r);
  return w;
}

static double loss_error(const call *c, const row *w) {
  const double share = c->o.smoothing / (double)c->cols;
  const double of_lse =
      (1 - c->o.smoothing) * w->weight + share * w->weights + 2 * w->weight * c->o.lse_square * fabs(w->lse);
  return w->label < 0 ? 0 : fabs(w->scale) * (of_lse * w->lse_error + share * 20 * w->smooth);
}

/* dlogits[v] = slope * (scale * (factor * p - share * weight) - by_entropy * p * (z - lse + entropy)): p's error is that
 * of e^(z - reference), where backward's reference is lse, and of the sum; the slope's is 11 eps and what the rounding of
 * tanh's argument makes of it. z - lse + entropy is added up from the reference: its error is that of the moment and of
 * the logit, and a rounding or two of each term. What is below 2^-126 may be 0. */
static void bound_dlogits(const call *c, const row *w, int64_t r, double *at) {
  const double share = c->o.smoothing / (double)c->cols, cap = cap_of(&c->o);
  const double temperature = temperature_of(&c->o);
  const double factor =
      (1 - c->o.smoothing) * w->weight + share * w->weights + 2 * w->weight * c->o.lse_square * fabs(w->lse);
  double scale = fabs(w->scale * c->inverse) / temperature;
  if (c->o.grad_scale != 0) scale *= fabs(c->o.grad_scale);
  if (c->o.dloss) scale *= fabs(check_value(&c->a.dloss, c->o.reduction == TIGON_REDUCTION_NONE ? r : 0));
  double by_entropy = c->o.dentropy ? fabs(check_value(&c->a.dentropy, r)) / temperature : 0;
  if (c->o.grad_scale != 0) by_entropy *= fabs(c->o.grad_scale);
  for (int64_t v = 0; v < c->cols && w->label >= 0 && isfinite(w->lse); ++v) {
    const double z = c->z[r * c->cols + v], p = exp(z - w->lse), d = fmax(fabs(z - w->lse), fmin(16, w->range));
    const double u = cap > 0 ? c->x[r * c->cols + v] / temperature / cap : 0;
    const double slope_error = cap > 0 ? 11 + 4 * fabs(u) + check_calls(c->k, 1, 1) : 0;
    const double relative = w->lse_error + 2 * d + logit_error(c, z) + 12 + check_calls(c->k, 1, 1) + slope_error;
    const double terms = isfinite(z) ? factor * p * relative : 0;
    const double added = d + fmin(16, w->range) + w->entropy, error = w->moment_error + logit_error(c, z) + 4 * added;
    const double of_entropy = isfinite(z) ? by_entropy * p * (error + (fabs(z - w->lse) + w->entropy) * relative) : 0;
    at[v] = (scale * (terms + share * smoothed_weight(c, v) * (12 + slope_error)) + of_entropy) / (cosh(u) * cosh(u));
    if (!isfinite(at[v])) at[v] = 0; /* an infinite u: the slope is 0 */
    at[v] += 0x1p-102 * fmax(1, scale * factor);
  }
}

/* The rest of the arguments and the bounds, which are alike in both directions. */
static call begin(check *k) {
  call c = {.k = k, .o = options[k->option], .rows = k->dims[0], .cols = k->dims[1]};
  const struct option o = c.o;
  c.a.logits = check_rows(k, "logits", k->fill, o.in_place);
  const int64_t beyond = o.out_of_range ? 1 : 0;
  c.a.labels = check_indices(k, "labels", o.labels, 1, &c.rows, -beyond, c.cols + beyond);
  c.a.options = (tigon_cross_entropy_options){.label_smoothing = o.smoothing,
                                              .lse_square_scale = o.lse_square,
                                              .softcap = o.softcap,
                                              .temperature = o.temperature,
                                              .softcap_first = o.softcap_first,
                                              .reduction = o.reduction};
  if (o.ignore) {
    c.a.options.has_ignore_index = 1;
    c.a.options.ignore_index = (int64_t)check_input(k, &c.a.labels, c.rows / 2);
  }
  if (o.weight) {
    c.a.options.weight = check_inout_dense(k, "weight", TIGON_F32, 1, &c.cols, CHECK_UNIFORM);
    check_make_positive(k, &c.a.options.weight); /* must be >= 0 */
  }
  if (o.denominator) c.a.options.denominator = check_in_vector(k, "denominator", TIGON_F32, 1, CHECK_UNIFORM);
  if (o.token_scale) c.a.options.token_scale = check_in_vector(k, "token_scale", TIGON_F32, c.rows, CHECK_UNIFORM);
  if (o.dloss)
    c.a.dloss = check_in_vector(k, "dloss", TIGON_F32, o.reduction == TIGON_REDUCTION_NONE ? c.rows : 1, CHECK_UNIFORM);
  if (o.dentropy) c.a.dentropy = check_in_vector(k, "dentropy", TIGON_F32, c.rows, CHECK_UNIFORM);
  const int64_t one = 1;
  if (o.out_of_range) c.a.out.error = check_inout_dense(k, "error", TIGON_I32, 1, &one, CHECK_UNIFORM);
  c.a.grad_scale = o.grad_scale;
  if (k->timed) return c;
  double denominator = 0;
  for (int64_t r = 0; r < c.rows; ++r)
    if (label_of(&c, r) >= 0) denominator += weight_of(&c, label_of(&c, r));
  if (o.denominator) denominator = fabs(check_value(&c.a.options.denominator, 0));
  c.inverse = o.reduction != TIGON_REDUCTION_MEAN ? 1 : denominator > 0 ? 1 / denominator : 0;
  return c;
}

static void fwd(check *k) {
  call c = begin(k);
  const struct option o = c.o;
  const bool none = o.reduction == TIGON_REDUCTION_NONE;
  tigon_cross_entropy_outputs *out = &c.a.out;
  if (!none) out->loss = check_out_vector(k, "loss", TIGON_F32, 1);
  if (none || o.outputs) out->token_loss = check_out_vector(k, "token_loss", TIGON_F32, c.rows);
  if (o.outputs || !o.dlogits) out->lse = check_out_vector(k, "lse", TIGON_F32, c.rows);
  if (o.outputs) {
    out->z_loss = check_out_vector(k, "z_loss", TIGON_F32, c.rows);
    out->entropy = check_out_vector(k, "entropy", TIGON_F32, c.rows);
    out->argmax = check_out_vector(k, "argmax", TIGON_I64, c.rows);
  }
  if (o.outputs || o.out_of_range) out->correct = check_out_vector(k, "correct", TIGON_I64, 1);
  if (o.dlogits) c.a.dlogits = o.in_place ? c.a.logits : check_out(k, "dlogits", k->dtype, 2, k->dims);

  double *lse = check_doubles(k, c.rows), *token_loss = check_doubles(k, c.rows), *z_loss = check_doubles(k, c.rows);
  double *entropy = check_doubles(k, c.rows), *dlogits = check_doubles(k, c.rows * c.cols), *loss = check_doubles(k, 1);
  read_logits(k, &c, k->oracle != NULL);
  for (int64_t r = 0; k->oracle && r < c.rows; ++r) {
    const row w = row_of(&c, r);
    lse[r] = w.lse_error;
    token_loss[r] = loss_error(&c, &w);
    z_loss[r] =
        w.label < 0 || o.lse_square == 0 ? 0 : fabs(w.scale) * w.weight * o.lse_square * 2 * fabs(w.lse) * w.lse_error;
    entropy[r] = w.label < 0 ? 0 : w.lse_error + w.moment_error;
    *loss += 2 * c.inverse * token_loss[r]; /* a rounding each, besides */
    if (o.dlogits) bound_dlogits(&c, &w, r, dlogits + r * c.cols);
  }
  tigon_cross_entropy_fwd_workspace(k->context, &c.a, &c.a.workspace_bytes);
  c.a.workspace = check_workspace(k, c.a.workspace_bytes);
  check_call(k, &c.a);
  if (out->loss.ndim) check_bound(k, &out->loss, 2, 1, loss);
  if (out->token_loss.ndim) check_bound(k, &out->token_loss, 1, 1, token_loss);
  if (out->lse.ndim) check_bound(k, &out->lse, 1, 1, lse);
  if (out->z_loss.ndim) check_bound(k, &out->z_loss, 1, 1, z_loss);
  if (out->entropy.ndim) check_bound(k, &out->entropy, 1, 1, entropy);
  if (o.dlogits) check_bound(k, &c.a.dlogits, 1, 1, dlogits);
}

static void bwd(check *k) {
  call c = begin(k);
  /* forward's lse */
  const tigon_tensor lse = check_inout_dense(k, "lse", TIGON_F32, 1, &c.rows, CHECK_UNIFORM);
  tigon_tensor entropy = {0};
  if (c.o.dentropy) entropy = check_inout_dense(k, "entropy", TIGON_F32, 1, &c.rows, CHECK_UNIFORM);
  const tigon_tensor dlogits = c.o.in_place ? c.a.logits : check_out(k, "dlogits", k->dtype, 2, k->dims);
  double *scale = check_doubles(k, c.rows * c.cols);
  read_logits(k, &c, !k->timed);
  for (int64_t r = 0; !k->timed && r < c.rows; ++r) {
    double largest;
    ((float *)lse.data)[r] = (float)lse_of(&c, r, &largest);
    if (c.o.dentropy) ((float *)entropy.data)[r] = (float)entropy_of(&c, r);
    if (!k->oracle) continue;
    const row w = row_of(&c, r);
    bound_dlogits(&c, &w, r, scale + r * c.cols);
  }
  tigon_cross_entropy_bwd_args args = {.logits = c.a.logits,
                                       .labels = c.a.labels,
                                       .lse = lse,
                                       .entropy = entropy,
                                       .options = c.a.options,
                                       .dloss = c.a.dloss,
                                       .dentropy = c.a.dentropy,
                                       .dlogits = dlogits,
                                       .error = c.a.out.error,
                                       .grad_scale = c.a.grad_scale};
  check_call_in_workspace(k, tigon_cross_entropy_bwd_workspace, &args);
  check_bound(k, &dlogits, 1, 1, scale);
}

MUTANT(no_smoothing, cross_entropy_fwd, m.label_smoothing = 0)
MUTANT(no_z, cross_entropy_fwd, m.lse_square_scale = 0)
MUTANT(no_ignore, cross_entropy_fwd, m.has_ignore_index = false)
MUTANT(no_weight, cross_entropy_fwd, m.weight = NULL)
MUTANT(no_softcap, cross_entropy_fwd, m.softcap = 0)
MUTANT(drop_tail, cross_entropy_fwd, m.cols -= m.cols > 1)
MUTANT(no_dentropy, cross_entropy_fwd, m.entropy_scale = 0)
MUTANT(bwd_no_dentropy, cross_entropy_bwd, m.entropy_scale = 0)
MUTANT(no_denominator, cross_entropy_fwd, m.denominator = NULL)
MUTANT(bwd_grad_scale, cross_entropy_bwd, m.grad_scale = 1)
MUTANT(bwd_smoothing, cross_entropy_bwd, m.label_smoothing = 0)
static const check_mutant wrong_fwd[] = {
    {"forgets label smoothing", no_smoothing},
    {"forgets z-loss", no_z},
    {"counts ignored labels as wrong ones", no_ignore},
    {"forgets class weights", no_weight},
    {"forgets softcap", no_softcap},
    {"drops the last column", drop_tail},
    {"forgets the entropy's gradient", no_dentropy},
    {"divides by its own rows", no_denominator},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"forgets grad_scale", bwd_grad_scale},
    {"forgets the entropy's gradient", bwd_no_dentropy},
    {"forgets label smoothing", bwd_smoothing},
    {0},
};

/* rows, columns; ignore_index is the label of a middle row, mean's denominator is of all rows */
static const check_sizes own_sizes = {
    .of = {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {CHECK_MANY, 4096}, {3, CHECK_THIRD}},
    .walks = {{3, CHECK_N}, {CHECK_N, 5}, {1, CHECK_N}},
    .coupled = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8,
};

static const bench_case timed = {.op = "cross_entropy",
                                 .shape_note = "tokens x vocabulary",
                                 .rows_f32 = 1024,
                                 .rows_16bit = 2048,
                                 .cols = 32000,
                                 .option = {0, 0, 7},
                                 .full_in_one = true};

const check_op tigon_check_cross_entropy_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_cross_entropy_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
