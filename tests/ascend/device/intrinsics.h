/* Stand-ins for the words and the intrinsics of CANN's device compiler that ascend/aicore_device.h uses, with the argument orders
 * and widths of public sources. standin.c executes them; a kernel's file is compiled with `-include` of this one. */
#ifndef TIGON_TESTS_ASCEND_INTRINSICS_H
#define TIGON_TESTS_ASCEND_INTRINSICS_H

#include <stdint.h>

#define __gm__
#define __ubuf__
#define __aicore__
#define __global__
#define __vector__

typedef struct half {
  uint16_t bits;
} half;
typedef struct bfloat16_t {
  uint16_t bits;
} bfloat16_t;
#define __bf16 bfloat16_t /* a word of that compiler, and of newer hosts' */
typedef enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL, STANDIN_PIPES = PIPE_ALL } pipe_t;
typedef enum event_t { EVENT_ID0, EVENT_ID7 = 7 } event_t;
typedef enum Order_t { VALUE_INDEX, INDEX_VALUE, ONLY_VALUE, ONLY_INDEX } Order_t;

#if defined(__cplusplus)
extern "C" {
#endif

uint64_t get_imm(uint64_t ub_address);
int64_t get_block_idx(void);
int64_t get_block_num(void);
void set_atomic_none(void);
void set_flag(pipe_t from, pipe_t to, event_t id);
void wait_flag(pipe_t from, pipe_t to, event_t id);
void pipe_barrier(pipe_t pipe);
void set_mask_count(void);
void set_mask_norm(void);
void set_vector_mask(uint64_t high, uint64_t low);
void set_mov_pad_val(uint64_t bits);

#define STANDIN_COPY(name, to_space, from_space)                                                                     \
  void name(to_space void *to, from_space void *from, uint8_t stream, uint16_t bursts, uint32_t bytes, uint8_t left, \
            uint8_t right, uint32_t from_gap, uint32_t to_gap);
STANDIN_COPY(copy_gm_to_ubuf_align_b32, __ubuf__, __gm__)
STANDIN_COPY(copy_gm_to_ubuf_align_b16, __ubuf__, __gm__)
STANDIN_COPY(copy_ubuf_to_gm_align_b32, __gm__, __ubuf__)
STANDIN_COPY(copy_ubuf_to_gm_align_b16, __gm__, __ubuf__)
STANDIN_COPY(copy_ubuf_to_gm_align_b8, __gm__, __ubuf__)

#define STANDIN_BINARY(name, type)                                                                                  \
  void name(__ubuf__ type *d, __ubuf__ type *a, __ubuf__ type *b, uint8_t repeat, uint8_t d_block, uint8_t a_block, \
            uint8_t b_block, uint8_t d_step, uint8_t a_step, uint8_t b_step);
STANDIN_BINARY(vadd, float)
STANDIN_BINARY(vsub, float)
STANDIN_BINARY(vmul, float)
STANDIN_BINARY(vdiv, float)
STANDIN_BINARY(vmax, float)
STANDIN_BINARY(vmin, float)
STANDIN_BINARY(vand, uint16_t)
STANDIN_BINARY(vsel, float)

#define STANDIN_SCALAR(name)                                                                                       \
  void name(__ubuf__ float *d, __ubuf__ float *a, float value, uint8_t repeat, uint16_t d_block, uint16_t a_block, \
            uint16_t d_step, uint16_t a_step);
STANDIN_SCALAR(vadds)
STANDIN_SCALAR(vmuls)
STANDIN_SCALAR(vmaxs)
STANDIN_SCALAR(vmins)

#define STANDIN_UNARY(name, to, from)                                                                              \
  void name(__ubuf__ to *d, __ubuf__ from *a, uint8_t repeat, uint16_t d_block, uint16_t a_block, uint16_t d_step, \
            uint16_t a_step);
STANDIN_UNARY(vexp, float, float)
STANDIN_UNARY(vln, float, float)
STANDIN_UNARY(vsqrt, float, float)
STANDIN_UNARY(vrsqrt, float, float)
STANDIN_UNARY(vabs, float, float)
STANDIN_UNARY(vnot, uint16_t, uint16_t)
STANDIN_UNARY(vconv_f322s32r, int32_t, float)
STANDIN_UNARY(vconv_s322f32, float, int32_t)
STANDIN_UNARY(vconv_bf162f32, float, bfloat16_t)
STANDIN_UNARY(vconv_f162f32, float, half)
STANDIN_UNARY(vconv_f322bf16r, bfloat16_t, float)
STANDIN_UNARY(vconv_f322f16r, half, float)
STANDIN_UNARY(vconv_f162s8r, int8_t, half)

void vector_dup(__ubuf__ float *d, float value, uint8_t repeat, uint16_t d_block, uint16_t a_block, uint16_t d_step,
                uint16_t a_step);
void vgather(__ubuf__ uint32_t *d, __ubuf__ uint32_t *offsets, uint64_t base, uint16_t d_step, uint8_t repeat);
void vcadd(__ubuf__ float *d, __ubuf__ float *a, uint8_t repeat, uint16_t d_step, uint16_t a_block, uint16_t a_step,
           int mode);
void vcmax(__ubuf__ float *d, __ubuf__ float *a, uint8_t repeat, uint16_t d_step, uint16_t a_block, uint16_t a_step,
           Order_t order);
void vbrcb(__ubuf__ uint32_t *d, __ubuf__ uint32_t *a, uint16_t d_block, uint16_t d_step, uint8_t repeat);

/* No kernel compares or selects, so that these are declared and not executed. */
void vcmpvs_lt(__ubuf__ uint8_t *d, __ubuf__ float *a, float value, uint8_t repeat, uint16_t d_block, uint16_t a_block,
               uint16_t d_step, uint16_t a_step);
void set_cmpmask(__ubuf__ void *mask);

#if defined(__cplusplus)
}
#endif

#endif
