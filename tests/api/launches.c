/* What an entry does with its launches, whose kernels are the CPU's. One that fails is named in the entry's error. A recorder is told
 * of each, and no memory is touched. A device whose memory the host does not read gets the same numbers. */
#include "api.h"
#include "core/context.h"
#include "views.h"

enum { ARENA = 1 << 18, ROOM = 1 << 17, MOST_LAUNCHES = 1 << 14 };

static _Alignas(64) char memory[ARENA + ROOM], numbers[ARENA + ROOM], before[ARENA + ROOM], want[ARENA];

/* ---- kernels that fail, after so many that do not ---- */

static const tigon_kernels *whole;
static int passing;

static bool passes(tigon_queue *queue) {
  if (passing-- > 0) return true;
  queue->reason = "the cable is out";
  return false;
}

#define TIGON_SLOT(op, entry)                                                                           \
  static tigon_status run_##op##_##entry(tigon_queue *queue, const tigon_##op##_##entry##_problem *p) { \
    return passes(queue) ? whole->op##_##entry.run(queue, p) : TIGON_ERROR_DEVICE;                      \
  }                                                                                                     \
  static int64_t bytes_##op##_##entry(tigon_queue *queue, const tigon_##op##_##entry##_problem *p) {    \
    return passes(queue) ? whole->op##_##entry.workspace(queue, p) : -(int64_t)TIGON_ERROR_SCRATCH;     \
  }
#include "ops.def"

static tigon_kernels failing_kernels(void) {
  tigon_kernels k = *whole;
#define TIGON_SLOT(op, entry)                                          \
  k.op##_##entry.run = k.op##_##entry.run ? run_##op##_##entry : NULL; \
  k.op##_##entry.workspace = k.op##_##entry.workspace ? bytes_##op##_##entry : NULL;
#include "ops.def"
  return k;
}

static long copies;

static tigon_status copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, int64_t rows) {
  if (!passes(queue)) return TIGON_ERROR_DEVICE;
  ++copies;
  for (int64_t r = 0; r < rows; ++r)
    memcpy((char *)to + (size_t)r * to_pitch, (const char *)from + (size_t)r * from_pitch, bytes);
  return TIGON_OK;
}

static void ignore(void *to, const tigon_launch *launch) { (void)launch, ++*(long *)to; }

/* ---- one call ---- */

static void (*change)(call *c); /* what no choice says of a call */

static tigon_status begin(call *c, tigon_context *context, int entry, const call_choices *how, size_t bytes) {
  memcpy(memory, numbers, sizeof memory);
  assert_true(call_make(c, entry, tigon_schema_at(entry), how, memory, ARENA) > 0);
  if (change) change(c);
  call_set_workspace(c, memory + ARENA, bytes);
  memcpy(before, memory, sizeof before);
  return call_run(c, context);
}

static void pass(call *c, tigon_context *context, int entry, const call_choices *how, size_t bytes) {
  passing = INT32_MAX;
  if (begin(c, context, entry, how, bytes) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

/* A launch fails, the first ones in turn and then at growing steps, until the call has no more of them. */
static void fail_each(tigon_context *context, int entry, const call_choices *how, size_t bytes) {
  call c;
  int n = 0;
  for (;; n += 1 + n / 16) {
    passing = n;
    const tigon_status status = begin(&c, context, entry, how, bytes);
    if (status == TIGON_OK && passing >= 0) break;
    const char *name = c.schema->op, *says = tigon_last_error(context);
    if ((status != TIGON_ERROR_DEVICE && status != TIGON_ERROR_SCRATCH) || !strstr(says, "the cable is out"))
      fail_msg("%s, launch %d: %s \"%s\"", name, n, tigon_status_name(status), says);
    if (n > MOST_LAUNCHES) fail_msg("%s never ends", name);
  }
}

/* The queries fail, too, where a kernel's own does. */
static void fail_queries(call *c, tigon_context *context, int entry) {
  size_t least, good;
  for (int n = 0;; ++n) {
    passing = n;
    least = good = 7;
    if (tigon_schema_workspace(entry, context, c->args, &least, &good) == TIGON_OK) return;
    assert_non_null(strstr(tigon_last_error(context), "the cable is out"));
    assert_true(least == 7);
  }
}

/* The outputs of another way: sums may be made in another order. */
static void compare(call *c) {
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1)) {
    const bool skipped = strcmp(v.field->name, "stats") == 0; /* rows whose label is ignored may differ */
    if (!(v.field->flags & TIGON_FIELD_OUT) || !v.x->data || skipped) continue;
    for (int64_t i = 0; i < count_of(v.x); ++i) {
      tigon_tensor other = *v.x;
      other.data = want + ((char *)v.x->data - memory);
      const double a = value_of(v.x, i), b = value_of(&other, i);
      if (!(fabs(a - b) <= 0.02 * (1 + fabs(b))) && !(isnan(a) && isnan(b)) && a != b)
        fail_msg("%s %s[%d] is %g, must be %g", c->schema->name, v.field->name, (int)i, a, b);
    }
  }
}

static void try_call(tigon_context *context, int entry, const call_choices *how, size_t bytes) {
  const tigon_backend *host = context->queue.backend;
  static tigon_kernels failing;
  failing = failing_kernels();
  tigon_backend device = *host;
  device.host_memory = false, device.copy_rows = copy_rows;
  long told = 0;
  call c;
  pass(&c, context, entry, how, bytes);
  memcpy(want, memory, sizeof want);
  context->queue.record = ignore, context->queue.record_to = &told;
  pass(&c, context, entry, how, bytes);
  context->queue.record = NULL;
  assert_memory_equal(memory, before, sizeof memory);
  if (told == 0 && !how->absent) fail_msg("%s launches nothing", c.schema->name);
  context->kernels = &failing;
  fail_each(context, entry, how, bytes);
  fail_queries(&c, context, entry);
  if (tigon_entry_at(entry)->composite) { /* a front of one kernel tells the CPU's what it read in the host's memory */
    context->queue.backend = &device;
    pass(&c, context, entry, how, bytes);
    compare(&c);
    fail_each(context, entry, how, bytes);
    tigon_kernels fewer = *whole; /* and one that has no products borrows them */
    fewer.linear_fwd.run = NULL, fewer.linear_bwd.run = NULL;
    const tigon_kernels *none = context->borrowed;
    context->kernels = &fewer, context->borrowed = whole, context->host = &context->queue;
    passing = INT32_MAX;
    pass(&c, context, entry, how, bytes);
    compare(&c);
    fewer = *whole, fewer.linear_bwd.dtypes = 0;
    pass(&c, context, entry, how, bytes);
    compare(&c);
    context->kernels = &failing, context->borrowed = none;
    device.copy_rows = NULL; /* a device may have none */
    pass(&c, context, entry, how, bytes);
    compare(&c);
    context->queue.backend = host;
  }
  context->kernels = whole;
}

static void test_launches(void **state) {
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  tigon_context *context = *state;
  const tigon_schema *schema;
  whole = context->kernels;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry)
    for (uint32_t turn = 0; turn < 4; ++turn) {
      call_choices how = usual(dtypes[turn % 2], 2);
      how.numbers = turn;
      if (turn > 1) how.absent = UINT64_MAX;
      size_t least = 0, good = 0;
      call c;
      memcpy(memory, numbers, sizeof memory);
      assert_true(call_make(&c, entry, schema, &how, memory, ARENA) > 0);
      assert_int_equal(tigon_schema_workspace(entry, context, c.args, &least, &good), TIGON_OK);
      assert_true(least <= good && good <= ROOM);
      try_call(context, entry, &how, least);
      if (good > least) try_call(context, entry, &how, good);
      if (good > least + 64) try_call(context, entry, &how, (least + good) / 2);
    }
}

/* Two pairs of a padded batch, with room for one of them in a chunk. A device puts the sides of each together, and gives dhidden back
 * through the memory of logits. dhidden is too wide for that, or the sums of all classes lie in the workspace, too. */
static int accumulates;

static void change_pairs(call *c) {
  tigon_fused_linear_preference_fwd_args *a = (void *)c->args;
  a->segments = (tigon_tensor){0};
  a->accumulate_dweight = accumulates;
}

static void test_pairs(void **state) {
  tigon_context *context = *state;
  const int entry = call_entry("fused_linear_preference_fwd");
  whole = context->kernels;
  change = change_pairs;
  for (int turn = 0; turn < 4; ++turn) {
    const bool wide = turn < 2;
    call_choices how = usual(wide ? TIGON_F32 : TIGON_BF16, 2);
    how.extents['b'] = how.extents['n'] = 4, how.extents['g'] = 2;
    how.extents['t'] = wide ? 2 : 70, how.extents['h'] = wide ? 1030 : 6, how.extents['v'] = wide ? 3 : 37;
    accumulates = turn % 2;
    size_t least = 0, good = 0;
    call c;
    assert_true(call_make(&c, entry, tigon_schema_at(entry), &how, memory, ARENA) > 0);
    change(&c);
    assert_int_equal(tigon_schema_workspace(entry, context, c.args, &least, &good), TIGON_OK);
    assert_true(least < good && good <= ROOM);
    copies = 0;
    try_call(context, entry, &how, good * 3 / 4);
    assert_int_equal(copies > 0, !wide);
    assert_int_equal(context->head.sums_bytes > 0, !wide);
  }
  change = NULL;
}

/* dhidden in the place of hidden, which panels of classes read until the last: it is made by a late pass, which fails, too. */
static void change_place(call *c) {
  tigon_fused_linear_cross_entropy_args *a = (void *)c->args;
  a->dhidden = a->hidden;
}

static void test_late(void **state) {
  tigon_context *context = *state;
  const int entry = call_entry("fused_linear_cross_entropy_fwd");
  const call_choices how = usual(TIGON_BF16, 2);
  whole = context->kernels;
  size_t least = 0;
  call c;
  assert_true(call_make(&c, entry, tigon_schema_at(entry), &how, memory, ARENA) > 0);
  assert_int_equal(tigon_schema_workspace(entry, context, c.args, &least, NULL), TIGON_OK);
  change = change_place;
  try_call(context, entry, &how, least);
  change = NULL;
}

/* A host skips tokens, whose dlogits a parked panel would not have. Only elsewhere they have an lse. */
static void change_label(call *c) {
  tigon_fused_linear_cross_entropy_args *a = (void *)c->args;
  a->options.has_ignore_index = 1;
  a->options.ignore_index = tigon_load_index(a->labels.data, 0, a->labels.dtype);
  a->out.lse = (tigon_tensor){0};
}

/* Chunks of a device are whole lines of rows: 64 of 140. The least workspace has no room for a panel that is parked, though dweight
 * has for four. */
static void test_lines(void **state) {
  tigon_context *context = *state;
  const int entry = call_entry("fused_linear_cross_entropy_fwd");
  whole = context->kernels;
  for (int turn = 0; turn < 4; ++turn) {
    const bool narrow = turn % 2;
    call_choices how = usual(TIGON_BF16, 2);
    how.extents['t'] = 70, how.extents['h'] = narrow ? 36 : 144;
    size_t least = 0, good = 0;
    call c;
    assert_true(call_make(&c, entry, tigon_schema_at(entry), &how, memory, ARENA) > 0);
    if (turn > 1) (change = change_label)(&c);
    assert_int_equal(tigon_schema_workspace(entry, context, c.args, &least, &good), TIGON_OK);
    assert_true(good <= ROOM);
    try_call(context, entry, &how, narrow ? least : good * 3 / 4);
  }
  change = NULL;
}

/* Gradients in bf16 by the sums of some columns, and of all beside one tile of all tokens. */
static void test_tiles(void **state) {
  tigon_context *context = *state;
  const int entry = call_entry("mlp_bwd");
  call_choices how = usual(TIGON_BF16, 2);
  how.extents['t'] = 300, how.extents['c'] = 20, how.gap = 64;
  whole = context->kernels;
  size_t least = 0, good = 0;
  call c;
  assert_true(call_make(&c, entry, tigon_schema_at(entry), &how, memory, ARENA) > 0);
  assert_int_equal(tigon_schema_workspace(entry, context, c.args, &least, &good), TIGON_OK);
  assert_true(good <= ROOM);
  pass(&c, context, entry, &how, ROOM);
  memcpy(want, memory, sizeof want);
  int64_t sums[2] = {INT64_MAX, 0}, rows = 0; /* the least and the most bytes, rows of the last tile beside the most */
  for (size_t bytes = least; bytes <= good; bytes += bytes < 4096 ? 64 : 1024) {
    pass(&c, context, entry, &how, bytes);
    compare(&c);
    const tigon_head_work *did = &context->head;
    if (did->sums_bytes > 0 && did->sums_bytes < sums[0]) sums[0] = did->sums_bytes;
    if (did->sums_bytes >= sums[1]) sums[1] = did->sums_bytes, rows = did->rows;
  }
  assert_true(sums[0] < sums[1] && rows == 600);
}

/* Without rows gradients of weights are cleared, which fails, too. */
static void test_no_rows(void **state) {
  tigon_context *context = *state;
  whole = context->kernels;
  const tigon_kernels failing = failing_kernels();
  call_choices how = usual(TIGON_F32, 2);
  how.extents['b'] = 0;
  const int entry = call_entry("mlp_bwd");
  context->kernels = &failing;
  fail_each(context, entry, &how, ROOM);
  context->kernels = whole;
}

int main(void) {
  fill_numbers(numbers, sizeof numbers);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_launches), cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_late),     cmocka_unit_test(test_lines),
                                     cmocka_unit_test(test_tiles),    cmocka_unit_test(test_no_rows)};
  setenv("TIGON_GEMM", "builtin", 1);
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
