/* What a loss has of all its rows, by one group in one order: how many count, or their weights, and the sum of their losses. */
#include "loss.cl"

__kernel void loss_totals(TENSOR(labels), TENSOR(weight), TENSOR(denominator), TENSOR(values), TENSOR(argmax),
                          TENSOR(inverse), TENSOR(loss), TENSOR(correct), TENSOR(error), const totals_numbers k) {
  __local pair tree[TOTAL_ITEMS];
  const memory weights = or_null(weight), best = or_null(argmax);
  pair counted = one_float(0), sum = counted, right = counted;
  bool wrong = false;
  for (long r = (long)get_local_id(0); r < k.rows; r += TOTAL_ITEMS) {
    bool out_of_range = false;
    const long label = is_there(labels) ? label_at(&k.rule, memory_of(labels), r, &out_of_range) : 0;
    wrong = wrong || out_of_range;
    if (k.reduces) sum = wide_add(sum, float_at(memory_of(values), r));
    if (label < 0) continue;
    counted = wide_add(counted, float_or(weights, label, 1));
    if (best) right = wide_add(right, ((__global const long *)best)[r] == label ? 1 : 0);
  }
  if (wrong && is_there(error)) *(__global int *)memory_of(error) = 1;
  counted = total_of(tree, counted);
  sum = total_of(tree, sum);
  right = total_of(tree, right);
  if (get_local_id(0) > 0) return;
  if (is_there(denominator)) counted = one_float(float_at(memory_of(denominator), 0));
  float by = !k.mean ? 1 : counted.high == 0 ? 0 : wide_inverse(counted).high;
  if (k.counts)
    put_float(memory_of(inverse), 0, by);
  else
    by = float_at(memory_of(inverse), 0);
  if (!k.reduces) return;
  put_float(or_null(loss), 0, wide_times(sum, by).high);
  put_long(or_null(correct), 0, count_of_pair(right));
}

/* The sum of `count` numbers, as a pair. */
__kernel void loss_sum(TENSOR(values), TENSOR(to), const totals_numbers k) {
  __local pair tree[TOTAL_ITEMS];
  pair sum = one_float(0);
  for (long i = (long)get_local_id(0); i < k.rows; i += TOTAL_ITEMS) sum = wide_add(sum, float_at(memory_of(values), i));
  sum = total_of(tree, sum);
  if (get_local_id(0) == 0) *(__global pair *)memory_of(to) = sum;
}
