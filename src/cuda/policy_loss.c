#include "cuda/policy_loss.h"

#include "cuda/kernels.h"

enum {
  COUNTED_EACH = 16,    /* tokens that a thread counts */
  FILLED_THREADS = 256, /* a block's at most, where sequences fill the GPU */
  WARPS_THREADS = 256,  /* threads where each warp has sequences of its own */
};
_Static_assert((POLICY_SUMS + 1) * POLICY_MOST_BLOCKS * sizeof(double) <= CUDA_SCRATCH_BYTES, "the scratch");

/* Must the tokens be counted first, because a slope depends on how many there are? */
static bool counts(const tigon_policy_loss_fwd_problem *p) {
  return p->mask.of.data && (p->dentropy || (tigon_policy_of_tokens(p->kind) && !p->denominator));
}

tigon_status tigon_cuda_policy_loss_fwd(tigon_queue *queue, const tigon_policy_loss_fwd_problem *p) {
  static cuda_kernel plain = CUDA_KERNEL(policy_loss, policy_plain_rows),
                     any = CUDA_KERNEL(policy_loss, policy_any_rows);
  const cuda_device *device = cuda_of(queue);
  const int64_t length = p->sequences > 0 ? p->tokens / p->sequences : 0; /* tokens of a sequence, on average */
  /* Where sequences fill the GPU, a long one has fewer threads, so that fewer warps do what is done once a sequence. */
  const bool fill = p->sequences >= (int64_t)POLICY_SM_BLOCKS * device->desc.cores;
  const int most_threads = fill ? FILLED_THREADS : POLICY_THREADS;
  policy_walk walk = {.team = cuda_team_for(cuda_ceil_div(length, POLICY_AT_ONCE), most_threads),
                      .sums = (double *)device->scratch + POLICY_MOST_BLOCKS,
                      .ticket = cuda_ticket(queue)};
  const int most = walk.team == POLICY_THREADS && device->sm >= 90 ? CUDA_CLUSTER : 1;
  cuda_shape shape = {.threads = cuda_block_for(walk.team, WARPS_THREADS), .cluster = 1};
  /* Few long sequences are shared by more blocks, until all SMs have work. */
  while (shape.cluster < most && 2 * shape.cluster * p->sequences <= device->desc.cores &&
         length >= (int64_t)2 * shape.cluster * POLICY_THREADS * POLICY_AT_ONCE)
    shape.cluster *= 2;
  int64_t wanted = cuda_ceil_div(p->sequences, shape.threads / walk.team), most_blocks = POLICY_MOST_BLOCKS;
  if (counts(p)) {
    const int64_t at_once = (int64_t)POLICY_SM_BLOCKS * device->desc.cores,
                  counting = cuda_ceil_div(p->tokens, (int64_t)shape.threads * shape.cluster * COUNTED_EACH);
    walk.counts = device->scratch;
    walk.arrived = cuda_ticket(queue);
    shape.cooperates = true;
    if (wanted < counting) wanted = counting;
    if (most_blocks > at_once) most_blocks = at_once;
  }
  if (wanted > most_blocks / shape.cluster) wanted = most_blocks / shape.cluster;
  shape.blocks = (wanted > 0 ? wanted : 1) * shape.cluster;
  return cuda_launch(queue, policy_is_plain(p) ? &plain : &any, shape, CUDA_ARGUMENTS((void *)p, &walk));
}
