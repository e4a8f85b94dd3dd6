/* What every planned op does to a row: one line each, with all operands present. */
#include <string.h>

#include "ascend/plan/plan.h"

/* A stream of the table: how often it moves when the row does not stay on chip, and the bytes of its element: 0 is the
 * op's dtype, 4 is always f32. */
typedef struct stream {
  uint8_t passes, bytes;
} stream;

/* The second line of an entry is: f32 temporaries of f32, of 16-bit dtypes; column vectors in, sums out; row words in,
 * out; the reduction, its partials; vector operations of f32, of 16-bit dtypes. */
typedef struct row {
  const char *op, *entry;
  stream in[TIGON_MAX_STREAMS], out[TIGON_MAX_STREAMS]; /* ended by passes 0 */
  int temporaries_f32, temporaries_16; /* 16-bit dtypes are cast to f32 first, which takes tiles of its own */
  int column_params, column_sums;
  int words_in, words_out; /* 4-byte words a row */
  tigon_reduce reduce;
  int partials;
  double ops_f32, ops_16; /* in additions of one element; exp counts 1, a division 2, multiplication by a scalar 0.5 */
} row;

/* rms_norm: rstd is a word; bf16 backward needs dy, x and a product in f32 at once.
 * fused_add_rms_norm: pass 2 reads s back instead of x and residual.
 * layer_norm, group_norm: mean and rstd are words; a split hands over count, mean in two parts and M2, backward the two sums.
 *   group_norm's vectors and sums are those of the channels.
 * swiglu, geglu: tiles as silu and gelu are worked out without a select; geglu's operations are those of tanh.
 * rope: the rows of cos and sin (half a head each) are within the f32 temporaries; words are the position ids, where given.
 * embedding: the words are the index. Backward's output is the table, whose rows are others than those of dy.
 * softmax: a mask is a stream, in the dtype of x or in f32; a split hands over the largest score and the sum.
 * cross_entropy with its mean: the words are label (i64), loss and lse, backward's label and lse; a split hands over max, reference,
 *   sum of exp, sum of z exp z, sum of z, argmax and the label's x. Without dlogits the logits are read once in any case,
 *   because max and sum run online; only one split of a row then joins them. A temperature, a
 *   softcap and smoothing by weights need one or two temporaries more.
 * adamw step: with an f32 master the parameter itself is only written. clip: one sum over all, whose words are
 *   norm and factor; a split hands over its sum in two parts and their exponent. */
/* clang-format off */
static const row table[] = {
    {"rms_norm", "fwd", {{2, 0}}, {{1, 0}},
     1, 2, 1, 0, 0, 1, TIGON_REDUCE_SUM, 1, 3.7, 7.7},
    {"rms_norm", "bwd", {{2, 0}, {2, 0}}, {{1, 0}},
     2, 3, 1, 1, 1, 0, TIGON_REDUCE_SUM, 1, 7.8, 10.8},
    {"fused_add_rms_norm", "fwd", {{1, 0}, {1, 0}}, {{2, 0}, {1, 0}},
     1, 2, 1, 0, 0, 1, TIGON_REDUCE_SUM, 1, 4.8, 10.8},
    {"fused_add_rms_norm", "bwd", {{2, 0}, {1, 0}, {2, 0}}, {{1, 0}},
     2, 3, 1, 1, 1, 0, TIGON_REDUCE_SUM, 1, 8.8, 12.8},
    {"layer_norm", "fwd", {{2, 0}}, {{1, 0}},
     1, 2, 2, 0, 0, 2, TIGON_REDUCE_MOMENTS, 4, 6.5, 8.5},
    {"layer_norm", "bwd", {{2, 0}, {2, 0}}, {{1, 0}},
     2, 3, 1, 2, 2, 0, TIGON_REDUCE_TWO_SUMS, 2, 11.0, 14.0},
    {"group_norm", "fwd", {{2, 0}}, {{1, 0}},
     1, 2, 2, 0, 0, 2, TIGON_REDUCE_MOMENTS, 4, 5.0, 9.0},
    {"group_norm", "bwd", {{2, 0}, {2, 0}}, {{1, 0}},
     2, 3, 1, 2, 2, 0, TIGON_REDUCE_TWO_SUMS, 2, 8.0, 11.0},
    {"swiglu", "fwd", {{1, 0}, {1, 0}}, {{1, 0}},
     1, 4, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 8.5, 11.5},
    {"swiglu", "bwd", {{1, 0}, {1, 0}, {1, 0}}, {{1, 0}, {1, 0}},
     3, 8, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 18.0, 23.0},
    {"geglu", "fwd", {{1, 0}, {1, 0}}, {{1, 0}},
     4, 7, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 33.0, 16.5},
    {"geglu", "bwd", {{1, 0}, {1, 0}, {1, 0}}, {{1, 0}, {1, 0}},
     3, 8, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 45.0, 31.0},
    {"relu_squared", "fwd", {{1, 0}}, {{1, 0}},
     0, 1, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 1.5, 3.5},
    {"relu_squared", "bwd", {{1, 0}, {1, 0}}, {{1, 0}},
     0, 2, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 2.5, 5.5},
    {"rope", "fwd", {{1, 0}}, {{1, 0}},
     2, 3, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 3.3, 5.3},
    {"rope", "fwd_positions", {{1, 0}}, {{1, 0}},
     2, 3, 0, 0, 2, 0, TIGON_REDUCE_NONE, 0, 3.3, 5.3},
    {"rope", "bwd", {{1, 0}}, {{1, 0}},
     2, 3, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 3.3, 5.3},
    {"rope", "bwd_positions", {{1, 0}}, {{1, 0}},
     2, 3, 0, 0, 2, 0, TIGON_REDUCE_NONE, 0, 3.3, 5.3},
    {"embedding", "fwd", {{1, 0}}, {{1, 0}},
     0, 0, 0, 0, 2, 0, TIGON_REDUCE_NONE, 0, 0.0, 0.0},
    {"embedding", "bwd", {{1, 0}}, {{1, 0}},
     3, 4, 0, 0, 2, 0, TIGON_REDUCE_NONE, 0, 1.0, 3.0},
    {"softmax", "fwd", {{2, 0}}, {{1, 0}},
     1, 2, 0, 0, 0, 0, TIGON_REDUCE_ONLINE_MAX, 2, 5.0, 7.0},
    {"softmax", "fwd_mask", {{2, 0}, {2, 0}}, {{1, 0}},
     1, 2, 0, 0, 0, 0, TIGON_REDUCE_ONLINE_MAX, 2, 7.0, 10.0},
    {"softmax", "fwd_mask_f32", {{2, 0}, {2, 4}}, {{1, 0}},
     1, 2, 0, 0, 0, 0, TIGON_REDUCE_ONLINE_MAX, 2, 7.0, 9.0},
    {"softmax", "bwd", {{2, 0}, {2, 0}}, {{1, 0}},
     1, 3, 0, 0, 0, 0, TIGON_REDUCE_SUM, 1, 4.2, 7.2},
    {"cross_entropy", "fwd", {{1, 0}}, {{0, 0}},
     2, 3, 0, 0, 2, 2, TIGON_REDUCE_ONLINE_MAX, 7, 4.0, 5.0},
    {"cross_entropy", "fwd_dlogits", {{2, 0}}, {{1, 0}},
     2, 3, 0, 0, 2, 2, TIGON_REDUCE_ONLINE_MAX, 7, 6.5, 8.5},
    {"cross_entropy", "bwd", {{1, 0}}, {{1, 0}},
     2, 3, 0, 0, 3, 0, TIGON_REDUCE_NONE, 0, 3.0, 5.0},
    {"adamw", "step", {{1, 0}, {1, 0}, {1, 4}, {1, 4}}, {{1, 0}, {1, 4}, {1, 4}},
     2, 3, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 9.0, 11.0},
    {"adamw", "step_master", {{1, 4}, {1, 0}, {1, 4}, {1, 4}}, {{1, 0}, {1, 4}, {1, 4}, {1, 4}},
     2, 3, 0, 0, 0, 0, TIGON_REDUCE_NONE, 0, 9.0, 11.0},
    {"adamw", "clip", {{1, 0}}, {{0, 0}},
     1, 2, 0, 0, 0, 2, TIGON_REDUCE_SUM, 4, 2.1, 3.1},
};
/* clang-format on */

/* 4-byte words a row that the work needs on chip besides those that move: the sums of a loss, its label, its scales. */
static int words_on_chip(const char *op) { return strcmp(op, "cross_entropy") == 0 ? 44 : 0; }

/* Tables, in f32, of which every row of a stream has a row: cos and sin of a token. */
static int row_tables(const char *op) { return strcmp(op, "rope") == 0 ? 2 : 0; }

static tigon_walk walk_of(const row *r) {
  if (strcmp(r->op, "rope") == 0) return TIGON_WALK_HEADS;
  if (strcmp(r->op, "adamw") == 0) return TIGON_WALK_LINE;
  return strcmp(r->op, "embedding") == 0 && strcmp(r->entry, "bwd") == 0 ? TIGON_WALK_TABLE : TIGON_WALK_ROWS;
}

/* Of a mean. */
static unsigned totals_of(const row *r) {
  if (strcmp(r->op, "cross_entropy") != 0) return 0;
  return TIGON_TOTAL_LABELS | TIGON_TOTAL_MEAN | (strcmp(r->entry, "bwd") == 0 ? 0 : TIGON_TOTAL_LOSS);
}

#define TABLE_ROWS ((int)(sizeof table / sizeof *table))

static int copy_streams(const stream *from, uint8_t bytes, tigon_stream_footprint *to) {
  int count = 0;
  for (; count < TIGON_MAX_STREAMS && from[count].passes > 0; count++) {
    to[count].passes = from[count].passes;
    to[count].element_bytes = from[count].bytes ? from[count].bytes : bytes;
  }
  return count;
}

bool tigon_footprint_find(const char *op, const char *entry, tigon_dtype dtype, tigon_footprint *footprint) {
  const bool f32 = dtype == TIGON_F32;
  if (!op || !entry || !(f32 || dtype == TIGON_F16 || dtype == TIGON_BF16)) return false;
  const uint8_t bytes = f32 ? 4 : 2;
  for (int i = 0; i < TABLE_ROWS; i++) {
    const row *r = &table[i];
    if (strcmp(r->op, op) != 0 || strcmp(r->entry, entry) != 0) continue;
    *footprint = (tigon_footprint){.op = r->op,
                                   .entry = r->entry,
                                   .f32_temporaries = f32 ? r->temporaries_f32 : r->temporaries_16,
                                   .column_params = r->column_params,
                                   .column_param_bytes = bytes,
                                   .column_sums = r->column_sums,
                                   .row_scalars_in = r->words_in,
                                   .row_scalars_out = r->words_out,
                                   .row_scalars_on_chip = words_on_chip(r->op),
                                   .row_tables = row_tables(r->op),
                                   .row_table_bytes = 4,
                                   .walk = walk_of(r),
                                   .totals = totals_of(r),
                                   .label_words = 2,
                                   .reduce = r->reduce,
                                   .partials = r->partials,
                                   .vector_ops = f32 ? r->ops_f32 : r->ops_16};
    footprint->inputs = copy_streams(r->in, bytes, footprint->in);
    footprint->outputs = copy_streams(r->out, bytes, footprint->out);
    return true;
  }
  return false;
}

bool tigon_footprint_at(int index, const char **op, const char **entry) {
  if (index < 0 || index >= TABLE_ROWS) return false;
  *op = table[index].op;
  *entry = table[index].entry;
  return true;
}
