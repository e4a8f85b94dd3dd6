#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cu_api api;
static bool ready;
static _Thread_local char why[256];

/* The driver's name of a function, and the member. The library interface came with driver 525 (CUDA 12.0). */
#define CU_FUNCTIONS(X)                                         \
  X("cuInit", init)                                             \
  X("cuDriverGetVersion", driver_get_version)                   \
  X("cuGetErrorName", get_error_name)                           \
  X("cuGetErrorString", get_error_string)                       \
  X("cuDeviceGetCount", device_get_count)                       \
  X("cuDeviceGet", device_get)                                  \
  X("cuDeviceGetName", device_get_name)                         \
  X("cuDeviceGetAttribute", device_get_attribute)               \
  X("cuDevicePrimaryCtxRetain", device_primary_ctx_retain)      \
  X("cuDevicePrimaryCtxRelease_v2", device_primary_ctx_release) \
  X("cuCtxGetCurrent", ctx_get_current)                         \
  X("cuCtxPushCurrent_v2", ctx_push_current)                    \
  X("cuCtxPopCurrent_v2", ctx_pop_current)                      \
  X("cuStreamCreate", stream_create)                            \
  X("cuStreamDestroy_v2", stream_destroy)                       \
  X("cuStreamSynchronize", stream_synchronize)                  \
  X("cuMemAlloc_v2", mem_alloc)                                 \
  X("cuMemFree_v2", mem_free)                                   \
  X("cuMemcpyAsync", memcpy_async)                              \
  X("cuMemsetD8Async", memset_d8_async)                         \
  X("cuEventCreate", event_create)                              \
  X("cuEventDestroy_v2", event_destroy)                         \
  X("cuEventRecord", event_record)                              \
  X("cuEventSynchronize", event_synchronize)                    \
  X("cuEventElapsedTime", event_elapsed_time)                   \
  X("cuLibraryLoadData", library_load_data)                     \
  X("cuLibraryGetKernel", library_get_kernel)                   \
  X("cuKernelSetAttribute", kernel_set_attribute)               \
  X("cuLaunchKernelEx", launch_kernel_ex)

/* The name of the first function that `library` lacks; NULL: none. */
static const char *resolve(void *library, cu_api *made) {
  void *symbol;
#define CU_RESOLVE(name, member)                     \
  if (!(symbol = dlsym(library, name))) return name; \
  memcpy(&made->member, &symbol, sizeof made->member);
  CU_FUNCTIONS(CU_RESOLVE)
#undef CU_RESOLVE
  return NULL;
}

static bool load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why, sizeof why, "libcuda.so.1 is not found: NVIDIA's driver is not installed");
    return false;
  }
  cu_api made;
  const char *missing = resolve(library, &made);
  if (missing) {
    snprintf(why, sizeof why, "libcuda.so.1 has no %s: the driver is older than 525 (CUDA 12.0)", missing);
    dlclose(library);
    return false;
  }
  const int code = made.init(0);
  if (code != CU_SUCCESS) {
    const char *name = "an unknown code";
    made.get_error_name(code, &name);
    snprintf(why, sizeof why, "cuInit returned %d (%s)", code, name);
    return false;
  }
  api = made;
  return true;
}

const cu_api *cuda_driver(const char **reason) {
  pthread_mutex_lock(&lock);
  if (!ready) ready = load();
  const bool there = ready;
  pthread_mutex_unlock(&lock);
  *reason = there ? "" : why;
  return there ? &api : NULL;
}
