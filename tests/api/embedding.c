/* embedding: the sort of indices. */
#include "api.h"

enum { VOCAB = 5000000, TOKENS = 3000 };

/* A vocabulary of three digits of the sort, i32 and i64 indices, many tokens on few rows: the sum of integers is exact. */
static void test_large_vocabulary(void **state) {
  tigon_context *c = *state;
  static float dtable[VOCAB], sums[VOCAB], dy[TOKENS];
  static int32_t idx[TOKENS];
  static int64_t wide[TOKENS];
  uint32_t seed = 1;
  for (int n = 0; n < TOKENS; ++n) {
    seed = seed * 1664525u + 1013904223u;
    wide[n] = idx[n] = n % 3 == 0 ? VOCAB - 1 : (int32_t)((uint64_t)seed * VOCAB >> 32);
    dy[n] = (float)(n % 17);
    sums[idx[n]] += dy[n];
  }
  const tigon_tensor indices[] = {tigon_tensor_1d(idx, TIGON_I32, TOKENS), tigon_tensor_1d(wide, TIGON_I64, TOKENS)};
  for (int k = 0; k < 2; ++k) {
    tigon_embedding_bwd_args a = {.dy = tigon_tensor_2d(dy, TIGON_F32, TOKENS, 1),
                                  .idx = indices[k],
                                  .dtable = tigon_tensor_2d(dtable, TIGON_F32, VOCAB, 1)};
    assert_int_equal(tigon_embedding_bwd_workspace(c, &a, &a.workspace_bytes), TIGON_OK);
    assert_int_equal(tigon_alloc(c, a.workspace_bytes, &a.workspace), TIGON_OK);
    memset(dtable, 0x5a, sizeof dtable);
    assert_int_equal(tigon_embedding_bwd(c, &a), TIGON_OK);
    assert_memory_equal(dtable, sums, sizeof sums);
    tigon_free(c, a.workspace);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_vocabulary)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
