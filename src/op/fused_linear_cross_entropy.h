/* The inside of fused_linear_cross_entropy and linear_logprob: what is laid out, and what works it off. */
#ifndef TIGON_OP_FUSED_LINEAR_CROSS_ENTROPY_INSIDE_H
#define TIGON_OP_FUSED_LINEAR_CROSS_ENTROPY_INSIDE_H

#include <tigon/op/fused_linear_cross_entropy.h>

#include "core/labels.h"
#include "op/loss.h"

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
  char *rounded;  /* the same of dlogits in hidden's dtype, where logits are wider */
  char *gathered; /* [rows, width]: hidden, later dhidden, of rows that do not lie together */
} chunk_space;

/* What linear_logprob has besides the arguments of fused_linear_cross_entropy. */
typedef struct head_more {
  bool negated; /* token_loss is the log-probability */
  bool knows;   /* lse and entropy are inputs */
  char *cache;  /* logits of the first rows that are not skipped, [cached, vocab]; made where they are not known */
  int64_t cached, cache_pitch;
} head_more;

typedef struct fused {
  tigon_context *context;
  head_more more;
  bool in_place; /* dhidden is hidden */
  int64_t rows, width, vocab;
  tigon_dtype dtype;                /* of hidden and weight; logits have the loss's */
  bool rounds;                      /* dlogits, of wider logits, before products */
  tigon_linear_fwd_problem product; /* hidden, weight and bias, of all rows and classes; y is a chunk's */
  void *dhidden;                    /* NULL: not wanted */
  int64_t dhidden_pitch;
  gradient dweight, dbias;
  tigon_cross_entropy_problem loss; /* of all rows */
  /* Where the host reads labels, rows that do not count are skipped. */
  bool skips;
  int64_t kept; /* rows that are not skipped */
  /* The schedule. */
  chunk_space whole; /* chunks of whole rows */
  int64_t panel;     /* columns of a panel, whose logits are made again; 0: no panels */
  chunk_space part;  /* chunks of a panel's columns */
  int64_t park_cols; /* of a panel of them */
  char *park; /* the first panel, [parked, park_cols]; each other one lies where its predecessor's dweight will */
  /* The chunk at work. */
  const chunk_space *space;
  const void *x; /* its hidden */
  int64_t x_pitch;
} fused;

static inline bool counts(const fused *f, int64_t r) {
  bool out_of_range;
  return !f->skips || f->context->queue.record || tigon_cross_entropy_label(&f->loss, r, &out_of_range) >= 0;
}

/* The rest of a call whose description holds. With `least` or `good` only the query of its workspace. */
tigon_status tigon_head_call(tigon_context *context, const tigon_fused_linear_cross_entropy_args *a, bool forward,
                             const head_more *more, size_t *least, size_t *good);
tigon_status tigon_head_run(fused *f);

#endif
