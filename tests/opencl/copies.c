/* Copies of rows on the first OpenCL device, in its own memory and in shared memory, by work-items and by groups. Skipped without a device. */
#include <tigon/opencl.h>

#include "../api/api.h"

#include "core/context.h"

enum { BYTES = 4096, ROWS = 7, PITCH_FROM = 100, PITCH_TO = 210, FIRST_FROM = 34, FIRST_TO = 250 };

static void copy_rows(const char *variant, size_t bytes, bool shared) {
  const tigon_context_desc desc = {.device = "opencl", .variant = variant};
  tigon_context *context;
  unsigned char from[BYTES], to[BYTES];
  char *memory = NULL;
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  const tigon_status status = shared ? tigon_opencl_alloc_shared(context, 2 * sizeof from, (void **)&memory)
                                     : tigon_alloc(context, 2 * sizeof from, (void **)&memory);
  if (status != TIGON_ERROR_UNSUPPORTED) {
    for (int i = 0; i < BYTES; ++i) from[i] = (unsigned char)(i * 37);
    assert_int_equal(status, TIGON_OK);
    assert_int_equal(tigon_copy(context, memory, from, sizeof from), TIGON_OK);
    assert_int_equal(tigon_fill(context, memory + BYTES, 99, sizeof to), TIGON_OK);
    tigon_queue *queue = &context->queue;
    assert_int_equal(queue->backend->copy_rows(queue, memory + BYTES + FIRST_TO, PITCH_TO, memory + FIRST_FROM,
                                               PITCH_FROM, bytes, ROWS),
                     TIGON_OK);
    assert_int_equal(tigon_copy(context, to, memory + BYTES, sizeof to), TIGON_OK);
    for (int i = 0; i < BYTES; ++i) {
      const int row = (i - FIRST_TO) / PITCH_TO, at = (i - FIRST_TO) % PITCH_TO;
      const bool copied = i >= FIRST_TO && row < ROWS && at < (int)bytes;
      assert_int_equal(to[i], copied ? from[FIRST_FROM + row * PITCH_FROM + at] : 99);
    }
  }
  tigon_free(context, memory);
  tigon_context_destroy(context);
}

static void test_rows(void **state) {
  (void)state;
  const size_t bytes[] = {2, 30, 32, 90, 100};
  for (int i = 0; i < 5; ++i)
    for (int shared = 0; shared < 2; ++shared) {
      copy_rows("opencl-items", bytes[i], shared);
      copy_rows("opencl-groups", bytes[i], shared);
    }
}

int main(void) {
  tigon_context *context;
  if (tigon_context_create(&(tigon_context_desc){.device = "opencl"}, &context) != TIGON_OK) {
    printf("skipped: %s\n", tigon_last_error(NULL));
    return 77;
  }
  tigon_context_destroy(context);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
