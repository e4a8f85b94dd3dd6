/* Text in pieces, as it is shown: up to a stop text, and whole characters only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "stream.h"

/* What was shown, with | between pieces. */
static char shown[200];

static void show(void *user, const uint8_t *bytes, size_t count) {
  (void)user;
  snprintf(shown + strlen(shown), sizeof shown - strlen(shown), "%.*s|", (int)count, (const char *)bytes);
}

static void expect(const char *const *pieces, const char *const *stops, int stop_count, const char *wanted,
                   bool stopped) {
  train_stream stream = {.stops = stops, .stop_count = stop_count, .show = show};
  train_error error;
  shown[0] = 0;
  for (; *pieces; ++pieces) assert_true(train_stream_add(&stream, (const uint8_t *)*pieces, strlen(*pieces), &error));
  train_stream_end(&stream);
  assert_string_equal(shown, wanted);
  assert_int_equal(stream.stopped, stopped);
}

static void pieces(void **state) {
  (void)state;
  const char *const stops[] = {"end", "\n\n"};
  expect((const char *[]){"one", " two", NULL}, NULL, 0, "one| two|", false);
  expect((const char *[]){"a e", "n", "d b", NULL}, stops, 2, "a |", true);
  expect((const char *[]){"a e", "n", "e", "nd", NULL}, stops, 2, "a |en|", true);
  expect((const char *[]){"e", "e", "e", NULL}, stops, 2, "e|e|e|", false);
  expect((const char *[]){"x\n", "y\n", "\nz", NULL}, stops, 2, "x|\ny|", true);
  expect((const char *[]){"bend\n\n", "more", NULL}, stops, 2, "b|", true);
  expect((const char *[]){"\xf0\x9f", "\x98", "\x80!", NULL}, NULL, 0, "\xf0\x9f\x98\x80!|", false);
  expect((const char *[]){"a\xc3", "b", "\xe2\x82", NULL}, NULL, 0,
         "a|\xc3"
         "b|\xe2\x82|",
         false);
  expect((const char *[]){"\x80\x80\x80\x80", "\xff", NULL}, NULL, 0, "\x80\x80\x80\x80|\xff|", false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
