/* How multi_token_attention is cut. Kernels go over all planes at once, a chunk of queries after the other, whose rows lie in a
 * workspace in f32. Nobody reads what lies beyond the diagonal there. */
#ifndef TIGON_CUDA_MULTI_TOKEN_ATTENTION_H
#define TIGON_CUDA_MULTI_TOKEN_ATTENTION_H

#include "problem/multi_token_attention.h"

enum {
  MTA_THREADS = 256,
  MTA_ROWS = 16,                                /* rows of a tile */
  MTA_COLS = 64,                                /* and its columns */
  MTA_EACH = MTA_ROWS * MTA_COLS / MTA_THREADS, /* rows of a thread */
  MTA_SLABS = 64,
};

typedef struct mta_chunk {
  tigon_band y, reach, own; /* queries, and those in u; rows of o that belong to y */
  tigon_band made;          /* rows of o in g and c */
  float *u, *g;             /* [batch * in, u_rows, tokens], [batch * out, o_rows, cols] */
  float *c;                 /* [batch * out, o_rows, cols], or backward of POST [batch * in, y_rows, tokens] */
  float *slabs;             /* [MTA_SLABS, weights + out]; NULL: no sums are wanted */
  int64_t u_rows, o_rows, y_rows, weights;
  bool first; /* slabs hold nothing yet */
} mta_chunk;

#endif
