/* What rope's launcher and kernels agree on. */
#ifndef TIGON_CUDA_ROPE_H
#define TIGON_CUDA_ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum {
  ROPE_THREADS = 256,
  ROPE_HEADS = 2, /* of a thread, so that it reads its cos and sin once for all of them */
};

/* A token's heads, those of k after those of q, are in `groups`, head h in group h % groups; each head is in `pieces` of a pack's
 * pairs, or one, and after them of a pack of what is not turned. A thread has a piece of a group's heads. */
typedef struct rope_walk {
  int64_t groups, pairs, pieces; /* pairs: pieces of pairs */
  float sign;                    /* -1 turns back */
  bool few;                      /* threads: fewer than 2^32, which divide in 32 bits */
} rope_walk;

#endif
