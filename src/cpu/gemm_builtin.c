#include "cpu/gemm_builtin.h"

#include <math.h>
#include <string.h>

#include "cpu/gemm_tiles.h"

/* How products are made. What instructions for the last two lose is made again by the first. */
typedef enum maker { FLOATS, PAIRS, BY_TILES } maker;

typedef struct job {
  const tigon_queue *queue;
  const tigon_gemm_problem *p;
  int64_t tile_m, tile_n, tiles_m;
  bool library; /* makes the sums */
  bool stream;  /* c goes past the caches, which it is too large for */
} job;

static maker maker_of(const tigon_gemm_problem *p) {
  return TILES ? BY_TILES : V_PAIRS && are_plain(p) ? PAIRS : FLOATS;
}

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
      float *at = sums + i * PITCH + v * LANES;
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
  for (int64_t i = m0; i < m0 + m; ++i, sums += PITCH) {
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

/* Sums as large as `least` are good, those of split factors up to `most`; NaN is not. */
TIGON_INLINE vm is_good(const float *sums, vf least, vf most) {
  const vf sum = vf_abs(vf_load(sums));
  return vf_le(least, vf_select(vf_le(sum, most), sum, vf_set(-1)));
}
TIGON_INLINE float most_sum(const tigon_gemm_problem *p) { return are_plain(p) ? INFINITY : 0x1p127f; }

TIGON_INLINE void note_good(const float *sums, int rows, const float *of_column, float most, float *good) {
  vf all = vf_load(good);
  for (int v = 0; v < PANEL; v += LANES) {
    const vf least = vf_load(of_column + v);
    for (int i = 0; i < rows; ++i) all = vf_select(is_good(sums + i * PITCH + v, least, vf_set(most)), all, vf_zero());
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

TIGON_INLINE void multiply_panels(bool turn, maker by, const strips *of, int64_t k, scratch *s, ahead next[2]) {
  const region *t = of->t;
  const tigon_gemm_problem *p = of->j->p;
  for (int i = 0, step = 0; i < of->rows; i += step) {
    const int left = of->rows - i, tiles = left < 2 * TILE ? left : 2 * TILE;
    step = by == BY_TILES ? tiles : left >= ROWS ? ROWS : left >= PART ? PART : 1;
    const float *a = by == BY_TILES ? s->a[0] + i / TILE * A_TILES : s->a[i / STRIP] + i % STRIP * (turn ? 1 : K_BLOCK);
    for (int64_t j = 0; j < t->n; j += PANEL) {
      float *sums = &s->sums[of->i + i][j];
      const int64_t m0 = t->m0 + of->i + i, n0 = t->n0 + j, n = t->n - j < PANEL ? t->n - j : PANEL;
      if (of->stores && !of->j->stream) fetch_rows(p, m0, step, n0, n);
      if (by == BY_TILES)
        multiply_tiles(p, step, a, s->b[j / PANEL][0], k, sums, of->first, next);
      else
        multiply_rows(step, turn, by == PAIRS, a, s->b[j / PANEL][0], words_of(by == PAIRS, k), sums, of->first, next);
      if (by != FLOATS && of->last) note_good(sums, step, s->least + j, most_sum(p), s->good);
      if (of->stores) store(of->j, sums, m0, step, n0, n);
    }
  }
}

static void clear_sums(scratch *s, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += LANES) vf_store(&s->sums[i][j], vf_zero());
}

/* How much of k is packed at a time. Planes have half as much, so that all of them have room. Tiles of bf16 go on with their
 * sums, so that their bits do not depend on it. Twice as much is faster where many rows of a share a b that is turned. */
TIGON_INLINE int64_t block_of(maker by, const tigon_gemm_problem *p, int64_t m) {
  if (by != BY_TILES) return K_BLOCK;
  return !are_plain(p) ? K_BLOCK / 2 : p->b.transposed && m > TILE_M / 2 ? 2 * K_BLOCK : K_BLOCK;
}

/* s->sums of the tile, and c where `stores`. `next` is the tile that most likely follows. Of pairs and tiles also what a's and b's
 * factors are, and s->good. */
TIGON_INLINE void multiply_tile(maker by, const job *of, const region *t, const region *next, bool stores, scratch *s,
                                factors *a, factors *b) {
  const tigon_gemm_problem *p = of->p;
  const bool pairs = by == PAIRS;
  const int64_t block = block_of(by, p, t->m);
  seen in_a = seen_none(), in_b = seen_none();
  if (p->k == 0) clear_sums(s, t->m, t->n);
  for (int64_t k0 = 0, k; k0 < p->k; k0 += k) {
    k = p->k - k0 < block ? p->k - k0 : block;
    const bool last = k == p->k - k0;
    const region *then = last ? next : t; /* which the next block is of */
    const int64_t then_k0 = last ? 0 : k0 + k, then_k = p->k - then_k0 < block ? p->k - then_k0 : block;
    ahead both[2] = {{0}, ahead_of(&p->b, p->b.transposed, then->n0, then->n, then_k0, then_k)};
    if (by == BY_TILES)
      tiles_pack_b(p, k0, k, t->n0, t->n, s, &in_b);
    else
      TIGON_FOR_DTYPE(pairs ? TIGON_BF16 : p->b.dtype, pack_b, pairs, &p->b, k0, k, t->n0, t->n, s, &in_b.least);
    for (int64_t i = 0; i < t->m; i += GROUP) {
      const int64_t left = t->m - i - GROUP;
      const strips some = {of, t, i, left < 0 ? (int)(t->m - i) : GROUP, k0 == 0, last, stores && last};
      if (by == BY_TILES) { /* a, which other tiles have packed before, is in a cache */
        tiles_pack_a(p, t->m0 + i, some.rows, k0, k, s, &in_a);
        multiply_panels(false, by, &some, k, s, both);
        continue;
      }
      TIGON_FOR_DTYPE(pairs ? TIGON_BF16 : p->a.dtype, pack_a, pairs, &p->a, t->m0 + i, some.rows, k0, k, s,
                      &in_a.least);
      if (left > 0)
        both[0] = ahead_of(&p->a, !p->a.transposed, t->m0 + i + GROUP, left < GROUP ? left : GROUP, k0, k);
      else
        both[0] = ahead_of(&p->a, !p->a.transposed, then->m0, then->m < GROUP ? then->m : GROUP, then_k0, then_k);
      if (turned(&p->a))
        multiply_panels(true, by, &some, k, s, both);
      else
        multiply_panels(false, by, &some, k, s, both);
    }
  }
  *a = seen_factors(are_plain(p), in_a);
  *b = seen_factors(are_plain(p), in_b);
}

static void multiply_floats(const job *j, const region *t, const region *next, bool stores, scratch *s) {
  factors unused;
  multiply_tile(FLOATS, j, t, next, stores, s, &unused, &unused);
}

/* ---- pairs and tiles, whose instructions take what is denormal for 0, factors and sums ----
 * A sum of 2^-80 and more whose factors are not hard lost at most 6 k * 2^-126. That is less than a rounding for k < 2^19. A sum
 * whose row or column is 0 lost nothing. The others are made again in f32. Their row of a and column of b alone decide which
 * ones, so that bits do not depend on other rows. */

enum { TILE_MOST = TILE_M > TILE_N ? TILE_M : TILE_N };
enum { FEW = 512 }; /* sums take as long by themselves as a whole tile */
static const float good_sum = 0x1p-80f;

/* For so many rows of a, or columns of b, the least sum that is good: `usual`; `zero` where all is 0; NaN where a factor is
 * hard. `across`: a row's elements are a pitch apart. */
TIGON_INLINE void least_sums(tigon_dtype dtype, bool plain, const tigon_gemm_matrix *a, bool across, int64_t m0,
                             int64_t m, int64_t k, float usual, float zero, float *least) {
  const float low = plain ? LEAST_PLAIN : LEAST_SPLIT, high = plain ? INFINITY : MOST_SPLIT;
  factors of[TILE_MOST] = {ALL_ZERO};
  for (int64_t i = 0; i < (across ? k : m); ++i)
    for (int64_t j = 0; j < (across ? m : k); ++j) {
      const int64_t at = across ? i * a->pitch + m0 + j : (m0 + i) * a->pitch + j;
      const float magnitude = fabsf(s_load(a->data, at, dtype));
      const factors is = factors_between(magnitude, magnitude, low, high);
      factors *row = &of[across ? j : i];
      if (is > *row) *row = is;
    }
  for (int64_t i = 0; i < m; ++i) least[i] = of[i] == HARD ? NAN : of[i] == USUAL ? usual : zero;
}

/* The sum of one element, by the additions of multiply_floats(). */
TIGON_INLINE float one_sum(tigon_dtype dtype, const tigon_gemm_problem *p, int64_t row, int64_t column) {
  const int64_t a_step = p->a.transposed ? p->a.pitch : 1, b_step = p->b.transposed ? 1 : p->b.pitch;
  const int64_t a = p->a.transposed ? row : row * p->a.pitch, b = p->b.transposed ? column * p->b.pitch : column;
  float sum = 0;
  for (int64_t k0 = 0; k0 < p->k; k0 += K_BLOCK) {
    float total = 0;
    for (int64_t k = k0; k < p->k && k < k0 + K_BLOCK; ++k)
      total = fmaf(s_load(p->a.data, a + k * a_step, dtype), s_load(p->b.data, b + k * b_step, p->b.dtype), total);
    sum = k0 == 0 ? total : sum + total;
  }
  return sum;
}

/* Makes the tile's sums that are not good again, one by one, up to FEW. How many there are; more than FEW: it has stopped. Among many
 * sums one is exactly 0 by chance. */
static int64_t make_few_again(const tigon_gemm_problem *p, const region *t, scratch *s, const float *of_row) {
  int64_t made = 0;
  for (int64_t i = 0; i < t->m; ++i)
    for (int64_t n = 0; n < t->n; n += LANES) {
      const vf least = vf_add(vf_set(of_row[i]), vf_load(s->least + n));
      if (vf_sum(vf_select(is_good(s->sums[i] + n, least, vf_set(most_sum(p))), vf_set(1), vf_zero())) == LANES)
        continue;
      for (int64_t j = n; j < n + LANES && j < t->n; ++j) {
        const float sum = fabsf(s->sums[i][j]);
        if (of_row[i] + s->least[j] <= sum && sum <= most_sum(p)) continue;
        if (++made > FEW) return made;
        TIGON_FOR_DTYPE(p->a.dtype, s->sums[i][j] = one_sum, p, t->m0 + i, t->n0 + j);
      }
    }
  return made;
}

/* Is c stored, too? */
static bool multiply_checked(const job *j, const region *t, const region *next, bool stores, scratch *s) {
  const tigon_gemm_problem *p = j->p;
  factors a, b;
  float of_row[TILE_M];
  for (int64_t i = 0; i < TILE_N; ++i) s->least[i] = i < t->n ? good_sum : 0;
  vf_store(s->good, vf_set(1));
  tiles_begin();
  multiply_tile(TILES ? BY_TILES : PAIRS, j, t, next, stores, s, &a, &b);
  tiles_end();
  const bool hard = a == HARD || b == HARD;
  if ((a == ALL_ZERO || b == ALL_ZERO) && (!hard || are_plain(p))) return stores; /* every product is as it should be */
  if (!hard && vf_sum(vf_load(s->good)) == LANES) return stores;
  TIGON_FOR_DTYPE(p->a.dtype, least_sums, are_plain(p), &p->a, p->a.transposed, t->m0, t->m, p->k, 0, -good_sum,
                  of_row);
  TIGON_FOR_DTYPE(p->b.dtype, least_sums, are_plain(p), &p->b, !p->b.transposed, t->n0, t->n, p->k, good_sum, 0,
                  s->least);
  const int64_t made = make_few_again(p, t, s, of_row);
  if (made <= FEW) return made == 0 && stores;
  for (int64_t i = 0; i < t->m; ++i) memcpy(s->kept[i], s->sums[i], (size_t)t->n * sizeof *s->kept[i]);
  multiply_floats(j, t, &(region){0}, false, s);
  for (int64_t i = 0; i < t->m; ++i)
    for (int64_t n = 0; n < t->n; n += LANES) {
      const vm keep = is_good(s->kept[i] + n, vf_add(vf_set(of_row[i]), vf_load(s->least + n)), vf_set(most_sum(p)));
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
  if (!j->library || !tigon_gemm_tile(p, t.m0, t.m, t.n0, t.n, s->sums[0], PITCH)) {
    stored = stores;
    if (maker_of(p) != FLOATS)
      stored = multiply_checked(j, &t, &next, stores, s);
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

/* A c that the caches of most machines cannot hold until somebody reads it. Products by tiles take as long as its way to memory. */
static bool streams(const tigon_gemm_problem *p) {
  enum { CACHES = TILES ? 1 : 4 };
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
    j.tile_m = even_tile(p->m, limit_m, TILES ? 2 * TILE : STRIP);
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

/* Narrower tiles, where with those that fit the caches threads would wait for the last ones. */
static void even_out(job *j, int64_t *tiles) {
  const int64_t threads = j->queue->threads, columns = *tiles / j->tiles_m;
  int64_t least = (*tiles + threads - 1) / threads * j->tile_n;
  for (int64_t more = columns + 1; more < columns + threads; ++more) {
    const int64_t tile = even_tile(j->p->n, (j->p->n + more - 1) / more, PANEL);
    const int64_t count = j->tiles_m * ((j->p->n + tile - 1) / tile), time = (count + threads - 1) / threads * tile;
    if (time >= least || tile < LEAST_N) continue;
    least = time;
    j->tile_n = tile, *tiles = count;
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
    if (count == 1 && !g.jobs[g.count].library) even_out(&g.jobs[g.count], &tiles);
    g.ends[g.count++] = tasks += tiles;
  }
  tigon_cpu_parallel(queue, tasks, task, &g);
}
