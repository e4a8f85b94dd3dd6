/* Forward: three sweeps over a row, of which the second and third find it in the cache: the largest score, the sum, the store. The
 * exponentials of a row of up to KEPT columns stay in f32 on the stack; those of a wider row are worked out again. Sums are f32
 * over 256 terms a lane or fewer, and f64 across blocks. */
#include <math.h>

#include "cpu/reduce.h"
#include "cpu/simd_math.h"

enum { PAIR = 2 * LANES, SUM_BLOCK = 256 * LANES, KEPT = 65536 };

/* One row, or a part of one; `seen` columns of `cols` count. Scores are factor * (scale * x + mask) + offset: first as they are, then minus
 * their largest, in units of ln 2 where exp2_16 is good enough. */
typedef struct row {
  const void *x, *mask, *next; /* next: the row that is read after this one */
  void *y;
  int64_t cols, seen;
  int64_t paired; /* columns that are worked on in pairs of vectors, whose order is the dtype's */
  vf scale, factor, offset, factor_scale;
} row;

/* What is constant in the loops over a row. */
typedef struct kind {
  tigon_dtype dtype, mask_dtype;
  bool masked;
} kind;

TIGON_INLINE int lanes_left(int64_t cols, int64_t c) { return cols - c >= LANES ? LANES : (int)(cols - c); }

/* The first n lanes of v, `other` after them. */
TIGON_INLINE vf first_or(vf v, int n, vf other) {
  static const float lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return n == LANES ? v : vf_select(vf_lt(vf_load(lane), vf_set((float)n)), v, other);
}

/* The scores at c, -inf past the last column that counts. */
TIGON_INLINE vf score(kind k, const row *r, int64_t c) {
  const int n = lanes_left(r->seen, c);
  const vf x = n == LANES ? v_load(r->x, c, k.dtype) : v_load_n(r->x, c, k.dtype, n);
  vf z;
  if (k.masked) {
    const vf mask = n == LANES ? v_load(r->mask, c, k.mask_dtype) : v_load_n(r->mask, c, k.mask_dtype, n);
    z = vf_fma(vf_fma(x, r->scale, mask), r->factor, r->offset);
  } else {
    z = vf_fma(x, r->factor_scale, r->offset);
  }
  return first_or(z, n, vf_set(-INFINITY));
}

/* The scores of a pair of vectors. */
TIGON_INLINE vf2 score2(kind k, const row *r, int64_t c) {
  const vf2 x = v2_load(r->x, c, k.dtype, STEP);
  if (!k.masked) return (vf2){vf_fma(x.a, r->factor_scale, r->offset), vf_fma(x.b, r->factor_scale, r->offset)};
  const vf2 m = v2_load(r->mask, c, k.dtype, STEP);
  return (vf2){vf_fma(vf_fma(x.a, r->scale, m.a), r->factor, r->offset),
               vf_fma(vf_fma(x.b, r->scale, m.b), r->factor, r->offset)};
}

TIGON_INLINE void shift_scores(kind k, row *r, float scale, float max) {
  const float factor = k.dtype == TIGON_F32 || max == -INFINITY ? 1.0f : 1.44269504f;
  r->factor = vf_set(factor);
  r->factor_scale = vf_set(factor * scale);
  r->offset = vf_set(max == -INFINITY ? 0 : -max * factor);
}

/* The largest score that is a number, -inf without one. */
TIGON_INLINE float largest(kind k, const row *r) {
  vf a = vf_set(-INFINITY), b = a, c = a, d = a;
  int64_t at = 0;
  for (; at + 2 * PAIR <= r->paired; at += 2 * PAIR) {
    const vf2 first = score2(k, r, at), second = score2(k, r, at + PAIR);
    a = vf_max(first.a, a), b = vf_max(first.b, b), c = vf_max(second.a, c), d = vf_max(second.b, d);
  }
  for (; at < r->paired; at += PAIR) {
    const vf2 z = score2(k, r, at);
    a = vf_max(z.a, a), b = vf_max(z.b, b);
  }
  for (; at < r->seen; at += LANES) c = vf_max(score(k, r, at), c);
  return vf_max_across(vf_max(vf_max(a, b), vf_max(c, d)));
}

/* e^z, or 2^z for a 16-bit dtype, for z <= 0; in f32 what is below 2^-126 is 0. */
TIGON_INLINE vf exp_of(kind k, vf z) {
  if (k.dtype != TIGON_F32) return exp2_16(z);
  const vf y = vf_mul(z, vf_set(1.44269504f));
  return vf_select(vf_lt(y, vf_set(-126.0f)), vf_zero(), vf_exp2(y));
}

TIGON_INLINE vf2 exp2_of(kind k, vf2 z) { return (vf2){exp_of(k, z.a), exp_of(k, z.b)}; }

/* The sum of the exponentials, which go into `kept` where there is one; the next row is asked for meanwhile. */
TIGON_INLINE double total(kind k, const row *r, float *kept) {
  double all = 0;
  for (int64_t block = 0; block < r->seen; block += SUM_BLOCK) {
    const int64_t end = r->seen - block < SUM_BLOCK ? r->seen : block + SUM_BLOCK;
    const int64_t paired = end < r->paired ? end : r->paired;
    vf a = vf_zero(), b = vf_zero();
    int64_t c = block;
    for (; c < paired; c += PAIR) {
      v2_prefetch(r->next, c, k.dtype);
      const vf2 e = exp2_of(k, score2(k, r, c));
      a = vf_add(a, e.a), b = vf_add(b, e.b);
      if (kept) vf_store(kept + c, e.a), vf_store(kept + c + LANES, e.b);
    }
    for (; c < end; c += LANES) {
      vf_prefetch_l2((const char *)r->next + c * v_size(k.dtype));
      const vf e = exp_of(k, score(k, r, c));
      a = vf_add(a, e);
      if (kept) vf_store(kept + c, e);
    }
    all += (double)vf_sum(vf_add(a, b));
  }
  return all;
}

TIGON_INLINE void put(void *out, int64_t c, tigon_dtype dtype, vf v, int n, bool stream) {
  if (n == LANES)
    v_put(out, c, dtype, v, stream);
  else
    v_store_n(out, c, dtype, v, n);
}

/* y of the row, whose offset is known. */
TIGON_INLINE void store_row(kind k, const row *r, vf inverse, const float *kept, bool stream) {
  /* An f32 mask's NaN may have a lower half. */
  const v_values are = k.masked && k.mask_dtype == TIGON_F32 ? V_ANY : V_OWN;
  int64_t c = 0;
  for (; c < r->paired; c += PAIR) {
    const vf2 e = kept ? (vf2){vf_load(kept + c), vf_load(kept + c + LANES)} : exp2_of(k, score2(k, r, c));
    v2_put(r->y, c, k.dtype, (vf2){vf_mul(e.a, inverse), vf_mul(e.b, inverse)}, STEP, stream, are);
  }
  for (; c < r->seen; c += LANES) {
    const vf e = kept ? vf_load(kept + c) : exp_of(k, score(k, r, c));
    /* Columns that do not count are 0 even beside a NaN. */
    const vf y = first_or(vf_mul(e, inverse), lanes_left(r->seen, c), vf_zero());
    put(r->y, c, k.dtype, y, lanes_left(r->cols, c), false);
  }
  for (; c < r->cols; c += LANES) put(r->y, c, k.dtype, vf_zero(), lanes_left(r->cols, c), false);
}

/* What a part of a row has found. */
typedef struct cell {
  float largest;
  double sum; /* sum of e^(score - the row's largest) */
} cell;

enum { LARGEST = 1, SUM = 2, STORE = 4, ALL = 7 }; /* sweeps */

typedef struct fwd {
  const tigon_softmax_fwd_problem *p;
  split cut;
  unsigned sweeps;
  cell *cells; /* [rows, cut.parts]; NULL: a task has whole rows */
} fwd;

TIGON_INLINE row part_of(kind k, const fwd *f, const row *whole, int64_t part) {
  const split_range at = split_part(&f->cut, part);
  row r = *whole;
  r.x = (const char *)r.x + at.begin * v_size(k.dtype);
  if (k.masked) r.mask = (const char *)r.mask + at.begin * v_size(k.mask_dtype);
  r.next = (const char *)r.next + at.begin * v_size(k.dtype);
  r.y = (char *)r.y + at.begin * v_size(k.dtype);
  r.cols = at.end - at.begin;
  r.seen = r.seen < at.begin ? 0 : r.seen < at.end ? r.seen - at.begin : r.cols;
  r.paired = k.masked && k.mask_dtype != k.dtype ? 0 : r.seen / PAIR * PAIR;
  return r;
}

/* The wanted sweeps over some parts of a row; `cells` has all of its parts. */
TIGON_INLINE void fwd_parts(kind k, const fwd *f, row whole, split_range parts, cell *cells, float *kept, bool stream) {
  const float scale = f->p->scale;
  if (f->sweeps & LARGEST) {
    shift_scores(k, &whole, scale, -INFINITY);
    for (int64_t i = parts.begin; i < parts.end; ++i) {
      const row r = part_of(k, f, &whole, i);
      cells[i].largest = largest(k, &r);
    }
  }
  if (f->sweeps == LARGEST) return;
  float most = -INFINITY;
  for (int64_t i = 0; i < f->cut.parts; ++i) most = cells[i].largest > most ? cells[i].largest : most;
  shift_scores(k, &whole, scale, most);
  if (f->sweeps & SUM)
    for (int64_t i = parts.begin; i < parts.end; ++i) {
      const row r = part_of(k, f, &whole, i);
      cells[i].sum = total(k, &r, kept ? kept + i * f->cut.width : NULL);
    }
  if (!(f->sweeps & STORE)) return;
  double sum = 0;
  for (int64_t i = 0; i < f->cut.parts; ++i) sum += cells[i].sum;
  const vf inverse = vf_set(sum == 0 ? 0 : (float)(1 / sum));
  for (int64_t i = parts.begin; i < parts.end; ++i) {
    const row r = part_of(k, f, &whole, i);
    store_row(k, &r, inverse, kept ? kept + i * f->cut.width : NULL, stream);
  }
}

/* Some parts of rows [begin, end). */
TIGON_INLINE void fwd_rows(tigon_dtype dtype, const fwd *f, int64_t begin, int64_t end, split_range parts, bool past) {
  const tigon_softmax_fwd_problem *p = f->p;
  const size_t size = (size_t)v_size(dtype), mask_size = (size_t)v_size(p->mask_dtype);
  _Alignas(64) float kept[KEPT];
  float *const keep = p->cols <= KEPT && f->sweeps == ALL ? kept : NULL;
  cell own[SPLIT_PARTS] = {{0}};
  for (int64_t i = begin; i < end; ++i) {
    int64_t seen = p->causal ? i % p->tokens + 1 + p->cols - p->tokens : p->cols;
    if (seen < 0) seen = 0;
    const row r = {.x = tigon_row(&p->space, &p->x, size, i),
                   .mask = tigon_row(&p->space, &p->mask, mask_size, i),
                   .next = tigon_row(&p->space, &p->x, size, i + 1 < end ? i + 1 : i),
                   .y = tigon_row(&p->space, &p->y, size, i),
                   .cols = p->cols,
                   .seen = seen,
                   .scale = vf_set(p->scale)};
    cell *cells = f->cells ? f->cells + i * f->cut.parts : own;
    const bool stream = past && (uintptr_t)r.y % V_LINE == 0;
    if (!r.mask)
      fwd_parts((kind){dtype, dtype, false}, f, r, parts, cells, keep, stream);
    else if (p->mask_dtype == TIGON_F32)
      fwd_parts((kind){dtype, TIGON_F32, true}, f, r, parts, cells, keep, stream);
    else
      fwd_parts((kind){dtype, dtype, true}, f, r, parts, cells, keep, stream);
  }
  if (past) vf_fence();
}

static void fwd_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const tigon_softmax_fwd_problem *p = f->p;
  const int64_t row_bytes = 2 * p->cols * v_size(p->dtype);
  int64_t begin = index / f->cut.tasks, end = begin + 1;
  if (!f->cells) tigon_range(p->space.rows, tigon_cpu_row_tasks(p->space.rows, row_bytes), index, &begin, &end);
  const split_range parts = split_parts(&f->cut, index % f->cut.tasks);
  TIGON_FOR_DTYPE(p->dtype, fwd_rows, f, begin, end, parts, tigon_cpu_streams(p->space.rows * row_bytes));
}

tigon_status TIGON_CPU(softmax_fwd)(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  cell cells[SPLIT_CELLS];
  const int64_t row_bytes = 2 * p->cols * v_size(p->dtype);
  fwd f = {.p = p, .cut = split_of(queue, p->space.rows, p->cols, row_bytes), .sweeps = ALL};
  tigon_cpu_note(queue, f.cut.tasks, 0);
  if (f.cut.tasks == 1) {
    tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, row_bytes), fwd_task, &f);
    return TIGON_OK;
  }
  f.cells = cells;
  for (f.sweeps = LARGEST; f.sweeps <= STORE; f.sweeps *= 2)
    tigon_cpu_parallel(queue, p->space.rows * f.cut.tasks, fwd_task, &f);
  return TIGON_OK;
}

/* dx = y * scale * (dy - the sum of dy * y). */
TIGON_INLINE void add_product(vf2 dy, vf2 y, vf2 *sums) { sums[0] = v2_fma(dy, y, sums[0]); }
TIGON_INLINE void bwd_numbers(const void *problem, int64_t r, double *sums, double *numbers) {
  const tigon_softmax_bwd_problem *p = problem;
  (void)r;
  numbers[0] = sums[0];
  numbers[1] = (double)p->scale;
}
TIGON_INLINE vf2 find_dx(const vf2 *numbers, vf2 dy, vf2 y) {
  return v2_mul(y, v2_mul(numbers[1], v2_sub(dy, numbers[0])));
}
REDUCE_TASK(bwd_task, 2, 1, 2, add_product, bwd_numbers, find_dx)

tigon_status TIGON_CPU(softmax_bwd)(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  reduce_job j = reduce_of(p, &p->space, &p->dy, &p->y, &p->dx, p->cols, p->dtype);
  j.cut = split_of(queue, p->space.rows, p->cols, reduce_row_bytes(&j));
  return reduce_run(queue, &j, bwd_task);
}
