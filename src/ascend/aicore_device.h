/* ascend/aicore.h on the device (910B, A3: --npu-arch=dav-2201): inline wrappers over the vendor's C API for SIMD kernels.
 * Names, argument orders and units are those of its public reference (CANN's asc-devkit, docs/zh/api/SIMD-API/C-API). Nothing
 * here has been compiled by the vendor's compiler or run on an NPU: the simulator executes aicore_sim.h in its place.
 *
 * Units, where calls differ: transfers count bytes, their gaps 32-byte blocks, and their padding elements; block and repeat
 * strides count 32-byte blocks, but the destination's of a repeat reduction counts elements.
 * Kernels are compiled as C++; the 950 (dav-3510) has none of these UB calls and needs a header of its own. */
#ifndef TIGON_ASCEND_AICORE_DEVICE_H
#define TIGON_ASCEND_AICORE_DEVICE_H

#include "c_api/asc_simd.h"

#define AICORE __aicore__ inline

/* UB that every part and toolchain leaves to a kernel: as the planner's device table has it for the 910B. */
enum { TIGON_UB_BYTES = 188160 };

/* The arguments come by value, as aclrtLaunchKernelWithHostArgs packs them. */
#define AICORE_KERNEL(name, arguments)                             \
  AICORE void name##_body(ub_arena *ub, const arguments *a);       \
  extern "C" __vector__ __global__ void name(arguments by_value) { \
    __ubuf__ uint8_t memory[TIGON_UB_BYTES];                       \
    ub_arena ub = {memory, 0};                                     \
    asc_init();                                                    \
    asc_set_copy_pad_val(0.0f);                                    \
    name##_body(&ub, &by_value);                                   \
  }                                                                \
  AICORE void name##_body(ub_arena *ub, const arguments *a)

typedef __gm__ uint8_t *gm_ptr;
typedef __ubuf__ float *ub_f32;
typedef __ubuf__ bfloat16_t *ub_bf16;
typedef __ubuf__ half *ub_f16;

typedef struct ub_arena {
  __ubuf__ uint8_t *start;
  uint32_t used;
} ub_arena;

AICORE __ubuf__ uint8_t *ub_alloc_bytes(ub_arena *ub, int64_t bytes) {
  __ubuf__ uint8_t *at = ub->start + ub->used;
  ub->used += (uint32_t)((bytes + UB_BLOCK - 1) / UB_BLOCK * UB_BLOCK);
  return at;
}
AICORE ub_f32 ub_alloc_f32(ub_arena *ub, int64_t n) { return (ub_f32)ub_alloc_bytes(ub, n * 4); }
AICORE ub_bf16 ub_alloc_bf16(ub_arena *ub, int64_t n) { return (ub_bf16)ub_alloc_bytes(ub, n * 2); }
AICORE ub_f16 ub_alloc_f16(ub_arena *ub, int64_t n) { return (ub_f16)ub_alloc_bytes(ub, n * 2); }
AICORE ub_f32 ub_at_f32(ub_f32 x, int64_t i) { return x + i; }
AICORE ub_bf16 ub_at_bf16(ub_bf16 x, int64_t i) { return x + i; }
AICORE ub_f16 ub_at_f16(ub_f16 x, int64_t i) { return x + i; }
#define ub_as_f32(x) ((ub_f32)(x))
#define ub_as_bf16(x) ((ub_bf16)(x))
#define ub_as_f16(x) ((ub_f16)(x))

/* ---- order; the vendor wants the pipes as constants ---- */

#define sync_set(from, to, id) asc_sync_notify(from, to, (event_t)(id))
#define sync_wait(from, to, id) asc_sync_wait(from, to, (event_t)(id))
#define sync_pipe(pipe) asc_sync_pipe(pipe)

AICORE int64_t block_index(void) { return asc_get_block_idx(); }
AICORE int64_t block_count(void) { return asc_get_block_num(); }
AICORE float s_read_f32(ub_f32 a, int64_t i) { return a[i]; }
AICORE void s_write_f32(ub_f32 a, int64_t i, float value) { a[i] = value; }
AICORE int32_t s_read_i32(ub_f32 a, int64_t i) { return ((__ubuf__ int32_t *)a)[i]; }
AICORE void s_write_i32(ub_f32 a, int64_t i, int32_t value) { ((__ubuf__ int32_t *)a)[i] = value; }

/* ---- loads and stores: bursts of `cols` elements, end to end in global memory (gap 0), each on its own 32 bytes in UB ---- */

AICORE uint8_t right_padding(int64_t cols, int64_t size) {
  const int64_t block = UB_BLOCK / size;
  return (uint8_t)((block - cols % block) % block);
}
AICORE void load_f32(ub_f32 d, gm_ptr from, int64_t rows, int64_t cols) {
  asc_copy_gm2ub_align(d, (__gm__ float *)from, (uint16_t)rows, (uint32_t)(cols * 4), 0, right_padding(cols, 4), 0, 0);
}
AICORE void load_bf16(ub_bf16 d, gm_ptr from, int64_t rows, int64_t cols) {
  asc_copy_gm2ub_align(d, (__gm__ bfloat16_t *)from, (uint16_t)rows, (uint32_t)(cols * 2), 0, right_padding(cols, 2), 0,
                       0);
}
AICORE void load_f16(ub_f16 d, gm_ptr from, int64_t rows, int64_t cols) {
  asc_copy_gm2ub_align(d, (__gm__ half *)from, (uint16_t)rows, (uint32_t)(cols * 2), 0, right_padding(cols, 2), 0, 0);
}
AICORE void store_f32(gm_ptr to, ub_f32 s, int64_t rows, int64_t cols) {
  asc_copy_ub2gm_align((__gm__ float *)to, s, (uint16_t)rows, (uint32_t)(cols * 4), 0, 0, 0, 0);
}
AICORE void store_bf16(gm_ptr to, ub_bf16 s, int64_t rows, int64_t cols) {
  asc_copy_ub2gm_align((__gm__ bfloat16_t *)to, s, (uint16_t)rows, (uint32_t)(cols * 2), 0, 0, 0, 0);
}
AICORE void store_f16(gm_ptr to, ub_f16 s, int64_t rows, int64_t cols) {
  asc_copy_ub2gm_align((__gm__ half *)to, s, (uint16_t)rows, (uint32_t)(cols * 2), 0, 0, 0, 0);
}

/* ---- vectors in count form ---- */

AICORE void v_add_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { asc_add(d, a, b, (uint32_t)n); }
AICORE void v_sub_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { asc_sub(d, a, b, (uint32_t)n); }
AICORE void v_mul_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { asc_mul(d, a, b, (uint32_t)n); }
AICORE void v_div_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { asc_div(d, a, b, (uint32_t)n); }
AICORE void v_max_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { asc_max(d, a, b, (uint32_t)n); }
AICORE void v_min_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { asc_min(d, a, b, (uint32_t)n); }
AICORE void v_add_scalar_f32(ub_f32 d, ub_f32 a, float v, int64_t n) { asc_add_scalar(d, a, v, (uint32_t)n); }
AICORE void v_mul_scalar_f32(ub_f32 d, ub_f32 a, float v, int64_t n) { asc_mul_scalar(d, a, v, (uint32_t)n); }
AICORE void v_max_scalar_f32(ub_f32 d, ub_f32 a, float v, int64_t n) { asc_max_scalar(d, a, v, (uint32_t)n); }
AICORE void v_min_scalar_f32(ub_f32 d, ub_f32 a, float v, int64_t n) { asc_min_scalar(d, a, v, (uint32_t)n); }
AICORE void v_exp_f32(ub_f32 d, ub_f32 a, int64_t n) { asc_exp(d, a, (uint32_t)n); }
AICORE void v_ln_f32(ub_f32 d, ub_f32 a, int64_t n) { asc_log(d, a, (uint32_t)n); }
AICORE void v_sqrt_f32(ub_f32 d, ub_f32 a, int64_t n) { asc_sqrt(d, a, (uint32_t)n); }
AICORE void v_rsqrt_f32(ub_f32 d, ub_f32 a, int64_t n) { asc_rsqrt(d, a, (uint32_t)n); }
AICORE void v_abs_f32(ub_f32 d, ub_f32 a, int64_t n) { asc_abs(d, a, (uint32_t)n); }
AICORE void v_duplicate_f32(ub_f32 d, float v, int64_t n) { asc_duplicate(d, v, (uint32_t)n); }
/* Bits: the vendor counts 16-bit elements. */
AICORE void v_and_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) {
  asc_and((__ubuf__ uint16_t *)d, (__ubuf__ uint16_t *)a, (__ubuf__ uint16_t *)b, (uint32_t)(2 * n));
}
AICORE void v_not_f32(ub_f32 d, ub_f32 a, int64_t n) {
  asc_not((__ubuf__ uint16_t *)d, (__ubuf__ uint16_t *)a, (uint32_t)(2 * n));
}
AICORE void v_i32_from_f32(ub_f32 d, ub_f32 a, int64_t n) { asc_float2int32_rn((__ubuf__ int32_t *)d, a, (uint32_t)n); }
AICORE void v_gather_f32(ub_f32 d, ub_f32 a, ub_f32 offsets, int64_t n) {
  asc_gather(d, a, (__ubuf__ uint32_t *)offsets, (uint32_t)n);
}
AICORE void v_f32_from_bf16(ub_f32 d, ub_bf16 a, int64_t n) { asc_bfloat162float(d, a, (uint32_t)n); }
AICORE void v_f32_from_f16(ub_f32 d, ub_f16 a, int64_t n) { asc_half2float(d, a, (uint32_t)n); }
AICORE void v_bf16_from_f32(ub_bf16 d, ub_f32 a, int64_t n) { asc_float2bfloat16_rn(d, a, (uint32_t)n); }
AICORE void v_f16_from_f32(ub_f16 d, ub_f32 a, int64_t n) { asc_float2half_rn(d, a, (uint32_t)n); }

/* ---- vectors in repeat form ---- */

AICORE void v_mask_f32(int lanes) {
  asc_set_mask_norm();
  asc_set_vector_mask(0, lanes == V_LANES ? ~(uint64_t)0 : ((uint64_t)1 << lanes) - 1);
}

/* The strides of a call, in the order in which the vendor takes them. */
#define V_STEPS(s)                                                                                            \
  (uint8_t)(s).repeat, (uint8_t)(s).d_block, (uint8_t)(s).a_block, (uint8_t)(s).b_block, (uint8_t)(s).d_step, \
      (uint8_t)(s).a_step, (uint8_t)(s).b_step
AICORE void v_add_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { asc_add(d, a, b, V_STEPS(s)); }
AICORE void v_sub_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { asc_sub(d, a, b, V_STEPS(s)); }
AICORE void v_mul_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { asc_mul(d, a, b, V_STEPS(s)); }
AICORE void v_div_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { asc_div(d, a, b, V_STEPS(s)); }
AICORE void v_max_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { asc_max(d, a, b, V_STEPS(s)); }
AICORE void v_min_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { asc_min(d, a, b, V_STEPS(s)); }

AICORE void v_sum_r_f32(ub_f32 d, ub_f32 a, int repeat, int d_stride, int a_stride) {
  asc_repeat_reduce_sum(d, a, (uint8_t)repeat, (uint16_t)d_stride, 1, (uint16_t)a_stride);
}
AICORE void v_maximum_r_f32(ub_f32 d, ub_f32 a, int repeat, int d_stride, int a_stride) {
  asc_repeat_reduce_max_only_value(d, a, (uint8_t)repeat, (uint16_t)d_stride, 1, (uint16_t)a_stride);
}
AICORE void v_spread_f32(ub_f32 d, ub_f32 a, int repeat) {
  asc_brcb((__ubuf__ uint32_t *)d, (__ubuf__ uint32_t *)a, 1, 8, (uint8_t)repeat);
}

/* ---- compare and select ---- */

AICORE void v_lt_scalar_f32(ub_f32 mask, ub_f32 a, float value) {
  asc_lt_scalar((__ubuf__ uint8_t *)mask, a, value, 1, 1, 1, 8, 8);
}
AICORE void v_select_f32(ub_f32 d, ub_f32 mask, ub_f32 a, ub_f32 b) {
  asc_set_cmp_mask(mask);
  asc_sync_pipe(PIPE_V);
  asc_select(d, a, b, V_LANES);
}

#endif
