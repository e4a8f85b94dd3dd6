/* An operator's call from Python: finds the argument struct that was filled for these layouts before, writes the data
 * pointers, has the outputs made and calls the entry. python/tigon/torch/_op.py fills the struct and says the rest. */
#include <string.h>

#include "ffi/python.h"

enum { MOST = TIGON_PYTHON_MOST, HEAD = 3, WORDS = 3 + 2 * TIGON_MAX_DIMS };

typedef tigon_status entry_function(void *context, void *args);

/* Where a tensor's pointer goes, in words of the struct; `half` too, `halves` bytes further on, where it is not 0. */
typedef struct place {
  uint64_t first, half, halves;
} place;

/* A prepared call is a tuple. The address of this struct comes first. For each output and the workspace follows None, or what
 * makes it: a function, its arguments, and None or the bytes of the python_tensor that is tried first. */
typedef struct plan {
  entry_function *function; /* NULL: the layouts are not the entry's, which op->refuse() knows how to copy */
  void *context;
  uintptr_t *args;
  uint64_t brief;  /* 1: over before another thread could make use of the interpreter */
  uint64_t status; /* status of the last call */
  place places[];  /* places of the inputs, the outputs and the workspace */
} plan;

static bool is_none(const PyObject *object) { return object == &_Py_NoneStruct; }

/* Borrowed. */
static const PyObject *type_of(PyObject *object) {
  PyObject *type = PyObject_Type(object);
  Py_DecRef(type);
  return type;
}

int64_t tigon_python_ask(PyObject *function, PyObject *argument) {
  PyObject *number = PyObject_CallFunctionObjArgs(function, argument, (PyObject *)NULL);
  const int64_t found = number ? PyLong_AsLongLong(number) : -1;
  Py_DecRef(number);
  return found;
}

/* The stream and the current device, on the CPU the number of threads. False on a device that is not known here. */
static bool put_queue(const python_op *op, DLDevice device, PyObject *tensor, int64_t *words) {
  void *stream = NULL;
  words[2] = 0;
  switch (device.device_type) {
    case kDLCPU: words[1] = tigon_python_ask(op->threads, NULL); break;
    case kDLExtDev: words[1] = tigon_python_ask(op->stream, tensor); break;
    case kDLCUDA:
      if (op->exchange->current_stream(kDLCUDA, device.device_id, &stream)) return false;
      words[1] = (int64_t)stream;
      words[2] = tigon_python_ask(op->device, NULL);
      break;
    default: return false;
  }
  return words[1] != -1 && words[2] != -1;
}

/* The queue and the tensors' layouts, from words[1] on: the next word, NULL if they are not known here. */
static int64_t *put_layouts(const python_op *op, PyObject *const *tensors, int64_t *words, const void **data) {
  int64_t *word = words + HEAD;
  for (int i = 0; i < op->inputs; ++i) {
    data[i] = NULL;
    if (is_none(tensors[i])) {
      if (i == 0) return NULL;
      *word++ = -1;
      continue;
    }
    DLTensor view;
    const PyObject *type = type_of(tensors[i]);
    if (type != op->plain[0] && type != op->plain[1]) return NULL;
    if (op->exchange->view(tensors[i], &view) != 0 || view.ndim > TIGON_MAX_DIMS) return NULL;
    /* torch's lazy minus, of which DLPack's view says nothing. */
    if (tigon_python_ask(op->negative, tensors[i]) != 0) return NULL;
    data[i] = (char *)view.data + view.byte_offset;
    *word++ = view.ndim;
    *word++ = view.dtype.code | view.dtype.bits << 8 | view.dtype.lanes << 16;
    *word++ = (int64_t)view.device.device_type << 32 | view.device.device_id;
    memcpy(word, view.shape, (size_t)view.ndim * sizeof *word);
    memcpy(word + view.ndim, view.strides, (size_t)view.ndim * sizeof *word);
    word += 2 * view.ndim;
    if (i == 0 && !put_queue(op, view.device, tensors[i], words)) return NULL;
  }
  return word;
}

/* The options' values and, in one word, which are floats. */
static int64_t *put_options(const python_op *op, PyObject *const *options, int64_t *word) {
  int64_t *floats = word++;
  *floats = 0;
  for (int i = 0; i < op->options; ++i, ++word) {
    const PyObject *type = type_of(options[i]);
    if (type == &PyFloat_Type) {
      const double value = PyFloat_AsDouble(options[i]);
      memcpy(word, &value, sizeof value);
      *floats |= (int64_t)1 << i;
    } else if (type == &PyLong_Type || type == &PyBool_Type) {
      *word = PyLong_AsLongLong(options[i]);
      if (*word == -1 && PyErr_Occurred()) return NULL;
    } else if (is_none(options[i]) || type == op->dtype) {
      *word = (int64_t)options[i]; /* there is one of each */
    } else {
      return NULL;
    }
  }
  return word;
}

PyObject *tigon_python_tuple(PyObject *first, PyObject *const *rest, int64_t count) {
  const int firsts = first != NULL;
  PyObject *tuple = PyTuple_New(firsts + count);
  if (tuple && first) PyTuple_SetItem(tuple, 0, Py_NewRef(first));
  for (int64_t i = 0; tuple && i < count; ++i) PyTuple_SetItem(tuple, firsts + i, Py_NewRef(rest[i]));
  return tuple;
}

PyObject *tigon_python_call_with(PyObject *function, PyObject *first, PyObject *const *rest, int64_t count) {
  PyObject *args = tigon_python_tuple(first, rest, count);
  PyObject *result = args ? PyObject_CallObject(function, args) : NULL;
  Py_DecRef(args);
  return result;
}

static PyObject *call_with(const python_op *op, PyObject *function, PyObject *first, PyObject *const *args) {
  return tigon_python_call_with(function, first, args, op->inputs + op->options);
}

/* An output or the workspace, and where it lies; None for an absent one, NULL with an error raised. */
static PyObject *make(const python_op *op, PyObject *maker, const void **data) {
  *data = NULL;
  if (is_none(maker)) return Py_NewRef(maker);
  DLTensor view;
  PyObject *wanted = PyTuple_GetItem(maker, 2), *made = NULL;
  if (!is_none(wanted)) made = tigon_python_pooled(op->exchange, (const void *)PyBytes_AsString(wanted));
  if (!made) {
    PyErr_Clear();
    made = PyObject_CallObject(PyTuple_GetItem(maker, 0), PyTuple_GetItem(maker, 1));
  }
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

/* The outputs: a tuple, or the only one. Making them may run a finalizer that uses the same struct: pointers are
 * written once all are there. */
static PyObject *call_prepared(const python_op *op, PyObject *prepared, PyObject *const *args, const void **data) {
  plan *p = PyLong_AsVoidPtr(PyTuple_GetItem(prepared, 0));
  if (!p->function) return call_with(op, op->refuse, prepared, args);
  PyObject *outputs = make_outputs(op, prepared, data + op->inputs), *workspace = NULL;
  if (outputs) workspace = make(op, PyTuple_GetItem(prepared, 1 + op->outputs), data + op->inputs + op->outputs);
  if (!workspace) {
    Py_DecRef(outputs);
    return NULL;
  }
  const tigon_status status = run(op, p, data);
  Py_DecRef(workspace);
  if (status == TIGON_OK) return outputs;
  Py_DecRef(outputs);
  p->status = status;
  return call_with(op, op->refuse, prepared, args);
}

/* The prepared call for a key: mostly that of the call before, otherwise found by the key or made. */
static PyObject *find_prepared(python_op *op, const int64_t *words, size_t bytes, PyObject *const *args) {
  const uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
  if (op->last_key && op->last_thread == thread && (size_t)PyBytes_Size(op->last_key) == bytes &&
      memcmp(PyBytes_AsString(op->last_key), words, bytes) == 0)
    return Py_NewRef(op->last_prepared);
  PyObject *key = PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)bytes);
  PyObject *calls = key ? PyObject_GetAttr(op->thread, op->calls) : NULL;
  PyObject *prepared = calls ? Py_XNewRef(PyDict_GetItemWithError(calls, key)) : NULL;
  Py_DecRef(calls);
  if (!prepared && !PyErr_Occurred()) prepared = call_with(op, op->prepare, key, args);
  if (!prepared) {
    Py_DecRef(key);
    return NULL;
  }
  PyObject *forgotten[] = {op->last_key, op->last_prepared};
  op->last_thread = thread, op->last_key = key, op->last_prepared = Py_NewRef(prepared);
  for (int i = 0; i < 2; ++i) Py_DecRef(forgotten[i]);
  return prepared;
}

PyObject *tigon_python_run(python_op *op, PyObject *const *args) {
  const void *data[2 * MOST];
  int64_t words[HEAD + MOST * WORDS + 1 + MOST]; /* all that a struct depends on */
  words[0] = (int64_t)op;
  int64_t *end = tigon_python_ask(op->modes, NULL) == 0 ? put_layouts(op, args, words, data) : NULL;
  if (end) end = put_options(op, args + op->inputs, end);
  if (!end) {
    PyErr_Clear();
    return call_with(op, op->other, NULL, args);
  }
  PyObject *prepared = find_prepared(op, words, (size_t)((char *)end - (char *)words), args);
  PyObject *result = prepared ? call_prepared(op, prepared, args, data) : NULL;
  Py_DecRef(prepared);
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

PyObject *tigon_python_call(python_op *op) {
  static PyMethodDef method = {.name = "call", .function = call, .flags = METH_FASTCALL};
  const dlpack_exchange *api = op->exchange;
  if (api->version.major != 1 || !api->import_managed || !api->view || !api->current_stream) return NULL;
  if (!PyCFunction_NewEx || op->inputs > MOST || op->outputs >= MOST || op->options > MOST) return NULL;
  return tigon_python_function(&method, op);
}
