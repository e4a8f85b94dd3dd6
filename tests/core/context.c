/* Contexts, names, DLPack, and what a program around the library may do: fork, its own threads. */
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../api/api.h"

static void test_names(void **state) {
  (void)state;
  const char *const names[] = {
      "TIGON_OK",          "TIGON_ERROR_INVALID", "TIGON_ERROR_UNSUPPORTED", "TIGON_ERROR_WORKSPACE",
      "TIGON_ERROR_ALIAS", "TIGON_ERROR_SCRATCH", "TIGON_ERROR_DEVICE",      "TIGON_ERROR_OUT_OF_MEMORY",
      "unknown status",
  };
  for (int i = 0; i < (int)(sizeof names / sizeof *names); ++i)
    assert_string_equal(tigon_status_name((tigon_status)i), names[i]);
  assert_string_equal(tigon_status_name((tigon_status)99), "unknown status");
  assert_int_equal(tigon_dtype_size(TIGON_BF16), 2);
  assert_int_equal(tigon_dtype_size(TIGON_I8), 1);
  assert_int_equal(tigon_dtype_size((tigon_dtype)(TIGON_I8 + 1)), 0);
  assert_string_equal(tigon_dtype_name((tigon_dtype)(TIGON_I8 + 1)), "none");
  assert_string_equal(tigon_dtype_name((tigon_dtype)-1), "none");
  assert_int_equal(tigon_dtype_size((tigon_dtype)-1), 0);
  assert_int_equal(tigon_dtype_from_name("f16"), TIGON_F16);
  assert_int_equal(tigon_dtype_from_name("f64"), TIGON_DTYPE_NONE);
  assert_int_equal(tigon_dtype_from_name(NULL), TIGON_DTYPE_NONE);
  assert_int_equal(tigon_version(), TIGON_VERSION_MAJOR * 10000 + TIGON_VERSION_MINOR * 100 + TIGON_VERSION_PATCH);
}

static void refuse(tigon_context_desc desc, tigon_status status, const char *sentence) {
  tigon_context *context = (tigon_context *)&desc;
  api_expect(NULL, tigon_context_create(&desc, &context), status, "%s", sentence);
  assert_null(context);
}

static void test_create(void **state) {
  (void)state;
  refuse((tigon_context_desc){.device = "tpu"}, TIGON_ERROR_INVALID,
         "context: device is \"tpu\", must be one of cuda, npu, xpu, cpu, opencl, ref, ascend-sim");
  refuse((tigon_context_desc){.device = ""}, TIGON_ERROR_INVALID,
         "context: device is \"\", must be one of cuda, npu, xpu, cpu, opencl, ref, ascend-sim");
  refuse((tigon_context_desc){.device = "cpu:x"}, TIGON_ERROR_INVALID,
         "context: device is \"cpu:x\", must be one of cuda, npu, xpu, cpu, opencl, ref, ascend-sim");
  refuse((tigon_context_desc){.device = "cpu:7"}, TIGON_ERROR_DEVICE,
         "context: device is \"cpu:7\", must be below cpu:1");
  static const char *const no_devices[] = {"tpu:1", "cpu:1x", "cpu:-1", "cpu:1024", "cpu:", "sixteen-letters!"};
  for (size_t i = 0; i < sizeof no_devices / sizeof *no_devices; ++i) {
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "context: device is \"%s\", must be one of cuda, npu, xpu, cpu, opencl, ref, ascend-sim", no_devices[i]);
    refuse((tigon_context_desc){.device = no_devices[i]}, TIGON_ERROR_INVALID, sentence);
  }
  tigon_context *none = NULL;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "ascend-sim:x"}, &none), TIGON_ERROR_INVALID);
  assert_memory_equal(tigon_last_error(NULL),
                      "context: device is \"ascend-sim:x\", must be one of ascend-sim:910B1, ascend-sim:", 79);
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .variant = ""}, &none), TIGON_OK);
  tigon_context_destroy(none);
  refuse((tigon_context_desc){.device = "ref", .variant = "avx9"}, TIGON_ERROR_INVALID,
         "context: variant is \"avx9\", must be one of ref on this machine's ref");
  refuse((tigon_context_desc){.threads = -1}, TIGON_ERROR_INVALID, "context: threads is -1, must be >= 0");
  refuse((tigon_context_desc){.threads = 4097, .device = "cpu"}, TIGON_ERROR_INVALID,
         "context: device cpu did not open: threads is 4097, must be 4096 or fewer");
  tigon_context *most;
  const tigon_context_desc desc = {.threads = 4096, .device = "cpu"};
  assert_int_equal(tigon_context_create(&desc, &most), TIGON_OK);
  tigon_context_destroy(most);
  refuse((tigon_context_desc){.reserved = {0, 5}}, TIGON_ERROR_INVALID, "context: reserved[1] is 5, must be 0");
  api_expect(NULL, tigon_context_create(NULL, NULL), TIGON_ERROR_INVALID,
             "context: context is NULL, must point to a tigon_context *");
  tigon_context_destroy(NULL);
}

static void test_variant_by_environment(void **state) {
  (void)state;
  tigon_context *context;
  setenv("TIGON_CPU", "scalar", 1);
  assert_int_equal(tigon_context_create(NULL, &context), TIGON_OK);
  float x[4] = {1, 2, 3, 4}, y[4];
  const tigon_rms_norm_fwd_args args = {.x = tigon_tensor_2d(x, TIGON_F32, 1, 4),
                                        .y = tigon_tensor_2d(y, TIGON_F32, 1, 4)};
  assert_string_equal(tigon_last_variant(context), "");
  assert_int_equal(tigon_rms_norm_fwd(context, &args), TIGON_OK);
  assert_string_equal(tigon_last_variant(context), "scalar");
  assert_string_equal(tigon_context_device(context), "cpu");
  tigon_context_destroy(context);
  setenv("TIGON_CPU", "mmx", 1);
  assert_int_equal(tigon_context_create(NULL, &context), TIGON_ERROR_INVALID);
  unsetenv("TIGON_CPU");
}

static void test_supports(void **state) {
  assert_int_equal(tigon_supports(*state, "rms_norm", "fwd", TIGON_BF16), 1);
  assert_int_equal(tigon_supports(*state, "rms_norm", "fwd", TIGON_I32), 0);
  assert_int_equal(tigon_supports(*state, "rms_norm", "sideways", TIGON_F32), 0);
  assert_int_equal(tigon_supports(NULL, "rms_norm", "fwd", TIGON_F32), 0);
}

static void test_memory(void **state) {
  void *memory;
  assert_int_equal(tigon_alloc(*state, 0, &memory), TIGON_OK);
  assert_null(memory);
  assert_int_equal(tigon_alloc(*state, SIZE_MAX, &memory), TIGON_ERROR_OUT_OF_MEMORY);
  assert_int_equal(tigon_alloc(*state, 100, &memory), TIGON_OK);
  assert_int_equal((uintptr_t)memory % 64, 0);
  assert_int_equal(tigon_fill(*state, memory, 7, 100), TIGON_OK);
  char copy[100];
  assert_int_equal(tigon_copy(*state, copy, memory, 100), TIGON_OK);
  assert_int_equal(copy[99], 7);
  assert_int_equal(tigon_copy(*state, NULL, memory, 100), TIGON_ERROR_INVALID);
  tigon_free(*state, memory);
  assert_int_equal(tigon_context_sync(*state), TIGON_OK);
  assert_int_equal(tigon_context_sync(NULL), TIGON_ERROR_INVALID);
}

static void test_dlpack(void **state) {
  (void)state;
  float data[12];
  int64_t shape[] = {3, 4}, strides[] = {4, 1};
  DLTensor from = {
      .data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape, .strides = strides};
  tigon_tensor t;
  assert_int_equal(tigon_tensor_from_dlpack(&from, &t), TIGON_OK);
  assert_ptr_equal(t.data, data);
  assert_int_equal(t.dtype, TIGON_F32);
  assert_int_equal(t.strides[0], 4);
  DLTensor to;
  assert_int_equal(tigon_tensor_to_dlpack(&t, &to), TIGON_OK);
  assert_int_equal(to.shape[1], 4);
  assert_int_equal(to.dtype.bits, 32);
  from.strides = NULL;
  from.byte_offset = 16;
  from.shape = (int64_t[]){2, 4};
  assert_int_equal(tigon_tensor_from_dlpack(&from, &t), TIGON_OK);
  assert_ptr_equal(t.data, data + 4);

  from.dtype = (DLDataType){kDLFloat, 64, 1};
  api_expect(
      NULL, tigon_tensor_from_dlpack(&from, &t), TIGON_ERROR_INVALID,
      "tensor_from_dlpack: dtype is code 2, 64 bits, 1 lanes, must be f32, f16, bf16, i32, i64, f8e4m3 or i8 with 1 lane");
  from.dtype = (DLDataType){kDLBfloat, 16, 1};
  from.ndim = 9;
  api_expect(NULL, tigon_tensor_from_dlpack(&from, &t), TIGON_ERROR_INVALID,
             "tensor_from_dlpack: ndim is 9, must be 0 to 8");
  from.ndim = 2;
  from.shape = (int64_t[]){2, -4};
  api_expect(NULL, tigon_tensor_from_dlpack(&from, &t), TIGON_ERROR_INVALID,
             "tensor_from_dlpack: shape[1] is -4, must be >= 0");
  from.shape = shape;
  from.strides = (int64_t[]){0, 0};
  api_expect(NULL, tigon_tensor_from_dlpack(&from, &t), TIGON_ERROR_INVALID,
             "tensor_from_dlpack: strides are all 0 with 12 elements, must name distinct elements");
  api_expect(NULL, tigon_tensor_from_dlpack(NULL, &t), TIGON_ERROR_INVALID,
             "tensor_from_dlpack: from or tensor is NULL");
}

enum { ROWS = 500, COLS = 1000 };

static void norm(tigon_context *context, const float *x, float *y) {
  const tigon_rms_norm_fwd_args args = {.x = tigon_tensor_2d((void *)x, TIGON_F32, ROWS, COLS),
                                        .y = tigon_tensor_2d(y, TIGON_F32, ROWS, COLS),
                                        .eps = 1e-6};
  if (tigon_rms_norm_fwd(context, &args) != TIGON_OK) abort();
}

static float x[ROWS * COLS], y[ROWS * COLS], again[ROWS * COLS];

/* OpenMP workers do not survive fork(): a child that waited for them would hang. */
static void test_fork_after_use(void **state) {
  (void)state;
  const tigon_context_desc desc = {.threads = 2};
  tigon_context *context;
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  api_fill(x, ROWS * COLS, 0.5f);
  norm(context, x, y);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    norm(context, x, again);
    _exit(memcmp(y, again, sizeof y) != 0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  tigon_context_destroy(context);
}

static void test_inside_a_parallel_region(void **state) {
  (void)state;
  tigon_context *context;
  assert_int_equal(tigon_context_create(NULL, &context), TIGON_OK);
  norm(context, x, y);
  int wrong = 0;
#pragma omp parallel num_threads(4) reduction(+ : wrong)
  {
    tigon_context *own;
    float *out = malloc(sizeof y);
    if (out && tigon_context_create(NULL, &own) == TIGON_OK) {
      norm(own, x, out);
      wrong += memcmp(out, y, sizeof y) != 0;
      tigon_context_destroy(own);
    } else {
      ++wrong;
    }
    free(out);
  }
  assert_int_equal(wrong, 0);
  tigon_context_destroy(context);
}

/* Views that interleave in memory are apart: packed [rows, 2 * COLS]. */
static void test_interleaved_views(void **state) {
  float packed[4 * 8], z[4 * 4];
  api_fill(packed, 32, 0.5f);
  tigon_fused_add_rms_norm_fwd_args a = {
      .x = {packed, TIGON_F32, 2, {4, 4}, {8, 1}},
      .residual = tigon_tensor_2d(z, TIGON_F32, 4, 4),
      .s = {packed + 4, TIGON_F32, 2, {4, 4}, {8, 1}},
      .y = {packed, TIGON_F32, 2, {4, 4}, {8, 1}},
  };
  memset(z, 0, sizeof z);
  assert_int_equal(tigon_fused_add_rms_norm_fwd(*state, &a), TIGON_OK);
  a.s.data = packed + 3;
  api_expect(*state, tigon_fused_add_rms_norm_fwd(*state, &a), TIGON_ERROR_ALIAS,
             "fused_add_rms_norm_fwd: s overlaps x in part, must be the same view or apart");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_create),
      cmocka_unit_test(test_supports),
      cmocka_unit_test(test_variant_by_environment),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_dlpack),
      cmocka_unit_test(test_fork_after_use),
      cmocka_unit_test(test_inside_a_parallel_region),
      cmocka_unit_test(test_interleaved_views),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
