/* What every planned op does to a row: one line each, with all operands present. */
#include <string.h>

#include "ascend/plan/plan.h"

/* A stream of the table: how often it moves when the row does not stay on chip, and the bytes of its element: 0 is the
 * op's dtype. */
typedef struct stream {
  uint8_t passes, bytes;
} stream;
#define ONCE \
  { 1, 0 }
#define TWICE \
  { 2, 0 }
#define ONCE_F32 \
  { 1, 4 }
#define TWICE_F32 \
  { 2, 4 }

/* Pairs are for f32 and for 16-bit dtypes, which are cast to f32 first and take tiles of their own for that. */
typedef struct row {
  const char *op, *entry;
  stream in[TIGON_MAX_STREAMS], out[TIGON_MAX_STREAMS]; /* ended by passes 0 */
  int temporaries[2];
  int column_params, column_sums;
  int words_in, words_out; /* 4-byte words a row */
  int words_on_chip;       /* that the work needs besides: the sums of a loss, its label, its scales */
  int row_tables;          /* in f32: cos and sin of a token */
  tigon_walk walk;
  unsigned totals; /* of a mean */
  tigon_reduce reduce;
  int partials;
  double ops
      [2]; /* vector operations, in additions of one element; exp counts 1, a division 2, multiplication by a scalar 0.5 */
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
    {.op = "rms_norm", .entry = "fwd", .in = {TWICE}, .out = {ONCE},
     .temporaries = {1, 2}, .column_params = 1, .words_out = 1, .reduce = TIGON_REDUCE_SUM, .partials = 1, .ops = {3.7, 7.7}},
    {.op = "rms_norm", .entry = "bwd", .in = {TWICE, TWICE}, .out = {ONCE},
     .temporaries = {2, 3}, .column_params = 1, .column_sums = 1, .words_in = 1, .reduce = TIGON_REDUCE_SUM, .partials = 1, .ops = {7.8, 10.8}},
    {.op = "fused_add_rms_norm", .entry = "fwd", .in = {ONCE, ONCE}, .out = {TWICE, ONCE},
     .temporaries = {1, 2}, .column_params = 1, .words_out = 1, .reduce = TIGON_REDUCE_SUM, .partials = 1, .ops = {4.8, 10.8}},
    {.op = "fused_add_rms_norm", .entry = "bwd", .in = {TWICE, ONCE, TWICE}, .out = {ONCE},
     .temporaries = {2, 3}, .column_params = 1, .column_sums = 1, .words_in = 1, .reduce = TIGON_REDUCE_SUM, .partials = 1, .ops = {8.8, 12.8}},
    {.op = "layer_norm", .entry = "fwd", .in = {TWICE}, .out = {ONCE},
     .temporaries = {1, 2}, .column_params = 2, .words_out = 2, .reduce = TIGON_REDUCE_MOMENTS, .partials = 4, .ops = {6.5, 8.5}},
    {.op = "layer_norm", .entry = "bwd", .in = {TWICE, TWICE}, .out = {ONCE},
     .temporaries = {2, 3}, .column_params = 1, .column_sums = 2, .words_in = 2, .reduce = TIGON_REDUCE_TWO_SUMS, .partials = 2, .ops = {11.0, 14.0}},
    {.op = "group_norm", .entry = "fwd", .in = {TWICE}, .out = {ONCE},
     .temporaries = {1, 2}, .column_params = 2, .words_out = 2, .reduce = TIGON_REDUCE_MOMENTS, .partials = 4, .ops = {5.0, 9.0}},
    {.op = "group_norm", .entry = "bwd", .in = {TWICE, TWICE}, .out = {ONCE},
     .temporaries = {2, 3}, .column_params = 1, .column_sums = 2, .words_in = 2, .reduce = TIGON_REDUCE_TWO_SUMS, .partials = 2, .ops = {8.0, 11.0}},
    {.op = "swiglu", .entry = "fwd", .in = {ONCE, ONCE}, .out = {ONCE},
     .temporaries = {1, 4}, .ops = {8.5, 11.5}},
    {.op = "swiglu", .entry = "bwd", .in = {ONCE, ONCE, ONCE}, .out = {ONCE, ONCE},
     .temporaries = {3, 8}, .ops = {18.0, 23.0}},
    {.op = "geglu", .entry = "fwd", .in = {ONCE, ONCE}, .out = {ONCE},
     .temporaries = {4, 7}, .ops = {33.0, 16.5}},
    {.op = "geglu", .entry = "bwd", .in = {ONCE, ONCE, ONCE}, .out = {ONCE, ONCE},
     .temporaries = {3, 8}, .ops = {45.0, 31.0}},
    {.op = "relu_squared", .entry = "fwd", .in = {ONCE}, .out = {ONCE},
     .temporaries = {0, 1}, .ops = {1.5, 3.5}},
    {.op = "relu_squared", .entry = "bwd", .in = {ONCE, ONCE}, .out = {ONCE},
     .temporaries = {0, 2}, .ops = {2.5, 5.5}},
    {.op = "rope", .entry = "fwd", .in = {ONCE}, .out = {ONCE},
     .temporaries = {2, 3}, .row_tables = 2, .walk = TIGON_WALK_HEADS, .ops = {3.3, 5.3}},
    {.op = "rope", .entry = "fwd_positions", .in = {ONCE}, .out = {ONCE},
     .temporaries = {2, 3}, .words_in = 2, .row_tables = 2, .walk = TIGON_WALK_HEADS, .ops = {3.3, 5.3}},
    {.op = "rope", .entry = "bwd", .in = {ONCE}, .out = {ONCE},
     .temporaries = {2, 3}, .row_tables = 2, .walk = TIGON_WALK_HEADS, .ops = {3.3, 5.3}},
    {.op = "rope", .entry = "bwd_positions", .in = {ONCE}, .out = {ONCE},
     .temporaries = {2, 3}, .words_in = 2, .row_tables = 2, .walk = TIGON_WALK_HEADS, .ops = {3.3, 5.3}},
    {.op = "embedding", .entry = "fwd", .in = {ONCE}, .out = {ONCE},
     .words_in = 2},
    {.op = "embedding", .entry = "bwd", .in = {ONCE}, .out = {ONCE},
     .temporaries = {3, 4}, .words_in = 2, .walk = TIGON_WALK_TABLE, .ops = {1.0, 3.0}},
    {.op = "softmax", .entry = "fwd", .in = {TWICE}, .out = {ONCE},
     .temporaries = {1, 2}, .reduce = TIGON_REDUCE_ONLINE_MAX, .partials = 2, .ops = {5.0, 7.0}},
    {.op = "softmax", .entry = "fwd_mask", .in = {TWICE, TWICE}, .out = {ONCE},
     .temporaries = {1, 2}, .reduce = TIGON_REDUCE_ONLINE_MAX, .partials = 2, .ops = {7.0, 10.0}},
    {.op = "softmax", .entry = "fwd_mask_f32", .in = {TWICE, TWICE_F32}, .out = {ONCE},
     .temporaries = {1, 2}, .reduce = TIGON_REDUCE_ONLINE_MAX, .partials = 2, .ops = {7.0, 9.0}},
    {.op = "softmax", .entry = "bwd", .in = {TWICE, TWICE}, .out = {ONCE},
     .temporaries = {1, 3}, .reduce = TIGON_REDUCE_SUM, .partials = 1, .ops = {4.2, 7.2}},
    {.op = "cross_entropy", .entry = "fwd", .in = {ONCE},
     .temporaries = {2, 3}, .words_in = 2, .words_out = 2, .words_on_chip = 44, .totals = TIGON_TOTAL_LABELS | TIGON_TOTAL_MEAN | TIGON_TOTAL_LOSS, .reduce = TIGON_REDUCE_ONLINE_MAX, .partials = 7, .ops = {4.0, 5.0}},
    {.op = "cross_entropy", .entry = "fwd_dlogits", .in = {TWICE}, .out = {ONCE},
     .temporaries = {2, 3}, .words_in = 2, .words_out = 2, .words_on_chip = 44, .totals = TIGON_TOTAL_LABELS | TIGON_TOTAL_MEAN | TIGON_TOTAL_LOSS, .reduce = TIGON_REDUCE_ONLINE_MAX, .partials = 7, .ops = {6.5, 8.5}},
    {.op = "cross_entropy", .entry = "bwd", .in = {ONCE}, .out = {ONCE},
     .temporaries = {2, 3}, .words_in = 3, .words_on_chip = 44, .totals = TIGON_TOTAL_LABELS | TIGON_TOTAL_MEAN, .ops = {3.0, 5.0}},
    {.op = "adamw", .entry = "step", .in = {ONCE, ONCE, ONCE_F32, ONCE_F32}, .out = {ONCE, ONCE_F32, ONCE_F32},
     .temporaries = {2, 3}, .walk = TIGON_WALK_LINE, .ops = {9.0, 11.0}},
    {.op = "adamw", .entry = "step_master", .in = {ONCE_F32, ONCE, ONCE_F32, ONCE_F32}, .out = {ONCE, ONCE_F32, ONCE_F32, ONCE_F32},
     .temporaries = {2, 3}, .walk = TIGON_WALK_LINE, .ops = {9.0, 11.0}},
    {.op = "adamw", .entry = "clip", .in = {ONCE},
     .temporaries = {1, 2}, .words_out = 2, .walk = TIGON_WALK_LINE, .reduce = TIGON_REDUCE_SUM, .partials = 4, .ops = {2.1, 3.1}},
};
/* clang-format on */

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
                                   .f32_temporaries = r->temporaries[!f32],
                                   .column_params = r->column_params,
                                   .column_param_bytes = bytes,
                                   .column_sums = r->column_sums,
                                   .row_scalars_in = r->words_in,
                                   .row_scalars_out = r->words_out,
                                   .row_scalars_on_chip = r->words_on_chip,
                                   .row_tables = r->row_tables,
                                   .row_table_bytes = 4,
                                   .walk = r->walk,
                                   .totals = r->totals,
                                   .label_words = 2,
                                   .reduce = r->reduce,
                                   .partials = r->partials,
                                   .vector_ops = r->ops[!f32]};
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
