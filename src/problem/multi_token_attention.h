/* The problem of multi_token_attention: planes of scores, of which a group's convolve together. Kernels go over a plane's queries in
 * chunks. A chunk of query rows has the rows of o whose windows begin there, and each row of o is of one chunk. */
#ifndef TIGON_PROBLEM_MULTI_TOKEN_ATTENTION_H
#define TIGON_PROBLEM_MULTI_TOKEN_ATTENTION_H

#include "problem/columns.h"

enum { TIGON_MTA_TAPS = 64 }; /* rows of a kernel, or columns, at most */

/* One direction of the convolution: tap t of element i of o meets i * stride - padding + t * dilation of the scores. */
typedef struct tigon_window {
  int64_t taps, stride, padding, dilation;
} tigon_window;

typedef struct tigon_multi_token_attention_problem {
  tigon_row_space space;     /* rows of s, ds: row (b * in + channel) * tokens + query */
  tigon_row_space out_space; /* rows of o: row (b * out + channel) * rows + query */
  int64_t batch, in, out, groups, tokens;
  int64_t rows, cols; /* extents of a plane of o */
  tigon_window h, w;
  tigon_dtype dtype;
  tigon_rows s, ds, o;       /* backward: o is its gradient */
  tigon_vector weight, bias; /* [out, in / groups, h.taps, w.taps], [out] */
  tigon_vector stat;         /* [batch, in, tokens], or [batch, out, rows] of pre; f32 but in tests/grad */
  tigon_vector dweight, dbias;
  void *workspace;
  bool pre, sparse, accumulate;
} tigon_multi_token_attention_problem;
typedef tigon_multi_token_attention_problem tigon_multi_token_attention_fwd_problem,
    tigon_multi_token_attention_bwd_problem;

/* Rows [begin, end) of a plane. */
typedef struct tigon_band {
  int64_t begin, end;
} tigon_band;

/* From a window's first element to its last one. */
TIGON_SHARED int64_t tigon_window_span(const tigon_window *w) { return (w->taps - 1) * w->dilation; }
/* Elements of o along a direction in which the scores have `tokens`; 0 or less where the window is larger. */
TIGON_SHARED int64_t tigon_window_places(const tigon_window *w, int64_t tokens) {
  const int64_t left = tokens + 2 * w->padding - tigon_window_span(w) - 1;
  return left < 0 ? 0 : left / w->stride + 1;
}

TIGON_SHARED int64_t tigon_mta_clip(int64_t i, int64_t count) { return i < 0 ? 0 : i < count ? i : count; }

/* Rows of o that belong to queries [y, end): each row of o is of one query. */
TIGON_SHARED tigon_band tigon_mta_own(const tigon_multi_token_attention_problem *p, tigon_band y) {
  const int64_t stride = p->h.stride;
  const tigon_band of = {tigon_mta_clip((y.begin + stride - 1) / stride, p->rows),
                         tigon_mta_clip((y.end + stride - 1) / stride, p->rows)};
  return (tigon_band){of.begin, y.end == p->tokens ? p->rows : of.end};
}
/* Rows of o whose windows have a row of queries `y`. Paddings are no larger than the span, so that the own rows are among them. */
TIGON_SHARED tigon_band tigon_mta_met(const tigon_multi_token_attention_problem *p, tigon_band y) {
  const int64_t stride = p->h.stride, first = y.begin + p->h.padding - tigon_window_span(&p->h);
  const int64_t begin = first > 0 ? (first + stride - 1) / stride : 0;
  return (tigon_band){tigon_mta_clip(begin, p->rows), tigon_mta_clip((y.end - 1 + p->h.padding) / stride + 1, p->rows)};
}
/* Queries in the windows of rows `o`. */
TIGON_SHARED tigon_band tigon_mta_queries(const tigon_multi_token_attention_problem *p, tigon_band o) {
  const int64_t first = o.begin * p->h.stride - p->h.padding;
  const int64_t end = (o.end - 1) * p->h.stride - p->h.padding + tigon_window_span(&p->h) + 1;
  return o.end > o.begin ? (tigon_band){tigon_mta_clip(first, p->tokens), tigon_mta_clip(end, p->tokens)}
                         : (tigon_band){0, 0};
}

/* Is any gradient wanted that is a sum? A query has no data. */
TIGON_SHARED bool tigon_mta_sums(const tigon_multi_token_attention_problem *p) {
  return p->dweight.dtype || p->dbias.dtype;
}

#endif
