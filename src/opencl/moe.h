/* Parts of fused_moe: its workspace, the order of slots, grouped products, and sums over what a token or an expert has. */
#ifndef TIGON_OPENCL_MOE_H
#define TIGON_OPENCL_MOE_H

#include "opencl/kernel/moe.h"
#include "opencl/opencl.h"
#include "problem/moe.h"

/* Rows are by position. Shares of dx lie where all but dpre was. */
typedef struct moe_memory {
  int32_t *count, *first, *slot, *position; /* moe_order's */
  char *c;                                  /* [slots, inner] c, or w * c */
  char *pre;                                /* [slots, 2 * inner] where the caller has none; then dpre */
  char *dpre;
  float *d;     /* [slots, inner] backward */
  char *shares; /* [slots, cols] z, or shares of dx */
  int64_t bytes;
} moe_memory;

moe_memory moe_memory_of(const tigon_fused_moe_problem *p, bool backward);

/* A side of a product: rows by position, or those of tokens. */
typedef struct moe_side {
  const void *data;
  moe_rows rows;
} moe_side;
moe_side moe_by_position(const void *data, tigon_dtype dtype, int64_t cols);
moe_side moe_by_token(const tigon_rows *rows, tigon_dtype dtype);

/* What the sums of a product by rows become. */
typedef struct moe_result {
  void *data;
  tigon_dtype dtype;
  tigon_vector bias; /* [experts, n], may be absent */
  bool weighted;
} moe_result;

tigon_status moe_sort(tigon_queue *queue, const tigon_fused_moe_problem *p, const moe_memory *m);
/* to [slots, n] of a [slots, k]; element (column, term) of an expert's matrix is its [column, term], or with `by_term` its [term, column]. */
tigon_status moe_multiply(tigon_queue *queue, const tigon_fused_moe_problem *p, const moe_memory *m, moe_side a,
                          const tigon_expert_weights *b, bool by_term, int64_t n, int64_t k, moe_result to);
/* to[e] [n, k] = sum over e's slots of a's row [n] times b's [k]. A turned one is the product of b and a. */
tigon_status moe_gradient(tigon_queue *queue, const tigon_fused_moe_problem *p, const moe_memory *m,
                          const tigon_expert_weights *to, moe_side a, int64_t n, moe_side b, int64_t k);
tigon_status moe_sums(tigon_queue *queue, const tigon_fused_moe_problem *p, const moe_memory *m, moe_side from,
                      int64_t cols, tigon_vector to, bool weighted);
tigon_status moe_combine(tigon_queue *queue, const tigon_fused_moe_problem *p, const moe_memory *m,
                         const tigon_rows *to);
moe_numbers moe_numbers_of(const tigon_fused_moe_problem *p, bool weighted);

#endif
