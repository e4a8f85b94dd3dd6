/* The tiling planner of Ascend devices: a pure function of an op's footprint, a shape and a device description. It touches no data
 * and allocates nothing. `tigon plan` prints its answer. Launchers ask for a call's plan by ascend_plan() (plans.h), and kernels
 * take grid, tiles and splits from it.
 *
 * Kernels over rows all use a plan in this way (rope, adamw and embedding cut their work differently):
 *   for (t = program; t < plan.tasks; t += plan.grid)
 *     tigon_plan_task(&plan, t, &task)                      rows [row_begin, row_end), columns [col_begin, col_end)
 *     rows in steps of rows_per_tile, columns in steps of cols_per_tile, both cut off at the task's end
 * Cases A to D go over the task once. E and F go over it `passes` times: the first pass reduces, and the last one stores. */
#ifndef TIGON_PLAN_H
#define TIGON_PLAN_H

#include <stdbool.h>
#include <tigon/base.h>

#include "slabs.h"

/* ---- device description (device.c has the table) ---- */

#define TIGON_BANDWIDTH_POINTS 8

typedef struct tigon_device_desc {
  char name[32];            /* "ascend910b4" */
  int64_t onchip_bytes;     /* usable bytes of a core's Unified Buffer */
  int64_t cores;            /* vector cores: each runs one program of a launch, which loops over tasks */
  int64_t grid_limit;       /* most programs in one launch */
  int64_t onchip_alignment; /* bytes, a power of two: every on-chip tile starts and ends on it */
  int64_t memory_alignment; /* bytes, a power of two: transfers at full rate start on it */
  int64_t transfer_bytes;   /* bytes: smallest transfer at full rate */
  int64_t vector_bytes;     /* bytes of one vector instruction (tail unit) */
  int buffers;              /* buffers per stream, which let load, work and store overlap: 1 or 2 */
  /* global-memory bandwidth of one core when n cores are active, GB/s; points in ascending n, linear between them */
  struct {
    int64_t cores;
    double gbps;
  } bandwidth[TIGON_BANDWIDTH_POINTS];
  int64_t listed;     /* embedding backward, if each core searches all indices for its own table rows: the most table
                               rows, and positions, that it lists at a time, 42 on-chip bytes each */
  double cached_gbps; /* bandwidth of one core from the cache that all cores share (L2), GB/s */
  double vector_gops; /* f32 vector operations per second and core, in 1e9 elements */
  double launch_us;   /* cost of a launch */
  double start_us_per_core; /* cost of each core that a launch uses */
  double tile_us;           /* fixed cost of a tile: instruction starts, flags */
} tigon_device_desc;

/* The description by name, in any case ("ascend910b4" or "910B4"); NULL if the table has none. */
const tigon_device_desc *tigon_device_desc_find(const char *name);
/* The i-th entry of the table, NULL past its end. */
const tigon_device_desc *tigon_device_desc_at(int index);
/* GB/s of one core when `active` cores are active: the device's points, linear between them, constant outside them. */
double tigon_device_bandwidth(const tigon_device_desc *device, int64_t active);

/* ---- the footprint: what an op moves and keeps per row ---- */

/* How an op goes over its tensors. */
typedef enum tigon_walk {
  TIGON_WALK_ROWS,
  TIGON_WALK_HEADS, /* rope: a tile is whole heads of some tokens, either queries or keys */
  TIGON_WALK_LINE,  /* adamw: ranges of whole tiles of elements */
  TIGON_WALK_TABLE, /* embedding bwd: the row words are indices; a row of the output is the sum of the input's rows with
                       its index; outputs have `out_rows` rows */
  TIGON_WALK_SHARDS, /* vocab_parallel_cross_entropy merge: a tile is a shard's stats of some rows; columns are shards */
} tigon_walk;

/* Sums over all rows that a loss needs. Each takes two launches: in the first every block leaves its part, and in the second one
 * block adds the parts. */
enum {
  TIGON_TOTAL_LABELS = 1, /* the labels that count, and whether one is out of range */
  TIGON_TOTAL_MEAN = 2,   /* with LABELS: 1 / their number, a word for the gradient and for the loss */
  TIGON_TOTAL_LOSS = 4,
};

#define TIGON_MAX_STREAMS 8

/* One tensor [rows, cols] that moves through the chip. */
typedef struct tigon_stream_footprint {
  bool out;
  uint8_t element_bytes;
  /* How often it moves if the row does not stay on chip: an input's reads, or an output's one write. One more if the second pass
   * reads the output back (s of fused_add_rms_norm). */
  uint8_t passes;
} tigon_stream_footprint;

/* The footprint of one entry of an op. footprints.c has it for a call with all operands. A launcher then changes dtypes
 * (row_table_bytes) and words per row (row words, totals) to those of its call. */
typedef struct tigon_footprint {
  const char *op;    /* "rms_norm" */
  const char *entry; /* "fwd" */
  int inputs, outputs;
  tigon_stream_footprint stream[TIGON_MAX_STREAMS]; /* [inputs + outputs], in the order of the description */
  int f32_temporaries;                              /* f32 tiles that the work needs besides the streams */
  int column_params;                                /* [cols] vectors read by every row (w, b), held on chip in f32 */
  int column_param_bytes;                           /* bytes of one element of them in memory */
  int column_sums;                                  /* [cols] f32 accumulators over rows (dw, db) */
  int numbers;                         /* elements besides those that every program reads (alpha), as column_params */
  int number_sums;                     /* sums over all elements; each task leaves a part in f32 (dalpha) */
  int row_scalars_in, row_scalars_out; /* 4-byte words per row in memory (rstd, lse, loss; an i64 label counts 2) */
  int row_scalars_on_chip;             /* further 4-byte words per row that the work needs */
  int row_tables; /* [rows, table_cols] tables; all units of a row share a table's row (rope: cos, sin); entries and ids
                          of topk_divergence count as one */
  int row_table_bytes; /* bytes of one element of them in memory */
  int row_table_words; /* 4-byte words that one element takes on chip, in a walk over rows */
  tigon_walk walk;
  bool whole; /* a row is not split over cores */
  /* modulated_rms_norm: groups are ranges of rows, whose words lie end to end. All groups share one column vector (w), and one more
   * sum is over all groups (dw). */
  bool ranges;
  unsigned totals;   /* TIGON_TOTAL_ or-ed */
  int label_words;   /* 4-byte words of a row's label, which totals read again */
  int partials;      /* 4-byte words per row that one split hands over (case F); 0 without a reduction */
  double vector_ops; /* vector operations per element, for the predicted time */
} tigon_footprint;

/* Fills *footprint for an op and an entry of src/ops.def. These further entries are known:
 *   cross_entropy "fwd_dlogits", divergence and topk_divergence "fwd_dinput" (loss and gradient in one call),
 *   softmax "fwd_mask", "fwd_mask_f32", rms_norm "fwd_gate", "quantised_gate", "bwd_gate",
 *   rope "fwd_positions", "bwd_positions", adamw "step_master".
 * Returns false, with *footprint untouched, if the entry has no footprint, or none for this dtype, or if the dtype is none of
 * f32, f16, bf16. */
bool tigon_footprint_find(const char *op, const char *entry, tigon_dtype dtype, tigon_footprint *footprint);
/* True if rows do not matter: no reduction, no vectors, words or tables. If the rows of such an op lie end to end, the front
 * passes them as one row. */
TIGON_SHARED bool tigon_footprint_is_flat(const tigon_footprint *f) {
  return f->partials == 0 && f->column_params == 0 && f->column_sums == 0 && f->row_scalars_in == 0 &&
         f->row_scalars_out == 0 && f->row_tables == 0 && !f->whole;
}
/* The i-th op and entry that tigon_footprint_find() knows. Entries of one op are neighbours. False past the end. */
bool tigon_footprint_at(int index, const char **op, const char **entry);

/* ---- the plan ---- */

typedef enum tigon_plan_case {
  TIGON_CASE_AUTO = 0,
  TIGON_CASE_A, /* flat elementwise */
  TIGON_CASE_B, /* several short rows per tile */
  TIGON_CASE_C, /* a row fits, double-buffered, one pass */
  TIGON_CASE_D, /* the row is cached in its own dtype and worked on in chunks, still with one read */
  TIGON_CASE_E, /* the row does not fit: passes over column chunks; with column sums the last pass has the column panel
                   outside and the rows inside */
  TIGON_CASE_F, /* few huge rows: a row is split across cores, partials combined in index order */
  TIGON_CASE_G, /* rows in groups (group_norm), cut as one of B to F: plan.cut */
} tigon_plan_case;

/* The last way to cut. G is cut in one of these ways. */
#define TIGON_CASE_LAST TIGON_CASE_F
/* A case as a bit of a set. */
#define TIGON_CASE_BIT(plan_case) (1u << (plan_case))

/* The properties of a call that its footprint does not have. */
typedef struct tigon_call_words {
  uint8_t given;          /* 0: words and totals are the footprint's */
  uint8_t in, out, label; /* 4-byte words of a row; those of its label */
  uint8_t totals;         /* TIGON_TOTAL_ or-ed */
  uint8_t temporaries;    /* f32 tiles besides the footprint's */
  uint8_t table_bytes;    /* bytes of an element of the row tables; 0: the footprint's */
  uint8_t tables;         /* row tables; 0: the footprint's */
} tigon_call_words;

/* Case G: group_norm's x [B, C, S] has B * groups rows. A row is C / groups channels, each a run of S columns. Each of the
 * `groups` rows of a batch has its own column vectors and accumulators, with one element per run of `run` columns. Rows are
 * processed group by group: row q is batch q % B of group q / B. A tile does not cross a group. With accumulators a task does not
 * either. Slabs are [slabs, column_sums, groups * cols / run]. In modulated_rms_norm the rows that share a scale are a group,
 * and the run is 1.
 * The struct has no padding, because it is the key of remembered plans (plans.c). */
typedef struct tigon_plan_request {
  const tigon_footprint *footprint;
  const tigon_device_desc *device;
  const char *op, *entry; /* in place of both, for a launcher's call: literals, which are compared by address */
  tigon_dtype dtype;      /* the dtype of such a call */
  tigon_plan_case force; /* TIGON_CASE_AUTO: the planner chooses; for a grouped op, the cut. Only for walks over rows */
  int64_t rows, cols;
  int64_t out_rows;    /* TIGON_WALK_TABLE: rows of the outputs (the table); 0: as many as `rows` */
  int64_t groups, run; /* 0, or case G */
  int64_t col_unit;    /* columns that must stay together in a tile (rope: the head size); 0 means 1 */
  int64_t table_cols;  /* columns of each of the footprint's row_tables (rope: rotary_dim / 2; topk_divergence: k) */
  int64_t key_cols;    /* rope: how many of the columns are the keys' */
  int64_t sequence;    /* rope: rows of a sequence; 0: all rows are one sequence */
  tigon_call_words words;
} tigon_plan_request;

typedef struct tigon_plan {
  tigon_status status;     /* OK; SCRATCH: no case fits; INVALID: the request, or a device without a needed size */
  tigon_plan_case chosen;  /* AUTO when there is nothing to do (rows or cols 0) or status is not OK */
  tigon_plan_case cut;     /* equals `chosen`, except for G, where it names the case (B to F) used for the rows */
  int64_t rows, cols;      /* as processed: the request's; for a line 1 and rows * cols; for a table its rows */
  int64_t groups;          /* the request's, or 1 */
  int64_t grid;            /* programs */
  int64_t tasks;           /* program p runs tasks p, p + grid, ...: tasks >= grid, each bounded; row_tasks * splits */
  int64_t row_tasks;       /* ranges of rows */
  int64_t splits;          /* ranges of columns: tasks that share a row (cases A and F), else 1 */
  int64_t rows_per_tile;   /* rows in one on-chip tile */
  int64_t cols_per_tile;   /* columns in one on-chip tile, a multiple of the alignment (or the whole row) */
  int64_t col_tiles;       /* column tiles of a task, for its widest split */
  int64_t col_unit;        /* columns: splits and tiles begin on multiples of it */
  int buffers;             /* buffers of each stream on chip */
  int row_buffers;         /* case D: buffers of the cached row, 1 or 2; else 0 */
  int passes;              /* how often a task reads its rows: 1 means that bytes_moved is bytes_min */
  bool full_tiles;         /* cols is a multiple of the vector, and so is every tile's width: no mask is needed */
  int64_t slabs;           /* ordered partial sums of each column accumulator; 0 without column sums. Row range i of
                            row_tasks makes slab i, [slabs, column_sums, cols] f32 at the start of the workspace. Case G:
                            range i is a range of its group, and each of its splits has a slab */
  int64_t partials_offset; /* bytes: [rows, splits, partials] words in the workspace (E with column sums, F); else 0 */
  int64_t onchip_bytes;    /* how much of device->onchip_bytes is used */
  int64_t workspace_bytes; /* a multiple of 64 */
  int64_t bytes_moved;     /* predicted */
  int64_t bytes_min;       /* every input read once, every output written once */
  int64_t bytes_extra;     /* predicted besides: slabs, partials, column vectors read again. A cache holds most of it */
  double predicted_us;
  char reason[192];
} tigon_plan;

/* Always fills *plan; returns plan->status. */
tigon_status tigon_plan_make(const tigon_plan_request *request, tigon_plan *plan);

/* The most tokens of a tile of rope; rows that embedding backward adds up at once. */
enum { TIGON_ROPE_TOKENS = 16, TIGON_TABLE_ROWS = 4 };

/* Elements of a tile of adamw for a launch of `elements`, such that each core has some. */
int64_t tigon_plan_line_tile(const tigon_footprint *footprint, const tigon_device_desc *device, int64_t elements);

/* Blocks of a launch that adds up one word per row of `rows` rows, at most TIGON_TOTAL_BLOCKS. */
enum { TIGON_TOTAL_BLOCKS = 64 };
TIGON_SHARED int64_t tigon_plan_total_blocks(const tigon_device_desc *device, int64_t rows) {
  const int64_t most = device->cores < TIGON_TOTAL_BLOCKS ? device->cores : TIGON_TOTAL_BLOCKS;
  const int64_t blocks = rows / 64 + (rows % 64 > 0);
  return blocks < most ? blocks : most;
}

/* Task t of plan->tasks. Splits of one row are neighbours: t = row_task * splits + split. */
TIGON_SHARED void tigon_plan_task(const tigon_plan *plan, int64_t t, tigon_box *box) {
  const int64_t groups = plan->slabs > 0 ? plan->groups : 1; /* a task has rows of one group only */
  const int64_t rows = plan->rows / groups, ranges = plan->row_tasks / groups, range = t / plan->splits;
  tigon_range(rows, ranges, range % ranges, &box->row_begin, &box->row_end);
  box->row_begin += range / ranges * rows;
  box->row_end += range / ranges * rows;
  const int64_t units = (plan->cols - 1) / plan->col_unit + 1;
  tigon_range(units, plan->splits, t % plan->splits, &box->col_begin, &box->col_end);
  box->col_begin *= plan->col_unit;
  box->col_end = box->col_end == units ? plan->cols : box->col_end * plan->col_unit;
}

/* 'A'..'G'; '-' for TIGON_CASE_AUTO. */
char tigon_plan_case_letter(tigon_plan_case plan_case);

#endif
