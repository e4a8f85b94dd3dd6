/* Memory for a run: every tensor in a mapping of its own between two protected pages, its padding filled with a pattern. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check/internal.h"
#include "core/half.h"

enum { PATTERN = 0xa5 };

static uint64_t mix(uint64_t x) { /* splitmix64 (Steele et al. 2014) */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static double uniform(uint64_t seed, int64_t i) {
  return (double)(mix(seed ^ (uint64_t)i * 0x2545f4914f6cdd1du) >> 11) * 0x1p-53;
}

/* Bytes from the first to one past the last element of a view. */
static size_t extent_bytes(const tigon_tensor *t) {
  int64_t last = 0;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] == 0) return 0;
    last += (t->shape[i] - 1) * t->strides[i];
  }
  return (size_t)(last + 1) * tigon_dtype_size(t->dtype);
}

int64_t check_elements(const tigon_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

int64_t check_offset(const tigon_tensor *t, int64_t index) {
  int64_t offset = 0;
  for (int i = t->ndim - 1; i >= 0; --i) {
    /* A division takes long: dimensions that lie end to end are as one. */
    int64_t count = t->shape[i];
    const int64_t step = t->strides[i];
    while (i > 0 && t->strides[i - 1] == count * step) count *= t->shape[--i];
    if (i == 0) return offset + index * step;
    offset += index % count * step;
    index /= count;
  }
  return offset;
}

double check_value(const tigon_tensor *t, int64_t index) {
  const int64_t at = check_offset(t, index);
  if (t->dtype == TIGON_I32 || t->dtype == TIGON_I64) return (double)tigon_load_index(t->data, at, t->dtype);
  return tigon_load_f64(t->data, at, t->dtype);
}

void *check_need(void *memory) {
  if (memory) return memory;
  fputs("tigon check: out of memory\n", stderr);
  exit(3);
}

check_buffer *check_add_buffer(check *k) {
  k->buffers = check_need(realloc(k->buffers, (size_t)(k->count + 1) * sizeof *k->buffers));
  return &k->buffers[k->count++];
}

/* Mappings that were released and serve again: most runs are as large as the one before, and to map costs more than to run. */
enum { SPARES = 32, SPARE_BYTES = 1 << 24 };
static _Thread_local struct spare {
  char *map;
  size_t bytes;
} spares[SPARES];

/* `bytes` of which the first and the last page are protected. */
static char *map_guarded(size_t bytes, size_t page) {
  for (int i = 0; i < SPARES; ++i) {
    char *map = spares[i].map;
    if (!map || spares[i].bytes != bytes) continue;
    spares[i].map = NULL;
    return map;
  }
  char *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool made = map != MAP_FAILED && mprotect(map + page, bytes - 2 * page, PROT_READ | PROT_WRITE) == 0;
  check_need(made ? map : NULL);
  return map;
}

static void unmap_guarded(char *map, size_t bytes) {
  static _Thread_local int oldest;
  if (bytes <= SPARE_BYTES) {
    const struct spare out = spares[oldest];
    spares[oldest] = (struct spare){map, bytes};
    oldest = (oldest + 1) % SPARES;
    map = out.map, bytes = out.bytes;
  }
  if (map) munmap(map, bytes);
}

/* Values of tensors, row by row. The next run of a case has the same, and so has its twin in another variant. To work them out again
 * takes longer than most calls. */
enum { FILLED = 32, FILLED_BYTES = 1 << 22 };
static _Thread_local struct filled {
  tigon_tensor like; /* its dtype and shape */
  uint64_t seed;
  int64_t before;
  check_fill fill;
  char *values; /* NULL: none */
} filled[FILLED];

void check_drop_spares(void) {
  for (int i = 0; i < SPARES; ++i) {
    if (spares[i].map) munmap(spares[i].map, spares[i].bytes);
    spares[i].map = NULL;
  }
  for (int i = 0; i < FILLED; ++i) {
    free(filled[i].values);
    filled[i].values = NULL;
  }
}

/* A mapping of `bytes` whose end or start touches a protected page; the rest holds the pattern. */
static check_buffer *new_buffer(check *k, const char *name, size_t bytes, size_t align) {
  check_buffer *b = check_add_buffer(k);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page + page;
  *b = (check_buffer){.name = name, .bytes = bytes, .map_bytes = inner + 2 * page};
  b->map = map_guarded(b->map_bytes, page);
  b->inner = b->map + page;
  b->inner_bytes = inner;
  memset(b->inner, PATTERN, inner);
  b->start = k->place == CHECK_START ? b->inner : b->inner + (inner - bytes) / align * align;
  return b;
}

/* A view whose first dimension has a pitch of gigabytes. Only the pages of its elements are ever mapped. It has no pattern
 * around it, and no copy is kept. */
static check_buffer *far_buffer(check *k, size_t bytes) {
  check_buffer *b = &k->buffers[k->count - 1];
  unmap_guarded(b->map, b->map_bytes);
  b->map_bytes = bytes;
  b->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check_need(b->map == MAP_FAILED ? NULL : b->map);
  b->inner = b->start = b->map;
  b->inner_bytes = 0;
  return b;
}

static bool is_shared(const check *k, check_role role) { return role == CHECK_ROLE_IN && k->twist && k->twist->shared; }

/* Is the buffer made last the one that lies over another? It has that one's values. */
static bool is_over(const check *k) { return k->twist && k->twist->aliases && k->twist->over == k->count - 1; }

/* Where a sweep wants it instead. What others share is copied for a device, as all inputs of a run are. */
static void move_buffer(check *k, check_buffer *b, check_role role, size_t bytes) {
  const check_twist *w = k->twist;
  if (!w) return;
  const int at = k->count - 1;
  if (is_shared(k, role) && check_is_away(k)) memcpy(b->start, w->shared->buffers[at].start, bytes);
  if (is_shared(k, role) && !check_is_away(k)) b->start = w->shared->buffers[at].start;
  if (is_over(k) && !w->apart) b->start = k->buffers[w->under].start;
}

/* Elements between rows. Every tensor has another odd number, so that a kernel shows that takes one's pitch for another's. */
static int64_t padding(const check *k) { return 3 + 2 * (k->count - k->alike); }

static tigon_tensor new_tensor(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                               bool dense, check_role role) {
  tigon_tensor t = {.dtype = dtype, .ndim = ndim};
  const size_t size = tigon_dtype_size(dtype);
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.strides[i] = step;
    step *= shape[i] > 0 ? shape[i] : 1;
    if (i == ndim - 1 && k->padded && !dense) step += padding(k);
    if (shape[i] == 1 && k->place == CHECK_STRANGE) t.strides[i] = k->padded ? 1 : INT64_MAX;
  }
  const check_twist *w = k->twist;
  const bool far = w && w->pitch && ndim > 1 && !dense;
  if (far) t.strides[0] = w->pitch;
  const size_t bytes = extent_bytes(&t);
  check_buffer *b = new_buffer(k, name, far ? 0 : bytes, size);
  if (far) b = far_buffer(k, bytes);
  if (k->padded && !dense) b->start += k->place == CHECK_START ? (ptrdiff_t)size : -(ptrdiff_t)size; /* an odd base */
  if (w && w->offset) b->start += w->offset * (int64_t)size;
  move_buffer(k, b, role, bytes);
  if (is_over(k)) b->start += w->shift * (int64_t)size;
  if (is_over(k) && w->apart) memcpy(b->start, k->buffers[w->under].start, bytes);
  b->role = role;
  t.data = b->start;
  b->tensor = t;
  return t;
}

/* Scale of denormal cases: half of the elements are below the smallest normal number. */
static double tiny(tigon_dtype dtype) { return dtype == TIGON_F16 ? 0x1p-14 : 0x1p-126; }

/* Rows 1, 2, 3 of every four; a vector has the NaN. */
static const double special[] = {0, (double)NAN, (double)INFINITY, -(double)INFINITY};
static double special_of(const tigon_tensor *t, int64_t row) { return special[t->ndim == 1 ? 1 : row % 4]; }

/* A NaN is all ones, as in memory that was never written: a carry of rounding would make a number of it. */
static void store(const tigon_tensor *t, int64_t i, double v) {
  if (isnan(v))
    memset((char *)t->data + (size_t)i * tigon_dtype_size(t->dtype), 0xff, tigon_dtype_size(t->dtype));
  else
    tigon_store_f64(t->data, i, t->dtype, v);
}

int64_t check_elements_before(const check *k, const tigon_tensor *t) {
  const check_twist *w = k->twist;
  if (!w || !w->whole || t->shape[0] == 0) return 0;
  const int64_t rows = w->whole->buffers[k->count - 1].tensor.shape[0];
  return t->shape[0] == rows ? 0 : w->first * (rows / w->whole->dims[0]) * (check_elements(t) / t->shape[0]);
}

static void work_out(const tigon_tensor *t, uint64_t seed, int64_t before, check_fill fill) {
  const int64_t count = check_elements(t), cols = t->shape[t->ndim - 1];
  for (int64_t i = 0; i < count; i += cols) {
    const int64_t row = i / cols, at = check_offset(t, i),
                  chosen = (int64_t)(mix(seed ^ (uint64_t)row) % (uint64_t)cols);
    for (int64_t c = 0; c < cols; ++c) {
      double v = 4 * uniform(seed, fill == CHECK_CONSTANT && t->ndim > 1 ? row : before + i + c) - 2;
      if (fill == CHECK_SHIFTED) v += 1e4;
      if (fill == CHECK_DENORMAL) v *= tiny(t->dtype);
      if (fill == CHECK_OUTLIER && c == chosen) v = 1e4;
      if (fill == CHECK_HEAVY) v = copysign(fmin(1 / sqrt(1 - fabs(v) / 2) - 1, 1e4), v);
      if (fill == CHECK_CANCEL && c % 2) v = -(4 * uniform(seed, i + c - 1) - 2) * (1 + 0x1p-9 * v);
      if (fill == CHECK_SPECIAL && c == chosen && (row % 4 || t->ndim == 1)) v = special_of(t, row);
      store(t, at + c, v);
    }
  }
}

static bool is_alike(const struct filled *f, const tigon_tensor *t, uint64_t seed, int64_t before, check_fill fill) {
  return f->values && f->seed == seed && f->before == before && f->fill == fill && f->like.dtype == t->dtype &&
         f->like.ndim == t->ndim && memcmp(f->like.shape, t->shape, (size_t)t->ndim * sizeof *t->shape) == 0;
}

/* Copies rows from a tensor to those values, or back. */
static void copy_rows(const tigon_tensor *t, char *values, bool back) {
  const int64_t count = check_elements(t), cols = t->shape[t->ndim - 1];
  const size_t size = tigon_dtype_size(t->dtype), bytes = (size_t)cols * size;
  for (int64_t i = 0; i < count; i += cols) {
    char *row = (char *)t->data + (size_t)check_offset(t, i) * size, *kept = values + (size_t)i * size;
    memcpy(back ? row : kept, back ? kept : row, bytes);
  }
}

static bool recall(const tigon_tensor *t, uint64_t seed, int64_t before, check_fill fill) {
  for (int i = 0; i < FILLED; ++i)
    if (is_alike(&filled[i], t, seed, before, fill)) {
      copy_rows(t, filled[i].values, true);
      return true;
    }
  return false;
}

static void remember(const tigon_tensor *t, uint64_t seed, int64_t before, check_fill fill) {
  static _Thread_local int oldest;
  const size_t bytes = (size_t)check_elements(t) * tigon_dtype_size(t->dtype);
  if (bytes == 0 || bytes > FILLED_BYTES) return;
  struct filled *f = &filled[oldest];
  char *values = realloc(f->values, bytes);
  if (!values) return;
  *f = (struct filled){*t, seed, before, fill, values};
  copy_rows(t, values, false);
  oldest = (oldest + 1) % FILLED;
}

static void fill_tensor(const check *k, const tigon_tensor *t, check_fill fill) {
  const int64_t before = check_elements_before(k, t);
  const uint64_t seed = mix(k->seed + (uint64_t)k->count * 977);
  if (recall(t, seed, before, fill)) return;
  work_out(t, seed, before, fill);
  remember(t, seed, before, fill);
}

/* A number for what a case derives from its inputs. It is 0 where a sweep may have changed these. */
static uint64_t case_seed(const check *k) {
  uint64_t seed =
      mix(k->seed ^ (uint64_t)k->entry << 32 ^ (uint64_t)k->option << 16 ^ (uint64_t)k->dtype << 8 ^ (uint64_t)k->fill);
  for (int d = 0; d < CHECK_DIMS; ++d) seed = mix(seed + (uint64_t)k->dims[d]);
  return k->twist ? 0 : seed;
}

bool check_recall(const check *k, const tigon_tensor *t, int which) {
  const uint64_t seed = case_seed(k);
  return k->timed || (!k->oracle && seed && recall(t, seed, which, CHECK_DERIVED));
}

void check_remember(const check *k, const tigon_tensor *t, int which) {
  const uint64_t seed = case_seed(k);
  if (seed) remember(t, seed, which, CHECK_DERIVED);
}

/* The one value that a sweep puts into an input. */
static void plant(const check *k, const tigon_tensor *t) {
  const check_twist *w = k->twist;
  if (w && w->plants && w->plant_in == k->count - 1) store(t, check_offset(t, w->plant_at), w->plant_value);
}

/* What the run may not change is kept aside. */
static void keep(check *k) {
  check_buffer *b = &k->buffers[k->count - 1];
  b->before = check_need(malloc(b->inner_bytes));
  memcpy(b->before, b->inner, b->inner_bytes);
}

/* Rubbish that differs from run to run, so that an element that is never written shows. */
static void spoil(const check *k, const tigon_tensor *t) {
  const int64_t count = check_elements(t), cols = t->shape[t->ndim - 1];
  const size_t size = tigon_dtype_size(t->dtype);
  for (int64_t i = 0; i < count; i += cols)
    memset((char *)t->data + (size_t)check_offset(t, i) * size, k->expected ? 0xff : 0xfe, size * (size_t)cols);
}

static tigon_tensor make(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape, bool dense,
                         check_role role, check_fill fill) {
  if (k->timed) return check_timed_tensor(k, name, dtype, ndim, shape, role, 1);
  const tigon_tensor t = new_tensor(k, name, dtype, ndim, shape, dense, role);
  if (!is_shared(k, role) && !is_over(k)) {
    if (role == CHECK_ROLE_OUT)
      spoil(k, &t);
    else
      fill_tensor(k, &t, fill), plant(k, &t);
  }
  keep(k);
  return t;
}

tigon_tensor check_in(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape, check_fill fill) {
  return make(k, name, dtype, ndim, shape, false, CHECK_ROLE_IN, fill);
}
tigon_tensor check_in_dense(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                            check_fill fill) {
  return make(k, name, dtype, ndim, shape, true, CHECK_ROLE_IN, fill);
}
tigon_tensor check_out(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape) {
  return make(k, name, dtype, ndim, shape, false, CHECK_ROLE_OUT, CHECK_UNIFORM);
}
tigon_tensor check_out_dense(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape) {
  return make(k, name, dtype, ndim, shape, true, CHECK_ROLE_OUT, CHECK_UNIFORM);
}
tigon_tensor check_inout(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                         check_fill fill) {
  return make(k, name, dtype, ndim, shape, false, CHECK_ROLE_INOUT, fill);
}
tigon_tensor check_inout_dense(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                               check_fill fill) {
  return make(k, name, dtype, ndim, shape, true, CHECK_ROLE_INOUT, fill);
}
tigon_tensor check_in_scaled(check *k, const char *name, int ndim, const int64_t *shape, double factor) {
  if (k->timed) return check_timed_tensor(k, name, k->dtype, ndim, shape, CHECK_ROLE_IN, factor);
  const tigon_tensor t = check_inout(k, name, k->dtype, ndim, shape, CHECK_UNIFORM);
  const int64_t count = check_elements(&t), cols = shape[ndim - 1];
  for (int64_t i = 0; i < count; i += cols) {
    const int64_t at = check_offset(&t, i);
    for (int64_t j = at; j < at + cols; ++j)
      tigon_store_f64(t.data, j, k->dtype, tigon_load_f64(t.data, j, k->dtype) * factor);
  }
  return t;
}
tigon_tensor check_in_vector(check *k, const char *name, tigon_dtype dtype, int64_t n, check_fill fill) {
  return check_in_dense(k, name, dtype, 1, &n, fill);
}
tigon_tensor check_out_vector(check *k, const char *name, tigon_dtype dtype, int64_t n) {
  return check_out_dense(k, name, dtype, 1, &n);
}

tigon_tensor check_may_vector(check *k, const char *name, tigon_dtype dtype, int64_t n, check_fill fill, bool present) {
  return present ? check_in_vector(k, name, dtype, n, fill) : (tigon_tensor){0};
}
tigon_tensor check_sum_vector(check *k, const char *name, tigon_dtype dtype, int64_t n, bool present, bool accumulate) {
  if (!present) return (tigon_tensor){0};
  return accumulate ? check_inout_dense(k, name, dtype, 1, &n, CHECK_UNIFORM) : check_out_vector(k, name, dtype, n);
}
tigon_tensor check_rows(check *k, const char *name, check_fill fill, bool overwritten) {
  return overwritten ? check_inout(k, name, k->dtype, 2, k->dims, fill) : check_in(k, name, k->dtype, 2, k->dims, fill);
}

tigon_tensor check_indices(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape, int64_t low,
                           int64_t high) {
  if (k->timed) return check_timed_indices(k, name, dtype, ndim, shape, low, high);
  const tigon_tensor t = new_tensor(k, name, dtype, ndim, shape, true, CHECK_ROLE_IN);
  const int64_t count = check_elements(&t), before = check_elements_before(k, &t);
  for (int64_t i = 0; i < count && !is_shared(k, CHECK_ROLE_IN); ++i) {
    const int64_t v = low + (int64_t)(uniform(k->seed + (uint64_t)k->count, before + i) * (double)(high - low));
    if (dtype == TIGON_I64)
      ((int64_t *)t.data)[i] = v;
    else
      ((int32_t *)t.data)[i] = (int32_t)v;
  }
  keep(k);
  return t;
}

tigon_tensor check_error_flag(check *k) {
  const int64_t one = 1;
  const tigon_tensor error = check_inout_dense(k, "error", TIGON_I32, 1, &one, CHECK_UNIFORM);
  if (k->timed)
    (void)tigon_fill(k->context, error.data, 0, sizeof(int32_t));
  else
    *(int32_t *)error.data = 0;
  return error;
}

void *check_workspace(check *k, size_t bytes) {
  if (bytes == 0) return NULL;
  if (k->timed) {
    k->timed->workspace_bytes = bytes;
    return check_timed_memory(k, "workspace", bytes, false);
  }
  check_buffer *b = new_buffer(k, "workspace", bytes, 64);
  move_buffer(k, b, CHECK_ROLE_WORKSPACE, bytes);
  b->role = CHECK_ROLE_WORKSPACE;
  if (!is_over(k)) memset(b->start, 0xff, bytes);
  keep(k);
  return b->start;
}

void *check_list(check *k, const char *name, size_t bytes) {
  if (k->timed) return check_timed_memory(k, name, bytes, true);
  check_buffer *b = new_buffer(k, name, bytes, sizeof(double));
  b->role = CHECK_ROLE_SCRATCH;
  memset(b->start, 0, b->bytes);
  return b->start;
}

double *check_doubles(check *k, int64_t count) {
  if (k->timed) return NULL;
  double *numbers = check_list(k, "magnitudes", (size_t)count * sizeof *numbers);
  k->buffers[k->count - 1].numbers = true;
  return numbers;
}

/* Bytes that the run may write: the elements of outputs, all of workspace. Everything else must be as before. */
bool check_buffers_intact(check *k) {
  for (int i = 0; i < k->count; ++i) {
    check_buffer *b = &k->buffers[i];
    if (b->role == CHECK_ROLE_SCRATCH || b->inner_bytes == 0) continue;
    char *now = b->inner, *before = b->before;
    if (b->role == CHECK_ROLE_WORKSPACE) memcpy(before + (b->start - now), b->start, b->bytes);
    if (b->role == CHECK_ROLE_OUT || b->role == CHECK_ROLE_INOUT) {
      const int64_t count = check_elements(&b->tensor), cols = b->tensor.shape[b->tensor.ndim - 1];
      const size_t size = tigon_dtype_size(b->tensor.dtype);
      for (int64_t e = 0; e < count; e += cols) {
        char *at = b->start + (size_t)check_offset(&b->tensor, e) * size;
        memcpy(before + (at - now), at, size * (size_t)cols);
      }
    }
    if (memcmp(now, before, b->inner_bytes) == 0) continue;
    size_t at = 0;
    while (now[at] == before[at]) ++at;
    check_fail(k, "%s: byte %td from its start was written and must not be%s", b->name, now + at - b->start,
               b->role == CHECK_ROLE_IN ? " (an input)" : "");
    return false;
  }
  return true;
}

void check_unwritten(check *k) {
  for (int i = 0; i < k->count; ++i) {
    const check_buffer *b = &k->buffers[i];
    if (b->role != CHECK_ROLE_SCRATCH && memcmp(b->inner, b->before, b->inner_bytes) != 0)
      check_fail(k, "%s was written, and the call refused", b->name);
  }
}

void check_snapshot(check *k) {
  for (int i = 0; i < k->count; ++i)
    if (k->buffers[i].before) memcpy(k->buffers[i].before, k->buffers[i].inner, k->buffers[i].inner_bytes);
}

void check_release(check *k) {
  for (int i = 0; i < k->count; ++i) {
    check_buffer *b = &k->buffers[i];
    if (b->inner_bytes)
      unmap_guarded(b->map, b->map_bytes);
    else
      munmap(b->map, b->map_bytes);
    free(b->before);
  }
  for (int i = 0; i < k->limit_count; ++i) free(k->limits[i].of);
  free(k->limits);
  free(k->buffers);
  k->limits = NULL, k->buffers = NULL;
  k->limit_count = k->count = 0;
}
