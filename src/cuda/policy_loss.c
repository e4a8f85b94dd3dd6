#include "cuda/policy_loss.h"

#include "cuda/kernels.h"

enum {
  COUNTED_EACH = 16,   /* tokens that a thread counts */
  WARPS_THREADS = 256, /* threads where each warp has sequences of its own */
};
_Static_assert((POLICY_SUMS + 1) * POLICY_MOST_BLOCKS * sizeof(double) <= CUDA_SCRATCH_BYTES, "the scratch");

/* `wanted` of them, as far as they may be. */
static int64_t blocks_of(int64_t wanted) {
  return wanted < 1 ? 1 : wanted < POLICY_MOST_BLOCKS ? wanted : POLICY_MOST_BLOCKS;
}

/* How many tokens count, where a mask says it and a token's slope depends on it. */
static tigon_status count(tigon_queue *queue, const tigon_policy_loss_fwd_problem *p, policy_walk *walk) {
  static cuda_kernel kernel = CUDA_KERNEL(policy_loss, policy_count);
  if (!p->mask.of.data || (!p->dentropy && (!tigon_policy_of_tokens(p->kind) || p->denominator))) return TIGON_OK;
  const cuda_shape shape = {.blocks = blocks_of(cuda_ceil_div(p->tokens, POLICY_THREADS * COUNTED_EACH)),
                            .threads = POLICY_THREADS};
  walk->counting = (int)shape.blocks;
  return cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)p, walk));
}

tigon_status tigon_cuda_policy_loss_fwd(tigon_queue *queue, const tigon_policy_loss_fwd_problem *p) {
  static cuda_kernel plain = CUDA_KERNEL(policy_loss, policy_plain_rows),
                     any = CUDA_KERNEL(policy_loss, policy_any_rows);
  const cuda_device *device = cuda_of(queue);
  const int64_t length = p->sequences > 0 ? p->tokens / p->sequences : 0; /* tokens of a sequence, on average */
  policy_walk walk = {.team = cuda_team_for(cuda_ceil_div(length, POLICY_AT_ONCE), POLICY_THREADS),
                      .counts = device->scratch,
                      .sums = (double *)device->scratch + POLICY_MOST_BLOCKS,
                      .ticket = cuda_ticket(queue)};
  const int most = walk.team == POLICY_THREADS && device->sm >= 90 ? CUDA_CLUSTER : 1;
  cuda_shape shape = {.threads = cuda_block_for(walk.team, WARPS_THREADS), .cluster = 1};
  /* Few long sequences are shared by more blocks, until all SMs have work. */
  while (shape.cluster < most && 2 * shape.cluster * p->sequences <= device->desc.cores &&
         length >= (int64_t)2 * shape.cluster * POLICY_THREADS * POLICY_AT_ONCE)
    shape.cluster *= 2;
  shape.blocks = blocks_of(cuda_ceil_div(p->sequences, shape.threads / walk.team)) * shape.cluster;
  if (shape.blocks > POLICY_MOST_BLOCKS) shape.blocks = POLICY_MOST_BLOCKS;
  const tigon_status status = count(queue, p, &walk);
  shape.awaits = walk.counting > 0;
  return status != TIGON_OK
             ? status
             : cuda_launch(queue, policy_is_plain(p) ? &plain : &any, shape, CUDA_ARGUMENTS((void *)p, &walk));
}
