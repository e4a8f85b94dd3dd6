/* Attention's parts: tiles have every row of ascending segments once, and of any others no row that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/attention_part.h"

enum { MOST = 400, UNIT = 8 };

static uint32_t next(void) {
  static uint32_t state = 5;
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

static int compare(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Rows of one side, how often a tile has each. */
static void count_rows(const tigon_attention_cuts *c, bool of_keys, int *seen) {
  for (int64_t i = 0; i < tigon_attention_places(c, of_keys, UNIT); ++i) {
    int64_t tile;
    const tigon_attention_part p = tigon_attention_part_at(c, of_keys, UNIT, i, &tile);
    const int64_t first = of_keys ? p.k0 : p.q0, count = of_keys ? p.keys : p.tokens;
    assert_true(tile >= 0 && p.step == c->dilation);
    assert_true(p.tokens >= 0 && p.q0 >= 0 && (p.tokens == 0 || p.q0 + (p.tokens - 1) * p.step < c->tokens));
    assert_true(p.keys >= 0 && p.k0 >= 0 && (p.keys == 0 || p.k0 + (p.keys - 1) * p.step < c->keys));
    for (int64_t r = tile * UNIT; r < (tile + 1) * UNIT && r < count; ++r) ++seen[first + r * p.step];
  }
}

static void expect_each_once(const tigon_attention_cuts *c, bool of_keys) {
  int seen[MOST] = {0};
  count_rows(c, of_keys, seen);
  for (int64_t i = 0; i < (of_keys ? c->keys : c->tokens); ++i) assert_int_equal(seen[i], 1);
}

/* Where a part has both, its last query stands at its last key; rows that no segment has are alone. */
static void expect_ends(const tigon_attention_cuts *c) {
  for (int64_t s = 0; s < tigon_attention_segments(c); ++s)
    for (int64_t r = 0; r < c->dilation; ++r) {
      const tigon_attention_part p = tigon_attention_part_of(c, s, r);
      if (p.tokens == 0 || p.keys == 0) continue;
      const int64_t q1 = p.q0 + (p.tokens - 1) * p.step, k1 = p.k0 + (p.keys - 1) * p.step;
      assert_int_equal(tigon_attention_begin(c, false, s + 1) - q1, tigon_attention_begin(c, true, s + 1) - k1);
      if (!c->cu_q.data) continue;
      assert_true(s >= 2 && s < c->segments + 2);
      assert_int_equal(tigon_attention_begin(c, false, s), tigon_vector_index(c->cu_q, s - 2));
      assert_int_equal(tigon_attention_begin(c, true, s), tigon_vector_index(c->cu_k, s - 2));
    }
}

static void test_rows(void **state) {
  (void)state;
  int64_t q[MOST];
  int32_t k[MOST];
  for (int turn = 0; turn < 3000; ++turn) {
    tigon_attention_cuts c = {
        .tokens = next() % MOST, .keys = next() % MOST, .dilation = 1 + next() % 4 * (next() % 9)};
    if (turn % 3) {
      int64_t sorted[MOST];
      c.segments = next() % (turn % 2 ? 5 : 100);
      for (int64_t i = 0; i <= c.segments; ++i)
        q[i] = next() % (uint32_t)(c.tokens + 1), sorted[i] = next() % (uint32_t)(c.keys + 1);
      qsort(q, (size_t)c.segments + 1, sizeof *q, compare);
      qsort(sorted, (size_t)c.segments + 1, sizeof *sorted, compare);
      for (int64_t i = 0; i <= c.segments; ++i) k[i] = (int32_t)sorted[i];
      c.cu_q = (tigon_vector){q, TIGON_I64}, c.cu_k = (tigon_vector){k, TIGON_I32};
    }
    expect_each_once(&c, false);
    expect_each_once(&c, true);
    expect_ends(&c);
  }
}

static void test_any_memory(void **state) {
  (void)state;
  static const int64_t far[] = {INT64_MIN, INT64_MAX, -1, 1 << 30};
  int64_t q[MOST], k[MOST];
  for (int turn = 0; turn < 3000; ++turn) {
    const tigon_attention_cuts c = {.tokens = next() % MOST,
                                    .keys = next() % MOST,
                                    .cu_q = {q, TIGON_I64},
                                    .cu_k = {k, TIGON_I64},
                                    .segments = next() % 60,
                                    .dilation = 1 + next() % 3};
    for (int64_t i = 0; i <= c.segments; ++i) {
      q[i] = next() % 3 ? (int64_t)(next() % MOST) : far[next() % 4];
      k[i] = next() % 3 ? (int64_t)(next() % MOST) : far[next() % 4];
    }
    int seen[MOST] = {0};
    count_rows(&c, false, seen);
    count_rows(&c, true, seen);
    for (int64_t s = 0; s < tigon_attention_segments(&c); ++s)
      for (int64_t r = 0; r < c.dilation; ++r) {
        const tigon_attention_part p = tigon_attention_part_of(&c, s, r);
        assert_true(p.tokens == 0 || p.q0 + (p.tokens - 1) * p.step < c.tokens);
        assert_true(p.keys == 0 || p.k0 + (p.keys - 1) * p.step < c.keys);
      }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_any_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
