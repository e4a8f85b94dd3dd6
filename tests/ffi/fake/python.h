/* As much of Python as src/ffi/python.h names: counted objects, none of which may be lost, and functions that fail on purpose. */
#ifndef TIGON_FAKE_PYTHON_H
#define TIGON_FAKE_PYTHON_H

#include "api/api.h"
#include "ffi/python.h"

enum { COLS = 4, MOST = 32, ATTRIBUTES = 6 };
typedef PyObject *function(PyObject *const *args, Py_ssize_t count);

struct _object {
  long references;
  PyObject *type;
  function *body;   /* a function's */
  Py_ssize_t count; /* items of a tuple, attributes, bytes */
  PyObject **items; /* which are the object's */
  PyMethodDef *method;
  managed_tensor *managed; /* the memory of a tensor that was imported */
  union {
    double number;
    long long integer;
    void *pointer;
    float data[COLS];
    char bytes[2400];
  };
};

enum { FOREVER = 1 << 30 };
static PyObject tensor_type = {.references = FOREVER}, other_type = {.references = FOREVER},
                dtype_type = {.references = FOREVER}, none_type = {.references = FOREVER};
PyObject PyFloat_Type = {.references = FOREVER}, PyLong_Type = {.references = FOREVER},
         PyBool_Type = {.references = FOREVER}, _Py_NoneStruct = {.references = FOREVER, .type = &none_type};
static PyObject dtype = {.references = FOREVER, .type = &dtype_type};
static PyObject *const none = &_Py_NoneStruct;
static long alive;
static const char *raised;

void *__real_calloc(size_t count, size_t bytes); /* the one that never fails */
static PyObject *object_of(PyObject *type, Py_ssize_t count) {
  PyObject *made = __real_calloc(1, sizeof *made);
  assert_non_null(made);
  made->references = 1, made->type = type, made->count = count;
  if (count) made->items = __real_calloc((size_t)count, sizeof(PyObject *));
  ++alive;
  return made;
}

/* Shall this one fail? None is called while an error is raised. */
static long calls, nth;
static bool fails(const char *name) {
  if (raised) fail_msg("%s is called while %s is raised", name, raised);
  if (++calls != nth) return false;
  raised = name;
  return true;
}

PyObject *Py_NewRef(PyObject *o) { return ++o->references, o; }
PyObject *Py_XNewRef(PyObject *o) { return o ? Py_NewRef(o) : NULL; }
void Py_DecRef(PyObject *o) {
  if (!o || --o->references) return;
  assert_true(o->type != NULL);
  for (Py_ssize_t i = 0; o->items && i < o->count; ++i) Py_DecRef(o->items[i]);
  if (o->managed) o->managed->deleter(o->managed);
  free(o->items);
  free(o);
  --alive;
}
PyObject *PyObject_Type(PyObject *o) { return Py_NewRef(o->type); }
int PyObject_IsTrue(PyObject *o) { return o->integer != 0; }
PyObject *PyErr_Occurred(void) { return raised ? none : NULL; }
void PyErr_Clear(void) { raised = NULL; }

PyObject *PyTuple_New(Py_ssize_t count) { return fails("PyTuple_New") ? NULL : object_of(&other_type, count); }
PyObject *PyTuple_GetItem(PyObject *tuple, Py_ssize_t i) {
  assert_true(i >= 0 && i < tuple->count);
  return tuple->items[i];
}
Py_ssize_t PyTuple_Size(PyObject *tuple) { return tuple->count; }
int PyTuple_SetItem(PyObject *tuple, Py_ssize_t i, PyObject *item) {
  assert_true(i >= 0 && i < tuple->count && !tuple->items[i]);
  tuple->items[i] = item;
  return 0;
}

/* A name of an attribute is its place. */
PyObject *PyObject_GetAttr(PyObject *o, PyObject *name) {
  if (fails("PyObject_GetAttr")) return NULL;
  return Py_NewRef(o->type == &tensor_type ? &dtype : o->items[name->integer]);
}
int PyObject_SetAttr(PyObject *o, PyObject *name, PyObject *value) {
  if (fails("PyObject_SetAttr")) return -1;
  Py_DecRef(o->items[name->integer]);
  o->items[name->integer] = Py_NewRef(value);
  return 0;
}
PyObject *PyObject_CallObject(PyObject *callable, PyObject *args) {
  return fails("PyObject_CallObject") ? NULL : callable->body(args->items, args->count);
}
PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...) {
  va_list list;
  va_start(list, callable);
  PyObject *argument = va_arg(list, PyObject *);
  va_end(list);
  return fails("PyObject_CallFunctionObjArgs") ? NULL : callable->body(&argument, argument ? 1 : 0);
}

PyObject *PyBytes_FromStringAndSize(const char *bytes, Py_ssize_t count) {
  if (fails("PyBytes_FromStringAndSize")) return NULL;
  PyObject *made = object_of(&other_type, 0);
  assert_true((size_t)count <= sizeof made->bytes);
  memcpy(made->bytes, bytes, (size_t)count);
  made->count = count;
  return made;
}
char *PyBytes_AsString(PyObject *o) { return o->bytes; }
Py_ssize_t PyBytes_Size(PyObject *o) { return o->count; }
PyObject *PyDict_GetItemWithError(PyObject *dictionary, PyObject *key) {
  (void)key;
  return fails("PyDict_GetItemWithError") ? NULL : dictionary->items[0];
}

PyObject *PyCapsule_New(void *pointer, const char *name, void (*destructor)(PyObject *)) {
  assert_true(!name && !destructor);
  if (fails("PyCapsule_New")) return NULL;
  PyObject *made = object_of(&other_type, 0);
  made->pointer = pointer;
  return made;
}
void *PyCapsule_GetPointer(PyObject *o, const char *name) { return assert_null(name), o->pointer; }
PyObject *PyCFunction_NewEx(PyMethodDef *method, PyObject *self, PyObject *module) {
  assert_null(module);
  if (fails("PyCFunction_NewEx")) return NULL;
  PyObject *made = object_of(&other_type, 1);
  made->method = method, made->items[0] = Py_NewRef(self);
  return made;
}
static PyObject *call(PyObject *of, PyObject *const *args, Py_ssize_t count) {
  return of->method->function(of->items[0], args, count);
}

static bool absent, saved; /* absent: w is */
static uint64_t thread_id = 1;
PyThreadState *PyEval_SaveThread(void) { return saved = true, (PyThreadState *)&saved; }
void PyEval_RestoreThread(PyThreadState *state) { assert_true(saved && state), saved = false; }
PyThreadState *PyThreadState_Get(void) { return (PyThreadState *)&saved; }
uint64_t PyThreadState_GetID(PyThreadState *state) { return assert_non_null(state), thread_id; }
double PyFloat_AsDouble(PyObject *o) { return o->number; }
long long PyLong_AsLongLong(PyObject *o) { return fails("PyLong_AsLongLong") ? -1 : o->integer; }
void *PyLong_AsVoidPtr(PyObject *o) { return o->pointer; }

static PyObject *long_of(long long value) {
  PyObject *made = object_of(&PyLong_Type, 0);
  return made->integer = value, made;
}
static PyObject *float_of(double value) {
  PyObject *made = object_of(&PyFloat_Type, 0);
  return made->number = value, made;
}
static PyObject *function_of(function *body) {
  PyObject *made = object_of(&other_type, 0);
  return made->body = body, made;
}
static PyObject *tensor_of(float first) {
  PyObject *made = object_of(&tensor_type, 0);
  for (int i = 0; i < COLS; ++i) made->data[i] = first + (float)i;
  return made;
}
/* Takes its items over. */
#define TUPLE(...) tuple_of((PyObject *[]){__VA_ARGS__}, sizeof((PyObject *[]){__VA_ARGS__}) / sizeof(PyObject *))
static PyObject *tuple_of(PyObject *const *items, size_t count) {
  PyObject *made = object_of(&other_type, (Py_ssize_t)count);
  memcpy(made->items, items, count * sizeof *items);
  return made;
}

#endif
