#include "cuda/embedding.h"

#include "cuda/kernels.h"

/* Fills `plain` from a wide problem, if it is a plain one. */
static bool plain_of(const tigon_embedding_fwd_problem *p, cuda_shape *shape, embedding_plain *plain) {
  const int64_t packs = p->cols / (16 / (int64_t)tigon_dtype_size(p->dtype));
  *plain = (embedding_plain){.rows = (int)p->space.rows,
                             .cols = (int)p->cols,
                             .idx_dtype = p->idx_dtype,
                             .idx = p->idx,
                             .vocab = p->vocab,
                             .table = p->table,
                             .table_pitch = (int)p->table_pitch,
                             .y_pitch = (int)p->y.pitch[2],
                             .y = p->y.data,
                             .error_flag = p->error_flag};
  while (plain->team_bits < EMBEDDING_PLAIN_BITS && (EMBEDDING_FWD_PACKS << plain->team_bits) < packs)
    ++plain->team_bits;
  enum { MOST_GROUPS = 65535 }; /* a grid's second extent */
  const int64_t groups = cuda_ceil_div(p->space.rows, EMBEDDING_PLAIN_THREADS >> plain->team_bits);
  *shape = (cuda_shape){.blocks = cuda_ceil_div(packs, EMBEDDING_FWD_PACKS << plain->team_bits),
                        .rows = (int)groups,
                        .threads = EMBEDDING_PLAIN_THREADS};
  return p->space.inner == p->space.rows && groups <= MOST_GROUPS && p->cols <= INT32_MAX / 2 &&
         p->vocab <= INT32_MAX && plain->table_pitch == p->table_pitch && plain->y_pitch == p->y.pitch[2];
}

tigon_status tigon_cuda_embedding_fwd(tigon_queue *queue, const tigon_embedding_fwd_problem *p) {
  static cuda_kernel plain[3] = CUDA_KERNELS(embedding, embedding_fwd_plain);
  static cuda_kernel wide[3] = CUDA_KERNELS(embedding, embedding_fwd_wide);
  static cuda_kernel any[3] = CUDA_KERNELS(embedding, embedding_fwd_any);
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype), lanes = 16 / size;
  const bool is_wide = p->cols % lanes == 0 && cuda_wide(p->table) && p->table_pitch * size % 16 == 0 &&
                       map_wide(&p->space, &p->y, p->dtype);
  cuda_shape shape;
  embedding_plain rows;
  if (is_wide && plain_of(p, &shape, &rows))
    return cuda_launch(queue, cuda_by_dtype(plain, p->dtype), shape, CUDA_ARGUMENTS(&rows));
  const map_walk walk = is_wide ? map_cut(p->space.rows, p->cols / lanes, EMBEDDING_FWD_PACKS)
                                : map_cut(p->space.rows, p->cols, EMBEDDING_FWD_PACKS * MAP_ANY);
  shape = (cuda_shape){.blocks = map_blocks(&walk, p->space.rows), .threads = MAP_THREADS};
  return cuda_launch(queue, cuda_by_dtype(is_wide ? wide : any, p->dtype), shape,
                     CUDA_ARGUMENTS((void *)p, (void *)&walk));
}

/* Bits that hold 0 .. most. */
static int bits_for(int64_t most) {
  int bits = 0;
  while (bits < 63 && most >> bits > 0) ++bits;
  return bits;
}

/* Keys go from 0 to vocab. */
static embedding_order order_of(const tigon_embedding_bwd_problem *p) {
  uint64_t *first = (uint64_t *)p->order;
  const int key_bits = bits_for(p->vocab);
  embedding_order o = {.items = {first, first + p->space.rows}, .position_bits = bits_for(p->space.rows - 1)};
  o.passes = 1 + (key_bits - 1) / EMBEDDING_DIGIT_BITS;
  o.digit_bits = (key_bits + o.passes - 1) / o.passes;
  return o;
}

static tigon_status sort(tigon_queue *queue, const tigon_embedding_bwd_problem *p, const embedding_order *o) {
  static cuda_kernel kernel = CUDA_KERNEL(embedding, embedding_sort);
  enum { ALONE = 4 * EMBEDDING_SORT_THREADS }; /* rows that one block sorts sooner than several agree */
  const int cluster = cuda_of(queue)->sm >= 90 && p->space.rows > ALONE ? CUDA_CLUSTER : 1;
  const cuda_shape shape = {.blocks = cluster, .threads = EMBEDDING_SORT_THREADS, .cluster = cluster};
  return cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)p, (void *)o));
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* How the table's rows are dealt out; *blocks is the launch's. */
static embedding_walk walk_of(const tigon_queue *queue, const tigon_embedding_bwd_problem *p, bool wide,
                              int64_t *blocks) {
  const int64_t rows = p->space.rows, lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const int64_t table_lanes = wide ? 16 / (int64_t)tigon_dtype_size(p->dtable_dtype) : 1;
  embedding_walk w = {.row_items = p->cols / table_lanes, .chunk = EMBEDDING_CHUNK, .parts = cuda_of(queue)->scratch};
  w.sums = wide ? map_cut(rows, p->cols / lanes, EMBEDDING_BWD_PACKS)
                : map_cut(rows, p->cols, EMBEDDING_BWD_PACKS * MAP_ANY);
  w.sum_blocks = map_blocks(&w.sums, rows);
  w.zero_rows = w.row_items < EMBEDDING_ZERO_ITEMS ? least(EMBEDDING_ZERO_ITEMS / w.row_items, EMBEDDING_ZERO_ROWS) : 1;
  w.zero_tiles = cuda_ceil_div(w.zero_rows * w.row_items, EMBEDDING_ZERO_ITEMS);
  *blocks = w.sum_blocks + (p->accumulate ? 0 : cuda_ceil_div(p->vocab, w.zero_rows) * w.zero_tiles);
  const int64_t line = 2 * p->cols * (int64_t)sizeof(float); /* bytes of a chunk's two lines */
  while (w.chunk < rows && cuda_ceil_div(rows, w.chunk) > CUDA_SCRATCH_BYTES / line) w.chunk *= 2;
  return w;
}

static tigon_status join(tigon_queue *queue, const tigon_embedding_bwd_problem *p, const embedding_walk *w) {
  static cuda_kernel kernel = CUDA_KERNEL(embedding, embedding_join);
  const int64_t chunks = cuda_ceil_div(p->space.rows, w->chunk), tiles = cuda_ceil_div(p->cols, MAP_THREADS);
  const cuda_shape shape = {.blocks = (chunks - 1) * tiles, .threads = MAP_THREADS};
  return cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)p, (void *)w));
}

int64_t tigon_cuda_embedding_bwd_bytes(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  (void)queue;
  return tigon_pad(2 * p->space.rows * (int64_t)sizeof(uint64_t)); /* order_of()'s lists */
}

tigon_status tigon_cuda_embedding_bwd(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  static cuda_kernel wide[3] = CUDA_KERNELS(embedding, embedding_bwd_wide);
  static cuda_kernel any[3] = CUDA_KERNELS(embedding, embedding_bwd_any);
  const embedding_order order = order_of(p);
  if (p->space.rows > INT32_MAX || order.position_bits + bits_for(p->vocab) > 64) {
    queue->reason =
        "embedding_bwd has more indices than 2^31 - 1, or than an index and its position of 64 bits have room for";
    return TIGON_ERROR_DEVICE;
  }
  const int64_t lanes = 16 / (int64_t)tigon_dtype_size(p->dtype);
  const bool is_wide = p->cols % lanes == 0 && map_wide(&p->space, &p->dy, p->dtype) && cuda_wide(p->dtable);
  int64_t blocks;
  embedding_walk walk = walk_of(queue, p, is_wide, &blocks);
  walk.items = order.items[(order.passes + 1) % 2];
  walk.position_bits = order.position_bits;
  tigon_status status = p->space.rows > 0 ? sort(queue, p, &order) : TIGON_OK;
  const cuda_shape shape = {.blocks = blocks, .threads = MAP_THREADS};
  if (status == TIGON_OK)
    status = cuda_launch(queue, cuda_by_dtype(is_wide ? wide : any, p->dtype), shape,
                         CUDA_ARGUMENTS((void *)p, (void *)&walk));
  return status == TIGON_OK ? join(queue, p, &walk) : status;
}
