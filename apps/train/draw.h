/* Which token follows: drawn by its probability, or the likeliest one. */
#ifndef TRAIN_DRAW_H
#define TRAIN_DRAW_H

#include <stdint.h>

typedef struct train_sampling {
  double temperature; /* 0: the likeliest token */
  int64_t top_k;      /* only the k likeliest; 0: all */
  double top_p;       /* only the likeliest whose probabilities reach this sum; 0 and 1: all */
  uint64_t seed;
} train_sampling;

/* `u` is uniform in (0, 1); logits [vocab] are finite; scratch [2 * vocab]. Of equal logits the first is the likeliest.
 * Equal ones at the edge of top_k or top_p all stay. */
int32_t train_draw(const float *logits, int64_t vocab, const train_sampling *how, double u, float *scratch);

#endif
