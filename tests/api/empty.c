/* Every entry with an extent of 0: the CPU writes what the oracle does and nothing else, and sums over no rows are 0. A tensor
 * without an element has no address. */
#include "views.h"

enum { ARENA = 1 << 17, ROOM = 1 << 16, TURNS = 12 };

static _Alignas(64) char memory[2][ARENA + ROOM], fresh[ARENA + ROOM], before[ARENA + ROOM];

/* Makes an output other than the other call's, so that the call must write it. It may leave alone the flag of an error, and
 * statistics of no elements. */
static void spoil(const tigon_field *field, tigon_tensor *t) {
  const bool flag = field->dtypes == 1u << TIGON_I32, updated = field->flags & TIGON_FIELD_EACH;
  const bool statistic = strcmp(field->name, "mean") == 0 || strcmp(field->name, "rstd") == 0;
  if (field->flags & TIGON_FIELD_OUT && t->data && !flag && !updated && !statistic)
    memset(t->data, 0x11, (size_t)count_of(t) * tigon_dtype_size(t->dtype));
}

/* Makes the call in its own memory; is a tensor of it empty? With `fresh_sums` it adds to no output. */
static bool make(call *c, int entry, const call_choices *how, char *arena, bool fresh_sums) {
  memcpy(arena, fresh, sizeof fresh);
  const tigon_schema *schema = tigon_schema_at(entry);
  assert_true(call_make(c, entry, schema, how, arena, ARENA) > 0);
  call_set_workspace(c, arena + ARENA, ROOM);
  const tigon_field *field;
  tigon_tensor *t;
  bool empty = false;
  for (int k = 0; (t = tensor_at(c, k, &field)); ++k) {
    empty = empty || (t->ndim && count_of(t) == 0);
    if (count_of(t) == 0) t->data = NULL;
    if (fresh_sums && arena == memory[1]) spoil(field, t);
  }
  for (int i = 0; fresh_sums && i < schema->count; ++i)
    if (strncmp(schema->fields[i].name, "accumulate", 10) == 0) *(int *)call_field(c, &schema->fields[i], 0) = 0;
  return empty;
}

/* Is there no row at all? A factor is of the norm, not a sum; flags are raised or left alone. */
static bool sums_nothing(call *c, const tigon_field *out) {
  const tigon_field *field;
  const tigon_tensor *t = NULL;
  for (int k = 0; (t = tensor_at(c, k, &field)) && field->shape[0] != '*';) ++k;
  int64_t rows = 1;
  for (int d = 0; t && d <= t->ndim - (int)strlen(field->shape); ++d) rows *= t->shape[d];
  return rows == 0 && out->dtypes != 1u << TIGON_I32 && strcmp(out->name, "factor") != 0;
}

/* Is the output a gradient that is added to? One that no flag is named after has the last flag. */
static bool accumulates(call *c, const tigon_field *out) {
  bool last = false;
  for (int i = 0; i < c->schema->count; ++i) {
    const tigon_field *field = &c->schema->fields[i];
    if (strncmp(field->name, "accumulate_", 11) != 0) continue;
    last = *(int *)call_field(c, field, 0);
    if (strcmp(field->name + 11, out->name) == 0) break;
  }
  return last && out->name[0] == 'd';
}

/* Outputs of both calls are alike; then they get their bytes of before, and all memory must have these. */
static void compare(call calls[2]) {
  const char *name = calls[0].schema->name;
  const tigon_field *field;
  tigon_tensor *a, *b;
  for (int k = 0; (a = tensor_at(&calls[0], k, &field)); ++k) {
    b = tensor_at(&calls[1], k, &field);
    if (!a->data || !(field->flags & TIGON_FIELD_OUT)) continue;
    const bool nothing = sums_nothing(&calls[0], field), stays = accumulates(&calls[0], field);
    for (int64_t i = 0; i < count_of(a); ++i) {
      const char *is = element_of(a, i), *was = before + (is - memory[0]);
      if (!is_close(a, b, i)) fail_msg("%s: %s differs", name, field->name);
      if (nothing && memcmp(is, stays ? was : (const char *)&(uint64_t){0}, (size_t)size_of(a)) != 0)
        fail_msg("%s: %s is no sum over nothing", name, field->name);
    }
    const size_t bytes = (size_t)(count_of(a) * size_of(a));
    memcpy(a->data, before + ((char *)a->data - memory[0]), bytes);
    memcpy(b->data, before + ((char *)b->data - memory[1]), bytes);
  }
  for (int k = 0; k < 2; ++k)
    if (memcmp(memory[k], before, ARENA) != 0) fail_msg("%s: more than outputs was written", name);
}

static void test_empty(void **state) {
  tigon_context *contexts[2] = {*state, NULL};
  const tigon_context_desc oracle = {.device = "ref"};
  assert_int_equal(tigon_context_create(&oracle, &contexts[1]), TIGON_OK);
  for (size_t i = 0; i < sizeof fresh / 4; ++i) memcpy(fresh + 4 * i, &(uint32_t){0x3f003f00u + (uint32_t)(i % 89)}, 4);
  for (int entry = 0; tigon_schema_at(entry); ++entry) {
    long taken = 0;
    for (int turn = 0; turn < TURNS; ++turn)
      for (const char *letter = "bstkdgncvh"; *letter; ++letter) {
        call_choices how = usual(turn % 2 ? TIGON_F32 : TIGON_BF16, 1 + turn / 2 % 3);
        how.numbers = (uint32_t)turn;
        how.extents[(int)*letter] = 0;
        static call calls[2];
        tigon_status got[2];
        bool empty = false;
        for (int k = 0; k < 2; ++k) {
          empty = make(&calls[k], entry, &how, memory[k], turn % 3 > 0);
          if (k == 0) memcpy(before, memory[k], sizeof before);
          got[k] = call_run(&calls[k], contexts[k]);
        }
        assert_int_equal(got[0], got[1]);
        if (!empty || got[0] != TIGON_OK) continue;
        ++taken;
        compare(calls);
      }
    print_message("%s: %ld empty calls\n", tigon_schema_at(entry)->name, taken);
    assert_true(taken >= TURNS);
  }
  tigon_context_destroy(contexts[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_empty)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
