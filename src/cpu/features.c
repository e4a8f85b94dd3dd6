/* What this CPU can run, by feature and not by model: a virtual machine may hide some. */
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool tigon_cpu_has_avx2(void) {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         has_f16c();
}

bool tigon_cpu_has_avx512(void) {
  __builtin_cpu_init();
  return tigon_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool tigon_cpu_has_avx512_bf16(void) { return tigon_cpu_has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#else
bool tigon_cpu_has_avx2(void) { return false; }
bool tigon_cpu_has_avx512(void) { return false; }
bool tigon_cpu_has_avx512_bf16(void) { return false; }
#endif
