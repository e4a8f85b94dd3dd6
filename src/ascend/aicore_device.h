/* ascend/aicore.h on the device (910B, A3: dav-2201): inline wrappers over the intrinsics of CANN's device compiler, bisheng.
 * Both the vendor's C API and its C++ API use them. They have kept their names and arguments from CANN 8.0 to 9.x, so one header
 * serves all of these. Names, argument orders and units are those of public sources that call them (CANN's asc-devkit and
 * pto-isa). Nothing here has been compiled by bisheng or run on an NPU: the simulator executes aicore_sim.h in its place, and
 * tests/ascend/device.sh runs this header over intrinsics of ours. docs/ascend.md lists what is not verified.
 *
 * Units differ from call to call. Transfers count bytes, their gaps 32-byte blocks, and their padding elements. Block and repeat
 * strides count 32-byte blocks. In a repeat reduction the destination's stride counts elements.
 * Kernels are compiled as C++. The 950 (dav-3510) has none of these UB calls and needs a header of its own. */
#ifndef TIGON_ASCEND_AICORE_DEVICE_H
#define TIGON_ASCEND_AICORE_DEVICE_H

#if !defined(__aicore__)
#define __aicore__ [aicore]
#endif

/* Internal linkage: kernels' files have functions of one name and different bodies, of which a linker would keep one. */
#define AICORE static __aicore__ inline

/* UB that every part and toolchain leaves to a kernel: as the planner's device table has it for the 910B. */
enum { TIGON_UB_BYTES = 188160 };

/* `-x cce` (TIGON_AICORE_CCE) knows UB by address and compiles for the vector core by its options. `-x asc` lays out arrays in UB, of
 * which bytes would lie on no boundary by themselves, and says so by attribute. */
#if defined(TIGON_AICORE_CCE)
#define AICORE_ENTRY __global__ __aicore__
#define AICORE_MEMORY __ubuf__ uint8_t *const memory = (__ubuf__ uint8_t *)get_imm(0)
#else
#define AICORE_ENTRY __vector__ __global__
#define AICORE_MEMORY __ubuf__ __attribute__((aligned(32))) uint8_t memory[TIGON_UB_BYTES]
#endif

/* The arguments come by value, as a launch packs them. Registers are put in order first, because a launch leaves them as the last
 * one had them: what loads fill up with is 0. */
#define AICORE_KERNEL(name, arguments)                       \
  AICORE void name##_body(ub_arena *ub, const arguments *a); \
  extern "C" AICORE_ENTRY void name(arguments by_value) {    \
    AICORE_MEMORY;                                           \
    ub_arena ub = {memory, 0};                               \
    set_atomic_none();                                       \
    set_mask_norm();                                         \
    set_vector_mask(~(uint64_t)0, ~(uint64_t)0);             \
    set_mov_pad_val(0);                                      \
    name##_body(&ub, &by_value);                             \
  }                                                          \
  AICORE void name##_body(ub_arena *ub, const arguments *a)

typedef __gm__ uint8_t *gm_ptr;
typedef __ubuf__ float *ub_f32;
typedef __ubuf__ __bf16 *ub_bf16;
typedef __ubuf__ half *ub_f16;
typedef __ubuf__ int8_t *ub_i8;

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
AICORE ub_i8 ub_at_i8(ub_i8 x, int64_t i) { return x + i; }
#define ub_as_f32(x) ((ub_f32)(x))
#define ub_as_bf16(x) ((ub_bf16)(x))
#define ub_as_f16(x) ((ub_f16)(x))
#define ub_as_i8(x) ((ub_i8)(x))

/* ---- order; the vendor wants the pipes as constants ---- */

#define sync_set(from, to, id) set_flag(from, to, (event_t)(id))
#define sync_wait(from, to, id) wait_flag(from, to, (event_t)(id))
#define sync_pipe(pipe) pipe_barrier(pipe)

AICORE int64_t block_index(void) { return (int64_t)get_block_idx(); }
AICORE int64_t block_count(void) { return (int64_t)get_block_num(); }
AICORE float s_read_f32(ub_f32 a, int64_t i) { return a[i]; }
AICORE void s_write_f32(ub_f32 a, int64_t i, float value) { a[i] = value; }
AICORE int32_t s_read_i32(ub_f32 a, int64_t i) { return ((__ubuf__ int32_t *)a)[i]; }
AICORE void s_write_i32(ub_f32 a, int64_t i, int32_t value) { ((__ubuf__ int32_t *)a)[i] = value; }

/* ---- loads and stores: bursts of `cols` elements, end to end in global memory (gap 0), each on its own 32 bytes in UB ---- */

AICORE uint8_t right_padding(int64_t cols, int64_t size) {
  const int64_t block = UB_BLOCK / size;
  return (uint8_t)((block - cols % block) % block);
}
/* (to, from, 0, bursts, bytes of one, elements before it, elements after it, gap of the source, gap of the destination) */
AICORE void load_f32(ub_f32 d, gm_ptr from, int64_t rows, int64_t cols) {
  copy_gm_to_ubuf_align_b32(d, (__gm__ float *)from, 0, (uint16_t)rows, (uint32_t)(cols * 4), 0, right_padding(cols, 4),
                            0, 0);
}
AICORE void load_bf16(ub_bf16 d, gm_ptr from, int64_t rows, int64_t cols) {
  copy_gm_to_ubuf_align_b16(d, (__gm__ __bf16 *)from, 0, (uint16_t)rows, (uint32_t)(cols * 2), 0,
                            right_padding(cols, 2), 0, 0);
}
AICORE void load_f16(ub_f16 d, gm_ptr from, int64_t rows, int64_t cols) {
  copy_gm_to_ubuf_align_b16(d, (__gm__ half *)from, 0, (uint16_t)rows, (uint32_t)(cols * 2), 0, right_padding(cols, 2),
                            0, 0);
}
AICORE void store_f32(gm_ptr to, ub_f32 s, int64_t rows, int64_t cols) {
  copy_ubuf_to_gm_align_b32((__gm__ float *)to, s, 0, (uint16_t)rows, (uint32_t)(cols * 4), 0, 0, 0, 0);
}
AICORE void store_bf16(gm_ptr to, ub_bf16 s, int64_t rows, int64_t cols) {
  copy_ubuf_to_gm_align_b16((__gm__ __bf16 *)to, s, 0, (uint16_t)rows, (uint32_t)(cols * 2), 0, 0, 0, 0);
}
AICORE void store_f16(gm_ptr to, ub_f16 s, int64_t rows, int64_t cols) {
  copy_ubuf_to_gm_align_b16((__gm__ half *)to, s, 0, (uint16_t)rows, (uint32_t)(cols * 2), 0, 0, 0, 0);
}
AICORE void store_i8(gm_ptr to, ub_i8 s, int64_t rows, int64_t cols) {
  copy_ubuf_to_gm_align_b8((__gm__ int8_t *)to, s, 0, (uint16_t)rows, (uint32_t)cols, 0, 0, 0, 0);
}

/* ---- vectors in count form: the mask register counts elements, and a call is of one repeat ---- */

AICORE void count_begin(int64_t n) {
  set_mask_count();
  set_vector_mask(0, (uint64_t)n);
}
AICORE void count_end(void) { set_mask_norm(); }

/* (d, a, b, repeat, strides from block to block, strides from repeat to repeat) */
#define V_BINARY(name, call)                                  \
  AICORE void name(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) { \
    count_begin(n);                                           \
    call(d, a, b, 1, 1, 1, 1, 8, 8, 8);                       \
    count_end();                                              \
  }
V_BINARY(v_add_f32, vadd)
V_BINARY(v_sub_f32, vsub)
V_BINARY(v_mul_f32, vmul)
V_BINARY(v_div_f32, vdiv)
V_BINARY(v_max_f32, vmax)
V_BINARY(v_min_f32, vmin)

#define V_SCALAR(name, call)                                 \
  AICORE void name(ub_f32 d, ub_f32 a, float v, int64_t n) { \
    count_begin(n);                                          \
    call(d, a, v, 1, 1, 1, 8, 8);                            \
    count_end();                                             \
  }
V_SCALAR(v_add_scalar_f32, vadds)
V_SCALAR(v_mul_scalar_f32, vmuls)
V_SCALAR(v_max_scalar_f32, vmaxs)
V_SCALAR(v_min_scalar_f32, vmins)

/* Steps of 256 bytes of the wider type: 8 blocks of it, 4 of one half as wide. */
#define V_UNARY(name, call, to, from, to_step, from_step) \
  AICORE void name(to d, from a, int64_t n) {             \
    count_begin(n);                                       \
    call(d, a, 1, 1, 1, to_step, from_step);              \
    count_end();                                          \
  }
V_UNARY(v_exp_f32, vexp, ub_f32, ub_f32, 8, 8)
V_UNARY(v_ln_f32, vln, ub_f32, ub_f32, 8, 8)
V_UNARY(v_sqrt_f32, vsqrt, ub_f32, ub_f32, 8, 8)
V_UNARY(v_rsqrt_f32, vrsqrt, ub_f32, ub_f32, 8, 8)
V_UNARY(v_abs_f32, vabs, ub_f32, ub_f32, 8, 8)
V_UNARY(v_f32_from_bf16, vconv_bf162f32, ub_f32, ub_bf16, 8, 4)
V_UNARY(v_f32_from_f16, vconv_f162f32, ub_f32, ub_f16, 8, 4)
V_UNARY(v_bf16_from_f32, vconv_f322bf16r, ub_bf16, ub_f32, 4, 8)
V_UNARY(v_f16_from_f32, vconv_f322f16r, ub_f16, ub_f32, 4, 8)
V_UNARY(v_i8_from_f16, vconv_f162s8r, ub_i8, ub_f16, 4, 8)

AICORE void v_i32_from_f32(ub_f32 d, ub_f32 a, int64_t n) {
  count_begin(n);
  vconv_f322s32r((__ubuf__ int32_t *)d, a, 1, 1, 1, 8, 8);
  count_end();
}
AICORE void v_f32_from_i32(ub_f32 d, ub_f32 a, int64_t n) {
  count_begin(n);
  vconv_s322f32(d, (__ubuf__ int32_t *)a, 1, 1, 1, 8, 8);
  count_end();
}
/* The source's strides say nothing here. */
AICORE void v_duplicate_f32(ub_f32 d, float v, int64_t n) {
  count_begin(n);
  vector_dup(d, v, 1, 1, 1, 8, 0);
  count_end();
}
/* Bits: of 16-bit elements alone on these parts, twice as many. */
AICORE void v_and_f32(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) {
  count_begin(2 * n);
  vand((__ubuf__ uint16_t *)d, (__ubuf__ uint16_t *)a, (__ubuf__ uint16_t *)b, 1, 1, 1, 1, 8, 8, 8);
  count_end();
}
AICORE void v_not_f32(ub_f32 d, ub_f32 a, int64_t n) {
  count_begin(2 * n);
  vnot((__ubuf__ uint16_t *)d, (__ubuf__ uint16_t *)a, 1, 1, 1, 8, 8);
  count_end();
}
/* Offsets are bytes from the address that comes as a number. */
AICORE void v_gather_f32(ub_f32 d, ub_f32 a, ub_f32 offsets, int64_t n) {
  count_begin(n);
  vgather((__ubuf__ uint32_t *)d, (__ubuf__ uint32_t *)offsets, (uint64_t)a, 8, 1);
  count_end();
}

/* ---- vectors in repeat form ---- */

AICORE void v_mask_f32(int lanes) {
  set_mask_norm();
  set_vector_mask(0, lanes == V_LANES ? ~(uint64_t)0 : ((uint64_t)1 << lanes) - 1);
}

/* The strides of a call, in the order in which the intrinsics take them. */
#define V_STEPS(s)                                                                                            \
  (uint8_t)(s).repeat, (uint8_t)(s).d_block, (uint8_t)(s).a_block, (uint8_t)(s).b_block, (uint8_t)(s).d_step, \
      (uint8_t)(s).a_step, (uint8_t)(s).b_step
AICORE void v_add_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { vadd(d, a, b, V_STEPS(s)); }
AICORE void v_sub_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { vsub(d, a, b, V_STEPS(s)); }
AICORE void v_mul_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { vmul(d, a, b, V_STEPS(s)); }
AICORE void v_div_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { vdiv(d, a, b, V_STEPS(s)); }
AICORE void v_max_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { vmax(d, a, b, V_STEPS(s)); }
AICORE void v_min_r_f32(ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) { vmin(d, a, b, V_STEPS(s)); }

/* (d, a, repeat, elements from result to result, stride from block to block, from repeat to repeat, mode) */
AICORE void v_sum_r_f32(ub_f32 d, ub_f32 a, int repeat, int d_stride, int a_stride) {
  vcadd(d, a, (uint8_t)repeat, (uint16_t)d_stride, 1, (uint16_t)a_stride, 0);
}
AICORE void v_maximum_r_f32(ub_f32 d, ub_f32 a, int repeat, int d_stride, int a_stride) {
  vcmax(d, a, (uint8_t)repeat, (uint16_t)d_stride, 1, (uint16_t)a_stride, Order_t::ONLY_VALUE);
}
AICORE void v_spread_f32(ub_f32 d, ub_f32 a, int repeat) {
  vbrcb((__ubuf__ uint32_t *)d, (__ubuf__ uint32_t *)a, 1, 8, (uint8_t)repeat);
}

/* ---- compare and select ---- */

AICORE void v_lt_scalar_f32(ub_f32 mask, ub_f32 a, float value) {
  vcmpvs_lt((__ubuf__ uint8_t *)mask, a, value, 1, 1, 1, 8, 8);
}
/* set_cmpmask() reads 16 bytes, of which a comparison writes 8 and this uses 8. */
AICORE void v_select_f32(ub_f32 d, ub_f32 mask, ub_f32 a, ub_f32 b) {
  set_cmpmask(mask);
  pipe_barrier(PIPE_V);
  count_begin(V_LANES);
  vsel(d, a, b, 1, 1, 1, 1, 8, 8, 8);
  count_end();
}

#endif
