#include "core/blocks.h"

#include <inttypes.h>
#include <string.h>

#define FAIL(status, format, ...) \
  tigon_fail(context, TIGON_ERROR_##status, "%s: " format, context->checked->name, __VA_ARGS__)

const void *const *tigon_blocks_at(const tigon_schema *schema, int index, const void *args) {
  if (index + 1 >= schema->count || schema->fields[index + 1].kind != TIGON_FIELD_BLOCKS) return NULL;
  const void *const *at;
  memcpy(&at, (const char *)args + schema->fields[index + 1].offset, sizeof at);
  return at;
}

tigon_tensor tigon_block_view(const tigon_tensor *tensor) {
  tigon_tensor view = {.data = tensor->data, .dtype = tensor->dtype, .ndim = tensor->ndim - 1};
  memcpy(view.shape, tensor->shape + 1, (size_t)view.ndim * sizeof *view.shape);
  memcpy(view.strides, tensor->strides + 1, (size_t)view.ndim * sizeof *view.strides);
  return view;
}

/* A list with blocks that have elements. */
typedef struct list {
  const char *name;
  const void *const *at;
  int64_t count;
  bool out;
  tigon_tensor view;
  uintptr_t bytes; /* from a block's first element to its end */
} list;

static uintptr_t low_of(const list *l, int64_t i) { return (uintptr_t)l->at[i]; }
static tigon_tensor block(const list *l, int64_t i) {
  tigon_tensor view = l->view;
  view.data = (void *)low_of(l, i); /* NOLINT(performance-no-int-to-ptr) */
  return view;
}

/* Do a block and another one, or a tensor, share memory? Most have ranges apart. */
static bool meets(const list *l, int64_t i, uintptr_t low, uintptr_t high, const tigon_tensor *other) {
  if (low_of(l, i) >= high || low >= low_of(l, i) + l->bytes) return false;
  const tigon_tensor view = block(l, i);
  return tigon_overlap(&view, other);
}

static list list_of(const tigon_schema *schema, int index, const void *args) {
  const tigon_field *field = &schema->fields[index];
  const tigon_tensor *t = (const tigon_tensor *)(const void *)((const char *)args + field->offset);
  list l = {.name = field[1].name,
            .at = tigon_blocks_at(schema, index, args),
            .out = field->flags & TIGON_FIELD_OUT,
            .view = tigon_block_view(t)};
  int64_t last = 0;
  for (int d = 0; d < l.view.ndim; ++d) last += (l.view.shape[d] - 1) * l.view.strides[d];
  l.bytes = (uintptr_t)(last + 1) * tigon_dtype_size(t->dtype);
  l.count = tigon_tensor_count(t) > 0 ? t->shape[0] : 0;
  return l;
}

static tigon_status check_addresses(tigon_context *context, const list *l) {
  const size_t size = tigon_dtype_size(l->view.dtype);
  for (int64_t i = 0; i < l->count; ++i) {
    if (!l->at[i]) return FAIL(INVALID, "%s[%" PRId64 "] is NULL", l->name, i);
    if (low_of(l, i) % size)
      return FAIL(INVALID, "%s[%" PRId64 "] is not aligned to %zu bytes (%s)", l->name, i, size,
                  tigon_dtype_name(l->view.dtype));
    if (low_of(l, i) > UINTPTR_MAX - l->bytes)
      return FAIL(INVALID, "%s[%" PRId64 "] reaches further than 64 bits address", l->name, i);
  }
  if (l->out && l->count > 0 && tigon_overlaps_itself(&l->view))
    return FAIL(ALIAS, "%s[0] overlaps itself, its strides must keep elements apart", l->name);
  return TIGON_OK;
}

/* Against the tensors that lie in one piece, and the workspace. */
static tigon_status check_tensors(tigon_context *context, const list *l, const void *workspace, size_t bytes) {
  const uintptr_t low = (uintptr_t)workspace;
  for (int64_t i = 0; i < l->count; ++i) {
    for (int k = 0; k < context->memory.count; ++k) {
      const tigon_extent *t = &context->memory.of[k];
      if (!l->out && !(t->field->flags & TIGON_FIELD_OUT)) continue;
      if (!meets(l, i, t->low, t->high, t->tensor)) continue;
      return l->out ? FAIL(ALIAS, "%s[%" PRId64 "] overlaps %s, must be apart", l->name, i, t->field->name)
                    : FAIL(ALIAS, "%s overlaps %s[%" PRId64 "], must be apart", t->field->name, l->name, i);
    }
    if (bytes > 0 && low < low_of(l, i) + l->bytes && low_of(l, i) < low + bytes)
      return FAIL(ALIAS, "workspace overlaps %s[%" PRId64 "], must be apart", l->name, i);
  }
  return TIGON_OK;
}

/* Blocks of an output against those of a list; of its own, each pair once. */
static tigon_status check_lists(tigon_context *context, const list *out, const list *other) {
  for (int64_t i = 0; i < out->count; ++i)
    for (int64_t j = out == other ? i + 1 : 0; j < other->count; ++j) {
      const tigon_tensor view = block(other, j);
      if (meets(out, i, low_of(other, j), low_of(other, j) + other->bytes, &view))
        return FAIL(ALIAS, "%s[%" PRId64 "] overlaps %s[%" PRId64 "], must be apart", out->name, i, other->name, j);
    }
  return TIGON_OK;
}

tigon_status tigon_check_blocks(tigon_context *context, const void *args, const void *workspace, size_t bytes) {
  const tigon_schema *schema = context->checked;
  list lists[TIGON_MAX_BLOCKS];
  int count = 0;
  if (context->shape_only) return TIGON_OK;
  for (int i = 0; i < schema->count; ++i)
    if (tigon_blocks_at(schema, i, args)) lists[count++] = list_of(schema, i, args);
  for (int k = 0; k < count; ++k) TIGON_TRY(check_addresses(context, &lists[k]));
  for (int k = 0; k < count; ++k) {
    TIGON_TRY(check_tensors(context, &lists[k], workspace, workspace ? bytes : 0));
    for (int j = 0; j < count; ++j)
      if ((j >= k || !lists[j].out) && lists[k].out) TIGON_TRY(check_lists(context, &lists[k], &lists[j]));
  }
  return TIGON_OK;
}
