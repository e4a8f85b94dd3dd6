#include "opencl/trial.h"

#include <math.h>
#include <string.h>

#include "core/half.h"

static uint32_t mix(uint32_t a, uint32_t b) {
  uint64_t x = ((uint64_t)a << 32 | b) + 0x9e3779b97f4a7c15u; /* splitmix64 */
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)(x >> 32);
}

static bool is_each(const tigon_field *field) { return field->flags & TIGON_FIELD_EACH; }
static int values(const tigon_field *field) { return is_each(field) ? TRIAL_ELEMENTS : 1; }
static void *value_at(trial *t, const tigon_field *field, int element) {
  return (is_each(field) ? t->elements + (size_t)element * t->schema->element_bytes : t->args) + field->offset;
}

tigon_tensor *trial_tensor(trial *t, int k, const tigon_field **field) {
  for (int i = 0; i < t->schema->count; ++i) {
    *field = &t->schema->fields[i];
    if ((*field)->kind != TIGON_FIELD_TENSOR) continue;
    if (k < values(*field)) return value_at(t, *field, k);
    k -= values(*field);
  }
  return NULL;
}

/* ---- extents ---- */

/* The letters of '*', of which there are none to two, are the last ones here. */
static const char *leading(const trial *t) { return &"bt"[2 - mix(t->seed, 1) % 3]; }

static int64_t extent_of(const trial *t, char letter);
static int64_t rows_of(const trial *t) {
  int64_t rows = 1;
  for (const char *l = leading(t); *l; ++l) rows *= extent_of(t, *l);
  return rows;
}

/* A letter of one of the entry's patterns. */
static char letter_of(const trial *t, uint32_t pick) {
  const tigon_field *chosen = &t->schema->fields[mix(t->seed, pick) % (uint32_t)t->schema->count];
  const char *pattern = chosen->shape ? chosen->shape : "*";
  const char letter = pattern[mix(t->seed, pick + 1) % (uint32_t)strlen(pattern)];
  return letter >= 'a' && letter != 'r' ? letter : 't';
}

/* Letters are often equal, or one a multiple of another, as some entries want. In every other call one is long. */
static int64_t extent_of(const trial *t, char letter) {
  static const unsigned char few[] = {1, 2, 2, 3, 4, 4, 6, 8}, many[] = {33, 37, 64, 70};
  if (letter >= '1' && letter <= '9') return letter - '0';
  if (letter == 'r') return rows_of(t);
  const uint32_t own = mix(t->seed, (uint32_t)letter);
  if (t->seed % 2 && letter == letter_of(t, 2)) return many[own % sizeof many];
  switch (mix(t->seed, 6) % 4) {
    case 0: return few[mix(t->seed, 7) % sizeof few];
    case 1: return few[mix(t->seed, 8 + own % 2) % sizeof few];
    case 2: return 2 << own % 3;
    default: return few[own % sizeof few];
  }
}

static void shape(const trial *t, const char *pattern, uint32_t pick, tigon_tensor *x) {
  const bool example = *pattern == '?';
  if (example && !pattern[1]) pattern = "?s"; /* a vector */
  for (const char *at = pattern + example; *at && *at != ' '; ++at)
    if (*at == '*' || *at == '@')
      for (const char *l = leading(t); *l; ++l) x->shape[x->ndim++] = extent_of(t, *l);
    else
      x->shape[x->ndim++] = extent_of(t, *at == '&' ? 't' : *at);
  if (example && pick % 2 && x->ndim > 0) ++x->shape[x->ndim - 1]; /* where sequences begin and end */
}

/* ---- elements ---- */

static void fill(const trial *t, const tigon_field *field, const tigon_tensor *x, int64_t count) {
  const bool index = x->dtype == TIGON_I32 || x->dtype == TIGON_I64, out = field->flags & TIGON_FIELD_OUT;
  const int64_t end = extent_of(t, letter_of(t, 10)); /* numbers that rise, as places where sequences begin */
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t pick = mix(mix(t->seed, (uint32_t)field->offset), (uint32_t)i);
    const double number =
        (double)(pick % 65536 + 1) * 0x1p-16; /* more than 0, and in every fourth call of either sign */
    if (!index) {
      tigon_store_f64(x->data, i, x->dtype, t->seed % 4 < 2 ? number : 2 * number - 1);
      continue;
    }
    const int64_t limit = field->below ? extent_of(t, field->below) : 0;
    const int64_t value = out           ? 0
                          : limit > 0   ? (int64_t)pick % limit
                          : t->seed % 3 ? i * end / (count > 1 ? count - 1 : 1)
                                        : (int64_t)(pick % 3);
    if (x->dtype == TIGON_I64)
      ((int64_t *)x->data)[i] = value;
    else
      ((int32_t *)x->data)[i] = (int32_t)value;
  }
}

static tigon_dtype dtype_of(const tigon_field *field, tigon_dtype letters[3], bool other) {
  tigon_dtype dtype = letters[0];
  if (field->as)
    dtype = other && field->or_dtype ? field->or_dtype : letters[field->as - 'T'];
  else
    for (int tries = 0; tries < 14 && (!(field->dtypes >> dtype & 1) || other); ++tries) { /* or the next but one */
      if (field->dtypes >> dtype & 1) other = false;
      dtype = (tigon_dtype)(dtype % 7 + 1);
    }
  if (field->gives && field->gives != 'T') letters[field->gives - 'T'] = dtype;
  return dtype;
}

static bool make_tensor(trial *t, const tigon_field *field, tigon_dtype dtype, tigon_tensor *x) {
  enum { GAP = 64 };
  *x = (tigon_tensor){.data = t->memory + t->used, .dtype = dtype};
  shape(t, field->shape, mix(t->seed, (uint32_t)field->offset + 7), x);
  int64_t count = 1;
  for (int d = 0; d < x->ndim; ++d) {
    count *= x->shape[d];
    t->is_wide = t->is_wide || x->shape[d] >= 32;
  }
  const size_t bytes = ((size_t)count * tigon_dtype_size(dtype) + GAP - 1) / GAP * GAP + GAP;
  if (x->ndim == 0 || x->ndim > TIGON_MAX_DIMS || t->used + bytes > TRIAL_BYTES) return false;
  t->used += bytes;
  fill(t, field, x, count);
  return true;
}

/* ---- numbers ---- */

static void make_number(trial *t, const tigon_field *field, void *at) {
  const uint32_t pick = mix(t->seed, (uint32_t)field->offset + 3);
  const bool zero = field->low <= 0 || field->flags & TIGON_FIELD_OR_ZERO;
  const double half = field->high > 0 && field->high < 1 ? field->high / 2 : 0.5;
  const double steps = mix(t->seed, 9) % 2 ? 1 : 3, most = fmin(field->high, field->low + steps);
  if (field->kind == TIGON_FIELD_DOUBLE) {
    *(double *)at = zero && pick % 2 ? 0 : fmax(half, field->low);
    return;
  }
  int64_t whole = field->shape ? extent_of(t, field->shape[0]) : 0;
  if (!field->shape && field->high > field->low)
    whole = (int64_t)field->low + pick % ((int64_t)(most - field->low) + 1);
  if (field->kind == TIGON_FIELD_INT64)
    *(int64_t *)at = whole;
  else
    *(int *)at = (int)whole;
}

/* ---- a call ---- */

/* All optional tensors, none, or some. */
static bool is_left_out(const trial *t, int i) {
  const uint32_t mode = mix(t->seed, 5) % 4;
  return mode == 1 || (mode > 1 && mix(t->seed, 100 + (uint32_t)i) % 2);
}

typedef struct list {
  const void *elements;
  int64_t count;
} list;

bool trial_make(trial *t, int entry, tigon_dtype dtype, uint32_t seed) {
  memset(t->args, 0, sizeof t->args);
  memset(t->elements, 0, sizeof t->elements);
  memset(t->memory, 0, t->used);
  t->entry = entry, t->schema = tigon_schema_at(entry), t->dtype = dtype, t->seed = seed, t->used = 0,
  t->is_wide = false;
  if (t->schema->element_bytes * TRIAL_ELEMENTS > TRIAL_LIST_BYTES) return false;
  for (int e = 0; e < TRIAL_ELEMENTS; ++e) {
    tigon_dtype letters[3] = {dtype, dtype, dtype};
    for (int i = 0; i < t->schema->count; ++i) {
      const tigon_field *field = &t->schema->fields[i];
      if (e >= values(field)) continue;
      void *at = value_at(t, field, e);
      if (field->kind == TIGON_FIELD_LIST) *(list *)at = (list){t->elements, TRIAL_ELEMENTS};
      if (field->kind >= TIGON_FIELD_DOUBLE && field->kind <= TIGON_FIELD_INT64) make_number(t, field, at);
      if (field->kind != TIGON_FIELD_TENSOR) continue;
      const tigon_dtype own = dtype_of(field, letters, mix(seed, 200 + (uint32_t)i) % 4 == 0);
      if (field->flags & TIGON_FIELD_OPTIONAL && is_left_out(t, i)) continue;
      if (!make_tensor(t, field, own, at)) return false;
    }
  }
  return true;
}

void trial_set_workspace(trial *t, void *workspace, size_t bytes) {
  for (int i = 0; i < t->schema->count; ++i)
    if (t->schema->fields[i].kind == TIGON_FIELD_WORKSPACE) {
      char *at = value_at(t, &t->schema->fields[i], 0);
      memcpy(at, &workspace, sizeof workspace);
      memcpy(at + sizeof workspace, &bytes, sizeof bytes);
    }
}

void trial_move(trial *t, uintptr_t by) {
  const tigon_field *field;
  tigon_tensor *x;
  for (int k = 0; (x = trial_tensor(t, k, &field)); ++k)
    if (x->data) x->data = (char *)x->data + by;
}
