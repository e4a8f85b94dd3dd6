/* The kernels of one instruction set; compiled once per set. */
#include "cpu/kernels.h"

#define TIGON_CPU_STRING_(text) #text
#define TIGON_CPU_STRING(text) TIGON_CPU_STRING_(text)

#if defined(TIGON_ISA_AVX512_BF16) && !defined(TIGON_SANITIZE)
#define TAKES_AVX512 1
/* AVX-512's slots come first, avx512_bf16.def's replace some, and amx.def's some of these. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define TIGON_SLOT(op, entry) \
  tigon_##op##_##entry##_fn tigon_cpu_avx512_##op##_##entry, tigon_cpu_avx512_bf16_##op##_##entry;
#define TIGON_WORKSPACE(op, entry) \
  tigon_##op##_##entry##_bytes tigon_cpu_avx512_##op##_##entry##_bytes, tigon_cpu_avx512_bf16_##op##_##entry##_bytes;
#include "ops.def"
#define FIRST(name) tigon_cpu_avx512_##name
#else
#define FIRST(name) TIGON_CPU(name)
#endif

extern const tigon_kernels TIGON_CPU(kernels);
const tigon_kernels TIGON_CPU(kernels) = {
    .variant = TIGON_CPU_STRING(TIGON_ISA),
    .tile = LANES,
#define TIGON_SLOT(op, entry) .op##_##entry.run = FIRST(op##_##entry), .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = FIRST(op##_##entry##_bytes),
#include "ops.def"
#if defined(TAKES_AVX512)
#define TIGON_SLOT(op, entry) .op##_##entry.run = tigon_cpu_avx512_bf16_##op##_##entry,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = tigon_cpu_avx512_bf16_##op##_##entry##_bytes,
#include "cpu/avx512_bf16.def"
#endif
#if defined(TAKES_AVX512) && defined(TIGON_ISA_AMX)
#define TIGON_SLOT(op, entry) .op##_##entry.run = TIGON_CPU(op##_##entry),
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = TIGON_CPU(op##_##entry##_bytes),
#include "cpu/amx.def"
#endif
};
