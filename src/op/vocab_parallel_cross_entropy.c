#include <tigon/op/vocab_parallel_cross_entropy.h>

#include <inttypes.h>

#include "op/loss.h"

/* Classes of all shards: the extent "c". */
#define VOCAB(field) \
  { NUMBER_AT(A, field), .shape = "c", .high = (double)INFINITY }
#define OPTIONS                                                                                      \
  FLAG(options.has_ignore_index), ANY(options.ignore_index), NUMBER(options.label_smoothing, 0, 1),  \
      CHOICE(options.formula, TIGON_SMOOTHING_MEGATRON), FLAG(options.own_partition),                \
      NUMBER(options.lse_square_scale, 0, FLT_MAX), CHOICE(options.reduction, TIGON_REDUCTION_NONE), \
      RESERVED(options.reserved)

#define A tigon_vocab_parallel_cross_entropy_stats_args
static const tigon_field stats[] = {
    IN(logits, "*v", SAME, ROWS),
    IN(labels, "@", INTEGER, DENSE),
    OUT(stats, "*5", F32, DENSE, NULL),
    VOCAB(vocab),
    AT_LEAST(vocab_begin, 0),
    FLAG(has_ignore_index),
    ANY(ignore_index),
    OR_ZERO(softcap),
    OR_ZERO(temperature),
    FLAG(softcap_first),
    FLAG(with_entropy),
    FLAG(with_smoothing),
    RESERVED(reserved),
};
#undef A

#define A tigon_vocab_parallel_cross_entropy_merge_args
static const tigon_field merge[] = {
    IN(stats, "kn5", F32, DENSE),
    VOCAB(options.vocab),
    IN(labels, "n", INDEX('c'), DENSE),
    MAY(options.denominator, "1 a scalar", F32, DENSE),
    WANT(out.loss, "1 a scalar", F32, DENSE, NULL),
    WANT(out.token_loss, "n", F32, DENSE, NULL),
    WANT(out.lse, "n", F32, DENSE, NULL),
    WANT(out.z_loss, "n", F32, DENSE, NULL),
    WANT(out.entropy, "n", F32, DENSE, NULL),
    WANT(out.error, "1 a scalar", I32, DENSE, NULL),
    OPTIONS,
    AT_LEAST(rank, 0),
    AT_LEAST(rank_classes, 0),
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_vocab_parallel_cross_entropy_bwd_args
static const tigon_field bwd[] = {
    IN(logits, "*v", SAME, ROWS),
    VOCAB(options.vocab),
    IN(labels, "@", INDEX('c'), DENSE),
    OUT(dlogits, "*v", SAME, ROWS, "logits"),
    MAY(dloss, "?1", F32, DENSE),
    MAY(dentropy, "@", F32, DENSE),
    MAY(options.denominator, "1 a scalar", F32, DENSE),
    IN(lse, "@", F32, DENSE),
    MAY(entropy, "@", F32, DENSE),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    OPTIONS,
    AT_LEAST(vocab_begin, 0),
    OR_ZERO(softcap),
    OR_ZERO(temperature),
    FLAG(softcap_first),
    FINITE(grad_scale),
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

static tigon_status check_labels(tigon_context *context, const tigon_tensor *labels,
                                 const tigon_vocab_parallel_cross_entropy_options *o, const tigon_tensor *error,
                                 tigon_cross_entropy_problem *p) {
  return tigon_check_below(context, "labels", labels, o->vocab, (tigon_dim){"options.vocab", NULL, 0},
                           p->has_ignore_index, p->ignore_index, error, &p->error_flag);
}

/* The logits are the classes from `begin` on. */
static void set_shard(tigon_cross_entropy_problem *p, int64_t begin, int64_t vocab, tigon_dtype dtype) {
  p->panel_begin = begin;
  p->vocab = vocab;
  p->dtype = dtype;
}

/* e' and the classes that it is spread over; rank_classes are those of the own shard. */
static void set_smoothing(tigon_cross_entropy_problem *p, const tigon_vocab_parallel_cross_entropy_options *o,
                          int64_t rank_classes) {
  const int64_t classes = o->own_partition ? rank_classes : o->vocab;
  const double others = (double)classes - 1, times = others > 0 ? (double)classes / others : 0;
  p->smoothed = classes;
  p->label_smoothing = (float)(o->label_smoothing * (o->formula == TIGON_SMOOTHING_PYTORCH ? 1 : times));
}

static tigon_cross_entropy_options options_of(const tigon_vocab_parallel_cross_entropy_options *o) {
  return (tigon_cross_entropy_options){.denominator = o->denominator,
                                       .has_ignore_index = o->has_ignore_index,
                                       .ignore_index = o->ignore_index,
                                       .lse_square_scale = o->lse_square_scale,
                                       .reduction = o->reduction};
}

static tigon_status prepare_stats(tigon_context *context, const tigon_vocab_parallel_cross_entropy_stats_args *a,
                                  tigon_cross_entropy_problem *p) {
  const tigon_cross_entropy_options options = {.has_ignore_index = a->has_ignore_index,
                                               .ignore_index = a->ignore_index,
                                               .label_smoothing = a->with_smoothing,
                                               .softcap = a->softcap,
                                               .temperature = a->temperature,
                                               .softcap_first = a->softcap_first,
                                               .reduction = TIGON_REDUCTION_NONE};
  const tigon_cross_entropy_outputs out = {0};
  const tigon_tensor none = {0};
  const tigon_loss_args loss = {.rows_of = &a->logits,
                                .vocab = tigon_last_extent(&a->logits),
                                .labels = &a->labels,
                                .dloss = &none,
                                .dentropy = &none,
                                .options = &options,
                                .out = &out};
  TIGON_TRY(tigon_check_loss(context, &loss, p)); /* GCOVR_EXCL_BR_LINE without a loss it refuses nothing */
  TIGON_TRY(tigon_check_shard(context, tigon_last_dim("logits", &a->logits), a->vocab_begin, "vocab", a->vocab));
  set_shard(p, a->vocab_begin, a->vocab, a->logits.dtype);
  p->parts = TIGON_CROSS_ENTROPY_ROWS;
  p->stats = a->stats.data;
  p->entropy_scale = a->with_entropy ? 1 : 0;
  return TIGON_COLLAPSE(context, &p->space, {&a->logits, &p->logits});
}

static tigon_status prepare_merge(tigon_context *context, const tigon_vocab_parallel_cross_entropy_merge_args *a,
                                  tigon_vocab_parallel_cross_entropy_merge_problem *m, size_t *bytes) {
  const bool own = a->options.own_partition;
  const tigon_cross_entropy_options options = options_of(&a->options);
  const tigon_cross_entropy_outputs out = {.loss = a->out.loss,
                                           .token_loss = a->out.token_loss,
                                           .lse = a->out.lse,
                                           .z_loss = a->out.z_loss,
                                           .entropy = a->out.entropy};
  const tigon_tensor none = {0};
  const tigon_loss_args loss = {.forward = true,
                                .rows_of = &a->labels,
                                .vocab = a->options.vocab,
                                .labels = &a->labels,
                                .dloss = &none,
                                .dentropy = &none,
                                .options = &options,
                                .out = &out};
  *m = (tigon_vocab_parallel_cross_entropy_merge_problem){
      .dtype = TIGON_F32, .stats = a->stats.data, .shards = a->stats.shape[0], .rank = own ? a->rank : -1};
  const int64_t rows = a->labels.shape[0]; /* each has 20 bytes of stats, and fewer of a workspace */
  if (own && a->rank >= m->shards)
    return tigon_refuse(context, "rank is %" PRId64 ", must be 0 to %" PRId64 " (stats.shape[0] - 1)", a->rank,
                        m->shards - 1);
  TIGON_TRY(tigon_check_loss(context, &loss, &m->loss));
  m->loss.dtype = TIGON_F32;
  m->loss.space = (tigon_row_space){rows, 1, rows};
  set_smoothing(&m->loss, &a->options, a->rank_classes);
  tigon_cut_loss(&m->loss, &out, true, a->workspace, bytes);
  return check_labels(context, &a->labels, &a->options, &a->out.error, &m->loss);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_vocab_parallel_cross_entropy_bwd_args *a,
                                tigon_cross_entropy_problem *p, size_t *bytes) {
  const int64_t classes = tigon_last_extent(&a->logits);
  tigon_cross_entropy_options options = options_of(&a->options);
  options.softcap = a->softcap;
  options.temperature = a->temperature;
  options.softcap_first = a->softcap_first;
  const tigon_cross_entropy_outputs out = {.lse = a->lse, .entropy = a->entropy};
  const tigon_loss_args loss = {.rows_of = &a->logits,
                                .vocab = classes,
                                .labels = &a->labels,
                                .dloss = &a->dloss,
                                .dentropy = &a->dentropy,
                                .options = &options,
                                .out = &out,
                                .grad_scale = a->grad_scale};
  if (tigon_present(&a->dentropy) && !tigon_present(&a->entropy))
    return tigon_refuse(context, "entropy is absent, must be there with dentropy");
  TIGON_TRY(tigon_check_loss(context, &loss, p));
  TIGON_TRY(tigon_check_shard(context, tigon_last_dim("logits", &a->logits), a->vocab_begin, "options.vocab",
                              a->options.vocab));
  set_shard(p, a->vocab_begin, a->options.vocab, a->logits.dtype);
  set_smoothing(p, &a->options, classes);
  p->parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS;
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->logits, &p->logits}, {&a->dlogits, &p->dlogits}));
  tigon_cut_loss(p, &out, false, a->workspace, bytes);
  return check_labels(context, &a->labels, &a->options, &a->error, p);
}

TIGON_ENTRY(vocab_parallel_cross_entropy, stats, stats, prepare_stats, p.space.rows == 0)
/* Without rows the loss is written still. */
TIGON_ENTRY_WITH_WORKSPACE(vocab_parallel_cross_entropy, merge, merge, prepare_merge, false)
TIGON_ENTRY_WITH_WORKSPACE(vocab_parallel_cross_entropy, bwd, bwd, prepare_bwd, p.space.rows == 0)
