/* What every planned entry does to a row. Which tensors move, how wide they are, and which vectors and words there are, says the
 * entry's description; the table adds what its kernel keeps. */
#include <string.h>

#include "ascend/plan/plan.h"
#include "core/schema.h"

/* An entry without `streams` moves each tensor whose shape is rows and columns, reads vectors of columns, and has words for
 * each row. Pairs are for f32 and for 16-bit dtypes, which are cast to f32 first and take tiles of their own for that. */
typedef struct row {
  tigon_footprint base; /* what the description does not say */
  int temporaries[2];
  double ops
      [2]; /* vector operations of an element, in additions; exp counts 1, a division 2, a product with a scalar 0.5 */
  const char *streams; /* names: only these tensors move, and vectors and words are the footprint's */
  const char *others;  /* names: with partials outputs move twice and inputs once, where all else is the reverse */
  const char *wide;    /* names: f32 in any case */
  const char *without; /* names: tensors that another variant of the entry has */
  uint8_t reads;       /* reads of inputs if a row does not stay on chip; `others` have one less; 0: partials decide */
  bool only_f32;       /* there is no such entry of 16-bit dtypes */
} row;

/* A split hands over these words:
 *   layer_norm and group_norm forward   the count, the mean in two parts and M2
 *   their backward, and sparsemax's     two sums
 *   softmax                             the largest score and the sum
 *   cross_entropy                       max, reference, sum of exp, sum of z exp z, sum of z, argmax and the label's x
 *   adamw's clip                        the sum in two parts and their exponent
 * fused_add_rms_norm: pass 2 reads s back instead of x and residual.
 * modulated_rms_norm: a group's vectors are scale and shift besides w; its sums are those of dy * xhat and of dy.
 * swiglu, geglu: tiles as silu and gelu are worked out without a select; geglu's operations are those of tanh.
 * rope: the rows of cos and sin (half a head each) are within the f32 temporaries; words are the position ids.
 * embedding: the words are the index. Backward's output is the table, whose rows are others than those of dy.
 * sparsemax: a row that does not stay on chip is read for its largest x, for each round of tau, and for y. There is one round where
 *   the largest x of each chunk's columns have the support among them.
 * cross_entropy with its mean: the words are label (i64), loss and lse, backward's label and lse. Without dlogits the logits are
 *   read once in any case, because max and sum run online; only one split of a row then joins them. A temperature, a softcap and
 *   smoothing by weights need one or two temporaries more.
 * divergence of logits, jsd: largest, sums, terms and the gradient are a read each of a row that does not stay on chip. The words
 *   are the loss and stats.
 * topk_divergence: largest, sums and the gradient are a read each. An entry is an id of two words, its target as f32, its place in
 *   the order of columns and its logit. The scalar pipe's work on it does not count as operations per element.
 * vocab_parallel_cross_entropy: cross_entropy's kernel, whose words are stats. An element of merge is a shard's stats of a row, five
 *   words; with its mean the words are label (i64), loss, lse and z-loss.
 * adamw: a tensor of the list is read and written; with an f32 master the parameter is only written. */
#define TOTALS (TIGON_TOTAL_LABELS | TIGON_TOTAL_MEAN)
#define ENTRY(name, slot) .base.op = name, .base.entry = slot
#define RANGES .base.partials = 1, .base.ranges = true
#define QUANTISED .base.partials = 1, .base.row_scalars_on_chip = 1, .base.whole = true, .reads = 3 /* rstd */
#define ROPE                                                                                            \
  .base.row_tables = 2, .base.row_table_bytes = 4, .base.walk = TIGON_WALK_HEADS, .streams = "q q_out", \
  .temporaries = {2, 3}, .ops = {3.3, 5.3}
#define LOSS .base.row_scalars_on_chip = 44, .base.label_words = 2 /* the sums, the label, its scales */
#define LOSS_FWD                                                                                       \
  LOSS, .base.row_scalars_in = 2, .base.row_scalars_out = 2, .base.totals = TOTALS | TIGON_TOTAL_LOSS, \
        .base.partials = 7
#define DIVERGES .base.row_scalars_on_chip = 32, .base.whole = true, .temporaries = {7, 7}
#define TOPK                                                                                            \
  .base.row_scalars_on_chip = 48, .base.whole = true, .base.row_tables = 1, .base.row_table_bytes = 12, \
  .base.row_table_words = 5, .temporaries = {2, 3}
static const row table[] = {
    {ENTRY("rms_norm", "fwd"), .base.partials = 1, .temporaries = {1, 2}, .ops = {3.7, 7.7}, .without = "z"},
    {ENTRY("rms_norm", "fwd_gate"), .base.partials = 1, .temporaries = {2, 4}, .ops = {12.2, 18.2}, .others = "z"},
    {ENTRY("rms_norm", "quantised"), QUANTISED, .temporaries = {3, 3}, .ops = {36.0, 40.0}, .without = "z"},
    {ENTRY("rms_norm", "quantised_gate"), QUANTISED, .temporaries = {3, 4}, .ops = {44.5, 50.5}, .others = "z"},
    {ENTRY("rms_norm", "bwd"), .base.partials = 1, .temporaries = {2, 3}, .ops = {7.8, 10.8}, .without = "z dz"},
    {ENTRY("rms_norm", "bwd_gate"), .base.partials = 1, .temporaries = {3, 7}, .ops = {35.8, 42.8}},
    {ENTRY("fused_add_rms_norm", "fwd"), .base.partials = 1, .temporaries = {1, 2}, .ops = {4.8, 10.8},
     .others = "x residual s"},
    {ENTRY("fused_add_rms_norm", "bwd"), .base.partials = 1, .temporaries = {2, 3}, .ops = {8.8, 12.8}, .others = "ds"},
    {ENTRY("layer_norm", "fwd"), .base.partials = 4, .temporaries = {1, 2}, .ops = {6.5, 8.5}},
    {ENTRY("layer_norm", "bwd"), .base.partials = 2, .temporaries = {2, 3}, .ops = {11.0, 14.0}},
    {ENTRY("group_norm", "fwd"), .base.partials = 4, .temporaries = {1, 2}, .ops = {5.0, 9.0}},
    {ENTRY("group_norm", "bwd"), .base.partials = 2, .temporaries = {2, 3}, .ops = {8.0, 11.0}},
    {ENTRY("modulated_rms_norm", "fwd"), RANGES, .base.column_params = 2, .temporaries = {1, 2}, .ops = {4.7, 8.7},
     .without = "scale shift"},
    {ENTRY("modulated_rms_norm", "bwd"), RANGES, .base.column_params = 1, .base.column_sums = 2, .temporaries = {2, 3},
     .ops = {8.8, 11.8}, .without = "scale dw dscale dshift"},
    {ENTRY("dyt", "fwd"), .base.row_scalars_on_chip = 6, .temporaries = {2, 4}, .ops = {22.0, 24.0}},
    {ENTRY("dyt", "bwd"), .base.row_scalars_on_chip = 6, .temporaries = {3, 6}, .ops = {36.0, 39.0}},
    {ENTRY("poly_norm", "fwd"), .base.partials = 4, .base.row_scalars_on_chip = 16, .temporaries = {2, 3},
     .ops = {13.5, 15.5}},
    {ENTRY("poly_norm", "bwd"), .base.partials = 4, .base.row_scalars_on_chip = 20, .temporaries = {2, 5},
     .ops = {26.0, 29.0}},
    {ENTRY("swiglu", "fwd"), .temporaries = {1, 4}, .ops = {8.5, 11.5}},
    {ENTRY("swiglu", "bwd"), .temporaries = {3, 8}, .ops = {18.0, 23.0}},
    {ENTRY("geglu", "fwd"), .temporaries = {4, 7}, .ops = {33.0, 16.5}},
    {ENTRY("geglu", "bwd"), .temporaries = {3, 8}, .ops = {45.0, 31.0}},
    {ENTRY("relu_squared", "fwd"), .temporaries = {0, 1}, .ops = {1.5, 3.5}},
    {ENTRY("relu_squared", "bwd"), .temporaries = {0, 2}, .ops = {2.5, 5.5}},
    {ENTRY("scale", "fwd"), .base.row_scalars_on_chip = 6, .base.column_param_bytes = 4, .temporaries = {0, 1},
     .ops = {1.0, 3.0}},
    {ENTRY("rope", "fwd"), ROPE},
    {ENTRY("rope", "fwd_positions"), ROPE, .base.row_scalars_in = 2},
    {ENTRY("rope", "bwd"), ROPE},
    {ENTRY("rope", "bwd_positions"), ROPE, .base.row_scalars_in = 2},
    {ENTRY("embedding", "fwd"), .base.row_scalars_in = 2, .streams = "table y"},
    {ENTRY("embedding", "bwd"), .temporaries = {3, 4}, .ops = {1.0, 3.0}, .base.row_scalars_in = 2,
     .base.walk = TIGON_WALK_TABLE, .streams = "dy dtable"},
    {ENTRY("softmax", "fwd"), .base.partials = 2, .temporaries = {1, 2}, .ops = {5.0, 7.0}},
    {ENTRY("softmax", "fwd_mask"), .base.partials = 2, .temporaries = {1, 2}, .ops = {7.0, 10.0},
     .streams = "x mask y"},
    {ENTRY("softmax", "fwd_mask_f32"), .base.partials = 2, .temporaries = {1, 2}, .ops = {7.0, 9.0},
     .streams = "x mask y", .wide = "mask"},
    {ENTRY("softmax", "bwd"), .base.partials = 1, .temporaries = {1, 3}, .ops = {4.2, 7.2}},
    {ENTRY("sparsemax", "fwd"), .base.row_scalars_on_chip = 24, .base.whole = true, .temporaries = {3, 4},
     .ops = {34.0, 37.0}, .reads = 3},
    {ENTRY("sparsemax", "bwd"), .base.partials = 2, .temporaries = {3, 5}, .ops = {17.0, 20.0}},
    {ENTRY("cross_entropy", "fwd"), .temporaries = {2, 3}, .ops = {4.0, 5.0}, LOSS_FWD, .streams = "logits",
     .others = "logits"},
    {ENTRY("cross_entropy", "fwd_dlogits"), .temporaries = {2, 3}, .ops = {6.5, 8.5}, LOSS_FWD,
     .streams = "logits dlogits"},
    {ENTRY("cross_entropy", "bwd"), .temporaries = {2, 3}, .ops = {3.0, 5.0}, LOSS, .base.row_scalars_in = 3,
     .base.totals = TOTALS, .streams = "logits dlogits"},
    {ENTRY("divergence", "fwd"), DIVERGES, .ops = {85.0, 93.0}, .base.row_scalars_out = 4,
     .base.totals = TIGON_TOTAL_LOSS, .streams = "input target", .reads = 3},
    {ENTRY("divergence", "fwd_dinput"), DIVERGES, .ops = {135.0, 148.0}, .base.row_scalars_out = 4,
     .base.totals = TIGON_TOTAL_LOSS, .streams = "input target dinput", .reads = 4},
    {ENTRY("divergence", "bwd"), DIVERGES, .ops = {55.0, 60.0}, .base.row_scalars_in = 3,
     .streams = "input target dinput", .reads = 1},
    {ENTRY("topk_divergence", "fwd"), TOPK, .ops = {6.0, 8.0}, .base.row_scalars_out = 4,
     .base.totals = TIGON_TOTAL_LOSS, .streams = "input", .reads = 2},
    {ENTRY("topk_divergence", "fwd_dinput"), TOPK, .ops = {17.0, 22.0}, .base.row_scalars_out = 4,
     .base.totals = TIGON_TOTAL_LOSS, .streams = "input dinput", .reads = 3},
    {ENTRY("topk_divergence", "bwd"), TOPK, .ops = {11.0, 14.0}, .base.row_scalars_in = 3, .streams = "input dinput",
     .reads = 1},
    {ENTRY("vocab_parallel_cross_entropy", "stats"), .temporaries = {2, 3}, .ops = {4.0, 5.0}, LOSS,
     .base.row_scalars_in = 2, .base.row_scalars_out = 5, .base.partials = 7, .streams = "logits", .others = "logits"},
    {ENTRY("vocab_parallel_cross_entropy", "merge"), .ops = {55.0}, .base.walk = TIGON_WALK_SHARDS,
     .base.row_scalars_in = 2, .base.row_scalars_out = 3, .base.label_words = 2,
     .base.totals = TOTALS | TIGON_TOTAL_LOSS, .streams = "stats", .only_f32 = true},
    {ENTRY("vocab_parallel_cross_entropy", "bwd"), .temporaries = {2, 3}, .ops = {3.0, 5.0}, LOSS,
     .base.row_scalars_in = 3, .base.totals = TOTALS, .streams = "logits dlogits"},
    {ENTRY("adamw", "step"), .temporaries = {2, 3}, .ops = {9.0, 11.0}, .base.walk = TIGON_WALK_LINE,
     .streams = "param grad exp_avg exp_avg_sq"},
    {ENTRY("adamw", "step_master"), .temporaries = {2, 3}, .ops = {9.0, 11.0}, .base.walk = TIGON_WALK_LINE,
     .streams = "param master grad exp_avg exp_avg_sq"},
    {ENTRY("adamw", "clip"), .base.partials = 4, .temporaries = {1, 2}, .ops = {2.1, 3.1}, .base.walk = TIGON_WALK_LINE,
     .base.row_scalars_out = 2, .streams = "grads", .others = "grads"},
};

enum { TABLE_ROWS = sizeof table / sizeof *table };

/* A variant of an entry ("fwd_mask") has its description. */
static const tigon_schema *schema_of(const tigon_footprint *f) {
  const size_t length = strcspn(f->entry, "_");
  const tigon_schema *schema;
  for (int i = 0; (schema = tigon_schema_at(i)); i++) {
    const bool same = strlen(schema->entry) == length && strncmp(schema->entry, f->entry, length) == 0;
    if (same && strcmp(schema->op, f->op) == 0) return schema;
  }
  return NULL;
}

static int digit(char c) { return c >= '1' && c <= '9' ? c - '0' : 0; }

/* Words of an element: the last extent of "kn5". */
static int element_words(const char *shape) {
  const int last = digit(shape[strlen(shape) - 1]);
  return last ? last : 1;
}

static void add_stream(tigon_footprint *f, const row *r, const tigon_field *field, uint8_t bytes, bool out) {
  const bool only_f32 = field->dtypes == TIGON_BIT(TIGON_F32) || tigon_is_listed(r->wide, field->name);
  const bool of_bytes = field->dtypes & TIGON_BIT(TIGON_I8);
  const int size = (only_f32 ? 4 : of_bytes ? 1 : bytes) * element_words(field->shape);
  const bool other = tigon_is_listed(r->others, field->name), twice = f->partials > 0 && out == other;
  const uint8_t passes = !out && r->reads ? (uint8_t)(r->reads - other) : twice ? 2 : 1;
  f->stream[f->inputs + f->outputs] = (tigon_stream_footprint){out, (uint8_t)size, passes};
  *(out ? &f->outputs : &f->inputs) += 1;
}

/* The role of a tensor, by its pattern (tigon/schema.h). "*c" moves. "c" is a vector of columns. A digit counts numbers that all
 * rows share. "r" and others without columns are words of a row. */
static void add_tensor(tigon_footprint *f, const row *r, const tigon_field *field, uint8_t bytes) {
  const char *shape = field->shape;
  const bool out = field->flags & TIGON_FIELD_OUT, each = field->flags & TIGON_FIELD_EACH;
  const int count = digit(shape[0]), last = shape[0] ? digit(shape[1]) : 0;
  if (tigon_is_listed(r->without, field->name)) return;
  if (r->streams) {
    if (!tigon_is_listed(r->streams, field->name)) return;
    const bool only_written = strcmp(field->name, "param") == 0 && tigon_is_listed(r->streams, "master");
    if (out && each && !only_written) add_stream(f, r, field, bytes, false);
    add_stream(f, r, field, bytes, out);
  } else if (shape[0] == '?') {
    return;
  } else if (count > 0) {
    *(out ? &f->number_sums : &f->numbers) += count;
  } else if (strpbrk(shape, "*&") && shape[1] >= 'a') {
    add_stream(f, r, field, bytes, out);
  } else if (shape[0] >= 'a' && shape[0] != 'r' && !shape[1]) {
    *(out ? &f->column_sums : &f->column_params) += 1;
  } else {
    *(out ? &f->row_scalars_out : &f->row_scalars_in) += field->dtypes & TIGON_BIT(TIGON_I64) ? 2 : last ? last : 1;
  }
}

bool tigon_footprint_find(const char *op, const char *entry, tigon_dtype dtype, tigon_footprint *footprint) {
  const bool f32 = dtype == TIGON_F32;
  if (!op || !entry || !(f32 || dtype == TIGON_F16 || dtype == TIGON_BF16)) return false;
  for (int i = 0; i < TABLE_ROWS; i++) {
    const row *r = &table[i];
    if (strcmp(r->base.op, op) != 0 || strcmp(r->base.entry, entry) != 0 || (r->only_f32 && !f32)) continue;
    const tigon_schema *schema = schema_of(&r->base);
    *footprint = r->base;
    if (!footprint->column_param_bytes) footprint->column_param_bytes = f32 ? 4 : 2;
    footprint->f32_temporaries = r->temporaries[!f32];
    footprint->vector_ops = r->ops[!f32];
    for (int k = 0; k < schema->count; k++)
      if (schema->fields[k].kind == TIGON_FIELD_TENSOR) add_tensor(footprint, r, &schema->fields[k], f32 ? 4 : 2);
    return true;
  }
  return false;
}

bool tigon_footprint_at(int index, const char **op, const char **entry) {
  if (index < 0 || index >= TABLE_ROWS) return false;
  *op = table[index].base.op;
  *entry = table[index].base.entry;
  return true;
}
