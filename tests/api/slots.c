/* Kernels that a device lacks: an entry that needs one is refused and writes nothing, one that another backend lends gives the
 * same bits. The tables are the CPU's, less some slots. */
#include "api.h"
#include "core/context.h"
#include "views.h"

enum { ARENA = 1 << 18, ROOM = 1 << 17 };

static _Alignas(64) char memory[ARENA + ROOM], numbers[ARENA + ROOM], want[ARENA], before[ARENA];

enum {
#define TIGON_SLOT(op, entry) op##_##entry##_slot,
#include "ops.def"
  SLOTS
};

/* Takes the i-th slot's kernel away, or its dtypes. */
static void lose(tigon_kernels *kernels, int i, bool dtypes) {
  switch (i) {
#define TIGON_SLOT(op, entry)                      \
  case op##_##entry##_slot:                        \
    if (!dtypes) kernels->op##_##entry.run = NULL; \
    if (dtypes) kernels->op##_##entry.dtypes = 0;  \
    return;
#include "ops.def"
    default: return;
  }
}

static size_t room; /* bytes of the workspace */

/* The call from the beginning. */
static tigon_status begin(call *c, tigon_context *context, int entry, const call_choices *how) {
  memcpy(memory, numbers, sizeof memory);
  assert_true(call_make(c, entry, tigon_schema_at(entry), how, memory, ARENA) > 0);
  call_set_workspace(c, memory + ARENA, room);
  memcpy(before, memory, sizeof before);
  return call_run(c, context);
}

/* Is it refused for want of a kernel, with nothing written? Else it has passed. */
static bool is_refused(call *c, tigon_context *context, tigon_status got) {
  if (got == TIGON_OK) return false;
  if (got != TIGON_ERROR_UNSUPPORTED || !strstr(tigon_last_error(context), "has no kernel for"))
    fail_msg("%s_%s: %s", c->schema->op, c->schema->entry, tigon_last_error(context));
  assert_memory_equal(memory, before, sizeof before);
  return true;
}

/* The entry without each slot, which then may be lent. Returns how many times it was refused. */
static int try_entry(tigon_context *context, int entry, const call_choices *how, bool dtypes) {
  const tigon_kernels *whole = context->kernels, *none = context->borrowed;
  static tigon_kernels fewer;
  call c;
  int refused = 0;
  if (begin(&c, context, entry, how) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  memcpy(want, memory, sizeof want);
  context->kernels = &fewer;
  context->host = &context->queue;
  for (int i = 0; i < SLOTS; ++i) {
    fewer = *whole;
    lose(&fewer, i, dtypes);
    if (!is_refused(&c, context, begin(&c, context, entry, how))) continue;
    ++refused;
    size_t bytes;
    const tigon_status asked = call_query(&c, context, &bytes);
    assert_true(asked == TIGON_OK || asked == TIGON_ERROR_UNSUPPORTED);
    context->borrowed = &fewer;
    assert_true(is_refused(&c, context, begin(&c, context, entry, how)));
    context->borrowed = whole;
    if (!is_refused(&c, context, begin(&c, context, entry, how))) assert_memory_equal(memory, want, sizeof want);
    context->borrowed = none;
  }
  context->kernels = whole;
  return refused;
}

static void test_slots(void **state) {
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  const tigon_schema *schema;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry) {
    int refused = 0;
    for (uint32_t turn = 0; turn < 6; ++turn) {
      call_choices how = usual(dtypes[turn % 3], 1 + (int)turn % 2);
      how.numbers = turn;
      if (turn > 2) how.absent = UINT64_MAX;
      room = ROOM;
      refused += try_entry(*state, entry, &how, turn % 2);
      call c;
      assert_true(call_make(&c, entry, schema, &how, memory, ARENA) > 0);
      assert_int_equal(tigon_schema_workspace(entry, *state, c.args, &room, NULL), TIGON_OK);
      for (int lost = 0; turn == 1 && tigon_entry_at(entry)->composite && lost < 2; ++lost)
        refused += try_entry(*state, entry, &how, lost); /* panels have other slots */
    }
    if (refused == 0) fail_msg("%s_%s needs no kernel", schema->op, schema->entry);
  }
}

/* The activation of an mlp says which kernels it needs. */
static void test_activations(void **state) {
  tigon_context *context = *state;
  const int entry = call_entry("mlp_bwd");
  room = ROOM;
  unsigned done = 0;
  for (uint32_t turn = 0; done != 7; ++turn) {
    call_choices how = usual(TIGON_F32, 2);
    how.numbers = turn;
    call c;
    assert_true(call_make(&c, entry, tigon_schema_at(entry), &how, memory, ARENA) > 0);
    const unsigned act = 1u << *(int *)call_field(&c, call_find(&c, "act"), 0);
    for (int lost = 0; !(done & act) && lost < 2; ++lost)
      assert_int_equal(try_entry(context, entry, &how, lost), 4); /* two of linear, two of the activation */
    done |= act;
  }
}

/* What a kernel says that it needs is asked of the caller. */
static int64_t some_bytes(tigon_queue *queue, const tigon_linear_bwd_problem *p) { return (void)queue, (void)p, 192; }

static void test_linear_workspace(void **state) {
  tigon_context *context = *state;
  const tigon_kernels *whole = context->kernels;
  tigon_kernels needy = *whole;
  needy.linear_bwd.workspace = some_bytes;
  const call_choices how = usual(TIGON_F32, 2);
  size_t bytes = 0;
  call c;
  const int entry = call_entry("linear_bwd");
  context->kernels = &needy;
  room = 191;
  api_expect(context, begin(&c, context, entry, &how), TIGON_ERROR_WORKSPACE,
             "linear_bwd: workspace_bytes is 191, must be 192 or more");
  assert_memory_equal(memory, before, sizeof before);
  assert_int_equal(call_query(&c, context, &bytes), TIGON_OK);
  assert_int_equal(bytes, 192);
  room = 192;
  assert_int_equal(begin(&c, context, entry, &how), TIGON_OK);
  context->kernels = whole;
}

int main(void) {
  fill_numbers(numbers, sizeof numbers);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_slots), cmocka_unit_test(test_activations),
                                     cmocka_unit_test(test_linear_workspace)};
  setenv("TIGON_GEMM", "builtin", 1);
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
