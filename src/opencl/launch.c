#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "opencl/program.h"

tigon_status opencl_check(tigon_queue *queue, int code, const char *call) {
  if (code == CL_SUCCESS) return TIGON_OK;
  opencl_device *d = opencl_of(queue);
  snprintf(d->reason, sizeof d->reason, "%s returned %d", call, code);
  queue->reason = d->reason;
  const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
  return memory ? TIGON_ERROR_OUT_OF_MEMORY : TIGON_ERROR_DEVICE;
}

tigon_status opencl_find_kernel(tigon_queue *queue, const opencl_kernel *kernel, tigon_dtype dtype, void **handle) {
  opencl_device *d = opencl_of(queue);
  const size_t first = ((uintptr_t)kernel / sizeof *kernel + (size_t)dtype) % OPENCL_KERNELS;
  size_t at = first;
  while (d->kernels[at].of && !(d->kernels[at].of == kernel && d->kernels[at].dtype == dtype)) {
    at = (at + 1) % OPENCL_KERNELS;
    if (at == first) return queue->reason = "too many kernels for one context", TIGON_ERROR_DEVICE;
  }
  if (!d->kernels[at].of) {
    void *program;
    int code;
    TIGON_TRY(opencl_program(queue, kernel->file, dtype, &program));
    void *made = d->cl->create_kernel(program, kernel->name, &code);
    TIGON_TRY(opencl_check(queue, code, kernel->name));
    d->kernels[at].of = kernel, d->kernels[at].dtype = dtype, d->kernels[at].handle = made;
  }
  *handle = d->kernels[at].handle;
  return TIGON_OK;
}

/* The part of the call's memory that has the address; NULL: it is the device's own. */
static const tigon_extent *extent_of(const tigon_queue *queue, const void *address) {
  const uintptr_t at = (uintptr_t)address;
  for (int i = 0; queue->memory && i < queue->memory->count; ++i)
    if (queue->memory->of[i].low <= at && at < queue->memory->of[i].high) return &queue->memory->of[i];
  return NULL;
}

tigon_status opencl_look_up(tigon_queue *queue, const void *address, opencl_place *place) {
  opencl_device *d = opencl_of(queue);
  *place = (opencl_place){.offset = OPENCL_ABSENT};
  if (!address) return TIGON_OK;
  const tigon_extent *e = extent_of(queue, address);
  if (opencl_range_find(d->context, address, place) && (!e || e->high - (uintptr_t)address <= place->left))
    return TIGON_OK;
  snprintf(d->reason, sizeof d->reason,
           "%s lies at %p, which no buffer of this device holds: tigon_alloc() gives such memory, and "
           "tigon_opencl_register() makes a cl_mem such",
           e ? e->field->name : "a tensor", address);
  queue->reason = d->reason;
  return TIGON_ERROR_INVALID;
}

opencl_shape opencl_row_shape(const tigon_queue *queue, int64_t rows) {
  enum { TURNS = 8, GROUPS = 64 /* for each core */ };
  const opencl_device *d = opencl_of(queue);
  const bool items = d->model == OPENCL_ITEMS;
  const int64_t most = d->desc.cores * (items ? TURNS : GROUPS), programs = rows < most ? rows : most;
  if (items) return (opencl_shape){.global = {programs}, .local = {1}, .held = "walked"};
  return (opencl_shape){.global = {programs * d->group}, .local = {d->group}, .held = "walked"};
}

static void record(const tigon_queue *queue, const opencl_kernel *kernel, const opencl_shape *shape) {
  const int64_t local = shape->local[0] * shape->local[1];
  queue->record(queue->record_to, &(tigon_launch){.kernel = kernel->name,
                                                  .grid = shape->global[0] * shape->global[1] / local,
                                                  .block = local,
                                                  .onchip_bytes = shape->local_bytes,
                                                  .cluster = 1,
                                                  .held = shape->held,
                                                  .slabs = shape->slabs});
}

tigon_status opencl_launch(tigon_queue *queue, const opencl_kernel *kernel, tigon_dtype dtype, opencl_shape shape,
                           int count, const void *const *memory, const void *numbers, size_t bytes) {
  for (int i = 0; i < 2; ++i) {
    if (shape.global[i] == 0) shape.global[i] = i;
    if (shape.local[i] == 0) shape.local[i] = 1;
  }
  if (shape.global[0] <= 0 || shape.global[1] <= 0) return TIGON_OK;
  if (queue->record) return record(queue, kernel, &shape), TIGON_OK;
  const opencl_device *d = opencl_of(queue);
  void *handle;
  queue->reason = NULL;
  TIGON_TRY(opencl_find_kernel(queue, kernel, dtype, &handle));
  unsigned at = 0;
  int code = CL_SUCCESS;
  for (int i = 0; i < count && code == CL_SUCCESS; ++i) {
    opencl_place place;
    TIGON_TRY(opencl_look_up(queue, memory[i], &place));
    code = place.shared ? d->svm->set_kernel_arg(handle, at, place.shared)
                        : d->cl->set_kernel_arg(handle, at, sizeof place.buffer, &place.buffer);
    if (code == CL_SUCCESS) code = d->cl->set_kernel_arg(handle, at + 1, sizeof place.offset, &place.offset);
    at += 2;
  }
  if (code == CL_SUCCESS) code = d->cl->set_kernel_arg(handle, at, bytes, numbers);
  TIGON_TRY(opencl_check(queue, code, "clSetKernelArg"));
  const size_t global[] = {(size_t)shape.global[0], (size_t)shape.global[1]};
  const size_t local[] = {(size_t)shape.local[0], (size_t)shape.local[1]};
  return opencl_check(queue, d->cl->enqueue_nd_range_kernel(d->stream, handle, 2, NULL, global, local, 0, NULL, NULL),
                      kernel->name);
}
