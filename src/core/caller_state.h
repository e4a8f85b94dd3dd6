/* What a call must leave as it was on the caller's thread: the floating-point state (rounding, flush-to-zero, sticky
 * flags), which is put away while the library works, and errno. */
#ifndef TIGON_CORE_CALLER_STATE_H
#define TIGON_CORE_CALLER_STATE_H

#include <errno.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

typedef struct tigon_caller_state {
  unsigned floats;
  int error;
} tigon_caller_state;

/* Round to nearest, denormals kept, no traps, from here on. */
static inline tigon_caller_state tigon_caller_enter(void) {
  tigon_caller_state state = {0, errno};
#if defined(__x86_64__)
  state.floats = _mm_getcsr();
  if ((state.floats & ~0x3fu) != 0x1f80) _mm_setcsr(0x1f80); /* sticky flags may stay: leaving restores the caller's */
#endif
  return state;
}

static inline void tigon_caller_leave(const tigon_caller_state *state) {
#if defined(__x86_64__)
  if (_mm_getcsr() != state->floats) _mm_setcsr(state->floats); /* a write is slow */
#endif
  errno = state->error;
}

/* The first line of every public op, and of every thread's work: until the function returns, by whichever way. */
#define TIGON_KEEP_CALLER_STATE \
  __attribute__((cleanup(tigon_caller_leave), unused)) const tigon_caller_state caller_state_ = tigon_caller_enter()

#endif
