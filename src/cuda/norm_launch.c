#include "cuda/norm_launch.h"

#include "cuda/column_sum.h"

/* Blocks that share a row of a walked kernel: enough for all SMs to have work, if the row is wide enough to share. */
static int cluster_for(const cuda_device *device, int64_t rows, int64_t cols) {
  enum { WORTH = 8192 }; /* the fewest columns per block */
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
                      .shift = plain_rows(&p->shift),
                      .z = plain_rows(&p->z)};
}

/* The bytes of a block whose teams' rows wait in shared memory. A team's rows share a scale. */
static int stash_bytes(int threads) { return threads * NORM_GROUP_ROWS * NORM_GROUP_PACKS * 16; }
static int stash_team(int64_t packs) {
  return cuda_team_for(cuda_ceil_div(packs, NORM_GROUP_PACKS), NORM_MOST_THREADS);
}
static bool stashes(const cuda_device *device, const tigon_norm_fwd_problem *p, int64_t packs) {
  const int threads = cuda_block_for(stash_team(packs), NORM_FWD_THREADS);
  return p->share >= NORM_GROUP_ROWS && packs <= NORM_GROUP_PACKS * NORM_MOST_THREADS &&
         stash_bytes(threads) <= device->desc.onchip_bytes;
}

static const char *const held_as[] = {"held", "stashed", "swept", "shared", "walked", "staged", "few"};

/* Shared memory of a backward block, in bytes. */
static int bwd_bytes(const norm_row *row, const tigon_norm_bwd_problem *p, const norm_walk *walk) {
  if (row->how == NORM_HOW_STAGED)
    return (NORM_STAGED_STAGES * 2 + (p->ds.data ? 1 : 0)) * NORM_STAGED_PACKS * NORM_STAGED_THREADS * 16;
  if (row->how != NORM_HOW_HELD) return 0;
  const int lanes = 16 / (int)tigon_dtype_size(p->dtype), stream_bytes = NORM_BWD_PACKS * NORM_BWD_THREADS * 16;
  const int dw_bytes = p->share > 0 && walk->parts == 0 ? stream_bytes * lanes / 4 : 0; /* f32, for whole groups */
  return NORM_BWD_STAGES * (p->ds.data || p->z.data ? 3 : 2) * stream_bytes + dw_bytes;
}

static bool fits(const norm_row *row, int call, int64_t packs, int64_t cols) {
  return (row->needs & ~call) == 0 && packs > row->over_packs && packs <= row->most_packs && cols > row->over_cols &&
         cols <= row->most_cols;
}

/* The blocks of a cluster that holds a row too wide for one block; 1 if no cluster can. */
static int sharing_cluster(const cuda_device *device, int cluster, int64_t packs) {
  enum { SHARE = 4 * NORM_SHARE_THREADS }; /* the most packs of a block */
  while (device->sm >= 90 && packs > NORM_HELD_MOST && cluster < CUDA_CLUSTER && cluster * SHARE < packs) cluster *= 2;
  return packs <= (int64_t)cluster * SHARE ? cluster : 1;
}

static bool wide_fwd(const tigon_norm_fwd_problem *p, int64_t lanes) {
  return p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->x, p->dtype) &&
         cuda_wide_rows(&p->space, &p->residual, p->dtype) && cuda_wide_rows(&p->space, &p->s, p->dtype) &&
         cuda_wide_rows(&p->space, &p->y, p->dtype) && cuda_wide_rows(&p->space, &p->z, p->dtype) &&
         wide_vector(p->w) && wide_vector(p->b) && cuda_wide_rows(&p->groups, &p->scale, p->scale_dtype) &&
         cuda_wide_rows(&p->groups, &p->shift, p->shift_dtype);
}

static bool plain_fwd(const tigon_norm_fwd_problem *p) {
  return p->space.inner == p->space.rows && p->groups.inner == p->groups.rows &&
         has_dtype(p->w, p->w_dtype, p->dtype) && has_dtype(p->b, p->b_dtype, p->dtype) &&
         has_dtype(p->scale.data, p->scale_dtype, p->dtype) && has_dtype(p->shift.data, p->shift_dtype, p->dtype);
}

/* The properties of a call. `cluster` is the number of blocks that would walk a row. */
static int fwd_call(const cuda_device *device, const tigon_norm_fwd_problem *p, int64_t lanes, int64_t packs,
                    int cluster) {
  const bool wide = wide_fwd(p, lanes);
  int call = NORM_FWD;
  if (wide) call |= NORM_WIDE;
  if (cluster == 1) call |= NORM_ALONE;
  if (wide && cluster == 1 && plain_fwd(p)) call |= NORM_PLAIN;
  if (p->space.rows > 2 * (int64_t)device->desc.cores || packs > 2 * NORM_MOST_THREADS) call |= NORM_MANY;
  if (p->w && p->b && (packs & (packs - 1)) == 0) call |= NORM_WHOLE;
  if (stashes(device, p, packs)) call |= NORM_GROUPS;
  if (wide && sharing_cluster(device, cluster, packs) > 1) call |= NORM_SHARES;
  return call;
}

tigon_status cuda_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p, norm_row *row) {
  enum { WARP = 32 };
  const cuda_device *device = cuda_of(queue);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = cuda_ceil_div(p->cols, lanes);
  int cluster = cluster_for(device, p->space.rows, p->cols);
  const int call = fwd_call(device, p, lanes, packs, cluster);
  while (!fits(row, call, packs, p->cols)) ++row; /* the last entry fits all */
  const bool stashed = row->how == NORM_HOW_STASHED, holds = row->how == NORM_HOW_HELD || stashed;
  const int warps =
      holds && packs > row->each * WARP ? WARP : NORM_FWD_THREADS; /* threads of a block whose warps have a row each */
  const int64_t units = call & NORM_WIDE ? packs : p->cols;
  norm_walk walk = {.team = cuda_team_for(cuda_ceil_div(units, row->each), NORM_MOST_THREADS)};
  if (row->how == NORM_HOW_SHARED) {
    cluster = sharing_cluster(device, cluster, packs);
    walk.team = NORM_SHARE_THREADS;
    walk.share = (int)cuda_ceil_div(packs, cluster);
  } else if (cluster > 1) {
    walk.team = NORM_MOST_THREADS;
  }
  const int threads = cuda_block_for(walk.team, warps);
  const int64_t work = stashed ? p->groups.rows * cuda_ceil_div(p->share, NORM_GROUP_ROWS) : p->space.rows;
  const int64_t blocks = cuda_ceil_div(work, threads / walk.team) * cluster;
  const cuda_shape shape = {.blocks = blocks < INT32_MAX ? blocks : INT32_MAX / cluster * cluster,
                            .threads = threads,
                            .shared_bytes = stashed ? stash_bytes(threads) : 0,
                            .cluster = cluster,
                            .held = held_as[row->how]};
  cuda_kernel *kernel = cuda_by_dtype(row->kernels, p->dtype);
  if (row->takes != NORM_TAKES_PLAIN) return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)p, &walk));
  norm_plain rows = plain_of(device, p, walk.team);
  return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS(&rows));
}

static bool wide_bwd_rows(const tigon_norm_bwd_problem *p) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  return p->cols % lanes == 0 && cuda_wide_rows(&p->space, &p->dy, p->dtype) &&
         cuda_wide_rows(&p->space, &p->x, p->dtype) && cuda_wide_rows(&p->space, &p->ds, p->dtype) &&
         cuda_wide_rows(&p->space, &p->dx, p->dtype) && cuda_wide_rows(&p->space, &p->z, p->dtype) &&
         cuda_wide_rows(&p->space, &p->dz, p->dtype) && wide_vector(p->w);
}

/* Whether rows and pitches fit the 32-bit parameters of the held kernel. */
static bool short_pitches(const tigon_norm_bwd_problem *p) {
  const int64_t longest = p->dy.pitch[2] | p->x.pitch[2] | p->ds.pitch[2] | p->dx.pitch[2]; /* an upper bound */
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

static int bwd_call(const cuda_device *device, const tigon_norm_bwd_problem *p) {
  int call = NORM_BWD;
  if (wide_bwd_rows(p) && cuda_wide_rows(&p->groups, &p->scale, p->scale_dtype) &&
      cuda_wide_rows(&p->groups, &p->dscale, p->dscale_dtype) &&
      cuda_wide_rows(&p->groups, &p->dshift, p->dshift_dtype))
    call |= NORM_WIDE;
  if (p->space.inner == p->space.rows && has_dtype(p->w, p->w_dtype, p->dtype)) call |= NORM_PLAIN;
  if (short_pitches(p)) call |= NORM_SHORT;
  if (device->sm >= 90) call |= NORM_CLUSTERS;
  return call;
}

tigon_status cuda_norm_bwd_rows(tigon_queue *queue, const tigon_norm_bwd_problem *p, norm_walk *walk, norm_row *row) {
  const cuda_device *device = cuda_of(queue);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = cuda_ceil_div(p->cols, lanes);
  const int call = bwd_call(device, p);
  while (!fits(row, call, packs, p->cols) || bwd_bytes(row, p, walk) > device->desc.onchip_bytes)
    ++row; /* the last entry fits all */
  const bool staged = row->how == NORM_HOW_STAGED;
  cuda_shape shape = {.threads = staged ? NORM_STAGED_THREADS : NORM_BWD_THREADS,
                      .shared_bytes = bwd_bytes(row, p, walk),
                      .cluster = 1,
                      .held = held_as[row->how]};
  if (row->how == NORM_HOW_WALKED) {
    walk->team = shape.threads = cuda_team_for(call & NORM_WIDE ? packs : p->cols, NORM_BWD_THREADS);
    shape.cluster = cluster_for(device, walk->ranges, p->cols);
  } else { /* blocks that hold a row, or stage it */
    while (shape.cluster * row->each * shape.threads < packs) shape.cluster *= 2;
    if (staged)
      walk->ranges = cuda_ceil_div(walk->ranges, shape.cluster);
    else
      walk->team = cuda_team_for(cuda_ceil_div(packs, row->each), NORM_BWD_THREADS);
  }
  shape.blocks = walk->ranges * shape.cluster;
  shape.slabs = walk->ranges;
  cuda_kernel *kernel = cuda_by_dtype(row->kernels, p->dtype);
  if (row->takes != NORM_TAKES_HELD) return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)p, walk));
  norm_held rows = held_of(p, walk->team);
  return cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS(&rows));
}

/* Prepares one launch for few plain rows. False: there are more rows, or two launches are as fast (docs/lab/rms_norm/cuda.md). */
static bool cut_few(const cuda_device *device, const tigon_norm_bwd_problem *p, int64_t most_slabs, int sums,
                    norm_few *few, cuda_shape *shape) {
  enum { WARP_BITS = 5, BLOCK_PACKS = 128, EACH = 2, CLUSTERS = 8 };
  enum { SHORT_TEAMS = 8, SHORT_EACH = 3, SHORT_CLUSTERS = 15, MOST_ROWS = 1 << 13 }; /* limits for short rows */
  _Static_assert(SHORT_CLUSTERS < 1 << (NORM_FEW_COUNTS >> NORM_FEW_CLUSTER_BITS), "a rank's count in a ticket");
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype), packs = p->cols / lanes, rows = p->space.rows;
  const int64_t longest = p->dy.pitch[2] | p->x.pitch[2] | p->ds.pitch[2] | p->dx.pitch[2]; /* an upper bound */
  const int most_bits = device->sm >= 90 ? NORM_FEW_CLUSTER_BITS : 0, streams = p->ds.data ? 3 : 2;
  if (rows == 0 || rows > MOST_ROWS || p->z.data || packs > NORM_FEW_THREADS << most_bits || longest < 0 ||
      longest > INT32_MAX / MOST_ROWS || p->space.inner != rows || !wide_bwd_rows(p) ||
      !has_dtype(p->w, p->w_dtype, p->dtype))
    return false;
  /* More blocks share a row until each has few packs, or as many as a warp. */
  int cluster_bits = 0, team_bits = WARP_BITS;
  while (cluster_bits < most_bits && packs * rows > BLOCK_PACKS << cluster_bits &&
         packs > 1 << (cluster_bits + WARP_BITS))
    ++cluster_bits;
  while (packs > 1 << (cluster_bits + team_bits)) ++team_bits;
  const int64_t teams = NORM_FEW_THREADS >> team_bits; /* a team without a row still helps to add up dw */
  int64_t clusters = rows <= EACH * teams ? 1 : cuda_ceil_div(rows, teams);
  const bool more = teams >= SHORT_TEAMS && rows > EACH * CLUSTERS * teams;
  const int64_t most_clusters = more ? SHORT_CLUSTERS : CLUSTERS;
  if (clusters > most_clusters) clusters = most_clusters;
  const int64_t each = cuda_ceil_div(rows, teams * clusters);
  const int lines = (int)each * streams + sums * (int)lanes / 4; /* 16 bytes per thread each */
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

tigon_status cuda_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, int sums, norm_row *rows) {
  norm_few few;
  cuda_shape shape;
  const int64_t slabs = cuda_norm_slabs(queue, p);
  if (cut_few(cuda_of(queue), p, slabs, sums, &few, &shape)) {
    if (few.clusters > 1) few.ticket = cuda_ticket(queue);
    while (rows->takes != NORM_TAKES_FEW) ++rows;
    shape.held = held_as[rows->how];
    return cuda_launch(queue, cuda_by_dtype(rows->kernels, p->dtype), shape, CUDA_ARGUMENTS(&few));
  }
  norm_walk walk = {.ranges = slabs};
  const tigon_status status = p->space.rows > 0 ? cuda_norm_bwd_rows(queue, p, &walk, rows) : TIGON_OK;
  const column_sums all = {
      .of = {{p->slabs, p->dw, p->dw_dtype, p->cols}, {p->slabs + p->cols, p->db, p->db_dtype, p->cols}},
      .count = p->space.rows > 0 ? walk.ranges : 0,
      .step = sums * p->cols,
      .accumulate = p->accumulate_dw};
  return status == TIGON_OK && (p->dw || p->db) ? cuda_column_sums(queue, &all) : status;
}
