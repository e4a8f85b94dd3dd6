/* tigon train: the trainer's command line, built from the trainer's own table of options. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../train/ranks.h"
#include "../train/run.h"
#include "../train/run_json.h"
#include "cli.h"
#include "term.h"
#include "train_report.h"

static const char text[] =
    "Train a small Llama on text, with fused operators.\n"
    "\n"
    "Without --data it learns the King James Bible byte by byte (Debian: bible-kjv bible-kjv-text) in about two minutes. "
    "The checkpoint is a folder that Hugging Face transformers loads as LlamaForCausalLM and that --resume goes on from, "
    "bit for bit."
    "\v"
    "Examples:\n"
    "  tigon train                                 the default text, into tigon-run\n"
    "  tigon train --data notes.txt --out notes    your own text, a file or a folder\n"
    "  tigon train --resume notes --steps 2000     go on; the schedule is stretched to 2000 steps\n"
    "  tigon train --resume notes --steps 800 --sample 500 --prompt 'Dear '\n"
    "  tigon train --data tokens.bin --vocab 50257 --seq 512 --batch 4\n"
    "  tigon train --init-from notes --out other   a new run, which only takes the weights of another one\n"
    "  tigon train --config notes/run.json --tie   the options of another run, and more\n"
    "  tigon train --compare --steps 100           fused against unfused: loss, speed, memory\n"
    "  mpirun -n 2 tigon train --threads 1         the same step shared by two processes\n"
    "\n"
    "--no-FLAG turns a flag of a file or of a checkpoint off, as --no-tie.\n"
    "\n"
    "Ctrl-C ends the step that is going on, saves and exits; a second one does not wait. Memory is what the run's own "
    "buffers hold at most: weights, gradients, optimiser, activations, workspaces, batches and text.\n"
    "\n"
    "Exit status: 0 done; 1 the loss is no longer a number; 2 the command line is wrong; 3 a device or a file failed; "
    "130 and 143 stopped and saved by Ctrl-C and SIGTERM.";

enum { FIRST_KEY = 256, MOST_OPTIONS = 64 };

static volatile sig_atomic_t stop;

static void on_signal(int number) { stop = number; }

/* The first signal is answered after the step, the second by the system. */
static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGPIPE, SIG_IGN); /* a closed pipe must not cost the run */
  signal(SIGXFSZ, SIG_IGN); /* nor a limit on file sizes: the write fails instead */
}

typedef struct parsing {
  train_options options;
  const char *command;
} parsing;

static void mistake(const char *command, const char *sentence) {
  if (train_ranks_silent()) exit(CLI_USAGE);
  cli_mistake(command, "%s", sentence);
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  parsing *p = state->input;
  const int index = key - FIRST_KEY;
  train_error error;
  if (key == ARGP_KEY_ARG) {
    snprintf(error.text, sizeof error.text, "\"%.200s\" is no option; the data are given by --data", argument);
    mistake(p->command, error.text);
  }
  if (index >= MOST_OPTIONS && index < MOST_OPTIONS + train_option_count) {
    train_option_set(&p->options, index - MOST_OPTIONS, "0", "--no-", &error);
    p->options.given |= UINT64_C(1) << (index - MOST_OPTIONS);
    return 0;
  }
  if (index < 0 || index >= train_option_count) return ARGP_ERR_UNKNOWN;
  const train_option_row *row = &train_option_rows[index];
  if (argument && !*argument && row->kind == TRAIN_TEXT && strcmp(row->name, "prompt") != 0) {
    snprintf(error.text, sizeof error.text, "--%s is empty, must be a name", row->name);
    mistake(p->command, error.text);
  }
  if (!train_option_set(&p->options, index, argument ? argument : "1", "--", &error)) mistake(p->command, error.text);
  p->options.given |= UINT64_C(1) << index;
  return 0;
}

/* The trainer's table as argp has it, with a hidden --no-FLAG for each flag; `list` ends in a zero row. */
static void list_options(struct argp_option list[2 * MOST_OPTIONS + 1]) {
  _Static_assert(MOST_OPTIONS <= 64, "train_options.given is 64 bits");
  static char no[MOST_OPTIONS][32];
  int group = 0;
  for (int i = 0; i < train_option_count && i < MOST_OPTIONS; ++i) {
    const train_option_row *row = &train_option_rows[i];
    if (!row->name)
      *list++ = (struct argp_option){.doc = row->what, .group = ++group};
    else
      *list++ = (struct argp_option){
          .name = row->name, .key = FIRST_KEY + i, .arg = row->what, .doc = row->help, .group = group};
    if (!row->name || row->kind != TRAIN_FLAG) continue;
    snprintf(no[i], sizeof no[i], "no-%s", row->name);
    *list++ = (struct argp_option){.name = no[i], .key = FIRST_KEY + MOST_OPTIONS + i, .flags = OPTION_HIDDEN};
  }
}

/* What --config names; ends the program where that is wrong. */
static json_t *read_config(parsing *p) {
  json_t *kept = NULL;
  train_error error;
  if (!p->options.config || train_run_json_read(p->options.config, &p->options, &kept, &error)) return kept;
  if (!train_ranks_silent()) cli_say(p->command, error.text);
  exit(error.exit_code);
}

int tigon_cli_train(int argc, char **argv) {
  struct argp_option list[2 * MOST_OPTIONS + 1] = {{0}};
  parsing p = {.command = argv[0]};
  train_report report = {0};
  train_error error;
  list_options(list);
  train_options_init(&p.options);
  if (!cli_parse(&(struct argp){list, parse, NULL, text, NULL, NULL, NULL}, argc, argv, &p)) return CLI_OK;
  json_t *config = read_config(&p);
  if (p.options.compare && !train_option_given(&p.options, "log-every")) p.options.log_every = 1;
  report.json = p.options.json;
  report.quiet = p.options.quiet;
  report.compare = p.options.compare;
  const train_observer observer = train_report_observer(&report);
  catch_signals();
  const int code = train_run(&p.options, &stop, &observer, &error);
  signal(SIGINT, SIG_DFL); /* what is left to do may be interrupted */
  signal(SIGTERM, SIG_DFL);
  if (error.exit_code != 0 && error.text[0]) {
    cli_say(argv[0], error.text);
  }
  json_decref(config);
  return code;
}
