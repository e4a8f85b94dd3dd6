/* Attention's parts: rows that are a problem of their own, whose last query stands at its last key. A segment is one part or,
 * with a dilation D, D of them: each has every D-th key, and the queries that stand at those. */
#ifndef TIGON_CORE_ATTENTION_PART_H
#define TIGON_CORE_ATTENTION_PART_H

#include "problem/heads.h"

typedef struct tigon_attention_part {
  int64_t q0, tokens; /* the first query's row, and how many there are */
  int64_t k0, keys;
  int64_t step; /* from one row to the next */
} tigon_attention_part;

/* Two more segments at either end: queries, then keys, that cu_seqlens leave out and that see nothing. */
TIGON_SHARED int64_t tigon_attention_segments(const tigon_attention_cuts *c) {
  return c->cu_q.data ? c->segments + 4 : 1;
}

/* Where segment s begins, or past the last one the end: within the rows, whatever cu_seqlens hold. */
TIGON_SHARED int64_t tigon_attention_begin(const tigon_attention_cuts *c, bool of_keys, int64_t s) {
  const int64_t rows = of_keys ? c->keys : c->tokens, last = c->segments;
  if (s <= (of_keys && c->cu_q.data ? 1 : 0)) return 0;
  if (!c->cu_q.data || s >= last + (of_keys ? 4 : 3)) return rows;
  const int64_t i = s < 2 ? 0 : s - 2 > last ? last : s - 2, at = tigon_vector_index(of_keys ? c->cu_k : c->cu_q, i);
  return at < 0 ? 0 : at > rows ? rows : at;
}

/* Part r, below the dilation, of segment s. */
TIGON_SHARED tigon_attention_part tigon_attention_part_of(const tigon_attention_cuts *c, int64_t s, int64_t r) {
  const int64_t step = c->dilation;
  tigon_attention_part p = {tigon_attention_begin(c, false, s), 0, tigon_attention_begin(c, true, s), 0, step};
  int64_t tokens = tigon_attention_begin(c, false, s + 1) - p.q0, keys = tigon_attention_begin(c, true, s + 1) - p.k0;
  if (tokens < 0) tokens = 0;
  if (keys < 0) keys = 0;
  int64_t first = (r - keys + tokens) % step; /* query t stands at key t + keys - tokens */
  if (first < 0) first += step;
  if (first < tokens) p.q0 += first, p.tokens = (tokens - first + step - 1) / step;
  if (r < keys) p.k0 += r, p.keys = (keys - r + step - 1) / step;
  return p;
}

/* Tiles of `unit` rows of one side have a place each, and some places have none. Segment s has those from its first row / unit
 * + s on, which are enough for it: to find a place's segment nothing has to be added up. */
TIGON_SHARED int64_t tigon_attention_place(const tigon_attention_cuts *c, bool of_keys, int64_t unit, int64_t s) {
  return tigon_attention_begin(c, of_keys, s) / (unit * c->dilation) + s;
}
TIGON_SHARED int64_t tigon_attention_places(const tigon_attention_cuts *c, bool of_keys, int64_t unit) {
  const int64_t rows = of_keys ? c->keys : c->tokens, all = unit * c->dilation;
  return (c->cu_q.data ? rows / all + tigon_attention_segments(c) : (rows + all - 1) / all) * c->dilation;
}
/* The part at a place, and its tile there, which may be past the last one. */
TIGON_SHARED tigon_attention_part tigon_attention_part_at(const tigon_attention_cuts *c, bool of_keys, int64_t unit,
                                                          int64_t place, int64_t *tile) {
  const int64_t at = place / c->dilation;
  int64_t s = 0, past = tigon_attention_segments(c);
  while (past - s > 1) {
    const int64_t middle = s + (past - s) / 2;
    if (tigon_attention_place(c, of_keys, unit, middle) <= at)
      s = middle;
    else
      past = middle;
  }
  *tile = at - tigon_attention_place(c, of_keys, unit, s);
  return tigon_attention_part_of(c, s, place % c->dilation);
}

#endif
