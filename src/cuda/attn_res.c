#include "cuda/attn_res.h"

#include "cuda/column_sum.h"
#include "cuda/kernels.h"

typedef tigon_attn_res_problem problem;

enum {
  WORDS_BYTES = 32 << 10, /* shared memory that numbers may take */
  SUMS_BYTES = 64 << 10,  /* that u may */
  BLOCKS = 4,             /* blocks of threads that an SM has in backward, at most */
};

/* ---- addresses ---- */

static int64_t table_bytes(const problem *p, const tigon_blocks *b) {
  return b->at && p->blocks > ATTN_RES_LISTED ? tigon_pad(p->blocks * (int64_t)sizeof(void *)) : 0;
}

/* Fills in where the blocks of a list begin: in the launch's parameters, or in a table that earlier launches write. */
static tigon_status find_places(tigon_queue *queue, const problem *p, const tigon_blocks *b, void *table,
                                attn_res_places *places) {
  static cuda_kernel kernel = CUDA_KERNEL(attn_res, attn_res_table);
  tigon_status status = TIGON_OK;
  places->table = NULL;
  if (!b->at) return TIGON_OK;
  for (int64_t i = 0; i < p->blocks && p->blocks <= ATTN_RES_LISTED; ++i) places->here[i] = b->at[i];
  if (p->blocks <= ATTN_RES_LISTED) return TIGON_OK;
  places->table = table;
  for (int64_t i = 0; i < p->blocks && status == TIGON_OK; i += ATTN_RES_WRITTEN) {
    attn_res_addresses a = {.to = (const void **)table + i, .count = p->blocks - i};
    if (a.count > ATTN_RES_WRITTEN) a.count = ATTN_RES_WRITTEN;
    for (int64_t k = 0; k < a.count; ++k) a.address[k] = b->at[i + k];
    status = cuda_launch(queue, &kernel, (cuda_shape){.blocks = 1, .threads = ATTN_RES_WRITTEN}, CUDA_ARGUMENTS(&a));
  }
  return status;
}

/* ---- cuts ---- */

static bool wide_blocks(const problem *p, const tigon_blocks *b) {
  bool wide = b->at || b->step * (int64_t)tigon_dtype_size(p->dtype) % 16 == 0;
  for (int64_t i = 0; b->at && i < p->blocks; ++i) wide = wide && cuda_wide(b->at[i]);
  tigon_rows rows = b->rows;
  if (b->at) rows.data = (void *)16; /* an aligned address, since the first block's is another one */
  return wide && cuda_wide_rows(&p->space, &rows, p->dtype);
}

static int lanes_of(const problem *p, bool backward) {
  const int lanes = 16 / (int)tigon_dtype_size(p->dtype);
  const bool wide = p->cols % lanes == 0 && wide_blocks(p, &p->v) && (!backward || wide_blocks(p, &p->dv)) &&
                    cuda_wide_rows(&p->space, &p->h, p->dtype) && cuda_wide(p->q.data) && cuda_wide(p->wn.data);
  return wide ? lanes : 1;
}

static bool wants_sums(const problem *p) { return p->dq.dtype || p->dwn.dtype; }

/* Where numbers of a token's blocks lie does not depend on addresses, because the workspace does not. */
static bool words_are_shared(const problem *p) {
  return p->blocks <= WORDS_BYTES / (int64_t)sizeof(float) / (2 * ATTN_RES_THREADS / 32 + ATTN_RES_WORDS);
}

/* Blocks of threads at most, each of which may have numbers and a slab in the workspace. */
static int64_t most_blocks(const tigon_queue *queue, const problem *p) {
  const int64_t most = cuda_of(queue)->desc.cores * BLOCKS;
  return p->space.rows < most ? p->space.rows : most;
}

static int64_t words_bytes(const tigon_queue *queue, const problem *p) {
  return words_are_shared(p) ? 0
                             : tigon_slab_bytes(most_blocks(queue, p), 1, attn_res_words(p->blocks, ATTN_RES_THREADS));
}

/* A ring of tokens for few blocks, if at least two fit beside each other; else no threads. */
static cuda_shape find_ring(const tigon_queue *queue, const problem *p, bool backward, int lanes, attn_res_cut *cut) {
  const tigon_device *device = &cuda_of(queue)->desc;
  const int64_t units = cuda_ceil_div(p->cols, lanes), rows = p->blocks + backward;
  cut->units = 0, cut->stages = 0;
  if (lanes == 1 || units == 0 || p->blocks == 0 || p->blocks > ATTN_RES_FEW || units > 2 * ATTN_RES_THREADS)
    return (cuda_shape){0};
  const int each = units > ATTN_RES_THREADS ? 2 : 1, threads = (int)cuda_ceil_div(cuda_ceil_div(units, each), 32) * 32;
  const int words = 2 * (threads / 32) * 2 * ATTN_RES_FEW * (int)sizeof(float);
  cut->units = (int64_t)threads * each;
  const int64_t stage = 16 * rows * cut->units, room = (device->onchip_bytes - words) / stage;
  if (room < 2) return (cuda_shape){0};
  cut->stages = room < ATTN_RES_STAGES ? (int)room : ATTN_RES_STAGES;
  const int64_t bytes = cut->stages * stage + words, by_bytes = device->onchip_bytes / (bytes + 1024);
  const int64_t by_threads = ATTN_RES_THREADS / threads, fit = by_bytes < by_threads ? by_bytes : by_threads;
  const int64_t most = device->cores * (fit < 1 ? 1 : fit < BLOCKS ? fit : BLOCKS);
  const int64_t blocks = p->space.rows < most ? p->space.rows : most;
  return (cuda_shape){.blocks = blocks,
                      .threads = threads,
                      .shared_bytes = (int)bytes,
                      .held = "staged",
                      .slabs = cut->slabs ? blocks : 0};
}

/* As many blocks as have room at once, where each goes on with what it has summed. */
static cuda_shape find_cut(const tigon_queue *queue, const problem *p, bool backward, int lanes, attn_res_cut *cut) {
  const tigon_device *device = &cuda_of(queue)->desc;
  const int64_t units = cuda_ceil_div(p->cols, lanes), sums = 4 * units * lanes, rows = p->blocks + backward;
  const int threads = cuda_team_for(cuda_ceil_div(units, ATTN_RES_PACKS), ATTN_RES_THREADS);
  int64_t bytes = cut->words ? 0 : attn_res_words(p->blocks, threads) * (int64_t)sizeof(float);
  cut->sums_held = cut->slabs && sums <= SUMS_BYTES;
  if (cut->sums_held) bytes += sums;
  const int64_t room = (device->onchip_bytes - bytes) / 16;
  const bool held = lanes > 1 && units > 0 && rows > 0 && rows <= room / units;
  cut->units = held || cut->sums_held ? units : 0;
  cut->held_rows = held ? rows : 0;
  if (held) bytes += 16 * rows * units;
  const int64_t each = device->onchip_bytes / (bytes + 1024), fit = each < 1 ? 1 : each < BLOCKS ? each : BLOCKS;
  const int64_t most = backward ? device->cores * fit : cut->words ? most_blocks(queue, p) : INT32_MAX;
  const int64_t blocks = p->space.rows < most ? p->space.rows : most;
  return (cuda_shape){.blocks = blocks,
                      .threads = threads,
                      .shared_bytes = (int)bytes,
                      .held = held ? "shared" : "walked",
                      .slabs = cut->slabs ? blocks : 0};
}

static tigon_status launch(tigon_queue *queue, const problem *p, bool backward, attn_res_cut *cut, int64_t *blocks) {
  static cuda_kernel kernels[2][2][3] = {
      {CUDA_KERNELS(attn_res, attn_res_fwd_walked), CUDA_KERNELS(attn_res, attn_res_fwd_held)},
      {CUDA_KERNELS(attn_res, attn_res_bwd_walked), CUDA_KERNELS(attn_res, attn_res_bwd_held)}};
  static cuda_kernel rings[2][2][3] = {
      {CUDA_KERNELS(attn_res_ring, attn_res_fwd_ring_1), CUDA_KERNELS(attn_res_ring, attn_res_fwd_ring_2)},
      {CUDA_KERNELS(attn_res_ring, attn_res_bwd_ring_1), CUDA_KERNELS(attn_res_ring, attn_res_bwd_ring_2)}};
  _Static_assert(sizeof(problem) + sizeof *cut + sizeof(int) <= 4096, "a launch's parameters");
  _Static_assert(sizeof(attn_res_addresses) <= 4096, "a launch's parameters");
  char *v_table = p->workspace, *dv_table = v_table + table_bytes(p, &p->v);
  char *words = dv_table + table_bytes(p, &p->dv), *slabs = words + words_bytes(queue, p);
  cut->words = words_are_shared(p) ? NULL : (float *)(void *)words;
  cut->slabs = backward && wants_sums(p) ? (float *)(void *)slabs : NULL;
  int lanes = lanes_of(p, backward); /* which a ring is not told */
  cuda_shape shape = find_ring(queue, p, backward, lanes, cut);
  const bool ring = shape.threads > 0;
  cuda_kernel *kernel = rings[backward][cut->units > shape.threads];
  if (!ring) shape = find_cut(queue, p, backward, lanes, cut), kernel = kernels[backward][cut->held_rows > 0];
  *blocks = shape.blocks;
  if (*blocks == 0) return TIGON_OK;
  tigon_status status = find_places(queue, p, &p->v, v_table, &cut->v);
  if (status == TIGON_OK) status = find_places(queue, p, &p->dv, dv_table, &cut->dv);
  if (status != TIGON_OK) return status;
  return cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p, cut, &lanes));
}

/* ---- slots ---- */

int64_t tigon_cuda_attn_res_fwd_bytes(tigon_queue *queue, const problem *p) {
  return table_bytes(p, &p->v) + words_bytes(queue, p);
}

tigon_status tigon_cuda_attn_res_fwd(tigon_queue *queue, const problem *p) {
  attn_res_cut cut;
  int64_t blocks;
  return launch(queue, p, false, &cut, &blocks);
}

int64_t tigon_cuda_attn_res_bwd_bytes(tigon_queue *queue, const problem *p) {
  const int64_t slabs = wants_sums(p) ? tigon_slab_bytes(most_blocks(queue, p), 1, p->cols) : 0;
  return table_bytes(p, &p->v) + table_bytes(p, &p->dv) + words_bytes(queue, p) + slabs;
}

tigon_status tigon_cuda_attn_res_bwd(tigon_queue *queue, const problem *p) {
  static cuda_kernel sums = CUDA_KERNEL(attn_res, attn_res_sums);
  attn_res_cut cut;
  int64_t blocks;
  const tigon_status status = launch(queue, p, true, &cut, &blocks);
  if (status != TIGON_OK || !wants_sums(p)) return status;
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->cols, COLUMN_SUM_COLUMNS),
                            .threads = COLUMN_SUM_COLUMNS * COLUMN_SUM_PARTS,
                            .awaits = true};
  return cuda_launch(queue, &sums, shape, CUDA_ARGUMENTS((void *)p, &cut.slabs, &blocks));
}
