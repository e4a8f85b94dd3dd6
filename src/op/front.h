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

/* Elementwise operators: p's tensors, the inputs first, as few long rows. Empty ones have nothing to do. src/op/map.c. */
tigon_status tigon_map(tigon_context *context, const char *call, int inputs, int count,
                       const tigon_tensor *const *tensors, tigon_map_problem *p);
static inline bool tigon_map_is_empty(const tigon_map_problem *p) { return p->space.rows == 0 || p->cols == 0; }

/* Runs slot `name` of them: TIGON_RUN_MAP(context, relu_squared_bwd, &p, 2, &a.dy, &a.x, &a.dx). */
#define TIGON_RUN_MAP(context, name, p, inputs, ...)                                  \
  do {                                                                                \
    const tigon_tensor *const tensors_[] = {__VA_ARGS__};                             \
    TIGON_TRY(tigon_map(context, #name, inputs, TIGON_COUNT(tensors_), tensors_, p)); \
    if (tigon_map_is_empty(p)) return TIGON_OK;                                       \
    return TIGON_CALL_SLOT(context, name, (p)->dtype, p);                             \
  } while (0)

#endif
