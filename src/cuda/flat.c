#include "cuda/flat.h"

#include <stdlib.h>

bool flat_wide(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype) {
  return space->rows == 1 ? !t->data || cuda_wide(t->data) : cuda_wide_rows(space, t, dtype);
}

flat_walk flat_cut(int64_t rows, int64_t items, int64_t each) {
  flat_walk walk = {.team = 1, .one_row = rows == 1};
  while (walk.team < FLAT_THREADS && walk.team * each < items) walk.team *= 2, ++walk.team_bits;
  walk.tiles = (unsigned)cuda_ceil_div(items, walk.team * each);
  return walk;
}

int64_t flat_blocks(const flat_walk *walk, int64_t rows) {
  return cuda_ceil_div(rows, FLAT_THREADS / walk->team) * walk->tiles;
}

static void flatten(tigon_row_space *space, int64_t *cols, const tigon_rows *const *tensors, int count) {
  if (space->inner != space->rows) return;
  for (int i = 0; i < count; ++i)
    if (tensors[i]->pitch[2] != *cols && space->rows != 1) return;
  *cols *= space->rows;
  *space = (tigon_row_space){1, 1, 1};
}

/* Of tensors whose rows all begin on 16 bytes. */
static bool plain_of(const tigon_row_space *space, int64_t packs, int64_t lanes, const tigon_rows *const *tensors,
                     int count, flat_plain *plain) {
  enum { MOST_ROWS = 65535 }; /* a grid's second extent */
  if (space->inner != space->rows || space->rows < 1 || space->rows > MOST_ROWS) return false;
  plain->packs = (int)packs;
  for (int i = 0; i < count; ++i) {
    const int64_t pitch = space->rows == 1 ? 0 : tensors[i]->pitch[2] / lanes;
    if (llabs(pitch) > INT32_MAX / space->rows - FLAT_THREADS - packs) return false;
    plain->data[i] = tensors[i]->data;
    plain->pitch[i] = (int)pitch;
  }
  return true;
}

tigon_status flat_launch(tigon_queue *queue, void *problem, tigon_row_space *space, int64_t *cols, tigon_dtype dtype,
                         const tigon_rows *const *tensors, int count, bool plain, flat_kernels *kernels) {
  flatten(space, cols, tensors, count);
  bool is_wide = true;
  for (int i = 0; i < count; ++i) is_wide = is_wide && flat_wide(space, tensors[i], dtype);
  const int64_t lanes = is_wide ? 16 / (int64_t)tigon_dtype_size(dtype) : 1, items = cuda_ceil_div(*cols, lanes);
  flat_walk walk = flat_cut(space->rows, items, is_wide ? 1 : FLAT_ANY);
  cuda_shape shape = {.blocks = flat_blocks(&walk, space->rows), .threads = FLAT_THREADS};
  flat_plain rows = {0};
  plain = plain && is_wide && *cols % lanes == 0 && (space->rows == 1 || walk.team == FLAT_THREADS);
  if (!plain || !plain_of(space, items, lanes, tensors, count, &rows))
    return cuda_launch(queue, cuda_by_dtype(is_wide ? kernels->wide : kernels->any, dtype), shape,
                       CUDA_ARGUMENTS(problem, &walk));
  shape.blocks = walk.tiles, shape.rows = (int)space->rows;
  return cuda_launch(queue, cuda_by_dtype(kernels->plain, dtype), shape, CUDA_ARGUMENTS(&rows));
}
