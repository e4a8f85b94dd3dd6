/* linear: the GEMM behind it and its grades. */
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "core/half.h"

static tigon_context *opened(const char *gemm, const char *device) {
  if (gemm)
    setenv("TIGON_GEMM", gemm, 1);
  else
    unsetenv("TIGON_GEMM");
  tigon_context *made_context = NULL;
  const tigon_context_desc desc = {.device = device, .threads = 2};
  assert_int_equal(tigon_context_create(&desc, &made_context), TIGON_OK);
  unsetenv("TIGON_GEMM");
  return made_context;
}

/* Asked for by name, a library is there or the context says why not. */
static bool has(const char *library) {
  setenv("TIGON_GEMM", library, 1);
  tigon_context *context;
  const tigon_status status = tigon_context_create(NULL, &context);
  unsetenv("TIGON_GEMM");
  if (status == TIGON_OK) {
    assert_non_null(strstr(tigon_context_gemm(context), library));
    tigon_context_destroy(context);
    return true;
  }
  assert_int_equal(status, TIGON_ERROR_DEVICE);
  assert_non_null(strstr(tigon_last_error(NULL), library));
  return false;
}

static void test_names(void **state) {
  (void)state;
  tigon_context *c;
  setenv("TIGON_GEMM", "mkl", 1);
  api_expect(NULL, tigon_context_create(NULL, &c), TIGON_ERROR_INVALID,
             "context: device cpu did not open: TIGON_GEMM is \"mkl\", must be builtin, openblas or onednn");
  c = opened("builtin", NULL);
  assert_string_equal(tigon_context_gemm(c), "built-in: run_to_run, thread_count, batch");
  tigon_context_destroy(c);
  const bool there = has("openblas");
  bool behind = false;
  if (there) {
    tigon_context *asked = opened("openblas", NULL);
    const char *text = tigon_context_gemm(asked);
    behind = __builtin_cpu_supports("avx512f") && !strstr(text, "(SkylakeX)") && !strstr(text, "(Cooperlake)") &&
             !strstr(text, "(SapphireRapids)");
    tigon_context_destroy(asked);
  }
  has("onednn");
  c = opened(NULL, NULL);
  /* Unasked for, OpenBLAS is taken unless it has no AVX-512 kernels for a CPU that has. */
  assert_non_null(strstr(tigon_context_gemm(c), there && !behind ? "openblas" : "built-in"));
  tigon_context_destroy(c);
  c = opened(NULL, "ref");
  assert_non_null(strstr(tigon_context_gemm(c), "oracle"));
  tigon_context_destroy(c);
}

enum { BIG_ROWS = 301, BIG_N = 270, BIG_K = 300 };
static float big_x[BIG_ROWS * BIG_K], big_w[BIG_N * BIG_K], big_y[BIG_ROWS * BIG_N], part[BIG_ROWS * BIG_N];

static void big_linear(tigon_context *c, float *y, int first, int rows) {
  const tigon_linear_fwd_args a = {
      .x = tigon_tensor_2d(big_x + first * BIG_K, TIGON_F32, rows, BIG_K),
      .w = tigon_tensor_2d(big_w, TIGON_F32, BIG_N, BIG_K),
      .y = tigon_tensor_2d(y + first * BIG_N, TIGON_F32, rows, BIG_N),
  };
  assert_int_equal(tigon_linear_fwd(c, &a), TIGON_OK);
}

/* The built-in's grade "batch": a row has the same bits alone, in sevens, and in the whole. */
static void test_batch(void **state) {
  (void)state;
  tigon_context *c = opened("builtin", NULL);
  api_fill(big_x, BIG_ROWS * BIG_K, 0.3f);
  api_fill(big_w, BIG_N * BIG_K, 0.7f);
  big_linear(c, big_y, 0, BIG_ROWS);
  const int sizes[] = {1, 7, 257};
  for (int s = 0; s < 3; ++s) {
    for (int first = 0; first < BIG_ROWS; first += sizes[s])
      big_linear(c, part, first, BIG_ROWS - first < sizes[s] ? BIG_ROWS - first : sizes[s]);
    assert_memory_equal(part, big_y, sizeof big_y);
  }
  tigon_context_destroy(c);
}

/* A library's values are the built-in's within the sum's error, and their bits those of any number of threads. */
static void test_libraries(void **state) {
  (void)state;
  static uint16_t x[BIG_ROWS * BIG_K], w[BIG_N * BIG_K];
  static float y[3][BIG_ROWS * BIG_N];
  for (int i = 0; i < BIG_ROWS * BIG_K; ++i) big_x[i] = (float)(i % 13 - 6), x[i] = tigon_bf16_from_f32(big_x[i]);
  for (int i = 0; i < BIG_N * BIG_K; ++i) big_w[i] = 0.125f * (float)(i % 7), w[i] = tigon_bf16_from_f32(big_w[i]);
  const char *names[] = {"openblas", "onednn"};
  for (int library = 0; library < 2; ++library) {
    if (!has(names[library])) continue;
    const tigon_dtype dtype = library ? TIGON_BF16 : TIGON_F32;
    for (int run = 0; run < 3; ++run) {
      setenv("TIGON_GEMM", run ? names[library] : "builtin", 1);
      tigon_context *c;
      const tigon_context_desc desc = {.threads = run + 1};
      assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
      const tigon_linear_fwd_args a = {
          .x = tigon_tensor_2d(library ? (void *)x : big_x, dtype, BIG_ROWS, BIG_K),
          .w = tigon_tensor_2d(library ? (void *)w : big_w, dtype, BIG_N, BIG_K),
          .b = tigon_tensor_1d(big_w, TIGON_F32, BIG_N),
          .y = tigon_tensor_2d(y[run], TIGON_F32, BIG_ROWS, BIG_N),
      };
      assert_int_equal(tigon_linear_fwd(c, &a), TIGON_OK);
      tigon_context_destroy(c);
    }
    unsetenv("TIGON_GEMM");
    for (int i = 0; i < BIG_ROWS * BIG_N; ++i) assert_true(y[0][i] == y[1][i]); /* sums of these are exact */
    assert_memory_equal(y[1], y[2], sizeof y[1]);
  }
}

/* A child of fork() runs on, with every GEMM, and gets the same bits. */
static void test_fork(void **state) {
  (void)state;
  for (int library = 0; library <= has("openblas"); ++library) {
    tigon_context *c = opened(library ? "openblas" : "builtin", NULL);
    api_fill(big_x, BIG_ROWS * BIG_K, 0.3f);
    api_fill(big_w, BIG_N * BIG_K, 0.7f);
    big_linear(c, big_y, 0, BIG_ROWS);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      big_linear(c, part, 0, BIG_ROWS);
      _exit(memcmp(part, big_y, sizeof big_y) != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    big_linear(c, part, 0, BIG_ROWS);
    assert_memory_equal(part, big_y, sizeof big_y);
    tigon_context_destroy(c);
  }
}

/* What the CPU's bf16 instruction takes for 0 counts: a denormal factor of a normal sum, a sum that is denormal. */
static void test_denormals(void **state) {
  (void)state;
  tigon_context *c = opened("builtin", NULL);
  const float x[3][2] = {{0x1p-130f, 1}, {0x1p-100f, 0}, {1, 1}}, w[2][2] = {{0x1p120f, 0x1p-12f}, {0x1p-30f, 1}};
  const float want[3][2] = {{0x1p-10f + 0x1p-12f, 1}, {0x1p20f, 0x1p-130f}, {0x1p120f, 1}};
  uint16_t x16[3][2], w16[2][2];
  float y[3][2];
  for (int i = 0; i < 6; ++i) x16[i / 2][i % 2] = tigon_bf16_from_f32(x[i / 2][i % 2]);
  for (int i = 0; i < 4; ++i) w16[i / 2][i % 2] = tigon_bf16_from_f32(w[i / 2][i % 2]);
  const tigon_linear_fwd_args a = {
      .x = tigon_tensor_2d(x16, TIGON_BF16, 3, 2),
      .w = tigon_tensor_2d(w16, TIGON_BF16, 2, 2),
      .y = tigon_tensor_2d(y, TIGON_F32, 3, 2),
  };
  assert_int_equal(tigon_linear_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < 6; ++i) assert_true(y[i / 2][i % 2] == want[i / 2][i % 2]);
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_batch),
                                     cmocka_unit_test(test_libraries), cmocka_unit_test(test_fork),
                                     cmocka_unit_test(test_denormals)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
