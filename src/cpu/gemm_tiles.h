/* Products by AMX, whose tile registers hold 16 rows of 64 bytes. One instruction adds to a tile of sums the products of 16 rows of a
 * and 16 columns of b over 16 words of k. A word is a pair of bf16.
 *
 * f32 is the sum of three bf16, its planes, and f16 of two. Products of planes whose numbers add up to more than 2 are left out:
 * together they are about 2^-24 of the product at most. The least products are added first, and blocks of k are added in f32. */
#ifndef TIGON_CPU_GEMM_TILES_H
#define TIGON_CPU_GEMM_TILES_H

#include <math.h>

#include "cpu/gemm_pack.h"

enum { PLANES = 3 };
TIGON_INLINE int planes_of(tigon_dtype dtype) { return dtype == TIGON_F32 ? 3 : dtype == TIGON_F16 ? 2 : 1; }

/* bf16 alone: words are pairs as they lie in memory. */
TIGON_INLINE bool are_plain(const tigon_gemm_problem *p) {
  return p->a.dtype == TIGON_BF16 && p->b.dtype == TIGON_BF16;
}

/* Factors of which no plane is denormal or too large; plain ones may be of any size. */
#define LEAST_PLAIN 0x1p-126f
#define LEAST_SPLIT 0x1p-100f
#define MOST_SPLIT 0x1p110f

#if defined(TIGON_ISA_AMX)
TIGON_INLINE void tiles_begin(void) {
  static const struct {
    uint8_t palette, rest[15];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {1, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&shape);
}
TIGON_INLINE void tiles_end(void) { _tile_release(); }

/* ---- words ---- */

/* What a pass over factors has seen. Plain ones have v_least. Others have the least magnitude that is not 0, less 1, and the
 * largest. Both are bits of f32 without the sign, doubled. */
typedef struct seen {
  v_least least;
  __m512i low, high;
} seen;
TIGON_INLINE seen seen_none(void) { return (seen){v_least_none(), _mm512_set1_epi32(-1), _mm512_setzero_si512()}; }
TIGON_INLINE void note(seen *of, vf x) {
  const __m512i bits = _mm512_castps_si512(x), doubled = _mm512_add_epi32(bits, bits);
  of->low = _mm512_min_epu32(of->low, _mm512_add_epi32(doubled, _mm512_set1_epi32(-1)));
  of->high = _mm512_max_epu32(of->high, doubled);
}
TIGON_INLINE float float_of(uint32_t doubled) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)(doubled >> 1))));
}
TIGON_INLINE factors seen_factors(bool plain, seen of) {
  if (plain) return factors_between(v_least_value(of.least), 0, LEAST_PLAIN, INFINITY);
  return factors_between(float_of(_mm512_reduce_min_epu32(of.low) + 1), float_of(_mm512_reduce_max_epu32(of.high)),
                         LEAST_SPLIT, MOST_SPLIT);
}

/* Takes the nearest bf16 off x; the last plane is what is left. */
TIGON_INLINE __m512i take_plane(vf *x, bool last) {
  if (last) return _mm512_castps_si512(*x);
  const vf scaled = vf_mul(*x, vf_set(0x1p16f + 1)), near = vf_sub(scaled, vf_sub(scaled, *x));
  *x = vf_sub(*x, near);
  return _mm512_castps_si512(near);
}

/* LANES elements, or the first `left` of them. */
TIGON_INLINE vf load_some(tigon_dtype dtype, const void *data, int64_t at, int64_t left) {
  return left >= LANES ? v_load(data, at, dtype) : v_load_n(data, at, dtype, lanes_left(left));
}

/* Up to 16 words of one row or column, whose k lie together in memory; `k` are left. */
TIGON_INLINE void words_along(tigon_dtype dtype, bool plain, const void *data, int64_t at, int64_t k, vf words[PLANES],
                              seen *of) {
  static const uint16_t upper[32] __attribute__((aligned(64))) = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63,
  };
  if (plain) {
    words[0] = along_k(dtype, true, data, at, k, &of->least);
    return;
  }
  const int planes = planes_of(dtype);
  vf low = load_some(dtype, data, at, k), high = load_some(dtype, data, at + TILE, k - TILE);
  note(of, low), note(of, high);
  for (int p = 0; p < planes; ++p) {
    const __m512i first = take_plane(&low, p == planes - 1), second = take_plane(&high, p == planes - 1);
    words[p] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, _mm512_load_si512(upper), second));
  }
}

/* The words at one k of `left` rows or columns, PANEL at most, which lie together in memory, the next k `pitch` later. */
TIGON_INLINE void words_across(tigon_dtype dtype, bool plain, const void *data, int64_t at, int64_t pitch, int64_t k,
                               int64_t left, vf words[2][PLANES], seen *of) {
  if (plain && left >= PANEL && k > 1) {
    const uint16_t *even = (const uint16_t *)data + at;
    const vf2 both = v_make_pairs2(even, even + pitch);
    of->least = v_least_pairs(v_least_pairs(of->least, both.a), both.b);
    words[0][0] = both.a, words[1][0] = both.b;
    return;
  }
  for (int half = 0; half < 2; ++half, at += TILE, left -= TILE) {
    if (left <= 0 || k <= 0) {
      for (int p = 0; p < PLANES; ++p) words[half][p] = vf_zero();
      continue;
    }
    if (plain) {
      words[half][0] = across_k(dtype, true, data, at, pitch, k, lanes_left(left), &of->least);
      continue;
    }
    const int planes = planes_of(dtype);
    vf even = load_some(dtype, data, at, left), odd = k > 1 ? load_some(dtype, data, at + pitch, left) : vf_zero();
    note(of, even), note(of, odd);
    for (int p = 0; p < planes; ++p) {
      const __m512i first = take_plane(&even, p == planes - 1), second = take_plane(&odd, p == planes - 1);
      words[half][p] = _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(first, 16), second));
    }
  }
}

/* ---- packing: what is beyond k or the last column is 0, what is beyond the last row anything ----
 * a: [rows / TILE][plane][words / TILE][TILE][TILE], b: [columns / PANEL][plane][words][PANEL]. */

enum { STEP_K = 2 * TILE }; /* elements of k in a tile */

TIGON_INLINE int64_t whole_words(int64_t k) { return (k + STEP_K - 1) / STEP_K * TILE; }

/* One plane of 16 rows or columns of words goes to `out`, turned. */
TIGON_INLINE void put_turned(vf words[TILE][PLANES], int plane, float *out, int pitch) {
  vf block[TILE];
  for (int w = 0; w < TILE; ++w) block[w] = words[w][plane];
  vf_transpose(block);
  for (int r = 0; r < TILE; ++r) vf_store(out + r * pitch, block[r]);
}

TIGON_INLINE void pack_rows(tigon_dtype dtype, bool plain, const tigon_gemm_matrix *a, int64_t m0, int rows, int64_t k0,
                            int64_t k, scratch *s, seen *of) {
  const int planes = plain ? 1 : planes_of(dtype);
  const int64_t plane = whole_words(k) * TILE;
  for (int i = 0; !a->transposed && i < rows; ++i) {
    float *out = s->a[0] + i / TILE * A_TILES + i % TILE * TILE;
    for (int64_t j = 0; j < k; j += STEP_K, out += TILE * TILE) {
      vf words[PLANES];
      words_along(dtype, plain, a->data, (m0 + i) * a->pitch + k0 + j, k - j, words, of);
      for (int p = 0; p < planes; ++p) vf_store(out + p * plane, words[p]);
    }
  }
  for (int i = 0; a->transposed && i < rows; i += 2 * TILE) {
    float *out = s->a[0] + i / TILE * A_TILES;
    for (int64_t j = 0; j < k; j += STEP_K, out += TILE * TILE) {
      vf words[2][TILE][PLANES];
      for (int w = 0; w < TILE; ++w) {
        vf both[2][PLANES];
        words_across(dtype, plain, a->data, (k0 + j + 2 * w) * a->pitch + m0 + i, a->pitch, k - j - 2 * w, rows - i,
                     both, of);
        for (int p = 0; p < planes; ++p) words[0][w][p] = both[0][p], words[1][w][p] = both[1][p];
      }
      for (int p = 0; p < planes; ++p) put_turned(words[0], p, out + p * plane, TILE);
      for (int p = 0; rows - i > TILE && p < planes; ++p) put_turned(words[1], p, out + A_TILES + p * plane, TILE);
    }
  }
}

TIGON_INLINE void pack_columns(tigon_dtype dtype, bool plain, const tigon_gemm_matrix *b, int64_t k0, int64_t k,
                               int64_t n0, int64_t n, scratch *s, seen *of) {
  const int planes = plain ? 1 : planes_of(dtype);
  const int64_t rows = whole_words(k), plane = rows * PANEL;
  for (int64_t i = 0; !b->transposed && i < rows; ++i)
    for (int64_t j = 0; j < n; j += PANEL) {
      float *out = s->b[j / PANEL][i];
      vf words[2][PLANES];
      words_across(dtype, plain, b->data, (k0 + 2 * i) * b->pitch + n0 + j, b->pitch, k - 2 * i, n - j, words, of);
      for (int p = 0; p < planes; ++p)
        vf_store(out + p * plane, words[0][p]), vf_store(out + p * plane + TILE, words[1][p]);
    }
  for (int64_t j = 0; b->transposed && j < n; j += PANEL)
    for (int64_t i = 0; i < rows; i += TILE)
      for (int64_t c = j; c < j + PANEL; c += TILE) {
        float *out = s->b[j / PANEL][i] + c - j;
        vf words[TILE][PLANES];
        for (int64_t w = 0; w < TILE; ++w) {
          const bool there = c + w < n;
          words_along(dtype, plain, b->data, there ? (n0 + c + w) * b->pitch + k0 + 2 * i : 0, there ? k - 2 * i : 0,
                      words[w], of);
        }
        for (int p = 0; p < planes; ++p) put_turned(words, p, out + p * plane, PANEL);
      }
}

/* ---- products ---- */

/* Registers 0 to 3 are sums of 2 x 2 tiles, or 0 and 1 of one tile of rows; 4 and 5 are of a, 6 and 7 of b. `both`: rows. */
TIGON_INLINE void load_rows(bool both, const float *a) {
  _tile_loadd(4, a, TILE * 4);
  if (both) _tile_loadd(5, a + A_TILES, TILE * 4);
}
TIGON_INLINE void load_columns(const float *b) {
  _tile_stream_loadd(6, b, PANEL * 4);
  _tile_stream_loadd(7, b + TILE, PANEL * 4);
}
TIGON_INLINE void add_products(bool both) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if (!both) return;
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}
/* The lines are those of what is packed next. */
TIGON_INLINE void fetch_lines(int most, ahead next[2]) {
  const char *line;
  const int64_t lines = ahead_take(next, most, &line);
  for (int64_t i = 0; i < lines; ++i) vf_prefetch_l2(line + 64 * i);
}

TIGON_INLINE void store_tiles(bool both, float *sums, int64_t pitch) {
  _tile_stored(0, sums, pitch * 4);
  _tile_stored(1, sums + TILE, pitch * 4);
  if (!both) return;
  _tile_stored(2, sums + TILE * pitch, pitch * 4);
  _tile_stored(3, sums + TILE * pitch + TILE, pitch * 4);
}

TIGON_INLINE void multiply_plain(bool both, const float *a, const float *b, int64_t words, float *sums, bool first,
                                 ahead next[2]) {
  enum { LINES = 4 };
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, PITCH * 4);
    _tile_loadd(1, sums + TILE, PITCH * 4);
  }
  if (both && !first) {
    _tile_loadd(2, sums + TILE * PITCH, PITCH * 4);
    _tile_loadd(3, sums + TILE * PITCH + TILE, PITCH * 4);
  }
  for (int64_t j = 0; j < words; j += TILE) {
    fetch_lines(LINES, next);
    load_rows(both, a + j * TILE);
    load_columns(b + j * PANEL);
    add_products(both);
  }
  store_tiles(both, sums, PITCH);
}

TIGON_INLINE void multiply_planes(bool both, const tigon_gemm_problem *of, const float *a, const float *b,
                                  int64_t words, float *sums, bool first, ahead next[2]) {
  enum { LINES = 4 };
  const int planes_a = planes_of(of->a.dtype), planes_b = planes_of(of->b.dtype);
  float block[2 * TILE][PANEL] __attribute__((aligned(64)));
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t j = 0; j < words; j += TILE) { /* the small ones, each beside one whose a or b it shares */
    static const int path[][2] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}};
    int last_a = -1, last_b = -1;
    fetch_lines(LINES, next);
    for (int i = 0; i < 5; ++i) {
      const int of_a = path[i][of->mirrored], of_b = path[i][!of->mirrored];
      if (of_a >= planes_a || of_b >= planes_b) continue;
      if (of_a != last_a) load_rows(both, a + (of_a * words + j) * TILE);
      if (of_b != last_b) load_columns(b + (of_b * words + j) * PANEL);
      last_a = of_a, last_b = of_b;
      add_products(both);
    }
  }
  for (int64_t j = 0; j < words; j += TILE) {
    load_rows(both, a + j * TILE);
    load_columns(b + j * PANEL);
    add_products(both);
  }
  if (first) {
    store_tiles(both, sums, PITCH);
    return;
  }
  store_tiles(both, block[0], PANEL);
  for (int i = 0; i < (both ? 2 * TILE : TILE); ++i, sums += PITCH)
    for (int v = 0; v < PANEL; v += LANES) vf_store(sums + v, vf_add(vf_load(sums + v), vf_load(&block[i][v])));
}

/* sums[rows][PANEL] = or += the products of a block of k; rows: 2 * TILE at most. */
TIGON_INLINE void multiply_tiles(const tigon_gemm_problem *p, int rows, const float *a, const float *b, int64_t k,
                                 float *sums, bool first, ahead next[2]) {
  const int64_t words = whole_words(k);
  __asm__ volatile("" ::: "memory"); /* GCC does not know that a tile's load reads memory */
  if (are_plain(p) && rows > TILE)
    multiply_plain(true, a, b, words, sums, first, next);
  else if (are_plain(p))
    multiply_plain(false, a, b, words, sums, first, next);
  else if (rows > TILE)
    multiply_planes(true, p, a, b, words, sums, first, next);
  else
    multiply_planes(false, p, a, b, words, sums, first, next);
}

TIGON_INLINE void tiles_pack_a(const tigon_gemm_problem *p, int64_t m0, int rows, int64_t k0, int64_t k, scratch *s,
                               seen *of) {
  if (are_plain(p))
    pack_rows(TIGON_BF16, true, &p->a, m0, rows, k0, k, s, of);
  else
    TIGON_FOR_DTYPE(p->a.dtype, pack_rows, false, &p->a, m0, rows, k0, k, s, of);
}
TIGON_INLINE void tiles_pack_b(const tigon_gemm_problem *p, int64_t k0, int64_t k, int64_t n0, int64_t n, scratch *s,
                               seen *of) {
  if (are_plain(p))
    pack_columns(TIGON_BF16, true, &p->b, k0, k, n0, n, s, of);
  else
    TIGON_FOR_DTYPE(p->b.dtype, pack_columns, false, &p->b, k0, k, n0, n, s, of);
}
#else
typedef struct seen {
  v_least least;
} seen;
TIGON_INLINE seen seen_none(void) { return (seen){v_least_none()}; }
TIGON_INLINE factors seen_factors(bool plain, seen of) {
  return (void)plain, factors_between(v_least_value(of.least), 0, LEAST_PLAIN, INFINITY);
}
TIGON_INLINE void tiles_begin(void) {}
TIGON_INLINE void tiles_end(void) {}
TIGON_INLINE void tiles_pack_a(const tigon_gemm_problem *p, int64_t m0, int rows, int64_t k0, int64_t k, scratch *s,
                               seen *of) {
  (void)p, (void)m0, (void)rows, (void)k0, (void)k, (void)s, (void)of;
}
TIGON_INLINE void tiles_pack_b(const tigon_gemm_problem *p, int64_t k0, int64_t k, int64_t n0, int64_t n, scratch *s,
                               seen *of) {
  (void)p, (void)k0, (void)k, (void)n0, (void)n, (void)s, (void)of;
}
TIGON_INLINE void multiply_tiles(const tigon_gemm_problem *p, int rows, const float *a, const float *b, int64_t k,
                                 float *sums, bool first, ahead next[2]) {
  (void)p, (void)rows, (void)a, (void)b, (void)k, (void)sums, (void)first, (void)next;
}
#endif

#endif
