/* The caller's own buffers. */
#include <tigon/opencl.h>

#include "core/context.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

extern const tigon_backend tigon_opencl_backend, tigon_xpu_backend;

static tigon_status of_opencl(tigon_context *context, const char *call) {
  const tigon_backend *backend = context->queue.backend;
  if (backend == &tigon_opencl_backend || backend == &tigon_xpu_backend) return TIGON_OK;
  return tigon_fail(context, TIGON_ERROR_INVALID, "%s: the context is of %s, must be of opencl or xpu", call,
                    backend->name);
}

tigon_status tigon_opencl_register(tigon_context *context, void *buffer, void **address) {
  TIGON_TRY(of_opencl(context, "opencl_register"));
  const opencl_device *d = opencl_of(&context->queue);
  size_t bytes = 0;
  void *of = NULL;
  *address = NULL;
  if (!buffer || d->cl->get_mem_object_info(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) != CL_SUCCESS ||
      d->cl->get_mem_object_info(buffer, CL_MEM_CONTEXT, sizeof of, &of, NULL) != CL_SUCCESS)
    return tigon_fail(context, TIGON_ERROR_INVALID, "opencl_register: buffer is no cl_mem");
  if (of != d->context)
    return tigon_fail(context, TIGON_ERROR_INVALID,
                      "opencl_register: buffer is of another cl_context than the context's stream");
  *address = opencl_range_add(d->context, buffer, bytes);
  if (!*address) return tigon_fail(context, TIGON_ERROR_OUT_OF_MEMORY, "opencl_register: no addresses are left");
  d->cl->retain_mem_object(buffer);
  return TIGON_OK;
}

tigon_status tigon_opencl_unregister(tigon_context *context, void *address) {
  TIGON_TRY(of_opencl(context, "opencl_unregister"));
  const opencl_device *d = opencl_of(&context->queue);
  opencl_place had;
  if (!opencl_range_find(d->context, address, &had) || had.offset > 0 || !had.buffer)
    return tigon_fail(context, TIGON_ERROR_INVALID, "opencl_unregister: address is %p, must be one that register gave",
                      address);
  context->queue.backend->free(&context->queue, address);
  return TIGON_OK;
}

tigon_status tigon_opencl_alloc_shared(tigon_context *context, size_t bytes, void **memory) {
  TIGON_TRY(of_opencl(context, "opencl_alloc_shared"));
  const opencl_device *d = opencl_of(&context->queue);
  *memory = NULL;
  if (!d->svm)
    return tigon_fail(context, TIGON_ERROR_UNSUPPORTED,
                      "opencl_alloc_shared: %s has no fine-grained shared virtual memory", d->desc.name);
  if (bytes == 0) return TIGON_OK;
  enum { ALIGNMENT = 64 };
  void *made = d->svm->alloc(d->context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN, bytes, ALIGNMENT);
  if (made && opencl_range_share(d->context, made, bytes)) {
    *memory = made;
    return TIGON_OK;
  }
  if (made) d->svm->release(d->context, made);
  return tigon_fail(context, TIGON_ERROR_OUT_OF_MEMORY, "opencl_alloc_shared: %zu bytes are not there", bytes);
}
