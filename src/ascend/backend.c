/* The simulator as a backend: the Ascend kernels on this machine, in host memory. A device is called by its part, as in
 * "ascend-sim:910B4", and is never inferred. */
#include <stdlib.h>

#include "ascend/ascend.h"
#include "ascend/borrowed.h"
#include "ascend/plan/device_override.h"

extern const tigon_backend tigon_cpu_backend;

static int sim_count(const char **reason) {
  int count = 0;
  *reason = "";
  while (tigon_sim_soc_at(count)) ++count;
  return count;
}

static const char *sim_name(int index) { return tigon_sim_soc_at(index)->name; }

static int sim_find(const char *name) {
  const tigon_sim_soc *soc = tigon_sim_soc_find(name);
  int index = 0;
  if (!soc) return -1;
  while (tigon_sim_soc_at(index) != soc) ++index;
  return index;
}

extern const tigon_kernels tigon_ascend_kernels; /* also those of the NPU */

static const tigon_kernels *const *sim_variants(void) {
  static const tigon_kernels *const all[] = {&tigon_ascend_kernels, NULL};
  return all;
}

static void sim_close(tigon_queue *queue) {
  ascend_device *device = ascend_of(queue);
  if (device->host.backend) tigon_cpu_backend.close(&device->host);
  tigon_sim_close(device->sim);
  free(device->scratch);
  free(device);
}

static tigon_status sim_open(int index, tigon_queue *queue, const char **reason) {
  tigon_sim_modes modes;
  if (!tigon_sim_modes_read(&modes, reason)) return TIGON_ERROR_INVALID;
  ascend_device *device = calloc(1, sizeof *device);
  *reason = "out of memory";
  if (!device) return TIGON_ERROR_OUT_OF_MEMORY;
  tigon_queue host = {.variant = ascend_borrowed()->variant, .threads = queue->threads};
  queue->state = device;
  queue->threads = 1;
  device->part = *tigon_sim_soc_at(index);
  device->soc = &device->part;
  if (!tigon_ascend_override(&device->part.device, 0, reason)) {
    free(device);
    return TIGON_ERROR_INVALID;
  }
  ascend_describe(device);
  device->sim = tigon_sim_open(device->soc);
  device->scratch = malloc(ASCEND_SCRATCH_BYTES);
  tigon_status status = device->sim && device->scratch ? TIGON_OK : TIGON_ERROR_OUT_OF_MEMORY;
  if (device->sim) tigon_sim_use(device->sim, &modes);
  if (status == TIGON_OK) status = tigon_cpu_backend.open(0, &host, reason);
  if (status == TIGON_OK) {
    host.backend = &tigon_cpu_backend;
    device->host = host;
    return TIGON_OK;
  }
  sim_close(queue);
  return status;
}

static tigon_status sim_sync(tigon_queue *queue) { return tigon_cpu_backend.sync(queue); }
/* On 512 bytes, as the device's memory is given out: transfers at full rate start there. */
static tigon_status sim_alloc(tigon_queue *queue, size_t bytes, void **memory) {
  enum { LINE = 512 };
  (void)queue;
  if (bytes > SIZE_MAX - (LINE - 1)) return TIGON_ERROR_OUT_OF_MEMORY;
  *memory = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
  return *memory ? TIGON_OK : TIGON_ERROR_OUT_OF_MEMORY;
}
static void sim_free(tigon_queue *queue, void *memory) { tigon_cpu_backend.free(queue, memory); }
static tigon_status sim_copy(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  return tigon_cpu_backend.copy(queue, to, from, bytes);
}
static tigon_status sim_fill(tigon_queue *queue, void *memory, int value, size_t bytes) {
  return tigon_cpu_backend.fill(queue, memory, value, bytes);
}
static tigon_status sim_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t bytes, int64_t rows) {
  return tigon_cpu_backend.copy_rows(queue, to, to_pitch, from, from_pitch, bytes, rows);
}
static const tigon_device *sim_describe(const tigon_queue *queue) { return &ascend_of(queue)->about; }
static ascend_plans *sim_plans(const tigon_queue *queue) { return &ascend_of(queue)->plans; }
static tigon_precision sim_precision(const tigon_queue *queue) {
  const tigon_sim_modes *modes = tigon_sim_used(ascend_of(queue)->sim);
  return (tigon_precision){modes->noise > 0 ? 1 : 0, modes->flush, true};
}
static void sim_model(const tigon_queue *queue, tigon_model_counts *counts) {
  tigon_sim *sim = ascend_of(queue)->sim;
  if (!counts) {
    tigon_sim_reset(sim);
    return;
  }
  const tigon_sim_counters *c = tigon_sim_counted(sim);
  const double cycles = c->cycles * (double)ascend_of(queue)->soc->device.cores;
  *counts = (tigon_model_counts){.seconds = c->microseconds * 1e-6,
                                 .bytes_moved = c->bytes_loaded + c->bytes_stored,
                                 .onchip_bytes = c->ub_bytes,
                                 .grid = c->blocks};
  if (cycles <= 0) return;
  counts->vector_share = c->busy[PIPE_V] / cycles;
  counts->dma_share = (c->busy[PIPE_MTE2] + c->busy[PIPE_MTE3]) / cycles;
}
static bool sim_trace(const tigon_queue *queue, FILE *file) {
  if (file) return tigon_sim_write_trace(ascend_of(queue)->sim, file);
  tigon_sim_trace(ascend_of(queue)->sim);
  return true;
}
static const tigon_kernels *sim_borrowed(const tigon_queue *queue, tigon_queue **host) {
  *host = &ascend_of(queue)->host;
  return ascend_borrowed();
}
static const char *sim_gemm(const tigon_queue *queue) {
  (void)queue;
  return "the CPU's kernels";
}

const tigon_backend tigon_ascend_sim_backend = {
    .abi = TIGON_BACKEND_ABI,
    .name = "ascend-sim",
    .host_memory = true,
    .count = sim_count,
    .find = sim_find,
    .name_of = sim_name,
    .variants = sim_variants,
    .open = sim_open,
    .close = sim_close,
    .sync = sim_sync,
    .alloc = sim_alloc,
    .free = sim_free,
    .copy = sim_copy,
    .fill = sim_fill,
    .copy_rows = sim_copy_rows,
    .describe = sim_describe,
    .plans = sim_plans,
    .precision = sim_precision,
    .model = sim_model,
    .trace = sim_trace,
    .borrowed = sim_borrowed,
    .gemm = sim_gemm,
};
