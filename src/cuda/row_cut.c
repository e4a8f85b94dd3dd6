#include "cuda/row_cut.h"

#include "cuda/map.h"

int64_t cuda_row_lanes_of(const tigon_row_space *space, int64_t cols, tigon_dtype dtype,
                          const tigon_rows *const tensors[]) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(dtype);
  bool wide = cols % lanes == 0;
  for (; *tensors; ++tensors) wide = wide && map_wide(space, *tensors, dtype);
  return wide ? lanes : 1;
}

int cuda_row_each(int64_t items, int64_t lanes) {
  if (lanes == 1) return items <= 8 * 32 ? 8 : 16;
  return items <= 32 ? 1 : items <= 2 * 32 ? 2 : 4;
}

row_cut cuda_cut_row(const cuda_device *device, row_kernels *k, int64_t cols, int64_t lanes) {
  const bool clusters = device->sm >= 90;
  const int64_t items = cuda_ceil_div(cols, lanes);
  const int each = cuda_row_each(items, lanes);
  const int64_t wanted = cuda_ceil_div(items, each);
  row_cut c = {.team = cuda_team_for(wanted, ROW_MOST_THREADS), .cluster = 1};
  c.kernel = each == 1   ? k->packs_1
             : each == 2 ? k->packs_2
             : each == 4 ? k->packs_4
             : each == 8 ? k->any_8
                         : k->any_16;
  if (clusters && c.team < wanted) {
    c.team = ROW_THREADS;
    while (c.team * c.cluster < wanted && c.cluster < CUDA_CLUSTER) c.cluster *= 2;
    while (c.team * c.cluster < wanted && c.team < ROW_MOST_THREADS) c.team *= 2;
  }
  c.held = c.cluster > 1 ? "shared" : "held";
  if (c.team * c.cluster >= wanted) return c;
  return (row_cut){.kernel = lanes > 1 ? k->walk : k->any,
                   .team = ROW_WIDE_THREADS,
                   .cluster = clusters ? CUDA_CLUSTER : 1,
                   .held = "walked"};
}

tigon_status cuda_launch_rows(tigon_queue *queue, const row_cut *cut, tigon_dtype dtype, int64_t rows,
                              const void *problem) {
  const int threads = cuda_block_for(cut->team, ROW_THREADS);
  const int64_t teams = threads / cut->team, most = INT32_MAX / CUDA_CLUSTER * teams;
  tigon_status status = TIGON_OK;
  for (int64_t first = 0; first < rows && status == TIGON_OK; first += most) {
    const int64_t count = rows - first < most ? rows - first : most;
    const cuda_shape shape = {.blocks = cuda_ceil_div(count, teams) * cut->cluster,
                              .threads = threads,
                              .cluster = cut->cluster,
                              .shared_bytes = cut->bytes,
                              .held = cut->held};
    status = cuda_launch(queue, cuda_by_dtype(cut->kernel, dtype), shape,
                         CUDA_ARGUMENTS((void *)problem, (void *)&cut->team, &first));
  }
  return status;
}
