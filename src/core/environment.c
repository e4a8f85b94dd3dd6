/* tigon_environment(): the facts of a report, from where each of them is known. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <tigon/environment.h>

#include "core/context.h"
#include "core/devices.h"
#include "core/machine.h"
#include "core/text.h"
#include "opencl/program.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

extern char **environ;

/* Every variable of ours that something reads: this library, or the Python package. tests/cli/env.sh compares with the code. */
static const char *const ours[] = {
    "TIGON_ASCEND_CORES",
    "TIGON_ASCEND_KERNELS",
    "TIGON_ASCEND_PART",
    "TIGON_ASCEND_SIM_FLUSH",
    "TIGON_ASCEND_SIM_NOISE",
    "TIGON_ASCEND_SIM_ORDER",
    "TIGON_ASCEND_UB_BYTES",
    "TIGON_CPU",
    "TIGON_CPU_POOL",
    "TIGON_CUDA_ATTENTION",
    "TIGON_GEMM",
    "TIGON_HEAD_WORKSPACE",
    "TIGON_LIBRARY",
    "TIGON_OPENCL",
    "TIGON_OPENCL_CACHE",
    "TIGON_OPENCL_TRUST",
};
/* Others that change what we, or libraries that we call, do. None of these families holds a secret. */
static const char *const others[] = {
    "OMP_",           "GOMP_",  "KMP_",     "OPENBLAS_", "MKL_",  "DNNL_",    "ONEDNN_",         "CUDA_",
    "NVIDIA_",        "CUBLAS", "ASCEND_",  "ACL_",      "OCL_",  "POCL_",    "LD_LIBRARY_PATH", "LD_PRELOAD",
    "XDG_CACHE_HOME", "TORCH_", "PYTORCH_", "TRITON_",   "NCCL_", "NO_COLOR",
};
enum { OURS = sizeof ours / sizeof *ours, OTHERS = sizeof others / sizeof *others, MOST_VARIABLES = 512 };

typedef struct telling {
  tigon_environment_fn *show;
  void *user;
} telling;

__attribute__((format(printf, 4, 5))) static void tell(const telling *t, const char *part, const char *name,
                                                       const char *format, ...) {
  char text[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  t->show(t->user, part, name, text);
}

static void tell_build(const telling *t) {
  const int version = tigon_version();
  tell(t, "tigon", "version", "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  tell(t, "tigon", "commit", "%s", TIGON_COMMIT);
  tell(t, "tigon", "compiler", "%s", TIGON_COMPILER);
  tell(t, "tigon", "build", "%s", TIGON_BUILD);
}

/* The value of PRETTY_NAME in /etc/os-release, without its quotes. */
static void distribution(char *name, size_t size) {
  char line[256];
  FILE *file = fopen("/etc/os-release", "re");
  snprintf(name, size, "not known");
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, "PRETTY_NAME=", 12) != 0) continue;
    const char *value = line + 12 + strspn(line + 12, "\"'");
    snprintf(name, size, "%.*s", (int)strcspn(value, "\"'\n"), value);
  }
  if (file) fclose(file);
}

static void tell_system(const telling *t) {
  struct utsname system;
  char name[128];
  tigon_machine machine;
  tigon_machine_read(&machine);
  distribution(name, sizeof name);
  if (uname(&system) == 0)
    tell(t, "system", "os", "%s; %s %s %s", name, system.sysname, system.release, system.machine);
#ifdef __GLIBC__
  tell(t, "system", "libc", "glibc %s", gnu_get_libc_version());
#else
  tell(t, "system", "libc", "not glibc");
#endif
  tell(t, "system", "cpu", "%s, %d cores for this process", machine.model, machine.cores);
  tell(t, "system", "features", "%s", machine.features);
}

static void tell_drivers(const telling *t) {
  static const struct {
    const char *name;
    void (*says)(char *text, size_t size);
  } drivers[] = {{"cuda", tigon_cuda_driver}, {"npu", tigon_npu_driver}, {"opencl", tigon_opencl_driver}};
  char text[1024];
  for (size_t i = 0; i < sizeof drivers / sizeof *drivers; ++i) {
    drivers[i].says(text, sizeof text);
    tell(t, "drivers", drivers[i].name, "%s", text[0] ? text : "not there");
  }
}

static void tell_device(const telling *t, const tigon_backend *backend, const char *name) {
  tigon_context *context;
  const tigon_context_desc desc = {.device = name};
  char variants[256] = "";
  if (tigon_context_create(&desc, &context) != TIGON_OK) {
    tell(t, "devices", name, "not there: %s", tigon_last_error(NULL));
    return;
  }
  for (const tigon_kernels *const *v = backend->variants(); *v; ++v)
    if (tigon_queue_runs(&context->queue, *v))
      tigon_append(variants, sizeof variants, "%s%s", *variants ? " " : "", (*v)->variant);
  char what[64];
  if (backend->host_memory)
    snprintf(what, sizeof what, "%d threads", context->queue.threads);
  else
    snprintf(what, sizeof what, "%s", context->device->name);
  tell(t, "devices", name, "%s; variant %s of %s; GEMM %s", what, context->kernels->variant, variants,
       tigon_context_gemm(context));
  tigon_context_destroy(context);
}

static void tell_devices(const telling *t) {
  const tigon_backend *backend;
  for (int b = 0; (backend = tigon_backend_at(b)); ++b) {
    const char *reason = "";
    char name[TIGON_DEVICE_NAME];
    const int count = backend->count(&reason);
    if (count == 0) tell(t, "devices", backend->name, "not there: %s", reason);
    for (int i = 0; i < count && !backend->name_of; ++i) { /* simulators are there on every machine */
      tigon_backend_device_name(backend, i, count, name);
      tell_device(t, backend, name);
    }
  }
}

static bool begins(const char *text, const char *const *list, int count, bool whole) {
  for (int i = 0; i < count; ++i) {
    const size_t length = strlen(list[i]);
    if (strncmp(text, list[i], length) == 0 && (!whole || text[length] == '=')) return true;
  }
  return false;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void tell_variables(const telling *t) {
  const char *set[MOST_VARIABLES] = {NULL};
  char path[OPENCL_PATH];
  int count = 0;
  for (char **one = environ; one && *one && count < MOST_VARIABLES; ++one)
    if (strchr(*one, '=') && (strncmp(*one, "TIGON_", 6) == 0 || begins(*one, others, OTHERS, false)))
      set[count++] = *one;
  qsort(set, (size_t)count, sizeof *set, by_text);
  for (int i = 0; i < count; ++i) {
    char name[256];
    const char *value = strchr(set[i], '=');
    const bool unknown = strncmp(set[i], "TIGON_", 6) == 0 && !begins(set[i], ours, OURS, true);
    snprintf(name, sizeof name, "%.*s", (int)(value - set[i]), set[i]);
    tell(t, unknown ? "unknown" : "environment", name, "%s", value + 1);
  }
  tell(t, "environment", "(OpenCL's kernels)", "%s", opencl_cache_folder(path) ? path : "not kept");
}

void tigon_environment(tigon_environment_fn *show, void *user) {
  const telling t = {show, user};
  tell_build(&t);
  tell_system(&t);
  tell_drivers(&t);
  tell_devices(&t);
  tell_variables(&t);
}
