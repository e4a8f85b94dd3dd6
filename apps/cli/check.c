/* tigon check: every kernel of every variant against the oracle. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend/plan/plans.h"
#include "check/sweep.h"
#include "cli.h"
#include "core/context.h"
#include "term.h"

typedef struct options {
  const char *command, *device, *variant, *label;
  const char *ops[64];
  int op_count;
  tigon_dtype dtype;
  uint64_t seed;
  bool json, mutants, small, digest;
  int part, parts; /* runs every parts-th case, from the part-th on */
  const check_sweep *sweep;
  const tigon_kernels *kernels[CLI_VARIANTS + 1]; /* those that are asked for and run here, then NULL */
} options;

enum {
  KEY_DEVICE = 'd',
  KEY_VARIANT = 'v',
  KEY_DTYPE = 't',
  KEY_CASE = 'c',
  KEY_SEED = 's',
  KEY_JSON = 'j',
  KEY_SWEEP = 'w',
  KEY_MUTANTS = 'm',
  KEY_SMALL = 'l',
  KEY_DIGEST = 'g',
  KEY_PART = 'p'
};

enum { SMALL = 8192 }; /* elements */

static const struct argp_option argp_options[] = {
    {"device", KEY_DEVICE, "DEVICE", 0, "The device to check (default cpu)", 0},
    {"variant", KEY_VARIANT, "VARIANT", 0, "Only this variant (default: all that run here)", 0},
    {"dtype", KEY_DTYPE, "f32|bf16|f16", 0, "Only f32, bf16 or f16", 0},
    {"case", KEY_CASE, "LABEL", 0, "Only the case of this label, as a failure prints it", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of the inputs (default 1)", 0},
    {"small", KEY_SMALL, NULL, 0, "Only shapes of 8192 elements and fewer, as for a run under a sanitizer", 0},
    {"part", KEY_PART, "I/N", 0,
     "Only every N-th case, or run of --sweep values, shapes or repeat, from the I-th on, so that N processes share the work",
     0},
    {"mutants", KEY_MUTANTS, NULL, 0, "Check the check: kernels made wrong on purpose must all be noticed", 0},
    {"sweep", KEY_SWEEP, "SWEEP", 0,
     "Instead of the cases, a sweep: values, shapes, repeat, batch, alias, far, huge, path, crowd", 0},
    {"digest", KEY_DIGEST, NULL, 0,
     "Instead of checking, print a number of each entry's results, which any other bit changes. Products are the built-in ones",
     0},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 0},
    {0},
};

static const char doc[] =
    "Compare every kernel of every variant with the double-precision oracle: results within bounds derived per element, the "
    "same bits again and on 1, 2, 3 and 8 threads, every planner case, guard zones around every buffer, inputs and the "
    "caller's state untouched."
    "\v"
    "Examples:\n"
    "  tigon check                        everything on this machine\n"
    "  tigon check rms_norm softmax       two operators\n"
    "  tigon check rms_norm --variant avx2 --dtype bf16 --case fwd/3x65/o2/uniform/dense\n"
    "                                     one case again\n"
    "  tigon check --digest --json        the bits of all results, to compare with another commit's\n"
    "\n"
    "Exit status: 0 all passed; 1 something failed; 2 the command line is wrong.";

static const check_sweep *sweep_of(const char *command, const char *name) {
  for (int i = 0; check_sweep_at(i); ++i)
    if (strcmp(check_sweep_at(i)->name, name) == 0) return check_sweep_at(i);
  cli_mistake(command, "no sweep is called \"%s\"", name);
}

static void set_part(options *o, const char *argument) {
  char rest;
  if (sscanf(argument, "%d/%d%c", &o->part, &o->parts, &rest) != 2 || o->part < 1 || o->part > o->parts)
    cli_mistake(o->command, "--part is \"%s\", must be I/N with I from 1 to N, as 2/8", argument);
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  options *o = state->input;
  switch (key) {
    case KEY_DEVICE: o->device = argument; return 0;
    case KEY_VARIANT: o->variant = argument; return 0;
    case KEY_DTYPE: o->dtype = cli_float_dtype(o->command, argument); return 0;
    case KEY_CASE: o->label = argument; return 0;
    case KEY_SEED: o->seed = (uint64_t)cli_number(o->command, "--seed", argument, 0, INT64_MAX); return 0;
    case KEY_MUTANTS: o->mutants = true; return 0;
    case KEY_SMALL: o->small = true; return 0;
    case KEY_DIGEST: o->digest = true; return 0;
    case KEY_PART: set_part(o, argument); return 0;
    case KEY_SWEEP: o->sweep = sweep_of(o->command, argument); return 0;
    case KEY_JSON: o->json = true; return 0;
    case ARGP_KEY_ARG:
      if (o->op_count == (int)(sizeof o->ops / sizeof *o->ops))
        cli_mistake(o->command, "more operators than there are");
      o->ops[o->op_count++] = cli_op(o->command, argument);
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

/* What has happened so far; per op the largest error as a share of its bound. */
typedef struct tally {
  int64_t passed, failed, skipped;
  json_t *failures, *entries;
} tally;

static bool wanted(const options *o, const char *op) {
  for (int i = 0; i < o->op_count; ++i)
    if (strcmp(o->ops[i], op) == 0) return true;
  return o->op_count == 0;
}

static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, SHOWN_FAILURES = 20 };

static void record_failure(const options *o, const check_case *c, const tigon_kernels *kernels, const char *failure,
                           double worst, tally *t) {
  char label[128], repro[320];
  const char *op = tigon_entry_at(c->entry)->op;
  check_case_label(c, label);
  snprintf(repro, sizeof repro, "tigon check %s --device %s --variant %s --dtype %s --case %s --seed %llu", op,
           o->device, kernels->variant, tigon_dtype_name(c->dtype), label, (unsigned long long)o->seed);
  ++t->failed;
  json_array_append_new(t->failures,
                        json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:f, s:s}", "op", op, "variant", kernels->variant,
                                  "dtype", tigon_dtype_name(c->dtype), "case", label, "seed", (json_int_t)o->seed,
                                  "error", failure, "bound", worst < 1e300 ? worst : -1.0, "repro", repro));
  if (o->json || t->failed > SHOWN_FAILURES) return;
  term_progress_clear();
  printf("%sFAILED%s %s %s %s %s: %s\n       %s\n", term_start(stdout, TERM_RED), term_start(stdout, TERM_PLAIN), op,
         kernels->variant, tigon_dtype_name(c->dtype), label, failure, repro);
}

/* One variant of an entry and dtype, and what has happened to it so far. */
typedef struct subject {
  const tigon_kernels *kernels, *mutant; /* mutant: run instead, or NULL */
  bool ended;                            /* there is no further case */
  int64_t passed, failed, other_kind;    /* other_kind: a sweep counts it */
  double most;
  check_errors errors;
} subject;

/* A sweep's failures count one by one; the first of them is told. */
static void sweep_entry(const options *o, int entry, tigon_dtype dtype, subject *s, tally *t) {
  const tigon_kernels *kernels = s->kernels;
  const check_target target = {entry, dtype, o->device, kernels};
  const tigon_entry *e = tigon_entry_at(entry);
  if (!(tigon_entry_dtypes(kernels, entry) & TIGON_BIT(dtype))) return;
  check_tally sum = {.part = o->part, .parts = o->parts};
  o->sweep->run(&target, &sum);
  s->passed = sum.runs - sum.failed, s->failed = sum.failed;
  t->passed += s->passed, t->failed += s->failed;
  s->other_kind = sum.other_kind;
  if (!sum.failed) return;
  char repro[256];
  snprintf(repro, sizeof repro, "tigon check %s --device %s --variant %s --dtype %s --sweep %s", e->op, o->device,
           kernels->variant, tigon_dtype_name(dtype), o->sweep->name);
  json_array_append_new(t->failures, json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s}", "op", e->op, "variant",
                                               kernels->variant, "dtype", tigon_dtype_name(dtype), "case", e->entry,
                                               "seed", (json_int_t)1, "error", sum.failure, "repro", repro));
  if (o->json) return;
  term_progress_clear();
  printf("%sFAILED%s %s %s %s %s: %s\n       %s\n", term_start(stdout, TERM_RED), term_start(stdout, TERM_PLAIN), e->op,
         e->entry, kernels->variant, tigon_dtype_name(dtype), sum.failure, repro);
}

/* Is the index-th case among those asked for? Every other one is padded: parts of an even number of them take turns. */
static bool takes(const options *o, int index, const check_case *c) {
  const int turn = o->parts % 2 ? 0 : index / o->parts;
  if ((index + turn) % o->parts != o->part - 1) return false;
  if (o->label) {
    char label[128];
    check_case_label(c, label);
    if (strcmp(label, o->label) != 0) return false;
  }
  int64_t elements = 1;
  for (int d = 0; d < CHECK_DIMS; ++d) elements *= c->dims[d] > 0 ? c->dims[d] : 1;
  return !o->small || elements <= SMALL;
}

static void check_subject(const options *o, const check_case *c, subject *s, tally *t) {
  char failure[512];
  double worst;
  switch (check_run_case(c, o->device, s->kernels->variant, s->mutant, o->seed, &worst, &s->errors, failure)) {
    case CHECK_PASSED: ++t->passed, ++s->passed; break;
    case CHECK_SKIPPED: ++t->skipped, s->ended = true; return;
    case CHECK_REFUSED: ++t->skipped; break;
    case CHECK_FAILED:
      ++s->failed;
      if (!s->mutant) record_failure(o, c, s->kernels, failure, worst, t);
      break;
  }
  s->most = worst > s->most ? worst : s->most;
}

/* All cases of one entry and dtype, each on all variants, which share what the oracle says of it. A mutant's first failure
 * ends it. */
static void check_entry(const options *o, int entry, tigon_dtype dtype, subject *subjects, int count, tally *t) {
  check_case c;
  for (int i = 0, left = count; left > 0; ++i) {
    left = 0;
    for (subject *s = subjects; s < subjects + count; ++s) {
      s->ended = s->ended || (s->mutant && s->failed) || !check_case_at(entry, dtype, s->kernels->tile, i, &c);
      if (s->ended) continue;
      ++left;
      if (takes(o, i, &c)) check_subject(o, &c, s, t);
    }
  }
}

static const tigon_backend *backend_of(const options *o) {
  char name[16];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(o->device, ":"), o->device);
  return tigon_backend_find(name);
}

/* Says what is wrong with the names. */
static void take_kernels(options *o) {
  tigon_context *context = cli_context(o->command, o->device, o->variant, 0);
  if (o->variant)
    o->kernels[0] = context->kernels;
  else
    cli_variants(context, o->kernels);
  tigon_context_destroy(context);
}

static void record_entry(int entry, tigon_dtype dtype, const subject *s, tally *t, term_table *table) {
  const tigon_entry *e = tigon_entry_at(entry);
  const char *variant = s->kernels->variant;
  if (s->passed + s->failed == 0) return;
  json_t *outputs = json_array();
  for (int i = 0; i < s->errors.count; ++i) {
    const check_error *of = &s->errors.of[i];
    json_array_append_new(outputs, json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:I}", "name", of->output, "ulp", of->ulp,
                                             "share", of->share, "bound_ulps", of->ulps, "bound_factor", of->factor,
                                             "elements", (json_int_t)of->elements, "other", (json_int_t)of->other));
  }
  json_array_append_new(t->entries,
                        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "op", e->op, "entry", e->entry, "variant",
                                  variant, "dtype", tigon_dtype_name(dtype), "passed", (json_int_t)s->passed, "failed",
                                  (json_int_t)s->failed, "other_kind", (json_int_t)s->other_kind, "outputs", outputs));
  term_cell(table, TERM_PLAIN, "%s", e->op);
  term_cell(table, TERM_PLAIN, "%s", e->entry);
  term_cell(table, TERM_PLAIN, "%s", variant);
  term_cell(table, TERM_PLAIN, "%s", tigon_dtype_name(dtype));
  term_cell(table, TERM_PLAIN, "%lld", (long long)s->passed);
  term_cell(table, s->failed ? TERM_RED : TERM_PLAIN, "%lld", (long long)s->failed);
  term_cell(table, TERM_PLAIN, "%.2f", s->most);
}

static void check_all(const options *o, tally *t, term_table *table) {
  int total = 0, done = 0;
  for (int e = 0; tigon_entry_at(e); ++e) total += wanted(o, tigon_entry_at(e)->op) ? DTYPES : 0;
  for (int e = 0; tigon_entry_at(e); ++e)
    for (int d = 0; d < DTYPES && wanted(o, tigon_entry_at(e)->op); ++d) {
      subject subjects[CLI_VARIANTS] = {0};
      int count = 0;
      char text[96];
      snprintf(text, sizeof text, "%s %s %s", tigon_entry_at(e)->op, tigon_entry_at(e)->entry,
               tigon_dtype_name(dtypes[d]));
      term_progress(done++, total, text);
      if (o->dtype && dtypes[d] != o->dtype) continue;
      for (; o->kernels[count]; ++count) subjects[count].kernels = o->kernels[count];
      if (!o->sweep) check_entry(o, e, dtypes[d], subjects, count, t);
      for (subject *s = subjects; s < subjects + count; ++s) {
        if (o->sweep) sweep_entry(o, e, dtypes[d], s, t);
        record_entry(e, dtypes[d], s, t, table);
      }
    }
  term_progress(total, total, "");
}

/* The operators that a planner's case was run with, {"A": [..], ..}. */
static json_t *planned_cases(void) {
  json_t *cases = json_object();
  for (tigon_plan_case c = TIGON_CASE_A; c <= TIGON_CASE_G; ++c) {
    const char letter[] = {tigon_plan_case_letter(c), 0}, *last = "";
    json_t *ops = json_array();
    for (int e = 0; tigon_entry_at(e); ++e) {
      if (!(check_planned(e) & TIGON_CASE_BIT(c)) || strcmp(tigon_entry_at(e)->op, last) == 0) continue;
      last = tigon_entry_at(e)->op;
      json_array_append_new(ops, json_string(last));
    }
    json_object_set_new(cases, letter, ops);
  }
  return cases;
}

/* Slots of the operators asked for that the device does not have and borrows from the host: nothing to check here. */
static json_t *borrowed_slots(const options *o) {
  json_t *slots = json_array();
  tigon_context *context = cli_context(o->command, o->device, o->variant, 0);
  for (int e = 0; tigon_entry_at(e); ++e) {
    const tigon_entry *entry = tigon_entry_at(e);
    if (wanted(o, entry->op) && cli_is_borrowed(context, e))
      json_array_append_new(slots, json_sprintf("%s_%s", entry->op, entry->entry));
  }
  tigon_context_destroy(context);
  return slots;
}

static void print_borrowed(const options *o, const json_t *slots) {
  size_t i;
  json_t *slot;
  if (json_array_size(slots) == 0) return;
  printf("not checked, because %s borrows the CPU's kernels for them:", o->device);
  json_array_foreach(slots, i, slot) printf("%s %s", i ? "," : "", json_string_value(slot));
  putchar('\n');
}

/* Does some case of the entry fail with the mutant, in f32 or bf16? */
static bool is_noticed(const options *o, const tigon_kernels *kernels, int entry, const check_mutant *mutant) {
  tigon_kernels wrong = *kernels;
  mutant->apply(&wrong);
  tally t = {0};
  subject s = {.kernels = kernels, .mutant = &wrong};
  for (int d = 0; d < 2 && !s.failed; ++d) {
    s.ended = false;
    check_entry(o, entry, dtypes[d], &s, 1, &t);
  }
  return s.failed > 0;
}

/* Every mutant must be noticed, on the first variant. */
static int check_mutants(const options *o) {
  int noticed = 0, survived = 0;
  for (int e = 0; tigon_entry_at(e); ++e) {
    const tigon_entry *entry = tigon_entry_at(e);
    const check_mutant *m;
    for (int i = 0; wanted(o, entry->op) && (m = check_mutant_at(e, i)) != NULL; ++i) {
      const bool dead = is_noticed(o, o->kernels[0], e, m);
      noticed += dead;
      survived += !dead;
      printf("%s%-8s%s %s %s: %s\n", term_start(stdout, dead ? TERM_GREEN : TERM_RED), dead ? "noticed" : "SURVIVED",
             term_start(stdout, TERM_PLAIN), entry->op, entry->entry, m->what);
    }
  }
  printf("%d mutants noticed, %d survived\n", noticed, survived);
  return survived || !noticed ? CLI_FAILED : CLI_OK;
}

/* ---- digests ---- */

/* The sum of an entry's cases of a dtype, of which there are *cases more. */
static uint64_t digest_cases(const options *o, tigon_context *context, int entry, tigon_dtype dtype, tally *t,
                             int64_t *cases) {
  check_case c;
  char failure[512];
  uint64_t sum = 0;
  const tigon_kernels *kernels = context->kernels;
  if (!(tigon_entry_dtypes(kernels, entry) & TIGON_BIT(dtype))) return 0;
  for (int i = 0; check_case_at(entry, dtype, kernels->tile, i, &c); ++i) {
    if (!takes(o, i, &c)) continue;
    ++*cases;
    if (!check_digest_case(&c, context, o->seed, &sum, failure)) record_failure(o, &c, kernels, failure, 0, t);
  }
  return sum;
}

/* One line of the table and one of the JSON, with a number for each dtype. */
static void digest_entry(const options *o, tigon_context *context, int entry, tally *t, term_table *table) {
  const tigon_entry *e = tigon_entry_at(entry);
  const char *variant = context->kernels->variant;
  int64_t cases = 0;
  char text[DTYPES][20];
  json_t *digests = json_object();
  for (int d = 0; d < DTYPES; ++d) {
    const int64_t before = cases;
    const bool asked = !o->dtype || dtypes[d] == o->dtype;
    const uint64_t sum = asked ? digest_cases(o, context, entry, dtypes[d], t, &cases) : 0;
    text[d][0] = 0;
    if (cases == before) continue;
    snprintf(text[d], sizeof text[d], "%016llx", (unsigned long long)sum);
    json_object_set_new(digests, tigon_dtype_name(dtypes[d]), json_string(text[d]));
  }
  t->passed += cases;
  if (cases > 0) {
    term_cell(table, TERM_PLAIN, "%s", variant);
    term_cell(table, TERM_PLAIN, "%s", e->op);
    term_cell(table, TERM_PLAIN, "%s", e->entry);
    term_cell(table, TERM_PLAIN, "%lld", (long long)cases);
    for (int d = 0; d < DTYPES; ++d) term_cell(table, TERM_PLAIN, "%s", text[d]);
    json_array_append_new(t->entries, json_pack("{s:s, s:s, s:s, s:I, s:O}", "variant", variant, "op", e->op, "entry",
                                                e->entry, "cases", (json_int_t)cases, "digests", digests));
  }
  json_decref(digests);
}

static int digest_all(const options *o) {
  static const term_column columns[] = {{"variant", false, 0}, {"op", false, 0},  {"entry", false, 0},
                                        {"cases", true, 0},    {"f32", false, 0}, {"bf16", false, 0},
                                        {"f16", false, 0}};
  term_table *table = term_table_new(columns, sizeof columns / sizeof *columns);
  tally t = {.failures = json_array(), .entries = json_array()};
  for (const tigon_kernels *const *v = o->kernels; *v; ++v) {
    tigon_context *context = cli_context(o->command, o->device, (*v)->variant, 0);
    for (int e = 0; tigon_entry_at(e); ++e)
      if (wanted(o, tigon_entry_at(e)->op)) digest_entry(o, context, e, &t, table);
    tigon_context_destroy(context);
  }
  if (t.passed == 0 && o->parts == 1) cli_mistake(o->command, "no case is called \"%s\"", o->label ? o->label : "");
  const int code = t.failed ? CLI_FAILED : CLI_OK;
  if (o->json) {
    term_table_free(table);
    cli_print_json(
        json_pack("{s:I, s:o, s:o}", "seed", (json_int_t)o->seed, "failures", t.failures, "entries", t.entries));
  } else {
    term_table_print(table, stdout);
    json_decref(t.failures);
    json_decref(t.entries);
  }
  return code;
}

int tigon_cli_check(int argc, char **argv) {
  static const struct argp argp = {argp_options, parse, "[OPERATOR...]", doc, NULL, NULL, NULL};
  options o = {.command = argv[0], .device = "cpu", .seed = 1, .part = 1, .parts = 1};
  if (!cli_parse(&argp, argc, argv, &o)) return CLI_OK;
  if (o.digest && (o.sweep || o.mutants))
    cli_mistake(o.command, "--digest is of the cases, --sweep and --mutants exclude it");
  if (o.digest) setenv("TIGON_GEMM", "builtin", 1); /* NOLINT(concurrency-mt-unsafe): a library's bits are its own */
  take_kernels(&o);
  if (o.parts > 1 && (o.label || (o.sweep && !o.sweep->in_parts)))
    cli_mistake(
        o.command,
        "--part is a part of the cases or of --sweep values, shapes or repeat, other sweeps and --case exclude it");
  if (o.sweep && o.sweep->on_host && !backend_of(&o)->host_memory)
    cli_mistake(o.command,
                "--sweep %s is of tensors in the host's memory, where %s has none; --sweep huge is for it too",
                o.sweep->name, o.device);
  if (o.mutants) return check_mutants(&o);
  if (o.digest) return digest_all(&o);

  static const term_column columns[] = {{"op", false, 0},        {"entry", false, 0}, {"variant", false, 0},
                                        {"dtype", false, 0},     {"passed", true, 0}, {"failed", true, 0},
                                        {"error/bound", true, 1}};
  term_table *table = term_table_new(columns, sizeof columns / sizeof *columns);
  tally t = {.failures = json_array(), .entries = json_array()};
  check_all(&o, &t, table);
  if (t.passed + t.failed + t.skipped == 0 && !o.sweep && o.parts == 1) { /* a sweep or part may have none */
    json_decref(t.failures);
    json_decref(t.entries);
    cli_mistake(o.command, "no case is called \"%s\"", o.label ? o.label : "");
  }
  json_t *borrowed = borrowed_slots(&o);
  if (o.json) {
    term_table_free(table);
    cli_print_json(json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "passed", (json_int_t)t.passed, "failed",
                             (json_int_t)t.failed, "skipped", (json_int_t)t.skipped, "failures", t.failures, "planned",
                             planned_cases(), "entries", t.entries, "borrowed", borrowed));
  } else {
    term_table_print(table, stdout);
    if (t.failed > SHOWN_FAILURES)
      printf("%lld more failures; --json lists them all\n", (long long)(t.failed - SHOWN_FAILURES));
    print_borrowed(&o, borrowed);
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)t.passed, (long long)t.failed, (long long)t.skipped);
    json_decref(borrowed);
    json_decref(t.failures);
    json_decref(t.entries);
  }
  return t.failed ? CLI_FAILED : CLI_OK;
}
