/* The sizes that sweeps run an op on. */
#include <string.h>

#include "check/sweep.h"

static const check_sizes rows_and_columns = {
    .of = {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {CHECK_MANY, 4096}, {3, CHECK_THIRD}},
    .walks = {{3, CHECK_N}, {CHECK_N, 5}, {1, CHECK_N}},
};

static const check_sizes *sizes_of(int entry) {
  const check_sizes *own = check_op_at(entry)->sizes;
  return own ? own : &rows_and_columns;
}

bool check_dims(int entry, check_size size, int64_t dims[CHECK_DIMS]) {
  memcpy(dims, sizes_of(entry)->of[size], sizeof sizes_of(entry)->of[size]);
  return dims[0] != 0;
}

bool check_dims_walk(int entry, int walk, int64_t n, int64_t dims[CHECK_DIMS]) {
  if (walk >= CHECK_WALKS) return false;
  for (int d = 0; d < CHECK_DIMS; ++d) {
    const int64_t dim = sizes_of(entry)->walks[walk][d];
    dims[d] = dim == CHECK_N ? n : dim == CHECK_2N ? 2 * n : dim;
  }
  return dims[0] != 0;
}

double check_large(int entry) { return sizes_of(entry)->large > 0 ? sizes_of(entry)->large : 0x1p60; }

bool check_rows_apart(int entry, int option) { return !(sizes_of(entry)->coupled >> option & 1); }
