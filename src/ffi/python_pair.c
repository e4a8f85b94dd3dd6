/* Forward and backward of an autograd function in C: python/tigon/torch/_derived.py has them in Python and says what a
 * pair is made of. */
#include "ffi/python.h"

enum { MOST = TIGON_PYTHON_MOST, POOL = 4 * MOST };
enum { SAVED_TENSORS, KEPT, NEEDED, TO_SAVE, NO_GRADIENT, DTYPE, NAMES };

/* Python's, which keeps it. Places are counted as in python/tigon/torch/_derived.py. */
struct python_pair {
  python_op *forward, *backward;
  int64_t saved_count, kept_count, returned_count, incoming;
  int64_t options;         /* 1: forward takes a tuple of them */
  int64_t others;          /* how many of those returned, the last ones, have no gradient */
  int64_t saved[MOST];     /* the tensors that autograd saves, among those that forward takes and makes */
  int64_t kept[MOST];      /* the same: what is kept as it is */
  int64_t returned[MOST];  /* the same: forward's results */
  int64_t gradients[MOST]; /* for each of forward's tensors: its place among backward's outputs; -1: it has none */
  int64_t sources[MOST];   /* for each of backward's arguments: where it comes from */
  PyObject *names[NAMES];  /* names of attributes */
  PyObject *keeps_graph;   /* (): is backward itself to be differentiated? */
  PyObject *otherwise;     /* (ctx, *gradients): a backward that says so */
};

/* Outputs are a tuple unless there is only one. */
static PyObject *output(const python_op *op, PyObject *outputs, int64_t i) {
  return op->outputs == 1 ? outputs : PyTuple_GetItem(outputs, (Py_ssize_t)i);
}

/* A tuple of what lies at these places of the pool. */
static PyObject *pick(PyObject *const *pool, const int64_t *places, int64_t count) {
  PyObject *picked[MOST];
  for (int64_t i = 0; i < count; ++i) picked[i] = pool[places[i]];
  return tigon_python_tuple(NULL, picked, count);
}

/* Takes the value over, which may be NULL with an error raised. */
static bool set(PyObject *object, PyObject *name, PyObject *value) {
  const bool done = value && PyObject_SetAttr(object, name, value) == 0;
  Py_DecRef(value);
  return done;
}

/* Puts a tuple's items at the end of the pool, which borrows them. */
static int64_t put_items(PyObject **pool, int64_t used, PyObject *tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count && used < POOL; ++i) pool[used++] = PyTuple_GetItem(tuple, i);
  return used;
}

/* ---- forward ---- */

/* The dtype of argument i if that needs a gradient, else None. Borrowed: torch keeps each dtype. */
static PyObject *dtype_of(const python_pair *pair, PyObject *needed, PyObject *const *args, int64_t i) {
  if (!PyObject_IsTrue(PyTuple_GetItem(needed, (Py_ssize_t)i))) return &_Py_NoneStruct;
  PyObject *dtype = PyObject_GetAttr(args[i], pair->names[DTYPE]);
  Py_DecRef(dtype);
  return dtype;
}

static PyObject *kept_of(const python_pair *pair, PyObject *ctx, PyObject *const *pool) {
  PyObject *kept[MOST], *needed = PyObject_GetAttr(ctx, pair->names[NEEDED]);
  bool found = needed != NULL;
  for (int64_t i = 0; found && i < pair->kept_count; ++i) {
    const int64_t place = pair->kept[i];
    kept[i] = place < 0 ? dtype_of(pair, needed, pool, -1 - place) : pool[place];
    found = kept[i] != NULL;
  }
  Py_DecRef(needed);
  return found ? tigon_python_tuple(NULL, kept, pair->kept_count) : NULL;
}

/* What backward needs of forward's arguments and outputs, into the ctx, and which of those returned have no gradient. */
static bool keep(const python_pair *pair, PyObject *ctx, PyObject *const *pool) {
  const int64_t *others = pair->returned + pair->returned_count - pair->others;
  if (pair->others && !set(ctx, pair->names[NO_GRADIENT], pick(pool, others, pair->others))) return false;
  return set(ctx, pair->names[TO_SAVE], pick(pool, pair->saved, pair->saved_count)) &&
         set(ctx, pair->names[KEPT], kept_of(pair, ctx, pool));
}

/* (ctx, *tensors, options); without options no tuple of them; ctx is None where there will be no backward. */
static PyObject *forward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  const python_pair *pair = PyCapsule_GetPointer(self, NULL);
  python_op *op = pair->forward;
  PyObject *pool[POOL + MOST], *ctx = args[0]; /* and the outputs */
  (void)count;
  int64_t used = 0;
  while (used < op->inputs) pool[used] = args[1 + used], ++used;
  if (pair->options) used = put_items(pool, used, args[1 + used]);
  PyObject *outputs = tigon_python_run(op, pool);
  if (!outputs) return NULL;
  for (int64_t i = 0; i < op->outputs; ++i) pool[used++] = output(op, outputs, i);
  PyObject *result = NULL;
  if (ctx == &_Py_NoneStruct || keep(pair, ctx, pool))
    result = pair->returned_count == 1 ? Py_NewRef(pool[pair->returned[0]])
                                       : pick(pool, pair->returned, pair->returned_count);
  Py_DecRef(outputs);
  return result;
}

/* ---- backward ---- */

/* For each argument its gradient, if it needs one, and None for the options. */
static PyObject *gradients_of(const python_pair *pair, PyObject *outputs, PyObject *needed) {
  const int64_t inputs = pair->forward->inputs, count = inputs + pair->options;
  PyObject *gradients[MOST + 1];
  for (int64_t i = 0; i < count; ++i) {
    const bool has = i < inputs && pair->gradients[i] >= 0 && PyObject_IsTrue(PyTuple_GetItem(needed, (Py_ssize_t)i));
    gradients[i] = has ? output(pair->backward, outputs, pair->gradients[i]) : &_Py_NoneStruct;
  }
  return tigon_python_tuple(NULL, gradients, count);
}

/* (ctx, *gradients) */
static PyObject *backward(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  const python_pair *pair = PyCapsule_GetPointer(self, NULL);
  const int64_t keeps = tigon_python_ask(pair->keeps_graph, NULL);
  if (keeps < 0) return NULL;
  if (keeps) return tigon_python_call_with(pair->otherwise, NULL, args, count);
  PyObject *pool[POOL], *taken[2 * MOST], *held[3], *outputs = NULL, *result = NULL;
  int64_t used = 0;
  int found = 0; /* how many of the ctx's SAVED_TENSORS, KEPT and NEEDED were found */
  while (used < pair->incoming) pool[used] = args[1 + used], ++used;
  for (; found < 3 && (held[found] = PyObject_GetAttr(args[0], pair->names[found])); ++found)
    used = put_items(pool, used, held[found]);
  if (found == 3) {
    const int64_t arguments = pair->backward->inputs + pair->backward->options;
    for (int64_t i = 0; i < arguments; ++i) taken[i] = pool[pair->sources[i]];
    outputs = tigon_python_run(pair->backward, taken);
  }
  if (outputs) result = gradients_of(pair, outputs, held[NEEDED]);
  Py_DecRef(outputs);
  while (found > 0) Py_DecRef(held[--found]);
  return result;
}

PyObject *tigon_python_pair(python_pair *pair) {
  static PyMethodDef methods[] = {{.name = "forward", .function = forward, .flags = METH_FASTCALL},
                                  {.name = "backward", .function = backward, .flags = METH_FASTCALL}};
  PyObject *made[2] = {tigon_python_function(&methods[0], pair)};
  if (made[0]) made[1] = tigon_python_function(&methods[1], pair);
  PyObject *both = made[1] ? tigon_python_tuple(NULL, made, 2) : NULL;
  for (int i = 0; i < 2; ++i) Py_DecRef(made[i]);
  return both;
}
