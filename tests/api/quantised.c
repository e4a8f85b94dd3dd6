/* rms_norm_quantised where y / scale is just between two codes: the even one is right. A check allows both, because its y is next to such a
 * place. Here y is exact: all x are 1 or -1, and eps is too small to show, so that y = +-w. The largest w makes the scale 1. */
#include "api.h"
#include "core/context.h"

enum { COLS = 9 };

typedef struct tie_case {
  tigon_dtype dtype;
  float w[COLS];
  uint8_t codes[COLS];
} tie_case;

static const tie_case cases[] = {
    {TIGON_F8E4M3,
     {448, 1.0625f, 1.1875f, -1.0625f, -1.1875f, 0x1p-10f, 3 * 0x1p-10f, 0x1.1p-6f, 232},
     {0x7e, 0x38, 0x3a, 0xb8, 0xba, 0, 2, 8, 0x76}},
    {TIGON_I8, {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 125.5f, 126.5f}, {127, 0, 2, 2, 0, 0xfe, 0xfe, 126, 126}},
};

static void expect(tigon_context *context, const tie_case *c) {
  float x[COLS], scale = 0;
  uint8_t q[COLS];
  char *memory;
  enum { X = 0, W = 64, Q = 128, SCALE = 192, BYTES = 256 };
  for (int i = 0; i < COLS; ++i) x[i] = i % 2 ? -1 : 1;
  assert_int_equal(tigon_alloc(context, BYTES, (void **)&memory), TIGON_OK);
  assert_int_equal(tigon_copy(context, memory + X, x, sizeof x), TIGON_OK);
  assert_int_equal(tigon_copy(context, memory + W, c->w, sizeof c->w), TIGON_OK);
  const tigon_rms_norm_quantised_args args = {.x = tigon_tensor_2d(memory + X, TIGON_F32, 1, COLS),
                                              .w = tigon_tensor_1d(memory + W, TIGON_F32, COLS),
                                              .q = tigon_tensor_2d(memory + Q, c->dtype, 1, COLS),
                                              .scale = tigon_tensor_1d(memory + SCALE, TIGON_F32, 1),
                                              .eps = 1e-30};
  if (tigon_rms_norm_quantised(context, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  assert_int_equal(tigon_copy(context, q, memory + Q, sizeof q), TIGON_OK);
  assert_int_equal(tigon_copy(context, &scale, memory + SCALE, sizeof scale), TIGON_OK);
  tigon_free(context, memory);
  assert_true(scale == 1);
  for (int i = 0; i < COLS; ++i) {
    const uint8_t negative = c->dtype == TIGON_I8 ? (uint8_t)-c->codes[i] : c->codes[i] ^ 0x80;
    const uint8_t want = x[i] < 0 ? negative : c->codes[i];
    if (q[i] != want)
      fail_msg("%s, %s: %g becomes %#x, must be %#x", tigon_last_variant(context), tigon_dtype_name(c->dtype),
               (double)(c->w[i] * x[i]), q[i], want);
  }
}

/* Every variant of every device at hand. */
static void test_ties(void **state) {
  (void)state;
  static const char *const devices[] = {"ref", "cpu", "ascend-sim", "opencl", "cuda"};
  int tried = 0;
  for (size_t d = 0; d < sizeof devices / sizeof *devices; ++d) {
    tigon_context *any;
    if (tigon_context_create(&(tigon_context_desc){.device = devices[d]}, &any) != TIGON_OK) continue;
    const tigon_kernels *const *v = any->queue.backend->variants();
    for (; *v; ++v) {
      tigon_context *context;
      const tigon_context_desc desc = {.device = devices[d], .variant = (*v)->variant};
      if (!tigon_queue_runs(&any->queue, *v) || tigon_context_create(&desc, &context) != TIGON_OK) continue;
      for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        if (tigon_supports(context, "rms_norm", "quantised", TIGON_F32)) expect(context, &cases[i]), ++tried;
      tigon_context_destroy(context);
    }
    tigon_context_destroy(any);
  }
  assert_true(tried >= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ties)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
