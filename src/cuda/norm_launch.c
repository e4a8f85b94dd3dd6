#include "cuda/norm_launch.h"

#include "cuda/column_sum.h"

int cuda_team_for(int64_t wanted, int most) {
  int team = 32;
  while (team < wanted && team < most) team *= 2;
  return team;
}

/* Blocks that share a row of a walked kernel: as many as it takes until all SMs have work, where a row is worth sharing. */
static int cluster_for(const cuda_device *device, int64_t rows, int64_t cols) {
  enum { WORTH = 8192 }; /* columns of a block */
  int cluster = 1;
  while (device->sm >= 90 && cluster < CUDA_CLUSTER && 2 * cluster * rows <= device->desc.cores &&
         cols >= 2 * cluster * WORTH)
    cluster *= 2;
  return cluster;
}

static bool wide_vector(const void *w) { return !w || cuda_wide(w); }

tigon_status cuda_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p, norm_kernels *kernels) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = cuda_ceil_div(p->cols, lanes);
  const bool wide = p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->residual, p->dtype) && cuda_wide_rows(&p->space, &p->s, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->y, p->dtype) && wide_vector(p->w) && wide_vector(p->b) &&
                    cuda_wide_rows(&p->groups, &p->scale, p->scale_dtype) &&
                    cuda_wide_rows(&p->groups, &p->shift, p->shift_dtype);
  const int cluster = cluster_for(cuda_of(queue), p->space.rows, p->cols);
  cuda_kernel *kernel = wide ? kernels->fwd_wide : kernels->fwd_any;
  int each = wide ? 2 : 8; /* packs, or elements, of a thread and row that are worth a team twice as large */
  if (wide && cluster == 1 && packs <= 4 * NORM_MOST_THREADS) {
    each = packs <= 32 ? 1 : packs <= 2 * NORM_MOST_THREADS ? 2 : 4;
    kernel = each == 1 ? kernels->fwd_1 : each == 2 ? kernels->fwd_2 : kernels->fwd_4;
  }
  norm_walk walk = {.team = cuda_team_for(cuda_ceil_div(wide ? packs : p->cols, each), NORM_MOST_THREADS)};
  if (cluster > 1) walk.team = NORM_MOST_THREADS;
  const int threads = walk.team < NORM_FWD_THREADS ? NORM_FWD_THREADS : walk.team;
  const int64_t teams = threads / walk.team, blocks = cuda_ceil_div(p->space.rows, teams) * cluster;
  const cuda_shape shape = {.blocks = blocks < INT32_MAX ? blocks : INT32_MAX / cluster * cluster,
                            .threads = threads,
                            .cluster = cluster};
  return cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

tigon_status cuda_norm_bwd_rows(tigon_queue *queue, const tigon_norm_bwd_problem *p, norm_walk walk,
                                norm_kernels *kernels) {
  const cuda_device *device = cuda_of(queue);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->dy, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->x, p->dtype) && cuda_wide_rows(&p->space, &p->ds, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->dx, p->dtype) && wide_vector(p->w) &&
                    cuda_wide_rows(&p->groups, &p->scale, p->scale_dtype) &&
                    cuda_wide_rows(&p->groups, &p->dscale, p->dscale_dtype) &&
                    cuda_wide_rows(&p->groups, &p->dshift, p->dshift_dtype);
  const int streams = p->ds.data ? 3 : 2;
  const int held_bytes = NORM_BWD_STAGES * streams * NORM_BWD_PACKS * NORM_BWD_THREADS * 16;
  const int64_t block_cols = NORM_BWD_THREADS * NORM_BWD_PACKS * lanes;
  const int64_t blocks = cuda_ceil_div(p->cols, block_cols); /* that hold a row */
  int cluster = 1;
  while (cluster < blocks) cluster *= 2;
  const bool held = wide && held_bytes <= device->desc.onchip_bytes &&
                    (cluster == 1 || (device->sm >= 90 && cluster <= CUDA_CLUSTER));
  cuda_kernel *kernel = held ? kernels->bwd_held : wide ? kernels->bwd_wide : kernels->bwd_any;
  cuda_shape shape = {.threads = NORM_BWD_THREADS};
  if (held) {
    walk.team = cuda_team_for(cuda_ceil_div(p->cols, lanes * NORM_BWD_PACKS), NORM_BWD_THREADS);
    shape.shared_bytes = held_bytes;
    shape.cluster = cluster;
  } else {
    walk.team = shape.threads = cuda_team_for(wide ? p->cols / lanes : p->cols, NORM_BWD_THREADS);
    shape.cluster = cluster_for(device, walk.ranges, p->cols);
  }
  shape.blocks = walk.ranges * shape.cluster;
  return cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

tigon_status cuda_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, const tigon_plan *plan, int sums,
                           norm_kernels *kernels) {
  const norm_walk walk = {.ranges = plan->row_tasks};
  const tigon_status status = p->space.rows > 0 ? cuda_norm_bwd_rows(queue, p, walk, kernels) : TIGON_OK;
  const column_sums all = {.of = {{p->slabs, p->dw, p->dw_dtype}, {p->slabs + p->cols, p->db, p->db_dtype}},
                           .count = plan->slabs,
                           .step = sums * p->cols,
                           .cols = p->cols,
                           .accumulate = p->accumulate_dw};
  return status == TIGON_OK && (p->dw || p->db) ? cuda_column_sums(queue, &all) : status;
}
