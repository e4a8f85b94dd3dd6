/* What attention's backward does between its products. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_SLOPE_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_SLOPE_CUH

#include "cuda/kernel/attention_math.cuh"

typedef tigon_attention_bwd_problem attention_problem;

/* What queries bring along; past the last query p is 0. Where lse is -Inf every z is, and z - Inf makes p 0. */
template <int COUNT> struct query_stats { float lse[COUNT], delta[COUNT]; };

template <int COUNT>
__device__ inline void load_stats(query_stats<COUNT> &to, const attention_problem &p, const tigon_attention_part &part,
                                  int64_t index, int64_t t0, int count) {
  const int i = (int)threadIdx.x;
  if (i >= COUNT) return;
  const int64_t at = index * p.tokens + part.q0 + (t0 + i) * part.step;
  const float lse = i < count ? p.lse[at] : -INFINITY;
  to.lse[i] = lse == -INFINITY ? INFINITY : lse;
  to.delta[i] = i < count ? p.delta[at] : 0;
}

/* Scores s and do . v (in d) become p and dz. */
template <class M, bool KEYS, bool PLAIN, int COUNT>
__device__ inline void differentiate(const M &m, const score_map<PLAIN> &map, const query_stats<COUNT> &stats,
                                     bool masked, const int (&begin)[M::R], const int (&end)[M::R],
                                     float (&s)[M::R][M::C], float (&d)[M::R][M::C]) {
#pragma unroll
  for (int i = 0; i < M::R; ++i) {
#pragma unroll
    for (int j = 0; j < M::C; ++j) {
      const int query = KEYS ? m.col(j) : m.row(i);
      const float z = __fmul_rn(s[i][j], map.scale);
      if (map.capped()) {
        s[i][j] = M::exp(map.under_cap(z) - stats.lse[query]);
        d[i][j] = s[i][j] * (d[i][j] - stats.delta[query]) * (map.scale * map.template slope<M>(z));
      } else {
        s[i][j] = M::exp(z - stats.lse[query]);
        d[i][j] = s[i][j] * (d[i][j] - stats.delta[query]) * map.scale;
      }
    }
    if (masked) {
#pragma unroll
      for (int j = 0; j < M::C; ++j)
        if (m.col(j) < begin[i] || m.col(j) >= end[i]) s[i][j] = 0, d[i][j] = 0;
    }
  }
}

#endif
