/* The description of an entry covers its struct: no byte is two fields', and only padding is nobody's. */
#include "api/api.h"
#include "core/blocks.h"

enum { MOST = 64 };

static size_t bytes_of(const tigon_field *field) {
  switch (field->kind) {
    case TIGON_FIELD_TENSOR: return sizeof(tigon_tensor);
    case TIGON_FIELD_WORKSPACE: return sizeof(void *) + sizeof(size_t);
    case TIGON_FIELD_LIST: return sizeof(void *) + sizeof(int64_t);
    case TIGON_FIELD_DOUBLE: return sizeof(double);
    case TIGON_FIELD_INT64: return sizeof(int64_t);
    case TIGON_FIELD_INT: return sizeof(int);
    case TIGON_FIELD_BLOCKS: return sizeof(void *);
    case TIGON_FIELD_RESERVED: break;
  }
  return 4 * sizeof(uint64_t);
}

static int by_offset(const void *a, const void *b) {
  const tigon_field *const *x = a, *const *y = b;
  return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* An int leaves 4 bytes before what is aligned to 8; nothing else leaves any. */
static void check_covered(const tigon_schema *schema, bool each, size_t bytes) {
  const tigon_field *fields[MOST];
  int count = 0;
  for (int i = 0; i < schema->count; ++i)
    if (!!(schema->fields[i].flags & TIGON_FIELD_EACH) == each) fields[count++] = &schema->fields[i];
  qsort(fields, (size_t)count, sizeof *fields, by_offset);
  size_t end = 0;
  for (int i = 0; i <= count; ++i) {
    const bool after_int = i > 0 && fields[i - 1]->kind == TIGON_FIELD_INT;
    const size_t next = i < count ? fields[i]->offset : bytes, gap = next - end;
    if (next < end || gap > 0)
      if (gap != 4 || !after_int || next % 8 != 0)
        fail_msg("%s: %s begins at byte %zu, must begin at %zu", schema->name, i < count ? fields[i]->name : "the end",
                 next, end);
    if (i < count) end = next + bytes_of(fields[i]);
  }
}

static void test_structs_are_covered(void **state) {
  (void)state;
  const tigon_schema *schema;
  for (int i = 0; (schema = tigon_schema_at(i)); ++i) {
    assert_true(schema->count > 0 && schema->count <= MOST);
    check_covered(schema, false, schema->bytes);
    if (schema->element_bytes) check_covered(schema, true, schema->element_bytes);
  }
}

/* What others count on: names once each, a list first, `reserved` last and a workspace before it. */
static void test_order(void **state) {
  (void)state;
  const tigon_schema *schema;
  for (int i = 0; (schema = tigon_schema_at(i)); ++i) {
    int blocks = 0;
    assert_string_equal(schema->fields[schema->count - 1].name, "reserved");
    for (int f = 0; f < schema->count; ++f) {
      const tigon_field *field = &schema->fields[f];
      if (field->kind == TIGON_FIELD_LIST) assert_true(f == 0 && schema->element_bytes > 0);
      blocks += field->kind == TIGON_FIELD_BLOCKS;
      if (field->kind == TIGON_FIELD_WORKSPACE) assert_int_equal(f, schema->count - 2);
      for (int g = 0; g < f; ++g)
        if (strcmp(schema->fields[g].name, field->name) == 0) assert_true(g == 0 && schema->element_bytes > 0);
      for (const char *word = field->in_place; word && *word; word += strspn(word, " ")) { /* a tensor that is read */
        const size_t length = strcspn(word, " ");
        bool found = false;
        for (int g = 0; g < schema->count; ++g)
          found =
              found || (strlen(schema->fields[g].name) == length && !strncmp(schema->fields[g].name, word, length) &&
                        schema->fields[g].kind == TIGON_FIELD_TENSOR && !(schema->fields[g].flags & TIGON_FIELD_OUT));
        assert_true(found);
        word += length;
      }
    }
    assert_true(blocks <= TIGON_MAX_BLOCKS);
  }
  assert_null(tigon_schema_at(-1));
  const tigon_status status = tigon_schema_call(-1, NULL, NULL);
  assert_int_equal(status, TIGON_ERROR_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_structs_are_covered), cmocka_unit_test(test_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
