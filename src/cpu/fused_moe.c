/* fused_moe forward, and what backward shares with it. Slots are sorted by expert, and processed in panels. Their rows of x are
 * gathered, the products of all experts of a panel share the threads, and the results are added to f32 sums of the tokens. These
 * are added up in the order of experts, which no panel or thread changes. */
#include "cpu/fused_moe.h"

#include <string.h>

/* ---- the workspace ---- */

static void *cut(char *workspace, int64_t *used, int64_t bytes) {
  char *at = workspace ? workspace + *used : NULL;
  *used += tigon_pad(bytes);
  return at;
}

/* Sums of a gradient of `count` elements. Without a second panel no expert goes on, and f32 that nothing is added to is its own
 * sum. */
static float *cut_carry(const moe_problem *p, char *workspace, int64_t *used, tigon_dtype dtype, int64_t count) {
  if (dtype == TIGON_DTYPE_NONE || (dtype == TIGON_F32 && !p->accumulate)) return NULL;
  return cut(workspace, used, count * (int64_t)sizeof(float));
}

moe_memory TIGON_CPU(moe_layout)(const moe_problem *p, bool backward, int64_t rows) {
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype), wide = 2 * p->inner, slots = tigon_moe_slots(p);
  const bool has_out = backward ? p->dx.data || !p->workspace : true;
  char *w = p->workspace;
  moe_memory m = {0};
  m.order = cut(w, &m.bytes, slots * (int64_t)sizeof *m.order);
  m.ends = cut(w, &m.bytes, (p->experts + 1) * (int64_t)sizeof *m.ends);
  if (has_out && p->dtype != TIGON_F32) m.sums = cut(w, &m.bytes, p->space.rows * p->cols * (int64_t)sizeof(float));
  m.x = cut(w, &m.bytes, rows * p->cols * size);
  if (backward || !p->pre.dtype) m.pre = cut(w, &m.bytes, rows * wide * size);
  m.c = cut(w, &m.bytes, rows * p->inner * size);
  m.out = cut(w, &m.bytes, rows * p->cols * (int64_t)sizeof(float));
  if (!backward) return m;
  m.dy = cut(w, &m.bytes, rows * p->cols * size);
  m.d = cut(w, &m.bytes, rows * p->inner * (int64_t)sizeof(float));
  if (rows >= slots) return m;
  m.carry[0] = cut_carry(p, w, &m.bytes, p->dgate_up.dtype, wide * p->cols);
  m.carry[1] = cut_carry(p, w, &m.bytes, p->ddown.dtype, p->inner * p->cols);
  m.carry[2] = cut(w, &m.bytes, wide * (int64_t)sizeof(float));
  m.carry[3] = cut(w, &m.bytes, p->cols * (int64_t)sizeof(float));
  return m;
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t bytes_of(const moe_problem *p, bool backward, int64_t rows) {
  return TIGON_CPU(moe_layout)(p, backward, rows).bytes;
}

/* A panel of all slots has no sums of experts that go on, and may take less than a smaller one. */
int64_t TIGON_CPU(moe_bytes)(const moe_problem *p, bool backward) {
  const int64_t slots = tigon_moe_slots(p), good = bytes_of(p, backward, at_most(MOE_GOOD_ROWS, slots));
  return p->workspace_bytes ? good : at_most(good, bytes_of(p, backward, at_most(MOE_LEAST_ROWS, slots)));
}

int64_t TIGON_CPU(fused_moe_fwd_bytes)(tigon_queue *queue, const moe_problem *p) {
  (void)queue;
  return TIGON_CPU(moe_bytes)(p, false);
}

/* The most rows that the workspace has room for. */
static int64_t rows_that_fit(const moe_problem *p, bool backward) {
  const int64_t slots = tigon_moe_slots(p);
  int64_t least = at_most(MOE_LEAST_ROWS, slots), most = at_most(MOE_GOOD_ROWS, slots);
  if (bytes_of(p, backward, most) <= p->workspace_bytes) return most;
  while (least < most) {
    const int64_t rows = least + (most - least + 1) / 2;
    if (rows < slots && bytes_of(p, backward, rows) <= p->workspace_bytes)
      least = rows;
    else
      most = rows - 1;
  }
  return least;
}

/* ---- the order ---- */

static void sort(moe_job *j) {
  const int64_t slots = tigon_moe_slots(j->p), experts = j->p->experts;
  int64_t *ends = j->at.ends, sum = 0;
  memset(ends, 0, (size_t)(experts + 1) * sizeof *ends);
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t s = 0; s < slots; ++s) {
      const int64_t e = tigon_moe_expert(j->p, s);
      int64_t *next = &ends[e >= 0 ? e : experts];
      if (pass == 1) j->at.order[*next] = s;
      ++*next;
    }
    for (int64_t e = 0; pass == 0 && e <= experts; ++e) {
      const int64_t count = ends[e];
      ends[e] = sum;
      sum += count;
    }
  }
  j->count = experts > 0 ? ends[experts - 1] : 0;
}

moe_job TIGON_CPU(moe_begin)(const tigon_queue *queue, const moe_problem *p, bool backward) {
  moe_job j = {.queue = queue, .p = p, .rows = rows_that_fit(p, backward), .count = tigon_moe_slots(p)};
  j.at = TIGON_CPU(moe_layout)(p, backward, j.rows);
  if (!queue->record) sort(&j);
  return j;
}

bool TIGON_CPU(moe_next)(moe_job *j) {
  const int64_t begin = j->end;
  int64_t e = j->last;
  if (e > 0 && moe_expert_begin(j, e) > begin) --e; /* it goes on */
  if (begin >= j->count) return false;
  j->begin = begin;
  j->first = e;
  for (; e < j->p->experts && moe_expert_begin(j, e + 1) - begin <= j->rows; ++e) j->end = moe_expert_begin(j, e + 1);
  if (j->end == begin) {
    j->end = begin + j->rows / MOE_BLOCK * MOE_BLOCK;
    ++e;
  }
  j->last = e;
  return true;
}

void TIGON_CPU(moe_products)(const moe_job *j, tigon_gemm_problem (*make)(const moe_job *j, const moe_part *part)) {
  tigon_gemm_problem group[GEMM_GROUP];
  int count = 0;
  for (int64_t e = j->first; e < j->last; ++e) {
    const moe_part part = moe_part_of(j, e);
    if (part.rows > 0) group[count++] = make(j, &part);
    if (count < GEMM_GROUP && e + 1 < j->last) continue;
    TIGON_CPU(gemm)(j->queue, group, count);
    count = 0;
  }
}

/* ---- rows of tokens ---- */

static int64_t token_of(const moe_job *j, int64_t at) { return j->at.order[j->begin + at] / j->p->top_k; }

typedef struct row_job {
  const moe_job *j;
  const tigon_rows *rows;
  int64_t tasks;
  bool weighted;
} row_job;

static int64_t row_tasks(const moe_job *j, int64_t rows) {
  return tigon_cpu_row_tasks(rows, j->p->cols * (int64_t)sizeof(float));
}

static void gather_task(const void *argument, int64_t index) {
  const row_job *r = argument;
  const moe_job *j = r->j;
  const moe_problem *p = j->p;
  const size_t size = tigon_dtype_size(p->dtype), bytes = (size_t)p->cols * size;
  int64_t begin, end;
  tigon_range(j->end - j->begin, r->tasks, index, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t t = token_of(j, i);
    memcpy(j->at.x + (size_t)i * bytes, tigon_row(&p->space, &p->x, size, t), bytes);
    if (j->at.dy) memcpy(j->at.dy + (size_t)i * bytes, tigon_row(&p->space, &p->y, size, t), bytes);
  }
}

void TIGON_CPU(moe_gather)(const moe_job *j) {
  const row_job r = {.j = j, .tasks = row_tasks(j, j->end - j->begin)};
  if (j->p->cols > 0) tigon_cpu_parallel(j->queue, r.tasks, gather_task, &r);
}

/* Token t's sums. */
static float *sums_of(const moe_job *j, const tigon_rows *to, int64_t t) {
  return j->at.sums ? j->at.sums + t * j->p->cols : tigon_row(&j->p->space, to, sizeof(float), t);
}

static void clear_task(const void *argument, int64_t index) {
  const row_job *r = argument;
  int64_t begin, end;
  tigon_range(r->j->p->space.rows, r->tasks, index, &begin, &end);
  for (int64_t t = begin; t < end; ++t) memset(sums_of(r->j, r->rows, t), 0, (size_t)r->j->p->cols * sizeof(float));
}

void TIGON_CPU(moe_clear_sums)(const moe_job *j, const tigon_rows *to) {
  const row_job r = {.j = j, .rows = to, .tasks = row_tasks(j, j->p->space.rows)};
  if (j->p->cols > 0) tigon_cpu_parallel(j->queue, r.tasks, clear_task, &r);
}

/* A range of columns, so that a token's sums are one task's. */
static void add_task(const void *argument, int64_t index) {
  const row_job *r = argument;
  const moe_job *j = r->j;
  const moe_problem *p = j->p;
  const int64_t begin = index * MOE_COLUMNS, end = at_most(p->cols, begin + MOE_COLUMNS);
  for (int64_t i = 0; i < j->end - j->begin; ++i) {
    const int64_t slot = j->at.order[j->begin + i];
    const float *out = j->at.out + i * p->cols;
    float *sums = sums_of(j, r->rows, slot / p->top_k);
    const vf w = vf_set(r->weighted ? s_load(p->w.data, slot, p->w.dtype) : 1);
    for (int64_t c = begin; c < end; c += LANES) {
      const int n = (int)at_most(LANES, end - c);
      vf_store_n(sums + c, vf_fma(w, vf_load_n(out + c, n), vf_load_n(sums + c, n)), n);
    }
  }
}

void TIGON_CPU(moe_add_out)(const moe_job *j, const tigon_rows *to, bool weighted) {
  const row_job r = {.j = j, .rows = to, .weighted = weighted};
  tigon_cpu_parallel(j->queue, (j->p->cols + MOE_COLUMNS - 1) / MOE_COLUMNS, add_task, &r);
}

TIGON_INLINE void store_rows(tigon_dtype dtype, const row_job *r, int64_t begin, int64_t end) {
  const moe_problem *p = r->j->p;
  for (int64_t t = begin; t < end; ++t) {
    const float *sums = r->j->at.sums + t * p->cols;
    void *row = tigon_row(&p->space, r->rows, (size_t)v_size(dtype), t);
    for (int64_t c = 0; c < p->cols; c += LANES)
      moe_store(row, c, dtype, moe_load(sums, c, TIGON_F32, p->cols - c), p->cols - c);
  }
}
static void store_task(const void *argument, int64_t index) {
  const row_job *r = argument;
  int64_t begin, end;
  tigon_range(r->j->p->space.rows, r->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(r->j->p->dtype, store_rows, r, begin, end);
}

void TIGON_CPU(moe_store_sums)(const moe_job *j, const tigon_rows *to) {
  const row_job r = {.j = j, .rows = to, .tasks = row_tasks(j, j->p->space.rows)};
  if (j->at.sums && j->p->cols > 0) tigon_cpu_parallel(j->queue, r.tasks, store_task, &r);
}

/* ---- forward ---- */

static tigon_gemm_problem pre_of(const moe_job *j, const moe_part *part) {
  const moe_problem *p = j->p;
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype), wide = 2 * p->inner;
  const tigon_vector *bias = &p->gate_up_bias;
  return (tigon_gemm_problem){
      .m = part->rows,
      .n = wide,
      .k = p->cols,
      .a = {j->at.x + part->at * p->cols * size, p->dtype, p->cols, false},
      .b = moe_matrix(&p->gate_up, part->expert, true),
      .c = moe_pre_row(j, part->at),
      .c_dtype = p->dtype,
      .c_pitch = wide,
      .bias = bias->data ? (char *)bias->data + part->expert * wide * (int64_t)tigon_dtype_size(bias->dtype) : NULL,
      .bias_dtype = bias->dtype,
  };
}
void TIGON_CPU(moe_make_pre)(const moe_job *j) { TIGON_CPU(moe_products)(j, pre_of); }

static tigon_gemm_problem z_of(const moe_job *j, const moe_part *part) {
  const moe_problem *p = j->p;
  const int64_t size = (int64_t)tigon_dtype_size(p->dtype);
  const tigon_vector *bias = &p->down_bias;
  return (tigon_gemm_problem){
      .m = part->rows,
      .n = p->cols,
      .k = p->inner,
      .a = {j->at.c + part->at * p->inner * size, p->dtype, p->inner, false},
      .b = moe_matrix(&p->down, part->expert, true),
      .c = j->at.out + part->at * p->cols,
      .c_dtype = TIGON_F32,
      .c_pitch = p->cols,
      .bias = bias->data ? (char *)bias->data + part->expert * p->cols * (int64_t)tigon_dtype_size(bias->dtype) : NULL,
      .bias_dtype = bias->dtype,
  };
}

TIGON_INLINE void activate(tigon_dtype dtype, const row_job *r, int64_t begin, int64_t end) {
  const moe_job *j = r->j;
  const moe_problem *p = j->p;
  for (int64_t i = begin; i < end; ++i) {
    const char *pre = moe_pre_row(j, i);
    char *c = j->at.c + i * p->inner * v_size(dtype);
    const vf w = vf_set(p->weight_before_down ? s_load(p->w.data, j->at.order[j->begin + i], p->w.dtype) : 1);
    for (int64_t k = 0; k < p->inner; k += LANES) {
      const int64_t n = p->inner - k;
      moe_store(c, k, dtype, vf_mul(w, moe_c(p, moe_load_gate(dtype, p, pre, k, n))), n);
    }
  }
}
static void activate_task(const void *argument, int64_t index) {
  const row_job *r = argument;
  int64_t begin, end;
  tigon_range(r->j->end - r->j->begin, r->tasks, index, &begin, &end);
  TIGON_FOR_DTYPE(r->j->p->dtype, activate, r, begin, end);
}

tigon_status TIGON_CPU(fused_moe_fwd)(tigon_queue *queue, const moe_problem *p) {
  moe_job j = TIGON_CPU(moe_begin)(queue, p, false);
  TIGON_CPU(moe_clear_sums)(&j, &p->y);
  while (TIGON_CPU(moe_next)(&j)) {
    const row_job r = {.j = &j, .tasks = tigon_cpu_row_tasks(j.end - j.begin, 3 * p->inner * (int64_t)sizeof(float))};
    TIGON_CPU(moe_gather)(&j);
    TIGON_CPU(moe_make_pre)(&j);
    tigon_cpu_parallel(queue, r.tasks, activate_task, &r);
    TIGON_CPU(moe_products)(&j, z_of);
    TIGON_CPU(moe_add_out)(&j, &p->y, !p->weight_before_down);
  }
  TIGON_CPU(moe_store_sums)(&j, &p->y);
  if (p->pre.data && !queue->record)
    memset((char *)p->pre.data + j.count * 2 * p->inner * (int64_t)tigon_dtype_size(p->dtype), 0,
           (size_t)((tigon_moe_slots(p) - j.count) * 2 * p->inner) * tigon_dtype_size(p->dtype));
  return TIGON_OK;
}
