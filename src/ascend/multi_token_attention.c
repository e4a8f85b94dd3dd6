/* multi_token_attention on Ascend: a chunk of queries of all planes after the other, and the launches of each. */
#include "ascend/kernel/multi_token_attention.h"

#include "ascend/ascend.h"

typedef tigon_multi_token_attention_problem problem;

enum {
  CHUNK_BYTES = 16 << 20, /* bytes of u in a chunk */
  LEAST_ROWS = 16,        /* the fewest queries of a chunk */
  MOST_SLABS = 64,
};

typedef struct chunk {
  const problem *p;
  tigon_band y, reach, own;       /* queries, and those in u; rows of o that belong to y */
  tigon_band made;                /* rows of o in g and c */
  int64_t u_rows, o_rows, y_rows; /* room of a plane */
  int64_t pitch;                  /* pitch of all rows in the workspace */
  int64_t u_taps;                 /* with a stride of columns: where the taps' rows begin in a row of u, */
  int64_t g_dense;                /* and the one without zeros in a row of g */
  int64_t weights, slab_count, panel;
  float *u, *g, *c, *slabs;
  bool first; /* slabs hold nothing yet */
} chunk;

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t rows_in(tigon_band of) { return of.end - of.begin; }
static int64_t inputs_of(const problem *p) { return p->batch * p->in; }
static int64_t outputs_of(const problem *p) { return p->batch * p->out; }
static mta_window window_of(const tigon_window *w) { return (mta_window){w->taps, w->stride, w->padding, w->dilation}; }

/* ---- sizes ---- */

static chunk chunk_of(const tigon_queue *queue, const problem *p) {
  const int64_t span = tigon_window_span(&p->h), width = tigon_window_span(&p->w);
  const bool strided = p->w.stride > 1;
  chunk c = {.p = p, .weights = p->out * (p->in / p->groups) * p->h.taps * p->w.taps};
  c.u_taps = p->tokens + 2 * p->w.padding;
  c.g_dense = p->tokens + width;
  const int64_t u = c.u_taps + (strided ? p->w.taps * p->cols : 0), g = c.g_dense + (strided ? p->cols : 0);
  c.pitch = round_up(most(most(u, g), p->cols), 8);
  const int64_t row = most(inputs_of(p), outputs_of(p)) * c.pitch;
  c.y_rows = least(p->tokens, most(CHUNK_BYTES / 4 / most(row, 1), LEAST_ROWS));
  c.o_rows = least(p->rows, c.y_rows + span + 1);
  c.u_rows = least(p->tokens, c.o_rows * p->h.stride + span + c.y_rows);
  const int64_t lines = most(c.weights / p->w.taps, 1), cores = ascend_of(queue)->soc->device.cores;
  c.slab_count = most(1, least(MOST_SLABS, cores / lines));
  const int64_t taps = 2 * round_up(p->h.taps * p->w.taps, 16);
  c.panel = (ascend_of(queue)->soc->device.onchip_bytes / 4 - MTA_WORDS - taps) / MTA_TILES / V_LANES * V_LANES;
  return c;
}
/* Have the weights of two channels and rows of a panel room on chip? */
static tigon_status check_panel(tigon_queue *queue, const chunk *c) {
  if (c->panel > 0) return TIGON_OK;
  queue->reason = "a kernel of so many taps does not fit on chip";
  return TIGON_ERROR_SCRATCH;
}

static int64_t u_bytes(const chunk *c) { return tigon_slab_bytes(inputs_of(c->p), c->u_rows, c->pitch); }
static int64_t g_bytes(const chunk *c) { return tigon_slab_bytes(outputs_of(c->p), c->o_rows, c->pitch); }
static int64_t c_bytes(const chunk *c) {
  return tigon_slab_bytes(most(inputs_of(c->p), outputs_of(c->p)), most(c->o_rows, c->y_rows), c->pitch);
}
static int64_t slab_bytes(const chunk *c) {
  return tigon_mta_sums(c->p) ? tigon_slab_bytes(c->slab_count, 1, c->weights + c->p->out) : 0;
}

/* ---- what kernels get ---- */

static mta_band band_of(const chunk *c, int64_t planes, tigon_band rows) {
  return (mta_band){planes, rows.begin, rows_in(rows), c->panel};
}
/* Rows of a tensor. */
static mta_planes tensor_of(const problem *p, const tigon_rows *rows, bool of_o) {
  return (mta_planes){ascend_space(of_o ? &p->out_space : &p->space), ascend_rows(rows), of_o ? p->rows : p->tokens, 0,
                      p->dtype};
}
/* Rows of the workspace, `plane` of each plane, from row `first` and from a column on. */
static mta_planes memory_of(float *data, int64_t planes, int64_t plane, int64_t pitch, int64_t first, int64_t column) {
  const int64_t rows = planes * plane;
  return (mta_planes){{rows, 1, rows, 1}, {(gm_ptr)(data + column), {0, 0, pitch}, 1}, plane, first, TIGON_F32};
}
static mta_planes u_of(const chunk *c, int64_t column) {
  return memory_of(c->u, inputs_of(c->p), c->u_rows, c->pitch, c->reach.begin, column);
}
static mta_planes g_of(const chunk *c, int64_t column) {
  return memory_of(c->g, outputs_of(c->p), c->o_rows, c->pitch, c->made.begin, column);
}
static mta_planes c_of(const chunk *c, bool of_o) {
  const problem *p = c->p;
  return memory_of(c->c, of_o ? outputs_of(p) : inputs_of(p), most(c->o_rows, c->y_rows), c->pitch,
                   of_o ? c->made.begin : c->y.begin, 0);
}
static bool strided(const chunk *c) { return c->p->w.stride > 1; }
/* Where a row of g has its elements side by side, and the first of them before a stride. */
static int64_t g_column(const chunk *c) {
  return strided(c) ? c->g_dense : tigon_window_span(&c->p->w) - c->p->w.padding;
}

/* ---- launches ---- */

static tigon_status rows(tigon_queue *queue, const mta_rows_arguments *a) {
  const int64_t tasks = a->band.planes * a->band.count;
  return tasks > 0 ? ascend_launch(queue, "mta_rows", mta_rows, a, ascend_blocks(queue, tasks)) : TIGON_OK;
}

/* What norm() is given. */
static mta_rows_arguments norm_of(const chunk *c, int norm) {
  const problem *p = c->p;
  return (mta_rows_arguments){
      .stat = p->stat.data, .stat_rows = p->pre ? p->rows : p->tokens, .norm = norm, .sparse = p->sparse};
}

static tigon_status make_u(tigon_queue *queue, const chunk *c, bool known) {
  const problem *p = c->p;
  mta_rows_arguments a = norm_of(c, p->pre ? MTA_AS_IT_IS : known ? MTA_KNOWN : MTA_FOUND);
  a.band = band_of(c, inputs_of(p), c->reach);
  a.x = tensor_of(p, &p->s, false);
  a.out = u_of(c, p->w.padding);
  a.cols = p->tokens;
  const tigon_status status = rows(queue, &a);
  const int64_t tasks = a.band.planes * a.band.count;
  if (status != TIGON_OK || !strided(c) || tasks == 0) return status;
  const mta_stride_arguments pick = {
      .band = a.band, .from = u_of(c, 0), .to = u_of(c, c->u_taps), .cols = p->cols, .w = window_of(&p->w)};
  return ascend_launch(queue, "mta_pick", mta_pick, &pick, ascend_blocks(queue, tasks));
}

/* c = the convolution of u, or the transpose's of g. */
static tigon_status convolve(tigon_queue *queue, const chunk *c, bool transposed) {
  const problem *p = c->p;
  const int64_t inputs = p->in / p->groups, outputs = p->out / p->groups, span = tigon_window_span(&p->w);
  const int64_t planes = transposed ? inputs_of(p) : outputs_of(p), count = rows_in(transposed ? c->y : c->made);
  const int64_t fitting = p->h.stride == 1 ? c->panel / c->pitch : 1;
  const mta_convolve_arguments a = {.band = band_of(c, planes, transposed ? c->y : c->made),
                                    .from = transposed ? g_of(c, 0) : u_of(c, 0),
                                    .to = c_of(c, !transposed),
                                    .weight = p->weight.data,
                                    .weight_dtype = p->weight.dtype,
                                    .channels = transposed ? p->in : p->out,
                                    .own = transposed ? inputs : outputs,
                                    .others = transposed ? outputs : inputs,
                                    .transposed = transposed,
                                    .cols = transposed ? p->tokens : p->cols,
                                    .from_rows = transposed ? p->rows : p->tokens,
                                    .rows =
                                        most(1, least(fitting, planes * count / ascend_of(queue)->soc->device.cores)),
                                    .pitch = c->pitch,
                                    .tap_first = transposed   ? span
                                                 : strided(c) ? c->u_taps
                                                              : 0,
                                    .tap_step = transposed   ? -p->w.dilation
                                                : strided(c) ? p->cols
                                                             : p->w.dilation,
                                    .h = window_of(&p->h),
                                    .w = window_of(&p->w)};
  if (planes * count == 0) return TIGON_OK;
  const int64_t tasks = planes * ((count - 1) / a.rows + 1);
  return ascend_launch(queue, "mta_convolve", mta_convolve, &a, ascend_blocks(queue, tasks));
}

/* g = o's gradient, or norm'() of it at c. */
static tigon_status make_g(tigon_queue *queue, const chunk *c) {
  const problem *p = c->p;
  mta_rows_arguments a = norm_of(c, p->pre ? MTA_KNOWN : MTA_AS_IT_IS);
  const mta_planes d_o = tensor_of(p, &p->o, true);
  a.band = band_of(c, outputs_of(p), c->made);
  a.x = p->pre ? c_of(c, true) : d_o;
  if (p->pre) a.q = d_o;
  a.out = g_of(c, g_column(c));
  a.cols = p->cols;
  const tigon_status status = rows(queue, &a);
  const int64_t tasks = a.band.planes * a.band.count;
  if (status != TIGON_OK || !strided(c) || tasks == 0) return status;
  const mta_stride_arguments spread = {.band = a.band,
                                       .from = a.out,
                                       .to = g_of(c, tigon_window_span(&p->w) - p->w.padding),
                                       .cols = p->cols,
                                       .w = window_of(&p->w)};
  return ascend_launch(queue, "mta_spread", mta_spread, &spread, ascend_blocks(queue, tasks));
}

static tigon_status make_o(tigon_queue *queue, const chunk *c) {
  const problem *p = c->p;
  mta_rows_arguments a = norm_of(c, p->pre ? MTA_FOUND : MTA_AS_IT_IS);
  a.band = band_of(c, outputs_of(p), c->own);
  a.x = c_of(c, true);
  a.out = tensor_of(p, &p->o, true);
  a.bias = p->bias.data, a.bias_dtype = p->bias.dtype, a.biases = p->out;
  a.cols = a.out_cols = p->cols;
  return rows(queue, &a);
}

static tigon_status make_ds(tigon_queue *queue, const chunk *c) {
  const problem *p = c->p;
  mta_rows_arguments a = norm_of(c, p->pre ? MTA_AS_IT_IS : MTA_KNOWN);
  a.band = band_of(c, inputs_of(p), c->y);
  a.x = p->pre ? c_of(c, false) : tensor_of(p, &p->s, false);
  if (!p->pre) a.q = c_of(c, false);
  a.out = tensor_of(p, &p->ds, false);
  a.cols = a.out_cols = p->tokens;
  return rows(queue, &a);
}

static tigon_status add_sums(tigon_queue *queue, const chunk *c) {
  const problem *p = c->p;
  const mta_sums_arguments a = {.band = band_of(c, outputs_of(p), c->own),
                                .u = u_of(c, strided(c) ? c->u_taps : 0),
                                .g = g_of(c, g_column(c)),
                                .slabs = (gm_ptr)c->slabs,
                                .count = c->slab_count,
                                .first = c->first,
                                .weights = c->weights,
                                .of_weight = p->dweight.data != NULL,
                                .of_bias = p->dbias.data != NULL,
                                .batch = p->batch,
                                .in = p->in,
                                .out = p->out,
                                .groups = p->groups,
                                .tokens = p->tokens,
                                .cols = p->cols,
                                .tap_step = strided(c) ? p->cols : p->w.dilation,
                                .h = window_of(&p->h),
                                .w = window_of(&p->w)};
  const int64_t lines = (a.of_weight ? c->weights / p->w.taps : 0) + (a.of_bias ? p->out : 0);
  return lines > 0 ? ascend_launch(queue, "mta_sums", mta_sums, &a, ascend_blocks(queue, lines * a.count)) : TIGON_OK;
}

/* ---- chunks ---- */

/* The queries that u must have for rows `of` of o besides the chunk's. */
static tigon_band reach_of(const problem *p, tigon_band y, tigon_band of) {
  const tigon_band met = tigon_mta_queries(p, of);
  return met.end > met.begin ? (tigon_band){least(y.begin, met.begin), most(y.end, met.end)} : y;
}

static tigon_status fwd_chunk(tigon_queue *queue, chunk *c) {
  c->made = c->own;
  c->reach = reach_of(c->p, c->y, c->own);
  tigon_status status = make_u(queue, c, false);
  if (status == TIGON_OK) status = convolve(queue, c, false);
  return status == TIGON_OK ? make_o(queue, c) : status;
}

static tigon_status bwd_chunk(tigon_queue *queue, chunk *c) {
  const problem *p = c->p;
  c->made = tigon_mta_met(p, c->y);
  c->reach = reach_of(p, c->y, p->pre ? c->made : c->own);
  tigon_status status = make_u(queue, c, true);
  if (status == TIGON_OK && p->pre) status = convolve(queue, c, false);
  if (status == TIGON_OK) status = make_g(queue, c);
  if (status == TIGON_OK) status = convolve(queue, c, true);
  if (status == TIGON_OK) status = make_ds(queue, c);
  return status == TIGON_OK && c->slabs ? add_sums(queue, c) : status;
}

/* Zeros, which all that is written later leaves around it: a row of u or g is of a later query in each chunk, and no shorter. */
static tigon_status clear(tigon_queue *queue, const chunk *c, int64_t bytes) {
  const mta_clear_arguments a = {(gm_ptr)c->u, bytes / 4, c->panel};
  const int64_t tasks = (a.count - 1) / a.panel + 1;
  return a.count > 0 ? ascend_launch(queue, "mta_clear", mta_clear, &a, ascend_blocks(queue, tasks)) : TIGON_OK;
}

static tigon_status each_chunk(tigon_queue *queue, chunk *c, tigon_status (*run)(tigon_queue *queue, chunk *c)) {
  const problem *p = c->p;
  tigon_status status = TIGON_OK;
  for (int64_t y = 0; y < p->tokens && status == TIGON_OK; y += c->y_rows) {
    c->y = (tigon_band){y, least(y + c->y_rows, p->tokens)};
    c->own = tigon_mta_own(p, c->y);
    c->first = y == 0;
    status = run(queue, c);
  }
  return status;
}

int64_t ascend_multi_token_attention_fwd_bytes(tigon_queue *queue, const problem *p) {
  const chunk c = chunk_of(queue, p);
  return u_bytes(&c) + c_bytes(&c);
}

tigon_status ascend_multi_token_attention_fwd(tigon_queue *queue, const problem *p) {
  chunk c = chunk_of(queue, p);
  char *memory = p->workspace;
  c.u = (float *)(void *)memory;
  c.c = (float *)(void *)(memory + u_bytes(&c));
  tigon_status status = check_panel(queue, &c);
  if (status == TIGON_OK) status = clear(queue, &c, u_bytes(&c));
  return status == TIGON_OK ? each_chunk(queue, &c, fwd_chunk) : status;
}

int64_t ascend_multi_token_attention_bwd_bytes(tigon_queue *queue, const problem *p) {
  const chunk c = chunk_of(queue, p);
  return u_bytes(&c) + g_bytes(&c) + c_bytes(&c) + slab_bytes(&c);
}

tigon_status ascend_multi_token_attention_bwd(tigon_queue *queue, const problem *p) {
  chunk c = chunk_of(queue, p);
  char *memory = p->workspace;
  c.u = (float *)(void *)memory;
  c.g = (float *)(void *)(memory += u_bytes(&c));
  c.c = (float *)(void *)(memory += g_bytes(&c));
  if (tigon_mta_sums(p)) c.slabs = (float *)(void *)(memory + c_bytes(&c));
  const bool some = p->tokens > 0 && p->batch > 0; /* else no kernel writes slabs */
  tigon_status status = check_panel(queue, &c);
  if (status == TIGON_OK) status = clear(queue, &c, u_bytes(&c) + g_bytes(&c));
  if (status == TIGON_OK) status = each_chunk(queue, &c, bwd_chunk);
  const tigon_vector to[] = {p->dweight, p->dbias};
  const int64_t cols[] = {c.weights, p->out};
  for (int i = 0; i < 2 && status == TIGON_OK; ++i)
    if (to[i].data && cols[i] > 0)
      status = ascend_column_sums(queue, c.slabs + i * c.weights, some ? c.slab_count : 0, c.weights + p->out, cols[i],
                                  to[i].data, to[i].dtype, p->accumulate);
  return status;
}
