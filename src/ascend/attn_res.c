/* attn_res on Ascend. It has no plan: a tile is a token's blocks, of as many columns as there is room for. */
#include "ascend/kernel/attn_res.h"

#include "ascend/ascend.h"

typedef tigon_attn_res_problem problem;

/* ---- cuts ---- */

typedef struct cut {
  int64_t group, chunk, buffers;
  bool held, resident;
} cut;

/* Bytes on chip of a program. */
static int64_t bytes_of(const problem *p, bool backward, const cut *c) {
  const tile t = tile_of(p->dtype, c->group, c->chunk);
  const int64_t size = dtype_bytes(p->dtype), rows = c->group + backward, words = 4 * round_up(p->blocks + 8, 8);
  const int64_t chunks = c->held && p->cols > 0 ? (p->cols - 1) / c->chunk + 1 : 1, listed = backward ? 2 : 1;
  const int64_t vector = 4 * (c->resident ? round_up(p->cols, c->chunk) + t.pitch : t.pitch); /* c, and u */
  int64_t bytes = c->buffers * chunks * rows * t.pitch * size + 2 * (backward ? c->group : 1) * t.pitch * size;
  bytes += 4 * ((size == 2 ? rows * t.pitch : 0) + work_elements(t) + (backward ? 2 * c->group : 1) * t.pitch);
  bytes += UB_BLOCK * round_up(c->group, 8) + 4 * 4 * t.pitch + (backward ? 2 : 1) * vector;
  if (backward && !c->resident) bytes += 2 * vector;
  bytes += (backward ? 5 + 1 : 5 + 2) * words + listed * 2 * words;
  return bytes + 32 * UB_BLOCK; /* what arrays are rounded up by */
}

static bool fits(const problem *p, bool backward, cut c, int64_t units, int64_t limit) {
  c.chunk = least(units * V_LANES, p->cols > 0 ? p->cols : 1);
  return bytes_of(p, backward, &c) <= limit;
}

/* Columns of equal chunks, a multiple of 64 or all, which are as few as there is room for; 0: none fits. */
static int64_t widest(const problem *p, bool backward, cut c, int64_t limit) {
  int64_t low = 0, high = least(p->cols, limit) / V_LANES + 1; /* units that fit, that do not, or are all */
  if (fits(p, backward, c, high, limit)) return p->cols > 0 ? p->cols : 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (fits(p, backward, c, middle, limit))
      low = middle;
    else
      high = middle;
  }
  const int64_t chunks = low > 0 ? (p->cols + low * V_LANES - 1) / (low * V_LANES) : 1;
  return low > 0 ? round_up((p->cols + chunks - 1) / chunks, V_LANES) : 0;
}

/* The cuts are: a whole token, of which two take turns; one whole token; tiles of 8 blocks. The first one that fits with chunks
 * worth a call is taken, or else the first that fits. c and u stay on chip where they fit besides. */
static tigon_status find_cut(tigon_queue *queue, const problem *p, bool backward, cut *found) {
  enum { WORTH = 384, WAYS = 6 };
  const int64_t limit = ascend_of(queue)->soc->device.onchip_bytes, few = least(p->blocks, 8);
  for (int k = 0; k < 2 * WAYS; ++k) {
    const int way = k % WAYS;
    const bool held = way < 4;
    *found = (cut){.group = held ? p->blocks : few, .buffers = way < 2 || !held ? 2 : 1, .held = held};
    found->resident = way % 2 == 0;
    if (found->group == 0) found->group = 1;
    found->chunk = widest(p, backward, *found, limit);
    if (found->chunk >= least(p->cols, k < WAYS ? WORTH : 1) && found->chunk > 0) return TIGON_OK;
  }
  queue->reason = "the device's Unified Buffer is too small for numbers of so many blocks";
  return TIGON_ERROR_SCRATCH;
}

/* ---- addresses ---- */

static int64_t table_bytes(const problem *p, const tigon_blocks *b) {
  return b->at ? tigon_pad(p->blocks * (int64_t)sizeof(int64_t)) : 0;
}

/* A list's addresses, to `table`. */
static tigon_status write_table(tigon_queue *queue, const problem *p, const tigon_blocks *b, gm_ptr table) {
  tigon_status status = TIGON_OK;
  for (int64_t i = 0; b->at && i < p->blocks && status == TIGON_OK; i += ATTN_RES_ADDRESSES) {
    attn_res_table_arguments a = {.to = table + i * (int64_t)sizeof(int64_t),
                                  .count = least(ATTN_RES_ADDRESSES, p->blocks - i)};
    for (int64_t k = 0; k < a.count; ++k) a.address[k] = (int64_t)(uintptr_t)b->at[i + k];
    status = ascend_launch(queue, "attn_res_table", attn_res_table, &a, 1);
  }
  return status;
}

static blocks blocks_of(const tigon_blocks *b, gm_ptr table) {
  return (blocks){.rows = ascend_rows(&b->rows), .table = b->at ? table : NULL, .step = b->step};
}

static attn_res_arguments arguments_of(const problem *p, const cut *c, gm_ptr v_table, gm_ptr dv_table) {
  return (attn_res_arguments){.space = ascend_space(&p->space),
                              .v = blocks_of(&p->v, v_table),
                              .dv = blocks_of(&p->dv, dv_table),
                              .h = ascend_rows(&p->h),
                              .q = (gm_ptr)p->q.data,
                              .wn = (gm_ptr)p->wn.data,
                              .a = (gm_ptr)p->a,
                              .rstd = (gm_ptr)p->rstd,
                              .cols = p->cols,
                              .count = p->blocks,
                              .dtype = p->dtype,
                              .q_dtype = p->q.dtype,
                              .wn_dtype = p->wn.dtype,
                              .group = c->group,
                              .chunk = c->chunk,
                              .buffers = c->buffers,
                              .held = c->held,
                              .resident = c->resident,
                              .eps = p->eps};
}

static int64_t programs(tigon_queue *queue, const problem *p) {
  return least(p->space.rows, ascend_of(queue)->soc->device.cores);
}

/* ---- slots ---- */

int64_t ascend_attn_res_fwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return table_bytes(p, &p->v);
}

tigon_status ascend_attn_res_fwd(tigon_queue *queue, const problem *p) {
  cut c;
  gm_ptr table = p->workspace;
  tigon_status status = find_cut(queue, p, false, &c);
  if (status == TIGON_OK) status = write_table(queue, p, &p->v, table);
  if (status != TIGON_OK) return status;
  const attn_res_arguments a = arguments_of(p, &c, table, NULL);
  ascend_uses_blocks(queue, "v_blocks", &p->space, &p->v, p->blocks, p->cols, p->dtype, false);
  return ascend_launch(queue, "attn_res_fwd", attn_res_fwd, &a, programs(queue, p));
}

static bool wants_sums(const problem *p) { return p->dq.dtype || p->dwn.dtype; }

int64_t ascend_attn_res_bwd_bytes(tigon_queue *queue, const problem *p) {
  const int64_t slabs = wants_sums(p) ? tigon_slab_bytes(programs(queue, p), 1, p->cols) : 0;
  return table_bytes(p, &p->v) + table_bytes(p, &p->dv) + slabs;
}

static tigon_status launch_sums(tigon_queue *queue, const problem *p, gm_ptr slabs, int64_t count, tigon_vector to,
                                tigon_vector factor) {
  enum { LINE = 128, MOST = 2048 }; /* columns: 512 bytes, what a transfer at full rate starts on; a task's most */
  const int64_t cores = ascend_of(queue)->soc->device.cores, even = round_up((p->cols + cores - 1) / cores, LINE);
  const attn_res_sums_arguments a = {.slabs = slabs,
                                     .factor = factor.data,
                                     .to = to.data,
                                     .count = count,
                                     .cols = p->cols,
                                     .chunk = least(even, MOST),
                                     .factor_dtype = factor.dtype,
                                     .dtype = to.dtype,
                                     .accumulate = p->accumulate};
  if (!to.data) return TIGON_OK;
  ascend_shares(queue, "slabs", slabs, count * p->cols, TIGON_F32);
  return ascend_launch(queue, "attn_res_sums", attn_res_sums, &a, least((p->cols + a.chunk - 1) / a.chunk, cores));
}

tigon_status ascend_attn_res_bwd(tigon_queue *queue, const problem *p) {
  cut c;
  const int64_t count = programs(queue, p);
  gm_ptr v_table = p->workspace, dv_table = v_table + table_bytes(p, &p->v);
  gm_ptr slabs = wants_sums(p) ? dv_table + table_bytes(p, &p->dv) : NULL;
  tigon_status status = find_cut(queue, p, true, &c);
  if (status == TIGON_OK && count > 0) status = write_table(queue, p, &p->v, v_table);
  if (status == TIGON_OK && count > 0) status = write_table(queue, p, &p->dv, dv_table);
  attn_res_arguments a = arguments_of(p, &c, v_table, dv_table);
  a.slabs = slabs;
  if (status == TIGON_OK && count > 0) {
    ascend_uses_blocks(queue, "v_blocks", &p->space, &p->v, p->blocks, p->cols, p->dtype, false);
    ascend_uses_blocks(queue, "dv_blocks", &p->space, &p->dv, p->blocks, p->cols, p->dtype, true);
    status = ascend_launch(queue, "attn_res_bwd", attn_res_bwd, &a, count);
  }
  if (status == TIGON_OK) status = launch_sums(queue, p, slabs, count, p->dq, p->wn);
  return status == TIGON_OK ? launch_sums(queue, p, slabs, count, p->dwn, p->q) : status;
}
