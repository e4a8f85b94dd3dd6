/* What the launchers of losses of sequences have in common. */
#ifndef TIGON_OPENCL_SEQUENCES_H
#define TIGON_OPENCL_SEQUENCES_H

#include "opencl/kernel/sequences.h"
#include "opencl/loss.h"

static inline token_sequences opencl_sequences(int64_t count, int64_t tokens, int64_t length,
                                               const tigon_vector *segments, const tigon_counted *mask) {
  return (token_sequences){
      .count = count,
      .tokens = tokens,
      .length = length,
      .mask = {.limit = mask->limit, .ignore_index = mask->ignored, .dtype = (int32_t)mask->of.dtype, .has_ignore = 1},
      .segments_dtype = (int32_t)segments->dtype};
}

#endif
