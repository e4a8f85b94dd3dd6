/* linear: the GEMM behind it and its grades. */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "core/half.h"

static tigon_status open_with(const char *gemm, const char *device, int threads, tigon_context **context) {
  const tigon_context_desc desc = {.device = device, .threads = threads};
  if (gemm) setenv("TIGON_GEMM", gemm, 1);
  const tigon_status status = tigon_context_create(&desc, context);
  unsetenv("TIGON_GEMM");
  return status;
}

static tigon_context *opened(const char *gemm, const char *device, int threads) {
  tigon_context *context;
  assert_int_equal(open_with(gemm, device, threads, &context), TIGON_OK);
  return context;
}

/* Asked for by name, a library is there or the context says why not. */
static bool has(const char *library) {
  tigon_context *context;
  const tigon_status status = open_with(library, "cpu", 2, &context);
  const bool there = status == TIGON_OK;
  assert_true(there || status == TIGON_ERROR_DEVICE);
  assert_non_null(strstr(there ? tigon_context_gemm(context) : tigon_last_error(NULL), library));
  tigon_context_destroy(context);
  return there;
}

static const char *const variants[] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};
enum { VARIANTS = sizeof variants / sizeof *variants };

static void test_names(void **state) {
  (void)state;
  tigon_context *c;
  api_expect(NULL, open_with("mkl", NULL, 0, &c), TIGON_ERROR_INVALID,
             "context: device cpu did not open: TIGON_GEMM is \"mkl\", must be builtin, openblas or onednn");
  c = opened("builtin", "cpu", 2);
  assert_string_equal(tigon_context_gemm(c), "built-in: run_to_run, thread_count, batch");
  tigon_context_destroy(c);
  /* Unasked for, OpenBLAS is taken where it is there, but for the variants whose own products are faster. */
  const bool there = has("openblas");
  for (int i = 0; i < VARIANTS; ++i) {
    setenv("TIGON_CPU", variants[i], 1);
    if (open_with(NULL, "cpu", 2, &c) == TIGON_OK)
      assert_non_null(strstr(tigon_context_gemm(c), there && i < 2 ? "openblas" : "built-in"));
    tigon_context_destroy(c);
  }
  unsetenv("TIGON_CPU");
  c = opened(NULL, "ref", 2);
  assert_non_null(strstr(tigon_context_gemm(c), "oracle"));
  tigon_context_destroy(c);
}

enum { ROWS = 301, N = 270, K = 300 };
static float x[ROWS * K], w[N * K], y[ROWS * N], part[ROWS * N];
static uint16_t x16[ROWS * K], w16[N * K];

static void multiply(tigon_context *c, tigon_tensor a, tigon_tensor b, tigon_tensor bias, float *out) {
  const tigon_linear_fwd_args args = {
      .x = a, .w = b, .b = bias, .y = tigon_tensor_2d(out, TIGON_F32, a.shape[0], b.shape[0])};
  assert_int_equal(tigon_linear_fwd(c, &args), TIGON_OK);
}

static void multiply_rows(tigon_context *c, float *out, int first, int rows) {
  multiply(c, tigon_tensor_2d(x + first * K, TIGON_F32, rows, K), tigon_tensor_2d(w, TIGON_F32, N, K),
           (tigon_tensor){0}, out + first * N);
}

/* A context that has made all rows of y. */
static tigon_context *multiplied(const char *gemm) {
  tigon_context *c = opened(gemm, "cpu", 2);
  api_fill(x, ROWS * K, 0.3f);
  api_fill(w, N * K, 0.7f);
  multiply_rows(c, y, 0, ROWS);
  return c;
}

static void round_to_bf16(uint16_t *to, const float *from, int count) {
  for (int i = 0; i < count; ++i) to[i] = tigon_bf16_from_f32(from[i]);
}

/* The built-in's grade "batch": a row has the same bits alone, in sevens, and in the whole. */
static void test_batch(void **state) {
  (void)state;
  tigon_context *c = multiplied("builtin");
  const int sizes[] = {1, 7, 257};
  for (int s = 0; s < 3; ++s) {
    for (int first = 0; first < ROWS; first += sizes[s])
      multiply_rows(c, part, first, ROWS - first < sizes[s] ? ROWS - first : sizes[s]);
    assert_memory_equal(part, y, sizeof y);
  }
  const tigon_tensor weight = tigon_tensor_2d(w16, TIGON_BF16, N, K);
  round_to_bf16(x16, x, ROWS * K);
  round_to_bf16(w16, w, N * K);
  multiply(c, tigon_tensor_2d(x16, TIGON_BF16, ROWS, K), weight, (tigon_tensor){0}, y);
  for (int first = 0; first < ROWS; first += 7)
    multiply(c, tigon_tensor_2d(x16 + first * K, TIGON_BF16, ROWS - first < 7 ? ROWS - first : 7, K), weight,
             (tigon_tensor){0}, part + first * N);
  assert_memory_equal(part, y, sizeof y);
  tigon_context_destroy(c);
}

/* A library's values are the built-in's within the sum's error, and their bits those of any number of threads. */
static void test_libraries(void **state) {
  (void)state;
  static float made[3][ROWS * N];
  for (int i = 0; i < ROWS * K; ++i) x[i] = (float)(i % 13 - 6);
  for (int i = 0; i < N * K; ++i) w[i] = 0.125f * (float)(i % 7);
  round_to_bf16(x16, x, ROWS * K);
  round_to_bf16(w16, w, N * K);
  const char *names[] = {"openblas", "onednn"};
  for (int library = 0; library < 2; ++library) {
    if (!has(names[library])) continue;
    const tigon_dtype dtype = library ? TIGON_BF16 : TIGON_F32;
    for (int run = 0; run < 3; ++run) {
      tigon_context *c = opened(run ? names[library] : "builtin", "cpu", run + 1);
      multiply(c, tigon_tensor_2d(library ? (void *)x16 : x, dtype, ROWS, K),
               tigon_tensor_2d(library ? (void *)w16 : w, dtype, N, K), tigon_tensor_1d(w, TIGON_F32, N), made[run]);
      tigon_context_destroy(c);
    }
    for (int i = 0; i < ROWS * N; ++i) assert_true(made[0][i] == made[1][i]); /* sums of these are exact */
    assert_memory_equal(made[1], made[2], sizeof made[1]);
  }
}

/* A child of fork() runs on, with every GEMM, and gets the same bits. */
static void test_fork(void **state) {
  (void)state;
  for (int library = 0; library <= has("openblas"); ++library) {
    tigon_context *c = multiplied(library ? "openblas" : "builtin");
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      multiply_rows(c, part, 0, ROWS);
      _exit(memcmp(part, y, sizeof y) != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    multiply_rows(c, part, 0, ROWS);
    assert_memory_equal(part, y, sizeof y);
    tigon_context_destroy(c);
  }
}

/* What the CPU's bf16 instruction takes for 0 counts: a denormal factor of a normal sum, a sum that is denormal. */
static void test_denormals(void **state) {
  (void)state;
  tigon_context *c = opened("builtin", "cpu", 2);
  const float a[] = {0x1p-130f, 1, 0x1p-100f, 0, 1, 1}, b[] = {0x1p120f, 0x1p-12f, 0x1p-30f, 1};
  const float want[] = {0x1p-10f + 0x1p-12f, 1, 0x1p20f, 0x1p-130f, 0x1p120f, 1};
  uint16_t a16[6], b16[4];
  float is[6];
  round_to_bf16(a16, a, 6);
  round_to_bf16(b16, b, 4);
  multiply(c, tigon_tensor_2d(a16, TIGON_BF16, 3, 2), tigon_tensor_2d(b16, TIGON_BF16, 2, 2), (tigon_tensor){0}, is);
  for (int i = 0; i < 6; ++i) assert_true(is[i] == want[i]);
  tigon_context_destroy(c);
}

enum { SIZES = 272, SIZED_N = 37, SIZED_K = 40 }; /* rows: an exponent each */

/* A number of up to 24 bits. */
static float sized(int i, int exponent) { return ldexpf((float)(1 + i * 7919 % 0x7fffff * 2), exponent - 24); }

static void multiply_sized(tigon_context *c, const float *a, int rows, float *out) {
  multiply(c, tigon_tensor_2d((void *)(uintptr_t)a, TIGON_F32, rows, SIZED_K),
           tigon_tensor_2d(w, TIGON_F32, SIZED_N, SIZED_K), (tigon_tensor){0}, out);
}

/* Factors of all sizes, some of which no sum of normal bf16 is: as exact as others, and those beside them keep their bits. */
static void test_sizes(void **state) {
  (void)state;
  for (int i = 0; i < SIZES * SIZED_K; ++i)
    x[i] = i < SIZED_K ? 0 : sized(i, i / SIZED_K - 146) * (i % 3 ? 1.0f : -1.0f);
  for (int i = 0; i < SIZED_N * SIZED_K; ++i) w[i] = sized(i + 5, i / SIZED_K * 7 - 126);
  for (int v = 0; v < VARIANTS; ++v) {
    tigon_context *c;
    setenv("TIGON_CPU", variants[v], 1);
    const tigon_status status = open_with("builtin", "cpu", 2, &c);
    unsetenv("TIGON_CPU");
    if (status != TIGON_OK) continue;
    const float large = 0x1.ff8p63f; /* whose nearest bf16 is 2^64 */
    multiply(c, tigon_tensor_2d((void *)(uintptr_t)&large, TIGON_F32, 1, 1),
             tigon_tensor_2d((void *)(uintptr_t)&large, TIGON_F32, 1, 1), (tigon_tensor){0}, part);
    assert_true(part[0] == large * large);
    multiply(c, tigon_tensor_2d(x, TIGON_F32, 1, SIZED_K), tigon_tensor_2d(w + 30 * SIZED_K, TIGON_F32, 7, SIZED_K),
             (tigon_tensor){0}, part);
    for (int j = 0; j < 7; ++j) assert_true(part[j] == 0); /* products of 0 and large ones */
    multiply_sized(c, x, SIZES, y);
    for (int i = 0; i < SIZES; ++i) {
      multiply_sized(c, x + i * SIZED_K, 1, part);
      assert_memory_equal(part, y + i * SIZED_N, SIZED_N * sizeof *part);
      for (int j = 0; j < SIZED_N; ++j) {
        double want = 0, all = 0;
        for (int k = 0; k < SIZED_K; ++k) {
          const double product = (double)x[i * SIZED_K + k] * (double)w[j * SIZED_K + k];
          want += product, all += fabs(product);
        }
        const double off = fabs((double)part[j] - want);
        if (all < 0x1.fffp127 && !(off <= 16 * 0x1p-24 * all + SIZED_K * 0x1p-149))
          fail_msg("%s: row %d, column %d is %g, must be %g", variants[v], i, j, (double)part[j], want);
      }
    }
    tigon_context_destroy(c);
  }
}

/* What a head with a loss makes of two tokens of two classes. */
typedef struct head_results {
  float loss[1], logprob[2], dhidden[4];
} head_results;
enum { HEADS = 4 };

static tigon_status run_head(tigon_context *c, int which, head_results *out) {
  static _Alignas(64) char workspace[1 << 16];
  static float hidden[4] = {1, -0.5f, 0.25f, 2}, weight[4] = {0.5f, 1, -1, 0.75f}, teacher[4] = {1, 0, 0.5f, 0.5f};
  static float one[1] = {1}, target[2] = {-0.5f, -1};
  static int64_t labels[2] = {0, 1};
  const tigon_tensor h = tigon_tensor_3d(hidden, TIGON_F32, 2, 1, 2), w = tigon_tensor_2d(weight, TIGON_F32, 2, 2);
  const tigon_tensor t = tigon_tensor_2d(labels, TIGON_I64, 2, 1), loss = tigon_tensor_1d(out->loss, TIGON_F32, 1);
  const tigon_tensor p = tigon_tensor_2d(out->logprob, TIGON_F32, 2, 1);
  const tigon_tensor dhidden = tigon_tensor_3d(out->dhidden, TIGON_F32, 2, 1, 2);
  if (which == 0) {
    const tigon_fused_linear_preference_fwd_args a = {.hidden = h,
                                                      .weight = w,
                                                      .labels = t,
                                                      .loss = loss,
                                                      .logprob = p,
                                                      .dhidden = dhidden,
                                                      .nll = true,
                                                      .workspace = workspace,
                                                      .workspace_bytes = sizeof workspace};
    return tigon_fused_linear_preference_fwd(c, &a);
  }
  if (which == 1) {
    const tigon_fused_linear_policy_fwd_args a = {.hidden = tigon_tensor_3d(hidden, TIGON_F32, 1, 2, 2),
                                                  .weight = w,
                                                  .labels = tigon_tensor_2d(labels, TIGON_I64, 1, 2),
                                                  .advantage = tigon_tensor_1d(one, TIGON_F32, 1),
                                                  .loss = loss,
                                                  .logprob = tigon_tensor_2d(out->logprob, TIGON_F32, 1, 2),
                                                  .dhidden = tigon_tensor_3d(out->dhidden, TIGON_F32, 1, 2, 2),
                                                  .workspace = workspace,
                                                  .workspace_bytes = sizeof workspace};
    return tigon_fused_linear_policy_fwd(c, &a);
  }
  if (which == 2) {
    const tigon_fused_linear_divergence_fwd_args a = {.hidden = h,
                                                      .weight = w,
                                                      .teacher_hidden = h,
                                                      .teacher_weight = tigon_tensor_2d(teacher, TIGON_F32, 2, 2),
                                                      .labels = t,
                                                      .weight_hard = 0.5,
                                                      .softcap = 2,
                                                      .loss = loss,
                                                      .token_loss = p,
                                                      .dhidden = dhidden,
                                                      .workspace = workspace,
                                                      .workspace_bytes = sizeof workspace};
    return tigon_fused_linear_divergence_fwd(c, &a);
  }
  const tigon_fused_linear_topk_divergence_fwd_args a = {.hidden = h,
                                                         .weight = w,
                                                         .target = tigon_tensor_3d(target, TIGON_F32, 2, 1, 1),
                                                         .target_ids = tigon_tensor_3d(labels, TIGON_I64, 2, 1, 1),
                                                         .target_is = TIGON_DISTRIBUTION_LOG_PROBABILITIES,
                                                         .labels = t,
                                                         .tail = true,
                                                         .weight_hard = 0.5,
                                                         .softcap = 2,
                                                         .loss = loss,
                                                         .token_loss = p,
                                                         .dhidden = dhidden,
                                                         .workspace = workspace,
                                                         .workspace_bytes = sizeof workspace};
  return tigon_fused_linear_topk_divergence_fwd(c, &a);
}

/* The simulator borrows their products; the losses are its own. All numbers are below 4, and of some 16 operations each. */
static void test_heads_on_ascend(void **state) {
  (void)state;
  tigon_context *host = opened(NULL, "cpu", 1), *c = opened(NULL, "ascend-sim:910B4", 1);
  for (int which = 0; which < HEADS; ++which) {
    head_results want = {{7}, {7, 7}, {7, 7, 7, 7}}, found = want;
    assert_int_equal(run_head(host, which, &want), TIGON_OK);
    assert_int_equal(run_head(c, which, &found), TIGON_OK);
    assert_float_equal(found.loss[0], want.loss[0], 4 * 16 * 0x1p-24);
    for (int i = 0; i < 2; ++i) assert_float_equal(found.logprob[i], want.logprob[i], 4 * 16 * 0x1p-24);
    for (int i = 0; i < 4; ++i) assert_float_equal(found.dhidden[i], want.dhidden[i], 4 * 16 * 0x1p-24);
    assert_true(want.loss[0] != 7 && want.dhidden[3] != 7);
  }
  tigon_context_destroy(c);
  tigon_context_destroy(host);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),          cmocka_unit_test(test_batch),
                                     cmocka_unit_test(test_libraries),      cmocka_unit_test(test_fork),
                                     cmocka_unit_test(test_denormals),      cmocka_unit_test(test_sizes),
                                     cmocka_unit_test(test_heads_on_ascend)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
