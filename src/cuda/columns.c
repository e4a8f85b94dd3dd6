#include "cuda/columns.h"

#include "cuda/kernels.h"

/* For rows of packs of `lanes` elements, of which a team has `rows`. Backward each team has a slab, so that there are as
 * many teams as fill the device, and at most one for COLUMNS_SLAB_ROWS rows. */
static columns_walk cut(const tigon_queue *queue, const tigon_columns_problem *p, int64_t lanes, int rows,
                        bool backward) {
  const int64_t items = cuda_ceil_div(p->cols, lanes), cores = cuda_of(queue)->desc.cores;
  columns_walk walk = {.team_bits = 0};
  while (walk.team_bits < COLUMNS_BITS && INT64_C(1) << walk.team_bits < items) ++walk.team_bits;
  const int64_t teams = COLUMNS_THREADS >> walk.team_bits;
  walk.tiles = cuda_ceil_div(items, INT64_C(1) << walk.team_bits);
  walk.blocks = cuda_ceil_div(p->space.rows, teams * rows);
  const int64_t resident = cores * (p->dtype == TIGON_F32 ? COLUMNS_BWD_BLOCKS_F32 : COLUMNS_BWD_BLOCKS);
  if (backward && walk.blocks > resident / walk.tiles) walk.blocks = resident > walk.tiles ? resident / walk.tiles : 1;
  walk.slabs = walk.blocks * teams;
  return walk;
}

static int64_t slab_bytes(const columns_walk *walk, int64_t cols) { return tigon_slab_bytes(walk->slabs, 2, cols); }
static int64_t workspace(const tigon_queue *queue, const tigon_columns_problem *p, int64_t lanes) {
  const columns_walk walk = cut(queue, p, lanes, COLUMNS_SLAB_ROWS, true);
  return slab_bytes(&walk, p->cols) + tigon_pad(walk.tiles * walk.blocks * (int64_t)sizeof(float));
}

static int64_t lanes_of(const tigon_columns_problem *p) { return 16 / (int64_t)tigon_dtype_size(p->dtype); }
static bool is_wide(const tigon_columns_problem *p) {
  return p->space.inner == p->space.rows && p->cols % lanes_of(p) == 0 &&
         cuda_wide_rows(&p->space, &p->in[0], p->dtype) && cuda_wide_rows(&p->space, &p->in[1], p->dtype) &&
         cuda_wide_rows(&p->space, &p->out, p->dtype) && cuda_wide(p->vector[0].data) && cuda_wide(p->vector[1].data);
}

static cuda_shape shape_of(const columns_walk *walk) {
  return (cuda_shape){.blocks = walk->blocks ? walk->tiles : 0, .rows = walk->blocks, .threads = COLUMNS_THREADS};
}

tigon_status cuda_columns_fwd(tigon_queue *queue, const tigon_columns_problem *p, columns_kernels *kernels) {
  enum { WAVES = 4 }; /* in which blocks of several rows still follow each other */
  const bool wide = is_wide(p);
  const int64_t lanes = wide ? lanes_of(p) : 1;
  columns_walk walk = cut(queue, p, lanes, COLUMNS_ROWS, false);
  const bool tall = wide && walk.blocks * walk.tiles >= WAVES * COLUMNS_TALL_BLOCKS * cuda_of(queue)->desc.cores;
  if (!tall) walk = cut(queue, p, lanes, 1, false);
  cuda_kernel *of = tall ? kernels->fwd_tall : wide ? kernels->fwd_wide : kernels->fwd_any;
  return cuda_launch(queue, cuda_by_dtype(of, p->dtype), shape_of(&walk), CUDA_ARGUMENTS((void *)p, &walk));
}

tigon_status cuda_columns_bwd(tigon_queue *queue, const tigon_columns_problem *p, columns_kernels *kernels) {
  static cuda_kernel sums = CUDA_KERNEL(column_sum, columns_sums);
  columns_walk walk = cut(queue, p, is_wide(p) ? lanes_of(p) : 1, COLUMNS_SLAB_ROWS, true);
  cuda_shape shape = shape_of(&walk);
  const bool wanted = tigon_columns_sums(p);
  if (wanted) walk.words = (float *)((char *)p->slabs + slab_bytes(&walk, p->cols));
  shape.slabs = wanted ? walk.slabs : 0;
  const tigon_status status =
      cuda_launch(queue, cuda_by_dtype(is_wide(p) ? kernels->bwd_wide : kernels->bwd_any, p->dtype), shape,
                  CUDA_ARGUMENTS((void *)p, &walk));
  if (status != TIGON_OK || !wanted) return status;
  const int64_t blocks = cuda_ceil_div(p->cols, COLUMN_SUM_COLUMNS);
  shape = (cuda_shape){
      .blocks = blocks > 0 ? blocks : 1, .rows = 3, .threads = COLUMN_SUM_COLUMNS * COLUMN_SUM_PARTS, .awaits = true};
  return cuda_launch(queue, &sums, shape, CUDA_ARGUMENTS((void *)p, &walk));
}

int64_t cuda_columns_bytes(const tigon_queue *queue, const tigon_columns_problem *p) {
  const int64_t packs = workspace(queue, p, lanes_of(p)), elements = workspace(queue, p, 1);
  return packs > elements ? packs : elements;
}

/* The slots of every operator of the family, whose image has its name. */
#define COLUMNS(op)                                                                                        \
  static columns_kernels op##_kernels = {CUDA_KERNELS(op, op##_fwd_wide), CUDA_KERNELS(op, op##_fwd_tall), \
                                         CUDA_KERNELS(op, op##_fwd_any), CUDA_KERNELS(op, op##_bwd_wide),  \
                                         CUDA_KERNELS(op, op##_bwd_any)};                                  \
  tigon_status tigon_cuda_##op##_fwd(tigon_queue *queue, const tigon_columns_problem *p) {                 \
    return cuda_columns_fwd(queue, p, &op##_kernels);                                                      \
  }                                                                                                        \
  tigon_status tigon_cuda_##op##_bwd(tigon_queue *queue, const tigon_columns_problem *p) {                 \
    return cuda_columns_bwd(queue, p, &op##_kernels);                                                      \
  }                                                                                                        \
  int64_t tigon_cuda_##op##_bwd_bytes(tigon_queue *queue, const tigon_columns_problem *p) {                \
    return cuda_columns_bytes(queue, p);                                                                   \
  }
COLUMNS(dyt)
