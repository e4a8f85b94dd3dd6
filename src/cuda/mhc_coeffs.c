#include "cuda/column_sum.h"
#include "cuda/kernels.h"
#include "cuda/mhc.h"

tigon_status tigon_cuda_mhc_coeffs_fwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  static cuda_kernel logits[2][3] = {CUDA_KERNELS(mhc_coeffs, mhc_logits_any),
                                     CUDA_KERNELS(mhc_coeffs, mhc_logits_packs)};
  static cuda_kernel sinkhorn = CUDA_KERNEL(mhc_coeffs, mhc_sinkhorn);
  const bool packs = p->cols % (MHC_DEPTH / (MHC_THREADS / 32)) == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype);
  const cuda_shape tiles = {.blocks = cuda_ceil_div(p->tokens.rows, MHC_SIDE),
                            .rows = cuda_ceil_div(tigon_mhc_coeffs(p->streams), MHC_COLUMNS),
                            .threads = MHC_THREADS,
                            .held = packs ? "staged" : "walked"};
  const cuda_shape warps = {.blocks = cuda_ceil_div(p->tokens.rows, MHC_TOKEN_WARPS), .threads = MHC_TOKEN_WARPS * 32};
  const tigon_mhc_post_res_problem y = tigon_mhc_pre_of(p);
  void **arguments = CUDA_ARGUMENTS((void *)p);
  tigon_status status = cuda_launch(queue, cuda_by_dtype(logits[packs], p->dtype), tiles, arguments);
  if (status == TIGON_OK) status = cuda_launch(queue, &sinkhorn, warps, arguments);
  return status == TIGON_OK && p->y.data ? cuda_mhc_mix(queue, &y, false) : status;
}

static int64_t pitch_of(const tigon_mhc_coeffs_problem *p) { return tigon_mhc_coeffs(p->streams) + p->streams + 1; }
static int64_t warps_of(const tigon_mhc_coeffs_problem *p) { return tigon_slabs(p->tokens.rows, MHC_SLABS); }
static int64_t records_bytes(const tigon_mhc_coeffs_problem *p) {
  return tigon_slab_bytes(p->tokens.rows, 1, pitch_of(p));
}
static int64_t dots_bytes(const tigon_mhc_coeffs_problem *p) { return tigon_slab_bytes(p->tokens.rows, 1, p->streams); }

int64_t tigon_cuda_mhc_coeffs_bwd_bytes(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  (void)queue;
  return records_bytes(p) + dots_bytes(p) + tigon_slab_bytes(warps_of(p), 1, tigon_mhc_coeffs(p->streams) + 3);
}

static tigon_status find_sums(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, const mhc_work *work) {
  const int64_t coeffs = tigon_mhc_coeffs(p->streams);
  const float *slabs = work->slabs, *of_alpha = slabs + coeffs;
  column_sums sums = {
      .of = {{slabs, p->db.data, p->db.dtype, coeffs}, {of_alpha, p->dalpha[0].data, p->dalpha[0].dtype, 1}},
      .count = work->warps,
      .step = coeffs + 3,
      .accumulate = p->accumulate};
  const tigon_status status = cuda_column_sums(queue, &sums);
  for (int i = 0; i < 2; ++i)
    sums.of[i] = (column_sum_one){of_alpha + 1 + i, p->dalpha[1 + i].data, p->dalpha[1 + i].dtype, 1};
  return status == TIGON_OK ? cuda_column_sums(queue, &sums) : status;
}

/* The products of dy with x stand for a gradient of h_pre. */
static tigon_status find_records(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, const mhc_work *work) {
  static cuda_kernel records = CUDA_KERNEL(mhc_coeffs, mhc_records);
  tigon_mhc_post_res_problem dots = tigon_mhc_pre_of(p);
  dots.h_res = dots.dh_res = (tigon_vector){work->dots, TIGON_F32}; /* weights of no output */
  tigon_status status = work->dots ? cuda_mhc_mix(queue, &dots, true) : TIGON_OK;
  const int words = (int)(3 * p->streams * p->streams + 2 * p->tmax * p->streams);
  const cuda_shape warps = {.blocks = cuda_ceil_div(work->warps, MHC_TOKEN_WARPS),
                            .threads = MHC_TOKEN_WARPS * 32,
                            .shared_bytes = MHC_TOKEN_WARPS * words * 4,
                            .slabs = work->warps};
  return status == TIGON_OK ? cuda_launch(queue, &records, warps, CUDA_ARGUMENTS((void *)p, (void *)work)) : status;
}

tigon_status tigon_cuda_mhc_coeffs_bwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  static cuda_kernel dx[3] = CUDA_KERNELS(mhc_coeffs, mhc_dx), dphi[3] = CUDA_KERNELS(mhc_coeffs, mhc_dphi);
  char *memory = p->workspace;
  const mhc_work work = {.records = (float *)(void *)memory,
                         .dots = p->y.data ? (float *)(void *)(memory + records_bytes(p)) : NULL,
                         .slabs = (float *)(void *)(memory + records_bytes(p) + dots_bytes(p)),
                         .pitch = pitch_of(p),
                         .warps = warps_of(p)};
  const cuda_shape of_dx = {.blocks = p->streams * cuda_ceil_div(p->cols, MHC_THREADS),
                            .rows = cuda_ceil_div(p->tokens.rows, MHC_DX_TOKENS),
                            .threads = MHC_THREADS};
  const cuda_shape of_dphi = {.blocks = cuda_ceil_div(p->streams * p->cols, MHC_SIDE),
                              .rows = cuda_ceil_div(tigon_mhc_coeffs(p->streams), MHC_COLUMNS),
                              .threads = MHC_THREADS};
  void **arguments = CUDA_ARGUMENTS((void *)p, (void *)&work);
  tigon_status status = find_records(queue, p, &work);
  if (status == TIGON_OK && p->dx.data && of_dx.rows)
    status = cuda_launch(queue, cuda_by_dtype(dx, p->dtype), of_dx, arguments);
  if (status == TIGON_OK && p->dphi.data)
    status = cuda_launch(queue, cuda_by_dtype(dphi, p->dtype), of_dphi, arguments);
  return status == TIGON_OK ? find_sums(queue, p, &work) : status;
}
