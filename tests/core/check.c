/* What descriptions and relations can say beyond those of today's entries: descriptions of the test's own, views at the end of
 * memory, and each check by itself. */
#include "api/api.h"
#include "core/blocks.h"
#include "core/check.h"

typedef struct args {
  tigon_tensor x, y;
  const void *const *x_blocks, *const *y_blocks;
  void *workspace;
  size_t workspace_bytes;
  uint64_t reserved[TIGON_RESERVED];
} args;

enum { ANY_DTYPE = 0xfe };
#define AT(field) .name = #field, .offset = offsetof(args, field)
#define TENSOR(field, bits) \
  { AT(field), .kind = TIGON_FIELD_TENSOR, .shape = "?", .dtypes = ANY_DTYPE, .flags = bits }
#define SCHEMA(list) \
  { "test", "call", "test_call", list, sizeof(list) / sizeof *(list), sizeof(args), 0 }

static const tigon_field pair[] = {
    TENSOR(x, 0),
    {AT(y), .kind = TIGON_FIELD_TENSOR, .shape = "?", .dtypes = ANY_DTYPE, .flags = TIGON_FIELD_OUT, .in_place = "x"}};
static const tigon_field turned[] = {TENSOR(x, TIGON_FIELD_TURNED), TENSOR(y, TIGON_FIELD_FREE_LAST)};
static const tigon_field lists[] = {TENSOR(x, TIGON_FIELD_OUT),
                                    {AT(x_blocks), .kind = TIGON_FIELD_BLOCKS},
                                    TENSOR(y, TIGON_FIELD_OUT),
                                    {AT(y_blocks), .kind = TIGON_FIELD_BLOCKS},
                                    {AT(workspace), .kind = TIGON_FIELD_WORKSPACE}};
static const tigon_field words[] = {{AT(reserved), .kind = TIGON_FIELD_RESERVED}};
static const tigon_schema pair_schema = SCHEMA(pair), turned_schema = SCHEMA(turned), lists_schema = SCHEMA(lists),
                          words_schema = SCHEMA(words);

static float data[64];

static tigon_status check(tigon_context *c, const tigon_schema *schema, const args *from, args *to) {
  return tigon_check_entry(c, schema, from, to, false);
}

static void *near_end(uintptr_t bytes) { return (void *)(UINTPTR_MAX - bytes + 1); } /* NOLINT */

/* ---- one tensor ---- */

static void test_far_layouts(void **state) {
  const int64_t huge = INT64_C(1) << 61;
  const tigon_tensor far[] = {{data, TIGON_I8, 2, {2, 1}, {INT64_MAX, 1}},                  /* one element too many */
                              {data, TIGON_F32, 2, {2, 1}, {huge, 1}},                      /* in bytes */
                              {near_end((uintptr_t)INT64_MAX + 4), TIGON_F32, 1, {2}, {1}}, /* an address and bytes */
                              {near_end((uintptr_t)INT64_MAX + 4), TIGON_F32, 2, {2, 2}, {huge / 8, 1}}};
  args to;
  for (size_t i = 0; i < sizeof far / sizeof *far; ++i) {
    const args a = {.x = far[i], .y = tigon_tensor_1d(data, TIGON_F32, 1)};
    api_expect(*state, check(*state, &pair_schema, &a, &to), TIGON_ERROR_INVALID,
               "test_call: x reaches further than 64 bits address");
  }
}

/* An extent of one gets its natural stride, and 1 where 64 bits do not hold that. */
static void test_straight_strides(void **state) {
  const int64_t huge = INT64_C(1) << 61;
  const args a = {.x = {NULL, TIGON_I8, 3, {1, 4, 1}, {7, huge, 9}}, .y = {NULL, TIGON_I8, 3, {1, 4, 1}, {7, 5, 9}}};
  args to;
  assert_int_equal(tigon_check_entry(*state, &pair_schema, &a, &to, true), TIGON_OK);
  assert_true(to.x.strides[0] == 1 && to.x.strides[1] == huge && to.x.strides[2] == 1);
  assert_true(to.y.strides[0] == 20 && to.y.strides[1] == 5 && to.y.strides[2] == 1);
}

static void test_free_strides(void **state) {
  args a = {.x = {data, TIGON_F32, 2, {3, 4}, {1, 3}}, .y = {data, TIGON_F32, 2, {3, 4}, {1, 5}}}, to;
  assert_int_equal(check(*state, &turned_schema, &a, &to), TIGON_OK);
  a.x.strides[0] = 2;
  api_expect(*state, check(*state, &turned_schema, &a, &to), TIGON_ERROR_INVALID,
             "test_call: x.strides[1] is 3, must be 1");
  a.x = (tigon_tensor){data, TIGON_F32, 1, {3}, {2}}; /* has no dimension to turn */
  api_expect(*state, check(*state, &turned_schema, &a, &to), TIGON_ERROR_INVALID,
             "test_call: x.strides[0] is 2, must be 1");
  a.x = tigon_tensor_1d(data, TIGON_F32, 3);
  a.y = (tigon_tensor){data, TIGON_F32, 3, {2, 3, 4}, {12, 1, 3}}; /* is free with two dimensions */
  api_expect(*state, check(*state, &turned_schema, &a, &to), TIGON_ERROR_INVALID,
             "test_call: y.strides[2] is 3, must be 1");
}

/* ---- overlap ---- */

/* In place is the same view: address, dtype, dimensions, extents, and strides where they are walked. */
static void test_same_view(void **state) {
  const tigon_tensor x = {data, TIGON_F32, 3, {2, 1, 4}, {8, 4, 1}};
  const tigon_tensor same[] = {x, {data, TIGON_F32, 3, {2, 1, 4}, {8, 0, 1}}};
  const tigon_tensor others[] = {{data + 1, TIGON_F32, 3, {2, 1, 4}, {8, 4, 1}},
                                 {data, TIGON_I32, 3, {2, 1, 4}, {8, 4, 1}},
                                 {data, TIGON_F32, 2, {2, 4}, {8, 1}},
                                 {data, TIGON_F32, 3, {2, 1, 3}, {8, 4, 1}},
                                 {data, TIGON_F32, 3, {2, 1, 4}, {6, 4, 1}}};
  args to;
  for (size_t i = 0; i < sizeof same / sizeof *same; ++i) {
    const args a = {.x = x, .y = same[i]};
    assert_int_equal(check(*state, &pair_schema, &a, &to), TIGON_OK);
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
    const args a = {.x = x, .y = others[i]};
    api_expect(*state, check(*state, &pair_schema, &a, &to), TIGON_ERROR_ALIAS,
               "test_call: y overlaps x in part, must be the same view or apart");
  }
}

static void test_lists_of_words(void **state) {
  (void)state;
  assert_true(tigon_is_listed("x residual", "x") && tigon_is_listed("x residual", "residual"));
  assert_false(tigon_is_listed("xy", "x") || tigon_is_listed("yx", "x") || tigon_is_listed(NULL, "x"));
  assert_true(tigon_is_listed("xy x", "x"));
}

/* ---- blocks ---- */

static tigon_status blocks_beside(tigon_context *c, const args *a, size_t needed) {
  args to;
  const tigon_status status = check(c, &lists_schema, a, &to);
  return status == TIGON_OK ? tigon_check_blocks(c, &to, to.workspace, needed > 0 ? to.workspace_bytes : 0) : status;
}
static tigon_status blocks(tigon_context *c, const args *a) { return blocks_beside(c, a, 0); }

static void test_blocks(void **state) {
  const void *x[2] = {data, data + 8}, *y[2] = {data + 16, data + 24};
  const args good = {.x = tigon_tensor_2d(NULL, TIGON_F32, 2, 4),
                     .y = tigon_tensor_2d(NULL, TIGON_F32, 2, 4),
                     .x_blocks = x,
                     .y_blocks = y};
  args a = good;
  assert_int_equal(blocks(*state, &a), TIGON_OK);
  y[1] = data + 11;
  api_expect(*state, blocks(*state, &a), TIGON_ERROR_ALIAS,
             "test_call: x_blocks[1] overlaps y_blocks[1], must be apart");
  y[1] = near_end(12);
  api_expect(*state, blocks(*state, &a), TIGON_ERROR_INVALID,
             "test_call: y_blocks[1] reaches further than 64 bits address");
  y[1] = NULL; /* nobody looks at the address of a block without elements */
  a.y.shape[1] = 0;
  assert_int_equal(blocks(*state, &a), TIGON_OK);
  a.y.shape[0] = 0;
  assert_int_equal(blocks(*state, &a), TIGON_OK);
}

/* A workspace that is not used may lie anywhere. */
static void test_blocks_and_workspace(void **state) {
  const void *x[1] = {data + 16}, *y[1] = {data + 32};
  args a = {.x = tigon_tensor_2d(NULL, TIGON_F32, 1, 4),
            .y = tigon_tensor_2d(NULL, TIGON_F32, 1, 4),
            .x_blocks = x,
            .y_blocks = y,
            .workspace = data,
            .workspace_bytes = 64};
  assert_int_equal(blocks_beside(*state, &a, 64), TIGON_OK);
  a.workspace_bytes = 68;
  api_expect(*state, blocks_beside(*state, &a, 64), TIGON_ERROR_ALIAS,
             "test_call: workspace overlaps x_blocks[0], must be apart");
  assert_int_equal(blocks_beside(*state, &a, 0), TIGON_OK);
  a.workspace = NULL;
  assert_int_equal(blocks_beside(*state, &a, 64), TIGON_OK); /* that it is NULL is another check's to say */
}

/* ---- numbers ---- */

static tigon_status field(tigon_context *c, const tigon_field *of, const void *value) {
  c->checked = &pair_schema;
  return tigon_check_field(c, of, value);
}

static void test_numbers(void **state) {
  const tigon_field below = {
      .name = "n", .kind = TIGON_FIELD_DOUBLE, .flags = TIGON_FIELD_BELOW_HIGH, .low = 1, .high = 2};
  const tigon_field to_high = {.name = "n", .kind = TIGON_FIELD_DOUBLE, .low = 1, .high = 2};
  const double one = 1, two = 2, nan = NAN;
  assert_int_equal(field(*state, &below, &one), TIGON_OK);
  api_expect(*state, field(*state, &below, &two), TIGON_ERROR_INVALID,
             "test_call: n is 2, must be at least 1 and less than 2");
  assert_int_equal(field(*state, &to_high, &two), TIGON_OK);
  api_expect(*state, field(*state, &to_high, &nan), TIGON_ERROR_INVALID, "test_call: n is nan, must be 1 to 2");
}

static void test_reserved(void **state) {
  args a = {.reserved = {0}}, to;
  assert_int_equal(check(*state, &words_schema, &a, &to), TIGON_OK);
  assert_int_equal(field(*state, words, a.reserved), TIGON_OK);
  a.reserved[3] = 4;
  api_expect(*state, check(*state, &words_schema, &a, &to), TIGON_ERROR_INVALID,
             "test_call: reserved[3] is 4, must be 0");
}

/* A workspace that says it is larger than memory meets what lies behind it. */
static void test_endless_workspace(void **state) {
  static _Alignas(64) char memory[128];
  const args a = {.x = tigon_tensor_1d(memory + 64, TIGON_F32, 2), .y = tigon_tensor_1d(memory, TIGON_F32, 2)};
  args to;
  assert_int_equal(check(*state, &pair_schema, &a, &to), TIGON_OK);
  api_expect(*state, tigon_check_workspace(*state, memory + 64, SIZE_MAX, 1), TIGON_ERROR_ALIAS,
             "test_call: workspace overlaps x, must be apart");
}

/* ---- relations ---- */

static void test_indices(void **state) {
  int32_t at[] = {0, -100, 3}, *flag;
  const tigon_tensor indices = tigon_tensor_1d(at, TIGON_I32, 3), none = {0};
  const tigon_dim limit = {"classes", NULL, 0};
  tigon_context *c = *state;
  c->checked = &pair_schema;
  c->shape_only = false;
  assert_int_equal(tigon_check_below(c, "i", &indices, 4, limit, true, -100, &none, &flag), TIGON_OK);
  api_expect(c, tigon_check_below(c, "i", &indices, 3, limit, true, -100, &none, &flag), TIGON_ERROR_INVALID,
             "test_call: i[2] is 3, must be 0 to 2 (classes - 1) or ignore_index");
  api_expect(c, tigon_check_below(c, "i", &indices, 4, limit, false, -100, &none, &flag), TIGON_ERROR_INVALID,
             "test_call: i[1] is -100, must be 0 to 3 (classes - 1)");
}

static void test_absent_vector(void **state) {
  const tigon_tensor none = {0}, x = tigon_tensor_1d(data, TIGON_F32, 3);
  assert_int_equal(tigon_check_vector(*state, "v", &none, 5, "why"), TIGON_OK);
  assert_int_equal(tigon_check_same_extent(*state, "v", &none, 0, (tigon_dim){"x", &x, 0}), TIGON_OK);
}

/* A list's element has a tensor whose dtype none before it gives; a field of the struct stands between. */
static void test_dtype_of_element(void **state) {
#define EACH(field, bits, to) \
  { AT(field), .shape = "?", .dtypes = ANY_DTYPE, .flags = bits, .as = 'T', .gives = to }
  static const tigon_field of[] = {EACH(x, TIGON_FIELD_EACH, 0), EACH(x, 0, 0), EACH(y, TIGON_FIELD_EACH, 'T')};
  static const tigon_schema schema = SCHEMA(of);
  tigon_context *c = *state;
  args a = {.x = tigon_tensor_1d(data, TIGON_F32, 2), .y = tigon_tensor_1d(data, TIGON_F32, 2)}, element = a;
  assert_int_equal(tigon_check_begin(c, &schema, &a), TIGON_OK);
  assert_int_equal(tigon_check_element(c, &a, &element, 1), TIGON_OK);
  element.x.dtype = TIGON_I32;
  api_expect(c, tigon_check_element(c, &a, &element, 1), TIGON_ERROR_INVALID,
             "test_call: x[1].dtype is i32, must be f32 (x[1].y.dtype)");
}

static void test_workspace_answers(void **state) {
  const tigon_tensor t = tigon_tensor_2d(NULL, TIGON_F32, 2, 4);
  const tigon_swiglu_fwd_args a = {.a = t, .b = t, .c = t};
  const tigon_schema *schema;
  for (int i = 0; (schema = tigon_schema_at(i)); ++i) {
    if (strcmp(schema->name, "swiglu_fwd") != 0) continue;
    size_t least = 5, good = 5;
    assert_int_equal(tigon_schema_workspace(i, *state, &a, NULL, &good), TIGON_OK);
    assert_int_equal(tigon_schema_workspace(i, *state, &a, &least, NULL), TIGON_OK);
    assert_true(least == 0 && good == 0);
    return;
  }
  fail();
}

/* ---- rows ---- */

static void test_rows(void **state) {
  const tigon_tensor none = {0};
  const tigon_tensor t[] = {{data, TIGON_F32, 4, {2, 3, 4, 5}, {1000, 100, 10, 1}},
                            {data, TIGON_F32, 6, {2, 2, 2, 2, 2, 1}, {32, 16, 7, 3, 1, 1}}};
  tigon_context *c = *state;
  tigon_row_space space;
  tigon_rows rows, others;
  int64_t pitch, count, cols = 5;
  c->checked = &pair_schema;
  assert_int_equal(TIGON_COLLAPSE(c, &space, {&none, &others}, {&t[0], &rows}), TIGON_OK);
  assert_true(space.rows == 24 && space.middle == 3 && space.inner == 4);
  assert_true(rows.pitch[0] == 1000 && rows.pitch[1] == 100 && rows.pitch[2] == 10 && !others.data);
  tigon_flatten(&space, &cols, (tigon_row_tensor[]){{&none, &others}, {&t[0], &rows}}, 2);
  assert_int_equal(cols, 5);
  const tigon_tensor dense = {data, TIGON_F32, 2, {6, 5}, {5, 1}};
  assert_int_equal(TIGON_COLLAPSE(c, &space, {&none, &others}, {&dense, &rows}), TIGON_OK);
  tigon_flatten(&space, &cols, (tigon_row_tensor[]){{&none, &others}, {&dense, &rows}}, 2);
  assert_true(cols == 30 && space.rows == 1);
  api_expect(c, TIGON_COLLAPSE(c, &space, {&t[1], &rows}), TIGON_ERROR_INVALID,
             "test_call: the leading dimensions collapse to 4 strides, must collapse to 3 or fewer");
  api_expect(c, TIGON_COLLAPSE_PITCHES(c, &count, {&t[0], &pitch}), TIGON_ERROR_INVALID,
             "test_call: the leading dimensions collapse to 3 strides, must collapse to 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_far_layouts),
                                     cmocka_unit_test(test_straight_strides),
                                     cmocka_unit_test(test_free_strides),
                                     cmocka_unit_test(test_same_view),
                                     cmocka_unit_test(test_lists_of_words),
                                     cmocka_unit_test(test_blocks),
                                     cmocka_unit_test(test_blocks_and_workspace),
                                     cmocka_unit_test(test_numbers),
                                     cmocka_unit_test(test_reserved),
                                     cmocka_unit_test(test_endless_workspace),
                                     cmocka_unit_test(test_indices),
                                     cmocka_unit_test(test_absent_vector),
                                     cmocka_unit_test(test_dtype_of_element),
                                     cmocka_unit_test(test_workspace_answers),
                                     cmocka_unit_test(test_rows)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
