/* OpenCL devices as backends, over the ICD loader that is found at run time: "opencl" has all of them, "xpu" Intel's GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/context.h"
#include "opencl/clblast.h"
#include "opencl/copy.h"
#include "opencl/devices.h"
#include "opencl/program.h"
#include "opencl/self_check.h"
#include "opencl/tables.h"

static _Thread_local char why[320];

static int count_of(bool xpu, const char **reason) {
  const cl_api *cl = opencl_driver(reason);
  void *devices[OPENCL_DEVICES];
  return cl ? opencl_devices(cl, xpu, devices, reason) : 0;
}
static int opencl_count(const char **reason) { return count_of(false, reason); }
static int xpu_count(const char **reason) { return count_of(true, reason); }

/* ---- memory ---- */

static tigon_status allocate(tigon_queue *queue, size_t bytes, void **memory) {
  opencl_device *d = opencl_of(queue);
  int code;
  *memory = NULL;
  if (bytes > d->most_bytes) {
    snprintf(d->reason, sizeof d->reason, "a buffer of %s has %llu bytes at most", d->desc.name,
             (unsigned long long)d->most_bytes);
    queue->reason = d->reason;
    return TIGON_ERROR_OUT_OF_MEMORY;
  }
  void *buffer = d->cl->create_buffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  TIGON_TRY(opencl_check(queue, code, "clCreateBuffer"));
  *memory = opencl_range_add(d->context, buffer, bytes);
  if (*memory) return TIGON_OK;
  d->cl->release_mem_object(buffer);
  return queue->reason = "no addresses are left for a buffer", TIGON_ERROR_OUT_OF_MEMORY;
}

static void release(tigon_queue *queue, void *memory) {
  const opencl_device *d = opencl_of(queue);
  opencl_place had;
  if (!memory || !opencl_range_remove(d->context, memory, &had)) return;
  d->cl->finish(d->stream); /* what is enqueued may use it */
  if (had.shared)
    d->svm->release(d->context, had.shared);
  else
    d->cl->release_mem_object(had.buffer);
}

/* ---- opening ---- */

/* The caller's own queue says which device and context it is of. */
static tigon_status take_stream(tigon_queue *queue, const char **reason, void **context) {
  opencl_device *d = opencl_of(queue);
  void *device = NULL, *stream = queue->stream;
  uint64_t properties = 0;
  *context = NULL;
  if (!stream) return TIGON_OK;
  if (d->cl->get_command_queue_info(stream, CL_QUEUE_CONTEXT, sizeof *context, context, NULL) != CL_SUCCESS ||
      d->cl->get_command_queue_info(stream, CL_QUEUE_DEVICE, sizeof device, &device, NULL) != CL_SUCCESS ||
      d->cl->get_command_queue_info(stream, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL) != CL_SUCCESS)
    return *reason = "stream is no cl_command_queue", TIGON_ERROR_INVALID;
  if (properties & CL_QUEUE_OUT_OF_ORDER)
    return *reason = "stream is a queue that runs commands out of order, must be one in order", TIGON_ERROR_INVALID;
  if (device != d->device) return *reason = "stream is a queue of another device", TIGON_ERROR_INVALID;
  return TIGON_OK;
}

enum { LINE = 64 /* bytes of the error flag, and of the sink */ };

static tigon_status open_in_room(tigon_queue *queue) {
  opencl_device *d = opencl_of(queue);
  int code = CL_SUCCESS;
  d->context = opencl_room_context(d->room);
  void *stream = queue->stream ? queue->stream : opencl_room_stream(d->room, &code);
  TIGON_TRY(opencl_check(queue, code, "clCreateCommandQueue"));
  TIGON_TRY(opencl_check(queue, d->cl->retain_command_queue(stream), "clRetainCommandQueue"));
  d->stream = stream;
  void *flag = NULL;
  TIGON_TRY(allocate(queue, 2 * LINE + OPENCL_SCRATCH, &flag));
  queue->error_flag = flag;
  d->sink = (char *)flag + LINE;
  return opencl_fill(queue, flag, 0, 2 * LINE);
}

static void opencl_close(tigon_queue *queue) {
  opencl_device *d = opencl_of(queue);
  if (d->stream) {
    release(queue, queue->error_flag);
    if (d->begin) d->cl->release_event(d->begin);
    for (int i = 0; i < OPENCL_KERNELS; ++i)
      if (d->kernels[i].handle) d->cl->release_kernel(d->kernels[i].handle);
    d->cl->release_command_queue(d->stream);
  }
  queue->error_flag = NULL;
  free(d);
}

static tigon_status open_of(bool xpu, int index, tigon_queue *queue, const char **reason) {
  const cl_api *cl = opencl_driver(reason);
  void *devices[OPENCL_DEVICES];
  if (!cl) return TIGON_ERROR_DEVICE;
  if (index >= opencl_devices(cl, xpu, devices, reason)) return TIGON_ERROR_DEVICE;
  opencl_device *d = calloc(1, sizeof *d);
  if (!d) return *reason = "out of memory", TIGON_ERROR_OUT_OF_MEMORY;
  d->cl = cl, d->device = devices[index], d->index = index;
  queue->state = d;
  void *context;
  int code;
  tigon_status status = TIGON_OK;
  if (!opencl_describe(d, queue->variant)) {
    *reason = "it has neither cl_intel_subgroups nor, in OpenCL C 2.0, cl_khr_subgroups";
    status = TIGON_ERROR_UNSUPPORTED;
  }
  if (status == TIGON_OK) status = opencl_choose_gemm(d, reason);
  if (status == TIGON_OK) status = take_stream(queue, reason, &context);
  if (status == TIGON_OK) {
    d->room = opencl_room_of(cl, d->device, context, &code);
    status = d->room ? open_in_room(queue) : opencl_check(queue, code, "clCreateContext");
    if (status != TIGON_OK) {
      snprintf(why, sizeof why, "%s", queue->reason);
      *reason = why;
    }
  }
  if (status != TIGON_OK) opencl_close(queue);
  return status;
}
static tigon_status opencl_open(int index, tigon_queue *queue, const char **reason) {
  return open_of(false, index, queue, reason);
}
static tigon_status xpu_open(int index, tigon_queue *queue, const char **reason) {
  return open_of(true, index, queue, reason);
}

/* ---- the tables ---- */

static const tigon_kernels *best(int index) {
  const char *reason;
  const cl_api *cl = opencl_driver(&reason);
  void *devices[OPENCL_DEVICES];
  const bool is_here = cl && index < opencl_devices(cl, false, devices, &reason);
  return is_here && opencl_is_cpu(cl, devices[index]) ? &tigon_opencl_items : &tigon_opencl_groups;
}

static bool runs(const tigon_queue *queue, const tigon_kernels *kernels) {
  const opencl_device *d = opencl_of(queue);
  return strcmp(kernels->variant, OPENCL_VARIANT_SUBGROUPS) != 0 || opencl_has_subgroups(d->cl, d->device);
}

static const char *built(const tigon_queue *queue) {
  static _Thread_local char options[OPENCL_OPTIONS];
  opencl_options(opencl_of(queue), TIGON_F32, options);
  return options;
}

/* "opencl" and its variants' names are of a GPU that need not be here. */
static const tigon_kernels *open_described(const char *name, tigon_queue *queue) {
  const tigon_kernels *const *kernels = tigon_opencl_all;
  if (strcasecmp(name, "opencl") == 0) name = (*kernels)->variant;
  while (*kernels && strcasecmp((*kernels)->variant, name) != 0) ++kernels;
  opencl_device *d = *kernels ? calloc(1, sizeof *d) : NULL;
  if (!d) return NULL;
  opencl_describe_any(d, (*kernels)->variant);
  queue->state = d;
  return *kernels;
}

static tigon_status opencl_sync(tigon_queue *queue) {
  return opencl_check(queue, opencl_of(queue)->cl->finish(opencl_of(queue)->stream), "clFinish");
}

static const tigon_device *describe(const tigon_queue *queue) { return &opencl_of(queue)->desc; }

/* OpenCL allows 2.5 ULP of a division, and 3 of sqrt. */
static tigon_precision precision(const tigon_queue *queue) {
  const opencl_device *d = opencl_of(queue);
  return (tigon_precision){d->divides_exactly ? 0 : 3, d->flushes, true};
}

static const char *gemm(const tigon_queue *queue) {
  return opencl_of(queue)->sgemm ? "CLBlast: run_to_run (f32); built-in: run_to_run (bf16, f16)"
                                 : "built-in: run_to_run";
}

#define OPENCL_BACKEND(name_, count_, open_, best_, described)                                                   \
  {                                                                                                              \
    .abi = TIGON_BACKEND_ABI, .name = name_, .count = count_, .variants = tigon_opencl_variants, .open = open_,  \
    .close = opencl_close, .sync = opencl_sync, .alloc = allocate, .free = release, .copy = opencl_copy,         \
    .fill = opencl_fill, .copy_rows = opencl_copy_rows, .describe = describe, .precision = precision,            \
    .time = opencl_time, .stream = opencl_stream, .gemm = gemm, .refused = opencl_refused,                       \
    .open_described = described, .best = best_, .runs = runs, .built = built, .variant_variable = "TIGON_OPENCL" \
  }
const tigon_backend tigon_xpu_backend = OPENCL_BACKEND("xpu", xpu_count, xpu_open, NULL, NULL);
const tigon_backend tigon_opencl_backend = OPENCL_BACKEND("opencl", opencl_count, opencl_open, best, open_described);
