/* topk_divergence's rows, a block each. The sums over all rows are divergence's kernels.
 *
 * A row of logits is read for the largest one outside of the support, for the sum of exponentials there and for the gradient,
 * in windows of classes. In each window shared memory says which entry a class has: the first one. HEAD: kernels of a head's
 * rows, which may have a cap, a cross entropy, and backward a panel's columns alone. */
#include <limits.h>

#include "core/topk_divergence.h"
#include "cuda/kernel/divergence_math.cuh"
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
template <class T, int N, bool HEAD> struct topk_row {
  const topk_problem &p;
  int *entry; /* [TOPK_WINDOW] */
  tigon_topk_row s;
  const T *x; /* points at class panel_begin */
  double hard_lse;
  const div_map<HEAD> map;

  __device__ inline topk_row(const topk_problem &problem, int *entries, int64_t r)
      : p(problem), entry(entries), s(tigon_topk_row_of(&problem, r)),
        x(row_of<T>(problem.base.space, problem.base.input, r)), hard_lse(0), map(problem.base.input_map) {}
  __device__ inline int64_t first() const { return HEAD ? p.base.panel_begin : 0; }
  __device__ inline bool hard() const { return HEAD && p.base.hard != 0; }
  /* What the row has of class v, and its logit without the temperature. */
  __device__ inline double at(int64_t v) const { return (double)to_f32(x[v - first()]); }
  __device__ inline double logit(int64_t v) const { return HEAD ? tigon_logit(&p.base.input_map, at(v)) : at(v); }
  __device__ inline double target(int64_t j) const {
    return (double)load_any(p.base.target.data, s.target + j, p.target_dtype);
  }
  __device__ inline tigon_topk_element element(int64_t j, int64_t v) const {
    return tigon_topk_entry(&p, &s, at(v), target(j));
  }

  /* In each window outside(c, entry, a) of the row's N elements from column c on, and then inside(j, v) of every entry j that is
   * the first of its class v. SUPPORT: the latter alone, of all classes and not of a panel's. */
  template <bool SUPPORT, class O, class I> __device__ inline void walk(O outside, I inside) const {
    const int64_t last = SUPPORT ? tigon_divergence_vocab(&p.base) : first() + p.base.cols;
    for (int64_t begin = SUPPORT ? 0 : first(); begin < last; begin += TOPK_WINDOW) {
      const int64_t left = last - begin;
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
          const int64_t column = begin - first() + c;
          unpack(load_pack<T, N>(x + column), a);
          outside(column, entry + c, a);
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
    const double it = (double)p.base.inverse_temperature;
    const float hard_scale = HEAD ? div_scale(p.base.input_map) : 1, scale = p.base.inverse_temperature * hard_scale;
    float most_out = -INFINITY, part = 0, hard_part = 0;
    double most_in = -(double)INFINITY, sum_out = 0, sum_in = 0, hard_out = 0, hard_in = 0;
    walk<false>(
        [&](int64_t, const int *of, float(&a)[N]) {
#pragma unroll
          for (int i = 0; i < N; ++i)
            if (of[i] == TOPK_NONE) most_out = fmaxf(a[i], most_out);
        },
        [&](int64_t, int64_t v) { most_in = topk_max::of(logit(v), most_in); });
    const float most = map.z((float)topk_largest((double)most_out)), largest = most * scale;
    const float reference = largest > -INFINITY ? largest : 0;
    const float hard_reference = largest > -INFINITY ? most * hard_scale : 0;
    most_in = topk_largest(most_in);
    int group = 0;
    walk<false>(
        [&](int64_t, const int *of, float(&a)[N]) {
          float sum = 0, hard_sum = 0;
#pragma unroll
          for (int i = 0; i < N; ++i) {
            if (of[i] != TOPK_NONE) continue;
            const float z = map.z(a[i]);
            sum += expf(fmaf(z, scale, -reference));
            if (hard()) hard_sum += expf(fmaf(z, hard_scale, -hard_reference));
          }
          part += sum, hard_part += hard_sum;
          if (++group % TOPK_GROUP) return;
          sum_out += (double)part, part = 0;
          hard_out += (double)hard_part, hard_part = 0;
        },
        [&](int64_t, int64_t v) {
          sum_in += tigon_topk_share(it * logit(v), it * most_in);
          if (hard()) hard_in += tigon_topk_share(logit(v), most_in);
        });
    const double outside = tigon_topk_lse((double)largest, block_total(sum_out + (double)part));
    tigon_topk_know(&s, tigon_topk_lse(it * most_in, block_total(sum_in)), outside);
    if (!hard()) return;
    const double of_out = tigon_topk_lse((double)(most * hard_scale), block_total(hard_out + (double)hard_part));
    hard_lse = tigon_topk_log_add(tigon_topk_lse(most_in, block_total(hard_in)), of_out);
  }

  /* p_t; and D, M, forward. */
  __device__ inline double sum_terms(bool backward) {
    double sum = 0, loss = 0, mean = 0;
    long long classes = 0;
    support([&](int64_t j, int64_t v) {
      const tigon_topk_element e = backward ? tigon_topk_target(&p, &s, target(j)) : element(j, v);
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

  /* The support's logits are left in place, where they may be, until the entries' turn. `label`: the column of the cross entropy's
   * class, -1 without one. */
  __device__ inline void store_gradient(T *out, const tigon_topk_factors &f, int64_t label) const {
    const tigon_topk_outside o = tigon_topk_outside_of(&p, &s);
    const float reference = (float)o.lse, by = (float)(o.by * f.soft), hard_by = (float)f.hard;
    const float of_logits = HEAD ? div_scale(p.base.input_map) : 1, of_hard = (float)hard_lse;
    const div_side q = {TIGON_DISTRIBUTION_LOGITS, p.base.inverse_temperature * of_logits, reference,
                        (float)(o.lse - (double)reference)};
    const div_side h = {TIGON_DISTRIBUTION_LOGITS, of_logits, of_hard, (float)(hard_lse - (double)of_hard)};
    walk<false>(
        [&](int64_t c, const int *of, float(&a)[N]) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            if (of[i] != TOPK_NONE) continue;
            const float z = map.z(a[i]), slope = map.slope(a[i]);
            const div_chance share = div_chance_of(q, z);
            float d = share.log == -INFINITY ? 0.0f : share.of * by;
            if (hard()) d = fmaf(hard_by, div_chance_of(h, z).of - (c + i == label ? 1.0f : 0.0f), d);
            a[i] = d * slope;
          }
          store_pack<T, N>(out + c, packed<T, N>(a));
        },
        [&](int64_t j, int64_t v) {
          const tigon_topk_element e = element(j, v);
          const double soft = tigon_topk_gradient(&p, &s, &e);
          const int64_t c = v - first();
          const double d = HEAD ? tigon_topk_dinput(&p, &f, hard_lse, at(v), soft, c == label) : f.soft * soft;
          out[c] = from_f32<T>((float)d);
        });
  }
};

template <class T, int N, bool HEAD> __device__ inline void topk_rows(const topk_problem &p, const topk_walk &walk) {
  __shared__ int entry[TOPK_WINDOW];
  const tigon_divergence_problem &base = p.base;
  const int64_t r = walk.first_row + blockIdx.x;
  const bool counts = tigon_divergence_counts(&base, r);
  T *const out = base.dinput.data ? row_of<T>(base.space, base.dinput, r) : NULL;
  topk_row<T, N, HEAD> row(p, entry, r);
  const int64_t label = HEAD && counts ? tigon_divergence_class(&base, r) : -1;
  /* before dinput may be written over it */
  const float x_label = label >= 0 ? to_f32(row.x[label]) : 0;
  for (int64_t j = threadIdx.x; p.error_flag && j < p.k; j += blockDim.x)
    if (tigon_topk_class(&p, &row.s, j) < 0) *p.error_flag = 1;
  double loss = 0;
  if (counts) {
    row.find_target_lse();
    if (walk.backward)
      row.s.lse = (double)base.stats[3 * r], row.s.outside = (double)base.stats[3 * r + 1],
      row.s.mean = (double)base.stats[3 * r + 2];
    if (walk.backward && row.hard()) row.hard_lse = (double)base.hard_lse[r];
    if (!walk.backward) row.find_lse();
    loss = row.sum_terms(walk.backward);
    const double inverse = base.reduction == TIGON_REDUCTION_MEAN ? (double)*base.inverse : 1;
    if (out) row.store_gradient(out, tigon_topk_factors_of(&p, inverse, r), label);
  } else {
    for (int64_t c = (int64_t)threadIdx.x * N; out && c < base.cols; c += (int64_t)blockDim.x * N)
      store_pack<T, N>(out + c, zero_pack<T, N>());
  }
  if (walk.backward || threadIdx.x != 0) return;
  div_put(base, r, counts, loss, label < 0 ? 0 : row.hard_lse - tigon_logit(&base.input_map, (double)x_label),
          (float)row.hard_lse);
  if (!base.stats) return;
  base.stats[3 * r] = (float)row.s.lse, base.stats[3 * r + 1] = (float)row.s.outside;
  base.stats[3 * r + 2] = (float)row.s.mean;
}

#define TOPK_KERNEL(name, ...)                               \
  KERNEL_BY_DTYPE(topk_divergence_##name, (TOPK_THREADS, 2), \
                  (const __grid_constant__ topk_problem p, const __grid_constant__ topk_walk walk), __VA_ARGS__)

TOPK_KERNEL(packs, topk_rows<T, pack<T>::N, false>(p, walk))
TOPK_KERNEL(any, topk_rows<T, 1, false>(p, walk))
TOPK_KERNEL(head_packs, topk_rows<T, pack<T>::N, true>(p, walk))
TOPK_KERNEL(head_any, topk_rows<T, 1, true>(p, walk))
