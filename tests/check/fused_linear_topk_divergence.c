/* fused_linear_topk_divergence. dims are rows, width, vocab; the entries are a function of the vocabulary. Options walk the
 * workspace, kinds, what the teacher says, and what the loss and the gradients are made of.
 *
 * A row's classes are those of its entries and the tail, whose log-probability is off by no more than one of all classes is.
 * The teacher's side is f64, but for what the sum of its probabilities leaves of 1. */
#include "check/distil_rows.h"

enum room { GOOD, LEAST, PARKS };

static const struct option {
  enum room room;
  int kind, target_is;
  double beta, temperature, soft, hard, grad_scale, least_tail, cap, scale;
  bool tail, short_sums, accumulate, bias, denominator, token_scale, dloss, squared, no_labels, parts, loss_only, wide;
  bool f32;          /* the target is */
  bool out_of_range; /* some ids are */
  bool many;         /* entries: more than there are classes */
} options[] = {
    {GOOD, KL, LOGS, .tail = true, .temperature = 2, .hard = 0.5, .soft = 0.5, .bias = true, .parts = true,
     .f32 = true},
    {LEAST, KL, LOGITS, .temperature = 1.5, .short_sums = true, .bias = true, .hard = 0.25, .token_scale = true},
    {LEAST, REVERSE, CHANCES, .temperature = 0.7, .short_sums = true, .accumulate = true, .dloss = true,
     .no_labels = true, .wide = true, .f32 = true},
    {LEAST, TVD, LOGS, .accumulate = true, .bias = true, .denominator = true, .hard = 2, .out_of_range = true},
    {LEAST, JSD, LOGITS, .beta = 0.1, .temperature = 3, .squared = true, .short_sums = true, .grad_scale = -3,
     .least_tail = 0.02},
    {PARKS, KL, LOGS, .tail = true, .short_sums = true, .no_labels = true, .many = true},
    {LEAST, JSD, CHANCES, .beta = 0.5, .hard = 0.5, .cap = 3, .scale = 1.5, .short_sums = true, .bias = true,
     .temperature = 2, .parts = true},
    {LEAST, KL, LOGS, .cap = 1.5, .short_sums = true, .wide = true, .f32 = true, .out_of_range = true},
    {GOOD, REVERSE, LOGS, .scale = 0.5, .temperature = 2, .hard = 1},
    {GOOD, JSD, CHANCES, .beta = 1, .no_labels = true, .cap = 2},
    {GOOD, KL, LOGS, .tail = true, .no_labels = true, .loss_only = true, .f32 = true},
    {GOOD, KL, LOGS, .tail = true, .no_labels = true, .f32 = true},
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

static int64_t entries_of(const check *k) {
  const int64_t vocab = k->dims[2];
  return options[k->option].many ? 3 * vocab : vocab < 256 ? vocab / 4 + 1 : 64;
}

typedef struct call {
  check *k;
  struct option o;
  tigon_fused_linear_topk_divergence_fwd_args a;
  distil d;
  int64_t entries;
  double inverse, total, soft_total, hard_total;
  double *off, *size;                  /* [rows, vocab] */
  double *token_loss, *lq;             /* [rows], [vocab] */
  int64_t *place;                      /* [vocab] in the lists below, 0: outside; the tail is at 0 */
  double *q, *p, *off_p, *wrong, *all; /* [vocab + 1]: of bound_both() */
} call;

/* Log-probabilities of which a row's add up to 1 at most, or probabilities of the same kind. */
static tigon_tensor make_target(const call *c) {
  check *k = c->k;
  const tigon_dtype dtype = check_dtype(k, c->o.f32);
  const int64_t shape[] = {k->dims[0], c->entries};
  const tigon_tensor t = check_inout(k, "target", dtype, 2, shape, CHECK_UNIFORM);
  for (int64_t r = 0; c->o.target_is != LOGITS && !k->timed && r < shape[0]; ++r)
    for (int64_t j = 0; j < c->entries; ++j) {
      const int64_t at = r * t.strides[0] + j;
      const double log_p = -0.05 - 3 * fabs(tigon_load_f64(t.data, at, dtype)) - log((double)c->entries);
      tigon_store_f64(t.data, at, dtype, c->o.target_is == LOGS ? log_p : exp(log_p));
    }
  return t;
}

/* The row's lists, of which it returns the length. */
static int64_t list_classes(call *c, int64_t r) {
  const int64_t vocab = c->k->dims[2];
  double largest = -INFINITY, target_lse = 0, sum = 0, outside = -INFINITY, of_tail = 0;
  int64_t count = 1;
  for (int64_t v = 0; v < vocab; ++v) c->place[v] = 0;
  for (int64_t j = 0; j < c->entries; ++j) {
    const double id = check_value(&c->a.target_ids, r * c->entries + j),
                 t = check_value(&c->a.target, r * c->entries + j);
    if (id < 0 || id >= (double)vocab || c->place[(int64_t)id]) continue;
    c->place[(int64_t)id] = count;
    c->q[count] = c->lq[(int64_t)id];
    c->off_p[count] = 0x1p-40;
    c->p[count++] = c->o.target_is == LOGS ? t : c->o.target_is == CHANCES ? log(t) : c->d.it * t;
  }
  for (int64_t i = 1; c->o.target_is == LOGITS && i < count; ++i) largest = fmax(largest, c->p[i]);
  for (int64_t i = 1; c->o.target_is == LOGITS && i < count; ++i) target_lse += exp(c->p[i] - largest);
  if (c->o.target_is == LOGITS) target_lse = largest + log(target_lse);
  for (int64_t i = 1; i < count; ++i) c->p[i] -= target_lse, sum += exp(c->p[i]);
  for (int64_t v = 0; v < vocab; ++v) outside = c->place[v] ? outside : fmax(outside, c->lq[v]);
  for (int64_t v = 0; v < vocab && isfinite(outside); ++v) of_tail += c->place[v] ? 0 : exp(c->lq[v] - outside);
  const bool tail = (c->o.tail || c->d.kind != KL) && count <= vocab;
  const double left = fmax(1 - sum, c->o.least_tail);
  c->q[0] = outside + log(of_tail);
  c->p[0] = tail ? log(left) : -INFINITY;
  c->off_p[0] = tail && left > 0 ? 0x1p-40 + (double)count * 0x1p-50 / left : 0;
  return count;
}

/* D's error; off and size of the vocabulary from those of the lists. A column outside has its share of the tail's. */
static double bound_columns(call *c, int64_t r, double off_q, double *off, double *size) {
  const both w = {list_classes(c, r), c->q, c->p, c->off_p, off_q};
  const double error = bound_both(&c->d, &w, c->wrong, c->all);
  for (int64_t v = 0; v < c->k->dims[2]; ++v) {
    const int64_t i = c->place[v];
    const chance share = chance_of(c->q[0] == -INFINITY ? -INFINITY : c->lq[v] - c->q[0], off_q);
    size[v] = i ? c->all[i] : times(share.of, c->all[0]);
    off[v] = i ? c->wrong[i] : times(share.most, c->wrong[0]) + times(share.off, c->all[0]) + 0x1p-125 * c->all[0];
  }
  return error;
}

static bool counts(const call *c, int64_t r) {
  return c->o.no_labels || (int64_t)check_value(&c->a.labels, r) != IGNORED;
}

static void spread_token(call *c, int64_t r) {
  check *k = c->k;
  distil *d = &c->d;
  const tigon_fused_linear_topk_divergence_fwd_args *a = &c->a;
  const int64_t vocab = k->dims[2];
  double *off = c->off + r * vocab, *size = c->size + r * vocab, lse;
  const double shift = side_logits(d, &a->hidden, &a->weight, &a->bias, &d->of, r, k->dims[1], vocab, true, d->x);
  if (!counts(c, r)) return;
  const double square = c->o.squared ? c->o.temperature * c->o.temperature : 1;
  const double scale = c->o.token_scale ? fabs(check_value(&a->token_scale, r)) : 1;
  mixed m = {.soft = (c->o.soft != 0 ? c->o.soft : 1) * square, .hard = c->o.hard, .by = fabs(c->inverse)};
  m.off_hard = normalise(k, d->x, vocab, vocab, 1, shift, &m.hard_lse, c->lq);
  m.label = c->o.no_labels ? -1 : (int64_t)check_value(&a->labels, r);
  const double off_q = normalise(k, d->x, vocab, vocab, d->it, shift, &lse, c->lq);
  const double error = bound_columns(c, r, off_q, off, size);
  if (isfinite(error)) {
    c->token_loss[r] = scale * (m.soft * error + m.hard * 2 * m.off_hard);
    c->total += m.by * c->token_loss[r], c->soft_total += m.by * error, c->hard_total += m.by * 2 * m.off_hard;
  }
  m.by *= scale;
  if (c->o.dloss) m.by *= fabs(check_value(&a->dloss, 0));
  if (c->o.grad_scale != 0) m.by *= fabs(c->o.grad_scale);
  mix_row(d, &m, off, size);
}

static void make_lists(call *c) {
  check *k = c->k;
  const int64_t vocab = k->dims[2], rows = k->dims[0];
  c->off = check_doubles(k, rows * vocab), c->size = check_doubles(k, rows * vocab);
  c->token_loss = check_doubles(k, rows), c->lq = check_doubles(k, vocab);
  c->place = check_list(k, "places", (size_t)vocab * sizeof *c->place);
  c->q = check_doubles(k, vocab + 1), c->p = check_doubles(k, vocab + 1), c->off_p = check_doubles(k, vocab + 1);
  c->wrong = check_doubles(k, vocab + 1), c->all = check_doubles(k, vocab + 1);
  c->d =
      distil_of(k, kind_of(c->o.kind, c->o.beta), c->o.beta, c->o.temperature, map_of(c->o.cap, c->o.scale), c->o.wide);
}

static void fwd(check *k) {
  call c = {.k = k, .o = options[k->option], .entries = entries_of(k)};
  const struct option o = c.o;
  const int64_t rows = k->dims[0], width = k->dims[1], vocab = k->dims[2], out = o.out_of_range;
  const int64_t of_entries[] = {rows, c.entries};
  const tigon_dtype sums = o.short_sums ? k->dtype : TIGON_F32;
  tigon_fused_linear_topk_divergence_fwd_args *a = &c.a;
  *a = (tigon_fused_linear_topk_divergence_fwd_args){
      .hidden = check_in(k, "hidden", k->dtype, 2, (int64_t[]){rows, width}, k->fill),
      .weight = head_weight(k, "weight", vocab, width),
      .target = make_target(&c),
      .target_ids =
          check_indices(k, "target_ids", k->option % 3 ? TIGON_I64 : TIGON_I32, 2, of_entries, -out, vocab + 2 * out),
      .kind = (tigon_divergence_kind)o.kind,
      .target_is = (tigon_distribution)o.target_is,
      .beta = o.beta,
      .temperature = o.temperature,
      .softcap = o.cap,
      .logit_scale = o.scale,
      .tail = o.tail,
      .least_tail = o.least_tail,
      .weight_soft = o.soft,
      .weight_hard = o.hard,
      .has_ignore_index = 1,
      .ignore_index = IGNORED,
      .by_temperature_squared = o.squared,
      .logits_in_f32 = o.wide,
      .accumulate_dweight = o.accumulate,
      .grad_scale = o.grad_scale,
  };
  if (!o.no_labels) a->labels = check_indices(k, "labels", k->option % 2 ? TIGON_I32 : TIGON_I64, 1, &rows, 0, vocab);
  if (o.out_of_range) a->error = check_error_flag(k);
  if (o.bias) a->bias = check_in_vector(k, "bias", k->dtype, vocab, CHECK_UNIFORM);
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
  make_lists(&c);
  for (int64_t r = 0; k->oracle && r < rows; ++r) spread_token(&c, r);
  size_t least, good;
  tigon_fused_linear_topk_divergence_fwd_workspace(k->context, a, &least, &good);
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

MUTANT(no_hard, topk_divergence_fwd, m.base.hard = 0)
MUTANT(no_temperature, topk_divergence_fwd, m.base.inverse_temperature = 1)
MUTANT(no_soft, topk_divergence_fwd, m.base.soft = 1)
MUTANT(no_cap, topk_divergence_fwd, m.base.input_map.cap = 0)
MUTANT(no_scale, topk_divergence_fwd, m.base.input_map.scale = 1)
MUTANT(no_tail, topk_divergence_fwd, m.tail = false)
MUTANT(any_tail, topk_divergence_fwd, m.least_tail = 0)
MUTANT(last_entry, topk_divergence_fwd, m.k -= m.k > 1)
MUTANT(no_error, topk_divergence_fwd, m.error_flag = NULL)
MUTANT(no_denominator, cross_entropy_fwd, m.denominator = NULL)
MUTANT(no_panel, topk_divergence_bwd, m.base.panel_begin = 0)
MUTANT(whole_panel, topk_divergence_bwd, m.base.vocab = 0)
MUTANT(no_hard_panel, topk_divergence_bwd, m.base.hard = 0)
MUTANT(no_cap_panel, topk_divergence_bwd, m.base.input_map.cap = 0)
static const check_mutant wrong[] = {
    {"forgets the cross entropy", no_hard},
    {"forgets the temperature", no_temperature},
    {"forgets weight_soft and temperature^2", no_soft},
    {"forgets the softcap", no_cap},
    {"forgets the scale", no_scale},
    {"forgets the tail", no_tail},
    {"forgets least_tail", any_tail},
    {"drops the last entry", last_entry},
    {"says nothing of ids out of range", no_error},
    {"forgets the denominator", no_denominator},
    {"takes a panel for the first", no_panel},
    {"takes a panel for the whole vocabulary", whole_panel},
    {"forgets the cross entropy in panels", no_hard_panel},
    {"forgets the softcap in panels", no_cap_panel},
    {0},
};

static const check_sizes own_sizes = {DISTIL_SIZES, .coupled = (1 << OPTIONS) - 1};

static const bench_case timed = {.op = "fused_linear_topk_divergence",
                                 .shape_note = "tokens x hidden, 16000 words, kl with the tail of 64 entries",
                                 DISTIL_CASE,
                                 .option = {LOSS_ONLY, FULL, FULL},
                                 .full_in_one = true,
                                 .products = {1, 3, 3}};

const check_op tigon_check_fused_linear_topk_divergence_fwd = {fwd, shapes, OPTIONS, true, wrong, &timed, &own_sizes};
