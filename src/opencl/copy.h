/* Copies, fills, and what a benchmark needs. */
#ifndef TIGON_OPENCL_COPY_H
#define TIGON_OPENCL_COPY_H

#include "opencl/opencl.h"

tigon_status opencl_copy(tigon_queue *queue, void *to, const void *from, size_t bytes);
tigon_status opencl_fill(tigon_queue *queue, void *memory, int value, size_t bytes);
tigon_status opencl_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, int64_t rows);
tigon_status opencl_stream(tigon_queue *queue, void *to, const void *from, size_t bytes);
tigon_status opencl_time(tigon_queue *queue, bool begin, double *seconds);

#endif
