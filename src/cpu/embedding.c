/* embedding. Forward copies. Backward is a stable radix sort of the positions by index. Then it makes one sum per table row in
 * the order of the positions, and zeros for the rows between. */
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/pair.h"

/* ---- forward ---- */

/* A row of bytes past the caches; the lines of `next`, the row after it, are on their way meanwhile. */
static void stream_row(char *to, const char *from, const char *next, size_t bytes) {
  size_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    vf_prefetch_l2(next + at);
    v_next_page(to + at, 64);
    for (size_t v = 0; v < 64; v += V_LINE)
      vf_stream((float *)(void *)(to + at + v), vf_load((const float *)(const void *)(from + at + v)));
  }
  memcpy(to + at, from + at, bytes - at);
}

static const char *table_row(const tigon_embedding_fwd_problem *p, int64_t r, size_t size) {
  const int64_t i = tigon_load_index(p->idx, r, p->idx_dtype);
  return i >= 0 && i < p->vocab ? (const char *)p->table + (size_t)(i * p->table_pitch) * size : NULL;
}

typedef struct fwd {
  const tigon_embedding_fwd_problem *p;
  int64_t tasks;
  bool stream;
} fwd;

static void fwd_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const tigon_embedding_fwd_problem *p = f->p;
  const size_t size = tigon_dtype_size(p->dtype), row_bytes = size * (size_t)p->cols;
  int64_t begin, end;
  tigon_range(p->space.rows, f->tasks, index, &begin, &end);
  const char *next = table_row(p, begin, size);
  for (int64_t r = begin; r < end; ++r) {
    const char *from = next;
    char *y = tigon_row(&p->space, &p->y, size, r);
    next = r + 1 < end ? table_row(p, r + 1, size) : NULL;
    if (!from) {
      memset(y, 0, row_bytes);
      if (p->error_flag) __atomic_store_n(p->error_flag, 1, __ATOMIC_RELAXED);
    } else if (LANES > 1 && f->stream && (uintptr_t)y % V_LINE == 0) {
      stream_row(y, from, next ? next : from, row_bytes);
    } else {
      memcpy(y, from, row_bytes);
    }
  }
  if (f->stream) vf_fence();
}

tigon_status TIGON_CPU(embedding_fwd)(tigon_queue *queue, const tigon_embedding_fwd_problem *p) {
  const int64_t row_bytes = 2 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  const fwd f = {p, tigon_cpu_row_tasks(p->space.rows, row_bytes), tigon_cpu_streams(p->space.rows * row_bytes)};
  tigon_cpu_parallel(queue, f.tasks, fwd_task, &f);
  return TIGON_OK;
}

/* ---- backward: the sort ---- */

/* A stable radix sort of the positions by index, 11 bits a pass: the counts of a pass and two lists of positions. Its cost
 * does not depend on the vocabulary, of which a few tokens touch a few rows. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static int64_t index_at(const tigon_embedding_bwd_problem *p, int64_t position) {
  return tigon_load_index(p->idx, position, p->idx_dtype);
}

/* One pass: `from` [count] (NULL: all positions, of which those without a gradient are left out) to `to`. */
static int64_t sort_digit(const tigon_embedding_bwd_problem *p, int shift, const int64_t *from, int64_t count,
                          int64_t *to) {
  const int64_t last = (p->vocab - 1) >> shift; /* the last digits that an index may have */
  const int digits = last < DIGITS ? (int)last + 1 : DIGITS;
  int64_t *first = p->order, sum = 0;
  memset(first, 0, (size_t)digits * sizeof *first);
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t position = from ? from[k] : k, i = index_at(p, position);
      if (!from && (i < 0 || i >= p->vocab || i == p->padding_idx)) continue;
      int64_t *slot = &first[i >> shift & (DIGITS - 1)];
      if (pass == 0)
        ++*slot;
      else
        to[(*slot)++] = position;
    }
    for (int d = 0; pass == 0 && d < digits; ++d) {
      const int64_t n = first[d];
      first[d] = sum;
      sum += n;
    }
  }
  return sum;
}

/* Positions that have a gradient, sorted by index, rising for one index. */
static const int64_t *sort_positions(const tigon_embedding_bwd_problem *p, int64_t *count) {
  int64_t *to = p->order + DIGITS, *other = to + p->space.rows;
  const int64_t *from = NULL;
  *count = p->space.rows;
  for (int shift = 0; shift == 0 || (p->vocab - 1) >> shift > 0; shift += DIGIT_BITS) {
    *count = sort_digit(p, shift, from, *count, to);
    int64_t *const done = to;
    to = other;
    other = done;
    from = done;
  }
  return from;
}

/* ---- backward: the sums ---- */

enum {
  SLOTS = 16,   /* sorted positions of a task: it sums the table rows that begin among them */
  PANEL = 1024, /* columns of a task */
  BLOCK =
      16, /* rows of one f32 partial sum: 8 * 2^-24 of the absolute values at most; the partial sums add up in f64 */
};

typedef struct bwd {
  const tigon_embedding_bwd_problem *p;
  const int64_t *positions;
  int64_t count, panels, sum_tasks;
  int64_t zero_rows; /* table rows of a task that writes zeros */
  bool stream;
} bwd;

/* sums[0 .. n) = rows [begin, end) of the sorted positions, columns [col, col + n). */
TIGON_INLINE void add_rows(tigon_dtype dtype, const bwd *b, int64_t begin, int64_t end, int64_t col, int64_t n,
                           float *sums) {
  const tigon_embedding_bwd_problem *p = b->p;
  const size_t size = (size_t)v_size(dtype);
  for (int64_t k = begin; k < end; ++k) {
    const char *row = tigon_row(&p->space, &p->dy, size, b->positions[k]);
    const char *next = tigon_row(&p->space, &p->dy, size, b->positions[k + 1 < b->count ? k + 1 : k]);
    for (int64_t c = 0; c < n; c += LANES) {
      const int lanes = n - c < LANES ? (int)(n - c) : LANES;
      if (c * (int64_t)size % 64 == 0) vf_prefetch_l2(next + (col + c) * (int64_t)size);
      const vf x = lanes == LANES ? v_load(row, col + c, dtype) : v_load_n(row, col + c, dtype, lanes);
      vf_store(sums + c, vf_add(k == begin ? vf_zero() : vf_load(sums + c), x));
    }
  }
}

/* Stores the sums to table row v, or adds them to it. */
TIGON_INLINE void put_row(tigon_dtype dtype, const bwd *b, int64_t v, int64_t col, int64_t n, const float *sums) {
  const tigon_embedding_bwd_problem *p = b->p;
  char *out = (char *)p->dtable + (v * p->cols + col) * v_size(dtype);
  const bool stream = b->stream && !p->accumulate && v_aligned(out, dtype);
  int64_t c = 0;
  for (; c + LANES <= n; c += LANES) {
    vf sum = vf_load(sums + c);
    if (p->accumulate) sum = vf_add(sum, v_load(out, c, dtype));
    v_put(out, c, dtype, sum, stream);
  }
  const int rest = (int)(n - c);
  vf sum = vf_load_n(sums + c, rest);
  if (p->accumulate) sum = vf_add(sum, v_load_n(out, c, dtype, rest));
  v_store_n(out, c, dtype, sum, rest);
}

/* Table row v from the sorted positions [begin, end). */
static void sum_row(const bwd *b, int64_t v, int64_t begin, int64_t end, int64_t col, int64_t n) {
  _Alignas(64) float sums[PANEL];
  _Alignas(64) double wide[PANEL];
  for (int64_t k = begin; k < end; k += BLOCK) {
    TIGON_FOR_DTYPE(b->p->dtype, add_rows, b, k, end - k < BLOCK ? end : k + BLOCK, col, n, sums);
    if (end - begin <= BLOCK) break;
    for (int64_t c = 0; c < n; ++c) wide[c] = (k == begin ? 0 : wide[c]) + (double)sums[c];
  }
  for (int64_t c = 0; end - begin > BLOCK && c < n; ++c) sums[c] = (float)wide[c];
  TIGON_FOR_DTYPE(b->p->dtable_dtype, put_row, b, v, col, n, sums);
}

/* Table rows whose first sorted position is one of a run of SLOTS, in a panel of columns. */
static void sum_task(const bwd *b, int64_t index) {
  const tigon_embedding_bwd_problem *p = b->p;
  const int64_t first = index / b->panels * SLOTS, last = b->count - first < SLOTS ? b->count : first + SLOTS;
  const int64_t col = index % b->panels * PANEL, n = p->cols - col < PANEL ? p->cols - col : PANEL;
  for (int64_t begin = first, end; begin < last; begin = end) {
    const int64_t v = index_at(p, b->positions[begin]);
    for (end = begin + 1; end < b->count && index_at(p, b->positions[end]) == v;) ++end;
    if (begin == 0 || index_at(p, b->positions[begin - 1]) != v) sum_row(b, v, begin, end, col, n);
  }
}

/* Zeros in table rows [begin, end). */
static void zero_rows(const bwd *b, int64_t begin, int64_t end) {
  const tigon_embedding_bwd_problem *p = b->p;
  const int64_t size = (int64_t)tigon_dtype_size(p->dtable_dtype);
  char *at = (char *)p->dtable + begin * p->cols * size;
  size_t bytes = (size_t)((end - begin) * p->cols * size);
  if (!b->stream || LANES == 1) {
    memset(at, 0, bytes);
    return;
  }
  size_t head = -(uintptr_t)at % 64;
  if (head > bytes) head = bytes;
  memset(at, 0, head);
  for (bytes -= head, at += head; bytes >= 64; bytes -= 64, at += 64)
    for (size_t v = 0; v < 64; v += V_LINE) vf_stream((float *)(void *)(at + v), vf_zero());
  memset(at, 0, bytes);
}

/* Zeros in the rows of a range of the table that no position points at. */
static void zero_task(const bwd *b, int64_t index) {
  const tigon_embedding_bwd_problem *p = b->p;
  const int64_t begin = index * b->zero_rows, end = p->vocab - begin < b->zero_rows ? p->vocab : begin + b->zero_rows;
  int64_t low = 0, high = b->count; /* the first sorted position of row `begin` or beyond */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (index_at(p, b->positions[middle]) < begin)
      low = middle + 1;
    else
      high = middle;
  }
  for (int64_t v = begin; v < end;) {
    const int64_t touched = low < b->count ? index_at(p, b->positions[low]) : end, gap = touched < end ? touched : end;
    if (gap > v) zero_rows(b, v, gap);
    v = gap + 1;
    while (low < b->count && index_at(p, b->positions[low]) <= gap) ++low;
  }
}

static void bwd_task(const void *argument, int64_t index) {
  const bwd *b = argument;
  if (index < b->sum_tasks)
    sum_task(b, index);
  else
    zero_task(b, index - b->sum_tasks);
  if (b->stream) vf_fence();
}

int64_t TIGON_CPU(embedding_bwd_bytes)(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  (void)queue;
  return p->space.rows > 0 ? tigon_pad((DIGITS + 2 * p->space.rows) * (int64_t)sizeof *p->order) : 0;
}

tigon_status TIGON_CPU(embedding_bwd)(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  const bool reads = !queue->record; /* else all indices count as different ones */
  for (int64_t r = 0; reads && p->error_flag && r < p->space.rows; ++r)
    if (index_at(p, r) < 0 || index_at(p, r) >= p->vocab) *p->error_flag = 1;
  const int64_t row_bytes = p->cols * (int64_t)tigon_dtype_size(p->dtable_dtype);
  bwd b = {.p = p, .panels = (p->cols + PANEL - 1) / PANEL, .zero_rows = 1 + (1 << 18) / row_bytes};
  b.count = p->space.rows;
  if (reads && p->space.rows > 0) b.positions = sort_positions(p, &b.count);
  b.sum_tasks = (b.count + SLOTS - 1) / SLOTS * b.panels;
  b.stream = tigon_cpu_streams(p->vocab * row_bytes);
  const int64_t zero_tasks = p->accumulate ? 0 : (p->vocab + b.zero_rows - 1) / b.zero_rows;
  tigon_cpu_parallel_bytes(queue, b.sum_tasks + zero_tasks, (b.count + (p->accumulate ? 0 : p->vocab)) * row_bytes,
                           bwd_task, &b);
  return TIGON_OK;
}
