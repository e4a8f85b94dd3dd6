#include "cuda/map.h"

#include <stdlib.h>

#include "cuda/kernels.h"

bool map_wide(const tigon_row_space *space, const tigon_rows *t, tigon_dtype dtype) {
  return space->rows == 1 ? !t->data || cuda_wide(t->data) : cuda_wide_rows(space, t, dtype);
}

map_walk map_cut(int64_t rows, int64_t items, int64_t each) {
  map_walk walk = {.team = 1, .one_row = rows == 1};
  while (walk.team < MAP_THREADS && walk.team * each < items) walk.team *= 2, ++walk.team_bits;
  walk.tiles = (unsigned)cuda_ceil_div(items, walk.team * each);
  return walk;
}

int64_t map_blocks(const map_walk *walk, int64_t rows) {
  return cuda_ceil_div(rows, MAP_THREADS / walk->team) * walk->tiles;
}

/* `plain` has a map_plain, the others a problem and a map_walk as their parameters; a thread of all but `any` has a pack of every
 * tensor. */
typedef struct map_kernels {
  cuda_kernel plain[3], wide[3], any[3];
} map_kernels;
#define KERNELS(image, name)                                                              \
  {                                                                                       \
    .plain = CUDA_KERNELS(image, name##_plain), .wide = CUDA_KERNELS(image, name##_wide), \
    .any = CUDA_KERNELS(image, name##_any),                                               \
  }

/* Tensor i of a problem: its inputs come first. */
static const tigon_rows *tensor(const tigon_map_problem *p, int i) {
  return i < p->inputs ? &p->in[i] : &p->out[i - p->inputs];
}

/* Fills `plain` for tensors whose rows all begin on 16 bytes. */
static bool plain_of(const tigon_map_problem *p, int64_t packs, int64_t lanes, map_plain *plain) {
  enum { MOST_ROWS = 65535 }; /* a grid's second extent */
  const tigon_row_space *space = &p->space;
  if (space->inner != space->rows || space->rows < 1 || space->rows > MOST_ROWS) return false;
  plain->packs = (int)packs;
  for (int i = 0; i < p->inputs + p->outputs; ++i) {
    const tigon_rows *t = tensor(p, i);
    const int64_t pitch = space->rows == 1 ? 0 : t->pitch[2] / lanes;
    if (llabs(pitch) > INT32_MAX / space->rows - MAP_THREADS - packs) return false;
    plain->data[i] = t->data;
    plain->pitch[i] = (int)pitch;
  }
  return true;
}

/* `plain`: the numbers are such as the kernels of that name do without. */
static tigon_status launch(tigon_queue *queue, const tigon_map_problem *p, bool plain, map_kernels *kernels) {
  const tigon_row_space *space = &p->space;
  const int count = p->inputs + p->outputs;
  bool is_wide = true;
  for (int i = 0; i < count; ++i) is_wide = is_wide && map_wide(space, tensor(p, i), p->dtype);
  const int64_t lanes = is_wide ? 16 / (int64_t)tigon_dtype_size(p->dtype) : 1, items = cuda_ceil_div(p->cols, lanes);
  map_walk walk = map_cut(space->rows, items, is_wide ? 1 : MAP_ANY);
  cuda_shape shape = {.blocks = map_blocks(&walk, space->rows), .threads = MAP_THREADS};
  map_plain rows = {0};
  plain = plain && is_wide && p->cols % lanes == 0 && (space->rows == 1 || walk.team == MAP_THREADS) &&
          count <= MAP_TENSORS;
  if (!plain || !plain_of(p, items, lanes, &rows))
    return cuda_launch(queue, cuda_by_dtype(is_wide ? kernels->wide : kernels->any, p->dtype), shape,
                       CUDA_ARGUMENTS((void *)p, &walk));
  shape.blocks = walk.tiles, shape.rows = (int)space->rows;
  return cuda_launch(queue, cuda_by_dtype(kernels->plain, p->dtype), shape, CUDA_ARGUMENTS(&rows));
}

/* Every elementwise slot: the file of its kernels, its name, the name of its kernels, and whether its numbers are plain. */
#define MAP(image, slot, is_plain)                                                 \
  tigon_status tigon_cuda_##slot(tigon_queue *queue, const tigon_map_problem *p) { \
    static map_kernels kernels = KERNELS(image, slot);                             \
    return launch(queue, p, is_plain, &kernels);                                   \
  }
/* The same with kernels for each of the two forms of gelu. */
#define MAP_GELU(image, op, entry)                                                                       \
  tigon_status tigon_cuda_##op##_##entry(tigon_queue *queue, const tigon_map_problem *p) {               \
    static map_kernels tanh = KERNELS(image, op##_tanh_##entry), erf = KERNELS(image, op##_erf_##entry); \
    return launch(queue, p, true, p->numbers.approx == TIGON_GELU_ERF ? &erf : &tanh);                   \
  }
MAP(swiglu, swiglu_fwd, swiglu_is_plain(&p->numbers))
MAP(swiglu, swiglu_bwd, swiglu_is_plain(&p->numbers))
MAP_GELU(geglu, geglu, fwd)
MAP_GELU(geglu, geglu, bwd)
MAP(relu_squared, relu_squared_fwd, true)
MAP(relu_squared, relu_squared_bwd, true)
