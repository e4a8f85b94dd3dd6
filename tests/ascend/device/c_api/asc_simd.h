/* Stand-ins for the names that the device's dialect uses, declared as the vendor's public reference gives them, so that a host
 * compiler can see that kernels and wrappers agree with it. Nothing is defined: this is never linked. */
#ifndef TIGON_TESTS_ASC_SIMD_H
#define TIGON_TESTS_ASC_SIMD_H

#include <cstdint>

#define __aicore__
#define __global__
#define __vector__
#define __gm__
#define __ubuf__

struct half {
  uint16_t bits;
};
struct bfloat16_t {
  uint16_t bits;
};
enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };
enum event_t { EVENT_ID0, EVENT_ID7 = 7 };

void asc_init();
void asc_sync_notify(pipe_t pipe, pipe_t tpipe, event_t id);
void asc_sync_wait(pipe_t pipe, pipe_t tpipe, event_t id);
void asc_sync_pipe(pipe_t pipe);
int64_t asc_get_block_idx();
int64_t asc_get_block_num();
void asc_set_copy_pad_val(float pad_value);
void asc_set_mask_norm();
void asc_set_vector_mask(uint64_t mask1, uint64_t mask0);
void asc_set_cmp_mask(__ubuf__ void *sel_mask);

template <typename T>
void asc_copy_gm2ub_align(__ubuf__ T *dst, __gm__ T *src, uint16_t n_burst, uint32_t len_burst,
                          uint8_t left_padding_num, uint8_t right_padding_num, uint32_t src_gap, uint32_t dst_gap);
template <typename T>
void asc_copy_ub2gm_align(__gm__ T *dst, __ubuf__ T *src, uint16_t n_burst, uint32_t len_burst,
                          uint8_t left_padding_num, uint8_t right_padding_num, uint32_t src_gap, uint32_t dst_gap);

#define BINARY(name)                                                                                                   \
  void name(__ubuf__ float *dst, __ubuf__ float *src0, __ubuf__ float *src1, uint32_t count);                          \
  void name(__ubuf__ float *dst, __ubuf__ float *src0, __ubuf__ float *src1, uint8_t repeat, uint8_t dst_block_stride, \
            uint8_t src0_block_stride, uint8_t src1_block_stride, uint8_t dst_repeat_stride,                           \
            uint8_t src0_repeat_stride, uint8_t src1_repeat_stride)
BINARY(asc_add);
BINARY(asc_sub);
BINARY(asc_mul);
BINARY(asc_div);
BINARY(asc_max);
BINARY(asc_min);
BINARY(asc_select);
#define SCALAR(name) void name(__ubuf__ float *dst, __ubuf__ float *src, float value, uint32_t count)
SCALAR(asc_add_scalar);
SCALAR(asc_mul_scalar);
SCALAR(asc_max_scalar);
SCALAR(asc_min_scalar);
#define UNARY(name, to, from) void name(__ubuf__ to *dst, __ubuf__ from *src, uint32_t count)
UNARY(asc_exp, float, float);
UNARY(asc_log, float, float);
UNARY(asc_sqrt, float, float);
UNARY(asc_rsqrt, float, float);
UNARY(asc_abs, float, float);
UNARY(asc_not, uint16_t, uint16_t);
UNARY(asc_float2int32_rn, int32_t, float);
void asc_and(__ubuf__ uint16_t *dst, __ubuf__ uint16_t *src0, __ubuf__ uint16_t *src1, uint32_t count);
void asc_gather(__ubuf__ float *dst, __ubuf__ float *src, __ubuf__ uint32_t *src_offset, uint32_t count);
UNARY(asc_bfloat162float, float, bfloat16_t);
UNARY(asc_half2float, float, half);
UNARY(asc_float2bfloat16_rn, bfloat16_t, float);
UNARY(asc_float2half_rn, half, float);
void asc_duplicate(__ubuf__ float *dst, float src, uint32_t count);
void asc_repeat_reduce_sum(__ubuf__ float *dst, __ubuf__ float *src, uint8_t repeat, uint16_t dst_repeat_stride,
                           uint16_t src_block_stride, uint16_t src_repeat_stride);
void asc_repeat_reduce_max_only_value(__ubuf__ float *dst, __ubuf__ float *src, uint8_t repeat,
                                      uint16_t dst_repeat_stride, uint16_t src_block_stride,
                                      uint16_t src_repeat_stride);
void asc_brcb(__ubuf__ uint32_t *dst, __ubuf__ uint32_t *src, uint16_t dst_block_stride, uint16_t dst_repeat_stride,
              uint8_t repeat);
void asc_lt_scalar(__ubuf__ uint8_t *dst, __ubuf__ float *src, float value, uint8_t repeat, uint16_t dst_block_stride,
                   uint16_t src_block_stride, uint16_t dst_repeat_stride, uint16_t src_repeat_stride);

#endif
