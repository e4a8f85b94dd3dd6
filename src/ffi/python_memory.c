/* Tensors on the pool's memory: python/tigon/torch/_memory.py says when they are made. */
#include <stdlib.h>

#include "ffi/pool.h"
#include "ffi/python.h"

typedef struct owned {
  managed_tensor managed;
  tigon_pool_block *block;
  python_tensor made;
} owned;

/* The tensor's storage ends: in any thread, without the interpreter's lock, perhaps after the interpreter. */
static void give_back(managed_tensor *managed) {
  owned *mine = managed->owner;
  tigon_pool_give(mine->block);
  free(mine);
}

PyObject *tigon_python_pooled(const dlpack_exchange *exchange, const python_tensor *wanted) {
  owned *mine = malloc(sizeof *mine);
  tigon_pool_block *block = mine ? tigon_pool_take((size_t)wanted->bytes) : NULL;
  if (!block) {
    free(mine);
    return NULL;
  }
  *mine = (owned){.managed = {.version = {1, 0}, .owner = mine, .deleter = give_back}, .block = block, .made = *wanted};
  mine->managed.tensor = (DLTensor){.data = block->data,
                                    .device = {kDLCPU, 0},
                                    .ndim = (int32_t)wanted->ndim,
                                    .dtype = {(uint8_t)wanted->code, (uint8_t)wanted->bits, 1},
                                    .shape = mine->made.shape,
                                    .strides = mine->made.strides};
  PyObject *made = NULL;
  return exchange->import_managed(&mine->managed, &made) == 0 ? made : NULL;
}
