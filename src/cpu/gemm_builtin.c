#include "cpu/gemm_builtin.h"

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
};

typedef struct scratch {
  float b[TILE_N / PANEL][K_BLOCK][PANEL];
  float sums[TILE_M][TILE_N];
  float a[STRIPS][STRIP * K_BLOCK]; /* each [STRIP][K_BLOCK], turned: [K_BLOCK][STRIP] */
} scratch;
_Static_assert(sizeof(scratch) <= TIGON_GEMM_SCRATCH_BYTES, "the scratch of a task");

typedef struct job {
  const tigon_queue *queue;
  const tigon_gemm_problem *p;
  int64_t tile_m, tile_n, tiles_m;
  bool library; /* makes the sums */
} job;

/* ---- packing: widened to f32, absent columns 0 ---- */

/* Rows k0 .. k0 + k of b are contiguous in memory. */
TIGON_INLINE void pack_b_rows(tigon_dtype dtype, const tigon_gemm_matrix *b, int64_t k0, int64_t k, int64_t n0,
                              int64_t n, scratch *s) {
  for (int64_t i = 0; i < k; ++i) {
    const int64_t row = (k0 + i) * b->pitch + n0;
    for (int64_t j = 0; j < n; j += PANEL)
      for (int64_t v = 0; v < PANEL; v += LANES) {
        const int64_t left = n - j - v;
        const vf x = left >= LANES ? v_load(b->data, row + j + v, dtype)
                                   : v_load_n(b->data, row + (left > 0 ? j + v : 0), dtype, left > 0 ? (int)left : 0);
        vf_store(&s->b[j / PANEL][i][v], x);
      }
  }
}

/* Columns of b are contiguous in memory: blocks of LANES x LANES are turned. */
TIGON_INLINE void pack_b_block(tigon_dtype dtype, const tigon_gemm_matrix *b, int64_t at, int rows, int cols,
                               float *out) {
  vf block[LANES];
  for (int c = 0; c < LANES; ++c)
    block[c] = c >= cols       ? vf_zero()
               : rows == LANES ? v_load(b->data, at + c * b->pitch, dtype)
                               : v_load_n(b->data, at + c * b->pitch, dtype, rows);
  vf_transpose(block);
  for (int i = 0; i < rows; ++i) vf_store(out + i * PANEL, block[i]);
}
TIGON_INLINE void pack_b_columns(tigon_dtype dtype, const tigon_gemm_matrix *b, int64_t k0, int64_t k, int64_t n0,
                                 int64_t n, scratch *s) {
  for (int64_t j = 0; j < n; j += PANEL)
    for (int v = 0; v < PANEL; v += LANES) {
      const int64_t left = n - j - v;
      const int cols = left >= LANES ? LANES : left > 0 ? (int)left : 0;
      for (int64_t i = 0; i < k; i += LANES)
        pack_b_block(dtype, b, (n0 + j + v) * b->pitch + k0 + i, k - i >= LANES ? LANES : (int)(k - i), cols,
                     &s->b[j / PANEL][i][v]);
    }
}

TIGON_INLINE void pack_b(tigon_dtype dtype, const tigon_gemm_matrix *b, int64_t k0, int64_t k, int64_t n0, int64_t n,
                         scratch *s) {
  if (b->transposed)
    pack_b_columns(dtype, b, k0, k, n0, n, s);
  else
    pack_b_rows(dtype, b, k0, k, n0, n, s);
}

/* Is the packed strip of a turned? As a lies in memory; without vectors always, which compilers turn into vectors. */
TIGON_INLINE bool turned(const tigon_gemm_matrix *a) { return LANES == 1 || a->transposed; }

/* `rows` rows of a from m0, columns k0 .. k0 + k, into strips. */
TIGON_INLINE void pack_a(tigon_dtype dtype, const tigon_gemm_matrix *a, int64_t m0, int rows, int64_t k0, int64_t k,
                         scratch *s) {
  if (a->transposed) {
    for (int64_t j = 0; j < k; ++j)
      for (int i = 0; i < rows; i += STRIP) {
        const int64_t at = (k0 + j) * a->pitch + m0 + i, n = rows - i < STRIP ? rows - i : STRIP;
        for (int64_t c = 0; c < n; c += LANES) {
          const int lanes = n - c < LANES ? (int)(n - c) : LANES;
          vf_store_n(&s->a[i / STRIP][j * STRIP + c], v_load_n(a->data, at + c, dtype, lanes), lanes);
        }
      }
    return;
  }
  for (int i = 0; i < rows; ++i) {
    float *out = s->a[i / STRIP] + i % STRIP * (turned(a) ? 1 : K_BLOCK);
    const int64_t at = (m0 + i) * a->pitch + k0;
    int64_t j = 0;
    for (; turned(a) && j < k; ++j) out[j * STRIP] = s_load(a->data, at + j, dtype);
    for (; j + LANES <= k; j += LANES) vf_store(out + j, v_load(a->data, at + j, dtype));
    if (j < k) vf_store_n(out + j, v_load_n(a->data, at + j, dtype, (int)(k - j)), (int)(k - j));
  }
}

/* ---- the products of one block of k ---- */

/* sums[rows][PANEL] = or += the block's products; a is laid out as `turn` says. */
TIGON_INLINE void multiply(int rows, bool turn, const float *a, const float *b, int64_t k, float *sums, bool first) {
  vf total[STRIP][VECTORS];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) total[i][v] = vf_zero();
  for (int64_t j = 0; j < k; ++j) {
    vf column[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) column[v] = vf_load(b + j * PANEL + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const vf row = vf_set(turn ? a[j * STRIP + i] : a[i * K_BLOCK + j]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) total[i][v] = vf_fma(row, column[v], total[i][v]);
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
static void multiply_rows(int rows, bool turn, const float *a, const float *b, int64_t k, float *sums, bool first) {
  if (rows == STRIP && turn)
    multiply(STRIP, true, a, b, k, sums, first);
  else if (rows == STRIP)
    multiply(STRIP, false, a, b, k, sums, first);
  else if (rows == PART && turn)
    multiply(PART, true, a, b, k, sums, first);
  else if (rows == PART)
    multiply(PART, false, a, b, k, sums, first);
  else if (turn)
    multiply(1, true, a, b, k, sums, first);
  else
    multiply(1, false, a, b, k, sums, first);
}

/* sums[rows][n], for the packed strips of a. */
static void multiply_panels(const scratch *s, bool turn, int rows, int64_t k, int64_t n, float *sums, bool first) {
  for (int64_t j = 0; j < n; j += PANEL)
    for (int i = 0; i < rows;) {
      const int left = rows - i, step = left >= STRIP ? STRIP : left >= PART ? PART : 1;
      const float *a = s->a[i / STRIP] + i % STRIP * (turn ? 1 : K_BLOCK);
      multiply_rows(step, turn, a, s->b[j / PANEL][0], k, sums + i * TILE_N + j, first);
      i += step;
    }
}

/* ---- the tile's way out ---- */

TIGON_INLINE void store_tile(tigon_dtype dtype, const tigon_gemm_problem *p, const scratch *s, int64_t m0, int64_t m,
                             int64_t n0, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    const int64_t row = (m0 + i) * p->c_pitch + n0;
    for (int64_t j = 0; j < n; j += LANES) {
      const int lanes = n - j >= LANES ? LANES : (int)(n - j);
      vf x = vf_load(&s->sums[i][j]);
      if (p->bias) x = vf_add(x, v_load_n(p->bias, n0 + j, p->bias_dtype, lanes));
      if (p->sums) x = vf_add(x, vf_load_n(p->sums + (m0 + i) * p->n + n0 + j, lanes));
      if (p->accumulate) x = vf_add(x, v_load_n(p->c, row + j, dtype, lanes));
      if (lanes == LANES)
        v_store(p->c, row + j, dtype, x);
      else
        v_store_n(p->c, row + j, dtype, x, lanes);
    }
  }
}

static void clear_sums(scratch *s, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += LANES) vf_store(&s->sums[i][j], vf_zero());
}

static void multiply_tile(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, scratch *s) {
  if (p->k == 0) clear_sums(s, m, n);
  for (int64_t k0 = 0; k0 < p->k; k0 += K_BLOCK) {
    const int64_t k = p->k - k0 < K_BLOCK ? p->k - k0 : K_BLOCK;
    TIGON_FOR_DTYPE(p->b.dtype, pack_b, &p->b, k0, k, n0, n, s);
    for (int64_t i = 0; i < m; i += STRIPS * STRIP) {
      const int rows = m - i < STRIPS * STRIP ? (int)(m - i) : STRIPS * STRIP;
      TIGON_FOR_DTYPE(p->a.dtype, pack_a, &p->a, m0 + i, rows, k0, k, s);
      multiply_panels(s, turned(&p->a), rows, k, n, s->sums[i], k0 == 0);
    }
  }
}

static void task(const void *argument, int64_t index) {
  const job *j = argument;
  const tigon_gemm_problem *p = j->p;
  const int64_t m0 = index % j->tiles_m * j->tile_m, n0 = index / j->tiles_m * j->tile_n;
  const int64_t m = p->m - m0 < j->tile_m ? p->m - m0 : j->tile_m, n = p->n - n0 < j->tile_n ? p->n - n0 : j->tile_n;
  scratch *s = tigon_gemm_scratch_take(j->queue);
  if (!j->library || !tigon_gemm_tile(p, m0, m, n0, n, s->sums[0], TILE_N)) multiply_tile(p, m0, m, n0, n, s);
  TIGON_FOR_DTYPE(p->c_dtype, store_tile, p, s, m0, m, n0, n);
  tigon_gemm_scratch_give(j->queue, s);
}

/* The largest tile size of at most `limit` that cuts `extent` evenly, rounded up to `unit`. */
static int64_t even_tile(int64_t extent, int64_t limit, int64_t unit) {
  const int64_t tiles = (extent + limit - 1) / limit, tile = (extent + tiles - 1) / tiles;
  return (tile + unit - 1) / unit * unit;
}

void TIGON_CPU(gemm)(const tigon_queue *queue, const tigon_gemm_problem *p) {
  job j = {queue, p, 0, 0, 0, tigon_gemm_makes_tiles(queue, p)};
  const int64_t wanted = j.library ? LIBRARY_TILES : 2 * queue->threads; /* a library's bits may depend on its tiles */
  int64_t limit_m = TILE_M, limit_n = TILE_N;
  for (;;) {
    j.tile_m = even_tile(p->m, limit_m, STRIP);
    j.tile_n = even_tile(p->n, limit_n, PANEL);
    j.tiles_m = (p->m + j.tile_m - 1) / j.tile_m;
    const int64_t tiles = j.tiles_m * ((p->n + j.tile_n - 1) / j.tile_n);
    const bool wide = j.tile_m >= 2 * LEAST_M, tall = j.tile_n >= 2 * LEAST_N;
    if (tiles >= wanted || (!wide && !tall)) {
      tigon_cpu_parallel(queue, tiles, task, &j);
      return;
    }
    if (wide && (j.tile_m >= j.tile_n || !tall))
      limit_m = j.tile_m / 2;
    else
      limit_n = j.tile_n / 2;
  }
}
