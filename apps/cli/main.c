/* tigon: the command line. Hands over to a command. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "term.h"

static void print_version(FILE *file, struct argp_state *state) {
  (void)state;
  const int version = tigon_version();
  fprintf(file, "tigon %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
}

static void on_interrupt(int number) {
  (void)number;
  term_progress_clear();
  _exit(CLI_INTERRUPTED);
}

/* What was printed must have arrived, also the help that argp prints before it ends the program. */
static void check_output(int status, void *unused) {
  (void)unused;
  if (fflush(stdout) == 0 && !ferror(stdout)) return;
  char text[128];
  snprintf(text, sizeof text, "standard output: %s", strerror(errno));
  cli_say("tigon", text);
  if (status == CLI_OK || status == CLI_FAILED) _exit(CLI_TROUBLE);
}

static int run(const char *name, int argc, char **argv) {
  char full_name[64];
  const char *names[CLI_COMMANDS + 1] = {NULL};
  const cli_command *command;
  for (int i = 0; (command = cli_command_at(i)); ++i) {
    if (strcmp(name, command->name) == 0) {
      snprintf(full_name, sizeof full_name, "tigon %s", name);
      argv[0] = full_name;
      return command->run(argc, argv);
    }
    names[i] = command->name;
  }
  cli_unknown("tigon", "command", name, names);
}

int main(int argc, char **argv) {
  int index = 0, status;
  argp_program_version_hook = print_version;
  argp_err_exit_status = CLI_USAGE;
  setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
  signal(SIGINT, on_interrupt);
  on_exit(check_output, NULL);
  argv[0] = "tigon";
  cli_parse(&cli_argp, argc, argv, &index);
  if (index == 0) cli_mistake("tigon", "no command given, see tigon --help");
  /* Its own threads are never used, and it waits for their memory at the end. `tigon env` shows what was given. */
  if (strcmp(argv[index], "env") != 0) setenv("OPENBLAS_NUM_THREADS", "1", 1);

  if (strcmp(argv[index], "help") == 0) { /* `tigon help bench` is `tigon bench --help` */
    char *help[] = {"tigon", "--help", NULL};
    if (index + 1 < argc)
      status = run(argv[index + 1], 2, help);
    else
      cli_parse(&cli_argp, 2, help, &index), status = CLI_OK;
  } else {
    status = run(argv[index], argc - index, argv + index);
  }
  return status;
}
