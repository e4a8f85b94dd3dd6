/* What losses have in common. Options and outputs are those of cross_entropy and fused_linear_cross_entropy. */
#ifndef TIGON_OP_LOSS_H
#define TIGON_OP_LOSS_H

#include <tigon/op/cross_entropy.h>

#include "op/front.h"

/* Fields of `options` and `out`; the vocabulary's extent is "v". */
#define LOSS_TENSORS                                                               \
  MAY(options.weight, "v", F32, DENSE), MAY(options.token_scale, "@", F32, DENSE), \
      MAY(options.denominator, "1 a scalar", F32, DENSE)
#define LOSS_OUTPUTS                                                                           \
  WANT(out.loss, "1 a scalar", F32, DENSE, NULL), WANT(out.token_loss, "@", F32, DENSE, NULL), \
      WANT(out.lse, "@", F32, DENSE, NULL), WANT(out.z_loss, "@", F32, DENSE, NULL),           \
      WANT(out.entropy, "@", F32, DENSE, NULL), WANT(out.argmax, "@", I64, DENSE, NULL),       \
      WANT(out.correct, "1 a scalar", I64, DENSE, NULL), WANT(out.error, "1 a scalar", I32, DENSE, NULL)
#define LOSS_NUMBERS                                                                                        \
  FLAG(options.has_ignore_index), ANY(options.ignore_index), NUMBER(options.label_smoothing, 0, 1),         \
      NUMBER(options.lse_square_scale, 0, FLT_MAX), OR_ZERO(options.softcap), OR_ZERO(options.temperature), \
      FLAG(options.softcap_first), CHOICE(options.reduction, TIGON_REDUCTION_NONE), FINITE(grad_scale),     \
      RESERVED(options.reserved)

/* What a reduction is of. */
typedef struct tigon_reduced {
  tigon_reduction reduction;
  const tigon_tensor *rows_of; /* the entry's first field, whose rows count */
  const tigon_tensor *dloss;
  const tigon_tensor *loss, *token_loss; /* loss NULL: the entry has neither */
  const tigon_tensor *denominator;
} tigon_reduced;
/* Are loss, token_loss, dloss and options.denominator what the reduction asks for? */
tigon_status tigon_check_reduction(tigon_context *context, const tigon_reduced *a);

/* A call whose description holds. */
typedef struct tigon_loss_args {
  bool forward;
  const tigon_tensor *rows_of; /* the entry's first field, whose rows count */
  int64_t vocab;
  const tigon_tensor *labels, *dloss, *dentropy;
  const tigon_cross_entropy_options *options;
  const tigon_cross_entropy_outputs *out;
  double grad_scale;
} tigon_loss_args;
/* The fields that either operator fills from its arguments `a`; `rows` is the field whose rows count. */
#define LOSS_ARGS(rows)                                                                                            \
  .rows_of = &a->rows, .labels = &a->labels, .dloss = &a->dloss, .dentropy = &a->dentropy, .options = &a->options, \
  .grad_scale = a->grad_scale
/* What the reduction asks for; *p is filled but for parts, dtype, space, logits, dlogits, inverse and error_flag. */
tigon_status tigon_check_loss(tigon_context *context, const tigon_loss_args *args, tigon_cross_entropy_problem *p);

/* Is a shard of that extent, whose first class is `begin`, within those of `vocab`, which `name` says? */
tigon_status tigon_check_shard(tigon_context *context, tigon_dim of, int64_t begin, const char *name, int64_t vocab);

/* Tokens of sequences: of those that `segments` cut, or without them of a padded batch [S, T, ..]. */
typedef struct tigon_sequences {
  int64_t count, tokens, length; /* length: of each sequence of a padded batch */
  tigon_vector segments;         /* [count + 1] */
  const char *tokens_name;       /* what `tokens` is, for sentences */
  const char *count_name;        /* what `count` is */
} tigon_sequences;
/* Fills count and, with segments, what they cut; `padded` is looked at without them. */
tigon_status tigon_check_sequences(tigon_context *context, const tigon_tensor *segments, const tigon_tensor *padded,
                                   tigon_sequences *of);
/* Refuses segments that are out of order, which only a host device looks at before the call. */
tigon_status tigon_check_segments(tigon_context *context, const tigon_sequences *of);
/* A vector of sequences, or of tokens. Absent is fine. */
tigon_status tigon_check_of_sequences(tigon_context *context, const char *name, const tigon_tensor *t, bool of_tokens,
                                      const tigon_sequences *of);

/* `given`, or where it is 0 `otherwise`. */
static inline float tigon_number_or(double given, double otherwise) { return (float)(given != 0 ? given : otherwise); }

/* The next `bytes` of a workspace, on lines of 64; NULL in a query. */
void *tigon_cut(char *workspace, size_t *used, size_t bytes);
/* Cuts `inverse` and, of a forward call of p->space.rows rows, the token_loss and argmax that the caller leaves out. */
void tigon_cut_loss(tigon_cross_entropy_problem *p, const tigon_cross_entropy_outputs *out, bool forward,
                    char *workspace, size_t *used);

#endif
