/* multi_token_attention. Rows have a block each. A convolution has a tile of one plane. It reads the tile with its halo out of
 * shared memory (staged), or out of the L2 if shared memory has no room for it (walked). */
#include "cuda/kernel/row.cuh"
#include "cuda/multi_token_attention.h"

typedef tigon_multi_token_attention_problem problem;

__device__ static inline int64_t allowed(int64_t row, int64_t cols) { return row < cols ? row + 1 : cols; }

/* Which row of `band` a block has: of a plane, and in it. */
struct mta_place {
  int64_t plane, row;
  __device__ explicit mta_place(const tigon_band &band) {
    const int64_t count = band.end - band.begin;
    plane = blockIdx.x / count, row = band.begin + blockIdx.x % count;
  }
};

__device__ static inline float *u_row(const problem &p, const mta_chunk &c, int64_t plane, int64_t y) {
  return c.u + (plane * c.u_rows + y - c.reach.begin) * p.tokens;
}
__device__ static inline float *o_row(const problem &p, const mta_chunk &c, float *of, int64_t plane, int64_t i) {
  return of + (plane * c.o_rows + i - c.made.begin) * p.cols;
}
__device__ static inline float *y_row(const problem &p, const mta_chunk &c, int64_t plane, int64_t y) {
  return c.c + (plane * c.y_rows + y - c.y.begin) * p.tokens;
}

/* ---- norm() of a row, by a block ---- */

/* A NaN does not count. */
__device__ static inline float block_largest(float v) {
  __shared__ float parts[MOST_WARPS];
  const int lane = (int)threadIdx.x % WARP;
  v = warp_all<op_largest>(v);
  __syncthreads(); /* a block may come here again */
  if (lane == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  return warp_all<op_largest>(lane < MTA_THREADS / WARP ? parts[lane] : MINUS_INF);
}

/* What norm() takes off, of at(j), j < n: log(sum of exp), or tau by Newton's method from the left. */
template <class F> __device__ inline float find_stat(bool sparse, int64_t n, F at) {
  float own = MINUS_INF;
  for (int64_t j = threadIdx.x; j < n; j += MTA_THREADS) own = fmaxf(own, at(j));
  const float largest = block_largest(own), base = base_of(largest);
  if (!sparse) {
    double sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += MTA_THREADS) sum += (double)expf(at(j) - base);
    sum = block_total(sum);
    return sum == 0 ? MINUS_INF : (float)((double)base + log(sum)); /* a NaN stays */
  }
  for (float tau = -1;;) {
    double sum = 0, members = 0;
    for (int64_t j = threadIdx.x; j < n; j += MTA_THREADS) {
      const float z = at(j) - base;
      if (!(z <= tau)) sum += (double)z, members += 1;
    }
    sum = block_total(sum), members = block_total(members);
    const float next = members > 0 ? (float)((sum - 1) / members) : tau;
    if (next <= tau) return base + tau;
    tau = next;
    if (tau != tau) return tau;
  }
}

__device__ static inline float norm(bool sparse, float x, float stat) {
  const float z = x - (!sparse && stat == MINUS_INF ? 0.0f : stat);
  return sparse ? (z <= 0 ? 0.0f : z) : expf(z); /* a NaN stays */
}

/* put(j, norm'(q)) of p(j) = norm(x) and q(j). A NaN in p is of the support, and makes the mean one. */
template <class P, class Q, class F> __device__ inline void norm_slope(bool sparse, int64_t n, P p_at, Q q_at, F put) {
  double sum = 0, members = 0;
  for (int64_t j = threadIdx.x; j < n; j += MTA_THREADS) {
    const float p = p_at(j), q = q_at(j);
    if (!sparse)
      sum += (double)(p * q);
    else if (!(p <= 0))
      sum += (double)fmaf(p, 0.0f, q), members += 1;
  }
  sum = block_total(sum);
  if (sparse) members = block_total(members);
  const float off = (float)(sparse ? sum / (members > 0 ? members : 1) : sum);
  for (int64_t j = threadIdx.x; j < n; j += MTA_THREADS) {
    const float p = p_at(j), d = q_at(j) - off;
    put(j, sparse ? (p <= 0 ? 0.0f : d) : p * d);
  }
}

/* ---- rows ---- */

/* u: the scores, or norm() of them. */
template <class T, bool KNOWN> __device__ inline void make_u(const problem &p, const mta_chunk &c) {
  const mta_place at(c.reach);
  const int64_t r = at.plane * p.tokens + at.row, n = at.row + 1;
  const T *x = row_of<T>(p.space, p.s, r);
  float *u = u_row(p, c, at.plane, at.row), *kept = (float *)p.stat.data, stat = 0;
  const auto score = [&](int64_t j) { return to_f32(x[j]); };
  if (!p.pre) {
    stat = KNOWN ? kept[r] : find_stat(p.sparse, n, score);
    if (!KNOWN && kept && threadIdx.x == 0) kept[r] = stat;
  }
  for (int64_t j = threadIdx.x; j < n; j += MTA_THREADS) u[j] = p.pre ? score(j) : norm(p.sparse, score(j), stat);
}
KERNEL_BY_DTYPE(mta_u, (MTA_THREADS), (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c),
                make_u<T, false>(p, c))
KERNEL_BY_DTYPE(mta_u_known, (MTA_THREADS), (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c),
                make_u<T, true>(p, c))

/* PRE: o is norm() of c. */
template <class T> __device__ inline void make_o(const problem &p, const mta_chunk &c) {
  const mta_place at(c.own);
  const int64_t r = at.plane * p.rows + at.row, n = allowed(at.row, p.cols);
  const float *x = o_row(p, c, c.c, at.plane, at.row);
  T *o = row_of<T>(p.out_space, p.o, r);
  const float stat = find_stat(p.sparse, n, [&](int64_t j) { return x[j]; });
  if (p.stat.data && threadIdx.x == 0) ((float *)p.stat.data)[r] = stat;
  for (int64_t j = threadIdx.x; j < p.cols; j += MTA_THREADS)
    o[j] = from_f32<T>(j < n ? norm(p.sparse, x[j], stat) : 0.0f);
}
KERNEL_BY_DTYPE(mta_o, (MTA_THREADS), (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c),
                make_o<T>(p, c))

/* POST: g is o's gradient. */
template <class T> __device__ inline void make_g(const problem &p, const mta_chunk &c) {
  const mta_place at(c.made);
  const T *q = row_of<T>(p.out_space, p.o, at.plane * p.rows + at.row);
  float *g = o_row(p, c, c.g, at.plane, at.row);
  for (int64_t j = threadIdx.x; j < allowed(at.row, p.cols); j += MTA_THREADS) g[j] = to_f32(q[j]);
}
KERNEL_BY_DTYPE(mta_g, (MTA_THREADS), (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c),
                make_g<T>(p, c))

/* PRE: g is norm'() of o's gradient; c holds the convolution. */
template <class T> __device__ inline void make_o_slope(const problem &p, const mta_chunk &c) {
  const mta_place at(c.made);
  const int64_t r = at.plane * p.rows + at.row;
  const T *q = row_of<T>(p.out_space, p.o, r);
  const float *x = o_row(p, c, c.c, at.plane, at.row), stat = ((const float *)p.stat.data)[r];
  float *g = o_row(p, c, c.g, at.plane, at.row);
  norm_slope(
      p.sparse, allowed(at.row, p.cols), [&](int64_t j) { return norm(p.sparse, x[j], stat); },
      [&](int64_t j) { return to_f32(q[j]); }, [&](int64_t j, float v) { g[j] = v; });
}
KERNEL_BY_DTYPE(mta_o_slope, (MTA_THREADS), (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c),
                make_o_slope<T>(p, c))

/* POST: ds of p in u and its gradient in c. */
template <class T> __device__ inline void make_ds(const problem &p, const mta_chunk &c) {
  const mta_place at(c.y);
  const float *u = u_row(p, c, at.plane, at.row), *q = y_row(p, c, at.plane, at.row);
  T *ds = row_of<T>(p.space, p.ds, at.plane * p.tokens + at.row);
  norm_slope(
      p.sparse, at.row + 1, [&](int64_t j) { return u[j]; }, [&](int64_t j) { return q[j]; },
      [&](int64_t j, float v) { ds[j] = from_f32<T>(v); });
  for (int64_t j = at.row + 1 + threadIdx.x; j < p.tokens; j += MTA_THREADS) ds[j] = from_f32<T>(0.0f);
}
KERNEL_BY_DTYPE(mta_ds, (MTA_THREADS), (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c),
                make_ds<T>(p, c))

/* ---- tiles ---- */

extern __shared__ float mta_words[]; /* a tile with its halo, then the taps of a channel */

/* What a tile of a convolution reads: element (row, col) from the first window's first one on, 0 where there is none. */
struct mta_source {
  const float *from; /* a plane of u, or of g, from the chunk's first row on */
  int64_t first_row, first_col;
  int64_t begin, pitch, rows, cols; /* the chunk's first row; of a plane */
  int64_t by_row, by_col;           /* steps of g: zeros lie between its elements */

  __device__ float at(int row, int col) const {
    int64_t y = first_row + row, x = first_col + col;
    if (y < 0 || x < 0) return 0;
    if (by_row > 1 || by_col > 1) {
      if (y % by_row || x % by_col) return 0;
      y /= by_row, x /= by_col;
    }
    return y < rows && x < cols && x <= y ? from[(y - begin) * pitch + x] : 0;
  }
};

/* The source of the forward convolution of a channel of u, for a tile of o. */
__device__ static inline mta_source source_of_u(const problem &p, const mta_chunk &c, int64_t plane, int64_t i,
                                                int64_t j) {
  return {c.u + plane * c.u_rows * p.tokens,
          i * p.h.stride - p.h.padding,
          j * p.w.stride - p.w.padding,
          c.reach.begin,
          p.tokens,
          p.tokens,
          p.tokens,
          1,
          1};
}
/* And of the transpose, for a tile of queries y and keys x: tap t meets y + padding - t * dilation. */
__device__ static inline mta_source source_of_g(const problem &p, const mta_chunk &c, int64_t plane, int64_t y,
                                                int64_t x) {
  return {c.g + plane * c.o_rows * p.cols,
          y + p.h.padding - tigon_window_span(&p.h),
          x + p.w.padding - tigon_window_span(&p.w),
          c.made.begin,
          p.cols,
          p.rows,
          p.cols,
          p.h.stride,
          p.w.stride};
}

/* Between elements of a tile that are neighbours in o, in elements of the source; and its extents. */
struct mta_steps {
  int by_row, by_col, height, width;
  __device__ mta_steps(const problem &p, bool transposed)
      : by_row(transposed ? 1 : (int)p.h.stride), by_col(transposed ? 1 : (int)p.w.stride),
        height((MTA_ROWS - 1) * by_row + (int)tigon_window_span(&p.h) + 1),
        width((MTA_COLS - 1) * by_col + (int)tigon_window_span(&p.w) + 1) {}
};

__device__ static inline void stage(const mta_source &from, const mta_steps &s) {
  for (int e = (int)threadIdx.x; e < s.height * s.width; e += MTA_THREADS)
    mta_words[e] = from.at(e / s.width, e % s.width);
}

/* A thread has a column of MTA_EACH rows. A channel's terms add up first. */
template <bool TRANSPOSED, bool STAGED>
__device__ inline void convolve_tile(const problem &p, const mta_chunk &c, int64_t plane, int64_t row0, int64_t col0,
                                     float (&all)[MTA_EACH]) {
  const mta_steps s(p, TRANSPOSED);
  const int64_t inputs = p.in / p.groups, outputs = p.out / p.groups, own = TRANSPOSED ? inputs : outputs;
  const int64_t channels = TRANSPOSED ? outputs : inputs, mine = TRANSPOSED ? p.in : p.out;
  const int64_t theirs = TRANSPOSED ? p.out : p.in, b = plane / mine, k = plane % mine;
  const int taps_h = (int)p.h.taps, taps_w = (int)p.w.taps, taps = taps_h * taps_w;
  const int row = (int)threadIdx.x / MTA_COLS * MTA_EACH, col = (int)threadIdx.x % MTA_COLS;
  const float *weights = mta_words + s.height * s.width;
  for (int64_t q = 0; q < channels; ++q) {
    const int64_t other = k / own * channels + q;
    const mta_source from = TRANSPOSED ? source_of_g(p, c, b * theirs + other, row0, col0)
                                       : source_of_u(p, c, b * theirs + other, row0, col0);
    const int64_t first = (TRANSPOSED ? other * inputs + k % inputs : k * inputs + q) * taps;
    if constexpr (STAGED) {
      __syncthreads();
      stage(from, s);
      for (int t = (int)threadIdx.x; t < taps; t += MTA_THREADS)
        mta_words[s.height * s.width + t] = load_any(p.weight.data, first + t, p.weight.dtype);
      __syncthreads();
    }
    float sum[MTA_EACH] = {0};
    for (int t = 0; t < taps; ++t) {
      const int a = t / taps_w, e = t % taps_w;
      const int down = (TRANSPOSED ? taps_h - 1 - a : a) * (int)p.h.dilation;
      const int right = (TRANSPOSED ? taps_w - 1 - e : e) * (int)p.w.dilation;
      const float w = STAGED ? weights[t] : load_any(p.weight.data, first + t, p.weight.dtype);
#pragma unroll
      for (int r = 0; r < MTA_EACH; ++r) {
        const int y = (row + r) * s.by_row + down, x = col * s.by_col + right;
        sum[r] = fmaf(w, STAGED ? mta_words[y * s.width + x] : from.at(y, x), sum[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < MTA_EACH; ++r) all[r] += sum[r];
  }
}

/* A block's tile: the plane, and its first row and column. */
struct mta_tile {
  int64_t plane, row, col;
  __device__ mta_tile(const tigon_band &band, int64_t cols) {
    const int64_t panels = (cols + MTA_COLS - 1) / MTA_COLS;
    plane = blockIdx.x / panels, col = blockIdx.x % panels * MTA_COLS;
    row = band.begin + ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * MTA_ROWS;
  }
};

/* Rows of o: POST's own, or c. */
template <class T, bool STAGED> __device__ inline void convolve(const problem &p, const mta_chunk &c) {
  const mta_tile at(c.made, p.cols);
  const int row = (int)threadIdx.x / MTA_COLS * MTA_EACH;
  const int64_t j = at.col + threadIdx.x % MTA_COLS, k = at.plane % p.out;
  const int64_t last = at.row + MTA_ROWS < c.made.end ? at.row + MTA_ROWS - 1 : c.made.end - 1;
  float all[MTA_EACH] = {0};
  if (at.row >= c.made.end || (p.pre && at.col > last)) return;
  if (at.col <= last) convolve_tile<false, STAGED>(p, c, at.plane, at.row, at.col, all);
  const float bias = p.bias.data ? load_any(p.bias.data, k, p.bias.dtype) : 0.0f;
#pragma unroll
  for (int r = 0; r < MTA_EACH; ++r) {
    const int64_t i = at.row + row + r;
    if (i >= c.made.end || j >= p.cols) continue;
    if (!p.pre)
      row_of<T>(p.out_space, p.o, at.plane * p.rows + i)[j] = from_f32<T>(j <= i ? all[r] + bias : 0.0f);
    else if (j <= i)
      o_row(p, c, c.c, at.plane, i)[j] = all[r];
  }
}
KERNEL_BY_DTYPE(mta_convolve_staged, (MTA_THREADS),
                (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c), convolve<T, true>(p, c))
KERNEL_BY_DTYPE(mta_convolve_walked, (MTA_THREADS),
                (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c), convolve<T, false>(p, c))

/* Rows of the queries: PRE's ds, or c. */
template <class T, bool STAGED> __device__ inline void transposed(const problem &p, const mta_chunk &c) {
  const mta_tile at(c.y, p.tokens);
  const int row = (int)threadIdx.x / MTA_COLS * MTA_EACH;
  const int64_t x = at.col + threadIdx.x % MTA_COLS;
  const int64_t last = at.row + MTA_ROWS < c.y.end ? at.row + MTA_ROWS - 1 : c.y.end - 1;
  float all[MTA_EACH] = {0};
  if (at.row >= c.y.end || (!p.pre && at.col > last)) return;
  if (at.col <= last) convolve_tile<true, STAGED>(p, c, at.plane, at.row, at.col, all);
#pragma unroll
  for (int r = 0; r < MTA_EACH; ++r) {
    const int64_t y = at.row + row + r;
    if (y >= c.y.end || x >= p.tokens) continue;
    if (p.pre)
      row_of<T>(p.space, p.ds, at.plane * p.tokens + y)[x] = from_f32<T>(x <= y ? all[r] : 0.0f);
    else if (x <= y)
      y_row(p, c, at.plane, y)[x] = all[r];
  }
}
KERNEL_BY_DTYPE(mta_transposed_staged, (MTA_THREADS),
                (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c), transposed<T, true>(p, c))
KERNEL_BY_DTYPE(mta_transposed_walked, (MTA_THREADS),
                (const __grid_constant__ problem p, const __grid_constant__ mta_chunk c), transposed<T, false>(p, c))

/* ---- sums ---- */

__device__ static inline void add_to_slab(const problem &p, const mta_chunk &c, int64_t slab, int64_t i, float v) {
  float *to = c.slabs + slab * (c.weights + p.out) + i;
  *to = c.first ? v : *to + v;
}
__device__ static inline int64_t slab_of_block() { return (int64_t)blockIdx.z * gridDim.y + blockIdx.y; }

/* The taps of a pair of channels over a slab's rows, those of all batches' own rows of o. A thread has a tap of every `parts`-th key. */
extern "C" __global__ void __launch_bounds__(MTA_THREADS)
    mta_dweight(const __grid_constant__ problem p, const __grid_constant__ mta_chunk c) {
  __shared__ float shares[MTA_THREADS];
  const int64_t inputs = p.in / p.groups, outputs = p.out / p.groups, co = blockIdx.x / inputs;
  const int64_t ci = co / outputs * inputs + blockIdx.x % inputs, slab = slab_of_block();
  const int64_t own = c.own.end - c.own.begin, rows = p.batch * own;
  const int taps = (int)(p.h.taps * p.w.taps), parts = taps < MTA_THREADS ? MTA_THREADS / taps : 1;
  if (slab >= MTA_SLABS) return;
  for (int t0 = 0; t0 < taps; t0 += MTA_THREADS) {
    const int count = taps - t0 < MTA_THREADS ? taps - t0 : MTA_THREADS;
    const int t = t0 + (int)threadIdx.x % count, part = (int)threadIdx.x / count;
    double sum = 0;
    for (int64_t r = slab; r < rows && part < parts; r += MTA_SLABS) {
      const int64_t b = r / own, i = c.own.begin + r % own;
      const int64_t y = i * p.h.stride - p.h.padding + t / p.w.taps * p.h.dilation;
      const int64_t shift = t % p.w.taps * p.w.dilation - p.w.padding;
      if (y < 0 || y >= p.tokens) continue;
      const float *g = o_row(p, c, c.g, b * p.out + co, i), *u = u_row(p, c, b * p.in + ci, y);
      float some = 0;
      int added = 0;
      for (int64_t j = part; j < allowed(i, p.cols); j += parts) {
        const int64_t x = j * p.w.stride + shift;
        if (x < 0 || x > y) continue;
        some = fmaf(g[j], u[x], some);
        if (++added == 256) sum += (double)some, some = 0, added = 0;
      }
      sum += (double)some;
    }
    __syncthreads(); /* a block may come here again */
    shares[threadIdx.x] = (float)sum;
    __syncthreads();
    if (part > 0) continue;
    float all = 0;
    for (int i = 0; i < parts; ++i) all += shares[i * count + (int)threadIdx.x];
    add_to_slab(p, c, slab, (co * inputs + ci % inputs) * taps + t, all);
  }
}

extern "C" __global__ void __launch_bounds__(MTA_THREADS)
    mta_dbias(const __grid_constant__ problem p, const __grid_constant__ mta_chunk c) {
  const int64_t slab = slab_of_block(), own = c.own.end - c.own.begin, rows = p.batch * own;
  double sum = 0;
  if (slab >= MTA_SLABS) return;
  for (int64_t r = slab; r < rows; r += MTA_SLABS) {
    const int64_t b = r / own, i = c.own.begin + r % own;
    const float *g = o_row(p, c, c.g, b * p.out + blockIdx.x, i);
    for (int64_t j = threadIdx.x; j < allowed(i, p.cols); j += MTA_THREADS) sum += (double)g[j];
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) add_to_slab(p, c, slab, c.weights + blockIdx.x, (float)sum);
}
