/* What is used of CPython's stable ABI and of DLPack's exchange API, declared here: building needs neither's headers.
 * The functions are NULL in a process without Python. */
#ifndef TIGON_FFI_PYTHON_H
#define TIGON_FFI_PYTHON_H

#include <stdbool.h>

#include <tigon/tigon.h>

typedef struct _object PyObject;
typedef ptrdiff_t Py_ssize_t;
typedef struct _ts PyThreadState;

typedef struct PyMethodDef {
  const char *name;
  PyObject *(*function)(PyObject *self, PyObject *const *args, Py_ssize_t count);
  int flags;
  const char *doc;
} PyMethodDef;
enum { METH_FASTCALL = 0x80 };

#pragma GCC visibility push(default)
#define PY __attribute__((weak))
PY extern PyObject _Py_NoneStruct, PyFloat_Type, PyLong_Type, PyBool_Type;
PY PyObject *Py_NewRef(PyObject *), *Py_XNewRef(PyObject *);
PY void Py_DecRef(PyObject *); /* which takes NULL, too */
PY PyObject *PyObject_Type(PyObject *);
PY PyObject *PyObject_CallObject(PyObject *callable, PyObject *args);
PY PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
PY PyObject *PyObject_GetAttr(PyObject *, PyObject *name);
PY int PyObject_SetAttr(PyObject *, PyObject *name, PyObject *value);
PY int PyObject_IsTrue(PyObject *);
PY PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
PY char *PyBytes_AsString(PyObject *);
PY Py_ssize_t PyBytes_Size(PyObject *);
PY PyObject *PyCapsule_New(void *, const char *name, void (*destructor)(PyObject *));
PY void *PyCapsule_GetPointer(PyObject *, const char *name);
PY PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *self, PyObject *module);
PY PyObject *PyDict_GetItemWithError(PyObject *, PyObject *key);
PY PyObject *PyErr_Occurred(void);
PY void PyErr_Clear(void);
PY PyThreadState *PyEval_SaveThread(void);
PY void PyEval_RestoreThread(PyThreadState *);
PY PyThreadState *PyThreadState_Get(void);
PY uint64_t PyThreadState_GetID(PyThreadState *);
PY double PyFloat_AsDouble(PyObject *);
PY long long PyLong_AsLongLong(PyObject *);
PY void *PyLong_AsVoidPtr(PyObject *);
PY PyObject *PyTuple_New(Py_ssize_t);
PY PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
PY Py_ssize_t PyTuple_Size(PyObject *);
PY int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
#undef PY
#pragma GCC visibility pop

/* DLManagedTensorVersioned of DLPack 1. */
typedef struct managed_tensor {
  struct {
    uint32_t major, minor;
  } version;
  void *owner;
  void (*deleter)(struct managed_tensor *self);
  uint64_t flags;
  DLTensor tensor;
} managed_tensor;

/* DLPackExchangeAPI of DLPack 1: the type's capsule __dlpack_c_exchange_api__. */
typedef struct dlpack_exchange {
  struct {
    uint32_t major, minor;
  } version;
  const struct dlpack_exchange *previous;
  void *allocate, *export_managed;
  int (*import_managed)(managed_tensor *tensor, PyObject **made); /* which takes the tensor over */
  int (*view)(PyObject *tensor, DLTensor *view); /* which borrows the tensor's memory, shape and strides; may be NULL */
  int (*current_stream)(DLDeviceType, int32_t device_id, void **stream);
} dlpack_exchange;

/* A tensor on the pool's memory that is to be made. */
typedef struct python_tensor {
  int64_t bytes, ndim, code, bits; /* bytes of the storage; the dtype as DLPack has it */
  int64_t shape[TIGON_MAX_DIMS], strides[TIGON_MAX_DIMS];
} python_tensor;

/* NULL where the pool has no room. */
PyObject *tigon_python_pooled(const dlpack_exchange *exchange, const python_tensor *wanted);

/* Tensors that come in, tensors that go out, options; what a pair keeps. */
enum { TIGON_PYTHON_MOST = 32 };

/* An operator: Python's, which keeps it. */
typedef struct python_op {
  const dlpack_exchange *exchange;
  int64_t inputs, outputs, options;
  PyObject *plain[2];       /* the types whose memory may be read */
  PyObject *dtype;          /* the type of options that are neither numbers nor None */
  PyObject *modes;          /* (): how many of torch's modes see each operator */
  PyObject *negative;       /* (tensor): does it stand for minus its memory? */
  PyObject *threads;        /* (): torch's number of them, which a context on the CPU depends on */
  PyObject *stream;         /* (tensor): the current one of a device that is neither a CPU nor a GPU */
  PyObject *device;         /* (): the current CUDA device, where outputs are allocated */
  PyObject *thread, *calls; /* an object and its attribute: this thread's dictionary of calls */
  PyObject *prepare;        /* (key, *args): what the dictionary is then to hold for the key, a prepared call */
  PyObject *other;          /* (*args): the call of what is not plain, or what a mode is to see */
  PyObject *refuse;         /* (prepared call, *args): the outputs by another way, or raises */
  /* The call before: the thread that made it, its key and what the dictionary held for it. */
  uint64_t last_thread;
  PyObject *last_key, *last_prepared;
} python_op;

/* The call of an operator as a Python function; NULL in a process whose Python is out of sight. */
TIGON_API PyObject *tigon_python_call(python_op *op);

/* (forward, backward) as Python functions of a pair (python_pair.c) whose operators have calls in C. */
typedef struct python_pair python_pair;
TIGON_API PyObject *tigon_python_pair(python_pair *pair);

/* The outputs of an operator for its tensors and options: a tuple, or the only one. */
PyObject *tigon_python_run(python_op *op, PyObject *const *args);

/* The number that a function says of an argument, or of none where that is NULL; -1 with an error. */
int64_t tigon_python_ask(PyObject *function, PyObject *argument);

/* (first, *rest), or (*rest) where `first` is NULL; and a function's result for these. */
PyObject *tigon_python_tuple(PyObject *first, PyObject *const *rest, int64_t count);
PyObject *tigon_python_call_with(PyObject *function, PyObject *first, PyObject *const *rest, int64_t count);

/* A method as a function whose self is a capsule of `of`. */
PyObject *tigon_python_function(PyMethodDef *method, void *of);

#endif
