/* Machines: opening one, its buffers, and the launch that runs block after block. */
#include <stdlib.h>
#include <string.h>

#include "ascend/sim/core.h"

_Thread_local tigon_sim *tigon_sim_now;

bool tigon_sim_grow(tigon_sim *sim, void **list, int64_t count, int64_t *capacity, size_t element) {
  if (count < *capacity) return true;
  const int64_t wanted = *capacity ? 2 * *capacity : 64;
  void *more = realloc(*list, (size_t)wanted * element);
  if (!more) {
    tigon_sim_fail(sim, NULL, SIM_NO_MEMORY, 0, "no memory for a list of the simulator");
    return false;
  }
  *list = more;
  *capacity = wanted;
  return true;
}

tigon_sim *tigon_sim_open(const tigon_sim_soc *soc) {
  tigon_sim *sim = calloc(1, sizeof *sim);
  if (!sim) return NULL;
  sim->soc = soc;
  sim->ub_bytes = (uint32_t)soc->device.onchip_bytes;
  sim->ub = malloc(sim->ub_bytes);
  sim->written = calloc(1, sim->ub_bytes);
  sim->core_time = calloc((size_t)soc->device.cores, sizeof *sim->core_time);
  bool there = sim->ub && sim->written && sim->core_time;
  for (int p = 0; p < SIM_PIPES; ++p) {
    sim->wrote[p] = calloc(sim->ub_bytes / UB_BLOCK + 1, sizeof **sim->wrote);
    sim->read[p] = calloc(sim->ub_bytes / UB_BLOCK + 1, sizeof **sim->read);
    there = there && sim->wrote[p] && sim->read[p];
  }
  if (there) return sim;
  tigon_sim_close(sim);
  return NULL;
}

void tigon_sim_close(tigon_sim *sim) {
  if (!sim) return;
  for (int p = 0; p < SIM_PIPES; ++p) {
    free(sim->wrote[p]);
    free(sim->read[p]);
    free(sim->queues[p].list);
  }
  free(sim->ub);
  free(sim->written);
  free(sim->core_time);
  free(sim->loads.list);
  free(sim->stores.list);
  free(sim->all_reads.list);
  free(sim->all_writes.list);
  free(sim->events);
  free(sim->bus);
  free(sim);
}

void tigon_sim_buffer(tigon_sim *sim, const char *name, const void *start, int64_t bytes, unsigned flags) {
  if (!start || bytes <= 0 || sim->buffer_count == SIM_BUFFERS) return;
  sim->buffers[sim->buffer_count++] = (sim_buffer){name, start, bytes, flags};
}

const sim_buffer *tigon_sim_buffer_of(const tigon_sim *sim, const char *start, int64_t bytes, unsigned flags) {
  for (int b = 0; b < sim->buffer_count; ++b) {
    const sim_buffer *buffer = &sim->buffers[b];
    const bool inside = start >= buffer->start && start + bytes <= buffer->start + buffer->bytes;
    if (inside && (buffer->flags & flags) == flags) return buffer;
  }
  return NULL;
}

const tigon_sim_report_text *tigon_sim_report(const tigon_sim *sim) { return &sim->report; }
const tigon_sim_counters *tigon_sim_counted(const tigon_sim *sim) { return &sim->counters; }

void tigon_sim_reset(tigon_sim *sim) {
  sim->counters = (tigon_sim_counters){0};
  sim->event_count = 0;
}

/* A block starts with nothing in UB, no flag set and no mask. */
static void begin_block(tigon_sim *sim, int64_t block) {
  const size_t shadow = (sim->touched / UB_BLOCK + 1) * sizeof(uint32_t);
  sim->block = block;
  sim->issued = 0;
  sim->mask = 0;
  sim->mask_count = -1;
  memset(sim->written, 0, sim->touched);
  memset(sim->done, 0, sizeof sim->done);
  memset(sim->known, 0, sizeof sim->known);
  memset(sim->flags, 0, sizeof sim->flags);
  sim->loads.count = sim->stores.count = 0;
  const double now = sim->core_time[block % sim->soc->device.cores];
  for (int p = 0; p < SIM_PIPES; ++p) {
    memset(sim->wrote[p], 0, shadow);
    memset(sim->read[p], 0, shadow);
    sim->queues[p].first = sim->queues[p].count = 0;
    sim->time[p] = now;
  }
  sim->bus_count = 0;
  sim->touched = 0;
  sim->chance = tigon_sim_mixed(sim->modes.order_seed ^ tigon_sim_mixed((uint64_t)block));
}

void tigon_sim_use(tigon_sim *sim, const tigon_sim_modes *modes) { sim->modes = *modes; }
const tigon_sim_modes *tigon_sim_used(const tigon_sim *sim) { return &sim->modes; }

static void run_block(tigon_sim *sim, tigon_sim_kernel *kernel, const void *arguments, int64_t block) {
  ub_arena ub = {0};
  begin_block(sim, block);
  kernel(&ub, arguments);
  tigon_sim_finish_block(sim);
  double *core = &sim->core_time[block % sim->soc->device.cores];
  for (int p = 0; p < SIM_PIPES; ++p) *core = sim->time[p] > *core ? sim->time[p] : *core;
  if (ub.used > sim->counters.ub_bytes) sim->counters.ub_bytes = ub.used;
  sim->counters.instructions += sim->issued;
}

bool tigon_sim_launch(tigon_sim *sim, const char *name, tigon_sim_kernel *kernel, const void *arguments,
                      int64_t blocks) {
  const tigon_device_desc *device = &sim->soc->device;
  sim->report = (tigon_sim_report_text){0};
  sim->kernel = name;
  sim->stopped = false;
  sim->block = sim->issued = 0;
  sim->blocks = blocks;
  sim->all_reads.count = sim->all_writes.count = 0;
  memset(sim->core_time, 0, (size_t)device->cores * sizeof *sim->core_time);
  if (blocks < 1 || blocks > device->grid_limit)
    tigon_sim_fail(
        sim, NULL, SIM_BLOCKS, 0,
        "%lld blocks, a launch can have 1 to %lld. Fix: launch as many blocks as there are cores, and let each "
        "loop over its tasks",
        (long long)blocks, (long long)device->grid_limit);
  tigon_sim *const before = tigon_sim_now;
  tigon_sim_now = sim;
  for (int64_t block = 0; block < blocks && !sim->stopped; ++block) run_block(sim, kernel, arguments, block);
  tigon_sim_now = before;
  if (!sim->stopped) tigon_sim_check_sharing(sim);

  double slowest = 0;
  for (int64_t core = 0; core < device->cores; ++core)
    slowest = sim->core_time[core] > slowest ? sim->core_time[core] : slowest;
  const int64_t active = blocks < device->cores ? blocks : device->cores;
  const double microseconds = slowest / sim->soc->mhz + device->launch_us + (double)active * device->start_us_per_core;
  sim->trace_start += microseconds;
  sim->counters.launches += 1;
  if (blocks > sim->counters.blocks) sim->counters.blocks = blocks;
  sim->counters.cycles += slowest;
  sim->counters.microseconds += microseconds;
  sim->buffer_count = 0;
  return !sim->stopped;
}

int64_t tigon_sim_block_index(void) { return tigon_sim_now->block; }
int64_t tigon_sim_block_count(void) { return tigon_sim_now->blocks; }
