/* group_norm: normalisation over groups of channels, for [B, C, ...spatial].
 *
 * Forward:   per batch b and group g of C / groups channels, over all their positions:
 *            mean, rstd = 1 / sqrt(var + eps), var = mean((x - mean)^2)
 *            xhat = (x - mean) * rstd        y = xhat * w[c] + b[c]
 * Backward:  g = dy * w[c]
 *            dx = rstd * (g - mean(g) - xhat * mean(g * xhat))        means over the group
 *            dw[c] = sum over b and positions of dy * xhat            db[c] = sum of dy
 *
 * Shapes: x, y, dy, dx [B, C, ...spatial], two dimensions or more; w, b, dw, db [C]; mean, rstd [B, groups]; groups divides
 *   C.
 * dtypes: x f32, bf16, f16; y, dy, dx as x; w, b f32 or as x; dw, db f32 or as x; mean, rstd f32.
 * Strides: the spatial dimensions lie end to end. The strides of batch and channel are free, also the channel's of [B, C]. All
 *   others are contiguous.
 * Sums of a group are taken about the mean of each block of columns, so a large mean costs no digits.
 * In place: y may be x; dx may be dy or x.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE.
 * Source: Wu and He, "Group Normalization", 2018, arXiv:1803.08494. */
#ifndef TIGON_OP_GROUP_NORM_H
#define TIGON_OP_GROUP_NORM_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_group_norm_fwd_args {
  tigon_tensor x;    /* in  [B, C, ...] */
  tigon_tensor w;    /* in  [C]; absent: 1 */
  tigon_tensor b;    /* in  [C]; absent: 0 */
  tigon_tensor y;    /* out [B, C, ...] */
  tigon_tensor mean; /* out [B, groups] f32, for backward; absent: not stored */
  tigon_tensor rstd; /* out [B, groups] f32, for backward; absent: not stored */
  int64_t groups;    /* > 0 */
  double eps;        /* >= 0, finite */
  uint64_t reserved[4];
} tigon_group_norm_fwd_args;

TIGON_API tigon_status tigon_group_norm_fwd(tigon_context *context, const tigon_group_norm_fwd_args *args);

typedef struct tigon_group_norm_bwd_args {
  tigon_tensor dy;   /* in  [B, C, ...] */
  tigon_tensor x;    /* in  [B, C, ...], forward's */
  tigon_tensor w;    /* in  [C], forward's; absent: 1 */
  tigon_tensor mean; /* in  [B, groups] f32, forward's */
  tigon_tensor rstd; /* in  [B, groups] f32, forward's */
  tigon_tensor dx;   /* out [B, C, ...] */
  tigon_tensor dw;   /* out [C]; absent: not computed */
  tigon_tensor db;   /* out [C]; absent: not computed */
  int64_t groups;
  int accumulate_dw; /* 1: dw += and db += , 0: = */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_group_norm_bwd_args;

TIGON_API tigon_status tigon_group_norm_bwd(tigon_context *context, const tigon_group_norm_bwd_args *args);

/* Bytes of workspace that tigon_group_norm_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_group_norm_bwd_workspace(tigon_context *context, const tigon_group_norm_bwd_args *args,
                                                      size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
