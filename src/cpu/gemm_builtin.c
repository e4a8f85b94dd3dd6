#include "cpu/gemm_builtin.h"

#include <math.h>
#include <string.h>

#include "cpu/transpose.h"

/* A task makes one tile of c: for every block of k it packs the tile's columns of b, then a few row strips of a after
 * the other, and adds the block's products to the tile's f32 sums. All three lie in its scratch, and together in a
 * usual L2. */
enum {
  STRIP = LANES == 1 ? 4 : LANES * 3 / 4, /* rows of c in registers (AVX-512: 12, AVX2: 6) ... */
  PART = STRIP / 3,                       /* ... and in a last strip that is not full ... */
  VECTORS = LANES == 1 ? 8 : 2,           /* ... times this many vectors */
  PANEL = VECTORS * LANES,                /* columns of c in registers */
  STRIPS = 8,                             /* packed at a time, so that a transposed a is read by whole cache lines */
  K_BLOCK = 256,
  TILE_M = 264, /* multiple of every STRIP */
  TILE_N = 256, /* multiple of every PANEL */
  LEAST_M = 96, /* smaller tiles pack more than they multiply */
  LEAST_N = 64,
  LIBRARY_TILES = 16,
  AHEAD = 16, /* rows further on that are on their way to the cache */
};

typedef struct scratch {
  float b[TILE_N / PANEL][K_BLOCK][PANEL];
  float sums[TILE_M][TILE_N];
  float a[STRIPS][STRIP * K_BLOCK]; /* each [STRIP][K_BLOCK], turned: [K_BLOCK][STRIP] */
  float kept[TILE_M][TILE_N];       /* sums of pairs while some are made again */
} scratch;
_Static_assert(sizeof(scratch) <= TIGON_GEMM_SCRATCH_BYTES, "the scratch of a task");

typedef struct job {
  const tigon_queue *queue;
  const tigon_gemm_problem *p;
  int64_t tile_m, tile_n, tiles_m;
  bool library; /* makes the sums */
  bool stream;  /* c goes past the caches, which it is too large for */
} job;

/* ---- packing: words of 32 bits, absent columns 0 ----
 * A word is an element widened to f32 or, where `pairs`, two bf16 of neighbouring k as they are. */

TIGON_INLINE int64_t words_of(bool pairs, int64_t k) { return pairs ? (k + 1) / 2 : k; }

/* Up to LANES words of one row or column, whose k lie together in memory; `k` are left. */
TIGON_INLINE vf along_k(tigon_dtype dtype, bool pairs, const void *data, int64_t at, int64_t k, v_least *least) {
  if (!pairs) return k >= LANES ? v_load(data, at, dtype) : v_load_n(data, at, dtype, (int)k);
  const vf words = v_load_pairs((const uint16_t *)data + at, k < 2 * LANES ? (int)k : 2 * LANES);
  *least = v_least_pairs(*least, words);
  return words;
}

/* The words at one k of `lanes` rows or columns, which lie together in memory, the next k `pitch` later. */
TIGON_INLINE vf across_k(tigon_dtype dtype, bool pairs, const void *data, int64_t at, int64_t pitch, int64_t k,
                         int lanes, v_least *least) {
  if (!pairs) return lanes == LANES ? v_load(data, at, dtype) : v_load_n(data, at, dtype, lanes);
  const uint16_t *p = (const uint16_t *)data + at;
  const vf words = v_make_pairs(p, k > 1 ? p + pitch : NULL, lanes);
  *least = v_least_pairs(*least, words);
  return words;
}

/* Of LANES, those that are not past the end. */
TIGON_INLINE int lanes_left(int64_t left) { return left >= LANES ? LANES : left > 0 ? (int)left : 0; }

/* A block's rows are short runs far apart, which no machine sees coming: `count` elements from `at` on, and as many of the
 * next row where the words are of both. */
TIGON_INLINE void fetch(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *of, int64_t at, int count) {
  const char *line = (const char *)of->data + at * v_size(dtype);
  for (int i = 0; i < count * v_size(dtype); i += 64) {
    vf_prefetch(line + i);
    if (pairs) vf_prefetch(line + of->pitch * v_size(dtype) + i);
  }
}

/* Rows k0 .. k0 + k of b are contiguous in memory. */
TIGON_INLINE void pack_b_rows(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *b, int64_t k0, int64_t k,
                              int64_t n0, int64_t n, scratch *s, v_least *least) {
  const int64_t step = pairs ? 2 : 1;
  for (int64_t i = 0; i < k; i += step) {
    const int64_t row = (k0 + i) * b->pitch + n0;
    for (int64_t j = 0; j < n; j += PANEL) {
      fetch(dtype, pairs, b, row + AHEAD * b->pitch + j, PANEL);
      for (int64_t v = 0; v < PANEL; v += LANES) {
        const int lanes = lanes_left(n - j - v);
        vf_store(&s->b[j / PANEL][i / step][v],
                 across_k(dtype, pairs, b->data, row + (lanes > 0 ? j + v : 0), b->pitch, k - i, lanes, least));
      }
    }
  }
}

/* Columns of b are contiguous in memory: blocks of LANES x LANES words are turned. */
TIGON_INLINE void pack_b_block(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *b, int64_t at, int64_t k,
                               int cols, float *out, v_least *least) {
  vf block[LANES];
  for (int c = 0; c < LANES; ++c) {
    fetch(dtype, false, b, at + (LANES + c) * b->pitch, 1);
    block[c] = c < cols ? along_k(dtype, pairs, b->data, at + c * b->pitch, k, least) : vf_zero();
  }
  vf_transpose(block);
  const int rows = lanes_left(words_of(pairs, k));
  for (int i = 0; i < rows; ++i) vf_store(out + i * PANEL, block[i]);
}
TIGON_INLINE void pack_b_columns(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *b, int64_t k0, int64_t k,
                                 int64_t n0, int64_t n, scratch *s, v_least *least) {
  const int64_t step = pairs ? 2 : 1;
  for (int64_t j = 0; j < n; j += PANEL)
    for (int v = 0; v < PANEL; v += LANES)
      for (int64_t i = 0; i < k; i += step * LANES)
        pack_b_block(dtype, pairs, b, (n0 + j + v) * b->pitch + k0 + i, k - i, lanes_left(n - j - v),
                     &s->b[j / PANEL][i / step][v], least);
}

TIGON_INLINE void pack_b(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *b, int64_t k0, int64_t k, int64_t n0,
                         int64_t n, scratch *s, v_least *least) {
  if (b->transposed)
    pack_b_columns(dtype, pairs, b, k0, k, n0, n, s, least);
  else
    pack_b_rows(dtype, pairs, b, k0, k, n0, n, s, least);
}

/* Is the packed strip of a turned? As a lies in memory; without vectors always, which compilers turn into vectors. */
TIGON_INLINE bool turned(const tigon_gemm_matrix *a) { return LANES == 1 || a->transposed; }

/* `rows` rows of a from m0, columns k0 .. k0 + k, into strips. */
TIGON_INLINE void pack_a(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *a, int64_t m0, int rows, int64_t k0,
                         int64_t k, scratch *s, v_least *least) {
  const int64_t step = pairs ? 2 : 1;
  if (a->transposed) {
    for (int64_t j = 0; j < k; j += step)
      for (int i = 0; i < rows; i += STRIP) {
        const int64_t at = (k0 + j) * a->pitch + m0 + i, n = rows - i < STRIP ? rows - i : STRIP;
        fetch(dtype, pairs, a, at + AHEAD * a->pitch, 1);
        for (int64_t c = 0; c < n; c += LANES) {
          const int lanes = lanes_left(n - c);
          vf_store_n(&s->a[i / STRIP][j / step * STRIP + c],
                     across_k(dtype, pairs, a->data, at + c, a->pitch, k - j, lanes, least), lanes);
        }
      }
    return;
  }
  for (int i = 0; i < rows; ++i) {
    float *out = s->a[i / STRIP] + i % STRIP * (turned(a) ? 1 : K_BLOCK);
    const int64_t at = (m0 + i) * a->pitch + k0;
    int64_t j = 0;
    for (; turned(a) && j < k; ++j) out[j * STRIP] = s_load(a->data, at + j, dtype);
    for (; j < k; j += step * LANES) {
      fetch(dtype, false, a, at + AHEAD * a->pitch + j, 1);
      vf_store(out + j / step, along_k(dtype, pairs, a->data, at + j, k - j, least));
    }
  }
}

/* ---- the products of one block of k ---- */

/* sums[rows][PANEL] = or += the products of `words` words; a is laid out as `turn` says. */
TIGON_INLINE void multiply(int rows, bool turn, bool pairs, const float *a, const float *b, int64_t words, float *sums,
                           bool first) {
  vf total[STRIP][VECTORS];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) total[i][v] = vf_zero();
  for (int64_t j = 0; j < words; ++j) {
    vf column[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) column[v] = vf_load(b + j * PANEL + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const vf row = vf_set(turn ? a[j * STRIP + i] : a[i * K_BLOCK + j]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v)
        total[i][v] = pairs ? v_dot_pairs(row, column[v], total[i][v]) : vf_fma(row, column[v], total[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      float *at = sums + i * TILE_N + v * LANES;
      vf_store(at, first ? total[i][v] : vf_add(vf_load(at), total[i][v]));
    }
}

/* `rows` is STRIP, PART or 1. */
TIGON_INLINE void multiply_rows(int rows, bool turn, bool pairs, const float *a, const float *b, int64_t words,
                                float *sums, bool first) {
  if (rows == STRIP)
    multiply(STRIP, turn, pairs, a, b, words, sums, first);
  else if (rows == PART)
    multiply(PART, turn, pairs, a, b, words, sums, first);
  else
    multiply(1, turn, pairs, a, b, words, sums, first);
}

/* sums[rows][n], for the packed strips of a. */
TIGON_INLINE void multiply_panels(bool turn, bool pairs, const scratch *s, int rows, int64_t words, int64_t n,
                                  float *sums, bool first) {
  for (int64_t j = 0; j < n; j += PANEL)
    for (int i = 0; i < rows;) {
      const int left = rows - i, step = left >= STRIP ? STRIP : left >= PART ? PART : 1;
      const float *a = s->a[i / STRIP] + i % STRIP * (turn ? 1 : K_BLOCK);
      multiply_rows(step, turn, pairs, a, s->b[j / PANEL][0], words, sums + i * TILE_N + j, first);
      i += step;
    }
}

/* ---- the tile's way out ---- */

TIGON_INLINE void store_tile(tigon_dtype dtype, const tigon_gemm_problem *p, const scratch *s, int64_t m0, int64_t m,
                             int64_t n0, int64_t n, bool stream) {
  for (int64_t i = 0; i < m; ++i) {
    const int64_t row = (m0 + i) * p->c_pitch + n0;
    for (int64_t j = 0; j < n; j += LANES) {
      const int lanes = n - j >= LANES ? LANES : (int)(n - j);
      vf x = vf_load(&s->sums[i][j]);
      if (p->bias) x = vf_add(x, v_load_n(p->bias, n0 + j, p->bias_dtype, lanes));
      if (p->sums) x = vf_add(x, vf_load_n(p->sums + (m0 + i) * p->n + n0 + j, lanes));
      if (p->accumulate) x = vf_add(x, v_load_n(p->c, row + j, dtype, lanes));
      if (lanes == LANES)
        v_put(p->c, row + j, dtype, x, stream);
      else
        v_store_n(p->c, row + j, dtype, x, lanes);
    }
  }
}

static void clear_sums(scratch *s, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += LANES) vf_store(&s->sums[i][j], vf_zero());
}

/* s->sums of the tile; of pairs also the least magnitudes of a and b that are not 0, 0 where all are. */
TIGON_INLINE void multiply_tile(bool pairs, const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n,
                                scratch *s, float *least_a, float *least_b) {
  v_least in_a = v_least_none(), in_b = v_least_none();
  if (p->k == 0) clear_sums(s, m, n);
  for (int64_t k0 = 0; k0 < p->k; k0 += K_BLOCK) {
    const int64_t k = p->k - k0 < K_BLOCK ? p->k - k0 : K_BLOCK, words = words_of(pairs, k);
    TIGON_FOR_DTYPE(pairs ? TIGON_BF16 : p->b.dtype, pack_b, pairs, &p->b, k0, k, n0, n, s, &in_b);
    for (int64_t i = 0; i < m; i += STRIPS * STRIP) {
      const int rows = m - i < STRIPS * STRIP ? (int)(m - i) : STRIPS * STRIP;
      TIGON_FOR_DTYPE(pairs ? TIGON_BF16 : p->a.dtype, pack_a, pairs, &p->a, m0 + i, rows, k0, k, s, &in_a);
      if (turned(&p->a))
        multiply_panels(true, pairs, s, rows, words, n, s->sums[i], k0 == 0);
      else
        multiply_panels(false, pairs, s, rows, words, n, s->sums[i], k0 == 0);
    }
  }
  *least_a = v_least_value(in_a);
  *least_b = v_least_value(in_b);
}

static void multiply_floats(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, scratch *s) {
  float unused;
  multiply_tile(false, p, m0, m, n0, n, s, &unused, &unused);
}

/* ---- pairs, whose instruction takes what is denormal for 0, factors and sums ----
 * A sum of 2^-80 and more whose factors are not denormal lost at most k * 2^-126, less than a rounding for k < 2^22. The
 * others are made again in f32. Which ones depends on their row of a and their column of b alone, as their bits do. */

static bool has_denormal(const uint16_t *data, int64_t pitch, int64_t k) {
  for (int64_t i = 0; i < k; ++i)
    if ((data[i * pitch] & 0x7f80) == 0 && (data[i * pitch] & 0x7f) != 0) return true;
  return false;
}

/* For rows m0 .. m0 + m of a, or so many columns of b, the least sum that is good: `usual`, or NaN where a factor is
 * denormal. `across`: the row's elements are a pitch apart. */
static void least_sums(const tigon_gemm_matrix *a, bool across, int64_t m0, int64_t m, int64_t k, bool look,
                       float usual, float *least) {
  for (int64_t i = 0; i < m; ++i) {
    const uint16_t *data = (const uint16_t *)a->data + (m0 + i) * (across ? 1 : a->pitch);
    least[i] = look && has_denormal(data, across ? a->pitch : 1, k) ? NAN : usual;
  }
}

TIGON_INLINE vm is_good(const float *sums, float of_row, const float *of_column) {
  return vf_le(vf_add(vf_set(of_row), vf_load(of_column)), vf_abs(vf_load(sums)));
}

static void multiply_pairs(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, scratch *s) {
  float least_a, least_b;
  multiply_tile(true, p, m0, m, n0, n, s, &least_a, &least_b);
  if (least_a == 0 || least_b == 0) return; /* every product is as it should be */
  const bool denormal = least_a < 0x1p-126f || least_b < 0x1p-126f;
  float of_row[TILE_M], of_column[TILE_N] = {0};
  least_sums(&p->a, p->a.transposed, m0, m, p->k, denormal, 0, of_row);
  least_sums(&p->b, !p->b.transposed, n0, n, p->k, denormal, 0x1p-80f, of_column);
  vf good = vf_set(1);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += LANES)
      good = vf_select(is_good(s->sums[i] + j, of_row[i], of_column + j), good, vf_zero());
  if (vf_sum(good) == LANES) return;
  memcpy(s->kept, s->sums, sizeof s->kept);
  multiply_floats(p, m0, m, n0, n, s);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += LANES) {
      const vm keep = is_good(s->kept[i] + j, of_row[i], of_column + j);
      vf_store(s->sums[i] + j, vf_select(keep, vf_load(s->kept[i] + j), vf_load(s->sums[i] + j)));
    }
}

static void make_tile(const job *j, int64_t index) {
  const tigon_gemm_problem *p = j->p;
  const int64_t m0 = index % j->tiles_m * j->tile_m, n0 = index / j->tiles_m * j->tile_n;
  const int64_t m = p->m - m0 < j->tile_m ? p->m - m0 : j->tile_m, n = p->n - n0 < j->tile_n ? p->n - n0 : j->tile_n;
  scratch *s = tigon_gemm_scratch_take(j->queue);
  if (!j->library || !tigon_gemm_tile(p, m0, m, n0, n, s->sums[0], TILE_N)) {
    if (V_PAIRS && p->a.dtype == TIGON_BF16 && p->b.dtype == TIGON_BF16)
      multiply_pairs(p, m0, m, n0, n, s);
    else
      multiply_floats(p, m0, m, n0, n, s);
  }
  if (j->stream)
    TIGON_FOR_DTYPE(p->c_dtype, store_tile, p, s, m0, m, n0, n, true);
  else
    TIGON_FOR_DTYPE(p->c_dtype, store_tile, p, s, m0, m, n0, n, false);
  if (j->stream) vf_fence();
  tigon_gemm_scratch_give(j->queue, s);
}

/* The largest tile size of at most `limit` that cuts `extent` evenly, rounded up to `unit`. */
static int64_t even_tile(int64_t extent, int64_t limit, int64_t unit) {
  const int64_t tiles = (extent + limit - 1) / limit, tile = (extent + tiles - 1) / tiles;
  return (tile + unit - 1) / unit * unit;
}

/* A c that the caches of most machines cannot hold until somebody reads it. */
static bool streams(const tigon_gemm_problem *p) {
  enum { CACHES = 4 };
  const int64_t size = (int64_t)tigon_dtype_size(p->c_dtype);
  return !p->accumulate && tigon_cpu_streams(p->m * p->n * size / CACHES) &&
         ((uintptr_t)p->c | (uintptr_t)(p->c_pitch * size)) % V_LINE == 0;
}

/* Halves tiles until there are as many as are wanted; *tiles is how many there are. */
static job cut(const tigon_queue *queue, const tigon_gemm_problem *p, int64_t share, int64_t *tiles) {
  job j = {queue, p, 0, 0, 0, tigon_gemm_makes_tiles(queue, p), streams(p)};
  const int64_t wanted = j.library ? LIBRARY_TILES : share; /* a library's bits may depend on its tiles */
  int64_t limit_m = TILE_M, limit_n = TILE_N;
  for (;;) {
    j.tile_m = even_tile(p->m, limit_m, STRIP);
    j.tile_n = even_tile(p->n, limit_n, PANEL);
    j.tiles_m = (p->m + j.tile_m - 1) / j.tile_m;
    *tiles = j.tiles_m * ((p->n + j.tile_n - 1) / j.tile_n);
    const bool wide = j.tile_m >= 2 * LEAST_M, tall = j.tile_n >= 2 * LEAST_N;
    if (*tiles >= wanted || (!wide && !tall)) return j;
    if (wide && (j.tile_m >= j.tile_n || !tall))
      limit_m = j.tile_m / 2;
    else
      limit_n = j.tile_n / 2;
  }
}

typedef struct group {
  int count;
  job jobs[GEMM_GROUP];
  int64_t ends[GEMM_GROUP]; /* of each one's tasks */
} group;

static void task(const void *argument, int64_t index) {
  const group *g = argument;
  int i = 0;
  while (index >= g->ends[i]) ++i;
  make_tile(&g->jobs[i], index - (i > 0 ? g->ends[i - 1] : 0));
}

void TIGON_CPU(gemm)(const tigon_queue *queue, const tigon_gemm_problem *problems, int count) {
  group g;
  int64_t tasks = 0;
  g.count = 0;
  for (int i = 0; i < count; ++i) {
    const tigon_gemm_problem *p = &problems[i];
    if (p->m == 0 || p->n == 0 || tigon_gemm_library(queue, p)) continue;
    int64_t tiles;
    g.jobs[g.count] = cut(queue, p, (2 * queue->threads + count - 1) / count, &tiles);
    g.ends[g.count++] = tasks += tiles;
  }
  tigon_cpu_parallel(queue, tasks, task, &g);
}
