/* An OpenCL driver of ours: buffers are memory of the host, and of all kernels it knows relu_squared_fwd, without a compiler; others compute
 * nothing. */
#include "driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/half.h"
#include "opencl/driver.h"
#include "opencl/kernel/map.h"

enum { INVALID_VALUE = -30, INVALID_BINARY = -42, BUILD_FAILURE = -11, ARGUMENTS = 32, TEXT = 512 };

static bool is(const char *word) {
  const char *words = getenv("FAKE_OPENCL");
  return words && strstr(words, word);
}

static atomic_int builds, alive;
int fake_opencl_builds(void) { return builds; }
int fake_opencl_alive(void) { return alive; }

/* ---- objects ---- */

typedef struct object {
  atomic_int count;
  void *context, *device;
  size_t bytes; /* bytes of a buffer */
  char *data;
  char text[TEXT]; /* a program's options, a kernel's name */
  struct object *program;
  struct {
    size_t bytes;
    char value[1024];
  } arguments[ARGUMENTS];
  uint64_t time; /* time of an event */
} object;

/* With `bytes` of data; NULL: no memory, which *code says, too. */
static object *make(size_t bytes, int *code) {
  object *o = calloc(1, sizeof *o);
  if (o && bytes) o->data = calloc(bytes, 1);
  *code = o && (o->data || !bytes) ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
  if (*code != CL_SUCCESS) {
    free(o);
    return NULL;
  }
  o->count = 1;
  o->bytes = bytes;
  ++alive;
  return o;
}
static int retain(void *of) {
  ++((object *)of)->count;
  return 0;
}
static int release(void *of) {
  object *o = of;
  if (--o->count > 0) return 0;
  free(o->data);
  free(o);
  --alive;
  return 0;
}
static int give(size_t size, void *value, size_t *found, const void *from, size_t bytes) {
  if (found) *found = bytes;
  if (value && size < bytes) return INVALID_VALUE;
  if (value) memcpy(value, from, bytes);
  return 0;
}
#define GIVE(type, ...) give(size, value, found, &(type){__VA_ARGS__}, sizeof(type))
#define GIVE_TEXT(text) give(size, value, found, text, strlen(text) + 1)

/* ---- devices ---- */

static char platform, cpu, gpu;

int clGetPlatformIDs(unsigned room, void **platforms, unsigned *count) {
  if (count) *count = 1;
  if (platforms && room > 0) platforms[0] = &platform;
  return 0;
}
int clGetDeviceIDs(void *of, uint64_t type, unsigned room, void **devices, unsigned *count) {
  (void)of, (void)type;
  void *all[] = {&cpu, &gpu};
  const unsigned there = is("none") ? 0 : is("intel") ? 2 : 1;
  if (there == 0) return CL_DEVICE_NOT_FOUND;
  for (unsigned i = 0; i < there && i < room; ++i) devices[i] = all[i];
  *count = there;
  return 0;
}
int clGetDeviceInfo(void *device, unsigned what, size_t size, void *value, size_t *found) {
  const char *words = getenv("FAKE_OPENCL");
  const uint64_t floats = (is("flush") ? 0 : CL_FP_DENORM) | (is("finite") ? 0 : CL_FP_INF_NAN) |
                          (is("unround") ? 0 : CL_FP_ROUND_TO_NEAREST) |
                          (is("inexact") ? 0 : CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT);
  switch (what) {
    case CL_DEVICE_TYPE: return GIVE(uint64_t, device == &gpu ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU);
    case CL_DEVICE_VENDOR_ID: return GIVE(unsigned, device == &gpu ? 0x8086 : 1);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return GIVE(unsigned, 2);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return GIVE(size_t, 256);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return GIVE(uint64_t, 1 << 24);
    case CL_DEVICE_SINGLE_FP_CONFIG: return GIVE(uint64_t, floats);
    case CL_DEVICE_LOCAL_MEM_SIZE: return GIVE(uint64_t, 32768);
    case CL_DEVICE_ENDIAN_LITTLE:
    case CL_DEVICE_AVAILABLE: return GIVE(unsigned, 1);
    case CL_DEVICE_COMPILER_AVAILABLE: return GIVE(unsigned, !is("blind"));
    case CL_DEVICE_NAME: return GIVE_TEXT(device == &gpu ? "Fake GPU" : "Fake CPU");
    case CL_DRIVER_VERSION: return GIVE_TEXT(words ? words : ""); /* another driver */
    case CL_DEVICE_VERSION: return GIVE_TEXT(is("old") ? "OpenCL 1.1 fake" : "OpenCL 3.0 fake");
    case CL_DEVICE_OPENCL_C_VERSION: return GIVE_TEXT("OpenCL C 1.2 fake");
    case CL_DEVICE_EXTENSIONS:
      return GIVE_TEXT(device == &gpu && is("subgroups") ? "cl_intel_subgroups" : "cl_khr_byte_addressable_store");
    default: return INVALID_VALUE;
  }
}

/* ---- contexts, queues, buffers ---- */

void *clCreateContext(const intptr_t *properties, unsigned count, void *const *devices, void *notify, void *data,
                      int *code) {
  (void)properties, (void)count, (void)notify, (void)data;
  object *o = make(0, code);
  if (o) o->device = devices[0];
  return o;
}
int clRetainContext(void *context) { return retain(context); }
int clReleaseContext(void *context) { return release(context); }

void *clCreateCommandQueue(void *context, void *device, uint64_t properties, int *code) {
  (void)properties;
  object *o = make(0, code);
  if (o) o->context = context, o->device = device;
  return o;
}
int clGetCommandQueueInfo(void *queue, unsigned what, size_t size, void *value, size_t *found) {
  const object *q = queue;
  if (what == CL_QUEUE_CONTEXT) return GIVE(void *, q->context);
  if (what == CL_QUEUE_DEVICE) return GIVE(void *, q->device);
  return what == CL_QUEUE_PROPERTIES ? GIVE(uint64_t, is("disorder") ? CL_QUEUE_OUT_OF_ORDER : 0) : INVALID_VALUE;
}
int clRetainCommandQueue(void *queue) { return retain(queue); }
int clReleaseCommandQueue(void *queue) { return release(queue); }
int clFinish(void *queue) { return (void)queue, 0; }

void *clCreateBuffer(void *context, uint64_t flags, size_t bytes, void *host, int *code) {
  (void)flags, (void)host;
  object *o = make(bytes, code);
  if (o) o->context = context;
  return o;
}
int clGetMemObjectInfo(void *memory, unsigned what, size_t size, void *value, size_t *found) {
  const object *o = memory;
  return what == CL_MEM_SIZE      ? GIVE(size_t, o->bytes)
         : what == CL_MEM_CONTEXT ? GIVE(void *, o->context)
                                  : INVALID_VALUE;
}
char *fake_opencl_data(void *buffer) { return ((object *)buffer)->data; }
int clRetainMemObject(void *memory) { return retain(memory); }
int clReleaseMemObject(void *memory) { return release(memory); }

/* ---- copies: done at once ---- */

static int event_of(void **event) {
  struct timespec now;
  int code;
  if (!event) return 0;
  object *o = make(0, &code);
  if (!o) return code;
  clock_gettime(CLOCK_MONOTONIC, &now);
  o->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  *event = o;
  return 0;
}
static bool holds(const object *buffer, size_t offset, size_t bytes) {
  return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}
#define WAITS unsigned waits, void *const *events, void **event
#define DONE return (void)queue, (void)waits, (void)events, event_of(event)

int clEnqueueReadBuffer(void *queue, void *memory, unsigned blocking, size_t offset, size_t bytes, void *to, WAITS) {
  const object *o = memory;
  if (!blocking || !holds(o, offset, bytes)) return INVALID_VALUE;
  memcpy(to, o->data + offset, bytes);
  DONE;
}
int clEnqueueWriteBuffer(void *queue, void *memory, unsigned blocking, size_t offset, size_t bytes, const void *from,
                         WAITS) {
  const object *o = memory;
  if (!blocking || !holds(o, offset, bytes)) return INVALID_VALUE;
  memcpy(o->data + offset, from, bytes);
  DONE;
}
int clEnqueueCopyBuffer(void *queue, void *from, void *to, size_t from_offset, size_t to_offset, size_t bytes, WAITS) {
  const object *x = from, *y = to;
  if (!holds(x, from_offset, bytes) || !holds(y, to_offset, bytes)) return INVALID_VALUE;
  memcpy(y->data + to_offset, x->data + from_offset, bytes);
  DONE;
}
int clEnqueueFillBuffer(void *queue, void *memory, const void *pattern, size_t pattern_bytes, size_t offset,
                        size_t bytes, WAITS) {
  const object *o = memory;
  if (pattern_bytes != 1 || !holds(o, offset, bytes)) return INVALID_VALUE;
  memset(o->data + offset, *(const unsigned char *)pattern, bytes);
  DONE;
}
int clEnqueueMarkerWithWaitList(void *queue, WAITS) { DONE; }
int clGetEventProfilingInfo(void *event, unsigned what, size_t size, void *value, size_t *found) {
  (void)what;
  return GIVE(uint64_t, ((const object *)event)->time);
}
int clWaitForEvents(unsigned count, void *const *events) { return (void)count, (void)events, 0; }
int clReleaseEvent(void *event) { return release(event); }

/* ---- programs: a binary is the word "fake" ---- */

void *clCreateProgramWithSource(void *context, unsigned count, const char **text, const size_t *lengths, int *code) {
  (void)count, (void)lengths;
  object *o = make(0, code);
  if (o) o->context = context, o->bytes = strlen(text[0]);
  return o;
}
void *clCreateProgramWithBinary(void *context, unsigned count, void *const *devices, const size_t *lengths,
                                const unsigned char **binaries, int *status, int *code) {
  (void)count, (void)devices;
  *status = *code = lengths[0] == 4 && memcmp(binaries[0], "fake", 4) == 0 ? 0 : INVALID_BINARY;
  if (*code) return NULL;
  object *o = make(0, code);
  if (o) o->context = context;
  return o;
}
int clBuildProgram(void *program, unsigned count, void *const *devices, const char *options, void *notify, void *data) {
  (void)count, (void)devices, (void)notify, (void)data;
  object *o = program;
  snprintf(o->text, sizeof o->text, "%s", options);
  if (o->bytes) ++builds;
  return is("broken") ? BUILD_FAILURE : 0;
}
int clGetProgramInfo(void *program, unsigned what, size_t size, void *value, size_t *found) {
  (void)program;
  if (what == CL_PROGRAM_BINARY_SIZES) return GIVE(size_t, 4);
  if (what != CL_PROGRAM_BINARIES || size != sizeof(void *)) return INVALID_VALUE;
  memcpy(*(char **)value, "fake", 4);
  return 0;
}
int clGetProgramBuildInfo(void *program, void *device, unsigned what, size_t size, void *value, size_t *found) {
  (void)program, (void)device, (void)what;
  return GIVE_TEXT("line 1:\nno such thing");
}
int clReleaseProgram(void *program) { return release(program); }

void *clCreateKernel(void *program, const char *name, int *code) {
  object *o = make(0, code);
  if (!o) return NULL;
  o->program = program;
  snprintf(o->text, sizeof o->text, "%s", name);
  return o;
}
int clReleaseKernel(void *kernel) { return release(kernel); }
int clSetKernelArg(void *kernel, unsigned index, size_t size, const void *value) {
  object *o = kernel;
  if (index >= ARGUMENTS || size > sizeof o->arguments[0].value) return INVALID_VALUE;
  o->arguments[index].bytes = size;
  memcpy(o->arguments[index].value, value, size);
  return 0;
}

static char *memory_of(const object *kernel, int tensor) {
  object *buffer;
  uint64_t offset;
  memcpy(&buffer, kernel->arguments[2 * tensor].value, sizeof buffer);
  memcpy(&offset, kernel->arguments[2 * tensor + 1].value, sizeof offset);
  return buffer->data + offset;
}
static int64_t offset_of(const tigon_row_space *space, const cl_pitch *pitch, int64_t r) {
  const int64_t k = r % space->inner, ij = r / space->inner;
  return ij / space->middle * pitch->of[0] + ij % space->middle * pitch->of[1] + k * pitch->of[2];
}
static void relu_squared(const object *kernel) {
  map_numbers n;
  memcpy(&n, kernel->arguments[2 * MAP_TENSORS].value, sizeof n);
  const char *x = memory_of(kernel, 0), *type = strstr(kernel->program->text, "-DT=");
  char *y = memory_of(kernel, 1);
  const tigon_dtype dtype = (tigon_dtype)(type[4] - '0');
  const int64_t cols = n.cols - is("wrong");
  for (int64_t r = 0; r < n.space.rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const double v = tigon_load_f64(x, offset_of(&n.space, &n.pitch[0], r) + c, dtype), relu = v < 0 ? 0 : v;
      tigon_store_f64(y, offset_of(&n.space, &n.pitch[1], r) + c, dtype, relu * relu);
    }
}
int clEnqueueNDRangeKernel(void *queue, void *kernel, unsigned dims, const size_t *offset, const size_t *global,
                           const size_t *local, WAITS) {
  const object *k = kernel;
  if (dims != 2 || offset || global[0] % local[0] || global[1] % local[1]) return INVALID_VALUE;
  if (strcmp(k->text, "relu_squared_fwd") == 0) relu_squared(k);
  DONE;
}
