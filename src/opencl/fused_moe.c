/* fused_moe: slots sorted by expert, grouped products, and what is done to rows between them. No number of slots comes back to the host. */
#include "core/context.h"
#include "opencl/moe.h"
#include "opencl/tables.h"

typedef tigon_fused_moe_problem problem;

/* Kernels count slots in 32 bits. */
static tigon_status check(tigon_queue *queue, const problem *p) {
  if (tigon_moe_slots(p) <= INT32_MAX) return TIGON_OK;
  return queue->reason = "fused_moe has more than 2^31 - 1 slots", TIGON_ERROR_INVALID;
}

int64_t tigon_opencl_fused_moe_fwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return moe_memory_of(p, false).bytes;
}
int64_t tigon_opencl_fused_moe_bwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return moe_memory_of(p, true).bytes;
}

/* ---- forward ---- */

static tigon_status make_pre(tigon_queue *queue, const problem *p, const moe_memory *m) {
  const moe_result pre = {.data = m->pre, .dtype = p->dtype, .bias = p->gate_up_bias};
  return moe_multiply(queue, p, m, moe_by_token(&p->x, p->dtype), &p->gate_up, false, 2 * p->inner, p->cols, pre);
}

tigon_status tigon_opencl_fused_moe_fwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel gate = {"moe_slots", "moe_gate"};
  const moe_memory m = moe_memory_of(p, false);
  moe_numbers k = moe_numbers_of(p, p->weight_before_down);
  k.clears = p->pre.data != NULL;
  TIGON_TRY(check(queue, p));
  TIGON_TRY(moe_sort(queue, p, &m));
  TIGON_TRY(make_pre(queue, p, &m));
  TIGON_TRY(opencl_launch(queue, &gate, p->dtype, opencl_row_shape(queue, p->inner ? k.order.slots : 0),
                          OPENCL_MEMORY(m.pre, m.c, p->w.data, m.first, m.slot), &k, sizeof k));
  const moe_result z = {.data = m.shares, .dtype = p->dtype, .bias = p->down_bias, .weighted = !p->weight_before_down};
  TIGON_TRY(
      moe_multiply(queue, p, &m, moe_by_position(m.c, p->dtype, p->inner), &p->down, false, p->cols, p->inner, z));
  return moe_combine(queue, p, &m, &p->y);
}

/* ---- backward ---- */

/* dpre, w * c and dw; pre is made first where the caller has none. */
static tigon_status slopes(tigon_queue *queue, const problem *p, const moe_memory *m) {
  static const opencl_kernel kernel = {"moe_slots", "moe_slopes"};
  const moe_result d = {.data = m->d, .dtype = TIGON_F32};
  const bool biased = p->dw.data && !p->weight_before_down;
  moe_numbers k = moe_numbers_of(p, true);
  k.to = opencl_pitch(&p->y), k.to_dtype = (int32_t)p->dw.dtype, k.bias_dtype = (int32_t)p->down_bias.dtype;
  if (!p->pre.dtype) TIGON_TRY(make_pre(queue, p, m));
  TIGON_TRY(moe_multiply(queue, p, m, moe_by_token(&p->y, p->dtype), &p->down, true, p->inner, p->cols, d));
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, k.order.slots),
                       OPENCL_MEMORY(m->d, m->pre, m->dpre, m->c, p->w.data, p->dw.data, p->cols ? p->y.data : NULL,
                                     biased && p->cols ? p->down_bias.data : NULL, m->first, m->slot),
                       &k, sizeof k);
}

tigon_status tigon_opencl_fused_moe_bwd(tigon_queue *queue, const problem *p) {
  const moe_memory m = moe_memory_of(p, true);
  const int64_t inner = p->inner, cols = p->cols;
  const moe_side x = moe_by_token(&p->x, p->dtype), dy = moe_by_token(&p->y, p->dtype);
  const moe_side dpre = moe_by_position(m.dpre, p->dtype, 2 * inner), c = moe_by_position(m.c, p->dtype, inner);
  const moe_result dx = {.data = m.shares, .dtype = p->dtype};
  TIGON_TRY(check(queue, p));
  TIGON_TRY(moe_sort(queue, p, &m));
  if (p->dx.data || p->dw.data || p->dgate_up.data || p->dgate_up_bias.data || p->ddown.data)
    TIGON_TRY(slopes(queue, p, &m));
  TIGON_TRY(moe_gradient(queue, p, &m, &p->ddown, dy, cols, c, inner));
  TIGON_TRY(moe_gradient(queue, p, &m, &p->dgate_up, dpre, 2 * inner, x, cols));
  TIGON_TRY(moe_sums(queue, p, &m, dpre, 2 * inner, p->dgate_up_bias, false));
  TIGON_TRY(moe_sums(queue, p, &m, dy, cols, p->ddown_bias, !p->weight_before_down));
  if (!p->dx.data) return TIGON_OK;
  TIGON_TRY(moe_multiply(queue, p, &m, dpre, &p->gate_up, true, cols, 2 * inner, dx));
  return moe_combine(queue, p, &m, &p->dx);
}
