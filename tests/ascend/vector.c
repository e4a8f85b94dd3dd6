/* Each call of the dialect against a loop: count and repeat forms, masks, strides, tails, casts, transfers of ragged rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ascend/aicore.h"
#include "core/half.h"

enum { N = 640, OUTS = 24 }; /* elements of an array; arrays that a kernel stores */

typedef struct arguments {
  gm_ptr a, b, out;
} arguments;

static float a_in[N], b_in[N], out[OUTS][N];

static void launch(tigon_sim *sim, tigon_sim_kernel *kernel) {
  const arguments arguments = {(gm_ptr)a_in, (gm_ptr)b_in, (gm_ptr)out};
  for (int i = 0; i < N; ++i) a_in[i] = 0.25f + (float)(i * 37 % 101) / 16, b_in[i] = (float)(i * 53 % 97) / 8 - 6;
  memset(out, 0xff, sizeof out);
  tigon_sim_buffer(sim, "a", a_in, sizeof a_in, SIM_READS);
  tigon_sim_buffer(sim, "b", b_in, sizeof b_in, SIM_READS);
  tigon_sim_buffer(sim, "out", out, sizeof out, SIM_WRITES);
  if (!tigon_sim_launch(sim, "kernel", kernel, &arguments, 1)) fail_msg("%s", tigon_sim_report(sim)->text);
}

/* d goes to out[index]. */
AICORE void keep(const arguments *a, ub_f32 d, int index, int n) {
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  store_f32(a->out + (int64_t)index * N * 4, d, 1, n);
  sync_set(PIPE_MTE3, PIPE_V, 0);
  sync_wait(PIPE_MTE3, PIPE_V, 0);
}

AICORE ub_f32 bring(ub_arena *ub, gm_ptr from) {
  const ub_f32 x = ub_alloc_f32(ub, N);
  load_f32(x, from, 1, N);
  sync_pipe(PIPE_ALL);
  return x;
}

enum { SOME = 601 }; /* not a multiple of anything */

#define KEEP(index, call) ((call), keep(a, d, index, SOME))

AICORE_KERNEL(count_forms, arguments) {
  const ub_f32 x = bring(ub, a->a), y = bring(ub, a->b), d = ub_alloc_f32(ub, N);
  KEEP(0, v_add_f32(d, x, y, SOME));
  KEEP(1, v_sub_f32(d, x, y, SOME));
  KEEP(2, v_mul_f32(d, x, y, SOME));
  KEEP(3, v_div_f32(d, y, x, SOME));
  KEEP(4, v_max_f32(d, x, y, SOME));
  KEEP(5, v_min_f32(d, x, y, SOME));
  KEEP(6, v_add_scalar_f32(d, x, 1.5f, SOME));
  KEEP(7, v_mul_scalar_f32(d, x, 1.5f, SOME));
  KEEP(8, v_max_scalar_f32(d, y, 1.5f, SOME));
  KEEP(9, v_min_scalar_f32(d, y, 1.5f, SOME));
  KEEP(10, v_exp_f32(d, y, SOME));
  KEEP(11, v_ln_f32(d, x, SOME));
  KEEP(12, v_sqrt_f32(d, x, SOME));
  KEEP(13, v_rsqrt_f32(d, x, SOME));
  KEEP(14, v_abs_f32(d, y, SOME));
  KEEP(15, v_duplicate_f32(d, 2.5f, SOME));
  KEEP(16, v_i32_from_f32(d, y, SOME));
  KEEP(17, v_and_f32(d, x, y, SOME));
  KEEP(18, v_not_f32(d, y, SOME));
  KEEP(19, v_f32_from_i32(d, y, SOME));
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float expected(int call, float x, float y) {
  switch (call) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return y / x;
    case 4: return fmaxf(x, y);
    case 5: return fminf(x, y);
    case 6: return x + 1.5f;
    case 7: return x * 1.5f;
    case 8: return fmaxf(y, 1.5f);
    case 9: return fminf(y, 1.5f);
    case 10: return expf(y);
    case 11: return logf(x);
    case 12: return sqrtf(x);
    case 13: return 1 / sqrtf(x);
    case 14: return fabsf(y);
    case 16: return from_bits((uint32_t)(int32_t)rintf(y));
    case 17: return from_bits(bits_of(x) & bits_of(y));
    case 18: return from_bits(~bits_of(y));
    case 19: return (float)(int32_t)bits_of(y);
    default: return 2.5f;
  }
}

static void calls_in_count_form(void **state) {
  launch(*state, count_forms);
  for (int call = 0; call < 20; ++call)
    for (int i = 0; i < N; ++i)
      if (bits_of(out[call][i]) != (i < SOME ? bits_of(expected(call, a_in[i], b_in[i])) : UINT32_MAX))
        fail_msg("call %d, element %d: %g", call, i, (double)out[call][i]);
}

/* Three steps under a mask of 20 lanes, with every stride another. */
static const v_steps strided = {
    .repeat = 3, .d_block = 1, .a_block = 2, .b_block = 0, .d_step = 4, .a_step = 1, .b_step = 5};

AICORE_KERNEL(repeat_forms, arguments) {
  const ub_f32 x = bring(ub, a->a), y = bring(ub, a->b), d = ub_alloc_f32(ub, N), mask = ub_alloc_f32(ub, 8);
  v_duplicate_f32(d, 9, N);
  sync_pipe(PIPE_V);
  v_mask_f32(20);
  v_sub_r_f32(d, x, y, strided);
  keep(a, d, 0, N);
  v_mask_f32(33);
  v_sum_r_f32(d, x, 5, 2, 9);
  keep(a, d, 1, N);
  v_maximum_r_f32(d, y, 5, 1, 8);
  keep(a, d, 2, N);
  v_spread_f32(d, y, 3);
  keep(a, d, 3, N);
  v_duplicate_f32(mask, 0, 4); /* a selection takes 16 bytes */
  sync_pipe(PIPE_V);
  v_lt_scalar_f32(mask, y, 0.5f);
  sync_pipe(PIPE_V);
  v_select_f32(d, mask, x, y);
  keep(a, d, 4, N);
}

/* The bits of integers, and a gather by them, backwards. */
AICORE_KERNEL(gathers, arguments) {
  const ub_f32 x = bring(ub, a->a), offsets = ub_alloc_f32(ub, N), d = ub_alloc_f32(ub, N);
  for (int i = 0; i < SOME; ++i) s_write_i32(offsets, i, 4 * (SOME - 1 - i));
  s_write_i32(offsets, 0, s_read_i32(offsets, 0) - 4);
  sync_set(PIPE_S, PIPE_V, 0);
  sync_wait(PIPE_S, PIPE_V, 0);
  KEEP(0, v_gather_f32(d, x, offsets, SOME));
}

static void a_gather_takes_bytes(void **state) {
  launch(*state, gathers);
  for (int i = 0; i < SOME; ++i) assert_true(out[0][i] == a_in[i ? SOME - 1 - i : SOME - 2]);
}

static float tree(const float *x, int lanes) {
  float sums[64] = {0};
  memcpy(sums, x, (size_t)lanes * sizeof *x);
  for (int n = 32; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}

static void calls_in_repeat_form(void **state) {
  float d[N];
  launch(*state, repeat_forms);
  for (int i = 0; i < N; ++i) d[i] = 9;
  for (int r = 0; r < 3; ++r)
    for (int lane = 0; lane < 20; ++lane)
      d[32 * r + lane] = a_in[8 * r + 16 * (lane / 8) + lane % 8] - b_in[40 * r + lane % 8];
  assert_memory_equal(out[0], d, sizeof d);
  for (int r = 0; r < 5; ++r) d[2 * r] = tree(a_in + 72 * r, 33);
  assert_memory_equal(out[1], d, sizeof d);
  for (int r = 0; r < 5; ++r) {
    d[r] = b_in[64 * r];
    for (int lane = 1; lane < 33; ++lane) d[r] = fmaxf(d[r], b_in[64 * r + lane]);
  }
  assert_memory_equal(out[2], d, sizeof d);
  for (int i = 0; i < 3 * 64; ++i) d[i] = b_in[i / 8];
  assert_memory_equal(out[3], d, sizeof d);
  for (int i = 0; i < 64; ++i) d[i] = b_in[i] < 0.5f ? a_in[i] : b_in[i];
  assert_memory_equal(out[4], d, sizeof d);
}

/* Casts there and back, ragged rows, and the scalar pipe. */
AICORE_KERNEL(casts_and_rows, arguments) {
  const ub_f32 x = bring(ub, a->b), d = ub_alloc_f32(ub, N);
  const ub_bf16 b = ub_alloc_bf16(ub, N);
  const ub_f16 h = ub_alloc_f16(ub, N);
  v_bf16_from_f32(b, x, SOME);
  v_f16_from_f32(h, x, SOME);
  sync_pipe(PIPE_V);
  KEEP(0, v_f32_from_bf16(d, b, SOME));
  KEEP(1, v_f32_from_f16(d, h, SOME));
  sync_pipe(PIPE_ALL);
  load_f32(d, a->a, 5, 11); /* in UB a row begins every 16 elements */
  sync_set(PIPE_MTE2, PIPE_S, 0);
  sync_wait(PIPE_MTE2, PIPE_S, 0);
  s_write_f32(d, 15, s_read_f32(d, 16) + s_read_f32(d, 12)); /* row 1's first, and the filling after row 0 */
  s_write_i32(d, 14, s_read_i32(d, 17) + 1);                 /* the next float above row 1's second */
  sync_set(PIPE_S, PIPE_MTE3, 0);
  sync_wait(PIPE_S, PIPE_MTE3, 0);
  sync_set(PIPE_MTE2, PIPE_MTE3, 0);
  sync_wait(PIPE_MTE2, PIPE_MTE3, 0);
  store_f32(a->out + (int64_t)2 * N * 4, d, 1, 80);
  store_f32(a->out + (int64_t)3 * N * 4, d, 5, 11);
}

static void casts_rows_and_scalars(void **state) {
  launch(*state, casts_and_rows);
  for (int i = 0; i < SOME; ++i) {
    assert_true(out[0][i] == tigon_f32_from_bf16(tigon_bf16_from_f32(b_in[i])));
    assert_true(out[1][i] == tigon_f32_from_f16(tigon_f16_from_f32(b_in[i])));
  }
  for (int i = 0; i < 80; ++i)
    assert_true(out[2][i] == (i % 16 < 11 ? a_in[i / 16 * 11 + i % 16]
                              : i == 15   ? a_in[11]
                              : i == 14   ? nextafterf(a_in[12], INFINITY)
                                          : 0));
  assert_memory_equal(out[3], a_in, 55 * sizeof *a_in);
}

/* Bytes: nearest integers, up to what they hold; a NaN; rows that begin anywhere in global memory. */
AICORE_KERNEL(bytes, arguments) {
  const ub_f32 x = bring(ub, a->b), d = ub_alloc_f32(ub, N);
  const ub_f16 h = ub_alloc_f16(ub, N);
  v_mul_scalar_f32(x, x, 24.5f, SOME);
  v_duplicate_f32(d, __builtin_nanf(""), 8);
  sync_pipe(PIPE_V);
  v_f16_from_f32(h, x, SOME);
  sync_pipe(PIPE_V);
  v_f16_from_f32(h, d, 1);
  sync_pipe(PIPE_V);
  v_i8_from_f16(ub_as_i8(d), h, SOME);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  store_i8(a->out + 3, ub_as_i8(d), 1, SOME);
  store_i8(a->out + N * 4, ub_at_i8(ub_as_i8(d), 32), 3, 33);
}

static void bytes_are_the_nearest_integers(void **state) {
  launch(*state, bytes);
  const int8_t *found = (const int8_t *)out + 3, *rows = (const int8_t *)out[1];
  int cut = 0;
  for (int i = 0; i < SOME; ++i) {
    const float nearest = rintf(tigon_f32_from_f16(tigon_f16_from_f32(b_in[i] * 24.5f)));
    cut += nearest > 127 || nearest < -128;
    assert_int_equal(found[i], i == 0 ? 0 : nearest > 127 ? 127 : nearest < -128 ? -128 : (int)nearest);
  }
  assert_true(cut > 0 && found[-1] == -1 && found[SOME] == -1);
  for (int r = 0; r < 3; ++r) assert_memory_equal(rows + 33 * r, found + 32 + 64 * r, 33);
}

static int64_t order_of(float value) {
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

AICORE_KERNEL(roundings, arguments) {
  const ub_f32 x = bring(ub, a->a), y = bring(ub, a->b), d = ub_alloc_f32(ub, N), e = ub_alloc_f32(ub, N);
  v_mul_scalar_f32(e, y, 15, N); /* -90 to 90: e^-90 is denormal */
  sync_pipe(PIPE_V);
  KEEP(0, v_exp_f32(d, e, SOME));
  KEEP(1, v_ln_f32(d, x, SOME));
  KEEP(2, v_sqrt_f32(d, x, SOME));
  KEEP(3, v_div_f32(d, y, x, SOME));
  KEEP(4, v_add_f32(d, y, x, SOME));
}

/* Each is off by every number of ulps up to the noise's, the same again, and differently with another seed; nothing else is. */
static void noise_is_of_some_ulps(void **state) {
  static float exact[5][N], first[5][N];
  int other = 0;
  for (int run = 0; run < 4; ++run) {
    const tigon_sim_modes modes = {.noise = run ? 2 : 0, .noise_seed = run == 3};
    tigon_sim_use(*state, &modes);
    launch(*state, roundings);
    if (run == 0) memcpy(exact, out, sizeof exact);
    if (run == 1) memcpy(first, out, sizeof first);
    if (run == 2) assert_memory_equal(first, out, sizeof first);
    for (int k = 0; k < 5; ++k) {
      int seen[5] = {0};
      for (int i = 0; i < SOME; ++i) {
        const int64_t off = order_of(out[k][i]) - order_of(exact[k][i]);
        assert_in_range(off + 2, 0, 4);
        ++seen[off + 2];
        other += run == 3 && out[k][i] != first[k][i];
      }
      for (int off = 0; off < 5; ++off) assert_true((seen[off] > 50) == ((run > 0 && k < 4) || off == 2));
    }
  }
  assert_true(other > SOME);
  tigon_sim_use(*state, &(tigon_sim_modes){0});
}

static void flushed_are_the_denormals(void **state) {
  static float exact[N];
  int flushed = 0;
  launch(*state, roundings);
  memcpy(exact, out[0], sizeof exact);
  tigon_sim_use(*state, &(tigon_sim_modes){.flush = true});
  launch(*state, roundings);
  for (int i = 0; i < SOME; ++i) {
    flushed += exact[i] != 0 && exact[i] < 0x1p-126f;
    assert_true(out[0][i] == (exact[i] < 0x1p-126f ? 0 : exact[i]));
  }
  assert_true(flushed > 0);
  tigon_sim_use(*state, &(tigon_sim_modes){0});
}

static int open_machine(void **state) {
  *state = tigon_sim_open(tigon_sim_soc_find("910B1"));
  return *state ? 0 : -1;
}
static int close_machine(void **state) {
  tigon_sim_close(*state);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_in_count_form),
      cmocka_unit_test(calls_in_repeat_form),
      cmocka_unit_test(casts_rows_and_scalars),
      cmocka_unit_test(a_gather_takes_bytes),
      cmocka_unit_test(noise_is_of_some_ulps),
      cmocka_unit_test(flushed_are_the_denormals),
      cmocka_unit_test(bytes_are_the_nearest_integers),
  };
  return cmocka_run_group_tests(tests, open_machine, close_machine);
}
