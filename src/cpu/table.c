/* The kernels of one instruction set; compiled once per set. */
#include "cpu/kernels.h"

#define TIGON_CPU_STRING_(text) #text
#define TIGON_CPU_STRING(text) TIGON_CPU_STRING_(text)

extern const tigon_kernels TIGON_CPU(kernels);
const tigon_kernels TIGON_CPU(kernels) = {
    .variant = TIGON_CPU_STRING(TIGON_ISA),
    .tile = LANES,
#define TIGON_SLOT(op, entry) .op##_##entry.run = TIGON_CPU(op##_##entry), .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = TIGON_CPU(op##_##entry##_bytes),
#include "ops.def"
};
