/* multi_token_attention: a convolution over queries and keys mixes attention weights (Golovneva et al. 2025, arXiv:2504.00927).
 *
 * In scores s [L, L] a query is a row i and a key is a column j. Both masks are causal: elements with j > i count as exact zeros, and
 * are not read. norm() is softmax over the keys j <= i of a row, or with `sparse` sparsemax (op/sparsemax.h).
 *   conv(u)[co, i, j] = sum over ci, a, b of weight[co, ci, a, b] * u[ci, i * stride_h - padding_h + a * dilation_h,
 *                                                                        j * stride_w - padding_w + b * dilation_w]
 * with u 0 outside of [L, L], and ci the channels of co's group.
 * Forward:
 *   place TIGON_MTA_POST:  o = conv(norm(s)) + bias for j <= i, else 0
 *   place TIGON_MTA_PRE:   o = norm(conv(s)) for j <= i, else 0, with norm over the keys j <= i of conv's own rows
 * Backward, with do 0 for j > i, conv' the transpose of conv, and q the gradient of what norm() returns:
 *   POST: q = conv'(do)        ds = norm'(q)            dweight = correlation of norm(s) with do    dbias = sum of do
 *   PRE:  q = do               ds = conv'(norm'(q))     dweight = correlation of s with norm'(q)
 *   norm'(q) = p * (q - sum of p * q) for softmax. For sparsemax it is q less its mean over the keys with p > 0, on these keys, and
 *   0 on the others.
 *   ds is 0 for j > i.
 * For each row only `stat` is kept: log(sum of exp) for softmax, tau for sparsemax. Backward makes p again from the scores and stat.
 * stat is rounded to f32, which costs p an error of 2^-24 |stat|, relative for softmax and absolute for sparsemax. A bias before
 * norm() would change nothing, and is refused.
 * Special values: a row of norm() whose allowed scores are all -inf is 0. A NaN or +inf among them makes all its p NaN. Such a row
 * reaches only rows of o and ds whose window touches it. Padding and masked scores are zeros, and each tap multiplies them. So a NaN
 * weight makes all its channels NaN, and an Inf weight makes NaN where it meets a zero. The same holds in backward where a tap meets
 * no o.
 *
 * Shapes: scores, dscores [B, Cin, L, L]; weight, dweight [Cout, Cin / groups, kh, kw], kh and kw 1 to 64; bias, dbias [Cout];
 * o, do [B, Cout, Lh, Lw], Lh = floor((L + 2 * padding_h - (kh - 1) * dilation_h - 1) / stride_h) + 1, which is 1 or more unless L is
 * 0, and Lw in the same way; stat [B, Cin, L] with POST, [B, Cout, Lh] with PRE. groups divides Cin and Cout. Paddings are at most
 * (k - 1) * dilation, so each window has an element that is no padding.
 * dtypes: scores f32, bf16, f16; o, do, dscores as scores; weight f32, bf16 or f16, whatever scores have; bias, dweight, dbias f32 or
 * as weight; stat f32. Arithmetic in f32, one rounding at the store. dweight and dbias add up in a fixed order.
 * Strides: the last one of scores, o, do, dscores is 1, their leading ones are free (three at most: tigon.h); the others contiguous.
 * In place: nothing; any overlap with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_MULTI_TOKEN_ATTENTION_H
#define TIGON_OP_MULTI_TOKEN_ATTENTION_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the convolution is. */
typedef enum tigon_mta_place {
  TIGON_MTA_POST = 0, /* after softmax or sparsemax */
  TIGON_MTA_PRE = 1,  /* before it */
} tigon_mta_place;

typedef struct tigon_multi_token_attention_fwd_args {
  tigon_tensor scores;   /* in  [B, Cin, L, L] */
  tigon_tensor weight;   /* in  [Cout, Cin / groups, kh, kw] */
  tigon_tensor bias;     /* in  [Cout]; may be absent, and is with PRE */
  tigon_tensor o;        /* out [B, Cout, Lh, Lw] */
  tigon_tensor stat;     /* out [B, Cin, L], or [B, Cout, Lh] with PRE; absent: not stored */
  tigon_mta_place place; /* TIGON_MTA_POST or TIGON_MTA_PRE */
  int sparse;            /* 1: sparsemax, 0: softmax */
  int64_t groups;        /* 0: 1, as of strides and dilations */
  int64_t stride_h;
  int64_t stride_w;
  int64_t padding_h;
  int64_t padding_w;
  int64_t dilation_h;
  int64_t dilation_w;
  void *workspace; /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_multi_token_attention_fwd_args;

TIGON_API tigon_status tigon_multi_token_attention_fwd(tigon_context *context,
                                                       const tigon_multi_token_attention_fwd_args *args);

/* Bytes of workspace that tigon_multi_token_attention_fwd() needs for these arguments (data and workspace are not read). */
TIGON_API tigon_status tigon_multi_token_attention_fwd_workspace(tigon_context *context,
                                                                 const tigon_multi_token_attention_fwd_args *args,
                                                                 size_t *bytes);

typedef struct tigon_multi_token_attention_bwd_args {
  tigon_tensor d_o;      /* in  [B, Cout, Lh, Lw], the gradient of o */
  tigon_tensor scores;   /* in  [B, Cin, L, L], forward's */
  tigon_tensor weight;   /* in  [Cout, Cin / groups, kh, kw], forward's */
  tigon_tensor stat;     /* in  forward's */
  tigon_tensor dscores;  /* out [B, Cin, L, L] */
  tigon_tensor dweight;  /* out [Cout, Cin / groups, kh, kw]; absent: not computed, as dbias */
  tigon_tensor dbias;    /* out [Cout]; absent with PRE */
  tigon_mta_place place; /* forward's, as all below */
  int sparse;
  int64_t groups;
  int64_t stride_h;
  int64_t stride_w;
  int64_t padding_h;
  int64_t padding_w;
  int64_t dilation_h;
  int64_t dilation_w;
  int accumulate_dweight; /* 1: dweight and dbias +=, 0: = */
  void *workspace;        /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_multi_token_attention_bwd_args;

TIGON_API tigon_status tigon_multi_token_attention_bwd(tigon_context *context,
                                                       const tigon_multi_token_attention_bwd_args *args);

/* Bytes of workspace that tigon_multi_token_attention_bwd() needs for these arguments (data and workspace are not read). */
TIGON_API tigon_status tigon_multi_token_attention_bwd_workspace(tigon_context *context,
                                                                 const tigon_multi_token_attention_bwd_args *args,
                                                                 size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
