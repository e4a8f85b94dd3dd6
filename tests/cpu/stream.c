/* Stores past the caches need aligned addresses. Calls large enough for them have the same bits wherever their outputs begin, and write
 * nothing beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

#include "backend.h"
#include "cpu/cpu.h"

/* Elements; bytes before and behind an output; rows of logits. */
enum { COUNT = 1 << 20, EDGE = 128, ROWS = 128, COLS = COUNT / ROWS, BYTES = 4 * COUNT + 2 * EDGE };

static float inputs[3][COUNT];
static _Alignas(64) char outputs[2][BYTES], want[2][BYTES], workspace[8 * ROWS];
static int64_t labels[ROWS];
static tigon_dtype dtype;

static void begin(void) { memset(outputs, 0x5a, sizeof outputs); }
static tigon_tensor input(int i) { return tigon_tensor_2d(inputs[i], dtype, ROWS, COLS); }
static tigon_tensor output(int i, int offset) { return tigon_tensor_2d(outputs[i] + EDGE + offset, dtype, ROWS, COLS); }

/* An output of the call before: keeps it, or compares it with the kept one, and its edges with what they were. */
static void compare(int i, int offset, bool keep) {
  const size_t bytes = COUNT * tigon_dtype_size(dtype);
  const char *at = outputs[i] + EDGE + offset;
  if (keep) memcpy(want[i], at, bytes);
  assert_memory_equal(at, want[i], bytes);
  for (int b = 1; b <= EDGE / 2; ++b) assert_true(at[-b] == 0x5a && at[bytes + (size_t)b - 1] == 0x5a);
}

/* Two outputs, which are aligned alike or not. */
static void two_outputs(tigon_context *c) {
  static const int offsets[][2] = {{0, 0}, {16, 16}, {16, 48}, {0, 32}, {32, 0}, {4, 60}, {60, 60}};
  assert_true(tigon_cpu_streams(5 * COUNT * (int64_t)tigon_dtype_size(dtype)));
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i) {
    const tigon_swiglu_bwd_args args = {
        .a = input(0), .dc = input(1), .b = input(2), .da = output(0, offsets[i][0]), .db = output(1, offsets[i][1])};
    begin();
    if (tigon_swiglu_bwd(c, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(c));
    for (int k = 0; k < 2; ++k) compare(k, offsets[i][k], i == 0);
  }
}

static void rows_of_logits(tigon_context *c) {
  if (!tigon_cpu_streams(2 * COUNT * (int64_t)tigon_dtype_size(dtype))) return;
  for (int offset = 0; offset <= 60; offset += 12) {
    float loss;
    const tigon_cross_entropy_fwd_args args = {.logits = input(0),
                                               .labels = tigon_tensor_1d(labels, TIGON_I64, ROWS),
                                               .dlogits = output(0, offset),
                                               .out = {.loss = tigon_tensor_1d(&loss, TIGON_F32, 1)},
                                               .workspace = workspace,
                                               .workspace_bytes = sizeof workspace};
    begin();
    if (tigon_cross_entropy_fwd(c, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(c));
    compare(0, offset, offset == 0);
  }
}

static void test_offsets(void **state) {
  (void)state;
  for (dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype)
    for (const tigon_kernels *const *v = tigon_backend_find("cpu")->variants(); *v; ++v) {
      tigon_context *c;
      assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .variant = (*v)->variant}, &c),
                       TIGON_OK);
      two_outputs(c);
      rows_of_logits(c);
      tigon_context_destroy(c);
    }
}

int main(void) {
  uint32_t seed = 1;
  for (int k = 0; k < 3; ++k)
    for (int i = 0; i < COUNT; ++i) {
      seed = seed * 1664525u + 1013904223u;                                   /* Numerical Recipes */
      const uint32_t half = 0x3c00 | (seed >> 31 << 15) | (seed >> 16 & 255); /* near 1 as f16, 2^-7 as bf16 */
      const uint32_t bits = half << 16 | half;
      memcpy(&inputs[k][i], &bits, sizeof bits);
    }
  for (int i = 0; i < ROWS; ++i) labels[i] = i * 61 % COLS;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_offsets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
