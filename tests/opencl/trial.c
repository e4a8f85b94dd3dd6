/* The self-check finds legal calls of every entry by its description: narrow ones, and of nearly all wide ones. */
#include "../api/api.h"

#include "opencl/trial.h"

enum { TRIES = 20000, CASES = 3 };

static trial t;

/* How many narrow and wide calls, as the self-check makes them, the oracle takes. */
static void count(tigon_context *oracle, int entry, tigon_dtype dtype, int calls[2]) {
  static _Alignas(64) char workspace[1 << 20];
  calls[0] = calls[1] = 0;
  for (uint32_t seed = 0; seed < TRIES && calls[0] + calls[1] < 2 * CASES; ++seed) {
    size_t bytes = 0;
    if (!trial_make(&t, entry, dtype, seed) || calls[t.is_wide] == CASES) continue;
    if (tigon_schema_workspace(entry, oracle, t.args, &bytes, NULL) != TIGON_OK) continue;
    assert_true(bytes <= sizeof workspace);
    trial_set_workspace(&t, workspace, bytes);
    calls[t.is_wide] += tigon_schema_call(entry, oracle, t.args) == TIGON_OK;
  }
}

static void test_calls(void **state) {
  (void)state;
  tigon_context *oracle;
  int narrow = 0;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "ref"}, &oracle), TIGON_OK);
  for (int entry = 0; tigon_entry_at(entry); ++entry)
    for (int dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype) {
      if (tigon_entry_at(entry)->composite) continue; /* its slots are checked */
      if (!(tigon_entry_dtypes(oracle->kernels, entry) & TIGON_BIT(dtype))) continue;
      int calls[2];
      count(oracle, entry, (tigon_dtype)dtype, calls);
      print_message("%s %s: %d narrow and %d wide calls\n", tigon_schema_at(entry)->name,
                    tigon_dtype_name((tigon_dtype)dtype), calls[0], calls[1]);
      assert_int_equal(calls[0], CASES);
      narrow += calls[1] == 0;
    }
  tigon_context_destroy(oracle);
  assert_in_range(narrow, 0, 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
