#include "opencl/copy.h"

#include <string.h>

#include "core/context.h"
#include "opencl/kernel/copy.h"

/* A place from which on there are `bytes`. */
static bool find(const tigon_queue *queue, const void *address, size_t bytes, opencl_place *place) {
  return opencl_range_find(opencl_of(queue)->context, address, place) && bytes <= place->left;
}

static tigon_status no_buffer(tigon_queue *queue) {
  queue->reason = "the memory is in no buffer of this device";
  return TIGON_ERROR_INVALID;
}

tigon_status opencl_copy(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  const opencl_device *d = opencl_of(queue);
  opencl_place t = {0}, s = {0};
  const bool out = find(queue, to, bytes, &t), in = find(queue, from, bytes, &s);
  int code = CL_SUCCESS;
  if (!out && !in) return no_buffer(queue);
  if (t.buffer && s.buffer)
    code = d->cl->enqueue_copy_buffer(d->stream, s.buffer, t.buffer, (size_t)s.offset, (size_t)t.offset, bytes, 0, NULL,
                                      NULL);
  else if (t.buffer)
    code = d->cl->enqueue_write_buffer(d->stream, t.buffer, 1, (size_t)t.offset, bytes, from, 0, NULL, NULL);
  else if (s.buffer)
    code = d->cl->enqueue_read_buffer(d->stream, s.buffer, 1, (size_t)s.offset, bytes, to, 0, NULL, NULL);
  if (code == CL_SUCCESS) code = d->cl->finish(d->stream);
  if (code == CL_SUCCESS && !t.buffer && !s.buffer) memmove(to, from, bytes);
  return opencl_check(queue, code, "a copy");
}

tigon_status opencl_fill(tigon_queue *queue, void *memory, int value, size_t bytes) {
  const opencl_device *d = opencl_of(queue);
  const unsigned char byte = (unsigned char)value;
  opencl_place t;
  if (!find(queue, memory, bytes, &t)) return no_buffer(queue);
  if (t.shared) {
    TIGON_TRY(opencl_check(queue, d->cl->finish(d->stream), "clFinish"));
    memset(memory, value, bytes);
    return TIGON_OK;
  }
  return opencl_check(queue,
                      d->cl->enqueue_fill_buffer(d->stream, t.buffer, &byte, 1, (size_t)t.offset, bytes, 0, NULL, NULL),
                      "clEnqueueFillBuffer");
}

/* Not by clEnqueueCopyBufferRect: some drivers refuse an offset beyond a row's pitch. */
tigon_status opencl_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, int64_t rows) {
  static const opencl_kernel kernel = {"copy", "copy_rows"};
  const copy_rows_numbers k = {rows, (int64_t)(bytes / 2), (int64_t)(to_pitch / 2), (int64_t)(from_pitch / 2)};
  if (rows == 0 || bytes == 0) return TIGON_OK;
  return opencl_launch(queue, &kernel, TIGON_F32, opencl_row_shape(queue, rows), OPENCL_MEMORY(to, from), &k, sizeof k);
}

/* A work-item of a CPU has a run of memory, those of a group of a GPU are neighbours. */
tigon_status opencl_stream(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  static const opencl_kernel copy = {"copy", "copy"}, read = {"copy", "copy_read"};
  const opencl_device *d = opencl_of(queue);
  const copy_numbers k = {.packs = (int64_t)(bytes / COPY_BYTES)};
  const opencl_shape shape = opencl_row_shape(queue, opencl_ceil_div(k.packs, d->group));
  return opencl_launch(queue, to ? &copy : &read, TIGON_F32, shape, OPENCL_MEMORY(to ? to : d->sink, from), &k,
                       sizeof k);
}

/* Two markers. The second waits for all that came before it. */
tigon_status opencl_time(tigon_queue *queue, bool begin, double *seconds) {
  opencl_device *d = opencl_of(queue);
  const cl_api *cl = d->cl;
  void *event = NULL;
  TIGON_TRY(opencl_check(queue, cl->enqueue_marker(d->stream, 0, NULL, &event), "clEnqueueMarkerWithWaitList"));
  if (begin) {
    if (d->begin) cl->release_event(d->begin);
    d->begin = event;
    return TIGON_OK;
  }
  uint64_t from = 0, to = 0;
  int code = cl->wait_for_events(1, &event);
  if (code == CL_SUCCESS)
    code = cl->get_event_profiling_info(d->begin, CL_PROFILING_COMMAND_END, sizeof from, &from, NULL);
  if (code == CL_SUCCESS) code = cl->get_event_profiling_info(event, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL);
  cl->release_event(event);
  *seconds = to > from ? 1e-9 * (double)(to - from) : 0;
  return opencl_check(queue, code, "clGetEventProfilingInfo, which wants a queue with CL_QUEUE_PROFILING_ENABLE,");
}
