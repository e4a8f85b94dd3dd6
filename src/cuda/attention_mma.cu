/* attention, forward, for 16-bit dtypes and heads of up to 128, where attention_wgmma.cu does not do it. A warp has 16 queries,
 * and their whole o in registers. The block goes over the keys that they see. The next tile's scores are computed while this
 * one's become weights. A block whose final sum is not finite begins again, carefully: an Inf or NaN must not meet the weight of
 * an unseen key. */
#include "cuda/kernel/attention_mma.cuh"

extern __shared__ __align__(1024) unsigned char attention_tiles[];

typedef tigon_attention_fwd_problem attention_problem;

/* PLAIN: one part, without softcap and sinks. */
template <class T, int DIM, bool PLAIN>
__device__ inline void attention_fwd(const attention_problem &p, const attention_walk &walk) {
  typedef mma_math<T, DIM, TILE> M;
  enum { THREADS = ATTENTION_MMA_FWD_WARPS * WARP, ROWS = ATTENTION_MMA_FWD_WARPS * 16 };
  const M m(p.exact);
  const score_map<PLAIN> map(p);
  T *const q_tile = (T *)attention_tiles, *const k_tiles = q_tile + ROWS * DIM,
           *const v_tiles = k_tiles + 2 * TILE * DIM;
  const int64_t heads = p.batch * p.q.heads, index = blockIdx.x % heads;
  int64_t tile;
  /* late queries of all heads first: under a causal mask they see more keys */
  const tigon_attention_part part = part_at<PLAIN>(p, false, ROWS, walk.query_places - 1 - blockIdx.x / heads, &tile);
  const int64_t t0 = tile * ROWS;
  if (!PLAIN && t0 >= part.tokens) return;
  const int64_t b = index / p.q.heads, h = index % p.q.heads, kv = h / (p.q.heads / p.k.heads);
  const int count = part.tokens - t0 < ROWS ? (int)(part.tokens - t0) : ROWS;
  const head<T> q = narrowed(head_of<T>(p.q, b, h, p.head_dim), part.q0, part.step);
  const head<T> k = narrowed(head_of<T>(p.k, b, kv, p.head_dim), part.k0, part.step);
  const head<T> v = narrowed(head_of<T>(p.v, b, kv, p.head_dim), part.k0, part.step);
  const head<T> o = narrowed(head_of<T>(p.o, b, h, p.head_dim), part.q0, part.step);
  const band seen = band_of(part.tokens, part.keys, p.causal, p.window);
  int64_t begin_key, end_key;
  tile_range(seen, t0, count, part.keys, &begin_key, &end_key);

  float acc[M::R][M::OUT], max[M::R], sum[M::R];
  for (bool careful = false;; careful = true) {
#pragma unroll
    for (int i = 0; i < M::R; ++i) {
      max[i] = -INFINITY, sum[i] = 0;
#pragma unroll
      for (int j = 0; j < M::OUT; ++j) acc[i][j] = 0;
    }
    const auto fetch = [&](T *to, const head<T> &from, int64_t y0) {
      if (y0 < end_key) fetch_tile<T, DIM, TILE, THREADS>(to, from, y0, part.keys - y0, walk.wide);
    };
    float s[M::R][M::C], next[M::R][M::C];
    if (begin_key < end_key) {
      fetch_tile<T, DIM, ROWS, THREADS>(q_tile, q, t0, count, walk.wide);
      fetch(k_tiles, k, begin_key);
      fetch(v_tiles, v, begin_key);
      cp_async_wait();
      __syncthreads();
      fetch(k_tiles + TILE * DIM, k, begin_key + TILE);
      m.scores(q_tile, k_tiles, s);
    }
    int turn = 0;
    for (int64_t y0 = begin_key; y0 < end_key; y0 += TILE, turn ^= 1) {
      const warp_mask mask = warp_mask_of<TILE>(seen, t0 + m.first, y0, part.keys);
      int begin[M::R], end[M::R];
      float factor[M::R];
#pragma unroll
      for (int i = 0; i < M::R; ++i) begin[i] = mask.begin(m.g + 8 * i), end[i] = mask.end(m.g + 8 * i);
      cp_async_wait();
      __syncthreads();
      fetch(k_tiles + turn * TILE * DIM, k, y0 + 2 * TILE);
      fetch(v_tiles + (turn ^ 1) * TILE * DIM, v, y0 + TILE);
      if (y0 + TILE < end_key) m.scores(q_tile, k_tiles + (turn ^ 1) * TILE * DIM, next);
      soften(m, map, mask.masked, begin, end, s, max, sum, factor);
      m.gather(s, v_tiles + turn * TILE * DIM, mask, careful, begin, end, factor, acc);
#pragma unroll
      for (int i = 0; i < M::R; ++i)
#pragma unroll
        for (int j = 0; j < M::C; ++j) s[i][j] = next[i][j];
    }
    if (!__syncthreads_or(!all_finite<M::R, M::OUT>(acc)) || careful) break;
  }

  float inverse[M::R];
#pragma unroll
  for (int i = 0; i < M::R; ++i) {
    sum[i] = lanes_all<op_sum, M::LANES>(sum[i]);
    inverse[i] = sum[i] == 0 ? 0 : 1 / sum[i];
    if (!PLAIN && p.sinks.data) inverse[i] = join_sink(load_any(p.sinks.data, h, p.sinks.dtype), max[i], sum[i]);
    const int r = m.row(i);
    if (p.lse && m.t == 0 && r < count)
      p.lse[index * p.tokens + part.q0 + (t0 + r) * part.step] = sum[i] == 0 ? -INFINITY : max[i] + logf(sum[i]);
  }
  store_tile(m, o, t0, count, 0, walk.wide, acc, inverse);
}

#define FWD_KERNEL(name, dim, plain)                                                 \
  ATTENTION_NARROW_KERNEL(name, attention_problem, ATTENTION_MMA_FWD_WARPS *WARP, 2, \
                          attention_fwd<T, dim, plain>(p, walk))
FWD_KERNEL(attention_fwd_mma_64, 64, true)
FWD_KERNEL(attention_fwd_mma_128, 128, true)
FWD_KERNEL(attention_fwd_any_mma_64, 64, false)
FWD_KERNEL(attention_fwd_any_mma_128, 128, false)
