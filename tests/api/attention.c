/* attention: Inf and NaN in keys that a query does not see. */
#include "api.h"

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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_unseen)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
