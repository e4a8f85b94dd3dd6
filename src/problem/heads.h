/* Problems over heads: rope and attention. */
#ifndef TIGON_PROBLEM_HEADS_H
#define TIGON_PROBLEM_HEADS_H

#include <stdbool.h>
#include <tigon/tigon.h>

#include "core/rope_axes.h"
#include "problem/columns.h"

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
  int64_t table_step; /* elements from one pair's cos to the next: 1, or 2 of complex numbers */
  int64_t table_axis_pitch, table_batch_pitch; /* elements, 0 where axes or the batch share a table */
  int64_t table_pitch, table_rows;
  const void *positions;                       /* may be NULL: token t is at row t */
  int64_t position_axis_pitch, position_pitch; /* elements from an axis's ids to the next's, and from a sequence's */
  int32_t *error_flag;                         /* may be NULL */
  tigon_rope_layout layout;
  int axes;                                   /* 1 or 3 */
  tigon_rope_pairs pairs_of[TIGON_ROPE_AXES]; /* those of height and width */
} tigon_rope_problem;
typedef tigon_rope_problem tigon_rope_fwd_problem;
typedef tigon_rope_problem tigon_rope_bwd_problem;

/* What cuts attention's rows into parts (core/attention_part.h). */
typedef struct tigon_attention_cuts {
  int64_t tokens, keys;    /* all rows */
  tigon_vector cu_q, cu_k; /* [segments + 1]; data NULL: one segment has all rows */
  int64_t segments;
  int64_t dilation; /* >= 1 */
} tigon_attention_cuts;

/* Is there more than one part? */
TIGON_SHARED bool tigon_attention_is_cut(const tigon_attention_cuts *c) { return c->cu_q.data || c->dilation > 1; }

typedef struct tigon_attention_fwd_problem {
  int64_t batch, tokens, keys, head_dim; /* T queries, S keys */
  tigon_attention_cuts cuts;
  tigon_dtype dtype;
  tigon_heads q, k, v, o;
  float *lse;           /* [batch, q.heads, tokens], may be NULL */
  tigon_vector sinks;   /* [q.heads], data may be NULL */
  float scale, softcap; /* 0: no softcap */
  bool causal, exact;   /* exact: weights are not rounded to the dtype */
  int64_t window;       /* 0: all */
} tigon_attention_fwd_problem;

typedef struct tigon_attention_bwd_problem {
  int64_t batch, tokens, keys, head_dim;
  tigon_attention_cuts cuts;
  tigon_dtype dtype;
  tigon_heads q, k, v, o, d_o, dq, dk, dv;
  const float *lse;           /* [batch, q.heads, tokens] */
  float *delta;               /* [batch, q.heads, tokens] workspace: do . o */
  void *own;                  /* workspace of the slot; NULL: it wants none */
  tigon_vector sinks, dsinks; /* [q.heads]; data may be NULL, that of sinks unless dsinks is wanted */
  float scale, softcap;
  bool causal, exact;
  int64_t window;
} tigon_attention_bwd_problem;

#endif
