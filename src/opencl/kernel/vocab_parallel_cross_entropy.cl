/* How a row's stats of all shards are merged, in two floats, by a work-item: src/core/vocab_parallel_cross_entropy.h says what is done. */
#include "loss.cl"
#include "cross_entropy.h"
#include "vocab_parallel_cross_entropy.h"

__kernel void vocab_parallel_cross_entropy_merge(TENSOR(stats), TENSOR(labels), TENSOR(token_loss), TENSOR(lse),
                                                 TENSOR(z_loss), TENSOR(entropy), const vocab_merge_numbers k) {
  const long step = k.rows * STAT_WORDS;
  for (long r = (long)get_global_id(0); r < k.rows; r += (long)get_global_size(0)) {
    __global const float *first = (__global const float *)memory_of(stats) + r * STAT_WORDS;
    pair sum = one_float(0), moment = sum, all = sum, label_logit = sum, loss = sum, z = sum;
    float largest = -INFINITY, left = 0;
    for (long i = 0; i < k.shards; ++i) {
      largest = LARGER(largest, first[i * step + STAT_M]);
      if (k.rank < 0 || k.rank == i) all = wide_add(all, first[i * step + STAT_U]);
      label_logit = wide_add(label_logit, first[i * step + STAT_Y]);
    }
    const bool finite = isfinite(largest);
    for (long i = 0; finite && i < k.shards; ++i) {
      __global const float *of = first + i * step;
      if (of[STAT_M] == -INFINITY) continue;
      const pair shift = two_sum(of[STAT_M], -largest), factor = wide_exp(shift);
      sum = wide_sum(sum, wide_times(factor, of[STAT_S]));
      moment = wide_sum(moment, wide_mul(wide_add(wide_times(shift, of[STAT_S]), of[STAT_W]), factor));
    }
    const pair log_sum = wide_log(sum), whole = finite ? wide_add(log_sum, largest) : one_float(largest);
    bool out_of_range;
    if (label_at(&k.rule, memory_of(labels), r, &out_of_range) >= 0) {
      /* Without the detour over lse, whose digits a large logit takes. */
      const pair from = finite ? log_sum : one_float(0), most = one_float(largest);
      loss = wide_mul(wide_sum(wide_difference(most, label_logit), from), k.keep);
      if (k.smoothing.high != 0) {
        const pair mean = wide_mul(all, k.inverse_classes);
        loss = wide_sum(loss, wide_mul(wide_sum(wide_difference(most, mean), from), k.smoothing));
      }
      if (k.lse_square != 0) z = wide_times(wide_mul(whole, whole), k.lse_square);
      loss = wide_sum(loss, z);
      left = finite ? wide_difference(log_sum, wide_mul(moment, wide_inverse(sum))).high : NAN;
    }
    put_float(memory_of(token_loss), r, loss.high);
    put_float(or_null(lse), r, whole.high);
    put_float(or_null(z_loss), r, z.high);
    put_float(or_null(entropy), r, left);
  }
}
