/* Problems of losses. */
#ifndef TIGON_PROBLEM_LOSS_H
#define TIGON_PROBLEM_LOSS_H

#include "problem/columns.h"

/* Integers of tokens, which count where they are not `ignored` and, with a limit, lie in [0, limit). A mask ignores 0, labels
 * ignore their ignore_index and are limited by the vocabulary. */
typedef struct tigon_counted {
  tigon_vector of; /* data NULL: each token counts */
  int64_t ignored, limit;
} tigon_counted;

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
  /* ROWS in backward, or in a forward of stats, can work on a panel: column v of logits is then class panel_begin + v of
   * `vocab`. Labels, weight and smoothing are those of the whole vocabulary. vocab 0: no panel. */
  int64_t panel_begin, vocab;
  int64_t smoothed; /* classes that smoothing is spread over, without weights; 0: the vocabulary */
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
  /* [rows, TIGON_VOCAB_STATS], NULL: none. Forward then writes nothing else of rows, and no dlogits; without an entropy_scale
   * its w is 0, without label_smoothing its u. */
  float *stats;
  float *z_loss, *entropy; /* [rows], may be NULL; backward with an entropy_scale has entropy */
  int64_t *argmax;         /* [rows], may be NULL (workspace when correct is wanted) */
  float *loss;             /* [1], may be NULL */
  int64_t *correct;        /* [1], may be NULL */
  int32_t *error_flag;     /* may be NULL */
  bool has_ignore_index;
  int64_t ignore_index;
  float label_smoothing, lse_square_scale, softcap; /* softcap 0: none */
  float inverse_temperature;
  float grad_scale;    /* factor of dloss */
  float entropy_scale; /* factor of dentropy; 0: the entropy has no gradient */
  tigon_reduction reduction;
} tigon_cross_entropy_problem;
typedef tigon_cross_entropy_problem tigon_cross_entropy_fwd_problem;
typedef tigon_cross_entropy_problem tigon_cross_entropy_bwd_problem;

typedef tigon_cross_entropy_problem tigon_vocab_parallel_cross_entropy_stats_problem;
typedef tigon_cross_entropy_problem tigon_vocab_parallel_cross_entropy_bwd_problem;

typedef struct tigon_vocab_parallel_cross_entropy_merge_problem {
  tigon_dtype dtype; /* f32; tests/grad: of all floats here */
  /* The labels, options and outputs of the rows, which merge's own part makes of stats; then COUNT and REDUCE. */
  tigon_cross_entropy_problem loss;
  const float *stats; /* [shards, rows, TIGON_VOCAB_STATS] */
  int64_t shards;
  int64_t rank; /* the shard whose u smoothing takes; -1: those of all */
} tigon_vocab_parallel_cross_entropy_merge_problem;

typedef struct tigon_preference_loss_fwd_problem {
  tigon_dtype dtype; /* f32; tests/grad: of all floats here */
  tigon_preference_kind kind;
  int64_t sequences, items; /* items: pairs, or for kinds of single sequences these */
  /* Where there is token_logprob, sums over its sequences come first, which logps, counts and the NLL's then point to, and the
   * gradient of tokens last. */
  const float *token_logprob; /* [tokens], may be NULL */
  tigon_counted mask;         /* [tokens] */
  tigon_vector segments;      /* [sequences + 1]; without data each sequence has `length` tokens */
  int64_t tokens, length;
  float *sums;                      /* [sequences] */
  int64_t *sums_of;                 /* [sequences], how many tokens count */
  float *dtoken_logprob;            /* [tokens] */
  const float *dloss;               /* [1], a factor of dtoken_logprob; may be NULL */
  int32_t *error_flag;              /* raised by segments out of order; may be NULL */
  const float *logps, *ref;         /* [sequences]; ref may be NULL */
  tigon_vector counts;              /* [sequences]; data may be NULL */
  tigon_vector labels;              /* [sequences], for kinds of single sequences */
  const float *shift, *denominator; /* [shifts], [1]; may be NULL */
  int64_t shifts;                   /* 1, or items */
  int64_t nll_sequences;
  const float *nll_logps;  /* [nll_sequences], may be NULL */
  tigon_vector nll_counts; /* [nll_sequences] */
  float beta, label_smoothing, gamma, tau, nll_weight;
  float weight[2];                     /* weights of an undesirable and of a desirable sequence */
  float *loss;                         /* [1] */
  float *pair_loss, *rewards, *dlogps; /* [items], [sequences], [sequences]; may be NULL, as all that follow */
  float *dnll_logps;                   /* [nll_sequences] */
  float *accuracy, *margin;            /* [1] */
} tigon_preference_loss_fwd_problem;

typedef struct tigon_policy_loss_fwd_problem {
  tigon_dtype dtype; /* f32; tests/grad: of all floats here */
  tigon_policy_kind kind;
  bool sequence_level, token_advantage, token_ratio, kl_bias_corrected;
  int64_t tokens, sequences;
  tigon_vector segments;            /* [sequences + 1] */
  int64_t length;                   /* length of each sequence, if segments has no data */
  tigon_counted mask;               /* [tokens]; data may be NULL */
  const float *logprob;             /* [tokens] */
  const float *advantage, *ratio;   /* [tokens] or [sequences]; ratio may be NULL */
  const float *old, *ref, *entropy; /* [tokens], may be NULL */
  const float *denominator;         /* [1], may be NULL */
  const float *dloss;               /* [1], a factor of both gradients; may be NULL */
  float eps_low, eps_high, delta;   /* delta: infinite without one */
  float tau[2], k[2], lambda[2];    /* by whether the advantage is above 0; for k and lambda, 0 or above */
  float kl_weight, entropy_weight;
  double max_length;
  int32_t *error_flag;                                          /* raised by segments out of order; may be NULL */
  float *loss;                                                  /* [1] */
  float *token_loss, *dlogprob, *dentropy;                      /* [tokens]; may be NULL, as all that follow */
  float *kl, *clip_low, *clip_high, *mean_entropy, *mean_ratio; /* [1] */
} tigon_policy_loss_fwd_problem;

/* What makes logits z of a head's product u: z = cap * tanh(u * scale / cap), without a cap u * scale. */
typedef struct tigon_logit_map {
  float cap, scale; /* 0: none, and 1 */
} tigon_logit_map;

/* The parts of divergence that a call runs, as those of cross_entropy; backward has no REDUCE. */
enum {
  TIGON_DIVERGENCE_COUNT = 1,
  TIGON_DIVERGENCE_ROWS = 2,
  TIGON_DIVERGENCE_REDUCE = 4, /* loss from token_loss of all rows */
  TIGON_DIVERGENCE_ALL = 7,
};

/* divergence, forward and backward. Backward reads stats. beta of jsd is neither 0 nor 1.
 * A row's loss is soft * D + hard * (log sum_v exp(x_v) - x_label). The second term is fused_linear_divergence's cross entropy. It
 * has no temperature, and its input is only logits. */
typedef struct tigon_divergence_problem {
  int parts;
  tigon_row_space space;
  int64_t cols; /* vocabulary */
  /* Columns that the target has, at most as many. Beyond them a probability is 0, as is an element for cosine. */
  int64_t target_cols;
  /* Backward can work on a panel: column v is then class panel_begin + v of `vocab`. vocab 0: no panel. */
  int64_t panel_begin, vocab;
  tigon_dtype dtype, label_dtype;
  tigon_rows input, target;
  tigon_logit_map input_map, target_map; /* maps of a head's logits, before the temperature and all else */
  tigon_rows dinput;                     /* data may be NULL */
  const void *labels;                    /* [rows], NULL: all rows count */
  bool classes;             /* labels are classes, even where hard is 0: a row with another one does not count */
  const float *token_scale; /* [rows], may be NULL */
  const float *denominator; /* [1], of mean; NULL: the number of rows that count */
  const float *dloss;       /* [1], or [rows] with reduction none; may be NULL */
  float *inverse;    /* [1] workspace: 1 / mean's denominator (0 when that is 0), else 1; COUNT writes, others read */
  float *token_loss; /* [rows] of forward: the caller's or workspace */
  float *soft_losses, *hard_losses; /* [rows] of forward: D and the cross entropy without factors; may be NULL */
  float *stats;                     /* [rows, 3], may be NULL in forward */
  float *hard_lse; /* [rows], log sum_v exp(x_v): backward reads it where hard is not 0; may be NULL in forward */
  float *loss;     /* [1], may be NULL */
  tigon_divergence_kind kind;
  tigon_distribution input_is, target_is;
  int64_t ignore_index;
  float beta;
  float inverse_temperature;
  float soft, hard; /* hard not 0: labels are classes, the input is logits */
  float grad_scale;
  tigon_reduction reduction;
} tigon_divergence_problem;
typedef tigon_divergence_problem tigon_divergence_fwd_problem;
typedef tigon_divergence_problem tigon_divergence_bwd_problem;

/* topk_divergence, forward and backward. `base` has everything except a row's k entries. Its target is [rows, k]. input_is, cols of a
 * target and its map are ignored. `parts` is either ROWS or all. */
typedef struct tigon_topk_divergence_problem {
  tigon_dtype dtype; /* base.dtype */
  tigon_divergence_problem base;
  tigon_dtype target_dtype, id_dtype;
  tigon_rows ids; /* [rows, k] */
  int64_t k;
  bool tail;           /* p has one */
  double least_tail;   /* the least p_t of the tail */
  int32_t *error_flag; /* may be NULL */
} tigon_topk_divergence_problem;
typedef tigon_topk_divergence_problem tigon_topk_divergence_fwd_problem;
typedef tigon_topk_divergence_problem tigon_topk_divergence_bwd_problem;

#endif
