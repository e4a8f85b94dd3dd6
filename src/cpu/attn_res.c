/* attn_res: a task has a range of tokens. A sweep over a token's blocks takes their sums, a second one, which finds them in a
 * cache, makes h, or dv and the token's terms of u. The vector c = q * wn is made once. */
#include <math.h>
#include <string.h>

#include "cpu/column_sum.h"
#include "cpu/kernels.h"
#include "cpu/pair.h"
#include "cpu/simd_math.h"

enum {
  BLOCK = 256 * LANES, /* columns of one f32 partial sum: at most 128 additions in a row */
  WIDE = 4,            /* vectors that the second sweep has at once, STEP elements each */
  WORDS = 4,           /* numbers of a block that a task keeps */
};

typedef tigon_attn_res_problem problem;

typedef struct job {
  const problem *p;
  int64_t tasks;
  float *c;     /* [cols, up to a whole STEP], in the dtype's order, 0 beyond cols */
  float *words; /* [tasks, WORDS, blocks] */
  float *u;     /* [tasks, cols] of backward; NULL: not wanted */
  bool stream;
} job;

static int64_t steps(int64_t cols) { return (cols + STEP - 1) / STEP * STEP; }
static int64_t c_bytes(const problem *p) { return tigon_slab_bytes(1, 1, steps(p->cols)); }
static int64_t words_bytes(const problem *p, int64_t tasks) { return tigon_slab_bytes(tasks, WORDS, p->blocks); }
static int64_t fwd_tasks(const problem *p) {
  return tigon_cpu_row_tasks(p->space.rows, p->blocks * p->cols * v_size(p->dtype));
}
static int64_t bwd_tasks(const problem *p) { return tigon_slabs(p->space.rows, TIGON_CPU_TASKS); }

/* ---- c ---- */

/* A NaN becomes one that bf16 can hold. */
TIGON_INLINE vf plain_nan(vf x) { return vf_select(vf_nan(x), vf_set(NAN), x); }
static float plain(float x) { return isnan(x) ? NAN : x; }

TIGON_INLINE vf2 natural(tigon_vector v, int64_t c, int n) {
  return v2_natural(v2_load(v.data, c, v.dtype, n), v.dtype);
}

static void c_task(const void *argument, int64_t index) {
  const job *j = argument;
  const problem *p = j->p;
  const int64_t begin = index * COLUMN_SUM_COLUMNS, most = begin + COLUMN_SUM_COLUMNS;
  for (int64_t c = begin; c < most && c < p->cols; c += STEP) {
    const int n = p->cols - c < STEP ? (int)(p->cols - c) : STEP;
    const vf2 product = v2_order(v2_mul(natural(p->q, c, n), natural(p->wn, c, n)), p->dtype);
    vf_store(j->c + c, plain_nan(product.a));
    vf_store(j->c + c + LANES, plain_nan(product.b));
  }
}
TIGON_INLINE vf2 load_c(const job *j, int64_t c) { return (vf2){vf_load(j->c + c), vf_load(j->c + c + LANES)}; }

/* ---- a token ---- */

/* Block i's row of the token whose rows begin `offset` elements after their block. */
TIGON_INLINE char *row(tigon_dtype dtype, const tigon_blocks *b, int64_t offset, int64_t i) {
  return (char *)tigon_block(b, (size_t)v_size(dtype), i) + offset * v_size(dtype);
}

/* Sums of c * x, and of x * x, or of y * x where there is a y. */
typedef struct sums {
  double c, other;
} sums;

TIGON_INLINE void add_terms(tigon_dtype dtype, const job *j, const char *x, const char *y, int64_t c, int n, vf2 *of_c,
                            vf2 *of_other) {
  const vf2 v = v2_load(x, c, dtype, n);
  *of_c = v2_fma(load_c(j, c), v, *of_c);
  *of_other = v2_fma(y ? v2_load(y, c, dtype, n) : v, v, *of_other);
}

TIGON_INLINE sums sum_row(tigon_dtype dtype, const job *j, const char *x, const char *y) {
  const int64_t cols = j->p->cols;
  sums s = {0, 0};
  for (int64_t block = 0; block < cols; block += BLOCK) {
    const int64_t end = cols - block < BLOCK ? cols : block + BLOCK;
    vf2 of_c = v2_set(0), of_other = v2_set(0);
    int64_t c = block;
    for (; c + STEP <= end; c += STEP) add_terms(dtype, j, x, y, c, STEP, &of_c, &of_other);
    if (c < end) add_terms(dtype, j, x, y, c, (int)(end - c), &of_c, &of_other);
    s.c += (double)vf_sum(vf_add(of_c.a, of_c.b));
    s.other += (double)vf_sum(vf_add(of_other.a, of_other.b));
  }
  return s;
}

/* ---- forward ---- */

/* Scores become weights. */
TIGON_INLINE void softmax(float *a, int64_t blocks) {
  float largest = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < blocks; ++i) largest = a[i] > largest ? a[i] : largest;
  for (int64_t i = 0; i < blocks; i += LANES) {
    const int n = blocks - i < LANES ? (int)(blocks - i) : LANES;
    vf_store_n(a + i, vf_exp_all(vf_sub(vf_load_n(a + i, n), vf_set(largest))), n);
  }
  for (int64_t i = 0; i < blocks; ++i) sum += (double)a[i];
  for (int64_t i = 0; i < blocks; ++i) a[i] = plain((float)((double)a[i] / sum));
}

/* `wide` steps of h from column c on, the last of which has n elements. */
TIGON_INLINE void mix(tigon_dtype dtype, const job *j, const float *a, int64_t offset, int64_t next, char *h, int64_t c,
                      int wide, int n, bool stream) {
  const problem *p = j->p;
  vf2 sum[WIDE];
  for (int k = 0; k < wide; ++k) sum[k] = v2_set(0);
  for (int64_t i = 0; i < p->blocks; ++i) {
    const char *v = row(dtype, &p->v, offset, i), *ahead = row(dtype, &p->v, next, i);
    const vf2 weight = v2_set(a[i]);
    for (int k = 0; k < wide; ++k) {
      const int64_t at = c + k * STEP;
      v2_prefetch(ahead, at, dtype);
      sum[k] = v2_fma(weight, v2_load(v, at, dtype, k + 1 < wide ? STEP : n), sum[k]);
    }
  }
  for (int k = 0; k < wide; ++k) v2_put(h, c + k * STEP, dtype, sum[k], k + 1 < wide ? STEP : n, stream, V_OWN);
}

TIGON_INLINE void fwd_rows(tigon_dtype dtype, const job *j, int64_t index) {
  const problem *p = j->p;
  float *a = j->words + index * WORDS * p->blocks;
  int64_t begin, end;
  tigon_range(p->space.rows, j->tasks, index, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t offset = tigon_row_offset(&p->space, &p->v.rows, r);
    const int64_t next = r + 1 < end ? tigon_row_offset(&p->space, &p->v.rows, r + 1) : offset;
    for (int64_t i = 0; i < p->blocks; ++i) {
      const sums s = sum_row(dtype, j, row(dtype, &p->v, offset, i), NULL);
      const double rstd = 1 / sqrt((p->cols > 0 ? s.other / (double)p->cols : 0) + (double)p->eps);
      a[i] = p->cols > 0 ? (float)(rstd * s.c) : 0;
      if (p->rstd) p->rstd[r * p->blocks + i] = (float)rstd;
    }
    softmax(a, p->blocks);
    if (p->a) memcpy(p->a + r * p->blocks, a, (size_t)p->blocks * sizeof *a);
    char *h = tigon_row(&p->space, &p->h, (size_t)v_size(dtype), r);
    const bool stream = j->stream && v2_aligned(h);
    int64_t c = 0;
    for (; c + WIDE * STEP <= p->cols; c += WIDE * STEP) mix(dtype, j, a, offset, next, h, c, WIDE, STEP, stream);
    for (; c + STEP <= p->cols; c += STEP) mix(dtype, j, a, offset, next, h, c, 1, STEP, stream);
    if (c < p->cols) mix(dtype, j, a, offset, next, h, c, 1, (int)(p->cols - c), false);
  }
  if (j->stream) vf_fence();
}

static void fwd_task(const void *argument, int64_t index) {
  const job *j = argument;
  TIGON_FOR_DTYPE(j->p->dtype, fwd_rows, j, index);
}

/* ---- backward ---- */

/* The numbers of a token's blocks: dv_i = a_i * dh + slope_i * (c - back_i * v_i). */
typedef struct numbers {
  float *a, *slope, *back;
} numbers;

TIGON_INLINE void find_numbers(tigon_dtype dtype, const job *j, int64_t r, int64_t offset, const char *dh,
                               const numbers *of) {
  const problem *p = j->p;
  const float *a = p->a + r * p->blocks, *rstd = p->rstd + r * p->blocks;
  double mean = 0;
  for (int64_t i = 0; i < p->blocks; ++i) {
    const sums s = sum_row(dtype, j, row(dtype, &p->v, offset, i), dh);
    const double scale = (double)rstd[i];
    mean += (double)a[i] * s.other;
    of->a[i] = plain(a[i]);
    of->slope[i] = (float)s.other;
    of->back[i] = plain((float)(scale * scale * s.c / (double)p->cols));
  }
  for (int64_t i = 0; i < p->blocks; ++i)
    of->slope[i] = plain((float)((double)a[i] * ((double)of->slope[i] - mean) * (double)rstd[i]));
}

/* `wide` steps of each dv from column c on; u: the task's sums, NULL: not wanted. */
TIGON_INLINE void differentiate(tigon_dtype dtype, const job *j, const numbers *of, const int64_t offsets[3],
                                const char *dh, float *u, int64_t c, int wide, int n, bool stream) {
  const problem *p = j->p;
  vf2 incoming[WIDE], of_c[WIDE], sum[WIDE];
  for (int k = 0; k < wide; ++k) {
    incoming[k] = v2_load(dh, c + k * STEP, dtype, k + 1 < wide ? STEP : n);
    of_c[k] = load_c(j, c + k * STEP);
    sum[k] = v2_set(0);
  }
  for (int64_t i = 0; i < p->blocks; ++i) {
    const char *v = row(dtype, &p->v, offsets[0], i), *ahead = row(dtype, &p->v, offsets[1], i);
    char *dv = row(dtype, &p->dv, offsets[2], i);
    const vf2 a = v2_set(of->a[i]), slope = v2_set(of->slope[i]), back = v2_set(of->back[i]);
    const bool streams = stream && v2_aligned(dv);
    for (int k = 0; k < wide; ++k) {
      const int64_t at = c + k * STEP;
      const int some = k + 1 < wide ? STEP : n;
      v2_prefetch(ahead, at, dtype);
      const vf2 x = v2_load(v, at, dtype, some), inner = v2_fnma(back, x, of_c[k]);
      v2_put(dv, at, dtype, v2_fma(slope, inner, v2_mul(a, incoming[k])), some, streams, V_OWN);
      sum[k] = v2_fma(slope, x, sum[k]);
    }
  }
  for (int k = 0; u && k < wide; ++k) {
    const int64_t at = c + k * STEP;
    const int some = k + 1 < wide ? STEP : n;
    v2_put(u, at, TIGON_F32, v2_add(v2_load(u, at, TIGON_F32, some), v2_natural(sum[k], dtype)), some, false, V_OWN);
  }
}

TIGON_INLINE void bwd_rows(tigon_dtype dtype, const job *j, int64_t index) {
  enum { TWO = 2 };
  const problem *p = j->p;
  float *words = j->words + index * WORDS * p->blocks, *u = j->u ? j->u + index * p->cols : NULL;
  const numbers of = {words, words + p->blocks, words + 2 * p->blocks};
  int64_t begin, end;
  tigon_range(p->space.rows, j->tasks, index, &begin, &end);
  if (u) memset(u, 0, (size_t)p->cols * sizeof *u);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t now = tigon_row_offset(&p->space, &p->v.rows, r);
    const int64_t offsets[] = {now, r + 1 < end ? tigon_row_offset(&p->space, &p->v.rows, r + 1) : now,
                               tigon_row_offset(&p->space, &p->dv.rows, r)};
    const char *dh = tigon_row(&p->space, &p->h, (size_t)v_size(dtype), r);
    find_numbers(dtype, j, r, now, dh, &of);
    int64_t c = 0;
    for (; c + TWO * STEP <= p->cols; c += TWO * STEP)
      differentiate(dtype, j, &of, offsets, dh, u, c, TWO, STEP, j->stream);
    for (; c + STEP <= p->cols; c += STEP) differentiate(dtype, j, &of, offsets, dh, u, c, 1, STEP, j->stream);
    if (c < p->cols) differentiate(dtype, j, &of, offsets, dh, u, c, 1, (int)(p->cols - c), false);
  }
  if (j->stream) vf_fence();
}

static void bwd_task(const void *argument, int64_t index) {
  const job *j = argument;
  TIGON_FOR_DTYPE(j->p->dtype, bwd_rows, j, index);
}

/* dq = u * wn and dwn = u * q, of the tasks' sums in their order. */
typedef struct ends {
  const job *job;
  const tigon_vector *to[2], *factor[2];
} ends;

static void end_task(const void *argument, int64_t index) {
  const ends *e = argument;
  const problem *p = e->job->p;
  const int64_t begin = index * COLUMN_SUM_COLUMNS, most = begin + COLUMN_SUM_COLUMNS;
  for (int64_t c = begin; c < most && c < p->cols; c += LANES) {
    const int n = p->cols - c < LANES ? (int)(p->cols - c) : LANES;
    vf u = vf_zero();
    for (int64_t t = 0; t < e->job->tasks; ++t) u = vf_add(u, vf_load_n(e->job->u + t * p->cols + c, n));
    for (int k = 0; k < 2; ++k) {
      if (!e->to[k]->data) continue;
      vf sum = vf_mul(u, v_load_n(e->factor[k]->data, c, e->factor[k]->dtype, n));
      if (p->accumulate) sum = vf_add(sum, v_load_n(e->to[k]->data, c, e->to[k]->dtype, n));
      v_store_n(e->to[k]->data, c, e->to[k]->dtype, sum, n);
    }
  }
}

/* ---- calls ---- */

static job open_job(const problem *p, int64_t tasks, int64_t bytes) {
  char *workspace = p->workspace;
  return (job){.p = p,
               .tasks = tasks,
               .c = (float *)(void *)workspace,
               .words = (float *)(void *)(workspace + c_bytes(p)),
               .stream = tigon_cpu_streams(bytes)};
}

int64_t TIGON_CPU(attn_res_fwd_bytes)(tigon_queue *queue, const problem *p) {
  (void)queue;
  return c_bytes(p) + words_bytes(p, fwd_tasks(p));
}

tigon_status TIGON_CPU(attn_res_fwd)(tigon_queue *queue, const problem *p) {
  const int64_t bytes = (p->blocks + 1) * p->space.rows * p->cols * v_size(p->dtype);
  const job j = open_job(p, fwd_tasks(p), bytes);
  tigon_cpu_parallel_bytes(queue, column_sum_tasks(p->cols), 3 * c_bytes(p), c_task, &j);
  tigon_cpu_parallel_bytes(queue, j.tasks, bytes, fwd_task, &j);
  return TIGON_OK;
}

static bool wants_sums(const problem *p) { return p->dq.dtype || p->dwn.dtype; }

int64_t TIGON_CPU(attn_res_bwd_bytes)(tigon_queue *queue, const problem *p) {
  (void)queue;
  const int64_t tasks = bwd_tasks(p);
  return c_bytes(p) + words_bytes(p, tasks) + (wants_sums(p) ? tigon_slab_bytes(tasks, 1, p->cols) : 0);
}

tigon_status TIGON_CPU(attn_res_bwd)(tigon_queue *queue, const problem *p) {
  const int64_t bytes = (2 * p->blocks + 1) * p->space.rows * p->cols * v_size(p->dtype);
  job j = open_job(p, bwd_tasks(p), bytes);
  if (wants_sums(p) && p->workspace) j.u = j.words + words_bytes(p, j.tasks) / (int64_t)sizeof(float);
  tigon_cpu_note(queue, 1, wants_sums(p) ? j.tasks : 0);
  tigon_cpu_parallel_bytes(queue, column_sum_tasks(p->cols), 3 * c_bytes(p), c_task, &j);
  tigon_cpu_parallel_bytes(queue, j.tasks, bytes, bwd_task, &j);
  const ends e = {&j, {&p->dq, &p->dwn}, {&p->wn, &p->q}};
  if (wants_sums(p))
    tigon_cpu_parallel_bytes(queue, column_sum_tasks(p->cols), (j.tasks + 2) * c_bytes(p), end_task, &e);
  return TIGON_OK;
}
