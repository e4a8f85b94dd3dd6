/* attention, backward, of 16-bit dtypes and heads of up to 128: the walk of attention_bwd.cu through mma, the other side's next
 * tile on its way while one is worked on. What is not finite is worked out anew, as in attention_mma.cu. */
#include "cuda/kernel/attention_mma.cuh"
#include "cuda/kernel/attention_slope.cuh"

extern __shared__ __align__(1024) unsigned char attention_tiles[];

/* KEYS: rows are keys, the other side are the queries of all heads of the group. Else rows are queries. */
template <class T, int DIM, bool KEYS>
__device__ inline void attention_bwd(const attention_problem &p, const attention_walk &walk) {
  enum {
    ROWS = ATTENTION_MMA_BWD_WARPS * 16,
    COLS = KEYS ? ATTENTION_MMA_KEYS_COLS : ATTENTION_MMA_QUERIES_COLS,
    THREADS = ATTENTION_MMA_BWD_WARPS * WARP
  };
  typedef mma_math<T, DIM, COLS> M;
  const M m;
  T *const a_rows = (T *)attention_tiles, *const b_rows = a_rows + ROWS * DIM, *const cols = b_rows + ROWS * DIM;
  query_stats<KEYS ? COLS : ROWS> *const stats = (query_stats < KEYS ? COLS : ROWS > *)(cols + 4 * COLS * DIM);
  const int64_t n = KEYS ? p.keys : p.tokens, others = KEYS ? p.tokens : p.keys, tiles = (n + ROWS - 1) / ROWS;
  const int64_t heads = KEYS ? p.k.heads : p.q.heads, group = p.q.heads / p.k.heads;
  const int64_t index = blockIdx.x % (p.batch * heads), place = blockIdx.x / (p.batch * heads);
  const int64_t x0 = (KEYS ? place : tiles - 1 - place) * ROWS; /* under a causal mask, those with most to do first */
  const int64_t batch = index / heads, mine = index % heads;
  const int64_t kv = KEYS ? mine : mine / group, h0 = KEYS ? mine * group : mine, h1 = KEYS ? h0 + group : h0 + 1;
  const int count = n - x0 < ROWS ? (int)(n - x0) : ROWS;
  const band queries = band_of(p.tokens, p.keys, p.causal, p.window), seen = KEYS ? band_mirrored(queries) : queries;
  const head<T> k = head_of<T>(p.k, batch, kv, p.head_dim), v = head_of<T>(p.v, batch, kv, p.head_dim);
  int64_t first, last;
  tile_range(seen, x0, count, others, &first, &last);
  const float ones[M::R] = {1, 1};

  /* The other side's tile at y0 of head h, and what its queries bring along, into one of two places. */
  const auto fetch = [&](int64_t h, int64_t y0, int turn) {
    T *const a = cols + turn * 2 * COLS * DIM, *const b = a + COLS * DIM;
    const head<T> a_col = KEYS ? head_of<T>(p.q, batch, h, p.head_dim) : k;
    const head<T> b_col = KEYS ? head_of<T>(p.d_o, batch, h, p.head_dim) : v;
    fetch_tile<T, DIM, COLS, THREADS>(a, a_col, y0, others - y0, walk.wide);
    fetch_tile<T, DIM, COLS, THREADS>(b, b_col, y0, others - y0, walk.wide);
    if (KEYS) load_stats(stats[turn], p, batch * p.q.heads + h, y0, others - y0 < COLS ? (int)(others - y0) : COLS);
  };

  float da[M::R][M::OUT], db[KEYS ? M::R : 1][KEYS ? M::OUT : 1]; /* dk and dv; dq */
  for (bool careful = false;; careful = true) {
#pragma unroll
    for (int i = 0; i < M::R; ++i)
#pragma unroll
      for (int j = 0; j < M::OUT; ++j) {
        da[i][j] = 0;
        if constexpr (KEYS) db[i][j] = 0;
      }
    if (first < last && h0 < h1) {
      fetch_tile<T, DIM, ROWS, THREADS>(a_rows, KEYS ? k : head_of<T>(p.q, batch, mine, p.head_dim), x0, count,
                                        walk.wide);
      fetch_tile<T, DIM, ROWS, THREADS>(b_rows, KEYS ? v : head_of<T>(p.d_o, batch, mine, p.head_dim), x0, count,
                                        walk.wide);
      if (!KEYS) load_stats(stats[0], p, batch * p.q.heads + mine, x0, count);
      fetch(h0, first, 0);
    }
    int64_t h = h0, y0 = first;
    for (int turn = 0; first < last && h < h1; turn ^= 1) {
      const warp_mask mask = warp_mask_of<COLS>(seen, x0 + m.first, y0, others);
      const T *const a_cols = cols + turn * 2 * COLS * DIM, *const b_cols = a_cols + COLS * DIM;
      cp_async_wait();
      __syncthreads();
      y0 += COLS;
      if (y0 >= last) y0 = first, ++h;
      if (h < h1) fetch(h, y0, turn ^ 1);
      if (mask.empty || m.first >= count) continue;
      int begin[M::R], end[M::R];
      float s[M::R][M::C], d[M::R][M::C];
      m.scores(a_rows, a_cols, s);
      m.scores(b_rows, b_cols, d);
#pragma unroll
      for (int i = 0; i < M::R; ++i) begin[i] = mask.begin(m.g + 8 * i), end[i] = mask.end(m.g + 8 * i);
      differentiate<M, KEYS>(m, p.scale, stats[KEYS ? turn : 0], mask.masked, begin, end, s, d);
      m.gather(d, a_cols, mask, careful, begin, end, ones, da);
      if constexpr (KEYS) m.gather(s, b_cols, mask, careful, begin, end, ones, db);
    }
    bool finite = all_finite(da);
    if constexpr (KEYS) finite = finite && all_finite(db);
    if (!__syncthreads_or(!finite) || careful) break;
  }
  store_tile(m, KEYS ? head_of<T>(p.dk, batch, kv, p.head_dim) : head_of<T>(p.dq, batch, mine, p.head_dim), x0, count,
             0, walk.wide, da, ones);
  if constexpr (KEYS) store_tile(m, head_of<T>(p.dv, batch, kv, p.head_dim), x0, count, 0, walk.wide, db, ones);
}

ATTENTION_NARROW_KERNEL(attention_bwd_mma_keys_64, attention_problem, ATTENTION_MMA_BWD_WARPS *WARP, 2,
                        attention_bwd<T, 64, true>(p, walk))
ATTENTION_NARROW_KERNEL(attention_bwd_mma_keys_128, attention_problem, ATTENTION_MMA_BWD_WARPS *WARP, 2,
                        attention_bwd<T, 128, true>(p, walk))
ATTENTION_NARROW_KERNEL(attention_bwd_mma_queries_64, attention_problem, ATTENTION_MMA_BWD_WARPS *WARP, 2,
                        attention_bwd<T, 64, false>(p, walk))
ATTENTION_NARROW_KERNEL(attention_bwd_mma_queries_128, attention_problem, ATTENTION_MMA_BWD_WARPS *WARP, 2,
                        attention_bwd<T, 128, false>(p, walk))
