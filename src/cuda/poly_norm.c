#include "cuda/poly_norm.h"

#include "cuda/column_sum.h"
#include "cuda/kernels.h"

/* Blocks of backward, each with a slab: as many as fill the device. */
static int64_t most_blocks(const tigon_queue *queue, int threads) {
  return cuda_of(queue)->desc.cores * (int64_t)(2 * POLY_THREADS / threads);
}

static tigon_status launch(tigon_queue *queue, const tigon_poly_norm_problem *p, bool backward, int64_t *blocks) {
  static cuda_kernel kernels[2][2][3] = {
      {CUDA_KERNELS(poly_norm, poly_norm_fwd_walked), CUDA_KERNELS(poly_norm, poly_norm_fwd_held)},
      {CUDA_KERNELS(poly_norm, poly_norm_bwd_walked), CUDA_KERNELS(poly_norm, poly_norm_bwd_staged)}};
  const int pack = 16 / (int)tigon_dtype_size(p->dtype);
  const bool wide = p->cols % pack == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->dy, p->dtype) && cuda_wide_rows(&p->space, &p->out, p->dtype);
  int lanes = wide ? pack : 1;
  const int64_t units = cuda_ceil_div(p->cols, lanes);
  const int threads = cuda_team_for(cuda_ceil_div(units, POLY_PACKS), POLY_THREADS);
  const char *once = backward ? "staged" : "held"; /* where a row that is read once is held */
  const int stages = backward ? POLY_STAGES * POLY_PACKS * 2 * 16 * threads : 0;
  const bool held = wide && p->space.inner == p->space.rows && p->space.rows <= INT32_MAX &&
                    units <= threads * POLY_PACKS && stages <= cuda_of(queue)->desc.onchip_bytes;
  const int64_t most =
      backward ? most_blocks(queue, threads) / (held ? 2 : 1) : INT32_MAX; /* with stages half as many blocks fit */
  *blocks = p->space.rows < most ? p->space.rows : most;
  const cuda_shape shape = {.blocks = *blocks,
                            .threads = threads,
                            .shared_bytes = held ? stages : 0,
                            .held = held ? once : "walked",
                            .slabs = p->sums ? *blocks : 0};
  return cuda_launch(queue, cuda_by_dtype(kernels[backward][held], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &lanes));
}

tigon_status tigon_cuda_poly_norm_fwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  int64_t blocks;
  return launch(queue, p, false, &blocks);
}

/* Enough for blocks of any size. The size depends on addresses, which are not known here. */
int64_t tigon_cuda_poly_norm_bwd_bytes(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  const int64_t most = most_blocks(queue, 32);
  return tigon_slab_bytes(p->space.rows < most ? p->space.rows : most, 1, POLY_SUMS);
}

tigon_status tigon_cuda_poly_norm_bwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  const float *sums = p->sums;
  column_sums all = {
      .of = {{sums, p->dw.data, p->dw.dtype, TIGON_POLY}, {sums + TIGON_POLY, p->db.data, p->db.dtype, 1}},
      .step = POLY_SUMS,
      .accumulate = p->accumulate};
  const tigon_status status = launch(queue, p, true, &all.count);
  return status == TIGON_OK && sums ? cuda_column_sums(queue, &all) : status;
}
