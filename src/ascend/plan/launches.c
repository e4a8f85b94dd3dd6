/* Launches that are no walk over rows: their tiles, which their kernels take from the plan, and the bytes that those
 * allocate on chip. */
#include "ascend/plan/internal.h"

static tigon_status set_launch(const plan_problem *p, tigon_plan *plan, tigon_plan_case shown, int64_t row_tasks,
                               int64_t splits) {
  plan->chosen = plan->cut = shown;
  plan_set_tasks(plan, plan_min(p->device->cores, p->device->grid_limit), row_tasks, splits);
  tigon_plan_predict(p, plan);
  return TIGON_OK;
}

/* ---- rope: some tokens' heads, of queries, then of keys, in one buffer from load to store ---- */

/* Streams are double-buffered; two f32 tiles with 16-bit dtypes, else one. Tables are double-buffered, and widened to a
 * column for each of the rotary ones; a token's 16-bit tables are cast in one place. Four vectors of those columns, ids of
 * a tile's tokens, a flag. */
static int64_t heads_bytes(const plan_problem *p, int64_t head_dim, int64_t pairs, int64_t tokens, int64_t heads) {
  enum { IDS = 16 * 8 };
  const int64_t size = p->narrowest, table = p->footprint->row_table_bytes, line = p->device->onchip_alignment;
  const int64_t pitch = plan_aligned(p, head_dim, size) / size, table_pitch = plan_aligned(p, pairs, table) / table;
  const int64_t tables = plan_mul(table_pitch, p->footprint->row_tables), turned = plan_aligned(p, 2 * pairs, 4);
  const int64_t head = plan_mul(pitch, 2 * size + (size == 4 ? 4 : 8));
  const int64_t token = plan_add(plan_mul(tables, 2 * table), 2 * turned), cast = table == 4 ? 0 : plan_mul(tables, 4);
  return plan_add(plan_mul(tokens, plan_add(plan_mul(heads, head), token)), cast + 4 * turned + IDS + line);
}

/* Four tiles a core where there are so many tokens, less where they do not fit. */
static tigon_status plan_heads(const plan_problem *p, const tigon_plan_request *request, tigon_plan *plan) {
  const int64_t dim = plan_max(1, request->col_unit), most = p->device->onchip_bytes;
  const int64_t keys = request->key_cols / dim, queries = p->cols / dim - keys;
  const int64_t sequence = request->sequence > 0 ? request->sequence : p->rows;
  const int64_t share = plan_ceil_div(p->rows, 4 * p->device->cores), all = plan_max(queries, keys);
  int64_t tokens = plan_min(plan_min(share, TIGON_ROPE_TOKENS), sequence), heads = all;
  while (heads_bytes(p, dim, request->table_cols, tokens, heads) > most && tokens > 1) --tokens;
  while (heads_bytes(p, dim, request->table_cols, tokens, heads) > most && heads > 1) heads = (heads + 1) / 2;
  plan->onchip_bytes = heads_bytes(p, dim, request->table_cols, tokens, heads);
  if (plan->onchip_bytes > most) {
    tigon_plan_say(plan, "a head of %lld columns needs %lld on-chip bytes, %.31s has %lld", (long long)dim,
                   (long long)plan->onchip_bytes, p->device->name, (long long)most);
    return plan->status = TIGON_ERROR_SCRATCH;
  }
  plan->rows_per_tile = tokens;
  plan->cols_per_tile = heads * dim;
  plan->col_tiles = plan_ceil_div(queries, heads) + plan_ceil_div(keys, heads);
  plan->col_unit = dim;
  tigon_plan_say(plan, "a tile is %lld head%s of %lld token%s, in one buffer from load to store: one read",
                 (long long)heads, heads == 1 ? "" : "s", (long long)tokens, tokens == 1 ? "" : "s");
  const tigon_plan_case one_token = heads == all ? TIGON_CASE_C : TIGON_CASE_E;
  return set_launch(p, plan, tokens > 1 ? TIGON_CASE_B : one_token,
                    p->rows / sequence * plan_ceil_div(sequence, tokens), 1);
}

/* ---- adamw: a line of elements in tiles, of which each core has a range ---- */

/* On-chip bytes of an element, whose dtype may be f32: two buffers of four streams in and four out, or of what is
 * summed, and two f32 tiles. */
static int64_t element_bytes(const tigon_footprint *f) { return 2 * (f->partials > 0 ? 1 : 4 + 4) * 4 + 2 * 4; }

/* Besides: a word for the factor, or two for the sum. */
static int64_t word_bytes(const tigon_footprint *f, const tigon_device_desc *device) {
  return (f->partials > 0 ? 2 : 1) * device->onchip_alignment;
}

int64_t tigon_plan_line_tile(const tigon_footprint *f, const tigon_device_desc *device, int64_t elements) {
  const int64_t line = device->memory_alignment / 4, good = 2 * device->transfer_bytes / 4;
  int64_t most = (device->onchip_bytes - word_bytes(f, device)) / element_bytes(f);
  if (f->partials > 0) most = plan_min(most, good); /* longer sums of squares gain nothing */
  return plan_min(most / line * line, plan_round_up(plan_ceil_div(elements, device->cores), line));
}

static tigon_status plan_line(const plan_problem *p, tigon_plan *plan) {
  const tigon_footprint *f = p->footprint;
  plan->rows = 1;
  plan->cols = plan_mul(p->rows, p->cols);
  const int64_t tile = tigon_plan_line_tile(f, p->device, plan->cols), tiles = plan_ceil_div(plan->cols, tile);
  const int64_t splits = plan_min(tiles, p->device->cores);
  plan->cols_per_tile = plan->col_unit = tile;
  plan->col_tiles = plan_ceil_div(tiles, splits);
  plan->onchip_bytes = plan_add(plan_mul(tile, element_bytes(f)), word_bytes(f, p->device));
  tigon_plan_say(plan, "%lld elements as one line, in %lld tile%s of %lld%s", (long long)plan->cols, (long long)tiles,
                 tiles == 1 ? "" : "s", (long long)tile,
                 f->partials > 0 ? ", a sum a core, joined in index order" : "");
  return set_launch(p, plan, f->partials == 0 ? TIGON_CASE_A : TIGON_CASE_F, 1, splits);
}

/* ---- embedding backward: a range of table rows, whose positions are listed, then summed panel by panel ---- */

/* Table rows, their positions and zeros. A batch of indices. A panel of four rows of the input at a time, in two buffers. Two
 * panels of the output, three levels of sums, and a flag. */
static int64_t table_bytes(const plan_problem *p, int64_t panel) {
  enum { LISTS = 3, OUT = 2, LEVELS = 3 };
  const int64_t size = p->narrowest, listed = p->device->listed;
  const int64_t batch = listed / 4 * 4 * p->footprint->row_scalars_in;
  const int64_t in = TIGON_TABLE_ROWS * panel * (2 * size + (size == 4 ? 0 : 4));
  return LISTS * listed * 4 + batch + in + (OUT + LEVELS) * panel * 4 + p->device->onchip_alignment;
}

static tigon_status plan_table(const plan_problem *p, tigon_plan *plan) {
  /* As many ranges for each core, and none longer than it lists. */
  const int64_t rounds = plan_ceil_div(p->out_rows, p->device->listed * p->device->cores);
  const int64_t ranges = plan_min(rounds * p->device->cores, p->out_rows);
  const int64_t panel = plan_min(p->device->listed / 2, plan_round_up(p->cols, 16));
  plan->rows = p->out_rows;
  plan->rows_per_tile = TIGON_TABLE_ROWS;
  plan->cols_per_tile = panel;
  plan->col_tiles = plan_ceil_div(p->cols, panel);
  plan->col_unit = panel;
  plan->onchip_bytes = table_bytes(p, panel);
  tigon_plan_say(
      plan,
      "a core has table rows of its own and looks through all indices for theirs: %lld range%s of %lld table rows",
      (long long)ranges, ranges == 1 ? "" : "s", (long long)p->out_rows);
  return set_launch(p, plan, plan->col_tiles > 1 ? TIGON_CASE_E : TIGON_CASE_B, ranges, 1);
}

/* ---- vocab_parallel_cross_entropy merge: a tile is some rows, to which shards come one after another ---- */

/* Words of a row on chip: two buffers of a shard's stats, the offsets of their columns, a label, and what is worked on. */
enum { SHARD_STATS = 5, SHARD_WORDS = 2 * SHARD_STATS + SHARD_STATS + 2 + 17, LEAST_ROWS = 64 };

static tigon_status plan_shards(const plan_problem *p, tigon_plan *plan) {
  const int64_t most = p->device->onchip_bytes / (4 * SHARD_WORDS) / 8 * 8;
  const int64_t ranges = plan_min(plan_ceil_div(p->rows, LEAST_ROWS), p->device->cores);
  const int64_t range = plan_ceil_div(p->rows, ranges);
  plan->rows_per_tile = plan_ceil_div(range, plan_ceil_div(range, most));
  plan->cols_per_tile = plan->col_unit = 1;
  plan->col_tiles = p->cols;
  plan->onchip_bytes = plan_round_up(plan->rows_per_tile, 8) * 4 * SHARD_WORDS;
  tigon_plan_say(plan, "a tile is %lld row%s of a shard, and shards come one after another: one read",
                 (long long)plan->rows_per_tile, plan->rows_per_tile == 1 ? "" : "s");
  return set_launch(p, plan, TIGON_CASE_B, ranges, 1);
}

tigon_status tigon_plan_launch(const plan_problem *p, const tigon_plan_request *request, tigon_plan *plan) {
  *plan = plan_begin(p);
  switch (p->footprint->walk) {
    case TIGON_WALK_HEADS: return plan_heads(p, request, plan);
    case TIGON_WALK_LINE: return plan_line(p, plan);
    case TIGON_WALK_TABLE: return plan_table(p, plan);
    case TIGON_WALK_SHARDS: return plan_shards(p, plan);
    case TIGON_WALK_ROWS: break;
  }
  return plan->status = TIGON_ERROR_INVALID;
}
