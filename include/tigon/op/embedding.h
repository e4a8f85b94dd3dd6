/* embedding: rows of a table by index, and the table's gradient by sorted segment sum.
 *
 * Forward:   y[n] = table[idx[n]]
 * Backward:  dtable[v] = sum of dy[n] over n with idx[n] == v, in the order of n; row padding_idx gets no gradient
 *
 * Shapes: table, dtable [V, H]; idx [...] of N elements; y, dy [..., H] with the same leading dimensions.
 * dtypes: table f32, bf16, f16; y, dy as table; dtable f32 or as table, sums in f32; idx i32 or i64.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h); idx and dtable contiguous.
 * An index outside [0, V): with `error` given, it reads as a row of zeros, gets no gradient, and *error becomes 1. Without
 *   `error` a host device refuses the call (nothing is written), and another device reports it at tigon_context_sync().
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_EMBEDDING_H
#define TIGON_OP_EMBEDDING_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_embedding_fwd_args {
  tigon_tensor table; /* in  [V, H] */
  tigon_tensor idx;   /* in  [...] i32 or i64 */
  tigon_tensor y;     /* out [..., H] */
  tigon_tensor error; /* out [1] i32; may be absent */
  uint64_t reserved[4];
} tigon_embedding_fwd_args;

TIGON_API tigon_status tigon_embedding_fwd(tigon_context *context, const tigon_embedding_fwd_args *args);

typedef struct tigon_embedding_bwd_args {
  tigon_tensor dy;       /* in  [..., H] */
  tigon_tensor idx;      /* in  [...], forward's */
  tigon_tensor dtable;   /* out [V, H]; every row is written (zeros where no index points) */
  tigon_tensor error;    /* out [1] i32; may be absent */
  int has_padding_idx;   /* 1: padding_idx counts */
  int64_t padding_idx;   /* in [0, V) */
  int accumulate_dtable; /* 1: dtable += , 0: dtable = */
  void *workspace;       /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_embedding_bwd_args;

TIGON_API tigon_status tigon_embedding_bwd(tigon_context *context, const tigon_embedding_bwd_args *args);
TIGON_API tigon_status tigon_embedding_bwd_workspace(tigon_context *context, const tigon_embedding_bwd_args *args,
                                                     size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
