/* What rope's launcher and kernels agree on. */
#ifndef TIGON_CUDA_ROPE_H
#define TIGON_CUDA_ROPE_H

#include "problem/heads.h"

enum {
  ROPE_THREADS = 256,
  ROPE_PLAIN_THREADS = 128, /* the most threads of a block, unless a token has more */
  ROPE_PLAIN_MOST = 1024,
  ROPE_HEADS = 2, /* heads of a thread, which reads its cos and sin once for all of them */
};

/* A token's heads, those of k after those of q, are in `groups`: head h is in group h % groups. Each head is in `pieces` of a
 * pack's pairs, or one pair. Pieces of a pack of the elements that are not rotated follow. A thread has a piece of a group's
 * heads. */
typedef struct rope_walk {
  int64_t groups, pairs, pieces; /* pairs: pieces of pairs */
  float sign;                    /* -1 turns back */
  bool few;                      /* threads: fewer than 2^32, which divide in 32 bits */
} rope_walk;

/* n / by is the upper half of 2 n inverse where n * by is less than 2^31, as in a block it is: a product where a division is twenty
 * instructions. */
typedef struct rope_divisor {
  unsigned by, inverse; /* 2^31 / by, rounded up */
} rope_divisor;

/* Problem and walk for heads that are rotated as a whole, tokens at one pitch, and less than 2^31 elements. A block has whole
 * tokens of one batch, which is the grid's second extent. In the order of use, since a line of parameters, 64 bytes, costs a
 * cold call 0.2 us. */
typedef struct rope_plain_heads {
  void *data;
  int heads, token_pitch, head_pitch;
} rope_plain_heads;
typedef struct rope_plain {
  rope_divisor of_token, pieces; /* threads of a token, of a group */
  int block_tokens, tokens, groups;
  rope_plain_heads q, k;
  const void *positions, *cos, *sin;
  int position_pitch, table_batch_pitch, table_pitch, table_rows, rotary_dim;
  tigon_dtype position_dtype, table_dtype;
  float sign;
  rope_plain_heads q_out, k_out;
  int32_t *error_flag;
} rope_plain;

/* The tables of such a problem where they are read pair by pair: a block's threads gather its tokens' numbers into shared memory, once
 * for all heads. */
typedef struct rope_plain_pairs {
  int first, end, step;
} rope_plain_pairs;
typedef struct rope_plain_axes {
  int axes, position_pitch, table_pitch, table_step; /* pitches: from axis to axis */
  rope_plain_pairs of[TIGON_ROPE_AXES];
} rope_plain_axes;

#endif
