#ifndef COMMON_CL
#define COMMON_CL
/* What all kernels use. The build defines T, the dtype of the call's tensors, which is F32, F16 or BF16. LANES are the elements of a vector.
 * GROUP are the work-items that share a row; with 1 a work-item has rows of its own. Numbers are f32 in registers. */
#pragma OPENCL FP_CONTRACT OFF
#include "shared.h"

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define IS_ALONE (GROUP == 1) /* a work-item has rows of its own */
typedef PASTE(float, LANES) vf;
typedef PASTE(int, LANES) vi;
typedef PASTE(uint, LANES) vu;
#define as_vf PASTE(as_float, LANES)
#define as_vi PASTE(as_int, LANES)
#define as_vu PASTE(as_uint, LANES)
#define to_vf PASTE(convert_float, LANES)
#define to_vu PASTE(convert_uint, LANES)
#define to_us PASTE(convert_ushort, LANES)
#define load_floats PASTE(vload, LANES)
#define store_floats PASTE(vstore, LANES)
#define load_halves PASTE(vload_half, LANES)
#define store_halves PASTE(PASTE(vstore_half, LANES), _rte)

/* A tensor: bytes, and an offset of 64 bits, ABSENT where there is none. */
typedef __global uchar *memory;
#define TENSOR(name) memory name##_buffer, ulong name##_offset
#define ABSENT (~0UL)
#define is_there(name) (name##_offset != ABSENT)
#define memory_of(name) (name##_buffer + (is_there(name) ? name##_offset : 0))
#define or_null(name) (is_there(name) ? memory_of(name) : (memory)0)

/* Functions that are given local memory are inlined. A compiler may write the array that all their calls give into their body, and
 * PoCL 3.1 would share that array between groups that run at once. */
#ifndef inlined
#define inlined inline __attribute__((always_inline))
#endif

/* So that a compiler keeps registers for what is likely. */
#ifdef __has_builtin
#if __has_builtin(__builtin_expect)
#define unlikely(yes) __builtin_expect((yes) != 0, 0)
#endif
#endif
#ifndef unlikely
#define unlikely(yes) (yes)
#endif

/* ---- elements ---- */

static inline float load_one(memory m, long i, int dtype) {
  if (dtype == F32) return ((__global const float *)m)[i];
  if (dtype == F16) return vload_half((size_t)i, (__global const half *)m);
  return as_float((uint)((__global const ushort *)m)[i] << 16);
}

/* To the nearest, ties to even; a NaN stays one. */
static inline uint bf16_of(float x) {
  const uint u = as_uint(x);
  return isnan(x) ? (u >> 16) | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline void store_one(memory m, long i, int dtype, float x) {
  if (dtype == F32)
    ((__global float *)m)[i] = x;
  else if (dtype == F16)
    vstore_half_rte(x, (size_t)i, (__global half *)m);
  else
    ((__global ushort *)m)[i] = (ushort)bf16_of(x);
}

/* The upper half of each lane's bits. */
static inline vu bf16_lanes(vf x) {
  const vu u = as_vu(x), near = u + 0x7fff + (u >> 16 & 1);
  return select(near, u | 0x400000, x != x);
}

/* Vectors at any element, for a CPU. PoCL 3.1 makes several stores out of a vstore16. A vector of halves it takes for an aligned one, so that a
 * store of constants stops the program. */
typedef vf __attribute__((aligned(4))) loose_vf;
typedef PASTE(ushort, LANES) vus, __attribute__((aligned(2))) loose_us;

static inline vf f16_value(vus h) { return load_halves(0, (const half *)&h); }
static inline vus f16_lanes(vf x) {
  vus h;
  store_halves(x, 0, (half *)&h);
  return h;
}

static inline vf load_all(memory m, long i, int dtype) {
  if (dtype == F32) return load_floats(0, (__global const float *)m + i);
  if (dtype == F16 && IS_ALONE) return f16_value(*(__global const loose_us *)((__global const ushort *)m + i));
  if (dtype == F16) return load_halves(0, (__global const half *)m + i);
  return as_vf(to_vu(load_floats(0, (__global const ushort *)m + i)) << 16);
}
static inline void store_all(memory m, long i, int dtype, vf x) {
  __global loose_us *const shorts = (__global loose_us *)((__global ushort *)m + i);
  if (dtype == F32 && IS_ALONE)
    *(__global loose_vf *)((__global float *)m + i) = x;
  else if (dtype == F32)
    store_floats(x, 0, (__global float *)m + i);
  else if (dtype == F16 && IS_ALONE)
    *shorts = f16_lanes(x);
  else if (dtype == F16)
    store_halves(x, 0, (__global half *)m + i);
  else
    *shorts = to_us(bf16_lanes(x) >> 16);
}

/* n elements from i on, LANES at most; the others are 0. */
static inline vf load_n(memory m, long i, int dtype, long n) {
  if (n >= LANES) return load_all(m, i, dtype);
  float part[LANES];
  for (int j = 0; j < LANES; ++j) part[j] = j < n ? load_one(m, i + j, dtype) : 0;
  return load_floats(0, part);
}
static inline void store_n(memory m, long i, int dtype, long n, vf x) {
  if (n >= LANES) {
    store_all(m, i, dtype, x);
    return;
  }
  float part[LANES];
  store_floats(x, 0, part);
  for (int j = 0; j < n; ++j) store_one(m, i + j, dtype, part[j]);
}

/* The first n lanes of v, and `other` after them. */
static inline vf first_or(vf v, long n, float other) {
  if (n >= LANES) return v;
  float part[LANES];
  store_floats(v, 0, part);
  for (int j = n > 0 ? (int)n : 0; j < LANES; ++j) part[j] = other;
  return load_floats(0, part);
}

/* The larger one of each lane, `most` where x is a NaN. */
static inline vf larger(vf most, vf x) { return select(most, x, x > most); }

/* To the dtype and back. */
static inline vf rounded(vf x) {
  if (T == F32) return x;
  if (T == BF16) return as_vf(bf16_lanes(x) & 0xffff0000);
  return f16_value(f16_lanes(x));
}
static inline float rounded_one(float x) { return rounded((vf)(x)).s0; }

/* Whether a lane is -1. PoCL takes any() apart into lanes. */
#if GROUP == 1 && defined(__x86_64__) && defined(__has_builtin)
#if __has_builtin(__builtin_reduce_or)
#define any_lane(yes) (__builtin_reduce_or(yes) != 0)
#endif
#endif
#ifndef any_lane
#define any_lane(yes) any(yes)
#endif

/* Elements of an f32 tensor. It may be NULL where it is written. */
typedef __global float *floats;
#define FLOATS_OF(name) ((floats)memory_of(name))
static inline float float_at(memory m, long i) { return ((floats)m)[i]; }
static inline float float_or(memory m, long i, float otherwise) { return m ? float_at(m, i) : otherwise; }
static inline void put_float(memory m, long i, float x) {
  if (m) ((floats)m)[i] = x;
}

/* Elements of a tensor of INT_64 or 32-bit integers. */
static inline long load_int(memory m, long i, int dtype) {
  return dtype == INT_64 ? ((__global const long *)m)[i] : ((__global const int *)m)[i];
}

/* ---- sums in two floats: high as float has it, and low, what its roundings lost ---- */

typedef struct pair {
  float high, low;
} pair;
typedef struct vpair {
  vf high, low;
} vpair;

/* What a + b lost to rounding, exactly. */
#define LOST(a, b, sum) (((a) - ((sum) - ((sum) - (a)))) + ((b) - ((sum) - (a))))

static inline pair pair_add(pair s, float x) {
  const float sum = s.high + x;
  return (pair){sum, s.low + LOST(s.high, x, sum)};
}
static inline pair pair_join(pair a, pair b) {
  const float sum = a.high + b.high;
  return (pair){sum, a.low + b.low + LOST(a.high, b.high, sum)};
}
static inline vpair vpair_add(vpair s, vf x) {
  const vf sum = s.high + x;
  return (vpair){sum, s.low + LOST(s.high, x, sum)};
}
/* Adds a * b of elements, which is exact in f32 where they have 16 bits. */
static inline vpair vpair_add_product(vpair s, vf a, vf b) {
  const vf product = a * b;
  if (T == F32) s.low += fma(a, b, -product);
  return vpair_add(s, product);
}
/* Adds a * b, which is not rounded first. */
static inline vpair vpair_fma(vpair s, vf a, vf b) {
  const vf product = a * b;
  s.low += fma(a, b, -product);
  return vpair_add(s, product);
}
/* An infinity is one, though its low part is a NaN. */
static inline float pair_value(pair s) { return isinf(s.high) ? s.high : s.high + s.low; }
static inline vf vpair_value(vpair s) { return select(s.high + s.low, s.high, isinf(s.high)); }
static inline pair pair_of(vpair v) {
  float high[LANES], low[LANES];
  store_floats(v.high, 0, high);
  store_floats(v.low, 0, low);
#pragma unroll
  for (int half_of = LANES / 2; half_of > 0; half_of /= 2)
#pragma unroll
    for (int j = 0; j < half_of; ++j) {
      const float a = high[j], b = high[j + half_of], sum = a + b;
      low[j] += low[j + half_of] + LOST(a, b, sum);
      high[j] = sum;
    }
  return (pair){high[0], low[0]};
}

/* ---- rows ---- */

static inline long row_offset(const tigon_row_space *space, const cl_pitch *pitch, long r) {
  if (space->inner == space->rows) return r * pitch->of[2];
  const long k = r % space->inner, ij = r / space->inner;
  return ij / space->middle * pitch->of[0] + ij % space->middle * pitch->of[1] + k * pitch->of[2];
}

#include "trees.cl"

/* A row's vectors that the work-item has: at `i`, of which `n` elements are of the row, or LANES and more. A work-item alone has a loop of whole
 * vectors, without tests, and one for what is left. */
#if GROUP == 1
#define FOR_ROW(i, n, cols)                                               \
  _Pragma("unroll") for (int left_ = 0; left_ < 2; ++left_)               \
  for (long i = left_ ? (cols) / LANES * LANES : 0, n = left_ ? (cols)-i : LANES; \
       left_ ? n > 0 : i + LANES <= (cols); i += LANES, n = left_ ? 0 : LANES)
#else
#define FOR_ROW(i, n, cols)                                                         \
  for (long i = row_lane() * LANES, n = (cols)-i; i < (cols); i += GROUP * LANES, n = (cols)-i)
#endif

/* The same for sums, of which `add` takes what the body has added up: of four whole vectors, or of one. */
#if GROUP == 1
#define FOR_SUMS(i, n, cols, add)                                                             \
  _Pragma("unroll") for (int left_ = 0; left_ < 2; ++left_)                                   \
  for (long at_ = left_ ? (cols) / (4 * LANES) * (4 * LANES) : 0, step_ = left_ ? LANES : 4 * LANES; \
       left_ ? at_ < (cols) : at_ + step_ <= (cols); at_ += step_, add)                       \
  _Pragma("unroll") for (long i = at_, n = left_ ? (cols)-at_ : LANES; i < at_ + step_; i += LANES)
#else
#define FOR_SUMS(i, n, cols, add) \
  for (long i = row_lane() * LANES, n = (cols)-i; i < (cols); i += GROUP * LANES, n = (cols)-i, add)
#endif

/* Where the first of a work-item's `each` vectors begins; each next one is GROUP * LANES further. */
static inline long vectors_first(long each) {
  const long item = (long)get_global_id(0);
  return (item / GROUP * each * GROUP + item % GROUP) * LANES;
}

/* The row that is next, or the last one. */
static inline long row_after(long r, long rows) { return min(r + row_step(), rows - 1); }

/* Asks for a vector that is wanted soon: a CPU's own guesses end with a row, and do not know what will be written. */
static inline void ask_for(memory m, long i, int dtype) {
#if GROUP == 1 && defined(__x86_64__)
  __builtin_prefetch((__global const void *)(m + i * (dtype == F32 ? 4 : 2)));
#endif
}

/* The sum of a vector's elements, in a fixed order. */
static inline float sum_of(vf v) {
  float part[LANES];
  store_floats(v, 0, part);
  for (int half_of = LANES / 2; half_of > 0; half_of /= 2)
    for (int j = 0; j < half_of; ++j) part[j] += part[j + half_of];
  return part[0];
}
static inline float max_of(vf v) {
  float part[LANES];
  store_floats(v, 0, part);
  for (int j = 1; j < LANES; ++j) part[0] = LARGER(part[0], part[j]);
  return part[0];
}

#endif
