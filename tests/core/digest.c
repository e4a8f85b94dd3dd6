/* A digest of results changes with every bit of an output, and with nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "core/context.h"

enum { ROWS = 3, COLS = 5, PITCH = 8, WORDS = ROWS * PITCH, CASES = 40 };

/* [ROWS, COLS] in rows of PITCH words. */
static uint64_t digest(uint32_t words[WORDS], tigon_dtype dtype) {
  const tigon_tensor t = {.data = words, .dtype = dtype, .ndim = 2, .shape = {ROWS, COLS}, .strides = {PITCH, 1}};
  return check_digest_tensor(0, &t);
}

static void fill(uint32_t words[WORDS]) {
  for (uint32_t i = 0; i < WORDS; ++i) words[i] = 0x3f800000u + 4321 * i;
}

static void every_bit_of_an_element_counts(void **state) {
  (void)state;
  uint32_t words[WORDS];
  fill(words);
  const uint64_t before = digest(words, TIGON_F32);
  for (int i = 0; i < WORDS; ++i)
    for (int bit = 0; bit < 32; ++bit) {
      words[i] ^= 1u << bit;
      if (i % PITCH < COLS)
        assert_int_not_equal(digest(words, TIGON_F32), before);
      else
        assert_int_equal(digest(words, TIGON_F32), before); /* a gap of the strides */
      words[i] ^= 1u << bit;
    }
  assert_int_equal(digest(words, TIGON_F32), before);
}

static void the_place_of_an_element_counts(void **state) {
  (void)state;
  uint32_t words[WORDS];
  fill(words);
  const uint64_t before = digest(words, TIGON_F32);
  const uint32_t first = words[0];
  words[0] = words[PITCH], words[PITCH] = first;
  assert_int_not_equal(digest(words, TIGON_F32), before);
}

static void which_nan_it_is_does_not_count(void **state) {
  (void)state;
  uint32_t words[WORDS];
  fill(words);
  words[1] = 0x7fc00000u;
  const uint64_t before = digest(words, TIGON_F32), as_integers = digest(words, TIGON_I32);
  words[1] = 0xffc00001u;
  assert_int_equal(digest(words, TIGON_F32), before);
  assert_int_not_equal(digest(words, TIGON_I32), as_integers);
  words[1] = 0x7f800000u; /* Inf */
  assert_int_not_equal(digest(words, TIGON_F32), before);
}

/* ---- of kernels ---- */

static uint64_t digest_entry(int entry, int threads, uint64_t seed, const check_mutant *mutant) {
  const tigon_context_desc desc = {.device = "cpu", .threads = threads};
  tigon_context *context;
  uint64_t sum = 0;
  char failure[512];
  check_case c;
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  tigon_kernels kernels = *context->kernels;
  if (mutant) mutant->apply(&kernels);
  context->kernels = &kernels;
  for (int i = 0; i < CASES && check_case_at(entry, TIGON_BF16, kernels.tile, i, &c); ++i)
    if (!check_digest_case(&c, context, seed, &sum, failure)) fail_msg("%s", failure);
  tigon_context_destroy(context);
  return sum;
}

static void another_kernel_has_another_digest(void **state) {
  (void)state;
  int entry = 0;
  while (!check_mutant_at(entry, 0)) ++entry;
  const check_mutant *mutant = check_mutant_at(entry, 0);
  const uint64_t sum = digest_entry(entry, 1, 1, NULL);
  assert_int_equal(digest_entry(entry, 1, 1, NULL), sum);
  assert_int_equal(digest_entry(entry, 3, 1, NULL), sum);
  assert_int_not_equal(digest_entry(entry, 1, 1, mutant), sum);
  assert_int_not_equal(digest_entry(entry, 1, 2, NULL), sum);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_bit_of_an_element_counts),
      cmocka_unit_test(the_place_of_an_element_counts),
      cmocka_unit_test(which_nan_it_is_does_not_count),
      cmocka_unit_test(another_kernel_has_another_digest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
