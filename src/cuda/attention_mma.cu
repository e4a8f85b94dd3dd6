/* attention, forward, of 16-bit dtypes and heads of up to 128: a warp has 16 queries, and their whole o in registers, and the
 * block goes over the keys that they see. The next tile's scores are worked out while this one's become weights; a block that
 * ends with a sum that is not finite begins anew, carefully: an Inf or NaN must not meet a weight that is not there. */
#include "cuda/kernel/attention_mma.cuh"

extern __shared__ __align__(1024) unsigned char attention_tiles[];

typedef tigon_attention_fwd_problem attention_problem;

template <class T, int DIM>
__device__ inline void attention_fwd(const attention_problem &p, const attention_walk &walk) {
  typedef mma_math<T, DIM, TILE> M;
  enum { THREADS = ATTENTION_MMA_FWD_WARPS * WARP, ROWS = ATTENTION_MMA_FWD_WARPS * 16 };
  const M m;
  T *const q_tile = (T *)attention_tiles, *const k_tiles = q_tile + ROWS * DIM,
           *const v_tiles = k_tiles + 2 * TILE * DIM;
  const int64_t tiles = (p.tokens + ROWS - 1) / ROWS, heads = p.batch * p.q.heads, index = blockIdx.x % heads;
  /* late queries of all heads first: under a causal mask they see more keys */
  const int64_t t0 = (tiles - 1 - blockIdx.x / heads) * ROWS;
  const int64_t b = index / p.q.heads, h = index % p.q.heads, kv = h / (p.q.heads / p.k.heads);
  const int count = p.tokens - t0 < ROWS ? (int)(p.tokens - t0) : ROWS;
  const head<T> q = head_of<T>(p.q, b, h, p.head_dim), k = head_of<T>(p.k, b, kv, p.head_dim);
  const head<T> v = head_of<T>(p.v, b, kv, p.head_dim), o = head_of<T>(p.o, b, h, p.head_dim);
  const band seen = band_of(p.tokens, p.keys, p.causal, p.window);
  int64_t begin_key, end_key;
  tile_range(seen, t0, count, p.keys, &begin_key, &end_key);

  float acc[M::R][M::OUT], max[M::R], sum[M::R];
  for (bool careful = false;; careful = true) {
#pragma unroll
    for (int i = 0; i < M::R; ++i) {
      max[i] = -INFINITY, sum[i] = 0;
#pragma unroll
      for (int j = 0; j < M::OUT; ++j) acc[i][j] = 0;
    }
    const auto fetch = [&](T *to, const head<T> &from, int64_t y0) {
      if (y0 < end_key) fetch_tile<T, DIM, TILE, THREADS>(to, from, y0, p.keys - y0, walk.wide);
    };
    float s[M::R][M::C], next[M::R][M::C];
    if (begin_key < end_key) {
      fetch_tile<T, DIM, ROWS, THREADS>(q_tile, q, t0, count, walk.wide);
      fetch(k_tiles, k, begin_key);
      cp_async_wait();
      __syncthreads();
      fetch(k_tiles + TILE * DIM, k, begin_key + TILE);
      fetch(v_tiles, v, begin_key);
      m.scores(q_tile, k_tiles, s);
    }
    int turn = 0;
    for (int64_t y0 = begin_key; y0 < end_key; y0 += TILE, turn ^= 1) {
      const warp_mask mask = warp_mask_of<TILE>(seen, t0 + m.first, y0, p.keys);
      int begin[M::R], end[M::R];
      float factor[M::R];
#pragma unroll
      for (int i = 0; i < M::R; ++i) begin[i] = mask.begin(m.g + 8 * i), end[i] = mask.end(m.g + 8 * i);
      cp_async_wait();
      __syncthreads();
      fetch(k_tiles + turn * TILE * DIM, k, y0 + 2 * TILE);
      fetch(v_tiles + (turn ^ 1) * TILE * DIM, v, y0 + TILE);
      m.scores(q_tile, k_tiles + (turn ^ 1) * TILE * DIM, next); /* of nothing, behind the last */
      soften(m, p.scale, mask.masked, begin, end, s, max, sum, factor);
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
    const int r = m.row(i);
    if (p.lse && m.t == 0 && r < count)
      p.lse[index * p.tokens + t0 + r] = sum[i] == 0 ? -INFINITY : max[i] + logf(sum[i]);
  }
  store_tile(m, o, t0, count, 0, walk.wide, acc, inverse);
}

ATTENTION_NARROW_KERNEL(attention_fwd_mma_64, attention_problem, ATTENTION_MMA_FWD_WARPS *WARP, 2,
                        attention_fwd<T, 64>(p, walk))
ATTENTION_NARROW_KERNEL(attention_fwd_mma_128, attention_problem, ATTENTION_MMA_FWD_WARPS *WARP, 2,
                        attention_fwd<T, 128>(p, walk))
