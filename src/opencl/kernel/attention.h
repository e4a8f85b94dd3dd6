#ifndef TIGON_OPENCL_KERNEL_ATTENTION_H
#define TIGON_OPENCL_KERNEL_ATTENTION_H

#include "shared.h"

/* Queries, or keys, of a tile where a work-item has it and where a group has it. */
enum { ATTENTION_ITEM_BLOCK = 64, ATTENTION_GROUP_BLOCK = 32 };

/* Where a batch's, token's and head's elements begin: so many after the one before. */
typedef struct attention_heads {
  int64_t batch, token, head;
} attention_heads;

typedef struct attention_numbers {
  int64_t batch, tokens, keys, head_dim, heads, kv_heads;
  int64_t segments, dilation, window;
  int64_t query_places, key_places; /* core/attention_part.h's */
  attention_heads q, k, v, o, d_o, dq, dk, dv;
  float scale, softcap;
  int32_t causal, cut; /* cut: cu_seqlens are there */
  int32_t cu_q_dtype, cu_k_dtype, sinks_dtype, dsinks_dtype;
} attention_numbers;

#endif
