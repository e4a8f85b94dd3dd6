/* The built-in GEMM's scratch memory, and what it packs there. */
#ifndef TIGON_CPU_GEMM_PACK_H
#define TIGON_CPU_GEMM_PACK_H

#include "cpu/gemm.h"
#include "cpu/transpose.h"

#if defined(TIGON_ISA_AMX)
enum { TILES = 1 }; /* tile registers: gemm_tiles.h */
#else
enum { TILES = 0 };
#endif

/* A task makes one tile of c. For every block of k it packs the tile's columns of b, then row strips of a, a few at a time. It
 * adds the block's products to the tile's f32 sums. All three lie in its scratch, and together in a usual L2. */
enum {
  IS_WIDE = LANES == 16 && !V_PAIRS,           /* fewer loads a product; CPUs with pairs do as well without */
  STRIP = LANES == 1 ? 4 : LANES * 3 / 4,      /* rows of a that are packed together (AVX-512: 12, AVX2: 6) */
  ROWS = IS_WIDE ? STRIP / 2 : STRIP,          /* rows of c in registers ... */
  PART = ROWS / 3,                             /* ... and where a strip is not full ... */
  VECTORS = LANES == 1 ? 8 : 2 * STRIP / ROWS, /* ... times this many vectors */
  PANEL = VECTORS * LANES,                     /* columns of c in registers */
  STRIPS = 8,             /* packed at a time, so that a transposed a is read by whole cache lines */
  GROUP = STRIPS * STRIP, /* ... which are so many rows */
  K_BLOCK = 256,
  TILE_M = TILES ? 512 : 264, /* multiple of every STRIP, of tile registers of two */
  TILE_N = TILES ? 512 : 256, /* multiple of every PANEL */
  PITCH = TILE_N + 16,        /* between rows of sums: powers of two would share a few sets of the L1 */
  LEAST_M = 96,               /* smaller tiles pack more than they multiply */
  LEAST_N = 64,
  LIBRARY_TILES = 16,
  TILE = 16,                /* rows of a tile register, words of k, and columns of b */
  A_TILES = TILE * K_BLOCK, /* words that have room for a tile of rows of a, with all planes */
  AHEAD_WORDS = 4,          /* words of products for each line of what is packed next */
};

typedef struct scratch {
  float b[TILE_N / PANEL][K_BLOCK][PANEL];
  float sums[TILE_M][PITCH];
  float a[STRIPS][STRIP * K_BLOCK + LANES]; /* each [STRIP][K_BLOCK], turned: [K_BLOCK][STRIP] */
  float kept[TILE_M][PITCH];                /* sums of pairs while some are made again */
  float least[TILE_N];                      /* sums of pairs that are good are as large */
  float good[LANES];                        /* 0: some are smaller */
} scratch;
_Static_assert(sizeof(scratch) <= (TILES ? TIGON_GEMM_TILES_BYTES : TIGON_GEMM_SCRATCH_BYTES), "the scratch of a task");

/* What factors of a tile are like, for instructions that take a denormal for 0. */
typedef enum factors { ALL_ZERO, USUAL, HARD } factors;
/* Their magnitudes lie between: low is the least that is not 0, 0 where all are. */
TIGON_INLINE factors factors_between(float low, float high, float least, float most) {
  return low == 0 ? ALL_ZERO : low >= least && high <= most ? USUAL : HARD;
}

/* ---- what is packed next ----
 * Runs of lines, `pitch` bytes apart, go to the caches while products are made: a line every few words, so that none waits. */

typedef struct ahead {
  const char *run;
  int64_t pitch, runs;
  int lines, line; /* lines of a run, and the next line */
} ahead;

/* Rows i0 .. i0 + n of a, or so many columns of b, and k0 .. k0 + k; `along`: a row's k lie together. */
static inline ahead ahead_of(const tigon_gemm_matrix *of, bool along, int64_t i0, int64_t n, int64_t k0, int64_t k) {
  const int64_t size = (int64_t)tigon_dtype_size(of->dtype), bytes = (along ? k : n) * size;
  const char *run = (const char *)of->data + (along ? i0 * of->pitch + k0 : k0 * of->pitch + i0) * size;
  if (n == 0) return (ahead){0};
  return (ahead){run, of->pitch * size, along ? n : k, (int)(((int64_t)((uintptr_t)run % 64) + bytes + 63) / 64), 0};
}

/* Takes up to `most` lines of a run, a's first; they begin at *line. 0: none is left. */
TIGON_INLINE int64_t ahead_take(ahead both[2], int64_t most, const char **line) {
  ahead *w = &both[both[0].runs == 0];
  if (w->runs == 0) return 0;
  const int left = w->lines - w->line, taken = left < most ? left : (int)most;
  *line = w->run + 64 * (int64_t)w->line;
  w->line += taken;
  if (w->line == w->lines) w->line = 0, w->run += w->pitch, --w->runs;
  return taken;
}

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

/* How many of LANES are not past the end. */
TIGON_INLINE int lanes_left(int64_t left) { return left >= LANES ? LANES : left > 0 ? (int)left : 0; }

/* Rows k0 .. k0 + k of b are contiguous in memory. */
TIGON_INLINE void pack_b_rows(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *b, int64_t k0, int64_t k,
                              int64_t n0, int64_t n, scratch *s, v_least *least) {
  const int64_t step = pairs ? 2 : 1;
  for (int64_t i = 0; i < k; i += step) {
    const int64_t row = (k0 + i) * b->pitch + n0;
    for (int64_t j = 0; j < n; j += PANEL) {
      float *out = s->b[j / PANEL][i / step];
      if (pairs && n - j >= PANEL && k - i > 1) {
        const uint16_t *even = (const uint16_t *)b->data + row + j;
        const vf2 words = v_make_pairs2(even, even + b->pitch);
        *least = v_least_pairs(v_least_pairs(*least, words.a), words.b);
        vf_store(out, words.a), vf_store(out + LANES, words.b);
        continue;
      }
      for (int64_t v = 0; v < PANEL; v += LANES) {
        const int lanes = lanes_left(n - j - v);
        vf_store(out + v,
                 across_k(dtype, pairs, b->data, row + (lanes > 0 ? j + v : 0), b->pitch, k - i, lanes, least));
      }
    }
  }
}

/* Columns of b are contiguous in memory: blocks of LANES x LANES words are turned. */
TIGON_INLINE void pack_b_block(tigon_dtype dtype, bool pairs, const tigon_gemm_matrix *b, int64_t at, int64_t k,
                               int cols, float *out, v_least *least) {
  vf block[LANES];
  for (int c = 0; c < LANES; ++c)
    block[c] = c < cols ? along_k(dtype, pairs, b->data, at + c * b->pitch, k, least) : vf_zero();
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
        for (int64_t c = 0; c < n; c += LANES) {
          const int lanes = lanes_left(n - c);
          /* What is too much, the next k overwrites. */
          vf_store(&s->a[i / STRIP][j / step * STRIP + c],
                   across_k(dtype, pairs, a->data, at + c, a->pitch, k - j, lanes, least));
        }
      }
    return;
  }
  for (int i = 0; i < rows; ++i) {
    float *out = s->a[i / STRIP] + i % STRIP * (turned(a) ? 1 : K_BLOCK);
    const int64_t at = (m0 + i) * a->pitch + k0;
    int64_t j = 0;
    for (; turned(a) && j < k; ++j) out[j * STRIP] = s_load(a->data, at + j, dtype);
    for (; j < k; j += step * LANES) vf_store(out + j / step, along_k(dtype, pairs, a->data, at + j, k - j, least));
  }
}

#endif
