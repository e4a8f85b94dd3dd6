#include "cuda/column_sum.h"
#include "cuda/kernels.h"
#include "cuda/mhc.h"

/* Do the tensor cores make the logits? Of phi in x's dtype whose rows are whole packs. */
static bool by_mma(const tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  return cuda_of(queue)->desc.onchip_bytes >= MHC_LOGITS_BYTES && p->streams <= MHC_FEW && p->streams % 2 == 0 &&
         p->dtype != TIGON_F32 && p->phi_dtype == p->dtype && p->cols % 8 == 0 &&
         p->streams * p->cols <= INT32_MAX / 2 && cuda_wide(p->phi) && mhc_streams_lie_even(&p->space, p->streams) &&
         cuda_wide_rows(&p->space, &p->x, p->dtype);
}

/* The cluster depends on a token's width alone, as its bits do. */
static tigon_status find_h_by_mma(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  static cuda_kernel kernels[3] = CUDA_NARROW_KERNELS(mhc_coeffs_mma, mhc_coeffs_fwd);
  const bool shared = cuda_of(queue)->sm >= 90 && p->streams * p->cols >= MHC_CLUSTER * MHC_STAGE;
  const int cluster = shared ? MHC_CLUSTER : 1;
  const cuda_shape tiles = {.blocks = cuda_ceil_div(p->tokens.rows, MHC_TILE) * cluster,
                            .threads = MHC_THREADS,
                            .shared_bytes = MHC_LOGITS_BYTES,
                            .cluster = cluster,
                            .held = "staged"};
  return cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), tiles, CUDA_ARGUMENTS((void *)p));
}

static tigon_status find_h(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  static cuda_kernel logits[2][3] = {CUDA_KERNELS(mhc_coeffs, mhc_logits_any),
                                     CUDA_KERNELS(mhc_coeffs, mhc_logits_packs)};
  static cuda_kernel sinkhorn = CUDA_KERNEL(mhc_coeffs, mhc_sinkhorn);
  const bool packs = p->cols % (MHC_DEPTH / (MHC_THREADS / 32)) == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype);
  const cuda_shape tiles = {.blocks = cuda_ceil_div(p->tokens.rows, MHC_SIDE),
                            .rows = cuda_ceil_div(tigon_mhc_coeffs(p->streams), MHC_COLUMNS),
                            .threads = MHC_THREADS,
                            .held = packs ? "staged" : "walked"};
  const cuda_shape warps = {.blocks = cuda_ceil_div(p->tokens.rows, MHC_TOKEN_WARPS), .threads = MHC_TOKEN_WARPS * 32};
  void **arguments = CUDA_ARGUMENTS((void *)p);
  const tigon_status status = cuda_launch(queue, cuda_by_dtype(logits[packs], p->dtype), tiles, arguments);
  return status == TIGON_OK ? cuda_launch(queue, &sinkhorn, warps, arguments) : status;
}

tigon_status tigon_cuda_mhc_coeffs_fwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  const tigon_mhc_post_res_problem y = tigon_mhc_pre_of(p);
  const tigon_status status = by_mma(queue, p) ? find_h_by_mma(queue, p) : find_h(queue, p);
  return status == TIGON_OK && p->y.data ? cuda_mhc_mix(queue, &y, false) : status;
}

static int64_t pitch_of(const tigon_mhc_coeffs_problem *p) { return tigon_mhc_coeffs(p->streams) + p->streams + 1; }
static int64_t warps_of(const tigon_mhc_coeffs_problem *p) { return tigon_slabs(p->tokens.rows, MHC_SLABS); }
/* A query knows no addresses, so that there is room for the records of any way. */
static int64_t records_bytes(const tigon_mhc_coeffs_problem *p) {
  const int64_t of_parts = MHC_PART_WORDS / 2 + MHC_WEIGHTS, of_records = pitch_of(p);
  const bool few = p->streams <= MHC_FEW && p->dtype != TIGON_F32;
  return tigon_slab_bytes(p->tokens.rows, 1, few && of_parts > of_records ? of_parts : of_records);
}
static int64_t dots_bytes(const tigon_mhc_coeffs_problem *p) { return tigon_slab_bytes(p->tokens.rows, 1, p->streams); }

int64_t tigon_cuda_mhc_coeffs_bwd_bytes(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  (void)queue;
  return records_bytes(p) + dots_bytes(p) + tigon_slab_bytes(warps_of(p), 1, tigon_mhc_coeffs(p->streams) + 3);
}

static tigon_status find_sums(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, const float *slabs,
                              int64_t count) {
  const int64_t coeffs = tigon_mhc_coeffs(p->streams);
  const float *of_alpha = slabs + coeffs;
  column_sums sums = {
      .of = {{slabs, p->db.data, p->db.dtype, coeffs}, {of_alpha, p->dalpha[0].data, p->dalpha[0].dtype, 1}},
      .count = count,
      .step = coeffs + 3,
      .accumulate = p->accumulate};
  const tigon_status status = cuda_column_sums(queue, &sums);
  for (int i = 0; i < 2; ++i)
    sums.of[i] = (column_sum_one){of_alpha + 1 + i, p->dalpha[1 + i].data, p->dalpha[1 + i].dtype, 1};
  return status == TIGON_OK ? cuda_column_sums(queue, &sums) : status;
}

/* The products of dy with x stand for a gradient of h_pre. */
static tigon_status find_dots(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, float *to) {
  tigon_mhc_post_res_problem dots = tigon_mhc_pre_of(p);
  dots.h_res = dots.dh_res = (tigon_vector){to, TIGON_F32}; /* weights of no output */
  return to ? cuda_mhc_mix(queue, &dots, true) : TIGON_OK;
}

static tigon_status find_records(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, const mhc_work *work) {
  static cuda_kernel records = CUDA_KERNEL(mhc_coeffs, mhc_records);
  const tigon_status status = find_dots(queue, p, work->dots);
  const int words = (int)(3 * p->streams * p->streams + 2 * p->tmax * p->streams);
  const cuda_shape warps = {.blocks = cuda_ceil_div(work->warps, MHC_TOKEN_WARPS),
                            .threads = MHC_TOKEN_WARPS * 32,
                            .shared_bytes = MHC_TOKEN_WARPS * words * 4,
                            .slabs = work->warps};
  return status == TIGON_OK ? cuda_launch(queue, &records, warps, CUDA_ARGUMENTS((void *)p, (void *)work)) : status;
}

static tigon_status find_gradients(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
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
  return status == TIGON_OK ? find_sums(queue, p, work.slabs, work.warps) : status;
}

/* Do the tensor cores make dx and dphi? */
static bool back_by_mma(const tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  return p->streams <= MHC_FEW && p->dtype != TIGON_F32 && p->cols % 8 == 0 &&
         cuda_of(queue)->desc.onchip_bytes >= MHC_BACK_BYTES && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
         cuda_wide_rows(&p->space, &p->dx, p->dtype) && cuda_wide_rows(&p->tokens, &p->y, p->dtype);
}

static tigon_status find_gradients_by_mma(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  static cuda_kernel records = CUDA_KERNEL(mhc_coeffs_mma, mhc_few_records);
  static cuda_kernel back[2][3] = {CUDA_NARROW_KERNELS(mhc_coeffs_mma, mhc_coeffs_bwd_3),
                                   CUDA_NARROW_KERNELS(mhc_coeffs_mma, mhc_coeffs_bwd_1)};
  char *memory = p->workspace, *dots = memory + records_bytes(p), *slabs = dots + dots_bytes(p);
  const int64_t panels = cuda_ceil_div(p->cols, MHC_PANEL), turns = cuda_ceil_div(p->tokens.rows, MHC_THREADS / 16);
  const mhc_few_work work = {.parts = (uint16_t *)(void *)memory,
                             .weights = (float *)(void *)(memory + p->tokens.rows * MHC_PART_WORDS * 2),
                             .dots = p->y.data ? (float *)(void *)dots : NULL,
                             .slabs = (float *)(void *)slabs,
                             .panels = panels};
  const cuda_shape of_records = {.blocks = tigon_slabs(turns, MHC_FEW_SLABS),
                                 .threads = MHC_THREADS,
                                 .shared_bytes = (int)(2 * p->tmax - 1) * MHC_THREADS / 16 * MHC_FEW * 4,
                                 .slabs = tigon_slabs(turns, MHC_FEW_SLABS)};
  const cuda_shape of_panels = {
      .blocks = p->streams * panels, .threads = MHC_BACK_THREADS, .shared_bytes = MHC_BACK_BYTES, .held = "staged"};
  void **arguments = CUDA_ARGUMENTS((void *)p, (void *)&work);
  tigon_status status = find_dots(queue, p, work.dots);
  if (status == TIGON_OK) status = cuda_launch(queue, &records, of_records, arguments);
  if (status == TIGON_OK && ((p->dx.data && p->tokens.rows) || p->dphi.data))
    status = cuda_launch(queue, cuda_by_dtype(back[p->phi_dtype == TIGON_BF16], p->dtype), of_panels, arguments);
  return status == TIGON_OK ? find_sums(queue, p, work.slabs, of_records.slabs) : status;
}

tigon_status tigon_cuda_mhc_coeffs_bwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  return back_by_mma(queue, p) ? find_gradients_by_mma(queue, p) : find_gradients(queue, p);
}
