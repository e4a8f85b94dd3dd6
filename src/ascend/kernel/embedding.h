/* What the launcher of embedding hands to its kernels: structs of 8-byte fields. */
#ifndef TIGON_ASCEND_KERNEL_EMBEDDING_H
#define TIGON_ASCEND_KERNEL_EMBEDDING_H

#include "ascend/kernel/rows.h"

typedef struct embedding_fwd_arguments {
  walk w;
  gm_space space;
  gm_rows y;
  gm_ptr table, idx;
  gm_ptr flags; /* [blocks] i32: was an index out of range? May be NULL */
  int64_t vocab, table_pitch, dtype, idx_dtype;
} embedding_fwd_arguments;

/* Table rows are cut into `tasks` ranges of at most `listed` rows. */
typedef struct embedding_bwd_arguments {
  gm_space space;
  gm_rows dy;
  gm_ptr idx, dtable, error; /* error: may be NULL */
  int64_t positions, cols, vocab, padding_idx;
  int64_t dtype, idx_dtype, dtable_dtype, accumulate;
  int64_t tasks, listed;   /* listed: positions sorted at a time */
  int64_t panel, together; /* a tile's columns; rows of dy that are loaded and added up at once */
} embedding_bwd_arguments;

typedef struct error_flag_arguments {
  gm_ptr flags, error; /* [count] i32, [1] i32 */
  int64_t count;
} error_flag_arguments;

void embedding_fwd(ub_arena *ub, const void *arguments);
void embedding_bwd(ub_arena *ub, const void *arguments);
void error_flag(ub_arena *ub, const void *arguments); /* error = 1 when any of the flags is set. One block */

#endif
