/* Rows of the norms forward: one body, expanded by the file of each op. Sweeps for the statistics first, then one that
 * stores, which reads the row from the cache. */
#ifndef TIGON_CPU_NORM_FWD_H
#define TIGON_CPU_NORM_FWD_H

#include "cpu/norm.h"
#include "cpu/split.h"

/* ---- statistics ---- */

/* A row of x; or of x + residual, which goes to s and is kept in `near` for the sweep that follows: s itself, or other memory
 * where s goes past the caches, `aside`. */
typedef struct norm_source {
  bool adds, aside; /* constant once a body is expanded */
  const char *x, *residual;
  char *s, *near;
  const char *next_residual;
} norm_source;

TIGON_INLINE const char *norm_at_hand(const norm_source *from) { return from->adds ? from->near : from->x; }
TIGON_INLINE vf2 norm_input(tigon_dtype dtype, const norm_source *from, int64_t c, int n) {
  if (from->adds) {
    v2_prefetch(from->next_residual, c, dtype);
    const vf2 s = v2_add(v2_load(from->x, c, dtype, n), v2_load(from->residual, c, dtype, n));
    const v_values are = n == STEP ? V_RARE : V_OWN;
    if (from->aside) v2_put(from->s, c, dtype, s, n, true, are);
    v2_put(from->near, c, dtype, s, n, false, are);
  }
  return v2_load(norm_at_hand(from), c, dtype, n);
}

/* Only for full steps. The other elements of a row are rounded with more care. */
TIGON_INLINE v_least norm_least(v_least l, tigon_dtype dtype, const norm_source *from, int64_t c) {
  return dtype == TIGON_BF16 ? v_least_bf16(l, (const uint16_t *)norm_at_hand(from) + c) : l;
}

/* *least, where that is asked for: the least magnitude that is not 0 of full steps. */
TIGON_INLINE double norm_sum_squares(tigon_dtype dtype, const norm_source *from, int64_t cols, float *least) {
  double sum = 0;
  v_least l = v_least_none();
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf2 s = v2_set(0), t = v2_set(0);
    int64_t c = block;
    for (; c + 2 * STEP <= end; c += 2 * STEP) {
      const vf2 a = norm_input(dtype, from, c, STEP), b = norm_input(dtype, from, c + STEP, STEP);
      s = v2_fma(a, a, s), t = v2_fma(b, b, t);
      if (least) l = norm_least(norm_least(l, dtype, from, c), dtype, from, c + STEP);
    }
    for (; c < end; c += STEP) {
      const int n = end - c < STEP ? (int)(end - c) : STEP;
      const vf2 a = norm_input(dtype, from, c, n);
      s = v2_fma(a, a, s);
      if (least && n == STEP) l = norm_least(l, dtype, from, c);
    }
    s = v2_add(s, t);
    sum += (double)vf_sum(vf_add(s.a, s.b));
  }
  if (least) *least = v_least_value(l);
  return sum;
}

/* 32 ones, then zeros: from 32 - n on it is n ones. STEP is 32 at most. */
static const float norm_ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* x - center of up to STEP elements; 0 in the lanes without one. */
TIGON_INLINE vf2 norm_difference(tigon_dtype dtype, const void *x, vf2 center, int64_t c, int n) {
  const vf2 d = v2_sub(v2_load(x, c, dtype, n), center);
  if (n == STEP) return d;
  return v2_mul(d, v2_order(v2_load(norm_ones, 32 - n, TIGON_F32, STEP), dtype));
}

/* Sum of x - center over columns [c, end), and of its square. */
TIGON_INLINE double norm_sum_differences(tigon_dtype dtype, const void *x, float center, int64_t c, int64_t end,
                                         double *squares) {
  const vf2 m = v2_set(center);
  vf2 sum = v2_set(0), sum_squares = v2_set(0);
  while (c + 2 * STEP <= end) {
    const int64_t stop = end - c < NORM_CHAIN ? end : c + NORM_CHAIN;
    vf2 s = v2_set(0), t = v2_set(0), ss = v2_set(0), tt = v2_set(0);
    for (; c + 2 * STEP <= stop; c += 2 * STEP) {
      const vf2 a = norm_difference(dtype, x, m, c, STEP), b = norm_difference(dtype, x, m, c + STEP, STEP);
      s = v2_add(a, s), t = v2_add(b, t);
      ss = v2_fma(a, a, ss), tt = v2_fma(b, b, tt);
    }
    sum = v2_add(sum, v2_add(s, t)), sum_squares = v2_add(sum_squares, v2_add(ss, tt));
  }
  for (; c < end; c += STEP) {
    const vf2 a = norm_difference(dtype, x, m, c, end - c < STEP ? (int)(end - c) : STEP);
    sum = v2_add(a, sum), sum_squares = v2_fma(a, a, sum_squares);
  }
  *squares = (double)vf_sum(vf_add(sum_squares.a, sum_squares.b));
  return (double)vf_sum(vf_add(sum.a, sum.b));
}

/* The mean, and the mean of squared differences from it. A block sums differences from a center, the mean of its first columns.
 * sum(d^2) - sum(d)^2 / n loses next to nothing while the center is well within a standard deviation of the mean. Where it is
 * not, the sums are taken again about the mean that they gave. Blocks are joined in f64. After Chan, Golub & LeVeque 1983,
 * doi:10.1080/00031305.1983.10483115. */
TIGON_INLINE double norm_moments(tigon_dtype dtype, const void *x, int64_t cols, double *variance) {
  double sum = 0, about_mean = 0; /* sums of x, and of (x - mean)^2, over the columns before `block` */
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    const int64_t sample = end - block < NORM_SAMPLE ? end : block + NORM_SAMPLE;
    const double n = (double)(end - block), before = (double)block;
    const float first = s_load(x, block, dtype), pivot = isfinite(first) ? first : 0;
    double squares, rest = norm_sum_differences(dtype, x, pivot, block, sample, &squares);
    /* Few bits: differences of 16-bit elements are exact then, and do not lose the same bits each time. */
    float center = tigon_round_f32((float)((double)pivot + rest / (double)(sample - block)), TIGON_BF16);
    rest = norm_sum_differences(dtype, x, center, block, end, &squares);
    if (5 * rest * rest > squares * n) {
      center = (float)((double)center + rest / n);
      rest = norm_sum_differences(dtype, x, center, block, end, &squares);
    }
    about_mean += squares - rest * rest / n;
    /* With an Inf, a NaN or both, the plain sum is the mean. */
    if (!isfinite(center)) center = 0, rest = norm_sum_differences(dtype, x, 0, block, end, &squares);
    const double block_sum = (double)center * n + rest;
    if (block) {
      const double step = block_sum / n - sum / before;
      about_mean += step * step * before * n / (before + n);
    }
    sum += block_sum;
  }
  *variance = (about_mean < 0 ? 0 : about_mean) / (double)cols;
  return sum / (double)cols;
}

/* The mean of `count` numbers, and the sum of squared differences from it. */
typedef struct norm_part {
  double count, mean, squares;
  float least; /* magnitude of the inputs, see norm_sum_squares() */
} norm_part;

TIGON_INLINE norm_part norm_line(tigon_dtype dtype, const void *x, int64_t n) {
  double variance;
  const double mean = norm_moments(dtype, x, n, &variance);
  return (norm_part){(double)n, mean, variance * (double)n, 0};
}

static inline void norm_join(norm_part *a, norm_part b) {
  if (b.count == 0) return;
  const double all = a->count + b.count, step = b.mean - a->mean;
  a->squares += b.squares + (a->count > 0 ? step * step * a->count * b.count / all : 0);
  a->mean = a->count > 0 ? (a->mean * a->count + b.mean * b.count) / all : b.mean;
  a->count = all;
}

/* ---- rows ---- */

/* One row of each tensor, and the inputs of the row after it in the sweep's order. */
typedef struct norm_row {
  const char *x, *residual; /* x: once the sums are taken, x + residual; residual, s, near: of a fused add */
  char *s, *near, *y;
  const char *z;                      /* the gate of a gated norm */
  const char *next_x, *next_residual; /* on their way into the L2 while this row is stored */
  float rstd, least;
  float center, rest; /* xhat = (x - center) * rstd + rest: the mean is center + what f32 cuts off */
  bool stream;
} norm_row;

TIGON_INLINE vf2 norm_fwd_value(tigon_dtype dtype, norm_kind kind, bool rounds, v_values are, const norm_row *row,
                                vf2 w, vf2 b, int64_t c, int n) {
  const vf2 v = v2_load(row->x, c, dtype, n), rstd = v2_set(row->rstd);
  vf2 xhat = norm_centers(kind) ? v2_fma(v2_sub(v, v2_set(row->center)), rstd, v2_set(row->rest)) : v2_mul(v, rstd);
  if (rounds) xhat = v2_round(xhat, dtype, are);
  const vf2 y = norm_has_bias(kind) ? v2_fma(xhat, w, b) : v2_mul(xhat, w);
  return kind == NORM_GATED ? v2_mul(y, norm_silu(dtype, v2_load(row->z, c, dtype, n))) : y;
}
TIGON_INLINE void norm_fwd_step(tigon_dtype dtype, norm_kind kind, bool rounds, bool stream, v_values are,
                                const norm_row *row, vf2 w, vf2 b, int64_t c, int n) {
  v2_prefetch(row->next_x, c, dtype);
  v2_put(row->y, c, dtype, norm_fwd_value(dtype, kind, rounds, are, row, w, b, c, n), n, stream, are);
}

TIGON_INLINE void norm_fwd_sweep(tigon_dtype dtype, norm_kind kind, bool rounds, bool stream, v_values are,
                                 const norm_row *at, const norm_panel *weights, const norm_panel *bias) {
  const norm_row row = *at;
  const float *w = weights->w, *b = norm_has_bias(kind) ? bias->w : w;
  const int64_t cols = weights->cols, first = weights->first;
  int64_t c = 0;
  for (; c + STEP <= cols; c += STEP)
    norm_fwd_step(dtype, kind, rounds, stream, are, &row, norm_weight(w, c), norm_weight(b, c), first + c, STEP);
  if (c < cols)
    norm_fwd_step(dtype, kind, rounds, false, V_OWN, &row, norm_weight(w, c), norm_weight(b, c), first + c,
                  (int)(cols - c));
}

/* Is nothing that the sweep rounds denormal? Rounding takes less than half of anything. */
TIGON_INLINE bool norm_is_normal(tigon_dtype dtype, norm_kind kind, const norm_row *row, norm_panel *weights) {
  if (!V_FLUSHES || dtype != TIGON_BF16 || !norm_is_product(kind)) return false;
  const float least = row->least, xhat = least * row->rstd;
  return least >= 0x1p-125f && xhat >= 0x1p-125f && xhat * norm_panel_least(weights) >= 0x1p-124f;
}

TIGON_INLINE void norm_fwd_put(tigon_dtype dtype, norm_kind kind, bool rounds, const norm_row *row, norm_panel *w,
                               const norm_panel *b) {
  const bool normal = norm_is_normal(dtype, kind, row, w);
  if (normal && row->stream)
    norm_fwd_sweep(dtype, kind, rounds, true, V_NORMAL, row, w, b);
  else if (normal)
    norm_fwd_sweep(dtype, kind, rounds, false, V_NORMAL, row, w, b);
  else if (row->stream)
    norm_fwd_sweep(dtype, kind, rounds, true, V_OWN, row, w, b);
  else
    norm_fwd_sweep(dtype, kind, rounds, false, V_OWN, row, w, b);
}

/* What the task of one or more rows needs: it takes the sums of all parts, or finds them in `parts`. */
typedef struct norm_fwd_job {
  const tigon_norm_fwd_problem *p;
  split cut;
  norm_part *parts; /* [rows, cut.parts]; NULL: a task has whole rows */
  bool joins;       /* `parts` is filled */
} norm_fwd_job;

/* The moments of a part of the row, about 0 where the mean is not subtracted. */
TIGON_INLINE norm_part norm_fwd_part(tigon_dtype dtype, norm_kind kind, const norm_fwd_job *job, const norm_row *row,
                                     int64_t part) {
  const split_range at = split_part(&job->cut, part);
  const int64_t offset = at.begin * v_size(dtype), n = at.end - at.begin;
  if (norm_centers(kind)) return norm_line(dtype, row->x + offset, n);
  norm_part sum = {.least = 0};
  float *least = V_FLUSHES && norm_is_product(kind) ? &sum.least : NULL;
  norm_source from = {.adds = kind == NORM_ADD_RMS, .x = row->x + offset};
  if (from.adds) {
    from.residual = row->residual + offset, from.next_residual = row->next_residual + offset;
    from.s = row->s + offset, from.near = row->near + offset;
    if (row->near != row->s) {
      from.aside = true;
      sum.squares = norm_sum_squares(dtype, &from, n, least);
      return sum;
    }
  }
  sum.squares = norm_sum_squares(dtype, &from, n, least);
  return sum;
}

TIGON_INLINE void norm_statistics(tigon_dtype dtype, norm_kind kind, const norm_fwd_job *job, int64_t r,
                                  norm_row *row) {
  const tigon_norm_fwd_problem *p = job->p;
  norm_part all = {0};
  for (int64_t i = 0; i < job->cut.parts; ++i) {
    const norm_part part = job->joins ? job->parts[r * job->cut.parts + i] : norm_fwd_part(dtype, kind, job, row, i);
    if (norm_centers(kind))
      norm_join(&all, part);
    else
      all.squares += part.squares;
    if (i == 0 || part.least < row->least) row->least = part.least;
  }
  if (kind == NORM_ADD_RMS) row->x = row->near;
  if (norm_centers(kind)) {
    row->rstd = (float)(1 / sqrt(all.squares / all.count + (double)p->eps));
    row->center = (float)all.mean;
    row->rest = (float)((double)row->center - all.mean) * row->rstd;
    return;
  }
  float mean = (float)(all.squares / (double)p->cols);
  if (p->casting == TIGON_CASTING_NONE) mean = tigon_round_f32(mean, dtype);
  row->rstd = 1.0f / sqrtf(mean + p->eps);
  if (p->casting == TIGON_CASTING_NONE) row->rstd = tigon_round_f32(row->rstd, dtype);
}

/* From where to prefetch: in 16 bits some way ahead of the next row, where rows follow one another without a gap. */
TIGON_INLINE const char *norm_ahead(tigon_dtype dtype, const char *row, const char *next, int64_t cols) {
  return dtype != TIGON_F32 && next == row + cols * v_size(dtype) ? next + NORM_AHEAD : next;
}

TIGON_INLINE void norm_fwd_row(tigon_dtype dtype, norm_kind kind, const tigon_norm_fwd_problem *p, int64_t r,
                               int64_t next, bool stream, char *near, norm_row *row) {
  const size_t size = tigon_dtype_size(dtype);
  const bool fused = kind == NORM_ADD_RMS;
  *row = (norm_row){
      .x = tigon_row(&p->space, &p->x, size, r),
      .residual = fused ? tigon_row(&p->space, &p->residual, size, r) : NULL,
      .s = fused ? tigon_row(&p->space, &p->s, size, r) : NULL,
      .y = tigon_row(&p->space, &p->y, size, r),
      .z = kind == NORM_GATED ? tigon_row(&p->space, &p->z, size, r) : NULL,
  };
  row->next_x = norm_ahead(dtype, row->x, tigon_row(&p->space, &p->x, size, next), p->cols);
  if (fused)
    row->next_residual = norm_ahead(dtype, row->residual, tigon_row(&p->space, &p->residual, size, next), p->cols);
  row->stream = stream && v2_aligned(row->y) && (!fused || v2_aligned(row->s));
  row->near = row->stream && p->cols <= NORM_PANEL ? near : row->s;
}

/* Columns [at.begin, at.end) of rows [begin, end). */
TIGON_INLINE void norm_fwd_rows(tigon_dtype dtype, norm_kind kind, const norm_fwd_job *job, int64_t begin, int64_t end,
                                split_range at, bool stream) {
  const tigon_norm_fwd_problem *p = job->p;
  const bool rounds = kind != NORM_LAYER && p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  const int64_t row_bytes = (kind == NORM_ADD_RMS || kind == NORM_GATED ? 2 : 1) * p->cols * v_size(dtype);
  const int most = p->cols <= NORM_PANEL ? 1 : norm_group_rows(row_bytes);
  norm_weights weights = {.w = p->w, .dtype = p->w_dtype, .offset = p->w_offset, .absent = 1};
  norm_weights bias = {.w = p->b, .dtype = p->b_dtype};
  char near[NORM_PANEL * sizeof(float)] __attribute__((aligned(64))); /* a row of a fused add */
  norm_panel w, b;
  w.cols = b.cols = 0;
  for (int64_t r = begin, rows; r < end; r += rows) {
    rows = end - r < most ? end - r : most;
    if (kind == NORM_MODULATED) {
      const int64_t group = r / p->share, left = (group + 1) * p->share - r;
      rows = rows < left ? rows : left;
      weights.scale = tigon_row(&p->groups, &p->scale, tigon_dtype_size(p->scale_dtype), group);
      weights.scale_dtype = p->scale_dtype;
      bias.w = tigon_row(&p->groups, &p->shift, tigon_dtype_size(p->shift_dtype), group);
      bias.dtype = p->shift_dtype;
    }
    norm_row row[NORM_GROUP];
    for (int i = 0; i < rows; ++i) {
      norm_fwd_row(dtype, kind, p, r + i, r + i + rows < end ? r + i + rows : r + i, stream, near, &row[i]);
      norm_statistics(dtype, kind, job, r + i, &row[i]);
      if (at.begin == 0 && p->rstd) p->rstd[r + i] = row[i].rstd;
      if (at.begin == 0 && norm_centers(kind) && p->mean) p->mean[r + i] = row[i].center;
    }
    for (int64_t first = at.begin; first < at.end; first += NORM_PANEL) {
      norm_load_panel(&w, first, at.end, dtype, &weights);
      if (norm_has_bias(kind)) norm_load_panel(&b, first, at.end, dtype, &bias);
      for (int i = 0; i < rows; ++i)
        if (rounds)
          norm_fwd_put(dtype, kind, true, &row[i], &w, &b);
        else
          norm_fwd_put(dtype, kind, false, &row[i], &w, &b);
    }
  }
  if (stream) vf_fence();
}

/* ---- tasks: rows are independent, and few huge ones are split ---- */

/* The bytes of a row of all its tensors. */
TIGON_INLINE int64_t norm_fwd_bytes(norm_kind kind, const tigon_norm_fwd_problem *p) {
  return (kind == NORM_ADD_RMS ? 4 : kind == NORM_GATED ? 3 : 2) * p->cols * v_size(p->dtype);
}

/* The sums of a task's share of a split row. */
TIGON_INLINE void norm_fwd_share(tigon_dtype dtype, norm_kind kind, const norm_fwd_job *job, int64_t r,
                                 split_range parts) {
  norm_row row;
  norm_fwd_row(dtype, kind, job->p, r, r, false, NULL, &row);
  for (int64_t i = parts.begin; i < parts.end; ++i)
    job->parts[r * job->cut.parts + i] = norm_fwd_part(dtype, kind, job, &row, i);
}

/* Whole rows, or a share of a split one: first its sums, then, once all are there, its columns. */
TIGON_INLINE void norm_fwd_task(norm_kind kind, const norm_fwd_job *job, int64_t index) {
  const tigon_norm_fwd_problem *p = job->p;
  const int64_t rows = p->space.rows, bytes = norm_fwd_bytes(kind, p);
  const bool stream = tigon_cpu_streams(rows * bytes);
  split_range at = {0, p->cols};
  int64_t begin, end;
  if (job->parts) {
    const split_range parts = split_parts(&job->cut, index % job->cut.tasks);
    begin = index / job->cut.tasks, end = begin + 1;
    if (!job->joins) {
      TIGON_FOR_DTYPE(p->dtype, norm_fwd_share, kind, job, begin, parts);
      return;
    }
    at = split_columns(&job->cut, parts);
  } else {
    tigon_range(rows, tigon_cpu_row_tasks(rows, bytes), index, &begin, &end);
  }
  TIGON_FOR_DTYPE(p->dtype, norm_fwd_rows, kind, job, begin, end, at, stream);
}

/* `task` calls norm_fwd_task() with the kind. */
TIGON_INLINE tigon_status norm_fwd_run(norm_kind kind, const tigon_queue *queue, const tigon_norm_fwd_problem *p,
                                       void (*task)(const void *argument, int64_t index)) {
  norm_part parts[SPLIT_CELLS];
  norm_fwd_job job = {.p = p, .cut = split_of(queue, p->space.rows, p->cols, norm_fwd_bytes(kind, p))};
  int64_t tasks = tigon_cpu_row_tasks(p->space.rows, norm_fwd_bytes(kind, p));
  tigon_cpu_note(queue, job.cut.tasks, 0);
  if (job.cut.tasks > 1) {
    job.parts = parts;
    tasks = p->space.rows * job.cut.tasks;
    tigon_cpu_parallel(queue, tasks, task, &job);
    job.joins = true;
  }
  tigon_cpu_parallel(queue, tasks, task, &job);
  return TIGON_OK;
}

#endif
