/* multi_token_attention, a chunk of queries of all planes after the other. */
#include "opencl/kernel/multi_token_attention.h"

#include "core/context.h"
#include "opencl/column_sum.h"
#include "opencl/tables.h"
#include "opencl/workspace.h"

typedef tigon_multi_token_attention_problem problem;

enum { CHUNK_BYTES = 16 << 20, CHUNK_ROWS = 16 }; /* a chunk's own rows of u; a chunk has a multiple of so many rows */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t rows_in(tigon_band of) { return of.end - of.begin; }
static int64_t inputs_of(const problem *p) { return p->batch * p->in; }
static int64_t outputs_of(const problem *p) { return p->batch * p->out; }

/* The workspace of a chunk. */
typedef struct chunk {
  mta_numbers k;
  float *u, *g; /* [batch * in, u_rows, tokens], [batch * out, o_rows, cols] */
  float *c;     /* [batch * out, o_rows, cols], or backward of POST [batch * in, y_rows, tokens] */
  float *slabs; /* [MTA_SLABS, weights + out]; NULL: no sums are wanted */
  int64_t bytes;
} chunk;

static chunk chunk_of(const problem *p, bool backward) {
  const int64_t span = tigon_window_span(&p->h), row = most(most(inputs_of(p), outputs_of(p)) * p->tokens, 1);
  const int64_t worth = CHUNK_BYTES / 4 / row / CHUNK_ROWS * CHUNK_ROWS;
  const int64_t y_rows = least(p->tokens, most(worth, CHUNK_ROWS)), o_rows = least(p->rows, y_rows + span + 1);
  opencl_parts parts = {p->workspace, 0};
  chunk c = {.k = {.space = p->space,
                   .out_space = p->out_space,
                   .s = opencl_pitch(&p->s),
                   .ds = opencl_pitch(&p->ds),
                   .o = opencl_pitch(&p->o),
                   .batch = p->batch,
                   .in = p->in,
                   .out = p->out,
                   .groups = p->groups,
                   .tokens = p->tokens,
                   .rows = p->rows,
                   .cols = p->cols,
                   .h = p->h,
                   .w = p->w,
                   .u_rows = least(p->tokens, o_rows * p->h.stride + span + y_rows),
                   .o_rows = o_rows,
                   .y_rows = y_rows,
                   .weights = p->out * (p->in / p->groups) * p->h.taps * p->w.taps,
                   .weight_dtype = (int32_t)p->weight.dtype,
                   .bias_dtype = (int32_t)p->bias.dtype,
                   .pre = p->pre,
                   .sparse = p->sparse,
                   .known = backward}};
  c.u = opencl_take(&parts, inputs_of(p) * c.k.u_rows, p->tokens);
  if (backward) c.g = opencl_take(&parts, outputs_of(p) * o_rows, p->cols);
  if (p->pre)
    c.c = opencl_take(&parts, outputs_of(p) * o_rows, p->cols);
  else if (backward)
    c.c = opencl_take(&parts, inputs_of(p) * y_rows, p->tokens);
  if (backward && tigon_mta_sums(p)) c.slabs = opencl_take(&parts, MTA_SLABS, c.k.weights + p->out);
  c.bytes = parts.bytes;
  return c;
}

int64_t tigon_opencl_multi_token_attention_fwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return chunk_of(p, false).bytes;
}
int64_t tigon_opencl_multi_token_attention_bwd_bytes(tigon_queue *queue, const problem *p) {
  (void)queue;
  return chunk_of(p, true).bytes;
}

/* ---- launches ---- */

#define CONVOLUTIONS "multi_token_attention"
#define RUN(c, rows, file, name, ...)                                                                            \
  do {                                                                                                           \
    static const opencl_kernel kernel = {file, name};                                                            \
    TIGON_TRY(opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, rows), OPENCL_MEMORY(__VA_ARGS__), \
                            &(c)->k, sizeof(c)->k));                                                             \
  } while (0)

/* The queries that u must have for rows `of` of o besides the chunk's. */
static tigon_band reach_of(const problem *p, tigon_band y, tigon_band of) {
  const tigon_band met = tigon_mta_queries(p, of);
  return met.end > met.begin ? (tigon_band){least(y.begin, met.begin), most(y.end, met.end)} : y;
}

static tigon_status load(tigon_queue *queue, const problem *p, const chunk *c) {
  RUN(c, inputs_of(p) * rows_in(c->k.reach), "mta_rows", "mta_u", p->s.data, p->stat.data, c->u);
  return TIGON_OK;
}
static tigon_status convolve(tigon_queue *queue, const problem *p, const chunk *c) {
  RUN(c, outputs_of(p) * rows_in(c->k.made), CONVOLUTIONS, "mta_convolve", c->u, p->weight.data, p->bias.data,
      p->o.data, c->c);
  return TIGON_OK;
}

static tigon_status fwd_chunk(tigon_queue *queue, const problem *p, chunk *c) {
  c->k.made = c->k.own;
  c->k.reach = reach_of(p, c->k.y, c->k.own);
  TIGON_TRY(load(queue, p, c));
  TIGON_TRY(convolve(queue, p, c));
  if (p->pre) RUN(c, outputs_of(p) * rows_in(c->k.own), "mta_rows", "mta_o", c->c, p->stat.data, p->o.data);
  return TIGON_OK;
}

static tigon_status bwd_chunk(tigon_queue *queue, const problem *p, chunk *c) {
  c->k.made = tigon_mta_met(p, c->k.y);
  c->k.reach = reach_of(p, c->k.y, p->pre ? c->k.made : c->k.own);
  const int64_t made = outputs_of(p) * rows_in(c->k.made), queries = inputs_of(p) * rows_in(c->k.y);
  TIGON_TRY(load(queue, p, c));
  if (p->pre) {
    TIGON_TRY(convolve(queue, p, c));
    RUN(c, made, "mta_rows", "mta_o_slope", p->o.data, c->c, p->stat.data, c->g);
  } else {
    RUN(c, made, "mta_rows", "mta_g", p->o.data, c->g);
  }
  RUN(c, queries, CONVOLUTIONS, "mta_transposed", c->g, p->weight.data, p->ds.data, p->pre ? NULL : c->c);
  if (!p->pre) RUN(c, queries, "mta_rows", "mta_ds", c->u, c->c, p->ds.data);
  if (p->dweight.data) RUN(c, c->k.weights * MTA_SLABS, CONVOLUTIONS, "mta_dweight", c->g, c->u, c->slabs);
  if (p->dbias.data) RUN(c, p->out * MTA_SLABS, CONVOLUTIONS, "mta_dbias", c->g, c->slabs);
  return TIGON_OK;
}

static tigon_status each_chunk(tigon_queue *queue, const problem *p, chunk *c,
                               tigon_status (*run)(tigon_queue *queue, const problem *p, chunk *c)) {
  for (int64_t y = 0; y < p->tokens; y += c->k.y_rows) {
    c->k.y = (tigon_band){y, least(y + c->k.y_rows, p->tokens)};
    c->k.own = tigon_mta_own(p, c->k.y);
    c->k.first = y == 0;
    TIGON_TRY(run(queue, p, c));
  }
  return TIGON_OK;
}

tigon_status tigon_opencl_multi_token_attention_fwd(tigon_queue *queue, const problem *p) {
  chunk c = chunk_of(p, false);
  return each_chunk(queue, p, &c, fwd_chunk);
}

tigon_status tigon_opencl_multi_token_attention_bwd(tigon_queue *queue, const problem *p) {
  chunk c = chunk_of(p, true);
  TIGON_TRY(each_chunk(queue, p, &c, bwd_chunk));
  if (!c.slabs) return TIGON_OK;
  opencl_column_sum sum = {.slabs = c.slabs,
                           .count =
                               p->tokens > 0 && p->batch > 0 ? MTA_SLABS : 0, /* else no kernel has written slabs */
                           .step = c.k.weights + p->out,
                           .cols = c.k.weights,
                           .to = p->dweight,
                           .accumulate = p->accumulate};
  TIGON_TRY(opencl_sum_columns(queue, &sum));
  sum.slabs += c.k.weights, sum.cols = p->out, sum.to = p->dbias;
  return opencl_sum_columns(queue, &sum);
}
