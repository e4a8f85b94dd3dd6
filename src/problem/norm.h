/* Problems of the norms. */
#ifndef TIGON_PROBLEM_NORM_H
#define TIGON_PROBLEM_NORM_H

#include "problem/columns.h"

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
  tigon_rows z; /* the gate of rms_norm; data may be NULL */
  /* rms_norm quantised, which has no y and no rstd */
  tigon_rows q;
  float *q_scale; /* [rows] */
  tigon_dtype q_dtype;
} tigon_norm_fwd_problem;
typedef tigon_norm_fwd_problem tigon_rms_norm_fwd_problem, tigon_rms_norm_quantised_problem;
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
  tigon_rows z, dz;       /* rms_norm with a gate; data may be NULL */
} tigon_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_rms_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_fused_add_rms_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_layer_norm_bwd_problem;
typedef tigon_norm_bwd_problem tigon_modulated_rms_norm_bwd_problem;

/* poly_norm. Its vectors have one element a power, the third power first. */
enum { TIGON_POLY = 3 };
typedef struct tigon_poly_norm_problem {
  tigon_row_space space; /* without rows where there are no columns */
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows x, dy, out;     /* out: y, or dx */
  tigon_vector w, b, dw, db; /* [TIGON_POLY]; [1]; all but w may be absent */
  float *rstd;               /* [rows, TIGON_POLY]; may be NULL forward */
  void *sums;                /* workspace: what each range of rows adds to dw and db; NULL without both */
  float eps;
  bool accumulate; /* into dw and db */
} tigon_poly_norm_problem;
typedef tigon_poly_norm_problem tigon_poly_norm_fwd_problem, tigon_poly_norm_bwd_problem;

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

#endif
