/* What the environment says of Ascend parts, in place of the table and of what a device says of itself. */
#ifndef TIGON_PLAN_DEVICE_OVERRIDE_H
#define TIGON_PLAN_DEVICE_OVERRIDE_H

#include "ascend/plan/plan.h"

/* The part that TIGON_ASCEND_PART takes an NPU for ("910B4"); else `name`, which may be NULL. */
const char *tigon_ascend_part_name(const char *name);

/* Puts TIGON_ASCEND_CORES and TIGON_ASCEND_UB_BYTES into a part's description. `most_bytes`: of UB that its kernels can take, 0:
 * any. False with a sentence, which lasts until the thread's next call, where one is no number that a part can have. */
bool tigon_ascend_override(tigon_device_desc *device, int64_t most_bytes, const char **reason);

#endif
