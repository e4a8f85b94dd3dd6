/* tigon list: the support matrix, read from the kernel tables. */
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "list.h"
#include "term.h"

enum { DTYPES = 3, MOST_BACKENDS = 8, MOST_ENTRIES = 8 };
static const tigon_dtype dtypes[DTYPES] = {TIGON_F32, TIGON_BF16, TIGON_F16};

/* "f32 bf16 f16", "-" for none. */
static const char *dtype_names(char text[32], uint32_t mask) {
  size_t used = 0;
  strcpy(text, "-");
  for (int d = 0; d < DTYPES; ++d)
    if (mask & TIGON_BIT(dtypes[d]))
      used += (size_t)snprintf(text + used, 32 - used, "%s%s", used ? " " : "", tigon_dtype_name(dtypes[d]));
  return text;
}

/* The dtypes that some variant of a backend has for the i-th entry. A backend without a device here has none. */
static uint32_t backend_dtypes(const tigon_backend *backend, int entry) {
  uint32_t mask = 0;
  for (const tigon_kernels *const *list = backend->variants(); *list; ++list) mask |= tigon_entry_dtypes(*list, entry);
  return mask;
}

static int print_json(void) {
  const tigon_entry *entry;
  const tigon_backend *backend;
  json_t *slots = json_array();
  for (int i = 0; (entry = tigon_entry_at(i)); ++i)
    for (int b = 0; (backend = tigon_backend_at(b)); ++b)
      for (const tigon_kernels *const *list = backend->variants(); *list; ++list) {
        const uint32_t mask = tigon_entry_dtypes(*list, i);
        if (!mask) continue;
        json_t *names = json_array();
        for (int d = 0; d < DTYPES; ++d)
          if (mask & TIGON_BIT(dtypes[d])) json_array_append_new(names, json_string(tigon_dtype_name(dtypes[d])));
        json_array_append_new(slots, json_pack("{s:s, s:s, s:s, s:s, s:o, s:s*}", "op", entry->op, "entry",
                                               entry->entry, "backend", backend->name, "variant", (*list)->variant,
                                               "dtypes", names, "grade", tigon_entry_grade(*list, i)));
      }
  cli_print_json(json_pack("{s:o}", "slots", slots));
  return CLI_OK;
}

/* "f32 bf16 f16, merge f32": the dtypes of the most entries of an operator, then of the others. `masks` has one for each entry. */
static void dtypes_by_entry(char *text, size_t size, int first, int entries, const uint32_t masks[]) {
  uint32_t usual = 0;
  int most = 0;
  for (int i = 0; i < entries; ++i) {
    int same = 0;
    for (int j = 0; j < entries; ++j) same += masks[j] == masks[i];
    if (same > most) {
      most = same;
      usual = masks[i];
    }
  }
  char names[32];
  size_t used = (size_t)snprintf(text, size, "%s", dtype_names(names, usual));
  for (int i = 0; i < entries && used < size; ++i)
    if (masks[i] != usual)
      used += (size_t)snprintf(text + used, size - used, ", %s %s", tigon_entry_at(first + i)->entry,
                               dtype_names(names, masks[i]));
}

/* How many entries the operator of entry `first` has, which follow each other. */
static int entries_of(int first) {
  int count = 1;
  const tigon_entry *next;
  while (count < MOST_ENTRIES && (next = tigon_entry_at(first + count)) &&
         strcmp(next->op, tigon_entry_at(first)->op) == 0)
    ++count;
  return count;
}

/* A line for each operator, and a column for each backend that is here, all variants together. A tick stands for all that the
 * reference has. So README's block is the same on every machine of one architecture without an accelerator. */
static int print_markdown(void) {
  enum { FIRST = 3 };
  term_column columns[FIRST + MOST_BACKENDS] = {{"operator", false, 0}, {"entries", false, 0}, {"dtypes", false, 0}};
  const tigon_backend *here[MOST_BACKENDS], *backend, *ref = NULL;
  int backends = 0;
  for (int b = 0; backends < MOST_BACKENDS && (backend = tigon_backend_at(b)); ++b) {
    if (strcmp(backend->name, "ref") == 0) ref = backend;
    if (!backend->variants()[0] || backend == ref) continue;
    columns[FIRST + backends].title = backend->name;
    here[backends++] = backend;
  }
  term_table *table = term_table_new(columns, FIRST + backends);
  for (int i = 0, entries; tigon_entry_at(i); i += entries) {
    uint32_t all[MOST_ENTRIES] = {0}, some[MOST_ENTRIES] = {0};
    char text[256] = "";
    size_t used = 0;
    entries = entries_of(i);
    for (int e = 0; e < entries && used < sizeof text; ++e) {
      all[e] = backend_dtypes(ref, i + e);
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", e ? " " : "", tigon_entry_at(i + e)->entry);
    }
    term_cell(table, TERM_PLAIN, "`%s`", tigon_entry_at(i)->op);
    term_cell(table, TERM_PLAIN, "%s", text);
    dtypes_by_entry(text, sizeof text, i, entries, all);
    term_cell(table, TERM_PLAIN, "%s", text);
    for (int b = 0; b < backends; ++b) {
      for (int e = 0; e < entries; ++e) some[e] = backend_dtypes(here[b], i + e);
      dtypes_by_entry(text, sizeof text, i, entries, some);
      term_cell(table, TERM_PLAIN, "%s", memcmp(some, all, sizeof all) == 0 ? "✓" : text);
    }
  }
  term_table_print_markdown(table, stdout);
  return CLI_OK;
}

/* True when two entries of one op are supported alike by every backend and variant. */
static bool alike(int i, int j) {
  const tigon_entry *a = tigon_entry_at(i), *b = tigon_entry_at(j);
  const tigon_backend *backend;
  if (!a || !b || strcmp(a->op, b->op) != 0) return false;
  for (int k = 0; (backend = tigon_backend_at(k)); ++k)
    for (const tigon_kernels *const *list = backend->variants(); *list; ++list)
      if (tigon_entry_dtypes(*list, i) != tigon_entry_dtypes(*list, j)) return false;
  return true;
}

/* One line for each set of variants of a backend that share their dtypes. */
static bool add_backend(term_table *table, const char *op, const char *entries, const tigon_backend *backend, int i) {
  const tigon_kernels *const *const list = backend->variants();
  bool added = false;
  for (int first = 0; list[first]; ++first) {
    const uint32_t mask = tigon_entry_dtypes(list[first], i);
    char variants[128] = "", text[32];
    size_t used = 0;
    bool seen = mask == 0;
    for (int v = 0; list[v] && used < sizeof variants; ++v) {
      if (tigon_entry_dtypes(list[v], i) != mask) continue;
      if (v < first) seen = true;
      used += (size_t)snprintf(variants + used, sizeof variants - used, "%s%s", used ? " " : "", list[v]->variant);
    }
    if (seen) continue;
    term_cell(table, TERM_BOLD, "%s", op);
    term_cell(table, TERM_PLAIN, "%s", entries);
    term_cell(table, TERM_PLAIN, "%s", backend->name);
    term_cell(table, TERM_PLAIN, "%s", variants);
    term_cell(table, TERM_GREEN, "%s", dtype_names(text, mask));
    const char *grade = tigon_entry_grade(list[first], i);
    term_cell(table, TERM_PLAIN, "%s", grade ? grade : "");
    op = entries = "";
    added = true;
  }
  return added;
}

static int print_table(void) {
  static const term_column columns[] = {
      {"operator", false, 0}, {"entries", false, 0}, {"backend", false, 0},
      {"variants", false, 2}, {"dtypes", false, 0},  {"grade", false, 1},
  };
  enum { COLUMNS = sizeof columns / sizeof *columns };
  term_table *table = term_table_new(columns, COLUMNS);
  const tigon_entry *entry;
  const tigon_backend *backend;
  const char *last_op = "";
  for (int i = 0, next; (entry = tigon_entry_at(i)); i = next) {
    char entries[64];
    size_t used = (size_t)snprintf(entries, sizeof entries, "%s", entry->entry);
    for (next = i + 1; alike(i, next); ++next)
      used += (size_t)snprintf(entries + used, sizeof entries - used, " %s", tigon_entry_at(next)->entry);
    const char *op = strcmp(entry->op, last_op) == 0 ? "" : entry->op, *shown = entries;
    last_op = entry->op;
    for (int b = 0; (backend = tigon_backend_at(b)); ++b)
      if (add_backend(table, op, shown, backend, i)) op = shown = "";
    if (!*shown) continue;
    term_cell(table, TERM_BOLD, "%s", op);
    term_cell(table, TERM_PLAIN, "%s", entries);
    for (int c = 2; c < COLUMNS; ++c) term_cell(table, TERM_DIM, "-");
  }
  term_table_print(table, stdout);
  return CLI_OK;
}

typedef struct list_options {
  bool json, markdown, schema;
  const char *op; /* NULL: all */
} list_options;

static error_t parse(int key, char *argument, struct argp_state *state) {
  list_options *chosen = state->input;
  switch (key) {
    case 'j': chosen->json = true; return 0;
    case 'm': chosen->markdown = true; return 0;
    case 's': chosen->schema = true; return 0;
    case ARGP_KEY_ARG:
      if (chosen->op) cli_mistake(state->argv[0], "takes one operator, but got \"%s\", too", argument);
      chosen->op = cli_op(state->argv[0], argument);
      return 0;
    case ARGP_KEY_END:
      if (chosen->json && chosen->markdown) cli_mistake(state->argv[0], "--json and --markdown exclude each other");
      if (chosen->schema && chosen->markdown) cli_mistake(state->argv[0], "--schema and --markdown exclude each other");
      if (chosen->op && !chosen->schema) cli_mistake(state->argv[0], "takes an operator with --schema only");
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

int tigon_cli_list(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"json", 'j', NULL, 0, "Print JSON, an object for every kernel, or for every entry with its arguments", 0},
      {"markdown", 'm', NULL, 0,
       "Print README.md's table: a line for every operator, a column for every backend, and a tick for all that the reference has",
       0},
      {"schema", 's', NULL, 0,
       "Print the arguments instead, as the library checks them: shapes by named extents, dtypes, strides, ranges", 0},
      {0},
  };
  static const struct argp argp = {
      options,
      parse,
      "[OPERATOR]",
      "Say which operator has kernels where: its entries, the backends of this library with their variants, and the dtypes. Of "
      "the CPU's variants those are listed that this machine can run. A GPU need not be here, and an NPU must: `tigon "
      "devices' names what is."
      "\vExamples:\n  tigon list --json | jq -r '.slots[] | select(.op == \"rms_norm\") | .variant'\n"
      "  tigon list rms_norm --schema",
      NULL,
      NULL,
      NULL};
  list_options chosen = {0};
  if (!cli_parse(&argp, argc, argv, &chosen)) return CLI_OK;
  if (chosen.schema) return chosen.json ? list_schema_json(chosen.op) : list_schema(chosen.op);
  return chosen.json ? print_json() : chosen.markdown ? print_markdown() : print_table();
}
