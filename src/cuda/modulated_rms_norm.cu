#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/norm_kernels.cuh"

#define MODULATED_RMS_NORM(...) NORM_DEFINE(modulated_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"

/* The second stage: block (columns, i). i = 0: dw, a sum over the slabs of all ranges. The other blocks make dscale and dshift of a
 * group, over the slabs of its parts. If parts are few a warp has one of these sums, else a block. */
extern "C" __global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS)
    modulated_rms_norm_sums(const __grid_constant__ tigon_norm_bwd_problem p, const norm_walk walk,
                            const int64_t blocks) {
  await_kernel();
  const int64_t first = (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, step = MODULATED_SUMS * p.cols;
  const bool few = walk.parts <= COLUMN_SUM_PARTS;
  for (int64_t i = blockIdx.y; i < blocks; i += gridDim.y) {
    if (i == 0) {
      if (p.dw)
        column_sum_columns<COLUMN_SUM_COLUMNS>(p.slabs, walk.ranges, step, first, p.cols, p.dw, 0, p.dw_dtype,
                                               p.accumulate_dw);
      continue;
    }
    const int64_t output = few ? (i - 1) * COLUMN_SUM_PARTS + threadIdx.x / COLUMN_SUM_COLUMNS : i - 1;
    const int64_t group = output / 2;
    const bool scale = output % 2 == 0;
    const tigon_rows &to = scale ? p.dscale : p.dshift;
    if (group >= p.groups.rows || !to.data) continue;
    const tigon_dtype dtype = scale ? p.dscale_dtype : p.dshift_dtype;
    const float *slabs = p.slabs + group * walk.parts * step + (scale ? 1 : 2) * p.cols;
    const int64_t offset = tigon_row_offset(&p.groups, &to, group);
    if (!few) {
      column_sum_columns<COLUMN_SUM_COLUMNS>(slabs, walk.parts, step, first, p.cols, to.data, offset, dtype,
                                             p.accumulate_dscale);
      continue;
    }
    const int64_t c = first + threadIdx.x % COLUMN_SUM_COLUMNS;
    if (c >= p.cols) continue;
    float sum = 0;
#pragma unroll 16
    for (int s = 0; s < (int)walk.parts; ++s) sum += slabs[s * step + c];
    if (p.accumulate_dscale) sum += load_any(to.data, offset + c, dtype);
    store_any(to.data, offset + c, dtype, sum);
  }
}
