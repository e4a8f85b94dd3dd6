#include "cuda/column_sum.h"
#include "cuda/kernels.h"
#include "cuda/norm.h"
#include "cuda/norm_launch.h"

static norm_row rows[] = {
#define MODULATED_RMS_NORM(...) NORM_ROW(modulated_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};

tigon_status tigon_cuda_modulated_rms_norm_fwd(tigon_queue *queue, const tigon_modulated_rms_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, rows);
}

/* A range is whole groups of rows that share a scale. If there are fewer groups than slabs, a range is a part of a group. Groups of a
 * FEW rows have no parts, because parts have more slabs to add up. */
static norm_walk cut_groups(const tigon_norm_bwd_problem *p, int64_t slabs) {
  if (p->space.rows == 0) return (norm_walk){0};
  enum { FEW = 16 };
  if (p->groups.rows >= slabs) return (norm_walk){.ranges = slabs};
  if (p->share <= FEW) return (norm_walk){.ranges = p->groups.rows};
  const int64_t fit = slabs / p->groups.rows, parts = fit < p->share ? fit : p->share;
  return (norm_walk){.ranges = p->groups.rows * parts, .parts = parts};
}

int64_t tigon_cuda_modulated_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return tigon_slab_bytes(cuda_norm_slabs(queue, p), 3, p->cols); /* dw, dscale, dshift */
}

tigon_status tigon_cuda_modulated_rms_norm_bwd(tigon_queue *queue, const tigon_modulated_rms_norm_bwd_problem *p) {
  static cuda_kernel sums = CUDA_KERNEL(modulated_rms_norm, modulated_rms_norm_sums);
  enum { MOST_ROWS = 65535 }; /* the most rows of a grid */
  norm_walk walk = cut_groups(p, cuda_norm_slabs(queue, p));
  const tigon_status status = walk.ranges > 0 ? cuda_norm_bwd_rows(queue, p, &walk, rows) : TIGON_OK;
  const bool whole = walk.ranges > 0 && walk.parts == 0; /* then dscale and dshift are already stored */
  if (status != TIGON_OK || !(p->dw || (!whole && (p->dscale.data || p->dshift.data)))) return status;
  const int64_t each = walk.parts <= COLUMN_SUM_PARTS ? COLUMN_SUM_PARTS : 1; /* sums of groups per block */
  int64_t blocks = whole ? 1 : 1 + cuda_ceil_div(2 * p->groups.rows, each);
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->cols, COLUMN_SUM_COLUMNS),
                            .rows = (int)(blocks < MOST_ROWS ? blocks : MOST_ROWS),
                            .threads = COLUMN_SUM_COLUMNS * COLUMN_SUM_PARTS,
                            .awaits = true};
  return cuda_launch(queue, &sums, shape, CUDA_ARGUMENTS((void *)p, &walk, &blocks));
}
