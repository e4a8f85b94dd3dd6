/* Every entry with an extent of 0: the CPU writes what the oracle does, such as sums over nothing, and nothing else. A tensor
 * without an element has no address. */
#include "api.h"
#include "calls.h"
#include "core/half.h"

enum { ARENA = 1 << 17, ROOM = 1 << 16, TURNS = 12 };

static _Alignas(64) char memory[2][ARENA + ROOM], fresh[ARENA + ROOM], before[ARENA + ROOM];

static int64_t count_of(const tigon_tensor *t) {
  int64_t count = t->ndim > 0;
  for (int d = 0; d < t->ndim; ++d) count *= t->shape[d];
  return count;
}

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
  bool empty = false;
  for (int i = 0; i < schema->count; ++i)
    for (int e = 0; schema->fields[i].kind == TIGON_FIELD_TENSOR && e < call_values(&schema->fields[i]); ++e) {
      tigon_tensor *t = call_tensor(c, &schema->fields[i], e);
      empty = empty || (t->ndim && count_of(t) == 0);
      if (count_of(t) == 0) t->data = NULL;
      if (fresh_sums && arena == memory[1]) spoil(&schema->fields[i], t);
    }
  for (int i = 0; fresh_sums && i < schema->count; ++i)
    if (strncmp(schema->fields[i].name, "accumulate", 10) == 0) *(int *)call_field(c, &schema->fields[i], 0) = 0;
  return empty;
}

/* Equal but for rounding, where another extent was 0. */
static bool is_close(const tigon_tensor *a, const tigon_tensor *b) {
  for (int64_t i = 0; i < count_of(a); ++i) {
    const bool index = a->dtype == TIGON_I32 || a->dtype == TIGON_I64;
    const double x = index ? (double)tigon_load_index(a->data, i, a->dtype) : tigon_load_f64(a->data, i, a->dtype);
    const double y = index ? (double)tigon_load_index(b->data, i, b->dtype) : tigon_load_f64(b->data, i, b->dtype);
    if (x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= 0.01 * fabs(y))) return false;
  }
  return true;
}

/* Outputs of both calls are alike; then they get their bytes of before, and all memory must have these. */
static void compare(call calls[2]) {
  const tigon_schema *schema = calls[0].schema;
  for (int i = 0; i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    for (int e = 0; field->kind == TIGON_FIELD_TENSOR && e < call_values(field); ++e) {
      const tigon_tensor *a = call_tensor(&calls[0], field, e), *b = call_tensor(&calls[1], field, e);
      const size_t bytes = (size_t)count_of(a) * tigon_dtype_size(a->dtype);
      if (!a->data || !(field->flags & TIGON_FIELD_OUT)) continue;
      if (!is_close(a, b)) fail_msg("%s: %s differs", schema->name, field->name);
      for (int k = 0; k < 2; ++k) {
        char *data = k ? b->data : a->data;
        memcpy(data, before + (data - memory[k]), bytes);
      }
    }
  }
  for (int k = 0; k < 2; ++k)
    if (memcmp(memory[k], before, ARENA) != 0) fail_msg("%s: more than outputs was written", schema->name);
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
        call_choices how = {.dtype = turn % 2 ? TIGON_F32 : TIGON_BF16,
                            .leading = 1 + turn / 2 % 3,
                            .numbers = (uint32_t)turn,
                            .extents = {['s'] = 2,
                                        ['b'] = 2,
                                        ['t'] = 3,
                                        ['p'] = 7,
                                        ['k'] = 2,
                                        ['h'] = 4,
                                        ['d'] = 6,
                                        ['g'] = 3,
                                        ['n'] = 6,
                                        ['c'] = 20,
                                        ['v'] = 9}};
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
