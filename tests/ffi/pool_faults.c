/* The pool where the system gives no addresses, pages or memory. Each case has a process of its own, which opens the pool anew. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../api/api.h"
#include "faults.h"
#include "ffi/pool.h"

#define MIB ((size_t)1 << 20)
#define LIMIT (256 * MIB)

static void check(bool right, int line) {
  if (right) return;
  fprintf(stderr, "%s:%d is wrong\n", __FILE__, line);
  exit(1);
}
#define CHECK(right) check(right, __LINE__)

static tigon_pool_block *take(const char *function, long nth, size_t bytes) {
  faults_begin(function, nth, -1, ENOMEM);
  tigon_pool_block *block = tigon_pool_take(bytes);
  faults_end();
  return block;
}

/* Without any the pool is empty for good. */
static void no_struct(void) {
  CHECK(!take("memory", 1, MIB));
  CHECK(tigon_pool_read().limit == 0 && !tigon_pool_take(1));
}
static void no_addresses(void) {
  CHECK(!take("mmap", -1, MIB));
  CHECK(tigon_pool_read().limit == 0 && !tigon_pool_take(1));
}
static void no_limit(void) {
  tigon_pool_set(0, 3600);
  CHECK(!tigon_pool_take(1) && tigon_pool_read().limit == 0);
}

/* Half as many addresses as were wanted. */
static void fewer_addresses(void) {
  tigon_pool_block *block = take("mmap", 1, MIB);
  CHECK(block && tigon_pool_read().limit == LIMIT / 2);
  tigon_pool_give(block);
}

/* A block that cannot be had is refused once, and is had afterwards. */
static void no_pages(void) {
  CHECK(!take("mprotect", 1, MIB) && tigon_pool_read().refused == 1);
  tigon_pool_block *block = tigon_pool_take(MIB);
  CHECK(block != NULL);
  block->data[MIB - 1] = 1;
  CHECK(!take("memory", 1, MIB) && tigon_pool_read().refused == 2); /* no struct for the rest */
  tigon_pool_give(block);
  block = take("memory", 1, LIMIT); /* needs none */
  CHECK(block != NULL);
  tigon_pool_give(block);
}

/* A clock that jumps: marks that take long are left out for a while, and a span without calls counts as idle. */
static void slow_marks(void) {
  tigon_pool_block *block = tigon_pool_take(8 * MIB);
  CHECK(block != NULL);
  memset(block->data, 1, block->bytes);
  faults_begin("clock_gettime", 2, 1, 0); /* the second look at the time is a second later */
  tigon_pool_give(block);
  faults_end();
  for (int i = 0; i < 70; ++i) {
    block = tigon_pool_take(8 * MIB);
    CHECK(block && block->data[0] == 1);
    tigon_pool_give(block);
  }
  CHECK(tigon_pool_read().idle == (int64_t)(8 * MIB));
  faults_begin("clock_gettime", -1, 5400, 0); /* one and a half spans */
  block = tigon_pool_take(MIB);
  CHECK(block != NULL);
  tigon_pool_give(block);
  faults_begin("clock_gettime", -1, 36000, 0);
  block = tigon_pool_take(MIB);
  CHECK(block != NULL);
  tigon_pool_give(block);
  faults_end();
  CHECK(tigon_pool_read().idle <= (int64_t)(2 * MIB));
}

/* A child lets go of idle pages, and keeps what is taken. */
static void forked(void) {
  tigon_pool_block *kept = tigon_pool_take(4 * MIB), *idle = tigon_pool_take(4 * MIB), *last = tigon_pool_take(4 * MIB);
  CHECK(kept && idle && last);
  memset(kept->data, 7, kept->bytes), memset(idle->data, 8, idle->bytes);
  tigon_pool_give(idle);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(tigon_pool_read().idle == 0 && kept->data[4 * MIB - 1] == 7);
    exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0 && tigon_pool_read().idle == (int64_t)(4 * MIB) && idle->data[0] == 8);
  tigon_pool_give(kept), tigon_pool_give(last);
}

static void in_a_process(void **state) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    tigon_pool_set(LIMIT, 3600);
    (*(void (**)(void)) * state)();
    exit(0);
  }
  int status = 1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void (*cases[])(void) = {no_struct, no_addresses, no_limit, fewer_addresses, no_pages, slow_marks, forked};
#define CASE(i, of) \
  { .name = of, .test_func = in_a_process, .initial_state = &cases[i] }

int main(void) {
  const struct CMUnitTest tests[] = {CASE(0, "no struct"),       CASE(1, "no addresses"), CASE(2, "no limit"),
                                     CASE(3, "fewer addresses"), CASE(4, "no pages"),     CASE(5, "slow marks"),
                                     CASE(6, "forked")};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
