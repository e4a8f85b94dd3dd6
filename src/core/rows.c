/* Leading dimensions of several tensors, collapsed together into at most three levels. */
#include "core/check.h"

enum { LEVELS = 3 };

/* Can dimension d and the next longer one inside it be walked as one in every tensor? */
static bool mergeable(int count, const tigon_tensor *const *tensors, int d, int inside) {
  for (int i = 0; i < count; ++i)
    if (tigon_present(tensors[i]) && tensors[i]->strides[d] != tensors[i]->strides[inside] * tensors[i]->shape[inside])
      return false;
  return true;
}

/* To at most `most` levels. */
static tigon_status collapse(tigon_context *context, const char *call, int most, int trailing, int count,
                             const tigon_tensor *const *tensors, tigon_rows *const *rows, tigon_row_space *space) {
  const tigon_tensor *shape = NULL;
  for (int i = 0; i < count && !shape; ++i)
    if (tigon_present(tensors[i])) shape = tensors[i];
  const int leading = shape ? shape->ndim - trailing : 0;

  /* Level l is walked with the stride of its last dimension, dimension[l]. Extents of one do not count. */
  int64_t extent[LEVELS] = {1, 1, 1};
  int dimension[LEVELS] = {-1, -1, -1};
  int level = LEVELS, previous = -1;
  int64_t total = 1;
  for (int d = leading - 1; d >= 0; --d) total *= shape->shape[d];
  for (int d = leading - 1; total > 0 && d >= 0; --d) {
    if (shape->shape[d] == 1) continue;
    if (previous >= 0 && mergeable(count, tensors, d, previous)) {
      if (level >= 0) extent[level] *= shape->shape[d];
    } else if (--level >= 0) {
      extent[level] = shape->shape[d];
      dimension[level] = d;
    }
    previous = d;
  }
  if (LEVELS - level > most)
    return tigon_fail(context, TIGON_ERROR_INVALID,
                      "%s: the leading dimensions collapse to %d strides, must collapse to %d%s", call, LEVELS - level,
                      most, most > 1 ? " or fewer" : "");
  *space = (tigon_row_space){.rows = total, .middle = extent[1], .inner = extent[2]};
  for (int i = 0; i < count; ++i) {
    *rows[i] = (tigon_rows){.data = tensors[i]->data};
    for (int l = 0; l < LEVELS; ++l)
      if (dimension[l] >= 0 && tigon_present(tensors[i])) rows[i]->pitch[l] = tensors[i]->strides[dimension[l]];
  }
  return TIGON_OK;
}

tigon_status tigon_collapse(tigon_context *context, const char *call, int trailing, int count,
                            const tigon_tensor *const *tensors, tigon_rows *const *rows, tigon_row_space *space) {
  return collapse(context, call, LEVELS, trailing, count, tensors, rows, space);
}

void tigon_flatten(int count, tigon_rows *const *rows, tigon_row_space *space, int64_t *cols) {
  while (space->rows > 1) {
    for (int i = 0; i < count; ++i)
      if (rows[i]->data && rows[i]->pitch[2] != *cols) return;
    *cols *= space->inner;
    const int64_t outer = space->rows / (space->inner * space->middle);
    *space = (tigon_row_space){.rows = space->rows / space->inner, .middle = outer, .inner = space->middle};
    for (int i = 0; i < count; ++i) *rows[i] = (tigon_rows){rows[i]->data, {0, rows[i]->pitch[0], rows[i]->pitch[1]}};
  }
}

tigon_status tigon_collapse_pitch(tigon_context *context, const char *call, int count,
                                  const tigon_tensor *const *tensors, tigon_rows *const *rows, int64_t *row_count) {
  tigon_row_space space;
  TIGON_TRY(collapse(context, call, 1, 1, count, tensors, rows, &space));
  *row_count = space.rows;
  return TIGON_OK;
}
