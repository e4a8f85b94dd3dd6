/* attention, backward, of 16-bit dtypes and heads of up to 128: the walk of attention_bwd.cu through mma, the other side's next
 * tile on its way while one is worked on. What is not finite is worked out anew, as in attention_mma.cu. */
#include "cuda/kernel/attention_mma.cuh"
#include "cuda/kernel/attention_slope.cuh"

extern __shared__ __align__(1024) unsigned char attention_tiles[];

/* KEYS: rows are keys, the other side are the queries of all heads of the group. Else rows are queries. PLAIN: one part,
 * without a softcap. */
template <class T, int DIM, bool KEYS, bool PLAIN>
__device__ inline void attention_bwd(const attention_problem &p, const attention_walk &walk) {
  enum {
    ROWS = ATTENTION_MMA_BWD_WARPS * 16,
    COLS = KEYS ? ATTENTION_MMA_KEYS_COLS : ATTENTION_MMA_QUERIES_COLS,
    THREADS = ATTENTION_MMA_BWD_WARPS * WARP
  };
  typedef mma_math<T, DIM, COLS> M;
  const M m(p.exact);
  const score_map<PLAIN> map(p);
  T *const a_rows = (T *)attention_tiles, *const b_rows = a_rows + ROWS * DIM, *const cols = b_rows + ROWS * DIM;
  query_stats<KEYS ? COLS : ROWS> *const stats = (query_stats < KEYS ? COLS : ROWS > *)(cols + 4 * COLS * DIM);
  const int64_t heads = KEYS ? p.k.heads : p.q.heads, group = p.q.heads / p.k.heads;
  const int64_t index = blockIdx.x % (p.batch * heads), place = blockIdx.x / (p.batch * heads);
  int64_t tile;
  /* under a causal mask, those with most to do first */
  const tigon_attention_part part = part_at<PLAIN>(p, KEYS, ROWS, KEYS ? place : walk.query_places - 1 - place, &tile);
  const int64_t n = KEYS ? part.keys : part.tokens, others = KEYS ? part.tokens : part.keys, x0 = tile * ROWS;
  if (!PLAIN && x0 >= n) return;
  const int64_t batch = index / heads, mine = index % heads;
  const int64_t kv = KEYS ? mine : mine / group, h0 = KEYS ? mine * group : mine, h1 = KEYS ? h0 + group : h0 + 1;
  const int count = n - x0 < ROWS ? (int)(n - x0) : ROWS;
  const band queries = band_of(part.tokens, part.keys, p.causal, p.window);
  const band seen = KEYS ? band_mirrored(queries) : queries;
  const auto of_queries = [&](const tigon_heads &t, int64_t h) {
    return narrowed(head_of<T>(t, batch, h, p.head_dim), part.q0, part.step);
  };
  const auto of_keys = [&](const tigon_heads &t) {
    return narrowed(head_of<T>(t, batch, kv, p.head_dim), part.k0, part.step);
  };
  const head<T> k = of_keys(p.k), v = of_keys(p.v);
  int64_t first, last;
  tile_range(seen, x0, count, others, &first, &last);
  const float ones[M::R] = {1, 1};

  /* The other side's tile at y0 of head h, and what its queries bring along, into one of two places. */
  const auto fetch = [&](int64_t h, int64_t y0, int turn) {
    T *const a = cols + turn * 2 * COLS * DIM, *const b = a + COLS * DIM;
    const head<T> a_col = KEYS ? of_queries(p.q, h) : k, b_col = KEYS ? of_queries(p.d_o, h) : v;
    fetch_tile<T, DIM, COLS, THREADS>(a, a_col, y0, others - y0, walk.wide);
    fetch_tile<T, DIM, COLS, THREADS>(b, b_col, y0, others - y0, walk.wide);
    if (KEYS)
      load_stats(stats[turn], p, part, batch * p.q.heads + h, y0, others - y0 < COLS ? (int)(others - y0) : COLS);
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
      fetch_tile<T, DIM, ROWS, THREADS>(a_rows, KEYS ? k : of_queries(p.q, mine), x0, count, walk.wide);
      fetch_tile<T, DIM, ROWS, THREADS>(b_rows, KEYS ? v : of_queries(p.d_o, mine), x0, count, walk.wide);
      if (!KEYS) load_stats(stats[0], p, part, batch * p.q.heads + mine, x0, count);
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
      differentiate<M, KEYS>(m, map, stats[KEYS ? turn : 0], mask.masked, begin, end, s, d);
      m.gather(d, a_cols, mask, careful, begin, end, ones, da);
      if constexpr (KEYS) m.gather(s, b_cols, mask, careful, begin, end, ones, db);
    }
    bool finite = all_finite(da);
    if constexpr (KEYS) finite = finite && all_finite(db);
    if (!__syncthreads_or(!finite) || careful) break;
  }
  store_tile(m, KEYS ? of_keys(p.dk) : of_queries(p.dq, mine), x0, count, 0, walk.wide, da, ones);
  if constexpr (KEYS) store_tile(m, of_keys(p.dv), x0, count, 0, walk.wide, db, ones);
}

#define BWD_KERNEL(name, dim, keys, plain)                                           \
  ATTENTION_NARROW_KERNEL(name, attention_problem, ATTENTION_MMA_BWD_WARPS *WARP, 2, \
                          attention_bwd<T, dim, keys, plain>(p, walk))
BWD_KERNEL(attention_bwd_mma_keys_64, 64, true, true)
BWD_KERNEL(attention_bwd_mma_keys_128, 128, true, true)
BWD_KERNEL(attention_bwd_mma_queries_64, 64, false, true)
BWD_KERNEL(attention_bwd_mma_queries_128, 128, false, true)
BWD_KERNEL(attention_bwd_any_mma_keys_64, 64, true, false)
BWD_KERNEL(attention_bwd_any_mma_keys_128, 128, true, false)
BWD_KERNEL(attention_bwd_any_mma_queries_64, 64, false, false)
BWD_KERNEL(attention_bwd_any_mma_queries_128, 128, false, false)
