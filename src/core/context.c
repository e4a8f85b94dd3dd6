/* Contexts: opening a device, choosing a variant, keeping the last error. */
#include "core/context.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

static const tigon_kernels none; /* lent by most backends */

/* For calls without a context. */
static _Thread_local char thread_error[512];

tigon_status tigon_fail(tigon_context *context, tigon_status status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(context ? context->error : thread_error, sizeof thread_error, format, list);
  va_end(list);
  return status;
}

const char *tigon_last_error(const tigon_context *context) { return context ? context->error : thread_error; }

const char *tigon_last_variant(const tigon_context *context) {
  return context && context->last_variant ? context->last_variant : "";
}

const char *tigon_context_device(const tigon_context *context) { return context ? context->queue.backend->name : ""; }

const char *tigon_context_gemm(const tigon_context *context) {
  return context ? context->queue.backend->gemm(&context->queue) : "";
}

double tigon_context_tflops(const tigon_context *context, tigon_dtype dtype) {
  const bool is_short = dtype == TIGON_BF16 || dtype == TIGON_F16;
  return context && context->device && is_short ? context->device->tflops : 0;
}

/* "cuda:1" is device 1 of backend "cuda"; without a number it is device 0; some backends have names instead. False on anything
 * else. */
static bool split_device(const char *text, char name[16], int *index) {
  const char *colon = strchr(text, ':');
  const size_t length = colon ? (size_t)(colon - text) : strlen(text);
  if (length == 0 || length >= 16) return false;
  memcpy(name, text, length);
  name[length] = 0;
  *index = 0;
  if (!colon) return true;
  const tigon_backend *backend = tigon_backend_find(name);
  if (backend && backend->find && (*index = backend->find(colon + 1)) >= 0) return true;
  char *end;
  const long number = strtol(colon + 1, &end, 10);
  if (end == colon + 1 || *end || number < 0 || number > 1023) return false;
  *index = (int)number;
  return true;
}

/* "cpu, ref" */
static const char *backend_names(char *text, size_t size) {
  text[0] = 0;
  for (int i = 0; tigon_backend_at(i); ++i) tigon_append(text, size, "%s%s", i ? ", " : "", tigon_backend_at(i)->name);
  return text;
}

/* "ascend-sim:910B1, ascend-sim:910B2", of a backend whose devices have names */
static const char *device_names(const tigon_backend *backend, char *text, size_t size) {
  const char *reason;
  const int count = backend->count(&reason);
  text[0] = 0;
  for (int i = 0; i < count; ++i)
    tigon_append(text, size, "%s%s:%s", i ? ", " : "", backend->name, backend->name_of(i));
  return text;
}

static tigon_status choose_backend(const char *device, const tigon_backend **backend, int *index) {
  const char *reason = "";
  char names[256];
  *index = 0;
  if (!device) { /* the CPU is always there */
    int i = 0;
    while ((*backend = tigon_backend_at(i))->count(&reason) == 0) ++i;
    return TIGON_OK;
  }
  char name[16] = "";
  const bool split = split_device(device, name, index);
  *backend = tigon_backend_find(name);
  if (!split && *backend && (*backend)->name_of)
    return tigon_fail(NULL, TIGON_ERROR_INVALID, "context: device is \"%s\", must be one of %s", device,
                      device_names(*backend, names, sizeof names));
  if (!split || !*backend)
    return tigon_fail(NULL, TIGON_ERROR_INVALID, "context: device is \"%s\", must be one of %s", device,
                      backend_names(names, sizeof names));
  const int count = (*backend)->count(&reason);
  if (count == 0) return tigon_fail(NULL, TIGON_ERROR_DEVICE, "context: device %s is not there: %s", device, reason);
  if (*index >= count)
    return tigon_fail(NULL, TIGON_ERROR_DEVICE, "context: device is \"%s\", must be below %s:%d", device, name, count);
  return TIGON_OK;
}

static tigon_status choose_variant(const tigon_backend *backend, int index, const char *variant,
                                   const tigon_kernels **kernels) {
  const tigon_kernels *const *list = backend->variants();
  if (!variant && backend->variant_variable) variant = getenv(backend->variant_variable);
  *kernels = backend->best ? backend->best(index) : list[0];
  if (!variant || !*variant) return TIGON_OK;
  char names[128] = "";
  for (; *list; ++list) {
    if (strcmp((*list)->variant, variant) == 0) return *kernels = *list, TIGON_OK;
    tigon_append(names, sizeof names, "%s%s", *names ? ", " : "", (*list)->variant);
  }
  return tigon_fail(NULL, TIGON_ERROR_INVALID, "context: variant is \"%s\", must be one of %s on this machine's %s",
                    variant, names, backend->name);
}

tigon_status tigon_context_create(const tigon_context_desc *desc, tigon_context **context) {
  if (!context)
    return tigon_fail(NULL, TIGON_ERROR_INVALID, "context: context is NULL, must point to a tigon_context *");
  *context = NULL;
  static const tigon_context_desc defaults;
  if (!desc) desc = &defaults;
  for (int i = 0; i < 4; ++i)
    if (desc->reserved[i])
      return tigon_fail(NULL, TIGON_ERROR_INVALID, "context: reserved[%d] is %llu, must be 0", i,
                        (unsigned long long)desc->reserved[i]);
  if (desc->threads < 0)
    return tigon_fail(NULL, TIGON_ERROR_INVALID, "context: threads is %d, must be >= 0", desc->threads);

  const tigon_backend *backend;
  const tigon_kernels *kernels;
  int index;
  TIGON_TRY(choose_backend(desc->device, &backend, &index));
  TIGON_TRY(choose_variant(backend, index, desc->variant, &kernels));

  tigon_context *made = calloc(1, sizeof *made);
  if (!made) return tigon_fail(NULL, TIGON_ERROR_OUT_OF_MEMORY, "context: out of memory");
  made->queue =
      (tigon_queue){.backend = backend, .stream = desc->stream, .variant = kernels->variant, .threads = desc->threads};
  made->queue.memory = &made->memory;
  made->kernels = kernels;
  made->index = index;
  const char *reason = "";
  tigon_status status = backend->open(index, &made->queue, &reason);
  if (status != TIGON_OK) {
    free(made);
    return tigon_fail(NULL, status, "context: device %s did not open: %s", index > 0 ? desc->device : backend->name,
                      reason);
  }
  made->device = backend->describe(&made->queue);
  made->borrowed = &none;
  if (backend->borrowed) made->borrowed = backend->borrowed(&made->queue, &made->host);
  *context = made;
  return TIGON_OK;
}

tigon_context *tigon_context_described(const char *name, void (*record)(void *to, const tigon_launch *launch),
                                       void *record_to) {
  const tigon_backend *backend;
  tigon_context *made = calloc(1, sizeof *made);
  for (int i = 0; made && (backend = tigon_backend_at(i)); ++i) {
    made->queue = (tigon_queue){.backend = backend, .threads = 1, .record = record, .record_to = record_to};
    made->kernels = backend->open_described ? backend->open_described(name, &made->queue) : NULL;
    if (!made->kernels) continue;
    made->borrowed = &none;
    made->device = backend->describe(&made->queue);
    return made;
  }
  free(made);
  return NULL;
}

void tigon_context_destroy(tigon_context *context) {
  if (!context) return;
  context->queue.backend->close(&context->queue);
  free(context);
}

/* The sentence, and what the backend has to say. */
__attribute__((format(printf, 3, 4))) static tigon_status fail_with_reason(tigon_context *context, tigon_status status,
                                                                           const char *format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const char *reason = context->queue.reason;
  return tigon_fail(context, status, "%s%s%s", text, reason ? ": " : "", reason ? reason : "");
}

tigon_status tigon_context_sync(tigon_context *context) {
  if (!context) return tigon_fail(NULL, TIGON_ERROR_INVALID, "context_sync: context is NULL");
  tigon_queue *queue = &context->queue;
  if (queue->record) return TIGON_OK;
  queue->reason = NULL;
  const tigon_status status = queue->backend->sync(queue);
  if (status != TIGON_OK) return fail_with_reason(context, status, "context_sync: %s failed", queue->backend->name);
  if (queue->error_flag) {
    int32_t raised = 0;
    TIGON_TRY(tigon_copy(context, &raised, queue->error_flag, sizeof raised));
    if (raised) {
      TIGON_TRY(tigon_fill(context, queue->error_flag, 0, sizeof raised));
      return tigon_fail(context, TIGON_ERROR_INVALID, "context_sync: an op met an index or label that is out of range");
    }
  }
  return TIGON_OK;
}

/* For a context that records: lines of 512 bytes of a range that no process has. */
static void *address_of(size_t bytes) {
  enum { LINE = 512 };
  static atomic_uintptr_t next = (uintptr_t)1 << 56;
  return (void *)atomic_fetch_add(&next, (bytes + LINE - 1) / LINE * LINE); /* NOLINT(performance-no-int-to-ptr) */
}

tigon_status tigon_alloc(tigon_context *context, size_t bytes, void **memory) {
  if (!context || !memory) return tigon_fail(context, TIGON_ERROR_INVALID, "alloc: context or memory is NULL");
  *memory = NULL;
  if (bytes == 0) return TIGON_OK;
  if (context->queue.record) return *memory = address_of(bytes), TIGON_OK;
  context->queue.reason = NULL;
  const tigon_status status = context->queue.backend->alloc(&context->queue, bytes, memory);
  return status == TIGON_OK ? TIGON_OK : fail_with_reason(context, status, "alloc: %zu bytes are not there", bytes);
}

void tigon_free(tigon_context *context, void *memory) {
  if (context && memory && !context->queue.record) context->queue.backend->free(&context->queue, memory);
}

tigon_status tigon_copy(tigon_context *context, void *to, const void *from, size_t bytes) {
  if (!context || (bytes && (!to || !from)))
    return tigon_fail(context, TIGON_ERROR_INVALID, "copy: context, to or from is NULL");
  if (bytes == 0 || context->queue.record) return TIGON_OK;
  context->queue.reason = NULL;
  const tigon_status status = context->queue.backend->copy(&context->queue, to, from, bytes);
  return status == TIGON_OK ? TIGON_OK : fail_with_reason(context, status, "copy: %zu bytes failed", bytes);
}

tigon_status tigon_fill(tigon_context *context, void *memory, int value, size_t bytes) {
  if (!context || (bytes && !memory))
    return tigon_fail(context, TIGON_ERROR_INVALID, "fill: context or memory is NULL");
  if (bytes == 0 || context->queue.record) return TIGON_OK;
  context->queue.reason = NULL;
  const tigon_status status = context->queue.backend->fill(&context->queue, memory, value, bytes);
  return status == TIGON_OK ? TIGON_OK : fail_with_reason(context, status, "fill: %zu bytes failed", bytes);
}

int tigon_supports(const tigon_context *context, const char *op, const char *entry, tigon_dtype dtype) {
  const tigon_entry *e;
  if (!context || !op || !entry || tigon_dtype_size(dtype) == 0) return 0;
  for (int i = 0; (e = tigon_entry_at(i)); ++i)
    if (strcmp(e->op, op) == 0 && strcmp(e->entry, entry) == 0)
      return (tigon_entry_dtypes(context->kernels, i) & TIGON_BIT(dtype)) != 0;
  return 0;
}

/* A shape or an option that the device cannot run is the call's fault, all else the launch's. */
tigon_status tigon_front_done(tigon_context *context, const tigon_kernels *kernels, const tigon_queue *queue,
                              const char *slot, tigon_status status) {
  context->last_variant = kernels->variant;
  if (status == TIGON_OK) return TIGON_OK;
  const char *reason = queue->reason ? queue->reason : "";
  if (status == TIGON_ERROR_SCRATCH || status == TIGON_ERROR_INVALID || status == TIGON_ERROR_UNSUPPORTED)
    return tigon_fail(context, status, "%s: %s", slot, reason);
  return tigon_fail(context, status, "%s: the launch on %s failed%s%s", slot, queue->backend->name, *reason ? ": " : "",
                    reason);
}

tigon_status tigon_front_workspace(tigon_context *context, const tigon_queue *queue, const char *slot, int64_t needed,
                                   size_t *bytes) {
  if (needed < 0) return tigon_fail(context, (tigon_status)-needed, "%s: %s", slot, queue->reason ? queue->reason : "");
  *bytes = (size_t)needed;
  return TIGON_OK;
}

tigon_status tigon_front_unsupported(tigon_context *context, const char *slot, tigon_dtype dtype) {
  return tigon_fail(context, TIGON_ERROR_UNSUPPORTED, "%s: %s (%s) has no kernel for %s", slot,
                    context->queue.backend->name, context->kernels->variant, tigon_dtype_name(dtype));
}
