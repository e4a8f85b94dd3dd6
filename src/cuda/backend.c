/* NVIDIA GPUs as a backend, over the driver that is found at run time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/devices.h"
#include "cuda/blaslt.h"
#include "cuda/copy.h"
#include "cuda/cuda.h"
#include "cuda/images.h"
#include "cuda/kernels.h"

static _Thread_local char why[320];

/* ---- devices ---- */

static int cuda_count(const char **reason) {
  *reason = "this library was built without CUDA kernels, because " TIGON_NO_CUDA_BECAUSE;
  if (!cuda_images_built()) return 0;
  const cu_api *cu = cuda_driver(reason);
  if (!cu) return 0;
  int count = 0;
  int version = 0;
  const int code = cu->device_get_count(&count);
  *reason = why;
  if (cu->driver_get_version(&version) == CU_SUCCESS && version / 1000 < cuda_images_major()) {
    snprintf(why, sizeof why,
             "its driver is one for CUDA %d.%d, must be for CUDA %d or later, whose nvcc compiled the kernels",
             version / 1000, version % 1000 / 10, cuda_images_major());
    return 0;
  }
  if (code != CU_SUCCESS) snprintf(why, sizeof why, "cuDeviceGetCount returned %d", code);
  if (code == CU_SUCCESS && count == 0) snprintf(why, sizeof why, "the driver finds no GPU");
  return code != CU_SUCCESS ? 0 : count < CUDA_DEVICES ? count : CUDA_DEVICES;
}

void tigon_cuda_driver(char *to, size_t size) {
  const char *reason;
  int version = 0;
  const cu_api *cu = cuda_driver(&reason);
  to[0] = 0;
  if (cu && cu->driver_get_version(&version) == CU_SUCCESS)
    snprintf(to, size, "libcuda.so.1, for CUDA %d.%d", version / 1000, version % 1000 / 10);
}

/* Attention of 16 bits rounds its weights unless TIGON_CUDA_ATTENTION=exact. */
static bool rounds_attention(void) {
  const char *asked = getenv("TIGON_CUDA_ATTENTION");
  return !asked || strcmp(asked, "exact") != 0;
}

/* Those of the library, whether a GPU is there or not. */
static const tigon_kernels *const *cuda_variants(void) {
  static const tigon_kernels *const exact[] = {&tigon_cuda_kernels, NULL};
  static const tigon_kernels *const rounded[] = {&tigon_cuda_rounded_kernels, NULL};
  const tigon_kernels *const *all = rounds_attention() ? rounded : exact;
  return cuda_images_built() ? all : all + 1;
}

/* ---- the description ---- */

static int attribute(const cuda_device *device, int which) {
  int value = 0;
  device->cu->device_get_attribute(&value, which, device->device);
  return value;
}

static const struct gpu {
  const char *name, *of_driver;
  int sm, cores, block_kib, l2_mib;
  double memory_gbps, tflops;
} gpus[] = {
#define GPU(...) {__VA_ARGS__},
#include "cuda/gpus.def"
#undef GPU
};
enum { GPUS = sizeof gpus / sizeof *gpus };

/* NULL: the table does not have the GPU. */
static const struct gpu *find(const cuda_device *device) {
  for (int i = 0; i < GPUS; ++i)
    if (strcmp(gpus[i].of_driver, device->desc.name) == 0) return &gpus[i];
  return NULL;
}

/* The copy rate is 0.87 of the memory's, as measured on an H200 (4.28 of 4.92 TB/s). */
static const double COPY_SHARE = 0.87;

static void describe(cuda_device *device) {
  const double gbps =
      2e-6 * attribute(device, CU_ATTRIBUTE_MEMORY_CLOCK_KHZ) * attribute(device, CU_ATTRIBUTE_MEMORY_BUS_BITS) / 8;
  device->desc = (tigon_device){.cores = attribute(device, CU_ATTRIBUTE_SMS),
                                .onchip_bytes = attribute(device, CU_ATTRIBUTE_BLOCK_SHARED_BYTES),
                                .memory_gbps = COPY_SHARE * gbps};
  device->cu->device_get_name(device->desc.name, sizeof device->desc.name, device->device);
  const struct gpu *known = find(device);
  device->desc.tflops = known ? known->tflops : 0;
  /* What kernels were tuned for, else what the driver says. */
  device->l2_bytes = known ? (int64_t)known->l2_mib << 20 : attribute(device, CU_ATTRIBUTE_L2_BYTES);
}

/* ---- opening ---- */

static tigon_status allocate(tigon_queue *queue, size_t bytes, void **memory) {
  *memory = NULL;
  return cuda_check(queue, cuda_of(queue)->cu->mem_alloc(memory, bytes), "cuMemAlloc");
}

/* On a stream of its own: a caller's that is being captured would only do it when its graph is run. */
static tigon_status clear(tigon_queue *queue, void *memory, size_t bytes) {
  const cu_api *cu = cuda_of(queue)->cu;
  void *stream = NULL;
  tigon_status status = cuda_check(queue, cu->stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (status != TIGON_OK) return status;
  status = cuda_check(queue, cu->memset_d8_async(memory, 0, bytes, stream), "cuMemsetD8Async");
  if (status == TIGON_OK) status = cuda_check(queue, cu->stream_synchronize(stream), "cuStreamSynchronize");
  cu->stream_destroy(stream);
  return status;
}

static tigon_status open_in_context(tigon_queue *queue) {
  cuda_device *device = cuda_of(queue);
  const size_t words = (1 + CUDA_TICKETS) * sizeof(int32_t); /* the error flag, and the tickets */
  void *flag = NULL;
  tigon_status status = cuda_check(queue, cuda_images_load(device->cu), "cuLibraryLoadData");
  if (status == TIGON_OK) status = allocate(queue, CUDA_SCRATCH_BYTES, &device->scratch);
  if (status == TIGON_OK) status = allocate(queue, words, &flag);
  queue->error_flag = flag;
  if (status == TIGON_OK) status = clear(queue, flag, words);
  if (status == TIGON_OK) device->tickets = (unsigned *)flag + 1;
  if (status == TIGON_OK) cuda_blaslt_name(queue); /* which makes its handle: no op has to */
  return status;
}

/* Waits first: what is enqueued uses all of it. */
static void close_in_context(tigon_queue *queue) {
  cuda_device *device = cuda_of(queue);
  device->cu->stream_synchronize(queue->stream);
  cuda_blaslt_close(device);
  if (queue->error_flag) device->cu->mem_free(queue->error_flag);
  if (device->scratch) device->cu->mem_free(device->scratch);
  if (device->begin) device->cu->event_destroy(device->begin);
  if (device->end) device->cu->event_destroy(device->end);
  queue->error_flag = NULL;
}

/* The primary context is kept for the process: making it again takes longer than all else. */
static void cuda_close(tigon_queue *queue) {
  bool pushed;
  if (cuda_of(queue)->context && cuda_enter(queue, &pushed) == TIGON_OK) {
    close_in_context(queue);
    cuda_leave(queue, pushed);
  }
  free(cuda_of(queue));
}

/* Which code the driver takes on this GPU. */
static tigon_status find_target(tigon_queue *queue) {
  cuda_device *device = cuda_of(queue);
  const int major = attribute(device, CU_ATTRIBUTE_MAJOR), minor = attribute(device, CU_ATTRIBUTE_MINOR);
  device->sm = cuda_images_target(10 * major + minor);
  device->wgmma = cuda_images_wgmma(10 * major + minor);
  if (device->sm) return TIGON_OK;
  snprintf(device->reason, sizeof device->reason,
           "this library has no kernels for compute capability %d.%d: its build had TIGON_CUDA_ARCHITECTURES=%s", major,
           minor, cuda_images_targets());
  queue->reason = device->reason;
  return TIGON_ERROR_DEVICE;
}

static tigon_status open_device(tigon_queue *queue) {
  cuda_device *device = cuda_of(queue);
  tigon_status status = cuda_check(queue, device->cu->device_get(&device->device, device->index), "cuDeviceGet");
  if (status != TIGON_OK) return status;
  describe(device);
  status = find_target(queue);
  if (status != TIGON_OK) return status;
  status = cuda_check(queue, device->cu->device_primary_ctx_retain(&device->context, device->device),
                      "cuDevicePrimaryCtxRetain");
  bool pushed = false;
  if (status == TIGON_OK) status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK) status = open_in_context(queue);
  cuda_leave(queue, pushed);
  return status;
}

static tigon_status cuda_open(int index, tigon_queue *queue, const char **reason) {
  const cu_api *cu = cuda_driver(reason);
  if (!cu) return TIGON_ERROR_DEVICE;
  cuda_device *device = calloc(1, sizeof *device);
  *reason = "out of memory";
  if (!device) return TIGON_ERROR_OUT_OF_MEMORY;
  device->cu = cu;
  device->index = index;
  device->rounds_attention = rounds_attention();
  queue->state = device;
  queue->threads = 1;
  const tigon_status status = open_device(queue);
  if (status == TIGON_OK) return TIGON_OK;
  snprintf(why, sizeof why, "%s", queue->reason ? queue->reason : "");
  *reason = why;
  cuda_close(queue);
  return status;
}

/* Addresses that no process has, for launchers that hand them on. */
static void *address(uintptr_t gib) { return (void *)(gib << 30); } /* NOLINT(performance-no-int-to-ptr) */

static const tigon_kernels *open_described(const char *name, tigon_queue *queue) {
  const struct gpu *gpu = gpus;
  while (gpu < gpus + GPUS && strcasecmp(gpu->name, name) != 0) ++gpu;
  cuda_device *device = gpu < gpus + GPUS ? calloc(1, sizeof *device) : NULL;
  if (!device) return NULL;
  device->sm = gpu->sm;
  device->wgmma = cuda_images_wgmma(gpu->sm);
  device->rounds_attention = rounds_attention();
  device->l2_bytes = (int64_t)gpu->l2_mib << 20;
  device->scratch = address((uintptr_t)1 << 25);
  device->tickets = address((uintptr_t)1 << 25 | 1);
  device->desc = (tigon_device){.cores = gpu->cores,
                                .onchip_bytes = (int64_t)gpu->block_kib << 10,
                                .memory_gbps = COPY_SHARE * gpu->memory_gbps,
                                .tflops = gpu->tflops};
  snprintf(device->desc.name, sizeof device->desc.name, "%s", gpu->name);
  queue->state = device;
  queue->error_flag = address((uintptr_t)1 << 25 | 2);
  return device->rounds_attention ? &tigon_cuda_rounded_kernels : &tigon_cuda_kernels;
}

/* ---- work ---- */

static tigon_status cuda_sync(tigon_queue *queue) {
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK)
    status = cuda_check(queue, cuda_of(queue)->cu->stream_synchronize(queue->stream), "cuStreamSynchronize");
  cuda_leave(queue, pushed);
  return status;
}

static tigon_status cuda_alloc(tigon_queue *queue, size_t bytes, void **memory) {
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK) status = allocate(queue, bytes, memory);
  cuda_leave(queue, pushed);
  return status;
}

static void cuda_free(tigon_queue *queue, void *memory) {
  bool pushed;
  if (cuda_enter(queue, &pushed) == TIGON_OK) {
    cuda_of(queue)->cu->stream_synchronize(queue->stream); /* what is enqueued may use it */
    cuda_of(queue)->cu->mem_free(memory);
  }
  cuda_leave(queue, pushed);
}

static tigon_status cuda_copy(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  const cu_api *cu = cuda_of(queue)->cu;
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK)
    status = cuda_check(queue, cu->memcpy_async(to, (cu_memory)from, bytes, queue->stream), "cuMemcpyAsync");
  if (status == TIGON_OK) status = cuda_check(queue, cu->stream_synchronize(queue->stream), "cuStreamSynchronize");
  cuda_leave(queue, pushed);
  return status;
}

static tigon_status cuda_fill(tigon_queue *queue, void *memory, int value, size_t bytes) {
  const cu_api *cu = cuda_of(queue)->cu;
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK)
    status =
        cuda_check(queue, cu->memset_d8_async(memory, (unsigned char)value, bytes, queue->stream), "cuMemsetD8Async");
  cuda_leave(queue, pushed);
  return status;
}

static tigon_status take_time(tigon_queue *queue, bool begin, double *seconds) {
  cuda_device *device = cuda_of(queue);
  void **event = begin ? &device->begin : &device->end;
  tigon_status status = *event ? TIGON_OK : cuda_check(queue, device->cu->event_create(event, 0), "cuEventCreate");
  if (status == TIGON_OK) status = cuda_check(queue, device->cu->event_record(*event, queue->stream), "cuEventRecord");
  if (status != TIGON_OK || begin) return status;
  float milliseconds = 0;
  status = cuda_check(queue, device->cu->event_synchronize(device->end), "cuEventSynchronize");
  if (status == TIGON_OK)
    status = cuda_check(queue, device->cu->event_elapsed_time(&milliseconds, device->begin, device->end),
                        "cuEventElapsedTime");
  *seconds = 1e-3 * (double)milliseconds;
  return status;
}

static tigon_status cuda_time(tigon_queue *queue, bool begin, double *seconds) {
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK) status = take_time(queue, begin, seconds);
  cuda_leave(queue, pushed);
  return status;
}

static const tigon_device *cuda_describe(const tigon_queue *queue) { return &cuda_of(queue)->desc; }

const tigon_backend tigon_cuda_backend = {
    .abi = TIGON_BACKEND_ABI,
    .name = "cuda",
    .count = cuda_count,
    .variants = cuda_variants,
    .open = cuda_open,
    .open_described = open_described,
    .close = cuda_close,
    .sync = cuda_sync,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .copy_rows = cuda_copy_rows,
    .describe = cuda_describe,
    .time = cuda_time,
    .stream = cuda_stream,
    .gemm = cuda_blaslt_name,
};
