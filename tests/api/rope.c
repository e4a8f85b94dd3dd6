/* rope of tables of complex numbers, and of positions in time, height and width: what it refuses. */
#include "api.h"

enum { B = 2, T = 3, DIM = 6, PAIRS = DIM / 2, ROWS = 7, AXES = 3 };

static float q[B * T * DIM], out[B * T * DIM], table[2][AXES * B * ROWS * DIM];
static int64_t ids[AXES * B * T];
static int32_t error[1];

static tigon_tensor shaped(void *data, tigon_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (tigon_tensor){data, dtype, ndim, {a, b, c, d}, {0}};
}
static tigon_tensor cosines(int ndim, int64_t a, int64_t b, int64_t c, int64_t d) {
  return shaped(table[0], TIGON_F32, ndim, a, b, c, d);
}

/* Tables of each axis and sequence. */
static tigon_rope_args of_axes(void) {
  memset(ids, 0, sizeof ids);
  return (tigon_rope_args){.q = tigon_tensor_4d(q, TIGON_F32, B, T, 1, DIM),
                           .cos = cosines(4, AXES, B, ROWS, PAIRS),
                           .sin = shaped(table[1], TIGON_F32, 4, AXES, B, ROWS, PAIRS),
                           .positions = shaped(ids, TIGON_I64, 3, AXES, B, T, 0),
                           .q_out = tigon_tensor_4d(out, TIGON_F32, B, T, 1, DIM),
                           .section_t = 1,
                           .section_w = 2};
}
static tigon_rope_args of_complex(void) {
  tigon_rope_args a = of_axes();
  a.cos = cosines(3, ROWS, PAIRS, 2, 0);
  a.sin = a.positions = (tigon_tensor){0};
  a.section_t = a.section_w = 0;
  return a;
}

static void refused(void **state, const tigon_rope_args *a, const char *sentence) {
  memset(out, 0x5a, sizeof out);
  api_expect(*state, tigon_rope_fwd(*state, a), TIGON_ERROR_INVALID, "rope_fwd: %s", sentence);
  api_expect(*state, tigon_rope_bwd(*state, a), TIGON_ERROR_INVALID, "rope_bwd: %s", sentence);
  for (size_t i = 0; i < sizeof out; ++i) assert_int_equal(((char *)out)[i], 0x5a);
}
#define REFUSED(legal, change, sentence) \
  do {                                   \
    tigon_rope_args args = legal();      \
    tigon_rope_args *const a = &args;    \
    (void)(change);                      \
    refused(state, a, sentence);         \
  } while (0)

static void test_complex(void **state) {
  tigon_rope_args a = of_complex();
  assert_int_equal(tigon_rope_fwd(*state, &a), TIGON_OK);
  REFUSED(of_complex, a->cos = cosines(2, ROWS, PAIRS, 0, 0), "cos.ndim is 2, must be 3 or 4");
  REFUSED(of_complex, a->cos.shape[1] = 2, "cos.shape[1] is 2, must be 3 (rotary_dim / 2)");
  REFUSED(of_complex, a->cos.shape[1] = DIM, "cos.shape[1] is 6, must be 3 (rotary_dim / 2)");
  REFUSED(of_complex, a->cos.shape[2] = 1, "cos.shape[2] is 1, must be 2 (cos and sin, as sin is absent)");
  REFUSED(of_complex, (a->cos.strides[0] = 12, a->cos.strides[1] = 4, a->cos.strides[2] = 1),
          "cos.strides[1] is 4, must be 2 (complex numbers)");
  REFUSED(of_complex, a->cos.shape[0] = 2, "cos.shape[0] is 2, must be 3 or more (q.shape[1])");
  REFUSED(of_complex, a->cos = cosines(4, 3, ROWS, PAIRS, 2), "cos.shape[0] is 3, must be 2 (q.shape[0])");
}

static void test_axes(void **state) {
  tigon_rope_args a = of_axes();
  assert_int_equal(tigon_rope_fwd(*state, &a), TIGON_OK);
  REFUSED(of_axes, a->section_w = 4, "section_w is 4, must be 0 to 3 (rotary_dim / 2)");
  REFUSED(of_axes, a->section_w = INT64_MAX, "section_w is 9223372036854775807, must be 0 to 3 (rotary_dim / 2)");
  REFUSED(of_axes, a->section_h = 1, "section_t + section_h + section_w is 4, must be 3 (rotary_dim / 2)");
  REFUSED(of_axes, a->section_h = -1, "section_h is -1, must be >= 0");
  REFUSED(of_complex, a->sections_interleaved = 1, "sections_interleaved is 1, must be 0 without sections");
  REFUSED(of_axes, a->sections_interleaved = 2, "sections_interleaved is 2, must be 0 or 1");
  REFUSED(of_axes, a->cos = cosines(1, ROWS, 0, 0, 0), "cos.ndim is 1, must be 2 to 4");
  REFUSED(of_axes, a->cos.shape[0] = 2, "cos.shape[0] is 2, must be 3 (time, height, width)");
  REFUSED(of_axes, a->cos.shape[1] = 1, "cos.shape[1] is 1, must be 2 (q.shape[0])");
  REFUSED(of_axes, a->positions = shaped(ids, TIGON_I64, 2, B, T, 0, 0), "positions.ndim is 2, must be 3");
  REFUSED(of_axes, a->positions.shape[0] = 2, "positions.shape[0] is 2, must be 3 (time, height, width)");
  REFUSED(of_axes, a->positions.shape[1] = 3, "positions.shape[1] is 3, must be 2 (q.shape[0])");
  REFUSED(of_axes, ids[2 * B * T + 4] = ROWS, "positions[16] is 7, must be 0 to 6 (cos.shape[2] - 1)");
}

/* One axis's position out of range spoils the token, and no other. */
static void test_flag(void **state) {
  tigon_rope_args a = of_axes();
  a.error = tigon_tensor_1d(error, TIGON_I32, 1);
  for (int axis = 0; axis < AXES; ++axis)
    for (int64_t wild = -1; wild <= ROWS; wild += ROWS + 1) {
      memset(ids, 0, sizeof ids);
      ids[axis * B * T + 4] = wild;
      error[0] = 0;
      assert_int_equal(tigon_rope_fwd(*state, &a), TIGON_OK);
      assert_int_equal(error[0], 1);
      for (int i = 0; i < B * T * DIM; ++i) assert_int_equal(isnan(out[i]) != 0, i / DIM == 4);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_complex), cmocka_unit_test(test_axes),
                                     cmocka_unit_test(test_flag)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
