/* embedding: wrong arguments are refused with one sentence and nothing is written; indices out of range; the sort. */
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

static void test_fwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_embedding_fwd_args a;
#define REFUSE(change, status, sentence)                                                       \
  a = fwd_args(d);                                                                             \
  change;                                                                                      \
  before = *d;                                                                                 \
  api_expect(c, tigon_embedding_fwd(c, &a), TIGON_ERROR_##status, "embedding_fwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.table, 0, sizeof a.table), INVALID, "table is absent");
  REFUSE(memset(&a.idx, 0, sizeof a.idx), INVALID, "idx is absent");
  REFUSE(memset(&a.y, 0, sizeof a.y), INVALID, "y is absent");
  REFUSE(a.table.dtype = TIGON_I32, INVALID, "table.dtype is i32, must be f32, f16, bf16");
  REFUSE(a.idx.dtype = TIGON_F32, INVALID, "idx.dtype is f32, must be i32, i64");
  REFUSE(a.y.dtype = TIGON_BF16, INVALID, "y.dtype is bf16, must be f32 (table.dtype)");
  REFUSE((a.table.ndim = 1, a.table.strides[0] = 1), INVALID, "table.ndim is 1, must be 2");
  REFUSE(a.y = tigon_tensor_2d(d->y, TIGON_F32, N, H), INVALID, "y.ndim is 2, must be 3");
  REFUSE(a.y.shape[1] = 2, INVALID, "y.shape[1] is 2, must be 3 (idx.shape[1])");
  REFUSE(a.y.shape[2] = 4, INVALID, "y.shape[2] is 4, must be 5 (table.shape[1])");
  REFUSE(a.idx.strides[0] = 2, INVALID, "idx.strides[0] is 2, must be 3 (contiguous)");
  REFUSE(a.error = tigon_tensor_1d(d->error, TIGON_I32, 2), INVALID, "error.shape[0] is 2, must be 1 (one flag)");
  REFUSE(a.reserved[0] = 1, INVALID, "reserved[0] is 1, must be 0");
  REFUSE(a.y.data = d->table, ALIAS, "y overlaps table, must be apart");
  REFUSE(d->idx[4] = V, INVALID, "idx[4] is 7, must be 0 to 6 (table.shape[0] - 1)");
  REFUSE(d->idx[4] = -1, INVALID, "idx[4] is -1, must be 0 to 6 (table.shape[0] - 1)");
#undef REFUSE
  api_expect(c, tigon_embedding_fwd(c, NULL), TIGON_ERROR_INVALID, "embedding_fwd: args is NULL");
  api_expect(NULL, tigon_embedding_fwd(NULL, &a), TIGON_ERROR_INVALID, "embedding_fwd: context is NULL");
}

static void test_bwd_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_embedding_bwd_args a;
#define REFUSE(change, status, sentence)                                                       \
  a = bwd_args(d);                                                                             \
  change;                                                                                      \
  before = *d;                                                                                 \
  api_expect(c, tigon_embedding_bwd(c, &a), TIGON_ERROR_##status, "embedding_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.dy, 0, sizeof a.dy), INVALID, "dy is absent");
  REFUSE(a.dtable.dtype = TIGON_BF16, INVALID, "dtable.dtype is bf16, must be f32 (dy.dtype)");
  REFUSE(a.dtable.strides[0] = 6, INVALID, "dtable.strides[0] is 6, must be 5 (contiguous)");
  REFUSE(a.dy.shape[0] = 1, INVALID, "dy.shape[0] is 1, must be 2 (idx.shape[0])");
  REFUSE(a.dy.shape[2] = 4, INVALID, "dy.shape[2] is 4, must be 5 (dtable.shape[1])");
  REFUSE(a.has_padding_idx = 2, INVALID, "has_padding_idx is 2, must be 0 or 1");
  REFUSE(a.accumulate_dtable = -1, INVALID, "accumulate_dtable is -1, must be 0 or 1");
  REFUSE((a.has_padding_idx = 1, a.padding_idx = 7), INVALID, "padding_idx is 7, must be 0 to 6 (dtable.shape[0] - 1)");
  REFUSE((a.has_padding_idx = 1, a.padding_idx = -1), INVALID,
         "padding_idx is -1, must be 0 to 6 (dtable.shape[0] - 1)");
  REFUSE(a.dtable.data = d->dy, ALIAS, "dtable overlaps dy, must be apart");
  REFUSE(a.workspace = d->workspace + 8, WORKSPACE, "workspace is not aligned to 64 bytes");
  REFUSE(d->idx[0] = V, INVALID, "idx[0] is 7, must be 0 to 6 (dtable.shape[0] - 1)");
#undef REFUSE
  d = made();
  a = bwd_args(d);
  size_t bytes;
  assert_int_equal(tigon_embedding_bwd_workspace(c, &a, &bytes), TIGON_OK);
  char sentence[128];
  snprintf(sentence, sizeof sentence, "embedding_bwd: workspace is NULL, must have %zu bytes", bytes);
  a.workspace = NULL;
  api_expect(c, tigon_embedding_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
  snprintf(sentence, sizeof sentence, "embedding_bwd: workspace_bytes is %zu, must be %zu or more", bytes - 1, bytes);
  a.workspace = d->workspace;
  a.workspace_bytes = bytes - 1;
  api_expect(c, tigon_embedding_bwd(c, &a), TIGON_ERROR_WORKSPACE, sentence);
  api_expect(c, tigon_embedding_bwd_workspace(c, &a, NULL), TIGON_ERROR_INVALID,
             "embedding_bwd_workspace: bytes is NULL");
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

/* No tokens: dtable is zeros, or as it was. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_embedding_fwd_args f = fwd_args(d);
  f.idx.shape[0] = f.y.shape[0] = 0;
  assert_int_equal(tigon_embedding_fwd(c, &f), TIGON_OK);
  tigon_embedding_bwd_args b = bwd_args(d);
  b.idx.shape[0] = b.dy.shape[0] = 0;
  size_t bytes = 1;
  assert_int_equal(tigon_embedding_bwd_workspace(c, &b, &bytes), TIGON_OK);
  assert_int_equal(bytes, 0);
  b.workspace = NULL;
  d->dtable[3] = 2;
  b.accumulate_dtable = 1;
  assert_int_equal(tigon_embedding_bwd(c, &b), TIGON_OK);
  assert_true(d->dtable[3] == 2);
  b.accumulate_dtable = 0;
  assert_int_equal(tigon_embedding_bwd(c, &b), TIGON_OK);
  for (int i = 0; i < V * H; ++i) assert_true(d->dtable[i] == 0);
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fwd_refuses), cmocka_unit_test(test_bwd_refuses),      cmocka_unit_test(test_out_of_range),
      cmocka_unit_test(test_empty),       cmocka_unit_test(test_large_vocabulary),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
