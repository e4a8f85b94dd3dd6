/* Every operator's Ascend kernels with the pipes in other orders: the same bits in all of them. Some of the check's small cases
 * of each entry, in two dtypes, with the planner's own case and split over cores.
 * ctest: slow */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ascend/aicore.h"
#include "ascend/plan/plans.h"
#include "check/internal.h"
#include "core/context.h"

static const char *const orders[] = {"eager", "v", "mte2", "mte3", "random:1", "random:2"};
enum { ORDERS = sizeof orders / sizeof *orders, EVERY = 5, MOST = 4096 /* elements */ };

static tigon_context *contexts[ORDERS];

static int64_t size_of(const check_case *c) {
  int64_t size = 1;
  for (int d = 0; d < CHECK_DIMS; ++d) size *= c->dims[d] > 0 ? c->dims[d] : 1;
  return size;
}

static void same_bits(const check_case *c, tigon_plan_case force) {
  check first, again;
  char label[128];
  check_case_label(c, label);
  for (int o = 0; o < ORDERS; ++o) {
    check *k = o == 0 ? &first : &again;
    contexts[o]->queue.backend->plans(&contexts[o]->queue)->force = force;
    check_run(k, c, contexts[o], 1, 0, NULL, NULL);
    if (o > 0 && !k->failure[0]) check_same_bits(k, &first, orders[o]);
    if (k->failure[0])
      fail_msg("%s %s %s, order %s: %s", tigon_entry_at(c->entry)->op, tigon_dtype_name(c->dtype), label, orders[o],
               k->failure);
    if (o > 0) check_release(&again);
  }
  check_release(&first);
}

static void every_operator_has_the_same_bits_in_every_order(void **state) {
  int entries = 0, cases = 0;
  (void)state;
  for (int entry = 0; tigon_entry_at(entry); ++entry) {
    for (int half = 0; half < 2; ++half) {
      const tigon_dtype dtype = half ? TIGON_BF16 : TIGON_F32;
      check_case c;
      if (!(tigon_entry_dtypes(contexts[0]->kernels, entry) & TIGON_BIT(dtype))) continue;
      entries += 1;
      for (int index = half; check_case_at(entry, dtype, V_LANES, index, &c); index += EVERY) {
        if (size_of(&c) > MOST) continue;
        same_bits(&c, TIGON_CASE_AUTO);
        if (index % (2 * EVERY) == half) same_bits(&c, TIGON_CASE_F);
        cases += 1;
      }
    }
  }
  assert_true(entries >= 2 * 24);
  assert_true(cases > 4 * entries);
}

static int open_contexts(void **state) {
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  (void)state;
  for (int o = 0; o < ORDERS; ++o) {
    setenv("TIGON_ASCEND_SIM_ORDER", orders[o], 1);
    if (tigon_context_create(&desc, &contexts[o]) != TIGON_OK) return -1;
  }
  return unsetenv("TIGON_ASCEND_SIM_ORDER");
}

static int close_contexts(void **state) {
  (void)state;
  for (int o = 0; o < ORDERS; ++o) tigon_context_destroy(contexts[o]);
  return 0;
}

static void an_order_that_is_none_is_refused(void **state) {
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  tigon_context *context = NULL;
  (void)state;
  setenv("TIGON_ASCEND_SIM_ORDER", "all", 1);
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_ERROR_INVALID);
  assert_string_equal(
      tigon_last_error(NULL),
      "context: device ascend-sim:910B4 did not open: TIGON_ASCEND_SIM_ORDER is \"all\", must be eager, v, mte2, "
      "mte3, random or random:SEED");
  unsetenv("TIGON_ASCEND_SIM_ORDER");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_operator_has_the_same_bits_in_every_order),
      cmocka_unit_test(an_order_that_is_none_is_refused),
  };
  return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
