/* What the launcher and the kernels of policy_loss agree on. */
#ifndef TIGON_CUDA_POLICY_LOSS_H
#define TIGON_CUDA_POLICY_LOSS_H

#include "core/policy_loss.h"

enum {
  POLICY_THREADS = 512,      /* a block's, at most */
  POLICY_AT_ONCE = 4,        /* a thread's tokens */
  POLICY_SM_BLOCKS = 2,      /* blocks that an SM has room for at once, at least */
  POLICY_MOST_BLOCKS = 1024, /* blocks that share the sequences */
};

/* Sums over all tokens, in f64: what tigon_policy_sums has, and how many tokens count. */
enum { POLICY_LOSS, POLICY_KL, POLICY_ENTROPY, POLICY_RATIO, POLICY_LOW, POLICY_HIGH, POLICY_COUNTED, POLICY_SUMS = 8 };

typedef struct policy_walk {
  int team;          /* threads that share a sequence: a warp, or a block */
  double *counts;    /* [blocks]; NULL: all tokens count, or no slope asks how many do */
  double *sums;      /* [blocks, POLICY_SUMS] */
  unsigned *ticket;  /* 0 before and after a call */
  unsigned *arrived; /* blocks that have counted, the same */
} policy_walk;

/* Is a call as most are: a clipped loss of single tokens, and nothing beside it? */
TIGON_SHARED bool policy_is_plain(const tigon_policy_loss_fwd_problem *p) {
  return p->kind <= TIGON_POLICY_DAPO && !p->sequence_level && !p->ratio && !p->ref && !p->entropy && !p->dentropy &&
         p->kl_weight == 0 && p->entropy_weight == 0;
}

#endif
