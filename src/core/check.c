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

/* Fills in natural strides where all are zero, and checks shape, strides and extent in bytes. */
static tigon_status check_layout(tigon_context *context, const char *call, const tigon_arg *arg) {
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
  const int64_t size = (int64_t)tigon_dtype_size(t->dtype);
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
  if (last > (INT64_MAX - (int64_t)((uintptr_t)t->data & INT64_MAX)) / size - 1)
    return FAIL(INVALID, "%s: %s reaches further than 64 bits address", call, name);
  const int d = t->ndim - 1;
  if (t->shape[d] > 1 && t->strides[d] != 1)
    return FAIL(INVALID, "%s: %s.strides[%d] is %" PRId64 ", must be 1", call, name, d, t->strides[d]);
  return TIGON_OK;
}

int64_t tigon_tensor_count(const tigon_tensor *tensor) {
  int64_t count = tensor->ndim > 0;
  for (int i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
  return count;
}

static tigon_status check_one(tigon_context *context, const char *call, const tigon_arg *arg, bool shape_only) {
  tigon_tensor *t = arg->tensor;
  if (!tigon_present(t)) {
    if (arg->flags & TIGON_OPTIONAL) return TIGON_OK;
    return FAIL(INVALID, "%s: %s is absent", call, arg->name);
  }
  if (t->ndim < 1 || t->ndim > TIGON_MAX_DIMS)
    return FAIL(INVALID, "%s: %s.ndim is %d, must be 1 to %d", call, arg->name, (int)t->ndim, TIGON_MAX_DIMS);
  TIGON_TRY(check_dtype(context, call, arg));
  TIGON_TRY(check_layout(context, call, arg));
  if (shape_only || tigon_tensor_count(t) == 0) return TIGON_OK;
  if (!t->data) return FAIL(INVALID, "%s: %s.data is NULL", call, arg->name);
  const size_t size = tigon_dtype_size(t->dtype);
  if ((uintptr_t)t->data % size)
    return FAIL(INVALID, "%s: %s.data is not aligned to %zu bytes (%s)", call, arg->name, size,
                tigon_dtype_name(t->dtype));
  return TIGON_OK;
}

/* ---- overlap ---- */

/* A view in bytes, its dimensions in rising order of stride. Cut after the first k of them, it is a pattern of span[k] bytes
 * that stands at sums of multiples of the strides further out, so at multiples of their greatest common divisor, outer[k]. */
typedef struct view {
  uintptr_t low, high; /* all of it lies in [low, high) */
  int dims;
  int64_t span[TIGON_MAX_DIMS + 1], outer[TIGON_MAX_DIMS + 1];
  bool self_overlap;
} view;

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    const int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

static view view_of(const tigon_tensor *t) {
  const int64_t size = (int64_t)tigon_dtype_size(t->dtype);
  int order[TIGON_MAX_DIMS] = {0}, dims = 0;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] <= 1) continue;
    int at = dims++;
    for (; at > 0 && t->strides[order[at - 1]] > t->strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  view v = {.low = (uintptr_t)t->data, .dims = dims, .span = {size}};
  for (int i = 0; i < dims; ++i) {
    const int64_t stride = t->strides[order[i]] * size;
    v.self_overlap = v.self_overlap || stride < v.span[i];
    v.span[i + 1] = v.span[i] + (t->shape[order[i]] - 1) * stride;
  }
  for (int i = dims - 1; i >= 0; --i) v.outer[i] = gcd(t->strides[order[i]] * size, v.outer[i + 1]);
  v.high = v.low + (uintptr_t)v.span[dims];
  return v;
}

/* Are a's pattern i and b's pattern j apart? Both repeat with period g, so their residues decide. */
static bool apart(const view *a, int i, const view *b, int j) {
  const int64_t g = gcd(a->outer[i], b->outer[j]);
  if (g == 0) return false; /* the whole views, whose ranges meet */
  const int64_t distance = b->low >= a->low ? (int64_t)((b->low - a->low) % (uintptr_t)g)
                                            : (g - (int64_t)((a->low - b->low) % (uintptr_t)g)) % g;
  return distance >= a->span[i] && distance + b->span[j] <= g;
}

/* False only when no byte is shared. */
static bool overlap(const view *a, const view *b) {
  if (a->high <= b->low || b->high <= a->low) return false;
  for (int i = 0; i <= a->dims; ++i)
    for (int j = 0; j <= b->dims; ++j)
      if (apart(a, i, b, j)) return false;
  return true;
}

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

static tigon_status check_pair(tigon_context *context, const char *call, const tigon_arg *out, const tigon_arg *other) {
  if (listed(out->in_place, other->name) && same_view(out->tensor, other->tensor)) return TIGON_OK;
  const view a = view_of(out->tensor), b = view_of(other->tensor);
  if (!overlap(&a, &b)) return TIGON_OK;
  if (listed(out->in_place, other->name))
    return FAIL(ALIAS, "%s: %s overlaps %s in part, must be the same view or apart", call, out->name, other->name);
  return FAIL(ALIAS, "%s: %s overlaps %s, must be apart", call, out->name, other->name);
}

tigon_status tigon_check_args(tigon_context *context, const char *call, tigon_arg *args, int count, bool shape_only) {
  for (int i = 0; i < count; ++i) TIGON_TRY(check_one(context, call, &args[i], shape_only));
  if (shape_only) return TIGON_OK;
  context->extent_count = 0;
  for (int i = 0; i < count; ++i) {
    if (tigon_tensor_count(args[i].tensor) == 0) continue;
    const view v = view_of(args[i].tensor);
    context->extents[context->extent_count++] = (tigon_extent){args[i].name, v.low, v.high};
  }
  for (int i = 0; i < count; ++i) {
    const tigon_arg *out = &args[i];
    if (!(out->flags & TIGON_OUT) || tigon_tensor_count(out->tensor) == 0) continue;
    if (view_of(out->tensor).self_overlap)
      return FAIL(ALIAS, "%s: %s overlaps itself, its strides must keep elements apart", call, out->name);
    for (int j = 0; j < count; ++j) {
      const tigon_arg *other = &args[j];
      if (j == i || ((other->flags & TIGON_OUT) && j < i) || tigon_tensor_count(other->tensor) == 0) continue;
      TIGON_TRY(check_pair(context, call, out, other));
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

tigon_status tigon_check_vector(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                int64_t extent, const char *because) {
  TIGON_TRY(tigon_check_ndim(context, call, name, a, 1));
  return tigon_check_extent(context, call, name, a, 0, extent, because);
}

tigon_status tigon_check_count(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                               int64_t count, const char *because) {
  if (!tigon_present(a) || tigon_tensor_count(a) == count) return TIGON_OK;
  return FAIL(INVALID, "%s: %s has %" PRId64 " elements, must have %" PRId64 " (%s)", call, name, tigon_tensor_count(a),
              count, because);
}

tigon_status tigon_check_same_shape(tigon_context *context, const char *call, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b) {
  if (!tigon_present(a)) return TIGON_OK;
  if (a->ndim != b->ndim)
    return FAIL(INVALID, "%s: %s.ndim is %d, must be %d (%s.ndim)", call, a_name, (int)a->ndim, (int)b->ndim, b_name);
  for (int i = 0; i < b->ndim; ++i)
    if (a->shape[i] != b->shape[i])
      return FAIL(INVALID, "%s: %s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s.shape[%d])", call, a_name, i,
                  a->shape[i], b->shape[i], b_name, i);
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
                                 const tigon_tensor *indices, int64_t limit, const char *limit_name, bool has_ignore,
                                 int64_t ignore, const tigon_tensor *error, int32_t **flag) {
  *flag = tigon_present(error) ? error->data : context->queue.error_flag;
  if (tigon_present(error) || !context->queue.backend->host_memory) return TIGON_OK;
  const int64_t count = tigon_tensor_count(indices);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index =
        indices->dtype == TIGON_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
    if ((index >= 0 && index < limit) || (has_ignore && index == ignore)) continue;
    return FAIL(INVALID, "%s: %s[%" PRId64 "] is %" PRId64 ", must be 0 to %" PRId64 " (%s - 1)%s", call, name, i,
                index, limit - 1, limit_name, has_ignore ? " or ignore_index" : "");
  }
  return TIGON_OK;
}
