/* The caller's floating-point state (rounding, flush-to-zero, sticky flags), put away while the library works. */
#ifndef TIGON_CORE_FLOAT_STATE_H
#define TIGON_CORE_FLOAT_STATE_H

#if defined(__x86_64__)
#include <xmmintrin.h>

/* Round to nearest, denormals kept, no traps. Returns what was there. */
static inline unsigned tigon_float_enter(void) {
  const unsigned state = _mm_getcsr();
  _mm_setcsr(0x1f80);
  return state;
}
static inline void tigon_float_leave(const unsigned *state) { _mm_setcsr(*state); }
#else
static inline unsigned tigon_float_enter(void) { return 0; }
static inline void tigon_float_leave(const unsigned *state) { (void)state; }
#endif

/* The first line of every public op: the default state until the function returns, by whichever way. */
#define TIGON_KEEP_FLOAT_STATE \
  __attribute__((cleanup(tigon_float_leave), unused)) const unsigned float_state_ = tigon_float_enter()

#endif
