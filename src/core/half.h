/* bf16, f16 and 8 bits to and from f32 and f64, one element at a time: round to nearest even, denormals kept, NaN stays NaN. */
#ifndef TIGON_CORE_HALF_H
#define TIGON_CORE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tigon/base.h>

static inline uint32_t tigon_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float tigon_from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline float tigon_f32_from_bf16(uint16_t h) { return tigon_from_bits((uint32_t)h << 16); }

static inline uint16_t tigon_bf16_from_f32(float f) {
  const uint32_t u = tigon_bits(f);
  if (f != f) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float tigon_f32_from_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 31) return tigon_from_bits(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return tigon_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = (float)mantissa * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

static inline uint16_t tigon_f16_from_f32(float f) {
  const uint32_t u = tigon_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 1023));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and up round to Inf */
  if (magnitude < 0x38800000) {                                  /* below 2^-14: the sum's last bit is 2^-24 */
    return (uint16_t)(sign | (tigon_bits(tigon_from_bits(magnitude) + 0.5f) - 0x3f000000));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

static inline float tigon_f32_from_f8e4m3(uint8_t f) {
  const uint32_t sign = (uint32_t)(f & 0x80) << 24, exponent = f >> 3 & 15, mantissa = f & 7;
  if ((f & 0x7f) == 0x7f) return NAN;
  if (exponent) return tigon_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
  const float magnitude = (float)mantissa * 0x1p-9f;
  return sign ? -magnitude : magnitude;
}

/* What is larger becomes 448, infinities, too; there is one NaN. Without a branch, for loops over vectors. */
static inline uint8_t tigon_f8e4m3_from_f32(float f) {
  const float magnitude = fabsf(f) < 448 ? fabsf(f) : 448;
  const uint32_t u = tigon_bits(magnitude), sign = tigon_bits(f) >> 24 & 0x80;
  const uint32_t normal = ((u + 0x7ffff + (u >> 20 & 1)) >> 20) - (120 << 3);
  const uint32_t small = tigon_bits(magnitude + 0x1p14f) - tigon_bits(0x1p14f); /* the sum's last bit is 2^-9 */
  return f == f ? (uint8_t)(sign | (magnitude < 0x1p-6f ? small : normal)) : 0x7f;
}

/* For |f| < 2^21; a NaN is 0. */
static inline int8_t tigon_i8_from_f32(float f) {
  const float whole = f == f ? f : 0, most = whole < 127 ? whole : 127, kept = most > -127 ? most : -127;
  return (int8_t)(tigon_bits(kept + 0x1.8p23f) - tigon_bits(0x1.8p23f));
}

/* f64 to f32, rounded to odd: a second rounding to 16 bits is then right. */
static inline float tigon_f32_odd_from_f64(double d) {
  const float f = (float)d;
  if ((double)f == d || d != d) return f;
  uint32_t u = tigon_bits(f);
  if (fabs((double)f) > fabs(d)) --u;
  return tigon_from_bits(u | 1);
}

/* Known to the oracle and its finite differences (tests/grad) alone; no public call takes it. */
#define TIGON_F64 30

/* Element i of a float buffer. */
static inline double tigon_load_f64(const void *data, int64_t i, tigon_dtype dtype) {
  switch ((int)dtype) {
    case TIGON_F64: return ((const double *)data)[i];
    case TIGON_F8E4M3: return (double)tigon_f32_from_f8e4m3(((const uint8_t *)data)[i]);
    case TIGON_I8: return (double)((const int8_t *)data)[i];
    case TIGON_F16: return (double)tigon_f32_from_f16(((const uint16_t *)data)[i]);
    case TIGON_BF16: return (double)tigon_f32_from_bf16(((const uint16_t *)data)[i]);
    default: return (double)((const float *)data)[i];
  }
}

/* One rounding from f64 to dtype. */
static inline void tigon_store_f64(void *data, int64_t i, tigon_dtype dtype, double value) {
  switch ((int)dtype) {
    case TIGON_F64: ((double *)data)[i] = value; break;
    case TIGON_F8E4M3: ((uint8_t *)data)[i] = tigon_f8e4m3_from_f32(tigon_f32_odd_from_f64(value)); break;
    case TIGON_I8: ((int8_t *)data)[i] = tigon_i8_from_f32(tigon_f32_odd_from_f64(value)); break;
    case TIGON_F16: ((uint16_t *)data)[i] = tigon_f16_from_f32(tigon_f32_odd_from_f64(value)); break;
    case TIGON_BF16: ((uint16_t *)data)[i] = tigon_bf16_from_f32(tigon_f32_odd_from_f64(value)); break;
    default: ((float *)data)[i] = (float)value; break;
  }
}

/* value rounded to dtype, as a store and a load would. */
static inline double tigon_round_f64(double value, tigon_dtype dtype) {
  switch ((int)dtype) {
    case TIGON_F64: return value;
    case TIGON_F16: return (double)tigon_f32_from_f16(tigon_f16_from_f32(tigon_f32_odd_from_f64(value)));
    case TIGON_BF16: return (double)tigon_f32_from_bf16(tigon_bf16_from_f32(tigon_f32_odd_from_f64(value)));
    default: return (double)(float)value;
  }
}

static inline float tigon_round_f32(float value, tigon_dtype dtype) {
  switch (dtype) {
    case TIGON_F16: return tigon_f32_from_f16(tigon_f16_from_f32(value));
    case TIGON_BF16: return tigon_f32_from_bf16(tigon_bf16_from_f32(value));
    default: return value;
  }
}

/* Element i of an index buffer. */
static inline int64_t tigon_load_index(const void *data, int64_t i, tigon_dtype dtype) {
  return dtype == TIGON_I64 ? ((const int64_t *)data)[i] : ((const int32_t *)data)[i];
}

#endif
