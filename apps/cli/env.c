/* tigon env: what a report of a bug needs to know. The library says it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tigon/environment.h>

#include "cli.h"

static error_t parse(int key, char *argument, struct argp_state *state) {
  bool *json = state->input;
  if (key == ARGP_KEY_ARG) cli_mistake(state->argv[0], "takes no argument, but got \"%s\"", argument);
  if (key != 'j') return ARGP_ERR_UNKNOWN;
  *json = true;
  return 0;
}

/* "  version: 0.1.0", below a line for each part. */
static void print(void *user, const char *part, const char *name, const char *value) {
  char *last = user;
  if (strcmp(last, part) != 0) printf("%s:\n", part);
  snprintf(last, 32, "%s", part);
  char *shown = cli_harmless(value);
  printf("  %s: %s\n", name, shown ? shown : "out of memory");
  free(shown);
}

static void add(void *user, const char *part, const char *name, const char *value) {
  json_t *all = user, *of_part = json_object_get(all, part);
  if (!of_part) {
    of_part = json_object();
    json_object_set_new(all, part, of_part);
  }
  json_t *text = json_string(value); /* NULL for what is no UTF-8 */
  json_object_set_new(of_part, name, text ? text : json_string("(no UTF-8)"));
}

int tigon_cli_env(int argc, char **argv) {
  static const struct argp_option options[] = {{"json", 'j', NULL, 0, "Print JSON", 0}, {0}};
  static const struct argp argp = {
      options,
      parse,
      NULL,
      "Say what a report of a bug needs to know: versions and build, system and processor, drivers, devices with their "
      "variants and GEMM, variables of the environment that matter, and those that begin with TIGON_ and that nothing reads. "
      "Nothing is sent anywhere."
      "\vExamples:\n"
      "  tigon env                    to paste into a report\n"
      "  tigon env --json | jq .devices",
      NULL,
      NULL,
      NULL};
  bool json = false;
  char part[32] = "";
  if (!cli_parse(&argp, argc, argv, &json)) return CLI_OK;
  if (json) {
    json_t *all = json_object();
    tigon_environment(add, all);
    cli_print_json(all);
  } else {
    tigon_environment(print, part);
  }
  return CLI_OK;
}
