#ifndef TIGON_OPENCL_KERNEL_MULTI_TOKEN_ATTENTION_H
#define TIGON_OPENCL_KERNEL_MULTI_TOKEN_ATTENTION_H

#include "shared.h"

#ifdef __OPENCL_VERSION__
/* src/problem/multi_token_attention.h's. */
typedef struct tigon_window {
  int64_t taps, stride, padding, dilation;
} tigon_window;
typedef struct tigon_band {
  int64_t begin, end;
} tigon_band;
#else
#include "problem/multi_token_attention.h"
#endif

enum { MTA_SLABS = 16 };

/* A chunk of queries of all planes: rows of a workspace in f32, whose elements beyond the diagonal are 0 in u and g, and nothing in c. */
typedef struct mta_numbers {
  tigon_row_space space, out_space;
  cl_pitch s, ds, o;
  int64_t batch, in, out, groups, tokens, rows, cols;
  tigon_window h, w;
  tigon_band y, reach, own, made;          /* queries, and those in u; rows of o that belong to y; those in g and c */
  int64_t u_rows, o_rows, y_rows, weights; /* rows of a plane of u, of g, of backward's c of POST */
  int32_t weight_dtype, bias_dtype;
  int32_t pre, sparse, known; /* known: stat is given */
  int32_t first;              /* slabs hold nothing yet */
} mta_numbers;

#endif
