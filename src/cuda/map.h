/* What launchers and kernels of elementwise work agree on: an element of each output is made of those at its place. */
#ifndef TIGON_CUDA_MAP_H
#define TIGON_CUDA_MAP_H

#include "problem/map.h"

enum {
  MAP_BITS = 8,
  MAP_THREADS = 1 << MAP_BITS,
  MAP_ANY = 4, /* elements that a thread takes one by one where it could take a pack */
};

/* A block has MAP_THREADS / team rows, and of each a tile of columns. */
typedef struct map_walk {
  int team, team_bits; /* threads that share a row: 2^team_bits, MAP_THREADS at most */
  unsigned tiles;      /* tiles of a row; a grid has fewer than 2^31 */
  bool one_row;
} map_walk;

/* Rows of whole packs at one pitch, fewer than 2^31 packs in all, which is most of what there is: each has a row of blocks. It is 64
 * bytes, a line of parameters. Inputs come first. */
enum { MAP_TENSORS = 5 };
typedef struct map_plain {
  int packs; /* packs of a row */
  int pitch[MAP_TENSORS];
  void *data[MAP_TENSORS];
} map_plain;

/* Has swiglu factors of 1 and no clamp? A macro, for host and device. */
#define swiglu_is_plain(numbers) \
  ((numbers)->gate_mult == 1 && (numbers)->down_mult == 1 && !((numbers)->clamp > 0) && (numbers)->up_offset == 0)

#ifndef __CUDACC__
#include "cuda/cuda.h"

/* May the tensor's rows be read and written in packs from their first element on? Absent tensors may. */
bool map_wide(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype);

/* For rows of `items` packs or elements, of which a thread takes `each`; and the blocks of a launch. A grid's limit of 2^31 blocks is
 * beyond a terabyte of elements. */
map_walk map_cut(int64_t rows, int64_t items, int64_t each);
int64_t map_blocks(const map_walk *walk, int64_t rows);
#endif

#endif
