/* The sides of a product on their way into shared memory: a step is MOE_DEPTH terms of a tile's rows, or columns. Elements have 16
 * bits, and rows, pitches and extents are whole packs.
 *
 * A side by rows has a row of 128 bytes for each of its rows, whose bytes are terms. A side by terms has panels of 64 columns: a row
 * of 128 bytes for each term. Pieces of 16 bytes lie at place_of<MOE_DEPTH>(), which is what wgmma calls a swizzle of 128 bytes.
 * A thread has one piece of every STEP-th row. What lies outside is 0. */
#ifndef TIGON_CUDA_KERNEL_MOE_LOAD_CUH
#define TIGON_CUDA_KERNEL_MOE_LOAD_CUH

#include <type_traits>

#include "cuda/kernel/mma.cuh"
#include "cuda/kernel/moe_rows.cuh"

enum { MOE_ROW_BYTES = 2 * MOE_DEPTH, MOE_PANEL_BYTES = MOE_DEPTH * MOE_ROW_BYTES };

template <class T, int THREADS> struct moe_thread {
  enum { STEP = THREADS / 8 };
  static_assert(STEP % 16 == 0, "a thread's rows differ in nothing but their number of steps");
  int row, piece;

  __device__ explicit moe_thread(int rank) : row(rank / 8), piece(rank % 8) {}
  __device__ int place() const { return place_of<MOE_DEPTH>(row, piece); }
};

/* The columns of a tile of an expert's matrix. */
template <int USE> struct moe_weight_columns {
  bool halves;
  int first, end; /* the thread's range; nothing exists beyond its end */
  int64_t column; /* column of the matrix */

  /* The tile's column `at`: it is of a block of eight, in which a thread stays. */
  __device__ moe_weight_columns(const moe_product &q, const moe_area &area, int at)
      : halves(USE == MOE_GATE && !q.p.interleaved) {
    if (halves) {
      first = area.col / 2 + at / 16 * 8 + at % 8, end = (int)q.p.inner;
      column = first + (at / 8 % 2 ? q.p.inner : 0);
    } else {
      first = area.col + at, end = (int)q.n;
      column = first;
    }
  }
  /* From a column to the one `columns` of the tile further on, which are whole sixteens. */
  __device__ int step(int columns) const { return halves ? columns / 2 : columns; }
};

/* Rows of slots, by rows. */
template <class T, int EXTENT, int THREADS> struct moe_slot_rows {
  typedef moe_thread<T, THREADS> thread;
  enum { STEP = thread::STEP, EACH = EXTENT / STEP };
  struct found {
    int row[EACH];
  }; /* which may be looked up long before */
  thread of;
  const T *at[EACH];
  int there; /* rows below this one */

  __device__ static found look_up(const moe_product &q, const moe_area &area, int rank) {
    const thread of(rank);
    const int there = area.rows - of.row;
    found to;
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      to.row[i] = moe_row_of(q.order, q.a, area.row + (i * STEP < there ? of.row + i * STEP : 0));
    return to;
  }
  __device__ moe_slot_rows(const moe_product &q, const moe_area &area, int rank, const found &looked_up) : of(rank) {
    there = area.rows - of.row;
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      at[i] = (const T *)q.a.rows.data + moe_offset_of(q.p.space, q.a, looked_up.row[i]) + of.piece * 8;
  }
  __device__ void load(const moe_product &q, unsigned to, int k0) const {
    const int end = k0 + of.piece * 8 < q.k ? there : 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) cp_async(to + of.place() + i * STEP * MOE_ROW_BYTES, at[i] + k0, i * STEP < end);
  }
};

/* An expert's matrix, by rows: its columns are the tile's. */
template <class T, int USE, int EXTENT, int THREADS> struct moe_weight_rows {
  typedef moe_thread<T, THREADS> thread;
  enum { STEP = thread::STEP, EACH = EXTENT / STEP };
  thread of;
  const T *at;
  int64_t pitch; /* pitch of STEP of the tile's columns */
  int step, there;

  __device__ moe_weight_rows(const moe_product &q, const moe_area &area, int rank) : of(rank) {
    const moe_weight_columns<USE> columns(q, area, of.row);
    step = columns.step(STEP), there = columns.end - columns.first;
    pitch = step * q.weights.pitch;
    at = (const T *)q.weights.data + area.expert * q.weights.expert + columns.column * q.weights.pitch + of.piece * 8;
  }
  __device__ void load(const moe_product &q, unsigned to, int k0) {
    const int end = k0 + of.piece * 8 < q.k ? there : 0;
    const T *from = at + k0;
#pragma unroll
    for (int i = 0; i < EACH; ++i, from += pitch)
      cp_async(to + of.place() + i * STEP * MOE_ROW_BYTES, from, i * step < end);
  }
};

/* The same by terms. */
template <class T, int USE, int EXTENT, int THREADS> struct moe_weight_terms {
  typedef moe_thread<T, THREADS> thread;
  enum { STEP = thread::STEP, EACH = MOE_DEPTH / STEP, PANELS = EXTENT / MOE_DEPTH };
  thread of;
  const T *at;
  int step, there; /* steps within a panel */

  __device__ moe_weight_terms(const moe_product &q, const moe_area &area, int rank) : of(rank) {
    const moe_weight_columns<USE> columns(q, area, of.piece * 8);
    step = columns.step(MOE_DEPTH), there = columns.end - columns.first;
    at = (const T *)q.weights.data + area.expert * q.weights.expert + of.row * q.weights.pitch + columns.column;
  }
  __device__ void load(const moe_product &q, unsigned to, int k0) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int k = k0 + i * STEP, end = k + of.row < q.k ? there : 0;
      const T *from = at + k * q.weights.pitch;
#pragma unroll
      for (int p = 0; p < PANELS; ++p)
        cp_async(to + of.place() + p * MOE_PANEL_BYTES + i * STEP * MOE_ROW_BYTES, from + p * step, p * step < end);
    }
  }
};

/* Rows of slots, which are terms: columns from `first` on, of `extent`. Steps are loaded in order. The eight lanes that share a row look it
 * up for eight steps, one each, and for the next eight long before these come. */
template <class T, int EXTENT, int THREADS> struct moe_slot_terms {
  typedef moe_thread<T, THREADS> thread;
  enum { STEP = thread::STEP, EACH = MOE_DEPTH / STEP, PANELS = EXTENT / MOE_DEPTH, LANES = 8 };
  struct found {
    int now[EACH], ahead[EACH];
  };
  thread of;
  const moe_rows *rows;
  const T *data;     /* the thread's column of the first row */
  int64_t now[EACH]; /* elements from data to a row */
  int ahead[EACH];
  int there, first, end; /* columns of the matrix from this one on; the row's position in the first step */

  __device__ static found look_up(const moe_product &q, const moe_rows &from, const moe_area &area, int rank) {
    const thread of(rank);
    found to;
    look_up(q, from, area.begin + of.row + of.piece * MOE_DEPTH, area.end, to.now);
    look_up(q, from, area.begin + of.row + (LANES + of.piece) * MOE_DEPTH, area.end, to.ahead);
    return to;
  }
  __device__ moe_slot_terms(const moe_product &q, const moe_rows &from, const moe_area &area, int first_column,
                            int extent, int rank, const found &looked_up)
      : of(rank), rows(&from), data((const T *)from.rows.data + first_column + of.piece * 8),
        there(extent - first_column - of.piece * 8), first(area.begin + of.row), end(area.end) {
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      now[i] = moe_offset_of(q.p.space, from, looked_up.now[i]), ahead[i] = looked_up.ahead[i];
  }
  __device__ void load(const moe_product &q, unsigned to, int k0) {
    const int step = k0 / MOE_DEPTH;
    if (step > 0 && step % LANES == 0) {
#pragma unroll
      for (int i = 0; i < EACH; ++i) now[i] = moe_offset_of(q.p.space, *rows, ahead[i]);
      look_up(q, *rows, first + (step + LANES + of.piece) * MOE_DEPTH, end, ahead);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      load_row(to, i, data + __shfl_sync(0xffffffffu, now[i], step % LANES, LANES),
               first + k0 + i * STEP < end ? there : 0);
  }

private:
  __device__ static void look_up(const moe_product &q, const moe_rows &from, int at, int end, int (&to)[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) to[i] = at + i * STEP < end ? moe_row_of(q.order, from, at + i * STEP) : 0;
  }
  /* The thread's row i, `from` on. */
  __device__ void load_row(unsigned to, int i, const T *from, int has) const {
#pragma unroll
    for (int p = 0; p < PANELS; ++p)
      cp_async(to + of.place() + p * MOE_PANEL_BYTES + i * STEP * MOE_ROW_BYTES, from + p * MOE_DEPTH,
               p * MOE_DEPTH < has);
  }
};

/* The same of one step only, of rows by position. */
template <class T, int EXTENT, int THREADS>
__device__ inline void moe_load_last_terms(const moe_rows &rows, const moe_area &area, int first_column, int extent,
                                           int rank, unsigned to, int k0) {
  typedef moe_thread<T, THREADS> thread;
  const thread of(rank);
  const int column = first_column + of.piece * 8;
#pragma unroll 1
  for (int r = of.row; r < MOE_DEPTH; r += thread::STEP) {
    const int position = area.begin + k0 + r, has = position < area.end ? extent - column : 0;
    const T *from = (const T *)rows.rows.data + (has > 0 ? position * rows.rows.pitch[2] + column : 0);
#pragma unroll
    for (int p = 0; p < EXTENT / MOE_DEPTH; ++p)
      cp_async(to + place_of<MOE_DEPTH>(r, of.piece) + p * MOE_PANEL_BYTES, from + p * MOE_DEPTH, p * MOE_DEPTH < has);
  }
}

/* Both sides of a product's tile. */
template <class T, int USE, bool BY_TERM, int ROWS, int COLUMNS, int THREADS> struct moe_sides {
  typedef typename std::conditional<BY_TERM, moe_weight_terms<T, USE, COLUMNS, THREADS>,
                                    moe_weight_rows<T, USE, COLUMNS, THREADS>>::type columns;
  moe_slot_rows<T, ROWS, THREADS> a;
  columns b;

  __device__ moe_sides(const moe_product &q, const moe_area &area, int rank)
      : a(q, area, rank, a.look_up(q, area, rank)), b(q, area, rank) {}
  __device__ void load(const moe_product &q, unsigned to_a, unsigned to_b, int step) {
    a.load(q, to_a, step * MOE_DEPTH);
    b.load(q, to_b, step * MOE_DEPTH);
  }
};
template <class T, int ROWS, int COLUMNS, int THREADS> struct moe_sides<T, MOE_WEIGHTS, true, ROWS, COLUMNS, THREADS> {
  moe_slot_terms<T, ROWS, THREADS> a;
  moe_slot_terms<T, COLUMNS, THREADS> b;

  __device__ moe_sides(const moe_product &q, const moe_area &area, int rank)
      : a(q, q.a, area, area.row, (int)q.m, rank, a.look_up(q, q.a, area, rank)),
        b(q, q.b, area, area.col, (int)q.n, rank, b.look_up(q, q.b, area, rank)) {}
  __device__ void load(const moe_product &q, unsigned to_a, unsigned to_b, int step) {
    a.load(q, to_a, step * MOE_DEPTH);
    b.load(q, to_b, step * MOE_DEPTH);
  }
};

/* Steps of a tile. */
template <int USE> __device__ inline int moe_steps(const moe_product &q, const moe_area &area) {
  const int64_t terms = USE == MOE_WEIGHTS ? area.end - area.begin : q.k;
  return (int)((terms + MOE_DEPTH - 1) / MOE_DEPTH);
}

#endif
