#include <stdio.h>
#include <string.h>

#include "cuda/cuda.h"
#include "cuda/images.h"

tigon_status cuda_check(tigon_queue *queue, int code, const char *call) {
  if (code == CU_SUCCESS) return TIGON_OK;
  enum { OUT_OF_MEMORY = 2 };
  cuda_device *device = cuda_of(queue);
  const char *name = "an unknown code", *text = "";
  device->cu->get_error_name(code, &name);
  device->cu->get_error_string(code, &text);
  snprintf(device->reason, sizeof device->reason, "%s returned %d (%s: %s)", call, code, name, text);
  queue->reason = device->reason;
  return code == OUT_OF_MEMORY ? TIGON_ERROR_OUT_OF_MEMORY : TIGON_ERROR_DEVICE;
}

tigon_status cuda_enter(tigon_queue *queue, bool *pushed) {
  cuda_device *device = cuda_of(queue);
  void *current = NULL;
  *pushed = false;
  queue->reason = NULL;
  if (device->cu->ctx_get_current(&current) == CU_SUCCESS && current == device->context) return TIGON_OK;
  const tigon_status status = cuda_check(queue, device->cu->ctx_push_current(device->context), "cuCtxPushCurrent");
  *pushed = status == TIGON_OK;
  return status;
}

void cuda_leave(tigon_queue *queue, bool pushed) {
  void *popped;
  if (pushed) cuda_of(queue)->cu->ctx_pop_current(&popped);
}

static tigon_status find_kernel(tigon_queue *queue, cuda_kernel *kernel, void **handle) {
  if ((*handle = atomic_load_explicit(&kernel->handle, memory_order_acquire))) return TIGON_OK;
  void *library = cuda_image_library(kernel->image);
  const tigon_status status =
      cuda_check(queue, cuda_of(queue)->cu->library_get_kernel(handle, library, kernel->name), "cuLibraryGetKernel");
  if (status == TIGON_OK) atomic_store_explicit(&kernel->handle, *handle, memory_order_release);
  return status;
}

/* A kernel has 48 KiB of shared memory, what it declares included, unless more is asked for, on each device. */
static tigon_status allow_shared(tigon_queue *queue, cuda_kernel *kernel, void *handle, int bytes) {
  enum { ALWAYS = 32 * 1024 };
  cuda_device *device = cuda_of(queue);
  if (bytes <= ALWAYS || atomic_load_explicit(&kernel->shared_bytes[device->index], memory_order_relaxed) >= bytes)
    return TIGON_OK;
  const tigon_status status = cuda_check(
      queue, device->cu->kernel_set_attribute(CU_FUNCTION_DYNAMIC_SHARED_BYTES, bytes, handle, device->device),
      "cuKernelSetAttribute");
  if (status == TIGON_OK) atomic_store_explicit(&kernel->shared_bytes[device->index], bytes, memory_order_relaxed);
  return status;
}

static void record(const tigon_queue *queue, const cuda_kernel *kernel, const cuda_shape *shape) {
  queue->record(queue->record_to, &(tigon_launch){.kernel = kernel->name,
                                                  .grid = shape->blocks * (shape->rows ? shape->rows : 1),
                                                  .block = shape->threads,
                                                  .onchip_bytes = shape->shared_bytes,
                                                  .cluster = shape->cluster > 1 ? shape->cluster : 1,
                                                  .held = shape->held,
                                                  .slabs = shape->slabs});
}

tigon_status cuda_launch(tigon_queue *queue, cuda_kernel *kernel, cuda_shape shape, void **arguments) {
  enum { MOST_ROWS = 65535 };
  if (shape.blocks <= 0) return TIGON_OK;
  if (queue->record) return record(queue, kernel, &shape), TIGON_OK;
  cu_launch_attribute attributes[3];
  unsigned attribute_count = 0;
  if (shape.cluster > 1)
    attributes[attribute_count++] =
        (cu_launch_attribute){.id = CU_LAUNCH_CLUSTER, .value = {(unsigned)shape.cluster, 1, 1}};
  if (shape.cooperates)
    attributes[attribute_count++] = (cu_launch_attribute){.id = CU_LAUNCH_COOPERATIVE, .value = {1}};
  if (shape.awaits && cuda_of(queue)->sm >= 90)
    attributes[attribute_count++] = (cu_launch_attribute){.id = CU_LAUNCH_OVERLAPS, .value = {1}};
  const int64_t rows = shape.rows ? shape.rows : 1, layers = cuda_ceil_div(rows, MOST_ROWS);
  const cu_launch launch = {.grid = {(unsigned)shape.blocks, (unsigned)cuda_ceil_div(rows, layers), (unsigned)layers},
                            .block = {(unsigned)shape.threads, 1, 1},
                            .shared_bytes = (unsigned)shape.shared_bytes,
                            .stream = queue->stream,
                            .attributes = attributes,
                            .attribute_count = attribute_count};
  void *handle = NULL;
  bool pushed;
  tigon_status status = cuda_enter(queue, &pushed);
  if (status == TIGON_OK) status = find_kernel(queue, kernel, &handle);
  if (status == TIGON_OK) status = allow_shared(queue, kernel, handle, shape.shared_bytes);
  if (status == TIGON_OK)
    status = cuda_check(queue, cuda_of(queue)->cu->launch_kernel_ex(&launch, handle, arguments, NULL), kernel->name);
  cuda_leave(queue, pushed);
  return status;
}

bool cuda_wide(const void *pointer) { return (uintptr_t)pointer % 16 == 0; }

bool cuda_wide_rows(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype) {
  const int64_t size = (int64_t)tigon_dtype_size(dtype);
  if (!t->data) return true;
  if (!cuda_wide(t->data) || t->pitch[2] * size % 16 != 0) return false;
  return space->inner == space->rows || (t->pitch[0] * size % 16 == 0 && t->pitch[1] * size % 16 == 0);
}

bool cuda_wide_heads(const tigon_heads *t, tigon_dtype dtype, int unit) {
  return (uintptr_t)t->data % (unit * tigon_dtype_size(dtype)) == 0 &&
         (t->batch_pitch | t->token_pitch | t->head_pitch) % unit == 0;
}

int cuda_team_for(int64_t wanted, int most) {
  int team = 32;
  while (team < wanted && team < most) team *= 2;
  return team;
}
