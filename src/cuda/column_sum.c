#include "cuda/column_sum.h"

tigon_status cuda_column_sums(tigon_queue *queue, const column_sums *sums) {
  static cuda_kernel kernel = CUDA_KERNEL(column_sum, column_sum);
  const int most = sums->of[1].to ? 2 : sums->of[0].to ? 1 : 0;
  const int64_t first = sums->of[0].cols, second = sums->of[1].cols, cols = first > second ? first : second;
  const cuda_shape shape = {.blocks = cuda_ceil_div(cols, COLUMN_SUM_COLUMNS),
                            .rows = most,
                            .threads = COLUMN_SUM_COLUMNS * COLUMN_SUM_PARTS,
                            .awaits = true};
  return most == 0 ? TIGON_OK : cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)sums));
}
