/* OpenCL buffers as tensors. A tensor is an address, an OpenCL 1.2 buffer a handle: a registered buffer has a range of
 * addresses, which ops take and which no memory of the host has. What tigon_alloc() gives is registered already. */
#ifndef TIGON_OPENCL_H
#define TIGON_OPENCL_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives a cl_mem the range [*address, *address + its size), and keeps the buffer alive. The context is of "opencl" or "xpu", made over
 * the caller's cl_command_queue as its stream, of whose cl_context the buffer is. All contexts over that cl_context know the range.
 * INVALID: the context is of another device; no cl_mem, or of another cl_context. OUT_OF_MEMORY. */
TIGON_API tigon_status tigon_opencl_register(tigon_context *context, void *buffer, void **address);

/* Takes the range away and lets the buffer go, when what is enqueued on the context's stream is done. INVALID: no range of this
 * cl_context begins at `address`. */
TIGON_API tigon_status tigon_opencl_unregister(tigon_context *context, void *address);

/* Memory that the host and the device share, at one address, 64-byte aligned; tigon_free() frees it. Ops on it are enqueued as on all memory:
 * tigon_context_sync() comes before the host reads what they wrote. bytes = 0 gives NULL and OK. INVALID: the context is of another
 * device. UNSUPPORTED: the device has no fine-grained shared virtual memory (OpenCL 2.0). OUT_OF_MEMORY. */
TIGON_API tigon_status tigon_opencl_alloc_shared(tigon_context *context, size_t bytes, void **memory);

#ifdef __cplusplus
}
#endif

#endif
