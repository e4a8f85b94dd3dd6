/* Which keys a query of attention sees. */
#ifndef TIGON_REF_SPAN_H
#define TIGON_REF_SPAN_H

#include <stdbool.h>
#include <tigon/tigon.h>

#include "core/shared.h"

/* The first and one past the last key that query t of T sees among S keys. */
TIGON_SHARED void tigon_attention_span(int64_t tokens, int64_t keys, bool causal, int64_t window, int64_t t,
                                       int64_t *begin, int64_t *end) {
  const int64_t at = t + keys - tokens;
  int64_t first = window > 0 ? at - window + 1 : 0, last = causal ? at : window > 0 ? at + window - 1 : keys - 1;
  if (first < 0) first = 0;
  if (last > keys - 1) last = keys - 1;
  *begin = first;
  *end = last + 1 > first ? last + 1 : first;
}

#endif
