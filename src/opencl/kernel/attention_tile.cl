/* What attention's kernels are made of: tiles of BLOCK rows x and BLOCK rows y, CHUNK columns of the head at a time. A work-item of a CPU has
 * a tile's products for itself, in memory of its own. Elsewhere a group shares them, in local memory, and sums of outputs are in registers.
 * Products by [y][x] have x in vectors; a tile of rows is `turned`, [column][row], or `straight`, [row][column]. Sums run over 64 terms, and
 * are then added to what was there. */
#include "math.cl"
#include "attention.h"

#if GROUP == 1
enum { BLOCK = ATTENTION_ITEM_BLOCK, MICRO = 8, KEPT = 4, PITCH = BLOCK };
#define TILE_MEMORY
#define tile_sync()
#define tile_lane() 0
#else
enum { BLOCK = ATTENTION_GROUP_BLOCK, MICRO = 4, KEPT = 1, PITCH = BLOCK + 4 };
#define TILE_MEMORY __local
#define tile_sync() barrier(CLK_LOCAL_MEM_FENCE)
#define tile_lane() ((int)get_local_id(0))
#endif
/* VECTORS of x. EACH: the small products, MICRO rows of a vector, that a work-item has in a chunk of an output. KEPT chunks of an output are
 * summed at once. A wider head is gone over again for the next ones. */
enum {
  CHUNK = 64,
  VECTORS = BLOCK / LANES,
  ACROSS = CHUNK / LANES,
  EACH = BLOCK / MICRO * ACROSS / GROUP,
  SUMS = KEPT * EACH * MICRO
};
typedef TILE_MEMORY float *tile_floats;
#define FOR_SHARE(i, count) for (int i = tile_lane(); i < (count); i += GROUP)

#include "attention_part.cl"

/* ---- rows of a head ---- */

typedef struct head_rows {
  memory data;
  long at, pitch; /* where row 0 begins; from a row to the next */
} head_rows;

/* Rows of a part: they begin at `first` and are `step` apart. */
static inline head_rows rows_of(memory data, const attention_heads *t, long batch, long head, long first, long step) {
  return (head_rows){data, batch * t->batch + head * t->head + first * t->token, step * t->token};
}

static inline int rest_of(long n, long at, int most) { return (int)min(n - at, (long)most); }

/* Zeros where there are no more rows or columns. */
static inline vf load_row(const head_rows *h, long row0, int r, int rows, long col, int n) {
  return load_n(h->data, r < rows ? h->at + (row0 + r) * h->pitch + col : 0, T, r < rows ? n : 0);
}
static inline void load_turned(tile_floats to, const head_rows *h, long row0, int rows, long col, int cols) {
  FOR_SHARE(i, BLOCK * ACROSS) {
    const int r = i / ACROSS, c = i % ACROSS * LANES;
    float part[LANES];
    store_floats(load_row(h, row0, r, rows, col + c, cols - c), 0, part);
    for (int j = 0; j < LANES; ++j) to[(c + j) * PITCH + r] = part[j];
  }
}
static inline void load_straight(tile_floats to, const head_rows *h, long row0, int rows, long col, int cols) {
  FOR_SHARE(i, BLOCK * ACROSS) {
    const int r = i / ACROSS, c = i % ACROSS * LANES;
    store_floats(load_row(h, row0, r, rows, col + c, cols - c), 0, to + r * CHUNK + c);
  }
}

/* ---- products ---- */

/* s[y][x] = or += the products of a chunk of y and of x, both turned. */
static inline void multiply_rows(tile_floats s, tile_floats ys, tile_floats xs, int depth, bool add) {
  FOR_SHARE(t, BLOCK / MICRO * VECTORS) {
    const int y = t / VECTORS * MICRO, x = t % VECTORS * LANES;
    vf part[MICRO];
#pragma unroll
    for (int i = 0; i < MICRO; ++i) part[i] = 0;
    for (int d = 0; d < depth; ++d) {
      const vf of_x = load_floats(0, xs + d * PITCH + x);
#pragma unroll
      for (int i = 0; i < MICRO; ++i) part[i] = fma((vf)(ys[d * PITCH + y + i]), of_x, part[i]);
    }
#pragma unroll
    for (int i = 0; i < MICRO; ++i) {
      tile_floats to = s + (y + i) * PITCH + x;
      store_floats(add ? load_floats(0, to) + part[i] : part[i], 0, to);
    }
  }
}

/* x sees y where low <= y - x < high. */
typedef struct band {
  long low, high;
} band;
static inline band band_of(const attention_part *p, const attention_numbers *k, bool of_keys) { /* x are keys */
  const long shift = p->keys - p->tokens, far = p->tokens + p->keys;
  const band b = {k->window > 0 ? shift - k->window + 1 : -far,
                  k->causal ? shift + 1 : k->window > 0 ? shift + k->window : far};
  return of_keys ? (band){1 - b.high, 1 - b.low} : b;
}

/* In a tile x sees the rows [x + low, x + high) of y, which has `rows`. */
typedef struct tile_mask {
  int low, high, rows;
  bool masked; /* not every x sees every y of BLOCK */
} tile_mask;
static inline tile_mask mask_of(band b, long x0, long y0, long n) {
  const int low = (int)clamp(x0 + b.low - y0, -2L * BLOCK, 2L * BLOCK);
  const int high = (int)clamp(x0 + b.high - y0, -2L * BLOCK, 2L * BLOCK), rows = rest_of(n, y0, BLOCK);
  return (tile_mask){low, high, rows, low + BLOCK - 1 > 0 || high < BLOCK || rows < BLOCK};
}
/* The rows of y that `count` rows from x0 on see, in whole tiles. */
static inline void range_of(band b, long x0, int count, long n, long *begin, long *end) {
  *begin = clamp(x0 + b.low, 0L, n) / BLOCK * BLOCK;
  *end = clamp(x0 + count - 1 + b.high, 0L, n);
}

/* Which x of a vector see y. */
static inline vi seen_by(const tile_mask *m, int y, int x) {
  int part[LANES];
  for (int j = 0; j < LANES; ++j) part[j] = y - x - j;
  const vi distance = load_floats(0, part);
  return y < m->rows ? distance >= m->low & distance < m->high : (vi)(0);
}

/* sums = sums * by[x] + weights [y][x] times a straight chunk of y; `by` NULL: 1. */
static inline void gather(vf *sums, tile_floats weights, tile_floats ys, tile_floats by, const tile_mask *m) {
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int t = e * GROUP + tile_lane(), x = t / ACROSS * MICRO, c = t % ACROSS * LANES;
    vf part[MICRO];
#pragma unroll
    for (int i = 0; i < MICRO; ++i) part[i] = 0;
    for (int y = 0; y < m->rows; ++y) {
      const vf of_y = load_floats(0, ys + y * CHUNK + c);
      if (m->masked) { /* of_y may be Inf or NaN where a weight is 0 */
#pragma unroll
        for (int i = 0; i < MICRO; ++i)
          if (y - x - i >= m->low && y - x - i < m->high)
            part[i] = fma((vf)(weights[y * PITCH + x + i]), of_y, part[i]);
      } else {
#pragma unroll
        for (int i = 0; i < MICRO; ++i) part[i] = fma((vf)(weights[y * PITCH + x + i]), of_y, part[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < MICRO; ++i)
      sums[e * MICRO + i] = by ? fma(sums[e * MICRO + i], (vf)(by[x + i]), part[i]) : sums[e * MICRO + i] + part[i];
  }
}

/* The sums of a chunk, times by[x], to rows of a head; a row is 0 where that is 0. */
static inline void store_sums(const vf *sums, const head_rows *h, long row0, int rows, long col, int cols,
                              tile_floats by) {
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int t = e * GROUP + tile_lane(), x = t / ACROSS * MICRO, c = t % ACROSS * LANES;
#pragma unroll
    for (int i = 0; i < MICRO; ++i) {
      vf v = sums[e * MICRO + i];
      if (by) v = by[x + i] == 0 ? (vf)(0.0f) : v * by[x + i];
      if (x + i < rows && c < cols) store_n(h->data, h->at + (row0 + x + i) * h->pitch + col + c, T, cols - c, v);
    }
  }
}

/* ---- scores ---- */

/* z, and its slope by scale * q . k. */
static inline vf cap_score(const attention_numbers *k, vf score, vf *slope) {
  *slope = 1;
  return k->softcap > 0 ? k->softcap * tanh_slope_of(score * (1 / k->softcap), slope) : score;
}
