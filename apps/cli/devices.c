/* tigon devices: what there is to run on, and in one sentence why the rest is not there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "core/context.h"
#include "term.h"

/* Every device family, in the order in which a context looks for one; the oracle comes last and is never inferred. */
static const struct {
  const char *backend, *title;
} families[] = {
    {"cuda", "CUDA"}, {"npu", "Ascend NPU"}, {"xpu", "Intel XPU"}, {"cpu", "CPU"}, {"ref", "reference"},
};
enum { FAMILIES = sizeof families / sizeof *families };

static json_t *words(const char *text) {
  json_t *array = json_array();
  while (*text) {
    const size_t length = strcspn(text, " ");
    json_array_append_new(array, json_stringn(text, length));
    text += length + strspn(text + length, " ");
  }
  return array;
}

static json_t *variants(const tigon_backend *backend) {
  json_t *array = json_array();
  for (const tigon_kernels *const *list = backend->variants(); *list; ++list)
    json_array_append_new(array, json_string((*list)->variant));
  return array;
}

static void describe_host(json_t *device) {
  cli_machine machine;
  cli_machine_read(&machine);
  json_object_set_new(device, "name", json_string(machine.model));
  json_object_set_new(device, "cores", json_integer(machine.cores));
  json_object_set_new(device, "l1d_bytes", json_integer(machine.l1d_bytes));
  json_object_set_new(device, "l2_bytes", json_integer(machine.l2_bytes));
  json_object_set_new(device, "l3_bytes", json_integer(machine.l3_bytes));
  json_object_set_new(device, "features", words(machine.features));
}

/* Device `index` of a backend that has one. */
static json_t *describe(const tigon_backend *backend, int index, int count) {
  char name[32];
  snprintf(name, sizeof name, count > 1 ? "%s:%d" : "%s", backend->name, index);
  json_t *device = json_pack("{s:s, s:s, s:b, s:n, s:s}", "backend", backend->name, "name", name, "available", 1,
                             "reason", "device", name);
  if (strcmp(backend->name, "cpu") == 0) describe_host(device);
  if (strcmp(backend->name, "ref") == 0)
    json_object_set_new(device, "name", json_string("the oracle: scalar C, sums in double precision"));

  tigon_context *context;
  const tigon_context_desc desc = {.device = name};
  if (tigon_context_create(&desc, &context) != TIGON_OK) {
    json_object_set_new(device, "available", json_false());
    json_object_set_new(device, "reason", json_string(tigon_last_error(NULL)));
    return device;
  }
  json_object_set_new(device, "variants", variants(backend));
  json_object_set_new(device, "variant", json_string(context->kernels->variant));
  json_object_set_new(device, "threads", json_integer(context->queue.threads));
  json_object_set_new(device, "gemm", json_string(tigon_context_gemm(context)));
  if (context->device) json_object_set_new(device, "onchip_bytes", json_integer(context->device->onchip_bytes));
  tigon_context_destroy(context);
  return device;
}

static json_t *find_devices(void) {
  json_t *devices = json_array();
  for (int f = 0; f < FAMILIES; ++f) {
    const tigon_backend *backend = tigon_backend_find(families[f].backend);
    char text[96];
    const char *reason = text;
    snprintf(text, sizeof text, "this build has no %s backend", families[f].title);
    const int count = backend ? backend->count(&reason) : 0;
    for (int i = 0; i < count; ++i) json_array_append_new(devices, describe(backend, i, count));
    if (count == 0)
      json_array_append_new(devices, json_pack("{s:s, s:s, s:b, s:s}", "backend", families[f].backend, "name",
                                               families[f].title, "available", 0, "reason", reason));
  }
  return devices;
}

/* "avx512 (chosen) avx2 scalar"; empty for an absent array. */
static void join(char *text, size_t size, const json_t *array, const char *chosen) {
  size_t used = 0, i;
  json_t *word;
  text[0] = 0;
  json_array_foreach(array, i, word) {
    const char *value = json_string_value(word);
    if (used < size)
      used += (size_t)snprintf(text + used, size - used, "%s%s%s", used ? " " : "", value,
                               chosen && strcmp(chosen, value) == 0 ? " (chosen)" : "");
  }
}

static void print_line(const char *title, const char *value) {
  if (!*value) return;
  printf("      %s%-9s%s ", term_start(stdout, TERM_DIM), title, term_start(stdout, TERM_PLAIN));
  term_wrap(stdout, 16, value);
}

static void print_device(const json_t *device) {
  char text[1024], l1d[TERM_NUMBER], l2[TERM_NUMBER], l3[TERM_NUMBER];
  const char *label = json_string_value(json_object_get(device, "device"));
  if (!label) label = json_string_value(json_object_get(device, "backend"));
  const bool there = json_is_true(json_object_get(device, "available"));
  printf("%s%-5s%s ", term_start(stdout, there ? TERM_GREEN : TERM_DIM), label, term_start(stdout, TERM_PLAIN));
  if (!there) {
    snprintf(text, sizeof text, "not there: %s", json_string_value(json_object_get(device, "reason")));
    term_wrap(stdout, 6, text);
    return;
  }
  term_wrap(stdout, 6, json_string_value(json_object_get(device, "name")));
  const json_int_t cores = json_integer_value(json_object_get(device, "cores"));
  const json_int_t threads = json_integer_value(json_object_get(device, "threads"));
  if (cores) {
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT ", of which a call uses %" JSON_INTEGER_FORMAT, cores, threads);
    print_line("cores", text);
    snprintf(text, sizeof text, "L1d %s and L2 %s a core, L3 %s",
             term_bytes(l1d, json_integer_value(json_object_get(device, "l1d_bytes"))),
             term_bytes(l2, json_integer_value(json_object_get(device, "l2_bytes"))),
             term_bytes(l3, json_integer_value(json_object_get(device, "l3_bytes"))));
    print_line("caches", text);
  }
  join(text, sizeof text, json_object_get(device, "features"), NULL);
  print_line("features", text);
  join(text, sizeof text, json_object_get(device, "variants"), json_string_value(json_object_get(device, "variant")));
  print_line("variants", text);
  print_line("gemm", json_string_value(json_object_get(device, "gemm")));
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  bool *as_json = state->input;
  switch (key) {
    case 'j': *as_json = true; return 0;
    case ARGP_KEY_ARG: cli_mistake(state->argv[0], "takes no arguments, but got \"%s\"", argument);
    default: return ARGP_ERR_UNKNOWN;
  }
}

int tigon_cli_devices(int argc, char **argv) {
  static const struct argp_option options[] = {{"json", 'j', NULL, 0, "Print JSON", 0}, {0}};
  static const struct argp argp = {
      options,
      parse,
      "",
      "Say what this machine has to run on, in the order in which a context looks for it, and why the rest is not there."
      "\vExample:\n  tigon devices --json | jq '.devices[] | select(.available) | .name'",
      NULL,
      NULL,
      NULL};
  bool as_json = false;
  cli_parse(&argp, argc, argv, &as_json);

  json_t *devices = find_devices();
  char version[32];
  const int number = tigon_version();
  snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
  if (as_json) {
    cli_print_json(json_pack("{s:s, s:o}", "version", version, "devices", devices));
    return CLI_OK;
  }
  size_t i;
  json_t *device;
  json_array_foreach(devices, i, device) print_device(device);
  json_decref(devices);
  return CLI_OK;
}
