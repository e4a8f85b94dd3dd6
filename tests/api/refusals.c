/* Every entry refuses every wrong argument with one exact sentence and writes nothing. What is wrong is read from the entry's
 * description; the sentences are this program's own. tests/api/schemas.txt holds the descriptions. */
#include "relations.h"

enum { ARENA = 1 << 18, ROOM = 1 << 16 };

static _Alignas(64) char memory[ARENA + ROOM], before[ARENA + ROOM]; /* tensors, then the workspace */
static char *const workspace = memory + ARENA;

/* The calls of one entry, and what went wrong with them. */
typedef struct test {
  tigon_context *context;
  call legal;
  size_t workspace_bytes;
  long done, wrong;
  bool quiet;
} test;

/* ---- one refusal ---- */

/* The call must fail with this sentence, which the entry's name begins. */
static void refuse(test *t, const call *changed, tigon_status status, const char *format, ...) {
  char sentence[SENTENCE];
  int used = snprintf(sentence, sizeof sentence, "%s: ", changed->schema->name);
  va_list list;
  va_start(list, format);
  vsnprintf(sentence + used, sizeof sentence - (size_t)used, format, list);
  va_end(list);
  call c = *changed;
  const tigon_status got = call_run(&c, t->context);
  const bool written = memcmp(memory, before, sizeof memory) != 0;
  ++t->done;
  if (got == status && strcmp(tigon_last_error(t->context), sentence) == 0 && !written) return;
  ++t->wrong;
  if (written) memcpy(memory, before, sizeof memory);
  if (!t->quiet)
    print_error("got %s \"%s\"%s\nmust %s \"%s\"\n", tigon_status_name(got), got ? tigon_last_error(t->context) : "",
                written ? ", and memory was written" : "", tigon_status_name(status), sentence);
}
#define REFUSE(...) refuse(t, &c, TIGON_ERROR_INVALID, __VA_ARGS__)

/* The call must succeed; memory is then as before. */
static void accept(test *t, call *c, const char *what) {
  ++t->done;
  if (call_run(c, t->context) != TIGON_OK) {
    ++t->wrong;
    if (!t->quiet) print_error("%s\nmust be taken: %s\n", tigon_last_error(t->context), what);
  }
  memcpy(memory, before, sizeof memory);
}

/* The changed call is refused as the model says; where it finds nothing wrong, the call is left alone. */
static void refuse_relation(test *t, call *c) {
  model m;
  if (wrong_relation(&m, c, false) || wrong_relation(&m, c, true)) refuse(t, c, TIGON_ERROR_INVALID, "%s", m.sentence);
}

/* ---- one tensor ---- */

/* "f32, f16, bf16" */
static const char *allowed(const tigon_field *field, char names[NAME]) {
  names[0] = 0;
  for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_I8; ++dtype) {
    if (!(field->dtypes >> dtype & 1)) continue;
    if (names[0]) strcat(names, ", ");
    strcat(names, tigon_dtype_name(dtype));
  }
  return names;
}

static void refuse_tensor(test *t, const tigon_field *field) {
  call c = t->legal;
  tigon_tensor *x = call_tensor(&c, field, CALL_ELEMENTS - 1);
  const tigon_tensor good = *x;
  const char *name = name_of(c.schema, field, (char[NAME]){0}), *dtypes = allowed(field, (char[NAME]){0});
#define WITH(change, ...) (*x = good, change, REFUSE(__VA_ARGS__))
  if (!(field->flags & TIGON_FIELD_OPTIONAL)) WITH(memset(x, 0, sizeof *x), "%s is absent", name);
  WITH(x->data = NULL, "%s.data is NULL", name);
  if (size_of(&good) > 1)
    WITH(x->data = (char *)x->data + 1, "%s.data is not aligned to %d bytes (%s)", name, (int)size_of(&good),
         tigon_dtype_name(good.dtype));
  const int odd_ndims[] = {9, -1, 0};
  for (int i = 0; i < 3; ++i) WITH(x->ndim = odd_ndims[i], "%s.ndim is %d, must be 1 to 8", name, odd_ndims[i]);
  for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_I8; ++dtype)
    if (!(field->dtypes >> dtype & 1))
      WITH(x->dtype = dtype, "%s.dtype is %s, must be %s", name, tigon_dtype_name(dtype), dtypes);
  const int odd_dtypes[] = {0, 8, 31, 32, 99, -1};
  for (int i = 0; i < 6; ++i)
    WITH(x->dtype = (tigon_dtype)odd_dtypes[i], "%s.dtype is %d, must be %s", name, odd_dtypes[i], dtypes);
  const bool many = count_of(&good) > good.shape[0];
  WITH(x->shape[0] = INT64_MAX,
       many ? "%s has more elements than 64 bits count" : "%s reaches further than 64 bits address", name);
  for (int d = 0; d < good.ndim; ++d) {
    WITH(x->shape[d] = -1, "%s.shape[%d] is -1, must be >= 0", name, d);
    WITH(x->strides[d] = -1, "%s.strides[%d] is -1, must be >= 0", name, d);
    const bool last = d == good.ndim - 1, dense = field->flags & TIGON_FIELD_CONTIGUOUS;
    if (good.shape[d] < 2) continue;
    if (dense)
      WITH(x->strides[d] += 1, "%s.strides[%d] is %d, must be %d (contiguous)", name, d, (int)good.strides[d] + 1,
           (int)good.strides[d]);
    else if (!last)
      WITH(x->strides[d] = INT64_MAX, "%s reaches further than 64 bits address", name);
    else if (!(field->flags & TIGON_FIELD_FREE_LAST) || good.ndim != 2)
      WITH(x->strides[d] = 2, "%s.strides[%d] is 2, must be 1", name, d);
  }
#undef WITH
}

/* Each extent one off, one dimension more and less, each dtype that the field may have. */
static void refuse_relations(test *t, const tigon_field *field) {
  call c = t->legal;
  tigon_tensor *x = call_tensor(&c, field, CALL_ELEMENTS - 1);
  tigon_tensor good = *x;
  memset(good.strides, 0, sizeof good.strides); /* they follow from the shape */
#define WITH(change) (*x = good, change, refuse_relation(t, &c))
  for (int dtype = TIGON_F32; dtype <= TIGON_BF16; ++dtype)
    if (field->dtypes >> dtype & 1 && !field->below) WITH(x->dtype = (tigon_dtype)dtype);
  if (field->shape[0] == '?') return;
  for (int d = 0; d < good.ndim; ++d)
    for (int by = -1; by <= 1; by += 2) WITH(x->shape[d] += by);
  WITH(x->shape[x->ndim++] = 1);
  if (good.ndim > 1) WITH(--x->ndim);
#undef WITH
}

/* ---- memory that tensors share ---- */

/* One output over another tensor. */
static void refuse_pair(test *t, const tigon_field *out, const tigon_field *other) {
  call c = t->legal;
  tigon_tensor *x = call_tensor(&c, out, CALL_ELEMENTS - 1), *y = call_tensor(&c, other, CALL_ELEMENTS - 1);
  const bool swap =
      other->flags & TIGON_FIELD_OUT && other < out; /* the sentence names the first of two outputs first */
  const tigon_field *first = swap ? other : out, *second = swap ? out : other;
  const char *first_name = name_of(c.schema, first, (char[NAME]){0});
  const char *second_name = name_of(c.schema, second, (char[NAME]){0});
  const bool in_place = has_word(first->in_place, second->name);
  const char *how = in_place ? " in part, must be the same view or apart" : ", must be apart";
  char *const data = y->data;
  if (count_of(x) > 1) {
    x->data = data - (count_of(x) - 1) * size_of(x); /* the last element of the one on the first of the other */
    refuse(t, &c, TIGON_ERROR_ALIAS, "%s overlaps %s%s", first_name, second_name, how);
  }
  x->data = data;
  if (in_place && memcmp(x, y, sizeof *x) == 0)
    accept(t, &c, first_name);
  else
    refuse(t, &c, TIGON_ERROR_ALIAS, "%s overlaps %s%s", first_name, second_name, how);
}

static void refuse_overlap(test *t, const tigon_field *field) {
  call c = t->legal;
  const char *name = name_of(c.schema, field, (char[NAME]){0});
  tigon_tensor *x = call_tensor(&c, field, CALL_ELEMENTS - 1);
  if (field->flags & TIGON_FIELD_OUT) {
    for (int i = 0; i < c.schema->count; ++i) {
      const tigon_field *other = &c.schema->fields[i];
      if (other != field && other->kind == TIGON_FIELD_TENSOR && call_tensor(&c, other, CALL_ELEMENTS - 1)->data)
        refuse_pair(t, field, other);
    }
    if (!(field->flags & TIGON_FIELD_CONTIGUOUS)) {
      x->strides[0] = 0;
      refuse(t, &c, TIGON_ERROR_ALIAS, "%s overlaps itself, its strides must keep elements apart", name);
    }
  }
  if (!t->workspace_bytes) return;
  c = t->legal;
  x->data = workspace + (size_of(x) < (int64_t)t->workspace_bytes ? t->workspace_bytes - (size_t)size_of(x) : 0);
  refuse(t, &c, TIGON_ERROR_ALIAS, "workspace overlaps %s, must be apart", name);
}

/* ---- what is no tensor ---- */

static void refuse_double(test *t, const tigon_field *field) {
  call c = t->legal;
  const char *name = name_of(c.schema, field, (char[NAME]){0});
  double *at = call_field(&c, field, CALL_ELEMENTS - 1);
  const bool below = field->flags & TIGON_FIELD_BELOW_HIGH;
  const double values[] = {
      (double)NAN, (double)INFINITY, -(double)INFINITY, field->low - 1, field->high, 2 * field->high, 1e39, -1e39, 0};
  for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
    *at = values[i];
    if (values[i] >= field->low && (below ? values[i] < field->high : values[i] <= field->high)) continue;
    if (values[i] == 0 && field->flags & TIGON_FIELD_OR_ZERO) continue;
    if (below)
      REFUSE("%s is %g, must be at least %g and less than %g", name, values[i], field->low, field->high);
    else
      REFUSE("%s is %g, must be %g to %g", name, values[i], field->low, field->high);
  }
}

static void refuse_integer(test *t, const tigon_field *field) {
  call c = t->legal;
  void *at = call_field(&c, field, 0);
  const bool wide = field->kind == TIGON_FIELD_INT64, no_limit = isinf(field->high);
  const int low = (int)field->low, high = no_limit ? 0 : (int)field->high;
  const int64_t values[] = {low - 1, wide ? INT64_MIN : INT32_MIN, high + 1, wide ? INT64_MAX : INT32_MAX};
  for (int i = 0; i < (no_limit ? 2 : 4); ++i) {
    memcpy(at, &values[i], wide ? sizeof(int64_t) : sizeof(int));
    if (no_limit)
      REFUSE("%s is %" PRId64 ", must be >= %d", field->name, values[i], low);
    else
      REFUSE("%s is %" PRId64 ", must be %d %s %d", field->name, values[i], low,
             field->flags & TIGON_FIELD_IS_FLAG ? "or" : "to", high);
  }
}

static void refuse_divisor(test *t, const tigon_field *field) {
  call c = t->legal;
  const int64_t extent = call_tensor(&c, c.schema->fields, 0)->shape[1]; /* that it divides */
  const int64_t values[] = {0, -1, INT64_MIN, extent - 1, extent + 1};
  for (int i = 0; i < 5; ++i) {
    *(int64_t *)call_field(&c, field, 0) = values[i];
    refuse_relation(t, &c);
  }
}

static void refuse_list(test *t, const tigon_field *field) {
  call c = t->legal;
  call_list *list = call_field(&c, field, 0);
  list->elements = NULL;
  REFUSE("%s is NULL", field->name);
  list->count = 0;
  accept(t, &c, "an empty list");
  list->count = -1;
  REFUSE("count is -1, must be >= 0");
  list->count = INT64_MIN;
  REFUSE("count is -9223372036854775808, must be >= 0");
}

static void refuse_reserved(test *t, const tigon_field *field) {
  for (int i = 0; i < 4; ++i) {
    call c = t->legal;
    ((uint64_t *)call_field(&c, field, 0))[i] = 7;
    REFUSE("%s[%d] is 7, must be 0", field->name, i);
  }
}

static void refuse_workspace(test *t) {
  call c = t->legal;
  const size_t bytes = t->workspace_bytes;
  if (!bytes) return;
  call_set_workspace(&c, NULL, bytes);
  refuse(t, &c, TIGON_ERROR_WORKSPACE, "workspace is NULL, must have %zu bytes", bytes);
  call_set_workspace(&c, workspace, bytes - 1);
  refuse(t, &c, TIGON_ERROR_WORKSPACE, "workspace_bytes is %zu, must be %zu or more", bytes - 1, bytes);
  call_set_workspace(&c, workspace, 0);
  refuse(t, &c, TIGON_ERROR_WORKSPACE, "workspace_bytes is 0, must be %zu or more", bytes);
  for (int by = 1; by < 64; by += 31) {
    call_set_workspace(&c, workspace + by, bytes);
    refuse(t, &c, TIGON_ERROR_WORKSPACE, "workspace is not aligned to 64 bytes");
  }
}

static void refuse_field(test *t, const tigon_field *field) {
  switch (field->kind) {
    case TIGON_FIELD_TENSOR:
      if (!call_tensor(&t->legal, field, CALL_ELEMENTS - 1)->data) return; /* one that this call may not have */
      refuse_tensor(t, field);
      refuse_relations(t, field);
      refuse_overlap(t, field);
      return;
    case TIGON_FIELD_DOUBLE: refuse_double(t, field); return;
    case TIGON_FIELD_INT:
    case TIGON_FIELD_INT64:
      if (field->divides)
        refuse_divisor(t, field);
      else if (field->low != 0 || field->high != 0)
        refuse_integer(t, field);
      return;
    case TIGON_FIELD_LIST: refuse_list(t, field); return;
    case TIGON_FIELD_RESERVED: refuse_reserved(t, field); return;
    case TIGON_FIELD_WORKSPACE: refuse_workspace(t); return;
    case TIGON_FIELD_BLOCKS: return; /* tests/api/attn_res.c */
  }
}

/* ---- indices ---- */

/* The legal call has no flag for them. Not where only an operator's header says which extent is theirs. */
static void refuse_indices(test *t, const tigon_field *field) {
  call c = t->legal;
  model m;
  assert_false(wrong_relation(&m, &c, false));
  const tigon_tensor *x = call_tensor(&c, field, 0);
  const fact *limit = &m.letters[(int)field->below];
  if (!limit->known) return;
  const int last = (int)count_of(x) - 1;
  const int64_t values[] = {limit->extent, -1, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 4; ++i) {
    const int32_t value = (int32_t)values[i];
    ((int32_t *)x->data)[last] = value;
    memcpy(before, memory, sizeof memory);
    REFUSE("%s[%d] is %d, must be 0 to %d (%s - 1)", field->name, last, value, (int)limit->extent - 1, limit->why);
  }
}

/* ---- an entry ---- */

/* No tensor takes more than the gap. */
static call_choices choices(tigon_dtype dtype, int leading) {
  call_choices how = usual(dtype, leading);
  how.extents['c'] = how.extents['v'] = 5;
  return how;
}

static void make(test *t, int entry, const tigon_schema *schema, const call_choices *how) {
  assert_true(call_make(&t->legal, entry, schema, how, memory, ARENA) > 0);
  assert_int_equal(call_query(&t->legal, t->context, &t->workspace_bytes), TIGON_OK);
  assert_true(t->workspace_bytes <= ROOM);
  call_set_workspace(&t->legal, workspace, t->workspace_bytes);
  memcpy(before, memory, sizeof memory);
}

/* All that one call can have wrong, and that it is taken as it is and without each tensor that may be absent. */
static void try_call(test *t, int entry, const tigon_schema *schema, call_choices how) {
  for (int i = 0; i < schema->count; ++i) {
    how.absent = schema->fields[i].flags & TIGON_FIELD_OPTIONAL ? UINT64_C(1) << i : 0;
    how.wide = UINT64_C(1) << i;
    make(t, entry, schema, &how);
    accept(t, &t->legal, schema->name);
  }
  how.absent = how.wide = 0;
  make(t, entry, schema, &how);
  for (int i = 0; i < schema->count; ++i) refuse_field(t, &schema->fields[i]);
  for (int i = 0; i < schema->count; ++i) how.absent |= (uint64_t)is_error_flag(&schema->fields[i]) << i;
  for (int i = 0; i < schema->count; ++i) {
    if (!schema->fields[i].below) continue;
    make(t, entry, schema, &how);
    refuse_indices(t, &schema->fields[i]);
  }
}

static void test_every_entry(void **state) {
  const tigon_schema *schema;
  for (int i = 0; (schema = tigon_schema_at(i)); ++i) {
    test t = {.context = *state};
    for (int leading = 1; leading <= 3; ++leading) {
      try_call(&t, i, schema, choices(TIGON_F32, leading));
      try_call(&t, i, schema, choices(TIGON_BF16, leading));
    }
    print_message("%s: %ld calls\n", schema->name, t.done);
    assert_int_equal(t.wrong, 0);
    assert_true(t.done > 200);
    api_expect(t.context, tigon_schema_call(i, t.context, NULL), TIGON_ERROR_INVALID, "%s: args is NULL", schema->name);
    tigon_status status = tigon_schema_call(i, NULL, t.legal.args);
    api_expect(NULL, status, TIGON_ERROR_INVALID, "%s: context is NULL", schema->name);
    status = tigon_schema_call(i, NULL, NULL);
    api_expect(NULL, status, TIGON_ERROR_INVALID, "%s: context is NULL", schema->name);
  }
}

/* ---- queries of the workspace ---- */

static void test_queries(void **state) {
  tigon_context *c = *state;
  const tigon_schema *schema;
#define TIGON_QUERY(op, entry)                                                                                     \
  api_expect(c, tigon_##op##_##entry##_workspace(c, &(tigon_##op##_##entry##_args){0}, NULL), TIGON_ERROR_INVALID, \
             "%s_workspace: bytes is NULL", #op "_" #entry);
#include "ops.def"
  for (int i = 0; (schema = tigon_schema_at(i)); ++i) {
    const call_choices how = choices(TIGON_F32, 2);
    test t = {.context = c};
    make(&t, i, schema, &how);
    size_t bytes = 5, again = 5;
    if (schema->fields[schema->count - 2].kind != TIGON_FIELD_WORKSPACE) continue;
    tigon_status status = tigon_schema_workspace(i, c, NULL, &bytes, NULL);
    assert_int_equal(status, TIGON_ERROR_INVALID);
    assert_non_null(strstr(tigon_last_error(c), ": args is NULL"));
    status = tigon_schema_workspace(i, NULL, t.legal.args, &bytes, NULL);
    assert_int_equal(status, TIGON_ERROR_INVALID);
    assert_non_null(strstr(tigon_last_error(NULL), ": context is NULL"));
    assert_int_equal(bytes, 5);
    /* No query looks at data, or at the workspace. */
    for (view v = view_at(&t.legal, 0); v.x; v = view_at(&t.legal, v.k + 1))
      if (!(v.field->flags & TIGON_FIELD_EACH)) v.x->data = NULL;
    call_set_workspace(&t.legal, NULL, 0);
    assert_int_equal(call_query(&t.legal, c, &again), TIGON_OK);
    assert_int_equal(again, t.workspace_bytes);
  }
}

/* ---- this test itself ---- */

/* A description that says otherwise than the library checks: wrong sentences, or calls that it does not refuse. */
static void test_wrong_descriptions(void **state) {
  const tigon_schema *schema = tigon_schema_at(0);
  assert_string_equal(schema->name, "rms_norm_fwd");
  for (int lie = 0; lie < 8; ++lie) {
    tigon_field fields[16];
    memcpy(fields, schema->fields, (size_t)schema->count * sizeof *fields);
    tigon_schema wrong = *schema;
    wrong.fields = fields;
    tigon_field *x = &fields[0], *w = &fields[1], *y = &fields[3], *eps = &fields[5];
    switch (lie) {
      case 0: w->flags &= ~TIGON_FIELD_OPTIONAL; break;
      case 1: y->flags |= TIGON_FIELD_OPTIONAL; break;
      case 2: w->or_dtype = TIGON_DTYPE_NONE; break;
      case 3: w->flags &= ~TIGON_FIELD_CONTIGUOUS; break;
      case 4: y->in_place = NULL; break;
      case 5: y->in_place = "x w"; break;
      case 6: eps->low = 1; break;
      default: x->dtypes |= 1u << TIGON_I64; break;
    }
    test t = {.context = *state, .quiet = true};
    try_call(&t, 0, &wrong, choices(TIGON_BF16, 1));
    assert_true(t.wrong > 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_entry), cmocka_unit_test(test_queries),
                                     cmocka_unit_test(test_wrong_descriptions)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
