/* How wide a row may be for one read on an Ascend 910B (188,160 usable bytes), against the figures that were derived by
 * hand without row scalars:
 *                              hand             here             bytes a column
 *   rms_norm forward, C    9408 / 7840      9392 / 7832      bf16: x 2*2, y 2*2, w 4, two f32 tiles 8 = 20; f32: 24
 *   rms_norm backward, C   5880 / 4704      5872 / 4696      bf16: dy x dx 12, w 4, dw 4, three f32 tiles 12; f32: 40
 *   rms_norm forward, D    81k / 40k       81728 / 40864     x once: 2; f32: 4; beside 24 KiB for the chunks
 *   rms_norm backward, D   20k / 13.6k     20432 / 13616     dy, x, dw: 8; f32: 12; beside 24 KiB
 * Here rstd (double-buffered, 32 bytes each) and the row's sum (32 bytes, in D once more for a chunk's) take 96 or 128
 * bytes, and a row of a tile has as many elements in f32 as in its dtype, where it is rounded up to 32 bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ascend/plan/plan.h"

static tigon_plan plan_of(const char *op, const char *entry, tigon_dtype dtype, const char *device, int64_t rows,
                          int64_t cols, tigon_plan_case force) {
  tigon_footprint footprint;
  assert_true(tigon_footprint_find(op, entry, dtype, &footprint));
  const tigon_plan_request request = {
      .footprint = &footprint, .device = tigon_device_desc_find(device), .rows = rows, .cols = cols, .force = force};
  tigon_plan plan;
  tigon_plan_make(&request, &plan);
  return plan;
}

/* `cols` fits and nothing wider does, up to three times as wide. */
static void assert_reach(const char *entry, tigon_dtype dtype, tigon_plan_case force, int64_t cols) {
  assert_int_equal(plan_of("rms_norm", entry, dtype, "910B1", 4096, cols, force).status, TIGON_OK);
  for (int64_t wider = cols + 1; wider < 3 * cols; wider++) {
    assert_int_equal(plan_of("rms_norm", entry, dtype, "910B1", 4096, wider, force).status, TIGON_ERROR_SCRATCH);
  }
}

static void whole_rows(void **state) {
  (void)state;
  assert_reach("fwd", TIGON_BF16, TIGON_CASE_C, 9392);
  assert_reach("fwd", TIGON_F32, TIGON_CASE_C, 7832);
  assert_reach("bwd", TIGON_BF16, TIGON_CASE_C, 5872);
  assert_reach("bwd", TIGON_F32, TIGON_CASE_C, 4696);
}

static void cached_rows(void **state) {
  (void)state;
  assert_reach("fwd", TIGON_BF16, TIGON_CASE_D, 81728);
  assert_reach("fwd", TIGON_F32, TIGON_CASE_D, 40864);
  assert_reach("bwd", TIGON_BF16, TIGON_CASE_D, 20432);
  assert_reach("bwd", TIGON_F32, TIGON_CASE_D, 13616);
}

/* Every hidden size of a language model is one pass, powers of two or not. */
static void hidden_sizes_are_one_pass(void **state) {
  (void)state;
  static const int64_t hidden[] = {41,   123,  512,  768,  1024, 2048,  2163, 3584,
                                   4096, 4097, 5120, 7168, 8192, 12288, 13312};
  static const char *const ops[] = {"rms_norm", "fused_add_rms_norm"}, *const entries[] = {"fwd", "bwd"};
  static const char *const devices[] = {"910B1", "910B4", "910_93", "950"};
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16};
  for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++) {
    for (size_t i = 0; i < 2 * 2 * 4 * 3; i++) {
      const tigon_plan plan =
          plan_of(ops[i % 2], entries[i / 2 % 2], dtypes[i / 4 % 3], devices[i / 12], 2048, hidden[h], TIGON_CASE_AUTO);
      assert_int_equal(plan.status, TIGON_OK);
      assert_int_equal(plan.passes, 1);
      assert_true(plan.bytes_moved == plan.bytes_min);
    }
  }
}

/* A 32768-wide row is read once in the forward of either dtype; the f32 backward needs two passes. */
static void row_of_32768(void **state) {
  (void)state;
  assert_int_equal(plan_of("rms_norm", "fwd", TIGON_BF16, "910b4", 2048, 32768, 0).chosen, TIGON_CASE_D);
  assert_int_equal(plan_of("rms_norm", "fwd", TIGON_F32, "910b4", 2048, 32768, 0).chosen, TIGON_CASE_D);
  assert_int_equal(plan_of("fused_add_rms_norm", "fwd", TIGON_F32, "910b4", 2048, 32768, 0).chosen, TIGON_CASE_D);
  const tigon_plan plan = plan_of("rms_norm", "bwd", TIGON_F32, "910b4", 2048, 32768, 0);
  assert_int_equal(plan.chosen, TIGON_CASE_E);
  assert_int_equal(plan.passes, 2);
  assert_int_equal(plan.bytes_moved - plan.bytes_min, (int64_t)2048 * 32768 * 2 * 4); /* dy and x once more */
  assert_int_equal(plan.slabs, plan.grid);
  assert_int_equal(plan.partials_offset, plan.slabs * 32768 * 4);
  assert_int_equal(plan.workspace_bytes, plan.partials_offset + 2048 * 4);
}

/* Short rows share a tile, so that 51 rows a core are not 51 steps. */
static void short_rows_share_a_tile(void **state) {
  (void)state;
  for (int64_t cols = 512; cols <= 2048; cols *= 2) {
    const tigon_plan plan = plan_of("fused_add_rms_norm", "fwd", TIGON_F32, "910b4", 2048, cols, 0);
    assert_int_equal(plan.chosen, TIGON_CASE_B);
    assert_true(plan.rows_per_tile >= 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_rows),
      cmocka_unit_test(cached_rows),
      cmocka_unit_test(hidden_sizes_are_one_pass),
      cmocka_unit_test(row_of_32768),
      cmocka_unit_test(short_rows_share_a_tile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
