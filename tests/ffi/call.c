/* The TVM-FFI symbols in a process without libtvm_ffi, called with values made by hand. */
#include <omp.h>

#include "../api/api.h"
#include "core/context.h"
#include "ffi/ffi.h"
#include "ffi/python.h"

typedef int symbol(void *self, const ffi_value *values, int32_t count, ffi_value *result);
symbol __tvm_ffi_tigon_rms_norm_fwd, __tvm_ffi_tigon_rms_norm_bwd, __tvm_ffi_tigon_rms_norm_bwd_workspace,
    __tvm_ffi_tigon_softmax_fwd, __tvm_ffi_tigon_adamw_clip, __tvm_ffi_tigon_adamw_step,
    __tvm_ffi_tigon_linear_logprob_fwd_workspace, __tvm_ffi_tigon_linear_logprob_fwd_workspace_minimum;

enum { ROWS = 5, COLS = 33 };

static DLTensor view(float *data, int ndim, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}
static ffi_value tensor(DLTensor *of) { return (ffi_value){.type = FFI_DLTENSOR, .pointer = of}; }
static ffi_value number(double of) { return (ffi_value){.type = FFI_FLOAT, .number = of}; }
static ffi_value integer(int64_t of) { return (ffi_value){.type = FFI_INT, .integer = of}; }

/* rms_norm forward on x and w, into y. */
typedef struct example {
  float x[ROWS * COLS], w[COLS], y[ROWS * COLS];
  int64_t shape[2];
  DLTensor views[3];
} example;

static void setup(example *e) {
  api_fill(e->x, ROWS * COLS, 0.5f);
  api_fill(e->w, COLS, 0.25f);
  memset(e->y, 0x7f, sizeof e->y);
  e->shape[0] = ROWS, e->shape[1] = COLS;
  e->views[0] = view(e->x, 2, e->shape);
  e->views[1] = view(e->w, 1, e->shape + 1);
  e->views[2] = view(e->y, 2, e->shape);
}

static int run(example *e) {
  const ffi_value values[] = {tensor(&e->views[0]), tensor(&e->views[1]), tensor(&e->views[2]), {0}, {0}, number(1e-6)};
  ffi_value result = {0};
  const int failed = __tvm_ffi_tigon_rms_norm_fwd(NULL, values, 6, &result);
  assert_int_equal(result.type, FFI_NONE);
  return failed;
}

/* It fails with this sentence, and y is as it was. */
static void refuse(example *e, const char *sentence) {
  float y[ROWS * COLS];
  memcpy(y, e->y, sizeof y);
  assert_int_equal(run(e), -1);
  assert_string_equal(tigon_last_error(NULL), sentence);
  assert_memory_equal(e->y, y, sizeof y);
}

static void test_same_bits(void **state) {
  example e;
  setup(&e);
  assert_int_equal(run(&e), 0);
  float y[ROWS * COLS];
  const tigon_rms_norm_fwd_args args = {.x = tigon_tensor_2d(e.x, TIGON_F32, ROWS, COLS),
                                        .w = tigon_tensor_1d(e.w, TIGON_F32, COLS),
                                        .y = tigon_tensor_2d(y, TIGON_F32, ROWS, COLS),
                                        .eps = 1e-6};
  assert_int_equal(tigon_rms_norm_fwd(*state, &args), TIGON_OK);
  assert_memory_equal(e.y, y, sizeof y);
}

static void test_tensor_object(void **state) {
  (void)state;
  example e;
  setup(&e);
  assert_int_equal(run(&e), 0);
  float y[ROWS * COLS];
  ffi_tensor object = {.object = {.references = 1, .type = FFI_TENSOR}, .view = view(y, 2, e.shape)};
  const ffi_value values[] = {
      tensor(&e.views[0]), tensor(&e.views[1]), {.type = FFI_TENSOR, .pointer = &object}, {0}, {0}, number(1e-6)};
  assert_int_equal(__tvm_ffi_tigon_rms_norm_fwd(NULL, values, 6, NULL), 0);
  assert_memory_equal(e.y, y, sizeof y);
}

static void test_refusals(void **state) {
  (void)state;
  assert_true(TVMFFIErrorSetRaisedFromCStr == NULL && TVMFFIEnvGetStream == NULL);
  example e;
  setup(&e);
  e.views[2].device.device_type = kDLCUDA;
  e.views[2].device.device_id = 3;
  refuse(&e, "rms_norm_fwd: y is on cuda:3, must be on cpu (x)");
  setup(&e);
  e.views[0].device.device_type = kDLExtDev;
  refuse(&e, "rms_norm_fwd: x is on a device of DLPack's type 12, must be on cpu, cuda or opencl");
  setup(&e);
  e.views[1].device.device_type = kDLOpenCL;
  refuse(&e, "rms_norm_fwd: w is on opencl:0, must be on cpu (x)");
  setup(&e);
  e.views[1].dtype.bits = 64;
  refuse(&e, "rms_norm_fwd: w: tensor_from_dlpack: dtype is code 2, 64 bits, 1 lanes, must be f32, f16, bf16, i32, "
             "i64, f8e4m3 or i8 with 1 lane");
  setup(&e);
  int64_t narrow[2] = {ROWS, COLS - 1};
  e.views[2].shape = narrow;
  refuse(&e, "rms_norm_fwd: y.shape[1] is 32, must be 33 (x.shape[1])");

  const ffi_value values[9] = {integer(1)};
  assert_int_equal(__tvm_ffi_tigon_rms_norm_fwd(NULL, values, 9, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "rms_norm_fwd: 9 arguments are given, must be 8 or less");
  assert_int_equal(__tvm_ffi_tigon_rms_norm_fwd(NULL, values, 1, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "rms_norm_fwd: x is an int, must be a tensor or None");
  assert_int_equal(__tvm_ffi_tigon_rms_norm_fwd(NULL, NULL, 0, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "rms_norm_fwd: x is absent");
}

/* The query's bytes suffice for a workspace that begins anywhere. */
static void test_workspace(void **state) {
  (void)state;
  example e;
  setup(&e);
  float rstd[ROWS], dx[ROWS * COLS], dw[COLS], first_dw[COLS];
  DLTensor rstd_view = view(rstd, 1, e.shape), dx_view = view(dx, 2, e.shape), dw_view = view(dw, 1, e.shape + 1);
  for (int i = 0; i < ROWS; ++i) rstd[i] = 0.5f;
  ffi_value values[9] = {tensor(&e.views[0]), tensor(&e.views[0]), tensor(&e.views[1]),
                         tensor(&rstd_view),  tensor(&dx_view),    tensor(&dw_view)};
  ffi_value bytes = {0};
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd_workspace(NULL, values, 6, &bytes), 0);
  assert_int_equal(bytes.type, FFI_INT);
  assert_true(bytes.integer > 64);
  char *memory = malloc((size_t)bytes.integer + 64);
  DLTensor workspace = {.ndim = 1, .device = {kDLCPU, 0}, .dtype = {kDLUInt, 8, 1}, .shape = &bytes.integer};
  values[8] = tensor(&workspace); /* behind a gate and its gradient, which are absent */
  for (uint64_t offset = 0; offset < 64; ++offset) {
    workspace.data = memory;
    workspace.byte_offset = offset;
    assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), 0);
    if (offset == 0) memcpy(first_dw, dw, sizeof dw);
    assert_memory_equal(dw, first_dw, sizeof dw);
  }
  int64_t strides[1] = {2};
  workspace.strides = strides;
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "rms_norm_bwd: workspace.strides[0] is 2, must be 1 (contiguous)");
  bytes.integer = 1;
  workspace.strides = NULL;
  const int64_t kept = bytes.integer;
  for (int64_t extent = -1; extent >= INT64_MIN / 2; extent *= 2) {
    bytes.integer = extent;
    assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
    assert_non_null(strstr(tigon_last_error(NULL), "must be >= 0, with at most 2^63 bits in all"));
  }
  bytes.integer = INT64_MAX / 4; /* bytes, whose bits overflow */
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "rms_norm_bwd: workspace.shape[0] is 2305843009213693951, must be >= 0, "
                                              "with at most 2^63 bits in all");
  bytes.integer = kept;
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
  assert_non_null(strstr(tigon_last_error(NULL), "rms_norm_bwd: workspace"));
  free(memory);
}

/* A bool for a flag, and a number left out. */
static void test_flags(void **state) {
  (void)state;
  float x[4] = {1, 1, 1, 1}, y[4];
  int64_t shape[2] = {2, 2};
  DLTensor x_view = view(x, 2, shape), y_view = view(y, 2, shape);
  const ffi_value values[] = {tensor(&x_view), {0}, tensor(&y_view), {0}, {.type = FFI_BOOL, .integer = 1}};
  assert_int_equal(__tvm_ffi_tigon_softmax_fwd(NULL, values, 5, NULL), 0);
  const float causal[4] = {1, 0, 0.5f, 0.5f}, all[4] = {0.5f, 0.5f, 0.5f, 0.5f};
  assert_memory_equal(y, causal, sizeof y);
  assert_int_equal(__tvm_ffi_tigon_softmax_fwd(NULL, values, 3, NULL), 0);
  assert_memory_equal(y, all, sizeof y);
  const ffi_value wrong[] = {values[0], values[1], values[2], values[3], integer((int64_t)1 << 32)};
  assert_int_equal(__tvm_ffi_tigon_softmax_fwd(NULL, wrong, 5, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "softmax_fwd: causal is 4294967296, must fit 32 bits");
}

/* More calls at once than contexts are kept. */
static void test_threads(void **state) {
  (void)state;
  example first;
  setup(&first);
  assert_int_equal(run(&first), 0);
  int wrong = 0;
#pragma omp parallel num_threads(80) reduction(+ : wrong)
  for (int i = 0; i < 20; ++i) {
    example e;
    setup(&e);
    wrong += run(&e) != 0 || memcmp(e.y, first.y, sizeof e.y) != 0;
  }
  assert_int_equal(wrong, 0);
}

static void test_lists(void **state) {
  (void)state;
  float grad[2][2] = {{3, 0}, {0, 4}}, norm, factor;
  int64_t two = 2, one = 1;
  DLTensor grads[] = {view(grad[0], 1, &two), view(grad[1], 1, &two)};
  DLTensor norm_view = view(&norm, 1, &one), factor_view = view(&factor, 1, &one);
  const ffi_value elements[] = {tensor(&grads[0]), tensor(&grads[1])};
  ffi_sequence list = {.object = {.references = 1, .type = FFI_ARRAY}, .values = elements, .count = 2};
  float memory[1024];
  int64_t floats = 1024;
  DLTensor workspace = view(memory, 1, &floats);
  ffi_value values[] = {
      {.type = FFI_ARRAY, .pointer = &list}, tensor(&norm_view), tensor(&factor_view), tensor(&workspace), number(1)};
  assert_int_equal(__tvm_ffi_tigon_adamw_clip(NULL, values, 5, NULL), 0);
  assert_true(norm == 5.0f && fabsf(factor - 0.2f) < 1e-6f);
  values[0] = elements[0];
  assert_int_equal(__tvm_ffi_tigon_adamw_clip(NULL, values, 5, NULL), 0);
  assert_true(norm == 3.0f);
}

/* Each type of a value has a name, and each kind of field takes its own types. */
static void test_types(void **state) {
  (void)state;
  static const struct {
    int32_t type;
    const char *name;
  } types[] = {{FFI_NONE, "None"},       {FFI_INT, "an int"},          {FFI_BOOL, "a bool"},
               {FFI_FLOAT, "a float"},   {FFI_DLTENSOR, "a tensor"},   {FFI_TENSOR, "a tensor"},
               {FFI_STRING, "a string"}, {FFI_RAW_STRING, "a string"}, {FFI_SMALL_STRING, "a string"},
               {FFI_ARRAY, "a list"},    {FFI_LIST, "a list"},         {99, "an object"}};
  example e;
  float x[4] = {1, 2, 3, 4}, y[4];
  int64_t shape[2] = {2, 2};
  DLTensor x_view = view(x, 2, shape), y_view = view(y, 2, shape);
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    setup(&e);
    ffi_tensor object = {.view = e.views[0]};
    const ffi_value odd = {.type = types[i].type,
                           .pointer = types[i].type == FFI_TENSOR ? (void *)&object : (void *)&e.views[0]};
    ffi_value norm[] = {odd, tensor(&e.views[1]), tensor(&e.views[2]), {0}, {0}, number(1e-6)};
    const bool is_tensor = odd.type == FFI_TENSOR || odd.type == FFI_DLTENSOR, is_none = odd.type == FFI_NONE;
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             is_none ? "rms_norm_fwd: x is absent" : "rms_norm_fwd: x is %s, must be a tensor or None", types[i].name);
    assert_int_equal(__tvm_ffi_tigon_rms_norm_fwd(NULL, norm, 6, NULL), is_tensor ? 0 : -1);
    if (!is_tensor) assert_string_equal(tigon_last_error(NULL), sentence);
    norm[0] = tensor(&e.views[0]), norm[5] = odd;
    if (odd.type == FFI_INT) norm[5].integer = 0;
    const bool is_number = odd.type == FFI_INT || odd.type == FFI_FLOAT;
    snprintf(sentence, sizeof sentence, "rms_norm_fwd: eps is %s, must be a number or None", types[i].name);
    assert_int_equal(__tvm_ffi_tigon_rms_norm_fwd(NULL, norm, 6, NULL), is_none || is_number ? 0 : -1);
    if (!is_none && !is_number) assert_string_equal(tigon_last_error(NULL), sentence);
    ffi_value soft[] = {tensor(&x_view), {0}, tensor(&y_view), {0}, odd};
    if (odd.type == FFI_INT || odd.type == FFI_BOOL) soft[4].integer = 1;
    const bool is_whole = odd.type == FFI_INT || odd.type == FFI_BOOL;
    snprintf(sentence, sizeof sentence, "softmax_fwd: causal is %s, must be an int, a bool or None", types[i].name);
    assert_int_equal(__tvm_ffi_tigon_softmax_fwd(NULL, soft, 5, NULL), is_none || is_whole ? 0 : -1);
    if (!is_none && !is_whole) assert_string_equal(tigon_last_error(NULL), sentence);
  }
  ffi_value soft[] = {tensor(&x_view), {0}, tensor(&y_view), {0}, integer(-(INT64_C(1) << 40))};
  assert_int_equal(__tvm_ffi_tigon_softmax_fwd(NULL, soft, 5, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "softmax_fwd: causal is -1099511627776, must fit 32 bits");
}

/* Pinned memory is the host's. A device that is not there is no call. */
static void test_devices(void **state) {
  (void)state;
  example e;
  char text[32];
  setup(&e);
  e.views[1].device = (DLDevice){kDLCUDAHost, 3};
  assert_int_equal(run(&e), 0);
  assert_string_equal(tigon_ffi_device_name((DLDevice){kDLOpenCL, 1}, text), "opencl:1");
  setup(&e);
  for (int i = 0; i < 3; ++i) e.views[i].device = (DLDevice){kDLCUDA, 900 + (i == 2)};
  refuse(&e, "rms_norm_fwd: y is on cuda:901, must be on cuda:900 (x)");
  for (int i = 0; i < 3; ++i) e.views[i].device = (DLDevice){kDLCUDA, 900};
  assert_int_equal(run(&e), -1);
  assert_non_null(strstr(tigon_last_error(NULL), "context: device "));
}

/* Both queries of a range, whose arguments may be wrong, too. */
static void test_range_of_workspaces(void **state) {
  (void)state;
  float hidden[4 * 8] = {0}, weight[6 * 8] = {0}, logprob[4];
  int64_t labels[4] = {0}, hidden_shape[2] = {4, 8}, weight_shape[2] = {6, 8}, rows = 4;
  DLTensor h = view(hidden, 2, hidden_shape), w = view(weight, 2, weight_shape), l = view(NULL, 1, &rows),
           out = view(logprob, 1, &rows);
  l.data = labels, l.dtype = (DLDataType){kDLInt, 64, 1};
  const ffi_value values[] = {tensor(&h), tensor(&w), {0}, tensor(&l), tensor(&out)};
  ffi_value most = {0}, least = {0};
  assert_int_equal(__tvm_ffi_tigon_linear_logprob_fwd_workspace(NULL, values, 5, &most), 0);
  assert_int_equal(__tvm_ffi_tigon_linear_logprob_fwd_workspace_minimum(NULL, values, 5, &least), 0);
  assert_true(least.integer > 0 && least.integer <= most.integer);
  weight_shape[1] = 7;
  const ffi_value before = most;
  assert_int_equal(__tvm_ffi_tigon_linear_logprob_fwd_workspace(NULL, values, 5, &most), -1);
  assert_string_equal(tigon_last_error(NULL), "linear_logprob_fwd: weight.shape[1] is 7, must be 8 (hidden.shape[1])");
  assert_memory_equal(&most, &before, sizeof most);
}

static void test_wrong_lists(void **state) {
  (void)state;
  float p[2][2] = {{1, 2}, {3, 4}}, g[2][2] = {{1, 1}, {1, 1}}, m[2][2] = {{0}}, v[2][2] = {{0}};
  int64_t two = 2;
  float(*const data[])[2] = {p, g, m, v};
  DLTensor views[4][2];
  ffi_value elements[4][2];
  ffi_sequence lists[4];
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 2; ++k) {
      views[i][k] = view(data[i][k], 1, &two);
      elements[i][k] = tensor(&views[i][k]);
    }
    lists[i] = (ffi_sequence){.values = elements[i], .count = 2};
  }
#define LISTED(i) {.type = FFI_LIST, .pointer = &lists[i]}
  /* param, master, grad, exp_avg, exp_avg_sq, clip_factor, weight_decay, lr, beta1, beta2, eps, step */
  ffi_value values[] = {LISTED(0),   {0},         LISTED(1),   LISTED(2),   LISTED(3), {0},
                        number(0.5), number(0.5), number(0.5), number(0.5), number(1), integer(1)};
#undef LISTED
  assert_int_equal(__tvm_ffi_tigon_adamw_step(NULL, values, 12, NULL), 0); /* one weight_decay is each one's */
  assert_true(p[0][0] == 0.5f && p[1][1] == 2.75f);
  lists[1].count = 1;
  assert_int_equal(__tvm_ffi_tigon_adamw_step(NULL, values, 12, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "adamw_step: grad has 1 elements, must have 2 (param)");
  lists[1].count = 2;
  elements[2][1] = number(1);
  assert_int_equal(__tvm_ffi_tigon_adamw_step(NULL, values, 12, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "adamw_step: exp_avg is a float, must be a tensor or None");
  const ffi_value alone[7] = {[6] = number(0.5)}; /* as in a list of one */
  assert_int_equal(__tvm_ffi_tigon_adamw_step(NULL, alone, 7, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "adamw_step: eps is 0, must be 1.17549e-38 to 3.40282e+38");
  for (int i = 0; i < 4; ++i) lists[i].count = 0;
  assert_int_equal(__tvm_ffi_tigon_adamw_step(NULL, values, 12, NULL), 0);
  assert_true(p[0][0] == 0.5f && p[1][1] == 2.75f);
}

/* A workspace may have strides and several dimensions, and may be too small to begin at a multiple of 64. */
static void test_shapes_of_workspaces(void **state) {
  (void)state;
  example e;
  setup(&e);
  static _Alignas(64) char memory[4096];
  float rstd[ROWS] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f}, dx[ROWS * COLS], dw[COLS];
  DLTensor rstd_view = view(rstd, 1, e.shape), dx_view = view(dx, 2, e.shape), dw_view = view(dw, 1, e.shape + 1);
  ffi_value values[9] = {tensor(&e.views[0]), tensor(&e.views[0]), tensor(&e.views[1]),
                         tensor(&rstd_view),  tensor(&dx_view),    tensor(&dw_view)};
  int64_t shape[3] = {1, 4, 1024}, strides[3] = {7, 1024, 1};
  DLTensor workspace = {.data = memory, .ndim = 3, .device = {kDLCPU, 0}, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  values[8] = tensor(&workspace);
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), 0);
    workspace.strides = strides; /* that of an extent of 1 is any */
  }
  static const int64_t wrong[][3] = {{INT64_MAX, 4, 1}, {INT64_MAX / 8 + 1, 1, 1}};
  workspace.strides = NULL;
  for (int i = 0; i < 2; ++i) {
    memcpy(shape, wrong[i], sizeof shape);
    assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
    assert_non_null(strstr(tigon_last_error(NULL), "rms_norm_bwd: workspace.shape[0] is "));
  }
  shape[0] = 1, shape[1] = 1, shape[2] = 32;
  workspace.byte_offset = 1;
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
  assert_non_null(strstr(tigon_last_error(NULL), "rms_norm_bwd: workspace is NULL, must have "));
  values[8] = integer(64);
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
  assert_string_equal(tigon_last_error(NULL), "rms_norm_bwd: workspace is an int, must be a tensor or None");
  values[5] = values[8] = (ffi_value){0}; /* without dw none is needed */
  ffi_value bytes = integer(1);
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd_workspace(NULL, values, 9, &bytes), 0);
  assert_true(bytes.type == FFI_INT && bytes.integer == 0);
  values[5] = tensor(&dw_view), values[8] = tensor(&workspace);
  workspace.data = NULL;
  assert_int_equal(__tvm_ffi_tigon_rms_norm_bwd(NULL, values, 9, NULL), -1);
  assert_non_null(strstr(tigon_last_error(NULL), "rms_norm_bwd: workspace is NULL, must have "));
}

/* A context of another device or stream is kept for those, and what is beyond 64 is not kept. */
static void test_contexts(void **state) {
  (void)state;
  const DLDevice cpu = {kDLCPU, 0};
  tigon_context *taken[70], *other = NULL;
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(tigon_ffi_context_take(cpu, &taken[0]), TIGON_OK);
    if (i == 0)
      taken[0]->index = 1;
    else
      taken[0]->queue.stream = state;
    tigon_ffi_context_give(taken[0]);
    assert_int_equal(tigon_ffi_context_take(cpu, &other), TIGON_OK);
    assert_ptr_not_equal(other, taken[0]);
    taken[0]->index = 0, taken[0]->queue.stream = NULL;
    tigon_ffi_context_give(other);
  }
  for (int i = 0; i < 70; ++i) assert_int_equal(tigon_ffi_context_take(cpu, &taken[i]), TIGON_OK);
  for (int i = 0; i < 70; ++i) tigon_ffi_context_give(taken[i]);
  example e;
  setup(&e);
  assert_int_equal(run(&e), 0);
}

/* A process without Python has no calls from Python. */
static int nothing_imported(managed_tensor *managed, PyObject **made) { return (void)managed, (void)made, -1; }
static int nothing_viewed(PyObject *object, DLTensor *to) { return (void)object, (void)to, -1; }
static int no_stream(DLDeviceType type, int32_t id, void **stream) { return (void)type, (void)id, (void)stream, -1; }
static void test_without_python(void **state) {
  (void)state;
  const dlpack_exchange exchange = {
      .version = {1, 0}, .import_managed = nothing_imported, .view = nothing_viewed, .current_stream = no_stream};
  python_op op = {.exchange = &exchange};
  assert_null(tigon_python_call(&op));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_same_bits, api_setup, api_teardown),
      cmocka_unit_test(test_tensor_object),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_workspace),
      cmocka_unit_test(test_flags),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_lists),
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_devices),
      cmocka_unit_test(test_range_of_workspaces),
      cmocka_unit_test(test_wrong_lists),
      cmocka_unit_test(test_shapes_of_workspaces),
      cmocka_unit_test(test_contexts),
      cmocka_unit_test(test_without_python),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
