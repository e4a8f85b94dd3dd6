#include "cuda/policy_loss.h"

#include "cuda/kernels.h"

/* Tokens of a sequence, on average, that are worth several warps: one would walk over them 32 times and more. */
enum { LONG = 32 * 32 };
/* Tokens of a thread that are worth more blocks: these wait for each other twice. */
enum { ALONE = 4 };

tigon_status tigon_cuda_policy_loss_fwd(tigon_queue *queue, const tigon_policy_loss_fwd_problem *p) {
  static cuda_kernel many = CUDA_KERNEL(policy_loss, policy_loss_many), few = CUDA_KERNEL(policy_loss, policy_loss_few),
                     some = CUDA_KERNEL(policy_loss, policy_loss_some);
  const bool is_long = p->sequences > 0 && p->tokens / p->sequences >= LONG;
  const bool alone = cuda_of(queue)->sm < 90 || p->tokens <= ALONE * POLICY_THREADS;
  const int cluster = alone ? 1 : POLICY_MOST_BLOCKS;
  const cuda_shape shape = {.blocks = cluster, .threads = POLICY_THREADS, .cluster = cluster};
  const bool fills = p->sequences >= cluster * (POLICY_THREADS / POLICY_TEAM);
  return cuda_launch(queue, !is_long ? &many : fills ? &some : &few, shape, CUDA_ARGUMENTS((void *)p));
}
