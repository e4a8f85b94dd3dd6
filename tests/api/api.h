/* What the tests of entry points share: a context, numbers, exact sentences. */
#ifndef TIGON_TEST_API_H
#define TIGON_TEST_API_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

/* cmocka setup and teardown: *state is a context on the CPU. */
static inline int api_setup(void **state) { return tigon_context_create(NULL, (tigon_context **)state) != TIGON_OK; }
static inline int api_teardown(void **state) {
  tigon_context_destroy(*state);
  return 0;
}

/* The call failed with this status and exactly this sentence. */
__attribute__((format(printf, 4, 5))) static inline void api_expect(tigon_context *context, tigon_status got,
                                                                    tigon_status status, const char *format, ...) {
  char sentence[512];
  va_list list;
  va_start(list, format);
  vsnprintf(sentence, sizeof sentence, format, list);
  va_end(list);
  if (got != status || strcmp(tigon_last_error(context), sentence) != 0)
    fail_msg("got %s \"%s\"\nmust %s \"%s\"", tigon_status_name(got), tigon_last_error(context),
             tigon_status_name(status), sentence);
}

/* Small numbers that differ. */
static inline void api_fill(float *data, int count, float scale) {
  for (int i = 0; i < count; ++i) data[i] = scale * (float)(i % 13 - 6) + 0.25f;
}

#endif
