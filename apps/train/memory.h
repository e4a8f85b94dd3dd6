/* Every large buffer of a run comes from here, so that its peak can be reported exactly and repeatably.
 *
 * Counted: device memory (weights, gradients, optimiser state, activations, workspaces, batches), and the host's staging
 * buffers and text. Not counted: the program, the libraries and what they allocate, and buffers below 64 KiB or so. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct train_memory {
  tigon_context *context;
  size_t now, peak; /* bytes */
} train_memory;

typedef struct train_block {
  void *data;
  size_t bytes;
} train_block;

/* `what` is for the sentence: "the activations". The block must be empty; bytes = 0 leaves it so. */
bool train_device_alloc(train_memory *memory, size_t bytes, const char *what, train_block *block, train_error *error);
void train_device_free(train_memory *memory, train_block *block);
bool train_host_alloc(train_memory *memory, size_t bytes, const char *what, train_block *block, train_error *error);
void train_host_free(train_memory *memory, train_block *block);

/* An arena hands out pieces of one block, 64-byte aligned. With base NULL it only measures: lay out twice. */
typedef struct train_arena {
  char *base;
  size_t used; /* bytes */
} train_arena;

/* A contiguous tensor of up to 4 dimensions; a zero ends the list early: (rows, cols, 0, 0). */
tigon_tensor train_arena_take(train_arena *arena, tigon_dtype dtype, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

#endif
