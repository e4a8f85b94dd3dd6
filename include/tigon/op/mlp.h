/* mlp: the gated MLP of a transformer (Shazeer 2020, arXiv:2002.05202) in tiles of rows. It never stores its intermediate tensors for
 * all rows. The tiles are those of Bekman et al. 2025 (arXiv:2506.13996).
 *
 * Forward:   a = x gate^T + gate_bias          u = x up^T + up_bias
 *            c = act(a) * u                    SILU: as swiglu.h, with gate_mult, down_mult, clamp and up_offset
 *                                              GELU_TANH, GELU_ERF: as geglu.h, which has none of these four
 *            y = c down^T + down_bias
 * Backward:  dc = dy down                      da, du of a, u, dc as swiglu.h or geglu.h
 *            dx = da gate + du up
 *            ddown = dy^T c                    dgate = da^T x                    dup = du^T x
 *            ddown_bias = sum of dy            dgate_bias = sum of da            dup_bias = sum of du          over rows
 *
 * Forward keeps only x. Backward makes a, u and c of a tile again. Counted in products of rows x H x I, forward has 3 and backward
 *   8, two of which make a and u. With a cache [K, 2, I] forward stores a and u of the first K rows there, and backward reads them.
 *   If K is the number of rows, that makes 9 products in all instead of 11. K may be larger; the rest of the cache is not written.
 * Gate and up may be one packed weight. Then `gate` is [2I, H] and `gate_bias` [2I], the gate's rows first, and up is absent. Two
 *   products of each kind are then one.
 * If a gradient is absent, neither it nor what only it needs is computed. Gradients of weights and biases are sums over all rows in
 *   f32, in the order of the tiles, and rounded once.
 * Rounding: products are summed in f32. a, u, c, dc, da and du are rounded to x's dtype. So no bit of y or dx depends on the tiles
 *   or the cache, where linear's grades include batch. A sum over rows depends on their order.
 *
 * Shapes: x, y, dy, dx [..., H]; gate, dgate [I, H], without up [2I, H]; up, dup [I, H]; down, ddown [H, I]; gate_bias, dgate_bias,
 *   up_bias, dup_bias as many as gate and up have rows; down_bias, ddown_bias [H]; cache [K, 2, I]. Each of them may be 0.
 * dtypes: x f32, bf16, f16; gate, up, down, y, dy, dx, cache as x; biases f32 or as x; dgate, dup, ddown and gradients of biases f32
 *   or as x.
 * Strides: the last one is 1; leading dimensions of x, y, dy, dx must collapse to one row pitch (tigon.h); weights and their gradients
 *   any row pitch; all others contiguous.
 * Workspace: any size from the minimum up. A larger one makes larger tiles. Backward needs 3 * I elements per row of a tile. If a
 *   gradient has 16 bits and there is more than one tile, it needs f32 sums of it too. Where these do not fit, weights' gradients
 *   are made for some columns of the I at a time. a, u and dc are made once more for that: 11 products in backward instead of 8.
 * In place: nothing.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_MLP_H
#define TIGON_OP_MLP_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_mlp_act {
  TIGON_MLP_SILU = 0,
  TIGON_MLP_GELU_TANH = 1,
  TIGON_MLP_GELU_ERF = 2,
} tigon_mlp_act;

typedef struct tigon_mlp_fwd_args {
  tigon_tensor x;         /* in  [..., H] */
  tigon_tensor gate;      /* in  [I, H]; without up [2I, H] */
  tigon_tensor up;        /* in  [I, H]; absent: in gate */
  tigon_tensor down;      /* in  [H, I] */
  tigon_tensor gate_bias; /* in  [I]; without up [2I]; absent: none */
  tigon_tensor up_bias;   /* in  [I]; absent: none, and without up in gate_bias */
  tigon_tensor down_bias; /* in  [H]; absent: none */
  tigon_tensor y;         /* out [..., H] */
  tigon_tensor cache;     /* out [K, 2, I], a and u of the first rows, for backward; may be absent */
  tigon_mlp_act act;
  double gate_mult; /* this and the next three: only for SILU; 0 means 1 */
  double down_mult; /* 0 means 1 */
  double clamp;     /* 0: none; else > 0 */
  double up_offset;
  void *workspace; /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_mlp_fwd_args;

TIGON_API tigon_status tigon_mlp_fwd(tigon_context *context, const tigon_mlp_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_mlp_fwd_workspace(tigon_context *context, const tigon_mlp_fwd_args *args, size_t *minimum,
                                               size_t *recommended);

typedef struct tigon_mlp_bwd_args {
  tigon_tensor x;          /* in  [..., H], forward's, and so are all inputs but dy */
  tigon_tensor gate;       /* in  [I, H]; without up [2I, H] */
  tigon_tensor up;         /* in  [I, H]; absent: in gate */
  tigon_tensor down;       /* in  [H, I] */
  tigon_tensor gate_bias;  /* in  [I]; without up [2I]; absent: none */
  tigon_tensor up_bias;    /* in  [I]; absent: none */
  tigon_tensor cache;      /* in  [K, 2, I]; may be absent */
  tigon_tensor dy;         /* in  [..., H] */
  tigon_tensor dx;         /* out [..., H]; absent: not computed, as each output */
  tigon_tensor dgate;      /* out as gate */
  tigon_tensor dup;        /* out as up */
  tigon_tensor ddown;      /* out [H, I] */
  tigon_tensor dgate_bias; /* out, one element per row of gate */
  tigon_tensor dup_bias;   /* out [I]; without up absent */
  tigon_tensor ddown_bias; /* out [H] */
  int accumulate_dw;       /* 1: gradients of weights and biases += , 0: = */
  tigon_mlp_act act;       /* this and what follows: forward's */
  double gate_mult;
  double down_mult;
  double clamp;
  double up_offset;
  void *workspace; /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_mlp_bwd_args;

TIGON_API tigon_status tigon_mlp_bwd(tigon_context *context, const tigon_mlp_bwd_args *args);
TIGON_API tigon_status tigon_mlp_bwd_workspace(tigon_context *context, const tigon_mlp_bwd_args *args, size_t *minimum,
                                               size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
