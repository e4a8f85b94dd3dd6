#include "cuda/multi_token_attention.h"

#include "cuda/column_sum.h"
#include "cuda/kernels.h"

typedef tigon_multi_token_attention_problem problem;

enum {
  CHUNK_BYTES = 16 << 20,
  SHARED_BYTES = 32 << 10
}; /* bytes of u that a chunk has itself; shared memory of a block */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t rows_in(tigon_band of) { return of.end - of.begin; }

/* ---- sizes ---- */

static int64_t inputs_of(const problem *p) { return p->batch * p->in; }
static int64_t outputs_of(const problem *p) { return p->batch * p->out; }

/* Rows of a chunk are a multiple of a tile's. */
static mta_chunk chunk_of(const problem *p) {
  const int64_t span = tigon_window_span(&p->h), row = most(most(inputs_of(p), outputs_of(p)) * p->tokens, 1);
  const int64_t worth = CHUNK_BYTES / 4 / row / MTA_ROWS * MTA_ROWS;
  const int64_t rows = least(p->tokens, most(worth, MTA_ROWS)), o_rows = least(p->rows, rows + span + 1);
  return (mta_chunk){.y = {0, rows},
                     .u_rows = least(p->tokens, o_rows * p->h.stride + span + rows),
                     .o_rows = o_rows,
                     .y_rows = rows,
                     .weights = p->out * (p->in / p->groups) * p->h.taps * p->w.taps};
}

static int64_t u_bytes(const problem *p, const mta_chunk *c) {
  return tigon_slab_bytes(inputs_of(p), c->u_rows, p->tokens);
}
static int64_t o_bytes(const problem *p, const mta_chunk *c) {
  return tigon_slab_bytes(outputs_of(p), c->o_rows, p->cols);
}
static int64_t y_bytes(const problem *p, const mta_chunk *c) {
  return tigon_slab_bytes(inputs_of(p), c->y_rows, p->tokens);
}
static int64_t slabs_bytes(const problem *p, const mta_chunk *c) {
  return tigon_mta_sums(p) ? tigon_slab_bytes(MTA_SLABS, 1, c->weights + p->out) : 0;
}

/* ---- launches ---- */

/* A block a row. */
static tigon_status rows(tigon_queue *queue, cuda_kernel kernels[3], const problem *p, const mta_chunk *c,
                         int64_t planes, tigon_band band) {
  const cuda_shape shape = {.blocks = planes * rows_in(band), .threads = MTA_THREADS, .held = "walked"};
  return cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape, CUDA_ARGUMENTS((void *)p, (void *)c));
}

/* Bytes of a tile with its halo, and of a channel's weights; 0 where they are too many for a block. */
static int tile_bytes(const problem *p, bool transposed) {
  const int64_t by_row = transposed ? 1 : p->h.stride, by_col = transposed ? 1 : p->w.stride;
  const int64_t height = (MTA_ROWS - 1) * by_row + tigon_window_span(&p->h) + 1;
  const int64_t width = (MTA_COLS - 1) * by_col + tigon_window_span(&p->w) + 1;
  const int64_t taps = p->h.taps * p->w.taps, fits = SHARED_BYTES / 4;
  if (height > fits || width > fits || height * width + taps > fits) return 0;
  return (int)(height * width + taps) * 4;
}

/* A block a tile of `band`. */
static tigon_status tiles(tigon_queue *queue, cuda_kernel kernels[2][3], const problem *p, const mta_chunk *c,
                          bool transposed, tigon_band band) {
  const int64_t planes = transposed ? inputs_of(p) : outputs_of(p), cols = transposed ? p->tokens : p->cols;
  const int bytes = tile_bytes(p, transposed);
  const cuda_shape shape = {.blocks = planes * cuda_ceil_div(cols, MTA_COLS),
                            .rows = cuda_ceil_div(rows_in(band), MTA_ROWS),
                            .threads = MTA_THREADS,
                            .shared_bytes = bytes,
                            .held = bytes ? "staged" : "walked"};
  if (rows_in(band) <= 0) return TIGON_OK;
  return cuda_launch(queue, cuda_by_dtype(kernels[bytes > 0], p->dtype), shape, CUDA_ARGUMENTS((void *)p, (void *)c));
}

#define TILES(name) \
  { CUDA_KERNELS(multi_token_attention, name##_walked), CUDA_KERNELS(multi_token_attention, name##_staged) }

static tigon_status load(tigon_queue *queue, const problem *p, const mta_chunk *c, bool backward) {
  static cuda_kernel known[3] = CUDA_KERNELS(multi_token_attention, mta_u_known),
                     unknown[3] = CUDA_KERNELS(multi_token_attention, mta_u);
  return rows(queue, backward ? known : unknown, p, c, inputs_of(p), c->reach);
}
static tigon_status convolve(tigon_queue *queue, const problem *p, const mta_chunk *c) {
  static cuda_kernel kernels[2][3] = TILES(mta_convolve);
  return tiles(queue, kernels, p, c, false, c->made);
}

/* The queries that u must have for rows `of` of o besides the chunk's. */
static tigon_band reach_of(const problem *p, tigon_band y, tigon_band of) {
  const tigon_band met = tigon_mta_queries(p, of);
  return met.end > met.begin ? (tigon_band){least(y.begin, met.begin), most(y.end, met.end)} : y;
}

static tigon_status fwd_chunk(tigon_queue *queue, const problem *p, mta_chunk *c) {
  static cuda_kernel norm[3] = CUDA_KERNELS(multi_token_attention, mta_o);
  c->made = c->own;
  c->reach = reach_of(p, c->y, c->own);
  tigon_status status = load(queue, p, c, false);
  if (status == TIGON_OK) status = convolve(queue, p, c);
  return status == TIGON_OK && p->pre ? rows(queue, norm, p, c, outputs_of(p), c->own) : status;
}

static tigon_status add_sums(tigon_queue *queue, const problem *p, const mta_chunk *c) {
  static cuda_kernel weights = CUDA_KERNEL(multi_token_attention, mta_dweight),
                     bias = CUDA_KERNEL(multi_token_attention, mta_dbias);
  void **arguments = CUDA_ARGUMENTS((void *)p, (void *)c);
  const int64_t pairs = p->out * (p->in / p->groups);
  const cuda_shape of_weights = {.blocks = pairs, .rows = MTA_SLABS, .threads = MTA_THREADS, .slabs = MTA_SLABS},
                   of_bias = {.blocks = p->out, .rows = MTA_SLABS, .threads = MTA_THREADS, .slabs = MTA_SLABS};
  tigon_status status = p->dweight.data ? cuda_launch(queue, &weights, of_weights, arguments) : TIGON_OK;
  if (status == TIGON_OK && p->dbias.data) status = cuda_launch(queue, &bias, of_bias, arguments);
  return status;
}

static tigon_status bwd_chunk(tigon_queue *queue, const problem *p, mta_chunk *c) {
  static cuda_kernel g[3] = CUDA_KERNELS(multi_token_attention, mta_g),
                     slope[3] = CUDA_KERNELS(multi_token_attention, mta_o_slope),
                     ds[3] = CUDA_KERNELS(multi_token_attention, mta_ds);
  static cuda_kernel transposed[2][3] = TILES(mta_transposed);
  c->made = tigon_mta_met(p, c->y);
  c->reach = reach_of(p, c->y, p->pre ? c->made : c->own);
  tigon_status status = load(queue, p, c, true);
  if (status == TIGON_OK && p->pre) status = convolve(queue, p, c);
  if (status == TIGON_OK) status = rows(queue, p->pre ? slope : g, p, c, outputs_of(p), c->made);
  if (status == TIGON_OK) status = tiles(queue, transposed, p, c, true, c->y);
  if (status == TIGON_OK && !p->pre) status = rows(queue, ds, p, c, inputs_of(p), c->y);
  return status == TIGON_OK && c->slabs ? add_sums(queue, p, c) : status;
}

static tigon_status each_chunk(tigon_queue *queue, const problem *p, mta_chunk *c,
                               tigon_status (*run)(tigon_queue *queue, const problem *p, mta_chunk *c)) {
  tigon_status status = TIGON_OK;
  for (int64_t y = 0; y < p->tokens && status == TIGON_OK; y += c->y_rows) {
    c->y = (tigon_band){y, least(y + c->y_rows, p->tokens)};
    c->own = tigon_mta_own(p, c->y);
    c->first = y == 0;
    status = run(queue, p, c);
  }
  return status;
}

int64_t tigon_cuda_multi_token_attention_fwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  const mta_chunk c = chunk_of(p);
  return u_bytes(p, &c) + (p->pre ? o_bytes(p, &c) : 0);
}

tigon_status tigon_cuda_multi_token_attention_fwd(tigon_queue *queue, const problem *p) {
  mta_chunk c = chunk_of(p);
  char *memory = p->workspace;
  c.u = (float *)(void *)memory;
  c.c = (float *)(void *)(memory + u_bytes(p, &c));
  return each_chunk(queue, p, &c, fwd_chunk);
}

static int64_t c_bytes(const problem *p, const mta_chunk *c) { return p->pre ? o_bytes(p, c) : y_bytes(p, c); }

int64_t tigon_cuda_multi_token_attention_bwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  const mta_chunk c = chunk_of(p);
  return u_bytes(p, &c) + o_bytes(p, &c) + c_bytes(p, &c) + slabs_bytes(p, &c);
}

tigon_status tigon_cuda_multi_token_attention_bwd(tigon_queue *queue, const problem *p) {
  mta_chunk c = chunk_of(p);
  char *memory = p->workspace;
  c.u = (float *)(void *)memory;
  c.g = (float *)(void *)(memory += u_bytes(p, &c));
  c.c = (float *)(void *)(memory += o_bytes(p, &c));
  if (tigon_mta_sums(p)) c.slabs = (float *)(void *)(memory + c_bytes(p, &c));
  tigon_status status = each_chunk(queue, p, &c, bwd_chunk);
  const bool some = p->tokens > 0 && p->batch > 0; /* else no kernel has written slabs */
  const column_sums sums = {.of = {{c.slabs, p->dweight.data, p->dweight.dtype, c.weights},
                                   {c.slabs + (c.slabs ? c.weights : 0), p->dbias.data, p->dbias.dtype, p->out}},
                            .count = some ? MTA_SLABS : 0,
                            .step = c.weights + p->out,
                            .accumulate = p->accumulate};
  return status == TIGON_OK && c.slabs ? cuda_column_sums(queue, &sums) : status;
}
