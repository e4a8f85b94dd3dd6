/* The predicted time of a plan. It ranks cases and grids; it is a model, never a measurement.
 *
 *   task  = max(memory, vector) + min(memory, vector) / tiles + tiles * tile_us      (load, work and store overlap)
 *         = memory + vector + tiles * tile_us                                        (they do not)
 *   total = launches * launch_us + active * start_us_per_core + ceil(tasks / active) * task + extra bytes, cached
 */
#include <math.h>

#include "ascend/plan/internal.h"

double tigon_device_bandwidth(const tigon_device_desc *device, int64_t active) {
  int i = 0;
  while (device->bandwidth[i].cores < active && i + 1 < TIGON_BANDWIDTH_POINTS && device->bandwidth[i + 1].cores > 0)
    i++;
  if (i == 0 || device->bandwidth[i].cores <= active) return device->bandwidth[i].gbps;
  const double x0 = (double)device->bandwidth[i - 1].cores, x1 = (double)device->bandwidth[i].cores;
  const double y0 = device->bandwidth[i - 1].gbps, y1 = device->bandwidth[i].gbps;
  return y0 + (y1 - y0) * ((double)active - x0) / (x1 - x0);
}

/* A transfer costs its bytes and 1/16 of the smallest good transfer more. So it is near full rate from transfer_bytes up (94 %),
 * and slow at 1/64 of it (20 %). On Ascend a DMA is good from 16 KiB and slow below 256 B. */
#define TRANSFER_OVERHEAD 16.0

/* Microseconds of memory and of vector work for `elements` elements of a task, in transfers of `run` bytes, while
 * `tasks` tasks want to run. */
typedef struct plan_load {
  double memory_us, vector_us;
} plan_load;

static plan_load load_of(const plan_problem *problem, const tigon_plan *plan, double elements, int64_t tasks,
                         int64_t run) {
  const tigon_device_desc *device = problem->device;
  const double share = elements / ((double)problem->rows * (double)problem->cols);
  const double efficiency = (double)run / ((double)run + (double)device->transfer_bytes / TRANSFER_OVERHEAD);
  const double gbps = tigon_device_bandwidth(device, plan_min(tasks, device->cores));
  plan_load load;
  load.memory_us =
      (double)plan->bytes_moved * share / efficiency / (gbps * 1e3); /* 1 GB/s is 1e3 bytes a microsecond */
  /* What moves again is cast and worked on again. */
  const double again = (double)plan->bytes_moved / (double)problem->moved_min;
  load.vector_us = elements * again * problem->footprint->vector_ops / (device->vector_gops * 1e3);
  return load;
}

int64_t tigon_plan_tile_count(const plan_problem *problem, const tigon_plan *plan, double elements, int64_t run,
                              int64_t least, int64_t most) {
  const plan_load load = load_of(problem, plan, elements, plan->tasks, run);
  const double hidden = fmin(load.memory_us, load.vector_us);
  /* The minimum over t of hidden / t + tile_us * t. */
  const double best = problem->device->tile_us > 0 ? sqrt(hidden / problem->device->tile_us) : (double)most;
  if (!(best < (double)most)) return most;
  return plan_max(least, (int64_t)(best + 0.5));
}

/* Times that a task begins with the rows of a group, or goes on to those of the next. */
static int64_t group_visits(const plan_problem *problem, const tigon_plan *plan) {
  if (problem->groups == 1 || problem->footprint->column_sums > 0) return plan->row_tasks; /* tasks stay within one */
  int64_t visits = plan->row_tasks + problem->groups - 1;
  for (int64_t t = 1; t < plan->row_tasks; t++) {
    int64_t begin, end;
    tigon_range(plan->rows, plan->row_tasks, t, &begin, &end);
    visits -= begin % (plan->rows / problem->groups) == 0;
  }
  return visits;
}

/* Tiles of a whole row, which splits cut into each for itself; *cut: those that begin within a channel's run. */
static int64_t tiles_of_row(const plan_problem *problem, const tigon_plan *plan, int64_t *cut) {
  int64_t all = 0, whole = 0;
  for (int64_t t = 0; t < plan->splits; t++) {
    tigon_box box;
    tigon_plan_task(plan, t, &box);
    const int64_t tiles = plan_ceil_div(box.col_end - box.col_begin, plan->cols_per_tile);
    /* Which tiles begin with a channel repeats after as many tiles as a run has columns. */
    const int64_t period = plan_min(tiles, problem->run);
    for (int64_t i = 0; i < period; i++)
      if ((box.col_begin + i * plan->cols_per_tile) % problem->run == 0) whole += (tiles - 1 - i) / period + 1;
    all += tiles;
  }
  *cut = all - whole;
  return all;
}

/* Elements of the column vectors that are read. Forward needs weights in all passes but the first, backward, which has column sums,
 * in every one; its last pass keeps a panel's vectors on chip for all its rows. */
static int64_t vector_reads(const plan_problem *problem, const tigon_plan *plan, int64_t elements, int64_t cut) {
  const tigon_footprint *f = problem->footprint;
  if (plan->chosen == TIGON_CASE_A) return elements;
  if (plan->splits == 1 && plan->col_tiles == 1) return plan_mul(group_visits(problem, plan), elements);
  const int64_t tiles = plan_add(elements, cut);
  const int64_t forward = plan_max(1, problem->passes - 1);
  if (plan->chosen == TIGON_CASE_D)
    return plan_mul(plan_mul(plan->rows, f->column_sums ? problem->passes : forward), tiles);
  return plan_mul(f->column_sums ? plan_add(plan_mul(plan->rows, plan->passes - 1), plan->row_tasks)
                                 : plan_mul(plan->rows, forward),
                  tiles);
}

/* Bytes of further reads of the indices, if each core looks through all of them. It does so once for each range of table rows,
 * to count its own, and once for each list of those. They are taken as spread evenly over the table. */
static int64_t index_bytes(const plan_problem *problem, int64_t ranges) {
  const int64_t lists = plan_ceil_div(problem->rows, plan_mul(ranges, problem->device->listed));
  const int64_t reads = plan_add(ranges, plan_mul(plan_min(ranges, problem->rows), lists));
  return plan_mul(plan_mul(problem->rows, problem->row_bytes_in), reads - 1);
}

/* Bytes of a loss's totals: what their launches read of the rows and hand over, and the words that they end in. */
static int64_t total_bytes(const plan_problem *problem, const tigon_plan *plan) {
  const tigon_footprint *f = problem->footprint;
  if (f->totals == 0) return 0;
  const bool labels = f->totals & TIGON_TOTAL_LABELS, mean = f->totals & TIGON_TOTAL_MEAN;
  const bool loss = f->totals & TIGON_TOTAL_LOSS;
  const int64_t part = 4, words = labels * f->label_words + loss * (f->label_words + 1); /* a block's, a row's */
  const int64_t parts = 2 * part * tigon_plan_total_blocks(problem->device, problem->rows) * (labels + loss);
  const int64_t mean_reads = loss + (f->outputs > 0 ? plan->grid : 0); /* each block of the rows' launch */
  return plan_mul(4, plan_add(plan_mul(problem->rows, words), parts + loss + (mean ? 1 + mean_reads : 0)));
}

/* Column vectors that are read more than once. What follows from slabs of ranges reads each of them once more. */
static int64_t vector_bytes(const plan_problem *problem, const tigon_plan *plan, int64_t elements, int64_t cut) {
  const tigon_footprint *f = problem->footprint;
  const int64_t own = f->column_params - f->ranges, all = plan_mul(problem->groups, elements);
  const int64_t reads = vector_reads(problem, plan, elements, cut);
  int64_t count = plan_mul(own, plan_max(0, reads - all));
  if (f->ranges) count = plan_add(count, plan_max(0, reads - elements));
  if (f->ranges && f->column_sums > 0) count = plan_add(count, plan_add(plan_mul(own, all), elements));
  return plan_mul(f->column_param_bytes, count);
}

/* Bytes besides bytes_moved: further reads of column vectors, and slabs written and read back. If a row's sums are handed over,
 * each split or panel of columns that needs them also moves these and the row's words. */
static int64_t extra_bytes(const plan_problem *problem, const tigon_plan *plan) {
  const tigon_footprint *f = problem->footprint;
  int64_t cut;
  const int64_t tiles = tiles_of_row(problem, plan, &cut), elements = plan->cols / problem->run;
  const int64_t slabs =
      plan_mul(plan_mul(plan->slabs, f->column_sums), plan_mul(plan_mul(problem->groups, elements), 4));
  const bool split = plan->chosen == TIGON_CASE_F && f->partials > 0;
  int64_t handed = 0;
  if (f->walk == TIGON_WALK_TABLE) {
    handed = index_bytes(problem, plan->row_tasks);
  } else if (f->partials == 0) {
    handed = plan_mul(plan->rows, plan_mul(problem->row_bytes_in, plan->splits - 1));
  } else if (split || (plan->chosen == TIGON_CASE_E && plan->slabs > 0)) {
    const int64_t joins = f->column_sums ? tiles : f->outputs > 0 ? plan->splits : 1;
    const int64_t partials = plan_mul(4 * f->partials, plan_mul(plan->splits, joins + 1));
    handed = plan_mul(plan->rows, plan_add(partials, plan_mul(problem->row_bytes_in, joins + plan->splits - 1)));
  }
  const int64_t reads = plan_mul(split ? 2 : 1, plan->grid) - 1,
                parts = plan_mul(plan->tasks, 8 * (int64_t)f->number_sums);
  const int64_t numbers = plan_add(plan_mul(reads, (int64_t)f->numbers * f->column_param_bytes), parts);
  return plan_add(plan_add(vector_bytes(problem, plan, elements, cut), plan_mul(2, slabs)),
                  plan_add(plan_add(handed, numbers), total_bytes(problem, plan)));
}

/* Bytes of a transfer of the narrowest stream. */
static int64_t transfer_of(const plan_problem *problem, const tigon_plan *plan) {
  const tigon_footprint *f = problem->footprint;
  if (f->walk == TIGON_WALK_SHARDS) return plan->rows_per_tile * f->stream[0].element_bytes;
  return plan_mul(plan->cols_per_tile, problem->narrowest);
}

/* Do all vectors of all tiles have all their lanes? */
static bool has_full_tiles(const tigon_plan *plan, int64_t lanes) {
  const bool whole = plan->splits == 1 && plan->col_tiles == 1;
  return plan->cols % lanes == 0 && (whole || plan->cols_per_tile % lanes == 0) &&
         (plan->splits == 1 || plan->col_unit % lanes == 0);
}

void tigon_plan_predict(const plan_problem *problem, tigon_plan *plan) {
  const tigon_device_desc *device = problem->device;
  plan->full_tiles = has_full_tiles(plan, plan_max(1, device->vector_bytes / 4));
  if (problem->rows == 0) return; /* a table without indices */
  const int64_t task_rows = plan_ceil_div(plan->rows, plan->row_tasks);
  const double task_cols =
      plan->splits == 1
          ? (double)plan->cols
          : (double)plan_ceil_div(plan_ceil_div(plan->cols, plan->col_unit), plan->splits) * (double)plan->col_unit;
  const int64_t run = transfer_of(problem, plan);
  const plan_load load = load_of(problem, plan, (double)task_rows * task_cols, plan->grid, run);
  const double tiles =
      (double)plan_ceil_div(task_rows, plan->rows_per_tile) * (double)plan->col_tiles * (double)plan->passes;
  const bool overlap = plan->buffers > 1 && !(plan->chosen == TIGON_CASE_D && plan->row_buffers == 1);
  const double less = fmin(load.memory_us, load.vector_us); /* the first load and the last store are never hidden */
  const double task_us =
      tiles * device->tile_us + fmax(load.memory_us, load.vector_us) + (overlap ? less / tiles : less);

  plan->bytes_extra = extra_bytes(problem, plan);
  const bool split_sums = plan->chosen == TIGON_CASE_F && problem->footprint->partials > 0;
  const unsigned totals = problem->footprint->totals;
  const int sums = !!(totals & TIGON_TOTAL_LABELS) + !!(totals & TIGON_TOTAL_LOSS);
  const int launches = 1 + (plan->slabs > 0) + (problem->footprint->number_sums > 0) + split_sums + 2 * sums;
  plan->predicted_us = launches * device->launch_us + (double)plan->grid * device->start_us_per_core +
                       (double)plan_ceil_div(plan->tasks, plan->grid) * task_us +
                       (double)plan->bytes_extra / ((double)plan->grid * device->cached_gbps * 1e3);
}
