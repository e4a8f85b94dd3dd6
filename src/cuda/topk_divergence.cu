/* topk_divergence's rows, a block each. The sums over all rows are divergence's kernels.
 *
 * A row of logits is read for the largest one outside of the support, for the sum of exponentials there and for the gradient,
 * in windows of columns. In each window shared memory says which entry a column has: the first of its class. */
#include <limits.h>

#include "core/topk_divergence.h"
#include "cuda/kernel/element.cuh"
#include "cuda/kernel/team.cuh"
#include "cuda/topk_divergence.h"

typedef tigon_topk_divergence_problem topk_problem;

enum { TOPK_NONE = INT_MAX };

struct topk_max {
  __device__ static double of(double a, double b) { return a > b || a != a ? a : b; }
};
/* The largest v of the block's threads; a NaN wins. */
__device__ static inline double topk_largest(double v) {
  __shared__ double parts[MOST_WARPS];
  const int lane = (int)threadIdx.x % WARP, warps = (int)blockDim.x / WARP;
  v = warp_all<topk_max>(v);
  __syncthreads(); /* a block may come here again */
  if (lane == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  return warp_all<topk_max>(lane < warps ? parts[lane] : -(double)INFINITY);
}

/* A row at work. */
template <class T, int N> struct topk_row {
  const topk_problem &p;
  int *entry; /* [TOPK_WINDOW] */
  tigon_topk_row s;
  const T *x;

  __device__ inline double logit(int64_t v) const { return (double)p.base.inverse_temperature * (double)to_f32(x[v]); }
  __device__ inline double target(int64_t j) const {
    return (double)load_any(p.base.target.data, s.target + j, p.target_dtype);
  }
  __device__ inline tigon_topk_element element(int64_t j, int64_t v) const {
    return tigon_topk_entry(&p, &s, (double)to_f32(x[v]), target(j));
  }

  /* In each window outside(c, entry, a) of the N logits from column c on, unless SUPPORT alone, and then inside(j, v) of every
   * entry j that is the first of its class v. */
  template <bool SUPPORT, class O, class I> __device__ inline void walk(O outside, I inside) const {
    for (int64_t begin = 0; begin < p.base.cols; begin += TOPK_WINDOW) {
      const int64_t left = p.base.cols - begin;
      const int width = left < TOPK_WINDOW ? (int)left : TOPK_WINDOW;
      __syncthreads();
      for (int c = threadIdx.x; c < width; c += blockDim.x) entry[c] = TOPK_NONE;
      __syncthreads();
      for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x) {
        const int64_t v = tigon_topk_class(&p, &s, j);
        if (v >= begin && v < begin + width) atomicMin(&entry[v - begin], (int)j);
      }
      __syncthreads();
      if constexpr (!SUPPORT) {
        for (int c = threadIdx.x * N; c < width; c += blockDim.x * N) {
          float a[N];
          unpack(load_pack<T, N>(x + begin + c), a);
          outside(begin + c, entry + c, a);
        }
        __syncthreads();
      }
      for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x) {
        const int64_t v = tigon_topk_class(&p, &s, j);
        if (v >= begin && v < begin + width && entry[v - begin] == (int)j) inside(j, v);
      }
    }
  }
  template <class I> __device__ inline void support(I inside) const {
    walk<true>([](int64_t, const int *, float(&)[N]) {}, inside);
  }

  __device__ inline void find_target_lse() {
    if (p.base.target_is != TIGON_DISTRIBUTION_LOGITS) return;
    const double scale = (double)p.base.inverse_temperature;
    double most = -(double)INFINITY, sum = 0;
    support([&](int64_t j, int64_t) { most = topk_max::of(scale * target(j), most); });
    most = topk_largest(most);
    support([&](int64_t j, int64_t) { sum += tigon_topk_share(scale * target(j), most); });
    s.target_lse = tigon_topk_lse(most, block_total(sum));
  }

  /* A NaN outside comes with the sum. Sums outside are f32 within TOPK_GROUP times N, f64 beyond. */
  __device__ inline void find_lse() {
    const float scale = p.base.inverse_temperature;
    float most_out = -INFINITY, part = 0;
    double most_in = -(double)INFINITY, sum_out = 0, sum_in = 0;
    walk<false>(
        [&](int64_t, const int *of, float(&a)[N]) {
#pragma unroll
          for (int i = 0; i < N; ++i)
            if (of[i] == TOPK_NONE) most_out = fmaxf(a[i], most_out);
        },
        [&](int64_t, int64_t v) { most_in = topk_max::of(logit(v), most_in); });
    const float largest = (float)topk_largest((double)most_out) * scale;
    const float reference = largest > -INFINITY ? largest : 0;
    most_in = topk_largest(most_in);
    int group = 0;
    walk<false>(
        [&](int64_t, const int *of, float(&a)[N]) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < N; ++i)
            if (of[i] == TOPK_NONE) sum += expf(fmaf(a[i], scale, -reference));
          part += sum;
          if (++group % TOPK_GROUP == 0) sum_out += (double)part, part = 0;
        },
        [&](int64_t, int64_t v) { sum_in += tigon_topk_share(logit(v), most_in); });
    const double outside = tigon_topk_lse((double)largest, block_total(sum_out + (double)part));
    tigon_topk_know(&s, tigon_topk_lse(most_in, block_total(sum_in)), outside);
  }

  /* p_t; and D, M, forward. */
  __device__ inline double sum_terms(bool backward) {
    double sum = 0, loss = 0, mean = 0;
    long long classes = 0;
    support([&](int64_t j, int64_t v) {
      const tigon_topk_element e = element(j, v);
      ++classes;
      sum += e.p;
      if (!backward) tigon_topk_add(&p, &s, &e, &loss, &mean);
    });
    classes = block_total(classes);
    s.tail = tigon_topk_tail_of(&p, classes, block_total(sum));
    if (backward) return 0;
    loss = block_total(loss), mean = block_total(mean);
    const tigon_topk_element tail = tigon_topk_tail(&s);
    tigon_topk_add(&p, &s, &tail, &loss, &mean);
    s.mean = mean;
    return loss;
  }

  /* The support's logits are left in place, where they may be, until the entries' turn. */
  __device__ inline void store_gradient(T *out, double factor) const {
    const tigon_topk_outside o = tigon_topk_outside_of(&p, &s);
    const float scale = p.base.inverse_temperature, reference = (float)o.lse;
    const float log_sum = (float)(o.lse - (double)reference), by = (float)(o.by * factor);
    walk<false>(
        [&](int64_t c, const int *of, float(&a)[N]) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            if (of[i] != TOPK_NONE) continue;
            const float log = fmaf(a[i], scale, -reference) - log_sum, e = expf(log);
            a[i] = log == -INFINITY ? 0.0f : (e < FLT_MIN ? FLT_MIN : e) * by;
          }
          store_pack<T, N>(out + c, packed<T, N>(a));
        },
        [&](int64_t j, int64_t v) {
          const tigon_topk_element e = element(j, v);
          out[v] = from_f32<T>((float)(factor * tigon_topk_gradient(&p, &s, &e)));
        });
  }
};

template <class T, int N> __device__ inline void topk_rows(const topk_problem &p, const topk_walk &walk) {
  __shared__ int entry[TOPK_WINDOW];
  const tigon_divergence_problem &base = p.base;
  const int64_t r = walk.first_row + blockIdx.x;
  const bool counts = tigon_divergence_counts(&base, r);
  T *const out = base.dinput.data ? row_of<T>(base.space, base.dinput, r) : NULL;
  topk_row<T, N> row = {p, entry, tigon_topk_row_of(&p, r), row_of<T>(base.space, base.input, r)};
  for (int64_t j = threadIdx.x; p.error_flag && j < p.k; j += blockDim.x)
    if (tigon_topk_class(&p, &row.s, j) < 0) *p.error_flag = 1;
  double loss = 0;
  if (counts) {
    row.find_target_lse();
    if (walk.backward)
      row.s.lse = (double)base.stats[3 * r], row.s.outside = (double)base.stats[3 * r + 1],
      row.s.mean = (double)base.stats[3 * r + 2];
    else
      row.find_lse();
    loss = row.sum_terms(walk.backward);
    const double inverse = base.reduction == TIGON_REDUCTION_MEAN ? (double)*base.inverse : 1;
    if (out) row.store_gradient(out, tigon_topk_factor(&p, inverse, r));
  } else {
    for (int64_t c = (int64_t)threadIdx.x * N; out && c < base.cols; c += (int64_t)blockDim.x * N)
      store_pack<T, N>(out + c, zero_pack<T, N>());
  }
  if (walk.backward || threadIdx.x != 0) return;
  loss *= (double)base.soft;
  base.token_loss[r] = (float)(counts && base.token_scale ? loss * (double)base.token_scale[r] : loss);
  if (!base.stats) return;
  base.stats[3 * r] = (float)row.s.lse, base.stats[3 * r + 1] = (float)row.s.outside;
  base.stats[3 * r + 2] = (float)row.s.mean;
}

#define TOPK_KERNEL(name, ...)                               \
  KERNEL_BY_DTYPE(topk_divergence_##name, (TOPK_THREADS, 2), \
                  (const __grid_constant__ topk_problem p, const __grid_constant__ topk_walk walk), __VA_ARGS__)

TOPK_KERNEL(packs, topk_rows<T, pack<T>::N>(p, walk))
TOPK_KERNEL(any, topk_rows<T, 1>(p, walk))
