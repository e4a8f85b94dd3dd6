/* tigon bench: how long an operator takes, and what part of this machine's memory rate that is. The rate is measured in
 * turns with the operator, so that what else the machine does falls on both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core/context.h"
#include "term.h"

enum { MOST_ROWS = 512 };

typedef struct bench_options {
  const char *command; /* argv[0] */
  const char *ops[64];
  int op_count;
  const char *device, *variant;
  int64_t rows, cols; /* 0: each case's own shape */
  bool dtypes[TIGON_I64 + 1], any_dtype, modes[BENCH_MODES], any_mode, overhead;
  int threads, repeats;
  bench_format format;
} bench_options;

/* ---- rows ---- */

/* Notes why a row has no figures. */
static void give_up(bench_row *row, const tigon_context *context, tigon_status status) {
  row->outcome = status == TIGON_ERROR_UNSUPPORTED ? BENCH_SKIPPED : BENCH_BROKEN;
  const char *sentence = tigon_last_error(context);
  snprintf(row->reason, sizeof row->reason, "%s", *sentence ? sentence : tigon_status_name(status));
}

static bool mode_supported(const tigon_context *context, const char *op, bench_mode mode, tigon_dtype dtype) {
  if (mode != BENCH_FULL) return tigon_supports(context, op, bench_mode_name(mode), dtype);
  return tigon_supports(context, op, "fwd", dtype) && tigon_supports(context, op, "bwd", dtype);
}

/* All modes of one case in one dtype, on one set of buffers. Rows are filled up to `next`. */
static void run_case(const bench_options *options, const bench_case *chosen, tigon_context *context, bench_row *rows,
                     int first, int next, int total) {
  const bench_row *one = &rows[first];
  bench_data data = {.context = context, .dtype = one->dtype, .rows = one->rows, .cols = one->cols};
  data.other = chosen->other == BENCH_AS_ROWS ? data.rows : chosen->other == BENCH_AS_COLS ? data.cols : chosen->other;
  if (options->overhead && chosen->other > 0) data.other = 64;
  if (bench_data_open(&data, chosen) != TIGON_OK)
    cli_trouble(options->command, "%s %s: no memory for tensors of %lldx%lld", chosen->op, tigon_dtype_name(one->dtype),
                (long long)one->rows, (long long)one->cols);
  tigon_status status = chosen->prepare(&data);
  if (status == TIGON_OK) status = bench_data_grant(&data);
  for (int i = first; i < next; ++i) {
    bench_row *row = &rows[i];
    if (row->outcome != BENCH_MEASURED) continue;
    char text[128];
    snprintf(text, sizeof text, "%s %s %s", row->op, row->mode, tigon_dtype_name(row->dtype));
    term_progress(i, total, text);
    bench_mode mode = 0;
    while (strcmp(bench_mode_name(mode), row->mode) != 0) ++mode;
    row->bytes_min = data.bytes[mode];
    row->flops = data.flops[mode];
    const bool without = mode == BENCH_STEP || (mode == BENCH_FWD && !(chosen->flags & BENCH_FULL_IN_ONE));
    row->extra_bytes = without ? 0 : data.workspace_bytes;
    /* Backward alone needs what forward leaves behind (rstd, lse, y). */
    if (status == TIGON_OK && mode == BENCH_BWD) status = chosen->run(&data, BENCH_FWD);
    if (status == TIGON_OK) status = bench_call(chosen, &data, mode);
    if (status != TIGON_OK) {
      give_up(row, context, status);
      continue;
    }
    row->variant = tigon_last_variant(context);
    bench_measure(chosen, &data, mode, options->repeats, options->overhead ? 2e-4 : 1e-3, !options->overhead, row);
  }
  bench_data_close(&data);
}

/* ---- what to run ---- */

static bool wanted_op(const bench_options *options, const char *op) {
  for (int i = 0; i < options->op_count; ++i)
    if (strcmp(options->ops[i], op) == 0) return true;
  return options->op_count == 0;
}

/* One row for each mode that the op's entries make; "full" follows "bwd". */
static int add_rows(const bench_options *options, const tigon_context *context, const char *op, tigon_dtype dtype,
                    bench_row *rows, int count) {
  const bench_case *chosen = bench_case_find(op);
  const tigon_entry *entry;
  const bool is_16bit = tigon_dtype_size(dtype) == 2;
  for (bench_mode mode = 0; mode < BENCH_MODES && count < MOST_ROWS; ++mode) {
    bool exists = false;
    for (int i = 0; (entry = tigon_entry_at(i)); ++i)
      if (strcmp(entry->op, op) == 0 && strcmp(entry->entry, mode == BENCH_FULL ? "bwd" : bench_mode_name(mode)) == 0)
        exists = true;
    if (!exists || (options->any_mode && !options->modes[mode])) continue;
    bench_row *row = &rows[count++];
    *row = (bench_row){.op = op,
                       .mode = bench_mode_name(mode),
                       .dtype = dtype,
                       .variant = context->kernels->variant,
                       .threads = context->queue.threads,
                       .rows = options->rows,
                       .cols = options->cols};
    if (!row->rows && chosen) row->rows = is_16bit ? chosen->rows_16bit : chosen->rows_f32, row->cols = chosen->cols;
    if (!chosen || !mode_supported(context, op, mode, dtype)) {
      row->outcome = BENCH_SKIPPED;
      snprintf(row->reason, sizeof row->reason, chosen ? "no kernel in %s" : "no case in apps/cli/bench_cases.c",
               context->kernels->variant);
    }
  }
  return count;
}

static int run_all(const bench_options *options) {
  static bench_row rows[MOST_ROWS];
  tigon_context *context = cli_context(options->command, options->device, options->variant, options->threads);
  if (!context->queue.backend->host_memory)
    cli_trouble(options->command, "device %s has no host memory, which is all that bench can time so far",
                tigon_context_device(context));
  double load;
  if (getloadavg(&load, 1) != 1) load = -1;

  int count = 0, starts[MOST_ROWS], groups = 0;
  const tigon_entry *entry;
  const char *last = "";
  for (int i = 0; (entry = tigon_entry_at(i)); ++i) {
    if (strcmp(entry->op, last) == 0 || !wanted_op(options, entry->op)) continue;
    last = entry->op;
    for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype)
      if (options->dtypes[dtype]) {
        starts[groups++] = count;
        count = add_rows(options, context, entry->op, dtype, rows, count);
      }
  }
  starts[groups] = count;
  for (int g = 0; g < groups; ++g) {
    bool any = false;
    for (int i = starts[g]; i < starts[g + 1]; ++i) any = any || rows[i].outcome == BENCH_MEASURED;
    if (any) run_case(options, bench_case_find(rows[starts[g]].op), context, rows, starts[g], starts[g + 1], count);
  }
  term_progress(count, count, "");

  bool broken = false;
  for (int i = 0; i < count; ++i) broken = broken || rows[i].outcome == BENCH_BROKEN;
  bench_result result = {.rows = rows,
                         .count = count,
                         .threads = context->queue.threads,
                         .load = load,
                         .variant = context->kernels->variant,
                         .gemm = tigon_context_gemm(context),
                         .overhead = options->overhead};
  bench_find_ceilings(&result, options->repeats);
  bench_print(&result, options->format);
  tigon_context_destroy(context);
  return broken ? CLI_FAILED : CLI_OK;
}

/* ---- the command line ---- */

static void choose_mode(bench_options *options, const char *argument) {
  static const char *const names[] = {"fwd", "bwd", "full", "step", "clip", NULL};
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode)
    if (strcmp(bench_mode_name(mode), argument) == 0) {
      options->modes[mode] = options->any_mode = true;
      return;
    }
  cli_unknown(options->command, "mode", argument, names);
}

static void choose_format(bench_options *options, bench_format format) {
  if (options->format != BENCH_TABLE && options->format != format)
    cli_mistake(options->command, "--json, --markdown and --csv exclude each other");
  options->format = format;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  bench_options *o = state->input;
  switch (key) {
    case 's': cli_shape(o->command, argument, &o->rows, &o->cols); return 0;
    case 't': o->dtypes[cli_float_dtype(o->command, argument)] = o->any_dtype = true; return 0;
    case 'm': choose_mode(o, argument); return 0;
    case 'n': o->threads = (int)cli_number(o->command, "--threads", argument, 1, 4096); return 0;
    case 'r': o->repeats = (int)cli_number(o->command, "--repeat", argument, 1, BENCH_MOST_REPEATS); return 0;
    case 'd': o->device = argument; return 0;
    case 'v': o->variant = argument; return 0;
    case 'j': choose_format(o, BENCH_JSON); return 0;
    case 'M': choose_format(o, BENCH_MARKDOWN); return 0;
    case 'C': choose_format(o, BENCH_CSV); return 0;
    case 'o': o->overhead = true; return 0;
    case ARGP_KEY_ARG:
      if (o->op_count < 64) o->ops[o->op_count++] = cli_op(o->command, argument);
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

int tigon_cli_bench(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"shape", 's', "ROWSxCOLS", 0, "Instead of each operator's own, where tensors have 64 MiB and more", 0},
      {"dtype", 't', "DTYPE", 0, "f32, bf16 or f16, may be repeated (default: f32 and bf16)", 0},
      {"mode", 'm', "MODE", 0, "fwd, bwd, full, step or clip, may be repeated (default: all that there are)", 0},
      {"threads", 'n', "N", 0, "Threads a call may use (default: OMP_NUM_THREADS, else all cores)", 0},
      {"device", 'd', "NAME", 0, "cpu or ref (default: the first that is there)", 0},
      {"variant", 'v', "NAME", 0, "Kernels for this instruction set, as `tigon list' names them", 0},
      {"repeat", 'r', "N", 0, "Timed samples a row (default: 15, or those of a second, at least 5)", 0},
      {"overhead", 'o', NULL, 0, "The cost of a call instead: one tiny row, in microseconds", 0},
      {"json", 'j', NULL, 0, "Print JSON", 0},
      {"markdown", 'M', NULL, 0, "Print a table for a README", 0},
      {"csv", 'C', NULL, 0, "Print CSV in the columns of Liger-Kernel's benchmark data", 0},
      {0},
  };
  static const struct argp argp = {
      options,
      parse,
      "[OPERATOR...]",
      "Time operators (default: all of them) with warm buffers, and say what part of the floor that is: the bytes that "
      "must move, at the rate of a copy (or of a read, for an operator that only reads) that is measured in turns with it."
      "\vExamples:\n  tigon bench rms_norm swiglu --dtype bf16 --mode bwd\n  tigon bench --json > bench.json\n"
      "  tigon bench softmax --csv > softmax.csv",
      NULL,
      NULL,
      NULL};
  bench_options chosen = {.command = argv[0], .repeats = 15};
  cli_parse(&argp, argc, argv, &chosen);
  if (!chosen.any_dtype) chosen.dtypes[TIGON_F32] = chosen.dtypes[TIGON_BF16] = true;
  if (chosen.overhead && !chosen.rows) chosen.rows = 1, chosen.cols = 64;
  return run_all(&chosen);
}
