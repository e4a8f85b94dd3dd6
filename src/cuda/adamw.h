/* What adamw's launchers and kernels agree on. The list of tensors is host memory: a launch gets some of it as its parameter, which
 * has 4 KiB. */
#ifndef TIGON_CUDA_ADAMW_H
#define TIGON_CUDA_ADAMW_H

#include "problem/lists.h"

enum {
  ADAMW_THREADS = 256,
  ADAMW_LANES = 4,                               /* elements that a thread moves at once */
  ADAMW_CHUNK = 8 * ADAMW_THREADS * ADAMW_LANES, /* elements of a block */
  ADAMW_TENSORS = 40,
  ADAMW_CLIP_THREADS = 512,
  ADAMW_CLIP_TENSORS = 128,
};

typedef struct adamw_tensor {
  void *param, *master; /* master NULL: param is its own */
  const void *grad;
  float *exp_avg, *exp_avg_sq;
  int64_t count;
  int64_t chunks;      /* chunks of this tensor and those before it in the launch */
  float decay;         /* lr * weight_decay */
  bool grad_f32, wide; /* wide: ADAMW_LANES elements of any begin on what a load of as many wants */
} adamw_tensor;

typedef struct adamw_batch {
  int tensors;
  const float *clip_factor; /* may be NULL */
  float beta1, beta2, rest1, rest2, eps;
  float rate, root; /* lr / correction1, 1 / sqrt(correction2) */
  adamw_tensor of[ADAMW_TENSORS];
} adamw_batch;

typedef struct adamw_grad {
  const void *data;
  int64_t count;
  int dtype;
  int wide; /* begins on 16 bytes */
} adamw_grad;

typedef struct adamw_clip_batch {
  int tensors;
  bool first;       /* the sums begin with this launch */
  double *partials; /* [TIGON_ADAMW_PARTIALS] */
  adamw_grad of[ADAMW_CLIP_TENSORS];
} adamw_clip_batch;

#endif
