/* Calls from Python, with this file's objects in place of Python's. Each function of Python that can fail fails once, and so does
 * memory. The call then raises or goes another way, no object is lost, and the same call passes afterwards. */
#include "fake/python.h"
#include "faults.h"
#include "ffi/pool.h"

/* ---- the exchange of tensors ---- */

static DLDevice device = {kDLCPU, 0};
static int32_t ndim = 1;

static int view(PyObject *tensor, DLTensor *view) {
  static int64_t shape[TIGON_MAX_DIMS + 1] = {COLS}, strides[TIGON_MAX_DIMS + 1] = {1};
  if (fails("view")) return -1;
  void *data = tensor->managed ? tensor->managed->tensor.data : tensor->data;
  *view = (DLTensor){data, device, ndim, {kDLFloat, 32, 1}, shape, strides, 0};
  return 0;
}
static int import_managed(managed_tensor *managed, PyObject **made) {
  if (fails("import_managed")) return managed->deleter(managed), -1;
  *made = object_of(&tensor_type, 0);
  (*made)->managed = managed;
  return 0;
}
static int current_stream(DLDeviceType type, int32_t id, void **stream) {
  assert_true(type == kDLCUDA && id == device.device_id);
  if (fails("current_stream")) return -1;
  *stream = &device;
  return 0;
}
static const dlpack_exchange exchange = {
    .version = {1, 0}, .import_managed = import_managed, .view = view, .current_stream = current_stream};

/* ---- an operator: y = x + scale * w, z = 2 y, of which backward gives dx = dy, dw = 2 dy ---- */

/* python.c's and python_pair.c's, which Python fills. */
typedef struct plan {
  tigon_status (*function)(void *context, uintptr_t *args);
  void *context;
  uintptr_t *args;
  uint64_t brief, status;
  struct {
    uint64_t first, half, halves;
  } places[5];
} plan;
typedef struct pair {
  python_op *forward, *backward;
  int64_t saved_count, kept_count, returned_count, incoming, options, others;
  int64_t saved[MOST], kept[MOST], returned[MOST], gradients[MOST], sources[MOST];
  PyObject *names[ATTRIBUTES], *keeps_graph, *otherwise;
} pair;

static uintptr_t words[6];
static tigon_status status;
static float *at(int i) { return (float *)words[i]; } /* NOLINT(performance-no-int-to-ptr) */
static tigon_status run_entry(void *context, uintptr_t *args) {
  assert_true(!context && args == words && words[5] == words[0] + 8);
  for (int i = 0; status == TIGON_OK && i < COLS; ++i) {
    at(2)[i] = at(0)[i] + (absent ? 0 : at(1)[i]);
    at(3)[i] = 2 * at(2)[i];
  }
  return status;
}
static plan the_plan = {
    .function = run_entry, .args = words, .places = {{0, 5, 8}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 0, 0}}};

static PyObject *prepared, *modes_object, *known;
static long others, refused;
static int64_t modes, keeps, queue, current, negative;
static PyObject *of_tensors(float first) { return TUPLE(tensor_of(first), tensor_of(2 * first)); }
static PyObject *say_modes(PyObject *const *args, Py_ssize_t count) {
  return assert_true(args && !count), long_of(modes);
}
static PyObject *say_keeps(PyObject *const *args, Py_ssize_t count) {
  return assert_true(args && !count), long_of(keeps);
}
static PyObject *say_queue(PyObject *const *args, Py_ssize_t count) { return (void)args, (void)count, long_of(queue); }
static PyObject *say_current(PyObject *const *args, Py_ssize_t count) {
  return (void)args, (void)count, long_of(current);
}
static PyObject *say_negative(PyObject *const *args, Py_ssize_t count) {
  return assert_true(count == 1 && args[0]), long_of(negative);
}
static PyObject *prepare(PyObject *const *args, Py_ssize_t count) {
  return assert_true(count > 1 && args[0]), Py_NewRef(prepared);
}
static PyObject *go_otherwise(PyObject *const *args, Py_ssize_t count) {
  return assert_true(args && count), ++others, of_tensors(100);
}
static PyObject *refuse(PyObject *const *args, Py_ssize_t count) {
  assert_true(count > 1 && args[0] == prepared);
  ++refused;
  return status == TIGON_OK ? of_tensors(200) : (raised = "refuse", NULL);
}
static PyObject *make_tensor(PyObject *const *args, Py_ssize_t count) {
  return assert_true(args && count == 1), tensor_of(0);
}

static python_op forward_op, backward_op;
static pair the_pair;

/* What makes a tensor; in the pool's memory first, if it is pooled. */
static PyObject *maker(bool pooled) {
  const python_tensor wanted = {
      .bytes = sizeof(float[COLS]), .ndim = 1, .code = kDLFloat, .bits = 32, .shape = {COLS}, .strides = {1}};
  PyObject *bytes = pooled ? PyBytes_FromStringAndSize((const char *)&wanted, sizeof wanted) : Py_NewRef(none);
  return TUPLE(function_of(make_tensor), TUPLE(long_of(COLS)), bytes);
}

static int setup(void **state) {
  (void)state;
  tigon_pool_set(64 << 20, 3600);
  PyObject *address = long_of(0);
  address->pointer = &the_plan;
  prepared = TUPLE(address, maker(true), maker(false), Py_NewRef(none));
  known = object_of(&other_type, 1);
  forward_op = (python_op){.exchange = &exchange,
                           .inputs = 2,
                           .outputs = 2,
                           .options = 1,
                           .plain = {&tensor_type, &tensor_type},
                           .dtype = &dtype_type,
                           .modes = modes_object = function_of(say_modes),
                           .negative = function_of(say_negative),
                           .threads = function_of(say_queue),
                           .stream = function_of(say_queue),
                           .device = function_of(say_current),
                           .thread = TUPLE(known),
                           .calls = long_of(0),
                           .prepare = function_of(prepare),
                           .other = function_of(go_otherwise),
                           .refuse = function_of(refuse)};
  backward_op = forward_op;
  backward_op.options = 0;
  the_pair = (pair){.forward = &forward_op,
                    .backward = &backward_op,
                    .saved_count = 2,
                    .kept_count = 2,
                    .returned_count = 2,
                    .incoming = 2,
                    .options = 1,
                    .others = 1,
                    .saved = {0, 3},
                    .kept = {1, -1},
                    .returned = {3, 4},
                    .gradients = {0, 1},
                    .sources = {0, 2},
                    .keeps_graph = function_of(say_keeps),
                    .otherwise = forward_op.other};
  for (int i = 0; i < ATTRIBUTES; ++i) the_pair.names[i] = long_of(i);
  queue = 2;
  return 0;
}

/* So that all of the next call runs. */
static void forget(void) {
  PyObject *forgotten[] = {forward_op.last_key, forward_op.last_prepared, backward_op.last_key,
                           backward_op.last_prepared};
  forward_op.last_key = forward_op.last_prepared = backward_op.last_key = backward_op.last_prepared = NULL;
  for (int i = 0; i < 4; ++i) Py_DecRef(forgotten[i]);
}

static int teardown(void **state) {
  (void)state;
  forget();
  PyObject *const all[] = {prepared,           modes_object,      forward_op.negative, forward_op.threads,
                           forward_op.stream,  forward_op.device, forward_op.thread,   forward_op.calls,
                           forward_op.prepare, forward_op.other,  forward_op.refuse,   the_pair.keeps_graph};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) Py_DecRef(all[i]);
  for (int i = 0; i < ATTRIBUTES; ++i) Py_DecRef(the_pair.names[i]);
  assert_int_equal(alive, 0);
  return 0;
}

/* ---- the calls ---- */

static PyObject *x, *w, *option;

/* y's first element, of a tuple (y, ...) or of y alone. */
static float first_of(PyObject *result) {
  PyObject *y = result->type == &tensor_type ? result : result->items[0];
  return ((float *)(y->managed ? y->managed->tensor.data : y->data))[0];
}

static PyObject *call_operator(void) {
  PyObject *args[] = {x, w, option}, *of = tigon_python_call(&forward_op);
  PyObject *result = of ? call(of, args, 3) : NULL;
  Py_DecRef(of);
  return result;
}

/* Methods of the pair, with a context as autograd has it after a forward that saved x and y, and kept w and a dtype. */
static PyObject *context_of(void) {
  PyObject *ctx = object_of(&other_type, ATTRIBUTES), *y = tensor_of(3);
  ctx->items[0] = TUPLE(Py_NewRef(x), y);
  ctx->items[1] = TUPLE(Py_NewRef(w), &dtype);
  ctx->items[2] = TUPLE(long_of(1), long_of(0));
  ++dtype.references;
  return ctx;
}
static PyObject *call_pair(int method, PyObject *ctx, PyObject *second, PyObject *third, PyObject *fourth) {
  PyObject *args[] = {ctx, second, third, fourth}, *both = tigon_python_pair((python_pair *)&the_pair);
  PyObject *result = both ? call(both->items[method], args, 4) : NULL;
  Py_DecRef(both);
  return result;
}
static PyObject *call_forward(void) {
  PyObject *ctx = context_of(), *options = TUPLE(Py_NewRef(option));
  PyObject *result = call_pair(0, ctx, x, w, options);
  if (result && first_of(result) == 3) { /* what backward finds */
    assert_ptr_equal(ctx->items[3]->items[0], x);
    assert_ptr_equal(ctx->items[3]->items[1], result->items[0]);
    if (the_pair.others) assert_ptr_equal(ctx->items[4]->items[0], result->items[1]);
    assert_ptr_equal(ctx->items[1]->items[0], w);
    assert_ptr_equal(ctx->items[1]->items[1], &dtype);
  }
  Py_DecRef(ctx), Py_DecRef(options);
  return result;
}
static PyObject *call_backward(void) {
  PyObject *ctx = context_of(), *result = call_pair(1, ctx, w, w, w);
  if (result && result->count == 3) assert_true(result->items[1] == none && result->items[2] == none);
  Py_DecRef(ctx);
  return result;
}

/* The result of a call that passes; 0: it raises. */
static float value(PyObject *(*call_it)(void)) {
  PyObject *result = call_it();
  assert_true(!result == !!raised && !saved);
  const float is = result ? first_of(result) : 0;
  Py_DecRef(result);
  raised = NULL;
  return is;
}

/* Each failure is an error, or the other way's result; nothing is lost, and then the call passes. */
static void each_fails(PyObject *(*call_it)(void), float must) {
  forget();
  assert_true(value(call_it) == must);
  const long held = alive;
  for (nth = 1, calls = 1; calls >= nth - 1; ++nth) { /* a call that fails makes no more */
    calls = 0;
    forget();
    const float is = value(call_it);
    assert_true(is == must || is == 0 || is == 100);
    const long at = nth, made = calls;
    nth = 0;
    assert_true(value(call_it) == must);
    assert_int_equal(alive, held);
    assert_int_equal(tigon_pool_read().in_use, 0);
    nth = at, calls = made;
  }
  nth = 0;
}

static void test_each_function_fails(void **state) {
  (void)state;
  each_fails(call_operator, 3);
  PyObject *given = option, *minus = long_of(-1);
  option = minus;
  each_fails(call_operator, 3);
  option = given;
  Py_DecRef(minus);
  each_fails(call_forward, 3);
  each_fails(call_backward, 3);
  queue = 2, current = 1;
  device = (DLDevice){kDLCUDA, 1};
  each_fails(call_operator, 3);
  device = (DLDevice){kDLExtDev, 0};
  each_fails(call_operator, 3);
  device = (DLDevice){kDLCPU, 0};
  forward_op.outputs = 1;
  PyObject *two = prepared;
  prepared = TUPLE(Py_NewRef(two->items[0]), Py_NewRef(two->items[1]), Py_NewRef(two->items[2])); /* and a workspace */
  each_fails(call_operator, 3);
  Py_DecRef(prepared);
  prepared = two, forward_op.outputs = 2;
}

/* Memory for a block of the pool: then an output lies elsewhere. */
static void test_memory(void **state) {
  (void)state;
  for (long at = 1, made = 1; made >= at - 1; ++at) {
    faults_begin("memory", at, 0, 12);
    const float is = value(call_operator);
    made = faults_end();
    assert_true(is == 3);
    assert_int_equal(tigon_pool_read().in_use, 0);
  }
}

/* What is not plain goes the other way (100), a refused layout or status a third one (200). */
static void test_other_ways(void **state) {
  (void)state;
  PyObject *kept[] = {x, w, option}, *odd = object_of(&other_type, 0);
  PyObject *minus = long_of(-1), *yes = object_of(&PyBool_Type, 0);
  const struct {
    PyObject *x, *w, *option;
    float must;
  } all[] = {{none, w, option, 100}, {x, none, option, 1}, {odd, w, option, 100},
             {x, odd, option, 100},  {x, w, odd, 100},     {x, w, none, 3},
             {x, w, &dtype, 3},      {x, w, minus, 3},     {x, w, yes, 3}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    x = all[i].x, w = all[i].w, option = all[i].option, absent = w == none;
    assert_true(value(call_operator) == all[i].must);
  }
  x = kept[0], w = kept[1], option = kept[2], absent = false;
  Py_DecRef(odd), Py_DecRef(minus), Py_DecRef(yes);

  forward_op.plain[0] = &other_type; /* x is of the second type */
  assert_true(value(call_operator) == 3);
  forward_op.plain[0] = &tensor_type;
  const struct { int64_t *of, is, was; } numbers[] = {{&modes, 1, 0}, {&negative, 1, 0}, {&queue, -1, 2}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    *numbers[i].of = numbers[i].is;
    assert_true(value(call_operator) == 100);
    *numbers[i].of = numbers[i].was;
  }
  ndim = TIGON_MAX_DIMS + 1;
  assert_true(value(call_operator) == 100);
  ndim = 1;
  device.device_type = kDLOpenCL;
  assert_true(value(call_operator) == 100);
  device = (DLDevice){kDLCUDA, 0}, current = -1;
  assert_true(value(call_operator) == 100);
  device = (DLDevice){kDLCPU, 0}, current = 0;

  the_plan.function = NULL;
  assert_true(value(call_operator) == 200);
  the_plan.function = run_entry;
}

/* A status goes to the function that raises it, whether the interpreter was left or not. */
static void test_statuses(void **state) {
  (void)state;
  status = TIGON_ERROR_INVALID;
  for (uint64_t brief = 0; brief < 2; ++brief) {
    the_plan.brief = brief, the_plan.status = 0;
    const long before = refused;
    assert_true(value(call_operator) == 0 && refused == before + 1);
    assert_int_equal(the_plan.status, TIGON_ERROR_INVALID);
    assert_true(value(call_forward) == 0 && value(call_backward) == 0);
  }
  the_plan.brief = 0;
  status = TIGON_OK;
}

/* The call before is remembered by its thread and key; then the dictionary is asked. */
static void test_remembered(void **state) {
  (void)state;
  known->items[0] = Py_NewRef(prepared);
  for (int i = 0; i < 2; ++i) {
    assert_true(value(call_operator) == 3);
    calls = 0;
    assert_true(value(call_operator) == 3);
    const long repeated = calls;
    if (i == 0) {
      thread_id = 2, calls = 0;
      assert_true(value(call_operator) == 3 && calls > repeated);
    } else {
      absent = true;
      PyObject *given = w;
      w = none, calls = 0;
      assert_true(value(call_operator) == 1); /* a shorter key */
      w = given, absent = false;
    }
  }
  PyObject *second = float_of(0.25), *first = option;
  option = second; /* another key of the same length */
  assert_true(value(call_operator) == 3);
  option = first;
  Py_DecRef(second);
  Py_DecRef(known->items[0]);
  known->items[0] = NULL;
}

/* Pairs of other shapes, and what is no context. */
static PyObject *call_without_context(void) {
  PyObject *options = TUPLE(Py_NewRef(option)), *result = call_pair(0, none, x, w, options);
  Py_DecRef(options);
  return result;
}
/* More than a pair takes: what is beyond is left out. */
static PyObject *call_with_too_many(void) {
  PyObject *options = object_of(&other_type, 300);
  for (int i = 0; i < 300; ++i) options->items[i] = Py_NewRef(option);
  PyObject *result = call_pair(0, none, x, w, options);
  Py_DecRef(options);
  return result;
}
static void test_pairs(void **state) {
  (void)state;
  assert_true(value(call_without_context) == 3);
  PyObject *many = call_with_too_many();
  assert_true(many && many->items[0] == option && many->items[1] == option);
  Py_DecRef(many);
  the_pair.others = 0;
  assert_true(value(call_forward) == 3);
  the_pair.returned_count = 1;
  assert_true(value(call_without_context) == 3);
  the_pair.returned_count = 2, the_pair.others = 1;
  keeps = 1;
  const long before = others;
  assert_true(value(call_backward) == 100 && others == before + 1);
  keeps = 0;
  the_pair.gradients[0] = -1;
  PyObject *ctx = context_of(), *result = call_pair(1, ctx, w, w, w);
  assert_true(result && result->items[0] == none);
  Py_DecRef(ctx), Py_DecRef(result);
  the_pair.gradients[0] = 0;
}

/* One output, no options, and a tensor that needs no gradient. */
static void test_small_pair(void **state) {
  (void)state;
  PyObject *two = prepared, *ctx = context_of();
  prepared = TUPLE(Py_NewRef(two->items[0]), Py_NewRef(two->items[1]), Py_NewRef(two->items[2]));
  forward_op.outputs = backward_op.outputs = 1, forward_op.options = 0;
  the_pair.options = the_pair.others = 0, the_pair.returned_count = the_pair.kept_count = 1;
  the_pair.returned[0] = the_pair.saved[1] = 2, the_pair.kept[0] = -1;
  ctx->items[2]->items[0]->integer = 0;
  PyObject *result = call_pair(0, ctx, x, w, w);
  assert_true(result && first_of(result) == 3 && ctx->items[3]->items[1] == result && ctx->items[1]->items[0] == none);
  Py_DecRef(result), Py_DecRef(ctx), Py_DecRef(prepared);
  prepared = two;
}

/* Structs that no function is made of. */
static void test_refused(void **state) {
  (void)state;
  dlpack_exchange old = exchange, lacks[] = {exchange, exchange, exchange};
  old.version.major = 2, lacks[0].import_managed = NULL, lacks[1].view = NULL, lacks[2].current_stream = NULL;
  const dlpack_exchange *const exchanges[] = {&old, &lacks[0], &lacks[1], &lacks[2]};
  for (int i = 0; i < 4; ++i) {
    python_op op = forward_op;
    op.exchange = exchanges[i];
    assert_null(tigon_python_call(&op));
  }
  python_op many[] = {forward_op, forward_op, forward_op};
  many[0].inputs = many[2].options = MOST + 1, many[1].outputs = MOST;
  for (int i = 0; i < 3; ++i) assert_null(tigon_python_call(&many[i]));
  assert_null(raised);
}

int main(void) {
  x = tensor_of(1), w = tensor_of(2), option = float_of(0.5);
  const long given = alive;
  alive = 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_each_function_fails, setup, teardown),
      cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
      cmocka_unit_test_setup_teardown(test_other_ways, setup, teardown),
      cmocka_unit_test_setup_teardown(test_statuses, setup, teardown),
      cmocka_unit_test_setup_teardown(test_remembered, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pairs, setup, teardown),
      cmocka_unit_test_setup_teardown(test_small_pair, setup, teardown),
      cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  alive = given;
  Py_DecRef(x), Py_DecRef(w), Py_DecRef(option);
  return failed;
}
