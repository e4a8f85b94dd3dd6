/* adamw: Adam with decoupled weight decay over a list of tensors, and the factor that clips their gradients by global norm
 * (Loshchilov & Hutter 2019, arXiv:1711.05101).
 *
 * Step t >= 1, for every element, in f32, g = clip_factor * grad:
 *   m = beta1 * m + (1 - beta1) * g        v = beta2 * v + (1 - beta2) * g^2
 *   p = p - lr * (weight_decay * p + (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps))
 * p is the master copy if it is given, and param is then its rounded image. Otherwise p is param itself.
 * Clip:  norm = sqrt(sum of g^2 over all tensors)        factor = min(1, max_norm / norm)   (1 when max_norm is 0)
 *
 * Shapes: param, master, grad, exp_avg, exp_avg_sq of one list element have the same shape, contiguous; clip_factor, norm,
 *   factor [1].
 * Overlap: no output may overlap any other tensor, of its list element or of another. Grads may be the same tensor.
 * dtypes: param f32, bf16, f16; grad f32 or as param; master, exp_avg, exp_avg_sq, clip_factor, norm, factor f32.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE for clip. */
#ifndef TIGON_OP_ADAMW_H
#define TIGON_OP_ADAMW_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_adamw_param {
  tigon_tensor param;      /* in, out */
  tigon_tensor master;     /* in, out; absent: param is its own master */
  tigon_tensor grad;       /* in */
  tigon_tensor exp_avg;    /* in, out: m */
  tigon_tensor exp_avg_sq; /* in, out: v */
  double weight_decay;     /* >= 0 */
} tigon_adamw_param;

typedef struct tigon_adamw_step_args {
  const tigon_adamw_param *params; /* [count], host memory */
  int64_t count;
  tigon_tensor clip_factor; /* in [1] f32 on the device; absent: 1 */
  double lr;                /* >= 0 */
  double beta1;             /* [0, 1) */
  double beta2;             /* [0, 1) */
  double eps;               /* >= 2^-126 */
  int64_t step;             /* >= 1 */
  uint64_t reserved[4];
} tigon_adamw_step_args;

TIGON_API tigon_status tigon_adamw_step(tigon_context *context, const tigon_adamw_step_args *args);

typedef struct tigon_adamw_clip_args {
  const tigon_tensor *grads; /* in [count], host memory */
  int64_t count;
  double max_norm;     /* >= 0; 0: no clipping, only the norm */
  tigon_tensor norm;   /* out [1] f32 */
  tigon_tensor factor; /* out [1] f32 */
  void *workspace;     /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_adamw_clip_args;

TIGON_API tigon_status tigon_adamw_clip(tigon_context *context, const tigon_adamw_clip_args *args);
TIGON_API tigon_status tigon_adamw_clip_workspace(tigon_context *context, const tigon_adamw_clip_args *args,
                                                  size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
