#include "cuda/softmax.h"

#include "cuda/map.h"
#include "cuda/kernels.h"

/* By what a thread has of a row: 1, 2 or 4 packs, 8 or 16 elements one by one, or, past what a cluster's registers hold, all of
 * what it walks over. */
typedef struct kernels {
  cuda_kernel packs_1[3], packs_2[3], packs_4[3], any_8[3], any_16[3], walk[3], any[3];
} kernels;
#define KERNELS(entry)                                                                                                \
  {                                                                                                                   \
    .packs_1 = CUDA_KERNELS(softmax, softmax_##entry##_1), .packs_2 = CUDA_KERNELS(softmax, softmax_##entry##_2),     \
    .packs_4 = CUDA_KERNELS(softmax, softmax_##entry##_4), .any_8 = CUDA_KERNELS(softmax, softmax_##entry##_any_8),   \
    .any_16 = CUDA_KERNELS(softmax, softmax_##entry##_any_16), .walk = CUDA_KERNELS(softmax, softmax_##entry##_walk), \
    .any = CUDA_KERNELS(softmax, softmax_##entry##_any),                                                              \
  }

/* Threads of a row: those of a team, of each block of a cluster. They depend on the width alone, so that a row has the same bits in
 * any batch. */
typedef struct cut {
  cuda_kernel *kernel;
  int team, cluster, bytes; /* of shared memory, a block */
  const char *held;         /* docs/glossary.md */
} cut;

static int packed_bytes(int threads) { return (SOFTMAX_PACKS - SOFTMAX_OWN) * threads * 16; }

/* `wider` takes rows that few blocks of 4 packs a thread share an SM with, or a cluster: packed, an SM has room for 256 KiB
 * of them, of which some are loaded while others wait for their sums; or walked, where two blocks share an SM. */
static cut cut_row(const cuda_device *device, kernels *k, cuda_kernel *wider, int64_t cols, int64_t lanes) {
  const bool wide = lanes > 1, clusters = device->sm >= 90;
  const int64_t items = cuda_ceil_div(cols, lanes);
  const int each = !wide ? (items <= 8 * 32 ? 8 : 16) : items <= 32 ? 1 : items <= 2 * 32 ? 2 : 4;
  const int64_t wanted = cuda_ceil_div(items, each);
  cut c = {.team = cuda_team_for(wanted, SOFTMAX_MOST_THREADS), .cluster = 1};
  c.kernel = each == 1   ? k->packs_1
             : each == 2 ? k->packs_2
             : each == 4 ? k->packs_4
             : each == 8 ? k->any_8
                         : k->any_16;
  if (wider == k->walk && wide && wanted > SOFTMAX_WIDE_THREADS && wanted <= SOFTMAX_MOST_THREADS)
    return (cut){.kernel = wider, .team = SOFTMAX_WIDE_THREADS, .cluster = 1, .held = "walked"};
  if (wider && wider != k->walk && wide && wanted > SOFTMAX_THREADS) {
    const int team = cuda_team_for(cuda_ceil_div(items, SOFTMAX_PACKS), SOFTMAX_MOST_THREADS);
    const int bytes = packed_bytes(team);
    if (items <= team * SOFTMAX_PACKS && bytes <= device->desc.onchip_bytes)
      return (cut){.kernel = wider, .team = team, .cluster = 1, .bytes = bytes, .held = "packed"};
  }
  if (clusters && c.team < wanted) {
    c.team = SOFTMAX_THREADS;
    while (c.team * c.cluster < wanted && c.cluster < CUDA_CLUSTER) c.cluster *= 2;
    while (c.team * c.cluster < wanted && c.team < SOFTMAX_MOST_THREADS) c.team *= 2;
  }
  c.held = c.cluster > 1 ? "shared" : "held";
  if (c.team * c.cluster >= wanted) return c;
  return (cut){.kernel = wide ? k->walk : k->any,
               .team = SOFTMAX_WIDE_THREADS,
               .cluster = clusters ? CUDA_CLUSTER : 1,
               .held = "walked"};
}

/* As many launches as the grid's limit wants. */
static tigon_status launch(tigon_queue *queue, const cut *c, tigon_dtype dtype, int64_t rows, const void *problem) {
  const int threads = cuda_block_for(c->team, SOFTMAX_THREADS);
  const int64_t teams = threads / c->team, most = INT32_MAX / CUDA_CLUSTER * teams;
  tigon_status status = TIGON_OK;
  for (int64_t first = 0; first < rows && status == TIGON_OK; first += most) {
    const int64_t count = rows - first < most ? rows - first : most;
    const cuda_shape shape = {.blocks = cuda_ceil_div(count, teams) * c->cluster,
                              .threads = threads,
                              .cluster = c->cluster,
                              .shared_bytes = c->bytes,
                              .held = c->held};
    status = cuda_launch(queue, cuda_by_dtype(c->kernel, dtype), shape,
                         CUDA_ARGUMENTS((void *)problem, (void *)&c->team, &first));
  }
  return status;
}

tigon_status tigon_cuda_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  static kernels plain = KERNELS(fwd), masked = KERNELS(fwd_mask);
  static cuda_kernel plain_packed[3] = CUDA_KERNELS(softmax, softmax_fwd_packed);
  static cuda_kernel masked_packed[3] = CUDA_KERNELS(softmax, softmax_fwd_mask_packed);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = p->cols % lanes == 0 && map_wide(&p->space, &p->x, p->dtype) &&
                    map_wide(&p->space, &p->y, p->dtype) && map_wide(&p->space, &p->mask, p->mask_dtype);
  kernels *all = p->mask.data ? &masked : &plain;
  cuda_kernel *wider = p->causal ? all->walk : p->mask.data ? masked_packed : plain_packed;
  const cut c = cut_row(cuda_of(queue), all, wider, p->cols, wide ? lanes : 1);
  return launch(queue, &c, p->dtype, p->space.rows, p);
}

tigon_status tigon_cuda_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  static kernels all = KERNELS(bwd);
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool wide = p->cols % lanes == 0 && map_wide(&p->space, &p->dy, p->dtype) &&
                    map_wide(&p->space, &p->y, p->dtype) && map_wide(&p->space, &p->dx, p->dtype);
  const cut c = cut_row(cuda_of(queue), &all, NULL, p->cols, wide ? lanes : 1);
  return launch(queue, &c, p->dtype, p->space.rows, p);
}
