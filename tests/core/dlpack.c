/* DLPack views: which dtypes have a name here, there and back, and what of a view is refused. */
#include "api/api.h"

enum { RANK = 2 };

static const struct {
  DLDataType type;
  tigon_dtype dtype; /* TIGON_DTYPE_NONE: refused */
} types[] = {
    {{kDLFloat, 32, 1}, TIGON_F32},
    {{kDLFloat, 16, 1}, TIGON_F16},
    {{kDLFloat, 64, 1}, TIGON_DTYPE_NONE},
    {{kDLFloat, 32, 2}, TIGON_DTYPE_NONE},
    {{kDLBfloat, 16, 1}, TIGON_BF16},
    {{kDLBfloat, 32, 1}, TIGON_DTYPE_NONE},
    {{kDLFloat8_e4m3fn, 8, 1}, TIGON_F8E4M3},
    {{kDLFloat8_e4m3fn, 16, 1}, TIGON_DTYPE_NONE},
    {{kDLInt, 32, 1}, TIGON_I32},
    {{kDLInt, 64, 1}, TIGON_I64},
    {{kDLInt, 8, 1}, TIGON_I8},
    {{kDLInt, 16, 1}, TIGON_DTYPE_NONE},
    {{kDLUInt, 8, 1}, TIGON_DTYPE_NONE},
    {{5, 64, 1}, TIGON_DTYPE_NONE}, /* complex */
};

static void test_dtypes(void **state) {
  (void)state;
  int64_t shape[RANK] = {3, 4};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    const DLTensor from = {.ndim = RANK, .shape = shape, .dtype = types[i].type};
    tigon_tensor t = {.ndim = 7};
    DLTensor back;
    const tigon_status status = tigon_tensor_from_dlpack(&from, &t);
    if (types[i].dtype == TIGON_DTYPE_NONE) {
      const DLDataType d = types[i].type;
      api_expect(
          NULL, status, TIGON_ERROR_INVALID,
          "tensor_from_dlpack: dtype is code %d, %d bits, %d lanes, must be f32, f16, bf16, i32, i64, f8e4m3 or i8 "
          "with 1 lane",
          d.code, d.bits, d.lanes);
      assert_int_equal(t.ndim, 7);
      continue;
    }
    assert_int_equal(status, TIGON_OK);
    assert_int_equal(t.dtype, types[i].dtype);
    assert_int_equal(tigon_tensor_to_dlpack(&t, &back), TIGON_OK);
    assert_memory_equal(&back.dtype, &types[i].type, sizeof back.dtype);
  }
}

/* A number is one element; no memory stays none; strides that are all 0 are not written down. */
static void test_views(void **state) {
  (void)state;
  float data[4];
  int64_t shape[RANK] = {1, 1}, zeros[RANK] = {0, 0};
  DLTensor from = {.data = data, .dtype = {kDLFloat, 32, 1}, .byte_offset = 4}, back;
  tigon_tensor t;
  assert_int_equal(tigon_tensor_from_dlpack(&from, &t), TIGON_OK);
  assert_true(t.ndim == 1 && t.shape[0] == 1 && t.strides[0] == 1 && t.data == data + 1);
  assert_int_equal(tigon_tensor_to_dlpack(&t, &back), TIGON_OK);
  assert_int_equal(back.strides[0], 1);
  from = (DLTensor){.dtype = {kDLFloat, 32, 1}, .ndim = RANK, .shape = shape, .strides = zeros, .byte_offset = 4};
  assert_int_equal(tigon_tensor_from_dlpack(&from, &t), TIGON_OK); /* one element, which any stride reaches */
  assert_null(t.data);
  assert_int_equal(tigon_tensor_to_dlpack(&t, &back), TIGON_OK);
  assert_null(back.strides);
  shape[0] = 0, shape[1] = 5;
  assert_int_equal(tigon_tensor_from_dlpack(&from, &t), TIGON_OK);
}

static void refused(const DLTensor *from, const char *sentence) {
  const tigon_tensor before = {.ndim = 7};
  tigon_tensor t = before;
  api_expect(NULL, tigon_tensor_from_dlpack(from, &t), TIGON_ERROR_INVALID, "tensor_from_dlpack: %s", sentence);
  assert_memory_equal(&t, &before, sizeof t);
}

static void test_refusals(void **state) {
  (void)state;
  int64_t shape[RANK] = {2, 3}, strides[RANK] = {3, 1};
  const DLTensor good = {.ndim = RANK, .dtype = {kDLFloat, 32, 1}, .shape = shape, .strides = strides};
  DLTensor from = good;
  tigon_tensor t = {0};
  refused(NULL, "from or tensor is NULL");
  api_expect(NULL, tigon_tensor_from_dlpack(&good, NULL), TIGON_ERROR_INVALID,
             "tensor_from_dlpack: from or tensor is NULL");
  from.ndim = -1;
  refused(&from, "ndim is -1, must be 0 to 8");
  from.ndim = 9;
  refused(&from, "ndim is 9, must be 0 to 8");
  from = good, from.shape = NULL;
  refused(&from, "shape is NULL");
  strides[1] = -1;
  refused(&good, "strides[1] is -1, must be >= 0");
  strides[1] = 1, shape[0] = -2;
  refused(&good, "shape[0] is -2, must be >= 0");
  shape[0] = shape[1] = (int64_t)1 << 40;
  refused(&good, "the element count overflows 64 bits");
  strides[0] = strides[1] = 0, shape[0] = 2, shape[1] = 3;
  refused(&good, "strides are all 0 with 6 elements, must name distinct elements");

  DLTensor to;
  api_expect(NULL, tigon_tensor_to_dlpack(NULL, &to), TIGON_ERROR_INVALID, "tensor_to_dlpack: tensor or to is NULL");
  api_expect(NULL, tigon_tensor_to_dlpack(&t, NULL), TIGON_ERROR_INVALID, "tensor_to_dlpack: tensor or to is NULL");
  const tigon_tensor wrong[] = {
      {.dtype = TIGON_F32}, {.dtype = TIGON_F32, .ndim = 9}, {.dtype = TIGON_I8 + 1, .ndim = 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    api_expect(NULL, tigon_tensor_to_dlpack(&wrong[i], &to), TIGON_ERROR_INVALID,
               "tensor_to_dlpack: tensor is absent or not valid");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dtypes), cmocka_unit_test(test_views),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
