/* The contexts that calls borrow. One is used by one call at a time and kept for the next, so there are as many as
 * there were calls at once on a device's stream. Without locks, so that the child of a fork() finds none held. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "ffi/ffi.h"

enum { MOST_IDLE = 64 };
static tigon_context *_Atomic idle[MOST_IDLE];

void *tigon_ffi_function(void *linked, const char *name) { return linked ? linked : dlsym(RTLD_DEFAULT, name); }

/* NULL, the default stream, where there is no framework that could have set another one. */
static void *current_stream(DLDevice device) {
  if (device.device_type == kDLCPU) return NULL;
  void *(*get)(int32_t, int32_t) = TVMFFIEnvGetStream;
  *(void **)&get = tigon_ffi_function(*(void **)&get, "TVMFFIEnvGetStream");
  return get ? get((int32_t)device.device_type, device.device_id) : NULL;
}

static const char *backend_of(DLDevice device) {
  switch (device.device_type) {
    case kDLCUDA: return "cuda";
    case kDLOpenCL: return "opencl";
    default: return "cpu";
  }
}

const char *tigon_ffi_device_name(DLDevice device, char text[32]) {
  if (device.device_type == kDLCPU) return "cpu";
  snprintf(text, 32, "%s:%d", backend_of(device), device.device_id);
  return text;
}

tigon_status tigon_ffi_context_take(DLDevice device, tigon_context **taken) {
  const char *backend = backend_of(device);
  void *stream = current_stream(device);
  for (int i = 0; i < MOST_IDLE; ++i) {
    tigon_context *found = atomic_exchange(&idle[i], NULL);
    if (!found) continue;
    if (strcmp(tigon_context_device(found), backend) == 0 && found->index == device.device_id &&
        found->queue.stream == stream) {
      *taken = found;
      return TIGON_OK;
    }
    tigon_ffi_context_give(found);
  }
  char name[32];
  const tigon_context_desc desc = {.device = tigon_ffi_device_name(device, name), .stream = stream};
  return tigon_context_create(&desc, taken);
}

void tigon_ffi_context_give(tigon_context *taken) {
  for (int i = 0; i < MOST_IDLE; ++i) {
    tigon_context *none = NULL;
    if (atomic_compare_exchange_strong(&idle[i], &none, taken)) return;
  }
  tigon_context_destroy(taken);
}
