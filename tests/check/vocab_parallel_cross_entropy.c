/* vocab_parallel_cross_entropy: a shard of stats and of bwd, and merge of stats that no kernel has made. */
#include <math.h>

#include "check/cases.h"
#include "check/logits.h"

static const struct option {
  tigon_reduction reduction;
  tigon_dtype labels;
  tigon_smoothing_formula formula;
  int64_t begin, after; /* classes before and behind the shard */
  int64_t shards;       /* shards of merge */
  bool dloss, dentropy, entropy, outputs, in_place, ignore, out_of_range, softcap_first, denominator, own_partition;
  double smoothing, lse_square, softcap, temperature, grad_scale;
} options[] = {
    {.labels = TIGON_I64, .shards = 1, .outputs = true},
    {.labels = TIGON_I32, .begin = 3, .after = 5, .shards = 2, .entropy = true, .ignore = true, .smoothing = 0.1},
    {.reduction = TIGON_REDUCTION_NONE,
     .labels = TIGON_I64,
     .formula = TIGON_SMOOTHING_MEGATRON,
     .begin = 40000,
     .shards = 8,
     .dloss = true,
     .dentropy = true,
     .entropy = true,
     .outputs = true,
     .in_place = true,
     .smoothing = 0.3,
     .lse_square = 1e-2,
     .softcap = 5,
     .temperature = 0.7},
    {.reduction = TIGON_REDUCTION_SUM,
     .labels = TIGON_I32,
     .formula = TIGON_SMOOTHING_MEGATRON,
     .own_partition = true,
     .begin = 2,
     .after = 2,
     .shards = 4,
     .dloss = true,
     .in_place = true,
     .out_of_range = true,
     .smoothing = 0.2,
     .softcap_first = true,
     .softcap = 4,
     .temperature = 0.8,
     .grad_scale = -3},
    {.labels = TIGON_I64,
     .after = 7,
     .shards = 3,
     .dentropy = true,
     .entropy = true,
     .outputs = true,
     .ignore = true,
     .out_of_range = true,
     .denominator = true,
     .lse_square = 0.5,
     .temperature = 2},
    {.labels = TIGON_I64, .begin = 1000, .after = 100000, .shards = 2, .grad_scale = 0.5},
};
enum { OPTIONS = sizeof options / sizeof *options };

static int64_t vocab_of(const struct option *o, int64_t cols) { return o->begin + cols + o->after; }

/* e', and the classes that it is spread over. */
static double smoothing_of(const struct option *o, int64_t cols, double *classes) {
  *classes = (double)(o->own_partition ? cols : vocab_of(o, cols));
  const double times = o->formula == TIGON_SMOOTHING_PYTORCH ? 1 : *classes > 1 ? *classes / (*classes - 1) : 0;
  return o->smoothing * times;
}

/* Half of them lie in the shard. */
static tigon_tensor labels_of(check *k, const struct option *o, int64_t rows, int64_t cols) {
  const int64_t beyond = o->out_of_range ? 1 : 0, vocab = vocab_of(o, cols);
  const int64_t low = o->begin > cols / 2 ? o->begin - cols / 2 : 0;
  const int64_t high = o->after > cols / 2 ? o->begin + cols + cols / 2 : vocab;
  const tigon_tensor labels =
      check_indices(k, "labels", o->labels, 1, &rows, low > 0 ? low : -beyond, high < vocab ? high : vocab + beyond);
  return labels;
}

static bool counts(const tigon_tensor *labels, int64_t r, int64_t vocab, bool ignores, int64_t ignored) {
  const int64_t label = (int64_t)check_value(labels, r);
  return label >= 0 && label < vocab && !(ignores && label == ignored);
}

static logits logits_for(const check *k, const struct option *o) {
  return (logits){.k = k,
                  .rows = k->dims[0],
                  .cols = k->dims[1],
                  .softcap = o->softcap,
                  .temperature = o->temperature,
                  .softcap_first = o->softcap_first};
}

/* ---- stats ---- */

/* In eps: what a kernel may leave out of a logit that it multiplies, because x is below 2^-100. */
static double tiny_logit(double z) { return fmin(fabs(z) * 0x1p24, 0x1p-74); }

/* m is a logit, and every other number is relative to it as it is stored, so that m's error e comes in: s grows by s * e, and w by
 * (s + |w|) * e. */
static void bound_stats(check *k, const logits *l, int64_t r, double *at) {
  const logits_row w = logits_row_of(l, r);
  const bool plain = l->softcap == 0 && l->temperature == 0;
  for (int64_t v = 0; v < l->cols; ++v) {
    const double z = l->z[r * l->cols + v];
    if (isfinite(z)) at[3] += 20 * fabs(z) + (plain ? 0 : logit_error(l, z) + tiny_logit(z));
  }
  if (!isfinite(w.lse)) return;
  const double s = exp(w.lse - w.largest);
  const double flushed =
      check_flushed(k) * (1 + logits_cap(l)); /* what a flush takes from a logit, and from tanh's argument */
  const double e = plain ? 0 : logit_error(l, w.largest) + 2 * fabs(w.largest) + flushed;
  const double moment = s * (w.lse - w.largest - w.entropy); /* w, which is negative */
  at[0] = e;
  at[1] = s * (w.lse_error + e);
  at[2] = s * w.moment_error + fabs(moment) * (w.lse_error + e) + s * e;
  at[4] = plain ? 0 : 2 * logits_cap(l);
}

static void stats(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1], shape[] = {rows, TIGON_VOCAB_STATS};
  logits l = logits_for(k, &o);
  tigon_vocab_parallel_cross_entropy_stats_args a = {.logits = check_rows(k, "logits", k->fill, false),
                                                     .labels = labels_of(k, &o, rows, cols),
                                                     .stats = check_out_dense(k, "stats", TIGON_F32, 2, shape),
                                                     .vocab = vocab_of(&o, cols),
                                                     .vocab_begin = o.begin,
                                                     .softcap = o.softcap,
                                                     .temperature = o.temperature,
                                                     .softcap_first = o.softcap_first,
                                                     .with_entropy = o.entropy,
                                                     .with_smoothing = o.smoothing != 0};
  if (o.ignore) {
    a.has_ignore_index = 1;
    a.ignore_index = (int64_t)check_input(k, &a.labels, rows / 2);
  }
  double *size = check_doubles(k, rows * TIGON_VOCAB_STATS);
  read_logits(k, &l, &a.logits, k->oracle != NULL);
  for (int64_t r = 0; k->oracle && r < rows; ++r) bound_stats(k, &l, r, size + r * TIGON_VOCAB_STATS);
  check_call(k, &a);
  check_bound(k, &a.stats, 1, 1, size);
}

/* ---- merge ---- */

/* Stats as shards of a few classes have them: s from 1 on, w not above 0. Every seventh shard is masked. */
static void make_stats(const check *k, const tigon_tensor *stats) {
  float(*of)[TIGON_VOCAB_STATS] = stats->data;
  const int64_t count = stats->shape[0] * stats->shape[1];
  for (int64_t i = 0; !k->timed && i < count; ++i) {
    if (i % 7 == 5) of[i][0] = -INFINITY;
    const bool finite = isfinite(of[i][0]);
    const float none = isnan(of[i][0]) ? NAN : 0;
    of[i][1] = finite ? 1 + fabsf(of[i][1]) : none;
    of[i][2] = finite ? -fabsf(of[i][2]) : none;
    for (int c = 3; c < TIGON_VOCAB_STATS; ++c)
      if (!isfinite(of[i][c])) of[i][c] = 1;
  }
}

typedef struct merged {
  tigon_vocab_parallel_cross_entropy_merge_args a;
  struct option o;
  double inverse;
} merged;

/* The sum of the sizes of a loss's terms: it is rounded once. */
static double loss_size(const merged *c, int64_t r) {
  const int64_t shards = c->a.stats.shape[0], rows = c->a.stats.shape[1];
  double largest = 0, sum = 1, all = 0, label = 0;
  for (int64_t i = 0; i < shards; ++i) {
    double of[TIGON_VOCAB_STATS];
    for (int j = 0; j < TIGON_VOCAB_STATS; ++j)
      of[j] = check_value(&c->a.stats, (i * rows + r) * TIGON_VOCAB_STATS + j);
    if (isfinite(of[0])) largest = fmax(largest, fabs(of[0]));
    sum += fabs(of[1]);
    all += fabs(of[3]);
    label += fabs(of[4]);
  }
  const double lse = largest + log(sum);
  return 3 * (lse + label + all) + c->o.lse_square * lse * lse;
}

/* What a row's outputs may be off by, in eps. */
typedef struct merge_error {
  double lse, loss, z_loss, entropy;
} merge_error;

/* A row of a kernel without f64. With every shard the sums so far and what it adds are each multiplied by an exponential, whose
 * difference, itself and product are rounded, and added: a term of the n shards' sum is off by 3 n eps, and by its distance from
 * the largest m, because the differences that it meets add up to that. The moment's terms have twice as many factors, of which one
 * carries the sum's own error. w and s * (m - M) are not above 0, so that nothing cancels there. */
static merge_error merge_error_of(const check *k, const merged *c, int64_t r) {
  const int64_t shards = c->a.stats.shape[0], rows = c->a.stats.shape[1];
  const double n = (double)shards, call = check_calls(k, 1, 0), square = c->o.lse_square;
  double classes, largest = -INFINITY, sum = 0, sum_off = 0, moment = 0, moment_off = 0;
  double label = 0, mean = 0, size_of_label = 0, size_of_mean = 0;
  const double smoothing = smoothing_of(&c->o, c->a.rank_classes, &classes);
  for (int64_t i = 0; i < shards; ++i)
    largest = fmax(largest, check_value(&c->a.stats, (i * rows + r) * TIGON_VOCAB_STATS));
  for (int64_t i = 0; i < shards; ++i) {
    double of[TIGON_VOCAB_STATS];
    for (int j = 0; j < TIGON_VOCAB_STATS; ++j)
      of[j] = check_value(&c->a.stats, (i * rows + r) * TIGON_VOCAB_STATS + j);
    const double u = !c->o.own_partition || i == c->a.rank ? of[3] / classes : 0;
    label += of[4], size_of_label += fabs(of[4]);
    mean += u, size_of_mean += fabs(u);
    if (!isfinite(of[0])) continue;
    const double below = largest - of[0], factor = exp(-below), term = fabs(of[2]) + of[1] * below;
    sum += factor * of[1], sum_off += factor * of[1] * (n * (3 + call) + below);
    moment += factor * term, moment_off += factor * term * (n * (9 + 2 * call) + 2 * below);
  }
  const double log_sum = log(sum), lse = largest + log_sum, off = sum_off / sum + fabs(log_sum) * (1 + call);
  const double at_label = n * size_of_label + fabs(largest - label) + off + 3 * fabs(lse - label);
  const double at_mean = (n + 2) * size_of_mean + fabs(largest - mean) + off + 3 * fabs(lse - mean);
  merge_error e = {.lse = off, .z_loss = square * (2 * fabs(lse) * (off + fabs(lse)) + 2 * lse * lse)};
  e.loss = fabs(1 - smoothing) * at_label + e.z_loss;
  if (smoothing != 0) e.loss += smoothing * at_mean + fabs((1 - smoothing) * (lse - label) + smoothing * (lse - mean));
  e.entropy = off + moment_off / sum + moment / sum * (sum_off / sum + 1 + check_calls(k, 0, 1));
  return e;
}

static void merge(check *k) {
  merged c = {.o = options[k->option]};
  const struct option o = c.o;
  const bool none = o.reduction == TIGON_REDUCTION_NONE;
  const int64_t rows = k->dims[0], shape[] = {o.shards, rows, TIGON_VOCAB_STATS};
  const int64_t cols = k->timed ? k->dims[1] : 50; /* a timed case has the labels of stats */
  tigon_vocab_parallel_cross_entropy_merge_args *a = &c.a;
  a->stats = check_inout_dense(k, "stats", TIGON_F32, 3, shape, k->fill);
  make_stats(k, &a->stats);
  a->labels = labels_of(k, &o, rows, cols);
  a->options = (tigon_vocab_parallel_cross_entropy_options){.vocab = vocab_of(&o, cols),
                                                            .label_smoothing = o.smoothing,
                                                            .formula = o.formula,
                                                            .own_partition = o.own_partition,
                                                            .lse_square_scale = o.lse_square,
                                                            .reduction = o.reduction};
  if (o.ignore) {
    a->options.has_ignore_index = 1;
    a->options.ignore_index = (int64_t)check_input(k, &a->labels, rows / 2);
  }
  a->rank = o.shards - 1;
  a->rank_classes = cols;
  if (o.denominator) a->options.denominator = check_in_vector(k, "denominator", TIGON_F32, 1, CHECK_UNIFORM);
  if (!none) a->out.loss = check_out_vector(k, "loss", TIGON_F32, 1);
  if (none || o.outputs) a->out.token_loss = check_out_vector(k, "token_loss", TIGON_F32, rows);
  a->out.lse = check_out_vector(k, "lse", TIGON_F32, rows);
  if (o.outputs) a->out.z_loss = check_out_vector(k, "z_loss", TIGON_F32, rows);
  if (o.entropy) a->out.entropy = check_out_vector(k, "entropy", TIGON_F32, rows);
  if (o.out_of_range) a->out.error = check_error_flag(k);
  double *loss = check_doubles(k, 1), *token_loss = check_doubles(k, rows), *lse = check_doubles(k, rows);
  double *z_loss = check_doubles(k, rows), *entropy = check_doubles(k, rows), denominator = 0;
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    const bool is_counted = counts(&a->labels, r, a->options.vocab, o.ignore, a->options.ignore_index);
    denominator += is_counted;
    *loss += loss_size(&c, r);
    if (check_has_f64(k)) continue;
    const merge_error e = merge_error_of(k, &c, r);
    if (isfinite(e.lse)) lse[r] = e.lse;
    if (is_counted && isfinite(e.loss)) token_loss[r] = e.loss, z_loss[r] = e.z_loss, *loss += e.loss;
    if (is_counted && isfinite(e.entropy)) entropy[r] = e.entropy;
  }
  if (o.denominator && k->oracle) denominator = fabs(check_value(&a->options.denominator, 0));
  if (k->oracle && o.reduction == TIGON_REDUCTION_MEAN) *loss = denominator > 0 ? *loss / denominator : 0;
  check_call_in_workspace(k, tigon_vocab_parallel_cross_entropy_merge_workspace, a);
  /* In f64 all but the rounding of a row's loss, and then that of the sum and of its factor. */
  if (!none) check_bound(k, &a->out.loss, 3, 1, loss);
  if (a->out.token_loss.ndim) check_bound(k, &a->out.token_loss, 1, 1, token_loss);
  check_bound(k, &a->out.lse, 1, 1, lse);
  if (o.outputs) check_bound(k, &a->out.z_loss, 1, 1, z_loss);
  if (o.entropy) check_bound(k, &a->out.entropy, 1, 1, entropy);
}

/* ---- bwd ---- */

enum { ELSEWHERE = 2 }; /* exponentials of all other shards, over those of the shard */

static void bwd(check *k) {
  const struct option o = options[k->option];
  const int64_t rows = k->dims[0], cols = k->dims[1];
  const bool none = o.reduction == TIGON_REDUCTION_NONE;
  logits l = logits_for(k, &o);
  tigon_vocab_parallel_cross_entropy_bwd_args a = {.logits = check_rows(k, "logits", k->fill, o.in_place),
                                                   .labels = labels_of(k, &o, rows, cols),
                                                   .options = {.vocab = vocab_of(&o, cols),
                                                               .label_smoothing = o.smoothing,
                                                               .formula = o.formula,
                                                               .own_partition = o.own_partition,
                                                               .lse_square_scale = o.lse_square,
                                                               .reduction = o.reduction},
                                                   .vocab_begin = o.begin,
                                                   .softcap = o.softcap,
                                                   .temperature = o.temperature,
                                                   .softcap_first = o.softcap_first,
                                                   .grad_scale = o.grad_scale};
  if (o.ignore) {
    a.options.has_ignore_index = 1;
    a.options.ignore_index = (int64_t)check_input(k, &a.labels, rows / 2);
  }
  a.lse = check_inout_dense(k, "lse", TIGON_F32, 1, &rows, CHECK_UNIFORM);
  if (o.dentropy) a.entropy = check_inout_dense(k, "entropy", TIGON_F32, 1, &rows, CHECK_UNIFORM);
  if (o.dloss) a.dloss = check_in_vector(k, "dloss", TIGON_F32, none ? rows : 1, CHECK_UNIFORM);
  if (o.dentropy) a.dentropy = check_in_vector(k, "dentropy", TIGON_F32, rows, CHECK_UNIFORM);
  if (o.denominator) a.options.denominator = check_in_vector(k, "denominator", TIGON_F32, 1, CHECK_UNIFORM);
  if (o.out_of_range) a.error = check_error_flag(k);
  a.dlogits = o.in_place ? a.logits : check_out(k, "dlogits", k->dtype, 2, k->dims);

  double *size = check_doubles(k, rows * cols), denominator = 0;
  read_logits(k, &l, &a.logits, !k->timed);
  for (int64_t r = 0; !k->timed && r < rows; ++r) {
    double largest;
    ((float *)a.lse.data)[r] = (float)(lse_of(&l, r, &largest) + log(1 + ELSEWHERE));
    if (o.dentropy) ((float *)a.entropy.data)[r] = (float)(entropy_of(&l, r) + 1);
    denominator += counts(&a.labels, r, a.options.vocab, o.ignore, a.options.ignore_index);
  }
  if (o.denominator && !k->timed) denominator = fabs(check_value(&a.options.denominator, 0));
  double classes;
  const double smoothing = smoothing_of(&o, cols, &classes), grad_scale = o.grad_scale != 0 ? fabs(o.grad_scale) : 1;
  const double inverse = o.reduction != TIGON_REDUCTION_MEAN ? 1 : denominator > 0 ? 1 / denominator : 0;
  for (int64_t r = 0; k->oracle && r < rows; ++r) {
    logits_row w = logits_row_of(&l, r);
    if (!isfinite(w.lse) || !counts(&a.labels, r, a.options.vocab, o.ignore, a.options.ignore_index)) continue;
    w.lse = check_value(&a.lse, r);
    w.entropy = o.dentropy ? check_value(&a.entropy, r) : 0;
    logits_gradient g = {.factor = fabs(1 - smoothing) + smoothing + 2 * o.lse_square * fabs(w.lse),
                         .share = smoothing / classes,
                         .scale = inverse * grad_scale / logits_temperature(&l)};
    if (o.dloss) g.scale *= fabs(check_value(&a.dloss, none ? r : 0));
    if (o.dentropy) g.by_entropy = fabs(check_value(&a.dentropy, r)) * grad_scale / logits_temperature(&l);
    for (int64_t v = 0; v < cols; ++v) size[r * cols + v] = dlogit_error(&l, &w, &g, r, v);
  }
  check_call_in_workspace(k, tigon_vocab_parallel_cross_entropy_bwd_workspace, &a);
  check_bound(k, &a.dlogits, 1, 1, size);
}

/* ---- mutants ---- */

MUTANT(first_shard, vocab_parallel_cross_entropy_stats, m.panel_begin = 0)
MUTANT(shard_without_w, vocab_parallel_cross_entropy_stats, m.entropy_scale = 0)
MUTANT(shard_without_u, vocab_parallel_cross_entropy_stats, m.label_smoothing = 0)
MUTANT(shard_uncapped, vocab_parallel_cross_entropy_stats, m.softcap = 0)
MUTANT(shard_all_count, vocab_parallel_cross_entropy_stats, m.has_ignore_index = false)
MUTANT(drop_tail, vocab_parallel_cross_entropy_stats, m.cols -= m.cols > 1)
static const check_mutant wrong_stats[] = {
    {"takes the shard for the first one", first_shard},
    {"forgets the entropy", shard_without_w},
    {"forgets the smoothing", shard_without_u},
    {"forgets softcap", shard_uncapped},
    {"counts ignored labels", shard_all_count},
    {"drops the last column", drop_tail},
    {0},
};

MUTANT(no_last_shard, vocab_parallel_cross_entropy_merge, m.shards -= m.shards > 1)
MUTANT(no_smoothing, vocab_parallel_cross_entropy_merge, m.loss.label_smoothing = 0)
MUTANT(all_partitions, vocab_parallel_cross_entropy_merge, m.rank = -1)
MUTANT(whole_vocab, vocab_parallel_cross_entropy_merge, m.loss.smoothed = 0)
MUTANT(no_z, vocab_parallel_cross_entropy_merge, m.loss.lse_square_scale = 0)
MUTANT(all_count, vocab_parallel_cross_entropy_merge, m.loss.has_ignore_index = false)
MUTANT(no_denominator, vocab_parallel_cross_entropy_merge, m.loss.denominator = NULL)
MUTANT(drop_row, vocab_parallel_cross_entropy_merge, check_drop_last_row(&m.loss.space))
static const check_mutant wrong_merge[] = {
    {"drops the last shard", no_last_shard},
    {"forgets the smoothing", no_smoothing},
    {"smooths over all partitions", all_partitions},
    {"spreads a partition's smoothing over the vocabulary", whole_vocab},
    {"forgets z-loss", no_z},
    {"counts ignored labels", all_count},
    {"divides by its own rows", no_denominator},
    {"drops the last row", drop_row},
    {0},
};

MUTANT(bwd_first_shard, vocab_parallel_cross_entropy_bwd, m.panel_begin = 0)
MUTANT(bwd_no_smoothing, vocab_parallel_cross_entropy_bwd, m.label_smoothing = 0)
MUTANT(bwd_whole_vocab, vocab_parallel_cross_entropy_bwd, m.smoothed = 0)
MUTANT(bwd_no_z, vocab_parallel_cross_entropy_bwd, m.lse_square_scale = 0)
MUTANT(bwd_no_dentropy, vocab_parallel_cross_entropy_bwd, m.entropy_scale = 0)
MUTANT(bwd_grad_scale, vocab_parallel_cross_entropy_bwd, m.grad_scale = 1)
static const check_mutant wrong_bwd[] = {
    {"takes the shard for the first one", bwd_first_shard},
    {"forgets the smoothing", bwd_no_smoothing},
    {"spreads a partition's smoothing over the vocabulary", bwd_whole_vocab},
    {"forgets z-loss", bwd_no_z},
    {"forgets the entropy's gradient", bwd_no_dentropy},
    {"forgets grad_scale", bwd_grad_scale},
    {0},
};

static bool merge_shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t sizes[] = {1, 2, 3, tile + 1, 31, 64, 255, 256, 257, 1000, 9973};
  if (index >= (int)(sizeof sizes / sizeof *sizes)) return false;
  dims[0] = sizes[index];
  return true;
}

/* Mean's denominator is of all rows, and the label of a middle row is ignored. */
static const check_sizes shard_sizes = {
    .of = {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {CHECK_MANY, 4096}, {3, CHECK_THIRD}},
    .walks = {{3, CHECK_N}, {CHECK_N, 5}, {1, CHECK_N}},
    .coupled = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5};
static const check_sizes merge_sizes = {.of = {{17}, {1021}, {300}}, .walks = {{CHECK_N}}, .coupled = ~0u};

static const bench_case timed = {.op = "vocab_parallel_cross_entropy",
                                 .shape_note = "tokens x classes of a shard",
                                 .rows_f32 = 1024,
                                 .rows_16bit = 2048,
                                 .cols = 32000};

const check_op tigon_check_vocab_parallel_cross_entropy_stats = {stats,       check_row_shapes, OPTIONS,     true,
                                                                 wrong_stats, &timed,           &shard_sizes};
const check_op tigon_check_vocab_parallel_cross_entropy_merge = {merge,       merge_shapes, OPTIONS,     true,
                                                                 wrong_merge, NULL,         &merge_sizes};
const check_op tigon_check_vocab_parallel_cross_entropy_bwd = {bwd,  check_row_shapes, OPTIONS, true, wrong_bwd,
                                                               NULL, &shard_sizes};
