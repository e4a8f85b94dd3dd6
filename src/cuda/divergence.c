#include "cuda/divergence.h"

#include <math.h>

#include "core/logit_map.h"
#include "cuda/kernels.h"

typedef tigon_divergence_problem problem;

#define DIV_KERNELS(name) CUDA_KERNELS(divergence, divergence_##name)

static tigon_status launch_total(tigon_queue *queue, cuda_kernel *kernel, void **arguments) {
  const cuda_shape shape = {.blocks = 1, .threads = DIV_TOTAL_THREADS};
  return cuda_launch(queue, kernel, shape, arguments);
}

static div_mixing mixing_of(const problem *p) {
  if (p->kind != TIGON_DIVERGENCE_JSD) return (div_mixing){0};
  const double beta = (double)p->beta, log_beta = log(beta), log_rest = log1p(-beta);
  return (div_mixing){p->beta, (float)(1 - beta), (float)log_beta, (float)log_rest, (float)(log_beta - log_rest)};
}

/* Where all rows of the call count the host knows the mean's denominator. */
static tigon_status count(tigon_queue *queue, const problem *p, div_walk *walk) {
  static cuda_kernel kernel = CUDA_KERNEL(divergence, divergence_count);
  const bool mean = p->reduction == TIGON_REDUCTION_MEAN, all = p->parts == TIGON_DIVERGENCE_ALL;
  walk->inverse = 1;
  if (mean && p->space.rows > 0) walk->inverse = (float)(1 / (double)p->space.rows);
  if (!mean || (all && !p->labels && !p->denominator)) return TIGON_OK;
  walk->inverse = 0;
  return p->parts & TIGON_DIVERGENCE_COUNT ? launch_total(queue, &kernel, CUDA_ARGUMENTS((void *)p)) : TIGON_OK;
}

/* As many launches as the grid's limit wants; `each` blocks or parts of one have `rows` rows. */
static tigon_status launch_rows(tigon_queue *queue, cuda_kernel kernels[3], cuda_shape shape, const problem *p,
                                div_walk walk, int64_t blocks_a_row, int64_t rows_a_block) {
  const int64_t most = INT32_MAX / CUDA_CLUSTER / blocks_a_row * rows_a_block;
  tigon_status status = TIGON_OK;
  for (walk.first_row = 0; walk.first_row < p->space.rows && status == TIGON_OK; walk.first_row += most) {
    const int64_t left = p->space.rows - walk.first_row, rows = left < most ? left : most;
    shape.blocks = cuda_ceil_div(rows, rows_a_block) * blocks_a_row;
    status = cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
  }
  return status;
}

/* Columns that one load takes. */
static int64_t lanes_of(const problem *p) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = p->cols % lanes == 0 && p->target_cols % lanes == 0 &&
                    cuda_wide_rows(&p->space, &p->input, p->dtype) && cuda_wide_rows(&p->space, &p->target, p->dtype) &&
                    cuda_wide_rows(&p->space, &p->dinput, p->dtype);
  return wide ? lanes : 1;
}

static bool is_capped(const problem *p) { return p->input_map.cap > 0 || p->target_map.cap > 0; }

/* Are both sides logits of the same columns, and is the gradient of the divergence alone? */
static bool is_plain(const problem *p, int64_t lanes) {
  return lanes > 1 && p->kind < TIGON_DIVERGENCE_COSINE && p->input_is == TIGON_DISTRIBUTION_LOGITS &&
         p->target_is == TIGON_DISTRIBUTION_LOGITS && p->hard == 0 && p->target_cols == p->cols && !is_capped(p);
}

/* What a side's logits are multiplied by, for logarithms to base 2. */
static float scale_of(const problem *p, const tigon_logit_map *map) {
  return p->inverse_temperature * tigon_logit_scale(map) * 1.4426950408889634f;
}

/* Long plain rows; `found` says whether they are. */
static tigon_status stream_rows(tigon_queue *queue, const problem *p, int64_t lanes, div_walk walk, bool *found) {
  static cuda_kernel kernels[][3] = {CUDA_KERNELS(divergence_stream_kl, divergence_stream_kl),
                                     CUDA_KERNELS(divergence_stream_kl, divergence_stream_reverse_kl),
                                     CUDA_KERNELS(divergence_stream, divergence_stream_jsd),
                                     CUDA_KERNELS(divergence_stream, divergence_stream_tvd)};
  const cuda_device *device = cuda_of(queue);
  const int64_t items = cuda_ceil_div(p->cols, lanes), most = DIV_STREAM_ELEMENTS / lanes;
  const bool kl = p->kind == TIGON_DIVERGENCE_KL || p->kind == TIGON_DIVERGENCE_REVERSE_KL;
  const int warps = (kl ? DIV_KL_WARPS : DIV_HELD_WARPS) + 2;
  cuda_shape shape = {.threads = 32 * warps, .cluster = 1, .held = "shared"};
  *found = device->sm >= 90 && is_plain(p, lanes) && p->space.rows > 0 && p->space.rows <= INT32_MAX / 2 &&
           items > 2 * DIV_STREAM_THREADS && items <= CUDA_CLUSTER * DIV_STREAM_THREADS * most;
  if (!*found) return TIGON_OK;
  while (items > shape.cluster * DIV_STREAM_THREADS * most) shape.cluster *= 2;
  walk.slice = (int)cuda_ceil_div(items, shape.cluster);
  const int64_t bytes = (int64_t)2 * 16 * walk.slice, room = device->desc.onchip_bytes - DIV_STREAM_SPACE;
  /* SMs come in groups. So the last of as many clusters as SMs allow does not always fit at the same time as the others. */
  const int64_t fit = (int64_t)device->desc.cores / shape.cluster - 1;
  *found = bytes <= room;
  if (!*found) return TIGON_OK;
  walk.buffers = (int)(room / bytes < DIV_STREAM_BUFFERS ? room / bytes : DIV_STREAM_BUFFERS);
  walk.by[0] = scale_of(p, &p->input_map), walk.by[1] = scale_of(p, &p->target_map);
  walk.rows = cuda_ceil_div(p->space.rows, DIV_STREAM_TURNS * (fit > 0 ? fit : 1));
  shape.shared_bytes = (int)(walk.buffers * bytes);
  shape.blocks = cuda_ceil_div(p->space.rows, walk.rows) * shape.cluster;
  return cuda_launch(queue, cuda_by_dtype(kernels[p->kind], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

static tigon_status forward_rows(tigon_queue *queue, const problem *p, int64_t lanes, div_walk walk) {
  static cuda_kernel held[3] = DIV_KERNELS(held), walked[3] = DIV_KERNELS(walked), any[3] = DIV_KERNELS(any);
  static cuda_kernel cap_walked[3] = DIV_KERNELS(cap_walked), cap_any[3] = DIV_KERNELS(cap_any);
  const bool capped = is_capped(p);
  const cuda_device *device = cuda_of(queue);
  const int64_t items = cuda_ceil_div(p->cols, lanes);
  const int most = device->sm >= 90 ? CUDA_CLUSTER : 1;
  cuda_shape shape = {.cluster = 1, .held = "walked"};
  walk.team = cuda_team_for(cuda_ceil_div(items, DIV_PACKS / 2), DIV_MOST_THREADS);
  /* A block of a cluster has half of what it could hold, so that another one shares its SM. */
  while (shape.cluster < most && items > (int64_t)shape.cluster * walk.team * (DIV_PACKS / 2)) shape.cluster *= 2;
  shape.threads = cuda_block_for(walk.team, DIV_THREADS);
  walk.packs = (int)cuda_ceil_div(items, (int64_t)shape.cluster * walk.team);
  const int64_t bytes = (int64_t)2 * 16 * walk.packs * shape.threads;
  const bool holds = !capped && lanes > 1 && walk.packs <= DIV_PACKS && bytes <= device->desc.onchip_bytes;
  if (holds) shape.shared_bytes = (int)bytes, shape.held = shape.cluster > 1 ? "shared" : "held";
  cuda_kernel *wide = capped ? cap_walked : walked, *narrow = capped ? cap_any : any;
  return launch_rows(queue,
                     holds       ? held
                     : lanes > 1 ? wide
                                 : narrow,
                     shape, p, walk, shape.cluster, shape.threads / walk.team);
}

tigon_status tigon_cuda_divergence_fwd(tigon_queue *queue, const problem *p) {
  static cuda_kernel loss = CUDA_KERNEL(divergence, divergence_loss);
  div_walk walk = {.chunks = 1, .mixing = mixing_of(p)};
  const bool sums = p->loss && p->parts & TIGON_DIVERGENCE_REDUCE;
  tigon_status status = count(queue, p, &walk);
  if (status == TIGON_OK && p->parts & TIGON_DIVERGENCE_ROWS) {
    const int64_t lanes = lanes_of(p);
    bool streamed;
    status = stream_rows(queue, p, lanes, walk, &streamed);
    if (!streamed) status = forward_rows(queue, p, lanes, walk);
  }
  return status == TIGON_OK && sums ? launch_total(queue, &loss, CUDA_ARGUMENTS((void *)p, &walk)) : status;
}

tigon_status tigon_cuda_divergence_bwd(tigon_queue *queue, const problem *p) {
  static cuda_kernel packs[3] = DIV_KERNELS(bwd), any[3] = DIV_KERNELS(bwd_any);
  static cuda_kernel plain[][3] = {DIV_KERNELS(bwd_kl), DIV_KERNELS(bwd_reverse_kl), DIV_KERNELS(bwd_jsd),
                                   DIV_KERNELS(bwd_tvd)};
  static cuda_kernel cap_packs[3] = DIV_KERNELS(cap_bwd), cap_any[3] = DIV_KERNELS(cap_bwd_any);
  const bool capped = is_capped(p);
  div_walk walk = {.chunks = 1, .mixing = mixing_of(p)};
  const tigon_status status = count(queue, p, &walk);
  const int64_t lanes = lanes_of(p), items = cuda_ceil_div(p->cols, lanes);
  walk.team = cuda_team_for(cuda_ceil_div(items, DIV_TURNS), DIV_THREADS);
  walk.chunks = cuda_ceil_div(items, (int64_t)walk.team * DIV_TURNS);
  const cuda_shape shape = {.threads = cuda_block_for(walk.team, DIV_THREADS)};
  cuda_kernel *wide = capped               ? cap_packs
                      : is_plain(p, lanes) ? plain[p->kind]
                                           : packs,
              *narrow = capped ? cap_any : any;
  return status != TIGON_OK || !(p->parts & TIGON_DIVERGENCE_ROWS)
             ? status
             : launch_rows(queue, lanes > 1 ? wide : narrow, shape, p, walk, walk.chunks, shape.threads / walk.team);
}
