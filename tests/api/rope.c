/* rope: wrong arguments are refused with one sentence and nothing is written; legal aliases equal out of place; positions
 * out of range. */
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

static void test_refuses(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  tigon_rope_args a;
#define REFUSE(change, status, sentence)                                             \
  a = all_args(d);                                                                   \
  change;                                                                            \
  before = *d;                                                                       \
  api_expect(c, tigon_rope_fwd(c, &a), TIGON_ERROR_##status, "rope_fwd: " sentence); \
  api_expect(c, tigon_rope_bwd(c, &a), TIGON_ERROR_##status, "rope_bwd: " sentence); \
  assert_memory_equal(d, &before, sizeof before)
  REFUSE(memset(&a.q, 0, sizeof a.q), INVALID, "q is absent");
  REFUSE(memset(&a.cos, 0, sizeof a.cos), INVALID, "cos is absent");
  REFUSE(memset(&a.q_out, 0, sizeof a.q_out), INVALID, "q_out is absent");
  REFUSE(memset(&a.k, 0, sizeof a.k), INVALID, "k is absent, must be given with k_out");
  REFUSE(memset(&a.k_out, 0, sizeof a.k_out), INVALID, "k_out is absent, must be given with k");
  REFUSE(a.q.dtype = TIGON_I32, INVALID, "q.dtype is i32, must be f32, f16, bf16");
  REFUSE(a.k.dtype = TIGON_BF16, INVALID, "k.dtype is bf16, must be f32 (q.dtype)");
  REFUSE(a.q_out.dtype = TIGON_F16, INVALID, "q_out.dtype is f16, must be f32 (q.dtype)");
  REFUSE(a.cos.dtype = TIGON_F16, INVALID, "cos.dtype is f16, must be f32 (q.dtype)");
  REFUSE(a.sin.dtype = TIGON_BF16, INVALID, "sin.dtype is bf16, must be f32 (cos.dtype)");
  REFUSE(a.positions.dtype = TIGON_F32, INVALID, "positions.dtype is f32, must be i32, i64");
  REFUSE(a.error = tigon_tensor_1d(d->error, TIGON_I64, 1), INVALID, "error.dtype is i64, must be i32");
  REFUSE(a.error = tigon_tensor_1d(d->error, TIGON_I32, 2), INVALID, "error.shape[0] is 2, must be 1 (one flag)");
  REFUSE((a.q.ndim = 3, a.q.strides[2] = 1), INVALID, "q.ndim is 3, must be 4");
  REFUSE(a.k.shape[0] = 1, INVALID, "k.shape[0] is 1, must be 2 (q.shape[0])");
  REFUSE(a.k.shape[1] = 2, INVALID, "k.shape[1] is 2, must be 3 (q.shape[1])");
  REFUSE(a.k.shape[3] = 6, INVALID, "k.shape[3] is 6, must be 8 (q.shape[3])");
  REFUSE(a.q_out.shape[2] = 1, INVALID, "q_out.shape[2] is 1, must be 2 (q.shape[2])");
  REFUSE(a.k_out.shape[3] = 7, INVALID, "k_out.shape[3] is 7, must be 8 (q.shape[3])");
  REFUSE((a.cos.ndim = 1, a.cos.strides[0] = 1), INVALID, "cos.ndim is 1, must be 2 or 3");
  REFUSE(a.cos.shape[1] = 3, INVALID, "cos.shape[1] is 3, must be 4 or 8 (rotary_dim)");
  REFUSE(a.sin.shape[0] = 4, INVALID, "sin.shape[0] is 4, must be 5 (cos.shape[0])");
  REFUSE(a.sin.strides[0] = 8, INVALID, "sin.strides[0] is 8, must be 4 (cos.strides[0])");
  REFUSE(a.cos = tigon_tensor_3d(d->cosine, TIGON_F32, 3, P, D / 2), INVALID,
         "cos.shape[0] is 3, must be 2 (q.shape[0])");
  REFUSE((memset(&a.positions, 0, sizeof a.positions), a.cos.shape[0] = a.sin.shape[0] = 2), INVALID,
         "cos.shape[0] is 2, must be 3 or more (q.shape[1])");
  REFUSE(a.positions.shape[0] = 3, INVALID, "positions.shape[0] is 3, must be 2 (q.shape[0])");
  REFUSE((a.positions.shape[1] = 2, a.positions.strides[0] = 2), INVALID,
         "positions.shape[1] is 2, must be 3 (q.shape[1])");
  REFUSE(a.positions.strides[0] = 4, INVALID, "positions.strides[0] is 4, must be 3 (contiguous)");
  REFUSE(a.rotary_dim = 3, INVALID, "rotary_dim is 3, must be even and 2 to 8 (q.shape[3])");
  REFUSE(a.rotary_dim = 10, INVALID, "rotary_dim is 10, must be even and 2 to 8 (q.shape[3])");
  REFUSE(a.rotary_dim = -2, INVALID, "rotary_dim is -2, must be even and 2 to 8 (q.shape[3])");
  REFUSE(a.layout = (tigon_rope_layout)2, INVALID, "layout is 2, must be 0 to 1");
  REFUSE(a.reserved[1] = 1, INVALID, "reserved[1] is 1, must be 0");
  REFUSE(a.q_out.data = d->q + 1, ALIAS, "q_out overlaps q in part, must be the same view or apart");
  REFUSE(a.q_out.data = d->cosine, ALIAS, "q_out overlaps cos, must be apart");
  REFUSE(a.k_out.data = d->q, ALIAS, "k_out overlaps q, must be apart");
#undef REFUSE
  api_expect(c, tigon_rope_fwd(c, NULL), TIGON_ERROR_INVALID, "rope_fwd: args is NULL");
  api_expect(NULL, tigon_rope_bwd(NULL, &a), TIGON_ERROR_INVALID, "rope_bwd: context is NULL");
}

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
static void test_in_place(void **state) {
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

static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  static data before;
  before = *d;
  tigon_rope_args a = all_args(d);
  a.q.shape[0] = a.k.shape[0] = a.q_out.shape[0] = a.k_out.shape[0] = a.positions.shape[0] = 0;
  assert_int_equal(tigon_rope_fwd(c, &a), TIGON_OK);
  a = all_args(d);
  a.q.shape[2] = a.q_out.shape[2] = 0;
  a.q.data = a.q_out.data = NULL;
  memset(&a.k, 0, sizeof a.k);
  memset(&a.k_out, 0, sizeof a.k_out);
  assert_int_equal(tigon_rope_bwd(c, &a), TIGON_OK);
  assert_memory_equal(d, &before, sizeof before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refuses),  cmocka_unit_test(test_positions), cmocka_unit_test(test_same),
      cmocka_unit_test(test_in_place), cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
