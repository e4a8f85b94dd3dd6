/* What the subcommands of `tigon` share: exit codes, one-sentence mistakes, argument and JSON helpers. */
#ifndef TIGON_CLI_H
#define TIGON_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <tigon/tigon.h>

#include "backend.h"
#include "core/machine.h"

/* Documented in `tigon --help` and docs/cli.md; scripts depend on them. */
enum {
  CLI_OK = 0,
  CLI_FAILED = 1,       /* the command ran and found failures */
  CLI_USAGE = 2,        /* the command line is wrong */
  CLI_TROUBLE = 3,      /* a device or a file failed */
  CLI_INTERRUPTED = 130 /* Ctrl-C */
};

/* "<command>: <text>" as a line on stderr. Control characters are shown as \x1b, so that no text can steer the terminal. */
void cli_say(const char *command, const char *text);

/* `text`, with control characters as \x1b. The caller frees it; NULL: no memory. */
char *cli_harmless(const char *text);

/* One function a subcommand. argv[0] is "tigon <command>"; the return value is the exit code. */
int tigon_cli_devices(int argc, char **argv);
int tigon_cli_list(int argc, char **argv);
int tigon_cli_plan(int argc, char **argv);
int tigon_cli_check(int argc, char **argv);
int tigon_cli_bench(int argc, char **argv);
int tigon_cli_train(int argc, char **argv);
int tigon_cli_generate(int argc, char **argv);
int tigon_cli_eval(int argc, char **argv);
int tigon_cli_tokenize(int argc, char **argv);
int tigon_cli_env(int argc, char **argv);
int tigon_cli_completion(int argc, char **argv);

typedef struct cli_command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *what; /* one line of `tigon --help' */
} cli_command;
enum { CLI_COMMANDS = 11 };
const cli_command *cli_command_at(int index); /* NULL behind the last one */
extern const struct argp cli_argp;            /* options before the command */

/* argp_parse() whose mistakes are one sentence: an unknown option ends the program with CLI_USAGE and without argp's
 * second line. -h is --help. Options and words may be mixed. Parsers report their own mistakes with cli_mistake(). It may
 * have one child. False for a command that cli_visit() only asks: it then returns CLI_OK. */
bool cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* Hands the command's argp, while it exists, to `visit`. */
typedef void cli_visitor(void *user, const struct argp *argp);
void cli_visit(const cli_command *command, cli_visitor *visit, void *user);

/* "<command>: <sentence>" on stderr, then exit: CLI_USAGE. `command` is argv[0]. */
__attribute__((format(printf, 2, 3), noreturn)) void cli_mistake(const char *command, const char *format, ...);
/* The same with CLI_TROUBLE. */
__attribute__((format(printf, 2, 3), noreturn)) void cli_trouble(const char *command, const char *format, ...);
/* '<command>: unknown <what> "<given>", did you mean "..."?' with the nearest of `names` (NULL-terminated), or with all
 * of them when none is near; then exit: CLI_USAGE. */
__attribute__((noreturn)) void cli_unknown(const char *command, const char *what, const char *given,
                                           const char *const *names);

/* "2048x4096" -> 2048, 4096; both >= 1. Ends the program on anything else. */
void cli_shape(const char *command, const char *text, int64_t *rows, int64_t *cols);
/* A whole number in [low, high]; ends the program on anything else. `option` is its name: "--threads". */
int64_t cli_number(const char *command, const char *option, const char *text, int64_t low, int64_t high);
/* A finite number above 0; ends the program on anything else. */
double cli_positive(const char *command, const char *option, const char *text);
/* "f32", "bf16" or "f16"; ends the program on anything else. */
tigon_dtype cli_float_dtype(const char *command, const char *text);
/* `op` when ops.def has it; ends the program otherwise. */
const char *cli_op(const char *command, const char *op);

/* Opens a context; ends the program with CLI_USAGE for an unknown device or variant and CLI_TROUBLE for one that is not
 * there. NULL and 0 mean the default. */
tigon_context *cli_context(const char *command, const char *device, const char *variant, int threads);

/* Is the i-th entry of ops.def one that the context's device, a simulator, runs with another backend's kernel? */
bool cli_is_borrowed(const tigon_context *context, int entry);

/* The variants that the context's device runs, in its backend's order, then NULL. */
enum { CLI_VARIANTS = 8 };
void cli_variants(const tigon_context *context, const tigon_kernels *list[CLI_VARIANTS + 1]);

/* Prints `value` to stdout, indented, with a newline, and releases it. */
void cli_print_json(json_t *value);

int64_t cli_memory_available(void); /* bytes; INT64_MAX when the system does not say */

/* The most memory that this process had resident since cli_peak_restart(), in bytes; 0 when the system does not say. */
void cli_peak_restart(void);
int64_t cli_peak_bytes(void);

#endif
