/* The oracle as a backend: scalar C in double precision. It borrows the CPU's memory. */
#include "backend.h"
#include "ref/ref.h"

extern const tigon_backend tigon_cpu_backend;

static int ref_count(const char **reason) {
  *reason = "";
  return 1;
}

static const tigon_kernels kernels = {
    .variant = "ref",
    .tile = 1,
#define TIGON_SLOT(op, entry) .op##_##entry = {.run = tigon_ref_##op##_##entry, .dtypes = TIGON_FLOATS},
#include "ops.def"
};

static const tigon_kernels *const *ref_variants(void) {
  static const tigon_kernels *const all[] = {&kernels, NULL};
  return all;
}

static tigon_status ref_open(int index, tigon_queue *queue, const char **reason) {
  (void)index;
  *reason = "";
  queue->threads = 1;
  return TIGON_OK;
}

static void ref_close(tigon_queue *queue) { (void)queue; }
static tigon_status ref_sync(tigon_queue *queue) { return tigon_cpu_backend.sync(queue); }
static tigon_status ref_alloc(tigon_queue *queue, size_t bytes, void **memory) {
  return tigon_cpu_backend.alloc(queue, bytes, memory);
}
static void ref_free(tigon_queue *queue, void *memory) { tigon_cpu_backend.free(queue, memory); }
static tigon_status ref_copy(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  return tigon_cpu_backend.copy(queue, to, from, bytes);
}
static tigon_status ref_fill(tigon_queue *queue, void *memory, int value, size_t bytes) {
  return tigon_cpu_backend.fill(queue, memory, value, bytes);
}
static tigon_status ref_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t bytes, int64_t rows) {
  return tigon_cpu_backend.copy_rows(queue, to, to_pitch, from, from_pitch, bytes, rows);
}
static const tigon_device *ref_describe(const tigon_queue *queue) { return tigon_cpu_backend.describe(queue); }
static const char *ref_gemm(const tigon_queue *queue) {
  (void)queue;
  return "oracle: run_to_run, thread_count, batch";
}

const tigon_backend tigon_ref_backend = {
    .abi = TIGON_BACKEND_ABI,
    .name = "ref",
    .host_memory = true,
    .count = ref_count,
    .variants = ref_variants,
    .open = ref_open,
    .close = ref_close,
    .sync = ref_sync,
    .alloc = ref_alloc,
    .free = ref_free,
    .copy = ref_copy,
    .fill = ref_fill,
    .copy_rows = ref_copy_rows,
    .describe = ref_describe,
    .gemm = ref_gemm,
};
