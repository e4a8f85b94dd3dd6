#include "core/labels.h"
#include "cuda/cross_entropy.h"

#include "cuda/kernels.h"

typedef tigon_cross_entropy_problem problem;

static tigon_status launch_total(tigon_queue *queue, cuda_kernel *kernel, void **arguments) {
  const cuda_shape shape = {.blocks = 1, .threads = CE_TOTAL_THREADS};
  return cuda_launch(queue, kernel, shape, arguments);
}

/* The sum of all classes' weights, in the context's scratch memory, where a call asks for it. */
static tigon_status sum_weights(tigon_queue *queue, const problem *p, ce_walk *walk) {
  static cuda_kernel kernel = CUDA_KERNEL(cross_entropy, cross_entropy_weight_sum);
  int64_t classes = tigon_cross_entropy_vocab(p);
  double *to = cuda_of(queue)->scratch;
  if (!p->weight || p->label_smoothing == 0) return TIGON_OK;
  walk->weight_sum = to;
  return launch_total(queue, &kernel, CUDA_ARGUMENTS((void *)&p->weight, &classes, &to));
}

/* Packs of 16 bytes that the columns of a row may lie in. */
static int64_t packs_of(const problem *p) {
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  return cuda_ceil_div(p->cols + (cuda_wide_rows(&p->space, &p->logits, p->dtype) ? 0 : lanes - 1), lanes);
}

static int team_for(int64_t packs) { return cuda_team_for(cuda_ceil_div(packs, CE_GROUP), CE_THREADS); }

static bool is_plain(const problem *p) {
  return p->softcap == 0 && p->inverse_temperature == 1 && p->label_smoothing == 0 && p->entropy_scale == 0;
}

/* Are all packs of a row whole ones, of which an int counts the columns? */
static bool is_whole(const problem *p) {
  return p->cols * (int64_t)tigon_dtype_size(p->dtype) % 16 == 0 && p->cols < INT32_MAX / 2 &&
         cuda_wide_rows(&p->space, &p->logits, p->dtype) && cuda_wide_rows(&p->space, &p->dlogits, p->dtype);
}

/* Shared memory of `threads` that have `packs` each, all but the first group. */
static int whole_bytes(int threads, int packs) {
  return packs > CE_GROUP ? (packs - 1) / CE_GROUP * CE_GROUP * threads * 16 : 0;
}

static tigon_status launch_rows(tigon_queue *queue, cuda_kernel kernels[3], cuda_shape shape, const problem *p,
                                ce_walk *walk) {
  const tigon_status status = sum_weights(queue, p, walk);
  return status != TIGON_OK
             ? status
             : cuda_launch(queue, cuda_by_dtype(kernels, p->dtype), shape, CUDA_ARGUMENTS((void *)p, walk));
}

/* Kernels of rows alone, and of rows with the sums over all of them. */
enum { WHOLE_256, WHOLE_512, WHOLE_1024, HELD_PLAIN, HELD_FULL, WALKED_PLAIN, WALKED_FULL, FORWARDS };
#define ROWS_KERNEL(name) CUDA_KERNELS(cross_entropy, cross_entropy_##name)
#define FORWARD_KERNELS(few)                                                                       \
  {                                                                                                \
    ROWS_KERNEL(few##whole_256), ROWS_KERNEL(few##whole_512), ROWS_KERNEL(few##whole_1024),        \
        ROWS_KERNEL(few##held_plain), ROWS_KERNEL(few##held_full), ROWS_KERNEL(few##walked_plain), \
        ROWS_KERNEL(few##walked_full),                                                             \
  }

static bool has_sums(const problem *p) { return p->parts != TIGON_CROSS_ENTROPY_ROWS; }

static tigon_status forward_rows(tigon_queue *queue, const problem *p) {
  static cuda_kernel kernels[2][FORWARDS][3] = {FORWARD_KERNELS(), FORWARD_KERNELS(few_)};
  const cuda_device *device = cuda_of(queue);
  const bool plain = is_plain(p) && !p->entropy, whole = plain && is_whole(p);
  const int64_t packs = packs_of(p);
  ce_walk walk = {.team = team_for(packs)};
  const int most = walk.team == CE_THREADS && device->sm >= 90 ? CUDA_CLUSTER : 1;
  int widest = whole ? CE_MOST_THREADS : CE_THREADS;
  while (widest > CE_THREADS && whole_bytes(widest, CE_PACKS) > device->desc.onchip_bytes) widest /= 2;
  cuda_shape shape = {.cluster = 1};
  /* Few rows are shared by more blocks, until all SMs have work. */
  while (shape.cluster < most && 2 * shape.cluster * p->space.rows <= device->desc.cores &&
         packs >= 2 * shape.cluster * walk.team * CE_GROUP)
    shape.cluster *= 2;
  /* The loss alone reads a row once, held or not, and is held where a small block does that. */
  const int64_t threads_held = p->dlogits.data ? (int64_t)most * widest : whole ? CE_THREADS : 0;
  const bool held = packs <= threads_held * CE_PACKS;
  while (held && packs > (int64_t)shape.cluster * walk.team * CE_PACKS) {
    if (walk.team < widest)
      walk.team *= 2;
    else
      shape.cluster *= 2;
  }
  shape.threads = cuda_block_for(walk.team, CE_THREADS);
  shape.blocks = cuda_ceil_div(p->space.rows, shape.threads / walk.team) * shape.cluster;
  int form = plain ? WALKED_PLAIN : WALKED_FULL;
  if (held) {
    walk.packs = (int)cuda_ceil_div(packs, (int64_t)shape.cluster * walk.team);
    shape.shared_bytes = whole ? whole_bytes(shape.threads, walk.packs) : walk.packs * CE_THREADS * 16;
    form = plain ? HELD_PLAIN : HELD_FULL;
    if (whole) form = walk.team == 1024 ? WHOLE_1024 : walk.team == 512 ? WHOLE_512 : WHOLE_256;
  }
  if (p->parts & TIGON_CROSS_ENTROPY_REDUCE) {
    walk.ticket = cuda_ticket(queue);
    if (shape.blocks == 0) shape.blocks = shape.cluster;
  }
  return launch_rows(queue, kernels[has_sums(p)][form], shape, p, &walk);
}

static tigon_status backward_rows(tigon_queue *queue, const problem *p) {
  static cuda_kernel kernels[2][2][3] = {{ROWS_KERNEL(bwd_plain), ROWS_KERNEL(bwd_full)},
                                         {ROWS_KERNEL(few_bwd_plain), ROWS_KERNEL(few_bwd_full)}};
  const int64_t packs = packs_of(p);
  ce_walk walk = {.team = team_for(packs)};
  walk.chunks = cuda_ceil_div(packs, (int64_t)walk.team * CE_GROUP * CE_TURNS);
  const int threads = cuda_block_for(walk.team, CE_THREADS);
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->space.rows * walk.chunks, threads / walk.team),
                            .threads = threads};
  return launch_rows(queue, kernels[has_sums(p)][!is_plain(p)], shape, p, &walk);
}

/* COUNT or REDUCE, apart from the rows. */
static tigon_status totals(tigon_queue *queue, const problem *p, int parts) {
  static cuda_kernel kernel = CUDA_KERNEL(cross_entropy, cross_entropy_totals);
  problem all = *p;
  all.parts = parts;
  return parts ? launch_total(queue, &kernel, CUDA_ARGUMENTS(&all)) : TIGON_OK;
}

/* Few rows take one launch. Each block of many would have to wait until its losses are in memory, and say so, before another
 * takes its place (docs/lab/cross_entropy/cuda.md). */
static tigon_status run(tigon_queue *queue, const problem *p,
                        tigon_status (*run_rows)(tigon_queue *queue, const problem *p)) {
  problem rows = *p;
  if (!(p->parts & TIGON_CROSS_ENTROPY_ROWS)) rows.parts = 0;
  if (p->space.rows > CE_FEW_ROWS) rows.parts &= TIGON_CROSS_ENTROPY_ROWS;
  const int apart = p->parts & ~rows.parts, before = p->dlogits.data ? apart & TIGON_CROSS_ENTROPY_COUNT : 0;
  const int after = apart & ~before & (p->loss || p->correct ? ~0 : ~TIGON_CROSS_ENTROPY_REDUCE);
  tigon_status status = totals(queue, p, before);
  if (status == TIGON_OK && rows.parts) status = run_rows(queue, &rows);
  return status == TIGON_OK ? totals(queue, p, after) : status;
}

tigon_status tigon_cuda_cross_entropy_fwd(tigon_queue *queue, const problem *p) { return run(queue, p, forward_rows); }

tigon_status tigon_cuda_cross_entropy_bwd(tigon_queue *queue, const problem *p) {
  return p->cols > 0 ? run(queue, p, backward_rows) : totals(queue, p, p->parts & TIGON_CROSS_ENTROPY_COUNT);
}
