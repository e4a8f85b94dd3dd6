/* cross_entropy's sums over all rows, by one block in one order: one of its own or, of few rows, the one of their
 * kernel that ends last. */
#ifndef TIGON_CUDA_KERNEL_CROSS_ENTROPY_TOTALS_CUH
#define TIGON_CUDA_KERNEL_CROSS_ENTROPY_TOTALS_CUH

#include "cuda/kernel/cross_entropy_math.cuh"
#include "cuda/kernel/team.cuh"

__device__ static inline float inverse_of(const ce_problem &p, double denominator) {
  if (p.denominator) denominator = (double)*p.denominator;
  return p.reduction != TIGON_REDUCTION_MEAN ? 1 : denominator == 0 ? 0 : (float)(1 / denominator);
}

/* UNROLL labels on their way together. What a thread's rows of all add to mean's denominator, and how many have their label as argmax. */
template <int UNROLL>
__device__ static inline double count_labels(const ce_problem &p, bool matches, long long *correct) {
  double denominator = 0;
  bool wrong = false;
#pragma unroll UNROLL
  for (int64_t r = threadIdx.x; r < p.space.rows; r += blockDim.x) {
    bool out_of_range;
    const int64_t label = tigon_cross_entropy_label(&p, r, &out_of_range);
    wrong |= out_of_range;
    if (label < 0) continue;
    denominator += p.weight ? (double)p.weight[label] : 1;
    if (matches) *correct += p.argmax[r] == label;
  }
  if (wrong && p.error_flag) *p.error_flag = 1;
  return denominator;
}

/* The inverse for few rows, which each block counts itself for a gradient. */
__device__ static inline float counted_inverse(const ce_problem &p) {
  if (!p.dlogits.data || !(p.parts & TIGON_CROSS_ENTROPY_COUNT)) return 0;
  long long correct = 0;
  return inverse_of(p, block_total(count_labels<1>(p, false, &correct)));
}

/* COUNT and REDUCE, those that the call has. */
template <int UNROLL> __device__ static inline void all_rows(const ce_problem &p) {
  const bool counts = p.parts & TIGON_CROSS_ENTROPY_COUNT, reduces = p.parts & TIGON_CROSS_ENTROPY_REDUCE;
  const bool matches = reduces && p.correct;
  enum { AT_ONCE = 4 };
  double denominator = 0, loss = 0;
  long long correct = 0;
  for (int64_t first = threadIdx.x; reduces && first < p.space.rows; first += AT_ONCE * blockDim.x) {
    float losses[AT_ONCE]; /* on their way together */
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k)
      losses[k] = first + k * blockDim.x < p.space.rows ? p.token_loss[first + k * blockDim.x] : 0;
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) loss += (double)losses[k];
  }
  if (counts || matches) denominator = count_labels<UNROLL>(p, matches, &correct);
  const float inverse = counts ? inverse_of(p, block_total(denominator)) : *p.inverse;
  if (counts && threadIdx.x == 0) *p.inverse = inverse;
  if (!reduces) return;
  loss = block_total(loss);
  correct = block_total(correct);
  if (threadIdx.x > 0) return;
  if (p.loss) *p.loss = (float)(loss * (double)inverse);
  if (p.correct) *p.correct = correct;
}

/* The end of every block of few rows. The ticket is 0 before the first and after the last of them. */
__device__ static inline void end_rows(const ce_problem &p, const ce_walk &walk) {
  __shared__ bool last;
  if (!walk.ticket) return;
  __syncthreads(); /* the block's rows are written */
  if (threadIdx.x == 0) last = ends_last(walk.ticket);
  __syncthreads();
  if (last) all_rows<1>(p);
}

#endif
