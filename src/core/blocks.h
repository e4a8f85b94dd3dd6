/* A tensor whose blocks, along its first dimension, may lie anywhere: a list of addresses says where. */
#ifndef TIGON_CORE_BLOCKS_H
#define TIGON_CORE_BLOCKS_H

#include "core/check.h"

enum { TIGON_MAX_BLOCKS = 4 }; /* lists of an entry */

/* The addresses of field `index`'s blocks; NULL: the tensor has them itself. The field after it may be such a list. */
const void *const *tigon_blocks_at(const tigon_schema *schema, int index, const void *args);

/* The first block of a tensor that has its blocks itself; else the layout of each. */
tigon_tensor tigon_block_view(const tigon_tensor *tensor);

/* After tigon_check_fields(): every address of the call's lists, and that no block meets an output or, where it is one,
 * anything. `bytes`: the workspace's, 0 where the call needs none. */
tigon_status tigon_check_blocks(tigon_context *context, const void *args, const void *workspace, size_t bytes);

#endif
