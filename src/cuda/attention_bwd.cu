/* attention, backward, without atomics: dk and dv by tiles of keys over the queries that see them, dq by tiles of queries over the
 * keys that they see. Either works the scores out anew from lse, and is the same walk: the block's tile has two matrices of the row
 * side, a (k or q) and b (v or do), and meets those of the other side, with p_ij = exp(z - lse) and dz_ij = scale * p (do . v - delta).
 * KEPT column tiles of the gradients stay in registers; a head that is wider is gone over again for the next ones. */
#include "cuda/kernel/attention_slope.cuh"

extern __shared__ float4 attention_shared[];

/* KEYS: rows are keys, the other side are the queries of all heads of the group. Else rows are queries. */
template <class T, int KEPT, bool KEYS>
__device__ inline void attention_bwd(const attention_problem &p, const attention_walk &walk) {
  typedef typename math_for<T>::type M;
  __shared__ query_stats<TILE> stats;
  const M m;
  float *const a_rows = (float *)attention_shared, *const b_rows = a_rows + KEPT * TILE * PITCH;
  float *const a_cols = b_rows + KEPT * TILE * PITCH, *const b_cols = a_cols + TILE * PITCH;
  float *const a_space = b_cols + TILE * PITCH, *const b_space = a_space + TILE * PITCH;
  const int64_t n = KEYS ? p.keys : p.tokens, others = KEYS ? p.tokens : p.keys, tiles = (n + TILE - 1) / TILE;
  const int64_t heads = KEYS ? p.k.heads : p.q.heads, group = p.q.heads / p.k.heads;
  const int64_t index = blockIdx.x / tiles, place = blockIdx.x % tiles;
  const int64_t x0 = (KEYS ? place : tiles - 1 - place) * TILE; /* under a causal mask, those with most to do first */
  const int64_t batch = index / heads, mine = index % heads;
  const int64_t kv = KEYS ? mine : mine / group, h0 = KEYS ? mine * group : mine, h1 = KEYS ? h0 + group : h0 + 1;
  const int count = tile_count(n, x0);
  const band queries = band_of(p.tokens, p.keys, p.causal, p.window), seen = KEYS ? band_mirrored(queries) : queries;
  const head<T> k = head_of<T>(p.k, batch, kv, p.head_dim), v = head_of<T>(p.v, batch, kv, p.head_dim);
  const int64_t chunks = (p.head_dim + TILE - 1) / TILE;
  const bool stays = chunks <= KEPT; /* the row side stays in shared memory */
  int64_t first, last;
  tile_range(seen, x0, count, others, &first, &last);
  float ones[M::R];
#pragma unroll
  for (int i = 0; i < M::R; ++i) ones[i] = 1;

  for (int64_t c0 = 0; c0 < chunks; c0 += KEPT) {
    float da[KEPT][M::R][M::OUT] = {}, db[KEYS ? KEPT : 1][M::R][M::OUT] = {}; /* dk and dv; dq */
    bool here = false;
    for (int64_t h = h0; h < h1; ++h) {
      const head<T> q = head_of<T>(p.q, batch, h, p.head_dim), d_o = head_of<T>(p.d_o, batch, h, p.head_dim);
      const head<T> a_row = KEYS ? k : q, b_row = KEYS ? v : d_o, a_col = KEYS ? q : k, b_col = KEYS ? d_o : v;
      for (int64_t y0 = first; y0 < last; y0 += TILE) {
        const tile_mask mask = mask_of(seen, x0, y0, others);
        float s[M::R][M::C] = {}, d[M::R][M::C] = {};
        bool finite = true;
        for (int64_t c = 0; c < chunks; ++c) {
          float *const a = a_rows + (stays ? c : 0) * TILE * PITCH, *const b = b_rows + (stays ? c : 0) * TILE * PITCH;
          __syncthreads();
          if (!stays || !here) {
            load_tile<T, M::THREADS>(a, a_row, x0, count, c, walk.wide);
            load_tile<T, M::THREADS>(b, b_row, x0, count, c, walk.wide);
          }
          if (c == 0 && (KEYS || !here))
            load_stats<TILE>(stats, p, batch * p.q.heads + h, KEYS ? y0 : x0, KEYS ? mask.cols : count);
          finite = load_tile<T, M::THREADS>(a_cols, a_col, y0, mask.cols, c, walk.wide);
          finite = load_tile<T, M::THREADS>(b_cols, b_col, y0, mask.cols, c, walk.wide) && finite;
          finite = __syncthreads_and(finite);
          m.scores(a, a_cols, chunk_depth(p.head_dim, c), s);
          m.scores(b, b_cols, chunk_depth(p.head_dim, c), d);
        }
        here = true;
        int begin[M::R], end[M::R];
#pragma unroll
        for (int i = 0; i < M::R; ++i) begin[i] = mask.begin(m.row(i)), end[i] = mask.end(m.row(i));
        differentiate<M, KEYS>(m, p.scale, stats, mask.masked, begin, end, s, d);
        const bool fine = __all_sync(0xffffffffu, all_finite<M::R, M::C>(s) && all_finite<M::R, M::C>(d));
        m.put(a_space, d);
        if (KEYS) m.put(b_space, s);
#pragma unroll
        for (int c = KEPT - 1; c >= 0; --c) { /* the last one is there already */
          if (c0 + c >= chunks) continue;
          if (c0 + c < chunks - 1) {
            __syncthreads();
            finite = load_tile<T, M::THREADS>(a_cols, a_col, y0, mask.cols, c0 + c, walk.wide);
            if (KEYS) finite = load_tile<T, M::THREADS>(b_cols, b_col, y0, mask.cols, c0 + c, walk.wide) && finite;
            finite = __syncthreads_and(finite);
          }
          m.gather(a_space, d, a_cols, mask.masked, finite && fine, begin, end, ones, da[c]);
          if (KEYS) m.gather(b_space, s, b_cols, mask.masked, finite && fine, begin, end, ones, db[KEYS ? c : 0]);
        }
      }
    }
    const head<T> to_a = KEYS ? head_of<T>(p.dk, batch, kv, p.head_dim) : head_of<T>(p.dq, batch, mine, p.head_dim);
#pragma unroll
    for (int c = 0; c < KEPT; ++c) {
      if (c0 + c >= chunks) continue;
      store_tile(m, to_a, x0, count, c0 + c, walk.wide, da[c], ones);
      if (KEYS) {
        const head<T> to_b = head_of<T>(p.dv, batch, kv, p.head_dim);
        store_tile(m, to_b, x0, count, c0 + c, walk.wide, db[KEYS ? c : 0], ones);
      }
    }
  }
}

/* delta = do . o, a warp for a query and head. */
template <class T> __device__ inline void attention_delta(const attention_problem &p) {
  const int64_t index = (int64_t)blockIdx.x * (ATTENTION_DELTA_THREADS / WARP) + threadIdx.x / WARP;
  if (index >= p.batch * p.q.heads * p.tokens) return;
  const int64_t token = index % p.tokens, h = index / p.tokens % p.q.heads, batch = index / p.tokens / p.q.heads;
  const T *a = (const T *)tigon_head(&p.d_o, sizeof(T), batch, token, h);
  const T *b = (const T *)tigon_head(&p.o, sizeof(T), batch, token, h);
  float sum = 0;
#pragma unroll 4
  for (int64_t c = threadIdx.x % WARP; c < p.head_dim; c += WARP) sum = fmaf(to_f32(a[c]), to_f32(b[c]), sum);
  sum = warp_all<op_sum>(sum);
  if (threadIdx.x % WARP == 0) p.delta[index] = sum;
}

ATTENTION_KERNEL(attention_bwd_keys_1, attention_problem, 2, 2, attention_bwd<T, 1, true>(p, walk))
ATTENTION_KERNEL(attention_bwd_keys_2, attention_problem, 1, 2, attention_bwd<T, 2, true>(p, walk))
ATTENTION_KERNEL(attention_bwd_queries_1, attention_problem, 2, 3, attention_bwd<T, 1, false>(p, walk))
ATTENTION_KERNEL(attention_bwd_queries_2, attention_problem, 1, 2, attention_bwd<T, 2, false>(p, walk))
KERNEL_BY_DTYPE(attention_bwd_delta, (ATTENTION_DELTA_THREADS), (const __grid_constant__ attention_problem p),
                attention_delta<T>(p))
