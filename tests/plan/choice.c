/* Which case is chosen where, the shapes that have tripped other planners, and every way to be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ascend/plan/plan.h"

static tigon_footprint footprint; /* footprint of the last ask() */
static tigon_plan plan;           /* its answer */

static tigon_plan_request request_for(const char *op, const char *entry, tigon_dtype dtype, const char *device,
                                      int64_t rows, int64_t cols) {
  assert_true(tigon_footprint_find(op, entry, dtype, &footprint));
  const tigon_plan_request request = {
      .footprint = &footprint, .device = tigon_device_desc_find(device), .rows = rows, .cols = cols};
  assert_non_null(request.device);
  return request;
}

static tigon_status ask(const char *op, const char *entry, tigon_dtype dtype, const char *device, int64_t rows,
                        int64_t cols, tigon_plan_case force) {
  tigon_plan_request request = request_for(op, entry, dtype, device, rows, cols);
  request.force = force;
  return tigon_plan_make(&request, &plan);
}

static void every_case_is_chosen_somewhere(void **state) {
  (void)state;
  static const struct {
    const char *op, *entry, *device;
    tigon_dtype dtype;
    int64_t rows, cols;
    tigon_plan_case chosen;
  } table[] = {
      {"swiglu", "fwd", "910b4", TIGON_BF16, 1, 8192 * 14336, TIGON_CASE_A},
      {"swiglu", "bwd", "910b1", TIGON_BF16, 1, 8192 * 14336, TIGON_CASE_A},
      {"adamw", "step", "910b2", TIGON_F32, 1, 50000000, TIGON_CASE_A},
      {"rms_norm", "fwd", "910b4", TIGON_F32, 2048, 512, TIGON_CASE_B},
      {"rms_norm", "bwd", "910b4", TIGON_F32, 2048, 512, TIGON_CASE_B},
      {"softmax", "fwd", "950", TIGON_F32, 100000, 64, TIGON_CASE_B},
      {"rms_norm", "fwd", "910b1", TIGON_BF16, 4096, 8192, TIGON_CASE_C},
      {"rms_norm", "bwd", "910b4", TIGON_F32, 2048, 4096, TIGON_CASE_C},
      {"rms_norm", "fwd", "910b4", TIGON_F32, 2048, 32768, TIGON_CASE_D},
      {"cross_entropy", "fwd_dlogits", "910b1", TIGON_BF16, 8192, 32000, TIGON_CASE_D},
      {"rms_norm", "bwd", "910b4", TIGON_F32, 2048, 32768, TIGON_CASE_E},
      {"cross_entropy", "fwd", "950", TIGON_BF16, 8192, 128256, TIGON_CASE_E},
      {"cross_entropy", "fwd_dlogits", "910_93", TIGON_BF16, 8192, 128256, TIGON_CASE_E},
      {"softmax", "fwd", "910b1", TIGON_F32, 4, 1000000, TIGON_CASE_F},
      {"adamw", "clip", "910b2", TIGON_F32, 1, 50000000, TIGON_CASE_F},
      {"rms_norm", "bwd", "910b3", TIGON_F32, 2, 1000000, TIGON_CASE_F},
  };
  bool seen[TIGON_CASE_LAST + 1] = {false};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    assert_int_equal(ask(table[i].op, table[i].entry, table[i].dtype, table[i].device, table[i].rows, table[i].cols, 0),
                     TIGON_OK);
    if (plan.chosen != table[i].chosen) {
      fail_msg("%s %s %lldx%lld on %s: case %c, not %c (%s)", table[i].op, table[i].entry, (long long)table[i].rows,
               (long long)table[i].cols, table[i].device, tigon_plan_case_letter(plan.chosen),
               tigon_plan_case_letter(table[i].chosen), plan.reason);
    }
    seen[plan.chosen] = true;
  }
  for (tigon_plan_case c = TIGON_CASE_A; c <= TIGON_CASE_LAST; c++) assert_true(seen[c]);
}

/* 8192 rows on 80 programs: each bounded, all covered, no program more than one row behind another. */
static void tasks_that_programs_do_not_divide(void **state) {
  (void)state;
  tigon_plan_request request = request_for("rms_norm", "bwd", TIGON_F32, "910b4", 8192, 1024);
  tigon_device_desc device = *request.device;
  device.cores = 80;
  device.bandwidth[0].cores = 80; /* one point: all cores are as good as fewer */
  memset(&device.bandwidth[1], 0, sizeof device.bandwidth - sizeof device.bandwidth[0]);
  request.device = &device;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
  assert_int_equal(plan.grid, 80);
  assert_int_equal(plan.tasks, 80);
  assert_int_equal(plan.slabs, 80);
  int64_t next = 0;
  for (int64_t t = 0; t < plan.tasks; t++) {
    tigon_box box;
    tigon_plan_task(&plan, t, &box);
    assert_int_equal(box.row_begin, next);
    assert_true(box.row_end - box.row_begin == 102 || box.row_end - box.row_begin == 103);
    next = box.row_end;
  }
  assert_int_equal(next, 8192);
  /* group_norm's: 256 batches of 32 groups. */
  request = request_for("group_norm", "fwd", TIGON_F32, "910b4", 8192, 16 * 512);
  request.device = &device;
  request.groups = 32, request.run = 512;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
  assert_int_equal(plan.grid, 80);
  next = 0;
  for (int64_t t = 0; t < plan.tasks; t++) {
    tigon_box box;
    tigon_plan_task(&plan, t, &box);
    assert_int_equal(box.row_begin, next);
    assert_true(box.row_end <= 8192);
    next = box.row_end;
  }
  assert_int_equal(next, 8192);
}

/* group_norm's rows in groups, with the shapes that other implementations fail on. */
static void groups_are_rows_with_channel_runs(void **state) {
  (void)state;
  static const struct {
    int64_t batch, channels, positions, groups;
    const char *device;
  } table[] = {
      {256, 512, 512, 32, "910b4"},    /* 8192 tasks on 40 cores */
      {1, 32, 4096, 32, "910b4"},      /* one channel a group */
      {100000, 64, 16, 32, "950"},     /* B * groups above a grid limit of 65535 */
      {2, 256, 512 * 512, 4, "910b4"}, /* a group of 64 MiB */
      {1, 3, 1000003, 1, "910b4"},     /* one huge group of odd length */
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    for (int backward = 0; backward < 2; backward++) {
      const int64_t rows = table[i].batch * table[i].groups, channels = table[i].channels / table[i].groups;
      tigon_plan_request request = request_for("group_norm", backward ? "bwd" : "fwd", TIGON_F32, table[i].device, rows,
                                               channels * table[i].positions);
      request.groups = table[i].groups;
      request.run = table[i].positions;
      assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
      assert_int_equal(plan.chosen, TIGON_CASE_G);
      assert_true(plan.cut >= TIGON_CASE_B && plan.cut <= TIGON_CASE_F);
      assert_true(plan.grid <= request.device->grid_limit);
      assert_true(plan.onchip_bytes <= request.device->onchip_bytes);
      int64_t covered = 0;
      for (int64_t t = 0; t < plan.tasks; t++) {
        tigon_box box;
        tigon_plan_task(&plan, t, &box);
        covered += (box.row_end - box.row_begin) * (box.col_end - box.col_begin);
        if (backward) assert_int_equal(box.row_begin / table[i].batch, (box.row_end - 1) / table[i].batch);
      }
      assert_true(covered == rows * request.cols);
      if (backward) assert_true(plan.workspace_bytes >= plan.slabs * 2 * table[i].channels * 4);
    }
  }
  /* Few huge groups are split over the cores. */
  tigon_plan_request huge = request_for("group_norm", "fwd", TIGON_F32, "910b4", 2, 1 << 24);
  huge.groups = 1;
  huge.run = 1 << 20;
  assert_int_equal(tigon_plan_make(&huge, &plan), TIGON_OK);
  assert_int_equal(plan.cut, TIGON_CASE_F);
  assert_true(plan.splits >= 8);
}

/* A grid limit is a loop: the tasks stay, the programs are fewer. */
static void grid_limit_becomes_a_loop(void **state) {
  (void)state;
  tigon_plan_request request = request_for("softmax", "fwd", TIGON_F32, "910b4", 1000000, 4096);
  tigon_device_desc device = *request.device;
  request.device = &device;
  device.grid_limit = 10; /* fewer than the 40 cores */
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
  assert_int_equal(plan.grid, 10);
  assert_true(plan.tasks >= 10);
}

static void trap_shapes(void **state) {
  (void)state;
  static const int64_t widths[] = {3584, 5120, 7168};
  for (int i = 0; i < 3; i++) { /* no power of two, and still one read of a whole row */
    assert_int_equal(ask("rms_norm", "fwd", TIGON_BF16, "910b4", 2048, widths[i], 0), TIGON_OK);
    assert_int_equal(plan.passes, 1);
    assert_int_equal(plan.cols_per_tile, widths[i]);
    assert_int_equal(ask("layer_norm", "fwd", TIGON_BF16, "910b4", 2048, widths[i], 0), TIGON_OK);
    assert_int_equal(plan.passes, 1);
    assert_int_equal(ask("layer_norm", "bwd", TIGON_BF16, "950", 2048, widths[i], 0), TIGON_OK);
    assert_int_equal(plan.passes, 1);
  }
  assert_int_equal(ask("rms_norm", "fwd", TIGON_F32, "910b4", 1, (int64_t)1 << 33, 0), TIGON_OK);
  assert_int_equal(plan.chosen, TIGON_CASE_F);
  assert_true(plan.splits >= 32);
  assert_int_equal(plan.bytes_min, ((int64_t)1 << 33) * 12 + 4);
  static const char *const devices[] = {"910b4", "910_93", "950"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ask("rms_norm", "bwd", TIGON_F32, devices[i], (int64_t)1 << 40, 8, 0), TIGON_OK);
    assert_int_equal(plan.chosen, TIGON_CASE_B);
    assert_int_equal(plan.workspace_bytes, (plan.slabs * 8 * 4 + 63) / 64 * 64);
    assert_int_equal(ask("softmax", "fwd", TIGON_F32, devices[i], (int64_t)1 << 40, 8, 0), TIGON_OK);
  }
}

static void nothing_to_do(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{0, 4096}, {4096, 0}, {0, 0}, {0, INT64_MAX}};
  for (size_t i = 0; i < 4; i++) {
    for (tigon_plan_case c = TIGON_CASE_AUTO; c <= TIGON_CASE_LAST; c++) {
      assert_int_equal(ask("rms_norm", "bwd", TIGON_F32, "910b4", shapes[i][0], shapes[i][1], c), TIGON_OK);
      assert_int_equal(plan.grid, 0);
      assert_int_equal(plan.tasks, 0);
      assert_int_equal(plan.slabs, 0);
      assert_int_equal(plan.workspace_bytes, 0);
      assert_int_equal(plan.bytes_moved, 0);
      assert_int_equal(plan.bytes_min, 0);
    }
  }
  assert_string_equal(plan.reason, "nothing to do: rows is 0");
}

static void assert_refused(tigon_plan_request request, tigon_status status, const char *reason) {
  assert_int_equal(tigon_plan_make(&request, &plan), status);
  assert_int_equal(plan.status, status);
  assert_string_equal(plan.reason, reason);
  assert_int_equal(plan.grid, 0);
  assert_int_equal(plan.workspace_bytes, 0);
}

static void hostile_requests(void **state) {
  (void)state;
  const tigon_plan_request good = request_for("rms_norm", "fwd", TIGON_F32, "910b4", 16, 16);
  tigon_plan_request bad = good;
  bad.rows = -1;
  assert_refused(bad, TIGON_ERROR_INVALID, "rows is -1, must be >= 0");
  bad = good, bad.cols = INT64_MIN;
  assert_refused(bad, TIGON_ERROR_INVALID, "cols is -9223372036854775808, must be >= 0");
  bad = good, bad.rows = (int64_t)1 << 40, bad.cols = (int64_t)1 << 40;
  assert_refused(bad, TIGON_ERROR_INVALID, "1099511627776 rows x 1099511627776 cols are beyond 2^63 bytes");
  bad = good, bad.rows = INT64_MAX, bad.cols = 1;
  assert_refused(bad, TIGON_ERROR_INVALID, "9223372036854775807 rows x 1 cols are beyond 2^63 bytes");
  bad = good, bad.force = (tigon_plan_case)99;
  assert_refused(bad, TIGON_ERROR_INVALID, "force is 99, must be a case A..G or auto");
  bad = good, bad.force = (tigon_plan_case)-1;
  assert_refused(bad, TIGON_ERROR_INVALID, "force is -1, must be a case A..G or auto");
  bad = good, bad.col_unit = 5;
  assert_refused(bad, TIGON_ERROR_INVALID, "col_unit is 5, must divide cols, which is 16");
  bad = good, bad.groups = 3;
  assert_refused(bad, TIGON_ERROR_INVALID, "groups is 3, must divide rows, which is 16");
  bad = good, bad.run = -1;
  assert_refused(bad, TIGON_ERROR_INVALID, "run is -1, must divide cols, which is 16");
  tigon_footprint many_sums = *good.footprint; /* the streams fit in int64, the slabs do not */
  many_sums.column_sums = 100;
  bad = good, bad.footprint = &many_sums, bad.rows = 132, bad.cols = (int64_t)1 << 51;
  assert_refused(bad, TIGON_ERROR_INVALID, "the workspace of 132 x 2251799813685248 is beyond 2^63 bytes");
  /* Sizes at the edge, in any case: an answer, whatever it is. */
  for (int bits = 30; bits < 63; bits++) {
    for (int shift = 0; shift < 63; shift += 3) {
      for (tigon_plan_case c = TIGON_CASE_AUTO; c <= TIGON_CASE_LAST; c++) {
        ask("rms_norm", "bwd", TIGON_F32, shift % 2 ? "950" : "910b4", (int64_t)1 << bits, (int64_t)1 << shift, c);
        assert_true(plan.status == TIGON_OK || plan.reason[0] != '\0');
      }
    }
  }
}

static void refusals_say_why(void **state) {
  (void)state;
  tigon_plan_request request = request_for("rms_norm", "fwd", TIGON_F32, "910b4", 2048, 32768);
  request.force = TIGON_CASE_C;
  assert_refused(request, TIGON_ERROR_SCRATCH, "case C needs 786528 on-chip bytes, ascend910b4 has 188160");
  request.force = TIGON_CASE_A;
  assert_refused(request, TIGON_ERROR_SCRATCH,
                 "case A is for contiguous elementwise ops without row or column vectors, unlike rms_norm fwd here");
  request.force = TIGON_CASE_B;
  request.rows = 1;
  assert_refused(request, TIGON_ERROR_SCRATCH, "case B needs two rows for a tile, rows is 1");
  request.force = TIGON_CASE_F;
  request.cols = 100;
  assert_refused(request, TIGON_ERROR_SCRATCH, "case F splits a row at multiples of 128 columns, cols is 100");
  request = request_for("swiglu", "fwd", TIGON_F32, "910b4", 16, 16);
  request.force = TIGON_CASE_D;
  assert_refused(request, TIGON_ERROR_SCRATCH, "case D keeps what moves twice, and all of swiglu fwd moves once");
  request.force = TIGON_CASE_A;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_ERROR_SCRATCH);
  /* A device so small that not even one aligned chunk fits. */
  request = request_for("rms_norm", "bwd", TIGON_F32, "910b4", 16, 4096);
  tigon_device_desc device = *request.device;
  device.onchip_bytes = 352;
  request.device = &device;
  assert_refused(request, TIGON_ERROR_SCRATCH,
                 "case E needs 640 on-chip bytes, the least of all cases, ascend910b4 has 352");
}

/* What only rope and embedding ask for. */
static void sizes_of_other_walks(void **state) {
  (void)state;
  enum { TOKENS = 7, COLS = 96 * 400 };
  tigon_plan_request request = request_for("rope", "fwd_positions", TIGON_BF16, "910b4", TOKENS, COLS);
  request.col_unit = 96;
  request.table_cols = INT64_MAX;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_ERROR_INVALID);
  request.table_cols = -1;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_ERROR_INVALID);
  assert_string_equal(plan.reason, "table_cols is -1, must be >= 0");
  request.table_cols = 0;
  request.key_cols = COLS + 1;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_ERROR_INVALID);
  assert_string_equal(plan.reason, "key_cols is 38401, must be 0 to cols, which is 38400");
  request.key_cols = 0;
  request.sequence = 2;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_ERROR_INVALID);
  assert_string_equal(plan.reason, "sequence is 2, must divide rows, which is 7");
  request.sequence = 0;
  request.out_rows = -1;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_ERROR_INVALID);
  assert_string_equal(plan.reason, "out_rows is -1, must be >= 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case_is_chosen_somewhere),
      cmocka_unit_test(tasks_that_programs_do_not_divide),
      cmocka_unit_test(groups_are_rows_with_channel_runs),
      cmocka_unit_test(grid_limit_becomes_a_loop),
      cmocka_unit_test(trap_shapes),
      cmocka_unit_test(nothing_to_do),
      cmocka_unit_test(hostile_requests),
      cmocka_unit_test(refusals_say_why),
      cmocka_unit_test(sizes_of_other_walks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
