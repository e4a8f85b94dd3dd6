/* Code that the kernels of group_norm share. A row is a group of one batch: channels [first, first + channels) of `run` positions. */
#ifndef TIGON_CUDA_KERNEL_GROUP_NORM_CUH
#define TIGON_CUDA_KERNEL_GROUP_NORM_CUH

#include "cuda/group_norm.h"
#include "cuda/kernel/norm.cuh"

/* ---- held rows: packs in the order of channel and position ---- */

/* Channel of the group, position in its run. */
struct group_cursor {
  int c, i;
};
__device__ static inline group_cursor group_at(int element, int run) {
  return group_cursor{element / run, element % run};
}
__device__ static inline void group_advance(group_cursor &at, const group_cursor &step, int run) {
  at.c += step.c, at.i += step.i;
  if (at.i >= run) at.i -= run, ++at.c;
}

/* Element 0 of row (batch, group). */
template <class T> __device__ inline T *group_row(const tigon_planes &t, int64_t batch, int64_t channel) {
  return (T *)t.data + batch * t.batch_pitch + channel * t.channel_pitch;
}

__device__ static inline float group_parameter(const void *v, tigon_dtype dtype, int64_t channel, float absent) {
  return v ? load_any(v, channel, dtype) : absent;
}
/* N elements from a cursor on. `first` is the first channel of their group. */
template <int N>
__device__ inline void group_parameters(const void *v, tigon_dtype dtype, int64_t first, group_cursor at, int run,
                                        float absent, float (&to)[N]) {
  if (at.i + N <= run) {
    const float one = group_parameter(v, dtype, first + at.c, absent);
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = one;
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      to[j] = group_parameter(v, dtype, first + at.c, absent);
      if (++at.i == run) at.i = 0, ++at.c;
    }
  }
}

/* ---- walked rows: in parts, whole channels or a piece of one ---- */

/* Channels [first, last) of the group, positions [begin, end) of each. */
struct group_box {
  int64_t first, last, begin, end;
  __device__ float count() const { return (float)((last - first) * (end - begin)); }
};

/* N: positions that stay together. */
template <int N>
__device__ inline group_box group_part(const group_walk &walk, int64_t channels, int64_t run, int64_t part) {
  group_box box = {part, part + 1, 0, run};
  if (walk.pieces > 1) {
    box.first = part / walk.pieces, box.last = box.first + 1;
    tigon_range(run / N, walk.pieces, part % walk.pieces, &box.begin, &box.end);
    box.begin *= N, box.end *= N;
  } else {
    box.first = part * walk.channels, box.last = box.first + walk.channels;
    if (box.last > channels) box.last = channels;
  }
  return box;
}

#endif
