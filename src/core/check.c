/* The checks that an entry's description stands for, field by field: what a tensor is on its own, which memory tensors
 * share, numbers. src/core/entry.c relates tensors to each other. */
#include "core/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/blocks.h"
#include "core/schema.h"
#include "core/text.h"

/* "<entry>: <sentence>" */
#define FAIL(status, format, ...) \
  tigon_fail(context, TIGON_ERROR_##status, "%s: " format, context->checked->name, __VA_ARGS__)

const char *tigon_field_name(const tigon_context *context, const tigon_field *field, char name[TIGON_NAME]) {
  if (!(field->flags & TIGON_FIELD_EACH)) return field->name;
  const char *list = context->checked->fields[0].name; /* a list is its entry's first field */
  const bool whole = strcmp(list, field->name) == 0;
  snprintf(name, TIGON_NAME, "%s[%" PRId64 "]%s%s", list, context->element, whole ? "" : ".", whole ? "" : field->name);
  return name;
}
#define NAME tigon_field_name(context, field, (char[TIGON_NAME]){0})

/* ---- one tensor ---- */

static tigon_status fail_dtype(tigon_context *context, const tigon_field *field, tigon_dtype dtype) {
  char names[64] = "";
  for (unsigned d = 1; d < 32; ++d)
    if (field->dtypes & TIGON_BIT(d))
      tigon_append(names, sizeof names, "%s%s", *names ? ", " : "", tigon_dtype_name(d));
  if (tigon_dtype_size(dtype)) return FAIL(INVALID, "%s.dtype is %s, must be %s", NAME, tigon_dtype_name(dtype), names);
  return FAIL(INVALID, "%s.dtype is %d, must be %s", NAME, (int)dtype, names);
}

/* Nobody walks an extent of 1, and DLPack gives it the stride 1, which is no pitch. It becomes the natural stride over the
 * dimensions inside, so that no kernel takes an odd pitch for a reason against its wide loads. Nobody has looked at the strides of a tensor
 * without elements: they become 1, which stays small in any product. */
static void straighten(tigon_tensor *t, bool has_elements) {
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (has_elements && t->shape[i] != 1) continue;
    const bool natural = has_elements && i < t->ndim - 1;
    if (!natural || __builtin_mul_overflow(t->strides[i + 1], t->shape[i + 1], &t->strides[i])) t->strides[i] = 1;
  }
}

/* Fills in natural strides where all are zero or an extent is 1, and checks shape, strides and extent in bytes, which go to
 * *extent. */
static tigon_status check_layout(tigon_context *context, const tigon_field *field, tigon_tensor *t, int64_t size,
                                 tigon_extent *extent) {
  int64_t natural[TIGON_MAX_DIMS], step = 1, count = 1, last = 0;
  bool given = false;
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] < 0) return FAIL(INVALID, "%s.shape[%d] is %" PRId64 ", must be >= 0", NAME, i, t->shape[i]);
    if (t->strides[i] < 0) return FAIL(INVALID, "%s.strides[%d] is %" PRId64 ", must be >= 0", NAME, i, t->strides[i]);
    given = given || t->strides[i] != 0;
    natural[i] = step;
    if (__builtin_mul_overflow(step, t->shape[i] > 0 ? t->shape[i] : 1, &step))
      return FAIL(INVALID, "%s has more elements than 64 bits count", NAME);
    count = t->shape[i] ? count : 0;
  }
  for (int i = 0; i < t->ndim; ++i) {
    if (!given) t->strides[i] = natural[i];
    int64_t reach;
    if (t->shape[i] > 1 &&
        (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &reach) || __builtin_add_overflow(last, reach, &last)))
      return FAIL(INVALID, "%s reaches further than 64 bits address", NAME);
    if ((field->flags & TIGON_FIELD_CONTIGUOUS) && t->shape[i] > 1 && t->strides[i] != natural[i])
      return FAIL(INVALID, "%s.strides[%d] is %" PRId64 ", must be %" PRId64 " (contiguous)", NAME, i, t->strides[i],
                  natural[i]);
  }
  int64_t bytes, end;
  if (__builtin_add_overflow(last, 1, &bytes) || __builtin_mul_overflow(bytes, size, &bytes) ||
      __builtin_add_overflow(bytes, (int64_t)((uintptr_t)t->data & INT64_MAX), &end))
    return FAIL(INVALID, "%s reaches further than 64 bits address", NAME);
  const int d = t->ndim - 1;
  const bool free_last = (field->flags & TIGON_FIELD_FREE_LAST) && t->ndim == 2;
  const bool turned = (field->flags & TIGON_FIELD_TURNED) && d > 0 && t->strides[d - 1] == 1;
  if (t->shape[d] > 1 && t->strides[d] != 1 && !free_last && !turned)
    return FAIL(INVALID, "%s.strides[%d] is %" PRId64 ", must be 1", NAME, d, t->strides[d]);
  if (count) *extent = (tigon_extent){field, t, (uintptr_t)t->data, (uintptr_t)t->data + (uintptr_t)bytes, false};
  straighten(t, count > 0);
  return TIGON_OK;
}

int64_t tigon_tensor_count(const tigon_tensor *tensor) {
  int64_t count = tensor->ndim > 0;
  for (int i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
  return count;
}

/* Are there elements, which lie end to end by the strides given? Then *extent is theirs, and the layout is in order. Most
 * tensors are so, and a tiny call is over sooner than check_layout() of each. */
static bool is_dense(const tigon_field *field, const tigon_tensor *t, int64_t size, tigon_extent *extent) {
  int64_t step = 1, bytes, end;
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] <= 0 || t->strides[i] != step || __builtin_mul_overflow(step, t->shape[i], &step)) return false;
  }
  if (__builtin_mul_overflow(step, size, &bytes) ||
      __builtin_add_overflow(bytes, (int64_t)((uintptr_t)t->data & INT64_MAX), &end))
    return false;
  *extent = (tigon_extent){field, t, (uintptr_t)t->data, (uintptr_t)t->data + (uintptr_t)bytes, true};
  return true;
}

/* extent->field stays NULL when there are no elements. */
static tigon_status check_one(tigon_context *context, const tigon_field *field, tigon_tensor *t, bool shape_only,
                              tigon_extent *extent) {
  extent->field = NULL;
  if (!tigon_present(t)) {
    t->dtype = TIGON_DTYPE_NONE;
    return field->flags & TIGON_FIELD_OPTIONAL ? TIGON_OK : FAIL(INVALID, "%s is absent", NAME);
  }
  if (t->ndim < 1 || t->ndim > TIGON_MAX_DIMS)
    return FAIL(INVALID, "%s.ndim is %d, must be 1 to %d", NAME, (int)t->ndim, TIGON_MAX_DIMS);
  if ((unsigned)t->dtype >= 32 || !(field->dtypes & TIGON_BIT(t->dtype))) return fail_dtype(context, field, t->dtype);
  const size_t size = tigon_dtype_size(t->dtype);
  if (!is_dense(field, t, (int64_t)size, extent)) TIGON_TRY(check_layout(context, field, t, (int64_t)size, extent));
  if (shape_only || !extent->field) return TIGON_OK;
  if (!t->data) return FAIL(INVALID, "%s.data is NULL", NAME);
  if ((uintptr_t)t->data & (size - 1))
    return FAIL(INVALID, "%s.data is not aligned to %zu bytes (%s)", NAME, size, tigon_dtype_name(t->dtype));
  return TIGON_OK;
}

/* ---- overlap ---- */

static bool same_view(const tigon_tensor *a, const tigon_tensor *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; ++i)
    if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->strides[i] != b->strides[i])) return false;
  return true;
}

bool tigon_is_listed(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
  return false;
}

/* Memory ranges of the two meet. */
static tigon_status check_pair(tigon_context *context, const tigon_extent *out, const tigon_extent *other) {
  const tigon_field *field = out->field;
  const bool in_place = tigon_is_listed(field->in_place, other->field->name);
  if ((in_place && same_view(out->tensor, other->tensor)) || !tigon_overlap(out->tensor, other->tensor))
    return TIGON_OK;
  char other_name[TIGON_NAME];
  return tigon_fail(context, TIGON_ERROR_ALIAS, "%s: %s overlaps %s%s", context->checked->name, NAME,
                    tigon_field_name(context, other->field, other_name),
                    in_place ? " in part, must be the same view or apart" : ", must be apart");
}

tigon_status tigon_check_tensors(tigon_context *context, char *args, char *element, bool shape_only) {
  const tigon_schema *schema = context->checked;
  tigon_extent *at = context->memory.of;
  int used = 0;
  for (int i = 0; i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    if (field->kind != TIGON_FIELD_TENSOR) continue;
    char *base = field->flags & TIGON_FIELD_EACH ? element : args;
    if (!base) continue;
    const bool elsewhere = tigon_blocks_at(schema, i, base) != NULL;
    TIGON_TRY(
        check_one(context, field, (tigon_tensor *)(void *)(base + field->offset), shape_only || elsewhere, &at[used]));
    used += at[used].field != NULL && !elsewhere;
  }
  context->memory.count = used;
  if (shape_only) return TIGON_OK;
  for (int i = 0; i < used; ++i) {
    const tigon_field *field = at[i].field;
    if (!(field->flags & TIGON_FIELD_OUT)) continue;
    if (!at[i].dense && tigon_overlaps_itself(at[i].tensor))
      return FAIL(ALIAS, "%s overlaps itself, its strides must keep elements apart", NAME);
    for (int j = 0; j < used; ++j) {
      if (at[i].low >= at[j].high || at[j].low >= at[i].high) continue;
      const bool seen = j < i && (at[j].field->flags & TIGON_FIELD_OUT);
      if (j != i && !seen) TIGON_TRY(check_pair(context, &at[i], &at[j]));
    }
  }
  return TIGON_OK;
}

/* ---- numbers ---- */

static tigon_status check_integer(tigon_context *context, const tigon_field *field, int64_t value) {
  const bool any = field->low == 0 && field->high == 0, no_limit = isinf(field->high);
  const int64_t low = (int64_t)field->low, high = no_limit ? INT64_MAX : (int64_t)field->high;
  if (any || (value >= low && value <= high)) return TIGON_OK;
  if (no_limit) return FAIL(INVALID, "%s is %" PRId64 ", must be >= %" PRId64, NAME, value, low);
  return FAIL(INVALID, "%s is %" PRId64 ", must be %" PRId64 " %s %" PRId64, NAME, value, low,
              field->flags & TIGON_FIELD_IS_FLAG ? "or" : "to", high);
}

static tigon_status check_double(tigon_context *context, const tigon_field *field, double value) {
  const bool below = field->flags & TIGON_FIELD_BELOW_HIGH;
  if (value >= field->low && (below ? value < field->high : value <= field->high)) return TIGON_OK;
  if (value == 0 && (field->flags & TIGON_FIELD_OR_ZERO)) return TIGON_OK;
  if (below)
    return FAIL(INVALID, "%s is %g, must be at least %g and less than %g", NAME, value, field->low, field->high);
  return FAIL(INVALID, "%s is %g, must be %g to %g", NAME, value, field->low, field->high);
}

tigon_status tigon_check_field(tigon_context *context, const tigon_field *field, const void *value) {
  switch (field->kind) {
    case TIGON_FIELD_DOUBLE: return check_double(context, field, *(const double *)value);
    case TIGON_FIELD_INT: return check_integer(context, field, *(const int *)value);
    case TIGON_FIELD_INT64: return check_integer(context, field, *(const int64_t *)value);
    case TIGON_FIELD_LIST: {
      const struct {
        const void *elements;
        int64_t count;
      } *list = value;
      if (list->count < 0) return FAIL(INVALID, "count is %" PRId64 ", must be >= 0", list->count);
      return list->count && !list->elements ? FAIL(INVALID, "%s is NULL", NAME) : TIGON_OK;
    }
    case TIGON_FIELD_RESERVED:
      for (int i = 0; i < TIGON_RESERVED; ++i)
        if (((const uint64_t *)value)[i])
          return FAIL(INVALID, "%s[%d] is %" PRIu64 ", must be 0", NAME, i, ((const uint64_t *)value)[i]);
      return TIGON_OK;
    default: return TIGON_OK;
  }
}

tigon_status tigon_check_workspace(tigon_context *context, const void *workspace, size_t bytes, size_t needed) {
  if (needed == 0) return TIGON_OK;
  if (!workspace) return FAIL(WORKSPACE, "workspace is NULL, must have %zu bytes", needed);
  if (bytes < needed) return FAIL(WORKSPACE, "workspace_bytes is %zu, must be %zu or more", bytes, needed);
  const uintptr_t low = (uintptr_t)workspace, high = bytes < UINTPTR_MAX - low ? low + bytes : UINTPTR_MAX;
  if (low % 64) return FAIL(WORKSPACE, "%s is not aligned to 64 bytes", "workspace");
  tigon_memory *memory = &context->memory;
  for (int i = 0; i < memory->count; ++i) {
    const tigon_extent *t = &memory->of[i];
    const tigon_field *field = t->field;
    if (low < t->high && t->low < high) return FAIL(ALIAS, "workspace overlaps %s, must be apart", NAME);
  }
  static const tigon_field workspace_field = {
      .name = "workspace", .kind = TIGON_FIELD_WORKSPACE, .flags = TIGON_FIELD_OUT};
  memory->of[memory->count++] = (tigon_extent){.field = &workspace_field, .low = low, .high = high};
  return TIGON_OK;
}

/* ---- indices ---- */

tigon_status tigon_check_indices(tigon_context *context, const char *name, const tigon_tensor *indices, tigon_dim limit,
                                 bool has_ignore, int64_t ignore, const tigon_tensor *error, int32_t **flag) {
  return tigon_check_below(context, name, indices, tigon_extent_of(limit), limit, has_ignore, ignore, error, flag);
}

tigon_status tigon_check_below(tigon_context *context, const char *name, const tigon_tensor *indices, int64_t end,
                               tigon_dim limit, bool has_ignore, int64_t ignore, const tigon_tensor *error,
                               int32_t **flag) {
  *flag = tigon_present(error) ? error->data : context->queue.error_flag;
  if (context->shape_only || tigon_present(error) || !context->queue.backend->host_memory || context->queue.record)
    return TIGON_OK;
  const int64_t count = tigon_tensor_count(indices);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index =
        indices->dtype == TIGON_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
    if ((index >= 0 && index < end) || (has_ignore && index == ignore)) continue;
    const char *or_ignored = has_ignore ? " or ignore_index" : "";
    if (!limit.tensor)
      return FAIL(INVALID, "%s[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64 " (%s - 1)%s", name, i, index,
                  end - 1, limit.name, or_ignored);
    return FAIL(INVALID, "%s[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64 " (%s.shape[%d] - 1)%s", name, i,
                index, end - 1, limit.name, limit.dim, or_ignored);
  }
  return TIGON_OK;
}

/* ---- relations that fronts check, by the names of tensors ---- */

tigon_status tigon_refuse(tigon_context *context, const char *format, ...) {
  char sentence[sizeof context->error];
  va_list list;
  va_start(list, format);
  vsnprintf(sentence, sizeof sentence, format, list);
  va_end(list);
  return FAIL(INVALID, "%s", sentence);
}

tigon_status tigon_check_ndim(tigon_context *context, const char *name, const tigon_tensor *a, int ndim) {
  if (!tigon_present(a) || a->ndim == ndim) return TIGON_OK;
  return FAIL(INVALID, "%s.ndim is %d, must be %d", name, (int)a->ndim, ndim);
}

tigon_status tigon_check_extent(tigon_context *context, const char *name, const tigon_tensor *a, int dim,
                                int64_t extent, const char *because) {
  if (!tigon_present(a) || a->shape[dim] == extent) return TIGON_OK;
  return FAIL(INVALID, "%s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s)", name, dim, a->shape[dim], extent,
              because);
}

tigon_status tigon_check_same_extent(tigon_context *context, const char *name, const tigon_tensor *a, int dim,
                                     tigon_dim other) {
  const int64_t extent = tigon_extent_of(other);
  if (!tigon_present(a) || a->shape[dim] == extent) return TIGON_OK;
  return FAIL(INVALID, "%s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s.shape[%d])", name, dim, a->shape[dim],
              extent, other.name, other.dim);
}

tigon_status tigon_check_vector(tigon_context *context, const char *name, const tigon_tensor *a, int64_t extent,
                                const char *because) {
  TIGON_TRY(tigon_check_ndim(context, name, a, 1));
  return tigon_check_extent(context, name, a, 0, extent, because);
}

tigon_status tigon_check_per_row(tigon_context *context, const char *name, const tigon_tensor *a, const char *rows_name,
                                 const tigon_tensor *rows_of) {
  if (!tigon_present(a)) return TIGON_OK;
  const int leading = rows_of->ndim - 1;
  if (a->ndim == 1) {
    int64_t rows = 1;
    for (int i = 0; i < leading; ++i) rows *= rows_of->shape[i];
    if (a->shape[0] == rows) return TIGON_OK;
    return FAIL(INVALID, "%s.shape[0] is %" PRId64 ", must be %" PRId64 " (rows of %s)", name, a->shape[0], rows,
                rows_name);
  }
  if (a->ndim != leading && leading > 1)
    return FAIL(INVALID, "%s.ndim is %d, must be %d (%s.ndim - 1) or 1", name, (int)a->ndim, leading, rows_name);
  if (a->ndim != leading) return FAIL(INVALID, "%s.ndim is %d, must be 1", name, (int)a->ndim);
  for (int i = 0; i < leading; ++i)
    TIGON_TRY(tigon_check_same_extent(context, name, a, i, (tigon_dim){rows_name, rows_of, i}));
  return TIGON_OK;
}

tigon_status tigon_check_same_shape(tigon_context *context, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b) {
  if (!tigon_present(a)) return TIGON_OK;
  if (a->ndim != b->ndim)
    return FAIL(INVALID, "%s.ndim is %d, must be %d (%s.ndim)", a_name, (int)a->ndim, (int)b->ndim, b_name);
  for (int i = 0; i < b->ndim; ++i)
    TIGON_TRY(tigon_check_same_extent(context, a_name, a, i, (tigon_dim){b_name, b, i}));
  return TIGON_OK;
}
