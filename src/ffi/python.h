/* What is used of CPython's stable ABI and of DLPack's exchange API, declared here: building needs neither's headers.
 * The functions are NULL in a process without Python. */
#ifndef TIGON_FFI_PYTHON_H
#define TIGON_FFI_PYTHON_H

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
PY void Py_IncRef(PyObject *), Py_DecRef(PyObject *);
PY PyObject *PyObject_Type(PyObject *);
PY PyObject *PyObject_CallObject(PyObject *callable, PyObject *args);
PY PyObject *PyObject_GetAttr(PyObject *, PyObject *name);
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
PY long PyLong_AsLong(PyObject *);
PY long long PyLong_AsLongLong(PyObject *);
PY void *PyLong_AsVoidPtr(PyObject *);
PY PyObject *PyLong_FromLong(long);
PY PyObject *PyTuple_New(Py_ssize_t);
PY PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
PY int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
#undef PY
#pragma GCC visibility pop

/* DLPackExchangeAPI of DLPack 1: the type's capsule __dlpack_c_exchange_api__. */
typedef struct dlpack_exchange {
  struct {
    uint32_t major, minor;
  } version;
  const struct dlpack_exchange *previous;
  void *allocate, *export_managed, *import_managed;
  int (*view)(PyObject *tensor, DLTensor *view); /* which borrows the tensor's memory, shape and strides; may be NULL */
  int (*current_stream)(DLDeviceType, int32_t device_id, void **stream);
} dlpack_exchange;

#endif
