/* What attention needs beside the vendor's operator: words of queries between lse and the softmax's largest scores and sums, and
 * the mask of causal and window. */
#ifndef TIGON_ASCEND_KERNEL_ATTENTION_H
#define TIGON_ASCEND_KERNEL_ATTENTION_H

#include "ascend/kernel/rows.h"

enum {
  ATTENTION_COPIES = 8,  /* copies of a query's largest score, and of its sum, side by side */
  ATTENTION_WORDS = 512, /* queries of a tile: 16 KiB of copies, what a transfer at full rate wants */
};

/* Word i of row r: at lse + r / heads * batch_pitch + r % heads * head_pitch + i; its copies lie end to end. */
typedef struct attention_words_arguments {
  gm_ptr lse, max, sum;
  int64_t rows, words, heads, batch_pitch, head_pitch;
} attention_words_arguments;

/* A byte for each pair of `size` x `size`: 1 above the diagonal, else 0. */
typedef struct attention_mask_arguments {
  gm_ptr mask;
  int64_t size; /* a multiple of 32 */
} attention_mask_arguments;

AICORE int64_t attention_tiles(int64_t rows, int64_t words) { return rows * ((words - 1) / ATTENTION_WORDS + 1); }

void attention_lse(ub_arena *ub, const void *arguments);   /* lse = max + log(sum); without max -inf */
void attention_words(ub_arena *ub, const void *arguments); /* max = lse, sum = 1 */
void attention_mask(ub_arena *ub, const void *arguments);

#endif
