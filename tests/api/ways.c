/* One call, said in another way, gives the same bits: tensors that lie otherwise in memory, outputs over inputs, fewer outputs,
 * and what 0 or an absent tensor means, written out. With an extent of 0 it gives what the oracle does. The ways of every entry
 * are read from its description. */
#include "api.h"
#include "views.h"

enum { ARENA = 1 << 17, ROOM = 1 << 15, PITCH = 2048, OUTPUTS = 16 };

static _Alignas(64) char memory[2][ARENA + ROOM], numbers[ARENA + ROOM], fresh[ARENA + ROOM], before[ARENA + ROOM];

typedef struct test {
  tigon_context *context;
  call_choices how;
  call plain, other; /* in memory[0] and memory[1] */
  bool rounds; /* bits may differ: another context, or group_norm's sums over channels that do not lie end to end */
  long done;
} test;

static size_t make(test *t, int which, int entry, const call_choices *how) {
  call *c = which ? &t->other : &t->plain;
  const size_t used = call_make(c, entry, tigon_schema_at(entry), how, memory[which], ARENA);
  assert_true(used > 0);
  t->rounds = false;
  call_set_workspace(c, memory[which] + ARENA, ROOM);
  return used;
}

/* The plain call, which may still be changed. */
static void begin(test *t, int entry, const call_choices *how) {
  t->how = *how;
  memcpy(memory[0], numbers, sizeof numbers);
  make(t, 0, entry, how);
}

/* Its outputs are what others must give. */
static void run_plain(test *t) {
  memcpy(fresh, memory[0], sizeof fresh);
  if (call_run(&t->plain, t->context) != TIGON_OK) fail_msg("%s", tigon_last_error(t->context));
}

/* An element of the plain call as it was before. */
static const char *given(const tigon_tensor *x, int64_t i) { return fresh + (element_of(x, i) - memory[0]); }

/* Gives the other call the values of the plain one. False where one of its tensors would round them. */
static bool give(test *t) {
  const tigon_field *field;
  tigon_tensor *from, *to;
  for (int k = 0; (from = tensor_at(&t->plain, k, &field)); ++k) {
    to = tensor_at(&t->other, k, &field);
    if (!from->data || !to->data || count_of(from) == 0) continue;
    if (from->dtype != to->dtype && (field->dtypes & 1u << TIGON_F32)) return false;
    if (from->dtype == to->dtype && memcmp(from->strides, to->strides, sizeof to->strides) == 0) {
      memcpy(to->data, given(from, 0), (size_t)(count_of(from) * size_of(to)));
      continue;
    }
    for (int64_t i = 0; i < count_of(from); ++i) {
      const int64_t index = to->dtype == TIGON_I64 ? tigon_load_index(given(from, i), 0, from->dtype) : 0;
      memcpy(element_of(to, i), from->dtype == to->dtype ? given(from, i) : (const char *)&index, (size_t)size_of(to));
    }
  }
  return true;
}

/* Equal but for rounding. */
static bool is_close(double a, double b) { return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 0.01 * fabs(b); }

/* Makes the other call. Its outputs must have the plain one's bits, and no other byte may change. */
static void compare(test *t, const char *way) {
  const tigon_field *field;
  tigon_tensor *must, *is;
  memcpy(before, memory[1], sizeof before);
  if (call_run(&t->other, t->context) != TIGON_OK) fail_msg("%s: %s", way, tigon_last_error(t->context));
  for (int k = 0; (must = tensor_at(&t->plain, k, &field)); ++k) {
    is = tensor_at(&t->other, k, &field);
    if (!(field->flags & TIGON_FIELD_OUT) || !is->data) continue;
    for (int64_t i = 0; i < count_of(is); ++i) {
      if (must->data && memcmp(element_of(is, i), element_of(must, i), (size_t)size_of(is)) != 0 &&
          !(t->rounds && is_close(value_of(is, i), value_of(must, i))))
        fail_msg("%s: %s[%d] differs: %s, %s, %d leading dimensions", t->plain.schema->name, field->name, (int)i, way,
                 tigon_dtype_name(t->how.dtype), t->how.leading);
    }
  }
  for (int k = 0; (is = tensor_at(&t->other, k, &field)); ++k)
    for (int64_t i = 0; field->flags & TIGON_FIELD_OUT && i < count_of(is); ++i) {
      char *at = element_of(is, i);
      memcpy(at, before + (at - memory[1]), (size_t)size_of(is));
    }
  if (memcmp(memory[1], before, ARENA) != 0)
    fail_msg("%s: more than outputs was written: %s", t->plain.schema->name, way);
  ++t->done;
}

/* ---- where tensors lie ---- */

/* Dimensions inside a row, whose elements lie end to end. */
static int row_of(const test *t, const tigon_field *field, const tigon_tensor *x) {
  if (field->flags & TIGON_FIELD_FREE_LAST && x->ndim == 2) return 0;
  return field->shape[strlen(field->shape) - 1] == '*' ? t->how.leading : 1;
}

/* All tensors whose strides are free become columns of one table. `turned`: every second one has its rows in the order of
 * [C, B, A] instead of [A, B, C]. Returns the most dimensions that were turned. */
static int weave(test *t, size_t used, bool turned) {
  const tigon_field *field;
  tigon_tensor *x;
  char *at = memory[1] + used;
  int most = 0;
  for (int k = 0; (x = tensor_at(&t->other, k, &field)); ++k) {
    if (!x->data || field->flags & TIGON_FIELD_CONTIGUOUS) continue;
    const int leading = x->ndim - row_of(t, field, x);
    t->rounds = t->rounds || field->flags & TIGON_FIELD_FREE_LAST;
    const bool turn = turned && k % 2 == 0;
    int64_t step = PITCH / size_of(x), bytes = size_of(x);
    for (int i = 0; i < leading; ++i) {
      const int d = turn ? i : leading - 1 - i;
      x->strides[d] = step;
      step *= x->shape[d];
    }
    for (int d = leading; d < x->ndim; ++d) bytes *= x->shape[d];
    assert_true(at + step * size_of(x) <= memory[1] + ARENA);
    x->data = at;
    at += (bytes + 7) / 8 * 8;
    if (turn && strchr(field->shape, '*') && leading > most) most = leading;
  }
  assert_true(at <= memory[1] + used + PITCH);
  return most;
}

/* GEMMs have one pitch for all rows, other kernels three. */
static void try_turned(test *t, int entry) {
  const bool gemm = strstr(t->plain.schema->op, "linear") != NULL;
  const int strides = weave(t, make(t, 1, entry, &t->how), true);
  give(t);
  if (strides <= (gemm ? 1 : 3)) {
    compare(t, "rows in another order");
    return;
  }
  char sentence[256];
  snprintf(sentence, sizeof sentence, "%s: the leading dimensions collapse to %d strides, must collapse to %s",
           t->plain.schema->name, strides, gemm ? "1" : "3 or fewer");
  memcpy(before, memory[1], sizeof before);
  api_expect(t->context, call_run(&t->other, t->context), TIGON_ERROR_INVALID, sentence);
  assert_memory_equal(memory[1], before, sizeof before);
}

/* One more dimension of one element, over which nobody steps. */
static void try_longer(test *t, int entry) {
  call_choices how = t->how;
  const tigon_field *field;
  tigon_tensor *x, *plain;
  if (how.leading == 4) return;
  how.extents[(int)"tbsa"[how.leading++]] = 1;
  make(t, 1, entry, &how);
  for (int k = 0; (x = tensor_at(&t->other, k, &field)); ++k) {
    plain = tensor_at(&t->plain, k, &field);
    if (count_of(x) != count_of(plain) || strchr(field->shape, '&')) return; /* the letter means more than a row */
    for (int d = 0; d < x->ndim; ++d)
      if (x->shape[d] == 1) x->strides[d] = INT64_C(1) << 40;
  }
  give(t);
  compare(t, "a dimension of one element");
}

/* Rows that are the same, and rows that share memory. */
static void try_shared(test *t, int entry, const call_choices *how) {
  begin(t, entry, how);
  make(t, 1, entry, how);
  const tigon_field *field;
  tigon_tensor *x;
  for (int k = 0; (x = tensor_at(&t->plain, k, &field)); ++k) {
    if (field->flags & TIGON_FIELD_FREE_LAST)
      return; /* such channels have no variance, which only rounding would make */
    if (!x->data || field->flags & (TIGON_FIELD_OUT | TIGON_FIELD_CONTIGUOUS)) continue;
    const int leading = x->ndim - row_of(t, field, x);
    const int64_t rows = count_of(x);
    int64_t cols = 1;
    for (int d = leading; d < x->ndim; ++d) cols *= x->shape[d];
    for (int64_t i = cols; i < rows; ++i) memcpy(element_of(x, i), element_of(x, i % cols), (size_t)size_of(x));
    for (int d = 0; d < leading; ++d) tensor_at(&t->other, k, &field)->strides[d] = 0;
  }
  run_plain(t);
  give(t);
  compare(t, "rows that share memory");
}

/* ---- outputs over inputs ---- */

/* One choice of places; 0 is a place of its own. No two outputs may have the same. */
static void try_places(test *t, int entry, bool woven, const tigon_field *const outs[], const int chosen[], int count) {
  const tigon_schema *schema = t->plain.schema;
  const size_t used = make(t, 1, entry, &t->how);
  if (woven) weave(t, used, false);
  give(t);
  for (int i = 0; i < count; ++i) {
    const tigon_field *over = chosen[i] ? place(schema, outs[i], chosen[i] - 1) : NULL;
    for (int j = 0; over && j < i; ++j)
      if (chosen[j] && place(schema, outs[j], chosen[j] - 1) == over) return;
    if (over) *call_tensor(&t->other, outs[i], 0) = *call_tensor(&t->other, over, 0);
  }
  compare(t, woven ? "columns of one table, in place" : "in place");
}

static void try_every_place(test *t, int entry, bool woven) {
  const tigon_schema *schema = t->plain.schema;
  const tigon_field *outs[OUTPUTS];
  int chosen[OUTPUTS] = {0}, count = 0;
  for (int i = 0; i < schema->count; ++i) {
    if (!schema->fields[i].in_place || !call_tensor(&t->plain, &schema->fields[i], 0)->data) continue;
    assert_true(count < OUTPUTS);
    outs[count++] = &schema->fields[i];
  }
  for (int i = 0; i <= count;) { /* count up, the first output fastest */
    try_places(t, entry, woven, outs, chosen, count);
    for (i = 0; i < count && !place(schema, outs[i], chosen[i]); ++i) chosen[i] = 0;
    if (i == count) return;
    ++chosen[i];
  }
}

/* ---- what is given ---- */

/* An input that may be absent must count where it is present; not where an output goes with it. */
static void expect_difference(test *t, const tigon_field *without) {
  const tigon_field *field;
  tigon_tensor *with, *is;
  if (call_run(&t->other, t->context) != TIGON_OK) fail_msg("%s", tigon_last_error(t->context));
  for (int k = 0; (with = tensor_at(&t->plain, k, &field)); ++k) {
    is = tensor_at(&t->other, k, &field);
    if (field->flags & TIGON_FIELD_OUT && with->data && !is->data) return;
    for (int64_t i = 0; field->flags & TIGON_FIELD_OUT && i < count_of(is); ++i)
      if (memcmp(element_of(is, i), element_of(with, i), (size_t)size_of(is)) != 0) return;
  }
  fail_msg("%s: %s does not count: %s, %d leading dimensions", t->plain.schema->name, without->name,
           tigon_dtype_name(t->how.dtype), t->how.leading);
}

/* Has a row for each token, and maybe more, which are left alone? */
static bool is_cache(const tigon_field *field) { return strcmp(field->name, "cache") == 0; }

/* Does a cache have the logits of all tokens that count, maybe? Then bias does not. */
static bool is_in_cache(test *t, const tigon_field *field) {
  const tigon_field *cache = field_named(t->plain.schema, "cache", strlen("cache"));
  return cache && !(cache->flags & TIGON_FIELD_OUT) && strcmp(field->name, "bias") == 0 &&
         call_tensor(&t->plain, cache, 0)->data;
}

/* Fewer outputs, fewer inputs; numbers per row in one dimension, 64-bit indices. */
static void try_choices(test *t, int entry) {
  for (int i = 0; i < t->plain.schema->count; ++i) {
    const tigon_field *field = &t->plain.schema->fields[i];
    if (field->kind != TIGON_FIELD_TENSOR) continue;
    call_choices how = t->how;
    how.wide = UINT64_C(1) << i;
    make(t, 1, entry, &how);
    if (give(t)) compare(t, "another shape or dtype");
    how = t->how;
    how.absent = UINT64_C(1) << i;
    make(t, 1, entry, &how);
    const bool may_count = t->how.leading > 0; /* [B, C] in pairs has no variance */
    const bool is_input = field->flags & TIGON_FIELD_OPTIONAL && !(field->flags & TIGON_FIELD_OUT);
    const bool present = call_tensor(&t->plain, field, 0)->data && !is_in_cache(t, field);
    if (may_count && is_input && present && give(t)) expect_difference(t, field);
    const bool only_written = field->flags & TIGON_FIELD_OUT && !(field->flags & TIGON_FIELD_EACH);
    if (only_written && give(t)) compare(t, "without an output");
  }
}

/* One row has T = 1. */
static call_choices choices(tigon_dtype dtype, int leading, uint32_t numbers) {
  call_choices how = usual(dtype, leading);
  how.numbers = numbers;
  if (leading == 0) how.extents['t'] = 1;
  return how;
}

enum { COLUMN = -1, ALL = -2, ROOT = -3 }; /* the last index; the extent D; 1 / sqrt(D) */
/* What a number means that is 0, or a tensor that is absent. */
static const struct {
  const char *op, *name; /* op NULL: every one that has it */
  double value;
} defaults[] = {
    {NULL, "gate_mult", 1},
    {NULL, "down_mult", 1},
    {NULL, "grad_scale", 1},
    {NULL, "options.temperature", 1},
    {NULL, "options.weight", 1},
    {NULL, "options.token_scale", 1},
    {NULL, "dloss", 1},
    {NULL, "dentropy", 0},
    {NULL, "clip_factor", 1},
    {NULL, "w", 1},
    {NULL, "b", 0},
    {NULL, "bias", 0},
    {NULL, "shift", 0},
    {NULL, "mask", 0},
    {NULL, "ds", 0},
    {NULL, "positions", COLUMN},
    {"rope", "rotary_dim", ALL},
    {"attention", "window", 0x1p62},
    {"attention", "scale", ROOT},
    {"softmax", "scale", 1},
};

static void write_out(test *t, const tigon_field *field, double value) {
  const int64_t d = t->how.extents['d'];
  if (value == ROOT) value = 1 / sqrt((double)d);
  if (value == ALL) value = (double)d;
  void *at = call_field(&t->other, field, 0);
  tigon_tensor *x = at;
  if (field->kind == TIGON_FIELD_DOUBLE) *(double *)at = value;
  if (field->kind == TIGON_FIELD_INT64) *(int64_t *)at = (int64_t)value;
  for (int64_t i = 0; field->kind == TIGON_FIELD_TENSOR && i < count_of(x); ++i) {
    if (field->below)
      *(int32_t *)(void *)element_of(x, i) = (int32_t)(i % x->shape[x->ndim - 1]);
    else
      tigon_store_f64(element_of(x, i), 0, x->dtype, value);
  }
}

static void set_flags(call *c, int value) {
  for (int i = 0; i < c->schema->count; ++i)
    if (c->schema->fields[i].flags & TIGON_FIELD_IS_FLAG) *(int *)call_field(c, &c->schema->fields[i], 0) = value;
}

/* All of an entry's at once; how many it has. */
static int try_defaults(test *t, int entry, const call_choices *how, int flags) {
  enum { DEFAULTS = sizeof defaults / sizeof *defaults };
  const tigon_schema *schema = tigon_schema_at(entry);
  const tigon_field *fields[DEFAULTS];
  call_choices absent = *how;
  int found = 0;
  for (int i = 0; i < DEFAULTS; ++i) {
    const bool other_op = defaults[i].op && strcmp(defaults[i].op, schema->op) != 0;
    fields[i] = other_op ? NULL : field_named(schema, defaults[i].name, strlen(defaults[i].name));
    const bool tensor = fields[i] && fields[i]->kind == TIGON_FIELD_TENSOR;
    if (tensor && !(fields[i]->flags & TIGON_FIELD_OPTIONAL)) fields[i] = NULL;
    if (fields[i] && tensor) absent.absent |= UINT64_C(1) << (fields[i] - schema->fields);
    found += fields[i] != NULL;
  }
  begin(t, entry, &absent);
  set_flags(&t->plain, flags);
  run_plain(t);
  make(t, 1, entry, how);
  set_flags(&t->other, flags);
  give(t);
  for (int i = 0; i < DEFAULTS; ++i)
    if (fields[i]) write_out(t, fields[i], defaults[i].value);
  compare(t, "what is left out, written out");
  return found;
}

/* ---- shapes that an operator's header allows ---- */

/* A tensor is the same as a larger one in which it is repeated; letters as in descriptions, "r" rows, "f" half of D. */
static const struct {
  const char *op, *names, *small, *large;
  int leading;
} repeated[] = {
    {"softmax", "mask", "c", "btc", 2},
    {"softmax", "mask", "tc", "btc", 2},
    {"softmax", "mask", "c", "tc", 0},
    {"rope", "positions", "1t", "bt", 2},
    {"rope", "cos sin", "pf", "pd", 2},
    {"rope", "cos sin", "pf", "bpf", 2},
    {"rope", "cos sin", "pd", "bpd", 2},
    {"modulated_rms_norm", "scale shift", "c", "btc", 2},
    {"modulated_rms_norm", "scale shift", "1c", "btc", 2},
    {"modulated_rms_norm", "scale shift", "b1c", "btc", 2},
    {"modulated_rms_norm", "scale shift", "bc", "b1c", 2},
    {"modulated_rms_norm", "scale shift", "rc", "btc", 2},
};

/* Gives the tensor this shape, and memory that holds it. */
static void reshape(const test *t, tigon_tensor *x, const char *letters, char *data) {
  x->data = data;
  x->ndim = (int)strlen(letters);
  memset(x->strides, 0, sizeof x->strides);
  int64_t step = 1;
  for (int d = x->ndim - 1; d >= 0; --d) {
    x->shape[d] = letters[d] == '1'   ? 1
                  : letters[d] == 'r' ? 6
                  : letters[d] == 'f' ? 3
                                      : t->how.extents[(int)letters[d]];
    x->strides[d] = step;
    step *= x->shape[d];
  }
}

/* The element of the small tensor that the i-th one of the large tensor repeats. */
static int64_t repeats(const tigon_tensor *small, const tigon_tensor *large, int64_t i) {
  int64_t at = 0, step = 1;
  if (count_of(small) == count_of(large)) return i;
  for (int d = 0; d < small->ndim; ++d) { /* from the last one */
    const int64_t extent = large->shape[large->ndim - 1 - d], own = small->shape[small->ndim - 1 - d];
    at += i % extent % own * step;
    i /= extent;
    step *= own;
  }
  return at;
}

static void try_repeated(test *t, int entry, const char *names, const char *small, const char *large) {
  const tigon_schema *schema = t->plain.schema;
  const tigon_field *fields[2];
  int count = 0;
  for (const char *name = names; *name; name += strcspn(name, " "), name += *name == ' ')
    if ((fields[count] = field_named(schema, name, strcspn(name, " ")))) ++count;
  make(t, 1, entry, &t->how);
  for (int k = 0; k < count; ++k) {
    tigon_tensor *x = call_tensor(&t->plain, fields[k], 0);
    const size_t at = ARENA / 2 + (size_t)k * (1 << 14);
    reshape(t, x, small, memory[0] + at);
    reshape(t, call_tensor(&t->other, fields[k], 0), large, memory[1] + at);
    for (int64_t i = 0; fields[k]->below && i < count_of(x); ++i) ((int32_t *)x->data)[i] = (int32_t)(5 * i % 7);
  }
  run_plain(t);
  give(t);
  for (int k = 0; k < count; ++k) {
    const tigon_tensor *x = call_tensor(&t->plain, fields[k], 0), *y = call_tensor(&t->other, fields[k], 0);
    for (int64_t i = 0; i < count_of(y); ++i) memcpy(element_of(y, i), given(x, repeats(x, y, i)), (size_t)size_of(y));
  }
  compare(t, large);
}

/* ---- extents of 0 ---- */

/* Is there no row at all? A factor is of the norm, not a sum; flags are raised or left alone. */
static bool sums_nothing(call *c, const tigon_field *out) {
  const tigon_field *field;
  const tigon_tensor *t = NULL;
  for (int k = 0; (t = tensor_at(c, k, &field)) && field->shape[0] != '*';) ++k;
  int64_t rows = 1;
  for (int d = 0; t && d <= t->ndim - (int)strlen(field->shape); ++d) rows *= t->shape[d];
  return rows == 0 && !is_error_flag(out) && !is_cache(out) && strcmp(out->name, "factor") != 0;
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

/* Tensors without an element get no address; is there one? An output that is not added to holds other bytes in each call, so
 * that both must write it, but for the flag of an error and statistics of no elements. */
static bool prepare_empty(test *t) {
  const tigon_field *field;
  tigon_tensor *x, *y;
  bool empty = false;
  for (int k = 0; (x = tensor_at(&t->plain, k, &field)); ++k) {
    y = tensor_at(&t->other, k, &field);
    const bool left = is_error_flag(field) || is_cache(field) || field->flags & TIGON_FIELD_EACH ||
                      strcmp(field->name, "mean") == 0 || strcmp(field->name, "rstd") == 0;
    empty = empty || (x->ndim && count_of(x) == 0);
    if (count_of(x) == 0)
      x->data = y->data = NULL;
    else if (field->flags & TIGON_FIELD_OUT && !left && !accumulates(&t->plain, field))
      memset(y->data, 0x11, (size_t)(count_of(x) * size_of(x)));
  }
  return empty;
}

/* The plain call is the oracle's. Sums over no rows are 0, or stay as they were. */
static bool try_empty(test *t, int entry, const call_choices *how, tigon_context *oracle) {
  const tigon_field *field;
  tigon_tensor *x;
  begin(t, entry, how);
  make(t, 1, entry, how);
  memcpy(fresh, memory[0], sizeof fresh);
  give(t);
  const bool empty = prepare_empty(t);
  const tigon_status status = call_run(&t->plain, oracle);
  if (!empty || status != TIGON_OK) {
    assert_int_equal(call_run(&t->other, t->context), status);
    return false;
  }
  for (int k = 0; (x = tensor_at(&t->plain, k, &field)); ++k)
    for (int64_t i = 0; field->flags & TIGON_FIELD_OUT && sums_nothing(&t->plain, field) && i < count_of(x); ++i) {
      const char *must = accumulates(&t->plain, field) ? given(x, i) : (const char *)&(uint64_t){0};
      if (memcmp(element_of(x, i), must, (size_t)size_of(x)) != 0)
        fail_msg("%s: %s is no sum over nothing", t->plain.schema->name, field->name);
    }
  t->rounds = true;
  compare(t, "nothing");
  return true;
}

/* ---- all of it ---- */

/* Rows without leading dimensions: not where they would leave a tensor none at all. */
static bool has_shape(int entry, int leading) {
  const tigon_schema *schema = tigon_schema_at(entry);
  for (int i = 0; leading == 0 && i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    if (field->kind == TIGON_FIELD_TENSOR && (field->shape[0] == '@' || strcmp(field->shape, "*") == 0)) return false;
  }
  return true;
}

static void test_ways(void **state) {
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  test t = {.context = *state};
  for (int entry = 0; tigon_schema_at(entry); ++entry) {
    t.done = 0;
    for (int turn = 0; turn < 30; ++turn) {
      const call_choices how = choices(dtypes[turn % 3], turn / 3 % 5, (uint32_t)turn);
      if (!has_shape(entry, how.leading)) continue;
      try_shared(&t, entry, &how);
      begin(&t, entry, &how);
      run_plain(&t);
      weave(&t, make(&t, 1, entry, &how), false);
      give(&t);
      compare(&t, "columns of one table");
      try_turned(&t, entry);
      try_longer(&t, entry);
      try_every_place(&t, entry, false);
      try_every_place(&t, entry, true);
      try_choices(&t, entry);
    }
    print_message("%s: %ld calls\n", tigon_schema_at(entry)->name, t.done);
    assert_true(t.done >= 100);
  }
}

static void test_defaults(void **state) {
  test t = {.context = *state};
  int found = 0;
  for (int entry = 0; tigon_schema_at(entry); ++entry)
    for (int leading = 1; leading <= 3; ++leading) {
      const call_choices how = choices(TIGON_F32, leading, 0);
      found += try_defaults(&t, entry, &how, 0) + try_defaults(&t, entry, &how, 1);
    }
  assert_true(found > 100);
}

static void test_repeated(void **state) {
  test t = {.context = *state};
  const tigon_schema *schema;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry)
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; ++i) {
      const char *names = repeated[i].names;
      if (strcmp(schema->op, repeated[i].op) != 0 || !field_named(schema, names, strcspn(names, " "))) continue;
      call_choices how = choices(TIGON_F32, repeated[i].leading, 3);
      for (int f = 0; f < schema->count; ++f) /* gradients of what is repeated */
        how.absent |= (uint64_t)(schema->fields[f].flags & TIGON_FIELD_OUT && schema->fields[f].shape[0] == '&') << f;
      begin(&t, entry, &how);
      try_repeated(&t, entry, names, repeated[i].small, repeated[i].large);
    }
  assert_int_equal(t.done, 3 + 2 * (4 + 5));
}

static void test_empty(void **state) {
  static const char *const none[] = {"b", "s", "t", "k", "d", "g", "n", "c", "v", "h", "tc", "tv"};
  test t = {.context = *state};
  tigon_context *oracle;
  const tigon_context_desc desc = {.device = "ref"};
  assert_int_equal(tigon_context_create(&desc, &oracle), TIGON_OK);
  for (int entry = 0; tigon_schema_at(entry); ++entry) {
    int taken = 0;
    for (int turn = 0; turn < 12; ++turn)
      for (size_t i = 0; i < sizeof none / sizeof *none; ++i) {
        call_choices how = choices(turn % 2 ? TIGON_F32 : TIGON_BF16, 1 + turn / 2 % 3, (uint32_t)turn);
        for (const char *letter = none[i]; *letter; ++letter) how.extents[(int)*letter] = 0;
        taken += try_empty(&t, entry, &how, oracle);
      }
    assert_true(taken >= 12);
  }
  tigon_context_destroy(oracle);
}

int main(void) {
  fill_numbers(numbers, sizeof numbers);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_defaults),
                                     cmocka_unit_test(test_repeated), cmocka_unit_test(test_empty)};
  setenv("TIGON_GEMM", "builtin", 1); /* other libraries refuse some views, and then it has bits of its own */
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
