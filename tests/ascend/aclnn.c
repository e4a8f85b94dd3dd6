/* linear on an NPU over a library of operators of ours (fake/opapi.c): what `tigon check` does not call, and every
 * call's failure with its sentence and nothing left behind. */
#include "ascend/fake_npu.h"

#include "core/context.h"
#include "ref/ref.h"

static float small(int i) { return (float)(i % 1000 * 7919 % 64 - 32) / 8; } /* sums of products are exact */

/* ---- the slot alone: f32 sums that a composite adds ---- */

enum { ROWS = 75, N = 1030, K = 19 };

/* Gradients of a problem whose rows, dtypes and sums are set, as the oracle has them. */
static void same_as_oracle(int64_t rows, tigon_dtype dtype, bool accumulate) {
  static uint16_t dy[ROWS * N], x[ROWS * K], w[N * K], dx[2][ROWS * K], dw[2][N * K], db[2][N];
  static float dw_sums[N * K], db_sums[N];
  const size_t size = tigon_dtype_size(dtype);
  for (int i = 0; i < ROWS * N; ++i) tigon_store_f64(dy, i, dtype, (double)small(i));
  for (int i = 0; i < ROWS * K; ++i) tigon_store_f64(x, i, dtype, (double)small(i + 5));
  for (int i = 0; i < N * K; ++i) tigon_store_f64(w, i, dtype, (double)small(i + 7)), dw_sums[i] = small(i + 11);
  for (int i = 0; i < N; ++i) db_sums[i] = small(i + 13);
  for (int i = 0; i < N * K; ++i) tigon_store_f64(dw[0], i, dtype, (double)small(i + 1));
  for (int i = 0; i < N; ++i) tigon_store_f64(db[0], i, dtype, (double)small(i + 3));
  memcpy(dw[1], dw[0], sizeof dw[0]);
  memcpy(db[1], db[0], sizeof db[0]);
  tigon_linear_bwd_problem p = {.rows = rows,
                                .n = N,
                                .k = K,
                                .dtype = dtype,
                                .dy_dtype = dtype,
                                .dx_dtype = dtype,
                                .dw_dtype = dtype,
                                .db_dtype = dtype,
                                .dy = dy,
                                .x = x,
                                .w = w,
                                .dx = rows ? dx[0] : NULL,
                                .dw = dw[0],
                                .db = db[0],
                                .dy_pitch = N,
                                .x_pitch = K,
                                .w_pitch = K,
                                .dx_pitch = K,
                                .dw_pitch = K,
                                .dw_sums = dw_sums,
                                .db_sums = db_sums,
                                .accumulate = accumulate};
  tigon_ref_linear_bwd(NULL, &p);
  tigon_context *context = open_npu("npu");
  p.dy = to_device(context, dy, sizeof dy);
  p.x = to_device(context, x, sizeof x);
  p.w = to_device(context, w, sizeof w);
  p.dw_sums = to_device(context, dw_sums, sizeof dw_sums);
  p.db_sums = to_device(context, db_sums, sizeof db_sums);
  if (rows) p.dx = to_device(context, dx[1], sizeof dx[1]);
  p.dw = to_device(context, dw[1], sizeof dw[1]);
  p.db = to_device(context, db[1], sizeof db[1]);
  assert_int_equal(context->kernels->linear_bwd.run(&context->queue, &p), TIGON_OK);
  if (rows) from_device(context, dx[1], p.dx, sizeof dx[1]);
  from_device(context, dw[1], p.dw, sizeof dw[1]);
  from_device(context, db[1], p.db, sizeof db[1]);
  assert_memory_equal(dx[0], dx[1], rows * K * (int64_t)size);
  assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
  assert_memory_equal(db[0], db[1], sizeof db[0]);
  tigon_free(context, (void *)p.dy);
  tigon_free(context, (void *)p.x);
  tigon_free(context, (void *)p.w);
  tigon_free(context, (void *)p.dw_sums);
  tigon_free(context, (void *)p.db_sums);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

static void test_sums(void **state) {
  (void)state;
  const int64_t rows[] = {ROWS, 1, 0};
  for (int i = 0; i < 3; ++i)
    for (int accumulate = 0; accumulate <= 1; ++accumulate) {
      same_as_oracle(rows[i], TIGON_BF16, accumulate);
      same_as_oracle(rows[i], TIGON_F16, accumulate);
    }
}

/* ---- more f32 sums than the device's scratch has: row by row ---- */

enum { WIDE = (1 << 22) + 5, PARTS = 3, DEPTH = 2, PITCH = WIDE + 3 };

static void test_parts_of_y(void **state) {
  (void)state;
  const size_t y_bytes = (size_t)PARTS * PITCH * sizeof(float);
  float x[PARTS * 3], *w = malloc(DEPTH * WIDE * sizeof *w), *b = malloc(WIDE * sizeof *b), *y = calloc(1, y_bytes);
  for (int i = 0; i < PARTS * 3; ++i) x[i] = small(i + 9);
  for (int i = 0; i < DEPTH * WIDE; ++i) w[i] = small(i);
  for (int i = 0; i < WIDE; ++i) b[i] = small(i / 64);
  tigon_context *context = open_npu("npu");
  tigon_linear_fwd_args args = {
      .x = tigon_tensor_2d(to_device(context, x, sizeof x), TIGON_F32, PARTS, DEPTH),
      .w = tigon_tensor_2d(to_device(context, w, DEPTH * WIDE * sizeof *w), TIGON_F32, WIDE, DEPTH),
      .b = tigon_tensor_1d(to_device(context, b, WIDE * sizeof *b), TIGON_F32, WIDE),
      .y = tigon_tensor_2d(to_device(context, y, y_bytes), TIGON_F32, PARTS, WIDE),
  };
  args.x.strides[0] = 3;
  args.y.strides[0] = PITCH;
  if (tigon_linear_fwd(context, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  from_device(context, y, args.y.data, y_bytes);
  for (int r = 0; r < PARTS; ++r)
    for (int i = 0; i < PITCH; ++i) {
      const float *v = w + (size_t)i * DEPTH, sum = i < WIDE ? x[r * 3] * v[0] + x[r * 3 + 1] * v[1] + b[i] : 0;
      if (y[(size_t)r * PITCH + (size_t)i] != sum) fail_msg("y[%d, %d]", r, i);
    }
  tigon_free(context, args.x.data);
  tigon_free(context, args.w.data);
  tigon_free(context, args.b.data);
  tigon_context_destroy(context);
  free(w), free(b), free(y);
}

/* dy [DEPTH, PARTS] is transposed, and sums are added. */
static void test_parts_of_dw(void **state) {
  (void)state;
  const size_t x_bytes = DEPTH * WIDE * sizeof(uint16_t), dw_bytes = (size_t)PARTS * PITCH * sizeof(uint16_t),
               sums_bytes = (size_t)PARTS * WIDE * sizeof(float);
  uint16_t dy[DEPTH * 4], *x = malloc(x_bytes), *dw = calloc(1, dw_bytes);
  float *sums = malloc(sums_bytes);
  for (int i = 0; i < DEPTH * 4; ++i) tigon_store_f64(dy, i, TIGON_BF16, (double)small(i + 9));
  for (int i = 0; i < DEPTH * WIDE; ++i) tigon_store_f64(x, i, TIGON_BF16, (double)small(i));
  for (int i = 0; i < PARTS * WIDE; ++i) sums[i] = small(i / 3);
  tigon_context *context = open_npu("npu");
  const tigon_linear_bwd_problem p = {.rows = DEPTH,
                                      .n = PARTS,
                                      .k = WIDE,
                                      .dtype = TIGON_BF16,
                                      .dy_dtype = TIGON_BF16,
                                      .dw_dtype = TIGON_BF16,
                                      .dy = to_device(context, dy, sizeof dy),
                                      .x = to_device(context, x, x_bytes),
                                      .dw = to_device(context, dw, dw_bytes),
                                      .dy_pitch = 4,
                                      .x_pitch = WIDE,
                                      .dw_pitch = PITCH,
                                      .dw_sums = to_device(context, sums, sums_bytes)};
  assert_int_equal(context->kernels->linear_bwd.run(&context->queue, &p), TIGON_OK);
  from_device(context, dw, p.dw, dw_bytes);
  for (int n = 0; n < PARTS; ++n)
    for (int k = 0; k < PITCH; ++k) {
      double sum = k < WIDE ? (double)sums[n * WIDE + k] : 0;
      for (int r = 0; r < DEPTH && k < WIDE; ++r)
        sum += tigon_load_f64(dy, r * 4 + n, TIGON_BF16) * tigon_load_f64(x, r * (int64_t)WIDE + k, TIGON_BF16);
      uint16_t rounded;
      tigon_store_f64(&rounded, 0, TIGON_BF16, sum);
      if (dw[(size_t)n * PITCH + (size_t)k] != rounded) fail_msg("dw[%d, %d]", n, k);
    }
  tigon_free(context, (void *)p.dy);
  tigon_free(context, (void *)p.x);
  tigon_free(context, (void *)p.dw_sums);
  tigon_context_destroy(context);
  free(x), free(dw), free(sums);
}

/* ---- failures ---- */

static void test_failures(void **state) {
  (void)state;
  static const struct {
    const char *call;
    int nth, code;
    tigon_status status;
    const char *sentence;
  } failures[] = {
      {"aclCreateTensor", 1, 1, TIGON_ERROR_DEVICE, "aclCreateTensor returned none"},
      {"aclCreateTensor", 2, 1, TIGON_ERROR_DEVICE, "aclCreateTensor returned none"},
      {"aclCreateTensor", 3, 1, TIGON_ERROR_DEVICE, "aclCreateTensor returned none"},
      {"aclnnMmGetWorkspaceSize", 1, 561112, TIGON_ERROR_DEVICE,
       "aclnnMmGetWorkspaceSize returned 561112 (ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND)"},
      {"aclnnMm", 1, 361001, TIGON_ERROR_DEVICE, "aclnnMm returned 361001 (ACLNN_ERR_RUNTIME_ERROR)"},
      {"aclnnMm", 1, 207001, TIGON_ERROR_OUT_OF_MEMORY, "aclnnMm returned 207001 (ACL_ERROR_RT_MEMORY_ALLOCATION)"},
      {"aclrtSetDevice", 1, 107001, TIGON_ERROR_DEVICE,
       "aclrtSetDevice returned 107001 (ACL_ERROR_RT_INVALID_DEVICEID)"},
      {"aclrtLaunchKernelWithHostArgs", 1, 507000, TIGON_ERROR_DEVICE,
       "aclrtLaunchKernelWithHostArgs returned 507000 (ACL_ERROR_RT_INTERNAL_ERROR)"},
      {"aclDestroyTensor", 1, 561103, TIGON_OK, ""}, /* nobody could do anything about it */
  };
  float x[64] = {0};
  assert_int_equal(fake.set_device(0), 0);
  tigon_context *context = open_npu("npu:1");
  void *memory = to_device(context, x, sizeof x);
  const int alive = fake.alive();
  const tigon_tensor matrix = tigon_tensor_2d(memory, TIGON_F32, 2, 2);
  const tigon_linear_fwd_args args = {.x = matrix,
                                      .w = matrix,
                                      .b = tigon_tensor_1d(memory, TIGON_F32, 2),
                                      .y = tigon_tensor_2d((char *)memory + 128, TIGON_F32, 2, 2)};
  for (size_t i = 0; i < sizeof failures / sizeof *failures; ++i) {
    char sentence[256];
    snprintf(sentence, sizeof sentence, "linear_fwd: the launch on npu failed: %s", failures[i].sentence);
    fake.fail_at(failures[i].call, failures[i].nth, failures[i].code);
    assert_int_equal(tigon_linear_fwd(context, &args), failures[i].status);
    if (failures[i].status != TIGON_OK) assert_string_equal(tigon_last_error(context), sentence);
    assert_int_equal(fake.alive(), alive);
    int32_t current = -1;
    fake.get_device(&current);
    assert_int_equal(current, 0);
    assert_int_equal(tigon_linear_fwd(context, &args), TIGON_OK);
  }
  fake.workspace(UINT64_C(300) << 20);
  assert_int_equal(tigon_linear_fwd(context, &args), TIGON_ERROR_OUT_OF_MEMORY);
  assert_string_equal(
      tigon_last_error(context),
      "linear_fwd: the launch on npu failed: aclnnMm wants 315621376 bytes of workspace, must be at most 268435456");
  assert_int_equal(fake.alive(), alive);
  fake.workspace(0);
  assert_int_equal(tigon_linear_fwd(context, &args), TIGON_OK);
  tigon_free(context, memory);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_parts_of_y),
                                     cmocka_unit_test(test_parts_of_dw), cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, setup, NULL);
}
