#include "memory.h"

#include <stdlib.h>

static void count(train_memory *memory, size_t bytes) {
  memory->now += bytes;
  if (memory->now > memory->peak) memory->peak = memory->now;
}

static bool out_of_memory(size_t bytes, const char *what, train_error *error) {
  return train_fail(
      error, TRAIN_EXIT_TROUBLE,
      "no memory for %s (%.1f MiB): a smaller --batch, --seq or model needs less, and so does --accumulate", what,
      (double)bytes / 1048576.0);
}

bool train_device_alloc(train_memory *memory, size_t bytes, const char *what, train_block *block, train_error *error) {
  const tigon_status status = tigon_alloc(memory->context, bytes, &block->data);
  if (status == TIGON_ERROR_OUT_OF_MEMORY) return out_of_memory(bytes, what, error);
  if (!train_ok(memory->context, status, error)) return false;
  block->bytes = bytes;
  count(memory, bytes);
  return true;
}

void train_device_free(train_memory *memory, train_block *block) {
  if (block->data) tigon_free(memory->context, block->data);
  memory->now -= block->bytes;
  *block = (train_block){0};
}

bool train_host_alloc(train_memory *memory, size_t bytes, const char *what, train_block *block, train_error *error) {
  if (bytes == 0) return true;
  block->data = malloc(bytes);
  if (!block->data) return out_of_memory(bytes, what, error);
  block->bytes = bytes;
  count(memory, bytes);
  return true;
}

void train_host_free(train_memory *memory, train_block *block) {
  free(block->data);
  memory->now -= block->bytes;
  *block = (train_block){0};
}

tigon_tensor train_arena_take(train_arena *arena, tigon_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
  const int64_t sizes[4] = {n0, n1, n2, n3};
  tigon_tensor tensor = {.data = arena->base ? arena->base + arena->used : NULL, .dtype = dtype};
  int64_t elements = 1;
  while (tensor.ndim < 4 && sizes[tensor.ndim] > 0) {
    tensor.shape[tensor.ndim] = sizes[tensor.ndim];
    elements *= sizes[tensor.ndim++];
  }
  int64_t stride = 1;
  for (int d = tensor.ndim - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    stride *= tensor.shape[d];
  }
  arena->used += ((size_t)elements * tigon_dtype_size(dtype) + 63) / 64 * 64;
  return tensor;
}
