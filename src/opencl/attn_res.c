#include "opencl/kernel/attn_res.h"

#include "core/context.h"
#include "opencl/column_sum.h"
#include "opencl/tables.h"
#include "opencl/workspace.h"

typedef tigon_attn_res_problem problem;

/* The workspace. */
typedef struct job {
  attn_res_numbers k;
  float *c, *words; /* [cols], [2, tokens, blocks] */
  float *sums;      /* forward of many blocks: [tokens, cols] of h so far; backward: [slabs, cols] of u; NULL: none */
} job;

static bool wants_sums(const problem *p) { return p->dq.dtype || p->dwn.dtype; }

static int64_t take(const tigon_queue *queue, const problem *p, bool backward, job *j) {
  opencl_parts parts = {p->workspace, 0};
  j->c = opencl_take(&parts, 1, p->cols);
  j->words = opencl_take(&parts, 2 * p->space.rows, p->blocks);
  const bool sums = backward ? wants_sums(p) : p->blocks > ATTN_RES_BLOCKS;
  j->sums = sums ? opencl_take(&parts, backward ? opencl_slabs(queue, p->space.rows) : p->space.rows, p->cols) : NULL;
  return parts.bytes;
}
int64_t tigon_opencl_attn_res_fwd_bytes(tigon_queue *queue, const problem *p) {
  return take(queue, p, false, &(job){.c = NULL});
}
int64_t tigon_opencl_attn_res_bwd_bytes(tigon_queue *queue, const problem *p) {
  return take(queue, p, true, &(job){.c = NULL});
}

static job job_of(const tigon_queue *queue, const problem *p, bool backward) {
  job j = {.k = {.space = p->space,
                 .v = opencl_pitch(&p->v.rows),
                 .dv = opencl_pitch(&p->dv.rows),
                 .h = opencl_pitch(&p->h),
                 .cols = p->cols,
                 .blocks = p->blocks,
                 .slabs = opencl_slabs(queue, p->space.rows),
                 .q_dtype = (int32_t)p->q.dtype,
                 .wn_dtype = (int32_t)p->wn.dtype,
                 .dq_dtype = (int32_t)p->dq.dtype,
                 .dwn_dtype = (int32_t)p->dwn.dtype,
                 .accumulate = p->accumulate,
                 .eps = p->eps}};
  take(queue, p, backward, &j);
  return j;
}

/* ---- launches ---- */

/* Work-items that have whole tokens, or vectors of columns. */
static opencl_shape items_shape(const tigon_queue *queue, int64_t items) {
  const opencl_device *d = opencl_of(queue);
  return opencl_row_shape(queue, d->model == OPENCL_ITEMS ? items : opencl_ceil_div(items, d->group));
}

/* Block `first + i`'s address; NULL past the launch's last one. */
static const void *block(const problem *p, const job *j, const tigon_blocks *of, int64_t i) {
  return i < j->k.count ? tigon_block(of, tigon_dtype_size(p->dtype), j->k.first + i) : NULL;
}
#define BLOCKS(of)                                                                                    \
  block(p, j, of, 0), block(p, j, of, 1), block(p, j, of, 2), block(p, j, of, 3), block(p, j, of, 4), \
      block(p, j, of, 5), block(p, j, of, 6), block(p, j, of, 7)

static tigon_status make_c(tigon_queue *queue, const problem *p, const job *j) {
  static const opencl_kernel kernel = {"attn_res", "attn_res_c"};
  return opencl_launch(queue, &kernel, p->dtype, items_shape(queue, opencl_ceil_div(p->cols, opencl_of(queue)->lanes)),
                       OPENCL_MEMORY(p->q.data, p->wn.data, j->c), &j->k, sizeof j->k);
}

static tigon_status sum(tigon_queue *queue, const problem *p, const job *j, const void *dh) {
  static const opencl_kernel kernel = {"attn_res", "attn_res_sums"};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(BLOCKS(&p->v), j->c, dh, j->words), &j->k, sizeof j->k);
}
static tigon_status fwd_sum(tigon_queue *queue, const problem *p, const job *j) { return sum(queue, p, j, NULL); }
static tigon_status bwd_sum(tigon_queue *queue, const problem *p, const job *j) { return sum(queue, p, j, p->h.data); }

static tigon_status mix(tigon_queue *queue, const problem *p, const job *j) {
  static const opencl_kernel kernel = {"attn_res", "attn_res_mix"};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(BLOCKS(&p->v), j->words, j->sums, p->h.data), &j->k, sizeof j->k);
}

static opencl_shape slabs_shape(const tigon_queue *queue, const job *j) {
  opencl_shape shape = opencl_row_shape(queue, j->k.slabs);
  shape.slabs = j->sums ? j->k.slabs : 0;
  return shape;
}

static tigon_status make_dv(tigon_queue *queue, const problem *p, const job *j) {
  static const opencl_kernel kernel = {"attn_res", "attn_res_dv"};
  return opencl_launch(queue, &kernel, p->dtype, slabs_shape(queue, j),
                       OPENCL_MEMORY(BLOCKS(&p->v), BLOCKS(&p->dv), j->c, p->h.data, j->words, p->a, j->sums), &j->k,
                       sizeof j->k);
}

/* ---- all of a token's work in one launch ---- */

static tigon_status fwd_at_once(tigon_queue *queue, const problem *p, const job *j) {
  static const opencl_kernel kernel = {"attn_res", "attn_res_fwd"};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(BLOCKS(&p->v), j->c, j->words, p->a, p->rstd, p->h.data), &j->k, sizeof j->k);
}

static tigon_status bwd_at_once(tigon_queue *queue, const problem *p, const job *j) {
  static const opencl_kernel kernel = {"attn_res", "attn_res_bwd"};
  return opencl_launch(queue, &kernel, p->dtype, slabs_shape(queue, j),
                       OPENCL_MEMORY(BLOCKS(&p->v), BLOCKS(&p->dv), j->c, p->h.data, j->words, p->a, p->rstd, j->sums),
                       &j->k, sizeof j->k);
}

/* A launch for every ATTN_RES_BLOCKS blocks, one where there is none. */
static tigon_status each_blocks(tigon_queue *queue, const problem *p, job *j,
                                tigon_status (*launch)(tigon_queue *queue, const problem *p, const job *j)) {
  j->k.first = 0;
  do {
    const int64_t left = p->blocks - j->k.first;
    j->k.count = left < ATTN_RES_BLOCKS ? left : ATTN_RES_BLOCKS;
    TIGON_TRY(launch(queue, p, j));
    j->k.first += ATTN_RES_BLOCKS;
  } while (j->k.first < p->blocks);
  return TIGON_OK;
}

tigon_status tigon_opencl_attn_res_fwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel weights = {"attn_res", "attn_res_weights"};
  job j = job_of(queue, p, false);
  TIGON_TRY(make_c(queue, p, &j));
  if (p->blocks <= ATTN_RES_BLOCKS) return each_blocks(queue, p, &j, fwd_at_once);
  TIGON_TRY(each_blocks(queue, p, &j, fwd_sum));
  TIGON_TRY(opencl_launch(queue, &weights, p->dtype, items_shape(queue, p->space.rows),
                          OPENCL_MEMORY(j.words, p->a, p->rstd), &j.k, sizeof j.k));
  return each_blocks(queue, p, &j, mix);
}

tigon_status tigon_opencl_attn_res_bwd(tigon_queue *queue, const problem *p) {
  static const opencl_kernel slopes = {"attn_res", "attn_res_slopes"}, end = {"attn_res", "attn_res_end"};
  job j = job_of(queue, p, true);
  TIGON_TRY(make_c(queue, p, &j));
  if (p->blocks <= ATTN_RES_BLOCKS) {
    TIGON_TRY(each_blocks(queue, p, &j, bwd_at_once));
  } else {
    TIGON_TRY(each_blocks(queue, p, &j, bwd_sum));
    TIGON_TRY(opencl_launch(queue, &slopes, p->dtype, items_shape(queue, p->space.rows),
                            OPENCL_MEMORY(j.words, p->a, p->rstd), &j.k, sizeof j.k));
    TIGON_TRY(each_blocks(queue, p, &j, make_dv));
  }
  if (!wants_sums(p)) return TIGON_OK;
  return opencl_launch(queue, &end, p->dtype, items_shape(queue, opencl_ceil_div(p->cols, opencl_of(queue)->lanes)),
                       OPENCL_MEMORY(j.sums, p->q.data, p->wn.data, p->dq.data, p->dwn.data), &j.k, sizeof j.k);
}
