/* The planner's front: checks the request, tries every case on every useful number of programs, and says why. */
#include <stdio.h>
#include <string.h>

#include "ascend/plan/internal.h"

char tigon_plan_case_letter(tigon_plan_case plan_case) {
  return plan_case >= TIGON_CASE_A && plan_case <= TIGON_CASE_G ? (char)('A' + plan_case - TIGON_CASE_A) : '-';
}

/* ---- checks ---- */

#define REFUSE(plan, code, ...) (snprintf((plan)->reason, sizeof(plan)->reason, __VA_ARGS__), (plan)->status = (code))

/* Footprints and devices are tables of ours, whose test finds what they lack. */
static tigon_status check(const tigon_plan_request *request, tigon_plan *plan) {
  const struct {
    const char *name;
    int64_t value;
    const char *of; /* what it must divide; NULL: any size is right */
    int64_t whole;
  } sizes[] = {
      {"rows", request->rows, NULL, 0},
      {"cols", request->cols, NULL, 0},
      {"out_rows", request->out_rows, NULL, 0},
      {"table_cols", request->table_cols, NULL, 0},
      {"groups", request->groups, "rows", request->rows},
      {"run", request->run, "cols", request->cols},
      {"col_unit", request->col_unit, "cols", request->cols},
      {"sequence", request->sequence, "rows", request->rows},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int64_t value = sizes[i].value, whole = sizes[i].whole;
    if (!sizes[i].of && value < 0)
      return REFUSE(plan, TIGON_ERROR_INVALID, "%s is %lld, must be >= 0", sizes[i].name, (long long)value);
    if (sizes[i].of && (value < 0 || (value > 1 && whole % value != 0)))
      return REFUSE(plan, TIGON_ERROR_INVALID, "%s is %lld, must divide %s, which is %lld", sizes[i].name,
                    (long long)value, sizes[i].of, (long long)whole);
  }
  if ((unsigned)request->force > TIGON_CASE_G)
    return REFUSE(plan, TIGON_ERROR_INVALID, "force is %d, must be a case A..G or auto", (int)request->force);
  if (request->key_cols < 0 || request->key_cols > request->cols)
    return REFUSE(plan, TIGON_ERROR_INVALID, "key_cols is %lld, must be 0 to cols, which is %lld",
                  (long long)request->key_cols, (long long)request->cols);
  return TIGON_OK;
}

/* ---- the problem ---- */

/* The least common multiple; INT64_MAX when it is larger: then a row is one tile. */
static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y != 0) {
    const int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return plan_mul(a / x, b);
}

/* Columns after which an element of `bytes` is aligned to `alignment` again. */
static int64_t aligned_columns(int64_t alignment, int64_t bytes) { return common_multiple(alignment, bytes) / bytes; }

/* *total += a * b * c; false beyond int64. */
static bool add_product(int64_t *total, int64_t a, int64_t b, int64_t c) {
  int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_mul_overflow(product, c, &product) &&
         !__builtin_add_overflow(*total, product, total);
}

/* false: the bytes are beyond int64. */
static bool make_problem(const tigon_plan_request *request, plan_problem *problem) {
  const tigon_footprint *f = request->footprint;
  const tigon_device_desc *device = request->device;
  *problem = (plan_problem){.footprint = f,
                            .device = device,
                            .rows = request->rows,
                            .cols = request->cols,
                            .out_rows = f->walk == TIGON_WALK_TABLE && request->out_rows > 0 ? request->out_rows
                                                                                             : request->rows,
                            .grouped = request->groups > 0 || request->run > 0,
                            .groups = plan_max(1, request->groups),
                            .run = plan_max(1, request->run),
                            .forced = request->force != TIGON_CASE_AUTO && request->force != TIGON_CASE_G,
                            .narrowest = 255,
                            .passes = 1};
  int64_t chip = aligned_columns(device->onchip_alignment, 4), fast = aligned_columns(device->memory_alignment, 4);
  int64_t once[2] = {0}, often[2] = {0}; /* bytes of an element of the inputs and of the outputs */
  for (int i = 0; i < f->inputs + f->outputs; i++) {
    const tigon_stream_footprint *stream = i < f->inputs ? &f->in[i] : &f->out[i - f->inputs];
    once[i >= f->inputs] += stream->element_bytes;
    often[i >= f->inputs] += stream->element_bytes * stream->passes;
    if (stream->passes > problem->passes) problem->passes = stream->passes;
    if (stream->element_bytes < problem->narrowest) problem->narrowest = stream->element_bytes;
    chip = common_multiple(chip, aligned_columns(device->onchip_alignment, stream->element_bytes));
    fast = common_multiple(fast, aligned_columns(device->memory_alignment, stream->element_bytes));
  }
  problem->chip_unit = chip;
  problem->fast_unit = common_multiple(problem->chip_unit, fast);
  const int64_t table_bytes = plan_mul(request->table_cols, (int64_t)f->row_tables * f->row_table_bytes);
  problem->row_bytes_in = plan_add(4 * (int64_t)f->row_scalars_in, table_bytes);
  const int64_t row_bytes = plan_add(problem->row_bytes_in, 4 * (int64_t)f->row_scalars_out);
  const int64_t col_bytes = (int64_t)f->column_params * f->column_param_bytes + 4 * (int64_t)f->column_sums;
  const int64_t vectors = plan_mul(problem->groups, request->cols / problem->run);
  int64_t besides = (int64_t)f->numbers * f->column_param_bytes + 4 * (int64_t)f->number_sums;
  if (!add_product(&besides, request->rows, row_bytes, 1) || !add_product(&besides, vectors, col_bytes, 1))
    return false;
  problem->moved_min = problem->moved_passes = besides;
  return add_product(&problem->moved_min, request->rows, request->cols, once[0]) &&
         add_product(&problem->moved_min, problem->out_rows, request->cols, once[1]) &&
         add_product(&problem->moved_passes, request->rows, request->cols, often[0]) &&
         add_product(&problem->moved_passes, problem->out_rows, request->cols, often[1]);
}

/* Numbers of programs that are worth a try, the largest first: all cores, and where the bandwidth has its points,
 * because fewer cores can be faster (they start sooner, and a memory serves fewer masters). */
static int program_counts(const tigon_device_desc *device, int64_t counts[TIGON_BANDWIDTH_POINTS + 1]) {
  const int64_t most = plan_min(device->cores, device->grid_limit);
  int n = 0;
  counts[n++] = most;
  for (int i = TIGON_BANDWIDTH_POINTS - 1; i >= 0; i--) {
    if (device->bandwidth[i].cores > 0 && device->bandwidth[i].cores < most) counts[n++] = device->bandwidth[i].cores;
  }
  return n;
}

/* ---- why ---- */

static void say_why(const plan_problem *problem, tigon_plan *plan) {
  const char *prefix = problem->forced ? "forced: " : "";
  const long long rows = problem->rows, cols = problem->cols, tiles = plan->col_tiles;
  char *text = plan->reason;
  const size_t size = sizeof plan->reason;
  switch (plan->cut) {
    case TIGON_CASE_A:
      snprintf(text, size, "%s%lld elements as one line, in %lld ranges of tiles of %lld", prefix,
               (long long)plan->cols, (long long)plan->splits, (long long)plan->cols_per_tile);
      break;
    case TIGON_CASE_B:
      snprintf(text, size, "%srows of %lld columns are short: a tile takes %lld of them, one read", prefix, cols,
               (long long)plan->rows_per_tile);
      break;
    case TIGON_CASE_C:
      snprintf(text, size, "%sa row of %lld columns fits with all its buffers: one read", prefix, cols);
      break;
    case TIGON_CASE_D:
      snprintf(text, size, "%sa row of %lld columns stays on chip in its own dtype%s; work in %lld %s, one read",
               prefix, cols, plan->row_buffers > 1 ? ", double-buffered" : "", tiles, tiles == 1 ? "chunk" : "chunks");
      break;
    case TIGON_CASE_E:
      snprintf(text, size, "%s%s: %d %s over %lld %s of a row", prefix,
               plan->passes > 1 ? "a row does not stay on chip" : "nothing of a row is needed twice", plan->passes,
               plan->passes > 1 ? "passes" : "pass", tiles, tiles == 1 ? "chunk" : "chunks");
      break;
    case TIGON_CASE_F:
      snprintf(text, size, "%s%lld %s for %lld cores: each is split in %lld%s", prefix, rows,
               rows == 1 ? "row" : "rows", (long long)problem->device->cores, (long long)plan->splits,
               plan->partials_offset + problem->footprint->partials > 0 ? ", partials combined in index order" : "");
      break;
    case TIGON_CASE_G:
    case TIGON_CASE_AUTO: break;
  }
}

/* Why the model's best time is not taken. */
static void say_other(tigon_plan *plan, const tigon_plan *other) {
  const size_t used = strlen(plan->reason);
  snprintf(plan->reason + used, sizeof plan->reason - used,
           "; case %c would read it twice and take %.0f us, an estimate", tigon_plan_case_letter(other->cut),
           other->predicted_us);
}

/* Why the case that came nearest did not fit; `need` is in bytes, or in columns for PLAN_ONE_UNIT. */
static void say_why_not(const plan_problem *problem, tigon_plan_case plan_case, plan_refusal refusal, int64_t need,
                        tigon_plan *plan) {
  const char letter = tigon_plan_case_letter(plan_case);
  const char *name = problem->device->name;
  switch (refusal) {
    case PLAN_NOT_FLAT:
      REFUSE(plan, TIGON_ERROR_SCRATCH,
             "case A is for contiguous elementwise ops without row or column vectors, unlike %s %s here",
             problem->footprint->op, problem->footprint->entry);
      break;
    case PLAN_ONE_ROW:
      REFUSE(plan, TIGON_ERROR_SCRATCH, "case B needs two rows for a tile, rows is %lld", (long long)problem->rows);
      break;
    case PLAN_NOTHING_CACHED:
      REFUSE(plan, TIGON_ERROR_SCRATCH, "case D keeps what moves twice, and all of %s %s moves once",
             problem->footprint->op, problem->footprint->entry);
      break;
    case PLAN_ONE_UNIT:
      REFUSE(plan, TIGON_ERROR_SCRATCH, "case F splits a row at multiples of %lld columns, cols is %lld",
             (long long)need, (long long)problem->cols);
      break;
    case PLAN_TOO_LARGE:
    case PLAN_FITS:
      REFUSE(plan, TIGON_ERROR_SCRATCH, "case %c needs %lld on-chip bytes%s, %.31s has %lld", letter, (long long)need,
             problem->forced ? "" : ", the least of all cases", name, (long long)problem->device->onchip_bytes);
      break;
  }
}

/* ---- the choice ---- */

/* A plan that was found has tasks. */
static void keep(tigon_plan *best, const tigon_plan *trial) {
  if (best->tasks == 0 || trial->predicted_us < best->predicted_us) *best = *trial;
}

static tigon_status choose(const plan_problem *problem, unsigned allowed, tigon_plan *plan) {
  int64_t counts[TIGON_BANDWIDTH_POINTS + 1];
  const int count = program_counts(problem->device, counts);
  tigon_plan trial;
  tigon_plan once = {0}, again = {0}; /* the best that reads rows once; that reads them again */
  tigon_plan_case nearest = TIGON_CASE_AUTO;
  plan_refusal why_not = PLAN_FITS;
  int64_t need = INT64_MAX;
  for (tigon_plan_case c = TIGON_CASE_A; c <= TIGON_CASE_LAST; c++) {
    if (!(allowed & TIGON_CASE_BIT(c))) continue;
    /* Where rows are fewer than cores, F buys more cores with its second read. */
    const bool reads_again =
        problem->passes > 1 && (c == TIGON_CASE_E || (c == TIGON_CASE_F && problem->rows >= problem->device->cores));
    for (int i = 0; i < count; i++) {
      const plan_refusal refusal = tigon_plan_build(problem, c, counts[i], &trial);
      if (refusal == PLAN_FITS) {
        tigon_plan_predict(problem, &trial);
        keep(reads_again ? &again : &once, &trial);
      } else if (nearest == TIGON_CASE_AUTO ||
                 (refusal == PLAN_TOO_LARGE && (why_not != PLAN_TOO_LARGE || trial.onchip_bytes < need))) {
        nearest = c;
        why_not = refusal;
        need = refusal == PLAN_TOO_LARGE ? trial.onchip_bytes : refusal == PLAN_ONE_UNIT ? trial.col_unit : INT64_MAX;
      }
    }
  }
  if (once.tasks == 0 && again.tasks == 0) {
    say_why_not(problem, nearest, why_not, need, plan);
    return plan->status;
  }
  /* A row that fits is read once, even where the model favours two passes: the reads are sure, its other costs are estimates. */
  *plan = once.tasks > 0 ? once : again;
  if (plan->workspace_bytes == INT64_MAX) {
    *plan = (tigon_plan){.rows = problem->rows, .cols = problem->cols};
    return REFUSE(plan, TIGON_ERROR_INVALID, "the workspace of %lld x %lld is beyond 2^63 bytes",
                  (long long)problem->rows, (long long)problem->cols);
  }
  say_why(problem, plan);
  if (again.tasks > 0 && again.predicted_us < plan->predicted_us) say_other(plan, &again);
  if (problem->grouped) plan->chosen = TIGON_CASE_G;
  return plan->status = TIGON_OK;
}

tigon_status tigon_plan_make(const tigon_plan_request *request, tigon_plan *plan) {
  *plan = (tigon_plan){.status = TIGON_OK, .groups = 1, .splits = 1, .row_tasks = 1};
  if (check(request, plan) != TIGON_OK) return plan->status;
  plan->rows = request->rows;
  plan->cols = request->cols;
  const tigon_walk walk = request->footprint->walk;
  if (request->cols == 0 || (request->rows == 0 && walk != TIGON_WALK_TABLE)) { /* without an index a table is zeros */
    snprintf(plan->reason, sizeof plan->reason, "nothing to do: %s is 0", request->rows == 0 ? "rows" : "cols");
    return TIGON_OK;
  }
  plan_problem problem;
  if (!make_problem(request, &problem)) {
    return REFUSE(plan, TIGON_ERROR_INVALID, "%lld rows x %lld cols are beyond 2^63 bytes", (long long)request->rows,
                  (long long)request->cols);
  }
  if (walk != TIGON_WALK_ROWS) return tigon_plan_launch(&problem, request, plan);
  const unsigned all = (TIGON_CASE_BIT(TIGON_CASE_LAST + 1) - 1) & ~TIGON_CASE_BIT(TIGON_CASE_AUTO);
  const unsigned allowed = problem.forced ? TIGON_CASE_BIT(request->force) : all;
  if (request->force == TIGON_CASE_G && !problem.grouped) {
    return REFUSE(plan, TIGON_ERROR_SCRATCH, "case G is for rows in groups, and %s %s has none here",
                  request->footprint->op, request->footprint->entry);
  }
  return choose(&problem, allowed, plan);
}
