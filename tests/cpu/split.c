/* A wide row has the same bits whether one task has it, as in a large batch and on one thread, or however many tasks share it. So
 * have gradients over rows.
 * ctest: slow */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

#include "core/context.h"
#include "cpu/split.h"

/* 18 parts of a row, the last one ragged. A row of group_norm is cut by positions, or by channels where runs are short. */
enum { BATCH = 40, COLS = 140016, CHECKED = 7, FEW_CHANNELS = 3, MANY_CHANNELS = 24, SCRATCH = 1 << 26 };

typedef struct rows {
  void *x, *dy, *y, *dx;
  float mean[BATCH], rstd[BATCH];
} rows;

static tigon_dtype dtype;
static size_t element(void) { return tigon_dtype_size(dtype); }
/* That forward moves, the least of all. */
static int64_t row_bytes(void) { return 2 * COLS * (int64_t)element(); }

/* The elements have the dtype `dtype`. */
static float inputs[2][BATCH * COLS], outputs[2][BATCH * COLS], alone[2][COLS];
static _Alignas(64) char workspace[SCRATCH];

static tigon_tensor matrix(void *data, int64_t n) { return tigon_tensor_2d(data, dtype, n, COLS); }

static void call_rms_norm(tigon_context *c, rows *r, int64_t n) {
  const tigon_rms_norm_fwd_args fwd = {
      .x = matrix(r->x, n), .y = matrix(r->y, n), .rstd = tigon_tensor_1d(r->rstd, TIGON_F32, n), .eps = 1e-6};
  assert_int_equal(tigon_rms_norm_fwd(c, &fwd), TIGON_OK);
  const tigon_rms_norm_bwd_args bwd = {.dy = matrix(r->dy, n), .x = fwd.x, .rstd = fwd.rstd, .dx = matrix(r->dx, n)};
  assert_int_equal(tigon_rms_norm_bwd(c, &bwd), TIGON_OK);
}

static void call_layer_norm(tigon_context *c, rows *r, int64_t n) {
  const tigon_layer_norm_fwd_args fwd = {.x = matrix(r->x, n),
                                         .y = matrix(r->y, n),
                                         .mean = tigon_tensor_1d(r->mean, TIGON_F32, n),
                                         .rstd = tigon_tensor_1d(r->rstd, TIGON_F32, n),
                                         .eps = 1e-5};
  assert_int_equal(tigon_layer_norm_fwd(c, &fwd), TIGON_OK);
  const tigon_layer_norm_bwd_args bwd = {
      .dy = matrix(r->dy, n), .x = fwd.x, .mean = fwd.mean, .rstd = fwd.rstd, .dx = matrix(r->dx, n)};
  assert_int_equal(tigon_layer_norm_bwd(c, &bwd), TIGON_OK);
}

static void call_softmax(tigon_context *c, rows *r, int64_t n) {
  const tigon_softmax_fwd_args fwd = {.x = matrix(r->x, n), .y = matrix(r->y, n)};
  assert_int_equal(tigon_softmax_fwd(c, &fwd), TIGON_OK);
  const tigon_softmax_bwd_args bwd = {.dy = matrix(r->dy, n), .y = fwd.y, .dx = matrix(r->dx, n)};
  assert_int_equal(tigon_softmax_bwd(c, &bwd), TIGON_OK);
}

static void call_sparsemax(tigon_context *c, rows *r, int64_t n) {
  const tigon_sparsemax_fwd_args fwd = {.x = matrix(r->x, n), .y = matrix(r->y, n)};
  assert_int_equal(tigon_sparsemax_fwd(c, &fwd), TIGON_OK);
  const tigon_sparsemax_bwd_args bwd = {.dy = matrix(r->dy, n), .y = fwd.y, .dx = matrix(r->dx, n)};
  assert_int_equal(tigon_sparsemax_bwd(c, &bwd), TIGON_OK);
}

static tigon_tensor channels(void *data, int64_t n, int64_t count) {
  return tigon_tensor_3d(data, dtype, n, count, COLS / count);
}

static void call_group_norm_of(tigon_context *c, rows *r, int64_t n, int64_t count) {
  const tigon_group_norm_fwd_args fwd = {.x = channels(r->x, n, count),
                                         .y = channels(r->y, n, count),
                                         .mean = tigon_tensor_2d(r->mean, TIGON_F32, n, 1),
                                         .rstd = tigon_tensor_2d(r->rstd, TIGON_F32, n, 1),
                                         .groups = 1,
                                         .eps = 1e-5};
  assert_int_equal(tigon_group_norm_fwd(c, &fwd), TIGON_OK);
  const tigon_group_norm_bwd_args bwd = {.dy = channels(r->dy, n, count),
                                         .x = fwd.x,
                                         .mean = fwd.mean,
                                         .rstd = fwd.rstd,
                                         .dx = channels(r->dx, n, count),
                                         .groups = 1,
                                         .workspace = workspace,
                                         .workspace_bytes = sizeof workspace};
  assert_int_equal(tigon_group_norm_bwd(c, &bwd), TIGON_OK);
}
static void call_group_norm_runs(tigon_context *c, rows *r, int64_t n) { call_group_norm_of(c, r, n, FEW_CHANNELS); }
static void call_group_norm_channels(tigon_context *c, rows *r, int64_t n) {
  call_group_norm_of(c, r, n, MANY_CHANNELS);
}

static void check_variant(const char *variant, void (*call)(tigon_context *c, rows *r, int64_t n)) {
  const tigon_context_desc desc = {.device = "cpu", .variant = variant};
  tigon_context *c;
  assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
  rows all = {.x = inputs[0], .dy = inputs[1], .y = outputs[0], .dx = outputs[1]};
  c->queue.threads = 2;
  call(c, &all, BATCH);
  assert_int_equal(split_of(&c->queue, BATCH, COLS, row_bytes()).tasks, 1);
  for (int i = 0; i < CHECKED; ++i) {
    const int64_t row = i * (BATCH / CHECKED), at = row * COLS * (int64_t)element();
    static const int threads[] = {1, 2, 3, 8};
    for (int t = 0; t < 4; ++t) {
      rows one = {.x = (char *)inputs[0] + at, .dy = (char *)inputs[1] + at, .y = alone[0], .dx = alone[1]};
      memset(alone, 0xff, sizeof alone);
      c->queue.threads = threads[t];
      assert_true((split_of(&c->queue, 1, COLS, row_bytes()).tasks > 1) == (threads[t] > 1));
      call(c, &one, 1);
      assert_memory_equal(alone[0], (char *)outputs[0] + at, COLS * element());
      assert_memory_equal(alone[1], (char *)outputs[1] + at, COLS * element());
      assert_memory_equal(&one.rstd[0], &all.rstd[row], sizeof one.rstd[0]);
      assert_memory_equal(&one.mean[0], &all.mean[row], sizeof one.mean[0]);
    }
  }
  tigon_context_destroy(c);
}

static void put(void *to, int i, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == TIGON_F32)
    ((float *)to)[i] = value;
  else if (dtype == TIGON_BF16)
    ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
  else /* 2^-3 to 2^1, with its sign */
    ((uint16_t *)to)[i] = (uint16_t)((bits >> 16 & 0x8000) | (12 + (bits & 3)) << 10 | (bits >> 4 & 1023));
}

static void fill_inputs(void) {
  uint32_t seed = 1;
  for (int i = 0; i < BATCH * COLS; ++i)
    for (int k = 0; k < 2; ++k) {
      seed = seed * 1664525u + 1013904223u; /* Numerical Recipes */
      put(inputs[k], i, (float)(seed >> 8) * 0x1p-22f - 1.5f);
    }
}

static void same_bits(void (*call)(tigon_context *c, rows *r, int64_t n)) {
  for (dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype) {
    fill_inputs();
    for (const tigon_kernels *const *v = tigon_backend_find("cpu")->variants(); *v; ++v)
      check_variant((*v)->variant, call);
  }
}

/* dw and db of `batch` batches in one group: some threads share each row, one has whole ones. */
static void gradients_of(tigon_context *c, int64_t batch, int64_t count, int threads, float *sums) {
  const tigon_tensor x = tigon_tensor_3d(inputs[0], dtype, batch, count, COLS / count),
                     dy = tigon_tensor_3d(inputs[1], dtype, batch, count, COLS / count),
                     dx = tigon_tensor_3d(outputs[0], dtype, batch, count, COLS / count);
  float ones[BATCH];
  for (int i = 0; i < BATCH; ++i) ones[i] = 1;
  tigon_group_norm_bwd_args args = {.dy = dy,
                                    .x = x,
                                    .mean = tigon_tensor_2d(ones, TIGON_F32, batch, 1),
                                    .rstd = tigon_tensor_2d(ones, TIGON_F32, batch, 1),
                                    .dx = dx,
                                    .dw = tigon_tensor_1d(sums, TIGON_F32, count),
                                    .db = tigon_tensor_1d(sums + count, TIGON_F32, count),
                                    .groups = 1,
                                    .workspace = workspace};
  c->queue.threads = threads;
  assert_int_equal(tigon_group_norm_bwd_workspace(c, &args, &args.workspace_bytes), TIGON_OK);
  assert_in_range(args.workspace_bytes, 1, sizeof workspace);
  memset(workspace, 0xff, args.workspace_bytes);
  assert_int_equal(tigon_group_norm_bwd(c, &args), TIGON_OK);
}

static void group_norm_gradients(void **state) {
  (void)state;
  static const int channels_of[] = {FEW_CHANNELS, MANY_CHANNELS};
  dtype = TIGON_BF16;
  fill_inputs();
  for (const tigon_kernels *const *v = tigon_backend_find("cpu")->variants(); *v; ++v) {
    const tigon_context_desc desc = {.device = "cpu", .variant = (*v)->variant};
    tigon_context *c;
    assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
    for (int64_t batch = 1; batch <= 5; ++batch)
      for (int i = 0; i < 2; ++i) {
        float whole[2 * MANY_CHANNELS], shared[2 * MANY_CHANNELS];
        gradients_of(c, batch, channels_of[i], 1, whole);
        for (int threads = 2; threads <= 8; threads += 3) {
          gradients_of(c, batch, channels_of[i], threads, shared);
          assert_memory_equal(shared, whole, 2 * (size_t)channels_of[i] * sizeof *whole);
        }
      }
    tigon_context_destroy(c);
  }
}

static void rms_norm(void **state) { (void)state, same_bits(call_rms_norm); }
static void layer_norm(void **state) { (void)state, same_bits(call_layer_norm); }
static void softmax(void **state) { (void)state, same_bits(call_softmax); }
static void sparsemax(void **state) { (void)state, same_bits(call_sparsemax); }
static void group_norm_runs(void **state) { (void)state, same_bits(call_group_norm_runs); }
static void group_norm_channels(void **state) { (void)state, same_bits(call_group_norm_channels); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rms_norm),
      cmocka_unit_test(layer_norm),
      cmocka_unit_test(softmax),
      cmocka_unit_test(sparsemax),
      cmocka_unit_test(group_norm_runs),
      cmocka_unit_test(group_norm_channels),
      cmocka_unit_test(group_norm_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
