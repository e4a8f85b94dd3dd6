/* What the launchers of losses over tokens share. */
#ifndef TIGON_ASCEND_SEQUENCES_H
#define TIGON_ASCEND_SEQUENCES_H

#include "ascend/ascend.h"
#include "ascend/kernel/sequences.h"

static inline token_sequences ascend_sequences(tigon_vector segments, int64_t length, int64_t sequences, int64_t tokens,
                                               const tigon_counted *mask) {
  return (token_sequences){.segments = (gm_ptr)segments.data,
                           .mask = (gm_ptr)mask->of.data,
                           .rule = {mask->of.dtype, mask->limit ? mask->limit : ANY_LABEL, true, mask->ignored},
                           .segments_dtype = segments.dtype,
                           .length = length,
                           .count = sequences,
                           .tokens = tokens};
}

#endif
