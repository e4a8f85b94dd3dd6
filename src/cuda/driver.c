#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "core/outside.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cu_api api;
static bool ready;
static _Thread_local char why[256];

/* The driver's name of a function, and the member. The library interface and tensor maps came with driver 525 (CUDA 12.0). */
#define CU(name, member) \
  { #name, offsetof(cu_api, member) }
static const tigon_symbol symbols[] = {
    CU(cuInit, init),
    CU(cuDriverGetVersion, driver_get_version),
    CU(cuGetErrorName, get_error_name),
    CU(cuGetErrorString, get_error_string),
    CU(cuDeviceGetCount, device_get_count),
    CU(cuDeviceGet, device_get),
    CU(cuDeviceGetName, device_get_name),
    CU(cuDeviceGetAttribute, device_get_attribute),
    CU(cuDevicePrimaryCtxRetain, device_primary_ctx_retain),
    CU(cuDevicePrimaryCtxRelease_v2, device_primary_ctx_release),
    CU(cuCtxGetCurrent, ctx_get_current),
    CU(cuCtxPushCurrent_v2, ctx_push_current),
    CU(cuCtxPopCurrent_v2, ctx_pop_current),
    CU(cuStreamCreate, stream_create),
    CU(cuStreamDestroy_v2, stream_destroy),
    CU(cuStreamSynchronize, stream_synchronize),
    CU(cuMemAlloc_v2, mem_alloc),
    CU(cuMemFree_v2, mem_free),
    CU(cuMemcpyAsync, memcpy_async),
    CU(cuMemsetD8Async, memset_d8_async),
    CU(cuEventCreate, event_create),
    CU(cuEventDestroy_v2, event_destroy),
    CU(cuEventRecord, event_record),
    CU(cuEventSynchronize, event_synchronize),
    CU(cuEventElapsedTime, event_elapsed_time),
    CU(cuLibraryLoadData, library_load_data),
    CU(cuLibraryGetKernel, library_get_kernel),
    CU(cuKernelSetAttribute, kernel_set_attribute),
    CU(cuLaunchKernelEx, launch_kernel_ex),
    CU(cuTensorMapEncodeTiled, tensor_map_encode_tiled),
};

static bool load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why, sizeof why, "libcuda.so.1 is not found: NVIDIA's driver is not installed");
    return false;
  }
  cu_api made;
  const char *missing = tigon_symbols_find(library, symbols, sizeof symbols / sizeof *symbols, &made);
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
