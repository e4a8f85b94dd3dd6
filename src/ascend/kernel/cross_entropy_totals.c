/* What cross_entropy needs of all rows: the denominator of mean and whether a label was out of range, the loss, how many are right.
 * Each block adds up a range of rows, and one block joins what they found in their order. */
#include "ascend/kernel/cross_entropy.h"

enum { BATCH = 256 }; /* rows */

typedef struct state {
  const cross_entropy_totals_arguments *a;
  ub_f32 labels, values, argmax;
  twofold sum;
  int64_t correct;
  bool out_of_range;
} state;

/* The weights of n labels, each in a block of its own. A label that does not count is not looked up. */
AICORE void load_weights(const state *s, int64_t n) {
  bool out_of_range;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = s_read_label(&s->a->rule, s->labels, i, &out_of_range);
    if (label >= 0) load_f32(ub_at_f32(s->values, 8 * i), s->a->weight + label * 4, 1, 1);
  }
}

AICORE void add_batch(state *s, int64_t first, int64_t n) {
  const cross_entropy_totals_arguments *a = s->a;
  const int64_t words = index_words(a->rule.dtype);
  const bool gathers = !a->values && a->weight;
  loads_after_scalar();
  if (a->labels) load_f32(s->labels, a->labels + first * words * 4, 1, n * words);
  if (a->argmax) load_f32(s->argmax, a->argmax + first * 8, 1, 2 * n);
  if (a->values) load_f32(s->values, a->values + first * 4, 1, n);
  scalar_after_loads();
  if (gathers) {
    load_weights(s, n);
    scalar_after_loads();
  }
  for (int64_t i = 0; i < n; ++i) {
    bool out_of_range = false;
    const int64_t label = a->labels ? s_read_label(&a->rule, s->labels, i, &out_of_range) : -1;
    s->out_of_range = s->out_of_range || out_of_range;
    if (a->values)
      s->sum = twofold_add(s->sum, s_read_f32(s->values, i));
    else if (label >= 0)
      s->sum = twofold_add(s->sum, gathers ? s_read_f32(s->values, 8 * i) : 1);
    if (a->argmax && label >= 0) s->correct += s_read_index(TIGON_I64, s->argmax, i) == label;
  }
}

AICORE_KERNEL(cross_entropy_totals, cross_entropy_totals_arguments) {
  const ub_f32 total = ub_alloc_f32(ub, 8);
  const int64_t end = range_begin(a->count, block_count(), block_index() + 1);
  state s = {.a = a};
  s.labels = ub_alloc_f32(ub, 2 * BATCH);
  s.argmax = ub_alloc_f32(ub, 2 * BATCH);
  s.values = ub_alloc_f32(ub, 8 * BATCH);
  for (int64_t i = range_begin(a->count, block_count(), block_index()); i < end; i += BATCH)
    add_batch(&s, i, least(BATCH, end - i));
  s_write_f32(total, TOTAL_HI, s.sum.hi);
  s_write_f32(total, TOTAL_LO, s.sum.lo);
  s_write_i32(total, TOTAL_CORRECT, (int32_t)s.correct);
  s_write_i32(total, TOTAL_OUT_OF_RANGE, s.out_of_range);
  stores_after_scalar();
  store_f32(a->totals + block_index() * TOTAL_WORDS * 4, total, 1, TOTAL_WORDS);
}

/* 1 / total, which may be 0 or not finite. */
AICORE float inverse_of(twofold total) {
  if (total.hi == 0) return 0;
  return total.hi - total.hi == 0 ? twofold_inverse(total).hi : 1.0f / total.hi;
}

AICORE_KERNEL(cross_entropy_join, cross_entropy_join_arguments) {
  const ub_f32 totals = ub_alloc_f32(ub, round_up(a->blocks * TOTAL_WORDS, 8)), scale = ub_alloc_f32(ub, 8);
  const ub_f32 inverse = ub_alloc_f32(ub, 8), loss = ub_alloc_f32(ub, 8), correct = ub_alloc_f32(ub, 8);
  const ub_f32 error = ub_alloc_f32(ub, 8), divisor = ub_alloc_f32(ub, 8);
  if (a->blocks > 0) load_f32(totals, a->totals, 1, a->blocks * TOTAL_WORDS);
  if (a->scale) load_f32(scale, a->scale, 1, 1);
  if (a->divisor) load_f32(divisor, a->divisor, 1, 1);
  scalar_after_loads();
  const twofold total = s_read_total(totals, a->blocks);
  int64_t right = 0;
  bool out_of_range = false;
  for (int64_t i = 0; i < a->blocks; ++i) {
    right += s_read_i32(totals, i * TOTAL_WORDS + TOTAL_CORRECT);
    out_of_range = out_of_range || s_read_i32(totals, i * TOTAL_WORDS + TOTAL_OUT_OF_RANGE);
  }
  if (a->given != 0)
    s_write_f32(inverse, 0, a->given);
  else
    s_write_f32(inverse, 0, a->mean ? inverse_of(a->divisor ? (twofold){s_read_f32(divisor, 0), 0} : total) : 1);
  s_write_f32(loss, 0, twofold_times(twofold_times(total, a->scale ? s_read_f32(scale, 0) : 1), a->share).hi);
  s_write_i32(correct, 0, (int32_t)(uint32_t)right);
  s_write_i32(correct, 1, (int32_t)(right >> 32));
  s_write_i32(error, 0, 1);
  stores_after_scalar();
  if (a->inverse) store_f32(a->inverse, inverse, 1, 1);
  if (a->loss) store_f32(a->loss, loss, 1, 1);
  if (a->correct) store_f32(a->correct, correct, 1, 2);
  if (a->error && out_of_range) store_f32(a->error, error, 1, 1);
}
