/* What the launcher of rope hands to its kernels. */
#ifndef TIGON_ASCEND_KERNEL_ROPE_H
#define TIGON_ASCEND_KERNEL_ROPE_H

#include "ascend/kernel/rows.h"
#include "core/rope_axes.h"

enum { ROPE_TOKENS = 16, ROPE_BUFFERS = 2 }; /* a tile's tokens at most */

/* [batch, tokens, heads, head_dim]; pitches in elements. */
typedef struct gm_heads {
  gm_ptr data; /* NULL: there are none */
  int64_t heads, batch_pitch, token_pitch, head_pitch;
} gm_heads;

typedef struct rope_arguments {
  int64_t batch, tokens, head_dim, rotary_dim;
  gm_heads in[2], out[2]; /* queries, keys */
  gm_ptr cosine, sine;    /* sine NULL: cosine has complex numbers */
  int64_t table_axis_pitch, table_batch_pitch, table_pitch, table_rows;
  gm_ptr positions; /* may be NULL */
  int64_t position_axis_pitch, position_pitch, position_words;
  int64_t axes;
  tigon_rope_pairs pairs_of[TIGON_ROPE_AXES];
  gm_ptr flags; /* [blocks] i32: 1 where a position is out of range. May be NULL */
  int64_t dtype, table_dtype, interleaved;
  int64_t tile_tokens, tile_heads;
  float sign, unused; /* sign of the angle */
} rope_arguments;

typedef struct rope_flag_arguments {
  gm_ptr flags, error; /* [count], [1] i32 */
  int64_t count;
} rope_flag_arguments;

/* Does a pair's other half begin where an array may begin? Else it is gathered. */
AICORE bool rope_gathers(int64_t interleaved, int64_t rotary_dim) { return interleaved || rotary_dim / 2 % 8 != 0; }

void rope(ub_arena *ub, const void *arguments);
void rope_flag(ub_arena *ub, const void *arguments); /* *error = 1 when a flag is */

#endif
