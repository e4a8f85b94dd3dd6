/* Problems of losses. */
#ifndef TIGON_PROBLEM_LOSS_H
#define TIGON_PROBLEM_LOSS_H

#include "problem/rows.h"

/* The parts of cross_entropy that a call runs: the op runs all, fused_linear_cross_entropy runs ROWS once a chunk. */
enum {
  TIGON_CROSS_ENTROPY_COUNT = 1,  /* inverse, and the error flag, from the labels of all rows */
  TIGON_CROSS_ENTROPY_ROWS = 2,   /* per-row outputs and dlogits */
  TIGON_CROSS_ENTROPY_REDUCE = 4, /* loss and correct from all rows */
};

/* The same struct serves forward and backward (backward: lse and entropy are inputs and only dlogits is written). */
typedef struct tigon_cross_entropy_problem {
  int parts;
  tigon_row_space space;
  int64_t cols; /* vocabulary */
  /* ROWS in backward alone can work on a panel: column v of logits is then class panel_begin + v of `vocab`. Labels,
   * weight and smoothing are those of the whole vocabulary. vocab 0: no panel. */
  int64_t panel_begin, vocab;
  tigon_dtype dtype, label_dtype;
  tigon_rows logits;
  tigon_rows dlogits;       /* data may be NULL */
  const void *labels;       /* [rows] */
  const float *weight;      /* [cols], may be NULL */
  const float *token_scale; /* [rows], may be NULL */
  const float *denominator; /* [1], of mean; NULL: the weights of the rows that count */
  const float *dloss;       /* [1], or [rows] with reduction none; may be NULL */
  const float *dentropy;    /* [rows]; NULL: 1 */
  float *inverse;    /* [1] workspace: 1 / denominator of mean (0 when that is 0), else 1; COUNT writes, others read */
  float *token_loss; /* [rows]: the caller's or workspace */
  bool negated;      /* token_loss is minus the loss: the log-probability of the label */
  float *lse;        /* [rows], may be NULL in forward */
  float *z_loss, *entropy; /* [rows], may be NULL; backward with an entropy_scale has entropy */
  int64_t *argmax;         /* [rows], may be NULL (workspace when correct is wanted) */
  float *loss;             /* [1], may be NULL */
  int64_t *correct;        /* [1], may be NULL */
  int32_t *error_flag;     /* may be NULL */
  bool has_ignore_index;
  int64_t ignore_index;
  float label_smoothing, lse_square_scale, softcap; /* softcap 0: none */
  float inverse_temperature;
  float grad_scale;    /* of dloss */
  float entropy_scale; /* of dentropy; 0: the entropy has no gradient */
  tigon_reduction reduction;
} tigon_cross_entropy_problem;
typedef tigon_cross_entropy_problem tigon_cross_entropy_fwd_problem;
typedef tigon_cross_entropy_problem tigon_cross_entropy_bwd_problem;

#endif
