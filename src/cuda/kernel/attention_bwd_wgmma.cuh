/* What a warpgroup of attention's backward does between its products, in 16-bit dtypes on sm_90a. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_BWD_WGMMA_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_BWD_WGMMA_CUH

#include "cuda/kernel/attention_ring.cuh"

typedef tigon_attention_bwd_problem attention_problem;

/* OF_KEYS: rows are keys. */
template <int DIM, bool OF_KEYS> struct bwd_shapes {
  enum {
    ROWS = ATTENTION_WGMMA_BWD_ROWS,
    COLS = ATTENTION_WGMMA_BWD_COLS(DIM, OF_KEYS),
    STAGES = ATTENTION_WGMMA_BWD_STAGES(DIM, OF_KEYS),
    ROWS_BYTES = ROWS * DIM * 2, /* bytes of one matrix */
    COLS_BYTES = COLS * DIM * 2,
  };
};

/* What a query brings along: lse in base 2, where -Inf is Inf, since then every z is -Inf and p has to be 0; delta. */
struct query_stat {
  float lse, delta;
};
__device__ static inline query_stat stat_of(const attention_problem &p, int64_t first, int64_t t) {
  if (t >= p.tokens) return query_stat{INFINITY, 0};
  const float lse = p.lse[first + t];
  return query_stat{lse == -INFINITY ? INFINITY : lse * 1.44269504f, p.delta[first + t]};
}
struct row_stats {
  query_stat of[2];
};
__device__ static inline row_stats stats_of_rows(const attention_problem &p, const lane_place_of &lane, int64_t first,
                                                 int64_t row0) {
  return row_stats{{stat_of(p, first, row0 + lane.row(0)), stat_of(p, first, row0 + lane.row(1))}};
}
/* Those of COLS queries, by a warp: lse, then delta. */
template <int COLS>
__device__ inline void load_stats(const attention_problem &p, unsigned to, int64_t first, int64_t t0) {
#pragma unroll
  for (int i = 0; i < COLS; i += WARP) {
    const int at = i + (int)threadIdx.x % WARP;
    const query_stat one = stat_of(p, first, t0 + at);
    asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(to + 4 * at), "f"(one.lse) : "memory");
    asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(to + 4 * (COLS + at)), "f"(one.delta) : "memory");
  }
}
__device__ static inline float2 load_two(unsigned at) {
  float2 v;
  asm volatile("ld.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
  return v;
}

/* Scores s and do . v (in d) become p and dz / scale, as operands A. */
template <class T, bool OF_KEYS, int COLS>
__device__ inline void differentiate_step(const lane_place_of &lane, float scale, const step_mask<COLS> &mask, int step,
                                          const row_stats &rows, unsigned cols, wgmma_block<COLS> &s,
                                          wgmma_block<COLS> &d, unsigned (&weights)[COLS / 16][4],
                                          unsigned (&slopes)[COLS / 16][4]) {
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j) {
    float2 lse, delta;
    if (OF_KEYS)
      lse = load_two(cols + 4 * (8 * j + 2 * lane.t)), delta = load_two(cols + 4 * (COLS + 8 * j + 2 * lane.t));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float l = OF_KEYS ? e % 2 ? lse.y : lse.x : rows.of[e / 2].lse;
      const float own = OF_KEYS ? e % 2 ? delta.y : delta.x : rows.of[e / 2].delta;
      s.of[j][e] = exp2_approx(fmaf(s.of[j][e], scale, -l));
      d.of[j][e] = s.of[j][e] * (d.of[j][e] - own);
    }
  }
  if (mask.masked(step)) {
#pragma unroll
    for (int j = 0; j < COLS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = lane.row(e / 2), col = 8 * j + 2 * lane.t + e % 2;
        if (col < mask.begin(r, step) || col >= mask.end(r, step)) s.of[j][e] = d.of[j][e] = 0;
      }
  }
#pragma unroll
  for (int k = 0; k < COLS / 16; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = 2 * k + e / 2, i = e % 2 * 2;
      slopes[k][e] = packed_two<T>(d.of[j][i], d.of[j][i + 1]);
      if (OF_KEYS) weights[k][e] = packed_two<T>(s.of[j][i], s.of[j][i + 1]);
    }
}

/* ---- rows anew ---- */

template <class T> __device__ inline float product_of(const T *a, const T *b, int64_t width) {
  float sum = 0;
  for (int64_t c = 0; c < width; ++c) sum = fmaf(to_f32(a[c]), to_f32(b[c]), sum);
  return sum;
}

/* A row's gradient by a warp and with fma: of a, or of b. An Inf or NaN must not meet a weight that is 0 because its key is not seen, and a
 * large slope must not be cut off. */
template <class T, int DIM, bool OF_KEYS>
__device__ inline void differentiate_row(const attention_problem &p, const tile_work &w, int64_t row, bool of_b,
                                         float scale) {
  const int lane = (int)threadIdx.x % WARP, group = (int)(p.q.heads / p.k.heads),
            kv = OF_KEYS ? w.head : w.head / group;
  const head<T> k = head_of<T>(p.k, w.batch, kv, p.head_dim), v = head_of<T>(p.v, w.batch, kv, p.head_dim);
  const int64_t begin = clamp64(row + w.seen.low, 0, OF_KEYS ? p.tokens : p.keys);
  const int64_t end = clamp64(row + w.seen.high, 0, OF_KEYS ? p.tokens : p.keys);
  float da[DIM / WARP] = {}, db[DIM / WARP] = {};
  for (int h = OF_KEYS ? w.head * group : w.head, n = OF_KEYS ? group : 1; n > 0; ++h, --n) {
    const head<T> q = head_of<T>(p.q, w.batch, h, p.head_dim), d_o = head_of<T>(p.d_o, w.batch, h, p.head_dim);
    const int64_t first = ((int64_t)w.batch * p.q.heads + h) * p.tokens;
    for (int64_t y0 = begin; y0 < end; y0 += WARP) {
      const int64_t y = y0 + lane < end ? y0 + lane : end - 1, query = OF_KEYS ? y : row, key = OF_KEYS ? row : y;
      const query_stat stat = stat_of(p, first, query);
      const T *const of_do = d_o.data + query * d_o.pitch;
      const float z = product_of(q.data + query * q.pitch, k.data + key * k.pitch, p.head_dim);
      const float weight = exp2_approx(fmaf(z, scale, -stat.lse));
      const float slope = weight * (product_of(of_do, v.data + key * v.pitch, p.head_dim) - stat.delta);
      for (int i = 0; i < WARP && y0 + i < end; ++i) {
        const float f = __shfl_sync(0xffffffffu, slope, i), g = __shfl_sync(0xffffffffu, weight, i);
        const T *const a = OF_KEYS ? q.data + (y0 + i) * q.pitch : k.data + (y0 + i) * k.pitch;
        const T *const b = d_o.data + (y0 + i) * d_o.pitch;
#pragma unroll
        for (int c = 0; c < DIM / WARP; ++c) {
          if (c * WARP + lane >= p.head_dim) continue;
          da[c] = fmaf(f, to_f32(a[c * WARP + lane]), da[c]);
          if (OF_KEYS) db[c] = fmaf(g, to_f32(b[c * WARP + lane]), db[c]);
        }
      }
    }
  }
  const head<T> to_a = head_of<T>(OF_KEYS ? p.dk : p.dq, w.batch, w.head, p.head_dim);
  const head<T> to_b = OF_KEYS ? head_of<T>(p.dv, w.batch, w.head, p.head_dim) : to_a;
#pragma unroll
  for (int c = 0; c < DIM / WARP; ++c) {
    if (c * WARP + lane >= p.head_dim) continue;
    if (of_b)
      to_b.data[row * to_b.pitch + c * WARP + lane] = from_f32<T>(db[c]);
    else
      to_a.data[row * to_a.pitch + c * WARP + lane] = from_f32<T>(da[c] * p.scale);
  }
}

/* The rows of a warp whose gradient of a, or of b, is not finite. */
template <class T, int DIM, bool OF_KEYS>
__device__ inline void mend_rows(const attention_problem &p, const tile_work &w, const lane_place_of &lane, int row0,
                                 int count, const wgmma_block<DIM> &d, bool of_b) {
  unsigned bad[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    bool fine = true;
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j)
#pragma unroll
      for (int e = 2 * i; e < 2 * i + 2; ++e) fine = fine && fabsf(d.of[j][e]) < INFINITY;
    bad[i] = __ballot_sync(0xffffffffu, !fine && lane.row(i) < count);
  }
  if (!(bad[0] | bad[1])) return;
  __syncwarp();
  for (int r = 0; r < 16; ++r)
    if ((r < 8 ? bad[0] : bad[1]) >> (4 * (r % 8)) & 15)
      differentiate_row<T, DIM, OF_KEYS>(p, w, row0 + lane.first + r, of_b, p.scale * 1.44269504f);
}

/* Stores a warp's sums: dk, dv (OF_KEYS, of b) or dq. */
template <class T, int DIM, bool OF_KEYS>
__device__ inline void finish_rows(const attention_problem &p, const tile_work &w, const lane_place_of &lane, int row0,
                                   int count, const wgmma_block<DIM> &d, bool of_b) {
  const tigon_heads &to = !OF_KEYS ? p.dq : of_b ? p.dv : p.dk;
  const float by = of_b ? 1 : p.scale, factors[2] = {by, by};
  store_rows<T, DIM>(lane, head_of<T>(to, w.batch, w.head, p.head_dim), row0, count, d, factors);
  mend_rows<T, DIM, OF_KEYS>(p, w, lane, row0, count, d, of_b);
}

#endif
