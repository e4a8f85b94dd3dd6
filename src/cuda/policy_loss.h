/* What the launcher and the kernel of policy_loss agree on. */
#ifndef TIGON_CUDA_POLICY_LOSS_H
#define TIGON_CUDA_POLICY_LOSS_H

enum {
  POLICY_THREADS = 1024,  /* of a block */
  POLICY_TEAM = 256,      /* of them share a long sequence, where there are enough of these */
  POLICY_MOST_BLOCKS = 8, /* of the one cluster */
};

#endif
