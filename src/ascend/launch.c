#include "ascend/launch.h"

#include <string.h>

#include "ascend/kernel/column_sums.h"
#include "ascend/npu.h"
#include "core/check.h"

void ascend_describe(ascend_device *device) {
  const tigon_device_desc *part = &device->soc->device;
  device->about = (tigon_device){.cores = part->cores,
                                 .onchip_bytes = part->onchip_bytes,
                                 .memory_gbps = (double)part->cores * tigon_device_bandwidth(part, part->cores)};
  memcpy(device->about.name, part->name, sizeof device->about.name);
}

walk ascend_walk(const tigon_plan *plan) {
  return (walk){.rows = plan->rows,
                .cols = plan->cols,
                .tasks = plan->tasks,
                .row_tasks = plan->row_tasks,
                .splits = plan->splits,
                .col_unit = plan->col_unit,
                .tile_rows = plan->rows_per_tile,
                .tile_cols = plan->cols_per_tile,
                .cached = plan->cut >= TIGON_CASE_B && plan->cut <= TIGON_CASE_D,
                .buffers = plan->cut == TIGON_CASE_D ? plan->row_buffers : plan->buffers,
                .groups = plan->slabs > 0 ? plan->groups : 1};
}

walk ascend_walk_no_columns(int64_t rows) {
  return (walk){.rows = rows,
                .tasks = 1,
                .row_tasks = 1,
                .splits = 1,
                .groups = 1,
                .col_unit = 1,
                .tile_rows = 8,
                .tile_cols = 8};
}

gm_space ascend_space(const tigon_row_space *space) { return (gm_space){space->rows, space->middle, space->inner, 1}; }

gm_rows ascend_rows(const tigon_rows *rows) {
  return (gm_rows){rows->data, {rows->pitch[0], rows->pitch[1], rows->pitch[2]}, 1};
}

reduce_arguments ascend_reduce(const tigon_plan *plan, const tigon_row_space *space, tigon_dtype dtype,
                               const tigon_rows *first, const tigon_rows *second, const tigon_rows *out) {
  return (reduce_arguments){.w = ascend_walk(plan),
                            .space = ascend_space(space),
                            .in = {ascend_rows(first), ascend_rows(second)},
                            .out = ascend_rows(out),
                            .dtype = dtype};
}

void ascend_shares(tigon_queue *queue, const char *name, const void *start, int64_t count, tigon_dtype dtype) {
  tigon_sim *sim = ascend_of(queue)->sim;
  const int64_t bytes = count * (int64_t)tigon_dtype_size(dtype);
  if (sim && !queue->record) tigon_sim_buffer(sim, name, start, bytes, SIM_READS | SIM_SHARED);
}

/* A kernel may read back what it wrote. */
static unsigned flags_of(const tigon_field *field) {
  return field->flags & TIGON_FIELD_OUT ? SIM_READS | SIM_WRITES : SIM_READS;
}

void ascend_uses_element(tigon_queue *queue, const tigon_schema *schema, const void *element) {
  tigon_sim *sim = ascend_of(queue)->sim;
  for (int i = 0; sim && !queue->record && i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    if (!(field->flags & TIGON_FIELD_EACH) || field->kind != TIGON_FIELD_TENSOR) continue;
    const tigon_tensor *t = (const tigon_tensor *)(const void *)((const char *)element + field->offset);
    const int64_t bytes = tigon_tensor_count(t) * (int64_t)tigon_dtype_size(t->dtype);
    tigon_sim_buffer(sim, field->name, t->data, bytes, flags_of(field));
  }
}

void ascend_uses_blocks(tigon_queue *queue, const char *name, const tigon_row_space *space, const tigon_blocks *blocks,
                        int64_t count, int64_t cols, tigon_dtype dtype, bool out) {
  tigon_sim *sim = ascend_of(queue)->sim;
  const int64_t *pitch = blocks->rows.pitch, outer = space->rows / (space->inner * space->middle);
  const int64_t last = (outer - 1) * pitch[0] + (space->middle - 1) * pitch[1] + (space->inner - 1) * pitch[2];
  const int64_t bytes = (last + cols) * (int64_t)tigon_dtype_size(dtype);
  for (int64_t i = 0; sim && !queue->record && blocks->at && cols > 0 && i < count; ++i)
    tigon_sim_buffer(sim, name, blocks->at[i], bytes, out ? SIM_READS | SIM_WRITES : SIM_READS);
}

/* Do all rows of the call read the same elements of it? A vector of weights, a scalar, a table or mask that is smaller than the
 * largest tensor. */
static bool is_shared(const tigon_extent *t, uintptr_t largest) {
  const char *shape = t->field->shape;
  if (t->field->flags & TIGON_FIELD_OUT || t->high - t->low >= largest) return false;
  return (shape[0] >= '1' && shape[0] <= '9') || shape[0] == '?' || (shape[0] >= 'a' && shape[0] != 'r' && !shape[1]);
}

static void use_memory(const tigon_queue *queue, tigon_sim *sim) {
  const tigon_memory *memory = queue->memory;
  uintptr_t largest = 0;
  for (int i = 0; i < memory->count; ++i) {
    const tigon_extent *t = &memory->of[i];
    if (t->tensor && t->high - t->low > largest) largest = t->high - t->low;
  }
  for (int i = 0; i < memory->count; ++i) {
    const tigon_extent *t = &memory->of[i];
    const unsigned flags = flags_of(t->field) | (is_shared(t, largest) ? SIM_SHARED : 0);
    const void *start = (const void *)t->low; /* NOLINT(performance-no-int-to-ptr) */
    tigon_sim_buffer(sim, t->field->name, start, (int64_t)(t->high - t->low), flags);
  }
  const ascend_device *device = ascend_of(queue);
  tigon_sim_buffer(sim, "scratch", device->scratch, 4 * device->scratch_floats, SIM_READS | SIM_WRITES | SIM_SHARED);
}

tigon_status ascend_launch_bytes(tigon_queue *queue, const char *name, tigon_sim_kernel *kernel, const void *arguments,
                                 size_t bytes, int64_t blocks) {
  if (queue->record) {
    queue->record(queue->record_to, &(tigon_launch){.kernel = name, .grid = blocks});
    return TIGON_OK;
  }
  if (ascend_of(queue)->npu) return ascend_npu_launch(queue, ascend_of(queue)->npu, name, arguments, bytes, blocks);
  tigon_sim *sim = ascend_of(queue)->sim;
  queue->reason = NULL;
  use_memory(queue, sim);
  if (tigon_sim_launch(sim, name, kernel, arguments, blocks)) return TIGON_OK;
  queue->reason = tigon_sim_report(sim)->text;
  return tigon_sim_report(sim)->rule == SIM_NO_MEMORY ? TIGON_ERROR_OUT_OF_MEMORY : TIGON_ERROR_DEVICE;
}

float *ascend_scratch(tigon_queue *queue, int64_t floats) {
  ascend_of(queue)->scratch_floats = floats;
  if (floats <= ASCEND_SCRATCH_BYTES / 4) return ascend_of(queue)->scratch;
  queue->reason = "the device's scratch of 1 MiB is too small for the sums of so many split rows";
  return NULL;
}

tigon_status ascend_launch_parts_bytes(tigon_queue *queue, const char *name, tigon_sim_kernel *kernel,
                                       const void *arguments, size_t bytes, int64_t *parts, gm_ptr *partials,
                                       const tigon_plan *plan, int64_t sums) {
  const int64_t count = plan->splits > 1 ? sums * plan->rows * plan->splits : 0;
  *parts = PART_SUMS | PART_ROWS;
  if (count == 0) return ascend_launch_bytes(queue, name, kernel, arguments, bytes, plan->grid);
  *partials = (gm_ptr)ascend_scratch(queue, count);
  if (!*partials) return TIGON_ERROR_DEVICE;
  *parts = PART_SUMS;
  const tigon_status status = ascend_launch_bytes(queue, name, kernel, arguments, bytes, plan->grid);
  *parts = PART_ROWS;
  return status == TIGON_OK ? ascend_launch_bytes(queue, name, kernel, arguments, bytes, plan->grid) : status;
}

tigon_status ascend_column_sums(tigon_queue *queue, const float *slabs, int64_t count, int64_t step, int64_t cols,
                                void *to, tigon_dtype dtype, bool accumulate) {
  enum { MOST = 2048 }; /* columns of a task */
  const int64_t cores = ascend_of(queue)->soc->device.cores;
  int64_t chunk = round_up((cols + cores - 1) / cores, SUMS_LINE);
  if (chunk > MOST) chunk = MOST;
  const column_sums_arguments a = {.slabs = (gm_ptr)slabs,
                                   .to = to,
                                   .count = count,
                                   .cols = cols,
                                   .step = step,
                                   .chunk = chunk,
                                   .dtype = dtype,
                                   .accumulate = accumulate};
  ascend_shares(queue, "slabs", slabs, count ? (count - 1) * step + cols : 0, TIGON_F32);
  const int64_t tasks = (cols + chunk - 1) / chunk;
  return ascend_launch(queue, "column_sums", column_sums, &a, tasks < cores ? tasks : cores);
}
