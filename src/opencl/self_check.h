/* The self-check: at an entry's first use in a dtype, a few tiny calls on the device and by the oracle. A driver that computes them wrongly
 * is not used for that entry: not every driver's compiler is right. */
#ifndef TIGON_OPENCL_SELF_CHECK_H
#define TIGON_OPENCL_SELF_CHECK_H

#include "opencl/opencl.h"

/* OK, or DEVICE or OUT_OF_MEMORY with a sentence in queue->reason. TIGON_OPENCL_TRUST=1: OK, unchecked. */
tigon_status opencl_trust(tigon_queue *queue, int entry, tigon_dtype dtype);

/* tigon_backend.refused */
const char *opencl_refused(tigon_queue *queue, int entry, tigon_dtype dtype, bool run);

#endif
