/* group_norm: a row is a group of one batch, C / groups channels of one run of elements each. Statistics first, then a sweep
 * that stores and reads a row that fits from the cache. A part of a row (src/cpu/split.h) is a range of its channels, or of
 * every channel's positions where runs are long. */
#include <string.h>

#include "cpu/column_sum.h"
#include "cpu/norm_fwd.h"

enum { LEAST_RUN = 1024 }; /* positions of a part */

/* Channels [first, last) of a group, positions [begin, end) of each. */
typedef struct part {
  int64_t first, last, begin, end;
} part;

/* Do parts have positions of all channels, and not channels of their own? */
static bool cuts_runs(int64_t run, const split *cut) { return run / cut->parts >= LEAST_RUN; }

static part part_of(int64_t channels, int64_t run, const split *cut, split_range parts) {
  part p = {0, channels, 0, run};
  int64_t inside;
  if (parts.begin == 0 && parts.end == cut->parts) return p;
  if (cuts_runs(run, cut)) {
    tigon_range(run, cut->parts, parts.begin, &p.begin, &inside);
    tigon_range(run, cut->parts, parts.end - 1, &inside, &p.end);
  } else {
    tigon_range(channels, cut->parts, parts.begin, &p.first, &inside);
    tigon_range(channels, cut->parts, parts.end - 1, &inside, &p.last);
  }
  return p;
}

/* A channel's number for a sweep: a NaN is one that bf16 can hold. */
TIGON_INLINE float constant(float a) { return isnan(a) ? NAN : a; }

/* ---- forward ---- */

typedef struct fwd {
  const tigon_group_norm_fwd_problem *p;
  int64_t rows, tasks;
  split cut;
  bool stream;
  norm_part *of_parts; /* [rows, cut.parts] of rows that are split */
} fwd;

/* Channels that lie end to end are one line. */
TIGON_INLINE norm_part part_moments(tigon_dtype dtype, const tigon_group_norm_fwd_problem *p, int64_t row, part a) {
  const int64_t batch = row / p->groups, channel = row % p->groups * p->channels, size = v_size(dtype);
  norm_part all = {0};
  if (p->x.channel_pitch == p->run && a.begin == 0 && a.end == p->run) {
    if (a.last > a.first)
      all = norm_line(dtype, tigon_plane(&p->x, (size_t)size, batch, channel + a.first), (a.last - a.first) * p->run);
    return all;
  }
  for (int64_t c = a.first; c < a.last; ++c) {
    const char *line = tigon_plane(&p->x, (size_t)size, batch, channel + c);
    norm_join(&all, norm_line(dtype, line + a.begin * size, a.end - a.begin));
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

TIGON_INLINE void normalise_part(tigon_dtype dtype, const fwd *f, int64_t row, part a, norm_part m) {
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
  const split *cut = &f->cut;
  const part whole = {0, f->p->channels, 0, f->p->run};
  for (int64_t row = begin; row < end; ++row) {
    norm_part all = {0};
    for (int64_t i = 0; i < cut->parts; ++i)
      norm_join(&all, part_moments(dtype, f->p, row, part_of(whole.last, whole.end, cut, (split_range){i, i + 1})));
    normalise_part(dtype, f, row, whole, all);
  }
  if (f->stream) vf_fence();
}
static void row_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  int64_t begin, end;
  tigon_range(f->rows, f->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(f->p->dtype, fwd_rows, f, begin, end);
}

/* A task's share of a split row: first the moments of its parts, then, once all are there, its stores. */
TIGON_INLINE void fwd_share(tigon_dtype dtype, const fwd *f, int64_t index, bool store) {
  const tigon_group_norm_fwd_problem *p = f->p;
  const split *cut = &f->cut;
  const int64_t row = index / cut->tasks;
  const split_range parts = split_parts(cut, index % cut->tasks);
  norm_part *of_parts = f->of_parts + row * cut->parts, all = {0};
  if (!store) {
    for (int64_t i = parts.begin; i < parts.end; ++i)
      of_parts[i] = part_moments(dtype, p, row, part_of(p->channels, p->run, cut, (split_range){i, i + 1}));
    return;
  }
  for (int64_t i = 0; i < cut->parts; ++i) norm_join(&all, of_parts[i]);
  normalise_part(dtype, f, row, part_of(p->channels, p->run, cut, parts), all);
  if (f->stream) vf_fence();
}
static void moments_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const fwd *)argument)->p->dtype, fwd_share, argument, index, false);
}
static void store_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const fwd *)argument)->p->dtype, fwd_share, argument, index, true);
}

tigon_status TIGON_CPU(group_norm_fwd)(tigon_queue *queue, const tigon_group_norm_fwd_problem *p) {
  const int64_t rows = p->batch * p->groups, cols = p->channels * p->run, row_bytes = 2 * cols * v_size(p->dtype);
  norm_part of_parts[SPLIT_CELLS];
  const fwd f = {.p = p,
                 .rows = rows,
                 .tasks = tigon_cpu_row_tasks(rows, row_bytes),
                 .cut = split_of(queue, rows, cols, row_bytes),
                 .stream = tigon_cpu_streams(rows * row_bytes),
                 .of_parts = of_parts};
  tigon_cpu_note(queue, f.cut.tasks, 0);
  if (f.cut.tasks == 1) {
    tigon_cpu_parallel(queue, f.tasks, row_task, &f);
    return TIGON_OK;
  }
  tigon_cpu_parallel(queue, rows * f.cut.tasks, moments_task, &f);
  tigon_cpu_parallel(queue, rows * f.cut.tasks, store_task, &f);
  return TIGON_OK;
}

/* ---- backward ---- */

/* Sums over a part of a row: of g = dy * w, and of g * xhat. */
typedef struct sums {
  double g, dot;
} sums;

typedef struct bwd {
  const tigon_group_norm_bwd_problem *p;
  int64_t ranges; /* ranges of batches */
  split cut;
  int64_t
      slabs; /* slabs of a range: one, or one for each part of its row if tasks share that and parts have all channels */
  sums *of_parts; /* [rows, cut.parts] of rows that are split */
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

/* Those of dw and db are added to the slab. */
TIGON_INLINE sums part_sums(tigon_dtype dtype, const tigon_group_norm_bwd_problem *p, int64_t batch, int64_t group,
                            part a, float *slab) {
  const int64_t row = batch * p->groups + group, size = v_size(dtype), all = p->groups * p->channels;
  sums s = {0, 0};
  for (int64_t c = group * p->channels + a.first; c < group * p->channels + a.last; ++c) {
    const char *dy = tigon_plane(&p->dy, (size_t)size, batch, c), *x = tigon_plane(&p->x, (size_t)size, batch, c);
    double channel_sum = 0, channel_dot = 0;
    line_sums(dtype, dy + a.begin * size, x + a.begin * size, p->mean[row], a.end - a.begin, &channel_sum,
              &channel_dot);
    channel_dot *= (double)p->rstd[row];
    slab[c] += (float)channel_dot;
    slab[all + c] += (float)channel_sum;
    const double w = p->w ? (double)s_load(p->w, c, p->w_dtype) : 1;
    s.g += w * channel_sum, s.dot += w * channel_dot;
  }
  return s;
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

TIGON_INLINE void part_gradient(tigon_dtype dtype, const bwd *b, int64_t batch, int64_t group, part a, sums s) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const int64_t row = batch * p->groups + group, size = v_size(dtype);
  const double count = (double)(p->channels * p->run);
  /* The group's next batch goes into the cache meanwhile. */
  const int64_t next_dy = p->dy.batch_pitch * size, next_x = p->x.batch_pitch * size;
  for (int64_t c = group * p->channels + a.first; c < group * p->channels + a.last; ++c) {
    const float k[5] = {constant(p->w ? s_load(p->w, c, p->w_dtype) : 1), constant(p->mean[row]),
                        constant(p->rstd[row]), (float)(s.g / count), (float)(s.dot / count)};
    const char *dy = tigon_plane(&p->dy, (size_t)size, batch, c), *x = tigon_plane(&p->x, (size_t)size, batch, c);
    char *dx = tigon_plane(&p->dx, (size_t)size, batch, c);
    const bool stream = b->stream && v2_aligned(dx + a.begin * size);
    int64_t i = a.begin;
    for (; i + STEP <= a.end; i += STEP) bwd_step(dtype, dy, x, dx, k, next_dy, next_x, i, STEP, stream);
    if (i < a.end) bwd_step(dtype, dy, x, dx, k, next_dy, next_x, i, (int)(a.end - i), false);
  }
}

/* Slabs are [ranges, slabs of a range, 2, all channels]: dw, then db. */
static float *slab_of(const bwd *b, int64_t range, int64_t part) {
  return b->p->slabs + (range * b->slabs + (b->slabs > 1 ? part : 0)) * 2 * b->p->groups * b->p->channels;
}

/* Channels [first, last) of a group in one slab. */
static void clear_slab(const bwd *b, float *slab, int64_t group, int64_t first, int64_t last) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const size_t bytes = (size_t)(last - first) * sizeof *slab;
  memset(slab + group * p->channels + first, 0, bytes);
  memset(slab + (p->groups + group) * p->channels + first, 0, bytes);
}

/* The same channels of a range's slabs, added up in the order in which one task would have added to one slab. */
static void join_slabs(const bwd *b, int64_t range, int64_t group, int64_t first, int64_t last) {
  const tigon_group_norm_bwd_problem *p = b->p;
  for (int64_t part = 1; part < b->slabs; ++part)
    for (int64_t half = 0; half < 2; ++half) {
      float *to = slab_of(b, range, 0) + (half * p->groups + group) * p->channels;
      const float *from = slab_of(b, range, part) + (half * p->groups + group) * p->channels;
      for (int64_t c = first; c < last; ++c) to[c] += from[c];
    }
}

/* Task (group, range of batches, share of a row): the sums of each row's parts; its gradient too, when it has all of them. */
TIGON_INLINE void bwd_rows(tigon_dtype dtype, const bwd *b, int64_t index) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const split *cut = &b->cut;
  const int64_t share = index % cut->tasks, range = index / cut->tasks % b->ranges,
                group = index / cut->tasks / b->ranges;
  const split_range parts = split_parts(cut, share);
  int64_t begin, end;
  tigon_range(p->batch, b->ranges, range, &begin, &end);
  if (cut->tasks == 1) clear_slab(b, slab_of(b, range, 0), group, 0, p->channels);
  for (int64_t batch = begin; batch < end; ++batch) {
    sums all = {0, 0};
    for (int64_t i = parts.begin; i < parts.end; ++i) {
      const part a = part_of(p->channels, p->run, cut, (split_range){i, i + 1});
      if (cut->tasks > 1) clear_slab(b, slab_of(b, range, i), group, a.first, a.last);
      const sums s = part_sums(dtype, p, batch, group, a, slab_of(b, range, i));
      all.g += s.g, all.dot += s.dot;
      if (cut->tasks > 1) b->of_parts[(batch * p->groups + group) * cut->parts + i] = s;
    }
    if (cut->tasks == 1) part_gradient(dtype, b, batch, group, part_of(p->channels, p->run, cut, parts), all);
  }
  if (cut->tasks == 1 && b->stream) vf_fence();
}
static void bwd_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const bwd *)argument)->p->dtype, bwd_rows, argument, index);
}

TIGON_INLINE void join_share(tigon_dtype dtype, const bwd *b, int64_t index) {
  const tigon_group_norm_bwd_problem *p = b->p;
  const split *cut = &b->cut;
  const int64_t row = index / cut->tasks;
  sums all = {0, 0};
  for (int64_t i = 0; i < cut->parts; ++i) {
    const sums *s = &b->of_parts[row * cut->parts + i];
    all.g += s->g, all.dot += s->dot;
  }
  const part a = part_of(p->channels, p->run, cut, split_parts(cut, index % cut->tasks));
  part_gradient(dtype, b, row / p->groups, row % p->groups, a, all);
  int64_t first, last;
  tigon_range(p->channels, cut->tasks, index % cut->tasks, &first, &last);
  join_slabs(b, row / p->groups, row % p->groups, first, last); /* a range of rows that are split is one batch */
  if (b->stream) vf_fence();
}
static void join_task(const void *argument, int64_t index) {
  TIGON_FOR_DTYPE(((const bwd *)argument)->p->dtype, join_share, argument, index);
}

static int64_t bwd_row_bytes(const tigon_group_norm_bwd_problem *p) {
  return 3 * p->channels * p->run * v_size(p->dtype);
}

/* As many slabs as on any number of threads. */
int64_t TIGON_CPU(group_norm_bwd_bytes)(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  const int64_t rows = p->batch * p->groups, bytes = bwd_row_bytes(p);
  if (rows == 0 || p->channels * p->run == 0) return 0;
  int64_t slabs = tigon_group_slabs(p->batch, p->groups, TIGON_CPU_TASKS);
  if (split_may(rows, bytes)) {
    const split cut = split_of(queue, rows, p->channels * p->run, bytes);
    if (cuts_runs(p->run, &cut)) slabs *= cut.parts;
  }
  return tigon_slab_bytes(slabs, 2, p->groups * p->channels);
}

tigon_status TIGON_CPU(group_norm_bwd)(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  const int64_t all = p->groups * p->channels, rows = p->batch * p->groups, cols = p->channels * p->run;
  const int64_t row_bytes = bwd_row_bytes(p), bytes = rows * row_bytes;
  sums of_parts[SPLIT_CELLS];
  bwd b = {.p = p,
           .ranges = cols > 0 ? tigon_group_slabs(p->batch, p->groups, TIGON_CPU_TASKS) : 0,
           .cut = split_of(queue, rows, cols, row_bytes),
           .of_parts = of_parts,
           .stream = tigon_cpu_streams(bytes)};
  b.slabs = b.cut.tasks > 1 && cuts_runs(p->run, &b.cut) ? b.cut.parts : 1;
  const int vectors = 2 * (int)b.slabs;
  tigon_cpu_note(queue, b.cut.tasks, b.ranges * b.slabs);
  const column_sum sums[] = {
      column_sum_of(p->slabs, b.ranges, 0, vectors, all, p->dw, p->dw_dtype, p->accumulate),
      column_sum_of(p->slabs, b.ranges, 1, vectors, all, p->db, p->db_dtype, p->accumulate),
  };
  tigon_cpu_parallel_bytes(queue, p->groups * b.ranges * b.cut.tasks, bytes, bwd_task, &b);
  if (b.cut.tasks > 1) tigon_cpu_parallel(queue, rows * b.cut.tasks, join_task, &b);
  if (p->dw || p->db) column_sum_list(queue, sums, 2);
  return TIGON_OK;
}
