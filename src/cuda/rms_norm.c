#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

static norm_row rows[] = {
#define RMS_NORM(...) NORM_ROW(rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};
static norm_row gated[] = {
#define GATED_RMS_NORM(...) NORM_ROW(gated_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
};

tigon_status tigon_cuda_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, p->z.data ? gated : rows);
}

/* Whether all rows and vectors are wide, so that a thread stores a pack's elements of q at once. */
static bool is_wide_quantised(const tigon_rms_norm_quantised_problem *p, int64_t lanes) {
  const int64_t pitches = p->q.pitch[0] | p->q.pitch[1] | p->q.pitch[2];
  return p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
         cuda_wide_rows(&p->space, &p->z, p->dtype) && (!p->w || cuda_wide(p->w)) &&
         (pitches | (int64_t)(uintptr_t)p->q.data) % lanes == 0;
}

tigon_status tigon_cuda_rms_norm_quantised(tigon_queue *queue, const tigon_rms_norm_quantised_problem *p) {
  enum { EACH = 2 }; /* packs, or elements, per thread */
  static cuda_kernel wide[] = CUDA_KERNELS(quantised_rms_norm, quantised_rms_norm_wide);
  static cuda_kernel any[] = CUDA_KERNELS(quantised_rms_norm, quantised_rms_norm_any);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool is_wide = is_wide_quantised(p, lanes);
  const int64_t units = is_wide ? p->cols / lanes : p->cols;
  norm_walk walk = {.team = cuda_team_for(cuda_ceil_div(units, EACH), NORM_MOST_THREADS)};
  const int threads = cuda_block_for(walk.team, NORM_FWD_THREADS);
  const int64_t blocks = cuda_ceil_div(p->space.rows, threads / walk.team);
  const cuda_shape shape = {.blocks = blocks < INT32_MAX ? blocks : INT32_MAX, .threads = threads, .cluster = 1};
  return cuda_launch(queue, cuda_by_dtype(is_wide ? wide : any, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

int64_t tigon_cuda_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return tigon_slab_bytes(cuda_norm_slabs(queue, p), 1, p->cols);
}

tigon_status tigon_cuda_rms_norm_bwd(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  return cuda_norm_bwd(queue, p, 1, p->z.data ? gated : rows);
}
