/* The loss curve for any number of steps, on a terminal and as SVG. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "curve.h"
#include "plot/plot.h"

static train_history history_of(int64_t steps, int64_t eval_every) {
  train_history h = {0};
  train_error error;
  for (int64_t s = 1; s <= steps; ++s) {
    assert_true(train_history_add(&h, (float)(1.3 + 4.2 * exp(-(double)s / 40)), 0.5f, &error));
    if (s % eval_every == 0) assert_true(train_history_add_eval(&h, s, 1.5f, &error));
  }
  return h;
}

static void terminal(void **state) {
  (void)state;
  static const int64_t steps[] = {0, 1, 2, 3, 100, 5000};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
    for (int width = 1; width < 300; width += 37) {
      train_history h = history_of(steps[i], 50);
      char *text = NULL;
      size_t bytes = 0;
      FILE *file = open_memstream(&text, &bytes);
      const train_curve_style style = {"", "", "", "", width, false};
      train_curve_print(file, &h, &style);
      fclose(file);
      size_t longest = 0, lines = 0;
      for (const char *line = text; *line; line += strcspn(line, "\n") + 1, ++lines)
        if (lines < 15 && strcspn(line, "\n") > longest) longest = strcspn(line, "\n");
      if (steps[i] >= 2 && width >= 17) {
        assert_int_equal(lines, 16);
        assert_true(longest <= (size_t)width);
      } else {
        assert_int_equal(lines, 0);
      }
      free(text);
      train_history_free(&h);
    }
  }
}

/* A document with both curves, escaped words, and no number that is not one. */
static void svg(void **state) {
  (void)state;
  static const int64_t steps[] = {1, 2, 7, 100, 5000};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
    train_history h = history_of(steps[i], steps[i] / 4 + 1);
    char *document = train_curve_svg(&h, "a < b & c");
    assert_non_null(document);
    assert_memory_equal(document, "<svg xmlns=", 11);
    assert_non_null(strstr(document, "a &lt; b &amp; c"));
    assert_non_null(strstr(document, "class=\"train\" points="));
    assert_null(strstr(document, "nan"));
    assert_null(strstr(document, "inf"));
    assert_string_equal(document + strlen(document) - 7, "</svg>\n");
    free(document);
    train_history_free(&h);
  }
  const train_history none = {0};
  assert_null(train_curve_svg(&none, ""));
}

static void ticks(void **state) {
  (void)state;
  assert_true(fabs(plot_tick(10, 5) - 2) < 1e-12);
  assert_true(fabs(plot_tick(0.07, 5) - 0.02) < 1e-12);
  assert_true(fabs(plot_tick(800, 8) - 100) < 1e-9);
  assert_true(fabs(plot_tick(4.4, 5) - 1) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(terminal), cmocka_unit_test(svg), cmocka_unit_test(ticks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
