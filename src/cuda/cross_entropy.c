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

static tigon_status forward_rows(tigon_queue *queue, const problem *p) {
  static cuda_kernel held_plain[3] = CUDA_KERNELS(cross_entropy, cross_entropy_held_plain);
  static cuda_kernel held_full[3] = CUDA_KERNELS(cross_entropy, cross_entropy_held_full);
  static cuda_kernel walked_plain[3] = CUDA_KERNELS(cross_entropy, cross_entropy_walked_plain);
  static cuda_kernel walked_full[3] = CUDA_KERNELS(cross_entropy, cross_entropy_walked_full);
  const cuda_device *device = cuda_of(queue);
  const bool plain = p->softcap == 0 && p->inverse_temperature == 1 && p->label_smoothing == 0 && !p->entropy;
  const int64_t packs = packs_of(p);
  ce_walk walk = {.team = team_for(packs)};
  const int most = walk.team == CE_THREADS && device->sm >= 90 ? CUDA_CLUSTER : 1;
  cuda_shape shape = {.threads = cuda_block_for(walk.team, CE_THREADS), .cluster = 1};
  bool held = p->dlogits.data;
  while (held && shape.cluster < most && packs > (int64_t)shape.cluster * walk.team * CE_PACKS) shape.cluster *= 2;
  if (packs > (int64_t)shape.cluster * walk.team * CE_PACKS) held = false, shape.cluster = 1;
  /* Few rows are shared by more blocks, until all SMs have work. */
  while (shape.cluster < most && 2 * shape.cluster * p->space.rows <= device->desc.cores &&
         packs >= 2 * shape.cluster * walk.team * CE_GROUP)
    shape.cluster *= 2;
  if (held) {
    walk.packs = (int)cuda_ceil_div(packs, (int64_t)shape.cluster * walk.team);
    shape.shared_bytes = walk.packs * CE_THREADS * 16;
  }
  shape.blocks = cuda_ceil_div(p->space.rows, shape.threads / walk.team) * shape.cluster;
  const tigon_status status = sum_weights(queue, p, &walk);
  cuda_kernel *kernel = held ? plain ? held_plain : held_full : plain ? walked_plain : walked_full;
  return status != TIGON_OK
             ? status
             : cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

static tigon_status backward_rows(tigon_queue *queue, const problem *p) {
  static cuda_kernel bwd_plain[3] = CUDA_KERNELS(cross_entropy, cross_entropy_bwd_plain);
  static cuda_kernel bwd_full[3] = CUDA_KERNELS(cross_entropy, cross_entropy_bwd_full);
  const bool plain = p->softcap == 0 && p->inverse_temperature == 1 && p->label_smoothing == 0;
  const int64_t packs = packs_of(p);
  ce_walk walk = {.team = team_for(packs)};
  walk.chunks = cuda_ceil_div(packs, (int64_t)walk.team * CE_GROUP * CE_TURNS);
  const int threads = cuda_block_for(walk.team, CE_THREADS);
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->space.rows * walk.chunks, threads / walk.team),
                            .threads = threads};
  const tigon_status status = sum_weights(queue, p, &walk);
  return status != TIGON_OK ? status
                            : cuda_launch(queue, cuda_by_dtype(plain ? bwd_plain : bwd_full, p->dtype), shape,
                                          CUDA_ARGUMENTS((void *)p, &walk));
}

static tigon_status count(tigon_queue *queue, const problem *p) {
  static cuda_kernel kernel = CUDA_KERNEL(cross_entropy, cross_entropy_count);
  return launch_total(queue, &kernel, CUDA_ARGUMENTS((void *)p));
}

static tigon_status reduce(tigon_queue *queue, const problem *p) {
  static cuda_kernel kernel = CUDA_KERNEL(cross_entropy, cross_entropy_reduce);
  return p->loss || p->correct ? launch_total(queue, &kernel, CUDA_ARGUMENTS((void *)p)) : TIGON_OK;
}

tigon_status tigon_cuda_cross_entropy_fwd(tigon_queue *queue, const problem *p, const tigon_plan *plan) {
  (void)plan;
  tigon_status status = TIGON_OK;
  if (p->parts & TIGON_CROSS_ENTROPY_COUNT) status = count(queue, p);
  if (status == TIGON_OK && (p->parts & TIGON_CROSS_ENTROPY_ROWS)) status = forward_rows(queue, p);
  if (status == TIGON_OK && (p->parts & TIGON_CROSS_ENTROPY_REDUCE)) status = reduce(queue, p);
  return status;
}

tigon_status tigon_cuda_cross_entropy_bwd(tigon_queue *queue, const problem *p, const tigon_plan *plan) {
  (void)plan;
  tigon_status status = TIGON_OK;
  if (p->parts & TIGON_CROSS_ENTROPY_COUNT) status = count(queue, p);
  if (status == TIGON_OK && (p->parts & TIGON_CROSS_ENTROPY_ROWS) && p->cols > 0) status = backward_rows(queue, p);
  return status;
}
