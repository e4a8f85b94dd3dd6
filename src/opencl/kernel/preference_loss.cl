/* preference_loss: sums of the tokens of sequences, all pairs or sequences by one group, and the gradient of tokens. */
#include "sequences.cl"
#include "preference_loss.h"
#include "core/preference_terms.h"

__kernel void preference_sums(TENSOR(token_logprob), TENSOR(mask), TENSOR(segments), TENSOR(sums), TENSOR(sums_of),
                              TENSOR(error), const preference_numbers k) {
  ROOM
  for (long s = row_first(); s < k.of.count; s += row_step()) {
    const span of = span_of(&k.of, or_null(segments), s, or_null(error));
    pair sum = one_float(0), count = sum;
    FOR_TOKENS(t, of) {
      if (!token_counts(&k.of, or_null(mask), t)) continue;
      sum = wide_add(sum, float_at(memory_of(token_logprob), t));
      count = wide_add(count, 1);
    }
    const triple all = row_triple(((triple){{sum, count, {0, 0}}}));
    if (!row_leads()) continue;
    put_float(memory_of(sums), s, all.of[0].high);
    put_long(memory_of(sums_of), s, count_of_pair(all.of[1]));
  }
}

/* ---- pairs and sequences ---- */

typedef struct tensors {
  memory logps, ref, counts, rewards, dlogps;
  int counts_dtype;
} tensors;

static inline long tokens_at(memory counts, long i, int dtype) { return max(load_int(counts, i, dtype), 0L); }

static inline tigon_preference_sequence sequence_at(const tensors *t, long s) {
  tigon_preference_sequence at = {0, 1, true};
  if (t->counts) {
    const long tokens = tokens_at(t->counts, s, t->counts_dtype);
    at.counts = tokens > 0;
    at.count = (float)tokens;
  }
  if (at.counts) at.l = (float_at(t->logps, s) - float_or(t->ref, s, 0)) / at.count;
  return at;
}

/* What is its own; the reward. */
static inline float put_sequence(const tensors *t, long s, const tigon_preference_sequence *of, float derivative,
                                 float beta, float scale) {
  put_float(t->rewards, s, beta * of->l);
  put_float(t->dlogps, s, of->counts ? derivative * (beta * scale) / of->count : 0);
  return beta * of->l;
}

static inline pair mean_of(pair sum, pair count) {
  return count.high > 0 ? wide_mul(sum, wide_inverse(count)) : one_float(0);
}

/* `to_tokens`: what a token of the NLL has besides. */
__kernel void preference_items(TENSOR(logps), TENSOR(ref), TENSOR(counts), TENSOR(labels), TENSOR(shift),
                               TENSOR(denominator), TENSOR(nll_logps), TENSOR(nll_counts), TENSOR(loss),
                               TENSOR(pair_loss), TENSOR(rewards), TENSOR(dlogps), TENSOR(dnll_logps),
                               TENSOR(accuracy), TENSOR(margin), TENSOR(to_tokens), const preference_numbers k) {
  __local pair tree[TOTAL_ITEMS];
  const tensors t = {memory_of(logps), or_null(ref), or_null(counts), or_null(rewards), or_null(dlogps), k.counts_dtype};
  const float d = float_or(or_null(denominator), 0, (float)k.items), scale = 1 / (d < 1 ? 1 : d);
  pair sum = one_float(0), reward[2] = {sum, sum}, nll = sum, right = sum, chosen = sum, tokens = sum;
  for (long i = (long)get_local_id(0); i < k.items; i += TOTAL_ITEMS) {
    const float by = float_or(or_null(shift), k.shifts > 1 ? i : 0, 0);
    const tigon_preference_sequence first = sequence_at(&t, i);
    tigon_preference made;
    if (tigon_preference_of_pairs(&k)) {
      const tigon_preference_sequence second = sequence_at(&t, k.items + i);
      made = tigon_preference_of_pair(&k, &first, &second, by);
      const float one = put_sequence(&t, i, &first, made.chosen, k.beta, scale);
      const float other = put_sequence(&t, k.items + i, &second, made.rejected, k.beta, scale);
      reward[0] = wide_add(reward[0], other), reward[1] = wide_add(reward[1], one);
      right = wide_add(right, one > other ? 1 : 0), chosen = wide_add(chosen, 1);
    } else {
      const bool desirable = load_int(memory_of(labels), i, k.labels_dtype) != 0;
      made = tigon_preference_of_one(&k, &first, desirable, by);
      const float one = put_sequence(&t, i, &first, made.chosen, k.beta, scale);
      reward[desirable] = wide_add(reward[desirable], one);
      right = wide_add(right, (desirable ? one > 0 : one < 0) ? 1 : 0), chosen = wide_add(chosen, desirable ? 1 : 0);
    }
    put_float(or_null(pair_loss), i, made.loss);
    sum = wide_add(sum, made.loss);
  }
  for (long i = (long)get_local_id(0); i < k.nll_sequences; i += TOTAL_ITEMS) {
    const long n = tokens_at(memory_of(nll_counts), i, k.nll_dtype);
    if (n > 0) nll = wide_add(nll, float_at(memory_of(nll_logps), i));
    tokens = wide_sum(tokens, pair_of_count(n));
  }
  sum = total_of(tree, sum), nll = total_of(tree, nll), tokens = total_of(tree, tokens);
  for (int i = 0; i < 2; ++i) reward[i] = total_of(tree, reward[i]);
  right = total_of(tree, right), chosen = total_of(tree, chosen);
  const pair by = wide_times(wide_inverse(tokens.high > 0 ? tokens : one_float(1)), k.nll_weight);
  for (long i = (long)get_local_id(0); is_there(dnll_logps) && i < k.nll_sequences; i += TOTAL_ITEMS)
    put_float(memory_of(dnll_logps), i, tokens_at(memory_of(nll_counts), i, k.nll_dtype) > 0 ? -by.high : 0);
  if (get_local_id(0) > 0) return;
  const pair items = pair_of_count(k.items), others = tigon_preference_of_pairs(&k) ? chosen : wide_difference(items, chosen);
  pair all = wide_times(sum, scale);
  if (is_there(nll_logps)) all = wide_difference(all, wide_mul(by, nll));
  put_float(memory_of(loss), 0, all.high);
  put_float(or_null(accuracy), 0, mean_of(right, items).high);
  put_float(or_null(margin), 0, wide_difference(mean_of(reward[1], chosen), mean_of(reward[0], others)).high);
  put_float(memory_of(to_tokens), 0, -by.high);
}

/* ---- the gradient of tokens ---- */

__kernel void preference_slopes(TENSOR(dlogps), TENSOR(nll_counts), TENSOR(of_nll), TENSOR(dloss), TENSOR(mask),
                                TENSOR(segments), TENSOR(dtoken_logprob), TENSOR(error), const preference_numbers k) {
  for (long s = row_first(); s < k.of.count; s += row_step()) {
    const span of = span_of(&k.of, or_null(segments), s, or_null(error));
    float slope = float_at(memory_of(dlogps), s);
    if (s < k.nll_sequences && tokens_at(memory_of(nll_counts), s, k.nll_dtype) > 0)
      slope += float_at(memory_of(of_nll), 0);
    slope *= float_or(or_null(dloss), 0, 1);
    FOR_TOKENS(t, of)
      put_float(memory_of(dtoken_logprob), t, token_counts(&k.of, or_null(mask), t) ? slope : 0);
  }
}
