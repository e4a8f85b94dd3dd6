/* The dialect in which kernels for an Ascend AI core are written: a C subset over these functions. It has two
 * implementations, and a kernel's file is the same for both:
 *   the device     ascend/aicore_device.h: inline wrappers over the intrinsics of the vendor's device compiler. It is written
 *                  from public sources that call them, and has not been compiled by that compiler yet
 *   the simulator  ascend/sim/aicore_sim.h: each call is executed, checked and costed (docs/ascend-simulator.md)
 *
 * A core has four pipes that run side by side. The kernel's own code is the scalar pipe; it hands every call below to the pipe
 * of its kind and goes on without waiting:
 *   PIPE_MTE2 loads, PIPE_V works on vectors, PIPE_MTE3 stores, PIPE_S is the scalar pipe itself.
 * Calls on one pipe start in order, but nothing waits for an earlier result without being told so:
 *   between pipes  sync_set(from, to, id) after the last call of `from`, sync_wait(from, to, id) before the first of `to`.
 *                  id is 0..7 for each pair. A flag is set once and awaited once, in turns; none is left set at the end
 *   on one pipe    sync_pipe(pipe) between two calls of which the later one reads or writes what the earlier one does
 *   all of them    sync_pipe(PIPE_ALL)
 *
 * Memory. gm_ptr is a byte address in global memory. ub_f32, ub_bf16, ub_f16, ub_i8 are arrays in the Unified Buffer (UB), handles
 * and not C arrays: only these calls and s_read_f32() see what is in them.
 *   ub_f32 ub_alloc_f32(ub_arena *, n)              the next n elements, 32-byte aligned; so ub_alloc_bf16, ub_alloc_f16
 *   ub_f32 ub_at_f32(x, i)                          &x[i]; so ub_at_bf16, ub_at_f16, ub_at_i8
 *   ub_bf16 ub_as_bf16(x), ub_as_f16(x)             an ub_f32's bytes as 16-bit elements; so ub_as_f32(x) of an ub_bf16
 *   ub_i8 ub_as_i8(x)                               its bytes
 *
 * Loads and stores (MTE2, MTE3). `rows` rows of `cols` elements that lie end to end in global memory. In UB each row starts on
 * the next 32-byte boundary, and a load fills what is left of its last 32 bytes with zeros. rows <= 4095.
 *   load_f32(ub, gm, rows, cols)   store_f32(gm, ub, rows, cols)   and _bf16, _f16
 *   store_i8(gm, ub, rows, cols)                    there is no load of bytes
 *
 * Vector calls (V). f32 alone has arithmetic; 16-bit elements are cast first. Arrays are 32-byte aligned. Destination and source
 * are the same array or do not overlap. In count form a call takes `n` elements:
 *   v_add_f32(d, a, b, n)   sub mul div max min     d = a op b; max and min let a NaN pass
 *   v_add_scalar_f32(d, a, value, n)   mul max min  d = a op value
 *   v_exp_f32(d, a, n)   ln sqrt rsqrt abs          d = op(a); rsqrt is an estimate: sqrt and div where ulps matter
 *   v_duplicate_f32(d, value, n)
 *   v_and_f32(d, a, b, n)   v_not_f32(d, a, n)      of the elements' bits
 *   v_i32_from_f32(d, a, n)                         bits of the nearest integer, ties to even; 0 of a NaN
 *   v_f32_from_i32(d, a, n)                         the number nearest to the integer in a's bits, ties to even
 *   v_f32_from_bf16(d, a, n)   v_f32_from_f16       widening is exact
 *   v_bf16_from_f32(d, a, n)   v_f16_from_f32       to the nearest, ties to even
 *   v_i8_from_f16(d, a, n)                          the same, at least -128 and at most 127; 0 of a NaN. f32 has no cast to bytes
 * In repeat form a call makes `repeat` (1..255) steps of 256 bytes: 8 blocks of 32 bytes, 64 lanes. Strides count blocks; a
 * block stride of 0 gives all 8 blocks the first one, a repeat stride of 0 gives all steps the first one. v_mask_f32(lanes) says
 * how many lanes of a step take part; it must be called again after any call in count form, which overwrites the mask.
 *   v_add_r_f32(d, a, b, v_steps)   sub mul div max min
 *   v_sum_r_f32(d, a, repeat, d_stride, a_stride)   d[i * d_stride] = sum of the lanes of step i; v_maximum_r_f32 alike
 *   v_spread_f32(d, a, repeat)                      block i of d = 8 times a[i], for 8 * repeat blocks. No mask
 *   v_gather_f32(d, a, offsets, n)                  d[i] = a at offsets[i] bytes, an i32 in its bits and a multiple of 4
 * Compare and select work on one step of 64 lanes and are slow: prefer tails by length.
 *   v_lt_scalar_f32(mask, a, value)                 bit i of the 8 bytes at ub_f32 mask = a[i] < value
 *   v_select_f32(d, mask, a, b)                     d[i] = bit i ? a[i] : b[i], 64 elements; takes 16 bytes at mask, uses 8
 *
 * Scalar (S). s_read_f32(a, i), s_write_f32(a, i, value): they wait for nothing either, so sync first. s_read_i32, s_write_i32: the
 * same four bytes of an ub_f32 as an integer, which is how indices come, too.
 * block_index(), block_count(): which program of the launch this is.
 *
 * A kernel is AICORE_KERNEL(name, arguments) { ... }: `a` points to the arguments, a struct of 8-byte fields, `ub` to the
 * arena. What it calls is marked AICORE. */
#ifndef TIGON_ASCEND_AICORE_H
#define TIGON_ASCEND_AICORE_H

#include <stdbool.h>
#include <stdint.h>

/* A binary call in repeat form: steps, and the strides of d, a and b from block to block and from step to step. */
typedef struct v_steps {
  int repeat;
  int d_block, a_block, b_block;
  int d_step, a_step, b_step;
} v_steps;

enum {
  UB_BLOCK = 32,   /* bytes */
  V_LANES = 64,    /* f32 elements of a step */
  V_REPEATS = 255, /* steps of one call */
};

#if defined(TIGON_AICORE_DEVICE)
#include "ascend/aicore_device.h"
#else
#include "ascend/sim/aicore_sim.h"
#endif

#endif
