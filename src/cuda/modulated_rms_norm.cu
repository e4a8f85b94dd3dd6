#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/norm_kernels.cuh"

NORM_MODULATED_KERNELS(modulated_rms_norm)
NORM_SWEPT(modulated_rms_norm, NORM_MODULATED)

/* The second stage: block (columns, output). Output 0 is dw, a sum over all ranges' slabs; 1 + 2 * group and the one after it are that
 * group's dscale and dshift, over those of its parts. */
extern "C" __global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS)
    modulated_rms_norm_sums(const __grid_constant__ tigon_norm_bwd_problem p, const norm_walk walk,
                            const int64_t outputs) {
  column_sum_await();
  const int64_t first = (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, step = MODULATED_SUMS * p.cols;
  for (int64_t i = blockIdx.y; i < outputs; i += gridDim.y) {
    if (i == 0) {
      if (p.dw) column_sum_block(p.slabs, walk.ranges, step, first, p.cols, p.dw, 0, p.dw_dtype, p.accumulate_dw);
      continue;
    }
    const int64_t group = (i - 1) / 2;
    const bool scale = i % 2 == 1;
    const tigon_rows &to = scale ? p.dscale : p.dshift;
    if (!to.data) continue;
    column_sum_block(p.slabs + group * walk.parts * step + (scale ? 1 : 2) * p.cols, walk.parts, step, first, p.cols,
                     to.data, tigon_row_offset(&p.groups, &to, group), scale ? p.dscale_dtype : p.dshift_dtype,
                     p.accumulate_dscale);
  }
}
