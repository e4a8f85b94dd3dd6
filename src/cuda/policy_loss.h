/* What the launcher and the kernel of policy_loss agree on. */
#ifndef TIGON_CUDA_POLICY_LOSS_H
#define TIGON_CUDA_POLICY_LOSS_H

enum {
  POLICY_THREADS = 1024,  /* threads of a block */
  POLICY_TEAM = 256,      /* threads that share a long sequence, if there are enough of these */
  POLICY_MOST_BLOCKS = 8, /* the most blocks of the one cluster */
};

#endif
