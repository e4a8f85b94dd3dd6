/* tigon plan on a device without a planner, which is here or which a backend describes: what an operator's call would launch there. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/cases.h"
#include "cli.h"
#include "core/context.h"
#include "forms.h"
#include "plan.h"
#include "term.h"

enum { MOST = 256 }; /* launches that are told apart */

typedef struct launches {
  tigon_launch of[MOST];
  int64_t times[MOST]; /* that a launch like it follows */
  int count;
  int64_t all;
  tigon_launch note; /* what the CPU says once for the launches that follow */
} launches;

static bool same(const tigon_launch *a, const tigon_launch *b) {
  const bool kernels = a->kernel && b->kernel ? strcmp(a->kernel, b->kernel) == 0 : a->kernel == b->kernel;
  return kernels && a->grid == b->grid && a->block == b->block && a->onchip_bytes == b->onchip_bytes &&
         a->cluster == b->cluster && a->held == b->held && a->slabs == b->slabs;
}

static void record(void *to, const tigon_launch *launch) {
  launches *l = to;
  if (!launch->kernel && launch->grid == 0) {
    l->note = *launch;
    return;
  }
  tigon_launch one = *launch;
  if (one.cluster == 0) one.cluster = l->note.cluster;
  if (one.slabs == 0) one.slabs = l->note.slabs;
  ++l->all;
  if (l->count > 0 && same(&one, &l->of[l->count - 1])) {
    ++l->times[l->count - 1];
  } else if (l->count < MOST) {
    l->times[l->count] = 1;
    l->of[l->count++] = one;
  }
}

/* The mode of that name, or the first that the operator has. */
static bench_mode mode_of(const char *command, const plan_options *chosen, const bench_data *data) {
  const char *names[BENCH_MODES + 1];
  int count = 0;
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) {
    if (data->mode[mode].entry < 0) continue;
    if (!chosen->entry || strcmp(chosen->entry, bench_mode_name(mode)) == 0) return mode;
    names[count++] = bench_mode_name(mode);
  }
  names[count] = NULL;
  cli_unknown(command, "mode", chosen->entry, names);
}

static bool is_mlp(const char *op) { return strcmp(op, "mlp") == 0; }
/* Does it work chunks off in a workspace of the caller's choice? */
static bool is_head(const char *op) { return strstr(op, "linear_") != NULL || is_mlp(op); }

static void refuse_options(const char *command, const plan_options *chosen) {
  const bool heads = strcmp(chosen->op, "rope") == 0, table = strcmp(chosen->op, "embedding") == 0 && chosen->entry;
  if ((chosen->unit > 0 || chosen->keys > 0) && !heads)
    cli_mistake(command, "--%s is for rope, and %s has no heads", chosen->unit > 0 ? "unit" : "keys", chosen->op);
  if (chosen->table > 0 && !(table && strcmp(chosen->entry, "bwd") == 0))
    cli_mistake(command, "--table is for embedding's bwd, and %s %s has no table to add to", chosen->op,
                chosen->entry ? chosen->entry : "fwd");
  if ((chosen->workspace > 0 || chosen->classes > 0) && !is_head(chosen->op))
    cli_mistake(command, "--%s is for heads, and %s is none", chosen->workspace > 0 ? "workspace" : "classes",
                chosen->op);
  if ((chosen->vocab > 0 || chosen->vocab_begin > 0) && strcmp(chosen->op, "linear_logprob") != 0)
    cli_mistake(command, "--vocab is for linear_logprob, and %s has no shards", chosen->op);
  if (chosen->vocab_begin > 0 && chosen->vocab == 0)
    cli_mistake(command, "--vocab-begin is %" PRId64 ", must be 0 without --vocab", chosen->vocab_begin);
  if (chosen->force != TIGON_CASE_AUTO)
    cli_mistake(command, "--case is for devices whose calls a planner cuts, and %s has none", chosen->device);
  if (chosen->groups > 0 || chosen->run > 0)
    cli_mistake(command, "--groups and --run are for devices whose calls a planner cuts, and %s has none",
                chosen->device);
}

static json_t *json_of(const tigon_launch *launch, int64_t times) {
  return json_pack("{s:s?, s:I, s:I, s:I, s:I, s:I, s:i, s:s?}", "kernel", launch->kernel, "times", (json_int_t)times,
                   "grid", (json_int_t)launch->grid, "block", (json_int_t)launch->block, "onchip_bytes",
                   (json_int_t)launch->onchip_bytes, "slabs", (json_int_t)launch->slabs, "cluster", launch->cluster,
                   "held", launch->held);
}

/* What a call of mlp does: null for other operators. */
static json_t *json_of_tiles(const char *op, const tigon_head_work *work) {
  if (!is_mlp(op)) return json_null();
  return json_pack("{s:f, s:I, s:I, s:I, s:I}", "products", work->products, "tiles", (json_int_t)work->chunks,
                   "tile_rows", (json_int_t)work->rows, "tile_bytes", (json_int_t)work->logits_bytes, "sums_bytes",
                   (json_int_t)work->sums_bytes);
}

/* What a head's call does: null for other operators. */
static json_t *json_of_head(const char *op, const tigon_head_work *head) {
  if (head->products == 0 || is_mlp(op)) return json_null();
  return json_pack("{s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "products", head->products, "groups",
                   (json_int_t)head->groups, "groups_twice", (json_int_t)head->twice, "chunks",
                   (json_int_t)head->chunks, "chunk_rows", (json_int_t)head->rows, "logits_bytes",
                   (json_int_t)head->logits_bytes, "sums_bytes", (json_int_t)head->sums_bytes);
}

static void print_json(const plan_options *chosen, const char *mode, const tigon_context *context, const launches *l,
                       tigon_status status, size_t workspace) {
  json_t *list = json_array();
  for (int i = 0; i < l->count; ++i) json_array_append_new(list, json_of(&l->of[i], l->times[i]));
  cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:I, s:s}", "status",
                           tigon_status_name(status), "op", chosen->op, "mode", mode, "dtype", chosen->dtype, "device",
                           context->device->name, "rows", (json_int_t)chosen->rows, "cols", (json_int_t)chosen->cols,
                           "launches", list, "head", json_of_head(chosen->op, &context->head), "tiles",
                           json_of_tiles(chosen->op, &context->head), "workspace_bytes", (json_int_t)workspace,
                           "reason", status == TIGON_OK ? "" : tigon_last_error(context)));
}

static void print_head(const char *op, const tigon_head_work *head) {
  char text[128], logits[TERM_NUMBER], sums[TERM_NUMBER];
  if (head->products == 0) return;
  snprintf(text, sizeof text, "%.4g", head->products);
  plan_line("products", text);
  if (head->groups > 0) {
    snprintf(text, sizeof text, "%" PRId64 ", %" PRId64 " of them with logits that are made twice", head->groups,
             head->twice);
    plan_line("groups", text);
  }
  snprintf(text, sizeof text, "%" PRId64 ", of at most %" PRId64 " %s", head->chunks, head->rows,
           is_mlp(op) ? "rows" : "tokens");
  plan_line(is_mlp(op) ? "tiles" : "chunks", text);
  int used =
      snprintf(text, sizeof text, "%s of %s", term_bytes(logits, head->logits_bytes), is_mlp(op) ? "a tile" : "logits");
  if (head->sums_bytes > 0)
    snprintf(text + used, sizeof text - (size_t)used, ", %s of %s sums", term_bytes(sums, head->sums_bytes),
             is_mlp(op) ? "gradients'" : "dweight's");
  plan_line("holds", text);
}

static void cell_or_dash(term_table *table, int64_t value) {
  if (value > 0)
    term_cell(table, TERM_PLAIN, "%" PRId64, value);
  else
    term_cell(table, TERM_DIM, "-");
}

static void print_table(const tigon_context *context, const launches *l) {
  const bool cpu = context->queue.backend->host_memory;
  const term_column of_gpu[] = {{"kernel", false, 0},  {"times", true, 1},   {"blocks", true, 0},
                                {"threads", true, 0},  {"on chip", true, 0}, {"blocks a row", true, 2},
                                {"row held", false, 0}};
  const term_column of_cpu[] = {
      {"tasks", true, 0}, {"times", true, 2}, {"threads", true, 0}, {"tasks a row", true, 0}, {"slabs", true, 0}};
  term_table *table = cpu ? term_table_new(of_cpu, 5) : term_table_new(of_gpu, 7);
  for (int i = 0; i < l->count; ++i) {
    const tigon_launch *one = &l->of[i];
    if (!cpu) term_cell(table, TERM_BOLD, "%s", one->kernel ? one->kernel : "-");
    if (cpu) cell_or_dash(table, one->grid);
    cell_or_dash(table, l->times[i]);
    if (!cpu) cell_or_dash(table, one->grid);
    cell_or_dash(table, one->block);
    if (!cpu) cell_or_dash(table, one->onchip_bytes);
    cell_or_dash(table, one->cluster);
    if (cpu)
      cell_or_dash(table, one->slabs);
    else
      term_cell(table, TERM_PLAIN, "%s", one->held ? one->held : "-");
  }
  term_table_print(table, stdout);
}

static void print_text(const plan_options *chosen, const char *mode, const tigon_context *context, const launches *l,
                       tigon_status status, size_t workspace) {
  char text[FORMS_TEXT], size[TERM_NUMBER], more[ATTENTION_TEXT];
  printf("%s%s %s%s  %s  %" PRId64 " x %" PRId64 "%s%s  on %s (%s)\n\n", term_start(stdout, TERM_BOLD), chosen->op,
         mode, term_start(stdout, TERM_PLAIN), chosen->dtype, chosen->rows, chosen->cols,
         forms_text(text, chosen->forms), attention_options_text(more, &chosen->attention.asked), context->device->name,
         context->kernels->variant);
  if (status != TIGON_OK) {
    plan_line("refused", tigon_last_error(context));
    return;
  }
  snprintf(text, sizeof text, "%" PRId64, l->all);
  plan_line("launches", text);
  if (workspace > 0) plan_line("workspace", term_bytes(size, (int64_t)workspace));
  print_head(chosen->op, &context->head);
  putchar('\n');
  print_table(context, l);
}

/* Grants the head's call fewer bytes than it has. */
static void grant(const char *command, const plan_options *chosen, struct bench_mode_data *mode) {
  const tigon_schema *schema = tigon_schema_at(mode->entry);
  const tigon_field *field = schema->fields;
  while (field < schema->fields + schema->count && field->kind != TIGON_FIELD_WORKSPACE) ++field;
  if ((size_t)chosen->workspace > mode->workspace_bytes)
    cli_mistake(command, "--workspace is %" PRId64 ", must be at most %zu, which are recommended", chosen->workspace,
                mode->workspace_bytes);
  mode->workspace_bytes = (size_t)chosen->workspace;
  memcpy((char *)mode->args + field->offset + sizeof(void *), &mode->workspace_bytes, sizeof mode->workspace_bytes);
}

int plan_launches(const char *command, const plan_options *chosen) {
  static launches l;
  const bench_case *timed = bench_case_find(cli_op(command, chosen->op));
  const tigon_dtype dtype = cli_float_dtype(command, chosen->dtype);
  refuse_options(command, chosen);
  errno = 0;
  tigon_context *context = tigon_context_described(chosen->device, record, &l);
  if (!context && errno == ENOMEM) cli_trouble(command, "out of memory");
  if (!context) context = cli_context(command, chosen->device, NULL, 0);
  bench_point at = {.rows = chosen->rows,
                    .cols = chosen->cols,
                    .other = chosen->table > 0 ? chosen->table : chosen->classes,
                    .head_dim = chosen->unit,
                    .kv_heads = chosen->keys,
                    .vocab = chosen->vocab,
                    .vocab_begin = chosen->vocab_begin,
                    .forms = chosen->forms,
                    .attention = chosen->attention.asked};
  if (at.other == 0) at.other = bench_other(timed, &at);
  context->queue.record = record;
  context->queue.record_to = &l;
  bench_data data;
  if (bench_data_open(&data, timed, context, dtype, &at, SIZE_MAX) != TIGON_OK)
    cli_trouble(command, "%s has no arguments for %" PRId64 " x %" PRId64, chosen->op, chosen->rows, chosen->cols);
  const bench_mode mode = mode_of(command, chosen, &data);
  if (chosen->workspace > 0) grant(command, chosen, &data.mode[mode]);
  const tigon_status status = bench_call(&data, mode);
  const char *name = bench_mode_name(mode);
  if (chosen->json)
    print_json(chosen, name, context, &l, status, data.mode[mode].workspace_bytes);
  else
    print_text(chosen, name, context, &l, status, data.mode[mode].workspace_bytes);
  bench_data_close(&data);
  context->queue.record = NULL;
  tigon_context_destroy(context);
  return status == TIGON_OK ? CLI_OK : CLI_FAILED;
}
