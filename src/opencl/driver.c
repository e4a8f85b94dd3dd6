#include "opencl/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "core/outside.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cl_api api;
static cl_svm_api svm;
static bool ready, has_svm;
static _Thread_local char why[256];

#define CL(name, member) \
  { #name, offsetof(cl_api, member) }
static const tigon_symbol symbols[] = {
    CL(clGetPlatformIDs, get_platform_ids),
    CL(clGetDeviceIDs, get_device_ids),
    CL(clGetDeviceInfo, get_device_info),
    CL(clCreateContext, create_context),
    CL(clRetainContext, retain_context),
    CL(clReleaseContext, release_context),
    CL(clCreateCommandQueue, create_command_queue),
    CL(clGetCommandQueueInfo, get_command_queue_info),
    CL(clRetainCommandQueue, retain_command_queue),
    CL(clReleaseCommandQueue, release_command_queue),
    CL(clCreateBuffer, create_buffer),
    CL(clGetMemObjectInfo, get_mem_object_info),
    CL(clRetainMemObject, retain_mem_object),
    CL(clReleaseMemObject, release_mem_object),
    CL(clCreateProgramWithSource, create_program_with_source),
    CL(clCreateProgramWithBinary, create_program_with_binary),
    CL(clBuildProgram, build_program),
    CL(clGetProgramInfo, get_program_info),
    CL(clGetProgramBuildInfo, get_program_build_info),
    CL(clReleaseProgram, release_program),
    CL(clCreateKernel, create_kernel),
    CL(clReleaseKernel, release_kernel),
    CL(clSetKernelArg, set_kernel_arg),
    CL(clEnqueueNDRangeKernel, enqueue_nd_range_kernel),
    CL(clEnqueueReadBuffer, enqueue_read_buffer),
    CL(clEnqueueWriteBuffer, enqueue_write_buffer),
    CL(clEnqueueCopyBuffer, enqueue_copy_buffer),
    CL(clEnqueueFillBuffer, enqueue_fill_buffer),
    CL(clEnqueueMarkerWithWaitList, enqueue_marker),
    CL(clGetEventProfilingInfo, get_event_profiling_info),
    CL(clWaitForEvents, wait_for_events),
    CL(clReleaseEvent, release_event),
    CL(clFinish, finish),
};

static const tigon_symbol svm_symbols[] = {
    {"clSVMAlloc", offsetof(cl_svm_api, alloc)},
    {"clSVMFree", offsetof(cl_svm_api, release)},
    {"clSetKernelArgSVMPointer", offsetof(cl_svm_api, set_kernel_arg)},
};

static bool load(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why, sizeof why, "libOpenCL.so.1 is not found: no OpenCL loader is installed");
    return false;
  }
  cl_api made;
  const char *missing = tigon_symbols_find(library, symbols, sizeof symbols / sizeof *symbols, &made);
  if (missing) {
    snprintf(why, sizeof why, "libOpenCL.so.1 has no %s: the loader is older than OpenCL 1.2", missing);
    dlclose(library);
    return false;
  }
  api = made;
  has_svm = !tigon_symbols_find(library, svm_symbols, sizeof svm_symbols / sizeof *svm_symbols, &svm);
  return true;
}

const cl_api *opencl_driver(const char **reason) {
  pthread_mutex_lock(&lock);
  if (!ready) ready = load();
  const bool there = ready;
  pthread_mutex_unlock(&lock);
  *reason = there ? "" : why;
  return there ? &api : NULL;
}

const cl_svm_api *opencl_svm(void) {
  const char *reason;
  return opencl_driver(&reason) && has_svm ? &svm : NULL;
}
