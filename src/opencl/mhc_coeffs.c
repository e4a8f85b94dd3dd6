/* Forward: the matrix product leaves each token's mix where its h goes; then the gates make h of it in place, and mhc_post_res y. Backward: the
 * products dy . x, dl of every token, sums over tokens, and two matrix products. */
#include "core/context.h"
#include "opencl/kernel/mhc.h"
#include "opencl/mhc.h"
#include "opencl/tables.h"
#include "opencl/workspace.h"

typedef tigon_mhc_coeffs_problem problem;

static int64_t local_of(const tigon_queue *queue) {
  return opencl_of(queue)->model == OPENCL_ITEMS ? 1 : opencl_of(queue)->group;
}

/* Work-items that have tokens: of a GPU many, each with memory of its own backward. */
static int64_t items_of(const tigon_queue *queue, const problem *p) {
  enum { GPU = 4096 };
  return tigon_slabs(p->tokens.rows,
                     opencl_of(queue)->model == OPENCL_ITEMS ? 8 * opencl_of(queue)->desc.cores : (int64_t)GPU);
}
static int64_t slabs_of(const problem *p) {
  enum { SLABS = 256 };
  return tigon_slabs(p->tokens.rows, SLABS);
}

static mhc_numbers numbers_of(const tigon_queue *queue, const problem *p) {
  mhc_numbers k = {.space = p->space,
                   .tokens = p->tokens,
                   .x = opencl_pitch(&p->x),
                   .dx = opencl_pitch(&p->dx),
                   .y = opencl_pitch(&p->y),
                   .rows = p->tokens.rows,
                   .streams = p->streams,
                   .cols = p->cols,
                   .coefficients = tigon_mhc_coeffs(p->streams),
                   .tmax = p->tmax,
                   .items = items_of(queue, p),
                   .slabs = slabs_of(p),
                   .phi_dtype = (int32_t)p->phi_dtype,
                   .b_dtype = (int32_t)p->b.dtype,
                   .dphi_dtype = (int32_t)p->dphi.dtype,
                   .db_dtype = (int32_t)p->db.dtype,
                   .accumulate = p->accumulate,
                   .rms_eps = p->rms_eps,
                   .pre_eps = p->pre_eps,
                   .sinkhorn_eps = p->sinkhorn_eps,
                   .post_mult = p->post_mult};
  for (int i = 0; i < 3; ++i)
    k.alpha_dtype[i] = (int32_t)p->alpha[i].dtype, k.dalpha_dtype[i] = (int32_t)p->dalpha[i].dtype;
  return k;
}

/* ---- launches ---- */

static opencl_shape items_shape(const tigon_queue *queue, int64_t items) {
  const int64_t local = local_of(queue);
  return (opencl_shape){.global = {opencl_ceil_div(items, local) * local}, .local = {local}};
}
static opencl_shape tiles_shape(int64_t rows, int64_t cols, int64_t shares) {
  return (opencl_shape){
      .global = {rows * shares * MHC_ITEMS, cols}, .local = {shares * MHC_ITEMS, 1}, .held = "staged"};
}
static int64_t tiles(int64_t count) { return opencl_ceil_div(count, MHC_SIDE); }

tigon_status tigon_opencl_mhc_coeffs_fwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel logits = {"mhc_products", "mhc_logits"},
                             gates[] = {{"mhc_coeffs", "mhc_gates_few"}, {"mhc_coeffs", "mhc_gates_any"}};
  const mhc_numbers k = numbers_of(queue, p);
  TIGON_TRY(opencl_launch(
      queue, &logits, p->dtype, tiles_shape(tiles(k.rows), tiles(k.coefficients), MHC_SHARES),
      OPENCL_MEMORY(p->x.data, p->phi, p->h[0].data, p->h[1].data, p->h[2].data, p->mix.data, p->rstd.data), &k,
      sizeof k));
  TIGON_TRY(opencl_launch(queue, &gates[k.streams > MHC_FEW], p->dtype, items_shape(queue, k.items),
                          OPENCL_MEMORY(p->b.data, p->alpha[0].data, p->alpha[1].data, p->alpha[2].data, p->h[0].data,
                                        p->h[1].data, p->h[2].data),
                          &k, sizeof k));
  if (!p->y.data) return TIGON_OK;
  const tigon_mhc_post_res_problem pre = tigon_mhc_pre_of(p);
  return opencl_mhc_mix(queue, &pre, false);
}

/* ---- backward ---- */

/* The workspace: of all tokens dl and dmix [coefficients], h_pre and dots [streams], back [1]; of each work-item the divisors of Sinkhorn; slabs of
 * the sums. */
typedef struct work {
  float *dl, *dmix, *h_pre, *dots, *back, *by, *slabs;
  int64_t bytes;
} work;

static work work_of(const tigon_queue *queue, const problem *p) {
  const int64_t tokens = p->tokens.rows, n = p->streams, m = tigon_mhc_coeffs(n);
  opencl_parts parts = {p->workspace, 0};
  work w;
  w.dl = opencl_take(&parts, tokens, m);
  w.dmix = opencl_take(&parts, tokens, m);
  w.h_pre = opencl_take(&parts, tokens, n);
  w.dots = opencl_take(&parts, tokens, n);
  w.back = opencl_take(&parts, tokens, 1);
  w.by = opencl_take(&parts, items_of(queue, p), (2 * p->tmax - 1) * n);
  w.slabs = opencl_take(&parts, slabs_of(p), 2 * m);
  w.bytes = parts.bytes;
  return w;
}

int64_t tigon_opencl_mhc_coeffs_bwd_bytes(tigon_queue *queue, const problem *p) { return work_of(queue, p).bytes; }

/* dy . x of each stream, which is what mhc_post_res has for the gradient of h_pre. */
static tigon_status make_dots(tigon_queue *queue, const problem *p, float *dots) {
  tigon_mhc_post_res_problem pre = tigon_mhc_pre_of(p);
  pre.dh_res = (tigon_vector){dots, TIGON_F32};
  return opencl_mhc_mix(queue, &pre, true);
}

static tigon_status make_dl(tigon_queue *queue, const problem *p, const mhc_numbers *k, const work *w) {
  static const opencl_kernel gates[] = {{"mhc_coeffs", "mhc_gates_bwd_few"}, {"mhc_coeffs", "mhc_gates_bwd_any"}};
  return opencl_launch(queue, &gates[k->streams > MHC_FEW], p->dtype, items_shape(queue, k->items),
                       OPENCL_MEMORY(p->b.data, p->alpha[0].data, p->alpha[1].data, p->alpha[2].data, p->mix.data,
                                     p->rstd.data, p->h[0].data, p->h[1].data, p->h[2].data, p->y.data ? w->dots : NULL,
                                     w->by, w->dl, w->dmix, w->h_pre, w->back),
                       k, sizeof *k);
}

static tigon_status make_sums(tigon_queue *queue, const problem *p, const mhc_numbers *k, const work *w) {
  static const opencl_kernel sums = {"mhc_coeffs", "mhc_sums"}, end = {"mhc_coeffs", "mhc_end"};
  opencl_shape shape = items_shape(queue, k->slabs * k->coefficients);
  shape.slabs = k->slabs;
  TIGON_TRY(opencl_launch(queue, &sums, p->dtype, shape, OPENCL_MEMORY(w->dl, p->mix.data, w->slabs), k, sizeof *k));
  return opencl_launch(queue, &end, p->dtype, items_shape(queue, k->coefficients + 3),
                       OPENCL_MEMORY(w->slabs, p->db.data, p->dalpha[0].data, p->dalpha[1].data, p->dalpha[2].data), k,
                       sizeof *k);
}

tigon_status tigon_opencl_mhc_coeffs_bwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel dx = {"mhc_products", "mhc_dx"}, dphi = {"mhc_products", "mhc_dphi"};
  const mhc_numbers k = numbers_of(queue, p);
  const work w = work_of(queue, p);
  const int64_t channels = k.streams * tiles(k.cols);
  if (p->y.data) TIGON_TRY(make_dots(queue, p, w.dots));
  TIGON_TRY(make_dl(queue, p, &k, &w));
  if (p->db.data || p->dalpha[0].data || p->dalpha[1].data || p->dalpha[2].data) TIGON_TRY(make_sums(queue, p, &k, &w));
  if (p->dx.data)
    TIGON_TRY(opencl_launch(queue, &dx, p->dtype, tiles_shape(tiles(k.rows), channels, 1),
                            OPENCL_MEMORY(w.dmix, p->phi, p->x.data, w.back, w.h_pre, p->y.data, p->dx.data), &k,
                            sizeof k));
  if (!p->dphi.data) return TIGON_OK;
  return opencl_launch(queue, &dphi, p->dtype, tiles_shape(channels, tiles(k.coefficients), 1),
                       OPENCL_MEMORY(p->x.data, w.dmix, p->dphi.data), &k, sizeof k);
}
