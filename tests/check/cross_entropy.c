/* cross_entropy. Options walk reductions, label dtypes, every option of the loss and every output. */
#include <math.h>
#include <string.h>

#include "check/cases.h"
#include "check/logits.h"

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
  struct option o;
  int64_t rows, cols;
  tigon_cross_entropy_fwd_args a;
  logits l;
  double inverse; /* inverse of mean's denominator */
} call;

/* What the bounds of a row are made of; eps is 2^-24. */
typedef struct row {
  int64_t label; /* -1: does not count */
  double weight, scale;
  logits_row of;
  double smooth;  /* sum of |weight * z| */
  double weights; /* sum of weight */
} row;

static double weight_of(const call *c, int64_t v) { return c->o.weight ? check_value(&c->a.options.weight, v) : 1; }

/* A class's weight in the part that is spread over all classes, 0 where there is none. */
static double smoothed_weight(const call *c, int64_t v) { return c->o.smoothing != 0 ? weight_of(c, v) : 0; }

static int64_t label_of(const call *c, int64_t r) {
  const int64_t label = (int64_t)check_value(&c->a.labels, r);
  return label < 0 || label >= c->cols || (c->o.ignore && label == c->a.options.ignore_index) ? -1 : label;
}

static row row_of(const call *c, int64_t r) {
  row w = {.label = label_of(c, r), .weight = 1, .scale = 1, .of = logits_row_of(&c->l, r)};
  for (int64_t v = 0; v < c->cols && isfinite(w.of.lse); ++v) {
    const double z = c->l.z[r * c->cols + v];
    w.weights += smoothed_weight(c, v);
    if (isfinite(z)) w.smooth += smoothed_weight(c, v) * fabs(z);
  }
  if (w.label >= 0) w.weight = weight_of(c, w.label);
  if (c->o.token_scale) w.scale = check_value(&c->a.options.token_scale, r);
  return w;
}

static double loss_error(const call *c, const row *w) {
  const double share = c->o.smoothing / (double)c->cols;
  const double of_lse =
      (1 - c->o.smoothing) * w->weight + share * w->weights + 2 * w->weight * c->o.lse_square * fabs(w->of.lse);
  return w->label < 0 ? 0 : fabs(w->scale) * (of_lse * w->of.lse_error + share * 20 * w->smooth);
}

static void bound_dlogits(const call *c, const row *w, int64_t r, double *at) {
  const double share = c->o.smoothing / (double)c->cols, temperature = logits_temperature(&c->l);
  const double grad_scale = c->o.grad_scale != 0 ? fabs(c->o.grad_scale) : 1;
  logits_gradient g = {.factor = (1 - c->o.smoothing) * w->weight + share * w->weights +
                                 2 * w->weight * c->o.lse_square * fabs(w->of.lse),
                       .scale = fabs(w->scale * c->inverse) * grad_scale / temperature,
                       .by_entropy =
                           c->o.dentropy ? fabs(check_value(&c->a.dentropy, r)) * grad_scale / temperature : 0};
  if (c->o.dloss) g.scale *= fabs(check_value(&c->a.dloss, c->o.reduction == TIGON_REDUCTION_NONE ? r : 0));
  for (int64_t v = 0; v < c->cols && w->label >= 0 && isfinite(w->of.lse); ++v) {
    g.share = share * smoothed_weight(c, v);
    at[v] = dlogit_error(&c->l, &w->of, &g, r, v);
  }
}

/* The rest of the arguments and the bounds, which are alike in both directions. */
static call begin(check *k) {
  const struct option o = options[k->option];
  call c = {.o = o, .rows = k->dims[0], .cols = k->dims[1]};
  c.l = (logits){.k = k,
                 .rows = c.rows,
                 .cols = c.cols,
                 .softcap = o.softcap,
                 .temperature = o.temperature,
                 .softcap_first = o.softcap_first};
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
  read_logits(k, &c.l, &c.a.logits, k->oracle != NULL);
  for (int64_t r = 0; k->oracle && r < c.rows; ++r) {
    const row w = row_of(&c, r);
    lse[r] = w.of.lse_error;
    token_loss[r] = loss_error(&c, &w);
    z_loss[r] = w.label < 0 || o.lse_square == 0
                    ? 0
                    : fabs(w.scale) * w.weight * o.lse_square * 2 * fabs(w.of.lse) * w.of.lse_error;
    entropy[r] = w.label < 0 ? 0 : w.of.lse_error + w.of.moment_error;
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
  const bool derived = check_recall(k, &lse, 0) && (!c.o.dentropy || check_recall(k, &entropy, 1));
  read_logits(k, &c.l, &c.a.logits, !derived);
  for (int64_t r = 0; !derived && r < c.rows; ++r) {
    double largest;
    ((float *)lse.data)[r] = (float)lse_of(&c.l, r, &largest);
    if (c.o.dentropy) ((float *)entropy.data)[r] = (float)entropy_of(&c.l, r);
    if (!k->oracle) continue;
    const row w = row_of(&c, r);
    bound_dlogits(&c, &w, r, scale + r * c.cols);
  }
  if (!derived) check_remember(k, &lse, 0);
  if (!derived && c.o.dentropy) check_remember(k, &entropy, 1);
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
