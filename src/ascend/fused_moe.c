/* fused_moe on Ascend: kernels for all that is done to rows and slots, and grouped products between them. It has no plan. */
#include "ascend/ascend.h"
#include "ascend/grouped.h"
#include "ascend/kernel/moe.h"
#include "core/context.h"

typedef tigon_fused_moe_problem problem;

/* ---- the workspace ---- */

/* Rows are by position. Products lie where a later step has its own. */
typedef struct memory {
  moe_sorted order;
  char *x, *dy;   /* [slots, cols] tokens' rows */
  char *dpre;     /* [slots, 2 inner] */
  char *c;        /* [slots, inner] c, or w * c */
  float *pre, *d; /* [slots, 2 inner], [slots, inner] products */
  float *shares;  /* [slots, cols] */
  int64_t bytes;
} memory;

static char *take(const problem *p, memory *m, int64_t bytes) {
  char *at = p->workspace ? (char *)p->workspace + m->bytes : NULL;
  m->bytes += tigon_pad(bytes);
  return at;
}
static float *take_floats(const problem *p, memory *m, int64_t count) {
  return (float *)(void *)take(p, m, count * (int64_t)sizeof(float));
}

static memory memory_of(const problem *p, bool backward) {
  const int64_t slots = tigon_moe_slots(p), size = (int64_t)tigon_dtype_size(p->dtype), word = sizeof(int32_t);
  memory m = {0};
  m.order.first = take(p, &m, (p->experts + 2) * word);
  m.order.position = take(p, &m, slots * word);
  m.order.slot = take(p, &m, slots * word);
  m.order.expert = take(p, &m, slots * word);
  m.order.weight = take(p, &m, slots * word);
  m.x = take(p, &m, slots * p->cols * size);
  if (backward) m.dy = take(p, &m, slots * p->cols * size);
  if (backward) m.dpre = take(p, &m, slots * 2 * p->inner * size);
  m.c = take(p, &m, slots * p->inner * size);
  memory last = m;
  m.shares = take_floats(p, &last, slots * p->cols);
  if (!backward || !p->pre.dtype) m.pre = take_floats(p, &m, slots * 2 * p->inner);
  if (backward) m.d = take_floats(p, &m, slots * p->inner);
  if (last.bytes > m.bytes) m.bytes = last.bytes;
  return m;
}

int64_t ascend_fused_moe_fwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return memory_of(p, false).bytes;
}
int64_t ascend_fused_moe_bwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return memory_of(p, true).bytes;
}

/* ---- launches ---- */

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t cores_of(const tigon_queue *queue) { return ascend_of(queue)->soc->device.cores; }
static int64_t words_of(const tigon_queue *queue) { return ascend_of(queue)->soc->device.onchip_bytes / 4; }
static ascend_groups groups_of(const problem *p, const memory *m) {
  return (ascend_groups){(const int32_t *)(const void *)m->order.first, p->experts, p->dtype};
}

/* Kernels count slots in 32 bits. */
static tigon_status check(tigon_queue *queue, const problem *p) {
  if (tigon_moe_slots(p) <= INT32_MAX) return TIGON_OK;
  return queue->reason = "fused_moe has more than 2^31 - 1 slots", TIGON_ERROR_INVALID;
}

static tigon_status sort(tigon_queue *queue, const problem *p, const memory *m) {
  const int64_t slots = tigon_moe_slots(p), words = words_of(queue);
  const int64_t each = (slots + cores_of(queue) - 1) / cores_of(queue);
  const moe_order_arguments a = {.to = m->order,
                                 .idx = (gm_ptr)p->idx,
                                 .w = p->w.data,
                                 .slots = slots,
                                 .experts = p->experts,
                                 .idx_dtype = p->idx_dtype,
                                 .w_dtype = p->w.dtype,
                                 .panel = least(p->experts + 1, words / 4),
                                 .batch = words / 16 / 16 * 16,
                                 .chunk = least(most(each, MOE_LINES), words / 8)};
  TIGON_TRY(ascend_launch(queue, "moe_order", moe_order, &a, 1));
  if (slots == 0) return TIGON_OK;
  ascend_shares(queue, "position", m->order.position, slots, TIGON_I32);
  ascend_shares(queue, "idx", p->idx, slots, p->idx_dtype);
  ascend_shares(queue, "w", p->w.data, slots, p->w.dtype);
  return ascend_launch(queue, "moe_slots", moe_slots, &a, ascend_blocks(queue, (slots - 1) / a.chunk + 1));
}

/* `to` [slots, cols] = rows of tokens by position. */
static tigon_status gather(tigon_queue *queue, const problem *p, const memory *m, const tigon_rows *from, char *to) {
  const int64_t slots = tigon_moe_slots(p), words = least(MOE_TILE, words_of(queue) / 4 / 16 * 16),
                room = words * 4 / dtype_bytes(p->dtype);
  moe_gather_arguments a = {.order = m->order,
                            .space = ascend_space(&p->space),
                            .from = ascend_rows(from),
                            .to = to,
                            .slots = slots,
                            .experts = p->experts,
                            .top_k = p->top_k,
                            .cols = p->cols,
                            .dtype = p->dtype,
                            .tile_cols = least(p->cols, room)};
  if (slots == 0 || p->cols == 0) return TIGON_OK;
  a.tile_rows = least(MOE_TILE_ROWS, room / round_up(a.tile_cols, 16));
  a.tile_rows = least(a.tile_rows, most(slots / cores_of(queue), 1));
  return ascend_launch(queue, "moe_gather", moe_gather, &a, ascend_blocks(queue, (slots - 1) / a.tile_rows + 1));
}

static tigon_status multiply(tigon_queue *queue, const problem *p, const memory *m, const char *a,
                             const tigon_expert_weights *b, bool by_term, int64_t n, int64_t k, float *to) {
  const ascend_groups of = groups_of(p, m);
  return n > 0 ? ascend_grouped_rows(queue, &of, a, b, by_term, n, k, to) : TIGON_OK;
}
static tigon_status gradient(tigon_queue *queue, const problem *p, const memory *m, const char *a, int64_t n,
                             const char *b, int64_t k, const tigon_expert_weights *to) {
  const ascend_groups of = groups_of(p, m);
  return to->data && n * k > 0 ? ascend_grouped_terms(queue, &of, a, n, b, k, to, p->accumulate) : TIGON_OK;
}

/* What forward and backward share; gate and up come from products, or from pre. */
static moe_gate_arguments gate_of(const tigon_queue *queue, const problem *p, const memory *m, bool made) {
  const tigon_map_numbers *k = &p->numbers;
  const int64_t room = (words_of(queue) - MOE_GATE_WORDS) / MOE_GATE_TILES / 16 * 16;
  return (moe_gate_arguments){.order = m->order,
                              .from = made ? (gm_ptr)m->pre : p->pre.data,
                              .bias = made ? p->gate_up_bias.data : NULL,
                              .c = m->c,
                              .slots = tigon_moe_slots(p),
                              .experts = p->experts,
                              .inner = p->inner,
                              .cols = p->cols,
                              .dtype = p->dtype,
                              .bias_dtype = p->gate_up_bias.dtype,
                              .made = made,
                              .interleaved = p->interleaved,
                              .gelu = p->act == TIGON_MOE_GELU_TANH,
                              .gate_mult = k->gate_mult,
                              .down_mult = k->down_mult,
                              .clamp = k->clamp,
                              .up_offset = k->up_offset,
                              .panel = least(room, round_up(most(most(p->inner, p->cols), 1), 16))};
}

/* `to` = the sums of the shares of a token's choices; forward weighs shares and adds biases to them. */
static tigon_status combine(tigon_queue *queue, const problem *p, const memory *m, const tigon_rows *to, bool forward) {
  enum { TILES = 8 };
  const bool weighted = forward && !p->weight_before_down;
  const int64_t room = (words_of(queue) - MOE_GATE_WORDS) / TILES / 16 * 16;
  const moe_token_sums_arguments a = {.order = m->order,
                                      .space = ascend_space(&p->space),
                                      .to = ascend_rows(to),
                                      .shares = (gm_ptr)m->shares,
                                      .idx = (gm_ptr)p->idx,
                                      .w = weighted ? p->w.data : NULL,
                                      .bias = forward ? p->down_bias.data : NULL,
                                      .top_k = p->top_k,
                                      .experts = p->experts,
                                      .cols = p->cols,
                                      .dtype = p->dtype,
                                      .idx_dtype = p->idx_dtype,
                                      .w_dtype = p->w.dtype,
                                      .bias_dtype = p->down_bias.dtype,
                                      .panel = least(room, round_up(p->cols, 16))};
  if (p->space.rows == 0 || p->cols == 0) return TIGON_OK;
  return ascend_launch(queue, "moe_token_sums", moe_token_sums, &a, ascend_blocks(queue, p->space.rows));
}

/* to[e] = the sum of e's rows. */
static tigon_status sum_rows(tigon_queue *queue, const problem *p, const memory *m, const char *from, int64_t cols,
                             tigon_vector to, bool weighted) {
  moe_expert_sums_arguments a = {.order = m->order,
                                 .from = (gm_ptr)from,
                                 .to = to.data,
                                 .slots = tigon_moe_slots(p),
                                 .experts = p->experts,
                                 .cols = cols,
                                 .dtype = p->dtype,
                                 .to_dtype = to.dtype,
                                 .weighted = weighted,
                                 .accumulate = p->accumulate,
                                 .panel = least(round_up(cols, 16), MOE_SUMS_PANEL)};
  if (!to.data || p->experts * cols == 0) return TIGON_OK;
  a.tile_rows = least(least(MOE_TILE, words_of(queue) / 8) / a.panel, MOE_TILE_ROWS);
  const int64_t tasks = p->experts * ((cols - 1) / a.panel + 1);
  return ascend_launch(queue, "moe_expert_sums", moe_expert_sums, &a, ascend_blocks(queue, tasks));
}

/* ---- forward ---- */

tigon_status ascend_fused_moe_fwd(tigon_queue *queue, const problem *p) {
  const memory m = memory_of(p, false);
  const int64_t slots = tigon_moe_slots(p);
  moe_gate_arguments gate = gate_of(queue, p, &m, true);
  gate.to = p->pre.data;
  gate.weighted = p->weight_before_down;
  TIGON_TRY(check(queue, p));
  TIGON_TRY(sort(queue, p, &m));
  TIGON_TRY(gather(queue, p, &m, &p->x, m.x));
  TIGON_TRY(multiply(queue, p, &m, m.x, &p->gate_up, false, 2 * p->inner, p->cols, m.pre));
  if (slots * p->inner > 0) TIGON_TRY(ascend_launch(queue, "moe_gate", moe_gate, &gate, ascend_blocks(queue, slots)));
  TIGON_TRY(multiply(queue, p, &m, m.c, &p->down, false, p->cols, p->inner, m.shares));
  return combine(queue, p, &m, &p->y, true);
}

/* ---- backward ---- */

/* dpre, w * c and dw. */
static tigon_status slopes(tigon_queue *queue, const problem *p, const memory *m) {
  const bool made = !p->pre.dtype;
  moe_gate_arguments a = gate_of(queue, p, m, made);
  a.to = m->dpre;
  a.weighted = true;
  a.d = (gm_ptr)m->d;
  a.dw = p->dw.data, a.dw_dtype = p->dw.dtype;
  a.dy = m->dy, a.down_bias_dtype = p->down_bias.dtype;
  if (!p->weight_before_down) a.down_bias = p->down_bias.data;
  if (a.slots == 0) return TIGON_OK;
  if (made) TIGON_TRY(multiply(queue, p, m, m->x, &p->gate_up, false, 2 * p->inner, p->cols, m->pre));
  TIGON_TRY(multiply(queue, p, m, m->dy, &p->down, true, p->inner, p->cols, m->d));
  return ascend_launch(queue, "moe_slopes", moe_slopes, &a, ascend_blocks(queue, a.slots));
}

tigon_status ascend_fused_moe_bwd(tigon_queue *queue, const problem *p) {
  const memory m = memory_of(p, true);
  const int64_t inner = p->inner, cols = p->cols;
  const bool sloped = p->dx.data || p->dw.data || p->dgate_up.data || p->dgate_up_bias.data || p->ddown.data;
  TIGON_TRY(check(queue, p));
  TIGON_TRY(sort(queue, p, &m));
  if (p->dgate_up.data || (sloped && !p->pre.dtype)) TIGON_TRY(gather(queue, p, &m, &p->x, m.x));
  if (sloped || p->ddown_bias.data) TIGON_TRY(gather(queue, p, &m, &p->y, m.dy));
  if (sloped) TIGON_TRY(slopes(queue, p, &m));
  TIGON_TRY(gradient(queue, p, &m, m.dy, cols, m.c, inner, &p->ddown));
  TIGON_TRY(gradient(queue, p, &m, m.dpre, 2 * inner, m.x, cols, &p->dgate_up));
  TIGON_TRY(sum_rows(queue, p, &m, m.dpre, 2 * inner, p->dgate_up_bias, false));
  TIGON_TRY(sum_rows(queue, p, &m, m.dy, cols, p->ddown_bias, !p->weight_before_down));
  if (!p->dx.data) return TIGON_OK;
  TIGON_TRY(multiply(queue, p, &m, m.dpre, &p->gate_up, true, cols, 2 * inner, m.shares));
  return combine(queue, p, &m, &p->dx, false);
}
