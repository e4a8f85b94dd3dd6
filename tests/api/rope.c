/* rope: backward undoes forward; a token without a position. */
#include "api.h"

enum { B = 2, T = 3, H = 2, D = 8, N = B * T * H * D };

static void test_undone(void **state) {
  float q[N], turned[N], back[N], cosine[T * D / 2], sine[T * D / 2];
  api_fill(q, N, 0.5f);
  for (int i = 0; i < T * D / 2; ++i) cosine[i] = cosf(0.1f * (float)i), sine[i] = sinf(0.1f * (float)i);
  for (int layout = 0; layout < 2; ++layout)
    for (int rotary = 4; rotary <= D; rotary += 4) {
      tigon_rope_args a = {.q = tigon_tensor_4d(q, TIGON_F32, B, T, H, D),
                           .cos = tigon_tensor_2d(cosine, TIGON_F32, T, rotary / 2),
                           .sin = tigon_tensor_2d(sine, TIGON_F32, T, rotary / 2),
                           .q_out = tigon_tensor_4d(turned, TIGON_F32, B, T, H, D),
                           .layout = (tigon_rope_layout)layout,
                           .rotary_dim = rotary};
      assert_int_equal(tigon_rope_fwd(*state, &a), TIGON_OK);
      a.q = a.q_out;
      a.q_out.data = back;
      assert_int_equal(tigon_rope_bwd(*state, &a), TIGON_OK);
      for (int i = 0; i < N; ++i) assert_true(fabsf(back[i] - q[i]) < 1e-6f);
      /* What is not turned is NaN, too. */
      int32_t positions[T] = {0, -1, 2}, error = 0;
      a.positions = tigon_tensor_2d(positions, TIGON_I32, 1, T);
      a.error = tigon_tensor_1d(&error, TIGON_I32, 1);
      assert_int_equal(tigon_rope_fwd(*state, &a), TIGON_OK);
      assert_int_equal(error, 1);
      for (int i = 0; i < N; ++i) assert_true(isnan(back[i]) == (i / (H * D) % T == 1));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_undone)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
