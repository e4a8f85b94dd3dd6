/* Tensors on the pool's memory: python/tigon/torch/_memory.py says when they are made. */
#include <stdlib.h>
#include <string.h>

#include "ffi/pool.h"
#include "ffi/python.h"

/* A tensor that is to be made: Python's, which keeps it. */
typedef struct python_tensor {
  const dlpack_exchange *exchange;
  PyObject *otherwise, *arguments; /* a function and its arguments, which make it where the pool has no room */
  int64_t bytes, ndim, code, bits; /* of the storage; the dtype as DLPack has it */
  int64_t shape[TIGON_MAX_DIMS], strides[TIGON_MAX_DIMS];
} python_tensor;

typedef struct owned {
  managed_tensor managed;
  tigon_pool_block *block;
  int64_t shape[TIGON_MAX_DIMS], strides[TIGON_MAX_DIMS];
} owned;

/* The tensor's storage ends: in any thread, without the interpreter's lock, perhaps after the interpreter. */
static void give_back(managed_tensor *managed) {
  owned *mine = managed->owner;
  tigon_pool_give(mine->block);
  free(mine);
}

static managed_tensor *own(const python_tensor *wanted) {
  owned *mine = malloc(sizeof *mine);
  tigon_pool_block *block = mine ? tigon_pool_take((size_t)wanted->bytes) : NULL;
  if (!block) {
    free(mine);
    return NULL;
  }
  *mine = (owned){.managed = {.version = {1, 0}, .owner = mine, .deleter = give_back}, .block = block};
  memcpy(mine->shape, wanted->shape, sizeof mine->shape);
  memcpy(mine->strides, wanted->strides, sizeof mine->strides);
  mine->managed.tensor = (DLTensor){.data = block->data,
                                    .device = {kDLCPU, 0},
                                    .ndim = (int32_t)wanted->ndim,
                                    .dtype = {(uint8_t)wanted->code, (uint8_t)wanted->bits, 1},
                                    .shape = mine->shape,
                                    .strides = mine->strides};
  return &mine->managed;
}

/* () */
static PyObject *make(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)args, (void)count;
  const python_tensor *wanted = PyCapsule_GetPointer(self, NULL);
  managed_tensor *managed = own(wanted);
  if (!managed) return PyObject_CallObject(wanted->otherwise, wanted->arguments);
  PyObject *made = NULL;
  return wanted->exchange->import_managed(managed, &made) == 0 ? made : NULL;
}

/* A function of nothing that makes such a tensor; NULL in a process whose Python is out of sight. */
TIGON_API PyObject *tigon_python_tensor(python_tensor *wanted) {
  static PyMethodDef method = {.name = "empty", .function = make, .flags = METH_FASTCALL};
  return PyCFunction_NewEx ? tigon_python_function(&method, wanted) : NULL;
}
