/* What fronts share. A front checks everything, collapses the call to a problem and calls the slot. It
 * names no backend. */
#ifndef TIGON_OP_FRONT_H
#define TIGON_OP_FRONT_H

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "core/check.h"
#include "core/context.h"
#include "core/caller_state.h"

#define TIGON_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* The last extent of a present tensor. */
static inline int64_t tigon_last_extent(const tigon_tensor *tensor) { return tensor->shape[tensor->ndim - 1]; }

/* The checks that the norms share; x_name names the normalised input. b, mean, dw and db may be NULL. src/op/rms_norm.c. */
typedef struct tigon_norm_args {
  const char *call, *x_name;
  const tigon_tensor *x, *w, *b, *mean, *rstd, *dw, *db;
  double eps, w_offset;
  tigon_casting casting;
  int accumulate_dw; /* of dw and db */
} tigon_norm_args;
tigon_status tigon_check_norm(tigon_context *context, const tigon_norm_args *args);

/* tigon_check_args(), and every argument has the shape and dtype of `like`, which is one of them. src/op/swiglu.c. */
tigon_status tigon_check_alike(tigon_context *context, const char *call, tigon_arg *list, int count, const char *name,
                               const tigon_tensor *like);

/* Arguments of swiglu and geglu, which may be views of one packed tensor; *p gets shape, dtype and rows.
 * src/op/swiglu.c. */
tigon_status tigon_check_gate_fwd(tigon_context *context, const char *call, tigon_tensor *a, tigon_tensor *b,
                                  tigon_tensor *c, tigon_gate_fwd_problem *p);
tigon_status tigon_check_gate_bwd(tigon_context *context, const char *call, tigon_tensor *dc, tigon_tensor *a,
                                  tigon_tensor *b, tigon_tensor *da, tigon_tensor *db, tigon_gate_bwd_problem *p);

/* What cross_entropy and fused_linear_cross_entropy check alike. src/op/cross_entropy.c. */
typedef struct tigon_loss_args {
  const char *call;
  bool forward;
  const char *rows_name; /* of the tensor whose rows count: "logits" */
  const tigon_tensor *rows_of;
  tigon_dim vocab;
  const tigon_tensor *labels, *dloss;
  const tigon_cross_entropy_options *options;
  const tigon_cross_entropy_outputs *out;
  double grad_scale;
} tigon_loss_args;
/* Options and outputs as arguments for tigon_check_args(), all optional; returns how many (10). */
int tigon_loss_list(tigon_cross_entropy_options *options, tigon_cross_entropy_outputs *out, tigon_arg *to);
/* Numbers, presence and shapes; *p is filled but for parts, dtype, space, logits, dlogits, inverse and error_flag. */
tigon_status tigon_check_loss(tigon_context *context, const tigon_loss_args *args, tigon_cross_entropy_problem *p);

#endif
