/* src/core/attention_part.h, which says what parts and places are. */

typedef struct attention_part {
  long q0, tokens, k0, keys, step;
} attention_part;

typedef struct attention_cuts {
  memory q, k;
  const attention_numbers *of;
} attention_cuts;

static inline long part_segments(const attention_cuts *c) { return c->of->cut ? c->of->segments + 4 : 1; }

static inline long part_begin(const attention_cuts *c, bool of_keys, long s) {
  const attention_numbers *k = c->of;
  const long rows = of_keys ? k->keys : k->tokens, last = k->segments;
  if (s <= (of_keys && k->cut ? 1 : 0)) return 0;
  if (!k->cut || s >= last + (of_keys ? 4 : 3)) return rows;
  const long i = s < 2 ? 0 : min(s - 2, last);
  return clamp(of_keys ? load_int(c->k, i, k->cu_k_dtype) : load_int(c->q, i, k->cu_q_dtype), 0L, rows);
}

static inline attention_part part_of(const attention_cuts *c, long s, long r) {
  const long step = c->of->dilation;
  attention_part p = {part_begin(c, false, s), 0, part_begin(c, true, s), 0, step};
  const long tokens = max(part_begin(c, false, s + 1) - p.q0, 0L), keys = max(part_begin(c, true, s + 1) - p.k0, 0L);
  long first = (r - keys + tokens) % step; /* query t stands at key t + keys - tokens */
  if (first < 0) first += step;
  if (first < tokens) p.q0 += first, p.tokens = (tokens - first + step - 1) / step;
  if (r < keys) p.k0 += r, p.keys = (keys - r + step - 1) / step;
  return p;
}

static inline long part_place(const attention_cuts *c, bool of_keys, long s) {
  return part_begin(c, of_keys, s) / (BLOCK * c->of->dilation) + s;
}
/* The part at a place, and the first of the place's rows there, which may be past the last one. */
static inline attention_part part_at(const attention_cuts *c, bool of_keys, long place, long *row) {
  const long at = place / c->of->dilation;
  long s = 0, past = part_segments(c);
  while (past - s > 1) {
    const long middle = s + (past - s) / 2;
    if (part_place(c, of_keys, middle) <= at)
      s = middle;
    else
      past = middle;
  }
  *row = (at - part_place(c, of_keys, s)) * BLOCK;
  return part_of(c, s, place % c->of->dilation);
}
