/* Rows of cross_entropy that are held in whole packs, z being x: those of most models. Blocks of 256, 512 or 1024 threads fill
 * an SM's registers and hold 256 KiB of rows. A thread has its largest logit before its first exponential, so nothing stands
 * between its packs (docs/lab/cross_entropy/cuda.md). */
#ifndef TIGON_CUDA_KERNEL_CROSS_ENTROPY_WHOLE_CUH
#define TIGON_CUDA_KERNEL_CROSS_ENTROPY_WHOLE_CUH

#include "cuda/kernel/cross_entropy_row.cuh"

extern __shared__ uint4 ce_held[]; /* [packs][threads of the block] */

/* The larger ones of two packs' elements; a NaN does not count. */
__device__ static inline unsigned larger(unsigned a, unsigned b, float) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ static inline unsigned larger(unsigned a, unsigned b, bf16) {
  const __nv_bfloat162 both = __hmax2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
  return *(const unsigned *)&both;
}
__device__ static inline unsigned larger(unsigned a, unsigned b, f16) {
  const __half2 both = __hmax2(*(const __half2 *)&a, *(const __half2 *)&b);
  return *(const unsigned *)&both;
}
template <class T> __device__ inline uint4 larger(const uint4 &a, const uint4 &b) {
  return make_uint4(larger(a.x, b.x, T()), larger(a.y, b.y, T()), larger(a.z, b.z, T()), larger(a.w, b.w, T()));
}

/* A pack of -Inf. */
template <class T> __device__ inline uint4 nothing() {
  float of[pack<T>::N];
#pragma unroll
  for (int j = 0; j < pack<T>::N; ++j) of[j] = -INFINITY;
  const pack<T> all = packed<T>(of);
  return *(const uint4 *)&all;
}

/* For a pack without an element above the reference. */
template <class T> __device__ inline void add_exponentials(const uint4 &v, row_sums &s) {
  float x[pack<T>::N], part[2] = {0, 0};
  unpack(pack_of<T>(v), x);
#pragma unroll
  for (int j = 0; j < pack<T>::N; ++j) part[j % 2] += exp2_of(s.at, x[j]);
  s.sum += part[0] + part[1];
}

/* A thread's first CE_GROUP packs are in registers, the other groups in shared memory; -Inf where the row has none. */
template <class T, int BLOCK, bool FEW> __device__ inline void ce_whole(const ce_problem &p, const ce_walk &walk) {
  constexpr int N = pack<T>::N, GROUPS = CE_PACKS / CE_GROUP;
  __shared__ ce_space space;
  const float counted = FEW ? counted_inverse(p) : 0;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const int64_t r = (int64_t)(blockIdx.x / cl.size) * t.count + t.index;
  if (r >= p.space.rows) return;
  const int count = (int)p.cols / N, first = cl.rank * t.threads + t.rank, step = cl.size * t.threads;
  const T *row = row_of<T>(p.space, p.logits, r);
  const uint4 *x = (const uint4 *)row;
  uint4 *const held = ce_held + threadIdx.x;
  const uint4 none = nothing<T>();
  uint4 own[CE_GROUP];
  auto fetch = [&]() {
#pragma unroll
    for (int k = CE_GROUP; k < CE_PACKS; ++k) {
      if (k % CE_GROUP == 0 && k >= walk.packs) break;
      if (first + k * step < count)
        __pipeline_memcpy_async(held + (k - CE_GROUP) * BLOCK, x + first + k * step, 16);
      else
        held[(k - CE_GROUP) * BLOCK] = none;
    }
    __pipeline_commit();
#pragma unroll
    for (int k = 0; k < CE_GROUP; ++k) own[k] = first + k * step < count ? x[first + k * step] : none;
  };
  /* f(i, pack) of each of the thread's packs, and of what is none in its last group. */
  auto each = [&](auto f) {
    keep_packed(own);
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
      if (g > 0 && g * CE_GROUP >= walk.packs) break;
#pragma unroll
      for (int k = 0; k < CE_GROUP; ++k)
        f(first + (g * CE_GROUP + k) * step, g == 0 ? own[k] : held[((g - 1) * CE_GROUP + k) * BLOCK]);
    }
  };
  const bool always = !p.has_ignore_index || p.lse || p.stats; /* rows are read, whatever their labels are */
  if (always) fetch();

  const bool lead = t.rank == 0 && cl.rank == 0;
  bool out_of_range;
  const int64_t label = tigon_cross_entropy_label(&p, r, &out_of_range);
  const bool reads = label >= 0 || p.lse || p.stats;
  if (reads && !always) fetch();
  const float x_label = lead && is_here(p, label) ? to_f32(row[label - p.panel_begin]) : 0;
  const row_terms terms = row_terms_of<FEW>(p, walk, r, counted); /* while the row is on its way */
  const logit_map map = logit_map_of(p);
  row_sums s = no_sums<true>(map);
  __pipeline_wait_prior(0);
  if (reads) {
    uint4 tops = none;
    each([&](int, const uint4 &v) { tops = larger<T>(tops, v); });
    float of[N];
    unpack(pack_of<T>(tops), of);
#pragma unroll
    for (int j = 0; j < N; ++j) s.top = fmaxf(s.top, of[j]);
    s.at = exponent_of(s.top);
    each([&](int, const uint4 &v) { add_exponentials<T>(v, s); });

    const float top = s.top, sum = s.sum;
    row_all<true>(t, cl, map, space, s);
    if (p.argmax && label >= 0) {
      const bool nan = s.sum != s.sum;
      int64_t found = INT64_MAX;
      if (nan ? sum != sum : top == s.top) {
        const row_packs<T> packs = packs_of<T>(p.space, p.logits, r, p.cols);
        for (int i = first; i < count && found == INT64_MAX; i += step)
          found = find_column(packs, i, x[i], nan ? NAN : s.top);
      }
      found = row_first(t, cl, space, found);
      if (lead) p.argmax[r] = found;
    }
    row_leave(cl);
  }
  if (p.dlogits.data) {
    T *d = row_of<T>(p.space, p.dlogits, r);
    if (label >= 0) {
      const gradient g = gradient_of(p, terms, label, lse_of<float, true>(map, s), s.at, s.sum, 0);
      each([&](int i, const uint4 &v) {
        if (i < count) store_16_bytes(d + (int64_t)i * N, gradient_pack<T, true>(p, map, g, v, i * N));
      });
    } else {
      for (int i = first; i < count; i += step) store_16_bytes(d + (int64_t)i * N, make_uint4(0, 0, 0, 0));
    }
  }
  if (lead) {
    const double lse = reads ? lse_of<double, true>(map, s) : 0;
    if (p.lse) p.lse[r] = (float)lse;
    if (p.stats)
      store_stats<true>(p, r, label, x_label, lse, s);
    else if (label >= 0)
      store_losses<true>(p, r, label, x_label, terms.weight_sum, lse, s);
    else
      store_nothing(p, r);
  }
  if (reads) row_left(cl);
}

#endif
