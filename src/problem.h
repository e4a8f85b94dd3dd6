/* What a front hands to a kernel: one small struct per slot, already checked and collapsed. Pitches count elements. A
 * pointer that may be NULL says so; the others are set whenever there are rows and columns. */
#ifndef TIGON_PROBLEM_H
#define TIGON_PROBLEM_H

#include "problem/map.h"

/* rms_norm, fused_add_rms_norm, layer_norm and modulated_rms_norm, forward. */
typedef struct tigon_norm_fwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype, w_dtype, b_dtype;
  tigon_rows x;
  tigon_rows residual, s; /* fused_add only */
  tigon_rows y;
  const void *w; /* [cols], may be NULL */
  const void *b; /* [cols], layer_norm only, may be NULL */
  float *rstd;   /* [rows], may be NULL */
  float *mean;   /* [rows], layer_norm only, may be NULL */
  float eps, w_offset;
  tigon_casting casting; /* layer_norm: gemma */
  /* modulated only: row r takes row r / share of scale and shift, which have groups.rows; shift's data may be NULL */
  tigon_row_space groups;
  int64_t share;
  tigon_dtype scale_dtype, shift_dtype;
  tigon_rows scale, shift;
} tigon_norm_fwd_problem;
typedef tigon_norm_fwd_problem tigon_rms_norm_fwd_problem;
typedef tigon_norm_fwd_problem tigon_fused_add_rms_norm_fwd_problem;
typedef tigon_norm_fwd_problem tigon_layer_norm_fwd_problem;
typedef tigon_norm_fwd_problem tigon_modulated_rms_norm_fwd_problem;

/* The same, backward; x is the normalised input (s of fused_add). */
typedef struct tigon_norm_bwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype, w_dtype, dw_dtype, db_dtype;
  tigon_rows dy, x, dx;
  tigon_rows ds;     /* fused_add only; data may be NULL */
  const void *w;     /* [cols], may be NULL */
  const float *rstd; /* [rows] */
  const float *mean; /* [rows], layer_norm only */
  void *dw;          /* [cols], may be NULL */
  void *db;          /* [cols], layer_norm only, may be NULL */
  float *slabs;      /* [slabs, column sums, cols] workspace, when there is one */
  float w_offset;
  tigon_casting casting;
  bool accumulate_dw; /* and db */
  /* modulated only, as forward; dscale, dshift: data may be NULL */
  tigon_row_space groups;
  int64_t share;
  tigon_dtype scale_dtype, dscale_dtype, dshift_dtype;
  tigon_rows scale, dscale, dshift;
  bool accumulate_dscale; /* and dshift */
} tigon_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_rms_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_fused_add_rms_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_layer_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_modulated_rms_norm_bwd_problem;

/* [batch, channel] runs of contiguous elements; pitches count elements. */
typedef struct tigon_planes {
  void *data;
  int64_t batch_pitch, channel_pitch;
} tigon_planes;

TIGON_SHARED void *tigon_plane(const tigon_planes *t, size_t element_bytes, int64_t batch, int64_t channel) {
  return (char *)t->data + (batch * t->batch_pitch + channel * t->channel_pitch) * (int64_t)element_bytes;
}

/* Group g has channels g * channels .. (g + 1) * channels - 1, of `run` elements each. */
typedef struct tigon_group_norm_fwd_problem {
  int64_t batch, groups, channels, run;
  tigon_dtype dtype, w_dtype, b_dtype;
  tigon_planes x, y;
  const void *w, *b;  /* [groups * channels], may be NULL */
  float *mean, *rstd; /* [batch, groups], may be NULL */
  float eps;
} tigon_group_norm_fwd_problem;

typedef struct tigon_group_norm_bwd_problem {
  int64_t batch, groups, channels, run;
  tigon_dtype dtype, w_dtype, dw_dtype, db_dtype;
  tigon_planes dy, x, dx;
  const void *w;            /* [groups * channels], may be NULL */
  const float *mean, *rstd; /* [batch, groups] */
  void *dw, *db;            /* [groups * channels], may be NULL */
  float *slabs;             /* [slabs, 2, groups * channels] workspace: dw, db */
  bool accumulate;          /* into dw and db */
} tigon_group_norm_bwd_problem;

/* One [batch, tokens, heads, head_dim] tensor in memory of any strides. */
typedef struct tigon_heads {
  void *data;
  int64_t heads;
  int64_t batch_pitch, token_pitch, head_pitch;
} tigon_heads;

TIGON_SHARED void *tigon_head(const tigon_heads *t, size_t element_bytes, int64_t batch, int64_t token, int64_t head) {
  return (char *)t->data +
         (batch * t->batch_pitch + token * t->token_pitch + head * t->head_pitch) * (int64_t)element_bytes;
}

typedef struct tigon_rope_problem {
  int64_t batch, tokens, head_dim, rotary_dim;
  tigon_dtype dtype, table_dtype, position_dtype;
  tigon_heads q, k, q_out, k_out; /* k, k_out: data may be NULL */
  const void *cos, *sin;
  int64_t table_batch_pitch, table_pitch, table_rows; /* elements; batch pitch 0 when the batch shares a table */
  const void *positions;                              /* may be NULL: token t is at row t */
  int64_t position_pitch;                             /* elements from one sequence's ids to the next, 0 when shared */
  int32_t *error_flag;                                /* may be NULL */
  tigon_rope_layout layout;
} tigon_rope_problem;
typedef tigon_rope_problem tigon_rope_fwd_problem;
typedef tigon_rope_problem tigon_rope_bwd_problem;

typedef struct tigon_embedding_fwd_problem {
  tigon_row_space space; /* of y */
  int64_t cols, vocab;
  tigon_dtype dtype, idx_dtype;
  const void *table;
  int64_t table_pitch;
  const void *idx; /* [rows] */
  tigon_rows y;
  int32_t *error_flag; /* may be NULL */
} tigon_embedding_fwd_problem;

typedef struct tigon_embedding_bwd_problem {
  tigon_row_space space; /* of dy */
  int64_t cols, vocab;
  tigon_dtype dtype, idx_dtype, dtable_dtype;
  tigon_rows dy;
  const void *idx;     /* [rows] */
  void *dtable;        /* [vocab, cols] */
  int64_t padding_idx; /* -1: none */
  int64_t *order;      /* workspace of the sort by index, where a backend sorts so */
  int32_t *error_flag; /* may be NULL */
  bool accumulate;
} tigon_embedding_bwd_problem;

typedef struct tigon_softmax_fwd_problem {
  tigon_row_space space;
  int64_t cols, tokens; /* row r is query r % tokens */
  tigon_dtype dtype, mask_dtype;
  tigon_rows x, y;
  tigon_rows mask; /* rows of x's row space (pitches of broadcast dimensions are 0); data may be NULL */
  float scale;
  bool causal;
} tigon_softmax_fwd_problem;

typedef struct tigon_softmax_bwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows dy, y, dx;
  float scale;
} tigon_softmax_bwd_problem;

typedef struct tigon_attention_fwd_problem {
  int64_t batch, tokens, keys, head_dim; /* T queries, S keys */
  tigon_dtype dtype;
  tigon_heads q, k, v, o;
  float *lse; /* [batch, q.heads, tokens], may be NULL */
  float scale;
  bool causal;
  int64_t window; /* 0: all */
} tigon_attention_fwd_problem;

typedef struct tigon_attention_bwd_problem {
  int64_t batch, tokens, keys, head_dim;
  tigon_dtype dtype;
  tigon_heads q, k, v, o, d_o, dq, dk, dv;
  const float *lse; /* [batch, q.heads, tokens] */
  float *delta;     /* [batch, q.heads, tokens] workspace: do . o */
  float *dq_sums;   /* [batch, q.heads, tokens, head_dim] workspace: dq in f32; NULL when dq is f32 anyway, and where a
                       backend's memory is not the host's */
  float scale;
  bool causal;
  int64_t window;
} tigon_attention_bwd_problem;

/* The first and one past the last key that query t of T sees among S keys. */
TIGON_SHARED void tigon_attention_span(int64_t tokens, int64_t keys, bool causal, int64_t window, int64_t t,
                                       int64_t *begin, int64_t *end) {
  const int64_t at = t + keys - tokens;
  int64_t first = window > 0 ? at - window + 1 : 0, last = causal ? at : window > 0 ? at + window - 1 : keys - 1;
  if (first < 0) first = 0;
  if (last > keys - 1) last = keys - 1;
  *begin = first;
  *end = last + 1 > first ? last + 1 : first;
}

/* The parts of cross_entropy that a call runs: the op runs all, fused_linear_cross_entropy runs ROWS once a chunk. */
enum {
  TIGON_CROSS_ENTROPY_COUNT = 1,  /* inverse, and the error flag, from the labels of all rows */
  TIGON_CROSS_ENTROPY_ROWS = 2,   /* per-row outputs and dlogits */
  TIGON_CROSS_ENTROPY_REDUCE = 4, /* loss and correct from all rows */
};

/* The same struct serves forward and backward (backward: lse is an input and only dlogits is written). */
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
  const float *dloss;       /* [1], or [rows] with reduction none; may be NULL */
  float *inverse;    /* [1] workspace: 1 / denominator of mean (0 when that is 0), else 1; COUNT writes, others read */
  float *token_loss; /* [rows]: the caller's or workspace */
  float *lse;        /* [rows], may be NULL in forward */
  float *z_loss, *entropy; /* [rows], may be NULL */
  int64_t *argmax;         /* [rows], may be NULL (workspace when correct is wanted) */
  float *loss;             /* [1], may be NULL */
  int64_t *correct;        /* [1], may be NULL */
  int32_t *error_flag;     /* may be NULL */
  bool has_ignore_index;
  int64_t ignore_index;
  float label_smoothing, lse_square_scale, softcap; /* softcap 0: none */
  float inverse_temperature;
  float grad_scale;
  tigon_reduction reduction;
} tigon_cross_entropy_problem;
typedef tigon_cross_entropy_problem tigon_cross_entropy_fwd_problem;
typedef tigon_cross_entropy_problem tigon_cross_entropy_bwd_problem;

TIGON_SHARED int64_t tigon_cross_entropy_vocab(const tigon_cross_entropy_problem *p) {
  return p->vocab ? p->vocab : p->cols;
}

/* Row r's label; -1 when the row does not count: ignored or, which *out_of_range then says, outside the vocabulary. */
TIGON_SHARED int64_t tigon_cross_entropy_label(const tigon_cross_entropy_problem *p, int64_t r, bool *out_of_range) {
  const int64_t label = p->label_dtype == TIGON_I64 ? ((const int64_t *)p->labels)[r] : ((const int32_t *)p->labels)[r];
  const bool ignored = p->has_ignore_index && label == p->ignore_index;
  *out_of_range = !ignored && (label < 0 || label >= tigon_cross_entropy_vocab(p));
  return ignored || *out_of_range ? -1 : label;
}

typedef struct tigon_linear_fwd_problem {
  int64_t rows, n, k; /* y [rows, n] = x [rows, k] w[n, k]^T + b[n] */
  tigon_dtype dtype, b_dtype, y_dtype;
  const void *x, *w, *b; /* b may be NULL */
  void *y;
  int64_t x_pitch, w_pitch, y_pitch;
} tigon_linear_fwd_problem;

/* With rows = 0, dw and db are their sums' rounding (below), 0 without sums. */
typedef struct tigon_linear_bwd_problem {
  int64_t rows, n, k;
  tigon_dtype dtype, dy_dtype, dw_dtype, db_dtype;
  const void *dy, *x, *w;
  void *dx, *dw, *db; /* each may be NULL */
  int64_t dy_pitch, x_pitch, w_pitch, dx_pitch, dw_pitch;
  const float *dw_sums, *db_sums; /* [n, k] contiguous, [n]: added in f32 before dw and db are rounded; may be NULL */
  void *workspace;
  size_t workspace_bytes;
  bool accumulate;
} tigon_linear_bwd_problem;

typedef struct tigon_adamw_step_problem {
  const tigon_adamw_param *params; /* [count] */
  int64_t count;
  const float *clip_factor; /* may be NULL */
  double lr, beta1, beta2, eps;
  double correction1, correction2; /* 1 - beta^step */
} tigon_adamw_step_problem;

typedef struct tigon_adamw_clip_problem {
  const tigon_tensor *grads; /* [count] */
  int64_t count;
  double max_norm;
  float *norm, *factor;
  double *partials; /* [TIGON_ADAMW_PARTIALS] workspace */
} tigon_adamw_clip_problem;

/* Partial sums of the gradient norm, a fixed number so that the bits do not depend on the threads. */
enum { TIGON_ADAMW_PARTIALS = 256 };

#endif
