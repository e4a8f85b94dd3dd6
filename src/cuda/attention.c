#include "cuda/attention.h"

#include "core/attention_part.h"
#include "cuda/kernels.h"
#include "cuda/tensor_map.h"

static bool all_wide(const tigon_heads *const *heads, int count, int64_t head_dim, tigon_dtype dtype, int unit) {
  bool wide = head_dim % unit == 0;
  for (int i = 0; i < count; ++i) wide = wide && cuda_wide_heads(heads[i], dtype, unit);
  return wide;
}

/* The width that the kernels in mma pad the head to; 0: they do not take it. */
static int mma_dim(tigon_dtype dtype, int64_t head_dim) {
  return dtype == TIGON_F32 || head_dim > ATTENTION_MMA_DIM ? 0 : head_dim > ATTENTION_TILE ? 128 : 64;
}

static int threads_for(tigon_dtype dtype) {
  return dtype == TIGON_F32 ? ATTENTION_FMA_THREADS : ATTENTION_TENSOR_THREADS;
}

/* ---- forward ---- */

enum { MOST = 1 << 30 }; /* rows and tiles, which the kernels for sm_90a count in 32 bits */

/* Rows of a head in boxes of 64 columns. */
static cuda_boxes boxes_of(const tigon_heads *t, int64_t batch, int64_t rows, int64_t head_dim, int box_rows) {
  return (cuda_boxes){.data = t->data,
                      .element_bytes = 2,
                      .rank = 4,
                      .extent = {head_dim, rows, t->heads, batch},
                      .pitch = {1, t->token_pitch, t->head_pitch, t->batch_pitch},
                      .box = {CUDA_BOX_ROW_BYTES / 2, box_rows, 1, 1}};
}

/* How those go over tiles of all `heads`. Heads of a section have half of the L2 for the other side: whole groups of `group`, each
 * of which has `bytes`. */
static attention_turns turns_of(const tigon_queue *queue, int64_t tiles, int64_t heads, int64_t group, int64_t bytes,
                                int parts) {
  const int64_t fit = cuda_of(queue)->l2_bytes / 2 / bytes * group, section = fit < group ? group : fit;
  return (attention_turns){
      .tiles = (int)tiles, .heads = (int)heads, .section = (int)(section < heads ? section : heads), .parts = parts};
}

/* Under a causal mask: pairs of tiles, where they leave few SMs idle in the last round; else those of all heads that have most to do are
 * first. So they are, too, where only blocks that began with a shorter one get a second tile: it is one of the shortest. */
static void pair(const tigon_queue *queue, attention_turns *turns) {
  const int64_t places = cuda_of(queue)->desc.cores / turns->parts,
                pairs = cuda_ceil_div(turns->tiles, 2) * turns->heads;
  const bool even = pairs < places || 10 * pairs >= 9 * places * cuda_ceil_div(pairs, places);
  turns->paired = even && (int64_t)(turns->tiles + 1) * turns->heads > 2 * places;
  if (!turns->paired) turns->section = turns->heads;
}

/* A block an SM, at most. Sets turns' rounds. */
static cuda_shape stay(const tigon_queue *queue, attention_turns *turns, int threads, int shared_bytes) {
  const int64_t places = cuda_of(queue)->desc.cores / turns->parts, tiles = turns->paired ? 2 : 1;
  const int64_t all = cuda_ceil_div(turns->tiles, tiles) * turns->heads, used = all < places ? all : places;
  turns->rounds = used ? (int)(cuda_ceil_div(all, used) * tiles) : 0;
  return (cuda_shape){
      .blocks = used * turns->parts, .threads = threads, .shared_bytes = shared_bytes, .cluster = turns->parts};
}

/* Boxes of queries are `q`, of keys and values those of attention_wgmma.cu. */
static tigon_status launch_mapped(tigon_queue *queue, const tigon_attention_fwd_problem *p, cuda_kernel *kernels,
                                  const cuda_boxes boxes[3], cuda_shape shape, attention_turns *turns) {
  cu_tensor_map maps[3]; /* attention_maps */
  tigon_status status = TIGON_OK;
  for (int i = 0; i < 3 && status == TIGON_OK; ++i) status = cuda_tensor_map(queue, &boxes[i], &maps[i]);
  if (status != TIGON_OK) return status;
  cuda_kernel *const kernel = cuda_by_dtype(kernels, p->dtype);
  return turns ? cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)p, turns, maps))
               : cuda_launch(queue, kernel, shape, CUDA_ARGUMENTS((void *)p, maps));
}

/* The kernels for sm_90a, where they do it: else *done stays false. */
static tigon_status launch_wgmma(tigon_queue *queue, const tigon_attention_fwd_problem *p, int dim, bool *done) {
  *done = false;
  static cuda_kernel kernels[][3] = {CUDA_NARROW_KERNELS(attention_wgmma, attention_fwd_wgmma_64),
                                     CUDA_NARROW_KERNELS(attention_wgmma, attention_fwd_wgmma_64_short),
                                     CUDA_NARROW_KERNELS(attention_wgmma, attention_fwd_wgmma_128)};
  static const int of_form[] = {ATTENTION_WGMMA_GROUPS_64, ATTENTION_WGMMA_GROUPS_SHORT, ATTENTION_WGMMA_GROUPS_128};
  static cuda_kernel few[2][3] = {CUDA_NARROW_KERNELS(attention_few_wgmma, attention_few_wgmma_64),
                                  CUDA_NARROW_KERNELS(attention_few_wgmma, attention_few_wgmma_128)};
  if (!cuda_of(queue)->wgmma || p->keys == 0 || p->tokens > MOST || p->keys > MOST) return TIGON_OK;
  if (p->tokens <= ATTENTION_MMA_FEW && p->keys <= ATTENTION_MMA_FEW) return TIGON_OK;
  if (p->tokens > 0 && p->batch * p->q.heads > MOST / p->tokens) return TIGON_OK;
  const int64_t heads = p->batch * p->q.heads, group = p->q.heads / p->k.heads;
  const int form = dim == ATTENTION_MMA_DIM ? 2 : p->tokens <= ATTENTION_WGMMA_SHORT;
  const int groups = of_form[form], rows = ATTENTION_WGMMA_ROWS(groups);
  const int64_t tiles = cuda_ceil_div(p->tokens, rows);
  cuda_boxes boxes[3] = {boxes_of(&p->q, p->batch, p->tokens, p->head_dim, rows),
                         boxes_of(&p->k, p->batch, p->keys, p->head_dim, ATTENTION_WGMMA_KEYS),
                         boxes_of(&p->v, p->batch, p->keys, p->head_dim, ATTENTION_WGMMA_KEYS)};
  for (int i = 0; i < 3; ++i)
    if (!cuda_boxes_fit(&boxes[i])) return TIGON_OK;
  *done = true;
  const int64_t together = p->tokens <= ATTENTION_FEW_ROWS ? ATTENTION_FEW_HEADS(p->tokens, group) : 0;
  if (together && p->keys >= (together == group ? ATTENTION_FEW_KEYS : ATTENTION_FEW_MANY)) {
    boxes[0].box[1] = (int)p->tokens, boxes[0].box[2] = (int)together;
    const cuda_shape shape = {.blocks = p->batch * p->k.heads * cuda_ceil_div(group, together) * ATTENTION_FEW_BLOCKS,
                              .threads = ATTENTION_FEW_THREADS,
                              .shared_bytes = ATTENTION_FEW_SHARED(dim),
                              .cluster = ATTENTION_FEW_BLOCKS};
    return launch_mapped(queue, p, few[dim == 128], boxes, shape, NULL);
  }
  attention_turns turns = turns_of(queue, tiles, heads, group, 4 * p->keys * p->head_dim, 1);
  if (dim == ATTENTION_TILE && p->causal && p->window == 0) pair(queue, &turns);
  const cuda_shape shape = stay(queue, &turns, ATTENTION_WGMMA_THREADS(groups), ATTENTION_WGMMA_SHARED(dim, groups));
  return launch_mapped(queue, p, kernels[form], boxes, shape, &turns);
}

/* Kernels by [options that only `any` ones have][width of the head][dtype]. */
static tigon_status forward(tigon_queue *queue, const tigon_attention_fwd_problem *p) {
  static cuda_kernel kernels[2][2][3] = {
      {{CUDA_KERNEL(attention, attention_fwd_1_f32)}, CUDA_KERNELS(attention, attention_fwd_2)},
      {{CUDA_KERNEL(attention, attention_fwd_any_1_f32)}, CUDA_KERNELS(attention, attention_fwd_any_2)}};
  static cuda_kernel mma[2][2][3] = {{CUDA_NARROW_KERNELS(attention_mma, attention_fwd_mma_64),
                                      CUDA_NARROW_KERNELS(attention_mma, attention_fwd_mma_128)},
                                     {CUDA_NARROW_KERNELS(attention_mma, attention_fwd_any_mma_64),
                                      CUDA_NARROW_KERNELS(attention_mma, attention_fwd_any_mma_128)}};
  const bool any = p->softcap > 0 || p->sinks.data || tigon_attention_is_cut(&p->cuts);
  const tigon_heads *const heads[] = {&p->q, &p->k, &p->v, &p->o};
  const int dim = mma_dim(p->dtype, p->head_dim);
  const int rows = dim ? ATTENTION_MMA_FWD_WARPS * 16 : ATTENTION_TILE;
  attention_walk walk = {.wide = all_wide(heads, 4, p->head_dim, p->dtype, dim ? 8 : 4),
                         .query_places = tigon_attention_places(&p->cuts, false, rows)};
  if (dim && !any && !p->exact && walk.wide) {
    bool done;
    const tigon_status status = launch_wgmma(queue, p, dim, &done);
    if (done) return status;
  }
  if (dim) {
    const cuda_shape shape = {.blocks = p->batch * p->q.heads * walk.query_places,
                              .threads = ATTENTION_MMA_FWD_WARPS * 32,
                              .shared_bytes = attention_mma_fwd_bytes(dim)};
    return cuda_launch(queue, cuda_by_dtype(mma[any][dim == 128], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
  }
  const int kept = p->head_dim > ATTENTION_TILE ? 2 : 1;
  const cuda_shape shape = {.blocks = p->batch * p->q.heads * walk.query_places,
                            .threads = threads_for(p->dtype),
                            .shared_bytes = attention_fwd_tiles(kept, p->dtype == TIGON_F32) * ATTENTION_TILE_BYTES};
  return cuda_launch(queue, cuda_by_dtype(kernels[any][kept - 1], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

tigon_status tigon_cuda_attention_fwd(tigon_queue *queue, const tigon_attention_fwd_problem *p) {
  tigon_attention_fwd_problem graded = *p;
  graded.exact = p->exact || !cuda_of(queue)->rounds_attention;
  return forward(queue, &graded);
}

/* ---- backward ---- */

/* Clears `count` turns besides. */
static tigon_status launch_delta(tigon_queue *queue, const tigon_attention_bwd_problem *p, int *turns, int64_t count) {
  static cuda_kernel kernel[3] = CUDA_KERNELS(attention_bwd, attention_bwd_delta);
  const tigon_heads *const heads[] = {&p->o, &p->d_o};
  const int unit = 16 / (int)tigon_dtype_size(p->dtype);
  attention_delta_walk walk = {.turns = turns, .count = count, .heads_first = p->d_o.head_pitch < p->d_o.token_pitch};
  if (all_wide(heads, 2, p->head_dim, p->dtype, unit)) {
    walk.lanes = 1;
    while (walk.lanes < 32 && walk.lanes * unit < p->head_dim) walk.lanes *= 2;
  }
  const int64_t rows = ATTENTION_DELTA_THREADS / (walk.lanes ? walk.lanes : 32) * ATTENTION_DELTA_ROWS;
  const cuda_shape shape = {.blocks = cuda_ceil_div(p->batch * p->q.heads * p->tokens, rows),
                            .threads = ATTENTION_DELTA_THREADS};
  return cuda_launch(queue, cuda_by_dtype(kernel, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
}

static tigon_status launch_sinks(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  static cuda_kernel kernel = CUDA_KERNEL(attention_bwd, attention_bwd_sinks);
  const cuda_shape shape = {.blocks = p->dsinks.data ? p->q.heads : 0, .threads = ATTENTION_DELTA_THREADS};
  return cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)p));
}

/* Do tiles of keys have unlike work, so that pairs have alike? */
static bool in_pairs(const tigon_attention_bwd_problem *p) { return p->causal && p->window == 0; }

/* Blocks that share a tile of keys: two, where one sequence's tiles leave half of the SMs idle, and the longest has enough steps to be worth
 * the exchange. The batch does not count, so that it does not decide the bits. */
static int key_parts(const tigon_queue *queue, const tigon_attention_bwd_problem *p, int dim) {
  const int64_t tiles = cuda_ceil_div(p->keys, ATTENTION_WGMMA_BWD_ROWS), turns = in_pairs(p) ? (tiles + 1) / 2 : tiles;
  const int64_t steps = cuda_ceil_div(p->tokens, ATTENTION_WGMMA_BWD_COLS(dim, true)) * (p->q.heads / p->k.heads);
  return steps >= ATTENTION_SHARED_STEPS && 2 * turns * p->k.heads <= cuda_of(queue)->desc.cores ? 2 : 1;
}

/* dk and dv, or dq, by tiles of keys or of queries. a and b are k and v, or q and do. */
static tigon_status launch_bwd_wgmma(tigon_queue *queue, const tigon_attention_bwd_problem *p, int dim, bool of_keys) {
  static cuda_kernel kernels[2][2][3] = {{CUDA_NARROW_KERNELS(attention_bwd_wgmma, attention_bwd_wgmma_queries_64),
                                          CUDA_NARROW_KERNELS(attention_bwd_wgmma, attention_bwd_wgmma_queries_128)},
                                         {CUDA_NARROW_KERNELS(attention_bwd_wgmma, attention_bwd_wgmma_keys_64),
                                          CUDA_NARROW_KERNELS(attention_bwd_wgmma, attention_bwd_wgmma_keys_128)}};
  const tigon_heads *const rows[] = {of_keys ? &p->k : &p->q, of_keys ? &p->v : &p->d_o};
  const tigon_heads *const cols[] = {of_keys ? &p->q : &p->k, of_keys ? &p->d_o : &p->v};
  const int64_t row_count = of_keys ? p->keys : p->tokens, col_count = of_keys ? p->tokens : p->keys;
  const int64_t group = p->q.heads / p->k.heads, shared_bytes = ATTENTION_WGMMA_BWD_SHARED(dim, of_keys);
  attention_turns turns = turns_of(queue, cuda_ceil_div(row_count, ATTENTION_WGMMA_BWD_ROWS), p->batch * rows[0]->heads,
                                   of_keys ? 1 : group, 4 * col_count * p->head_dim * (of_keys ? group : 1),
                                   of_keys ? key_parts(queue, p, dim) : 1);
  if (of_keys && in_pairs(p)) pair(queue, &turns);
  cuda_shape shape = stay(queue, &turns, ATTENTION_WGMMA_BWD_THREADS, (int)shared_bytes);
  shape.awaits = true;
  cu_tensor_map maps[4]; /* attention_bwd_maps */
  tigon_status status = TIGON_OK;
  for (int i = 0; i < 4 && status == TIGON_OK; ++i) {
    const cuda_boxes boxes =
        i < 2 ? boxes_of(rows[i], p->batch, row_count, p->head_dim, ATTENTION_WGMMA_BWD_ROWS)
              : boxes_of(cols[i - 2], p->batch, col_count, p->head_dim, ATTENTION_WGMMA_BWD_COLS(dim, of_keys));
    status = cuda_tensor_map(queue, &boxes, &maps[i]);
  }
  if (status != TIGON_OK) return status;
  return cuda_launch(queue, cuda_by_dtype(kernels[of_keys][dim == 128], p->dtype), shape,
                     CUDA_ARGUMENTS((void *)p, (void *)&turns, maps));
}

/* Do the kernels for sm_90a? */
static bool has_bwd_wgmma(const tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  const tigon_heads *const of_queries[] = {&p->q, &p->d_o}, *const of_keys[] = {&p->k, &p->v};
  const int64_t rows = p->tokens > p->keys ? p->tokens : p->keys;
  if (!cuda_of(queue)->wgmma || p->exact || p->batch == 0 || p->tokens == 0 || p->keys == 0 || p->k.heads == 0 ||
      rows > MOST || p->batch * p->q.heads > MOST / rows)
    return false;
  for (int i = 0; i < 2; ++i) {
    const cuda_boxes a = boxes_of(of_queries[i], p->batch, p->tokens, p->head_dim, ATTENTION_WGMMA_BWD_ROWS);
    const cuda_boxes b = boxes_of(of_keys[i], p->batch, p->keys, p->head_dim, ATTENTION_WGMMA_BWD_ROWS);
    if (!cuda_boxes_fit(&a) || !cuda_boxes_fit(&b)) return false;
  }
  return true;
}

/* delta, then dsinks. */
static tigon_status launch_sums(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  const tigon_status status = launch_delta(queue, p, NULL, 0);
  return status == TIGON_OK ? launch_sinks(queue, p) : status;
}

/* ---- backward, in one walk ---- */

/* Is dq summed up in memory? With fewer tokens that is no faster. The batch does not count, so that it does not decide the bits. */
static bool in_one_walk(const tigon_queue *queue, const tigon_attention_bwd_problem *p, int dim) {
  return p->window == 0 && p->tokens >= (p->causal ? 3072 : 2048) && key_parts(queue, p, dim) == 1;
}

static int64_t once_places(const tigon_attention_bwd_problem *p, int dim) {
  return p->batch * p->q.heads * cuda_ceil_div(p->tokens, ATTENTION_ONCE_COLS(dim));
}
static int64_t once_sums_bytes(const tigon_attention_bwd_problem *p, int dim) {
  return 4 * ATTENTION_ONCE_PART * once_places(p, dim);
}

/* Delta, all gradients but dq, then dq from its sums; dsinks. */
static tigon_status launch_once(tigon_queue *queue, const tigon_attention_bwd_problem *p, int dim) {
  static cuda_kernel kernels[2][3] = {CUDA_NARROW_KERNELS(attention_once_wgmma, attention_once_wgmma_64),
                                      CUDA_NARROW_KERNELS(attention_once_wgmma, attention_once_wgmma_128)};
  static cuda_kernel queries[2][3] = {CUDA_NARROW_KERNELS(attention_once_wgmma, attention_once_wgmma_queries_64),
                                      CUDA_NARROW_KERNELS(attention_once_wgmma, attention_once_wgmma_queries_128)};
  const int64_t tiles = cuda_ceil_div(p->keys, ATTENTION_WGMMA_BWD_ROWS), heads = p->batch * p->k.heads,
                places = once_places(p, dim), cores = cuda_of(queue)->desc.cores;
  /* A block waits for those with lower tiles of its head: fewer are at work where a section has more heads. */
  const int64_t section = p->causal && p->q.heads == p->k.heads ? 2 * ATTENTION_ONCE_SECTION : ATTENTION_ONCE_SECTION;
  attention_once once = {.sums = p->own,
                         .turns = (int *)(void *)((char *)p->own + once_sums_bytes(p, dim)),
                         .tiles = (int)tiles,
                         .heads = (int)heads,
                         .section = (int)(heads < section ? heads : section)};
  tigon_status status = launch_delta(queue, p, once.turns, 1 + places);
  if (status == TIGON_OK) status = launch_sinks(queue, p);
  const tigon_heads *const of[] = {&p->k, &p->v, &p->q, &p->d_o};
  cu_tensor_map maps[4]; /* attention_bwd_maps */
  for (int i = 0; i < 4 && status == TIGON_OK; ++i) {
    const cuda_boxes boxes = boxes_of(of[i], p->batch, i < 2 ? p->keys : p->tokens, p->head_dim,
                                      i < 2 ? ATTENTION_WGMMA_BWD_ROWS : ATTENTION_ONCE_COLS(dim));
    status = cuda_tensor_map(queue, &boxes, &maps[i]);
  }
  if (status != TIGON_OK) return status;
  cuda_shape shape = {.blocks = tiles * heads < cores ? tiles * heads : cores,
                      .threads = ATTENTION_WGMMA_BWD_THREADS,
                      .shared_bytes = ATTENTION_ONCE_SHARED(dim),
                      .awaits = true};
  status =
      cuda_launch(queue, cuda_by_dtype(kernels[dim == 128], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &once, maps));
  shape = (cuda_shape){.blocks = places, .threads = ATTENTION_ONCE_THREADS, .awaits = true};
  return status == TIGON_OK
             ? cuda_launch(queue, cuda_by_dtype(queries[dim == 128], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &once))
             : status;
}

/* ---- backward, of all kernels ---- */

/* These, then dk and dv, dq. */
static tigon_status launch_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p, cuda_kernel *keys,
                               cuda_kernel *queries, attention_walk walk, int threads, const int shared_bytes[2]) {
  cuda_shape shape = {.threads = threads, .shared_bytes = shared_bytes[0]};
  tigon_status status = launch_sums(queue, p);
  shape.blocks = p->batch * p->k.heads * walk.key_places;
  if (status == TIGON_OK)
    status = cuda_launch(queue, cuda_by_dtype(keys, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
  shape.blocks = p->batch * p->q.heads * walk.query_places, shape.shared_bytes = shared_bytes[1];
  if (status == TIGON_OK)
    status = cuda_launch(queue, cuda_by_dtype(queries, p->dtype), shape, CUDA_ARGUMENTS((void *)p, &walk));
  return status;
}

static tigon_status backward(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  static cuda_kernel keys[2][2][3] = {
      {CUDA_KERNELS(attention_bwd, attention_bwd_keys_1), CUDA_KERNELS(attention_bwd, attention_bwd_keys_2)},
      {CUDA_KERNELS(attention_bwd, attention_bwd_any_keys_1), CUDA_KERNELS(attention_bwd, attention_bwd_any_keys_2)}};
  static cuda_kernel queries[2][2][3] = {
      {CUDA_KERNELS(attention_bwd, attention_bwd_queries_1), CUDA_KERNELS(attention_bwd, attention_bwd_queries_2)},
      {CUDA_KERNELS(attention_bwd, attention_bwd_any_queries_1),
       CUDA_KERNELS(attention_bwd, attention_bwd_any_queries_2)}};
  static cuda_kernel mma_keys[2][2][3] = {{CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_mma_keys_64),
                                           CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_mma_keys_128)},
                                          {CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_any_mma_keys_64),
                                           CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_any_mma_keys_128)}};
  static cuda_kernel mma_queries[2][2][3] = {
      {CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_mma_queries_64),
       CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_mma_queries_128)},
      {CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_any_mma_queries_64),
       CUDA_NARROW_KERNELS(attention_bwd_mma, attention_bwd_any_mma_queries_128)}};
  const bool any = p->softcap > 0 || tigon_attention_is_cut(&p->cuts);
  const tigon_heads *const heads[] = {&p->q, &p->k, &p->v, &p->d_o, &p->dq, &p->dk, &p->dv};
  const int dim = mma_dim(p->dtype, p->head_dim);
  const int rows = dim ? ATTENTION_MMA_BWD_WARPS * 16 : ATTENTION_TILE;
  const attention_walk walk = {.wide = all_wide(heads, 7, p->head_dim, p->dtype, dim ? 8 : 4),
                               .query_places = tigon_attention_places(&p->cuts, false, rows),
                               .key_places = tigon_attention_places(&p->cuts, true, rows)};
  if (dim && !any && walk.wide && has_bwd_wgmma(queue, p)) {
    if (in_one_walk(queue, p, dim)) return launch_once(queue, p, dim);
    tigon_status status = launch_sums(queue, p);
    if (status == TIGON_OK) status = launch_bwd_wgmma(queue, p, dim, true);
    return status == TIGON_OK ? launch_bwd_wgmma(queue, p, dim, false) : status;
  }
  if (dim) {
    const int bytes[2] = {attention_mma_bwd_bytes(dim, ATTENTION_MMA_KEYS_COLS),
                          attention_mma_bwd_bytes(dim, ATTENTION_MMA_QUERIES_COLS)};
    return launch_bwd(queue, p, mma_keys[any][dim == 128], mma_queries[any][dim == 128], walk,
                      ATTENTION_MMA_BWD_WARPS * 32, bytes);
  }
  const bool f32 = p->dtype == TIGON_F32;
  int kept = p->head_dim > ATTENTION_TILE ? 2 : 1;
  if (attention_bwd_tiles(kept, f32) * ATTENTION_TILE_BYTES + 1024 > cuda_of(queue)->desc.onchip_bytes) kept = 1;
  const int bytes = attention_bwd_tiles(kept, f32) * ATTENTION_TILE_BYTES;
  return launch_bwd(queue, p, keys[any][kept - 1], queries[any][kept - 1], walk, threads_for(p->dtype),
                    (const int[]){bytes, bytes});
}

int64_t tigon_cuda_attention_bwd_bytes(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  tigon_attention_bwd_problem graded = *p;
  graded.exact = p->exact || !cuda_of(queue)->rounds_attention;
  const int dim = mma_dim(p->dtype, p->head_dim);
  const bool any = p->softcap > 0 || tigon_attention_is_cut(&p->cuts);
  const int64_t delta_bytes = tigon_pad(4 * p->batch * p->q.heads * p->tokens);
  if (!dim || any || !has_bwd_wgmma(queue, &graded) || !in_one_walk(queue, p, dim)) return delta_bytes;
  return delta_bytes + once_sums_bytes(p, dim) + tigon_pad(4 * (1 + once_places(p, dim)));
}

tigon_status tigon_cuda_attention_bwd(tigon_queue *queue, const tigon_attention_bwd_problem *p) {
  tigon_attention_bwd_problem graded = *p;
  graded.exact = p->exact || !cuda_of(queue)->rounds_attention;
  return backward(queue, &graded);
}
