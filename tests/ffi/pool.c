/* The pool behind large CPU outputs: what is taken is nobody else's, what is given back is used again and trimmed, under
 * threads and fork. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../api/api.h"
#include "ffi/pool.h"

#define MIB ((size_t)1 << 20)
#define LIMIT (256 * MIB)
enum { THREADS = 4, HELD = 6, ROUNDS = 400 };

/* How many pages of a block are in memory. */
static size_t resident(const tigon_pool_block *block) {
  static unsigned char pages[LIMIT / 4096];
  assert_int_equal(mincore(block->data, block->bytes, pages), 0);
  size_t count = 0;
  for (size_t i = 0; i < block->bytes / 4096; ++i) count += pages[i] & 1;
  return count;
}

static tigon_pool_block *take_filled(size_t bytes, int value) {
  tigon_pool_block *block = tigon_pool_take(bytes);
  assert_non_null(block);
  assert_true(block->bytes >= bytes);
  memset(block->data, value, bytes);
  return block;
}

/* Before each test: nothing is taken, nothing idle, and no trimming by time. */
static int fresh(void **state) {
  (void)state;
  tigon_pool_set(LIMIT, 3600);
  tigon_pool_trim();
  const tigon_pool_stats stats = tigon_pool_read();
  assert_int_equal(stats.in_use, 0);
  assert_int_equal(stats.idle, 0);
  return 0;
}

static void test_reuse(void **state) {
  (void)state;
  tigon_pool_block *a = take_filled(3 * MIB, 1), *b = take_filled(5 * MIB, 2);
  char *first = a->data;
  const tigon_pool_stats before = tigon_pool_read();
  assert_int_equal(before.limit, LIMIT);
  assert_int_equal(before.in_use, 8 * MIB);
  tigon_pool_give(a);
  assert_int_equal(tigon_pool_read().idle, 3 * MIB);
  a = tigon_pool_take(2 * MIB);
  assert_ptr_equal(a->data, first);
  assert_int_equal(tigon_pool_read().warm, before.warm + 1);
  tigon_pool_block *c = take_filled(2 * MIB, 3); /* the MiB that is left is too small */
  assert_true(c->data >= b->data + b->bytes);
  assert_int_equal(tigon_pool_read().cold, before.cold + 1);
  for (size_t i = 0; i < 5 * MIB; ++i) assert_int_equal(b->data[i], 2);
  tigon_pool_give(a), tigon_pool_give(b), tigon_pool_give(c);
  a = tigon_pool_take(10 * MIB); /* all of them are one block again */
  assert_ptr_equal(a->data, first);
  assert_int_equal(tigon_pool_read().warm, before.warm + 2);
  tigon_pool_give(a);
}

static void test_limit(void **state) {
  (void)state;
  const tigon_pool_stats before = tigon_pool_read();
  assert_null(tigon_pool_take(0));
  assert_null(tigon_pool_take(LIMIT + 1));
  tigon_pool_block *all = tigon_pool_take(LIMIT);
  assert_non_null(all);
  assert_null(tigon_pool_take(1));
  assert_int_equal(tigon_pool_read().refused, before.refused + 1);
  assert_int_equal(tigon_pool_read().in_use, LIMIT);
  tigon_pool_give(all);
  tigon_pool_give(take_filled(1, 1));
}

static void test_trim(void **state) {
  (void)state;
  tigon_pool_block *a = take_filled(8 * MIB, 1), *b = take_filled(8 * MIB, 2);
  tigon_pool_give(a);
  const tigon_pool_stats before = tigon_pool_read();
  tigon_pool_trim();
  assert_int_equal(tigon_pool_read().idle, 0);
  assert_int_equal(tigon_pool_read().trimmed, before.trimmed + 8 * MIB);
  assert_int_equal(b->data[8 * MIB - 1], 2);
  a = tigon_pool_take(8 * MIB);
  assert_int_equal(tigon_pool_read().cold, before.cold + 1);
  assert_int_equal(resident(a), 0);
  assert_int_equal(resident(b), 2048);
  tigon_pool_give(a), tigon_pool_give(b);
}

static void wait_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static void test_idle(void **state) {
  (void)state;
  tigon_pool_block *kept = take_filled(4 * MIB, 1), *large = take_filled(32 * MIB, 2);
  tigon_pool_give(large);
  assert_int_equal(tigon_pool_read().idle, 32 * MIB);
  tigon_pool_set(LIMIT, 0.05);
  wait_ms(150); /* more than two spans without a call */
  tigon_pool_give(take_filled(MIB, 3));
  assert_true(tigon_pool_read().idle <= (int64_t)(3 * MIB)); /* a MiB, and what its huge page holds besides */
  assert_int_equal(kept->data[4 * MIB - 1], 1);
  tigon_pool_give(kept);
}

/* Takes two blocks and gives them back, the second one later. Returns how many of their pages were there. */
static size_t busy(void) {
  tigon_pool_block *a = tigon_pool_take(8 * MIB), *b = tigon_pool_take(8 * MIB);
  assert_true(a && b);
  const size_t pages = resident(a) + resident(b);
  memset(a->data, 1, a->bytes), memset(b->data, 2, b->bytes);
  tigon_pool_give(a);
  wait_ms(30);
  tigon_pool_give(b);
  return pages;
}

/* What the calls of each span need stays. */
static void test_busy(void **state) {
  (void)state;
  tigon_pool_set(LIMIT, 0.05);
  for (int i = 0; i < 4; ++i) busy();
  size_t pages = 0;
  for (int i = 0; i < 20; ++i) pages += busy();
  assert_true(pages >= (20 - 3) * 4096); /* a busy machine may stretch a wait to two spans */
}

static void *churn(void *seed) {
  unsigned random = (unsigned)(uintptr_t)seed;
  tigon_pool_block *held[HELD] = {0};
  size_t bytes[HELD];
  unsigned char marks[HELD];
  for (int i = 0; i < ROUNDS; ++i) {
    const unsigned at = (random = random * 1664525 + 1013904223) >> 16, slot = at % HELD;
    if (held[slot]) {
      const unsigned char *data = (const unsigned char *)held[slot]->data;
      if (data[0] != marks[slot] || data[bytes[slot] - 1] != marks[slot]) return held[slot];
      tigon_pool_give(held[slot]), held[slot] = NULL;
    } else if ((held[slot] = tigon_pool_take(bytes[slot] = 1 + at % 64 * 65536))) {
      marks[slot] = (unsigned char)(at >> 3);
      held[slot]->data[0] = held[slot]->data[bytes[slot] - 1] = (char)marks[slot];
    }
  }
  for (int i = 0; i < HELD; ++i)
    if (held[i]) tigon_pool_give(held[i]);
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  tigon_pool_set(LIMIT, 0.002);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)i), 0);
  for (int i = 0; i < THREADS; ++i) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    assert_null(wrong);
  }
  assert_int_equal(tigon_pool_read().in_use, 0);
  tigon_pool_block *all = tigon_pool_take(LIMIT); /* nothing is lost to pieces */
  assert_non_null(all);
  tigon_pool_give(all);
}

static int running, stop;

static void *churn_on(void *seed) {
  void *wrong = NULL;
  while (!wrong && !__atomic_load_n(&stop, __ATOMIC_RELAXED)) wrong = churn(seed);
  __atomic_fetch_sub(&running, 1, __ATOMIC_RELEASE);
  return wrong;
}

/* Others hold the lock, or are about to, at a fork. They are detached, because the child never joins them. */
static void test_fork(void **state) {
  (void)state;
  tigon_pool_block *kept = take_filled(4 * MIB, 7), *idle = take_filled(8 * MIB, 8);
  tigon_pool_give(idle);
  __atomic_store_n(&running, 2, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; ++i) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, churn_on, (void *)(uintptr_t)i), 0);
    pthread_detach(thread);
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      alarm(20);
      const int bad = tigon_pool_read().idle != 0 || kept->data[4 * MIB - 1] != 7;
      tigon_pool_block *block = tigon_pool_take(16 * MIB);
      if (block) memset(block->data, 9, block->bytes);
      if (block) tigon_pool_give(block);
      tigon_pool_give(kept);
      _exit(bad || !block);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) wait_ms(1);
  for (size_t i = 0; i < 4 * MIB; ++i) assert_int_equal(kept->data[i], 7);
  tigon_pool_give(kept);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_reuse, fresh), cmocka_unit_test_setup(test_limit, fresh),
      cmocka_unit_test_setup(test_trim, fresh),  cmocka_unit_test_setup(test_idle, fresh),
      cmocka_unit_test_setup(test_busy, fresh),  cmocka_unit_test_setup(test_threads, fresh),
      cmocka_unit_test_setup(test_fork, fresh)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
