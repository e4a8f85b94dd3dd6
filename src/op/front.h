/* What fronts share. A front checks everything, collapses the call to a problem and calls the slot. It
 * names no backend. */
#ifndef TIGON_OP_FRONT_H
#define TIGON_OP_FRONT_H

#include "core/check.h"
#include "core/context.h"
#include "core/caller_state.h"

#define TIGON_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* The last extent of a present tensor. */
static inline int64_t tigon_last_extent(const tigon_tensor *tensor) { return tensor->shape[tensor->ndim - 1]; }

/* swiglu and geglu: rows of the tensors, which may be views of one packed tensor. src/op/swiglu.c. */
tigon_status tigon_collapse_gate_fwd(tigon_context *context, const char *call, tigon_tensor *a, tigon_tensor *b,
                                     tigon_tensor *c, tigon_gate_fwd_problem *p);
tigon_status tigon_collapse_gate_bwd(tigon_context *context, const char *call, tigon_tensor *dc, tigon_tensor *a,
                                     tigon_tensor *b, tigon_tensor *da, tigon_tensor *db, tigon_gate_bwd_problem *p);

#endif
