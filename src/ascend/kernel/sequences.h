/* Sequences of tokens and which tokens count, for losses on the scalar pipe. */
#ifndef TIGON_ASCEND_KERNEL_SEQUENCES_H
#define TIGON_ASCEND_KERNEL_SEQUENCES_H

#include "ascend/kernel/cross_entropy.h"

/* A part of a kernel's arguments. */
typedef struct token_sequences {
  gm_ptr segments; /* [count + 1]; NULL: each has `length` tokens */
  gm_ptr mask;     /* [tokens] integers; NULL: each token counts */
  label_rule rule; /* rule of the mask */
  int64_t segments_dtype, length, count, tokens;
} token_sequences;

/* Tokens [begin, end). */
typedef struct token_span {
  int64_t begin, end;
} token_span;

/* As tigon_sequence_span(). `words` has room for two indices. */
AICORE token_span span_of(const token_sequences *q, ub_f32 words, int64_t index, int64_t *error) {
  const int64_t size = index_words(q->segments_dtype);
  if (!q->segments) return (token_span){index * q->length, (index + 1) * q->length};
  loads_after_scalar();
  load_f32(words, q->segments + index * size * 4, 1, 2 * size);
  scalar_after_loads();
  const int64_t begin = s_read_index(q->segments_dtype, words, 0), end = s_read_index(q->segments_dtype, words, 1);
  const bool first = index > 0 || begin == 0, last = index < q->count - 1 || end == q->tokens;
  if (!(first && last && begin >= 0 && begin <= end && end <= q->tokens)) *error = 1;
  return (token_span){begin < 0 ? 0 : begin, end > q->tokens ? q->tokens : end};
}

/* Does token i of the words that were loaded count? */
AICORE bool token_counts(const token_sequences *q, ub_f32 mask, int64_t i) {
  bool out_of_range;
  return !q->mask || s_read_label(&q->rule, mask, i, &out_of_range) >= 0;
}

#endif
