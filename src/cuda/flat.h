/* What launchers and kernels of elementwise work agree on: an element of each output is made of those at its place. */
#ifndef TIGON_CUDA_FLAT_H
#define TIGON_CUDA_FLAT_H

#include "problem/map.h"

enum {
  FLAT_BITS = 8,
  FLAT_THREADS = 1 << FLAT_BITS,
  FLAT_ANY = 4, /* elements that a thread takes one by one where it could take a pack */
};

/* A block has FLAT_THREADS / team rows, and of each a tile of columns. */
typedef struct flat_walk {
  int team, team_bits; /* threads that share a row: 2^team_bits, FLAT_THREADS at most */
  unsigned tiles;      /* of a row; a grid has fewer than 2^31 */
  bool one_row;
} flat_walk;

/* Rows of whole packs at one pitch, fewer than 2^31 packs in all, which is most of what there is: each has a row of blocks. It is 64
 * bytes, a line of parameters. Inputs come first. */
enum { FLAT_TENSORS = 5 };
typedef struct flat_plain {
  int packs; /* of a row */
  int pitch[FLAT_TENSORS];
  void *data[FLAT_TENSORS];
} flat_plain;

#ifndef __CUDACC__
#include "cuda/cuda.h"

/* May the tensor's rows be read and written in packs from their first element on? Absent tensors may. */
bool flat_wide(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype);

/* For rows of `items` packs or elements, of which a thread takes `each`; and the blocks of a launch. A grid's limit of 2^31 blocks is
 * beyond a terabyte of elements. */
flat_walk flat_cut(int64_t rows, int64_t items, int64_t each);
int64_t flat_blocks(const flat_walk *walk, int64_t rows);

/* `plain` has a flat_plain, the others a problem and a flat_walk as their parameters; a thread of all but `any` has a pack of every
 * tensor. */
typedef struct flat_kernels {
  cuda_kernel plain[3], wide[3], any[3];
} flat_kernels;
#define FLAT_KERNELS(image, name)                                                         \
  {                                                                                       \
    .plain = CUDA_KERNELS(image, name##_plain), .wide = CUDA_KERNELS(image, name##_wide), \
    .any = CUDA_KERNELS(image, name##_any),                                               \
  }

/* *space and *cols are the problem's: rows that lie end to end in all `count` tensors become one. `plain`: the problem has nothing that
 * the kernels of that name do not know. */
tigon_status flat_launch(tigon_queue *queue, void *problem, tigon_row_space *space, int64_t *cols, tigon_dtype dtype,
                         const tigon_rows *const *tensors, int count, bool plain, flat_kernels *kernels);
#endif

#endif
