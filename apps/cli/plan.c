/* tigon plan: how an op is cut into tiles on an Ascend device, and why. Touches no data and needs no device. Of other devices it
 * prints what would be launched: plan_launches.c. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ascend/plan/device_override.h"
#include "check/cases.h"
#include "cli.h"
#include "forms.h"
#include "plan.h"
#include "term.h"

/* ---- the question ---- */

enum { MOST_NAMES = 64 };

/* The names of all ops that have a footprint, or of the entries of `of`; NULL-terminated. */
static void footprint_names(const char *of, const char *names[MOST_NAMES]) {
  int count = 0;
  const char *op, *entry;
  for (int i = 0; tigon_footprint_at(i, &op, &entry) && count < MOST_NAMES - 1; ++i) {
    if (of && strcmp(op, of) != 0) continue;
    const char *name = of ? entry : op;
    if (count == 0 || strcmp(names[count - 1], name) != 0) names[count++] = name;
  }
  names[count] = NULL;
}

static bool has(const char *const *names, const char *name) {
  for (; *names; ++names) {
    if (strcmp(*names, name) == 0) return true;
  }
  return false;
}

static bool has_no_cases(const tigon_plan_request *request) { return request->footprint->walk != TIGON_WALK_ROWS; }

/* rope's heads are those of `tigon bench`: keys beside the queries of --shape, in sequences. */
static void ask_heads(const char *command, plan_options *chosen, tigon_footprint *footprint,
                      tigon_plan_request *request) {
  if (chosen->unit > 0 && chosen->cols % chosen->unit != 0)
    cli_mistake(command, "--unit is %" PRId64 ", must divide the columns, %" PRId64, chosen->unit, chosen->cols);
  const bench_point at = {
      .rows = chosen->rows, .cols = chosen->cols, .head_dim = chosen->unit, .kv_heads = chosen->keys};
  int64_t dims[CHECK_DIMS]; /* batch, tokens, heads of queries and keys, columns of a head */
  bench_dims(bench_case_find(chosen->op), &at, dims);
  chosen->keys = dims[3];
  request->cols = (dims[2] + dims[3]) * dims[4];
  request->key_cols = dims[3] * dims[4];
  request->col_unit = dims[4];
  request->table_cols = dims[4] / 2;
  request->sequence = dims[1];
  if (!(chosen->forms & BENCH_BIT(BENCH_SECTIONS))) return;
  footprint->row_scalars_in *= 3;
  footprint->row_tables *= 3;
}

/* The entries of a row are as many as those of `tigon bench`. */
static void ask_entries(const plan_options *chosen, tigon_plan_request *request) {
  int64_t dims[CHECK_DIMS]; /* rows, columns, entries */
  const bench_point at = {.rows = chosen->rows, .cols = chosen->cols};
  bench_dims(bench_case_find(chosen->op), &at, dims);
  request->table_cols = dims[2];
}

/* A description with what the environment says in place of its numbers; ends the program where that is wrong. */
static const tigon_device_desc *described(const char *command, const tigon_device_desc *device,
                                          tigon_device_desc *changed) {
  const char *reason;
  if (!device) return NULL;
  *changed = *device;
  if (!tigon_ascend_override(changed, 0, &reason)) cli_mistake(command, "%s", reason);
  return changed;
}

/* The name of the entry's variant with a gate; the entry's own where it has none. */
static const char *with_gate(const char *entry, const char *const *names) {
  const size_t length = strlen(entry);
  for (; *names; ++names) {
    if (strncmp(*names, entry, length) == 0 && strcmp(*names + length, "_gate") == 0) return *names;
  }
  return entry;
}

/* Completes `chosen` and fills footprint and request; ends the program where the command line does not name things. */
static void ask(const char *command, plan_options *chosen, tigon_footprint *footprint, tigon_plan_request *request) {
  const char *names[MOST_NAMES];
  footprint_names(NULL, names);
  if (!has(names, chosen->op)) {
    cli_op(command, chosen->op); /* ends the program for a name that the library does not have */
    char known[512] = "";
    for (int i = 0; names[i]; ++i)
      snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names[i]);
    cli_mistake(command, "%s has no plan, because it is no walk over rows; these have one: %s", chosen->op, known);
  }
  footprint_names(chosen->op, names);
  if (!chosen->entry) chosen->entry = names[0];
  if (!has(names, chosen->entry)) cli_unknown(command, "mode", chosen->entry, names);
  if (chosen->forms & BENCH_BIT(BENCH_GATE)) chosen->entry = with_gate(chosen->entry, names);
  const tigon_dtype dtype = cli_float_dtype(command, chosen->dtype);
  static tigon_device_desc changed;
  const tigon_device_desc *device = described(command, tigon_device_desc_find(chosen->device), &changed);
  if (!tigon_footprint_find(chosen->op, chosen->entry, dtype, footprint))
    cli_mistake(command, "--dtype is %s, must be f32, the only one that %s %s has", chosen->dtype, chosen->op,
                chosen->entry);
  const bool heads = footprint->walk == TIGON_WALK_HEADS;
  if ((chosen->unit > 0 || chosen->keys > 0) && !heads)
    cli_mistake(command, "--%s is for rope, and %s has no heads", chosen->unit > 0 ? "unit" : "keys", chosen->op);
  if (chosen->groups > 0 && chosen->rows % chosen->groups != 0)
    cli_mistake(command, "--groups is %" PRId64 ", must divide the rows, %" PRId64, chosen->groups, chosen->rows);
  if (chosen->run > 0 && chosen->cols % chosen->run != 0)
    cli_mistake(command, "--run is %" PRId64 ", must divide the columns, %" PRId64, chosen->run, chosen->cols);
  if (chosen->table > 0 && footprint->walk != TIGON_WALK_TABLE)
    cli_mistake(command, "--table is for embedding's bwd, and %s %s has no table to add to", chosen->op, chosen->entry);
  *request = (tigon_plan_request){.footprint = footprint,
                                  .device = device,
                                  .rows = chosen->rows,
                                  .cols = chosen->cols,
                                  .out_rows = chosen->table,
                                  .groups = chosen->groups,
                                  .run = chosen->run,
                                  .force = chosen->force};
  const bool flat = footprint->walk == TIGON_WALK_ROWS && tigon_footprint_is_flat(footprint);
  if (flat || footprint->walk == TIGON_WALK_LINE) { /* as a call's launcher has it */
    request->cols *= request->rows;
    request->rows = 1;
  }
  if (heads) ask_heads(command, chosen, footprint, request);
  if (footprint->row_table_words > 0) ask_entries(chosen, request);
  if (chosen->force != TIGON_CASE_AUTO && has_no_cases(request))
    cli_mistake(command, "--case does not go with %s %s on %s, whose tiles follow from the shape alone", chosen->op,
                chosen->entry, device->name);
}

static const char *case_text(tigon_plan_case plan_case) {
  static const char *const letters[] = {"-", "A", "B", "C", "D", "E", "F", "G"};
  return letters[plan_case];
}

/* ---- the answer as JSON ---- */

static void put(json_t *object, const char *key, int64_t value) {
  json_object_set_new(object, key, json_integer(value));
}

static void print_json(const plan_options *chosen, const tigon_plan_request *request, const tigon_plan *plan) {
  json_t *o = json_object();
  json_object_set_new(o, "status", json_string(tigon_status_name(plan->status)));
  json_object_set_new(o, "case", json_string(case_text(plan->chosen)));
  json_object_set_new(o, "cut", json_string(case_text(plan->cut)));
  put(o, "grid", plan->grid);
  put(o, "rows_per_tile", plan->rows_per_tile);
  put(o, "cols_per_tile", plan->cols_per_tile);
  put(o, "splits", plan->splits);
  put(o, "passes", plan->passes);
  put(o, "onchip_bytes", plan->onchip_bytes);
  put(o, "onchip_limit", request->device->onchip_bytes);
  put(o, "bytes_moved", plan->bytes_moved);
  put(o, "bytes_min", plan->bytes_min);
  put(o, "workspace_bytes", plan->workspace_bytes);
  json_object_set_new(o, "reason", json_string(plan->reason));
  json_object_set_new(o, "op", json_string(chosen->op));
  json_object_set_new(o, "mode", json_string(chosen->entry));
  json_object_set_new(o, "dtype", json_string(chosen->dtype));
  json_object_set_new(o, "device", json_string(request->device->name));
  put(o, "rows", chosen->rows);
  put(o, "cols", chosen->cols);
  put(o, "keys", chosen->keys);
  put(o, "groups", plan->groups);
  put(o, "tasks", plan->tasks);
  put(o, "slabs", plan->slabs);
  put(o, "bytes_extra", plan->bytes_extra);
  json_object_set_new(o, "predicted_us", json_real(plan->predicted_us));
  cli_print_json(o);
}

/* ---- the answer for people ---- */

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

void plan_line(const char *title, const char *text) {
  printf("  %s%-12s%s ", term_start(stdout, TERM_DIM), title, term_start(stdout, TERM_PLAIN));
  term_wrap(stdout, 15, text);
}

static void print_tiles(const tigon_plan_request *request, const tigon_plan *plan) {
  char text[256];
  const int64_t rows = plan->rows, row_tasks = plan->row_tasks;
  snprintf(text, sizeof text, "%" PRId64 " row%s x %" PRId64 " column%s, %s%s", plan->rows_per_tile,
           plural(plan->rows_per_tile), plan->cols_per_tile, plural(plan->cols_per_tile),
           plan->buffers > 1 ? "double-buffered" : "one buffer",
           plan->full_tiles ? ", never a mask" : ", a masked tail");
  plan_line("tile", text);
  if (plan->chosen == TIGON_CASE_A) {
    snprintf(text, sizeof text, "%" PRId64 " program%s, %" PRId64 " range%s of the %" PRId64 " elements", plan->grid,
             plural(plan->grid), plan->splits, plural(plan->splits), plan->cols);
  } else {
    const int64_t most = rows / row_tasks + (rows % row_tasks != 0);
    char range[64];
    snprintf(range, sizeof range, rows % row_tasks ? "%" PRId64 " or %" PRId64 : "%" PRId64, rows / row_tasks, most);
    int used = snprintf(text, sizeof text, "%" PRId64 " program%s, %" PRId64 " task%s of %s row%s", plan->grid,
                        plural(plan->grid), plan->tasks, plural(plan->tasks), range, plural(most));
    if (plan->splits > 1)
      used += snprintf(text + used, sizeof text - (size_t)used, " by 1/%" PRId64 " of the columns", plan->splits);
    if (plan->col_tiles > 1)
      snprintf(text + used, sizeof text - (size_t)used, ", each row in %" PRId64 " tiles", plan->col_tiles);
  }
  plan_line("grid", text);
  const int64_t limit = request->device->onchip_bytes;
  snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " bytes a core (%.0f %%)", plan->onchip_bytes, limit,
           100.0 * (double)plan->onchip_bytes / (double)limit);
  plan_line("on chip", text);
}

static void print_traffic(const tigon_plan *plan) {
  char text[256], moved[TERM_NUMBER], least[TERM_NUMBER], more[TERM_NUMBER], time[TERM_NUMBER];
  if (plan->bytes_moved == plan->bytes_min) {
    snprintf(text, sizeof text, "%s, the minimum", term_bytes(moved, plan->bytes_moved));
  } else {
    snprintf(text, sizeof text, "%s, %.2f times the minimum of %s", term_bytes(moved, plan->bytes_moved),
             (double)plan->bytes_moved / (double)plan->bytes_min, term_bytes(least, plan->bytes_min));
  }
  if (plan->bytes_extra > 0) {
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "; and %s that a cache may hold", term_bytes(more, plan->bytes_extra));
  }
  plan_line("bytes moved", text);
  if (plan->workspace_bytes > 0) {
    int used = snprintf(text, sizeof text, "%s:", term_bytes(more, plan->workspace_bytes));
    if (plan->slabs > 0)
      used += snprintf(text + used, sizeof text - (size_t)used, " %" PRId64 " slab%s of column sums", plan->slabs,
                       plural(plan->slabs));
    if (plan->partials_offset > 0 || plan->slabs == 0)
      snprintf(text + used, sizeof text - (size_t)used, "%s partial sums of rows", plan->slabs > 0 ? " and" : "");
    plan_line("workspace", text);
  }
  snprintf(text, sizeof text, "%s by the model, %.0f GB/s of the minimum",
           term_seconds(time, plan->predicted_us * 1e-6), (double)plan->bytes_min / plan->predicted_us * 1e-3);
  plan_line("time", text);
}

/* Every case, forced, so that the choice can be followed. */
static void print_cases(const tigon_plan_request *request, const tigon_plan *taken) {
  static const term_column columns[] = {
      {"case", false, 0},   {"tile", true, 3}, {"passes", true, 4},
      {"on chip", true, 2}, {"time", true, 0}, {"", false, 1},
  };
  static const char *const what[] = {"",
                                     "flat",
                                     "rows share a tile",
                                     "a row is a tile",
                                     "a row is kept, work in chunks",
                                     "chunks of a row",
                                     "a row is split over cores"};
  term_table *table = term_table_new(columns, sizeof columns / sizeof *columns);
  for (tigon_plan_case c = TIGON_CASE_A; c <= TIGON_CASE_LAST; ++c) {
    tigon_plan_request forced = *request;
    tigon_plan plan;
    char time[TERM_NUMBER];
    forced.force = c;
    const bool fits = tigon_plan_make(&forced, &plan) == TIGON_OK;
    const bool is_it = taken->status == TIGON_OK && c == taken->cut;
    const term_style style = is_it ? TERM_GREEN : fits ? TERM_PLAIN : TERM_DIM;
    term_cell(table, style, "%s", case_text(c));
    if (fits) {
      term_cell(table, style, "%" PRId64 " x %" PRId64, plan.rows_per_tile, plan.cols_per_tile);
      term_cell(table, style, "%d", plan.passes);
      term_cell(table, style, "%" PRId64, plan.onchip_bytes);
      term_cell(table, style, "%s", term_seconds(time, plan.predicted_us * 1e-6));
      term_cell(table, style, "%s%s", what[c], is_it ? ": taken" : "");
    } else {
      for (int i = 0; i < 4; ++i) term_cell(table, style, "-");
      const bool named = strncmp(plan.reason, "case ", 5) == 0; /* the first column says which */
      term_cell(table, style, "%s", named ? plan.reason + strlen("case X ") : plan.reason);
    }
  }
  term_table_print(table, stdout);
}

static void print_text(const plan_options *chosen, const tigon_plan_request *request, const tigon_plan *plan) {
  char text[256];
  printf("%s%s %s%s  %s  %" PRId64 " x %" PRId64 "%s  on %s\n\n", term_start(stdout, TERM_BOLD), chosen->op,
         chosen->entry, term_start(stdout, TERM_PLAIN), chosen->dtype, chosen->rows, chosen->cols,
         forms_text(text, chosen->forms), request->device->name);
  if (chosen->keys > 0) {
    snprintf(text, sizeof text, "%" PRId64 " heads of %" PRId64 " columns besides the queries'", chosen->keys,
             request->col_unit);
    plan_line("keys", text);
  }
  if (plan->status == TIGON_OK) {
    if (plan->chosen == TIGON_CASE_G)
      snprintf(text, sizeof text, "G: %" PRId64 " group%s a batch, cut as %s: %s", plan->groups, plural(plan->groups),
               case_text(plan->cut), plan->reason);
    else
      snprintf(text, sizeof text, "%s: %s", case_text(plan->chosen), plan->reason);
    plan_line("case", text);
    print_tiles(request, plan);
    print_traffic(plan);
  } else {
    snprintf(text, sizeof text, "%s: %s", tigon_status_name(plan->status), plan->reason);
    plan_line("refused", text);
  }
  if (has_no_cases(request)) return; /* which is no case */
  putchar('\n');
  print_cases(request, plan);
}

/* ---- the devices ---- */

static int print_devices(const char *command, bool as_json) {
  static const term_column columns[] = {
      {"device", false, 0},   {"cores", true, 0},         {"on-chip bytes", true, 0}, {"most programs", true, 0},
      {"alignment", true, 1}, {"good transfer", true, 2}, {"buffers", true, 3},
  };
  term_table *table = as_json ? NULL : term_table_new(columns, sizeof columns / sizeof *columns);
  json_t *array = as_json ? json_array() : NULL;
  const tigon_device_desc *d;
  tigon_device_desc changed;
  for (int i = 0; (d = described(command, tigon_device_desc_at(i), &changed)); ++i) {
    if (as_json) {
      json_t *o = json_object();
      json_object_set_new(o, "name", json_string(d->name));
      put(o, "cores", d->cores);
      put(o, "onchip_bytes", d->onchip_bytes);
      put(o, "grid_limit", d->grid_limit);
      put(o, "onchip_alignment", d->onchip_alignment);
      put(o, "memory_alignment", d->memory_alignment);
      put(o, "transfer_bytes", d->transfer_bytes);
      put(o, "buffers", d->buffers);
      json_array_append_new(array, o);
      continue;
    }
    term_cell(table, TERM_BOLD, "%s", d->name);
    term_cell(table, TERM_PLAIN, "%" PRId64, d->cores);
    term_cell(table, TERM_PLAIN, "%" PRId64, d->onchip_bytes);
    term_cell(table, TERM_PLAIN, "%" PRId64, d->grid_limit);
    term_cell(table, TERM_PLAIN, "%" PRId64 " / %" PRId64, d->onchip_alignment, d->memory_alignment);
    term_cell(table, TERM_PLAIN, "%" PRId64, d->transfer_bytes);
    term_cell(table, TERM_PLAIN, "%d", d->buffers);
  }
  if (as_json)
    cli_print_json(json_pack("{s:o}", "devices", array));
  else
    term_table_print(table, stdout);
  return CLI_OK;
}

/* ---- the command line ---- */

static tigon_plan_case parse_case(const char *command, const char *text) {
  const int letter = toupper((unsigned char)text[0]);
  if (letter < 'A' || letter > 'A' + TIGON_CASE_G - TIGON_CASE_A || text[1])
    cli_mistake(command, "--case is \"%s\", must be a letter from A to G", text);
  return (tigon_plan_case)(letter - 'A' + TIGON_CASE_A);
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  plan_options *chosen = state->input;
  const char *command = state->argv[0];
  switch (key) {
    case 's': cli_shape(command, argument, &chosen->rows, &chosen->cols); return 0;
    case 't': chosen->dtype = argument; return 0;
    case 'd': chosen->device = argument; return 0;
    case 'm': chosen->entry = argument; return 0;
    case 'c': chosen->force = parse_case(command, argument); return 0;
    case 'T': chosen->table = cli_number(command, "--table", argument, 1, INT64_MAX); return 0;
    case 'u': chosen->unit = cli_number(command, "--unit", argument, 1, INT64_MAX); return 0;
    case 'k': chosen->keys = cli_number(command, "--keys", argument, 1, INT64_MAX); return 0;
    case 'g': chosen->groups = cli_number(command, "--groups", argument, 1, INT64_MAX); return 0;
    case 'w': chosen->workspace = cli_number(command, "--workspace", argument, 1, INT64_MAX); return 0;
    case 'n': chosen->classes = cli_number(command, "--classes", argument, 1, INT64_MAX / 4); return 0;
    case 'v': chosen->vocab = cli_number(command, "--vocab", argument, 1, INT64_MAX / 4); return 0;
    case 'b': chosen->vocab_begin = cli_number(command, "--vocab-begin", argument, 0, INT64_MAX / 4); return 0;
    case 'r': chosen->run = cli_number(command, "--run", argument, 1, INT64_MAX); return 0;
    case ARGP_KEY_INIT: state->child_inputs[0] = &chosen->attention; return 0;
    case 'D': chosen->devices = true; return 0;
    case 'j': chosen->json = true; return 0;
    case ARGP_KEY_ARG:
      if (chosen->op) cli_mistake(command, "plans one operator, but got \"%s\" and \"%s\"", chosen->op, argument);
      chosen->op = argument;
      return 0;
    case ARGP_KEY_END:
      if (chosen->devices && chosen->op)
        cli_mistake(command, "--devices takes no operator, but got \"%s\"", chosen->op);
      if (chosen->devices) return 0;
      if (!chosen->op) cli_mistake(command, "no operator is given, as in: tigon plan rms_norm --shape 2048x4096");
      if (chosen->rows == 0) cli_mistake(command, "--shape is not given, must be ROWSxCOLS, as in 4096x4096");
      return 0;
    default: return forms_add(&chosen->forms, key) ? 0 : ARGP_ERR_UNKNOWN;
  }
}

int tigon_cli_plan(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"shape", 's', "ROWSxCOLS", 0, "The tensor's rows and columns", 0},
      {"dtype", 't', "f32|bf16|f16", 0, "f32, bf16 or f16 (default f32)", 0},
      {"device", 'd', "DEVICE", 0,
       "A device of `tigon plan --devices', or a100, h100, h200, b200, opencl, which need not be here, or one that is (default cpu)",
       0},
      {"mode", 'm', "ENTRY", 0, "fwd, bwd, or another entry of the operator (default: its first)", 0},
      {"case", 'c', "LETTER", 0, "Force a case, A to G; of group_norm, B to F force how its rows are cut", 0},
      {"table", 'T', "N", 0, "embedding bwd: rows of the table (default: as many as of --shape, which are the indices)",
       0},
      {"unit", 'u', "N", 0, "rope: columns of a head (default: 128 or 64, where that divides)", 0},
      {"keys", 'k', "N", 0,
       "rope: heads of keys besides the queries of --shape (default: a quarter as many, where that divides)", 0},
      {"groups", 'g', "N", 0,
       "group_norm: groups of a batch; the rows are batches x groups. modulated_rms_norm: rows of scale", 0},
      {"run", 'r', "N", 0, "group_norm: columns of a channel, its positions", 0},
      {"workspace", 'w', "BYTES", 0, "Of a head or mlp: less than the workspace that is recommended", 0},
      {"classes", 'n', "N", 0,
       "Of a head: rows of the weight, of a shard its own (default: 16000); mlp: the inner width (default: 5504)", 0},
      {"vocab", 'v', "N", 0, "linear_logprob: classes of all shards; the call is one shard's, which makes stats", 0},
      {"vocab-begin", 'b', "N", 0, "linear_logprob: the shard's first class (default: 0)", 0},
      {"devices", 'D', NULL, 0, "List the Ascend devices that the planner knows", 0},
      {"json", 'j', NULL, 0, "Print JSON", 0},
      {NULL, 0, NULL, 0, "Other forms of calls, for the operators that have them:", 1},
#define FORM(name, option, text, help) {option, FORM_KEY + BENCH_##name, NULL, 0, help, 1},
#include "check/forms.def"
#undef FORM
      {0},
  };
  static const struct argp argp = {
      options,
      parse,
      "OPERATOR",
      "Say how an operator is cut into tiles on an Ascend device, what that moves, and why; on other devices, what its "
      "call would launch. Nothing runs, and an Ascend device need not be here: the answer comes only from the operator's "
      "footprint, the shape and the device's sizes."
      "\v"
      "Cases: A flat elementwise; B several short rows a tile; C a tile is a row; D a row is kept on chip in its own "
      "dtype and worked on in chunks; E a row does not fit and is read again; F few huge rows, each split over cores; G rows in groups with "
      "vectors of their own (group_norm, modulated_rms_norm), cut as one of the others.\n"
      "\n"
      "Examples:\n"
      "  tigon plan rms_norm --shape 2048x32768 --device 910b4\n"
      "  tigon plan rms_norm --shape 2048x32768 --device 910b4 --mode bwd\n"
      "  tigon plan group_norm --shape 4096x8192 --groups 32 --run 512 --device 910b4\n"
      "  tigon plan swiglu --shape 8192x14336 --dtype bf16 --device 910b4 --json | jq .bytes_moved\n"
      "  tigon plan layer_norm --shape 8192x4096 --mode bwd\n"
      "  tigon plan rms_norm --shape 8192x4096 --dtype bf16 --device h200\n"
      "  tigon plan fused_linear_preference --shape 8192x4096 --dtype bf16 --device h200 --workspace 33554432\n"
      "  tigon plan mlp --shape 65536x4096 --classes 14336 --dtype bf16 --device h200 --mode bwd\n"
      "  tigon plan linear_logprob --shape 8192x4096 --classes 16032 --vocab 128256 --vocab-begin 16032\n"
      "  tigon plan attention --shape 8192x4096 --sequences 8 --mode bwd --dtype bf16 --device h200\n"
      "  tigon plan rms_norm --shape 8192x4096 --gate --mode quantised --device h200\n"
      "\n"
      "Exit status: 0 planned; 1 refused, and the reason says why; 2 the command line is wrong.",
      &attention_options_child,
      NULL,
      NULL};
  plan_options chosen = {.device = "cpu", .dtype = "f32"};
  if (!cli_parse(&argp, argc, argv, &chosen)) return CLI_OK;
  if (chosen.devices) return print_devices(argv[0], chosen.json);
  if (chosen.attention.given && strcmp(cli_op(argv[0], chosen.op), "attention") != 0)
    cli_mistake(argv[0], "--%s is for attention, and the operator is %s", chosen.attention.given, chosen.op);
  forms_refuse(argv[0], chosen.forms, bench_case_find(cli_op(argv[0], chosen.op))->forms, chosen.op);
  if (!tigon_device_desc_find(chosen.device)) return plan_launches(argv[0], &chosen);
  tigon_footprint footprint;
  tigon_plan_request request;
  tigon_plan plan;
  const char *of_head = chosen.workspace > 0 ? "workspace" : chosen.classes > 0 ? "classes" : "vocab";
  if (chosen.workspace > 0 || chosen.classes > 0 || chosen.vocab > 0 || chosen.vocab_begin > 0)
    cli_mistake(argv[0], "--%s is for heads on devices without a planner, and %s has one", of_head, chosen.device);
  ask(argv[0], &chosen, &footprint, &request);
  tigon_plan_make(&request, &plan);
  if (chosen.json)
    print_json(&chosen, &request, &plan);
  else
    print_text(&chosen, &request, &plan);
  return plan.status == TIGON_OK ? CLI_OK : CLI_FAILED;
}
