/* Parts of a workspace, one after the other. */
#ifndef TIGON_OPENCL_WORKSPACE_H
#define TIGON_OPENCL_WORKSPACE_H

#include "slabs.h"

/* Bytes that are taken; base: NULL where only they are asked for. */
typedef struct opencl_parts {
  char *base;
  int64_t bytes;
} opencl_parts;

/* Room for [rows, cols] in f32. Strides of 0 let a tensor have more elements than memory: bytes are 2^63 - 64 then. */
static inline float *opencl_take(opencl_parts *of, int64_t rows, int64_t cols) {
  const int64_t bytes = tigon_slab_bytes(rows, 1, cols), most = INT64_MAX / 64 * 64;
  float *const part = of->base ? (float *)(void *)(of->base + of->bytes) : NULL;
  of->bytes = bytes > most - of->bytes ? most : of->bytes + bytes;
  return part;
}

#endif
