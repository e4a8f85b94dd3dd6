/* Numbers of 8 and 16 bits: each code there and back, and the nearest one of what lies between two. */
#include <float.h>

#include "api/api.h"
#include "core/half.h"

static const struct {
  tigon_dtype dtype;
  int codes, bytes, most; /* most: code of the largest number that is finite */
} kinds[] = {{TIGON_F16, 1 << 16, 2, 0x7bff}, {TIGON_BF16, 1 << 16, 2, 0x7f7f}, {TIGON_F8E4M3, 1 << 8, 1, 0x7e}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint16_t code_of(tigon_dtype dtype, double value) {
  uint16_t code[4] = {0}; /* little-endian, with room for any dtype */
  tigon_store_f64(code, 0, dtype, value);
  return code[0];
}
static double value_of_code(tigon_dtype dtype, int code) {
  const uint16_t word[4] = {(uint16_t)code};
  return tigon_load_f64(word, 0, dtype);
}

static void test_every_code(void **state) {
  (void)state;
  for (int k = 0; k < KINDS; ++k)
    for (int code = 0; code < kinds[k].codes; ++code) {
      const double value = value_of_code(kinds[k].dtype, code);
      const uint16_t again = code_of(kinds[k].dtype, value);
      const int magnitude = code & (kinds[k].codes / 2 - 1);
      if (isnan(value))
        assert_true(isnan(value_of_code(kinds[k].dtype, again)) && magnitude > kinds[k].most);
      else if (isinf(value))
        assert_true(again == code && magnitude == kinds[k].most + 1);
      else
        assert_int_equal(again, code);
    }
  assert_true(isnan(value_of_code(TIGON_F8E4M3, 0x7f)) && isnan(value_of_code(TIGON_F8E4M3, 0xff)));
  assert_int_equal(code_of(TIGON_F8E4M3, NAN), 0x7f);
}

/* Halfway to the next code it is the even one, and by an ulp of f64 the nearer one: one rounding, not two. */
static void test_between(void **state) {
  (void)state;
  for (int k = 0; k < KINDS; ++k)
    for (int code = 0; code < kinds[k].most; ++code) {
      const tigon_dtype dtype = kinds[k].dtype;
      const double a = value_of_code(dtype, code), b = value_of_code(dtype, code + 1), half = a + (b - a) / 2;
      assert_true(b > a);
      assert_int_equal(code_of(dtype, half), code + code % 2);
      assert_int_equal(code_of(dtype, nextafter(half, 0)), code);
      assert_int_equal(code_of(dtype, nextafter(half, b)), code + 1);
      assert_int_equal(code_of(dtype, -half), (code + code % 2) | kinds[k].codes / 2);
    }
}

/* Beyond the largest one: 65520 and up is Inf in f16, all is 448 in 8 bits. */
static void test_large(void **state) {
  (void)state;
  assert_int_equal(code_of(TIGON_F16, 65519), 0x7bff);
  assert_int_equal(code_of(TIGON_F16, 65520), 0x7c00);
  assert_int_equal(code_of(TIGON_F16, -1e30), 0xfc00);
  assert_int_equal(code_of(TIGON_BF16, FLT_MAX), 0x7f80);
  assert_int_equal(code_of(TIGON_F8E4M3, 1e30), 0x7e);
  assert_int_equal(code_of(TIGON_F8E4M3, -(double)INFINITY), 0xfe);
}

static void test_i8(void **state) {
  (void)state;
  static const struct {
    double value;
    int code;
  } some[] = {{0.5, 0}, {1.5, 2}, {-2.5, -2}, {126.6, 127}, {1000, 127}, {-127.4, -127}, {-1e5, -127}, {NAN, 0}};
  for (size_t i = 0; i < sizeof some / sizeof *some; ++i) {
    int8_t code[8] = {5};
    tigon_store_f64(code, 0, TIGON_I8, some[i].value);
    assert_int_equal(code[0], some[i].code);
    assert_true(tigon_load_f64(code, 0, TIGON_I8) == some[i].code);
  }
}

/* A number rounded is what a store and a load make of it. */
static void test_rounded(void **state) {
  (void)state;
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_F16, TIGON_BF16, TIGON_F64};
  static const double values[] = {0, 1.0 / 3, -1e-6, 1e5, 3.4e38};
  for (size_t d = 0; d < 4; ++d)
    for (size_t i = 0; i < 5; ++i) {
      double kept = 0;
      tigon_store_f64(&kept, 0, dtypes[d], values[i]);
      assert_true(tigon_round_f64(values[i], dtypes[d]) == tigon_load_f64(&kept, 0, dtypes[d]));
      if (dtypes[d] == TIGON_F64) continue;
      float single = (float)values[i];
      tigon_store_f64(&kept, 0, dtypes[d], (double)single);
      assert_true((double)tigon_round_f32(single, dtypes[d]) == tigon_load_f64(&kept, 0, dtypes[d]));
    }
}

static void test_indices(void **state) {
  (void)state;
  const int64_t wide[] = {1, INT64_MIN};
  const int32_t narrow[] = {1, INT32_MIN};
  assert_true(tigon_load_index(wide, 1, TIGON_I64) == INT64_MIN);
  assert_true(tigon_load_index(narrow, 1, TIGON_I32) == INT32_MIN);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_code), cmocka_unit_test(test_between),
                                     cmocka_unit_test(test_large),      cmocka_unit_test(test_i8),
                                     cmocka_unit_test(test_rounded),    cmocka_unit_test(test_indices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
