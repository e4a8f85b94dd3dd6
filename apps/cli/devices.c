/* tigon devices: what there is to run on, and in one sentence why the rest is not there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "core/context.h"
#include "core/devices.h"
#include "../train/json_memory.h"
#include "term.h"

/* Every device family, in the order in which a context looks for one; the oracle comes last and is never inferred. */
static const struct {
  const char *backend, *title;
} families[] = {
    {"cuda", "CUDA"}, {"npu", "Ascend NPU"}, {"xpu", "Intel XPU"},
    {"cpu", "CPU"},   {"opencl", "OpenCL"},  {"ref", "reference"},
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

static json_t *variants(const tigon_context *context) {
  const tigon_kernels *list[CLI_VARIANTS + 1];
  json_t *array = json_array();
  cli_variants(context, list);
  for (int i = 0; list[i]; ++i) json_array_append_new(array, json_string(list[i]->variant));
  return array;
}

static void describe_host(json_t *device) {
  tigon_machine machine;
  tigon_machine_read(&machine);
  if (machine.lacked_memory) cli_trouble("tigon devices", "out of memory");
  json_object_set_new(device, "name", json_string(machine.model));
  json_object_set_new(device, "cores", json_integer(machine.cores));
  json_object_set_new(device, "l1d_bytes", json_integer(machine.l1d_bytes));
  json_object_set_new(device, "l2_bytes", json_integer(machine.l2_bytes));
  json_object_set_new(device, "l3_bytes", json_integer(machine.l3_bytes));
  json_object_set_new(device, "features", words(machine.features));
}

/* A device with cores of its own, as the planner has it. */
static void describe_part(json_t *device, const tigon_context *context) {
  const tigon_device *part = context->device;
  json_t *borrowed = json_array();
  for (int e = 0; tigon_entry_at(e); ++e)
    if (cli_is_borrowed(context, e))
      json_array_append_new(borrowed, json_sprintf("%s_%s", tigon_entry_at(e)->op, tigon_entry_at(e)->entry));
  json_object_set_new(device, "name", json_string(part->name));
  json_object_set_new(device, "cores", json_integer(part->cores));
  json_object_set_new(device, "memory_gbps", json_real(part->memory_gbps));
  json_object_set_new(device, "simulated", json_boolean(context->queue.backend->model != NULL));
  json_object_set_new(device, "borrowed", borrowed);
}

/* One sentence for each entry that the device's self-checks refuse. */
static json_t *refused(tigon_context *context, bool run) {
  json_t *sentences = json_array();
  const tigon_backend *backend = context->queue.backend;
  for (int e = 0; tigon_entry_at(e); ++e)
    for (int dtype = 0; dtype < 32; ++dtype) {
      const bool has = !tigon_entry_at(e)->composite && tigon_entry_dtypes(context->kernels, e) >> dtype & 1;
      const char *why = has ? backend->refused(&context->queue, e, (tigon_dtype)dtype, run) : NULL;
      if (why) json_array_append_new(sentences, json_string(why));
    }
  return sentences;
}

/* A device by the name that --device takes. */
static json_t *describe(const tigon_backend *backend, const char *name, bool self_check) {
  json_t *device = json_pack("{s:s, s:s, s:b, s:n, s:s}", "backend", backend->name, "name", name, "available", 1,
                             "reason", "device", name);
  if (strcmp(backend->name, "cpu") == 0) describe_host(device);
  if (strcmp(backend->name, "ref") == 0)
    json_object_set_new(device, "name", json_string("the oracle: scalar C, sums in double precision"));

  tigon_context *context;
  const tigon_context_desc desc = {.device = name};
  const tigon_status status = tigon_context_create(&desc, &context);
  if (status == TIGON_ERROR_OUT_OF_MEMORY && backend->host_memory) cli_trouble("tigon devices", "out of memory");
  if (status != TIGON_OK) {
    json_object_set_new(device, "available", json_false());
    json_object_set_new(device, "reason", json_string(tigon_last_error(NULL)));
    return device;
  }
  if (!backend->host_memory || backend->name_of) describe_part(device, context);
  json_object_set_new(device, "variants", variants(context));
  json_object_set_new(device, "variant", json_string(context->kernels->variant));
  json_object_set_new(device, "threads", json_integer(context->queue.threads));
  json_object_set_new(device, "gemm", json_string(tigon_context_gemm(context)));
  if (context->device->onchip_bytes > 0)
    json_object_set_new(device, "onchip_bytes", json_integer(context->device->onchip_bytes));
  if (backend->refused) json_object_set_new(device, "refused", refused(context, self_check));
  tigon_context_destroy(context);
  return device;
}

/* All devices of a backend, or in one object why it has none. */
static void add_all(json_t *devices, const tigon_backend *backend, const char *name, const char *title,
                    bool self_check) {
  const char *reason = "";
  const int count = backend->count(&reason);
  for (int i = 0; i < count; ++i) {
    char device[TIGON_DEVICE_NAME];
    tigon_backend_device_name(backend, i, count, device);
    json_array_append_new(devices, describe(backend, device, self_check));
  }
  if (count == 0)
    json_array_append_new(
        devices, json_pack("{s:s, s:s, s:b, s:s}", "backend", name, "name", title, "available", 0, "reason", reason));
}

/* `only`: NULL, or a family, a backend or a device. */
static json_t *find_devices(const char *command, const char *only, bool self_check) {
  json_t *devices = json_array();
  bool known = false;
  for (int f = 0; f < FAMILIES; ++f) {
    if (only && strcmp(only, families[f].backend) != 0) continue;
    known = true;
    add_all(devices, tigon_backend_find(families[f].backend), families[f].backend, families[f].title, self_check);
  }
  if (known) return devices;
  const tigon_backend *backend = tigon_backend_find(only);
  if (backend) {
    add_all(devices, backend, backend->name, backend->name, self_check);
    return devices;
  }
  tigon_context *context = cli_context(command, only, NULL, 0); /* says what is wrong with the name */
  json_array_append_new(devices, describe(context->queue.backend, only, self_check));
  tigon_context_destroy(context);
  return devices;
}

/* "ascend-sim:910B1", ..: present on every machine, and used only on request. */
static json_t *simulators(void) {
  json_t *names = json_array();
  const tigon_backend *backend;
  for (int b = 0; (backend = tigon_backend_at(b)); ++b) {
    const char *reason;
    const int count = backend->name_of ? backend->count(&reason) : 0;
    for (int i = 0; i < count; ++i)
      json_array_append_new(names, json_sprintf("%s:%s", backend->name, backend->name_of(i)));
  }
  return names;
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
  const double gbps = json_real_value(json_object_get(device, "memory_gbps"));
  if (json_object_get(device, "simulated") && gbps == 0) {
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT " compute units, each with %s for a work-group", cores,
             term_bytes(l1d, json_integer_value(json_object_get(device, "onchip_bytes"))));
    print_line("cores", text);
  } else if (json_object_get(device, "simulated")) {
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT " vector cores with %s each, %.0f GB/s of memory for all%s",
             cores, term_bytes(l1d, json_integer_value(json_object_get(device, "onchip_bytes"))), gbps,
             json_is_true(json_object_get(device, "simulated")) ? ", by the model" : "");
    print_line("cores", text);
  } else if (cores) {
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
  join(text, sizeof text, json_object_get(device, "borrowed"), NULL);
  print_line("borrowed", text);
  size_t i;
  json_t *sentence;
  json_array_foreach(json_object_get(device, "refused"), i, sentence)
      print_line("refused", json_string_value(sentence));
}

typedef struct devices_options {
  const char *command, *only;
  bool json, self_check;
} devices_options;

static error_t parse(int key, char *argument, struct argp_state *state) {
  devices_options *chosen = state->input;
  switch (key) {
    case 'j': chosen->json = true; return 0;
    case 's': chosen->self_check = true; return 0;
    case ARGP_KEY_ARG:
      if (chosen->only) cli_mistake(chosen->command, "takes one device, but got \"%s\" too", argument);
      chosen->only = argument;
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

int tigon_cli_devices(int argc, char **argv) {
  static const struct argp_option options[] = {
      {"json", 'j', NULL, 0, "Print JSON", 0},
      {"self-check", 's', NULL, 0,
       "Run the self-checks of OpenCL devices that were not run yet; refused entries are always shown", 0},
      {0}};
  static const struct argp argp = {
      options,
      parse,
      "[DEVICE]",
      "Show the devices of this machine, in the order in which a context looks for them, and why others are absent; or "
      "describe DEVICE. Simulators are present on every machine, and used only on request."
      "\vExamples:\n"
      "  tigon devices --json | jq '.devices[] | select(.available) | .name'\n"
      "  tigon devices ascend-sim                    every part that is simulated\n"
      "  tigon devices ascend-sim:910B4              one of them",
      NULL,
      NULL,
      NULL};
  devices_options chosen = {.command = argv[0]};
  if (!cli_parse(&argp, argc, argv, &chosen)) return CLI_OK;

  json_t *devices = find_devices(chosen.command, chosen.only, chosen.self_check), *simulated = simulators();
  char version[32];
  const int number = tigon_version();
  snprintf(version, sizeof version, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
  if (chosen.json) {
    cli_print_json(json_pack("{s:s, s:o, s:o}", "version", version, "devices", devices, "simulated", simulated));
    return CLI_OK;
  }
  if (train_json_lacked()) cli_trouble(chosen.command, "out of memory");
  size_t i;
  json_t *device;
  json_array_foreach(devices, i, device) print_device(device);
  if (!chosen.only) {
    char text[256];
    join(text, sizeof text, simulated, NULL);
    printf("%swhen asked for%s ", term_start(stdout, TERM_DIM), term_start(stdout, TERM_PLAIN));
    term_wrap(stdout, 15, text);
  }
  json_decref(devices);
  json_decref(simulated);
  return CLI_OK;
}
