#include "cpu/column_sum.h"
#include "cpu/norm_bwd.h"
#include "cpu/norm_fwd.h"
#include "cpu/norm_quantised.h"

static void fwd_task(const void *job, int64_t index) { norm_fwd_task(NORM_RMS, job, index); }
static void fwd_gated_task(const void *job, int64_t index) { norm_fwd_task(NORM_GATED, job, index); }

tigon_status TIGON_CPU(rms_norm_fwd)(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  return p->z.data ? norm_fwd_run(NORM_GATED, queue, p, fwd_gated_task) : norm_fwd_run(NORM_RMS, queue, p, fwd_task);
}

static void quantised_task(const void *job, int64_t index) { norm_quantised_task(NORM_RMS, job, index); }
static void quantised_gated_task(const void *job, int64_t index) { norm_quantised_task(NORM_GATED, job, index); }

tigon_status TIGON_CPU(rms_norm_quantised)(tigon_queue *queue, const tigon_rms_norm_quantised_problem *p) {
  const int64_t rows = p->space.rows, bytes = norm_fwd_bytes(p->z.data ? NORM_GATED : NORM_RMS, p);
  const norm_fwd_job job = {.p = p, .cut = split_of(queue, rows, p->cols, bytes)};
  tigon_cpu_note(queue, 1, 0);
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(rows, bytes), p->z.data ? quantised_gated_task : quantised_task, &job);
  return TIGON_OK;
}

typedef struct bwd {
  norm_bwd_cut rows;
  int64_t slabs;
} bwd;

static void share_task(const void *rows, int64_t index) { norm_bwd_share_task(NORM_RMS, rows, index); }
static void share_gated_task(const void *rows, int64_t index) { norm_bwd_share_task(NORM_GATED, rows, index); }

/* Task (slab, share of its rows). */
TIGON_INLINE void slab_task(norm_kind kind, const bwd *b, int64_t index) {
  const tigon_rms_norm_bwd_problem *p = b->rows.p;
  const split *cut = &b->rows.cut;
  const int64_t range = index / cut->tasks;
  const split_range at = split_share(cut, index);
  int64_t begin, end;
  tigon_range(p->space.rows, b->slabs, range, &begin, &end);
  float *slab = p->dw ? p->slabs + range * p->cols : NULL;
  const bool stream = tigon_cpu_streams(norm_bwd_bytes(p));
  TIGON_FOR_DTYPE(p->dtype, norm_bwd_rows, kind, &b->rows, begin, end, end, at, slab, NULL, stream);
}
static void bwd_task(const void *b, int64_t index) { slab_task(NORM_RMS, b, index); }
static void bwd_gated_task(const void *b, int64_t index) { slab_task(NORM_GATED, b, index); }

int64_t TIGON_CPU(rms_norm_bwd_bytes)(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  (void)queue;
  return tigon_slab_bytes(norm_bwd_ranges(p), 1, p->cols);
}

tigon_status TIGON_CPU(rms_norm_bwd)(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  norm_sums parts[SPLIT_CELLS];
  const bool gated = p->z.data;
  const bwd b = {norm_bwd_split(queue, p, parts, gated ? share_gated_task : share_task), norm_bwd_ranges(p)};
  const column_sum dw = column_sum_of(p->slabs, b.slabs, 0, 1, p->cols, p->dw, p->dw_dtype, p->accumulate_dw);
  tigon_cpu_parallel_bytes(queue, b.slabs * b.rows.cut.tasks, norm_bwd_bytes(p), gated ? bwd_gated_task : bwd_task, &b);
  if (p->dw) column_sum_list(queue, &dw, 1);
  return TIGON_OK;
}

tigon_status TIGON_CPU(fused_add_rms_norm_bwd)(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  return TIGON_CPU(rms_norm_bwd)(queue, p);
}
int64_t TIGON_CPU(fused_add_rms_norm_bwd_bytes)(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  return TIGON_CPU(rms_norm_bwd_bytes)(queue, p);
}
