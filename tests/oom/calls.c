/* No call of `tigon check` on the CPU allocates: shapes, dtypes and options of every operator, on two threads. */
#include <stdio.h>
#include <stdlib.h>

#include "check/check.h"
#include "core/context.h"
#include "shim.h"

enum { CASES = 60, STEP = 3 }; /* every third case of an entry and dtype, up to so many */

static long calls, allocations;

tigon_status __real_check_entry_call(int entry, tigon_context *context, const void *args);
tigon_status __wrap_check_entry_call(int entry, tigon_context *context, const void *args);

tigon_status __wrap_check_entry_call(int entry, tigon_context *context, const void *args) {
  oom_begin(0, false);
  const tigon_status status = __real_check_entry_call(entry, context, args);
  const long made = oom_end();
  ++calls;
  allocations += made;
  if (made) printf("%s allocates %ld times\n", tigon_schema_at(entry)->name, made);
  return status;
}

int main(void) {
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  const tigon_context_desc desc = {.device = "cpu", .threads = 2};
  tigon_context *context;
  char failure[512] = "";
  check_case c;
  uint64_t sum = 0;
  long failed = 0;
  oom_begin(0, false);
  void *volatile block = malloc(1);
  free(block);
  if (oom_end() != 1) return puts("an allocation is not counted"), 1;
  if (tigon_context_create(&desc, &context) != TIGON_OK) return puts(tigon_last_error(NULL)), 1;
  for (int entry = 0; tigon_entry_at(entry); ++entry) {
    const long before = calls;
    for (int d = 0; d < 2; ++d)
      for (int i = 0; i < CASES && check_case_at(entry, dtypes[d], context->kernels->tile, i * STEP, &c); ++i)
        if (!check_digest_case(&c, context, 1, &sum, failure)) ++failed, puts(failure);
    if (calls == before) ++failed, printf("%s was not called\n", tigon_schema_at(entry)->name);
  }
  tigon_context_destroy(context);
  printf("{\"calls\": %ld, \"allocations\": %ld, \"failed\": %ld}\n", calls, allocations, failed);
  return failed > 0 || allocations > 0;
}
