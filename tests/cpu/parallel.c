/* Threads start for work that is worth them, and every task runs once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "cpu/cpu.h"

enum { TASKS = 2 };

typedef struct meeting {
  atomic_int inside, most, runs[TASKS];
  int patience; /* milliseconds */
} meeting;

/* Stays until the other task is there too, or patience ends. */
static void meet(const void *argument, int64_t index) {
  meeting *m = *(meeting *const *)argument;
  atomic_fetch_add(&m->runs[index], 1);
  atomic_fetch_add(&m->inside, 1);
  for (int waited = 0; waited < m->patience; ++waited) {
    const int inside = atomic_load(&m->inside);
    if (inside > atomic_load(&m->most)) atomic_store(&m->most, inside);
    if (atomic_load(&m->most) == TASKS) break;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  atomic_fetch_sub(&m->inside, 1);
}

static int threads_for(int64_t bytes, int patience) {
  const tigon_queue queue = {.threads = TASKS};
  meeting m = {.patience = patience}, *argument = &m;
  tigon_cpu_parallel_bytes(&queue, TASKS, bytes, meet, &argument);
  for (int i = 0; i < TASKS; ++i) assert_int_equal(m.runs[i], 1);
  return m.most;
}

static void small_work_has_one_thread(void **state) {
  (void)state;
  assert_int_equal(threads_for(0, 100), 1);
  assert_int_equal(threads_for(2 * TIGON_CPU_THREAD_BYTES - 1, 100), 1);
}

static void more_work_has_more(void **state) {
  (void)state;
  assert_int_equal(threads_for(2 * TIGON_CPU_THREAD_BYTES, 10000), 2);
  assert_int_equal(threads_for(INT64_MAX, 10000), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_work_has_one_thread),
      cmocka_unit_test(more_work_has_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
