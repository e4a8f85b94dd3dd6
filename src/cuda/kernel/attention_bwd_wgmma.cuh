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
/* Statistics of COLS queries in shared memory: lse, then delta, each ordered by the lane that needs them. Lane t of four has columns 8j + 2t and the one
 * behind it, by 16 bytes, whose place varies with t so that lanes read other banks. */
template <int COLS> __device__ inline int stat_place(int t, int unit) {
  return 4 * (t * (COLS / 16) + (unit ^ (COLS == 64 ? t / 2 : t)));
}
/* By a warp. */
template <int COLS>
__device__ inline void load_stats(const attention_problem &p, unsigned to, int64_t first, int64_t t0) {
#pragma unroll
  for (int i = 0; i < COLS; i += WARP) {
    const int col = i + (int)threadIdx.x % WARP,
              at = stat_place<COLS>(col / 2 % 4, col / 16) + col / 8 % 2 * 2 + col % 2;
    const query_stat one = stat_of(p, first, t0 + col);
    asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(to + 4 * at), "f"(one.lse) : "memory");
    asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(to + 4 * (COLS + at)), "f"(one.delta) : "memory");
  }
}
/* A thread's lse, or delta: of[j] of its two columns of eight. */
template <int COLS> struct col_stats {
  float2 of[COLS / 8];
  __device__ void load(unsigned from, const lane_place_of &lane) {
#pragma unroll
    for (int u = 0; u < COLS / 16; ++u)
      asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(of[2 * u].x), "=f"(of[2 * u].y), "=f"(of[2 * u + 1].x), "=f"(of[2 * u + 1].y)
                   : "r"(from + 4 * stat_place<COLS>(lane.t, u)));
  }
};

/* Two tiles, as one stage. */
template <int DIM, int STAGES>
__device__ inline void bring_two(const ring<STAGES> &to, const cu_tensor_map &a, const cu_tensor_map &b, int rows,
                                 int row, int head, int batch) {
  mbarrier_arrive_expect(to.full(to.stage), 2 * rows * DIM * 2);
#pragma unroll
  for (int c = 0; c < DIM / 64; ++c) {
    tma_load(to.at() + c * rows * ROW_BYTES, a, to.full(to.stage), 64 * c, row, head, batch);
    tma_load(to.at() + (rows * DIM * 2) + c * rows * ROW_BYTES, b, to.full(to.stage), 64 * c, row, head, batch);
  }
}

/* Scores become weights p: of keys that are not seen 0. */
template <bool OF_KEYS, int COLS>
__device__ inline void weigh_step(const lane_place_of &lane, float scale, const step_mask<COLS> &mask, int step,
                                  const row_stats &rows, const col_stats<COLS> &lse, wgmma_block<COLS> &s) {
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float l = OF_KEYS ? e % 2 ? lse.of[j].y : lse.of[j].x : rows.of[e / 2].lse;
      s.of[j][e] = exp2_approx(fmaf(s.of[j][e], scale, -l));
    }
  if (!mask.masked(step)) return;
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int r = lane.row(e / 2), col = 8 * j + 2 * lane.t + e % 2;
      if (col < mask.begin(r, step) || col >= mask.end(r, step)) s.of[j][e] = 0;
    }
}

/* do . v, in d, becomes dz / scale, as operand A. An Inf or NaN of what is not seen stays, and the row is made anew. */
template <class T, bool OF_KEYS, int COLS>
__device__ inline void slope_step(const row_stats &rows, const col_stats<COLS> &delta, const wgmma_block<COLS> &s,
                                  const wgmma_block<COLS> &d, unsigned (&slopes)[COLS / 16][4]) {
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float a = OF_KEYS ? delta.of[j].x : rows.of[i].delta, b = OF_KEYS ? delta.of[j].y : rows.of[i].delta;
      slopes[j / 2][j % 2 * 2 + i] =
          packed_two<T>(s.of[j][2 * i] * (d.of[j][2 * i] - a), s.of[j][2 * i + 1] * (d.of[j][2 * i + 1] - b));
    }
}
template <class T, int COLS>
__device__ inline void pack_step(const wgmma_block<COLS> &s, unsigned (&weights)[COLS / 16][4]) {
#pragma unroll
  for (int j = 0; j < COLS / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) weights[j / 2][j % 2 * 2 + i] = packed_two<T>(s.of[j][2 * i], s.of[j][2 * i + 1]);
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
