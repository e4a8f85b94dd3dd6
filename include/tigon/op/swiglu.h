/* swiglu: the gate of a Llama MLP (Shazeer 2020, arXiv:2002.05202).
 *
 * Forward:   u = gate_mult * a        silu(u) = u / (1 + exp(-u))        c = down_mult * silu(u) * (b + up_offset)
 * Backward:  db = dc * down_mult * silu(u)
 *            da = dc * down_mult * (b + up_offset) * gate_mult * sigma(u) * (1 + u * (1 - sigma(u))),   sigma(u) = 1 / (1 + exp(-u))
 * With clamp > 0 (gpt-oss) min(a, clamp) replaces a, and min(max(b, -clamp), clamp) replaces b. A clamped element has gradient 0.
 * gpt-oss: gate_mult 1.702, down_mult 1 / 1.702, up_offset 1, clamp 7
 *
 * Shapes: a, b, c, da, db, dc [..., I]. A packed [..., 2I] tensor is passed as two views of it.
 * dtypes: f32, bf16, f16, all the same; arithmetic in f32, one rounding at the store.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h).
 * In place: c may be a or b; da, db may be a, b or dc (da and db differ).
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_SWIGLU_H
#define TIGON_OP_SWIGLU_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_swiglu_fwd_args {
  tigon_tensor a;   /* in  [..., I], the gate */
  tigon_tensor b;   /* in  [..., I], up */
  tigon_tensor c;   /* out [..., I] */
  double gate_mult; /* 0 means 1 */
  double down_mult; /* 0 means 1 */
  double clamp;     /* 0: none; else > 0 */
  double up_offset;
  uint64_t reserved[4];
} tigon_swiglu_fwd_args;

TIGON_API tigon_status tigon_swiglu_fwd(tigon_context *context, const tigon_swiglu_fwd_args *args);

typedef struct tigon_swiglu_bwd_args {
  tigon_tensor dc;  /* in  [..., I] */
  tigon_tensor a;   /* in  [..., I], forward's */
  tigon_tensor b;   /* in  [..., I], forward's */
  tigon_tensor da;  /* out [..., I] */
  tigon_tensor db;  /* out [..., I] */
  double gate_mult; /* 0 means 1 */
  double down_mult; /* 0 means 1 */
  double clamp;     /* 0: none; else > 0 */
  double up_offset;
  uint64_t reserved[4];
} tigon_swiglu_bwd_args;

TIGON_API tigon_status tigon_swiglu_bwd(tigon_context *context, const tigon_swiglu_bwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
