/* multi_token_attention: a plane after the other (a group of a batch), a chunk of its queries after the other, whose rows lie in a
 * workspace in f32:
 *   u  the scores, or norm() of them, of the queries in reach, between zeros for the padding;
 *   g  backward: the gradient that the convolution gets, rows of o, spread by the stride between zeros;
 *   c  what a convolution has made: rows of o, or backward of the queries.
 * All of a row beyond the diagonal is 0. */
#include "cpu/multi_token_attention.h"

#include "core/half.h"
#include "cpu/column_sum.h"

enum {
  CHUNK_BYTES = 1 << 20, /* bytes of u in a chunk */
  LEAST_ROWS = 16,       /* the fewest queries of a chunk */
  TAP_BYTES = 64,        /* what an element's work is worth in bytes that are moved */
};

typedef struct job {
  const tigon_multi_token_attention_problem *p;
  int64_t plane, inputs, outputs; /* b * groups + group; a group's channels */
  tigon_band y, reach, met, own;  /* queries of the chunk, and in u; rows of o in g or c, and those of the chunk */
  int64_t u_rows, u_pitch, o_rows, g_pitch, c_rows, c_pitch;
  float *u, *g, *c, *w;
  double *sums; /* sums of dweight, then of dbias */
  int64_t weights;
  bool backward;
} job;

typedef void task(const void *argument, int64_t index);

static int64_t batch_of(const job *j) { return j->plane / j->p->groups; }
static int64_t input_of(const job *j, int64_t k) { return j->plane % j->p->groups * j->inputs + k; }
static int64_t output_of(const job *j, int64_t k) { return j->plane % j->p->groups * j->outputs + k; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t rows_in(tigon_band of) { return of.end - of.begin; }

/* Rows in a workspace, and of tensors. */
static float *u_row(const job *j, int64_t k, int64_t y) {
  return j->u + (k * j->u_rows + y - j->reach.begin) * j->u_pitch;
}
static float *g_row(const job *j, int64_t k, int64_t i) {
  return j->g + (k * j->o_rows + i - j->met.begin) * j->g_pitch;
}
static float *c_row(const job *j, int64_t k, int64_t at) { return j->c + (k * j->c_rows + at) * j->c_pitch; }
static int64_t s_index(const job *j, int64_t k, int64_t y) {
  return (batch_of(j) * j->p->in + input_of(j, k)) * j->p->tokens + y;
}
static int64_t o_index(const job *j, int64_t k, int64_t i) {
  return (batch_of(j) * j->p->out + output_of(j, k)) * j->p->rows + i;
}
static void *s_row(const job *j, const tigon_rows *of, int64_t k, int64_t y) {
  return tigon_row(&j->p->space, of, (size_t)v_size(j->p->dtype), s_index(j, k, y));
}
static void *o_row(const job *j, int64_t k, int64_t i) {
  return tigon_row(&j->p->out_space, &j->p->o, (size_t)v_size(j->p->dtype), o_index(j, k, i));
}
static float *stat_at(const job *j, int64_t index) { return j->p->stat.data ? (float *)j->p->stat.data + index : NULL; }

TIGON_INLINE void widen(tigon_dtype dtype, const void *from, float *to, int64_t n) {
  for (int64_t at = 0; at < n; at += LANES) {
    const int lanes = mta_lanes(n - at);
    vf_store_n(to + at, v_load_n(from, at, dtype, lanes), lanes);
  }
}
/* The first n of a row plus `more`, and zeros. */
TIGON_INLINE void narrow(tigon_dtype dtype, const float *from, void *to, int64_t n, int64_t cols, float more) {
  for (int64_t at = 0; at < n; at += LANES) {
    const int lanes = mta_lanes(n - at);
    v_store_n(to, at, dtype, vf_add(vf_load_n(from + at, lanes), vf_set(more)), lanes);
  }
  for (int64_t at = n; at < cols; at += LANES) v_store_n(to, at, dtype, vf_zero(), mta_lanes(cols - at));
}
static void load_row(tigon_dtype dtype, const void *from, float *to, int64_t n) {
  TIGON_FOR_DTYPE(dtype, widen, from, to, n);
}
static void store_row(tigon_dtype dtype, const float *from, void *to, int64_t n, int64_t cols, float more) {
  TIGON_FOR_DTYPE(dtype, narrow, from, to, n, cols, more);
}
static void clear(float *row, int64_t n) {
  for (int64_t at = 0; at < n; at += LANES) vf_store_n(row + at, vf_zero(), mta_lanes(n - at));
}

/* ---- what goes into a convolution ---- */

static void w_task(const void *argument, int64_t index) {
  const job *j = argument;
  (void)index;
  for (int64_t i = 0; i < j->weights; ++i) j->w[i] = s_load(j->p->weight.data, i, j->p->weight.dtype);
  for (int64_t i = 0; j->sums && i < j->weights + j->p->out; ++i) j->sums[i] = 0;
}

static void u_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_multi_token_attention_problem *p = j->p;
  const int64_t k = index / rows_in(j->reach), y = j->reach.begin + index % rows_in(j->reach);
  float *row = u_row(j, k, y), *x = row + p->w.padding, *stat = stat_at(j, s_index(j, k, y));
  clear(row, j->u_pitch);
  load_row(p->dtype, s_row(j, &p->s, k, y), x, y + 1);
  if (p->pre) return;
  float off;
  if (j->backward) {
    off = *stat;
  } else {
    off = mta_stat(p->sparse, x, y + 1);
    if (stat) *stat = off;
  }
  mta_norm(p->sparse, x, y + 1, off);
}

/* A row of o's gradient, n numbers, to where tap 0 of the transpose of column 0 meets its own. */
static void spread(const job *j, const float *from, float *row, int64_t n) {
  const tigon_window *w = &j->p->w;
  float *to = row + tigon_window_span(w) - w->padding;
  clear(row, j->g_pitch);
  for (int64_t x = 0; x < n; ++x) to[x * w->stride] = from[x];
}

static void g_task(const void *argument, int64_t index) {
  const job *j = argument;
  const int64_t k = index / rows_in(j->met), at = index % rows_in(j->met), i = j->met.begin + at;
  const int64_t n = mta_allowed(i, j->p->cols);
  load_row(j->p->dtype, o_row(j, k, i), c_row(j, k, at), n);
  spread(j, c_row(j, k, at), g_row(j, k, i), n);
}

/* ---- rows of o ---- */

/* Row i of channel k, before norm() and bias. */
static void convolve_row(const job *j, int64_t k, int64_t i, float *to) {
  const tigon_multi_token_attention_problem *p = j->p;
  mta_row c = {.from = j->u,
               .w = j->w + output_of(j, k) * j->inputs * p->h.taps * p->w.taps,
               .to = to,
               .channels = j->inputs,
               .channel = j->u_rows * j->u_pitch,
               .w_channel = p->h.taps * p->w.taps,
               .w_tap = 1,
               .taps = p->w.taps,
               .stride = p->w.stride,
               .dilation = p->w.dilation,
               .cols = mta_allowed(i, p->cols)};
  for (int64_t t = 0; t < p->h.taps; ++t) {
    const int64_t y = i * p->h.stride - p->h.padding + t * p->h.dilation;
    if (y < 0 || y >= p->tokens) {
      mta_meet_nothing(&c, t * p->w.taps);
      continue;
    }
    c.row[c.rows] = (y - j->reach.begin) * j->u_pitch;
    c.w_row[c.rows++] = t * p->w.taps;
  }
  mta_convolve(&c);
}

static void o_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_multi_token_attention_problem *p = j->p;
  const int64_t k = index / rows_in(j->own), at = index % rows_in(j->own), i = j->own.begin + at;
  const int64_t n = mta_allowed(i, p->cols);
  float *row = c_row(j, k, at), *stat = stat_at(j, o_index(j, k, i));
  convolve_row(j, k, i, row);
  if (p->pre) {
    const float off = mta_stat(p->sparse, row, n);
    if (stat) *stat = off;
    mta_norm(p->sparse, row, n, off);
  }
  store_row(p->dtype, row, o_row(j, k, i), n, p->cols, (float)vector_at(p->bias, output_of(j, k)));
}

/* Backward of PRE: norm'(q) of a row of o. The second half of a row of c holds q. */
static void q_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_multi_token_attention_problem *p = j->p;
  const int64_t k = index / rows_in(j->met), at = index % rows_in(j->met), i = j->met.begin + at;
  const int64_t n = mta_allowed(i, p->cols);
  float *row = c_row(j, k, at), *q = row + j->c_pitch / 2;
  convolve_row(j, k, i, row);
  mta_norm(p->sparse, row, n, *stat_at(j, o_index(j, k, i)));
  load_row(p->dtype, o_row(j, k, i), q, n);
  mta_norm_bwd(p->sparse, row, q, n);
  spread(j, q, g_row(j, k, i), n);
}

/* ---- rows of the queries ---- */

static void ds_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_multi_token_attention_problem *p = j->p;
  const int64_t k = index / rows_in(j->y), at = index % rows_in(j->y), y = j->y.begin + at;
  const int64_t area = p->h.taps * p->w.taps, first = output_of(j, 0);
  float *row = c_row(j, k, at);
  mta_row c = {.from = j->g,
               .w = j->w + (first * j->inputs + k) * area + p->w.taps - 1,
               .to = row,
               .channels = j->outputs,
               .channel = j->o_rows * j->g_pitch,
               .w_channel = j->inputs * area,
               .w_tap = -1,
               .taps = p->w.taps,
               .stride = 1,
               .dilation = p->w.dilation,
               .cols = y + 1};
  for (int64_t t = 0; t < p->h.taps; ++t) {
    const int64_t i = y + p->h.padding - t * p->h.dilation;
    if (i < 0 || i % p->h.stride || i / p->h.stride >= p->rows) {
      mta_meet_nothing(&c, t * p->w.taps);
      continue;
    }
    c.row[c.rows] = (i / p->h.stride - j->met.begin) * j->g_pitch;
    c.w_row[c.rows++] = t * p->w.taps;
  }
  mta_convolve(&c);
  if (!p->pre) mta_norm_bwd(p->sparse, u_row(j, k, y) + p->w.padding, row, y + 1);
  store_row(p->dtype, row, s_row(j, &p->ds, k, y), y + 1, p->tokens, 0);
}

/* A row of taps of dweight; each has its own place. */
static void dweight_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_multi_token_attention_problem *p = j->p;
  const int64_t t = index % p->h.taps, ci = index / p->h.taps % j->inputs, co = index / p->h.taps / j->inputs;
  double *sums = j->sums + ((output_of(j, co) * j->inputs + ci) * p->h.taps + t) * p->w.taps;
  for (int64_t y = j->y.begin; y < j->y.end; ++y) {
    const int64_t at = y + p->h.padding - t * p->h.dilation, i = at / p->h.stride;
    if (at < 0 || at % p->h.stride || i >= p->rows) continue;
    const float *g = g_row(j, co, i) + tigon_window_span(&p->w) - p->w.padding, *u = u_row(j, ci, y) + p->w.padding;
    for (int64_t x = 0; x < p->w.taps; ++x) {
      const int64_t shift = x * p->w.dilation - p->w.padding, step = p->w.stride;
      const int64_t begin = shift < 0 ? (step - 1 - shift) / step : 0; /* column of o */
      const int64_t most = y < shift ? 0 : (y - shift) / step + 1;
      const int64_t n = least(most, mta_allowed(i, p->cols)) - begin;
      const float *a = g + begin * step, *b = u + shift + begin * step;
      if (n > 0) sums[x] += step == 1 ? mta_dot(a, b, n) : mta_dot_by(a, b, n, step);
    }
  }
}

static void dbias_task(const void *argument, int64_t k) {
  const job *j = argument;
  double *sum = j->sums + j->weights + output_of(j, k);
  for (int64_t i = j->own.begin; i < j->own.end; ++i) *sum += mta_sum(g_row(j, k, i), j->g_pitch);
}

static void sums_task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_multi_token_attention_problem *p = j->p;
  const bool of_bias = index >= j->weights;
  const tigon_vector to = of_bias ? p->dbias : p->dweight;
  const int64_t i = of_bias ? index - j->weights : index;
  if (to.data) tigon_store_f64(to.data, i, to.dtype, (p->accumulate ? vector_at(to, i) : 0) + j->sums[index]);
}

/* ---- calls ---- */

static int64_t pitch_of(int64_t cols) { return (cols + MTA_SLACK + LANES - 1) / LANES * LANES; }

/* Sizes of a chunk's rows. */
static job job_of(const tigon_multi_token_attention_problem *p, bool backward) {
  job j = {.p = p, .inputs = p->in / p->groups, .outputs = p->out / p->groups, .backward = backward};
  const int64_t span = tigon_window_span(&p->h);
  j.weights = p->out * j.inputs * p->h.taps * p->w.taps;
  j.u_pitch = pitch_of(p->tokens + 2 * p->w.padding);
  j.g_pitch = pitch_of(p->tokens + tigon_window_span(&p->w));
  j.c_pitch = 2 * pitch_of(p->tokens > p->cols ? p->tokens : p->cols);
  const int64_t worth = CHUNK_BYTES / 4 / j.u_pitch / (j.inputs > 0 ? j.inputs : 1);
  const int64_t rows = least(p->tokens, worth > LEAST_ROWS ? worth : LEAST_ROWS);
  j.y.end = rows;
  j.o_rows = least(p->rows, rows + span + 1);
  j.u_rows = least(p->tokens, j.o_rows * p->h.stride + span + rows);
  j.c_rows = rows > j.o_rows ? rows : j.o_rows;
  return j;
}

static int64_t u_bytes(const job *j) { return tigon_slab_bytes(j->inputs, j->u_rows, j->u_pitch); }
static int64_t g_bytes(const job *j) { return j->backward ? tigon_slab_bytes(j->outputs, j->o_rows, j->g_pitch) : 0; }
static int64_t c_bytes(const job *j) {
  return tigon_slab_bytes(j->inputs > j->outputs ? j->inputs : j->outputs, j->c_rows, j->c_pitch);
}
static int64_t w_bytes(const job *j) { return tigon_pad((j->weights + MTA_SLACK) * 4); }
static int64_t bytes_of(const job *j) {
  const int64_t sums = tigon_mta_sums(j->p) ? tigon_pad((j->weights + j->p->out) * (int64_t)sizeof(double)) : 0;
  return u_bytes(j) + g_bytes(j) + c_bytes(j) + w_bytes(j) + sums;
}

static void share_out(job *j) {
  char *at = j->p->workspace;
  j->u = (float *)(void *)at;
  j->g = (float *)(void *)(at += u_bytes(j));
  j->c = (float *)(void *)(at += g_bytes(j));
  j->w = (float *)(void *)(at += c_bytes(j));
  j->sums = tigon_mta_sums(j->p) ? (double *)(void *)(at + w_bytes(j)) : NULL;
}

static void run(tigon_queue *queue, const job *j, int64_t tasks, task *work) {
  if (tasks > 0) tigon_cpu_parallel_bytes(queue, tasks, tasks * j->u_pitch * TAP_BYTES, work, j);
}

static void fwd_chunk(tigon_queue *queue, job *j) {
  const tigon_band of = tigon_mta_queries(j->p, j->own);
  j->reach = (tigon_band){least(j->y.begin, of.end > 0 ? of.begin : j->y.begin), of.end > j->y.end ? of.end : j->y.end};
  run(queue, j, j->inputs * rows_in(j->reach), u_task);
  run(queue, j, j->outputs * rows_in(j->own), o_task);
}

static void bwd_chunk(tigon_queue *queue, job *j) {
  const tigon_multi_token_attention_problem *p = j->p;
  j->met = tigon_mta_met(p, j->y);
  const tigon_band of = tigon_mta_queries(p, j->met);
  j->reach =
      !p->pre || of.end == 0 ? j->y : (tigon_band){least(j->y.begin, of.begin), of.end > j->y.end ? of.end : j->y.end};
  run(queue, j, j->inputs * rows_in(j->reach), u_task);
  run(queue, j, j->outputs * rows_in(j->met), p->pre ? q_task : g_task);
  run(queue, j, j->inputs * rows_in(j->y), ds_task);
  if (p->dweight.data) run(queue, j, j->outputs * j->inputs * p->h.taps, dweight_task);
  if (p->dbias.data) run(queue, j, j->outputs, dbias_task);
}

static void planes(tigon_queue *queue, job *j, void (*chunk)(tigon_queue *queue, job *j)) {
  const int64_t rows = j->y.end;
  for (j->plane = 0; j->plane < j->p->batch * j->p->groups; ++j->plane)
    for (int64_t y = 0; y < j->p->tokens; y += rows) {
      j->y = (tigon_band){y, least(y + rows, j->p->tokens)};
      j->own = tigon_mta_own(j->p, j->y);
      chunk(queue, j);
    }
}

int64_t TIGON_CPU(multi_token_attention_fwd_bytes)(tigon_queue *queue, const tigon_multi_token_attention_problem *p) {
  (void)queue;
  const job j = job_of(p, false);
  return bytes_of(&j);
}
int64_t TIGON_CPU(multi_token_attention_bwd_bytes)(tigon_queue *queue, const tigon_multi_token_attention_problem *p) {
  (void)queue;
  const job j = job_of(p, true);
  return bytes_of(&j);
}

tigon_status TIGON_CPU(multi_token_attention_fwd)(tigon_queue *queue, const tigon_multi_token_attention_problem *p) {
  job j = job_of(p, false);
  share_out(&j);
  tigon_cpu_parallel(queue, 1, w_task, &j);
  planes(queue, &j, fwd_chunk);
  return TIGON_OK;
}

tigon_status TIGON_CPU(multi_token_attention_bwd)(tigon_queue *queue, const tigon_multi_token_attention_problem *p) {
  job j = job_of(p, true);
  share_out(&j);
  tigon_cpu_parallel(queue, 1, w_task, &j);
  planes(queue, &j, bwd_chunk);
  if (j.sums) tigon_cpu_parallel(queue, j.weights + p->out, sums_task, &j);
  return TIGON_OK;
}
