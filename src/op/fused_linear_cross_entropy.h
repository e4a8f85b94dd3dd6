/* The inside of fused_linear_cross_entropy and linear_logprob: what is laid out, and what works it off. */
#ifndef TIGON_OP_FUSED_LINEAR_CROSS_ENTROPY_INSIDE_H
#define TIGON_OP_FUSED_LINEAR_CROSS_ENTROPY_INSIDE_H

#include <tigon/op/fused_linear_cross_entropy.h>

#include "core/labels.h"
#include "op/loss.h"

/* Fields that heads have alike. */
#define HEAD_TENSORS                                                                                           \
  IN(hidden, "*h", SAME, ROWS), IN(weight, "vh", SAME_GIVES_SECOND, ROWS), MAY(bias, "v", SAME_OR_F32, DENSE), \
      IN(labels, "@", INDEX('v'), DENSE)
#define HEAD_GRADIENTS                                                                       \
  WANT(dhidden, "*h", SAME, ROWS, "hidden"), WANT(dweight, "vh", SECOND_OR_F32, ROWS, NULL), \
      WANT(dbias, "v", SECOND_OR_F32, DENSE, NULL)
#define HEAD_NUMBERS                                                                                      \
  FLAG(has_ignore_index), ANY(ignore_index), OR_ZERO(softcap), OR_ZERO(temperature), FLAG(softcap_first), \
      FLAG(logits_in_f32)

/* Their part of the arguments of tigon_head_call(); a query has no workspace. */
typedef tigon_fused_linear_cross_entropy_args head_args;
#define HEAD_ARGS(query)                                                          \
  .hidden = a->hidden, .weight = a->weight, .bias = a->bias, .labels = a->labels, \
  .options = {.has_ignore_index = a->has_ignore_index,                            \
              .ignore_index = a->ignore_index,                                    \
              .softcap = a->softcap,                                              \
              .temperature = a->temperature,                                      \
              .softcap_first = a->softcap_first,                                  \
              .reduction = TIGON_REDUCTION_NONE},                                 \
  .logits_in_f32 = a->logits_in_f32, .workspace = (query) ? NULL : a->workspace, .workspace_bytes = a->workspace_bytes
#define HEAD_GRADIENT_ARGS \
  .dhidden = a->dhidden, .dweight = a->dweight, .dbias = a->dbias, .accumulate_dweight = a->accumulate_dweight

/* dweight or dbias. */
typedef struct gradient {
  void *out; /* NULL: not wanted */
  tigon_dtype dtype;
  int64_t pitch;
  bool accumulate; /* the caller's */
  float *sums;     /* f32 sums of a 16-bit gradient, NULL: straight into `out` */
  bool begun;      /* a chunk is in it */
} gradient;

/* Where chunks of up to `rows` rows are worked off. */
typedef struct chunk_space {
  int64_t rows;
  char *logits;   /* [rows, columns] */
  char *rounded;  /* the same: a teacher's logits, later dlogits in hidden's dtype where logits are wider */
  char *gathered; /* [rows, width]: hidden, later dhidden, of rows that do not lie together */
} chunk_space;

typedef struct fused fused;

/* A loss of all tokens' log-probabilities and entropies, f->loss.token_loss and .entropy. It writes their gradients,
 * f->dlogprob and, with `dentropy`, f->dentropy. It runs over all tokens once a group of them has its statistics: the
 * group's gradients are right then, and after the last group all numbers are. */
typedef struct head_middle {
  tigon_status (*run)(const fused *f, const void *problem);
  const void *problem;
  bool entropy, dentropy;
  size_t scratch; /* bytes, at f->scratch */
  /* A group is made of whole sequences, of pairs s and sequences / 2 + s of them, or, with neither, of any tokens. */
  bool of_sequences, of_pairs;
  const tigon_sequences *of;
} head_middle;

/* What takes cross_entropy's place: divergence from the logits of a teacher, or from `lists` of k entries a row. */
typedef struct head_distil {
  tigon_linear_fwd_problem teacher; /* its hidden, weight and bias; n are the classes that the student has, too */
  bool lists;
  tigon_topk_divergence_problem entries; /* all rows, [rows, k]; of base only the target is used */
  tigon_divergence_problem loss;         /* all rows; what lies in the workspace is the call's */
  bool has_soft_loss, has_hard_loss;     /* a query knows no data */
  float *soft_loss, *hard_loss;          /* [1] */
} head_distil;

/* What linear_logprob has besides the arguments of fused_linear_cross_entropy. */
typedef struct head_more {
  bool negated; /* token_loss is the log-probability */
  bool knows;   /* lse and entropy are inputs */
  char *cache;  /* logits of the first rows that are not skipped, [cached, vocab]; made where they are not known */
  int64_t cached, cache_pitch;
  /* A shard of the vocabulary: weight's classes are those from vocab_begin on of `vocab`. 0: weight has them all. */
  int64_t vocab, vocab_begin;
  float *stats;              /* [rows, TIGON_VOCAB_STATS], of a shard's forward, in place of all numbers of rows */
  const head_middle *middle; /* NULL: the loss is cross_entropy's, or divergence's */
  head_distil *distil;       /* NULL: no teacher */
} head_more;

/* Rows [begin[0], end[0]) and, of pairs, [begin[1], end[1]) behind them. */
typedef struct row_group {
  int64_t begin[2], end[2];
  int64_t count; /* rows that are not skipped */
} row_group;

struct fused {
  tigon_context *context;
  head_more more;
  bool in_place;                    /* dhidden is hidden */
  int64_t rows, width, vocab;       /* vocab: of weight */
  int64_t gathered_width;           /* columns of a row that a host gathers */
  tigon_dtype dtype;                /* dtype of hidden and weight; logits have the loss's */
  bool rounds;                      /* dlogits, of wider logits, before products */
  int64_t beside;                   /* bytes of an element of chunk_space.rounded */
  tigon_linear_fwd_problem product; /* hidden, weight and bias, of all rows and classes; y is a chunk's */
  void *dhidden;                    /* NULL: not wanted */
  int64_t dhidden_pitch;
  gradient dweight, dbias;
  tigon_cross_entropy_problem loss; /* the loss of all rows */
  float *dlogprob, *dentropy;       /* [rows], of a middle */
  char *scratch;                    /* scratch of a middle */
  /* Where the host reads labels, rows that do not count are skipped. */
  bool skips;
  int64_t kept; /* rows that are not skipped */
  /* The schedule. */
  chunk_space whole;  /* chunks of whole rows */
  int64_t panel;      /* columns of a panel, whose logits are made again; 0: no panels */
  int64_t panels_end; /* the classes before that one are in such panels */
  chunk_space part;   /* chunks of a panel's columns */
  /* Parked panels of dlogits, of [rows, park_cols] but for the last, have the classes from park_begin on; park_cols 0: there are
   * none. Each takes the room of park_folds times as many rows of dweight, and lies there before the first that is made. */
  int64_t park_cols, park_begin, park_folds;
  char *park; /* the first panel, for which dweight has no room; NULL: it has */
  /* The group and the chunk at work. */
  row_group group;
  const chunk_space *space;
  /* Pairs on a device: both sides' hidden are put together in dhidden's memory, behind those of this many rows. So is dhidden. */
  bool joins;
  int64_t joined;
  const void *x; /* the hidden of the chunk's row 0, where that and the rows that are asked for lie together */
  int64_t x_pitch;
};

/* `count` rows of [begin, end) count, the others are skipped; `first` rows before them do. */
typedef struct chunk {
  int64_t begin, end, count, first;
} chunk;

/* The chunk's logits of `cols` classes from `from` on. */
typedef struct logits {
  char *cache; /* logits of the first `cached` rows, in the caller's memory */
  char *own;   /* logits of all others, and later dlogits of all rows: [count, cols] */
  int64_t cached, pitch, from, cols;
} logits;

static inline bool counts(const fused *f, int64_t r) {
  bool out_of_range;
  if (!f->loss.labels) return true;
  return !f->skips || f->context->queue.record || tigon_cross_entropy_label(&f->loss, r, &out_of_range) >= 0;
}

/* The first class of the last parked panel. */
static inline int64_t last_parked(const fused *f) { return (f->vocab - 1) / f->park_cols * f->park_cols; }

static inline bool in_groups(const fused *f) {
  return f->more.middle && (f->more.middle->of_sequences || f->more.middle->of_pairs);
}

/* The rest of a call whose description holds. With `least` only the query of its workspace; `good` may be NULL. */
tigon_status tigon_head_call(tigon_context *context, const tigon_fused_linear_cross_entropy_args *a, bool forward,
                             const head_more *more, size_t *least, size_t *good);
tigon_status tigon_head_run(fused *f);

/* ---- fused_linear_distil.c ---- */

/* Cuts what lies in the workspace besides token_loss; `stats`: a second pass over panels may follow. */
void tigon_distil_cut(fused *f, bool stats, char *workspace, size_t *used);
tigon_status tigon_distil_check_slots(const fused *f);
void tigon_distil_clear(const fused *f, int64_t r);
/* How many of l's classes the teacher has. */
int64_t tigon_distil_classes(const fused *f, const logits *l);
/* Rows [r, r + n), the chunk's from row i on, whose gradient takes the logits' place. */
tigon_status tigon_distil_rows(const fused *f, const logits *l, int64_t r, int64_t i, int64_t n, bool backward,
                               bool gradients);
tigon_status tigon_distil_count(const fused *f);
tigon_status tigon_distil_reduce(const fused *f);

#endif
