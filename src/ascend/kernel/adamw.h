/* What the launcher of adamw hands to its kernels: structs of 8-byte fields. A launch takes a part of the list of tensors. */
#ifndef TIGON_ASCEND_KERNEL_ADAMW_H
#define TIGON_ASCEND_KERNEL_ADAMW_H

#include "ascend/kernel/rows.h"

enum { ADAMW_TENSORS = 16 }; /* the most tensors of a launch */

typedef struct adamw_tensor {
  gm_ptr param, master, grad, exp_avg, exp_avg_sq; /* master may be NULL; clip has grad alone */
  int64_t count, dtype, grad_dtype;
  float decay, unused; /* lr * weight_decay */
} adamw_tensor;

/* Tiles of `tile` elements are numbered across the tensors, each of which begins one; a block takes a run of them. */
typedef struct adamw_list {
  int64_t tensors, tile, tiles;
  adamw_tensor of[ADAMW_TENSORS];
} adamw_list;

typedef struct adamw_step_arguments {
  adamw_list list;
  gm_ptr clip_factor;               /* [1], may be NULL */
  float beta1, rest1, beta2, rest2; /* rest: 1 - beta */
  float rate, root, eps, unused;    /* lr / correction1, 1 / sqrt(correction2) */
} adamw_step_arguments;

/* A sum of squares is (hi + lo) * 4^exponent, so that none overflows: hi, lo, exponent and a word for nothing. */
enum { ADAMW_PARTIAL = 4 };

typedef struct adamw_squares_arguments {
  adamw_list list;
  gm_ptr partials; /* [blocks, ADAMW_PARTIAL] f32 */
  int64_t add;     /* onto what an earlier launch left there */
} adamw_squares_arguments;

typedef struct adamw_norm_arguments {
  gm_ptr partials, norm, factor;
  int64_t count; /* number of partials, ADAMW_PARTIALS at most */
  float max_norm, unused;
} adamw_norm_arguments;

void adamw_step(ub_arena *ub, const void *arguments);
void adamw_squares(ub_arena *ub, const void *arguments);
void adamw_norm(ub_arena *ub, const void *arguments);

#endif
