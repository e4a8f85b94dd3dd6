/* One tile of a product, of sides whose lines lie anywhere. Who includes this has included common.cl and defined
 * these. gemm_lines, and long gemm_line(const gemm_lines *, long i): where line i of a side begins, in elements.
 * gemm_result, and void gemm_put(const gemm_result *, int row, int col, int n, vf): n sums of a row of the tile, LANES at most.
 * Elements are read once for each tile of the other side. A CPU packs both sides as floats by terms; elsewhere they lie so in local memory. */
#include "gemm.h"

/* Rows first .. first + extent - 1 of a side, a tile's at most, or columns of the other one. A line has either one row's terms or one term
 * of all rows. */
typedef struct gemm_side {
  memory data;
  int dtype, line_of_terms, extent;
  long first;
  gemm_lines lines;
} gemm_side;

static inline long gemm_place(const gemm_side *s, int i, long term) {
  return s->line_of_terms ? gemm_line(&s->lines, s->first + i) + term : gemm_line(&s->lines, term) + s->first + i;
}

#if GROUP == 1
enum { GEMM_ROWS = 8 }; /* whose sums are in registers */
#define GEMM_MEMORY                                                 \
  float gemm_a[GEMM_SUM * GEMM_TILE], gemm_b[GEMM_SUM * GEMM_TILE]; \
  vf gemm_total[GEMM_TILE * GEMM_TILE / LANES];
#define gemm_multiply(a, b, terms, to) gemm_tile(gemm_a, gemm_b, gemm_total, a, b, terms, to)

/* to[d * TILE + i] = row i's term from + d, 0 past the last row, of which there are a whole number of vectors. */
static inline void gemm_pack(float *to, const gemm_side *s, long from, int depth) {
  const int rows = (s->extent + LANES - 1) / LANES * LANES;
  if (s->line_of_terms) {
    for (int i = 0; i < rows; ++i) {
      const long at = i < s->extent ? gemm_place(s, i, from) : 0;
      for (int d = 0; d < depth; d += LANES) {
        float part[LANES];
        const int n = min(depth - d, LANES);
        store_floats(load_n(s->data, at + d, s->dtype, i < s->extent ? n : 0), 0, part);
        for (int j = 0; j < n; ++j) to[(d + j) * GEMM_TILE + i] = part[j];
      }
    }
  } else {
    for (int d = 0; d < depth; ++d) {
      const long at = gemm_place(s, 0, from + d);
      for (int i = 0; i < rows; i += LANES)
        store_floats(load_n(s->data, at + i, s->dtype, s->extent - i), 0, to + d * GEMM_TILE + i);
    }
  }
}

static inlined void gemm_tile(float *as, float *bs, vf *total, const gemm_side *a, const gemm_side *b, long terms,
                              const gemm_result *to) {
  enum { ACROSS = GEMM_TILE / LANES };
  for (int i = 0; i < GEMM_TILE * ACROSS; ++i) total[i] = 0;
  for (long from = 0; from < terms; from += GEMM_SUM) {
    const int depth = (int)min(terms - from, (long)GEMM_SUM);
    gemm_pack(as, a, from, depth);
    gemm_pack(bs, b, from, depth);
    for (int r = 0; r < a->extent; r += GEMM_ROWS)
      for (int c = 0; c < b->extent; c += LANES) {
        vf part[GEMM_ROWS];
#pragma unroll
        for (int i = 0; i < GEMM_ROWS; ++i) part[i] = 0;
        for (int d = 0; d < depth; ++d) {
          const vf of_b = load_floats(0, bs + d * GEMM_TILE + c);
#pragma unroll
          for (int i = 0; i < GEMM_ROWS; ++i) part[i] = fma((vf)(as[d * GEMM_TILE + r + i]), of_b, part[i]);
        }
#pragma unroll
        for (int i = 0; i < GEMM_ROWS; ++i) total[(r + i) * ACROSS + c / LANES] += part[i];
      }
  }
  for (int r = 0; r < a->extent; ++r)
    for (int c = 0; c < b->extent; c += LANES)
      gemm_put(to, r, c, min(b->extent - c, LANES), total[r * ACROSS + c / LANES]);
}
#else
enum { GEMM_PITCH = GEMM_TILE + 4 };
#define GEMM_MEMORY __local float gemm_a[GEMM_DEPTH * GEMM_PITCH], gemm_b[GEMM_DEPTH * GEMM_PITCH];
#define gemm_multiply(a, b, terms, to) gemm_tile(gemm_a, gemm_b, a, b, terms, to)

/* Neighbouring work-items read neighbouring elements. */
static inlined void gemm_load(__local float *to, const gemm_side *s, long from, long terms) {
  const int at = (int)get_local_id(0);
  for (int e = at; e < GEMM_TILE * GEMM_DEPTH; e += GEMM_GROUP) {
    const int d = s->line_of_terms ? e % GEMM_DEPTH : e / GEMM_TILE;
    const int i = s->line_of_terms ? e / GEMM_DEPTH : e % GEMM_TILE;
    const bool inside = i < s->extent && from + d < terms;
    to[d * GEMM_PITCH + i] = inside ? load_one(s->data, gemm_place(s, i, from + d), s->dtype) : 0;
  }
}

static inlined void gemm_tile(__local float *as, __local float *bs, const gemm_side *a, const gemm_side *b, long terms,
                              const gemm_result *to) {
  const int row = (int)get_local_id(0) / (GEMM_TILE / GEMM_SHARE) * GEMM_SHARE;
  const int col = (int)get_local_id(0) % (GEMM_TILE / GEMM_SHARE) * GEMM_SHARE;
  vf total[GEMM_SHARE], part[GEMM_SHARE]; /* LANES is SHARE */
#pragma unroll
  for (int i = 0; i < GEMM_SHARE; ++i) total[i] = part[i] = 0;
  for (long from = 0; from < terms; from += GEMM_DEPTH) {
    gemm_load(as, a, from, terms);
    gemm_load(bs, b, from, terms);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int d = 0; d < GEMM_DEPTH; ++d) {
      const vf of_b = load_floats(0, bs + d * GEMM_PITCH + col);
#pragma unroll
      for (int i = 0; i < GEMM_SHARE; ++i) part[i] = fma((vf)(as[d * GEMM_PITCH + row + i]), of_b, part[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((from + GEMM_DEPTH) % GEMM_SUM != 0 && from + GEMM_DEPTH < terms) continue;
#pragma unroll
    for (int i = 0; i < GEMM_SHARE; ++i) total[i] += part[i], part[i] = 0;
  }
  for (int i = 0; i < GEMM_SHARE; ++i)
    if (row + i < a->extent && col < b->extent) gemm_put(to, row + i, col, min(b->extent - col, LANES), total[i]);
}
#endif

/* What of `count` there is of a tile. */
static inline int gemm_extent(long count, long first) { return (int)min(count - first, (long)GEMM_TILE); }
