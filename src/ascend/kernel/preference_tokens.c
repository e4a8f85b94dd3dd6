/* The tokens of preference_loss: what those of a sequence add up to, and the gradient that each of them has. Each block has a range of
 * sequences. */
#include "ascend/kernel/preference_tokens.h"

#include "ascend/kernel/formulas.h"

enum { BATCH = 256 }; /* tokens, or sequences */

AICORE void load_mask(const token_sequences *of, ub_f32 mask, int64_t first, int64_t n) {
  load_words(mask, of->mask, first, n, index_words(of->rule.dtype));
}

AICORE_KERNEL(preference_sums, preference_sums_arguments) {
  const ub_f32 number = ub_alloc_f32(ub, 8), mask = ub_alloc_f32(ub, 2 * BATCH), logprob = ub_alloc_f32(ub, BATCH);
  const int64_t end = range_begin(a->of.count, block_count(), block_index() + 1);
  int64_t error = 0;
  for (int64_t s = range_begin(a->of.count, block_count(), block_index()); s < end; ++s) {
    const token_span span = span_of(&a->of, number, s, &error);
    twofold sum = {0, 0};
    int64_t count = 0;
    for (int64_t t = span.begin; t < span.end; t += BATCH) {
      const int64_t n = least(BATCH, span.end - t);
      loads_after_scalar();
      load_mask(&a->of, mask, t, n);
      load_f32(logprob, a->logprob + t * 4, 1, n);
      scalar_after_loads();
      for (int64_t i = 0; i < n; ++i) {
        if (!token_counts(&a->of, mask, i)) continue;
        sum = twofold_add(sum, s_read_f32(logprob, i));
        ++count;
      }
    }
    store_number(a->sums + s * 4, number, sum.hi);
    s_write_i32(number, 0, (int32_t)(uint32_t)count);
    s_write_i32(number, 1, (int32_t)(count >> 32));
    stores_after_scalar();
    store_f32(a->counts + s * 8, number, 1, 2);
    scalar_after_stores();
  }
  s_write_i32(number, 0, (int32_t)error);
  stores_after_scalar();
  store_f32(a->flags + block_index() * 4, number, 1, 1);
}

/* What a token of a sequence of the NLL has besides. */
AICORE float nll_slope(const preference_slopes_arguments *a, ub_f32 counts) {
  int64_t tokens = 0;
  for (int64_t first = 0; first < a->nll_sequences; first += BATCH) {
    const int64_t n = least(BATCH, a->nll_sequences - first);
    loads_after_scalar();
    load_words(counts, a->counts, first, n, 2);
    scalar_after_loads();
    for (int64_t i = 0; i < n; ++i) tokens += s_read_index(TIGON_I64, counts, i);
  }
  return -twofold_times(reciprocal(twofold_count(tokens > 0 ? tokens : 1)), a->nll_weight).hi;
}

AICORE_KERNEL(preference_slopes, preference_slopes_arguments) {
  const ub_f32 number = ub_alloc_f32(ub, 8), words = ub_alloc_f32(ub, 2 * BATCH), dlogprob = ub_alloc_f32(ub, BATCH);
  const int64_t end = range_begin(a->of.count, block_count(), block_index() + 1);
  const float nll = nll_slope(a, words), dloss = load_number(number, a->dloss, 0, 1);
  int64_t error = 0;
  for (int64_t s = range_begin(a->of.count, block_count(), block_index()); s < end; ++s) {
    const token_span span = span_of(&a->of, number, s, &error);
    float slope = load_number(number, a->dlogps, s, 0);
    if (s < a->nll_sequences) slope += nll;
    slope *= dloss;
    for (int64_t t = span.begin; t < span.end; t += BATCH) {
      const int64_t n = least(BATCH, span.end - t);
      loads_after_scalar();
      load_mask(&a->of, words, t, n);
      scalar_after_loads();
      for (int64_t i = 0; i < n; ++i) s_write_f32(dlogprob, i, token_counts(&a->of, words, i) ? slope : 0);
      stores_after_scalar();
      store_array(a->dlogprob, dlogprob, t, n);
      scalar_after_stores();
    }
  }
}
