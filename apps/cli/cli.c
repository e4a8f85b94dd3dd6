#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../train/json_memory.h"
#include "core/context.h"
#include "term.h"

/* ---- mistakes ---- */

/* Is the character at `text` of UTF-8 a control character, of C0, DEL or C1? */
static bool is_control(const unsigned char *text) {
  return *text < 0x20 || *text == 0x7f || (*text == 0xc2 && text[1] >= 0x80 && text[1] < 0xa0);
}

char *cli_harmless(const char *text) {
  char *shown = malloc(4 * strlen(text) + 1), *to = shown;
  for (const char *from = text; shown && *from; ++from) {
    if (is_control((const unsigned char *)from))
      to += sprintf(to, "\\x%02x", (unsigned char)*from);
    else
      *to++ = *from;
  }
  if (shown) *to = 0;
  return shown;
}

void cli_say(const char *command, const char *text) {
  char *shown = cli_harmless(text);
  term_progress_clear();
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", command, shown ? shown : "out of memory");
  free(shown);
}

static void sentence(const char *command, const char *format, va_list list) {
  char *text = NULL;
  cli_say(command, vasprintf(&text, format, list) >= 0 ? text : "out of memory");
  free(text);
}

void cli_mistake(const char *command, const char *format, ...) {
  va_list list;
  va_start(list, format);
  sentence(command, format, list);
  va_end(list);
  exit(CLI_USAGE);
}

void cli_trouble(const char *command, const char *format, ...) {
  va_list list;
  va_start(list, format);
  sentence(command, format, list);
  va_end(list);
  exit(CLI_TROUBLE);
}

/* Insertions, deletions and replacements from a to b (Levenshtein); 99 for names too long to be ours. */
static int distance(const char *a, const char *b) {
  enum { LONGEST = 40 };
  const int rows = (int)strlen(a), cols = (int)strlen(b);
  int line[LONGEST + 1];
  if (rows > LONGEST || cols > LONGEST) return 99;
  for (int c = 0; c <= cols; ++c) line[c] = c;
  for (int r = 1; r <= rows; ++r) {
    int diagonal = line[0];
    line[0] = r;
    for (int c = 1; c <= cols; ++c) {
      const int replaced = diagonal + (a[r - 1] != b[c - 1]);
      const int moved = 1 + (line[c] < line[c - 1] ? line[c] : line[c - 1]);
      diagonal = line[c];
      line[c] = replaced < moved ? replaced : moved;
    }
  }
  return line[cols];
}

/* 0 for a name that begins with what was given, else the distance. */
static int unlikeness(const char *given, const char *name) {
  const size_t length = strlen(given);
  return length >= 3 && strncmp(given, name, length) == 0 ? 0 : distance(given, name);
}

void cli_unknown(const char *command, const char *what, const char *given, const char *const *names) {
  char text[1024] = "";
  size_t used = 0;
  int nearest = 99;
  for (int i = 0; names[i]; ++i)
    if (unlikeness(given, names[i]) < nearest) nearest = unlikeness(given, names[i]);
  const bool near = nearest <= 2 && nearest < (int)strlen(given);
  for (int i = 0; names[i] && used < sizeof text; ++i) {
    if (near && unlikeness(given, names[i]) > nearest) continue;
    const char *before = used == 0 ? "" : near ? " or " : ", ", *quote = near ? "\"" : "";
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s", before, quote, names[i], quote);
  }
  if (near) cli_mistake(command, "unknown %s \"%s\", did you mean %s?", what, given, text);
  cli_mistake(command, "unknown %s \"%s\", must be one of %s", what, given, text);
}

/* ---- arguments ---- */

static argp_parser_t parser_behind;

/* argp would follow getopt's sentence with "Try ... --help" and exit by itself; without an error stream it returns. */
static error_t quiet_parser(int key, char *argument, struct argp_state *state) {
  if (key == ARGP_KEY_INIT) state->err_stream = NULL;
  return parser_behind(key, argument, state);
}

static error_t short_help(int key, char *argument, struct argp_state *state) {
  (void)argument;
  if (key != 'h') return ARGP_ERR_UNKNOWN;
  argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
  return 0;
}

/* getopt prints the word of an unknown option as it is. No option's name has control characters. */
static void check_words(const char *command, int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; ++i)
    for (const char *at = argv[i]; argv[i][0] == '-' && *at && *at != '='; ++at)
      if (*at != '\n' && *at != '\t' && is_control((const unsigned char *)at))
        cli_mistake(command, "unknown option \"%s\"", argv[i]);
}

static cli_visitor *visitor;
static void *visitor_user;

void cli_visit(const cli_command *command, cli_visitor *visit, void *user) {
  char name[] = "tigon", *argv[] = {name, NULL};
  visitor = visit;
  visitor_user = user;
  command->run(1, argv);
  visitor = NULL;
}

bool cli_parse(const struct argp *argp, int argc, char **argv, void *input) {
  if (visitor) {
    visitor(visitor_user, argp);
    return false;
  }
  static const struct argp_option h[] = {{NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0}, {0}};
  static const struct argp help = {h, short_help, NULL, NULL, NULL, NULL, NULL};
  struct argp_child children[3] = {{&help, 0, NULL, 0}, {0}};
  if (argp->children) children[1] = children[0], children[0] = argp->children[0];
  struct argp quiet = *argp;
  parser_behind = argp->parser;
  quiet.parser = quiet_parser;
  quiet.children = children;
  check_words(argv[0], argc, argv);
  /* Where a text ends at the right margin, argp breaks the line by the byte behind it, which malloc() left there. */
#ifdef M_PERTURB
  mallopt(M_PERTURB, 1);
#endif
  const error_t wrong = argp_parse(&quiet, argc, argv, ARGP_IN_ORDER, NULL, input);
#ifdef M_PERTURB
  mallopt(M_PERTURB, 0);
#endif
  if (wrong == ENOMEM) cli_trouble(argv[0], "out of memory");
  if (wrong) exit(CLI_USAGE);
  return true;
}

int64_t cli_number(const char *command, const char *option, const char *text, int64_t low, int64_t high) {
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < low || value > high)
    cli_mistake(command, "%s is \"%s\", must be a whole number from %" PRId64 " to %" PRId64, option, text, low, high);
  return value;
}

double cli_positive(const char *command, const char *option, const char *text) {
  char *end;
  const double value = strtod(text, &end);
  if (end == text || *end || !isfinite(value) || !(value > 0))
    cli_mistake(command, "%s is \"%s\", must be a finite number above 0", option, text);
  return value;
}

void cli_shape(const char *command, const char *text, int64_t *rows, int64_t *cols) {
  char *end = NULL;
  errno = 0;
  *rows = strtoll(text, &end, 10);
  if (end != text && (*end == 'x' || *end == 'X')) {
    const char *second = end + 1;
    *cols = strtoll(second, &end, 10);
    if (end != second && !*end && !errno && *rows >= 1 && *cols >= 1 && *rows <= INT64_MAX / 64 / *cols) return;
  }
  cli_mistake(command, "--shape is \"%s\", must be ROWSxCOLS, as in 4096x4096", text);
}

tigon_dtype cli_float_dtype(const char *command, const char *text) {
  const tigon_dtype dtype = tigon_dtype_from_name(text);
  if (dtype != TIGON_F32 && dtype != TIGON_F16 && dtype != TIGON_BF16)
    cli_mistake(command, "--dtype is \"%s\", must be f32, bf16 or f16", text);
  return dtype;
}

const char *cli_op(const char *command, const char *op) {
  const char *names[64] = {NULL};
  int count = 0;
  const tigon_entry *entry;
  for (int i = 0; (entry = tigon_entry_at(i)) && count < 63; ++i) {
    if (strcmp(entry->op, op) == 0) return entry->op;
    if (count == 0 || strcmp(names[count - 1], entry->op) != 0) names[count++] = entry->op;
  }
  cli_unknown(command, "operator", op, names);
}

tigon_context *cli_context(const char *command, const char *device, const char *variant, int threads) {
  const tigon_context_desc desc = {.device = device, .variant = variant, .threads = threads};
  tigon_context *context;
  const tigon_status status = tigon_context_create(&desc, &context);
  if (status == TIGON_ERROR_INVALID) cli_mistake(command, "%s", tigon_last_error(NULL));
  if (status != TIGON_OK) cli_trouble(command, "%s", tigon_last_error(NULL));
  return context;
}

bool cli_is_borrowed(const tigon_context *context, int entry) {
  return context->borrowed && !tigon_entry_at(entry)->composite && !tigon_entry_dtypes(context->kernels, entry) &&
         tigon_entry_dtypes(context->borrowed, entry);
}

void cli_variants(const tigon_context *context, const tigon_kernels *list[CLI_VARIANTS + 1]) {
  const tigon_backend *backend = context->queue.backend;
  int count = 0;
  for (const tigon_kernels *const *v = backend->variants(); *v && count < CLI_VARIANTS; ++v)
    if (tigon_queue_runs(&context->queue, *v)) list[count++] = *v;
  list[count] = NULL;
}

/* ---- output ---- */

void cli_print_json(json_t *value) {
  if (train_json_lacked()) cli_trouble("tigon", "no memory for the JSON");
  if (!value || json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0)
    cli_trouble("tigon", "the JSON could not be written");
  putchar('\n');
  json_decref(value);
}
