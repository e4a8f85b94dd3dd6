/* The tiles that attention's forward and backward are made of.
 *
 * Everything is a block of 64 x 64 floats on the stack. One side of the scores lies across the vector lanes and is transposed
 * into blocks once: 64 queries, or only in dk and dv 64 keys. The other side streams past in packed blocks of 64 rows, widened
 * to f32 and padded with zeros. A head wider than 64 is a sequence of blocks. So the inner products are small matrix products
 * whose operands have constant pitches whatever the caller's strides and dtype are.
 *
 * Sums: a tile's part is summed from 0 in index order by fma, and added to the sum over the tiles before it. Tiles begin at
 * multiples of 64 of the sequence, so the order depends on the indices alone.
 *
 * A call of several parts (core/attention_part.h) is as many problems: a task narrows a copy of the call's to one. */
#ifndef TIGON_CPU_ATTENTION_H
#define TIGON_CPU_ATTENTION_H

#include "core/attention_part.h"
#include "cpu/kernels.h"
#include "cpu/simd_math.h"
#include "cpu/transpose.h"

enum {
  BLOCK = 64,
  WIDE = 4, /* blocks of the head that are kept on the stack; a wider head is worked on in turns */
  VECTORS = 2,
  GROUP = VECTORS * LANES,    /* lanes that a product works on together */
  ROWS = LANES == 16 ? 8 : 4, /* rows of a product in registers */
  UNIT = 8,                   /* rows are padded to a multiple of it */
};

typedef float block[BLOCK * BLOCK];

/* Lane x sees row y when low <= y - x < high. */
typedef struct band {
  int64_t low, high;
} band;

/* Lanes are queries, rows are keys. */
TIGON_INLINE band band_of(int64_t tokens, int64_t keys, bool causal, int64_t window) {
  const int64_t shift = keys - tokens, far = tokens + keys;
  return (band){.low = window > 0 ? shift - window + 1 : -far,
                .high = causal       ? shift + 1
                        : window > 0 ? shift + window
                                     : far};
}
/* Lanes are keys, rows are queries. */
TIGON_INLINE band band_mirrored(band b) { return (band){.low = 1 - b.high, .high = 1 - b.low}; }

TIGON_INLINE int64_t clamp64(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }
TIGON_INLINE int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }
TIGON_INLINE int block_count(int64_t n, int64_t at) { return n - at < BLOCK ? (int)(n - at) : BLOCK; }

/* A tile: lanes x0 .. x0 + lanes - 1 and rows y0 .. y0 + rows - 1 of the whole problem. */
typedef struct tile {
  band seen;
  int64_t x0, y0;
  int lanes, rows;
} tile;

/* The rows of a tile, in units, that some lane of a group sees. */
typedef struct span {
  int begin, end;
  bool masked; /* some lane does not see some row of it */
} span;

TIGON_INLINE span group_span(const tile *t, int lane0) {
  const int last = (lane0 + GROUP < t->lanes ? lane0 + GROUP : t->lanes) - 1;
  const int64_t first_low = t->x0 + lane0 + t->seen.low - t->y0, first_high = t->x0 + lane0 + t->seen.high - t->y0;
  const int64_t last_low = t->x0 + last + t->seen.low - t->y0, last_high = t->x0 + last + t->seen.high - t->y0;
  const int begin = (int)clamp64(first_low, 0, t->rows), end = (int)clamp64(last_high, 0, t->rows);
  if (begin >= end) return (span){0, 0, false};
  return (span){begin / UNIT * UNIT, round_up(end, UNIT), last_low > 0 || first_high < t->rows || t->rows % UNIT != 0};
}

/* The lanes of the tile that see row y: [*begin, *end). */
TIGON_INLINE void row_lanes(const tile *t, int y, int *begin, int *end) {
  const int64_t at = t->y0 + y - t->x0;
  *begin = y < t->rows ? (int)clamp64(at - t->seen.high + 1, 0, t->lanes) : 0;
  *end = y < t->rows ? (int)clamp64(at - t->seen.low + 1, 0, t->lanes) : 0;
}

/* The rows tiles that lanes x0 .. x0 + lanes - 1 see: y0 from *begin in steps of BLOCK below *end. */
TIGON_INLINE void tile_range(band b, int64_t x0, int lanes, int64_t rows, int64_t *begin, int64_t *end) {
  *begin = clamp64(x0 + b.low, 0, rows) / BLOCK * BLOCK;
  *end = clamp64(x0 + lanes - 1 + b.high, 0, rows);
}

/* Which lanes of a group see which rows of a tile, for vectors: row y sees lane x when low <= y - x < high. */
typedef struct edges {
  vf low, high;
  vf lane[VECTORS]; /* 0, 1, 2, ... */
  int rows;
} edges;

TIGON_INLINE edges group_edges(const tile *t, int lane0) {
  static const float lane[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                               16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
  _Static_assert(GROUP <= (int)(sizeof lane / sizeof *lane), "a lane for every element of a group");
  const int64_t shift = t->x0 + lane0 - t->y0, far = 4 * BLOCK; /* y - x is within BLOCK of 0 */
  edges e = {.low = vf_set((float)clamp64(t->seen.low + shift, -far, far)),
             .high = vf_set((float)clamp64(t->seen.high + shift, -far, far)),
             .rows = t->rows};
  for (int v = 0; v < VECTORS; ++v) e.lane[v] = vf_load(lane + v * LANES);
  return e;
}

/* a in the lanes of vector v that row y sees, else b. Rows past the last one see none. */
TIGON_INLINE vf seen_or(const edges *e, int v, int y, vf a, vf b) {
  const vf distance = vf_sub(vf_set(y < e->rows ? (float)y : 16.0f * BLOCK), e->lane[v]);
  return vf_select(vf_lt(distance, e->high), vf_select(vf_le(e->low, distance), a, b), b);
}

/* The part at a place of queries or of keys, and the first of its rows there; false where the place has none. */
TIGON_INLINE bool find_rows(const tigon_attention_cuts *c, bool of_keys, int64_t place, tigon_attention_part *part,
                            int64_t *row) {
  int64_t index;
  *part = tigon_attention_part_at(c, of_keys, BLOCK, place, &index);
  *row = index * BLOCK;
  return *row < (of_keys ? part->keys : part->tokens);
}

/* The first row moves by `first`, and rows are `step` apart. */
TIGON_INLINE tigon_heads narrowed(tigon_heads t, tigon_dtype dtype, int64_t first, int64_t step) {
  t.data = (char *)t.data + first * t.token_pitch * (int64_t)v_size(dtype);
  t.token_pitch *= step;
  return t;
}

/* From a product q . k to z: times the scale, then under the cap. */
typedef struct score_map {
  float scale, cap, inverse; /* cap 0: none */
} score_map;

TIGON_INLINE score_map score_map_of(float scale, float cap) {
  return (score_map){.scale = scale, .cap = cap, .inverse = cap > 0 ? 1 / cap : 0};
}
TIGON_INLINE vf cap_scores(score_map map, vf scaled, vf *slope) {
  return vf_mul(vf_set(map.cap), vf_tanh_slope(vf_mul(scaled, vf_set(map.inverse)), slope));
}

/* c [rows][GROUP] = a [rows][depth] * b [depth][GROUP], or c + a * b with `add`. rows is a multiple of UNIT in all three. */
void TIGON_CPU(attention_multiply)(const float *a, const float *b, int depth, float *c, int64_t c_pitch, int rows,
                                   bool add);
/* c [rows][GROUP] = c * factor[GROUP] + (a [depth][rows])^T * b [depth][GROUP]; factor NULL: 1. */
void TIGON_CPU(attention_multiply_transposed)(const float *a, const float *b, int depth, float *c, int rows,
                                              const float *factor);
/* The same over the rows of a span. b is 0 in lanes that do not see a row, and `a` has an Inf or NaN that must not reach these
 * lanes. */
void TIGON_CPU(attention_multiply_masked)(const tile *t, span s, int lane0, const float *a, const float *b, float *c,
                                          int rows, const float *factor);

/* One block of up to 64 columns of a head. */
typedef struct source {
  void *data; /* row 0, column 0 of the block */
  int64_t pitch;
  tigon_dtype dtype;
  int rows, cols;
} source;

TIGON_INLINE source head_block(const tigon_heads *t, tigon_dtype dtype, int64_t batch, int64_t token, int64_t head,
                               int rows, int64_t head_dim, int64_t d0) {
  const int64_t size = v_size(dtype);
  return (source){(char *)tigon_head(t, (size_t)size, batch, token, head) + d0 * size, t->token_pitch, dtype, rows,
                  block_count(head_dim, d0)};
}

/* Asks the caches for rows [begin, end) of a block, to be read or written soon. */
TIGON_INLINE void prefetch_rows(const source *s, int begin, int end) {
  const int64_t size = v_size(s->dtype);
  for (int r = begin; r < end; ++r)
    for (int64_t at = 0; at < s->cols * size; at += 64) vf_prefetch((const char *)s->data + r * s->pitch * size + at);
}

/* A block in rows of BLOCK floats. */
typedef struct packed {
  block rows;
  bool finite; /* every element is */
} packed;

/* Rows as they are, zeros up to a multiple of UNIT rows and of GROUP and UNIT columns. Asks the caches for `following` rows
 * from row BLOCK on, which the next tile packs. */
void TIGON_CPU(attention_pack)(const source *s, int following, packed *out);
/* Row r becomes column r; zeros up to a multiple of GROUP columns. */
void TIGON_CPU(attention_pack_transposed)(const source *s, float *out);
/* The inverses, to the place that `s` describes. */
void TIGON_CPU(attention_unpack)(const float *in, const source *s);
/* Each lane times factor[lane] (NULL: 1); lanes whose factor is 0 store 0. `past` asks for stores that go past the caches. */
void TIGON_CPU(attention_unpack_transposed)(const float *in, const source *s, const float *factor, bool past);

#endif
