/* embedding: padding_idx; indices out of range; the sort. */
#include "api.h"

enum { V = 7, H = 5, N = 6 };

typedef struct data {
  float table[V * H], y[N * H], dy[N * H], dtable[V * H];
  int64_t idx[N];
  int32_t error[4];
  _Alignas(64) char workspace[1 << 15];
} data;

static data *made(void) {
  static const int64_t idx[N] = {3, 0, 3, 6, 3, 0};
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.table, V * H, 0.5f);
  api_fill(d.dy, N * H, 0.25f);
  memcpy(d.idx, idx, sizeof idx);
  d.error[0] = 0;
  return &d;
}

static tigon_embedding_fwd_args fwd_args(data *d) {
  return (tigon_embedding_fwd_args){
      .table = tigon_tensor_2d(d->table, TIGON_F32, V, H),
      .idx = tigon_tensor_2d(d->idx, TIGON_I64, 2, N / 2),
      .y = tigon_tensor_3d(d->y, TIGON_F32, 2, N / 2, H),
  };
}

static tigon_embedding_bwd_args bwd_args(data *d) {
  return (tigon_embedding_bwd_args){
      .dy = tigon_tensor_3d(d->dy, TIGON_F32, 2, N / 2, H),
      .idx = tigon_tensor_2d(d->idx, TIGON_I64, 2, N / 2),
      .dtable = tigon_tensor_2d(d->dtable, TIGON_F32, V, H),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(embedding_bwd, bwd_args, a.has_padding_idx = 1;
              a.padding_idx = 7, INVALID, "padding_idx is 7, must be 0 to 6 (dtable.shape[0] - 1)");
  API_REFUSES(embedding_bwd, bwd_args, a.has_padding_idx = 1;
              a.padding_idx = -1, INVALID, "padding_idx is -1, must be 0 to 6 (dtable.shape[0] - 1)");
}

/* With `error` an index out of range reads zeros, gets no gradient and raises the flag. */
static void test_out_of_range(void **state) {
  tigon_context *c = *state;
  data *d = made();
  d->idx[1] = -1;
  d->idx[5] = INT64_MAX;
  tigon_embedding_fwd_args f = fwd_args(d);
  f.error = tigon_tensor_1d(d->error, TIGON_I32, 1);
  assert_int_equal(tigon_embedding_fwd(c, &f), TIGON_OK);
  assert_int_equal(d->error[0], 1);
  for (int i = 0; i < N * H; ++i) {
    const int64_t v = d->idx[i / H];
    assert_true(d->y[i] == (v >= 0 && v < V ? d->table[v * H + i % H] : 0));
  }
  d->error[0] = 0;
  tigon_embedding_bwd_args b = bwd_args(d);
  b.error = f.error;
  assert_int_equal(tigon_embedding_bwd(c, &b), TIGON_OK);
  assert_int_equal(d->error[0], 1);
  for (int i = 0; i < V * H; ++i) {
    float sum = 0;
    for (int n = 0; n < N; ++n)
      if (d->idx[n] == i / H) sum += d->dy[n * H + i % H];
    assert_true(d->dtable[i] == sum);
  }
  /* A legal call leaves the flag alone. */
  d->idx[1] = d->idx[5] = 0;
  d->error[0] = 7;
  assert_int_equal(tigon_embedding_fwd(c, &f), TIGON_OK);
  assert_int_equal(tigon_embedding_bwd(c, &b), TIGON_OK);
  assert_int_equal(d->error[0], 7);
}

/* A vocabulary of three digits of the sort, i32 and i64 indices, many tokens on few rows: the sum of integers is exact. */
static void test_large_vocabulary(void **state) {
  tigon_context *c = *state;
  enum { VOCAB = 5000000, TOKENS = 3000 };
  float *dtable = malloc(sizeof *dtable * VOCAB), *dy = malloc(sizeof *dy * TOKENS),
        *sums = calloc(VOCAB, sizeof *sums);
  int32_t *idx = malloc(sizeof *idx * TOKENS);
  int64_t *wide = malloc(sizeof *wide * TOKENS);
  size_t bytes;
  uint32_t seed = 1;
  for (int n = 0; n < TOKENS; ++n) {
    seed = seed * 1664525u + 1013904223u;
    idx[n] = n % 3 == 0 ? VOCAB - 1 : (int32_t)((uint64_t)seed * VOCAB >> 32);
    wide[n] = idx[n];
    dy[n] = (float)(n % 17);
    sums[idx[n]] += dy[n];
  }
  for (int k = 0; k < 2; ++k) {
    tigon_embedding_bwd_args a = {.dy = tigon_tensor_2d(dy, TIGON_F32, TOKENS, 1),
                                  .idx = k ? tigon_tensor_1d(wide, TIGON_I64, TOKENS)
                                           : tigon_tensor_1d(idx, TIGON_I32, TOKENS),
                                  .dtable = tigon_tensor_2d(dtable, TIGON_F32, VOCAB, 1)};
    assert_int_equal(tigon_embedding_bwd_workspace(c, &a, &bytes), TIGON_OK);
    assert_int_equal(tigon_alloc(c, bytes, &a.workspace), TIGON_OK);
    a.workspace_bytes = bytes;
    memset(dtable, 0x5a, sizeof *dtable * VOCAB);
    assert_int_equal(tigon_embedding_bwd(c, &a), TIGON_OK);
    assert_memory_equal(dtable, sums, sizeof *dtable * VOCAB);
    tigon_free(c, a.workspace);
  }
  free(dtable), free(dy), free(sums), free(idx), free(wide);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses), cmocka_unit_test(test_out_of_range),
                                     cmocka_unit_test(test_large_vocabulary)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
