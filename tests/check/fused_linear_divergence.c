/* fused_linear_divergence. dims are rows, width, vocab; the teacher's width is another one. Options walk the workspace,
 * kinds, the teacher's vocabulary, and what the loss and the gradients are made of. */
#include "check/distil_rows.h"

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

static int64_t teacher_width(const check *k) { return k->timed ? k->dims[1] : k->dims[1] / 2 + 1; }
static int64_t teacher_classes(const check *k) {
  const enum teacher t = options[k->option].teacher;
  return k->dims[2] + (t == MORE ? 2 : t == FEWER ? -(k->dims[2] / 3) : 0);
}

typedef struct call {
  check *k;
  struct option o;
  tigon_fused_linear_divergence_fwd_args a;
  distil d;
  double inverse, total, soft_total, hard_total;
  double *off, *size;                       /* [rows, vocab] */
  double *token_loss, *t, *lq, *lp, *off_p; /* [rows], [vocab] */
} call;

/* How far logits may be off. */
typedef struct shifts {
  double x_shift, t_shift;
} shifts;

/* The logits' own vectors: |x| is off by `x_shift` of each element. */
static double bound_cosine(const call *c, const shifts *w, double *off, double *size) {
  const int64_t vocab = c->k->dims[2];
  double xx = 0, tt = 0, xt = 0;
  for (int64_t v = 0; v < vocab; ++v) xx += c->d.x[v] * c->d.x[v], tt += c->t[v] * c->t[v], xt += c->d.x[v] * c->t[v];
  const double x = sqrt(xx), t = sqrt(tt), own = 64 * 0x1p-24, root = sqrt((double)vocab);
  const double x_off = x == 0 ? 0 : w->x_shift * root / x + own, t_off = t == 0 ? 0 : w->t_shift * root / t + own;
  const double cosine = x == 0 || t == 0 ? 0 : xt / x / t, error = 4 * (x_off + t_off);
  for (int64_t v = 0; v < vocab; ++v) {
    off[v] = size[v] = 0;
    if (x == 0 || t == 0) continue;
    const double of_x = fabs(c->d.x[v]) / x, of_t = fabs(c->t[v]) / t;
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
  distil *d = &c->d;
  const int64_t vocab = k->dims[2], classes = teacher_classes(k), known = classes < vocab ? classes : vocab;
  const tigon_fused_linear_divergence_fwd_args *a = &c->a;
  double *off = c->off + r * vocab, *size = c->size + r * vocab, lse;
  const map of_teacher = map_of(c->o.teacher_cap, c->o.teacher_scale);
  const shifts w = {side_logits(d, &a->hidden, &a->weight, &a->bias, &d->of, r, k->dims[1], vocab, true, d->x),
                    side_logits(d, &a->teacher_hidden, &a->teacher_weight, &a->teacher_bias, &of_teacher, r,
                                teacher_width(k), known, false, c->t)};
  for (int64_t v = known; v < vocab; ++v) c->t[v] = 0;
  if (!counts(c, r)) return;
  const double square = c->o.squared ? c->o.temperature * c->o.temperature : 1;
  const double scale = c->o.token_scale ? fabs(check_value(&a->token_scale, r)) : 1;
  mixed m = {.soft = (c->o.soft != 0 ? c->o.soft : 1) * square, .hard = c->o.hard, .by = fabs(c->inverse)};
  m.off_hard = normalise(k, d->x, vocab, vocab, 1, w.x_shift, &m.hard_lse, c->lq);
  m.label = c->o.no_labels ? -1 : (int64_t)check_value(&a->labels, r);
  both rows = {.count = vocab, .q = c->lq, .p = c->lp, .off_p = c->off_p};
  rows.off_q = normalise(k, d->x, vocab, vocab, d->it, w.x_shift, &lse, c->lq);
  const double off_p = normalise(k, c->t, known, vocab, d->it, w.t_shift, &lse, c->lp);
  for (int64_t v = 0; v < vocab; ++v) c->off_p[v] = off_p;
  const double error = d->kind == COSINE ? bound_cosine(c, &w, off, size) : bound_both(d, &rows, off, size);
  if (isfinite(error)) {
    c->token_loss[r] = scale * (m.soft * error + m.hard * 2 * m.off_hard);
    c->total += m.by * c->token_loss[r], c->soft_total += m.by * error, c->hard_total += m.by * 2 * m.off_hard;
  }
  m.by *= scale;
  if (c->o.dloss) m.by *= fabs(check_value(&a->dloss, 0));
  if (c->o.grad_scale != 0) m.by *= fabs(c->o.grad_scale);
  mix_row(d, &m, off, size);
}

static void fwd(check *k) {
  call c = {.k = k, .o = options[k->option]};
  const struct option o = c.o;
  const int64_t rows = k->dims[0], width = k->dims[1], vocab = k->dims[2], other = teacher_width(k);
  const tigon_dtype sums = o.short_sums ? k->dtype : TIGON_F32;
  tigon_fused_linear_divergence_fwd_args *a = &c.a;
  *a = (tigon_fused_linear_divergence_fwd_args){
      .hidden = check_in(k, "hidden", k->dtype, 2, (int64_t[]){rows, width}, k->fill),
      .weight = head_weight(k, "weight", vocab, width),
      .teacher_hidden = check_in(k, "teacher_hidden", k->dtype, 2, (int64_t[]){rows, other}, CHECK_UNIFORM),
      .teacher_weight = head_weight(k, "teacher_weight", teacher_classes(k), other),
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
  c.token_loss = check_doubles(k, rows), c.t = check_doubles(k, vocab);
  c.lq = check_doubles(k, vocab), c.lp = check_doubles(k, vocab), c.off_p = check_doubles(k, vocab);
  c.d = distil_of(k, o.kind, o.beta, o.temperature, map_of(o.cap, o.scale), o.wide);
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
    {"forgets the cross entropy", no_hard},
    {"reads classes that the teacher has not", all_known},
    {"forgets the temperature", no_temperature},
    {"forgets weight_soft and temperature^2", no_soft},
    {"forgets the denominator", no_denominator},
    {"takes a panel for the first", no_panel},
    {"forgets the student's softcap", no_cap},
    {"forgets the student's scale", no_scale},
    {"forgets the teacher's softcap", no_teacher_cap},
    {"forgets the teacher's scale", no_teacher_scale},
    {"forgets the softcap in panels", no_cap_backward},
    {"overwrites dweight between chunks", overwrite},
    {0},
};

static const check_sizes own_sizes = {DISTIL_SIZES, .coupled = (1 << OPTIONS) - 1};

static const bench_case timed = {.op = "fused_linear_divergence",
                                 .shape_note = "tokens x hidden, 16000 words, jsd",
                                 DISTIL_CASE,
                                 .option = {FULL},
                                 .products = {4}};

const check_op tigon_check_fused_linear_divergence_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
