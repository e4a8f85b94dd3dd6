/* The planner's front: checks the request, tries every case on every useful number of programs, and says why. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ascend/plan/internal.h"

char tigon_plan_case_letter(tigon_plan_case plan_case) {
  return plan_case >= TIGON_CASE_A && plan_case <= TIGON_CASE_G ? (char)('A' + plan_case - TIGON_CASE_A) : '-';
}

void tigon_plan_say(tigon_plan *plan, const char *format, ...) {
  const size_t used = strlen(plan->reason);
  va_list list;
  va_start(list, format);
  vsnprintf(plan->reason + used, sizeof plan->reason - used, format, list);
  va_end(list);
}

/* ---- checks ---- */

#define REFUSE(plan, code, ...) (tigon_plan_say(plan, __VA_ARGS__), (plan)->status = (code))

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

static plan_problem problem_of(const tigon_plan_request *request) {
  const tigon_footprint *f = request->footprint;
  const tigon_device_desc *device = request->device;
  plan_problem problem = {.footprint = f,
                          .device = device,
                          .rows = request->rows,
                          .cols = request->cols,
                          .out_rows =
                              f->walk == TIGON_WALK_TABLE && request->out_rows > 0 ? request->out_rows : request->rows,
                          .grouped = request->groups > 0 || request->run > 0,
                          .groups = plan_max(1, request->groups),
                          .run = plan_max(1, request->run),
                          .forced = request->force != TIGON_CASE_AUTO && request->force != TIGON_CASE_G,
                          .narrowest = 4,
                          .passes = 1};
  const int64_t table_bytes = plan_mul(request->table_cols, (int64_t)f->row_tables * f->row_table_bytes);
  problem.row_bytes_in = plan_add(4 * (int64_t)f->row_scalars_in, table_bytes);
  problem.row_chip = plan_mul(plan_round_up(request->table_cols, 16), 4 * (int64_t)f->row_table_words);
  const int64_t row_bytes = plan_add(problem.row_bytes_in, 4 * (int64_t)f->row_scalars_out);
  const int64_t own_bytes =
      (int64_t)(f->column_params - f->ranges) * f->column_param_bytes + 4 * (int64_t)f->column_sums;
  const int64_t shared_bytes = f->ranges ? f->column_param_bytes + 4 * (f->column_sums > 0) : 0; /* w, dw */
  const int64_t col_bytes = plan_add(plan_mul(plan_mul(problem.groups, request->cols / problem.run), own_bytes),
                                     plan_mul(request->cols, shared_bytes));
  const int64_t numbers = (int64_t)f->numbers * f->column_param_bytes + 4 * (int64_t)f->number_sums;
  problem.moved_min = problem.moved_passes = plan_add(numbers, plan_add(plan_mul(problem.rows, row_bytes), col_bytes));
  for (int i = 0; i < f->inputs + f->outputs; i++) {
    const tigon_stream_footprint *stream = &f->stream[i];
    const int64_t elements = plan_mul(stream->out ? problem.out_rows : problem.rows, problem.cols);
    const int64_t bytes = plan_mul(elements, stream->element_bytes);
    problem.moved_min = plan_add(problem.moved_min, bytes);
    problem.moved_passes = plan_add(problem.moved_passes, plan_mul(bytes, stream->passes));
    if (stream->passes > problem.passes) problem.passes = stream->passes;
    if (stream->element_bytes < problem.narrowest) problem.narrowest = stream->element_bytes;
  }
  /* Elements and alignments are powers of two, so that what is aligned of the narrowest stream is so of all. */
  problem.chip_unit = device->onchip_alignment / problem.narrowest;
  problem.fast_unit = plan_max(problem.chip_unit, device->memory_alignment / problem.narrowest);
  return problem;
}

/* The i-th number of programs that is worth a try: the points of the bandwidth, and all cores. Fewer cores can be faster,
 * because they start sooner, and a memory serves fewer masters. 0: none. */
static int64_t programs_of(const tigon_device_desc *device, int i) {
  const int64_t most = plan_min(device->cores, device->grid_limit);
  if (i == TIGON_BANDWIDTH_POINTS) return most;
  return device->bandwidth[i].cores < most ? device->bandwidth[i].cores : 0;
}

/* ---- why ---- */

static const char *plural(int64_t count, const char *one, const char *more) { return count == 1 ? one : more; }

static void say_why(const plan_problem *problem, tigon_plan *plan) {
  const long long rows = problem->rows, cols = problem->cols, tiles = plan->col_tiles, splits = plan->splits;
  const char *chunks = plural(tiles, "chunk", "chunks");
  tigon_plan_say(plan, "%s", problem->forced ? "forced: " : "");
  switch (plan->cut) {
    case TIGON_CASE_A:
      tigon_plan_say(plan, "%lld elements as one line, in %lld ranges of tiles of %lld", cols, splits,
                     (long long)plan->cols_per_tile);
      break;
    case TIGON_CASE_B:
      tigon_plan_say(plan, "rows of %lld columns are short: a tile takes %lld of them, one read", cols,
                     (long long)plan->rows_per_tile);
      break;
    case TIGON_CASE_C: tigon_plan_say(plan, "a row of %lld columns fits with all its buffers: one read", cols); break;
    case TIGON_CASE_D:
      tigon_plan_say(plan, "a row of %lld columns stays on chip in its own dtype%s; work in %lld %s, one read", cols,
                     plan->row_buffers > 1 ? ", double-buffered" : "", tiles, chunks);
      break;
    case TIGON_CASE_E:
      tigon_plan_say(plan, "%s: %d %s over %lld %s of a row",
                     plan->passes > 1 ? "a row does not stay on chip" : "nothing of a row is needed twice",
                     plan->passes, plural(plan->passes, "pass", "passes"), tiles, chunks);
      break;
    case TIGON_CASE_F:
      tigon_plan_say(plan, "%lld %s for %lld cores: each is split in %lld%s", rows, plural(rows, "row", "rows"),
                     (long long)problem->device->cores, splits,
                     plan->partials_offset + problem->footprint->partials > 0 ? ", partials combined in index order"
                                                                              : "");
      break;
    case TIGON_CASE_G:
    case TIGON_CASE_AUTO: break;
  }
}

/* Why the case that came nearest did not fit. */
static tigon_status say_why_not(const plan_problem *problem, const tigon_plan *nearest, plan_refusal refusal,
                                tigon_plan *plan) {
  const char *op = problem->footprint->op, *entry = problem->footprint->entry;
  switch (refusal) {
    case PLAN_NOT_FLAT:
      tigon_plan_say(plan, "case A is for contiguous elementwise ops without row or column vectors, unlike %s %s here",
                     op, entry);
      break;
    case PLAN_ONE_ROW:
      tigon_plan_say(plan, "case B needs two rows for a tile, rows is %lld", (long long)problem->rows);
      break;
    case PLAN_NOTHING_CACHED:
      tigon_plan_say(plan, "case D keeps what moves twice, and all of %s %s moves once", op, entry);
      break;
    case PLAN_ONE_UNIT:
      tigon_plan_say(plan, "case F splits a row at multiples of %lld columns, cols is %lld",
                     (long long)nearest->col_unit, (long long)problem->cols);
      break;
    case PLAN_WHOLE: tigon_plan_say(plan, "case F splits rows, and those of %s %s stay whole", op, entry); break;
    case PLAN_TOO_LARGE:
    case PLAN_FITS:
      tigon_plan_say(plan, "case %c needs %lld on-chip bytes%s, %.31s has %lld", tigon_plan_case_letter(nearest->cut),
                     (long long)nearest->onchip_bytes, problem->forced ? "" : ", the least of all cases",
                     problem->device->name, (long long)problem->device->onchip_bytes);
      if (problem->row_chip > 0) tigon_plan_say(plan, "; a row's entries take %lld", (long long)problem->row_chip);
      break;
  }
  return plan->status = TIGON_ERROR_SCRATCH;
}

/* ---- the choice ---- */

static tigon_status choose(const plan_problem *problem, tigon_plan_case force, tigon_plan *plan) {
  /* The last trial, the best that reads rows once, the best that reads them again, and of none the nearest. A plan that
   * was found has tasks. */
  tigon_plan trial, once = {0}, again = {0}, nearest = {0};
  plan_refusal why_not = PLAN_FITS;
  for (tigon_plan_case c = TIGON_CASE_A; c <= TIGON_CASE_LAST; c++) {
    if (problem->forced && c != force) continue;
    /* Where rows are fewer than cores, F buys more cores with its second read. */
    const bool reads_again =
        problem->passes > 1 && (c == TIGON_CASE_E || (c == TIGON_CASE_F && problem->rows >= problem->device->cores));
    tigon_plan *best = reads_again ? &again : &once;
    for (int i = TIGON_BANDWIDTH_POINTS; i >= 0; i--) {
      const int64_t programs = programs_of(problem->device, i);
      if (programs == 0) continue;
      const plan_refusal refusal = tigon_plan_build(problem, c, programs, &trial);
      if (refusal == PLAN_FITS) {
        tigon_plan_predict(problem, &trial);
        if (best->tasks == 0 || trial.predicted_us < best->predicted_us) *best = trial;
      } else if (why_not == PLAN_FITS || (refusal == PLAN_TOO_LARGE &&
                                          (why_not != PLAN_TOO_LARGE || trial.onchip_bytes < nearest.onchip_bytes))) {
        nearest = trial;
        why_not = refusal;
      }
    }
  }
  if (once.tasks == 0 && again.tasks == 0) return say_why_not(problem, &nearest, why_not, plan);
  /* A row that fits is read once, even where the model favours two passes: the reads are sure, its other costs are estimates. */
  *plan = once.tasks > 0 ? once : again;
  if (plan->workspace_bytes == INT64_MAX) {
    *plan = (tigon_plan){.rows = problem->rows, .cols = problem->cols};
    return REFUSE(plan, TIGON_ERROR_INVALID, "the workspace of %lld x %lld is beyond 2^63 bytes",
                  (long long)problem->rows, (long long)problem->cols);
  }
  say_why(problem, plan);
  if (again.tasks > 0 && again.predicted_us < plan->predicted_us) /* why the model's best time is not taken */
    tigon_plan_say(plan, "; case %c would read it twice and take %.0f us, an estimate",
                   tigon_plan_case_letter(again.cut), again.predicted_us);
  if (problem->grouped) plan->chosen = TIGON_CASE_G;
  return plan->status = TIGON_OK;
}

tigon_status tigon_plan_make(const tigon_plan_request *request, tigon_plan *plan) {
  *plan = (tigon_plan){.status = TIGON_OK, .groups = 1, .splits = 1, .row_tasks = 1};
  if (check(request, plan) != TIGON_OK) return plan->status;
  plan->rows = request->rows;
  plan->cols = request->cols;
  const tigon_footprint *f = request->footprint;
  if (request->cols == 0 ||
      (request->rows == 0 && f->walk != TIGON_WALK_TABLE)) { /* without an index a table is zeros */
    tigon_plan_say(plan, "nothing to do: %s is 0", request->rows == 0 ? "rows" : "cols");
    return TIGON_OK;
  }
  const plan_problem problem = problem_of(request);
  if (problem.moved_passes == INT64_MAX)
    return REFUSE(plan, TIGON_ERROR_INVALID, "%lld rows x %lld cols are beyond 2^63 bytes", (long long)request->rows,
                  (long long)request->cols);
  if (f->walk != TIGON_WALK_ROWS) return tigon_plan_launch(&problem, request, plan);
  if (request->force == TIGON_CASE_G && !problem.grouped)
    return REFUSE(plan, TIGON_ERROR_SCRATCH, "case G is for rows in groups, and %s %s has none here", f->op, f->entry);
  return choose(&problem, request->force, plan);
}
