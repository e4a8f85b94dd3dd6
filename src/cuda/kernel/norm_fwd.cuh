/* Rows of the norms, forward.
 * `held`: a row stays in the registers of its team or of a cluster, and is read once.
 * `walked`: rows of any width and alignment. A row is walked twice, the second time out of the L2. The blocks of a cluster share it. */
#ifndef TIGON_CUDA_KERNEL_NORM_FWD_CUH
#define TIGON_CUDA_KERNEL_NORM_FWD_CUH

#include "cuda/kernel/activation.cuh"
#include "cuda/kernel/norm.cuh"

/* Row r of a tensor of the problem, or of a tensor whose rows belong to groups. */
template <class T> __device__ inline T *norm_row(const tigon_norm_fwd_problem &p, const tigon_rows &t, int64_t r) {
  return row_of<T>(p.space, t, r);
}
template <class T> __device__ inline T *norm_row(const norm_plain &, const norm_plain_rows &t, int64_t r) {
  return (T *)t.data + r * t.pitch;
}
template <class T>
__device__ inline const void *norm_group(const tigon_norm_fwd_problem &p, const tigon_rows &t, tigon_dtype dtype,
                                         int64_t group) {
  return norm_group_row(p.groups, t, dtype, group);
}
template <class T>
__device__ inline const void *norm_group(const norm_plain &, const norm_plain_rows &t, tigon_dtype, int64_t group) {
  return t.data ? (T *)t.data + group * t.pitch : NULL;
}

template <class T, class P> __device__ inline float norm_rstd(const P &p, float sum_squares) {
  const bool narrow = sizeof(T) < 4 && p.casting == TIGON_CASTING_NONE;
  const float count = (float)p.cols, sum = narrow ? rounded<T>(__fdividef(sum_squares, count)) : sum_squares;
  const float rstd = norm_rsqrt_mean(sum, narrow ? 1 : count, p.eps);
  return narrow ? rounded<T>(rstd) : rstd;
}

/* A row of y, and the values that make it from a row of x. With a mean, xhat = (v - center) * rstd + rest. */
template <class T> struct norm_out {
  T *y;
  float rstd, center, rest;
  bool rounds;
  const void *scale, *shift; /* modulated: those of the row's group */
  const T *z;                /* gated */
};

template <class T, norm_kind KIND, class P> __device__ inline norm_out<T> norm_out_of(const P &p, int64_t r) {
  norm_out<T> out = {norm_row<T>(p, p.y, r)};
  out.rounds = KIND != NORM_LAYER && norm_rounds<T>(p.casting);
  if constexpr (KIND == NORM_MODULATED) {
    const int64_t group = r / p.share;
    out.scale = norm_group<T>(p, p.scale, p.scale_dtype, group);
    out.shift = norm_group<T>(p, p.shift, p.shift_dtype, group);
  }
  if constexpr (KIND == NORM_GATED) out.z = norm_row<T>(p, p.z, r);
  return out;
}

/* The row's statistics, from its sum of squares or from its moments. */
template <class T, class P>
__device__ inline void norm_statistics(const P &p, int64_t r, bool stores, float sum_squares, norm_out<T> &out) {
  out.rstd = norm_rstd<T>(p, sum_squares);
  if (p.rstd && stores) p.rstd[r] = out.rstd;
}
template <class T, class P>
__device__ inline void norm_statistics(const P &p, int64_t r, bool stores, const norm_moments &m, norm_out<T> &out) {
  out.rstd = norm_rsqrt_mean(m.variance, 1, p.eps);
  out.center = m.center;
  out.rest = -m.rest * out.rstd;
  if (p.rstd && stores) p.rstd[r] = out.rstd;
  if (p.mean && stores) p.mean[r] = m.center + m.rest;
}

/* The N elements that are normalised. A fused add stores them in s. */
template <class T, norm_kind KIND, int N>
__device__ inline void norm_input(const T *x, const T *residual, T *s, int64_t c, float (&v)[N]) {
  norm_load<T>(x + c, v);
  if constexpr (KIND == NORM_ADD_RMS) {
    float add[N];
    norm_load<T>(residual + c, add);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = rounded<T>(v[j] + add[j]);
    norm_store<T>(s + c, v);
  }
}

/* The operands of columns c .. c + N - 1: w with its offset, b (layer_norm's bias or the modulated row's shift), and z, the gate. */
template <int N> struct norm_given { float w[N], b[N], scale[N], z[N]; };

/* Makes y from the normalised elements. */
template <class T, norm_kind KIND, int N>
__device__ inline void norm_values(const norm_out<T> &to, const float (&v)[N], const norm_given<N> &given,
                                   float (&out)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (KIND == NORM_LAYER)
      out[j] = fmaf(fmaf(v[j] - to.center, to.rstd, to.rest), given.w[j], given.b[j]);
    else
      out[j] = norm_xhat<T>(v[j], to.rstd, to.rounds) * given.w[j];
    if (KIND == NORM_MODULATED) out[j] = fmaf(1 + given.scale[j], out[j], given.b[j]);
    if (KIND == NORM_GATED) out[j] *= activate<T, ACT_SILU>(given.z[j]);
  }
}
template <class T, norm_kind KIND, int N>
__device__ inline void norm_output(const norm_out<T> &to, int64_t c, const float (&v)[N], const norm_given<N> &given) {
  float out[N];
  norm_values<T, KIND>(to, v, given, out);
  norm_store<T>(to.y + c, out);
}
/* A pack of a vector of x's dtype, 0 without it. */
template <class T> __device__ inline void norm_plain_vector(const void *v, int64_t c, float (&to)[pack<T>::N]) {
  uint4 bits = {0, 0, 0, 0};
  if (v) bits = *(const uint4 *)((const T *)v + c);
  unpack(pack_of<T>(bits), to);
}
/* Loads w and b if they are present. */
template <class T, norm_kind KIND, int N>
__device__ inline void norm_plain_output(const norm_plain &p, const norm_out<T> &to, int64_t c, const float (&v)[N],
                                         norm_given<N> &given) {
  if (KIND == NORM_MODULATED) {
    norm_plain_vector<T>(to.scale, c, given.scale);
    norm_plain_vector<T>(to.shift, c, given.b);
  }
#pragma unroll
  for (int j = 0; j < N; ++j) given.w[j] += p.w_offset;
  norm_output<T, KIND>(to, c, v, given);
}
template <class T, norm_kind KIND, int N>
__device__ inline void norm_output(const norm_plain &p, const norm_out<T> &to, int64_t c, const float (&v)[N]) {
  norm_given<N> given;
  norm_plain_vector<T>(p.w, c, given.w);
  if (KIND == NORM_LAYER) norm_plain_vector<T>(p.b, c, given.b);
  if (KIND == NORM_GATED) norm_load<T>(to.z + c, given.z);
  norm_plain_output<T, KIND>(p, to, c, v, given);
}
template <class T, norm_kind KIND, int N>
__device__ inline void norm_give(const tigon_norm_fwd_problem &p, const norm_out<T> &to, int64_t c,
                                 norm_given<N> &given) {
  norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, given.w);
  if (KIND == NORM_LAYER) norm_vector<T>(p.b, p.b_dtype, 0, c, given.b);
  if (KIND == NORM_MODULATED) {
    norm_vector<T>(to.scale, p.scale_dtype, 0, c, given.scale);
    norm_vector<T>(to.shift, p.shift_dtype, 0, c, given.b);
  }
  if (KIND == NORM_GATED) norm_load<T>(to.z + c, given.z);
}
template <class T, norm_kind KIND, int N>
__device__ inline void norm_output(const tigon_norm_fwd_problem &p, const norm_out<T> &to, int64_t c,
                                   const float (&v)[N]) {
  norm_given<N> given;
  norm_give<T, KIND>(p, to, c, given);
  norm_output<T, KIND>(to, c, v, given);
}

/* Loads a row's own scale and shift into the L2 while its sum is made. */
template <int PACKS>
__device__ inline void norm_prefetch(const void *row, tigon_dtype dtype, const team &t, int own, int n, int cols) {
  if (!row) return;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    const int c = (k * t.threads + own) * n;
    if (c < cols)
      asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)row + (size_t)c * (dtype == TIGON_F32 ? 4 : 2)));
  }
}

/* The mean of a row's first elements, one pack per lane, equal in all threads. It is usually so near the row's mean that differences from
 * it lose no digits. */
template <class T> __device__ inline float norm_pivot(const T *x, int64_t cols) {
  constexpr int N = pack<T>::N;
  const int first = (int)threadIdx.x % WARP * N, count = cols < WARP * N ? (int)cols : WARP * N;
  float v[N] = {0}, sum = 0;
  if (first < count) norm_load<T>(x + first, v);
#pragma unroll
  for (int j = 0; j < N; ++j) sum += v[j];
  return norm_center(warp_all<op_sum>(sum) / (float)count);
}

/* The sums of d = x - center and of d^2 over a thread's elements of a row. */
template <class T, int PACKS>
__device__ inline void norm_held_differences(const uint4 (&kept)[PACKS], float center, const team &t, int own, int cols,
                                             float (&sums)[2]) {
  constexpr int N = pack<T>::N;
  sums[0] = sums[1] = 0;
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    if ((k * t.threads + own) * N < cols) norm_add_pack<T>(kept[k], center, sums);
}

/* The same from memory, for the few rows whose center was far from the mean. It reads one element at a time, so that other rows pay no
 * registers for it. */
template <class T>
__device__ inline void norm_far_differences(const T *x, float center, const team &t, int own, int cols,
                                            float (&sums)[2]) {
  constexpr int N = pack<T>::N;
  double sum = 0, squares = 0;
#pragma unroll 1
  for (int i = own * N; i < cols; i += i % N == N - 1 ? t.threads * N - (N - 1) : 1) {
    const float d = to_f32(x[i]) - center;
    sum += (double)d, squares += (double)(d * d);
  }
  sums[0] = (float)sum, sums[1] = (float)squares;
}

/* Reads 16 bytes again, from the L1 and L2, for the last time. A loop may make the policy once, before it begins. */
__device__ static inline uint64_t policy_to_keep() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ static inline uint64_t policy_to_drop() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ static inline uint4 load_to_keep(const void *at, uint64_t policy = policy_to_keep()) {
  uint4 v;
  asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at), "l"(policy));
  return v;
}
__device__ static inline uint4 load_to_drop(const void *at, uint64_t policy = policy_to_drop()) {
  uint4 v;
  asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at), "l"(policy));
  return v;
}

/* For an output larger than the L2: what is stored last is evicted last. The call and the product that reads its output together take
 * up to 2 % less time (docs/lab/rms_norm/cuda.md). */
template <int PACKS, class T> __device__ inline void norm_put(const norm_plain &p, T *at, const pack<T> &v) {
  if (PACKS < 4 || sizeof(T) == 4 || !p.stays) {
    store_pack(at, v);
    return;
  }
  const uint4 bits = *(const uint4 *)&v;
  asm volatile("{.reg .b64 policy; createpolicy.fractional.L2::evict_last.b64 policy, 1.0;"
               " st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, policy;}" ::"l"(__cvta_generic_to_global(at)),
               "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}
template <int PACKS, class T> __device__ inline void norm_put(const tigon_norm_fwd_problem &, T *at, const pack<T> &v) {
  store_pack(at, v);
}

/* Whether y is the product of two values of T, which T's instruction rounds as f32 does. That halves the instructions. */
template <class T, norm_kind KIND> __device__ inline bool norm_is_product(const norm_plain &p, const norm_out<T> &to) {
  return sizeof(T) == 2 && (KIND == NORM_RMS || KIND == NORM_ADD_RMS) && to.rounds && p.w_offset == 0;
}
template <class T, int N>
__device__ inline pack<T> norm_product(const norm_out<T> &to, float (&v)[N], const uint4 &weights) {
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] *= to.rstd;
  return product(packed<T>(v), pack_of<T>(weights));
}

/* How a held kernel loads its vectors. */
enum norm_hold {
  HOLD_ANY,   /* w and b of any dtype */
  HOLD_EARLY, /* w of a norm_plain, loaded while the row's sum is made; layer_norm has its own kernels for that */
  HOLD_LATE,  /* vectors of a norm_plain, loaded when they are needed, with fewer registers */
};

/* cols is a multiple of a pack's elements. With PACKS packs per thread a team holds a row, or a block its share of a row that a cluster
 * holds. A grid always has blocks for all rows. */
template <class T, norm_kind KIND, int PACKS, norm_hold HOLD, bool SHARED = false, class P>
__device__ inline void norm_fwd_held(const P &p, int64_t rows, int threads, int share = 0) {
  constexpr int N = pack<T>::N, VALUES = KIND == NORM_LAYER ? 2 : 1;
  __shared__ team_space<VALUES> space;
  __shared__ cluster_space<VALUES> shared;
  const team t = team_of(threads);
  const cluster cl = SHARED ? cluster_of_block() : cluster{0, 1};
  const int end = (cl.rank + 1) * share * N, own = (SHARED ? cl.rank * share : 0) + t.rank;
  const int cols = SHARED && end < (int)p.cols ? end : (int)p.cols; /* where this block's share of the row ends */
  const int first = own * N, step = t.threads * N, left = cols - first;
  const bool stores = t.rank == 0 && cl.rank == 0;
  const int64_t r = ((int64_t)(blockIdx.x / cl.size) * blockDim.x + threadIdx.x) >> (31 - __clz(threads));
  if (r >= rows) return; /* the whole team returns, never a block of a cluster */
  const T *x = norm_row<T>(p, p.x, r) + first;
  const T *residual = KIND == NORM_ADD_RMS ? norm_row<T>(p, p.residual, r) + first : NULL;
  const T *z = KIND == NORM_GATED ? norm_row<T>(p, p.z, r) + first : NULL;
  uint4 kept[PACKS], add[PACKS], weights[PACKS]; /* add: the residual or the gate */
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    kept[k] = add[k] = uint4{0, 0, 0, 0};
    if (k * step >= left) continue;
    kept[k] = *(const uint4 *)(x + k * step);
    if (KIND == NORM_ADD_RMS) add[k] = *(const uint4 *)(residual + k * step);
    if (KIND == NORM_GATED && HOLD == HOLD_EARLY) add[k] = *(const uint4 *)(z + k * step);
  }
#pragma unroll
  for (int k = 0; HOLD == HOLD_EARLY && k < PACKS; ++k) {
    weights[k] = uint4{0, 0, 0, 0};
    if (k * step >= left) continue;
    if (p.w) weights[k] = __ldg((const uint4 *)((const T *)p.w + first + k * step));
  }
  norm_out<T> out = norm_out_of<T, KIND>(p, r);
  if (KIND == NORM_GATED && HOLD != HOLD_EARLY)
    norm_prefetch<PACKS>(out.z, sizeof(T) == 4 ? TIGON_F32 : TIGON_BF16, t, own, N, cols);
  if (KIND == NORM_MODULATED && p.share == 1) {
    norm_prefetch<PACKS>(out.scale, p.scale_dtype, t, own, N, cols);
    norm_prefetch<PACKS>(out.shift, p.shift_dtype, t, own, N, cols);
  }
  float sums[VALUES] = {0}; /* sums of squares, or of differences and their squares */
  if constexpr (KIND == NORM_LAYER) {
    const T *row = x - first;
    float center = norm_pivot(row, p.cols);
    norm_held_differences<T>(kept, center, t, own, cols, sums);
    team_all<op_sum>(t, space, 0, sums);
    if (SHARED) cluster_all<op_sum>(cl, shared, 0, sums);
    if (norm_far(sums[0], sums[1], (float)p.cols)) { /* the same in all threads */
      center = norm_center(center + sums[0] / (float)p.cols);
      norm_far_differences(row, center, t, own, cols, sums);
      team_all<op_sum>(t, space, 1, sums);
      if (SHARED) cluster_all<op_sum>(cl, shared, 1, sums);
    }
    norm_statistics(p, r, stores, norm_moments_of(center, sums[0], sums[1], (float)p.cols), out);
  } else {
    T *s = KIND == NORM_ADD_RMS ? norm_row<T>(p, p.s, r) + first : NULL;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      float v[N], part = 0;
      unpack(pack_of<T>(kept[k]), v);
      if (KIND == NORM_ADD_RMS) {
        float a[N];
        unpack(pack_of<T>(add[k]), a);
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] += a[j];
        const pack<T> both = packed<T>(v);
        kept[k] = *(const uint4 *)&both;
        unpack(both, v);
        if (k * step < left) norm_put<PACKS>(p, s + k * step, both);
      }
#pragma unroll
      for (int j = 0; j < N; ++j) part = fmaf(v[j], v[j], part);
      sums[0] += part;
    }
    team_all<op_sum>(t, space, 0, sums);
    if (SHARED) cluster_all<op_sum>(cl, shared, 0, sums);
    norm_statistics(p, r, stores, sums[0], out);
  }
  if constexpr (HOLD == HOLD_EARLY) {
    if (norm_is_product<T, KIND>(p, out)) {
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        if (k * step >= left) continue;
        float v[N];
        unpack_again<T>(kept[k], v);
        norm_put<PACKS>(p, out.y + first + k * step, norm_product(out, v, weights[k]));
      }
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    const int c = first + k * step;
    if (c >= cols) continue;
    float v[N];
    keep_packed(kept[k]);
    if constexpr (HOLD == HOLD_EARLY) {
      norm_given<N> given;
      keep_packed(weights[k]);
      unpack_again<T>(kept[k], v);
      unpack(pack_of<T>(weights[k]), given.w);
      if (KIND == NORM_GATED) unpack(pack_of<T>(add[k]), given.z);
      norm_plain_output<T, KIND>(p, out, c, v, given);
    } else {
      unpack(pack_of<T>(kept[k]), v);
      norm_output<T, KIND>(p, out, c, v);
    }
  }
  if (SHARED) cluster_end(cl);
}

/* Rows so wide that registers for one would leave an SM half empty. A block sweeps its row twice, the second time out of the L1. A thread
 * has PACKS loads at a time. layer_norm has its own kernel (norm_fwd_layer.cuh). */
template <class T, norm_kind KIND, int PACKS> __device__ inline void norm_fwd_swept(const norm_plain &p) {
  constexpr int N = pack<T>::N;
  __shared__ team_space<1> space;
  const int threads = KIND == NORM_RMS ? p.team : NORM_SWEPT_THREADS; /* other norms have no register for it */
  const team t = {threads, (int)threadIdx.x, 0, 1};
  const int64_t r = blockIdx.x;
  const int cols = p.cols, step = threads * N, own = (int)threadIdx.x * N;
  const T *x = norm_row<T>(p, p.x, r);
  double squares = 0;
#pragma unroll 1
  for (int first = own; first < cols; first += PACKS * step) {
    uint4 v[PACKS];
    float group[2] = {0, 0}; /* sums of elements and of their squares */
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      if (first + k * step < cols) v[k] = load_to_keep(x + first + k * step);
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      if (first + k * step < cols) norm_add_pack<T>(v[k], 0, group);
    squares += (double)group[1];
  }
  float sums[1] = {(float)squares};
  team_all<op_sum>(t, space, 0, sums);
  norm_out<T> out = norm_out_of<T, KIND>(p, r);
  norm_statistics(p, r, t.rank == 0, sums[0], out);
  if (norm_is_product<T, KIND>(p, out)) {
#pragma unroll 1
    for (int c = own; c < cols; c += step) {
      float v[N];
      const uint4 bits = load_to_drop(x + c), weights = __ldg((const uint4 *)((const T *)p.w + c));
      unpack(pack_of<T>(bits), v);
      store_pack(out.y + c, norm_product(out, v, weights));
    }
    return;
  }
#pragma unroll 1
  for (int c = own; c < cols; c += step) {
    float v[N];
    unpack(pack_of<T>(load_to_drop(x + c)), v);
    norm_output<T, KIND>(p, out, c, v);
  }
}

/* The columns of a row that a thread of a walked kernel has: N from each of first, first + step, .... */
struct norm_lane {
  team t;
  cluster cl;
  int64_t first, step;
};

template <int N> __device__ inline norm_lane norm_lane_of(int threads) {
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  return norm_lane{t, cl, (int64_t)(cl.rank * t.threads + t.rank) * N, (int64_t)cl.size * t.threads * N};
}

/* The sums of d = x - center and of d^2 over a thread's elements. */
template <class T, int N>
__device__ inline void norm_differences(const T *x, float center, const norm_lane &lane, int64_t cols,
                                        float (&sums)[2]) {
  double all[2] = {0, 0};
  norm_add_differences<T, N>(x, center, lane.first, cols, lane.step, all);
  sums[0] = (float)all[0], sums[1] = (float)all[1];
}

/* The center is the mean of the threads' first columns. If the sums show that the row's mean is too far from it, they are made again about
 * that mean. All threads take the same branch. */
template <class T, int N>
__device__ inline norm_moments norm_row_moments(const T *x, const norm_lane &lane, int64_t cols, team_space<2> &space,
                                                cluster_space<2> &shared, int &turn) {
  float sums[2] = {0, 0};
  if (lane.first < cols) {
    float v[N];
    norm_load<T>(x + lane.first, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0] += v[j];
  }
  const auto reduce = [&]() {
    team_all<op_sum>(lane.t, space, turn, sums);
    cluster_all<op_sum>(lane.cl, shared, turn, sums);
    turn ^= 1;
  };
  reduce();
  float center = norm_center(sums[0] / (float)(cols < lane.step ? cols : lane.step));
  for (bool again = false;; again = true) {
    norm_differences<T, N>(x, center, lane, cols, sums);
    reduce();
    if (again || !norm_far(sums[0], sums[1], (float)cols)) break;
    center = norm_center(center + sums[0] / (float)cols);
  }
  return norm_moments_of(center, sums[0], sums[1], (float)cols);
}

/* N: the elements of a pack if rows are aligned and have whole packs, else 1. */
template <class T, norm_kind KIND, int N>
__device__ inline void norm_fwd_walked(const tigon_norm_fwd_problem &p, const norm_walk &walk) {
  constexpr int VALUES = KIND == NORM_LAYER ? 2 : 1;
  __shared__ team_space<VALUES> space;
  __shared__ cluster_space<VALUES> shared;
  const norm_lane lane = norm_lane_of<N>(walk.team);
  const team &t = lane.t;
  const cluster &cl = lane.cl;
  const bool stores = t.rank == 0 && cl.rank == 0;
  int turn = 0;
  for (int64_t r = (int64_t)(blockIdx.x / cl.size) * t.count + t.index; r < p.space.rows;
       r += (int64_t)(gridDim.x / cl.size) * t.count) {
    const T *x = row_of<T>(p.space, p.x, r);
    T *s = NULL;
    norm_out<T> out = norm_out_of<T, KIND>(p, r);
    if constexpr (KIND == NORM_LAYER) {
      norm_statistics(p, r, stores, norm_row_moments<T, N>(x, lane, p.cols, space, shared, turn), out);
    } else {
      const T *residual = KIND == NORM_ADD_RMS ? row_of<T>(p.space, p.residual, r) : NULL;
      if (KIND == NORM_ADD_RMS) s = row_of<T>(p.space, p.s, r);
      double all[1] = {0};
      norm_strips(lane.first, p.cols, lane.step, all, [&](int64_t i, float(&part)[1]) {
        float v[N];
        norm_input<T, KIND>(x, residual, s, i, v);
#pragma unroll
        for (int j = 0; j < N; ++j) part[0] = fmaf(v[j], v[j], part[0]);
      });
      float sum[1] = {(float)all[0]};
      team_all<op_sum>(t, space, turn, sum);
      cluster_all<op_sum>(cl, shared, turn, sum);
      turn ^= 1;
      norm_statistics(p, r, stores, sum[0], out);
    }
    for (int64_t c = lane.first; c < p.cols; c += lane.step) {
      float v[N]; /* a thread's own elements of s: y must not overlap them */
      norm_load<T>((KIND == NORM_ADD_RMS ? s : x) + c, v);
      norm_output<T, KIND>(p, out, c, v);
    }
  }
  cluster_end(cl);
}

#endif
