/* Leading dimensions of several tensors, collapsed together into at most three levels. */
#include "core/check.h"

enum { LEVELS = 3, MOST_MATRICES = 4 };

/* Can dimension d and the next longer one inside it be walked as one in every tensor? */
static bool mergeable(const tigon_row_tensor *of, int count, int d, int inside) {
  for (int i = 0; i < count; ++i) {
    const tigon_tensor *t = of[i].tensor;
    if (tigon_present(t) && t->strides[d] != t->strides[inside] * t->shape[inside]) return false;
  }
  return true;
}

/* To at most `most` levels; dimension[l]: whose stride level l is walked with, -1: it has one element. */
static tigon_status collapse(tigon_context *context, int most, const tigon_row_tensor *of, int count,
                             tigon_row_space *space, int dimension[LEVELS]) {
  const tigon_tensor *shape = NULL;
  for (int i = 0; i < count && !shape; ++i)
    if (tigon_present(of[i].tensor)) shape = of[i].tensor;
  const int leading = shape ? shape->ndim - 1 : 0;

  /* A level is walked with the stride of its last dimension. Extents of one do not count. */
  int64_t extent[LEVELS] = {1, 1, 1};
  int level = LEVELS, previous = -1;
  int64_t total = 1;
  for (int d = leading - 1; d >= 0; --d) total *= shape->shape[d];
  for (int d = leading - 1; total > 0 && d >= 0; --d) {
    if (shape->shape[d] == 1) continue;
    if (previous >= 0 && mergeable(of, count, d, previous)) {
      if (level >= 0) extent[level] *= shape->shape[d];
    } else if (--level >= 0) {
      extent[level] = shape->shape[d];
      dimension[level] = d;
    }
    previous = d;
  }
  if (LEVELS - level > most)
    return tigon_refuse(context, "the leading dimensions collapse to %d strides, must collapse to %d%s", LEVELS - level,
                        most, most > 1 ? " or fewer" : "");
  *space = (tigon_row_space){.rows = total, .middle = extent[1], .inner = extent[2]};
  return TIGON_OK;
}

tigon_status tigon_collapse_rows(tigon_context *context, tigon_row_space *space, const tigon_row_tensor *of,
                                 int count) {
  int dimension[LEVELS] = {-1, -1, -1};
  TIGON_TRY(collapse(context, LEVELS, of, count, space, dimension));
  for (int i = 0; i < count; ++i) {
    const tigon_tensor *t = of[i].tensor;
    *of[i].rows = (tigon_rows){.data = t->data};
    for (int l = 0; l < LEVELS; ++l)
      if (dimension[l] >= 0 && tigon_present(t)) of[i].rows->pitch[l] = t->strides[dimension[l]];
  }
  return TIGON_OK;
}

tigon_status tigon_collapse_pitches(tigon_context *context, int64_t *rows, const tigon_pitch_tensor *of, int count) {
  int dimension[LEVELS] = {-1, -1, -1};
  tigon_row_space space;
  tigon_row_tensor tensors[MOST_MATRICES] = {{0}};
  for (int i = 0; i < count; ++i) tensors[i].tensor = of[i].tensor;
  TIGON_TRY(collapse(context, 1, tensors, count, &space, dimension));
  const int d = dimension[LEVELS - 1];
  for (int i = 0; i < count; ++i) *of[i].pitch = d >= 0 && tigon_present(of[i].tensor) ? of[i].tensor->strides[d] : 0;
  *rows = space.rows;
  return TIGON_OK;
}

void tigon_flatten(tigon_row_space *space, int64_t *cols, const tigon_row_tensor *of, int count) {
  while (space->rows > 1) {
    for (int i = 0; i < count; ++i)
      if (of[i].rows->data && of[i].rows->pitch[2] != *cols) return;
    *cols *= space->inner;
    const int64_t outer = space->rows / (space->inner * space->middle);
    *space = (tigon_row_space){.rows = space->rows / space->inner, .middle = outer, .inner = space->middle};
    for (int i = 0; i < count; ++i) {
      tigon_rows *rows = of[i].rows;
      *rows = (tigon_rows){rows->data, {0, rows->pitch[0], rows->pitch[1]}};
    }
  }
}
