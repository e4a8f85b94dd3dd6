#include "opencl/moe.h"

#include <math.h>

#include "core/context.h"
#include "opencl/kernel/gemm.h"

typedef tigon_fused_moe_problem problem;

/* ---- the workspace ---- */

static void *take(const problem *p, moe_memory *m, int64_t bytes) {
  char *at = p->workspace ? (char *)p->workspace + m->bytes : NULL;
  m->bytes += tigon_pad(bytes);
  return at;
}

static moe_order order_of(const problem *p) {
  const int64_t slots = tigon_moe_slots(p), least = opencl_ceil_div(slots, MOE_MOST_CHUNKS);
  const int64_t chunk = least > MOE_CHUNK ? least : MOE_CHUNK;
  return (moe_order){.slots = slots,
                     .experts = p->experts,
                     .top_k = p->top_k,
                     .chunk = chunk,
                     .chunks = opencl_ceil_div(slots, chunk),
                     .idx_dtype = (int32_t)p->idx_dtype};
}

moe_memory moe_memory_of(const problem *p, bool backward) {
  const moe_order o = order_of(p);
  const int64_t index = sizeof(int32_t), size = (int64_t)tigon_dtype_size(p->dtype),
                wide = o.slots * 2 * p->inner * size;
  moe_memory m = {0};
  m.count = take(p, &m, o.chunks * (p->experts + 1) * index);
  m.first = take(p, &m, (p->experts + 2) * index);
  m.slot = take(p, &m, o.slots * index);
  m.position = take(p, &m, o.slots * index);
  if (backward || !p->pre.dtype) m.pre = m.dpre = take(p, &m, wide);
  moe_memory last = m;
  m.c = take(p, &m, o.slots * p->inner * size);
  if (backward) m.d = take(p, &m, o.slots * p->inner * (int64_t)sizeof(float));
  if (backward)
    m.shares = take(p, &last, o.slots * p->cols * size);
  else
    m.shares = take(p, &m, o.slots * p->cols * size);
  if (last.bytes > m.bytes) m.bytes = last.bytes;
  if (p->pre.dtype) m.pre = p->pre.data;
  return m;
}

/* ---- launches ---- */

static opencl_shape flat(const tigon_queue *queue, int64_t items, int64_t rows) {
  const opencl_device *d = opencl_of(queue);
  const int64_t local = d->model == OPENCL_ITEMS ? 1 : d->group;
  return (opencl_shape){.global = {opencl_ceil_div(items, local) * local, rows}, .local = {local, 1}};
}

tigon_status moe_sort(tigon_queue *queue, const problem *p, const moe_memory *m) {
  static const opencl_kernel count = {"moe_order", "moe_count"}, before = {"moe_order", "moe_before"};
  static const opencl_kernel first = {"moe_order", "moe_first"}, place = {"moe_order", "moe_place"};
  const moe_order o = order_of(p);
  TIGON_TRY(
      opencl_launch(queue, &count, TIGON_F32, flat(queue, o.chunks, 1), OPENCL_MEMORY(p->idx, m->count), &o, sizeof o));
  TIGON_TRY(opencl_launch(queue, &before, TIGON_F32, flat(queue, o.experts + 1, 1), OPENCL_MEMORY(m->count, m->first),
                          &o, sizeof o));
  TIGON_TRY(opencl_launch(queue, &first, TIGON_F32, flat(queue, 1, 1), OPENCL_MEMORY(m->first), &o, sizeof o));
  return opencl_launch(queue, &place, TIGON_F32, flat(queue, o.chunks, 1),
                       OPENCL_MEMORY(p->idx, m->count, m->first, m->slot, m->position), &o, sizeof o);
}

static opencl_shape tiles(const tigon_queue *queue, int64_t down, int64_t columns) {
  const int64_t local = opencl_of(queue)->model == OPENCL_ITEMS ? 1 : GEMM_GROUP;
  return (opencl_shape){.global = {down * opencl_ceil_div(columns, GEMM_TILE) * local}, .local = {local}};
}

moe_side moe_by_position(const void *data, tigon_dtype dtype, int64_t cols) {
  return (moe_side){data, {.pitch = {{0, 0, cols}}, .dtype = (int32_t)dtype}};
}
moe_side moe_by_token(const tigon_rows *rows, tigon_dtype dtype) {
  return (moe_side){rows->data, {opencl_pitch(rows), (int32_t)dtype, true}};
}

tigon_status moe_multiply(tigon_queue *queue, const problem *p, const moe_memory *m, moe_side a,
                          const tigon_expert_weights *b, bool by_term, int64_t n, int64_t k, moe_result to) {
  static const opencl_kernel kernel = {"moe_product", "moe_by_rows"};
  const moe_product q = {.space = p->space,
                         .order = order_of(p),
                         .n = n,
                         .k = k,
                         .expert = b->expert,
                         .pitch = b->pitch,
                         .a = a.rows,
                         .by_term = by_term != b->turned,
                         .out_dtype = (int32_t)to.dtype,
                         .bias_dtype = (int32_t)to.bias.dtype,
                         .w_dtype = (int32_t)p->w.dtype};
  if (q.order.slots == 0 || p->experts == 0) return TIGON_OK;
  return opencl_launch(queue, &kernel, p->dtype, tiles(queue, q.order.slots / GEMM_TILE + p->experts, n),
                       OPENCL_MEMORY(k ? a.data : NULL, k ? b->data : NULL, to.data, to.bias.data,
                                     to.weighted ? p->w.data : NULL, m->first, m->slot),
                       &q, sizeof q);
}

tigon_status moe_gradient(tigon_queue *queue, const problem *p, const moe_memory *m, const tigon_expert_weights *to,
                          moe_side a, int64_t n, moe_side b, int64_t k) {
  static const opencl_kernel kernel = {"moe_product", "moe_by_terms"};
  const moe_side rows = to->turned ? b : a, columns = to->turned ? a : b;
  const moe_product q = {.space = p->space,
                         .order = order_of(p),
                         .m = to->turned ? k : n,
                         .n = to->turned ? n : k,
                         .expert = to->expert,
                         .pitch = to->pitch,
                         .a = rows.rows,
                         .b = columns.rows,
                         .out_dtype = (int32_t)to->dtype,
                         .accumulate = p->accumulate};
  if (!to->data) return TIGON_OK;
  const bool some = q.order.slots > 0;
  return opencl_launch(queue, &kernel, p->dtype, tiles(queue, p->experts * opencl_ceil_div(q.m, GEMM_TILE), q.n),
                       OPENCL_MEMORY(some ? rows.data : NULL, some ? columns.data : NULL, to->data, m->first, m->slot),
                       &q, sizeof q);
}

moe_numbers moe_numbers_of(const problem *p, bool weighted) {
  const tigon_map_numbers *n = &p->numbers;
  return (moe_numbers){.space = p->space,
                       .order = order_of(p),
                       .cols = p->cols,
                       .inner = p->inner,
                       .gate_mult = n->gate_mult,
                       .down_mult = n->down_mult,
                       .limit = n->clamp > 0 ? n->clamp : INFINITY,
                       .up_offset = n->up_offset,
                       .gelu = p->act == TIGON_MOE_GELU_TANH,
                       .interleaved = p->interleaved,
                       .weighted = weighted,
                       .accumulate = p->accumulate,
                       .w_dtype = (int32_t)p->w.dtype};
}

tigon_status moe_combine(tigon_queue *queue, const problem *p, const moe_memory *m, const tigon_rows *to) {
  static const opencl_kernel kernel = {"moe_slots", "moe_combine"};
  moe_numbers k = moe_numbers_of(p, false);
  k.to = opencl_pitch(to);
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->cols ? p->space.rows : 0),
                       OPENCL_MEMORY(m->shares, to->data, m->first, m->position), &k, sizeof k);
}

tigon_status moe_sums(tigon_queue *queue, const problem *p, const moe_memory *m, moe_side from, int64_t cols,
                      tigon_vector to, bool weighted) {
  static const opencl_kernel kernel = {"moe_slots", "moe_sums"};
  moe_numbers k = moe_numbers_of(p, weighted);
  if (!to.data) return TIGON_OK;
  k.cols = cols, k.from = from.rows, k.to_dtype = (int32_t)to.dtype;
  const bool some = k.order.slots > 0;
  return opencl_launch(
      queue, &kernel, p->dtype, flat(queue, opencl_ceil_div(cols, opencl_of(queue)->lanes), p->experts),
      OPENCL_MEMORY(some ? from.data : NULL, to.data, some ? p->w.data : NULL, m->first, m->slot), &k, sizeof k);
}
