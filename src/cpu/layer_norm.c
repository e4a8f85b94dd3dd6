#include "cpu/column_sum.h"
#include "cpu/norm_bwd.h"
#include "cpu/norm_fwd.h"

static void fwd_task(const void *job, int64_t index) { norm_fwd_task(NORM_LAYER, job, index); }

tigon_status TIGON_CPU(layer_norm_fwd)(tigon_queue *queue, const tigon_norm_fwd_problem *p) {
  return norm_fwd_run(NORM_LAYER, queue, p, queue->plan, fwd_task);
}

typedef struct bwd {
  norm_bwd_cut rows;
  int64_t slabs;
} bwd;

static void share_task(const void *rows, int64_t index) { norm_bwd_share_task(NORM_LAYER, rows, index); }

/* Task (slab, share of its rows). A slab is [2, cols]: dw's and db's. */
static void bwd_task(const void *argument, int64_t index) {
  const bwd *b = argument;
  const tigon_norm_bwd_problem *p = b->rows.p;
  const split *cut = &b->rows.cut;
  const int64_t range = index / cut->tasks;
  const split_range at = split_share(cut, index);
  int64_t begin, end;
  tigon_plan_range(p->space.rows, b->slabs, range, &begin, &end);
  float *slab = p->dw || p->db ? p->slabs + range * 2 * p->cols : NULL, *db = slab ? slab + p->cols : NULL;
  const bool stream = tigon_cpu_streams(norm_bwd_bytes(p));
  TIGON_FOR_DTYPE(p->dtype, norm_bwd_rows, NORM_LAYER, &b->rows, begin, end, end, at, slab, db, stream);
}

tigon_status TIGON_CPU(layer_norm_bwd)(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  norm_sums parts[SPLIT_CELLS];
  const bwd b = {norm_bwd_split(queue, p, plan, parts, share_task), plan->slabs};
  const column_sum sums[] = {
      column_sum_of(p->slabs, b.slabs, 0, 2, p->cols, p->dw, p->dw_dtype, p->accumulate_dw),
      column_sum_of(p->slabs, b.slabs, 1, 2, p->cols, p->db, p->db_dtype, p->accumulate_dw),
  };
  tigon_cpu_parallel_bytes(queue, b.slabs * b.rows.cut.tasks, norm_bwd_bytes(p), bwd_task, &b);
  if (p->dw || p->db) column_sum_list(queue, sums, 2);
  return TIGON_OK;
}
