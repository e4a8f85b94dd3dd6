/* Products by CLBlast: which calls it gets, with which matrices, and what becomes of one that computes wrongly. Library and driver are ours
 * (fake/clblast.c, fake/driver.c). */
#include <dlfcn.h>

#include "../api/api.h"
#include "core/context.h"

enum { ROWS = 5, N = 6, K = 7, PITCH = 9, ELEMENTS = 10 * PITCH, TENSORS = 5 };
typedef enum tensor { X, W, Y, DX, DW } tensor;

static int (*calls)(void);

static tigon_context *open_on(const char *device) {
  tigon_context *context;
  if (tigon_context_create(&(tigon_context_desc){.device = device}, &context)) fail_msg("%s", tigon_last_error(NULL));
  return context;
}

/* A matrix of small integers, whose sums are exact; its rows have a pitch. */
static tigon_tensor matrix(float *memory, tensor which, int64_t rows, int64_t cols) {
  tigon_tensor t = tigon_tensor_2d(memory + which * ELEMENTS + 1, TIGON_F32, rows, cols);
  t.strides[0] = PITCH;
  return t;
}

static tigon_status forward(tigon_context *context, float *memory) {
  return tigon_linear_fwd(context, &(tigon_linear_fwd_args){.x = matrix(memory, X, ROWS, K),
                                                            .w = matrix(memory, W, N, K),
                                                            .y = matrix(memory, Y, ROWS, N)});
}
static tigon_status backward(tigon_context *context, float *memory) {
  return tigon_linear_bwd(context, &(tigon_linear_bwd_args){.dy = matrix(memory, Y, ROWS, N),
                                                            .x = matrix(memory, X, ROWS, K),
                                                            .w = matrix(memory, W, N, K),
                                                            .dx = matrix(memory, DX, ROWS, K),
                                                            .dw = matrix(memory, DW, N, K),
                                                            .accumulate_dw = 1});
}

static void fill(float memory[TENSORS * ELEMENTS]) {
  for (int i = 0; i < TENSORS * ELEMENTS; ++i) memory[i] = (float)(i * 7 % 11 - 5);
}

/* All bytes of forward and backward, what lies beside the tensors too, are the oracle's. */
static void test_products(void **state) {
  (void)state;
  float is[TENSORS * ELEMENTS], must[TENSORS * ELEMENTS];
  void *memory;
  setenv("TIGON_OPENCL_TRUST", "1", 1);
  tigon_context *context = open_on("opencl"), *oracle = open_on("ref");
  assert_string_equal(tigon_context_gemm(context), "CLBlast: run_to_run (f32); built-in: run_to_run (bf16, f16)");
  fill(must);
  assert_int_equal(tigon_alloc(context, sizeof is, &memory), TIGON_OK);
  assert_int_equal(tigon_copy(context, memory, must, sizeof is), TIGON_OK);
  const int before = calls();
  assert_int_equal(forward(context, memory), TIGON_OK);
  assert_int_equal(backward(context, memory), TIGON_OK);
  assert_int_equal(calls(), before + 3);
  assert_int_equal(forward(oracle, must), TIGON_OK);
  assert_int_equal(backward(oracle, must), TIGON_OK);
  assert_int_equal(tigon_copy(context, is, memory, sizeof is), TIGON_OK);
  assert_memory_equal(is, must, sizeof is);
  tigon_free(context, memory);
  tigon_context_destroy(oracle);
  tigon_context_destroy(context);
  unsetenv("TIGON_OPENCL_TRUST");
}

/* Calls that it does not get: 16 bits, none of a product, and all with TIGON_GEMM=builtin. */
static void test_others(void **state) {
  (void)state;
  void *memory;
  setenv("TIGON_OPENCL_TRUST", "1", 1);
  tigon_context *context = open_on("opencl");
  assert_int_equal(tigon_alloc(context, TENSORS * ELEMENTS * sizeof(float), &memory), TIGON_OK);
  const int before = calls();
  const tigon_linear_fwd_args half = {.x = tigon_tensor_2d(memory, TIGON_BF16, ROWS, K),
                                      .w = tigon_tensor_2d((char *)memory + 256, TIGON_BF16, N, K),
                                      .y = tigon_tensor_2d((char *)memory + 512, TIGON_F32, ROWS, N)};
  assert_int_equal(tigon_linear_fwd(context, &half), TIGON_OK);
  tigon_linear_fwd_args none = half;
  none.x = tigon_tensor_2d(memory, TIGON_F32, 0, K), none.w = tigon_tensor_2d((char *)memory + 256, TIGON_F32, N, K);
  none.y = tigon_tensor_2d((char *)memory + 512, TIGON_F32, 0, N);
  assert_int_equal(tigon_linear_fwd(context, &none), TIGON_OK);
  setenv("TIGON_GEMM", "builtin", 1);
  tigon_context *without = open_on("opencl");
  setenv("TIGON_GEMM", "clblast", 1);
  assert_string_equal(tigon_context_gemm(without), "built-in: run_to_run");
  assert_int_equal(forward(without, memory), TIGON_OK);
  assert_int_equal(calls(), before);
  tigon_free(context, memory);
  tigon_context_destroy(without);
  tigon_context_destroy(context);
  unsetenv("TIGON_OPENCL_TRUST");
}

/* A GPU has it where nobody names a GEMM, a CPU has it by name. */
static void test_choice(void **state) {
  (void)state;
  unsetenv("TIGON_GEMM");
  setenv("FAKE_OPENCL", "intel", 1);
  tigon_context *gpu = open_on("opencl:0"), *cpu = open_on("opencl:1");
  assert_non_null(strstr(tigon_context_gemm(gpu), "CLBlast"));
  assert_string_equal(tigon_context_gemm(cpu), "built-in: run_to_run");
  tigon_context_destroy(cpu);
  tigon_context_destroy(gpu);
  unsetenv("FAKE_OPENCL");
  setenv("TIGON_GEMM", "clblast", 1);
}

/* The self-check makes it again without CLBlast; this driver's own product is wrong, too. */
static void test_wrong(void **state) {
  (void)state;
  float memory_of[TENSORS * ELEMENTS];
  void *memory;
  setenv("FAKE_OPENCL", "blunder", 1);
  tigon_context *context = open_on("opencl");
  fill(memory_of);
  assert_int_equal(tigon_alloc(context, sizeof memory_of, &memory), TIGON_OK);
  const int before = calls();
  assert_int_equal(forward(context, memory), TIGON_ERROR_DEVICE);
  assert_true(calls() > before);
  assert_string_equal(tigon_context_gemm(context), "built-in: run_to_run");
  tigon_free(context, memory);
  tigon_context_destroy(context);
  unsetenv("FAKE_OPENCL");
}

int main(void) {
  void *library = dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
  *(void **)&calls = library ? dlsym(library, "fake_clblast_calls") : NULL;
  if (!calls) return 1;
  setenv("TIGON_OPENCL_CACHE", "", 1);
  setenv("TIGON_GEMM", "clblast", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_others),
                                     cmocka_unit_test(test_choice), cmocka_unit_test(test_wrong)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
