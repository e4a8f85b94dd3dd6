#include "cuda/group_norm.h"

#include "cuda/column_sum.h"
#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

typedef enum group_path {
  WIDE,  /* runs are whole packs */
  MIXED, /* rows are: channels lie end to end */
  ANY,
} group_path;

/* The alignment of one tensor. The largest value of a call's tensors counts. WIDE and MIXED exclude each other, because all tensors
 * have the same run. */
static group_path path_of(const tigon_planes *t, int64_t channels, int64_t run, tigon_dtype dtype) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(dtype);
  if (!cuda_wide(t->data) || t->batch_pitch % lanes != 0) return ANY;
  if (run % lanes == 0 && t->channel_pitch % lanes == 0) return WIDE;
  return t->channel_pitch == run && channels * run % lanes == 0 ? MIXED : ANY;
}
static group_path worse(group_path a, group_path b) { return a > b ? a : b; }

static int cluster_of(int64_t packs, int64_t of_block) {
  int cluster = 1;
  while (cluster * of_block < packs && cluster < CUDA_CLUSTER) cluster *= 2;
  return cluster;
}

/* The parts of walked rows. A block has `threads` threads. */
static group_walk walk_of(int64_t channels, int64_t run, int lanes, int *threads) {
  const int64_t count = channels * run, fair = cuda_ceil_div(count, GROUP_PARTS);
  const int64_t most = fair > GROUP_PART ? fair : GROUP_PART;
  group_walk walk = {.pieces = 1, .channels = 1, .splits = 1};
  int64_t line = run, elements;
  if (run > most) {
    walk.pieces = cuda_ceil_div(run, most);
    elements = line = cuda_ceil_div(run, walk.pieces);
  } else {
    walk.channels = most / run < channels ? most / run : channels;
    elements = walk.channels * run;
  }
  walk.parts = walk.pieces > 1 ? channels * walk.pieces : cuda_ceil_div(channels, walk.channels);
  *threads = cuda_team_for(elements / (8 * lanes), GROUP_WALK_THREADS);
  walk.team = line / (4 * lanes) > *threads / 2 ? *threads : 32;
  return walk;
}

static int64_t within_grid(int64_t blocks) { return blocks < INT32_MAX ? blocks : INT32_MAX; }

/* ---- forward ---- */

static bool is_dense(const tigon_planes *t, const tigon_group_norm_fwd_problem *p) {
  const int64_t channels = p->groups * p->channels;
  return t->channel_pitch == p->run && t->batch_pitch == channels * p->run;
}

/* Rows of more packs than a warp has, one per block. */
static bool is_plain(const tigon_group_norm_fwd_problem *p, int64_t packs) {
  return packs > 2 * 32 && packs <= GROUP_PLAIN_PACKS * GROUP_PLAIN_THREADS && is_dense(&p->x, p) &&
         is_dense(&p->y, p) && (!p->w || p->w_dtype == p->dtype) && (!p->b || p->b_dtype == p->dtype);
}

static tigon_status fwd_plain(tigon_queue *queue, const tigon_group_norm_fwd_problem *p, int64_t packs) {
  static cuda_kernel short_rows[3] = CUDA_KERNELS(group_norm, group_norm_fwd_plain),
                     long_rows[3] = CUDA_KERNELS(group_norm, group_norm_fwd_plain_long);
  enum { MOST_BATCHES = 65535 };
  cuda_shape shape = {.blocks = p->groups,
                      .held = "held",
                      .threads = cuda_team_for(cuda_ceil_div(packs, GROUP_PLAIN_PACKS), GROUP_PLAIN_THREADS)};
  cuda_kernel *kernel = cuda_by_dtype(shape.threads <= GROUP_PLAIN_THREADS / 2 ? short_rows : long_rows, p->dtype);
  tigon_status status = TIGON_OK;
  for (int64_t at = 0; at < p->batch && status == TIGON_OK; at += shape.rows) {
    const int64_t row = at * p->groups, bytes = row * packs * 16;
    const group_plain rows = {.x = (const char *)p->x.data + bytes,
                              .w = p->w,
                              .b = p->b,
                              .y = (char *)p->y.data + bytes,
                              .mean = p->mean ? p->mean + row : NULL,
                              .rstd = p->rstd ? p->rstd + row : NULL,
                              .packs = (int)packs,
                              .channel_of = (unsigned)cuda_ceil_div((int64_t)1 << 31, packs / p->channels),
                              .channels = (unsigned)p->channels,
                              .eps = p->eps};
    shape.rows = p->batch - at < MOST_BATCHES ? (int)(p->batch - at) : MOST_BATCHES;
    status = cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)&rows));
  }
  return status;
}

static tigon_status fwd_held(tigon_queue *queue, const tigon_group_norm_fwd_problem *p, bool mixed, int64_t packs,
                             int cluster) {
  static cuda_kernel few[3] = CUDA_KERNELS(group_norm, group_norm_fwd_2),
                     many[3] = CUDA_KERNELS(group_norm, group_norm_fwd_4),
                     mixed_many[3] = CUDA_KERNELS(group_norm, group_norm_fwd_mixed);
  enum { FEW = 2, MANY = 4 }; /* packs per thread */
  const int64_t share = cuda_ceil_div(packs, cluster);
  const bool is_few = !mixed && share <= FEW * GROUP_FWD_THREADS;
  const int each = is_few ? FEW : MANY;
  group_walk walk = {.team = cuda_team_for(cuda_ceil_div(share, each), GROUP_MOST_THREADS), .share = (int)share};
  const int threads = cluster == 1 ? cuda_block_for(walk.team, GROUP_FWD_THREADS) : walk.team;
  const int64_t blocks = cuda_ceil_div(p->batch * p->groups, threads / walk.team);
  const cuda_shape shape = {.blocks = within_grid(blocks * cluster) / cluster * cluster,
                            .threads = threads,
                            .cluster = cluster,
                            .held = cluster > 1 ? "shared" : "held"};
  cuda_kernel *kernel = mixed ? mixed_many : is_few ? few : many;
  return cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

/* The part of the L2 that keeps rows between two launches: 24 MiB of an H200's 50. */
static int64_t cached_bytes(const cuda_device *device) { return device->l2_bytes * 12 / 25; }

/* Rows of several parts. A pair of launches has as many rows as the L2 keeps from the first launch to the second. */
static tigon_status fwd_walked(tigon_queue *queue, const tigon_group_norm_fwd_problem *p, bool wide) {
  static cuda_kernel sums_wide[3] = CUDA_KERNELS(group_norm, group_norm_fwd_wide),
                     sums_any[3] = CUDA_KERNELS(group_norm, group_norm_fwd_any),
                     store_wide[3] = CUDA_KERNELS(group_norm, group_norm_fwd_store_wide),
                     store_any[3] = CUDA_KERNELS(group_norm, group_norm_fwd_store_any);
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype), rows = p->batch * p->groups;
  int threads;
  group_walk walk = walk_of(p->channels, p->run, wide ? (int)(16 / size) : 1, &threads);
  const int64_t cached = cached_bytes(cuda_of(queue)) / (p->channels * p->run * size), most = cached > 1 ? cached : 1;
  walk.handed = cuda_of(queue)->scratch;
  tigon_status status = TIGON_OK;
  for (int64_t at = 0; at < rows && status == TIGON_OK; at += walk.rows) {
    walk.first = at;
    walk.rows = walk.parts == 1 || rows - at < most ? rows - at : most;
    const cuda_shape shape = {.blocks = within_grid(walk.rows * walk.parts), .threads = threads, .held = "walked"};
    cuda_kernel *sums = cuda_by_dtype(wide ? sums_wide : sums_any, p->dtype),
                *store = cuda_by_dtype(wide ? store_wide : store_any, p->dtype);
    status = cuda_launch(queue, sums, shape, CUDA_ARGUMENTS((void *)p, &walk));
    if (status == TIGON_OK && walk.parts > 1)
      status = cuda_launch(queue, store, shape, CUDA_ARGUMENTS((void *)p, &walk));
  }
  return status;
}

tigon_status tigon_cuda_group_norm_fwd(tigon_queue *queue, const tigon_group_norm_fwd_problem *p) {
  enum { PACKS = 2048, MOST_PACKS = 4096 }; /* packs per block: the best number; the most that fit */
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = cuda_ceil_div(p->channels * p->run, lanes);
  const group_path path =
      worse(path_of(&p->x, p->channels, p->run, p->dtype), path_of(&p->y, p->channels, p->run, p->dtype));
  if (path == WIDE && p->groups <= INT32_MAX && is_plain(p, packs)) return fwd_plain(queue, p, packs);
  const int cluster = cuda_of(queue)->sm >= 90 ? cluster_of(packs, PACKS) : 1;
  if (path != ANY && packs <= (int64_t)cluster * MOST_PACKS) return fwd_held(queue, p, path == MIXED, packs, cluster);
  return fwd_walked(queue, p, path == WIDE);
}

/* ---- backward ---- */

/* The most packs of a row, the kernel, and the bytes of its stages. */
typedef struct held_kernel {
  cuda_kernel *of;
  int packs, stages;
} held_kernel;

static int64_t held_bytes(const held_kernel *held) {
  return (int64_t)held->stages * 2 * held->packs * GROUP_BWD_THREADS * 16;
}

static tigon_status bwd_held(tigon_queue *queue, const tigon_group_norm_bwd_problem *p, const held_kernel *held,
                             int64_t packs, int64_t ranges, int cluster) {
  const int64_t share = cuda_ceil_div(packs, cluster);
  group_walk walk = {.team = cuda_team_for(cuda_ceil_div(share, held->packs), GROUP_BWD_THREADS),
                     .share = (int)share,
                     .ranges = ranges};
  if (cluster > 1) walk.team = GROUP_BWD_THREADS;
  const cuda_shape shape = {.blocks = p->groups * ranges * cluster,
                            .threads = GROUP_BWD_THREADS,
                            .shared_bytes = (int)held_bytes(held),
                            .cluster = cluster,
                            .held = "held",
                            .slabs = ranges};
  return cuda_launch(queue, cuda_by_dtype(held->of, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

/* *slabs: how many slabs it fills. */
static tigon_status bwd_walked(tigon_queue *queue, const tigon_group_norm_bwd_problem *p, bool wide, int64_t ranges,
                               int64_t *slabs) {
  static cuda_kernel sums_wide[3] = CUDA_KERNELS(group_norm, group_norm_bwd_wide),
                     sums_any[3] = CUDA_KERNELS(group_norm, group_norm_bwd_any),
                     store_wide[3] = CUDA_KERNELS(group_norm, group_norm_bwd_store_wide),
                     store_any[3] = CUDA_KERNELS(group_norm, group_norm_bwd_store_any);
  const int lanes = wide ? 16 / (int)tigon_dtype_size(p->dtype) : 1;
  int threads;
  group_walk walk = walk_of(p->channels, p->run, lanes, &threads);
  walk.ranges = ranges;
  walk.splits = tigon_splits(walk.parts, p->groups * ranges, cuda_of(queue)->desc.cores);
  walk.team = cuda_ceil_div(p->run, walk.pieces) >= (int64_t)2 * lanes * threads ? threads : 32;
  walk.handed = cuda_of(queue)->scratch;
  *slabs = ranges * walk.splits;
  cuda_shape shape = {.blocks = p->groups * *slabs, .threads = threads, .held = "walked", .slabs = *slabs};
  cuda_kernel *sums = cuda_by_dtype(wide ? sums_wide : sums_any, p->dtype),
              *store = cuda_by_dtype(wide ? store_wide : store_any, p->dtype);
  const tigon_status status = cuda_launch(queue, sums, shape, CUDA_ARGUMENTS((void *)p, &walk));
  if (status != TIGON_OK || walk.parts == 1) return status;
  shape.blocks = within_grid(p->batch * p->groups * walk.parts);
  return cuda_launch(queue, store, shape, CUDA_ARGUMENTS((void *)p, &walk));
}

static tigon_status bwd_rows(tigon_queue *queue, const tigon_group_norm_bwd_problem *p, int64_t *slabs) {
  static cuda_kernel few[3] = CUDA_KERNELS(group_norm, group_norm_bwd_2),
                     many[3] = CUDA_KERNELS(group_norm, group_norm_bwd_4),
                     mixed[3] = CUDA_KERNELS(group_norm, group_norm_bwd_mixed);
  const held_kernel of_few = {few, 2, 4}, of_many = {many, 4, 3}, of_mixed = {mixed, 2, 4};
  const cuda_device *device = cuda_of(queue);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = cuda_ceil_div(p->channels * p->run, lanes);
  const int64_t ranges = tigon_group_slabs(p->batch, p->groups, device->desc.cores);
  const group_path of_dy = path_of(&p->dy, p->channels, p->run, p->dtype),
                   of_x = path_of(&p->x, p->channels, p->run, p->dtype),
                   of_dx = path_of(&p->dx, p->channels, p->run, p->dtype);
  const group_path path = worse(worse(of_dy, of_x), of_dx);
  const bool is_few = packs <= (int64_t)of_few.packs * GROUP_BWD_THREADS;
  const held_kernel held = path == MIXED ? of_mixed : is_few ? of_few : of_many;
  const int64_t of_block = (int64_t)held.packs * GROUP_BWD_THREADS;
  const int cluster = device->sm >= 90 ? cluster_of(packs, of_block) : 1;
  *slabs = ranges;
  if (path != ANY && packs <= cluster * of_block && held_bytes(&held) <= device->desc.onchip_bytes)
    return bwd_held(queue, p, &held, packs, ranges, cluster);
  return bwd_walked(queue, p, path == WIDE, ranges, slabs);
}

/* As many slabs as walked rows need. Other kernels need fewer. */
int64_t tigon_cuda_group_norm_bwd_bytes(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  if (p->batch == 0 || p->channels * p->run == 0) return 0;
  int threads;
  const int64_t cores = cuda_of(queue)->desc.cores, ranges = tigon_group_slabs(p->batch, p->groups, cores);
  const int64_t parts = walk_of(p->channels, p->run, 1, &threads).parts;
  return tigon_slab_bytes(ranges * tigon_splits(parts, p->groups * ranges, cores), 2, p->groups * p->channels);
}

tigon_status tigon_cuda_group_norm_bwd(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  const int64_t channels = p->groups * p->channels;
  column_sums sums = {
      .of = {{p->slabs, p->dw, p->dw_dtype, channels}, {p->slabs + channels, p->db, p->db_dtype, channels}},
      .step = 2 * channels,
      .accumulate = p->accumulate};
  const tigon_status status = p->batch > 0 && p->run > 0 ? bwd_rows(queue, p, &sums.count) : TIGON_OK;
  return status == TIGON_OK && (p->dw || p->db) ? cuda_column_sums(queue, &sums) : status;
}
