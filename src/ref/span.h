/* Which keys a query of attention sees. */
#ifndef TIGON_REF_SPAN_H
#define TIGON_REF_SPAN_H

#include "problem/heads.h"

/* Keys begin, begin + step, .. below end. */
typedef struct tigon_attention_seen {
  int64_t begin, end, step;
} tigon_attention_seen;

/* Those of query t, whose segment, if there are several, is looked for from the first one on. */
TIGON_SHARED tigon_attention_seen tigon_attention_span(const tigon_attention_cuts *c, bool causal, int64_t window,
                                                       int64_t t) {
  int64_t q0 = 0, tokens = c->tokens, k0 = 0, keys = c->keys, s = 0;
  const int64_t step = c->dilation;
  if (c->cu_q.data) {
    while (s < c->segments && t >= tigon_vector_index(c->cu_q, s + 1)) ++s;
    if (s == c->segments || t < tigon_vector_index(c->cu_q, s)) return (tigon_attention_seen){0, 0, step};
    q0 = tigon_vector_index(c->cu_q, s), tokens = tigon_vector_index(c->cu_q, s + 1) - q0;
    k0 = tigon_vector_index(c->cu_k, s), keys = tigon_vector_index(c->cu_k, s + 1) - k0;
  }
  const int64_t at = t - q0 + keys - tokens, reach = (window - 1) * step;
  int64_t first = window > 0 ? at - reach : -1, last = causal ? at : window > 0 ? at + reach : keys - 1;
  if (first < 0) first = (at % step + step) % step;
  if (last > keys - 1) last = keys - 1;
  return (tigon_attention_seen){k0 + first, last + 1 > first ? k0 + last + 1 : k0 + first, step};
}

#endif
