#include "draw.h"

#include <math.h>
#include <stdbool.h>

static void swap(float *a, float *b) {
  const float kept = *a;
  *a = *b;
  *b = kept;
}

/* The largest value t for which the values >= t sum to `target` or, with `by_count`, are that many; -inf when all fall
 * short. A quickselect, which sorts `values` in part. */
static float threshold(float *values, int64_t n, double target, bool by_count) {
  int64_t low = 0, high = n;
  while (low < high) {
    const float pivot = values[low + (high - low) / 2];
    int64_t above = low, end = high; /* [low, above) > pivot, [end, high) < pivot */
    double mass = 0, equal = 0;
    for (int64_t i = low; i < end;) {
      if (values[i] > pivot) {
        mass += by_count ? 1 : values[i];
        swap(&values[above++], &values[i++]);
      } else if (values[i] < pivot) {
        swap(&values[--end], &values[i]);
      } else {
        equal += by_count ? 1 : values[i];
        ++i;
      }
    }
    if (mass >= target) {
      high = above;
    } else if (mass + equal >= target) {
      return pivot;
    } else {
      target -= mass + equal;
      low = end;
    }
  }
  return -INFINITY;
}

int32_t train_draw(const float *logits, int64_t vocab, const train_sampling *how, double u, float *scratch) {
  float *weights = scratch, *spare = scratch + vocab, least = -INFINITY;
  int64_t best = 0, last = 0;
  double total = 0;
  for (int64_t v = 1; v < vocab; ++v)
    if (logits[v] > logits[best]) best = v;
  if (how->temperature <= 0) return (int32_t)best;
  if (how->top_k > 0 && how->top_k < vocab) {
    for (int64_t v = 0; v < vocab; ++v) spare[v] = logits[v];
    least = threshold(spare, vocab, (double)how->top_k, true);
  }
  for (int64_t v = 0; v < vocab; ++v) {
    weights[v] = spare[v] =
        logits[v] >= least ? (float)exp((double)(logits[v] - logits[best]) / how->temperature) : 0.0f;
    total += weights[v];
  }
  if (how->top_p > 0 && how->top_p < 1) {
    least = threshold(spare, vocab, how->top_p * total, false);
    total = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      if (weights[v] < least) weights[v] = 0;
      total += weights[v];
    }
  }
  double left = u * total;
  for (int64_t v = 0; v < vocab; ++v) {
    if (weights[v] <= 0) continue;
    left -= weights[v];
    last = v;
    if (left <= 0) break;
  }
  return (int32_t)last;
}
