#include "cuda/poly_norm.h"

#include "cuda/kernels.h"

static int64_t lanes_of(const tigon_poly_norm_problem *p) { return 16 / (int64_t)tigon_dtype_size(p->dtype); }

/* For rows of packs of `lanes` elements: all at a time, or backward, where each team has a slab, what fills the device. */
static poly_walk cut(const tigon_queue *queue, const tigon_poly_norm_problem *p, int64_t lanes, bool backward) {
  const int64_t packs = cuda_ceil_div(p->cols, lanes), cores = cuda_of(queue)->desc.cores;
  poly_walk walk = {.team = cuda_team_for(cuda_ceil_div(packs, POLY_PACKS), POLY_THREADS)};
  const int block = cuda_block_for(walk.team, POLY_BLOCK), teams = block / walk.team;
  const int64_t wanted = cuda_ceil_div(p->space.rows, teams), fill = cores * (2 * POLY_THREADS / block);
  walk.teams = (backward && wanted > fill ? fill : wanted) * teams;
  return walk;
}

#define KERNELS(way)                                                                                               \
  {                                                                                                                \
    CUDA_KERNELS(poly_norm, poly_norm_##way##_walked_any), CUDA_KERNELS(poly_norm, poly_norm_##way##_walked_wide), \
        CUDA_KERNELS(poly_norm, poly_norm_##way##_held_any), CUDA_KERNELS(poly_norm, poly_norm_##way##_held_wide)  \
  }
static tigon_status launch(tigon_queue *queue, const tigon_poly_norm_problem *p, bool backward, poly_walk *walk) {
  static cuda_kernel kernels[2][4][3] = {KERNELS(fwd), KERNELS(bwd)};
  const bool wide = p->cols % lanes_of(p) == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->dy, p->dtype) && cuda_wide_rows(&p->space, &p->out, p->dtype);
  const int64_t lanes = wide ? lanes_of(p) : 1;
  *walk = cut(queue, p, lanes, backward);
  const bool held = cuda_ceil_div(p->cols, lanes) <= (int64_t)walk->team * POLY_PACKS;
  const int block = cuda_block_for(walk->team, POLY_BLOCK);
  const cuda_shape shape = {.blocks = walk->teams / (block / walk->team),
                            .threads = block,
                            .held = held ? "held" : "walked",
                            .slabs = p->sums ? walk->teams : 0};
  return cuda_launch(queue, cuda_by_dtype(kernels[backward][2 * held + wide], p->dtype), shape,
                     CUDA_ARGUMENTS((void *)p, walk));
}

tigon_status tigon_cuda_poly_norm_fwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  poly_walk walk;
  return launch(queue, p, false, &walk);
}

/* Enough for packs and for single elements: which of them it will be depends on addresses. */
int64_t tigon_cuda_poly_norm_bwd_bytes(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  const int64_t packs = cut(queue, p, lanes_of(p), true).teams, elements = cut(queue, p, 1, true).teams;
  return tigon_slab_bytes(packs > elements ? packs : elements, 1, POLY_SUMS);
}

tigon_status tigon_cuda_poly_norm_bwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  static cuda_kernel sums = CUDA_KERNEL(poly_norm, poly_norm_sums);
  poly_walk walk;
  const tigon_status status = launch(queue, p, true, &walk);
  if (status != TIGON_OK || !(p->dw.data || p->db.data)) return status;
  const cuda_shape shape = {.blocks = 1, .rows = 1, .threads = POLY_THREADS, .awaits = true};
  return cuda_launch(queue, &sums, shape, CUDA_ARGUMENTS((void *)p, &walk));
}
