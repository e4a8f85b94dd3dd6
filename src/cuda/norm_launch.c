#include "cuda/norm_launch.h"

#include "cuda/column_sum.h"

/* Blocks that share a row of a walked kernel: as many as it takes until all SMs have work, where a row is worth sharing. */
static int cluster_for(const cuda_device *device, int64_t rows, int64_t cols) {
  enum { WORTH = 8192 }; /* columns of a block */
  int cluster = 1;
  while (device->sm >= 90 && cluster < CUDA_CLUSTER && 2 * cluster * rows <= device->desc.cores &&
         cols >= 2 * cluster * WORTH)
    cluster *= 2;
  return cluster;
}

static bool wide_vector(const void *w) { return !w || cuda_wide(w); }
static bool has_dtype(const void *vector, tigon_dtype its, tigon_dtype dtype) { return !vector || its == dtype; }

static norm_plain_rows plain_rows(const tigon_rows *t) { return (norm_plain_rows){t->data, t->pitch[2]}; }
static norm_plain plain_of(const cuda_device *device, const tigon_norm_fwd_problem *p, int team) {
  return (norm_plain){.cols = (int)p->cols,
                      .team = team,
                      .rows = p->space.rows,
                      .x = plain_rows(&p->x),
                      .residual = plain_rows(&p->residual),
                      .w = p->w,
                      .rstd = p->rstd,
                      .eps = p->eps,
                      .w_offset = p->w ? p->w_offset : 1,
                      .casting = p->casting,
                      .stays = 2 * p->space.rows * p->cols > device->l2_bytes,
                      .y = plain_rows(&p->y),
                      .s = plain_rows(&p->s),
                      .b = p->b,
                      .mean = p->mean,
                      .share = p->share,
                      .scale_dtype = p->scale_dtype,
                      .shift_dtype = p->shift_dtype,
                      .scale = plain_rows(&p->scale),
                      .shift = plain_rows(&p->shift)};
}

/* Rows that wait in shared memory, those of a team of one group: the bytes of a block. */
static int stash_bytes(int threads) { return threads * NORM_GROUP_ROWS * NORM_GROUP_PACKS * 16; }
static int stash_team(int64_t packs) {
  return cuda_team_for(cuda_ceil_div(packs, NORM_GROUP_PACKS), NORM_MOST_THREADS);
}
static bool stashes(const cuda_device *device, const tigon_norm_fwd_problem *p, int64_t packs) {
  const int threads = cuda_block_for(stash_team(packs), NORM_FWD_THREADS);
  return p->share >= NORM_GROUP_ROWS && packs <= NORM_GROUP_PACKS * NORM_MOST_THREADS &&
         stash_bytes(threads) <= device->desc.onchip_bytes;
}

tigon_status cuda_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p, norm_kernels *kernels) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = cuda_ceil_div(p->cols, lanes);
  const bool wide = p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->residual, p->dtype) && cuda_wide_rows(&p->space, &p->s, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->y, p->dtype) && wide_vector(p->w) && wide_vector(p->b) &&
                    cuda_wide_rows(&p->groups, &p->scale, p->scale_dtype) &&
                    cuda_wide_rows(&p->groups, &p->shift, p->shift_dtype);
  enum { WARP = 32, SHARE = 4 * NORM_SHARE_THREADS }; /* packs of a block that shares rows, at most */
  const cuda_device *device = cuda_of(queue);
  int cluster = cluster_for(device, p->space.rows, p->cols);
  const bool plain = wide && cluster == 1 && p->space.inner == p->space.rows && p->groups.inner == p->groups.rows &&
                     has_dtype(p->w, p->w_dtype, p->dtype) && has_dtype(p->b, p->b_dtype, p->dtype) &&
                     has_dtype(p->scale.data, p->scale_dtype, p->dtype) &&
                     has_dtype(p->shift.data, p->shift_dtype, p->dtype);
  const bool few = p->space.rows <= 2 * (int64_t)device->desc.cores && packs <= 2 * NORM_MOST_THREADS;
  const bool sweeps = packs > NORM_SWEPT_PACKS || (kernels->held_cols > 0 && p->cols > kernels->held_cols && !few);
  const bool swept = plain && kernels->fwd_swept[0].name && sweeps && p->cols < INT32_MAX / 2;
  /* Rows too wide for a block are held by a cluster of them. */
  while (wide && !swept && device->sm >= 90 && packs > 4 * NORM_MOST_THREADS && cluster < CUDA_CLUSTER &&
         cluster * SHARE < packs)
    cluster *= 2;
  const bool held = wide && cluster == 1 && !swept && packs <= 4 * NORM_MOST_THREADS;
  cuda_kernel *kernel = wide ? kernels->fwd_wide : kernels->fwd_any;
  int each = wide ? 2 : 8;      /* packs, or elements, of a thread and row */
  int warps = NORM_FWD_THREADS; /* threads of a block in which each warp has a row */
  bool stashed = false;
  if (held) {
    each = packs <= 2 * WARP || p->cols <= kernels->early_cols || few ? 2 : 4;
    const bool whole = p->w && p->b && packs <= NORM_WHOLE_PACKS && (packs & (packs - 1)) == 0;
    const bool late = kernels->fwd_late[0].name && !whole;
    stashed = plain && each == 4 && kernels->fwd_stashed[0].name && stashes(device, p, packs);
    kernel = !plain      ? kernels->fwd_held
             : stashed   ? kernels->fwd_stashed
             : each == 2 ? kernels->fwd_2
             : late      ? kernels->fwd_late
                         : kernels->fwd_4;
    if (stashed) each = NORM_GROUP_PACKS;
    if (packs > each * WARP) warps = WARP;
  }
  norm_walk walk = {.team = cuda_team_for(cuda_ceil_div(wide ? packs : p->cols, each), NORM_MOST_THREADS)};
  if (cluster > 1) walk.team = NORM_MOST_THREADS;
  if (wide && cluster > 1 && packs <= (int64_t)cluster * SHARE) {
    kernel = kernels->fwd_shared;
    walk.team = NORM_SHARE_THREADS;
    walk.share = (int)cuda_ceil_div(packs, cluster);
  } else if (wide && cluster > 1) {
    cluster = cluster_for(device, p->space.rows, p->cols);
  }
  if (swept) { /* by as many threads as would hold it, up to NORM_SWEPT_THREADS */
    kernel = kernels->fwd_swept;
    walk.team = cuda_team_for(cuda_ceil_div(packs, 4), NORM_SWEPT_THREADS);
  }
  const int threads = cuda_block_for(walk.team, warps);
  const int64_t work = stashed ? p->groups.rows * cuda_ceil_div(p->share, NORM_GROUP_ROWS) : p->space.rows;
  const int64_t blocks = cuda_ceil_div(work, threads / walk.team) * cluster;
  const cuda_shape shape = {.blocks = blocks < INT32_MAX ? blocks : INT32_MAX / cluster * cluster,
                            .threads = threads,
                            .shared_bytes = stashed ? stash_bytes(threads) : 0,
                            .cluster = cluster};
  kernel = cuda_by_dtype(kernel, p->dtype);
  if (!swept && !(held && plain)) return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)p, &walk));
  norm_plain rows = plain_of(device, p, walk.team);
  return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS(&rows));
}

static bool wide_bwd_rows(const tigon_norm_bwd_problem *p) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  return p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->dy, p->dtype) &&
         cuda_wide_rows(&p->space, &p->x, p->dtype) && cuda_wide_rows(&p->space, &p->ds, p->dtype) &&
         cuda_wide_rows(&p->space, &p->dx, p->dtype) && wide_vector(p->w);
}

/* Do a thread's products of rows and pitches fit the held kernel's parameters? */
static bool short_pitches(const tigon_norm_bwd_problem *p) {
  const int64_t longest = p->dy.pitch[2] | p->x.pitch[2] | p->ds.pitch[2] | p->dx.pitch[2]; /* or more */
  return longest >= 0 && longest <= INT32_MAX && p->space.rows <= INT32_MAX / 2;
}

static norm_held held_of(const tigon_norm_bwd_problem *p, int team) {
  int team_bits = 0;
  while (1 << team_bits < team) ++team_bits;
  return (norm_held){.dy = p->dy.data,
                     .x = p->x.data,
                     .w = p->w,
                     .rstd = p->rstd,
                     .dy_pitch = (int)p->dy.pitch[2],
                     .x_pitch = (int)p->x.pitch[2],
                     .cols = (int)p->cols,
                     .rows = (int)p->space.rows,
                     .dx = p->dx.data,
                     .slabs = p->dw || p->db ? p->slabs : NULL,
                     .mean = p->mean,
                     .ds = p->ds.data,
                     .dx_pitch = (int)p->dx.pitch[2],
                     .ds_pitch = (int)p->ds.pitch[2],
                     .w_offset = p->w ? p->w_offset : 1,
                     .share = 1 / (float)p->cols,
                     .casting = p->casting,
                     .team_bits = team_bits};
}

tigon_status cuda_norm_bwd_rows(tigon_queue *queue, const tigon_norm_bwd_problem *p, norm_walk *walk,
                                norm_kernels *kernels) {
  const cuda_device *device = cuda_of(queue);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = wide_bwd_rows(p) && cuda_wide_rows(&p->groups, &p->scale, p->scale_dtype) &&
                    cuda_wide_rows(&p->groups, &p->dscale, p->dscale_dtype) &&
                    cuda_wide_rows(&p->groups, &p->dshift, p->dshift_dtype);
  const int stream_bytes = NORM_BWD_PACKS * NORM_BWD_THREADS * 16;
  const int dw_bytes = p->share > 0 && walk->parts == 0 ? stream_bytes * (int)lanes / 4 : 0; /* of whole groups, f32 */
  const int held_bytes = NORM_BWD_STAGES * (p->ds.data ? 3 : 2) * stream_bytes + dw_bytes;
  const int staged_bytes =
      (NORM_STAGED_STAGES * 2 + (p->ds.data ? 1 : 0)) * NORM_STAGED_PACKS * NORM_STAGED_THREADS * 16;
  const int64_t held_cols = NORM_BWD_THREADS * NORM_BWD_PACKS * lanes;
  const int64_t staged_cols = NORM_STAGED_THREADS * NORM_STAGED_PACKS * lanes;
  const bool stages = kernels->bwd_staged[0].name && device->sm >= 90 && staged_bytes <= device->desc.onchip_bytes;
  int cluster = 1; /* blocks that hold a row, or have it in their stages */
  while (cluster * (stages ? staged_cols : held_cols) < p->cols) cluster *= 2;
  const bool shares = cluster == 1 || (device->sm >= 90 && cluster <= CUDA_CLUSTER);
  const bool held = wide && held_bytes <= device->desc.onchip_bytes && shares && (!stages || p->cols <= held_cols);
  const bool staged = wide && stages && shares && !held;
  const bool plain =
      p->space.inner == p->space.rows && has_dtype(p->w, p->w_dtype, p->dtype) && (cluster == 1 || staged);
  const bool long_layer = kernels->bwd_held[0].name && p->cols > NORM_LAYER_COLS;
  const bool own_parameters = held && plain && kernels->bwd_plain[0].name && !long_layer && short_pitches(p);
  cuda_kernel *kernel = own_parameters ? kernels->bwd_plain
                        : held         ? plain && kernels->bwd_held[0].name ? kernels->bwd_held : kernels->bwd_held_any
                        : staged       ? plain ? kernels->bwd_staged : kernels->bwd_staged_any
                        : wide         ? kernels->bwd_wide
                                       : kernels->bwd_any;
  cuda_shape shape = {.threads = staged ? NORM_STAGED_THREADS : NORM_BWD_THREADS, .cluster = cluster};
  if (held) {
    walk->team = cuda_team_for(cuda_ceil_div(p->cols, lanes * NORM_BWD_PACKS), NORM_BWD_THREADS);
    shape.shared_bytes = held_bytes;
  } else if (staged) {
    shape.shared_bytes = staged_bytes;
    walk->ranges = cuda_ceil_div(walk->ranges, cluster);
  } else {
    walk->team = shape.threads = cuda_team_for(wide ? p->cols / lanes : p->cols, NORM_BWD_THREADS);
    shape.cluster = cluster_for(device, walk->ranges, p->cols);
  }
  shape.blocks = walk->ranges * shape.cluster;
  kernel = cuda_by_dtype(kernel, p->dtype);
  if (!own_parameters) return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)p, walk));
  norm_held rows = held_of(p, walk->team);
  return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS(&rows));
}

/* Cuts few plain rows for one launch; false: they are not, or two launches are as quick (docs/lab/rms_norm/cuda.md). */
static bool cut_few(const cuda_device *device, const tigon_norm_bwd_problem *p, int64_t most_slabs, int sums,
                    norm_few *few, cuda_shape *shape) {
  enum { WARP_BITS = 5, BLOCK_PACKS = 128, EACH = 2, CLUSTERS = 8 };
  enum { SHORT_TEAMS = 8, SHORT_EACH = 3, SHORT_CLUSTERS = 15, MOST_ROWS = 1 << 13 }; /* of shorter rows more */
  _Static_assert(SHORT_CLUSTERS < 1 << (NORM_FEW_COUNTS >> NORM_FEW_CLUSTER_BITS), "a rank's count in a ticket");
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = p->cols / lanes, rows = p->space.rows;
  const int64_t longest = p->dy.pitch[2] | p->x.pitch[2] | p->ds.pitch[2] | p->dx.pitch[2]; /* or more */
  const int most_bits = device->sm >= 90 ? NORM_FEW_CLUSTER_BITS : 0, streams = p->ds.data ? 3 : 2;
  if (rows == 0 || rows > MOST_ROWS || packs > NORM_FEW_THREADS << most_bits || longest < 0 ||
      longest > INT32_MAX / MOST_ROWS || p->space.inner != rows || !wide_bwd_rows(p) ||
      !has_dtype(p->w, p->w_dtype, p->dtype))
    return false;
  /* Blocks share a row until one has few packs, or a warp's. */
  int cluster_bits = 0, team_bits = WARP_BITS;
  while (cluster_bits < most_bits && packs * rows > BLOCK_PACKS << cluster_bits &&
         packs > 1 << (cluster_bits + WARP_BITS))
    ++cluster_bits;
  while (packs > 1 << (cluster_bits + team_bits)) ++team_bits;
  const int64_t teams = NORM_FEW_THREADS >> team_bits; /* some may have no row: they help to add dw up */
  int64_t clusters = rows <= EACH * teams ? 1 : cuda_ceil_div(rows, teams);
  const bool more = teams >= SHORT_TEAMS && rows > EACH * CLUSTERS * teams;
  const int64_t most_clusters = more ? SHORT_CLUSTERS : CLUSTERS;
  if (clusters > most_clusters) clusters = most_clusters;
  const int64_t each = cuda_ceil_div(rows, teams * clusters);
  const int lines = (int)each * streams + sums * (int)lanes / 4; /* of 16 bytes a thread */
  const int posted = (int)each * sums * (NORM_FEW_THREADS / 32 << cluster_bits) * (int)sizeof(float);
  *shape = (cuda_shape){.blocks = clusters << cluster_bits,
                        .threads = NORM_FEW_THREADS,
                        .shared_bytes = lines * NORM_FEW_THREADS * 16 + posted,
                        .cluster = 1 << cluster_bits};
  *few = (norm_few){.dy = p->dy.data,
                    .x = p->x.data,
                    .w = p->w,
                    .rstd = p->rstd,
                    .dy_pitch = (int)p->dy.pitch[2],
                    .x_pitch = (int)p->x.pitch[2],
                    .cols = (int)p->cols,
                    .rows = (int)rows,
                    .dx = p->dx.data,
                    .dw = p->dw,
                    .db = p->db,
                    .mean = p->mean,
                    .ds = p->ds.data,
                    .dx_pitch = (int)p->dx.pitch[2],
                    .ds_pitch = (int)p->ds.pitch[2],
                    .w_offset = p->w ? p->w_offset : 1,
                    .share = 1 / (float)p->cols,
                    .team_bits = (uint8_t)team_bits,
                    .cluster_bits = (uint8_t)cluster_bits,
                    .clusters = (uint8_t)clusters,
                    .each = (uint8_t)each,
                    .casting = (uint8_t)p->casting,
                    .dw_dtype = (uint8_t)p->dw_dtype,
                    .db_dtype = (uint8_t)p->db_dtype,
                    .accumulate = p->accumulate_dw,
                    .slabs = p->slabs};
  return each <= (more ? SHORT_EACH : EACH) && clusters <= (device->sm >= 90 ? most_slabs : 1) &&
         shape->shared_bytes <= device->desc.onchip_bytes;
}

tigon_status cuda_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, int sums, norm_kernels *kernels) {
  norm_few few;
  cuda_shape shape;
  const int64_t slabs = cuda_norm_slabs(queue, p);
  if (cut_few(cuda_of(queue), p, slabs, sums, &few, &shape)) {
    if (few.clusters > 1) few.ticket = cuda_ticket(queue);
    return cuda_launch(queue, cuda_by_dtype(kernels->bwd_few, p->dtype), shape, CUDA_ARGUMENTS(&few));
  }
  norm_walk walk = {.ranges = slabs};
  const tigon_status status = p->space.rows > 0 ? cuda_norm_bwd_rows(queue, p, &walk, kernels) : TIGON_OK;
  const column_sums all = {.of = {{p->slabs, p->dw, p->dw_dtype}, {p->slabs + p->cols, p->db, p->db_dtype}},
                           .count = p->space.rows > 0 ? walk.ranges : 0,
                           .step = sums * p->cols,
                           .cols = p->cols,
                           .accumulate = p->accumulate_dw};
  return status == TIGON_OK && (p->dw || p->db) ? cuda_column_sums(queue, &all) : status;
}
