/* modulated_rms_norm on Ascend, whose groups are ranges of rows. The planner's prediction equals the bytes that move, and no
 * more UB is taken than it counted. The test runs every case that fits, on parts of every size. traffic.c has the other
 * operators.
 * ctest: slow */
#include "ascend/traffic.h"

#include "ascend/kernel/modulated_rms_norm.h"

/* modulated_rms_norm: rows that share a scale, groups of them, columns. One group; groups that share a tile's rows or have one; of
 * more than one task; wide rows. */
static const int64_t ranges[][3] = {{37, 1, 41},   {8, 5, 123},   {3, 50, 512},  {1, 70, 200},
                                    {90, 3, 2163}, {20, 2, 7168}, {2, 3, 16384}, {1, 2, 100000}};
enum { RANGES = sizeof ranges / sizeof *ranges };

static void plan_ranges(tigon_context *context, const char *entry, tigon_dtype dtype, int64_t share, int64_t groups,
                        int64_t cols, tigon_plan *plan) {
  const tigon_plan_request call = {.op = "modulated_rms_norm",
                                   .entry = entry,
                                   .dtype = dtype,
                                   .rows = share * groups,
                                   .cols = cols,
                                   .groups = groups > 1 ? groups : 0};
  assert_int_equal(ascend_plan(&context->queue, &call, plan), TIGON_OK);
  tigon_sim_reset(ascend_of(&context->queue)->sim);
}

static void expect(const tigon_context *context, const tigon_plan *plan, const char *what) {
  expect_bytes(context, plan, what);
  const int64_t second = MODULATED_VECTORS * 4 * modulated_chunk(plan->cols, context->device->cores);
  const int64_t most = plan->slabs && second > plan->onchip_bytes ? second : plan->onchip_bytes;
  if (counters(context)->ub_bytes > most)
    fail_msg("%s %lldx%lld, case %c: took %lld bytes of UB, predicted %lld (%s)", what, (long long)plan->rows,
             (long long)plan->cols, tigon_plan_case_letter(plan->cut), (long long)counters(context)->ub_bytes,
             (long long)most, plan->reason);
}

static void run_ranges(tigon_context *context, tigon_dtype dtype, int64_t share, int64_t groups, int64_t cols) {
  enum { X, Y, DX, W, SCALE, SHIFT, DW, DSCALE, DSHIFT, RSTD, MEMORY };
  const int64_t rows = share * groups,
                counts[] = {rows * cols,   rows * cols, rows * cols,   cols,          groups * cols,
                            groups * cols, cols,        groups * cols, groups * cols, rows};
  void *memory[MEMORY];
  tigon_plan plan;
  for (int i = 0; i < MEMORY; ++i) memory[i] = zeros((size_t)counts[i] * 4);
  const tigon_tensor x = tigon_tensor_2d(memory[X], dtype, rows, cols),
                     scale = tigon_tensor_2d(memory[SCALE], dtype, groups, cols);
  const tigon_modulated_rms_norm_fwd_args fwd = {.x = x,
                                                 .w = tigon_tensor_1d(memory[W], dtype, cols),
                                                 .scale = scale,
                                                 .shift = tigon_tensor_2d(memory[SHIFT], dtype, groups, cols),
                                                 .y = tigon_tensor_2d(memory[Y], dtype, rows, cols),
                                                 .rstd = tigon_tensor_1d(memory[RSTD], TIGON_F32, rows),
                                                 .eps = 1e-6};
  plan_ranges(context, "fwd", dtype, share, groups, cols, &plan);
  succeeds(context, tigon_modulated_rms_norm_fwd(context, &fwd));
  expect(context, &plan, "modulated_rms_norm fwd");
  tigon_modulated_rms_norm_bwd_args bwd = {.dy = fwd.y,
                                           .x = x,
                                           .w = fwd.w,
                                           .scale = scale,
                                           .rstd = fwd.rstd,
                                           .dx = tigon_tensor_2d(memory[DX], dtype, rows, cols),
                                           .dw = tigon_tensor_1d(memory[DW], TIGON_F32, cols),
                                           .dscale = tigon_tensor_2d(memory[DSCALE], TIGON_F32, groups, cols),
                                           .dshift = tigon_tensor_2d(memory[DSHIFT], TIGON_F32, groups, cols)};
  succeeds(context, tigon_modulated_rms_norm_bwd_workspace(context, &bwd, &bwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace));
  plan_ranges(context, "bwd", dtype, share, groups, cols, &plan);
  succeeds(context, tigon_modulated_rms_norm_bwd(context, &bwd));
  expect(context, &plan, "modulated_rms_norm bwd");
  tigon_free(context, bwd.workspace);
  for (int i = 0; i < MEMORY; ++i) free(memory[i]);
}

static void what_moves_was_predicted(void **state) {
  (void)state;
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int part = 0; part < PARTS; ++part) {
    tigon_context *context = open_part(part);
    for (int s = 0; s < RANGES; ++s)
      for (int d = 0; d < 2; ++d)
        for (tigon_plan_case force = TIGON_CASE_AUTO; force <= TIGON_CASE_F; ++force) {
          plans_of(context)->force = force;
          run_ranges(context, dtypes[d], ranges[s][0], ranges[s][1], ranges[s][2]);
        }
    tigon_context_destroy(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_moves_was_predicted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
