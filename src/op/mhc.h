/* What the fronts of hyper-connections share. */
#ifndef TIGON_OP_MHC_H
#define TIGON_OP_MHC_H

#include <inttypes.h>

#include "op/front.h"

/* The last two extents of a tensor [..., streams, channels], within their limits. */
static inline tigon_status tigon_mhc_check(tigon_context *context, const char *name, const tigon_tensor *t,
                                           int64_t *streams, int64_t *channels) {
  const int dim = t->ndim - 2;
  *streams = t->shape[dim], *channels = t->shape[dim + 1];
  if (*streams < 1 || *streams > TIGON_MHC_STREAMS)
    return tigon_refuse(context, "%s.shape[%d] is %" PRId64 ", must be 1 to %d", name, dim, *streams,
                        TIGON_MHC_STREAMS);
  if (*channels > 0) return TIGON_OK;
  return tigon_refuse(context, "%s.shape[%d] is 0, must be 1 or more", name, dim + 1);
}

#endif
