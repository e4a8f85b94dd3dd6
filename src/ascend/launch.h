/* From a front's problem to a launch on an Ascend device: an NPU, or the simulator. */
#ifndef TIGON_ASCEND_LAUNCH_H
#define TIGON_ASCEND_LAUNCH_H

#include "ascend/kernel/reduce.h"
#include "ascend/plan/plans.h"
#include "ascend/sim/sim.h"

typedef struct ascend_npu ascend_npu;

/* What hangs on a queue. */
typedef struct ascend_device {
  tigon_sim *sim;     /* or */
  ascend_npu *npu;    /* ascend/npu.h */
  tigon_sim_soc part; /* with what the device and the environment say of it */
  const tigon_sim_soc *soc;
  tigon_queue host;       /* the simulator's, for kernels that it borrows */
  float *scratch;         /* what parts of a call hand over when the caller gave no workspace for it */
  int64_t scratch_floats; /* floats of the scratch, as requested last */
  tigon_device about;
  ascend_plans plans;
} ascend_device;

enum { ASCEND_SCRATCH_BYTES = 1 << 20 };

static inline ascend_device *ascend_of(const tigon_queue *queue) { return queue->state; }

/* The blocks of a launch of so many tasks. */
static inline int64_t ascend_blocks(const tigon_queue *queue, int64_t tasks) {
  return least(tasks, ascend_of(queue)->soc->device.cores);
}

/* Fills `about` from the part. */
void ascend_describe(ascend_device *device);

walk ascend_walk(const tigon_plan *plan);
/* The walk over rows without columns, which have no plan: one task, for the rows' outputs. */
walk ascend_walk_no_columns(int64_t rows);
gm_space ascend_space(const tigon_row_space *space);
gm_rows ascend_rows(const tigon_rows *rows);
/* `second`: its data is NULL without it. */
reduce_arguments ascend_reduce(const tigon_plan *plan, const tigon_row_space *space, tigon_dtype dtype,
                               const tigon_rows *first, const tigon_rows *second, const tigon_rows *out);

/* The simulator lets a launch touch the tensors of the call, its workspace and what ascend_scratch() gave. A launcher names
 * what is more than that: memory which many blocks read, so that it comes from the L2 cache, and a list's elements. */
void ascend_shares(tigon_queue *queue, const char *name, const void *start, int64_t count, tigon_dtype dtype);
/* One element of the entry's list, a struct as its description has it. */
void ascend_uses_element(tigon_queue *queue, const tigon_schema *schema, const void *element);

/* The blocks of a list, if there is one, `cols` columns of each row of `space`. */
void ascend_uses_blocks(tigon_queue *queue, const char *name, const tigon_row_space *space, const tigon_blocks *blocks,
                        int64_t count, int64_t cols, tigon_dtype dtype, bool out);

/* Launches `kernel`, called `name` in the device's file of kernels, with a struct of arguments. */
#define ascend_launch(queue, name, kernel, arguments, blocks) \
  ascend_launch_bytes(queue, name, kernel, arguments, sizeof *(arguments), blocks)
tigon_status ascend_launch_bytes(tigon_queue *queue, const char *name, tigon_sim_kernel *kernel, const void *arguments,
                                 size_t bytes, int64_t blocks);

/* Launches a kernel over rows, whose arguments have the members parts and partials. If the plan splits rows, it launches twice:
 * first for the sums of their parts, `sums` f32 each, and then for the rest. */
#define ascend_launch_parts(queue, name, kernel, a, plan, sums) \
  ascend_launch_parts_bytes(queue, name, kernel, a, sizeof *(a), &(a)->parts, &(a)->partials, plan, sums)
tigon_status ascend_launch_parts_bytes(tigon_queue *queue, const char *name, tigon_sim_kernel *kernel,
                                       const void *arguments, size_t bytes, int64_t *parts, gm_ptr *partials,
                                       const tigon_plan *plan, int64_t sums);

/* `floats` of the queue's scratch; NULL with queue->reason when it is not that large. */
float *ascend_scratch(tigon_queue *queue, int64_t floats);

/* The second stage of a gradient over rows: `to` [cols] = the slabs' sum, onto what is there when asked. `step`: elements from
 * slab to slab. */
tigon_status ascend_column_sums(tigon_queue *queue, const float *slabs, int64_t count, int64_t step, int64_t cols,
                                void *to, tigon_dtype dtype, bool accumulate);

#endif
