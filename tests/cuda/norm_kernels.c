/* The table of the norms' kernels, for described GPUs. Some call takes each kernel of it, on some GPU. No launch asks for more
 * than the GPU has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "cuda/kernels.h"

static const char *const names[] = {
#define RMS_NORM(name, ...) "rms_norm_" #name,
#define GATED_RMS_NORM(name, ...) "gated_rms_norm_" #name,
#define FUSED_ADD_RMS_NORM(name, ...) "fused_add_rms_norm_" #name,
#define LAYER_NORM(name, ...) "layer_norm_" #name,
#define MODULATED_RMS_NORM(name, ...) "modulated_rms_norm_" #name,
#include "cuda/norm_kernels.def"
};
enum { NAMES = sizeof names / sizeof *names };
static bool reached[NAMES];

/* A kernel's name less its dtype. */
static void note(void *to, const tigon_launch *launch) {
  const tigon_device *device = to;
  const size_t length = (size_t)(strrchr(launch->kernel, '_') - launch->kernel);
  for (int i = 0; i < NAMES; ++i) reached[i] |= strncmp(names[i], launch->kernel, length) == 0 && !names[i][length];
  assert_true(launch->grid > 0 && launch->block >= 32 && launch->block <= 1024);
  assert_true(launch->onchip_bytes <= device->onchip_bytes && launch->cluster <= CUDA_CLUSTER);
}

/* What is varied besides the shape: bits. BRIEF: layer_norm without b, and one row a scale. */
enum { TWO_PITCHES = 1, NARROW = 2, W_IN_F32 = 4, BRIEF = 8, VARIANTS = 16, GROUP = 4 };

static tigon_rows rows_at(int place, int64_t cols, int variant) {
  const uintptr_t address = ((uintptr_t)place << 30) + (variant & NARROW ? 4 : 0);
  return (tigon_rows){.data = (void *)address, .pitch = {cols * 4096, cols * 64, cols}}; /* NOLINT */
}
static void *vector_at(int place) { return (void *)((uintptr_t)place << 30); } /* NOLINT(performance-no-int-to-ptr) */

static void forward(tigon_queue *queue, int64_t rows, int64_t cols, tigon_dtype dtype, int variant) {
  const tigon_dtype w_dtype = variant & W_IN_F32 ? TIGON_F32 : dtype;
  tigon_norm_fwd_problem p = {.space = {.rows = rows, .inner = variant & TWO_PITCHES ? rows / 2 : rows},
                              .cols = cols,
                              .dtype = dtype,
                              .w_dtype = w_dtype,
                              .b_dtype = w_dtype,
                              .x = rows_at(1, cols, variant),
                              .y = rows_at(2, cols, variant),
                              .w = vector_at(3)};
  assert_int_equal(tigon_cuda_rms_norm_fwd(queue, &p), TIGON_OK);
  p.z = rows_at(8, cols, variant);
  assert_int_equal(tigon_cuda_rms_norm_fwd(queue, &p), TIGON_OK);
  p.z = (tigon_rows){0};
  p.b = variant & BRIEF ? NULL : vector_at(4);
  assert_int_equal(tigon_cuda_layer_norm_fwd(queue, &p), TIGON_OK);
  p.b = NULL;
  p.residual = rows_at(5, cols, variant);
  p.s = rows_at(6, cols, variant);
  assert_int_equal(tigon_cuda_fused_add_rms_norm_fwd(queue, &p), TIGON_OK);
  p.residual = p.s = (tigon_rows){0};
  p.share = variant & BRIEF ? 1 : GROUP;
  p.groups = (tigon_row_space){.rows = rows / p.share, .inner = rows / p.share};
  p.scale = rows_at(7, cols, variant);
  p.scale_dtype = p.shift_dtype = dtype;
  assert_int_equal(tigon_cuda_modulated_rms_norm_fwd(queue, &p), TIGON_OK);
}

static void backward(tigon_queue *queue, int64_t rows, int64_t cols, tigon_dtype dtype, int variant) {
  tigon_norm_bwd_problem p = {.space = {.rows = rows, .inner = variant & TWO_PITCHES ? rows / 2 : rows},
                              .cols = cols,
                              .dtype = dtype,
                              .w_dtype = variant & W_IN_F32 ? TIGON_F32 : dtype,
                              .dw_dtype = dtype,
                              .db_dtype = dtype,
                              .dy = rows_at(1, cols, variant),
                              .x = rows_at(2, cols, variant),
                              .dx = rows_at(3, cols, variant),
                              .w = vector_at(4),
                              .slabs = vector_at(5),
                              .dw = vector_at(6)};
  assert_int_equal(tigon_cuda_rms_norm_bwd(queue, &p), TIGON_OK);
  p.z = rows_at(8, cols, variant);
  p.dz = rows_at(9, cols, variant);
  assert_int_equal(tigon_cuda_rms_norm_bwd(queue, &p), TIGON_OK);
  p.z = p.dz = (tigon_rows){0};
  assert_int_equal(tigon_cuda_layer_norm_bwd(queue, &p), TIGON_OK);
  p.ds = rows_at(7, cols, variant);
  assert_int_equal(tigon_cuda_fused_add_rms_norm_bwd(queue, &p), TIGON_OK);
  p.ds = (tigon_rows){0};
  p.share = GROUP;
  p.groups = (tigon_row_space){.rows = rows / GROUP, .inner = rows / GROUP};
  p.scale = rows_at(8, cols, variant);
  p.dscale = rows_at(9, cols, variant);
  p.scale_dtype = p.dscale_dtype = p.dshift_dtype = dtype;
  assert_int_equal(tigon_cuda_modulated_rms_norm_bwd(queue, &p), TIGON_OK);
}

static void test_every_kernel_is_taken(void **state) {
  (void)state;
  static const char *const gpus[] = {"a100", "h200", "b200"};
  static const int64_t all_rows[] = {4, 64, 4096, 65536},
                       all_cols[] = {256, 264, 4096, 8192, 12288, 32768, 65536, 1 << 20};
  for (size_t g = 0; g < sizeof gpus / sizeof *gpus; ++g) {
    tigon_context *context = tigon_context_described(gpus[g], note, NULL);
    assert_non_null(context);
    context->queue.record_to = (void *)context->device;
    for (size_t r = 0; r < sizeof all_rows / sizeof *all_rows; ++r)
      for (size_t c = 0; c < sizeof all_cols / sizeof *all_cols; ++c)
        for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype)
          for (int variant = 0; variant < VARIANTS; ++variant) {
            forward(&context->queue, all_rows[r], all_cols[c], dtype, variant);
            backward(&context->queue, all_rows[r], all_cols[c], dtype, variant);
          }
    tigon_context_destroy(context);
  }
  for (int i = 0; i < NAMES; ++i)
    if (!reached[i]) fail_msg("no call takes %s", names[i]);
}

static void test_unknown_gpu(void **state) {
  (void)state;
  assert_null(tigon_context_described("h201", note, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kernel_is_taken), cmocka_unit_test(test_unknown_gpu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
