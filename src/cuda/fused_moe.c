#include "cuda/fused_moe.h"

#include "cuda/kernels.h"
#include "cuda/tensor_map.h"

/* ---- the workspace ---- */

/* What a call keeps in its workspace. Rows are by position. What lies in one place is not needed at once: shares of dx come last. */
typedef struct memory {
  moe_order order;
  char *wide;   /* [slots, 2 * inner] backward: dpre */
  char *narrow; /* [slots, inner] c, or w * c */
  char *pre;    /* [slots, 2 * inner] backward, where the caller has none */
  char *shares; /* [slots, cols] z, or shares of dx */
  float *dots;  /* [slots, parts] backward */
  int64_t parts, bytes;
} memory;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The next `bytes` of the workspace. */
static void *take(const tigon_fused_moe_problem *p, memory *m, int64_t bytes) {
  char *at = p->workspace ? (char *)p->workspace + m->bytes : NULL;
  m->bytes += tigon_pad(bytes);
  return at;
}

/* Sizes that kernels count in 32 bits. */
static bool countable(const tigon_fused_moe_problem *p) {
  const int64_t most = 1 << 30;
  return tigon_moe_slots(p) <= most && p->experts <= most && p->cols <= most && p->inner <= most / 2;
}

static memory memory_of(const tigon_fused_moe_problem *p, bool backward) {
  memory m = {0};
  if (!countable(p)) return m;
  const int64_t slots = tigon_moe_slots(p), size = (int64_t)tigon_dtype_size(p->dtype);
  const int64_t chunk = larger(MOE_CHUNK, cuda_ceil_div(slots, MOE_MOST_CHUNKS));
  moe_order *o = &m.order;
  *o = (moe_order){.idx = p->idx,
                   .idx_dtype = p->idx_dtype,
                   .slots = (int32_t)slots,
                   .experts = (int32_t)p->experts,
                   .top_k = (int32_t)p->top_k,
                   .chunk = (int32_t)chunk,
                   .chunks = (int32_t)cuda_ceil_div(slots, chunk)};
  o->count = take(p, &m, o->chunks * (p->experts + 1) * (int64_t)sizeof *o->count);
  o->first = take(p, &m, (p->experts + 2) * (int64_t)sizeof *o->first);
  o->slot = take(p, &m, slots * (int64_t)sizeof *o->slot);
  o->token = take(p, &m, slots * (int64_t)sizeof *o->token);
  o->position = take(p, &m, slots * (int64_t)sizeof *o->position);
  o->tile_count = take(p, &m, (int64_t)sizeof *o->tile_count);
  o->tiles = take(p, &m, (slots / MOE_PLAIN_ROWS + smaller(slots, p->experts)) * (int64_t)sizeof *o->tiles);
  m.parts = cuda_ceil_div(p->inner, MOE_DOT_COLUMNS);
  if (!backward) {
    m.narrow = take(p, &m, slots * p->inner * size);
    m.shares = take(p, &m, slots * p->cols * size);
    return m;
  }
  m.dots = take(p, &m, slots * m.parts * (int64_t)sizeof *m.dots);
  m.wide = take(p, &m, slots * 2 * p->inner * size);
  memory last = m;
  m.narrow = take(p, &m, slots * p->inner * size);
  m.pre = take(p, &m, slots * 2 * p->inner * size);
  m.shares = take(p, &last, slots * p->cols * size);
  m.bytes = larger(m.bytes, last.bytes);
  return m;
}

int64_t tigon_cuda_fused_moe_fwd_bytes(tigon_queue *queue, const tigon_fused_moe_problem *p) {
  (void)queue;
  return memory_of(p, false).bytes;
}
int64_t tigon_cuda_fused_moe_bwd_bytes(tigon_queue *queue, const tigon_fused_moe_problem *p) {
  (void)queue;
  return memory_of(p, true).bytes;
}

static tigon_status refuse(tigon_queue *queue) {
  queue->reason = "fused_moe has more slots, experts, columns or tiles of a product than 2^30";
  return TIGON_ERROR_DEVICE;
}

/* ---- which kernels ---- */

typedef enum path { PLAIN, MMA, WGMMA, PATHS } path;

static const struct {
  int rows, columns, threads, shared_bytes, warp_columns;
} tile_of[PATHS] = {{MOE_PLAIN_ROWS, MOE_PLAIN_COLUMNS, MOE_THREADS, 0, 64},
                    {MOE_MMA_ROWS, MOE_MMA_COLUMNS, MOE_THREADS, MOE_MMA_SHARED, 64},
                    {MOE_WGMMA_ROWS, MOE_WGMMA_COLUMNS, MOE_WGMMA_THREADS, MOE_WGMMA_SHARED, MOE_WGMMA_COLUMNS / 2}};

static bool wide_weights(const tigon_expert_weights *m) {
  return cuda_wide(m->data) && m->pitch % 8 == 0 && m->expert % 8 == 0;
}

/* ---- boxes, of 16-bit elements ---- */

enum { NARROW = 2 };

/* An expert's columns, n, and terms, k, of a product with the weights. */
static cuda_boxes weight_boxes(const tigon_expert_weights *w, int64_t experts, int64_t n, int64_t k, bool by_term) {
  return (cuda_boxes){.data = w->data,
                      .element_bytes = NARROW,
                      .rank = 3,
                      .extent = {by_term ? n : k, by_term ? k : n, experts},
                      .pitch = {1, w->pitch, w->expert},
                      .box = {MOE_DEPTH, by_term ? MOE_DEPTH : MOE_WGMMA_COLUMNS / 2, 1}};
}

/* Rows of slots by position. */
static cuda_boxes slot_boxes(const moe_rows *of, int64_t slots, int64_t cols, int rows) {
  return (cuda_boxes){.data = of->rows.data,
                      .element_bytes = NARROW,
                      .rank = 2,
                      .extent = {cols, slots},
                      .pitch = {1, of->rows.pitch[2]},
                      .box = {MOE_DEPTH, rows}};
}

/* Both sides of a product; one that is gathered by tokens has none. */
static tigon_status maps_of(tigon_queue *queue, moe_use use, const moe_product *q, cu_tensor_map *a, cu_tensor_map *b) {
  const int64_t slots = q->order.slots;
  const bool sum = use == MOE_WEIGHTS;
  const cuda_boxes of_a = slot_boxes(&q->a, slots, sum ? q->m : q->k, sum ? MOE_DEPTH : MOE_WGMMA_ROWS);
  const cuda_boxes of_b = sum ? slot_boxes(&q->b, slots, q->n, MOE_DEPTH)
                              : weight_boxes(&q->weights, q->order.experts, q->n, q->k, q->by_term);
  const tigon_status status = q->a.of_tokens ? TIGON_OK : cuda_tensor_map(queue, &of_a, a);
  return status != TIGON_OK || q->b.of_tokens ? status : cuda_tensor_map(queue, &of_b, b);
}

/* Can the bulk copy engine bring all that is not gathered? */
static bool boxes_fit(const tigon_fused_moe_problem *p) {
  const cuda_boxes gate_up = weight_boxes(&p->gate_up, p->experts, 2 * p->inner, p->cols, p->gate_up.turned);
  const cuda_boxes down = weight_boxes(&p->down, p->experts, p->cols, p->inner, p->down.turned);
  return tigon_moe_slots(p) > 0 && cuda_boxes_fit(&gate_up) && cuda_boxes_fit(&down);
}

/* Tensor cores take 16-bit dtypes whose rows and columns are whole packs. */
static path path_of(const tigon_queue *queue, const tigon_fused_moe_problem *p) {
  const bool wide = p->dtype != TIGON_F32 && p->cols % 8 == 0 && p->inner % 8 == 0 &&
                    cuda_wide_rows(&p->space, &p->x, p->dtype) && cuda_wide_rows(&p->space, &p->y, p->dtype) &&
                    wide_weights(&p->gate_up) && wide_weights(&p->down) && wide_weights(&p->dgate_up) &&
                    wide_weights(&p->ddown) && cuda_wide(p->pre.data);
  if (!wide) return PLAIN;
  if (cuda_of(queue)->wgmma && boxes_fit(p)) return WGMMA;
  return cuda_of(queue)->sm >= 80 ? MMA : PLAIN;
}

/* ---- launches ---- */

/* Can one cluster order the slots? Then a chunk becomes the slots of one of its warps. */
static bool ordered_at_once(const tigon_queue *queue, moe_order *o, cuda_shape *shape) {
  enum { ALL_WARPS = MOE_ORDER_BLOCKS * MOE_ORDER_WARPS, LANES = 32 };
  const cuda_device *device = cuda_of(queue);
  const int64_t columns = (int64_t)o->experts + 1, chunk = cuda_ceil_div(o->slots, ALL_WARPS * LANES) * LANES;
  const int64_t bytes = (MOE_ORDER_COLUMNS * columns + MOE_ORDER_WARPS * chunk) * (int64_t)sizeof(int32_t);
  if (device->sm < 90 || o->slots > MOE_ORDER_SLOTS || columns > MOE_ORDER_THREADS ||
      bytes + MOE_ORDER_STATIC > device->desc.onchip_bytes)
    return false;
  o->chunk = (int32_t)chunk;
  *shape = (cuda_shape){.blocks = MOE_ORDER_BLOCKS,
                        .threads = MOE_ORDER_THREADS,
                        .shared_bytes = (int)bytes,
                        .cluster = MOE_ORDER_BLOCKS};
  return true;
}

/* The order of slots, and tiles of `rows`. */
static tigon_status sort(tigon_queue *queue, moe_order *o, int rows) {
  static cuda_kernel order = CUDA_KERNEL(fused_moe_order, fused_moe_order);
  static cuda_kernel count = CUDA_KERNEL(fused_moe, fused_moe_count), before = CUDA_KERNEL(fused_moe, fused_moe_before);
  static cuda_kernel tiles = CUDA_KERNEL(fused_moe, fused_moe_tiles), place = CUDA_KERNEL(fused_moe, fused_moe_place);
  cuda_shape cluster;
  o->tile_rows = rows;
  if (ordered_at_once(queue, o, &cluster)) return cuda_launch(queue, &order, cluster, CUDA_ARGUMENTS(o));
  const cuda_shape by_chunk = {.blocks = cuda_ceil_div(o->chunks, MOE_WARPS), .threads = MOE_THREADS};
  const cuda_shape by_expert = {.blocks = (int64_t)o->experts + 1, .threads = MOE_THREADS / MOE_WARPS};
  const cuda_shape one = {.blocks = 1, .threads = MOE_THREADS};
  tigon_status status = cuda_launch(queue, &count, by_chunk, CUDA_ARGUMENTS(o));
  if (status == TIGON_OK) status = cuda_launch(queue, &before, by_expert, CUDA_ARGUMENTS(o));
  if (status == TIGON_OK) status = cuda_launch(queue, &tiles, one, CUDA_ARGUMENTS(o));
  return status == TIGON_OK ? cuda_launch(queue, &place, by_chunk, CUDA_ARGUMENTS(o)) : status;
}

#define PRODUCTS(image, kernels, name)                                               \
  {                                                                                  \
    {kernels(image, name##_gate_rows), kernels(image, name##_gate_terms)},           \
        {kernels(image, name##_store_rows), kernels(image, name##_store_terms)},     \
        {kernels(image, name##_slopes_rows), kernels(image, name##_slopes_terms)}, { \
      kernels(image, name##_weights)                                                 \
    }                                                                                \
  }

static tigon_status multiply(tigon_queue *queue, path path, moe_use use, moe_product *q) {
  static cuda_kernel kernels[PATHS][4][2][3] = {PRODUCTS(fused_moe_plain, CUDA_KERNELS, fused_moe_plain),
                                                PRODUCTS(fused_moe_mma, CUDA_NARROW_KERNELS, fused_moe_mma),
                                                PRODUCTS(fused_moe_wgmma, CUDA_NARROW_KERNELS, fused_moe_wgmma)};
  const moe_order *o = &q->order;
  const int rows = tile_of[path].rows;
  const int64_t across = cuda_ceil_div(q->n, tile_of[path].columns);
  const int64_t down =
      use == MOE_WEIGHTS ? o->experts * cuda_ceil_div(q->m, rows) : o->slots / rows + smaller(o->slots, o->experts);
  cuda_shape shape = {
      .blocks = down * across, .threads = tile_of[path].threads, .shared_bytes = tile_of[path].shared_bytes};
  if (shape.blocks > INT32_MAX / 2) return refuse(queue);
  if (path == WGMMA) shape.blocks = smaller(shape.blocks, cuda_of(queue)->desc.cores);
  q->parts = cuda_ceil_div(q->p.inner, tile_of[path].warp_columns);
  cu_tensor_map a = {0}, b = {0};
  const tigon_status status = path == WGMMA ? maps_of(queue, use, q, &a, &b) : TIGON_OK;
  if (status != TIGON_OK) return status;
  return cuda_launch(queue, cuda_by_dtype(kernels[path][use][use != MOE_WEIGHTS && q->by_term], q->p.dtype), shape,
                     CUDA_ARGUMENTS(q, &a, &b));
}

static tigon_status combine(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m,
                            const tigon_rows *to) {
  static cuda_kernel wide[3] = CUDA_KERNELS(fused_moe, fused_moe_combine_wide);
  static cuda_kernel any[3] = CUDA_KERNELS(fused_moe, fused_moe_combine_any);
  const moe_combine q = {.order = m->order, .space = p->space, .to = *to, .cols = p->cols, .shares = m->shares};
  const int64_t pack = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool is_wide = p->cols % pack == 0 && cuda_wide_rows(&p->space, to, p->dtype);
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->space.rows * p->cols / (is_wide ? pack : 1), MOE_THREADS),
                            .threads = MOE_THREADS};
  return cuda_launch(queue, cuda_by_dtype(is_wide ? wide : any, p->dtype), shape, CUDA_ARGUMENTS((void *)&q));
}

/* ---- forward ---- */

static moe_rows by_position(const void *data, int64_t cols) {
  return (moe_rows){.rows = {.data = (void *)data, .pitch = {0, 0, cols}}};
}
static moe_rows by_token(const tigon_rows *rows) { return (moe_rows){.rows = *rows, .of_tokens = true}; }

/* pre to `pre`, and c to `c`, where that is wanted. */
static tigon_status gate(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m, path path, void *pre,
                         void *c) {
  moe_product q = {.p = *p,
                   .order = m->order,
                   .a = by_token(&p->x),
                   .weights = p->gate_up,
                   .n = 2 * p->inner,
                   .k = p->cols,
                   .by_term = p->gate_up.turned,
                   .out = pre,
                   .c = c,
                   .bias = p->gate_up_bias,
                   .weighted = p->weight_before_down};
  return multiply(queue, path, MOE_GATE, &q);
}

static tigon_status clear_none(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m) {
  static cuda_kernel kernels[3] = CUDA_KERNELS(fused_moe, fused_moe_clear);
  const int64_t cols = 2 * p->inner, blocks = cuda_ceil_div(m->order.slots * cols, MOE_THREADS);
  const cuda_shape shape = {.blocks = smaller(blocks, 4 * cuda_of(queue)->desc.cores), .threads = MOE_THREADS};
  return cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape,
                     CUDA_ARGUMENTS((void *)&m->order, (void *)&p->pre.data, (void *)&cols));
}

tigon_status tigon_cuda_fused_moe_fwd(tigon_queue *queue, const tigon_fused_moe_problem *p) {
  if (!countable(p)) return refuse(queue);
  memory m = memory_of(p, false);
  const path path = path_of(queue, p);
  moe_product z = {.p = *p,
                   .a = by_position(m.narrow, p->inner),
                   .weights = p->down,
                   .n = p->cols,
                   .k = p->inner,
                   .by_term = p->down.turned,
                   .out = m.shares,
                   .bias = p->down_bias,
                   .weighted = !p->weight_before_down};
  tigon_status status = sort(queue, &m.order, tile_of[path].rows);
  if (status == TIGON_OK) status = gate(queue, p, &m, path, p->pre.data, m.narrow);
  if (status == TIGON_OK && p->pre.data) status = clear_none(queue, p, &m);
  z.order = m.order;
  if (status == TIGON_OK) status = multiply(queue, path, MOE_STORE, &z);
  return status == TIGON_OK ? combine(queue, p, &m, &p->y) : status;
}

/* ---- backward ---- */

/* dpre, w * c and the parts of dw; pre is made first where the caller has none. */
static tigon_status slopes(tigon_queue *queue, const tigon_fused_moe_problem *p, memory *m, path path) {
  moe_product q = {.p = *p,
                   .order = m->order,
                   .a = by_token(&p->y),
                   .weights = p->down,
                   .n = p->inner,
                   .k = p->cols,
                   .by_term = !p->down.turned,
                   .out = m->wide,
                   .c = m->narrow,
                   .pre = p->pre.data ? p->pre.data : m->pre,
                   .dots = p->dw.data ? m->dots : NULL};
  tigon_status status = p->pre.data ? TIGON_OK : gate(queue, p, m, path, m->pre, NULL);
  if (status == TIGON_OK) status = multiply(queue, path, MOE_SLOPES, &q);
  m->parts = q.parts;
  return status;
}

static tigon_status dots(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m) {
  static cuda_kernel kernels[3] = CUDA_KERNELS(fused_moe, fused_moe_dots);
  const moe_dots q = {.p = *p, .order = m->order, .dots = m->dots, .parts = m->parts};
  const cuda_shape shape = {.blocks = cuda_ceil_div(m->order.slots, MOE_WARPS), .threads = MOE_THREADS};
  return cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape, CUDA_ARGUMENTS((void *)&q));
}

/* to[e] [n, k] = sum over e's slots of a's row [n] times b's [k]. A turned one is the product of b and a. */
static tigon_status gradient(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m, path path,
                             const tigon_expert_weights *to, moe_rows a, int64_t n, moe_rows b, int64_t k) {
  moe_product q = {.p = *p,
                   .order = m->order,
                   .a = to->turned ? b : a,
                   .b = to->turned ? a : b,
                   .weights = *to,
                   .m = to->turned ? k : n,
                   .n = to->turned ? n : k};
  return to->data ? multiply(queue, path, MOE_WEIGHTS, &q) : TIGON_OK;
}

static tigon_status sums(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m, moe_rows from,
                         int64_t cols, tigon_vector to, bool weighted) {
  static cuda_kernel kernels[3] = CUDA_KERNELS(fused_moe, fused_moe_sums);
  const moe_sums q = {.order = m->order,
                      .space = p->space,
                      .from = from,
                      .cols = cols,
                      .w = p->w,
                      .to = to,
                      .weighted = weighted,
                      .accumulate = p->accumulate};
  const cuda_shape shape = {.blocks = p->experts * cuda_ceil_div(cols, MOE_SUM_COLUMNS), .threads = MOE_THREADS};
  return to.data ? cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape, CUDA_ARGUMENTS((void *)&q)) : TIGON_OK;
}

/* Shares of dx, and dx. */
static tigon_status input_gradient(tigon_queue *queue, const tigon_fused_moe_problem *p, const memory *m, path path) {
  moe_product q = {.p = *p,
                   .order = m->order,
                   .a = by_position(m->wide, 2 * p->inner),
                   .weights = p->gate_up,
                   .n = p->cols,
                   .k = 2 * p->inner,
                   .by_term = !p->gate_up.turned,
                   .out = m->shares};
  const tigon_status status = multiply(queue, path, MOE_STORE, &q);
  return status == TIGON_OK ? combine(queue, p, m, &p->dx) : status;
}

tigon_status tigon_cuda_fused_moe_bwd(tigon_queue *queue, const tigon_fused_moe_problem *p) {
  if (!countable(p)) return refuse(queue);
  memory m = memory_of(p, true);
  const path path = path_of(queue, p);
  const int64_t inner = p->inner, cols = p->cols;
  const moe_rows x = by_token(&p->x), dy = by_token(&p->y);
  const moe_rows dpre = by_position(m.wide, 2 * inner), c = by_position(m.narrow, inner);
  const bool by_slope = p->dx.data || p->dw.data || p->dgate_up.data || p->dgate_up_bias.data || p->ddown.data;
  tigon_status status = sort(queue, &m.order, tile_of[path].rows);
  if (status == TIGON_OK && by_slope) status = slopes(queue, p, &m, path);
  if (status == TIGON_OK && p->dw.data) status = dots(queue, p, &m);
  if (status == TIGON_OK) status = gradient(queue, p, &m, path, &p->ddown, dy, cols, c, inner);
  if (status == TIGON_OK) status = gradient(queue, p, &m, path, &p->dgate_up, dpre, 2 * inner, x, cols);
  if (status == TIGON_OK) status = sums(queue, p, &m, dpre, 2 * inner, p->dgate_up_bias, false);
  if (status == TIGON_OK) status = sums(queue, p, &m, dy, cols, p->ddown_bias, !p->weight_before_down);
  return status == TIGON_OK && p->dx.data ? input_gradient(queue, p, &m, path) : status;
}
