/* The commands, and what comes before one. Apart from main(), for what links commands without it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "term.h"

static const cli_command commands[CLI_COMMANDS] = {
    {"devices", tigon_cli_devices, "what this machine has, and why a device is not there"},
    {"list", tigon_cli_list, "which operator runs where, in which dtypes"},
    {"plan", tigon_cli_plan, "how an operator is tiled on a device, and why"},
    {"check", tigon_cli_check, "compare every kernel with the double-precision oracle"},
    {"bench", tigon_cli_bench, "time the operators against what this machine's memory can do"},
    {"train", tigon_cli_train, "train a small Llama on text"},
    {"generate", tigon_cli_generate, "write text with a trained model"},
    {"eval", tigon_cli_eval, "say how well a trained model predicts a text"},
    {"tokenize", tigon_cli_tokenize, "turn text into tokens by a tokenizer.json"},
    {"env", tigon_cli_env, "what a report of a bug needs to know of this machine"},
    {"completion", tigon_cli_completion, "the completion of commands and options for a shell"},
};

const cli_command *cli_command_at(int index) { return index >= 0 && index < CLI_COMMANDS ? &commands[index] : NULL; }

static const char text[] =
    "Fused operators for training large language models, from the command line."
    "\v"
    "Examples:\n"
    "  tigon check rms_norm                    is it right on this machine?\n"
    "  tigon bench rms_norm --shape 4096x4096  and how far from a plain copy?\n"
    "\n"
    "Results go to standard output, progress and messages to standard error. Every command that prints results has --json; "
    "docs/cli.md describes what it prints.\n"
    "\n"
    "Exit status: 0 done; 1 the command ran and found failures; 2 the command line is wrong; 3 a device or a file "
    "failed; 130 interrupted.";

static const struct argp_option options[] = {
    {"color", 'c', "auto|always|never", 0, "Colour the output; auto: on a terminal, unless NO_COLOR is set", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state) {
  int *command_index = state->input;
  switch (key) {
    case 'c':
      if (strcmp(argument, "auto") == 0)
        term_set_color(TERM_COLOR_AUTO);
      else if (strcmp(argument, "always") == 0)
        term_set_color(TERM_COLOR_ALWAYS);
      else if (strcmp(argument, "never") == 0)
        term_set_color(TERM_COLOR_NEVER);
      else
        cli_mistake("tigon", "--color is \"%s\", must be auto, always or never", argument);
      return 0;
    case ARGP_KEY_ARG: /* the rest is the command's */
      *command_index = state->next - 1;
      state->next = state->argc;
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

/* The help's first part, with a line for each command. */
static char *add_commands(int key, const char *part, void *input) {
  char *all = NULL;
  size_t bytes = 0;
  (void)input;
  if (key != ARGP_KEY_HELP_PRE_DOC) return (char *)part;
  FILE *to = open_memstream(&all, &bytes);
  if (!to) return (char *)part;
  fprintf(to, "%s\n\n", part);
  for (int i = 0; i < CLI_COMMANDS; ++i) fprintf(to, "  %-10s  %s\n", commands[i].name, commands[i].what);
  fputs("\n`tigon COMMAND --help' explains a command.\n\nOptions before the command:", to);
  fclose(to);
  return all;
}

const struct argp cli_argp = {options, parse, "COMMAND [ARGUMENT...]", text, NULL, add_commands, NULL};
