/* attention, forward: a block has 64 queries of a head and goes over the keys that they see, tile by tile, with an online softmax.
 * KEPT column tiles of o stay in registers; a head that is wider is gone over again for the next ones. */
#include "cuda/kernel/attention_math.cuh"

extern __shared__ float4 attention_shared[];

typedef tigon_attention_fwd_problem attention_problem;

/* PLAIN: one part, without softcap and sinks. */
template <class T, int KEPT, bool PLAIN>
__device__ inline void attention_fwd(const attention_problem &p, const attention_walk &walk) {
  typedef typename math_for<T>::type M;
  const M m;
  const score_map<PLAIN> map(p);
  float *const rows = (float *)attention_shared, *const cols = rows + KEPT * TILE * PITCH;
  float *const space = cols + TILE * PITCH;
  const int64_t places = walk.query_places, index = blockIdx.x / places;
  int64_t tile;
  /* late queries first: under a causal mask they see more keys */
  const tigon_attention_part part = part_at<PLAIN>(p, false, TILE, places - 1 - blockIdx.x % places, &tile);
  const int64_t t0 = tile * TILE;
  if (!PLAIN && t0 >= part.tokens) return;
  const int64_t b = index / p.q.heads, h = index % p.q.heads, kv = h / (p.q.heads / p.k.heads);
  const int count = tile_count(part.tokens, t0);
  const head<T> q = narrowed(head_of<T>(p.q, b, h, p.head_dim), part.q0, part.step);
  const head<T> k = narrowed(head_of<T>(p.k, b, kv, p.head_dim), part.k0, part.step);
  const head<T> v = narrowed(head_of<T>(p.v, b, kv, p.head_dim), part.k0, part.step);
  const head<T> o = narrowed(head_of<T>(p.o, b, h, p.head_dim), part.q0, part.step);
  const band seen = band_of(part.tokens, part.keys, p.causal, p.window);
  int64_t first, last;
  tile_range(seen, t0, count, part.keys, &first, &last);
  const int64_t chunks = (p.head_dim + TILE - 1) / TILE;
  const bool stays = chunks <= KEPT; /* q stays in shared memory */

  for (int64_t c0 = 0; c0 < chunks; c0 += KEPT) {
    float acc[KEPT][M::R][M::OUT] = {}, max[M::R], sum[M::R], factor[M::R];
#pragma unroll
    for (int i = 0; i < M::R; ++i) max[i] = -INFINITY, sum[i] = 0;
    for (int64_t y0 = first; y0 < last; y0 += TILE) {
      const tile_mask mask = mask_of(seen, t0, y0, part.keys);
      float s[M::R][M::C] = {};
      for (int64_t c = 0; c < chunks; ++c) {
        float *const a = rows + (stays ? c : 0) * TILE * PITCH;
        __syncthreads();
        if (!stays || y0 == first) load_tile<T, M::THREADS>(a, q, t0, count, c, walk.wide);
        load_tile<T, M::THREADS>(cols, k, y0, mask.cols, c, walk.wide);
        __syncthreads();
        m.scores(a, cols, chunk_depth(p.head_dim, c), s);
      }
      int begin[M::R], end[M::R];
#pragma unroll
      for (int i = 0; i < M::R; ++i) begin[i] = mask.begin(m.row(i)), end[i] = mask.end(m.row(i));
      soften(m, map, mask.masked, begin, end, s, max, sum, factor);
      m.put(space, s);
#pragma unroll
      for (int c = 0; c < KEPT; ++c) {
        if (c0 + c >= chunks) continue;
        __syncthreads();
        const bool mine = load_tile<T, M::THREADS>(cols, v, y0, mask.cols, c0 + c, walk.wide);
        const bool finite = __syncthreads_and(mine);
        m.gather(space, s, cols, mask.masked, finite, begin, end, factor, acc[c]);
      }
    }
    float inverse[M::R];
#pragma unroll
    for (int i = 0; i < M::R; ++i) {
      sum[i] = lanes_all<op_sum, M::LANES>(sum[i]);
      inverse[i] = sum[i] == 0 ? 0 : 1 / sum[i];
      if (!PLAIN && p.sinks.data) inverse[i] = join_sink(load_any(p.sinks.data, h, p.sinks.dtype), max[i], sum[i]);
      const int r = m.row(i);
      if (p.lse && c0 == 0 && m.col(0) == 0 && r < count)
        p.lse[index * p.tokens + part.q0 + (t0 + r) * part.step] = sum[i] == 0 ? -INFINITY : max[i] + logf(sum[i]);
    }
#pragma unroll
    for (int c = 0; c < KEPT; ++c)
      if (c0 + c < chunks) store_tile(m, o, t0, count, c0 + c, walk.wide, acc[c], inverse);
  }
}

ATTENTION_F32_KERNEL(attention_fwd_1, attention_problem, 2, attention_fwd<T, 1, true>(p, walk))
ATTENTION_KERNEL(attention_fwd_2, attention_problem, 2, 3, attention_fwd<T, 2, true>(p, walk))
ATTENTION_F32_KERNEL(attention_fwd_any_1, attention_problem, 2, attention_fwd<T, 1, false>(p, walk))
ATTENTION_KERNEL(attention_fwd_any_2, attention_problem, 2, 3, attention_fwd<T, 2, false>(p, walk))
