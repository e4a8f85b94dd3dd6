/* fused_linear_cross_entropy. dims are rows, width, vocab. Options walk the workspace (least and recommended), the
 * dtype of dweight, accumulation, reductions and cross_entropy's own options. That the chunks do not matter, and all
 * row outputs, are held bit by bit by tests/grad/fused_linear_cross_entropy.c; here variants meet the oracle.
 *
 * The bounds follow one perturbation through the op: a logit is off by `shift` (its f32 sum's error and, for 16-bit
 * dtypes, one ulp, because a logit next to a rounding boundary may fall to either side), so the log-sum-exp is off by
 * as much, a probability by a factor of e^(2 shift), and dlogits, which are rounded to the dtype too, by that and one
 * ulp. */
#include "check/head.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {{1, 1, 1},     {3, 5, t + 1}, {7, t, 33},    {4, 2 * t + 1, 2 * t}, {9, 16, 19},
                             {37, 16, 131}, {130, 7, 40},  {5, 64, 1009}, {211, 31, 64},         {64, 257, 257}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d];
  return true;
}

/* The workspace: the recommended one, the smallest one, or a little more, so that dlogits are parked in dweight. */
enum room { GOOD, LEAST, PARKS };

static const struct option {
  enum room room;
  bool short_sums, accumulate, bias, many; /* many: weight, token_scale, smoothing, z-loss, softcap, temperature */
  tigon_reduction reduction;
} options[] = {
    {GOOD, false, false, true, false, TIGON_REDUCTION_MEAN},  {LEAST, true, false, true, false, TIGON_REDUCTION_MEAN},
    {LEAST, true, true, false, true, TIGON_REDUCTION_SUM},    {LEAST, false, true, true, false, TIGON_REDUCTION_NONE},
    {GOOD, true, false, true, true, TIGON_REDUCTION_MEAN},    {GOOD, false, false, false, false, TIGON_REDUCTION_MEAN},
    {GOOD, false, false, false, false, TIGON_REDUCTION_MEAN}, {PARKS, true, false, false, false, TIGON_REDUCTION_SUM},
    {GOOD, true, false, false, false, TIGON_REDUCTION_MEAN},
};
/* NO_DBIAS, LOSS_ONLY and the last are what the benchmark times; LOSS_ONLY's forward has no gradients. IGNORED: the label. */
enum { OPTIONS = sizeof options / sizeof *options, NO_DBIAS = 5, LOSS_ONLY = 6, IGNORED = 0 };

static const double smoothing = 0.1, z_scale = 1e-2, cap = 8, temperature = 0.9;

/* Sums of the backward pass: how far dlogits[r, v] may be off, and how large they are. */
typedef struct spread {
  double *off, *size; /* [rows, vocab] */
  double *loss, *lse; /* [rows] */
  double total_loss;
} spread;

static void spread_row(const check *k, const tigon_fused_linear_cross_entropy_args *a, int64_t r, double inverse,
                       spread *s, double *z) {
  const bool many = options[k->option].many;
  const int64_t width = k->dims[1], vocab = k->dims[2], label = (int64_t)check_value(&a->labels, r);
  double shift = 0, largest = -INFINITY, sum = 0, weight_sum = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    double absolute = 0, x = head_dot(&a->hidden, r, &a->weight, v, width, &absolute);
    if (a->bias.ndim) x += check_value(&a->bias, v), absolute += fabs(check_value(&a->bias, v));
    const double off = 16 * 0x1p-24 * absolute + head_ulp(k->dtype) * fabs(x);
    if (isfinite(x)) shift = fmax(shift, off); /* Inf is Inf for both, which a softcap makes a number again */
    z[v] = many ? cap * tanh(x / temperature / cap) : x;
    largest = fmax(largest, z[v]);
    weight_sum += many ? check_value(&a->options.weight, v) : 1;
  }
  for (int64_t v = 0; v < vocab; ++v) sum += exp(z[v] - largest);
  const double lse = largest + log(sum);
  shift = (many ? shift / temperature : shift) + 0x1p-21 * (1 + fabs(lse)); /* and lse in f32, exp's own error */
  shift +=
      0x1p-24 * check_calls(k, 2, 0) + 0x1p-24 * check_calls(k, 1, 0) * (lse - largest); /* a device's exp and ln */
  if (many) shift += 0x1p-24 * cap * check_calls(k, 0.5, 2);                             /* and tanh */
  if (label == IGNORED) return;
  s->lse[r] = shift;
  const double w = many ? check_value(&a->options.weight, label) : 1, e = many ? smoothing : 0, q = many ? z_scale : 0;
  const double scale = many ? fabs(check_value(&a->options.token_scale, r)) : 1;
  s->loss[r] = scale * shift * 2 * ((1 - e) * w + e / (double)vocab * weight_sum + q * w * (fabs(lse) + shift));
  s->total_loss += s->loss[r];
  double by = scale * inverse * (many ? 1 / temperature : 1);
  if (a->dloss.ndim) by *= fabs(check_value(&a->dloss, a->dloss.shape[0] > 1 ? r : 0));
  const double factor = (1 - e) * w + e / (double)vocab * weight_sum + 2 * q * w * (fabs(lse) + shift);
  for (int64_t v = 0; v < vocab; ++v) {
    const double high = fmin(1, exp(z[v] - lse + 2 * shift));
    const double constant =
        (v == label ? (1 - e) * w : 0) + (many ? e / (double)vocab * check_value(&a->options.weight, v) : 0);
    const int64_t at = r * vocab + v;
    s->size[at] = by * (factor * high + constant);
    /* the softcap's slope moves with the logit: 2 / cap of it a unit; as in cross_entropy, what is below 2^-126 may be 0 */
    s->off[at] = by * factor * high * fmin(1, 4 * shift) +
                 s->size[at] * ((many ? fmin(1, 2 * shift / cap) : 0) + head_ulp(k->dtype) + 0x1p-20 +
                                0x1p-24 * check_calls(k, 2, 2)) +
                 0x1p-126 * fmax(1, by * factor);
  }
}

/* 1 / the denominator of mean. */
static double inverse_of(const check *k, const tigon_fused_linear_cross_entropy_args *a) {
  double sum = 0;
  for (int64_t r = 0; r < k->dims[0]; ++r) {
    const int64_t label = (int64_t)check_value(&a->labels, r);
    if (label != IGNORED) sum += options[k->option].many ? check_value(&a->options.weight, label) : 1;
  }
  return options[k->option].reduction != TIGON_REDUCTION_MEAN ? 1 : sum == 0 ? 0 : 1 / sum;
}

static void bound_gradients(check *k, const tigon_fused_linear_cross_entropy_args *a, const spread *s,
                            const double *old_dweight, const double *old_dbias) {
  const int64_t rows = k->dims[0], width = k->dims[1], vocab = k->dims[2];
  double *dhidden = check_doubles(k, rows * width), *dweight = check_doubles(k, vocab * width),
         *dbias = check_doubles(k, vocab);
  const double add = 16 * 0x1p-24; /* error of a f32 sum, as in linear's check */
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vocab; ++v) {
      const double off = s->off[r * vocab + v] + add * s->size[r * vocab + v];
      if (off == 0) continue;
      dbias[v] += off;
      const int64_t hidden = check_offset(&a->hidden, r * width), weight = check_offset(&a->weight, v * width);
      for (int64_t i = 0; i < width; ++i) {
        dhidden[r * width + i] += off * fabs(tigon_load_f64(a->weight.data, weight + i, k->dtype));
        dweight[v * width + i] += off * fabs(tigon_load_f64(a->hidden.data, hidden + i, k->dtype));
      }
    }
  for (int64_t i = 0; i < vocab * width; ++i) dweight[i] += add * old_dweight[i];
  for (int64_t v = 0; v < vocab; ++v) dbias[v] += add * old_dbias[v];
  head_bound(k, &a->dhidden, dhidden);
  head_bound(k, &a->dweight, dweight);
  head_bound(k, &a->dbias, dbias);
}

static tigon_tensor gradient(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                             double *old) {
  const bool accumulate = options[k->option].accumulate;
  if (!accumulate)
    return ndim == 1 ? check_out_dense(k, name, dtype, ndim, shape) : check_out(k, name, dtype, ndim, shape);
  const tigon_tensor t = ndim == 1 ? check_inout_dense(k, name, dtype, ndim, shape, CHECK_UNIFORM)
                                   : check_inout(k, name, dtype, ndim, shape, CHECK_UNIFORM);
  for (int64_t i = 0; k->oracle && i < (ndim == 1 ? shape[0] : shape[0] * shape[1]); ++i)
    old[i] = fabs(check_value(&t, i));
  return t;
}

/* Where the host cannot read labels no row is skipped, and ignored ones have the lse of cross_entropy: as good as the 0 of others. */
static void forget_ignored(const check *k, const tigon_tensor *labels, const tigon_tensor *lse) {
  for (int64_t r = 0; !k->timed && check_is_away(k) && r < k->dims[0]; ++r)
    if ((int64_t)check_value(labels, r) == IGNORED) ((float *)lse->data)[r] = 0;
}

static void run(check *k, bool forward) {
  struct option o = options[k->option];
  if (check_has_form(k, BENCH_AS_WEIGHT)) o.short_sums = true;
  const int64_t rows = k->dims[0], width = k->dims[1], vocab = k->dims[2];
  const tigon_dtype sums = o.short_sums ? k->dtype : TIGON_F32;
  tigon_fused_linear_cross_entropy_args a = {
      .hidden = check_in(k, "hidden", k->dtype, 2, (int64_t[]){rows, width}, k->fill),
      .weight = head_weight(k, "weight", vocab, width),
      .labels = check_indices(k, "labels", k->option % 2 ? TIGON_I32 : TIGON_I64, 1, &rows, 0, vocab),
      .options = {.has_ignore_index = 1, .ignore_index = IGNORED, .reduction = o.reduction},
      .grad_scale = 1,
      .accumulate_dweight = o.accumulate,
  };
  if (o.bias) a.bias = check_in_vector(k, "bias", k->dtype, vocab, CHECK_UNIFORM);
  if (o.many) {
    a.options.weight = check_inout_dense(k, "classes", TIGON_F32, 1, &vocab, CHECK_UNIFORM);
    check_make_positive(k, &a.options.weight); /* must be >= 0 */
    a.options.token_scale = check_in_vector(k, "token_scale", TIGON_F32, rows, CHECK_UNIFORM);
    a.options.label_smoothing = smoothing;
    a.options.lse_square_scale = z_scale;
    a.options.softcap = cap;
    a.options.temperature = temperature;
  }
  if (o.reduction == TIGON_REDUCTION_NONE) a.dloss = check_in_vector(k, "dloss", TIGON_F32, rows, CHECK_UNIFORM);
  double *old_dweight = check_doubles(k, vocab * width), *old_dbias = check_doubles(k, vocab);
  const bool gradients = !(forward && k->option == LOSS_ONLY);
  if (gradients) {
    a.dhidden = check_out(k, "dhidden", k->dtype, 2, (int64_t[]){rows, width});
    a.dweight = gradient(k, "dweight", sums, 2, (int64_t[]){vocab, width}, old_dweight);
    if (k->option < NO_DBIAS) a.dbias = gradient(k, "dbias", sums, 1, &vocab, old_dbias);
  }
  if (forward) {
    if (o.reduction != TIGON_REDUCTION_NONE) a.out.loss = check_out_vector(k, "loss", TIGON_F32, 1);
    a.out.token_loss = check_out_vector(k, "token_loss", TIGON_F32, rows);
    a.out.lse = check_out_vector(k, "lse", TIGON_F32, rows);
  }
  spread s = {check_doubles(k, rows * vocab), check_doubles(k, rows * vocab), check_doubles(k, rows),
              check_doubles(k, rows), 0};
  double *z = check_doubles(k, vocab);
  const double inverse = k->oracle ? inverse_of(k, &a) : 0;
  for (int64_t r = 0; k->oracle && r < rows; ++r) spread_row(k, &a, r, inverse, &s, z);
  s.total_loss *= inverse;
  size_t least, good;
  tigon_fused_linear_cross_entropy_workspace(k->context, &a, &least, &good);
  a.workspace_bytes = o.room == GOOD ? good : o.room == LEAST ? least : least + (good - least) / 4;
  a.workspace = check_workspace(k, a.workspace_bytes);
  check_call(k, &a);
  if (gradients && k->oracle) bound_gradients(k, &a, &s, old_dweight, old_dbias);
  if (!forward) return;
  forget_ignored(k, &a.labels, &a.out.lse);
  head_bound(k, &a.out.loss, &s.total_loss);
  head_bound(k, &a.out.token_loss, s.loss);
  head_bound(k, &a.out.lse, s.lse);
}

static void fwd(check *k) { run(k, true); }
static void bwd(check *k) { run(k, false); }

MUTANT(no_smoothing, cross_entropy_fwd, m.label_smoothing = 0)
MUTANT(overwrite, linear_bwd, m.accumulate = false)
static const check_mutant wrong_fwd[] = {
    {"forgets label smoothing", no_smoothing},
    {"overwrites dweight between chunks", overwrite},
    {0},
};

/* rows, width, vocabulary; mean's denominator is of all rows */
static const check_sizes own_sizes = {
    .of = {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {CHECK_MANY, 4096, 5}},
    .walks = {{CHECK_N, 3, 5}, {3, CHECK_N, 5}, {3, 5, CHECK_N}},
    .coupled = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8,
};

static const bench_case timed = {.op = "fused_linear_cross_entropy",
                                 HEAD_CASE,
                                 .dims = bench_words,
                                 .option = {6, 5, 5},
                                 .full_in_one = true,
                                 .products = {1, 3, 3}};

const check_op tigon_check_fused_linear_cross_entropy_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_fused_linear_cross_entropy_bwd = {bwd, shapes, OPTIONS, true, NULL, &timed, &own_sizes};
