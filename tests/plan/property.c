/* Properties that every plan must have, over random ops, shapes and devices. TIGON_SEED repeats a run, TIGON_ROUNDS
 * makes it longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "random.h"

static uint64_t seed_of_round;

#define CHECK(condition, c, plan)                                                                               \
  do {                                                                                                          \
    if (!(condition)) {                                                                                         \
      fail_msg("TIGON_SEED=%#llx: %s\n  %s\n  case %c grid %lld tasks %lld = %lld x %lld tile %lld x %lld: %s", \
               (unsigned long long)seed_of_round, #condition, random_case_text(c),                              \
               tigon_plan_case_letter((plan)->cut), (long long)(plan)->grid, (long long)(plan)->tasks,          \
               (long long)(plan)->row_tasks, (long long)(plan)->splits, (long long)(plan)->rows_per_tile,       \
               (long long)(plan)->cols_per_tile, (plan)->reason);                                               \
    }                                                                                                           \
  } while (0)

static int64_t rounds(int64_t otherwise) {
  const char *text = getenv("TIGON_ROUNDS");
  return text ? strtoll(text, NULL, 0) : otherwise;
}

/* What holds for any plan, whatever its size. */
static void check_numbers(const random_case *c, const tigon_plan *plan) {
  const tigon_footprint *f = &c->footprint;
  const tigon_device_desc *d = &c->device;
  const int64_t rows = c->request.rows, cols = c->request.cols;
  const bool grouped = c->request.groups > 0 || c->request.run > 0;
  const int64_t groups = at_least_one(c->request.groups), vector = vector_elements(&c->request);
  CHECK(plan->chosen == (grouped ? TIGON_CASE_G : plan->cut), c, plan);
  CHECK(c->request.force == TIGON_CASE_AUTO || plan->cut == c->request.force, c, plan);
  CHECK(plan->rows == rows && plan->cols == cols, c, plan);
  CHECK(plan->cut != TIGON_CASE_A || rows == 1, c, plan);
  CHECK(plan->onchip_bytes > 0 && plan->onchip_bytes <= d->onchip_bytes, c, plan);
  CHECK(tile_bytes_at_least(c, plan) <= plan->onchip_bytes, c, plan);
  CHECK(plan->grid >= 1 && plan->grid <= d->grid_limit && plan->grid <= plan->tasks, c, plan);
  CHECK(plan->grid <= d->cores, c, plan);
  CHECK(plan->tasks == plan->row_tasks * plan->splits && plan->row_tasks <= plan->rows, c, plan);
  CHECK(plan->splits == 1 || plan->cut == TIGON_CASE_A || plan->cut == TIGON_CASE_F, c, plan);
  CHECK(plan->cut != TIGON_CASE_B || plan->rows_per_tile >= 2, c, plan);
  CHECK(plan->cut == TIGON_CASE_B || plan->rows_per_tile == 1, c, plan);
  CHECK(plan->cut != TIGON_CASE_F || plan->splits >= 2, c, plan);
  CHECK(plan->cut == TIGON_CASE_D ? plan->row_buffers >= 1 : plan->row_buffers == 0, c, plan);
  CHECK(plan->reason[0] != '\0' && strlen(plan->reason) < sizeof plan->reason - 1, c, plan);

  /* Traffic. */
  const int64_t numbers = f->numbers * f->column_param_bytes + 4 * f->number_sums;
  const int64_t tables = c->request.table_cols * f->row_tables * f->row_table_bytes;
  const int64_t vectors = numbers + rows * (4 * (f->row_scalars_in + f->row_scalars_out) + tables) +
                          vector * ((f->column_params - f->ranges) * f->column_param_bytes + 4 * f->column_sums) +
                          (f->ranges ? cols * (f->column_param_bytes + 4 * (f->column_sums > 0)) : 0);
  const int64_t least = rows * cols * element_bytes(f, false) + vectors;
  const int64_t most = rows * cols * element_bytes(f, true) + vectors;
  CHECK(plan->bytes_min == least, c, plan);
  CHECK(plan->bytes_moved == (plan->passes == 1 ? least : most), c, plan);
  CHECK(plan->passes == 1 || plan->cut >= TIGON_CASE_E, c, plan);
  CHECK(plan->bytes_extra >= 0, c, plan);
  CHECK(plan->predicted_us > 0 && plan->predicted_us < 1e300, c, plan);

  /* Accumulators and workspace. */
  CHECK(plan->slabs * groups == (f->column_sums ? plan->row_tasks * (grouped ? plan->splits : 1) : 0), c, plan);
  CHECK(plan->workspace_bytes % 64 == 0 && plan->partials_offset % 64 == 0, c, plan);
  CHECK(plan->workspace_bytes >= plan->slabs * vector * 4 * f->column_sums, c, plan);
  const bool partials = f->partials > 0 && (plan->cut == TIGON_CASE_F || (plan->cut == TIGON_CASE_E && f->column_sums));
  const int64_t after_slabs = plan->partials_offset + (partials ? rows * plan->splits * f->partials * 4 : 0);
  CHECK(plan->workspace_bytes >= after_slabs, c, plan);
  CHECK(plan->partials_offset == 0 || plan->partials_offset >= plan->slabs * vector * 4 * f->column_sums, c, plan);

  /* Alignment of what begins inside a row. */
  if (plan->splits > 1 || plan->col_tiles > 1) {
    for (int i = 0; i < f->inputs + f->outputs; i++) {
      const int64_t bytes = f->stream[i].element_bytes;
      CHECK(plan->col_unit * bytes % d->onchip_alignment == 0, c, plan);
      CHECK(plan->col_tiles == 1 || plan->cols_per_tile * bytes % d->onchip_alignment == 0, c, plan);
    }
  }
}

/* Walks the plan as a kernel does and counts visits of every element. */
static void check_coverage(const random_case *c, const tigon_plan *plan, uint8_t *visits) {
  const int64_t lanes = c->device.vector_bytes / 4;
  bool masked = false;
  int64_t tasks = 0;
  memset(visits, 0, (size_t)(plan->rows * plan->cols));
  for (int64_t program = 0; program < plan->grid; program++) {
    for (int64_t t = program; t < plan->tasks; t += plan->grid) {
      tigon_box box;
      tigon_plan_task(plan, t, &box);
      tasks++;
      CHECK(box.row_begin >= 0 && box.row_begin < box.row_end && box.row_end <= plan->rows, c, plan);
      const int64_t batch = plan->rows / plan->groups;
      CHECK(!plan->slabs || plan->groups == 1 || box.row_begin / batch == (box.row_end - 1) / batch, c, plan);
      CHECK(box.col_begin >= 0 && box.col_begin < box.col_end && box.col_end <= plan->cols, c, plan);
      int64_t tiles = 0;
      for (int64_t col = box.col_begin; col < box.col_end; col += plan->cols_per_tile) {
        const int64_t end = col + plan->cols_per_tile < box.col_end ? col + plan->cols_per_tile : box.col_end;
        if ((end - col) % lanes != 0) masked = true;
        tiles++;
        for (int64_t row = box.row_begin; row < box.row_end; row++) {
          for (int64_t at = col; at < end; at++) visits[row * plan->cols + at]++;
        }
      }
      CHECK(tiles <= plan->col_tiles, c, plan);
    }
  }
  CHECK(tasks == plan->tasks, c, plan);
  CHECK(!plan->full_tiles || !masked, c, plan);
  for (int64_t i = 0; i < plan->rows * plan->cols; i++) CHECK(visits[i] == 1, c, plan);
}

static void check_refusal(const random_case *c, const tigon_plan *plan) {
  CHECK(plan->status == TIGON_ERROR_SCRATCH, c, plan);
  CHECK(strlen(plan->reason) > 10 && strlen(plan->reason) < sizeof plan->reason - 1, c, plan);
  CHECK(plan->chosen == TIGON_CASE_AUTO && plan->grid == 0 && plan->tasks == 0 && plan->workspace_bytes == 0, c, plan);
}

static void run(int64_t count, int row_bits, int col_bits, bool cover) {
  uint64_t seed = test_seed();
  uint8_t *visits = cover ? malloc((size_t)1 << (row_bits + col_bits + 2)) : NULL;
  int64_t planned = 0;
  for (int64_t i = 0; i < count; i++) {
    uint64_t state = seed_of_round = seed + (uint64_t)i;
    random_case c;
    random_request(&state, row_bits, col_bits, &c);
    tigon_plan plan;
    const tigon_status status = tigon_plan_make(&c.request, &plan);
    CHECK(status == plan.status, &c, &plan);
    if (status != TIGON_OK) {
      check_refusal(&c, &plan);
      continue;
    }
    planned++;
    check_numbers(&c, &plan);
    if (cover && plan.rows * plan.cols <= (int64_t)1 << (row_bits + col_bits + 2)) check_coverage(&c, &plan, visits);
  }
  free(visits);
  assert_true(planned * 2 > count); /* the generator is worth something */
}

static void small_shapes_are_covered_once(void **state) {
  (void)state;
  run(rounds(8000), 8, 8, true);
}

static void wide_rows_are_covered_once(void **state) {
  (void)state;
  run(rounds(8000), 2, 16, true);
}

static void many_rows_are_covered_once(void **state) {
  (void)state;
  run(rounds(1500), 15, 4, true);
}

static void usual_shapes(void **state) {
  (void)state;
  run(rounds(30000), 16, 18, false);
}

static void huge_shapes(void **state) {
  (void)state;
  run(rounds(30000), 40, 14, false);
  run(rounds(30000), 14, 40, false);
}

/* Twice the rows take more time, and the planner's own choice is never slower than a forced one. */
static void predictions_make_sense(void **state) {
  (void)state;
  const uint64_t seed = test_seed();
  for (int64_t i = 0; i < rounds(10000); i++) {
    uint64_t random = seed_of_round = seed + (uint64_t)i;
    random_case c;
    random_request(&random, 14, 15, &c);
    tigon_plan forced, chosen, twice;
    const tigon_status status = tigon_plan_make(&c.request, &forced);
    c.request.force = TIGON_CASE_AUTO;
    if (tigon_plan_make(&c.request, &chosen) != TIGON_OK) continue;
    /* A row that fits is read once, even where the model favours two passes. */
    if (status == TIGON_OK && forced.passes == 1) {
      CHECK(chosen.predicted_us <= forced.predicted_us, &c, &chosen);
    }
    /* With fewer rows, more of them bring more cores to work. Cores whose tasks must not cross a group take tasks in rounds. */
    if (c.request.rows < 2 * c.device.cores || chosen.groups > 1) continue;
    c.request.rows *= 2;
    if (tigon_plan_make(&c.request, &twice) == TIGON_OK && twice.passes >= chosen.passes) {
      CHECK(twice.predicted_us >= chosen.predicted_us * 0.999, &c, &twice);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_shapes_are_covered_once),
      cmocka_unit_test(wide_rows_are_covered_once),
      cmocka_unit_test(many_rows_are_covered_once),
      cmocka_unit_test(usual_shapes),
      cmocka_unit_test(huge_shapes),
      cmocka_unit_test(predictions_make_sense),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
