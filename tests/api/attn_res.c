/* attn_res: a list of blocks gives the bits of one tensor, whose blocks it may mix; each wrong address is refused, and nothing is
 * written. */
#include "api.h"

enum { N = 40, T = 5, D = 19, PITCH = 24, BLOCK = T * PITCH };

typedef struct memory {
  float v[N * BLOCK], dv[N * BLOCK], q[D], wn[D], h[T * D], dh[T * D], a[T * N], rstd[T * N], dq[D], dwn[D];
  _Alignas(64) char workspace[1 << 16];
} memory;

static memory one, other, before;

/* Blocks whose rows are PITCH apart. */
static tigon_tensor blocks(float *data) { return (tigon_tensor){data, TIGON_F32, 3, {N, T, D}, {BLOCK, PITCH, 1}}; }

static tigon_attn_res_fwd_args forward(memory *m) {
  return (tigon_attn_res_fwd_args){.v = blocks(m->v),
                                   .q = tigon_tensor_1d(m->q, TIGON_F32, D),
                                   .wn = tigon_tensor_1d(m->wn, TIGON_F32, D),
                                   .h = tigon_tensor_2d(m->h, TIGON_F32, T, D),
                                   .a = tigon_tensor_2d(m->a, TIGON_F32, T, N),
                                   .rstd = tigon_tensor_2d(m->rstd, TIGON_F32, T, N),
                                   .eps = 1e-6,
                                   .workspace = m->workspace,
                                   .workspace_bytes = sizeof m->workspace};
}

static tigon_attn_res_bwd_args backward(memory *m) {
  const tigon_attn_res_fwd_args f = forward(m);
  return (tigon_attn_res_bwd_args){.dh = tigon_tensor_2d(m->dh, TIGON_F32, T, D),
                                   .v = f.v,
                                   .q = f.q,
                                   .wn = f.wn,
                                   .a = f.a,
                                   .rstd = f.rstd,
                                   .dv = blocks(m->dv),
                                   .dq = tigon_tensor_1d(m->dq, TIGON_F32, D),
                                   .dwn = tigon_tensor_1d(m->dwn, TIGON_F32, D),
                                   .workspace = m->workspace,
                                   .workspace_bytes = sizeof m->workspace};
}

static void fill(memory *m) {
  memset(m, 0, sizeof *m);
  api_fill(m->v, N * BLOCK, 0.3f);
  api_fill(m->q, D, 0.1f);
  api_fill(m->wn, D, 0.2f);
  api_fill(m->dh, T * D, 0.5f);
}

/* The blocks of `other` lie in another order than the list says. */
static int64_t place(int64_t i) { return i * 7 % N; }

static void test_lists(void **state) {
  const void *v[N];
  void *dv[N];
  fill(&one);
  fill(&other);
  for (int64_t i = 0; i < N; ++i) {
    memcpy(other.v + place(i) * BLOCK, one.v + i * BLOCK, BLOCK * sizeof *one.v);
    v[i] = other.v + place(i) * BLOCK;
    dv[i] = other.dv + place(i) * BLOCK;
  }
  const tigon_attn_res_fwd_args f = forward(&one);
  const tigon_attn_res_bwd_args b = backward(&one);
  assert_int_equal(tigon_attn_res_fwd(*state, &f), TIGON_OK);
  assert_int_equal(tigon_attn_res_bwd(*state, &b), TIGON_OK);
  tigon_attn_res_fwd_args f_list = forward(&other);
  tigon_attn_res_bwd_args b_list = backward(&other);
  f_list.v_blocks = b_list.v_blocks = v;
  b_list.dv_blocks = dv;
  f_list.v.data = b_list.v.data = b_list.dv.data = NULL;
  f_list.v.strides[0] = b_list.v.strides[0] = b_list.dv.strides[0] = 0;
  assert_int_equal(tigon_attn_res_fwd(*state, &f_list), TIGON_OK);
  assert_int_equal(tigon_attn_res_bwd(*state, &b_list), TIGON_OK);
  assert_memory_equal(one.h, other.h, sizeof one.h);
  assert_memory_equal(one.a, other.a, sizeof one.a);
  assert_memory_equal(one.rstd, other.rstd, sizeof one.rstd);
  assert_memory_equal(one.dq, other.dq, sizeof one.dq);
  assert_memory_equal(one.dwn, other.dwn, sizeof one.dwn);
  for (int64_t i = 0; i < N; ++i)
    assert_memory_equal(one.dv + i * BLOCK, other.dv + place(i) * BLOCK, BLOCK * sizeof *one.dv);
  b_list.dv = b.dv; /* one list alone; dv of `one` is rewritten */
  b_list.dv_blocks = NULL;
  memcpy(&before, &one, sizeof one);
  memset(one.dv, 0, sizeof one.dv);
  assert_int_equal(tigon_attn_res_bwd(*state, &b_list), TIGON_OK);
  assert_memory_equal(one.dv, before.dv, sizeof one.dv);
}

static void test_refusals(void **state) {
  const void *v[N];
  void *dv[N];
  fill(&one);
  memcpy(&before, &one, sizeof one);
#define RULE(way, kind, status, change, sentence)                                                               \
  do {                                                                                                          \
    tigon_attn_res_##way##_args a = kind(&one);                                                                 \
    for (int64_t i = 0; i < N; ++i) v[i] = one.v + i * BLOCK, dv[i] = one.dv + i * BLOCK;                       \
    a.v_blocks = v;                                                                                             \
    change;                                                                                                     \
    api_expect(*state, tigon_attn_res_##way(*state, &a), TIGON_ERROR_##status, "attn_res_" #way ": " sentence); \
    assert_memory_equal(&one, &before, sizeof one);                                                             \
  } while (0)
  RULE(fwd, forward, INVALID, v[3] = NULL, "v_blocks[3] is NULL");
  RULE(fwd, forward, INVALID, v[39] = (char *)one.v + 2, "v_blocks[39] is not aligned to 4 bytes (f32)");
  RULE(fwd, forward, ALIAS, v[7] = one.h + T * D - 1, "h overlaps v_blocks[7], must be apart");
  RULE(fwd, forward, ALIAS, v[0] = one.workspace + 64, "workspace overlaps v_blocks[0], must be apart");
  RULE(bwd, backward, INVALID, (a.dv_blocks = dv, dv[2] = NULL), "dv_blocks[2] is NULL");
  RULE(bwd, backward, ALIAS, (a.dv_blocks = dv, dv[2] = (void *)one.v),
       "dv_blocks[2] overlaps v_blocks[0], must be apart");
  RULE(bwd, backward, ALIAS, (a.dv_blocks = dv, dv[2] = (float *)dv[9] + 1),
       "dv_blocks[2] overlaps dv_blocks[9], must be apart");
  RULE(bwd, backward, ALIAS, (a.dv_blocks = dv, dv[1] = one.dq), "dv_blocks[1] overlaps dq, must be apart");
  RULE(bwd, backward, ALIAS, (a.dv_blocks = dv, dv[1] = one.a), "dv_blocks[1] overlaps a, must be apart");
  RULE(bwd, backward, ALIAS, (a.dv_blocks = dv, a.dv.strides[1] = 1),
       "dv_blocks[0] overlaps itself, its strides must keep elements apart");
  RULE(bwd, backward, ALIAS, a.dv.data = one.v + BLOCK, "dv overlaps v_blocks[1], must be apart");
  RULE(bwd, backward, INVALID, a.dv.data = NULL, "dv.data is NULL");
}

/* Rows of two blocks by turns: their ranges meet, and no byte is shared. */
static void test_interleaved(void **state) {
  void *dv[N];
  fill(&one);
  tigon_attn_res_bwd_args a = backward(&one);
  for (int64_t i = 0; i < N; ++i) dv[i] = one.dv + i * D;
  a.dv.strides[1] = N * D;
  a.dv_blocks = dv;
  assert_int_equal(tigon_attn_res_bwd(*state, &a), TIGON_OK);
}

static void test_huge_workspace(void **state) {
  const int64_t many = INT64_C(1) << 58;
  const tigon_attn_res_fwd_args a = {.v = {NULL, TIGON_BF16, 3, {many, 2, 1}, {0, 0, 1}},
                                     .q = tigon_tensor_1d(NULL, TIGON_BF16, 1),
                                     .wn = tigon_tensor_1d(NULL, TIGON_BF16, 1),
                                     .h = tigon_tensor_2d(NULL, TIGON_BF16, 2, 1)};
  size_t bytes = 5;
  api_expect(*state, tigon_attn_res_fwd_workspace(*state, &a, &bytes), TIGON_ERROR_INVALID,
             "attn_res_fwd: v has more elements than a workspace can hold numbers for");
  tigon_attn_res_fwd_args rows = a; /* each extent is one that a workspace takes */
  rows.v = (tigon_tensor){NULL, TIGON_BF16, 3, {2, INT64_C(1) << 43, 1}, {0, 0, 1}};
  rows.h = (tigon_tensor){NULL, TIGON_BF16, 2, {INT64_C(1) << 43, 1}, {0, 1}};
  api_expect(*state, tigon_attn_res_fwd_workspace(*state, &rows, &bytes), TIGON_ERROR_INVALID,
             "attn_res_fwd: v has more elements than a workspace can hold numbers for");
  const tigon_tensor wide = {NULL, TIGON_BF16, 3, {1, 1, INT64_C(1) << 44}, {0, 0, 1}},
                     row = {NULL, TIGON_BF16, 2, {1, INT64_C(1) << 44}, {0, 1}};
  const tigon_tensor of_columns = tigon_tensor_1d(NULL, TIGON_BF16, INT64_C(1) << 44);
  const tigon_tensor one_weight = tigon_tensor_2d(NULL, TIGON_F32, 1, 1);
  const tigon_attn_res_bwd_args b = {
      .v = wide, .dv = wide, .dh = row, .q = of_columns, .wn = of_columns, .a = one_weight, .rstd = one_weight};
  api_expect(*state, tigon_attn_res_bwd_workspace(*state, &b, &bytes), TIGON_ERROR_INVALID,
             "attn_res_bwd: v has more elements than a workspace can hold numbers for");
  assert_int_equal(bytes, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_interleaved), cmocka_unit_test(test_huge_workspace)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
