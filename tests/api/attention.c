/* attention: heads that do not fit; views of packed and transposed memory; Inf and
 * NaN in keys that a query does not see. */
#include "api.h"

enum { B = 2, T = 3, S = 4, HQ = 4, HK = 2, D = 8, NQ = B * T * HQ * D, NK = B * S * HK * D, NL = B * HQ * T };

typedef struct data {
  float q[NQ], k[NK], v[NK], o[NQ], lse[NL], d_o[NQ], dq[NQ], dk[NK], dv[NK];
  _Alignas(64) char workspace[8192];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.q, NQ, 0.25f);
  api_fill(d.k, NK, 0.5f);
  api_fill(d.v, NK, 0.125f);
  api_fill(d.d_o, NQ, 0.5f);
  return &d;
}

static tigon_attention_fwd_args fwd_args(data *d) {
  return (tigon_attention_fwd_args){
      .q = tigon_tensor_4d(d->q, TIGON_F32, B, T, HQ, D),
      .k = tigon_tensor_4d(d->k, TIGON_F32, B, S, HK, D),
      .v = tigon_tensor_4d(d->v, TIGON_F32, B, S, HK, D),
      .o = tigon_tensor_4d(d->o, TIGON_F32, B, T, HQ, D),
      .lse = tigon_tensor_3d(d->lse, TIGON_F32, B, HQ, T),
      .causal = 1,
  };
}

static tigon_attention_bwd_args bwd_args(data *d) {
  return (tigon_attention_bwd_args){
      .d_o = tigon_tensor_4d(d->d_o, TIGON_F32, B, T, HQ, D),
      .q = tigon_tensor_4d(d->q, TIGON_F32, B, T, HQ, D),
      .k = tigon_tensor_4d(d->k, TIGON_F32, B, S, HK, D),
      .v = tigon_tensor_4d(d->v, TIGON_F32, B, S, HK, D),
      .o = tigon_tensor_4d(d->o, TIGON_F32, B, T, HQ, D),
      .lse = tigon_tensor_3d(d->lse, TIGON_F32, B, HQ, T),
      .dq = tigon_tensor_4d(d->dq, TIGON_F32, B, T, HQ, D),
      .dk = tigon_tensor_4d(d->dk, TIGON_F32, B, S, HK, D),
      .dv = tigon_tensor_4d(d->dv, TIGON_F32, B, S, HK, D),
      .causal = 1,
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(attention_fwd, fwd_args, a.q.shape[3] = a.k.shape[3] = a.v.shape[3] = a.o.shape[3] = 0, INVALID,
              "q.shape[3] is 0, must be >= 1");
  API_REFUSES(attention_fwd, fwd_args, a.q.shape[2] = a.o.shape[2] = 3;
              a.lse = tigon_tensor_3d(d->lse, TIGON_F32, B, 3, T), INVALID,
              "q.shape[2] is 3, must be a multiple of 2 (k.shape[2])");
  API_REFUSES(attention_bwd, bwd_args, a.k.shape[2] = a.v.shape[2] = a.dk.shape[2] = a.dv.shape[2] = 0, INVALID,
              "q.shape[2] is 4, must be a multiple of 0 (k.shape[2])");
}

static void test_huge_workspace(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_attention_bwd_args a = bwd_args(d);
  /* Strides of 0 reach nowhere, but delta would. */
  const int64_t many = INT64_C(1) << 61;
  tigon_tensor *const queries[] = {&a.q, &a.o, &a.d_o, &a.dq};
  for (int i = 0; i < 4; ++i) *queries[i] = (tigon_tensor){d->q, TIGON_F32, 4, {1, many, 1, 1}, {0, 0, 0, 1}};
  tigon_tensor *const keys[] = {&a.k, &a.v, &a.dk, &a.dv};
  for (int i = 0; i < 4; ++i) *keys[i] = tigon_tensor_4d(d->k, TIGON_F32, 1, 1, 1, 1);
  a.lse = tigon_tensor_3d(d->lse, TIGON_F32, 1, 1, many);
  size_t bytes = 5;
  assert_int_equal(tigon_attention_bwd_workspace(c, &a, &bytes), TIGON_ERROR_INVALID);
  assert_int_equal(bytes, 5);
}

/* delta, and f32 sums of dq for the narrow dtypes. */
static void test_workspace(void **state) {
  tigon_context *c = *state;
  tigon_attention_bwd_args a = bwd_args(made());
  size_t bytes;
  assert_int_equal(tigon_attention_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 128); /* NL floats, rounded up */
  tigon_tensor *const all[] = {&a.d_o, &a.q, &a.k, &a.v, &a.o, &a.dq, &a.dk, &a.dv};
  for (int i = 0; i < 8; ++i) all[i]->dtype = TIGON_BF16, all[i]->data = NULL;
  a.workspace = NULL;
  assert_int_equal(tigon_attention_bwd_workspace(c, &a, &bytes), TIGON_OK);
  assert_int_equal(bytes, 128 + NQ * sizeof(float));
}

/* [B, T, Hq + 2 Hk, D] memory, and [B, H, T, D] memory, give the bits of three dense tensors. */
static void test_views(void **state) {
  tigon_context *c = *state;
  enum { H = HQ + 2 * HK };
  data *d = made();
  static float qkv[B * S * H * D], dqkv[B * S * H * D], turned[NQ], d_turned[NQ];
  static float dense_q[B * S * HQ * D], dense_o[B * S * HQ * D], lse[B * HQ * S];
  api_fill(dense_q, B * S * HQ * D, 0.25f);
  tigon_attention_fwd_args f = fwd_args(d);
  f.q = tigon_tensor_4d(dense_q, TIGON_F32, B, S, HQ, D);
  f.o = tigon_tensor_4d(dense_o, TIGON_F32, B, S, HQ, D);
  f.lse = tigon_tensor_3d(lse, TIGON_F32, B, HQ, S);
  assert_int_equal(tigon_attention_fwd(c, &f), TIGON_OK);
  static float packed_o[B * S * HQ * D];
  for (int t = 0; t < B * S; ++t) {
    memcpy(qkv + t * H * D, dense_q + t * HQ * D, HQ * D * sizeof(float));
    memcpy(qkv + (t * H + HQ) * D, d->k + t * HK * D, HK * D * sizeof(float));
    memcpy(qkv + (t * H + HQ + HK) * D, d->v + t * HK * D, HK * D * sizeof(float));
  }
  f.q = (tigon_tensor){qkv, TIGON_F32, 4, {B, S, HQ, D}, {S * H * D, H * D, D, 1}};
  f.k = (tigon_tensor){qkv + HQ * D, TIGON_F32, 4, {B, S, HK, D}, {S * H * D, H * D, D, 1}};
  f.v = (tigon_tensor){qkv + (HQ + HK) * D, TIGON_F32, 4, {B, S, HK, D}, {S * H * D, H * D, D, 1}};
  f.o.data = packed_o;
  assert_int_equal(tigon_attention_fwd(c, &f), TIGON_OK);
  assert_memory_equal(packed_o, dense_o, sizeof dense_o);

  /* Backward: gradients as views of one buffer. */
  static float d_o[B * S * HQ * D], dq[B * S * HQ * D];
  api_fill(d_o, B * S * HQ * D, 0.5f);
  tigon_attention_bwd_args b = bwd_args(d);
  b.q = tigon_tensor_4d(dense_q, TIGON_F32, B, S, HQ, D);
  b.o = tigon_tensor_4d(dense_o, TIGON_F32, B, S, HQ, D);
  b.d_o = tigon_tensor_4d(d_o, TIGON_F32, B, S, HQ, D);
  b.dq = tigon_tensor_4d(dq, TIGON_F32, B, S, HQ, D);
  b.lse = f.lse;
  assert_int_equal(tigon_attention_bwd(c, &b), TIGON_OK);
  b.q = f.q, b.k = f.k, b.v = f.v;
  b.dq = f.q, b.dk = f.k, b.dv = f.v;
  b.dq.data = dqkv, b.dk.data = dqkv + HQ * D, b.dv.data = dqkv + (HQ + HK) * D;
  assert_int_equal(tigon_attention_bwd(c, &b), TIGON_OK);
  for (int t = 0; t < B * S; ++t) {
    assert_memory_equal(dqkv + t * H * D, dq + t * HQ * D, HQ * D * sizeof(float));
    assert_memory_equal(dqkv + (t * H + HQ) * D, d->dk + t * HK * D, HK * D * sizeof(float));
    assert_memory_equal(dqkv + (t * H + HQ + HK) * D, d->dv + t * HK * D, HK * D * sizeof(float));
  }

  /* Queries and outputs by heads. */
  tigon_attention_fwd_args h = fwd_args(d);
  assert_int_equal(tigon_attention_fwd(c, &h), TIGON_OK);
  for (int i = 0; i < NQ; ++i) {
    const int head = i / D % HQ, token = i / D / HQ % T;
    turned[(i / D / HQ / T * HQ * T + head * T + token) * D + i % D] = d->q[i];
  }
  h.q = (tigon_tensor){turned, TIGON_F32, 4, {B, T, HQ, D}, {HQ * T * D, D, T * D, 1}};
  h.o = h.q;
  h.o.data = d_turned;
  assert_int_equal(tigon_attention_fwd(c, &h), TIGON_OK);
  for (int i = 0; i < NQ; ++i) {
    const int head = i / D % HQ, token = i / D / HQ % T;
    assert_true(d_turned[(i / D / HQ / T * HQ * T + head * T + token) * D + i % D] == d->o[i]);
  }
}

/* A window of any size, INT64_MAX too, that reaches over all keys is none. */
static void test_wide_window(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_attention_fwd_args f = fwd_args(d);
  float o[NQ];
  for (int causal = 0; causal < 2; ++causal) {
    f.causal = causal;
    f.window = 0;
    assert_int_equal(tigon_attention_fwd(c, &f), TIGON_OK);
    memcpy(o, d->o, sizeof o);
    f.window = INT64_MAX;
    assert_int_equal(tigon_attention_fwd(c, &f), TIGON_OK);
    assert_memory_equal(o, d->o, sizeof o);
    f.window = S;
    assert_int_equal(tigon_attention_fwd(c, &f), TIGON_OK);
    assert_memory_equal(o, d->o, sizeof o);
  }
}

/* More tokens than a tile has; token 100 holds NaN in q, k, v and do: what does not see it must not feel it. */
static void test_unseen(void **state) {
  tigon_context *c = *state;
  enum { LONG = 150, BAD = 100, W = 30, LD = 20 };
  static float q[2][LONG * LD], k[2][LONG * LD], v[2][LONG * LD], d_o[2][LONG * LD], o[2][LONG * LD], lse[2][LONG];
  static float dq[2][LONG * LD], dk[2][LONG * LD], dv[2][LONG * LD];
  _Alignas(64) static char workspace[4096];
  for (int i = 0; i < 2; ++i) {
    api_fill(q[i], LONG * LD, 0.1f);
    api_fill(k[i], LONG * LD, 0.2f);
    api_fill(v[i], LONG * LD, 0.3f);
    api_fill(d_o[i], LONG * LD, 0.4f);
    if (i == 1) q[i][BAD * LD + 1] = k[i][BAD * LD + 2] = v[i][BAD * LD + 3] = d_o[i][BAD * LD + 4] = NAN;
    const tigon_attention_fwd_args f = {.q = tigon_tensor_4d(q[i], TIGON_F32, 1, LONG, 1, LD),
                                        .k = tigon_tensor_4d(k[i], TIGON_F32, 1, LONG, 1, LD),
                                        .v = tigon_tensor_4d(v[i], TIGON_F32, 1, LONG, 1, LD),
                                        .o = tigon_tensor_4d(o[i], TIGON_F32, 1, LONG, 1, LD),
                                        .lse = tigon_tensor_3d(lse[i], TIGON_F32, 1, 1, LONG),
                                        .causal = 1,
                                        .window = W};
    assert_int_equal(tigon_attention_fwd(c, &f), TIGON_OK);
    const tigon_attention_bwd_args b = {.d_o = tigon_tensor_4d(d_o[i], TIGON_F32, 1, LONG, 1, LD),
                                        .q = f.q,
                                        .k = f.k,
                                        .v = f.v,
                                        .o = f.o,
                                        .lse = f.lse,
                                        .dq = tigon_tensor_4d(dq[i], TIGON_F32, 1, LONG, 1, LD),
                                        .dk = tigon_tensor_4d(dk[i], TIGON_F32, 1, LONG, 1, LD),
                                        .dv = tigon_tensor_4d(dv[i], TIGON_F32, 1, LONG, 1, LD),
                                        .causal = 1,
                                        .window = W,
                                        .workspace = workspace,
                                        .workspace_bytes = sizeof workspace};
    assert_int_equal(tigon_attention_bwd(c, &b), TIGON_OK);
  }
  for (int t = 0; t < LONG; ++t) {
    const bool query_sees = t >= BAD && t < BAD + W; /* token BAD's key */
    for (int e = t * LD; e < (t + 1) * LD; ++e) {
      if (query_sees) {
        assert_true(isnan(o[1][e]) && isnan(dq[1][e]));
        continue;
      }
      assert_true(o[1][e] == o[0][e] && dq[1][e] == dq[0][e]);
      /* A key before BAD - W is seen by no query that sees BAD, and one after BAD + W neither. */
      if (t <= BAD - W || t >= BAD + W) assert_true(dk[1][e] == dk[0][e] && dv[1][e] == dv[0][e]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses),     cmocka_unit_test(test_huge_workspace),
                                     cmocka_unit_test(test_workspace),   cmocka_unit_test(test_views),
                                     cmocka_unit_test(test_wide_window), cmocka_unit_test(test_unseen)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
