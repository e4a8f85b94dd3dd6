/* What this CPU can run, by feature and not by model: a virtual machine may hide some. */
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

/* Linux gives a process the registers for tiles when it asks (Documentation/arch/x86/xstate.rst). All its threads have them then, and
 * asking again is cheap. */
static bool is_given_tiles(void) {
#if defined(__linux__)
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
  return false;
#endif
}

bool tigon_cpu_has_amx(void) {
  enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, BOTH = AMX_BF16 | AMX_TILE };
  unsigned a, b, c, d;
  return tigon_cpu_has_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BOTH) == BOTH &&
         is_given_tiles();
}
#else
bool tigon_cpu_has_avx2(void) { return false; }
bool tigon_cpu_has_avx512(void) { return false; }
bool tigon_cpu_has_avx512_bf16(void) { return false; }
bool tigon_cpu_has_amx(void) { return false; }
#endif
