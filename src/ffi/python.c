/* An operator's call from Python: finds the argument struct that was filled for these layouts before, writes the data
 * pointers, has the outputs made and calls the entry. python/tigon/torch/_op.py fills the struct and says the rest. */
#include <stdbool.h>
#include <string.h>

#include "ffi/python.h"

enum { MOST = TIGON_PYTHON_MOST, HEAD = 3, WORDS = 3 + 2 * TIGON_MAX_DIMS };

typedef tigon_status entry_function(void *context, void *args);

/* Where a tensor's pointer goes, in words of the struct; `half` too, `halves` bytes further on, where it is not 0. */
typedef struct place {
  uint64_t first, half, halves;
} place;

/* A prepared call is a tuple: this one's address, then for each output and the workspace None or what makes it, a
 * function and its arguments. */
typedef struct plan {
  entry_function *function; /* NULL: the layouts are not the entry's, which op->other() knows how to copy */
  void *context;
  uintptr_t *args;
  uint64_t brief; /* 1: over before another thread could make use of the interpreter */
  place places[]; /* of the inputs, the outputs, the workspace */
} plan;

static bool is_plain(const python_op *op, PyObject *tensor) {
  PyObject *type = PyObject_Type(tensor);
  Py_DecRef(type);
  return type == op->plain[0] || type == op->plain[1];
}

/* torch's lazy minus, of which DLPack's view says nothing. */
static bool is_negative(const python_op *op, PyObject *tensor) {
  PyObject *answer = PyObject_CallFunctionObjArgs(op->negative, tensor, (PyObject *)NULL);
  const bool negative = !answer || PyObject_IsTrue(answer);
  if (answer) Py_DecRef(answer);
  return negative;
}

int64_t tigon_python_ask(PyObject *function) {
  PyObject *number = PyObject_CallObject(function, NULL);
  if (!number) return -1;
  const int64_t found = PyLong_AsLong(number);
  Py_DecRef(number);
  return found;
}

bool tigon_python_contiguous(const python_op *op, PyObject *tensor) {
  DLTensor view;
  if (!is_plain(op, tensor)) return false;
  if (op->exchange->view(tensor, &view) != 0) {
    PyErr_Clear(); /* a tensor without memory, as vmap's */
    return false;
  }
  int64_t step = 1;
  for (int i = view.ndim - 1; i >= 0; --i) {
    if (view.shape[i] != 1 && view.strides[i] != step) return false;
    step *= view.shape[i];
  }
  return true;
}

/* The stream and the current device, on the CPU the number of threads. */
static bool put_queue(const python_op *op, DLDevice device, int64_t *words) {
  void *stream = NULL;
  if (device.device_type == kDLCUDA && op->exchange->current_stream(kDLCUDA, device.device_id, &stream)) return false;
  words[1] = device.device_type == kDLCUDA ? (int64_t)stream : tigon_python_ask(op->threads);
  words[2] = device.device_type == kDLCUDA ? tigon_python_ask(op->device) : 0;
  return words[1] != -1 && words[2] != -1;
}

/* The queue and the tensors' layouts, from words[1] on: the next word, NULL if they are not known here. */
static int64_t *put_layouts(const python_op *op, PyObject *const *tensors, int64_t *words, const void **data) {
  int64_t *word = words + HEAD;
  for (int i = 0; i < op->inputs; ++i) {
    data[i] = NULL;
    if (tensors[i] == op->none) {
      if (i == 0) return NULL;
      *word++ = -1;
      continue;
    }
    DLTensor view;
    if (!is_plain(op, tensors[i]) || op->exchange->view(tensors[i], &view) != 0) return NULL;
    if (view.device.device_type != kDLCPU && view.device.device_type != kDLCUDA) return NULL;
    if (view.ndim > TIGON_MAX_DIMS || is_negative(op, tensors[i])) return NULL;
    data[i] = (char *)view.data + view.byte_offset;
    *word++ = view.ndim;
    *word++ = view.dtype.code | view.dtype.bits << 8 | view.dtype.lanes << 16;
    *word++ = (int64_t)view.device.device_type << 32 | view.device.device_id;
    memcpy(word, view.shape, (size_t)view.ndim * sizeof *word);
    memcpy(word + view.ndim, view.strides, (size_t)view.ndim * sizeof *word);
    word += 2 * view.ndim;
    if (i == 0 && !put_queue(op, view.device, words)) return NULL;
  }
  return word;
}

/* The options' values and, in one word, which are floats. */
static int64_t *put_options(const python_op *op, PyObject *const *options, int64_t *word) {
  int64_t *floats = word++;
  *floats = 0;
  for (int i = 0; i < op->options; ++i, ++word) {
    PyObject *type = PyObject_Type(options[i]);
    Py_DecRef(type);
    if (type == op->number) {
      const double value = PyFloat_AsDouble(options[i]);
      memcpy(word, &value, sizeof value);
      *floats |= (int64_t)1 << i;
    } else if (type == op->integer || type == op->boolean) {
      *word = PyLong_AsLongLong(options[i]);
      if (*word == -1 && PyErr_Occurred()) return NULL;
    } else if (options[i] == op->none || type == op->dtype) {
      *word = (int64_t)options[i]; /* there is one of each */
    } else {
      return NULL;
    }
  }
  return word;
}

/* All that a struct depends on: its bytes, 0 if that is not known here, or with an error raised. */
static size_t put_key(const python_op *op, PyObject *const *args, int64_t *words, const void **data) {
  if (tigon_python_ask(op->modes) != 0) return 0;
  int64_t *end = put_layouts(op, args, words, data);
  words[0] = (int64_t)op;
  if (end) end = put_options(op, args + op->inputs, end);
  return end ? (size_t)((char *)end - (char *)words) : 0;
}

PyObject *tigon_python_call_with(PyObject *function, PyObject *first, PyObject *const *rest, int count) {
  const int firsts = first != NULL;
  PyObject *args = PyTuple_New(firsts + count);
  if (!args) return NULL;
  if (first) {
    Py_IncRef(first);
    PyTuple_SetItem(args, 0, first);
  }
  for (int i = 0; i < count; ++i) {
    Py_IncRef(rest[i]);
    PyTuple_SetItem(args, firsts + i, rest[i]);
  }
  PyObject *result = PyObject_CallObject(function, args);
  Py_DecRef(args);
  return result;
}

/* An output or the workspace, and where it lies; None for an absent one, NULL with an error raised. */
static PyObject *make(const python_op *op, PyObject *maker, const void **data) {
  *data = NULL;
  if (maker == op->none) {
    Py_IncRef(maker);
    return maker;
  }
  DLTensor view;
  PyObject *made = PyObject_CallObject(PyTuple_GetItem(maker, 0), PyTuple_GetItem(maker, 1));
  if (made && op->exchange->view(made, &view) != 0) {
    Py_DecRef(made);
    return NULL;
  }
  if (made) *data = view.data;
  return made;
}

static PyObject *make_outputs(const python_op *op, PyObject *prepared, const void **data) {
  if (op->outputs == 1) return make(op, PyTuple_GetItem(prepared, 1), data);
  PyObject *outputs = PyTuple_New(op->outputs);
  for (int i = 0; outputs && i < op->outputs; ++i) {
    PyObject *output = make(op, PyTuple_GetItem(prepared, 1 + i), &data[i]);
    if (!output) {
      Py_DecRef(outputs);
      return NULL;
    }
    PyTuple_SetItem(outputs, i, output);
  }
  return outputs;
}

static tigon_status run(const python_op *op, const plan *p, const void *const *data) {
  for (int i = 0; i <= op->inputs + op->outputs; ++i) {
    const place *to = &p->places[i];
    if (!data[i]) continue;
    p->args[to->first] = (uintptr_t)data[i];
    if (to->half) p->args[to->half] = (uintptr_t)data[i] + to->halves;
  }
  PyThreadState *thread = p->brief ? NULL : PyEval_SaveThread();
  const tigon_status status = p->function(p->context, p->args);
  if (thread) PyEval_RestoreThread(thread);
  return status;
}

/* What op->refuse() has to say of a call's status. */
static PyObject *refused(const python_op *op, PyObject *prepared, tigon_status status, PyObject *const *args) {
  const int given = (int)(op->inputs + op->options);
  PyObject *rest[1 + 2 * MOST];
  if (!(rest[0] = PyLong_FromLong(status))) return NULL;
  for (int i = 0; i < given; ++i) rest[1 + i] = args[i];
  PyObject *result = tigon_python_call_with(op->refuse, prepared, rest, 1 + given);
  Py_DecRef(rest[0]);
  return result;
}

/* The outputs: a tuple, or the only one. Making them may run a finalizer that uses the same struct: pointers are
 * written once all are there. */
static PyObject *call_prepared(const python_op *op, PyObject *prepared, PyObject *const *args, const void **data) {
  const plan *p = PyLong_AsVoidPtr(PyTuple_GetItem(prepared, 0));
  if (!p->function) return tigon_python_call_with(op->other, NULL, args, (int)(op->inputs + op->options));
  PyObject *outputs = make_outputs(op, prepared, data + op->inputs), *workspace = NULL;
  tigon_status status = TIGON_OK;
  if (outputs) workspace = make(op, PyTuple_GetItem(prepared, 1 + op->outputs), data + op->inputs + op->outputs);
  if (workspace) {
    status = run(op, p, data);
    Py_DecRef(workspace);
    if (status == TIGON_OK) return outputs;
  }
  if (outputs) Py_DecRef(outputs);
  return status == TIGON_OK ? NULL : refused(op, prepared, status, args);
}

/* The prepared call for a key: mostly that of the call before, otherwise found by the key or made. */
static PyObject *find_prepared(python_op *op, const int64_t *words, size_t bytes, PyObject *const *args, int given) {
  const uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
  if (op->last_key && op->last_thread == thread && (size_t)PyBytes_Size(op->last_key) == bytes &&
      memcmp(PyBytes_AsString(op->last_key), words, bytes) == 0) {
    Py_IncRef(op->last_prepared);
    return op->last_prepared;
  }
  PyObject *key = PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)bytes);
  PyObject *calls = key ? PyObject_GetAttr(op->thread, op->calls) : NULL;
  PyObject *prepared = calls ? PyDict_GetItemWithError(calls, key) : NULL;
  if (prepared)
    Py_IncRef(prepared);
  else if (!PyErr_Occurred())
    prepared = tigon_python_call_with(op->prepare, key, args, given);
  if (calls) Py_DecRef(calls);
  if (!prepared) {
    if (key) Py_DecRef(key);
    return NULL;
  }
  PyObject *forgotten[] = {op->last_key, op->last_prepared};
  op->last_thread = thread, op->last_key = key, op->last_prepared = prepared;
  Py_IncRef(prepared);
  for (int i = 0; i < 2; ++i)
    if (forgotten[i]) Py_DecRef(forgotten[i]);
  return prepared;
}

PyObject *tigon_python_run(python_op *op, PyObject *const *args) {
  const void *data[2 * MOST];
  int64_t words[HEAD + MOST * WORDS + 1 + MOST];
  const int given = (int)(op->inputs + op->options);
  const size_t bytes = put_key(op, args, words, data);
  if (!bytes) {
    PyErr_Clear();
    return tigon_python_call_with(op->other, NULL, args, given);
  }
  PyObject *prepared = find_prepared(op, words, bytes, args, given);
  PyObject *result = prepared ? call_prepared(op, prepared, args, data) : NULL;
  if (prepared) Py_DecRef(prepared);
  return result;
}

/* (*tensors, *options) */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  (void)count;
  return tigon_python_run(PyCapsule_GetPointer(self, NULL), args);
}

PyObject *tigon_python_function(PyMethodDef *method, void *of) {
  PyObject *self = PyCapsule_New(of, NULL, NULL);
  if (!self) return NULL;
  PyObject *made = PyCFunction_NewEx(method, self, NULL);
  Py_DecRef(self);
  return made;
}

/* The call of an operator as a Python function; NULL in a process whose Python is out of sight. */
TIGON_API PyObject *tigon_python_call(python_op *op) {
  static PyMethodDef method = {.name = "call", .function = call, .flags = METH_FASTCALL};
  const dlpack_exchange *api = op->exchange;
  if (api->version.major != 1 || !api->import_managed || !api->view || !api->current_stream) return NULL;
  if (!PyCFunction_NewEx || op->inputs > MOST || op->outputs >= MOST || op->options > MOST) return NULL;
  return tigon_python_function(&method, op);
}
