#include "core/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FAIL(status, ...) tigon_fail(context, TIGON_ERROR_##status, __VA_ARGS__)

tigon_status tigon_check_call(tigon_context *context, const char *call, const void *args, const uint64_t *reserved,
                              int reserved_count) {
  if (!context) return FAIL(INVALID, "%s: context is NULL", call);
  if (!args) return FAIL(INVALID, "%s: args is NULL", call);
  for (int i = 0; i < reserved_count; ++i)
    if (reserved[i]) return FAIL(INVALID, "%s: reserved[%d] is %" PRIu64 ", must be 0", call, i, reserved[i]);
  return TIGON_OK;
}

/* ---- one tensor ---- */

static tigon_status check_dtype(tigon_context *context, const char *call, const tigon_arg *arg) {
  const tigon_dtype dtype = arg->tensor->dtype;
  if ((unsigned)dtype < 32 && (arg->dtypes & TIGON_BIT(dtype))) return TIGON_OK;
  char names[64] = "";
  size_t used = 0;
  for (unsigned d = 1; d < 32; ++d)
    if (arg->dtypes & TIGON_BIT(d))
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", tigon_dtype_name(d));
  if (tigon_dtype_size(dtype))
    return FAIL(INVALID, "%s: %s.dtype is %s, must be %s", call, arg->name, tigon_dtype_name(dtype), names);
  return FAIL(INVALID, "%s: %s.dtype is %d, must be %s", call, arg->name, (int)dtype, names);
}

/* Nobody walks an extent of 1, and DLPack gives it the stride 1, which is no pitch. It becomes the natural stride over the
 * dimensions inside, so that no kernel takes an odd pitch for a reason against its wide loads. */
static void straighten(tigon_tensor *t) {
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] != 1) continue;
    const bool last = i == t->ndim - 1;
    if (last || __builtin_mul_overflow(t->strides[i + 1], t->shape[i + 1], &t->strides[i])) t->strides[i] = 1;
  }
}

/* Fills in natural strides where all are zero or an extent is 1, and checks shape, strides and extent in bytes, which go to
 * *extent. */
static tigon_status check_layout(tigon_context *context, const char *call, const tigon_arg *arg, int64_t size,
                                 tigon_extent *extent) {
  tigon_tensor *t = arg->tensor;
  const char *name = arg->name;
  int64_t natural[TIGON_MAX_DIMS], step = 1, count = 1, last = 0;
  bool given = false;
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] < 0)
      return FAIL(INVALID, "%s: %s.shape[%d] is %" PRId64 ", must be >= 0", call, name, i, t->shape[i]);
    if (t->strides[i] < 0)
      return FAIL(INVALID, "%s: %s.strides[%d] is %" PRId64 ", must be >= 0", call, name, i, t->strides[i]);
    given = given || t->strides[i] != 0;
    natural[i] = step;
    if (__builtin_mul_overflow(step, t->shape[i] > 0 ? t->shape[i] : 1, &step))
      return FAIL(INVALID, "%s: %s has more elements than 64 bits count", call, name);
    count = t->shape[i] ? count : 0;
  }
  for (int i = 0; i < t->ndim; ++i) {
    if (!given) t->strides[i] = natural[i];
    int64_t reach;
    if (t->shape[i] > 1 &&
        (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &reach) || __builtin_add_overflow(last, reach, &last)))
      return FAIL(INVALID, "%s: %s reaches further than 64 bits address", call, name);
    if ((arg->flags & TIGON_CONTIGUOUS) && t->shape[i] > 1 && t->strides[i] != natural[i])
      return FAIL(INVALID, "%s: %s.strides[%d] is %" PRId64 ", must be %" PRId64 " (contiguous)", call, name, i,
                  t->strides[i], natural[i]);
  }
  int64_t bytes, end;
  if (__builtin_add_overflow(last, 1, &bytes) || __builtin_mul_overflow(bytes, size, &bytes) ||
      __builtin_add_overflow(bytes, (int64_t)((uintptr_t)t->data & INT64_MAX), &end))
    return FAIL(INVALID, "%s: %s reaches further than 64 bits address", call, name);
  const int d = t->ndim - 1;
  if (t->shape[d] > 1 && t->strides[d] != 1 && !(arg->flags & TIGON_FREE_LAST))
    return FAIL(INVALID, "%s: %s.strides[%d] is %" PRId64 ", must be 1", call, name, d, t->strides[d]);
  if (count) *extent = (tigon_extent){name, (uintptr_t)t->data, (uintptr_t)t->data + (uintptr_t)bytes};
  straighten(t);
  return TIGON_OK;
}

int64_t tigon_tensor_count(const tigon_tensor *tensor) {
  int64_t count = tensor->ndim > 0;
  for (int i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
  return count;
}

/* Are there elements, which lie end to end by the strides given? Then *extent is theirs, and the layout is in order. Most
 * tensors are so, and a tiny call is over sooner than check_layout() of each. */
static bool is_dense(const tigon_arg *arg, int64_t size, tigon_extent *extent) {
  const tigon_tensor *t = arg->tensor;
  int64_t step = 1, bytes, end;
  for (int i = t->ndim - 1; i >= 0; --i) {
    if (t->shape[i] <= 0 || t->strides[i] != step || __builtin_mul_overflow(step, t->shape[i], &step)) return false;
  }
  if (__builtin_mul_overflow(step, size, &bytes) ||
      __builtin_add_overflow(bytes, (int64_t)((uintptr_t)t->data & INT64_MAX), &end))
    return false;
  *extent = (tigon_extent){arg->name, (uintptr_t)t->data, (uintptr_t)t->data + (uintptr_t)bytes};
  return true;
}

/* extent->name stays NULL when there are no elements. */
static tigon_status check_one(tigon_context *context, const char *call, const tigon_arg *arg, bool shape_only,
                              tigon_extent *extent, bool *dense) {
  const tigon_tensor *t = arg->tensor;
  extent->name = NULL;
  if (!tigon_present(t)) {
    if (arg->flags & TIGON_OPTIONAL) return TIGON_OK;
    return FAIL(INVALID, "%s: %s is absent", call, arg->name);
  }
  if (t->ndim < 1 || t->ndim > TIGON_MAX_DIMS)
    return FAIL(INVALID, "%s: %s.ndim is %d, must be 1 to %d", call, arg->name, (int)t->ndim, TIGON_MAX_DIMS);
  TIGON_TRY(check_dtype(context, call, arg));
  const size_t size = tigon_dtype_size(t->dtype);
  *dense = is_dense(arg, (int64_t)size, extent);
  if (!*dense) TIGON_TRY(check_layout(context, call, arg, (int64_t)size, extent));
  if (shape_only || !extent->name) return TIGON_OK;
  if (!t->data) return FAIL(INVALID, "%s: %s.data is NULL", call, arg->name);
  if ((uintptr_t)t->data & (size - 1))
    return FAIL(INVALID, "%s: %s.data is not aligned to %zu bytes (%s)", call, arg->name, size,
                tigon_dtype_name(t->dtype));
  return TIGON_OK;
}

/* ---- overlap ---- */

static bool same_view(const tigon_tensor *a, const tigon_tensor *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; ++i)
    if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->strides[i] != b->strides[i])) return false;
  return true;
}

/* Is `name` a word of `list`? */
static bool listed(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
  return false;
}

/* Of arguments whose ranges meet. */
static tigon_status check_pair(tigon_context *context, const char *call, const tigon_arg *out, const tigon_arg *other) {
  const bool in_place = listed(out->in_place, other->name);
  if ((in_place && same_view(out->tensor, other->tensor)) || !tigon_overlap(out->tensor, other->tensor))
    return TIGON_OK;
  if (in_place)
    return FAIL(ALIAS, "%s: %s overlaps %s in part, must be the same view or apart", call, out->name, other->name);
  return FAIL(ALIAS, "%s: %s overlaps %s, must be apart", call, out->name, other->name);
}

tigon_status tigon_check_args(tigon_context *context, const char *call, tigon_arg *args, int count, bool shape_only) {
  tigon_extent *at = context->extents;
  const tigon_arg *of[TIGON_MAX_ARGS]; /* the arguments that have elements, `used` of them */
  bool dense[TIGON_MAX_ARGS];
  int used = 0;
  for (int i = 0; i < count; ++i) {
    TIGON_TRY(check_one(context, call, &args[i], shape_only, &at[used], &dense[used]));
    of[used] = &args[i];
    used += at[used].name != NULL;
  }
  context->extent_count = used;
  if (shape_only) return TIGON_OK;
  for (int i = 0; i < used; ++i) {
    const tigon_arg *out = of[i];
    if (!(out->flags & TIGON_OUT)) continue;
    if (!dense[i] && tigon_overlaps_itself(out->tensor))
      return FAIL(ALIAS, "%s: %s overlaps itself, its strides must keep elements apart", call, out->name);
    for (int j = 0; j < used; ++j) {
      if (at[i].low >= at[j].high || at[j].low >= at[i].high) continue;
      const bool seen = j < i && (of[j]->flags & TIGON_OUT);
      if (j != i && !seen) TIGON_TRY(check_pair(context, call, out, of[j]));
    }
  }
  return TIGON_OK;
}

/* ---- relations ---- */

tigon_status tigon_check_ndim(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                              int ndim) {
  if (!tigon_present(a) || a->ndim == ndim) return TIGON_OK;
  return FAIL(INVALID, "%s: %s.ndim is %d, must be %d", call, name, (int)a->ndim, ndim);
}

tigon_status tigon_check_extent(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                int dim, int64_t extent, const char *because) {
  if (!tigon_present(a) || a->shape[dim] == extent) return TIGON_OK;
  return FAIL(INVALID, "%s: %s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s)", call, name, dim, a->shape[dim],
              extent, because);
}

tigon_status tigon_check_same_extent(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                     int dim, tigon_dim other) {
  const int64_t extent = tigon_extent_of(other);
  if (!tigon_present(a) || a->shape[dim] == extent) return TIGON_OK;
  return FAIL(INVALID, "%s: %s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s.shape[%d])", call, name, dim,
              a->shape[dim], extent, other.name, other.dim);
}

tigon_status tigon_check_vector(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                int64_t extent, const char *because) {
  TIGON_TRY(tigon_check_ndim(context, call, name, a, 1));
  return tigon_check_extent(context, call, name, a, 0, extent, because);
}

tigon_status tigon_check_same_vector(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                     tigon_dim other) {
  TIGON_TRY(tigon_check_ndim(context, call, name, a, 1));
  return tigon_check_same_extent(context, call, name, a, 0, other);
}

tigon_status tigon_check_per_row(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                 const char *rows_name, const tigon_tensor *rows_of) {
  if (!tigon_present(a)) return TIGON_OK;
  const int leading = rows_of->ndim - 1;
  if (a->ndim == 1) {
    int64_t rows = 1;
    for (int i = 0; i < leading; ++i) rows *= rows_of->shape[i];
    if (a->shape[0] == rows) return TIGON_OK;
    return FAIL(INVALID, "%s: %s.shape[0] is %" PRId64 ", must be %" PRId64 " (rows of %s)", call, name, a->shape[0],
                rows, rows_name);
  }
  if (a->ndim != leading && leading > 1)
    return FAIL(INVALID, "%s: %s.ndim is %d, must be %d (%s.ndim - 1) or 1", call, name, (int)a->ndim, leading,
                rows_name);
  if (a->ndim != leading) return FAIL(INVALID, "%s: %s.ndim is %d, must be 1", call, name, (int)a->ndim);
  for (int i = 0; i < leading; ++i)
    TIGON_TRY(tigon_check_same_extent(context, call, name, a, i, (tigon_dim){rows_name, rows_of, i}));
  return TIGON_OK;
}

tigon_status tigon_check_same_shape(tigon_context *context, const char *call, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b) {
  if (!tigon_present(a)) return TIGON_OK;
  if (a->ndim != b->ndim)
    return FAIL(INVALID, "%s: %s.ndim is %d, must be %d (%s.ndim)", call, a_name, (int)a->ndim, (int)b->ndim, b_name);
  for (int i = 0; i < b->ndim; ++i)
    TIGON_TRY(tigon_check_same_extent(context, call, a_name, a, i, (tigon_dim){b_name, b, i}));
  return TIGON_OK;
}

tigon_status tigon_check_same_dtype(tigon_context *context, const char *call, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b, tigon_dtype other) {
  if (!tigon_present(a) || a->dtype == b->dtype || (other != TIGON_DTYPE_NONE && a->dtype == other)) return TIGON_OK;
  if (other != TIGON_DTYPE_NONE && other != b->dtype)
    return FAIL(INVALID, "%s: %s.dtype is %s, must be %s (%s.dtype) or %s", call, a_name, tigon_dtype_name(a->dtype),
                tigon_dtype_name(b->dtype), b_name, tigon_dtype_name(other));
  return FAIL(INVALID, "%s: %s.dtype is %s, must be %s (%s.dtype)", call, a_name, tigon_dtype_name(a->dtype),
              tigon_dtype_name(b->dtype), b_name);
}

tigon_status tigon_check_number(tigon_context *context, const char *call, const char *name, double value, double low,
                                double high) {
  if (value >= low && value <= high) return TIGON_OK;
  return FAIL(INVALID, "%s: %s is %g, must be %g to %g", call, name, value, low, high);
}

tigon_status tigon_check_choice(tigon_context *context, const char *call, const char *name, int value, int last) {
  if (value >= 0 && value <= last) return TIGON_OK;
  return FAIL(INVALID, "%s: %s is %d, must be 0 to %d", call, name, value, last);
}

tigon_status tigon_check_flag(tigon_context *context, const char *call, const char *name, int value) {
  if (value == 0 || value == 1) return TIGON_OK;
  return FAIL(INVALID, "%s: %s is %d, must be 0 or 1", call, name, value);
}

tigon_status tigon_check_workspace(tigon_context *context, const char *call, const void *workspace, size_t bytes,
                                   size_t needed) {
  if (needed == 0) return TIGON_OK;
  if (!workspace) return FAIL(WORKSPACE, "%s: workspace is NULL, must have %zu bytes", call, needed);
  if (bytes < needed) return FAIL(WORKSPACE, "%s: workspace_bytes is %zu, must be %zu or more", call, bytes, needed);
  const uintptr_t low = (uintptr_t)workspace, high = bytes < UINTPTR_MAX - low ? low + bytes : UINTPTR_MAX;
  if (low % 64) return FAIL(WORKSPACE, "%s: workspace is not aligned to 64 bytes", call);
  for (int i = 0; i < context->extent_count; ++i) {
    const tigon_extent *t = &context->extents[i];
    if (low < t->high && t->low < high) return FAIL(ALIAS, "%s: workspace overlaps %s, must be apart", call, t->name);
  }
  return TIGON_OK;
}

tigon_status tigon_check_indices(tigon_context *context, const char *call, const char *name,
                                 const tigon_tensor *indices, tigon_dim limit, bool has_ignore, int64_t ignore,
                                 const tigon_tensor *error, int32_t **flag) {
  *flag = tigon_present(error) ? error->data : context->queue.error_flag;
  if (tigon_present(error) || !context->queue.backend->host_memory || context->queue.record) return TIGON_OK;
  const int64_t count = tigon_tensor_count(indices), end = tigon_extent_of(limit);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index =
        indices->dtype == TIGON_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
    if ((index >= 0 && index < end) || (has_ignore && index == ignore)) continue;
    return FAIL(INVALID, "%s: %s[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64 " (%s.shape[%d] - 1)%s", call,
                name, i, index, end - 1, limit.name, limit.dim, has_ignore ? " or ignore_index" : "");
  }
  return TIGON_OK;
}
