/* Forward, of z = x - max x. Members are the z above tau, and tau grows to (their sum - 1) / (how many) until it grows no more; of
 * fewer elements it comes out smaller, so that any of them give a start. A row is swept three times, of which the second and third
 * find it in the cache:
 *   1. The largest x, and a start: tau of the largest x of each of some groups.
 *   2. The members of the start, in a list on the stack, over which all rounds go.
 *   3. The store.
 * Sums are f64 by lanes. A z has the same lane in each round: that of its place in its part's list. This holds whether the list
 * has room or is made again. */
#include <math.h>

#include "cpu/reduce.h"

enum {
  GROUPS = 4,           /* groups of a part: four times STEP of them */
  GROUPED = 4 * GROUPS, /* times STEP columns: of fewer the largest of groups are no start */
  LISTED = 16384,       /* z of a row in lists */
  WALKED = 1024,        /* members at a time, of a part with more than there is room for */
  SPARE = STEP + LANES  /* a list ends before its place does */
};

/* What a part of a row has found. */
typedef struct cell {
  float largest, start; /* start: of z by this part's largest */
  double sum;           /* sum of its members */
  int64_t count;        /* number of its members */
} cell;

/* A part of a row, and the row's numbers. */
typedef struct part {
  const void *x, *next; /* next: the row that is read after this one; NULL: none is */
  void *y;
  int64_t cols;
  float base, start, tau; /* base: the largest x; start: tau's first, above which z is listed */
} part;

/* z of columns c to c + STEP - 1, -inf past the last one. */
TIGON_INLINE vf2 scores(tigon_dtype dtype, const part *p, vf base, int64_t c) {
  static const float lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const vf2 of_base = {base, base};
  if (c + STEP <= p->cols) return v2_sub(v2_load(p->x, c, dtype, STEP), of_base);
  const int n = (int)(p->cols - c);
  const vf2 z = v2_sub(v2_load(p->x, c, dtype, n), of_base),
            natural = {vf_load(lane), vf_add(vf_load(lane), vf_set(LANES))};
  const vf2 at = v2_order(natural, dtype);
  const vf end = vf_set((float)n), low = vf_set(-INFINITY);
  return (vf2){vf_select(vf_lt(at.a, end), z.a, low), vf_select(vf_lt(at.b, end), z.b, low)};
}

/* Does tau grow? A NaN does not, and stays. */
static bool grow(double sum, int64_t count, float *tau) {
  const float next = count > 0 ? (float)((sum - 1) / (double)count) : *tau;
  if (next <= *tau) return false;
  *tau = isnan(next) ? NAN : next;
  return !isnan(next);
}

/* Adds the members among `count` listed z, a multiple of LANES or ending in -inf, to a sum and to their number. */
TIGON_INLINE void add_members(const float *list, int64_t count, float above, vd *sum, int64_t *members) {
  const vf tau = vf_set(above);
  for (int64_t i = 0; i < count; i += LANES) {
    const vf z = vf_load(list + i);
    const vm member = vf_above(z, tau);
    *sum = vd_add(*sum, vf_select(member, z, vf_zero()));
    *members += vm_count(member);
  }
}

static void sum_list(const float *list, int64_t count, float tau, cell *to) {
  vd sum = vd_zero();
  to->count = 0;
  add_members(list, count, tau, &sum, &to->count);
  to->sum = vd_sum(sum);
}

TIGON_INLINE vf2 v2_largest(vf2 v, vf2 most) { return (vf2){vf_max(v.a, most.a), vf_max(v.b, most.b)}; }

/* The largest number, -inf without one, and the start. */
TIGON_INLINE void find_largest(tigon_dtype dtype, const part *p, cell *to) {
  vf2 most[GROUPS];
  for (int i = 0; i < GROUPS; ++i) most[i] = v2_set(-INFINITY);
  int64_t c = 0;
  for (; c + GROUPS * STEP <= p->cols; c += GROUPS * STEP)
    for (int i = 0; i < GROUPS; ++i) most[i] = v2_largest(v2_load(p->x, c + i * STEP, dtype, STEP), most[i]);
  for (; c < p->cols; c += STEP) most[0] = v2_largest(scores(dtype, p, vf_zero(), c), most[0]);
  vf2 all = most[0];
  for (int i = 1; i < GROUPS; ++i) all = v2_largest(most[i], all);
  *to = (cell){.largest = vf_max_across(vf_max(all.a, all.b)), .start = -1};
  if (p->cols < GROUPED * STEP) return;
  float z[GROUPS * STEP];
  cell found;
  for (int i = 0; i < GROUPS; ++i) {
    const vf2 of = v2_sub(most[i], v2_set(to->largest));
    vf_store(z + i * STEP, of.a), vf_store(z + i * STEP + LANES, of.b);
  }
  do sum_list(z, GROUPS * STEP, to->start, &found);
  while (grow(found.sum, found.count, &to->start));
}

/* Base and the start of a row from its parts. */
static void begin_row(const cell *cells, int64_t parts, part *row) {
  row->base = -INFINITY, row->tau = -1;
  for (int64_t i = 0; i < parts; ++i) row->base = cells[i].largest > row->base ? cells[i].largest : row->base;
  if (row->base == -INFINITY) row->base = 0; /* x is -inf everywhere, or NaN */
  for (int64_t i = 0; i < parts; ++i) {
    const float start = cells[i].largest - row->base + cells[i].start;
    if (start > row->tau) row->tau = start;
  }
  row->start = row->tau;
}

static bool grow_row(const cell *cells, int64_t parts, float *tau) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < parts; ++i) sum += cells[i].sum, count += cells[i].count;
  return grow(sum, count, tau);
}

/* The members of a part, of those z that are above the start. Where `room` in `list` is enough for these, they stay there, and how many
 * they are is returned; else -1. */
TIGON_INLINE int64_t find_members(tigon_dtype dtype, const part *p, float *list, int64_t room, cell *to) {
  const vf base = vf_set(p->base), start = vf_set(p->start);
  int64_t used = 0;
  bool all = true;
  vd sum = vd_zero();
  to->count = 0;
  for (int64_t c = 0; c < p->cols; c += STEP) {
    if (p->next) v2_prefetch(p->next, c, dtype);
    const vf2 z = scores(dtype, p, base, c);
    const vm first = vf_above(z.a, start), second = vf_above(z.b, start);
    if (!vm_any(first) && !vm_any(second)) continue;
    used += vf_pack(list + used, first, z.a);
    used += vf_pack(list + used, second, z.b);
    if (used + SPARE <= room) continue;
    const int64_t whole = used / LANES * LANES; /* the others move to the front */
    add_members(list, whole, p->tau, &sum, &to->count);
    vf_store(list, vf_load(list + whole));
    used -= whole, all = false;
  }
  vf_store(list + used, vf_set(-INFINITY));
  add_members(list, used, p->tau, &sum, &to->count);
  to->sum = vd_sum(sum);
  return all ? used : -1;
}

TIGON_INLINE void store_part(tigon_dtype dtype, const part *p, bool stream) {
  const vf2 base = v2_set(p->base), tau = v2_set(p->tau);
  for (int64_t c = 0; c < p->cols; c += STEP) {
    const int n = p->cols - c < STEP ? (int)(p->cols - c) : STEP;
    const vf2 y = v2_sub(v2_sub(v2_load(p->x, c, dtype, n), base), tau);
    v2_put(p->y, c, dtype, (vf2){vf_max(vf_zero(), y.a), vf_max(vf_zero(), y.b)}, n, stream, V_OWN); /* NaN stays */
  }
}

/* ---- rows ---- */

typedef enum sweep { LARGEST, SUMS, STORE } sweep;

typedef struct fwd {
  const tigon_sparsemax_problem *p;
  split cut;
  sweep sweep; /* where tasks share rows, as are all below */
  cell *cells; /* [rows, cut.parts] */
  part *rows;  /* base, start and tau of each, */
  bool *grows; /* and whether it has more rounds */
} fwd;

TIGON_INLINE part part_of(tigon_dtype dtype, const fwd *f, const part *row, int64_t index) {
  const split_range at = split_part(&f->cut, index);
  const int64_t skipped = at.begin * v_size(dtype);
  part p = *row;
  p.x = (const char *)row->x + skipped, p.y = (char *)row->y + skipped;
  p.next = row->next ? (const char *)row->next + skipped : NULL;
  p.cols = at.end - at.begin;
  return p;
}

/* One task has all of the row. */
TIGON_INLINE void whole_row(tigon_dtype dtype, const fwd *f, part *row, float *lists, bool stream) {
  cell cells[SPLIT_PARTS];
  float *list[SPLIT_PARTS], *end = lists; /* NULL: the part's is made anew in each round */
  int64_t counts[SPLIT_PARTS];
  const int64_t parts = f->cut.parts;
  for (int64_t i = 0; i < parts; ++i) {
    const part p = part_of(dtype, f, row, i);
    find_largest(dtype, &p, &cells[i]);
  }
  begin_row(cells, parts, row);
  for (int64_t i = 0; i < parts; ++i) {
    const part p = part_of(dtype, f, row, i);
    counts[i] = find_members(dtype, &p, end, lists + LISTED + WALKED - end, &cells[i]);
    list[i] = counts[i] >= 0 && end + counts[i] + LANES <= lists + LISTED ? end : NULL;
    if (list[i]) end += counts[i] + LANES;
  }
  row->next = NULL;
  while (grow_row(cells, parts, &row->tau))
    for (int64_t i = 0; i < parts; ++i) {
      const part p = part_of(dtype, f, row, i);
      if (list[i])
        sum_list(list[i], counts[i], row->tau, &cells[i]);
      else
        find_members(dtype, &p, lists + LISTED, WALKED, &cells[i]);
    }
  for (int64_t i = 0; i < parts; ++i) {
    const part p = part_of(dtype, f, row, i);
    store_part(dtype, &p, stream);
  }
}

TIGON_INLINE part row_of(tigon_dtype dtype, const fwd *f, int64_t r, int64_t next) {
  const tigon_sparsemax_problem *p = f->p;
  const size_t size = (size_t)v_size(dtype);
  return (part){.x = tigon_row(&p->space, &p->x, size, r),
                .next = tigon_row(&p->space, &p->x, size, next),
                .y = tigon_row(&p->space, &p->y, size, r),
                .cols = p->cols};
}

static int64_t row_bytes(const tigon_sparsemax_problem *p) { return 2 * p->cols * v_size(p->dtype); }

TIGON_INLINE void whole_rows(tigon_dtype dtype, const fwd *f, int64_t begin, int64_t end, bool past) {
  _Alignas(64) float lists[LISTED + WALKED];
  for (int64_t r = begin; r < end; ++r) {
    part row = row_of(dtype, f, r, r + 1 < end ? r + 1 : r);
    whole_row(dtype, f, &row, lists, past && v2_aligned(row.y));
  }
  if (past) vf_fence();
}

static void whole_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const int64_t rows = f->p->space.rows, bytes = row_bytes(f->p);
  int64_t begin, end;
  tigon_range(rows, tigon_cpu_row_tasks(rows, bytes), index, &begin, &end);
  TIGON_FOR_DTYPE(f->p->dtype, whole_rows, f, begin, end, tigon_cpu_streams(rows * bytes));
}

/* The wanted sweep over some parts of a row. */
TIGON_INLINE void shared_parts(tigon_dtype dtype, const fwd *f, int64_t r, split_range parts, bool past) {
  _Alignas(64) float list[WALKED];
  part row = row_of(dtype, f, r, r);
  row.base = f->rows[r].base, row.start = f->rows[r].start, row.tau = f->rows[r].tau, row.next = NULL;
  for (int64_t i = parts.begin; i < parts.end; ++i) {
    cell *to = &f->cells[r * f->cut.parts + i];
    const part p = part_of(dtype, f, &row, i);
    if (f->sweep == LARGEST)
      find_largest(dtype, &p, to);
    else if (f->sweep == STORE)
      store_part(dtype, &p, past && v2_aligned(row.y));
    else if (f->grows[r])
      find_members(dtype, &p, list, WALKED, to);
  }
  if (past && f->sweep == STORE) vf_fence();
}

static void shared_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const split_range parts = split_parts(&f->cut, index % f->cut.tasks);
  const bool past = tigon_cpu_streams(f->p->space.rows * row_bytes(f->p));
  TIGON_FOR_DTYPE(f->p->dtype, shared_parts, f, index / f->cut.tasks, parts, past);
}

/* Few huge rows: a region for each sweep, of which the sums are as many as the rounds of the row that has the most. */
static void shared_rows(tigon_queue *queue, fwd *f) {
  cell cells[SPLIT_CELLS] = {{0}}; /* a recorder's call ends after one round */
  part rows[TIGON_CPU_TASKS];
  bool grows[TIGON_CPU_TASKS];
  const int64_t count = f->p->space.rows, parts = f->cut.parts, tasks = count * f->cut.tasks;
  f->cells = cells, f->rows = rows, f->grows = grows;
  f->sweep = LARGEST;
  tigon_cpu_parallel(queue, tasks, shared_task, f);
  for (int64_t r = 0; r < count; ++r) begin_row(cells + r * parts, parts, &rows[r]), grows[r] = true;
  f->sweep = SUMS;
  for (bool more = true; more;) {
    tigon_cpu_parallel(queue, tasks, shared_task, f);
    more = false;
    for (int64_t r = 0; r < count; ++r) {
      grows[r] = grows[r] && grow_row(cells + r * parts, parts, &rows[r].tau);
      more = more || grows[r];
    }
  }
  f->sweep = STORE;
  tigon_cpu_parallel(queue, tasks, shared_task, f);
}

tigon_status TIGON_CPU(sparsemax_fwd)(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  fwd f = {.p = p, .cut = split_of(queue, p->space.rows, p->cols, row_bytes(p))};
  tigon_cpu_note(queue, f.cut.tasks, 0);
  if (f.cut.tasks == 1)
    tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, row_bytes(p)), whole_task, &f);
  else
    shared_rows(queue, &f);
  return TIGON_OK;
}

/* ---- backward: dx = dy - the mean of dy over the support ---- */

/* dy of the support, and how many; a NaN or Inf in y makes its dy a NaN. */
TIGON_INLINE vf of_support(vf y, vf value) { return vf_select(vf_le(y, vf_zero()), vf_zero(), value); }
TIGON_INLINE void add_support(vf2 dy, vf2 y, vf2 *sums) {
  const vf2 known = v2_fma(y, v2_set(0), dy);
  const vf one = vf_set(1);
  sums[0] = v2_add(sums[0], (vf2){of_support(y.a, known.a), of_support(y.b, known.b)});
  sums[1] = v2_add(sums[1], (vf2){of_support(y.a, one), of_support(y.b, one)});
}
TIGON_INLINE void find_mean(const void *problem, int64_t r, double *sums, double *mean) {
  (void)problem, (void)r;
  *mean = sums[1] > 0 ? sums[0] / sums[1] : 0;
}
TIGON_INLINE vf2 find_dx(const vf2 *mean, vf2 dy, vf2 y) {
  const vf2 dx = v2_sub(dy, *mean);
  return (vf2){of_support(y.a, dx.a), of_support(y.b, dx.b)};
}
REDUCE_TASK(bwd_task, 2, 2, 1, add_support, find_mean, find_dx)

tigon_status TIGON_CPU(sparsemax_bwd)(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  reduce_job j = reduce_of(p, &p->space, &p->dy, &p->y, &p->dx, p->cols, p->dtype);
  j.cut = split_of(queue, p->space.rows, p->cols, reduce_row_bytes(&j));
  return reduce_run(queue, &j, bwd_task);
}
