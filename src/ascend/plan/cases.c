/* The ways to cut rows, A to F: how a problem is cut so, or why not. Case G is cut by the same functions: its
 * column vectors are shorter and each group has its own. */
#include "ascend/plan/internal.h"

/* Case D needs room for its chunks beside the cached row. With less than this, transfers are too short for the one read to pay
 * (1024 columns of rms_norm forward in f32: 24 bytes each). */
#define WORK_BYTES (24 * 1024)

/* ---- bytes on chip ---- */

typedef enum stream_set { STREAMS_ALL, STREAMS_CACHED, STREAMS_FLOWING } stream_set;

/* One row of `cols` columns of the streams that case D keeps (they move more than once), of the others, or of all. */
static int64_t stream_bytes(const plan_problem *p, int64_t cols, stream_set set) {
  const tigon_footprint *f = p->footprint;
  int64_t bytes = 0;
  for (int i = 0; i < f->inputs + f->outputs; i++) {
    const bool cached = f->stream[i].passes > 1;
    if (set == STREAMS_ALL || cached == (set == STREAMS_CACHED))
      bytes = plan_add(bytes, plan_aligned(p, cols, f->stream[i].element_bytes));
  }
  return bytes;
}

/* The column vectors and accumulators of one row, in elements. */
static int64_t vector_cols(const plan_problem *p, int64_t cols) {
  return p->run > 1 ? plan_min(plan_ceil_div(cols, p->run) + (cols < p->cols), cols) : cols;
}

/* Row scalars of `rows` rows, buffered like streams, and `sums` of each row: of all of it, and of a chunk where there are
 * several. A vector unit hands a row's value to its columns in blocks of the alignment, eight rows at a time. The blocks of
 * short rows need more room than the temporary tile that holds them. Tables are not buffered. Words of rows in several groups do
 * not lie end to end in memory: each comes and goes by itself, on a block of its own beside the array. */
static int64_t scalar_bytes(const plan_problem *p, int64_t rows, int sums) {
  const tigon_footprint *f = p->footprint;
  const int64_t block = p->device->onchip_alignment;
  const int64_t words = f->row_scalars_in + f->row_scalars_out, eights = plan_round_up(rows, 8);
  const int64_t array = plan_aligned(p, eights, 4);
  const bool apart = p->groups > 1 && rows > 1 && !f->ranges;
  const int64_t word =
      plan_add(plan_mul(apart ? plan_mul(eights, block) : array, p->device->buffers), apart ? array : 0);
  const int64_t blocks = f->partials > 0 && p->cols < 2 * block ? 7 * block : 0;
  const int64_t own = plan_mul(f->row_scalars_on_chip + (int64_t)sums * f->partials, array);
  return plan_add(plan_add(blocks, plan_mul(rows, p->row_chip)), plan_add(plan_mul(words, word), own));
}

/* A temporary f32 tile's row of `cols` columns: as many elements as the streams' rows, which end on the alignment. */
static int64_t temporary_bytes(const plan_problem *p, int64_t cols) {
  return plan_mul(plan_round_up(cols, p->chip_unit), 4);
}

/* Cases B and C: whole rows, the column vectors and accumulators resident. */
static int64_t row_tile_bytes(const plan_problem *p, int64_t rows) {
  const tigon_footprint *f = p->footprint;
  const int64_t row = plan_add(plan_mul(stream_bytes(p, p->cols, STREAMS_ALL), p->device->buffers),
                               plan_mul(temporary_bytes(p, p->cols), f->f32_temporaries));
  const int params = f->column_params - (f->ranges && f->column_sums > 0); /* backward keeps a product of two */
  const int64_t vectors = plan_mul(temporary_bytes(p, vector_cols(p, p->cols)), params + f->column_sums);
  return plan_add(plan_add(plan_mul(rows, row), vectors), scalar_bytes(p, rows, 1));
}

/* A chunk of `cols` columns: streams and column vectors pass by, buffered. Where all streams do (cases A, E and F), the
 * accumulators are cut into chunks too. */
static int64_t chunk_bytes(const plan_problem *p, int64_t cols, stream_set set) {
  const tigon_footprint *f = p->footprint;
  const int64_t sums = set == STREAMS_ALL ? f->column_sums : 0;
  const int64_t vectors = (int64_t)f->column_params * p->device->buffers + sums;
  return plan_add(plan_add(plan_mul(stream_bytes(p, cols, set), p->device->buffers),
                           plan_mul(f->f32_temporaries, temporary_bytes(p, cols))),
                  plan_mul(vectors, temporary_bytes(p, vector_cols(p, cols))));
}

/* ---- chunks ---- */

/* The widest chunk beside `kept` bytes, a multiple of plan->col_unit: of the memory alignment when that fits, else
 * of the on-chip alignment. Where nothing fits, it is one unit. */
static int64_t widest_chunk(const plan_problem *p, tigon_plan *plan, int64_t kept, stream_set set) {
  const int64_t room = p->device->onchip_bytes - kept;
  if (chunk_bytes(p, p->cols, set) <= room) return p->cols;
  if (chunk_bytes(p, p->fast_unit, set) > room) plan->col_unit = p->chip_unit;
  const int64_t units = room / chunk_bytes(p, plan->col_unit, set);
  return plan_min(p->cols, plan_max(1, units) * plan->col_unit);
}

/* `range` columns in as few equal chunks as `widest` allows, but at least `least` of them, beside `kept` bytes. */
static void set_chunks(const plan_problem *p, tigon_plan *plan, int64_t range, int64_t widest, int64_t least,
                       int64_t kept, stream_set set) {
  const int64_t chunks = plan_max(least, plan_ceil_div(range, widest));
  const int64_t equal = plan_round_up(plan_ceil_div(range, chunks), plan->col_unit);
  plan->cols_per_tile = plan_min(plan_min(widest, range), equal);
  plan->col_tiles = plan_ceil_div(range, plan->cols_per_tile);
  plan->onchip_bytes = plan_add(kept, chunk_bytes(p, plan->cols_per_tile, set));
}

/* ---- what cases share ---- */

/* Slabs first, then parts of number sums, then the partials of each row and split. */
static void set_workspace(const plan_problem *p, tigon_plan *plan) {
  const tigon_footprint *f = p->footprint;
  /* In case G the parts of a split row may all hold a piece of every channel: each has a slab of its own. */
  plan->slabs = f->column_sums > 0 ? plan->row_tasks / p->groups * (p->grouped ? plan->splits : 1) : 0;
  const int64_t vector = plan_mul(p->groups, p->cols / p->run);
  const int64_t slab_bytes = plan_mul(plan_mul(plan->slabs, f->column_sums), plan_mul(vector, 4));
  plan->workspace_bytes = plan_round_up(plan_add(slab_bytes, plan_mul(plan->tasks, 4 * (int64_t)f->number_sums)), 64);
  const bool panels = plan->cut == TIGON_CASE_E && f->column_sums > 0; /* pass 1 leaves a row's sums for pass 2 */
  if (f->partials > 0 && (panels || plan->cut == TIGON_CASE_F)) {
    plan->partials_offset = plan->workspace_bytes;
    const int64_t words = plan_mul(plan_mul(plan->rows, plan->splits), f->partials);
    plan->workspace_bytes = plan_add(plan->workspace_bytes, plan_round_up(plan_mul(words, 4), 64));
  }
}

/* Ranges of rows for `programs` programs that loop; with accumulators a range stays within a group. */
static int64_t row_ranges(const plan_problem *p, int64_t programs) {
  if (p->groups == 1 || p->footprint->column_sums == 0) return plan_min(p->rows, programs);
  const int64_t batch = p->rows / p->groups;
  return p->groups * plan_max(1, plan_min(batch, programs / p->groups));
}

/* ---- the cases ---- */

/* The most whole rows in a tile, `most` at most; one row is known to fit. */
static int64_t rows_that_fit(const plan_problem *p, int64_t most) {
  const int64_t limit = p->device->onchip_bytes;
  const int64_t two = row_tile_bytes(p, 2), one = row_tile_bytes(p, 1);
  /* A row costs `two - one` bytes and the 4-byte words of its scalars, whose arrays are rounded up to the alignment. */
  const int64_t row = two - one + scalar_bytes(p, 1, 1) / p->device->onchip_alignment * 4;
  int64_t rows = plan_max(1, plan_min(most, (limit - one) / row));
  while (rows < most && row_tile_bytes(p, rows + 1) <= limit) rows++;
  return rows;
}

/* B: tiles of several whole rows. */
static plan_refusal build_b(const plan_problem *p, int64_t programs, tigon_plan *plan) {
  if (p->rows < 2) return PLAN_ONE_ROW;
  plan->onchip_bytes = row_tile_bytes(p, 2);
  if (plan->onchip_bytes > p->device->onchip_bytes) return PLAN_TOO_LARGE;
  plan_set_tasks(plan, programs, row_ranges(p, programs), 1);
  const int64_t range = plan_ceil_div(p->rows, plan->row_tasks);
  if (range < 2 && !p->forced) return PLAN_ONE_ROW; /* that is case C with more bytes */
  const int64_t fitting = rows_that_fit(p, plan_max(2, range));
  const int64_t run = plan_max(p->cols * p->narrowest, 1);
  const int64_t tiles = tigon_plan_tile_count(p, plan, (double)range * (double)p->cols, run,
                                              plan_ceil_div(range, fitting), plan_ceil_div(range, 2));
  plan->rows_per_tile = plan_max(2, plan_ceil_div(range, tiles));
  plan->onchip_bytes = row_tile_bytes(p, plan->rows_per_tile);
  return PLAN_FITS;
}

/* C: a tile is a row. */
static plan_refusal build_c(const plan_problem *p, int64_t programs, tigon_plan *plan) {
  plan->onchip_bytes = row_tile_bytes(p, 1);
  plan_set_tasks(plan, programs, row_ranges(p, programs), 1);
  return PLAN_FITS;
}

/* D: the streams that move more than once stay, in as many buffers as fit. The others pass by in chunks. */
static plan_refusal build_d(const plan_problem *p, int64_t programs, tigon_plan *plan) {
  const int64_t cached = stream_bytes(p, p->cols, STREAMS_CACHED);
  if (cached == 0) return PLAN_NOTHING_CACHED;
  const int64_t sums = plan_mul(p->footprint->column_sums, temporary_bytes(p, vector_cols(p, p->cols)));
  const int64_t resident = plan_add(sums, scalar_bytes(p, 1, 2));
  const int64_t work = plan_min(chunk_bytes(p, p->cols, STREAMS_FLOWING), WORK_BYTES);
  for (int buffers = p->device->buffers; buffers >= 1; buffers--) {
    const int64_t kept = plan_add(resident, plan_mul(cached, buffers));
    plan->onchip_bytes = plan_add(kept, work);
    if (plan->onchip_bytes > p->device->onchip_bytes) continue;
    plan->row_buffers = buffers;
    plan_set_tasks(plan, programs, row_ranges(p, programs), 1);
    set_chunks(p, plan, p->cols, widest_chunk(p, plan, kept, STREAMS_FLOWING), 1, kept, STREAMS_FLOWING);
    return PLAN_FITS;
  }
  return PLAN_TOO_LARGE;
}

/* A: rows and columns are one line, cut into ranges. E: nothing of a row stays. F: ranges of rows times ranges of
 * columns. With fewer rows than cores a range is one row. */
static plan_refusal build_chunked(const plan_problem *p, int64_t programs, tigon_plan *plan) {
  const bool line = plan->cut == TIGON_CASE_A, whole = plan->cut == TIGON_CASE_E;
  if (plan->cut == TIGON_CASE_F && p->footprint->whole) return PLAN_WHOLE;
  if (line && (!tigon_footprint_is_flat(p->footprint) || p->rows != 1)) return PLAN_NOT_FLAT;
  /* A row's scalars, and what the splits of it hand over, of as many as there are cores. */
  const int64_t handed_over = plan_mul(p->footprint->partials, plan_aligned(p, plan_max(2, p->device->cores), 4));
  const int64_t kept = plan_add(scalar_bytes(p, 1, 2), handed_over);
  const int64_t widest = widest_chunk(p, plan, kept, STREAMS_ALL);
  const int64_t units = plan_ceil_div(p->cols, plan->col_unit), ranges = row_ranges(p, programs);
  if (plan->cut == TIGON_CASE_F && units < 2) return PLAN_ONE_UNIT;
  const int64_t splits = whole ? 1 : plan_min(units, plan_max(line ? 1 : 2, programs / ranges));
  const int64_t range = plan_min(p->cols, plan_mul(plan_ceil_div(units, splits), plan->col_unit));
  plan->passes = p->passes;
  plan->bytes_moved = p->moved_passes;
  plan_set_tasks(plan, programs, ranges, splits);
  int64_t tiles = 1;
  if (!whole && ranges == p->rows) /* with one row a task, only tiles of that row can overlap */
    tiles = tigon_plan_tile_count(p, plan, (double)range, p->device->transfer_bytes, 1,
                                  plan_ceil_div(range, plan->col_unit));
  set_chunks(p, plan, range, widest, tiles, kept, STREAMS_ALL);
  return PLAN_FITS;
}

plan_refusal tigon_plan_build(const plan_problem *p, tigon_plan_case plan_case, int64_t programs, tigon_plan *plan) {
  *plan = plan_begin(p);
  plan->chosen = plan->cut = plan_case;
  plan_refusal refusal;
  switch (plan_case) {
    case TIGON_CASE_B: refusal = build_b(p, programs, plan); break;
    case TIGON_CASE_C: refusal = build_c(p, programs, plan); break;
    case TIGON_CASE_D: refusal = build_d(p, programs, plan); break;
    default: refusal = build_chunked(p, programs, plan); break;
  }
  if (refusal != PLAN_FITS) return refusal;
  if (plan->onchip_bytes > p->device->onchip_bytes) return PLAN_TOO_LARGE;
  set_workspace(p, plan);
  return PLAN_FITS;
}
