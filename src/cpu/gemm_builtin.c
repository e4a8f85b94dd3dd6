#include "cpu/gemm_builtin.h"

#include <math.h>
#include <string.h>

#include "cpu/gemm_pack.h"

typedef struct job {
  const tigon_queue *queue;
  const tigon_gemm_problem *p;
  int64_t tile_m, tile_n, tiles_m;
  bool library; /* makes the sums */
  bool stream;  /* c goes past the caches, which it is too large for */
} job;

typedef struct region {
  int64_t m0, m, n0, n;
} region;

/* ---- the products of one block of k ---- */

/* total += the products of word j. */
TIGON_INLINE void multiply_word(int rows, bool turn, bool pairs, const float *a, const float *b, int64_t j,
                                vf total[ROWS][VECTORS]) {
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

/* sums[rows][PANEL] = or += the products of `words` words; a is laid out as `turn` says. */
TIGON_INLINE void multiply(int rows, bool turn, bool pairs, const float *a, const float *b, int64_t words, float *sums,
                           bool first, ahead next[2]) {
  vf total[ROWS][VECTORS];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) total[i][v] = vf_zero();
  for (int64_t j = 0; j < words;) {
    const char *line = (const char *)a; /* which is in the cache */
    const int64_t left = words - j, lines = ahead_take(next, (left + AHEAD_WORDS - 1) / AHEAD_WORDS, &line);
    const int64_t step = lines > 0 ? 64 / AHEAD_WORDS : 0; /* each of a line's words asks for it: no branch */
    const int64_t along = lines > 0 ? lines * AHEAD_WORDS : left, end = along < left ? j + along : words;
    for (; j < end; ++j, line += step) {
      vf_prefetch(line);
      multiply_word(rows, turn, pairs, a, b, j, total);
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

/* `rows` is ROWS, PART or 1. */
TIGON_INLINE void multiply_rows(int rows, bool turn, bool pairs, const float *a, const float *b, int64_t words,
                                float *sums, bool first, ahead next[2]) {
  if (rows == ROWS)
    multiply(ROWS, turn, pairs, a, b, words, sums, first, next);
  else if (rows == PART)
    multiply(PART, turn, pairs, a, b, words, sums, first, next);
  else
    multiply(1, turn, pairs, a, b, words, sums, first, next);
}

/* ---- the way out ---- */

/* What LANES columns of row i become, `lanes` of which there are. */
TIGON_INLINE vf finished(tigon_dtype dtype, const tigon_gemm_problem *p, vf x, int64_t i, int64_t j, int lanes) {
  if (p->bias) x = vf_add(x, v_load_n(p->bias, j, p->bias_dtype, lanes));
  if (p->sums) x = vf_add(x, vf_load_n(p->sums + i * p->n + j, lanes));
  if (p->accumulate) x = vf_add(x, v_load_n(p->c, i * p->c_pitch + j, dtype, lanes));
  return x;
}

TIGON_INLINE void store_rows(tigon_dtype dtype, const tigon_gemm_problem *p, const float *sums, int64_t m0, int64_t m,
                             int64_t n0, int64_t n, bool stream) {
  for (int64_t i = m0; i < m0 + m; ++i, sums += TILE_N) {
    const int64_t row = i * p->c_pitch + n0;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
      const vf a = finished(dtype, p, vf_load(sums + j), i, n0 + j, LANES);
      const vf b = finished(dtype, p, vf_load(sums + j + LANES), i, n0 + j + LANES, LANES);
      v_put_both(p->c, row + j, dtype, a, b, stream);
    }
    for (; j < n; j += LANES) {
      const int lanes = n - j >= LANES ? LANES : (int)(n - j);
      v_store_n(p->c, row + j, dtype, finished(dtype, p, vf_load(sums + j), i, n0 + j, lanes), lanes);
    }
  }
}

/* sums[m, n] to rows m0 .. and columns n0 .. of c. */
static void store(const job *j, const float *sums, int64_t m0, int64_t m, int64_t n0, int64_t n) {
  if (j->stream)
    TIGON_FOR_DTYPE(j->p->c_dtype, store_rows, j->p, sums, m0, m, n0, n, true);
  else
    TIGON_FOR_DTYPE(j->p->c_dtype, store_rows, j->p, sums, m0, m, n0, n, false);
}

/* The lines of a block of c: a store that misses would wait. */
TIGON_INLINE void fetch_rows(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n) {
  const int64_t size = (int64_t)tigon_dtype_size(p->c_dtype);
  for (int64_t i = m0; i < m0 + m; ++i) {
    const char *row = (const char *)p->c + (i * p->c_pitch + n0) * size;
    for (int64_t at = 0; at < n * size; at += 64) vf_prefetch(row + at);
  }
}

/* Pairs whose sums are as large as this are good; NaN is not. */
TIGON_INLINE vm is_good(const float *sums, float of_row, const float *of_column) {
  return vf_le(vf_add(vf_set(of_row), vf_load(of_column)), vf_abs(vf_load(sums)));
}

TIGON_INLINE void note_good(const float *sums, int rows, const float *of_column, float *good) {
  vf all = vf_load(good);
  for (int v = 0; v < PANEL; v += LANES) {
    const vf least = vf_load(of_column + v);
    for (int i = 0; i < rows; ++i)
      all = vf_select(vf_le(least, vf_abs(vf_load(sums + i * TILE_N + v))), all, vf_zero());
  }
  vf_store(good, all);
}

/* ---- a tile ---- */

/* Where the packed strips of a lie in the tile, and what becomes of their products. */
typedef struct strips {
  const job *j;
  const region *t;
  int64_t i; /* the first row */
  int rows;
  bool first, last; /* whether this is the first or last block of k */
  bool stores;      /* the last block's sums go to c while they are in the L1 */
} strips;

TIGON_INLINE void multiply_panels(bool turn, bool pairs, const strips *of, int64_t words, scratch *s, ahead next[2]) {
  const region *t = of->t;
  for (int i = 0, step = 0; i < of->rows; i += step) {
    const int left = of->rows - i;
    step = left >= ROWS ? ROWS : left >= PART ? PART : 1;
    const float *a = s->a[i / STRIP] + i % STRIP * (turn ? 1 : K_BLOCK);
    for (int64_t j = 0; j < t->n; j += PANEL) {
      float *sums = &s->sums[of->i + i][j];
      const int64_t m0 = t->m0 + of->i + i, n0 = t->n0 + j, n = t->n - j < PANEL ? t->n - j : PANEL;
      if (of->stores && !of->j->stream) fetch_rows(of->j->p, m0, step, n0, n);
      multiply_rows(step, turn, pairs, a, s->b[j / PANEL][0], words, sums, of->first, next);
      if (pairs && of->last) note_good(sums, step, s->least + j, s->good);
      if (of->stores) store(of->j, sums, m0, step, n0, n);
    }
  }
}

static void clear_sums(scratch *s, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += LANES) vf_store(&s->sums[i][j], vf_zero());
}

static int64_t block_from(const tigon_gemm_problem *p, int64_t k0) { return p->k - k0 < K_BLOCK ? p->k - k0 : K_BLOCK; }

/* s->sums of the tile, and c where `stores`. `next` is the tile that most likely follows. Of pairs also the least magnitudes of a
 * and b that are not 0, 0 where all are, and s->good. */
TIGON_INLINE void multiply_tile(bool pairs, const job *of, const region *t, const region *next, bool stores, scratch *s,
                                float *least_a, float *least_b) {
  const tigon_gemm_problem *p = of->p;
  v_least in_a = v_least_none(), in_b = v_least_none();
  if (p->k == 0) clear_sums(s, t->m, t->n);
  for (int64_t k0 = 0; k0 < p->k; k0 += K_BLOCK) {
    const int64_t k = block_from(p, k0), words = words_of(pairs, k);
    const bool last = k == p->k - k0;
    const region *then = last ? next : t; /* which the next block is of */
    const int64_t then_k0 = last ? 0 : k0 + K_BLOCK, then_k = block_from(p, then_k0);
    ahead both[2] = {{0}, ahead_of(&p->b, p->b.transposed, then->n0, then->n, then_k0, then_k)};
    TIGON_FOR_DTYPE(pairs ? TIGON_BF16 : p->b.dtype, pack_b, pairs, &p->b, k0, k, t->n0, t->n, s, &in_b);
    for (int64_t i = 0; i < t->m; i += GROUP) {
      const int64_t left = t->m - i - GROUP;
      const strips some = {of, t, i, left < 0 ? (int)(t->m - i) : GROUP, k0 == 0, last, stores && last};
      TIGON_FOR_DTYPE(pairs ? TIGON_BF16 : p->a.dtype, pack_a, pairs, &p->a, t->m0 + i, some.rows, k0, k, s, &in_a);
      if (left > 0)
        both[0] = ahead_of(&p->a, !p->a.transposed, t->m0 + i + GROUP, left < GROUP ? left : GROUP, k0, k);
      else
        both[0] = ahead_of(&p->a, !p->a.transposed, then->m0, then->m < GROUP ? then->m : GROUP, then_k0, then_k);
      if (turned(&p->a))
        multiply_panels(true, pairs, &some, words, s, both);
      else
        multiply_panels(false, pairs, &some, words, s, both);
    }
  }
  *least_a = v_least_value(in_a);
  *least_b = v_least_value(in_b);
}

static void multiply_floats(const job *j, const region *t, const region *next, bool stores, scratch *s) {
  float unused;
  multiply_tile(false, j, t, next, stores, s, &unused, &unused);
}

/* ---- pairs, whose instruction takes what is denormal for 0, factors and sums ----
 * A sum of 2^-80 and more whose factors are not denormal lost at most k * 2^-126, less than a rounding for k < 2^22, and one whose
 * row or column is 0 lost nothing. The others are made again in f32. Which ones depends on their row of a and their column of b
 * alone, as their bits do. */

enum { TILE_MOST = TILE_M > TILE_N ? TILE_M : TILE_N };

/* `any`: all magnitudes of a row, or'ed; `denormal`: not 0 where one is. `across`: a row's elements are a pitch apart. */
static void look_at(const tigon_gemm_matrix *a, bool across, int64_t m0, int64_t m, int64_t k, uint16_t *any,
                    uint16_t *denormal) {
  memset(any, 0, TILE_MOST * sizeof *any);
  memset(denormal, 0, TILE_MOST * sizeof *denormal);
  const int64_t outer = across ? k : m, inner = across ? m : k;
  for (int64_t i = 0; i < outer; ++i) {
    const uint16_t *data = (const uint16_t *)a->data + (across ? i * a->pitch + m0 : (m0 + i) * a->pitch);
    uint16_t all = 0, found = 0;
    for (int64_t j = 0; j < inner; ++j) {
      const uint16_t magnitude = data[j] & 0x7fff, is = (uint16_t)(magnitude - 1) < 0x7f;
      if (across)
        any[j] |= magnitude, denormal[j] |= is;
      else
        all |= magnitude, found |= is;
    }
    if (!across) any[i] = all, denormal[i] = found;
  }
}

/* For so many rows of a, or columns of b, the least sum that is good: `usual`; `zero` where all is 0; NaN where a factor is
 * denormal. */
static void least_sums(const tigon_gemm_matrix *a, bool across, int64_t m0, int64_t m, int64_t k, float usual,
                       float zero, float *least) {
  uint16_t any[TILE_MOST], denormal[TILE_MOST];
  look_at(a, across, m0, m, k, any, denormal);
  for (int64_t i = 0; i < m; ++i) least[i] = denormal[i] ? NAN : any[i] ? usual : zero;
}

static const float good_sum = 0x1p-80f;

/* Is c stored, too? */
static bool multiply_pairs(const job *j, const region *t, const region *next, bool stores, scratch *s) {
  const tigon_gemm_problem *p = j->p;
  float least_a, least_b, of_row[TILE_M];
  for (int64_t i = 0; i < TILE_N; ++i) s->least[i] = i < t->n ? good_sum : 0;
  vf_store(s->good, vf_set(1));
  multiply_tile(true, j, t, next, stores, s, &least_a, &least_b);
  if (least_a == 0 || least_b == 0) return stores; /* every product is as it should be */
  const bool denormal = least_a < 0x1p-126f || least_b < 0x1p-126f;
  if (!denormal && vf_sum(vf_load(s->good)) == LANES) return stores;
  least_sums(&p->a, p->a.transposed, t->m0, t->m, p->k, 0, -good_sum, of_row);
  least_sums(&p->b, !p->b.transposed, t->n0, t->n, p->k, good_sum, 0, s->least);
  vf good = vf_set(1);
  for (int64_t i = 0; i < t->m; ++i)
    for (int64_t n = 0; n < t->n; n += LANES)
      good = vf_select(is_good(s->sums[i] + n, of_row[i], s->least + n), good, vf_zero());
  if (vf_sum(good) == LANES) return stores;
  memcpy(s->kept, s->sums, sizeof s->kept);
  multiply_floats(j, t, &(region){0}, false, s);
  for (int64_t i = 0; i < t->m; ++i)
    for (int64_t n = 0; n < t->n; n += LANES) {
      const vm keep = is_good(s->kept[i] + n, of_row[i], s->least + n);
      vf_store(s->sums[i] + n, vf_select(keep, vf_load(s->kept[i] + n), vf_load(s->sums[i] + n)));
    }
  return false;
}

/* {0} past the last one. */
static region tile_at(const job *j, int64_t index) {
  const int64_t m0 = index % j->tiles_m * j->tile_m, n0 = index / j->tiles_m * j->tile_n;
  const int64_t m = j->p->m - m0, n = j->p->n - n0;
  if (n <= 0) return (region){0};
  return (region){m0, m < j->tile_m ? m : j->tile_m, n0, n < j->tile_n ? n : j->tile_n};
}

static void make_tile(const job *j, int64_t index) {
  const tigon_gemm_problem *p = j->p;
  const region t = tile_at(j, index), next = tile_at(j, index + j->queue->threads);
  const bool stores = !p->accumulate && p->k > 0; /* at once; an old c is there for good sums alone */
  scratch *s = tigon_gemm_scratch_take(j->queue);
  bool stored = false;
  if (!j->library || !tigon_gemm_tile(p, t.m0, t.m, t.n0, t.n, s->sums[0], TILE_N)) {
    stored = stores;
    if (V_PAIRS && p->a.dtype == TIGON_BF16 && p->b.dtype == TIGON_BF16)
      stored = multiply_pairs(j, &t, &next, stores, s);
    else
      multiply_floats(j, &t, &next, stores, s);
  }
  if (!stored) store(j, s->sums[0], t.m0, t.m, t.n0, t.n);
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
  int64_t ends[GEMM_GROUP]; /* ends of each one's tasks */
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
