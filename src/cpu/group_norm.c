/* group_norm: a row is a group of one batch, C / groups channels of one run of elements each. Statistics first, then a sweep
 * that stores and reads a row that fits from the cache. Few huge rows are split (case F): a part of a row is a range of its
 * channels, or of every channel's positions where runs are long, and parts are joined in index order. */
#include <string.h>

#include "cpu/column_sum.h"
#include "cpu/norm_fwd.h"

enum {
  MOST_PARTS = 512, /* of all rows, whose moments are on the stack */
  LEAST_RUN = 1024, /* positions of a part */
};

/* Channels [first, last) of a group, positions [begin, end) of each. */
typedef struct part {
  int64_t first, last, begin, end;
} part;

static part part_of(int64_t channels, int64_t run, int64_t parts, int64_t index) {
  part p = {0, channels, 0, run};
  if (parts == 1) return p;
  if (run / parts >= LEAST_RUN)
    tigon_plan_range(run, parts, index, &p.begin, &p.end);
  else
    tigon_plan_range(channels, parts, index, &p.first, &p.last);
  return p;
}

/* A channel's number for a sweep: a NaN is one that bf16 can hold. */
TIGON_INLINE float constant(float a) { return isnan(a) ? NAN : a; }

/* ---- forward ---- */

/* Of `count` numbers: their mean, and the sum of squared differences from it. */
typedef struct moments {
  double count, mean, squares;
} moments;

static void join(moments *a, moments b) {
  if (b.count == 0) return;
  const double all = a->count + b.count, step = b.mean - a->mean;
  a->squares += b.squares + (a->count > 0 ? step * step * a->count * b.count / all : 0);
  a->mean = a->count > 0 ? (a->mean * a->count + b.mean * b.count) / all : b.mean;
  a->count = all;
}

TIGON_INLINE moments line_moments(tigon_dtype dtype, const void *x, int64_t n) {
  double variance;
  const double mean = norm_moments(dtype, x, n, &variance);
  return (moments){(double)n, mean, variance * (double)n};
}

typedef struct fwd {
  const tigon_group_norm_fwd_problem *p;
  int64_t rows, tasks, parts;
  bool stream;
  moments *of_parts; /* [rows, parts]; NULL: a task has whole rows */
} fwd;

/* Channels that lie end to end are one line. */
TIGON_INLINE moments part_moments(tigon_dtype dtype, const tigon_group_norm_fwd_problem *p, int64_t row, part a) {
  const int64_t batch = row / p->groups, channel = row % p->groups * p->channels, size = v_size(dtype);
  moments all = {0, 0, 0};
  if (p->x.channel_pitch == p->run && a.begin == 0 && a.end == p->run) {
    if (a.last > a.first)
      all =
          line_moments(dtype, tigon_plane(&p->x, (size_t)size, batch, channel + a.first), (a.last - a.first) * p->run);
    return all;
  }
  for (int64_t c = a.first; c < a.last; ++c) {
    const char *line = tigon_plane(&p->x, (size_t)size, batch, channel + c);
    join(&all, line_moments(dtype, line + a.begin * size, a.end - a.begin));
  }
  return all;
}

/* y = (x - mean) * rstd * w + b of n elements; the mean in two parts, so that x - mean has all its digits. `next` has the
 * row that comes next, which goes into the cache meanwhile. */
TIGON_INLINE void fwd_step(tigon_dtype dtype, const char *x, const char *next, char *y, const float k[5], int64_t c,
                           int n, bool stream) {
  v2_prefetch(next, c, dtype);
  const vf2 d = v2_sub(v2_sub(v2_load(x, c, dtype, n), v2_set(k[0])), v2_set(k[1]));
  v2_put(y, c, dtype, v2_fma(v2_mul(d, v2_set(k[2])), v2_set(k[3]), v2_set(k[4])), n, stream, V_OWN);
}

TIGON_INLINE void normalise_part(tigon_dtype dtype, const fwd *f, int64_t row, part a, moments m) {
  const tigon_group_norm_fwd_problem *p = f->p;
  const int64_t batch = row / p->groups, channel = row % p->groups * p->channels;
  const float high = (float)m.mean, low = isfinite(high) ? (float)(m.mean - (double)high) : 0;
  const float rstd = (float)(1.0 / sqrt(m.squares / m.count + (double)p->eps));
  if (a.first == 0 && a.begin == 0) {
    if (p->mean) p->mean[row] = high;
    if (p->rstd) p->rstd[row] = rstd;
  }
  for (int64_t c = channel + a.first; c < channel + a.last; ++c) {
    const float w = p->w ? s_load(p->w, c, p->w_dtype) : 1, b = p->b ? s_load(p->b, c, p->b_dtype) : 0;
    const float k[5] = {constant(high), low, constant(rstd), constant(w), constant(b)};
    const char *x = tigon_plane(&p->x, (size_t)v_size(dtype), batch, c);
    const char *next = x + p->channels * p->x.channel_pitch * v_size(dtype);
    char *y = tigon_plane(&p->y, (size_t)v_size(dtype), batch, c);
    const bool stream = f->stream && v2_aligned(y + a.begin * v_size(dtype));
    int64_t i = a.begin;
    for (; i + STEP <= a.end; i += STEP) fwd_step(dtype, x, next, y, k, i, STEP, stream);
    if (i < a.end) fwd_step(dtype, x, next, y, k, i, (int)(a.end - i), false);
  }
}

TIGON_INLINE void fwd_rows(tigon_dtype dtype, const fwd *f, int64_t begin, int64_t end) {
  const part whole = {0, f->p->channels, 0, f->p->run};
  for (int64_t row = begin; row < end; ++row)
    normalise_part(dtype, f, row, whole, part_moments(dtype, f->p, row, whole));
  if (f->stream) vf_fence();
}
static void row_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  int64_t begin, end;
  tigon_plan_range(f->rows, f->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(f->p->dtype, fwd_rows, f, begin, end);
}

TIGON_INLINE void fwd_part(tigon_dtype dtype, const fwd *f, int64_t index, bool store) {
  const int64_t row = index / f->parts;
  const part a = part_of(f->p->channels, f->p->run, f->parts, index % f->parts);
  if (!store) {
    f->of_parts[index] = part_moments(dtype, f->p, row, a);
    return;
  }
  moments all = {0, 0, 0};
  for (int64_t i = 0; i < f->parts; ++i) join(&all, f->of_parts[row * f->parts + i]);
  normalise_part(dtype, f, row, a, all);
  if (f->stream) vf_fence();
}
static void moments_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const fwd *)argument)->p->dtype, fwd_part, argument, index, false);
}
static void store_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const fwd *)argument)->p->dtype, fwd_part, argument, index, true);
}

tigon_status TIGON_CPU(group_norm_fwd)(tigon_queue *queue, const tigon_group_norm_fwd_problem *p,
                                       const tigon_plan *plan) {
  const int64_t rows = p->batch * p->groups, row_bytes = 2 * p->channels * p->run * v_size(p->dtype);
  moments of_parts[MOST_PARTS];
  fwd f = {p, rows, tigon_cpu_row_tasks(rows, row_bytes), plan->splits, tigon_cpu_streams(rows * row_bytes), of_parts};
  if (plan->splits == 1 || rows > MOST_PARTS / plan->splits) {
    tigon_cpu_parallel(queue, f.tasks, row_task, &f);
    return TIGON_OK;
  }
  tigon_cpu_parallel(queue, rows * f.parts, moments_task, &f);
  tigon_cpu_parallel(queue, rows * f.parts, store_task, &f);
  return TIGON_OK;
}

/* ---- backward ---- */

typedef struct bwd {
  const tigon_group_norm_bwd_problem *p;
  int64_t ranges, parts; /* of batches, each with a slab for every part of a row; of a row */
  bool stream;
} bwd;

/* Sums over n elements of dy and of dy * (x - mean), f32 within a block and f64 across blocks. */
TIGON_INLINE void line_sums(tigon_dtype dtype, const char *dy, const char *x, float mean, int64_t n, double *sum,
                            double *dot) {
  const vf2 center = v2_set(mean);
  for (int64_t block = 0; block < n; block += NORM_BLOCK) {
    const int64_t end = n - block < NORM_BLOCK ? n : block + NORM_BLOCK;
    vf2 s = v2_set(0), t = v2_set(0);
    int64_t c = block;
    for (; c + STEP <= end; c += STEP) {
      const vf2 d = v2_load(dy, c, dtype, STEP);
      s = v2_add(s, d), t = v2_fma(d, v2_sub(v2_load(x, c, dtype, STEP), center), t);
    }
    if (c < end) {
      const vf2 d = v2_load(dy, c, dtype, (int)(end - c));
      s = v2_add(s, d), t = v2_fma(d, v2_sub(v2_load(x, c, dtype, (int)(end - c)), center), t);
    }
    *sum += (double)vf_sum(vf_add(s.a, s.b));
    *dot += (double)vf_sum(vf_add(t.a, t.b));
  }
}

/* The part's shares of mean(g) and mean(g * xhat), times their count; those of dw and db are added to the slab. */
TIGON_INLINE void part_sums(tigon_dtype dtype, const tigon_group_norm_bwd_problem *p, int64_t batch, int64_t group,
                            part a, float *slab, double *sum, double *dot) {
  const int64_t row = batch * p->groups + group, size = v_size(dtype), all = p->groups * p->channels;
  for (int64_t c = group * p->channels + a.first; c < group * p->channels + a.last; ++c) {
    const char *dy = tigon_plane(&p->dy, (size_t)size, batch, c), *x = tigon_plane(&p->x, (size_t)size, batch, c);
    double channel_sum = 0, channel_dot = 0;
    line_sums(dtype, dy + a.begin * size, x + a.begin * size, p->mean[row], a.end - a.begin, &channel_sum,
              &channel_dot);
    channel_dot *= (double)p->rstd[row];
    slab[c] += (float)channel_dot;
    slab[all + c] += (float)channel_sum;
    const double w = p->w ? (double)s_load(p->w, c, p->w_dtype) : 1;
    *sum += w * channel_sum, *dot += w * channel_dot;
  }
}

/* dx = rstd * (dy * w - sum - xhat * dot), sum and dot being the means. k: w, mean, rstd, sum, dot. */
TIGON_INLINE void bwd_step(tigon_dtype dtype, const char *dy, const char *x, char *dx, const float k[5],
                           int64_t next_dy, int64_t next_x, int64_t c, int n, bool stream) {
  v2_prefetch(dy + next_dy, c, dtype);
  v2_prefetch(x + next_x, c, dtype);
  const vf2 rstd = v2_set(k[2]), xhat = v2_mul(v2_sub(v2_load(x, c, dtype, n), v2_set(k[1])), rstd);
  const vf2 g = v2_sub(v2_mul(v2_load(dy, c, dtype, n), v2_set(k[0])), v2_set(k[3]));
  v2_put(dx, c, dtype, v2_mul(rstd, v2_fnma(xhat, v2_set(k[4]), g)), n, stream, V_OWN);
}

TIGON_INLINE void part_gradient(tigon_dtype dtype, const bwd *b, int64_t batch, int64_t group, part a, double sum,
                                double dot) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const int64_t row = batch * p->groups + group, size = v_size(dtype);
  const double count = (double)(p->channels * p->run);
  /* The group's next batch goes into the cache meanwhile. */
  const int64_t next_dy = p->dy.batch_pitch * size, next_x = p->x.batch_pitch * size;
  for (int64_t c = group * p->channels + a.first; c < group * p->channels + a.last; ++c) {
    const float k[5] = {constant(p->w ? s_load(p->w, c, p->w_dtype) : 1), constant(p->mean[row]),
                        constant(p->rstd[row]), (float)(sum / count), (float)(dot / count)};
    const char *dy = tigon_plane(&p->dy, (size_t)size, batch, c), *x = tigon_plane(&p->x, (size_t)size, batch, c);
    char *dx = tigon_plane(&p->dx, (size_t)size, batch, c);
    const bool stream = b->stream && v2_aligned(dx + a.begin * size);
    int64_t i = a.begin;
    for (; i + STEP <= a.end; i += STEP) bwd_step(dtype, dy, x, dx, k, next_dy, next_x, i, STEP, stream);
    if (i < a.end) bwd_step(dtype, dy, x, dx, k, next_dy, next_x, i, (int)(a.end - i), false);
  }
}

static float *slab_of(const bwd *b, int64_t range, int64_t split) {
  return b->p->slabs + (range * b->parts + split) * 2 * b->p->groups * b->p->channels;
}

/* A group's channels of one slab. */
static void clear_slab(const bwd *b, float *slab, int64_t group) {
  const tigon_group_norm_bwd_problem *p = b->p;
  memset(slab + group * p->channels, 0, (size_t)p->channels * sizeof *slab);
  memset(slab + (p->groups + group) * p->channels, 0, (size_t)p->channels * sizeof *slab);
}

/* Task (group, range of batches, part of the row): the sums of each row; its gradient too, when the part is the row. */
TIGON_INLINE void bwd_rows(tigon_dtype dtype, const bwd *b, int64_t index) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const int64_t split = index % b->parts, range = index / b->parts % b->ranges, group = index / b->parts / b->ranges;
  const part a = part_of(p->channels, p->run, b->parts, split);
  float *slab = slab_of(b, range, split);
  int64_t begin, end;
  tigon_plan_range(p->batch, b->ranges, range, &begin, &end);
  clear_slab(b, slab, group);
  for (int64_t batch = begin; batch < end; ++batch) {
    double sum = 0, dot = 0;
    part_sums(dtype, p, batch, group, a, slab, &sum, &dot);
    if (b->parts == 1) {
      part_gradient(dtype, b, batch, group, a, sum, dot);
    } else {
      float *partial = p->partials + ((batch * p->groups + group) * b->parts + split) * 2;
      partial[0] = (float)sum, partial[1] = (float)dot;
    }
  }
  if (b->parts == 1 && b->stream) vf_fence();
}
static void bwd_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const bwd *)argument)->p->dtype, bwd_rows, argument, index);
}

TIGON_INLINE void join_part(tigon_dtype dtype, const bwd *b, int64_t index) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const int64_t row = index / b->parts;
  const float *partial = p->partials + row * b->parts * 2;
  double sum = 0, dot = 0;
  for (int64_t i = 0; i < b->parts; ++i) sum += (double)partial[2 * i], dot += (double)partial[2 * i + 1];
  part_gradient(dtype, b, row / p->groups, row % p->groups, part_of(p->channels, p->run, b->parts, index % b->parts),
                sum, dot);
  if (b->stream) vf_fence();
}
static void join_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const bwd *)argument)->p->dtype, join_part, argument, index);
}

tigon_status TIGON_CPU(group_norm_bwd)(tigon_queue *queue, const tigon_group_norm_bwd_problem *p,
                                       const tigon_plan *plan) {
  const int64_t all = p->groups * p->channels, rows = p->batch * p->groups;
  const bwd b = {p, plan->row_tasks / p->groups, plan->splits,
                 tigon_cpu_streams(3 * rows * p->channels * p->run * v_size(p->dtype))};
  const column_sum sums[] = {
      column_sum_of(p->slabs, plan->slabs, 0, 2, all, p->dw, p->dw_dtype, p->accumulate),
      column_sum_of(p->slabs, plan->slabs, 1, 2, all, p->db, p->db_dtype, p->accumulate),
  };
  if (plan->slabs > 0) {
    tigon_cpu_parallel(queue, p->groups * b.ranges * b.parts, bwd_task, &b);
    if (b.parts > 1) tigon_cpu_parallel(queue, rows * b.parts, join_task, &b);
  }
  if (p->dw || p->db) tigon_cpu_parallel(queue, 2 * column_sum_tasks(all), column_sum_list_task, sums);
  return TIGON_OK;
}
