#include "opencl/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/devices.h"
#include "opencl/tables.h"

enum { PLATFORMS = 16, INTEL = 0x8086 };

static uint64_t number(const cl_api *cl, void *device, unsigned what) {
  uint64_t value = 0; /* 32 or 64 bits are written, on a little-endian host */
  return cl->get_device_info(device, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}
static void text(const cl_api *cl, void *device, unsigned what, char *to, size_t size) {
  to[0] = 0;
  char all[256] = "";
  if (cl->get_device_info(device, what, sizeof all - 1, all, NULL) == CL_SUCCESS) snprintf(to, size, "%s", all);
}

static bool has_extension(const cl_api *cl, void *device, const char *name) {
  size_t bytes = 0;
  if (cl->get_device_info(device, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes) != CL_SUCCESS || bytes == 0) return false;
  char *all = calloc(bytes + 1, 1);
  bool has = false;
  if (all && cl->get_device_info(device, CL_DEVICE_EXTENSIONS, bytes, all, NULL) == CL_SUCCESS) {
    char *rest = NULL;
    for (char *word = strtok_r(all, " ", &rest); word && !has; word = strtok_r(NULL, " ", &rest))
      has = strcmp(word, name) == 0;
  }
  free(all);
  return has;
}

static opencl_subgroups subgroups_of(const cl_api *cl, void *device) {
  if (has_extension(cl, device, "cl_intel_subgroups")) return OPENCL_SUBGROUPS_INTEL;
  char version[64];
  int major = 0;
  text(cl, device, CL_DEVICE_OPENCL_C_VERSION, version, sizeof version);
  const bool second = sscanf(version, "OpenCL C %d", &major) == 1 && major >= 2;
  return second && has_extension(cl, device, "cl_khr_subgroups") ? OPENCL_SUBGROUPS_KHR : OPENCL_SUBGROUPS_NONE;
}

/* NULL, or why the device cannot run our kernels. */
static const char *refusal(const cl_api *cl, void *device) {
  char version[64];
  int major = 0, minor = 0;
  text(cl, device, CL_DEVICE_VERSION, version, sizeof version);
  const uint64_t floats = number(cl, device, CL_DEVICE_SINGLE_FP_CONFIG);
  if (!number(cl, device, CL_DEVICE_AVAILABLE)) return "is not available";
  if (!number(cl, device, CL_DEVICE_COMPILER_AVAILABLE)) return "has no compiler";
  if (!number(cl, device, CL_DEVICE_ENDIAN_LITTLE)) return "is big-endian";
  if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || 10 * major + minor < 12)
    return "is older than OpenCL 1.2";
  if (!(floats & CL_FP_ROUND_TO_NEAREST)) return "does not round f32 to the nearest";
  if (!(floats & CL_FP_INF_NAN)) return "has no infinity or NaN in f32";
  return NULL;
}

static bool is_gpu(const cl_api *cl, void *device) { return number(cl, device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU; }

const char *opencl_gpu_paths[2] = {"/dev/dri", "/dev/dxg"};

int opencl_devices(const cl_api *cl, bool xpu, void *devices[OPENCL_DEVICES], const char **reason) {
  static _Thread_local char why[256];
  void *platforms[PLATFORMS];
  unsigned platform_count = 0;
  int count = 0;
  *reason = "no GPU is there: there is neither /dev/dri nor /dev/dxg";
  if (xpu && access(opencl_gpu_paths[0], F_OK) != 0 && access(opencl_gpu_paths[1], F_OK) != 0) return 0;
  *reason = xpu ? "the OpenCL loader finds no GPU of Intel" : "the OpenCL loader finds no device";
  if (cl->get_platform_ids(PLATFORMS, platforms, &platform_count) != CL_SUCCESS) return 0;
  for (int gpus = 1; gpus >= 0; --gpus)
    for (unsigned p = 0; p < platform_count && p < PLATFORMS; ++p) {
      void *here[OPENCL_DEVICES];
      unsigned found = 0;
      if (cl->get_device_ids(platforms[p], CL_DEVICE_TYPE_ALL, OPENCL_DEVICES, here, &found) != CL_SUCCESS) continue;
      for (unsigned i = 0; i < found && i < OPENCL_DEVICES && count < OPENCL_DEVICES; ++i) {
        const bool gpu = is_gpu(cl, here[i]);
        if (gpu != (gpus == 1) || (xpu && !(gpu && number(cl, here[i], CL_DEVICE_VENDOR_ID) == INTEL))) continue;
        const char *refused = refusal(cl, here[i]);
        if (!refused) devices[count++] = here[i];
        if (!refused) continue;
        char name[128];
        text(cl, here[i], CL_DEVICE_NAME, name, sizeof name);
        snprintf(why, sizeof why, "%s %s", name, refused);
        *reason = why;
      }
    }
  return count;
}

/* A CPU's work-items have whole rows: a group's barriers would cost more than its sums. */
bool opencl_is_cpu(const cl_api *cl, void *device) { return number(cl, device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU; }

static void choose(opencl_device *d, const char *variant) {
  const bool items = strcmp(variant, OPENCL_VARIANT_ITEMS) == 0;
  d->model = items ? OPENCL_ITEMS : OPENCL_GROUPS;
  d->lanes = items ? 16 : 4;
  d->group = 64;
  while (d->group > 1 && d->group > d->most_group) d->group /= 2;
}

bool opencl_describe(opencl_device *d, const char *variant) {
  const cl_api *cl = d->cl;
  const uint64_t floats = number(cl, d->device, CL_DEVICE_SINGLE_FP_CONFIG);
  d->most_group = (int64_t)number(cl, d->device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  d->most_bytes = number(cl, d->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  d->divides_exactly = floats & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  d->flushes = !(floats & CL_FP_DENORM);
  d->svm = number(cl, d->device, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_FINE_GRAIN ? opencl_svm() : NULL;
  choose(d, variant);
  d->desc = (tigon_device){.cores = (int64_t)number(cl, d->device, CL_DEVICE_MAX_COMPUTE_UNITS),
                           .onchip_bytes = (int64_t)number(cl, d->device, CL_DEVICE_LOCAL_MEM_SIZE)};
  text(cl, d->device, CL_DEVICE_NAME, d->desc.name, sizeof d->desc.name);
  if (strcmp(variant, OPENCL_VARIANT_SUBGROUPS) != 0) return true;
  d->subgroups = subgroups_of(cl, d->device);
  return d->subgroups != OPENCL_SUBGROUPS_NONE;
}

void opencl_describe_any(opencl_device *d, const char *variant) {
  d->most_group = 256;
  d->divides_exactly = true;
  choose(d, variant);
  d->desc = (tigon_device){.name = "a GPU of 64 units", .cores = 64, .onchip_bytes = 32 << 10};
}

bool opencl_has_subgroups(const cl_api *cl, void *device) { return subgroups_of(cl, device) != OPENCL_SUBGROUPS_NONE; }

bool opencl_subgroups_here(void) {
  const char *reason;
  const cl_api *cl = opencl_driver(&reason);
  void *devices[OPENCL_DEVICES];
  const int count = cl ? opencl_devices(cl, false, devices, &reason) : 0;
  bool has = false;
  for (int i = 0; i < count && !has; ++i) has = opencl_has_subgroups(cl, devices[i]);
  return has;
}

/* "NAME: OpenCL 3.0 ..., driver 3.1; ...": the devices that run our kernels. */
void tigon_opencl_driver(char *to, size_t size) {
  const char *reason;
  const cl_api *cl = opencl_driver(&reason);
  void *devices[OPENCL_DEVICES];
  const int count = cl ? opencl_devices(cl, false, devices, &reason) : 0;
  size_t used = 0;
  to[0] = 0;
  for (int i = 0; i < count && used < size; ++i) {
    char name[128], version[128], driver[128];
    text(cl, devices[i], CL_DEVICE_NAME, name, sizeof name);
    text(cl, devices[i], CL_DEVICE_VERSION, version, sizeof version);
    text(cl, devices[i], CL_DRIVER_VERSION, driver, sizeof driver);
    used += (size_t)snprintf(to + used, size - used, "%s%s: %s, driver %s", i ? "; " : "", name, version, driver);
  }
}
