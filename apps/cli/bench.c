/* tigon bench: how long an operator takes, and what part of this machine's memory rate that is. The rate is measured in
 * turns with the operator, so that what else the machine does falls on both. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core/context.h"
#include "term.h"

enum { KEY_MODELS = 256, KEY_SWEEP, KEY_SVG, KEY_AGAINST, KEY_HOT, KEY_TRACE };

typedef struct bench_options {
  const char *command; /* argv[0] */
  const char *ops[64];
  int op_count;
  const char *device, *variant;
  bench_choice choice;
  bool dtypes[TIGON_I64 + 1], any_dtype, modes[BENCH_MODES], any_mode, overhead, hot;
  attention_options attention;
  int repeats;
  bench_format format;
  const char *svg, *against, *trace; /* paths; NULL: none */
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

/* Notes for every row of a group why it has no figures. */
static void skip_all(bench_row *rows, int first, int next, const char *reason) {
  for (int i = first; i < next; ++i)
    if (rows[i].outcome == BENCH_MEASURED) {
      rows[i].outcome = BENCH_SKIPPED;
      snprintf(rows[i].reason, sizeof rows[i].reason, "%s", reason);
    }
}

/* All modes of one case in one dtype and size, on one set of buffers: the rows from `first` up to `next`. */
static void run_case(const bench_options *options, const bench_case *chosen, tigon_context *context, bench_row *rows,
                     int first, int next, int total) {
  const bench_row *one = &rows[first];
  const bool host = context->queue.backend->host_memory;
  const int64_t available = host ? cli_memory_available() - BENCH_PROBE_BYTES : INT64_MAX;
  char shape[BENCH_SHAPE], bytes[TERM_NUMBER], most[TERM_NUMBER];
  bench_data data;
  if (bench_data_open(&data, chosen, context, one->dtype, &one->at, available > 0 ? (size_t)available : 0) !=
      TIGON_OK) {
    char reason[BENCH_SHAPE + 64];
    term_bytes(bytes, (int64_t)data.bytes);
    if (host)
      snprintf(reason, sizeof reason, "%s needs %s of the %s that are free", bench_shape(shape, one), bytes,
               term_bytes(most, available + BENCH_PROBE_BYTES));
    else
      snprintf(reason, sizeof reason, "%s needs %s, more than the device has free", bench_shape(shape, one), bytes);
    skip_all(rows, first, next, reason);
    return;
  }
  for (int i = first; i < next; ++i) {
    bench_row *row = &rows[i];
    if (row->outcome != BENCH_MEASURED) continue;
    char text[BENCH_SHAPE + 64];
    snprintf(text, sizeof text, "%s %s %s %s", row->op, row->mode, tigon_dtype_name(row->dtype),
             bench_shape(shape, row));
    term_progress(i, total, text);
    bench_mode mode = 0;
    while (strcmp(bench_mode_name(mode), row->mode) != 0) ++mode;
    row->bytes_min = data.mode[mode].bytes;
    row->flops = data.mode[mode].flops;
    row->extra_bytes = data.mode[mode].workspace_bytes;
    cli_peak_restart();
    /* Backward alone needs what forward leaves behind (rstd, lse, y). */
    const bool follows = mode == BENCH_BWD && data.mode[BENCH_FWD].entry >= 0;
    tigon_status status = follows ? bench_call(&data, BENCH_FWD) : TIGON_OK;
    if (status == TIGON_OK) status = bench_call(&data, mode);
    if (status != TIGON_OK) {
      give_up(row, context, status);
      continue;
    }
    row->peak_bytes = host ? cli_peak_bytes() : 0;
    row->variant = tigon_last_variant(context);
    if (options->trace) context->queue.backend->trace(&context->queue, NULL);
    const bench_timing timing = {options->repeats, options->overhead ? 2e-4 : 1e-3, options->overhead, options->hot};
    bench_measure(&data, mode, &timing, row);
  }
  bench_data_close(&data);
}

/* ---- what to run ---- */

static bool wanted_op(const bench_options *options, const char *op) {
  for (int i = 0; i < options->op_count; ++i)
    if (strcmp(options->ops[i], op) == 0) return true;
  return options->op_count == 0;
}

typedef struct row_list {
  bench_row *row;
  int count, capacity;
} row_list;

static bench_row *append(const bench_options *options, row_list *list) {
  if (list->count == list->capacity) {
    list->capacity = list->capacity ? 2 * list->capacity : 256;
    list->row = realloc(list->row, (size_t)list->capacity * sizeof *list->row);
    if (!list->row) cli_trouble(options->command, "out of memory");
  }
  return &list->row[list->count++];
}

static bool has_entry(const char *op, const char *name) {
  const tigon_entry *entry;
  for (int i = 0; (entry = tigon_entry_at(i)); ++i)
    if (strcmp(entry->op, op) == 0 && strcmp(entry->entry, name) == 0) return true;
  return false;
}

/* One row for each mode that the op's entries make; "full" is of both directions. */
static void add_modes(const bench_options *options, const tigon_context *context, const char *op, tigon_dtype dtype,
                      const bench_point *at, row_list *list) {
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) {
    const bool full = mode == BENCH_FULL;
    const bool exists = full ? has_entry(op, "fwd") && has_entry(op, "bwd") : has_entry(op, bench_mode_name(mode));
    if (!exists || (options->any_mode && !options->modes[mode])) continue;
    if (at->forms & BENCH_BIT(BENCH_INT8) && mode != BENCH_QUANTISED) continue; /* it says nothing of the others */
    bench_row *row = append(options, list);
    *row = (bench_row){
        .op = op, .mode = bench_mode_name(mode), .dtype = dtype, .variant = context->kernels->variant, .at = *at};
    const bench_case *chosen = bench_case_find(op);
    if (!chosen || !mode_supported(context, op, mode, dtype)) {
      row->outcome = BENCH_SKIPPED;
      snprintf(row->reason, sizeof row->reason, chosen ? "no kernel in %s" : "no case in tests/check/cases.c",
               context->kernels->variant);
    } else if (options->hot && chosen->products[BENCH_FWD] > 0) {
      row->outcome = BENCH_SKIPPED;
      snprintf(row->reason, sizeof row->reason, "matrix products bound it, with --hot as without");
    }
  }
}

/* Ends the program where a form is none of an operator's that is timed. */
static void refuse_forms(const bench_options *options) {
  const tigon_entry *entry;
  unsigned has = 0;
  for (int i = 0; (entry = tigon_entry_at(i)); ++i) {
    const bench_case *chosen = wanted_op(options, entry->op) ? bench_case_find(entry->op) : NULL;
    if (chosen) has |= chosen->forms;
  }
  forms_refuse(options->command, options->choice.forms, has, NULL);
}

/* Operator by operator, dtype by dtype, size by size. */
static void add_all(const bench_options *options, tigon_context *context, row_list *list) {
  const tigon_entry *entry;
  const char *last = "";
  for (int i = 0; (entry = tigon_entry_at(i)); ++i) {
    if (strcmp(entry->op, last) == 0 || !wanted_op(options, entry->op)) continue;
    last = entry->op;
    const bench_case *chosen = bench_case_find(entry->op);
    for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype) {
      bench_point points[BENCH_MOST_POINTS] = {{.threads = options->choice.threads}};
      if (!options->dtypes[dtype]) continue;
      const int count = chosen ? bench_points(chosen, &options->choice, context, dtype, points) : 1;
      for (int p = 0; p < count; ++p) {
        if (options->overhead && points[p].other > 0) points[p].other = 64;
        if (chosen && strcmp(entry->op, "attention") == 0) points[p].attention = options->attention.asked;
        add_modes(options, context, entry->op, dtype, &points[p], list);
      }
    }
  }
}

static bool same_group(const bench_row *a, const bench_row *b) {
  return a->op == b->op && a->dtype == b->dtype && a->at.threads == b->at.threads && a->at.model == b->at.model &&
         a->at.rows == b->at.rows && a->at.cols == b->at.cols;
}

/* Fills the speed-ups of a sweep over threads. The first row of a kind has none to compare with. */
static void find_speedups(bench_row *rows, int count) {
  for (int i = 0; i < count; ++i)
    for (int j = 0; j <= i; ++j) {
      const bench_row *one = &rows[j];
      if (one->op == rows[i].op && one->mode == rows[i].mode && one->dtype == rows[i].dtype && one->at.threads == 1 &&
          one->outcome == BENCH_MEASURED && rows[i].outcome == BENCH_MEASURED)
        rows[i].speedup = one->median / rows[i].median;
    }
}

/* Opened before anything is timed, so that a path that is wrong costs nothing. NULL: no path. */
static FILE *open_file(const bench_options *options, const char *path) {
  FILE *file = path ? fopen(path, "w") : NULL;
  if (path && !file) cli_trouble(options->command, "%s: %s", path, strerror(errno));
  return file;
}
static void close_file(const bench_options *options, const char *path, FILE *file) {
  const bool written = !ferror(file);
  if (fclose(file) != 0 || !written) cli_trouble(options->command, "%s: %s", path, strerror(errno));
}

/* The second-level cache of one core. On a device, bytes that every device's shared cache holds. */
static size_t l2_bytes(const char *command, bool host) {
  enum { ON_DEVICE = 16 << 20 };
  tigon_machine machine;
  if (!host) return ON_DEVICE;
  tigon_machine_read(&machine);
  if (machine.l2_bytes <= 0) cli_trouble(command, "--hot: the system does not tell the size of the second-level cache");
  return (size_t)machine.l2_bytes;
}

static int run_all(bench_options *options) {
  row_list list = {0};
  bench_choice *choice = &options->choice;
  tigon_context *context = cli_context(options->command, options->device, options->variant, choice->threads);
  const tigon_backend *backend = context->queue.backend;
  if (options->trace && !backend->trace)
    cli_mistake(options->command, "--trace: device %s keeps no timeline, only a simulator does",
                tigon_context_device(context));
  FILE *svg = open_file(options, options->svg), *trace = open_file(options, options->trace);
  double load;
  if (getloadavg(&load, 1) != 1) load = -1;
  choice->threads = context->queue.threads;
  if (options->hot) choice->hot_bytes = l2_bytes(options->command, backend->host_memory);
  add_all(options, context, &list);
  if (options->against) {
    json_t *past = bench_past_read(options->command, options->against, options->hot,
                                   backend->host_memory ? NULL : context->device->name);
    if (bench_past_find(past, list.row, list.count) == 0)
      cli_trouble(options->command, "--against: %s has none of the rows that this run would measure", options->against);
    json_decref(past);
  }

  bool broken = false, measured = false;
  for (int first = 0, next; first < list.count; first = next) {
    bool any = false;
    for (next = first; next < list.count && same_group(&list.row[first], &list.row[next]); ++next)
      any = any || list.row[next].outcome == BENCH_MEASURED;
    if (!any) continue;
    if (list.row[first].at.threads != context->queue.threads) {
      tigon_context_destroy(context);
      context = cli_context(options->command, options->device, options->variant, list.row[first].at.threads);
    }
    run_case(options, bench_case_find(list.row[first].op), context, list.row, first, next, list.count);
    for (int i = first; i < next; ++i) broken = broken || list.row[i].outcome == BENCH_BROKEN;
  }
  term_progress(list.count, list.count, "");

  bench_result result = {.rows = list.row,
                         .count = list.count,
                         .axis = choice->axis,
                         .threads = choice->threads,
                         .load = load,
                         .variant = context->kernels->variant,
                         .gemm = tigon_context_gemm(context),
                         .simulated = backend->model ? context->device->name : NULL,
                         .device = backend->host_memory ? NULL : context->device->name,
                         .probed = !backend->model && (backend->host_memory || backend->stream),
                         .against = options->against,
                         .overhead = options->overhead,
                         .hot = options->hot};
  if (result.probed)
    bench_find_ceilings(&result, context, options->repeats);
  else
    result.copy_gbps = result.read_gbps = bench_model_gbps(context);
  if (choice->axis == BENCH_THREADS) find_speedups(list.row, list.count);
  for (int i = 0; i < list.count; ++i)
    if (list.row[i].outcome == BENCH_MEASURED) ++result.verdicts[bench_past_judge(&list.row[i])], measured = true;
  bench_print(&result, options->format);
  if (svg) {
    bench_print_svg(&result, svg);
    close_file(options, options->svg, svg);
  }
  if (trace) {
    backend->trace(&context->queue, trace);
    close_file(options, options->trace, trace);
  }
  tigon_context_destroy(context);
  if (!measured)
    cli_trouble(options->command, "nothing was measured: %s", list.count ? list.row[0].reason : "no such mode");
  free(list.row);
  return broken || result.verdicts[BENCH_SLOWER] ? CLI_FAILED : CLI_OK;
}

/* ---- the command line ---- */

static void choose_mode(bench_options *options, const char *argument) {
  const char *names[BENCH_MODES + 1] = {NULL};
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) {
    names[mode] = bench_mode_name(mode);
    if (strcmp(names[mode], argument) != 0) continue;
    options->modes[mode] = options->any_mode = true;
    return;
  }
  cli_unknown(options->command, "mode", argument, names);
}

static void choose_axis(bench_options *options, bench_axis axis) {
  if (options->choice.axis != BENCH_ONE && options->choice.axis != axis)
    cli_mistake(options->command, "two sweeps at once: give one --sweep or --models");
  options->choice.axis = axis;
}

static void choose_sweep(bench_options *options, const char *argument) {
  static const char *const names[] = {"rows", "width", "threads", NULL};
  for (int i = 0; names[i]; ++i)
    if (strcmp(names[i], argument) == 0) {
      choose_axis(options, (bench_axis)(BENCH_ROWS + i));
      return;
    }
  cli_unknown(options->command, "sweep", argument, names);
}

static void choose_model(bench_options *options, const char *argument) {
  const char *const *names = bench_model_names();
  choose_axis(options, BENCH_MODELS);
  if (!argument) return;
  for (int i = 0; names[i]; ++i)
    if (strcmp(names[i], argument) == 0) {
      options->choice.model = names[i];
      return;
    }
  cli_unknown(options->command, "model", argument, names);
}

static void choose_format(bench_options *options, bench_format format) {
  if (options->format != BENCH_TABLE && options->format != format)
    cli_mistake(options->command, "--json, --markdown and --csv exclude each other");
  options->format = format;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  bench_options *o = state->input;
  switch (key) {
    case 's': cli_shape(o->command, argument, &o->choice.rows, &o->choice.cols); return 0;
    case 't': o->dtypes[cli_float_dtype(o->command, argument)] = o->any_dtype = true; return 0;
    case 'm': choose_mode(o, argument); return 0;
    case 'n': o->choice.threads = (int)cli_number(o->command, "--threads", argument, 1, 4096); return 0;
    case 'r': o->repeats = (int)cli_number(o->command, "--repeat", argument, 1, BENCH_MOST_REPEATS); return 0;
    case KEY_MODELS: choose_model(o, argument); return 0;
    case KEY_SWEEP: choose_sweep(o, argument); return 0;
    case KEY_AGAINST: o->against = argument; return 0;
    case KEY_SVG: o->svg = argument; return 0;
    case KEY_TRACE: o->trace = argument; return 0;
    case 'd': o->device = argument; return 0;
    case 'v': o->variant = argument; return 0;
    case 'j': choose_format(o, BENCH_JSON); return 0;
    case 'M': choose_format(o, BENCH_MARKDOWN); return 0;
    case 'C': choose_format(o, BENCH_CSV); return 0;
    case 'o': o->overhead = true; return 0;
    case KEY_HOT: o->hot = true; return 0;
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->attention; return 0;
    case ARGP_KEY_ARG:
      if (o->op_count < 64) o->ops[o->op_count++] = cli_op(o->command, argument);
      return 0;
    default: return forms_add(&o->choice.forms, key) ? 0 : ARGP_ERR_UNKNOWN;
  }
}

int tigon_cli_bench(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"shape", 's', "ROWSxCOLS", 0, "Instead of each operator's own, where tensors have 64 MiB and more", 0},
      {"models", KEY_MODELS, "MODEL", OPTION_ARG_OPTIONAL,
       "The sizes of llama-2-7b, llama-3-8b, qwen2.5-7b, qwen2.5-14b, qwen2.5-72b and deepseek-v3, or of one of them",
       0},
      {"sweep", KEY_SWEEP, "rows|width|threads", 0,
       "Several sizes around the shape: rows, width (the columns) or threads", 0},
      {"dtype", 't', "f32|bf16|f16", 0, "f32, bf16 or f16, may be repeated (default: f32 and bf16)", 0},
      {"mode", 'm', "MODE", 0, "fwd, bwd, full or another entry, may be repeated (default: all that there are)", 0},
      {"threads", 'n', "N", 0, "Threads a call may use (default: OMP_NUM_THREADS, else all cores)", 0},
      {"device", 'd', "DEVICE", 0,
       "A device as `tigon devices' names it, such as cuda or ascend-sim:910B4 (default: the first that is present)",
       0},
      {"variant", 'v', "VARIANT", 0, "Kernels for this instruction set, as `tigon list' names them", 0},
      {"repeat", 'r', "N", 0, "Timed samples a row (default: 15, or those of a second, at least 5)", 0},
      {"hot", KEY_HOT, NULL, 0,
       "Tensors that stay in the second-level cache of one core, beside a copy of as many bytes that stays there, too",
       0},
      {"overhead", 'o', NULL, 0, "The cost of a call instead: one tiny row, in microseconds", 0},
      {"json", 'j', NULL, 0, "Print JSON", 0},
      {"markdown", 'M', NULL, 0, "Print a table for a README", 0},
      {"csv", 'C', NULL, 0, "Print CSV in the columns of Liger-Kernel's benchmark data", 0},
      {"svg", KEY_SVG, "FILE", 0, "Also draw a plot, with bars from the 20 % to the 80 % quantile", 0},
      {"trace", KEY_TRACE, "FILE", 0,
       "On a simulator: write the last row's timeline in the Chrome trace format, which Perfetto opens", 0},
      {"against", KEY_AGAINST, "FILE", 0,
       "Compare with an earlier run's JSON, and fail (exit status 1) when a row is slower beyond the noise", 0},
      {NULL, 0, NULL, 0, "Other forms of calls, for the operators that have them:", 1},
#define FORM(name, option, text, help) {option, FORM_KEY + BENCH_##name, NULL, 0, help, 1},
#include "check/forms.def"
#undef FORM
      {0},
  };
  static const struct argp argp = {
      options,
      parse,
      "[OPERATOR...]",
      "Time operators (default: all of them) with warm buffers, and say what part of the floor that is: the bytes that "
      "must move, at the rate of a copy (or of a read, for an operator that only reads) that is measured in turns with it."
      "\vExamples:\n  tigon bench rms_norm swiglu --dtype bf16 --mode bwd\n  tigon bench --json > bench.json\n"
      "  tigon bench softmax --sweep width --csv > softmax.csv\n"
      "  tigon bench rms_norm --sweep rows --svg rows.svg\n"
      "  tigon bench --hot --sweep threads\n"
      "  tigon bench --against bench.json\n"
      "  tigon bench --models=llama-3-8b --dtype bf16\n"
      "  tigon bench attention --shape 4096x1024 --window 512 --softcap 50\n"
      "  tigon bench rms_norm --gate --mode quantised --int8",
      &attention_options_child,
      NULL,
      NULL};
  bench_options chosen = {.command = argv[0], .repeats = 15};
  if (!cli_parse(&argp, argc, argv, &chosen)) return CLI_OK;
  if (chosen.attention.given && !wanted_op(&chosen, "attention"))
    cli_mistake(argv[0], "--%s is for attention, which is not among the operators", chosen.attention.given);
  if (!chosen.any_dtype) chosen.dtypes[TIGON_F32] = chosen.dtypes[TIGON_BF16] = true;
  bench_choice *choice = &chosen.choice;
  refuse_forms(&chosen);
  if (choice->axis == BENCH_MODELS && choice->rows)
    cli_mistake(argv[0], "--models brings its own sizes, --shape excludes it");
  if (chosen.hot && (chosen.overhead || choice->axis == BENCH_MODELS))
    cli_mistake(argv[0], "--hot brings its own sizes, %s excludes it", chosen.overhead ? "--overhead" : "--models");
  if (chosen.overhead && choice->axis != BENCH_ONE)
    cli_mistake(argv[0], "--overhead is about one tiny size, --models and --sweep exclude it");
  if (chosen.overhead && !choice->rows) choice->rows = 1, choice->cols = 64;
  return run_all(&chosen);
}
