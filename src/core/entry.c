/* The list of entries with their descriptions; and the relations between the fields of one: shapes by named extents, dtypes
 * by letters. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tigon/tigon.h>

#include "core/schema.h"

#define FAIL(...) tigon_fail(context, TIGON_ERROR_INVALID, __VA_ARGS__)

/* ---- named extents ---- */

typedef struct named {
  int64_t extent;
  const tigon_field *field; /* which gave it; a number's own value where it is no tensor */
  int dim;
} named;

/* The dimensions of '*' or '&'. */
typedef struct leading {
  const tigon_field *field; /* NULL: none yet */
  const tigon_tensor *tensor;
  int first, count, pattern; /* pattern: letters of the whole */
} leading;

/* A tensor whose shape is right, and its pattern. */
typedef struct like {
  const char *pattern;
  const tigon_tensor *tensor;
} like;

enum { SEEN = 3 };

typedef struct names {
  uint32_t known; /* a bit a letter */
  int seen;
  like like[SEEN];
  named of[26];
  leading groups[2];
  const tigon_field *dtype_field[3]; /* 'T', 'U', 'V' */
  tigon_dtype dtype[3];
} names;

/* Sentences are made out of the way of calls that need none: the checks before them are some 10 ns a call quicker. */
__attribute__((cold, noinline)) static tigon_status fail_extent(tigon_context *context, const tigon_field *field,
                                                                int dim, int64_t is, const named *must) {
  char name[TIGON_NAME], other[TIGON_NAME], because[TIGON_NAME + 16];
  const char *from = tigon_field_name(context, must->field, other);
  if (must->field->kind == TIGON_FIELD_TENSOR)
    snprintf(because, sizeof because, "%s.shape[%d]", from, must->dim);
  else
    snprintf(because, sizeof because, "%s", from);
  return FAIL("%s: %s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s)", context->checked->name,
              tigon_field_name(context, field, name), dim, is, must->extent, because);
}

static tigon_status check_constant(tigon_context *context, int must, const tigon_field *field, const tigon_tensor *t,
                                   int dim) {
  char name[TIGON_NAME];
  if (t->shape[dim] == must) return TIGON_OK;
  return FAIL("%s: %s.shape[%d] is %" PRId64 ", must be %d", context->checked->name,
              tigon_field_name(context, field, name), dim, t->shape[dim], must);
}

__attribute__((cold, noinline)) static tigon_status fail_ndim(tigon_context *context, const tigon_field *field,
                                                              const tigon_tensor *t, int must, const leading *like) {
  char name[TIGON_NAME], other[TIGON_NAME];
  tigon_field_name(context, field, name);
  const char *call = context->checked->name, *of = tigon_field_name(context, field, name);
  if (!like) return FAIL("%s: %s.ndim is %d, must be %d", call, of, (int)t->ndim, must);
  return FAIL("%s: %s.ndim is %d, must be %d (%s.ndim)", call, of, (int)t->ndim, must,
              tigon_field_name(context, like->field, other));
}

/* Dimension `dim` is what `letter` stands for. */
static tigon_status check_letter(tigon_context *context, names *n, char letter, const tigon_field *field,
                                 const tigon_tensor *t, int dim) {
  const uint32_t bit = 1u << (letter - 'a');
  named *of = &n->of[letter - 'a'];
  if (!(n->known & bit)) {
    n->known |= bit;
    *of = (named){t->shape[dim], field, dim};
    return TIGON_OK;
  }
  return of->extent == t->shape[dim] ? TIGON_OK : fail_extent(context, field, dim, t->shape[dim], of);
}

static int64_t rows_of(const leading *group) {
  int64_t rows = 1;
  for (int i = 0; i < group->count; ++i) rows *= group->tensor->shape[group->first + i];
  return rows;
}

/* The dimensions of '*' or '&' in a tensor, from `first` on. */
static tigon_status check_leading(tigon_context *context, leading *group, const tigon_field *field,
                                  const tigon_tensor *t, int first, int letters) {
  if (!group->field) {
    *group = (leading){field, t, first, t->ndim - letters + 1, letters};
    return group->count >= 0 ? TIGON_OK
                             : FAIL("%s: %s.ndim is %d, must be %d or more", context->checked->name, field->name,
                                    (int)t->ndim, letters - 1);
  }
  const int ndim = group->count + letters - 1;
  if (t->ndim != ndim) return fail_ndim(context, field, t, ndim, letters == group->pattern ? group : NULL);
  for (int i = 0; i < group->count; ++i) {
    const named must = {group->tensor->shape[group->first + i], group->field, group->first + i};
    if (t->shape[first + i] != must.extent) return fail_extent(context, field, first + i, t->shape[first + i], &must);
  }
  return TIGON_OK;
}

/* A vector of `extent` elements, and why so many. */
static tigon_status check_vector(tigon_context *context, const tigon_field *field, const tigon_tensor *t,
                                 int64_t extent, const char *because) {
  if (t->ndim == 1 && t->shape[0] == extent) return TIGON_OK;
  char name[TIGON_NAME];
  return tigon_check_vector(context, tigon_field_name(context, field, name), t, extent, because);
}

/* Has an earlier tensor of the same pattern the same shape? Most tensors are like another one. */
static bool is_like_seen(const names *n, const char *pattern, const tigon_tensor *t) {
  for (int i = 0; i < n->seen; ++i) {
    const tigon_tensor *other = n->like[i].tensor;
    if (n->like[i].pattern != pattern || other->ndim != t->ndim) continue;
    int same = 0;
    while (same < t->ndim && t->shape[same] == other->shape[same]) ++same;
    return same == t->ndim;
  }
  return false;
}

static tigon_status check_shape(tigon_context *context, names *n, const tigon_field *field, const tigon_tensor *t) {
  const char *pattern = field->shape;
  if (is_like_seen(n, pattern, t)) return TIGON_OK;
  switch (pattern[0]) {
    case '?': return TIGON_OK;
    case 'r': return check_vector(context, field, t, rows_of(&n->groups[0]), "rows");
    case '1': return check_vector(context, field, t, 1, pattern + 2);
    case '@': return tigon_check_per_row(context, field->name, t, n->groups[0].field->name, n->groups[0].tensor);
    default: break;
  }
  const char *sign = NULL; /* '*' or '&' */
  int letters = 0;
  for (; pattern[letters]; ++letters)
    if (pattern[letters] == '*' || pattern[letters] == '&') sign = pattern + letters;
  if (!sign && t->ndim != letters) return fail_ndim(context, field, t, letters, NULL);
  if (sign) TIGON_TRY(check_leading(context, &n->groups[*sign == '&'], field, t, (int)(sign - pattern), letters));
  for (int i = 0; i < letters; ++i) {
    if (pattern + i == sign) continue;
    const bool behind = sign && pattern + i > sign;
    const int dim = behind ? t->ndim - letters + i : i, digit = pattern[i] - '0';
    TIGON_TRY(digit <= 9 ? check_constant(context, digit, field, t, dim)
                         : check_letter(context, n, pattern[i], field, t, dim));
  }
  if ((letters > 1 || sign) && n->seen < SEEN) n->like[n->seen++] = (like){pattern, t};
  return TIGON_OK;
}

/* ---- dtypes ---- */

static void give_dtype(names *n, const tigon_field *field, const tigon_tensor *t, char letter) {
  n->dtype_field[letter - 'T'] = field;
  n->dtype[letter - 'T'] = t->dtype;
}

static tigon_status check_dtype(tigon_context *context, const names *n, const tigon_field *field,
                                const tigon_tensor *t) {
  const tigon_dtype must = n->dtype[field->as - 'T'], other = field->or_dtype;
  if (t->dtype == must || (other && t->dtype == other)) return TIGON_OK;
  char name[TIGON_NAME], from[TIGON_NAME];
  const bool either = other && other != must;
  return FAIL("%s: %s.dtype is %s, must be %s (%s.dtype)%s%s", context->checked->name,
              tigon_field_name(context, field, name), tigon_dtype_name(t->dtype), tigon_dtype_name(must),
              tigon_field_name(context, n->dtype_field[field->as - 'T'], from), either ? " or " : "",
              either ? tigon_dtype_name(other) : "");
}

/* A number that is an extent, and may have to divide another one. */
static tigon_status name_number(tigon_context *context, names *n, const tigon_field *field, int64_t value) {
  if (field->divides) {
    const named *of = &n->of[field->divides - 'a'];
    if (value < 1 || of->extent % value != 0)
      return FAIL("%s: %s is %" PRId64 ", must divide %" PRId64 " (%s.shape[%d])", context->checked->name, field->name,
                  value, of->extent, of->field->name, of->dim);
  }
  n->known |= 1u << (field->shape[0] - 'a');
  n->of[field->shape[0] - 'a'] = (named){value, field, 0};
  return TIGON_OK;
}

/* ---- a whole struct ---- */

/* Where the field's value is counted from; NULL: it is not looked at. A list's element is checked by itself. */
static char *base_of(const tigon_field *field, char *args, char *element) {
  const bool each = field->flags & TIGON_FIELD_EACH;
  return each ? element : element ? NULL : args;
}

/* One tensor; *later: no tensor has given its dtype yet. */
static tigon_status relate_tensor(tigon_context *context, names *n, const tigon_field *field, const tigon_tensor *t,
                                  bool *later) {
  TIGON_TRY(check_shape(context, n, field, t));
  const bool known = !field->as || n->dtype[field->as - 'T'];
  if (known && field->as) TIGON_TRY(check_dtype(context, n, field, t));
  if (field->gives && !n->dtype[field->gives - 'T'])
    give_dtype(n, field, t, field->gives);
  else if (!known)
    *later = true;
  return TIGON_OK;
}

/* Dtypes, where tensors came before the one that gives it, or where that one is absent: then the first gives it. */
static tigon_status relate_dtypes(tigon_context *context, names *n, char *args, char *element) {
  const tigon_schema *schema = context->checked;
  for (int i = 0; i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    const char *base = base_of(field, args, element);
    if (!field->as || !base) continue;
    const tigon_tensor *t = (const tigon_tensor *)(const void *)(base + field->offset);
    if (!tigon_present(t)) continue;
    if (!n->dtype[field->as - 'T']) give_dtype(n, field, t, field->as);
    TIGON_TRY(check_dtype(context, n, field, t));
  }
  return TIGON_OK;
}

static inline bool is_inside(const tigon_field *field, double number) {
  return number >= field->low && number < field->high;
}

/* Most values are in order, which is seen here sooner than by a call of tigon_check_field(). */
static inline bool is_in_order(const tigon_field *field, const void *value) {
  const uint64_t *word = value;
  switch (field->kind) {
    case TIGON_FIELD_DOUBLE: return is_inside(field, *(const double *)value);
    case TIGON_FIELD_INT: return is_inside(field, *(const int *)value);
    case TIGON_FIELD_INT64: return is_inside(field, (double)*(const int64_t *)value);
    case TIGON_FIELD_RESERVED: return (word[0] | word[1] | word[2] | word[3]) == 0;
    case TIGON_FIELD_WORKSPACE: return true;
    default: return false;
  }
}

static tigon_status relate(tigon_context *context, char *args, char *element) {
  const tigon_schema *schema = context->checked;
  names n;
  bool later = false;
  n.known = 0;
  n.seen = 0;
  memset(n.groups, 0, sizeof n.groups);
  memset(n.dtype, 0, sizeof n.dtype);
  for (int i = 0; i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    const char *base = base_of(field, args, element);
    if (!base) continue;
    const void *value = base + field->offset;
    if (field->kind == TIGON_FIELD_TENSOR) {
      if (tigon_present(value)) TIGON_TRY(relate_tensor(context, &n, field, value, &later));
    } else {
      if (!is_in_order(field, value)) TIGON_TRY(tigon_check_field(context, field, value));
      if (field->shape) TIGON_TRY(name_number(context, &n, field, *(const int64_t *)value));
    }
  }
  return later ? relate_dtypes(context, &n, args, element) : TIGON_OK;
}

tigon_status tigon_check_begin(tigon_context *context, const tigon_schema *schema, const void *args) {
  if (!context) return FAIL("%s: context is NULL", schema->name);
  if (!args) return FAIL("%s: args is NULL", schema->name);
  context->checked = schema;
  return TIGON_OK;
}

tigon_status tigon_check_fields(tigon_context *context, void *args, bool shape_only) {
  const tigon_schema *schema = context->checked;
  context->shape_only = shape_only;
  for (int i = schema->count - 1; i >= 0 && schema->fields[i].kind == TIGON_FIELD_RESERVED; --i) {
    const void *value = (const char *)args + schema->fields[i].offset;
    if (!is_in_order(&schema->fields[i], value)) return tigon_check_field(context, &schema->fields[i], value);
  }
  TIGON_TRY(tigon_check_tensors(context, args, NULL, shape_only));
  return relate(context, args, NULL);
}

tigon_status tigon_check_entry(tigon_context *context, const tigon_schema *schema, const void *from, void *args,
                               bool shape_only) {
  TIGON_TRY(tigon_check_begin(context, schema, from));
  memcpy(args, from, schema->bytes);
  return tigon_check_fields(context, args, shape_only);
}

tigon_status tigon_check_element(tigon_context *context, void *args, void *element, int64_t index) {
  context->element = index;
  TIGON_TRY(tigon_check_tensors(context, args, element, false));
  return relate(context, args, element);
}

tigon_status tigon_check_query(tigon_context *context, const tigon_schema *schema, const size_t *bytes) {
  return bytes ? TIGON_OK : FAIL("%s_workspace: bytes is NULL", schema->name);
}

/* ---- the list ---- */

static const tigon_schema *const schemas[] = {
#define TIGON_SLOT(op, entry) &tigon_##op##_##entry##_schema,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
};
enum { SCHEMAS = sizeof schemas / sizeof *schemas };

const tigon_schema *tigon_schema_at(int index) { return index >= 0 && index < SCHEMAS ? schemas[index] : NULL; }

#define TIGON_SLOT(op, entry)                                                         \
  static tigon_status call_##op##_##entry(tigon_context *context, const void *args) { \
    return tigon_##op##_##entry(context, args);                                       \
  }
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"

tigon_status tigon_schema_call(int index, tigon_context *context, const void *args) {
  static tigon_status (*const calls[])(tigon_context *, const void *) = {
#define TIGON_SLOT(op, entry) call_##op##_##entry,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
  };
  if (index < 0 || index >= SCHEMAS) return FAIL("tigon_schema_call: there is no entry %d", index);
  return calls[index](context, args);
}

#define TIGON_QUERY(op, entry)                                                                                      \
  static tigon_status query_##op##_##entry(tigon_context *context, const void *args, size_t *least, size_t *good) { \
    size_t bytes;                                                                                                   \
    TIGON_TRY(tigon_##op##_##entry##_workspace(context, args, &bytes));                                             \
    if (least) *least = bytes;                                                                                      \
    if (good) *good = bytes;                                                                                        \
    return TIGON_OK;                                                                                                \
  }
#define TIGON_RANGE_QUERY(op, entry, of)                                                                            \
  static tigon_status query_##op##_##entry(tigon_context *context, const void *args, size_t *least, size_t *good) { \
    return tigon_##of##_workspace(context, args, least, good);                                                      \
  }
#include "ops.def"

tigon_status tigon_schema_workspace(int index, tigon_context *context, const void *args, size_t *minimum,
                                    size_t *recommended) {
  static const struct {
    const tigon_schema *of;
    tigon_status (*query)(tigon_context *, const void *, size_t *, size_t *);
  } queries[] = {
#define TIGON_QUERY(op, entry) {&tigon_##op##_##entry##_schema, query_##op##_##entry},
#define TIGON_RANGE_QUERY(op, entry, of) TIGON_QUERY(op, entry)
#include "ops.def"
  };
  const tigon_schema *schema = tigon_schema_at(index);
  if (!schema) return FAIL("tigon_schema_workspace: there is no entry %d", index);
  for (size_t i = 0; i < sizeof queries / sizeof *queries; ++i)
    if (queries[i].of == schema) return queries[i].query(context, args, minimum, recommended);
  if (minimum) *minimum = 0;
  if (recommended) *recommended = 0;
  return TIGON_OK;
}
