/* The contexts that calls borrow. One is used by one call at a time and kept for the next, so there are as many as
 * there were calls at once on a device's stream. Without locks, so that the child of a fork() finds none held. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/context.h"
#include "ffi/ffi.h"

enum { MOST_IDLE = 64 };
static ffi_context *_Atomic idle[MOST_IDLE];

void *tigon_ffi_function(void *linked, const char *name) { return linked ? linked : dlsym(RTLD_DEFAULT, name); }

/* NULL, the default stream, where there is no framework that could have set another one. */
static void *current_stream(DLDevice device) {
  if (device.device_type == kDLCPU) return NULL;
  void *(*get)(int32_t, int32_t) = TVMFFIEnvGetStream;
  *(void **)&get = tigon_ffi_function(*(void **)&get, "TVMFFIEnvGetStream");
  return get ? get((int32_t)device.device_type, device.device_id) : NULL;
}

static tigon_status create(DLDevice device, void *stream, ffi_context **created) {
  char name[32] = "cpu";
  if (device.device_type == kDLCUDA) snprintf(name, sizeof name, "cuda:%d", device.device_id);
  ffi_context *made = malloc(sizeof *made);
  if (!made) return tigon_fail(NULL, TIGON_ERROR_OUT_OF_MEMORY, "context: out of memory");
  *made = (ffi_context){.device = device, .stream = stream};
  const tigon_status status =
      tigon_context_create(&(tigon_context_desc){.device = name, .stream = stream}, &made->context);
  if (status != TIGON_OK) free(made);
  *created = status == TIGON_OK ? made : NULL;
  return status;
}

tigon_status tigon_ffi_context_take(DLDevice device, ffi_context **taken) {
  void *stream = current_stream(device);
  for (int i = 0; i < MOST_IDLE; ++i) {
    ffi_context *found = atomic_exchange(&idle[i], NULL);
    if (!found) continue;
    if (found->device.device_type == device.device_type && found->device.device_id == device.device_id &&
        found->stream == stream) {
      *taken = found;
      return TIGON_OK;
    }
    tigon_ffi_context_give(found);
  }
  return create(device, stream, taken);
}

void tigon_ffi_context_give(ffi_context *taken) {
  for (int i = 0; i < MOST_IDLE; ++i) {
    ffi_context *none = NULL;
    if (atomic_compare_exchange_strong(&idle[i], &none, taken)) return;
  }
  tigon_context_destroy(taken->context);
  free(taken);
}
