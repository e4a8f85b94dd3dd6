/* What the planner's files share: plan.c checks and chooses, cases.c builds one case, launches.c what is no case,
 * cost.c predicts its time. */
#ifndef TIGON_PLAN_INTERNAL_H
#define TIGON_PLAN_INTERNAL_H

#include "ascend/plan/plan.h"

/* A request after its checks, with what every case needs to know of it. */
typedef struct plan_problem {
  const tigon_footprint *footprint;
  const tigon_device_desc *device;
  int64_t rows, cols;
  int64_t out_rows;     /* rows of the outputs: `rows`, except for TIGON_WALK_TABLE */
  int64_t groups, run;  /* 1, 1 but in case G */
  bool forced, grouped; /* grouped: case G */
  int64_t narrowest;    /* bytes of the narrowest stream's element */
  int64_t row_bytes_in; /* bytes a row of its words and tables, which every split reads */
  int64_t row_chip;     /* on-chip bytes of a row of its tables */
  int64_t moved_min;    /* bytes that must move */
  int64_t moved_passes; /* bytes that move when a row does not stay on chip */
  int passes;           /* the most passes of a stream */
  int64_t chip_unit;    /* columns: rows and tiles on multiples of it are aligned on chip, in every stream */
  int64_t fast_unit;    /* columns: tiles on multiples of it are aligned in memory too */
} plan_problem;

typedef enum plan_refusal {
  PLAN_FITS,
  PLAN_TOO_LARGE,      /* plan->onchip_bytes says what the case would need */
  PLAN_NOT_FLAT,       /* A: rows matter */
  PLAN_ONE_ROW,        /* B: no second row for a tile */
  PLAN_NOTHING_CACHED, /* D: every stream moves once anyway */
  PLAN_ONE_UNIT,       /* F: a row has no second range of columns */
  PLAN_WHOLE,          /* F: the kernel does not split rows */
} plan_refusal;

/* The plan of one case on up to `programs` programs. Of a refused one only case, onchip_bytes and col_unit count. */
plan_refusal tigon_plan_build(const plan_problem *problem, tigon_plan_case plan_case, int64_t programs,
                              tigon_plan *plan);

/* Tiles into which a task of `elements` elements is best cut, whose transfers have `run` bytes: enough that load,
 * work and store overlap, few enough that starts do not count. Never outside [least, most]. */
int64_t tigon_plan_tile_count(const plan_problem *problem, const tigon_plan *plan, double elements, int64_t run,
                              int64_t least, int64_t most);

/* The plan of a launch that is no walk over rows. */
tigon_status tigon_plan_launch(const plan_problem *problem, const tigon_plan_request *request, tigon_plan *plan);

/* Fills plan->full_tiles, bytes_extra and predicted_us. */
void tigon_plan_predict(const plan_problem *problem, tigon_plan *plan);

/* Adds to the plan's sentence. */
__attribute__((format(printf, 2, 3))) void tigon_plan_say(tigon_plan *plan, const char *format, ...);

/* Arithmetic on sizes >= 0 that stops at INT64_MAX, so that a hostile shape is "too large" and never wraps. */
static inline int64_t plan_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline int64_t plan_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static inline int64_t plan_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static inline int64_t plan_round_up(int64_t a, int64_t unit) { return plan_mul(plan_ceil_div(a, unit), unit); }

static inline int64_t plan_min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t plan_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* On-chip bytes of `count` elements that end on the alignment. */
static inline int64_t plan_aligned(const plan_problem *p, int64_t count, int64_t bytes) {
  return plan_round_up(plan_mul(count, bytes), p->device->onchip_alignment);
}

/* A plan of one tile a row, which nothing has cut yet. */
static inline tigon_plan plan_begin(const plan_problem *p) {
  return (tigon_plan){.rows = p->rows,
                      .cols = p->cols,
                      .groups = p->groups,
                      .rows_per_tile = 1,
                      .cols_per_tile = p->cols,
                      .col_tiles = 1,
                      .col_unit = p->fast_unit,
                      .buffers = p->device->buffers,
                      .passes = 1,
                      .bytes_moved = p->moved_min,
                      .bytes_min = p->moved_min};
}

/* `row_tasks` times `splits` tasks on up to `programs` programs. */
static inline void plan_set_tasks(tigon_plan *plan, int64_t programs, int64_t row_tasks, int64_t splits) {
  plan->row_tasks = row_tasks;
  plan->splits = splits;
  plan->tasks = plan_mul(row_tasks, splits);
  plan->grid = plan_min(plan->tasks, programs);
}

#endif
