/* mhc_coeffs on Ascend. Forward has a launch for the logits, one for what follows, and mhc_post_res's for y. Backward has mhc_post_res's for
 * the products of dy with x, one for dl, one for dmix and the totals, and one for each of dx and dphi. */
#include <tigon/op/mhc_coeffs.h>

#include "ascend/kernel/mhc.h"

#include "ascend/ascend.h"

/* Channels of a panel: what is left on chip beside `fixed` bytes. */
static int64_t channels_of(const tigon_queue *queue, const tigon_mhc_coeffs_problem *p, int64_t fixed, int64_t each) {
  enum { MOST = 512, SPARE = 2048 };
  const int64_t left = ascend_of(queue)->soc->device.onchip_bytes - fixed - SPARE, most = left / each / 8 * 8;
  const int64_t all = round_up(p->cols, 8), channels = most < MOST ? most : MOST;
  return all < channels ? all : channels;
}

/* A token's record, in words. */
static int64_t pitch_of(const tigon_mhc_coeffs_problem *p) {
  return round_up(tigon_mhc_coeffs(p->streams) + p->streams + 2, 8);
}

static mhc_coeffs_arguments arguments_of(const tigon_mhc_coeffs_problem *p) {
  mhc_coeffs_arguments a = {.space = ascend_space(&p->space),
                            .token_space = ascend_space(&p->tokens),
                            .x = ascend_rows(&p->x),
                            .dx = ascend_rows(&p->dx),
                            .dy = ascend_rows(&p->y),
                            .phi = (gm_ptr)p->phi,
                            .b = p->b.data,
                            .mix = p->mix.data,
                            .rstd = p->rstd.data,
                            .dphi = p->dphi.data,
                            .tokens = p->tokens.rows,
                            .streams = p->streams,
                            .cols = p->cols,
                            .coeffs = tigon_mhc_coeffs(p->streams),
                            .pitch = pitch_of(p),
                            .dtype = p->dtype,
                            .phi_dtype = p->phi_dtype,
                            .b_dtype = p->b.dtype,
                            .dphi_dtype = p->dphi.dtype,
                            .accumulate = p->accumulate,
                            .tmax = p->tmax,
                            .rms_eps = p->rms_eps,
                            .pre_eps = p->pre_eps,
                            .sinkhorn_eps = p->sinkhorn_eps,
                            .post_mult = p->post_mult};
  for (int i = 0; i < 3; ++i) {
    a.alpha[i] = p->alpha[i].data, a.alpha_dtype[i] = p->alpha[i].dtype;
    a.h[i] = p->h[i].data;
  }
  return a;
}

static int64_t blocks_of(const tigon_queue *queue, int64_t tasks) {
  const int64_t cores = ascend_of(queue)->soc->device.cores;
  return tasks < cores ? tasks : cores;
}
static int64_t groups_of(const tigon_mhc_coeffs_problem *p) { return (p->tokens.rows + MHC_LANES - 1) / MHC_LANES; }

tigon_status ascend_mhc_coeffs_fwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  mhc_coeffs_arguments a = arguments_of(p);
  const int64_t rows = round_up(a.coeffs + 1, 8), phi_size = (int64_t)tigon_dtype_size(p->phi_dtype);
  a.chunk = channels_of(queue, p, 4 * (MHC_LANES * (rows + p->streams * p->streams) + 8 * (rows + 16)),
                        phi_size * a.coeffs + 8 * rows + 64);
  tigon_status status = ascend_launch(queue, "mhc_logits", mhc_logits, &a, blocks_of(queue, groups_of(p)));
  if (status == TIGON_OK)
    status = ascend_launch(queue, "mhc_sinkhorn", mhc_sinkhorn, &a, blocks_of(queue, groups_of(p)));
  const tigon_mhc_post_res_problem y = tigon_mhc_pre_of(p);
  return status == TIGON_OK && p->y.data ? ascend_mhc_post_res_fwd(queue, &y) : status;
}

/* The workspace: records, then products of dy with x, then totals. */
static int64_t record_bytes(const tigon_mhc_coeffs_problem *p) {
  return tigon_slab_bytes(p->tokens.rows, 1, pitch_of(p));
}
static int64_t dots_bytes(const tigon_mhc_coeffs_problem *p) { return tigon_slab_bytes(p->tokens.rows, 1, p->streams); }

int64_t ascend_mhc_coeffs_bwd_bytes(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  const int64_t totals = blocks_of(queue, p->tokens.rows) * (tigon_mhc_coeffs(p->streams) + 3);
  return record_bytes(p) + dots_bytes(p) + tigon_pad(4 * totals);
}

/* The products of dy with x stand for a gradient of h_pre. */
static tigon_status find_dots(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, void *dots) {
  tigon_mhc_post_res_problem of = tigon_mhc_pre_of(p);
  of.h_res = (tigon_vector){dots, TIGON_F32}; /* weights of no output */
  of.dh_res = of.h_res;
  return ascend_mhc_post_res_bwd(queue, &of);
}

static tigon_status find_sums(tigon_queue *queue, const tigon_mhc_coeffs_problem *p, const float *totals,
                              int64_t blocks) {
  const int64_t coeffs = tigon_mhc_coeffs(p->streams);
  tigon_status status = TIGON_OK;
  if (p->db.data)
    status = ascend_column_sums(queue, totals, blocks, coeffs + 3, coeffs, p->db.data, p->db.dtype, p->accumulate);
  for (int i = 0; i < 3 && status == TIGON_OK; ++i)
    if (p->dalpha[i].data)
      status = ascend_column_sums(queue, totals + coeffs + i, blocks, coeffs + 3, 1, p->dalpha[i].data,
                                  p->dalpha[i].dtype, p->accumulate);
  return status;
}

tigon_status ascend_mhc_coeffs_bwd(tigon_queue *queue, const tigon_mhc_coeffs_problem *p) {
  mhc_coeffs_arguments a = arguments_of(p);
  char *dots = (char *)p->workspace + record_bytes(p), *totals = dots + dots_bytes(p);
  const int64_t groups = blocks_of(queue, groups_of(p)), blocks = blocks_of(queue, p->tokens.rows);
  const int64_t rows = round_up(a.coeffs + 1, 8), phi_size = (int64_t)tigon_dtype_size(p->phi_dtype);
  tigon_status status = TIGON_OK;
  a.record = p->workspace;
  a.dots = p->y.data ? (gm_ptr)dots : NULL;
  a.totals = (gm_ptr)totals;
  if (p->y.data && groups) status = find_dots(queue, p, dots);
  if (status == TIGON_OK && groups) status = ascend_launch(queue, "mhc_sinkhorn_bwd", mhc_sinkhorn_bwd, &a, groups);
  if (status == TIGON_OK && blocks) status = ascend_launch(queue, "mhc_dmix", mhc_dmix, &a, blocks);
  if (status == TIGON_OK && p->dx.data && groups) {
    a.chunk = channels_of(queue, p, 4 * (MHC_LANES * (a.pitch + rows)), phi_size * a.coeffs + 8 * rows + 80);
    status = ascend_launch(queue, "mhc_dx", mhc_dx, &a, groups);
  }
  if (status == TIGON_OK && p->dphi.data) {
    a.chunk = channels_of(queue, p, 4 * rows + 512,
                          12 * rows + rows * (p->accumulate ? 2 : 1) * (int64_t)tigon_dtype_size(p->dphi.dtype) + 16);
    status = ascend_launch(queue, "mhc_dphi", mhc_dphi, &a,
                           blocks_of(queue, p->streams * ((p->cols + a.chunk - 1) / a.chunk)));
  }
  return status == TIGON_OK ? find_sums(queue, p, (const float *)(const void *)totals, blocks) : status;
}
