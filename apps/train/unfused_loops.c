#include "unfused_loops.h"

#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef void (*loop_function)(const train_loop *loop, int64_t first, int64_t last);

enum { LANES = 16 };

/* Inlined into a loop of any instruction set. */
#define INLINE static inline __attribute__((always_inline))

/* exp by 2^n * p(r), |r| <= ln 2 / 2, without a branch so that a loop over it vectorises; within 2 ULP in [-87, 88], the
 * value at the nearer end outside. */
INLINE float exponential(float x) {
  const float clamped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  const float shifted = clamped * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the integer */
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666668e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t power;
  memcpy(&power, &shifted, sizeof power);
  power = (power + 127u) << 23; /* 12582912.0f has no low bits that reach the exponent */
  float scale;
  memcpy(&scale, &power, sizeof scale);
  return p * scale;
}

INLINE float widen(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* Ties to even; a NaN keeps its top bits, which is enough for a NaN that came from arithmetic. */
INLINE uint16_t narrow(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#define NAME(loop) loop##_plain_f32
#define TARGET
#define ELEMENT float
#define LOAD(x) (x)
#define STORE(v) (v)
#include "unfused_loops.inc"

#define NAME(loop) loop##_plain_bf16
#define TARGET
#define ELEMENT uint16_t
#define LOAD(x) widen(x)
#define STORE(v) narrow(v)
#include "unfused_loops.inc"

#if defined(__x86_64__)
#if defined(__clang__)
#define AVX512 "avx512f,avx512bw,avx512vl,avx512dq,fma"
#else
#define AVX512 "avx512f,avx512bw,avx512vl,avx512dq,fma,prefer-vector-width=512"
#endif

#define NAME(loop) loop##_avx2_f32
#define TARGET __attribute__((target("avx2,fma")))
#define ELEMENT float
#define LOAD(x) (x)
#define STORE(v) (v)
#include "unfused_loops.inc"

#define NAME(loop) loop##_avx2_bf16
#define TARGET __attribute__((target("avx2,fma")))
#define ELEMENT uint16_t
#define LOAD(x) widen(x)
#define STORE(v) narrow(v)
#include "unfused_loops.inc"

#define NAME(loop) loop##_avx512_f32
#define TARGET __attribute__((target(AVX512)))
#define ELEMENT float
#define LOAD(x) (x)
#define STORE(v) (v)
#include "unfused_loops.inc"

#define NAME(loop) loop##_avx512_bf16
#define TARGET __attribute__((target(AVX512)))
#define ELEMENT uint16_t
#define LOAD(x) widen(x)
#define STORE(v) narrow(v)
#include "unfused_loops.inc"
#endif

/* The widest table that this machine runs. */
static const loop_function *table_for(tigon_dtype dtype) {
  const int half = dtype == TIGON_BF16;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return half ? table_avx512_bf16 : table_avx512_f32;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return half ? table_avx2_bf16 : table_avx2_f32;
#endif
  return half ? table_plain_bf16 : table_plain_f32;
}

void train_loop_run(train_loop_kind kind, const train_loop *loop, tigon_dtype dtype, int threads) {
  const loop_function function = table_for(dtype)[kind];
  const int64_t count = kind == TRAIN_LOOP_NORM_BWD ? loop->slab_count : loop->rows;
#ifdef _OPENMP
  const int team = threads > 0 ? threads : omp_get_max_threads();
#pragma omp parallel num_threads(team)
  {
    const int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
    function(loop, count * part / parts, count * (part + 1) / parts);
  }
#else
  (void)threads;
  function(loop, 0, count);
#endif
}
