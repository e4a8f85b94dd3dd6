/* attention, backward, without atomics: dk and dv by tiles of keys over the queries that see them, dq by tiles of queries over the
 * keys that they see. Either works the scores out anew from lse, and is the same walk: the block's tile has two matrices of the row
 * side, a (k or q) and b (v or do), and meets those of the other side, with p_ij = exp(z - lse) and dz_ij = scale * p (do . v - delta).
 * KEPT column tiles of the gradients stay in registers; a head that is wider is gone over again for the next ones. */
#include "cuda/kernel/attention_slope.cuh"
#include "cuda/kernel/overlap.cuh"

extern __shared__ float4 attention_shared[];

/* KEYS: rows are keys, the other side are the queries of all heads of the group. Else rows are queries. PLAIN: one part,
 * without a softcap. */
template <class T, int KEPT, bool KEYS, bool PLAIN>
__device__ inline void attention_bwd(const attention_problem &p, const attention_walk &walk) {
  typedef typename math_for<T>::type M;
  __shared__ query_stats<TILE> stats;
  const M m;
  const score_map<PLAIN> map(p);
  float *const a_rows = (float *)attention_shared, *const b_rows = a_rows + KEPT * TILE * PITCH;
  float *const a_cols = b_rows + KEPT * TILE * PITCH, *const b_cols = a_cols + TILE * PITCH;
  float *const a_space = b_cols + TILE * PITCH, *const b_space = a_space + TILE * PITCH;
  const int64_t places = KEYS ? walk.key_places : walk.query_places;
  const int64_t heads = KEYS ? p.k.heads : p.q.heads, group = p.q.heads / p.k.heads;
  const int64_t index = blockIdx.x / places, place = blockIdx.x % places;
  int64_t tile;
  /* under a causal mask, those with most to do first */
  const tigon_attention_part part = part_at<PLAIN>(p, KEYS, TILE, KEYS ? place : places - 1 - place, &tile);
  const int64_t n = KEYS ? part.keys : part.tokens, others = KEYS ? part.tokens : part.keys, x0 = tile * TILE;
  if (!PLAIN && x0 >= n) return;
  const int64_t batch = index / heads, mine = index % heads;
  const int64_t kv = KEYS ? mine : mine / group, h0 = KEYS ? mine * group : mine, h1 = KEYS ? h0 + group : h0 + 1;
  const int count = tile_count(n, x0);
  const band queries = band_of(part.tokens, part.keys, p.causal, p.window);
  const band seen = KEYS ? band_mirrored(queries) : queries;
  const auto of_queries = [&](const tigon_heads &t, int64_t h) {
    return narrowed(head_of<T>(t, batch, h, p.head_dim), part.q0, part.step);
  };
  const auto of_keys = [&](const tigon_heads &t) {
    return narrowed(head_of<T>(t, batch, kv, p.head_dim), part.k0, part.step);
  };
  const head<T> k = of_keys(p.k), v = of_keys(p.v);
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
      const head<T> q = of_queries(p.q, h), d_o = of_queries(p.d_o, h);
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
            load_stats<TILE>(stats, p, part, batch * p.q.heads + h, KEYS ? y0 : x0, KEYS ? mask.cols : count);
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
        differentiate<M, KEYS>(m, map, stats, mask.masked, begin, end, s, d);
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
    const head<T> to_a = KEYS ? of_keys(p.dk) : of_queries(p.dq, mine);
#pragma unroll
    for (int c = 0; c < KEPT; ++c) {
      if (c0 + c >= chunks) continue;
      store_tile(m, to_a, x0, count, c0 + c, walk.wide, da[c], ones);
      if (KEYS) {
        store_tile(m, of_keys(p.dv), x0, count, c0 + c, walk.wide, db[KEYS ? c : 0], ones);
      }
    }
  }
}

/* delta = do . o: some lanes for a few rows each. */
template <class T>
__device__ inline void attention_delta(const attention_problem &p, const attention_delta_walk &walk) {
  enum { N = pack<T>::N, ROWS = ATTENTION_DELTA_ROWS };
  next_kernel_may_begin();
  const int64_t thread = (int64_t)blockIdx.x * ATTENTION_DELTA_THREADS + threadIdx.x;
  for (int64_t i = thread; i < walk.count; i += (int64_t)gridDim.x * ATTENTION_DELTA_THREADS) walk.turns[i] = 0;
  const int lanes = walk.lanes ? walk.lanes : WARP, lane = (int)threadIdx.x % lanes;
  const int64_t all = p.batch * p.q.heads * p.tokens, row0 = thread / lanes * ROWS;
  const int64_t inner = walk.heads_first ? p.q.heads : p.tokens, outer = walk.heads_first ? p.tokens : p.q.heads;
  int64_t i = row0 % inner, o = row0 / inner % outer, b = row0 / inner / outer;
  const T *d_o[ROWS], *out[ROWS];
  float sum[ROWS] = {};
  int64_t to[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const bool is = row0 + r < all;
    const int64_t h = walk.heads_first ? i : o, t = walk.heads_first ? o : i;
    to[r] = is ? (b * p.q.heads + h) * p.tokens + t : -1;
    d_o[r] = (const T *)tigon_head(&p.d_o, sizeof(T), is ? b : 0, is ? t : 0, is ? h : 0);
    out[r] = (const T *)tigon_head(&p.o, sizeof(T), is ? b : 0, is ? t : 0, is ? h : 0);
    if (++i == inner) i = 0, b += ++o == outer, o = o == outer ? 0 : o;
  }
  if (walk.lanes) {
    for (int64_t c = lane * N; c < p.head_dim; c += lanes * N) {
      pack<T> x[ROWS], y[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) x[r] = load_pack(d_o[r] + c), y[r] = load_pack(out[r] + c);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        float u[N], v[N];
        unpack(x[r], u), unpack(y[r], v);
#pragma unroll
        for (int e = 0; e < N; ++e) sum[r] = fmaf(u[e], v[e], sum[r]);
      }
    }
  } else {
    for (int64_t c = lane; c < p.head_dim; c += WARP)
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] = fmaf(to_f32(d_o[r][c]), to_f32(out[r][c]), sum[r]);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    for (int d = lanes / 2; d > 0; d /= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], d);
    if (lane == 0 && to[r] >= 0) p.delta[to[r]] = sum[r];
  }
}

/* dsinks = -sum of exp(sink - lse) * delta over batches and queries, a block for a head. */
__device__ static inline void attention_sinks(const attention_problem &p) {
  const int64_t h = blockIdx.x;
  const float sink = load_any(p.sinks.data, h, p.sinks.dtype);
  double sum = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = (b * p.q.heads + h) * p.tokens;
    for (int64_t t = threadIdx.x; t < p.tokens; t += ATTENTION_DELTA_THREADS) {
      const float lse = p.lse[first + t], weight = sink == INFINITY ? 1 : lse == -INFINITY ? 0 : expf(sink - lse);
      sum -= weight * p.delta[first + t];
    }
  }
  sum = block_total(sum);
  if (threadIdx.x == 0) store_any(p.dsinks.data, h, p.dsinks.dtype, (float)sum);
}

ATTENTION_KERNEL(attention_bwd_keys_1, attention_problem, 2, 2, attention_bwd<T, 1, true, true>(p, walk))
ATTENTION_KERNEL(attention_bwd_keys_2, attention_problem, 1, 2, attention_bwd<T, 2, true, true>(p, walk))
ATTENTION_KERNEL(attention_bwd_queries_1, attention_problem, 2, 3, attention_bwd<T, 1, false, true>(p, walk))
ATTENTION_KERNEL(attention_bwd_queries_2, attention_problem, 1, 2, attention_bwd<T, 2, false, true>(p, walk))
ATTENTION_KERNEL(attention_bwd_any_keys_1, attention_problem, 2, 2, attention_bwd<T, 1, true, false>(p, walk))
ATTENTION_KERNEL(attention_bwd_any_keys_2, attention_problem, 1, 2, attention_bwd<T, 2, true, false>(p, walk))
ATTENTION_KERNEL(attention_bwd_any_queries_1, attention_problem, 2, 3, attention_bwd<T, 1, false, false>(p, walk))
ATTENTION_KERNEL(attention_bwd_any_queries_2, attention_problem, 1, 2, attention_bwd<T, 2, false, false>(p, walk))
KERNEL_BY_DTYPE(attention_bwd_delta, (ATTENTION_DELTA_THREADS),
                (const __grid_constant__ attention_problem p, const attention_delta_walk walk),
                attention_delta<T>(p, walk))
extern "C" __global__ void __launch_bounds__(ATTENTION_DELTA_THREADS)
    attention_bwd_sinks(const __grid_constant__ attention_problem p) {
  attention_sinks(p);
}
