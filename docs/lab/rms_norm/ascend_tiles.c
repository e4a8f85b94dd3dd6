/* Study: rms_norm forward on a 910B4 by the simulator's model, rows a tile and buffers set by hand. After `make`:
 *   cc -std=c11 -O2 -fopenmp -Isrc -Iinclude docs/lab/rms_norm/ascend_tiles.c build/libtigon_internal.a -lm -ldl \
 *     -o ascend_tiles && ./ascend_tiles */
#include <stdio.h>

#include "ascend/launch.h"
#include "plan/internal.h"

/* The library's kernel, whose rings may be held to one buffer. */
static int64_t most_buffers;
#define ring_of(ub, id, count, bytes) ring_of(ub, id, least(count, most_buffers), bytes)
#define rms_norm_fwd studied
#include "ascend/kernel/rms_norm_fwd.c"

enum { ROWS = 2048, MOST_COLS = 4096 };

/* On 512 bytes, as the device gives memory out. */
static _Alignas(512) char x[ROWS * MOST_COLS * 4], y[ROWS * MOST_COLS * 4], w[MOST_COLS * 4], rstd[ROWS * 4];

static const char *dtype_name(tigon_dtype dtype) { return dtype == TIGON_F32 ? "f32" : "bf16"; }

/* The planner's own formula for a tiling that it did not choose. */
static double predicted_us(const tigon_footprint *footprint, const tigon_device_desc *device, tigon_plan plan,
                           tigon_dtype dtype) {
  const plan_problem problem = {.footprint = footprint,
                                .device = device,
                                .rows = plan.rows,
                                .cols = plan.cols,
                                .groups = 1,
                                .run = 1,
                                .contiguous = true,
                                .narrowest = (int64_t)tigon_dtype_size(dtype),
                                .moved_min = plan.bytes_min};
  tigon_plan_predict(&problem, &plan);
  return plan.predicted_us;
}

static void run(tigon_sim *sim, const tigon_plan *plan, tigon_dtype dtype) {
  const int64_t cols = plan->cols, size = (int64_t)tigon_dtype_size(dtype);
  const gm_rows rows = {x, {0, 0, cols}, 1};
  rms_norm_fwd_arguments a = {.w = ascend_walk(plan),
                              .space = {ROWS, 1, ROWS, 1},
                              .x = rows,
                              .y = rows,
                              .weight = w,
                              .rstd = rstd,
                              .dtype = dtype,
                              .w_dtype = dtype,
                              .casting = TIGON_CASTING_LLAMA,
                              .parts = PART_SUMS | PART_ROWS,
                              .eps = 1e-6f};
  a.y.data = y;
  tigon_sim_reset(sim);
  tigon_sim_buffer(sim, "x", x, ROWS * cols * size, SIM_READS);
  tigon_sim_buffer(sim, "y", y, ROWS * cols * size, SIM_WRITES);
  tigon_sim_buffer(sim, "w", w, cols * size, SIM_READS | SIM_SHARED);
  tigon_sim_buffer(sim, "rstd", rstd, sizeof rstd, SIM_WRITES);
  most_buffers = plan->buffers;
  tigon_sim_launch(sim, "rms_norm_fwd", studied, &a, plan->grid);
}

static void study(tigon_sim *sim, const tigon_sim_soc *soc, tigon_dtype dtype, int64_t cols) {
  const tigon_device_desc *device = &soc->device;
  tigon_footprint footprint;
  tigon_plan chosen;
  tigon_footprint_find("rms_norm", "fwd", dtype, &footprint);
  const tigon_plan_request request = {
      .footprint = &footprint, .device = device, .rows = ROWS, .cols = cols, .contiguous = true};
  tigon_plan_make(&request, &chosen);
  printf("\n%s, %d x %lld, %lld blocks; the planner takes %lld rows a tile, %d buffers\n\n", dtype_name(dtype), ROWS,
         (long long)cols, (long long)chosen.grid, (long long)chosen.rows_per_tile, chosen.buffers);
  printf("| rows a tile | buffers | predicted | model | UB | vector | DMA |\n|---:|---:|---:|---:|---:|---:|---:|\n");
  bool fits = true;
  for (int64_t rows = 1; fits && rows <= plan_ceil_div(ROWS, chosen.row_tasks); rows *= 2)
    for (int buffers = 1; fits && buffers <= 2; ++buffers) {
      tigon_plan plan = chosen;
      plan.cut = plan.chosen = rows > 1 ? TIGON_CASE_B : TIGON_CASE_C;
      plan.rows_per_tile = rows;
      plan.cols_per_tile = cols;
      plan.col_tiles = plan.splits = plan.passes = 1;
      plan.buffers = buffers;
      run(sim, &plan, dtype);
      fits = tigon_sim_report(sim)->rule == SIM_OK;
      const tigon_sim_counters *c = tigon_sim_counted(sim);
      const double all = c->cycles * (double)device->cores / 100;
      if (fits)
        printf("| %lld | %d | %.1f us | %.1f us | %.0f KiB | %.0f %% | %.0f %% |\n", (long long)rows, buffers,
               predicted_us(&footprint, device, plan, dtype), c->microseconds, (double)c->ub_bytes / 1024,
               c->busy[PIPE_V] / all, (c->busy[PIPE_MTE2] + c->busy[PIPE_MTE3]) / all);
      else
        printf("| %lld | %d | - | %s |\n", (long long)rows, buffers,
               tigon_sim_report(sim)->rule == SIM_UB_OVERFLOW ? "does not fit" : tigon_sim_report(sim)->text);
    }
}

int main(void) {
  const tigon_sim_soc *soc = tigon_sim_soc_find("910B4");
  tigon_sim *sim = tigon_sim_open(soc);
  if (!sim) return 1;
  const int64_t cols[] = {512, 2048, 4096};
  for (int i = 0; i < 3; ++i) {
    study(sim, soc, TIGON_F32, cols[i]);
    study(sim, soc, TIGON_BF16, cols[i]);
  }
  tigon_sim_close(sim);
}
