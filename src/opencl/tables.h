/* The kernels of OpenCL devices. */
#ifndef TIGON_OPENCL_TABLES_H
#define TIGON_OPENCL_TABLES_H

#include "backend.h"

/* How a row is worked on: by one work-item, or by a group. */
#define OPENCL_VARIANT_ITEMS "opencl-items"
#define OPENCL_VARIANT_GROUPS "opencl-groups"
#define OPENCL_VARIANT_SUBGROUPS "opencl-subgroups" /* groups, whose sums are of subgroups first */

extern const tigon_kernels tigon_opencl_items, tigon_opencl_groups;
extern const tigon_kernels *const tigon_opencl_all[];
/* Those that a device here may run. */
const tigon_kernels *const *tigon_opencl_variants(void);

#define OPENCL_SLOT(op, entry) \
  tigon_status tigon_opencl_##op##_##entry(tigon_queue *queue, const tigon_##op##_##entry##_problem *p);
#define OPENCL_LIST_SLOT(op, entry) OPENCL_SLOT(op, entry)
#define OPENCL_WORKSPACE(op, entry) \
  int64_t tigon_opencl_##op##_##entry##_bytes(tigon_queue *queue, const tigon_##op##_##entry##_problem *p);
#include "opencl/slots.def"
#undef OPENCL_SLOT
#undef OPENCL_LIST_SLOT
#undef OPENCL_WORKSPACE

#endif
