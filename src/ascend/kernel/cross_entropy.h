/* What the launcher of cross_entropy hands to its kernels: structs of 8-byte fields. */
#ifndef TIGON_ASCEND_KERNEL_CROSS_ENTROPY_H
#define TIGON_ASCEND_KERNEL_CROSS_ENTROPY_H

#include "ascend/kernel/logit.h"
#include "ascend/kernel/rows.h"

/* Which labels count. Where vocab is ANY_LABEL, each but ignore_index does, and all of them are as label 0. */
enum { ANY_LABEL = -1 };
typedef struct label_rule {
  int64_t dtype, vocab, has_ignore, ignore_index;
} label_rule;

/* The label as it is kept in words that were loaded; -1 when its row does not count. */
AICORE int64_t s_read_label(const label_rule *rule, ub_f32 words, int64_t i, bool *out_of_range) {
  const int64_t label = s_read_index(rule->dtype, words, i);
  const bool ignored = rule->has_ignore && label == rule->ignore_index;
  *out_of_range = !ignored && rule->vocab != ANY_LABEL && (label < 0 || label >= rule->vocab);
  return ignored || *out_of_range ? -1 : rule->vocab == ANY_LABEL ? 0 : label;
}

/* ---- the rows ---- */

/* What a split hands over, 4-byte words. */
enum {
  SPLIT_LARGEST,   /* x */
  SPLIT_REFERENCE, /* the reference of the sums */
  SPLIT_SUM,
  SPLIT_MOMENT,
  SPLIT_WEIGHTED,
  SPLIT_COLUMN, /* i32: the first of the largest x */
  SPLIT_LABEL,  /* x of the label, where it is one of the split's */
  SPLIT_WORDS,
};

/* A row of a shard's stats, as vocab_parallel_cross_entropy's header names them. */
enum { STAT_M, STAT_S, STAT_W, STAT_U, STAT_Y, STAT_WORDS };

typedef struct cross_entropy_arguments {
  walk w;
  gm_space space;
  gm_rows logits, dlogits; /* dlogits: data may be NULL */
  label_rule rule;
  gm_ptr labels;
  gm_ptr weight, token_scale, dloss;  /* f32 [vocab], [rows], [1] or [rows]; may be NULL */
  gm_ptr dentropy;                    /* [rows] f32; NULL: 1 */
  gm_ptr inverse;                     /* [1] f32, of mean alone */
  gm_ptr lse;                         /* [rows] f32: out in forward, where it may be NULL; in in backward */
  gm_ptr token_loss, z_loss, entropy; /* [rows] f32; may be NULL; entropy: as lse, of a backward with entropy_scale */
  gm_ptr argmax;                      /* [rows] i64; may be NULL */
  gm_ptr stats;                       /* [rows, STAT_WORDS] f32, in place of all other outputs; may be NULL */
  gm_ptr partials;                    /* [rows, splits, SPLIT_WORDS], when parts come apart */
  gm_ptr weight_sums;                 /* [weight_blocks, TOTAL_WORDS]: of the sum of `weight`; NULL: it is classes */
  int64_t weight_blocks, dtype, parts, forward;
  int64_t classes;     /* that smoothing is spread over */
  int64_t dloss_rows;  /* one a row */
  int64_t negated;     /* token_loss is minus the loss */
  int64_t panel_begin; /* the class of column 0 */
  float smoothing, lse_square;
  logit_map map;
  twofold keep;          /* 1 - smoothing */
  twofold share;         /* smoothing / classes */
  twofold minus;         /* keep + share: what is taken from the label's probability, over its weight */
  twofold grad;          /* grad_scale * inverse_temperature */
  twofold entropy_scale; /* the same of dentropy; 0: the entropy has no gradient */
} cross_entropy_arguments;

/* ---- what needs all rows ---- */

/* A block's total: hi, lo, and i32: rows whose argmax is their label, whether a label was out of range. */
enum { TOTAL_HI, TOTAL_LO, TOTAL_CORRECT, TOTAL_OUT_OF_RANGE, TOTAL_WORDS };

typedef struct cross_entropy_totals_arguments {
  gm_ptr values;                 /* [count] f32 to add up; NULL: the weights of the rows' labels */
  gm_ptr labels, weight, argmax; /* may be NULL; without weights each label that counts is 1 */
  gm_ptr totals;                 /* [blocks, TOTAL_WORDS] */
  int64_t count;
  label_rule rule;
} cross_entropy_totals_arguments;

/* What the totals come to; outputs may be NULL. */
typedef struct cross_entropy_join_arguments {
  gm_ptr totals;  /* [blocks, TOTAL_WORDS] */
  gm_ptr scale;   /* in [1] f32, NULL: 1 */
  gm_ptr divisor; /* in [1] f32, NULL: the total */
  gm_ptr inverse; /* out [1] f32: of mean 1 / divisor, 0 when that is 0; else 1 */
  gm_ptr loss;    /* out [1] f32: total * scale * share */
  gm_ptr correct; /* out [1] i64 */
  gm_ptr error;   /* out [1] i32, set by a label out of range */
  int64_t blocks, mean;
  float share;
  float given; /* inverse of a mean whose rows all count, which the host knows; 0: it does not */
} cross_entropy_join_arguments;

AICORE twofold s_read_total(ub_f32 totals, int64_t blocks) {
  twofold sum = {0, 0};
  for (int64_t i = 0; i < blocks; ++i)
    sum = twofold_sum(
        sum, (twofold){s_read_f32(totals, i * TOTAL_WORDS + TOTAL_HI), s_read_f32(totals, i * TOTAL_WORDS + TOTAL_LO)});
  return sum;
}

void cross_entropy_rows(ub_arena *ub, const void *arguments);
void cross_entropy_totals(ub_arena *ub, const void *arguments);
void cross_entropy_join(ub_arena *ub, const void *arguments);

#endif
