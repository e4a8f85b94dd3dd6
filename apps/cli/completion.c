/* tigon completion: a shell's completion, made from what every command tells argp and from the tables of names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "check/cases.h"
#include "check/sweep.h"
#include "cli.h"
#include "core/devices.h"

/* What argp adds to every command. */
static const struct argp_option common[] = {{"help", '?', NULL, 0, "Give this help list", 0},
                                            {"usage", 0x100000, NULL, 0, "Give a short usage message", 0},
                                            {"version", 'V', NULL, 0, "Print program version", 0},
                                            {0}};

/* ---- names ---- */

/* A list that grows by "%s "; a name that it has is left out. */
typedef struct name_list {
  char text[4096];
  size_t used;
} name_list;

static void add(name_list *list, const char *name) {
  char word[128];
  const int length = snprintf(word, sizeof word, " %s ", name);
  if (list->used == 0) list->used = (size_t)snprintf(list->text, sizeof list->text, " ");
  if (strstr(list->text, word) || list->used + (size_t)length >= sizeof list->text) return;
  list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s ", name);
}

static void add_devices(name_list *list) {
  const tigon_backend *backend;
  for (int b = 0; (backend = tigon_backend_at(b)); ++b) {
    const char *reason;
    const int count = backend->name_of ? backend->count(&reason) : 1; /* a family's name is its first device */
    for (int i = 0; i < count; ++i) {
      char name[TIGON_DEVICE_NAME];
      tigon_backend_device_name(backend, i, 1, name);
      add(list, name);
    }
  }
}

static void add_variants(name_list *list) {
  const tigon_backend *backend;
  for (int b = 0; (backend = tigon_backend_at(b)); ++b)
    for (const tigon_kernels *const *v = backend->variants(); *v; ++v) add(list, (*v)->variant);
}

static void add_entries(name_list *list, bool operators) {
  const tigon_entry *entry;
  for (int i = 0; (entry = tigon_entry_at(i)); ++i) add(list, operators ? entry->op : entry->entry);
}

static void add_modes(name_list *list) {
  for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) add(list, bench_mode_name(mode));
}

static void add_models(name_list *list) {
  for (const char *const *name = bench_model_names(); *name; ++name) add(list, *name);
}

static void add_sweeps(name_list *list) {
  for (int i = 0; check_sweep_at(i); ++i) add(list, check_sweep_at(i)->name);
}

static void add_commands(name_list *list) {
  for (int i = 0; cli_command_at(i); ++i) add(list, cli_command_at(i)->name);
}

typedef enum value_kind { NO_VALUES, WORDS, FILES } value_kind;

/* What an argument may be, by its name in the help: "f32|bf16", "[OPERATOR...]", FILE. */
static value_kind values_of(const char *argument, name_list *list) {
  char word[256];
  list->used = 0;
  list->text[0] = 0;
  snprintf(word, sizeof word, "%s", argument + strspn(argument, "["));
  word[strcspn(word, "]. ")] = 0;
  if (strchr(word, '|'))
    for (char *part = strtok(word, "|"); part; part = strtok(NULL, "|")) add(list, part);
  else if (strcmp(word, "DEVICE") == 0)
    add_devices(list);
  else if (strcmp(word, "VARIANT") == 0)
    add_variants(list);
  else if (strcmp(word, "OPERATOR") == 0 || strcmp(word, "ENTRY") == 0)
    add_entries(list, word[0] == 'O');
  else if (strcmp(word, "MODE") == 0)
    add_modes(list);
  else if (strcmp(word, "MODEL") == 0)
    add_models(list);
  else if (strcmp(word, "SWEEP") == 0)
    add_sweeps(list);
  else if (strcmp(word, "COMMAND") == 0)
    add_commands(list);
  if (list->used > 0) return WORDS;
  return strcmp(word, "FILE") == 0 || strcmp(word, "DIR") == 0 || strcmp(word, "PATH") == 0 ? FILES : NO_VALUES;
}

/* ---- options ---- */

static bool is_short(const struct argp_option *option) { return option->key > ' ' && option->key < 0x7f; }

/* The index-th option that the help shows: the command's, its child's, argp's own. NULL behind the last one. */
static const struct argp_option *option_at(const struct argp *argp, int index) {
  const struct argp_option *lists[] = {argp->options, argp->children ? argp->children->argp->options : NULL, common};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i)
    for (const struct argp_option *o = lists[i]; o && (o->name || o->key || o->doc); ++o)
      if (o->name && !(o->flags & OPTION_HIDDEN) && index-- == 0) return o;
  return NULL;
}

static value_kind option_values(const struct argp_option *option, name_list *list) {
  return values_of(option->arg ? option->arg : "", list);
}
/* A command's own words. What has no names is a path. */
static value_kind words_of(const struct argp *argp, name_list *list) {
  const value_kind kind = values_of(argp->args_doc ? argp->args_doc : "", list);
  return argp->args_doc && kind == NO_VALUES ? FILES : kind;
}

/* What a visitor of a command writes to. */
typedef struct writer {
  FILE *to;
  const cli_command *command;
} writer;

static void each_command(FILE *to, cli_visitor *visit) {
  for (int i = 0; cli_command_at(i); ++i) cli_visit(cli_command_at(i), visit, &(writer){to, cli_command_at(i)});
}

/* `text` within single quotes of a shell. Characters of `escaped` get a backslash, and ' becomes `quote`. */
static void quoted(FILE *to, const char *text, const char *escaped, const char *quote) {
  for (; *text; ++text) {
    if (strchr(escaped, *text)) fputc('\\', to);
    if (*text == '\'')
      fputs(quote, to);
    else
      fputc(*text, to);
  }
}

/* ---- bash ---- */

static const char bash_begin[] =
    "  local line=${COMP_LINE:0:COMP_POINT} command= option= words= last value i\n"
    "  local -a given # not COMP_WORDS, which are cut at = and :\n"
    "  read -ra given <<<\"$line\"\n"
    "  [[ $line == *[[:space:]] ]] && given+=('')\n"
    "  last=$((${#given[@]} - 1)) value=${given[-1]}\n"
    "  for ((i = 1; i < last; ++i)); do\n"
    "    case ${given[i]} in\n"
    "      -*) [[ $before == *\" ${given[i]} \"* ]] && ((++i)) ;;\n"
    "      *) command=${given[i]}; break ;;\n"
    "    esac\n"
    "  done\n"
    "  case $value in\n"
    "    --*=*) option=${value%%=*}= value=${value#*=} ;;\n"
    "    *) ((last > 1)) && [[ ${given[last - 1]} == -* ]] && option=${given[last - 1]} ;;\n"
    "  esac\n"
    "  case \"$command $option\" in\n";

static const char bash_end[] =
    "      esac\n"
    "      ;;\n"
    "  esac\n"
    "  COMPREPLY=()\n"
    "  if [[ $words == FILES ]]; then\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$value\")\n"
    "  else\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$value\")\n"
    "    [[ $value == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=(\"${COMPREPLY[@]#\"${value%:*}:\"}\")\n"
    "  fi\n"
    "} && complete -F _tigon tigon\n";

static const char *bash_list(value_kind kind, const name_list *list) { return kind == FILES ? "FILES" : list->text; }

/* One arm of the case for each option's values. An optional one follows = only. */
static void bash_values(void *user, const struct argp *argp) {
  const writer *w = user;
  const struct argp_option *o;
  const char *command = w->command ? w->command->name : "";
  name_list list;
  for (int i = 0; (o = option_at(argp, i)); ++i) {
    if (!o->arg) continue;
    fprintf(w->to, "    '%s --%s='", command, o->name);
    if (!(o->flags & OPTION_ARG_OPTIONAL)) fprintf(w->to, " | '%s --%s'", command, o->name);
    if (!(o->flags & OPTION_ARG_OPTIONAL) && is_short(o)) fprintf(w->to, " | '%s -%c'", command, o->key);
    const value_kind kind = option_values(o, &list);
    fprintf(w->to, ") words='%s' ;;\n", bash_list(kind, &list));
  }
}

static void bash_words(void *user, const struct argp *argp) {
  const writer *w = user;
  const struct argp_option *o;
  const char *command = w->command ? w->command->name : "";
  name_list list;
  fprintf(w->to, "        '%s '-*) words='", command);
  for (int i = 0; (o = option_at(argp, i)); ++i) fprintf(w->to, "--%s ", o->name);
  const value_kind kind = words_of(argp, &list);
  fprintf(w->to, "' ;;\n        '%s '*) words='%s%s' ;;\n", command, bash_list(kind, &list), w->command ? "" : "help");
}

static void print_bash(FILE *to) {
  name_list list = {.used = 0};
  const struct argp_option *o;
  fputs("# Completion of tigon for bash. Made by `tigon completion bash'.\n_tigon() {\n  local before=' ", to);
  for (int i = 0; (o = option_at(&cli_argp, i)); ++i)
    if (o->arg) fprintf(to, "--%s -%c ", o->name, is_short(o) ? o->key : '-');
  fputs("' # options before the command whose argument is a word of its own\n", to);
  fputs(bash_begin, to);
  bash_values(&(writer){to, NULL}, &cli_argp);
  each_command(to, bash_values);
  fputs("    *)\n      case \"$command $value\" in\n", to);
  bash_words(&(writer){to, NULL}, &cli_argp);
  each_command(to, bash_words);
  add_commands(&list);
  fprintf(to, "        'help '*) words='%s' ;;\n", list.text);
  fputs(bash_end, to);
}

/* ---- zsh ---- */

/* ":NAME:(words)", ":NAME:_files" or ":NAME: ", for _arguments. */
static void zsh_values(FILE *to, const char *name, value_kind kind, const name_list *list) {
  fputc(':', to);
  quoted(to, name, ":", "'\\''");
  fputs(kind == FILES ? ":_files" : kind == WORDS ? ":(" : ": ", to);
  if (kind != WORDS) return;
  quoted(to, list->text, ":", "'\\''");
  fputc(')', to);
}

static void zsh_options(FILE *to, const struct argp *argp, const char *indent) {
  const struct argp_option *o;
  name_list list;
  for (int i = 0; (o = option_at(argp, i)); ++i) {
    const char *equals = !o->arg ? "" : o->flags & OPTION_ARG_OPTIONAL ? "=-" : "=";
    for (int one = is_short(o) ? 0 : 1; one < 2; ++one) {
      if (one == 0)
        fprintf(to, " \\\n%s'*-%c[", indent, o->key);
      else
        fprintf(to, " \\\n%s'*--%s%s[", indent, o->name, equals);
      quoted(to, o->doc ? o->doc : "", "[]\\", "'\\''");
      fputc(']', to);
      const value_kind kind = option_values(o, &list);
      if (o->arg && o->flags & OPTION_ARG_OPTIONAL) fputc(':', to);
      if (o->arg) zsh_values(to, o->arg, kind, &list);
      fputc('\'', to);
    }
  }
}

static void zsh_command(void *user, const struct argp *argp) {
  const writer *w = user;
  name_list list;
  fprintf(w->to, "        %s)\n          _arguments", w->command->name);
  zsh_options(w->to, argp, "            ");
  const value_kind kind = words_of(argp, &list);
  if (kind != NO_VALUES) {
    fputs(" \\\n            '*:", w->to);
    zsh_values(w->to, argp->args_doc, kind, &list);
    fputc('\'', w->to);
  }
  fputs(" ;;\n", w->to);
}

static void print_zsh(FILE *to) {
  name_list list = {.used = 0};
  fputs("#compdef tigon\n# Completion of tigon for zsh. Made by `tigon completion zsh'.\n_tigon() {\n"
        "  local curcontext=$curcontext state line\n  typeset -A opt_args\n  local -a commands=(\n",
        to);
  for (int i = 0; cli_command_at(i); ++i) {
    fprintf(to, "    '%s:", cli_command_at(i)->name);
    quoted(to, cli_command_at(i)->what, ":", "'\\''");
    fputs("'\n", to);
  }
  fputs("    'help:explain a command')\n  _arguments -C", to);
  zsh_options(to, &cli_argp, "    ");
  fputs(" \\\n    '1: :->command' '*:: :->arguments'\n  case $state in\n"
        "    command) _describe -t commands 'tigon command' commands ;;\n    arguments)\n      case $words[1] in\n",
        to);
  each_command(to, zsh_command);
  add_commands(&list);
  fprintf(to,
          "        help) _values command%s ;;\n      esac ;;\n  esac\n}\n"
          "if [[ $funcstack[1] == _tigon ]]; then _tigon \"$@\"; else compdef _tigon tigon; fi\n",
          list.text);
}

/* ---- fish ---- */

static void fish_values(FILE *to, value_kind kind, const name_list *list) {
  fputs(kind == FILES ? " -F" : "", to);
  if (kind != WORDS) return;
  fputs(" -a '", to);
  quoted(to, list->text, "\\", "\\'");
  fputc('\'', to);
}

static void fish_command(void *user, const struct argp *argp) {
  const writer *w = user;
  const struct argp_option *o;
  char when[96] = "__fish_use_subcommand";
  name_list list;
  if (w->command) snprintf(when, sizeof when, "__fish_seen_subcommand_from %s", w->command->name);
  for (int i = 0; (o = option_at(argp, i)); ++i) {
    fprintf(w->to, "complete -c tigon -n '%s' -l %s", when, o->name);
    if (is_short(o)) fprintf(w->to, " -s %s%c", o->key == '?' ? "\\" : "", o->key);
    const value_kind kind = option_values(o, &list);
    if (o->arg && !(o->flags & OPTION_ARG_OPTIONAL)) fputs(kind == FILES ? " -r" : " -x", w->to);
    fish_values(w->to, kind, &list);
    fputs(" -d '", w->to);
    quoted(w->to, o->doc ? o->doc : "", "\\", "\\'");
    fputs("'\n", w->to);
  }
  const value_kind kind = words_of(argp, &list);
  if (kind == NO_VALUES || !w->command) return;
  fprintf(w->to, "complete -c tigon -n '%s'", when);
  fish_values(w->to, kind, &list);
  fputc('\n', w->to);
}

static void print_fish(FILE *to) {
  name_list list = {.used = 0};
  fputs("# Completion of tigon for fish. Made by `tigon completion fish'.\ncomplete -c tigon -f\n", to);
  for (int i = 0; cli_command_at(i); ++i) {
    fprintf(to, "complete -c tigon -n __fish_use_subcommand -a %s -d '", cli_command_at(i)->name);
    quoted(to, cli_command_at(i)->what, "\\", "\\'");
    fputs("'\n", to);
  }
  add_commands(&list);
  fprintf(to,
          "complete -c tigon -n __fish_use_subcommand -a help -d 'explain a command'\n"
          "complete -c tigon -n '__fish_seen_subcommand_from help' -a '%s'\n",
          list.text);
  fish_command(&(writer){to, NULL}, &cli_argp);
  each_command(to, fish_command);
}

/* ---- the command line ---- */

static const struct {
  const char *name;
  void (*print)(FILE *to);
} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
enum { SHELLS = sizeof shells / sizeof *shells };

static error_t parse(int key, char *argument, struct argp_state *state) {
  int *shell = state->input;
  const char *names[SHELLS + 1] = {NULL};
  if (key == ARGP_KEY_NO_ARGS) cli_mistake(state->argv[0], "no shell given, must be one of bash, zsh, fish");
  if (key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
  if (*shell >= 0) cli_mistake(state->argv[0], "takes one shell, but got \"%s\" too", argument);
  for (int i = 0; i < SHELLS; ++i) {
    names[i] = shells[i].name;
    if (strcmp(names[i], argument) == 0) *shell = i;
  }
  if (*shell < 0) cli_unknown(state->argv[0], "shell", argument, names);
  return 0;
}

int tigon_cli_completion(int argc, char **argv) {
  static const struct argp argp = {
      NULL,
      parse,
      "bash|zsh|fish",
      "Print the completion of commands, options, operators and devices for a shell. `make install' puts it where the shells "
      "look for it."
      "\vExamples:\n"
      "  source <(tigon completion bash)             for this shell\n"
      "  tigon completion zsh > ~/.zfunc/_tigon      in a folder of $fpath\n"
      "  tigon completion fish > ~/.config/fish/completions/tigon.fish",
      NULL,
      NULL,
      NULL};
  int shell = -1;
  if (!cli_parse(&argp, argc, argv, &shell)) return CLI_OK;
  shells[shell].print(stdout);
  return CLI_OK;
}
