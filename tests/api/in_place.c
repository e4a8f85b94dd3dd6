/* Every output that may lie over an input, as each entry's description says, gives the bits that it gives apart from it. */
#include "api.h"
#include "calls.h"

enum { ARENA = 1 << 17, ROOM = 1 << 16, OUTPUTS = 16 };

static _Alignas(64) char memory[ARENA + ROOM], fresh[ARENA + ROOM], apart[ARENA + ROOM];

/* Numbers in [-1, 1) as f32 and as bf16, small ones as f16. */
static void fill(void) {
  uint32_t state = 7;
  for (size_t i = 0; i < sizeof memory; i += 4) {
    state = state * 1664525u + 1013904223u;
    const float value = (float)(state >> 8) * 0x1p-23f - 1;
    uint32_t word;
    memcpy(&word, &value, 4);
    word = (word >> 16) * 0x10001u;
    memcpy(memory + i, &word, 4);
  }
}

static const tigon_field *named(const tigon_schema *schema, const char *name, size_t length) {
  for (int i = 0; i < schema->count; ++i)
    if (strlen(schema->fields[i].name) == length && strncmp(schema->fields[i].name, name, length) == 0)
      return &schema->fields[i];
  return NULL;
}

/* The k-th input that the output may lie over. */
static const tigon_field *place(const tigon_schema *schema, const tigon_field *out, int k) {
  const char *word = out->in_place;
  for (; word && *word; word += strcspn(word, " "), word += *word == ' ')
    if (k-- == 0) return named(schema, word, strcspn(word, " "));
  return NULL;
}
static int places(const tigon_schema *schema, const tigon_field *out) {
  int count = 0;
  while (place(schema, out, count)) ++count;
  return count;
}

/* The bytes of a view, which are those of another one at `at`. */
static bool same_bytes(const tigon_tensor *t, const char *a, const char *b) {
  const int64_t size = (int64_t)tigon_dtype_size(t->dtype);
  int64_t count = 1;
  for (int d = 0; d < t->ndim; ++d) count *= t->shape[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0, rest = i;
    for (int d = t->ndim - 1; d >= 0; --d) at += rest % t->shape[d] * t->strides[d], rest /= t->shape[d];
    if (memcmp(a + at * size, b + at * size, (size_t)size) != 0) return false;
  }
  return true;
}

typedef struct test {
  tigon_context *context;
  call apart; /* its outputs are in `apart` */
  const tigon_field *outs[OUTPUTS];
  int count;
  long done;
} test;

/* One choice of places; 0 is a place of its own. False where two outputs would have the same. */
static bool try_places(test *t, const int chosen[OUTPUTS]) {
  call c = t->apart;
  for (int i = 0; i < t->count; ++i) {
    const tigon_field *over = chosen[i] ? place(c.schema, t->outs[i], chosen[i] - 1) : NULL;
    for (int j = 0; over && j < i; ++j)
      if (chosen[j] && place(c.schema, t->outs[j], chosen[j] - 1) == over) return false;
    if (over) *call_tensor(&c, t->outs[i], 0) = *call_tensor(&c, over, 0);
  }
  memcpy(memory, fresh, sizeof memory);
  if (call_run(&c, t->context) != TIGON_OK) fail_msg("%s", tigon_last_error(t->context));
  for (int i = 0; i < t->count; ++i) {
    const tigon_tensor *x = call_tensor(&c, t->outs[i], 0), *must = call_tensor(&t->apart, t->outs[i], 0);
    if (x->data && !same_bytes(x, x->data, apart + ((char *)must->data - memory)))
      fail_msg("%s: %s differs in place %d", c.schema->name, t->outs[i]->name, chosen[i]);
  }
  ++t->done;
  return true;
}

static void try_call(test *t, int entry, const call_choices *how) {
  size_t bytes;
  fill();
  assert_true(call_make(&t->apart, entry, tigon_schema_at(entry), how, memory, ARENA) > 0);
  assert_int_equal(call_query(&t->apart, t->context, &bytes), TIGON_OK);
  assert_true(bytes <= ROOM);
  call_set_workspace(&t->apart, memory + ARENA, ROOM);
  memcpy(fresh, memory, sizeof memory);
  if (call_run(&t->apart, t->context) != TIGON_OK) fail_msg("%s", tigon_last_error(t->context));
  memcpy(apart, memory, sizeof memory);
  int chosen[OUTPUTS] = {0};
  for (int i = 0; i < t->count;) { /* count up, the first output fastest */
    if (chosen[i] < places(t->apart.schema, t->outs[i])) {
      ++chosen[i];
      try_places(t, chosen);
      i = 0;
    } else {
      chosen[i++] = 0;
    }
  }
}

static void test_in_place(void **state) {
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  const tigon_schema *schema;
  long calls = 0;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry) {
    test t = {.context = *state};
    bool any = false;
    for (int i = 0; i < schema->count; ++i) {
      const tigon_field *field = &schema->fields[i];
      if (field->kind != TIGON_FIELD_TENSOR || !(field->flags & TIGON_FIELD_OUT)) continue;
      assert_true(t.count < OUTPUTS);
      t.outs[t.count++] = field;
      any = any || field->in_place;
    }
    for (int turn = 0; any && turn < 18; ++turn) {
      const call_choices how = {.dtype = dtypes[turn % 3],
                                .leading = 1 + turn / 3 % 3,
                                .pad = turn / 9 * 3,
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
                                            ['c'] = 75,
                                            ['v'] = 37}};
      try_call(&t, entry, &how);
    }
    assert_true(!any || t.done > 0);
    calls += t.done;
  }
  print_message("%ld calls in place\n", calls);
  assert_true(calls > 500);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_place)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
