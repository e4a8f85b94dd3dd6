#include "opencl/tables.h"

#include <string.h>

#include "opencl/devices.h"
#include "opencl/self_check.h"

/* A list's problem begins with where its elements are, which begin with a tensor, and how many. The first says the dtype. */
static inline tigon_dtype list_dtype(const void *problem) {
  struct {
    const tigon_tensor *first;
    int64_t count;
  } list;
  memcpy(&list, problem, sizeof list);
  return list.count > 0 ? list.first->dtype : TIGON_F32;
}

/* What a table has is the slot behind the self-check. */
#define OPENCL_SLOT_OF(op, entry, dtype)                                                                    \
  static tigon_status trusted_##op##_##entry(tigon_queue *queue, const tigon_##op##_##entry##_problem *p) { \
    const tigon_status status = opencl_trust(queue, OPENCL_ENTRY_##op##_##entry, dtype);                    \
    return status == TIGON_OK ? tigon_opencl_##op##_##entry(queue, p) : status;                             \
  }
#define OPENCL_SLOT(op, entry) OPENCL_SLOT_OF(op, entry, p->dtype)
#define OPENCL_LIST_SLOT(op, entry) OPENCL_SLOT_OF(op, entry, list_dtype(p))
#define OPENCL_WORKSPACE(op, entry)
#include "opencl/slots.def"
#undef OPENCL_SLOT
#undef OPENCL_LIST_SLOT
#undef OPENCL_WORKSPACE

#define OPENCL_SLOT(op, entry) .op##_##entry.run = trusted_##op##_##entry, .op##_##entry.dtypes = TIGON_FLOATS,
#define OPENCL_LIST_SLOT(op, entry) OPENCL_SLOT(op, entry)
#define OPENCL_WORKSPACE(op, entry) .op##_##entry.workspace = tigon_opencl_##op##_##entry##_bytes,

enum { TILE = 16 /* elements of the widest vector */ };
const tigon_kernels tigon_opencl_items = {
    .variant = OPENCL_VARIANT_ITEMS,
    .tile = TILE,
#include "opencl/slots.def" /* NOLINT(readability-duplicate-include) */
};
const tigon_kernels tigon_opencl_groups = {
    .variant = OPENCL_VARIANT_GROUPS,
    .tile = TILE,
#include "opencl/slots.def" /* NOLINT(readability-duplicate-include) */
};
static const tigon_kernels subgroups = {
    .variant = OPENCL_VARIANT_SUBGROUPS,
    .tile = TILE,
#include "opencl/slots.def" /* NOLINT(readability-duplicate-include) */
};

const tigon_kernels *const tigon_opencl_all[] = {&tigon_opencl_groups, &tigon_opencl_items, &subgroups, NULL};

const tigon_kernels *const *tigon_opencl_variants(void) {
  static const tigon_kernels *const without[] = {&tigon_opencl_groups, &tigon_opencl_items, NULL};
  return opencl_subgroups_here() ? tigon_opencl_all : without;
}
