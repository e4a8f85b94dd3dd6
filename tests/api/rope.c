/* rope: what its description cannot say; positions out of range; equal ways to give tables; backward undoes forward. */
#include "api.h"

enum { B = 2, T = 3, HQ = 2, HK = 1, D = 8, P = 5, NQ = B * T * HQ * D, NK = B * T * HK * D };

typedef struct data {
  float q[NQ + 4], k[NK + 4], q_out[NQ], k_out[NK], cosine[B * P * D], sine[B * P * D];
  int64_t positions[B * T];
  int32_t error[4];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.q, NQ, 0.5f);
  api_fill(d.k, NK, 0.25f);
  for (int i = 0; i < B * P * D; ++i) {
    d.cosine[i] = cosf(0.1f * (float)i);
    d.sine[i] = sinf(0.1f * (float)i);
  }
  for (int i = 0; i < B * T; ++i) d.positions[i] = (2 * i + 1) % P;
  d.error[0] = 0;
  return &d;
}

static tigon_rope_args all_args(data *d) {
  return (tigon_rope_args){
      .q = tigon_tensor_4d(d->q, TIGON_F32, B, T, HQ, D),
      .k = tigon_tensor_4d(d->k, TIGON_F32, B, T, HK, D),
      .cos = tigon_tensor_2d(d->cosine, TIGON_F32, P, D / 2),
      .sin = tigon_tensor_2d(d->sine, TIGON_F32, P, D / 2),
      .positions = tigon_tensor_2d(d->positions, TIGON_I64, B, T),
      .q_out = tigon_tensor_4d(d->q_out, TIGON_F32, B, T, HQ, D),
      .k_out = tigon_tensor_4d(d->k_out, TIGON_F32, B, T, HK, D),
  };
}

/* What its description cannot say. */
#define BOTH(...)                               \
  API_REFUSES(rope_fwd, all_args, __VA_ARGS__); \
  API_REFUSES(rope_bwd, all_args, __VA_ARGS__)
static void test_refuses(void **state) {
  BOTH(memset(&a.k, 0, sizeof a.k), INVALID, "k is absent, must be given with k_out");
  BOTH(memset(&a.k_out, 0, sizeof a.k_out), INVALID, "k_out is absent, must be given with k");
  BOTH((a.cos.ndim = 1, a.cos.strides[0] = 1), INVALID, "cos.ndim is 1, must be 2 or 3");
  BOTH(a.cos.shape[1] = 3, INVALID, "cos.shape[1] is 3, must be 4 or 8 (rotary_dim)");
  BOTH(a.sin.shape[0] = 4, INVALID, "sin.shape[0] is 4, must be 5 (cos.shape[0])");
  BOTH(a.sin.strides[0] = 8, INVALID, "sin.strides[0] is 8, must be 4 (cos.strides[0])");
  BOTH(a.cos = tigon_tensor_3d(d->cosine, TIGON_F32, 3, P, D / 2), INVALID,
       "cos.shape[0] is 3, must be 2 (q.shape[0])");
  BOTH((memset(&a.positions, 0, sizeof a.positions), a.cos.shape[0] = a.sin.shape[0] = 2), INVALID,
       "cos.shape[0] is 2, must be 3 or more (q.shape[1])");
  BOTH(a.positions.shape[0] = 3, INVALID, "positions.shape[0] is 3, must be 2 (q.shape[0])");
  BOTH((a.positions.shape[1] = 2, a.positions.strides[0] = 2), INVALID,
       "positions.shape[1] is 2, must be 3 (q.shape[1])");
  BOTH(a.rotary_dim = 3, INVALID, "rotary_dim is 3, must be even and 2 to 8 (q.shape[3])");
  BOTH(a.rotary_dim = 10, INVALID, "rotary_dim is 10, must be even and 2 to 8 (q.shape[3])");
  BOTH(a.rotary_dim = -2, INVALID, "rotary_dim is -2, must be even and 2 to 8 (q.shape[3])");
}
#undef BOTH

/* Without `error` the call is refused and nothing is written; with it the token is NaN and the flag is raised. */
static void test_positions(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_rope_args a = all_args(d);
  d->positions[4] = P;
  before = *d;
  api_expect(c, tigon_rope_fwd(c, &a), TIGON_ERROR_INVALID,
             "rope_fwd: positions[4] is 5, must be 0 to 4 (cos.shape[0] - 1)");
  assert_memory_equal(d, &before, sizeof before);
  d->positions[4] = -1;
  api_expect(c, tigon_rope_bwd(c, &a), TIGON_ERROR_INVALID,
             "rope_bwd: positions[4] is -1, must be 0 to 4 (cos.shape[0] - 1)");
  a.error = tigon_tensor_1d(d->error, TIGON_I32, 1);
  a.rotary_dim = 4;
  a.cos.shape[1] = a.sin.shape[1] = 4;
  assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
  assert_int_equal(d->error[0], 1);
  for (int i = 0; i < NQ; ++i) assert_true(isnan(d->q_out[i]) == (i / (HQ * D) == 4));
  for (int i = 0; i < NK; ++i) assert_true(isnan(d->k_out[i]) == (i / (HK * D) == 4));
  /* A legal call leaves the flag alone. */
  d->positions[4] = 0;
  d->error[0] = 7;
  assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
  assert_int_equal(d->error[0], 7);
}

/* Positions 0 .. T - 1 for all sequences: absent, i32 [1, T] and i64 [B, T] alike; a doubled table; k absent. */
static void test_same(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_rope_args a = all_args(d);
  memset(&a.positions, 0, sizeof a.positions);
  assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
  float q[NQ], k[NK];
  memcpy(q, d->q_out, sizeof q);
  memcpy(k, d->k_out, sizeof k);
  int32_t ids[T] = {0, 1, 2};
  for (int i = 0; i < B * T; ++i) d->positions[i] = i % T;
  for (int form = 0; form < 4; ++form) {
    float doubled_cos[P * D], doubled_sin[P * D];
    a = all_args(d);
    memset(d->q_out, 0, sizeof d->q_out);
    if (form == 0) a.positions = tigon_tensor_2d(ids, TIGON_I32, 1, T);
    if (form == 2) {
      for (int i = 0; i < P * D; ++i) {
        const int at = i / D * (D / 2) + i % (D / 2);
        doubled_cos[i] = d->cosine[at];
        doubled_sin[i] = d->sine[at];
      }
      a.cos = tigon_tensor_2d(doubled_cos, TIGON_F32, P, D);
      a.sin = tigon_tensor_2d(doubled_sin, TIGON_F32, P, D);
    }
    if (form == 3) {
      memset(&a.k, 0, sizeof a.k);
      memset(&a.k_out, 0, sizeof a.k_out);
    }
    assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
    assert_memory_equal(d->q_out, q, sizeof q);
    assert_memory_equal(d->k_out, k, sizeof k);
  }
}

/* In place, and backward undoes forward. */
static void test_undone(void **state) {
  tigon_context *c = *state;
  for (int layout = 0; layout < 2; ++layout)
    for (int rotary = 4; rotary <= D; rotary += 4) {
      data *d = made();
      tigon_rope_args a = all_args(d);
      a.layout = (tigon_rope_layout)layout;
      a.rotary_dim = rotary;
      a.cos.shape[1] = a.sin.shape[1] = rotary / 2;
      assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
      a.q_out = a.q;
      a.k_out = a.k;
      assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
      assert_memory_equal(d->q, d->q_out, NQ * sizeof(float));
      assert_memory_equal(d->k, d->k_out, NK * sizeof(float));
      assert_int_equal(tigon_rope_bwd(c, &a), TIGON_OK);
      float q[NQ];
      api_fill(q, NQ, 0.5f);
      for (int i = 0; i < NQ; ++i) assert_true(fabsf(d->q[i] - q[i]) < 1e-6f);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses), cmocka_unit_test(test_positions),
                                     cmocka_unit_test(test_same), cmocka_unit_test(test_undone)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
