/* Sequences of tokens, for losses: a row of work-items has one. */
#include "loss.cl"
#include "sequences.h"

/* The functions of math.h for formulas of src/core. */
#define expf(x) exp_one(x)
#define expm1f(x) expm1_one(x)
#define logf(x) log_one(x)
#define log1pf(x) log1p_one(x)
#define fabsf(x) fabs(x)
#define fmaxf(a, b) fmax(a, (float)(b))

static inline bool token_counts(const token_sequences *q, memory mask, long t) {
  bool out_of_range;
  return !mask || label_at(&q->mask, mask, t, &out_of_range) >= 0;
}

/* Tokens [begin, end). */
typedef struct span {
  long begin, end;
} span;

/* As tigon_sequence_span(). */
static inline span span_of(const token_sequences *q, memory segments, long s, memory error) {
  if (!segments) return (span){s * q->length, (s + 1) * q->length};
  const long begin = load_int(segments, s, q->segments_dtype), end = load_int(segments, s + 1, q->segments_dtype);
  const bool first = s > 0 || begin == 0, last = s < q->count - 1 || end == q->tokens;
  if (!(first && last && begin >= 0 && begin <= end && end <= q->tokens) && error) *(__global int *)error = 1;
  return (span){max(begin, 0L), min(end, q->tokens)};
}
/* The work-item's tokens. */
#define FOR_TOKENS(t, of) for (long t = (of).begin + row_lane(); t < (of).end; t += GROUP)
