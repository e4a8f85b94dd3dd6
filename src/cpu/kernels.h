/* The slots that this instruction set's files define, and what workspace some need. */
#ifndef TIGON_CPU_KERNELS_H
#define TIGON_CPU_KERNELS_H

#include "cpu/cpu.h"
#include "cpu/simd.h"

#define TIGON_SLOT(op, entry) tigon_##op##_##entry##_fn TIGON_CPU(op##_##entry);
#define TIGON_WORKSPACE(op, entry) tigon_##op##_##entry##_bytes TIGON_CPU(op##_##entry##_bytes);
#include "ops.def"

#endif
