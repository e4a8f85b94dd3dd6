/* The CPU as a backend: host memory, OpenMP threads, one table of kernels per instruction set. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cpu/cpu.h"
#include "cpu/gemm.h"
#include "cpu/math_probe.h"

extern const tigon_kernels tigon_cpu_scalar_kernels, tigon_cpu_avx2_kernels, tigon_cpu_avx512_kernels,
    tigon_cpu_avx512_bf16_kernels, tigon_cpu_amx_kernels;

static bool has_scalar(void) { return true; }

/* The instruction sets of this build, best first. A CPU that has one has those below it. */
#define SET(name) \
  { &tigon_cpu_##name##_kernels, tigon_cpu_has_##name, tigon_cpu_##name##_math_probe }
static const struct set {
  const tigon_kernels *kernels;
  bool (*is_here)(void);
  tigon_math_probe *math_probe;
} sets[] = {
#if defined(TIGON_HAVE_AMX)
    SET(amx),
#endif
#if defined(TIGON_HAVE_AVX512_BF16)
    SET(avx512_bf16),
#endif
#if defined(TIGON_HAVE_AVX512)
    SET(avx512),
#endif
#if defined(TIGON_HAVE_AVX2)
    SET(avx2),
#endif
    {&tigon_cpu_scalar_kernels, has_scalar, tigon_cpu_scalar_math_probe},
};
enum { SETS = sizeof sets / sizeof *sets };

static int cpu_count(const char **reason) {
  *reason = "";
  return 1;
}

static const tigon_kernels *here[SETS + 1];
static void find_here(void) {
  int count = 0;
  for (int i = 0; i < SETS; ++i)
    if (sets[i].is_here()) here[count++] = sets[i].kernels;
}

static const tigon_kernels *const *cpu_variants(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_here);
  return here;
}

tigon_math_probe *tigon_cpu_math_probe_of(const tigon_kernels *kernels) {
  int i = 0;
  while (sets[i].kernels != kernels) ++i;
  return sets[i].math_probe;
}

static tigon_status cpu_open(int index, tigon_queue *queue, const char **reason) {
  enum { MOST_THREADS = 4096 };
  static _Thread_local char sentence[160];
  const bool chosen = queue->threads > 0;
  (void)index;
#if defined(_OPENMP)
  if (!chosen) queue->threads = omp_get_max_threads();
#endif
  if (queue->threads == 0) queue->threads = 1;
  *reason = sentence;
  if (queue->threads > MOST_THREADS) {
    snprintf(sentence, sizeof sentence, "%s is %d, must be %d or fewer",
             chosen ? "threads" : "the number of OpenMP's threads (OMP_NUM_THREADS)", queue->threads, MOST_THREADS);
    return TIGON_ERROR_INVALID;
  }
  const tigon_status status = tigon_gemm_open(queue, reason);
  if (status != TIGON_OK) return status;
  const int there = tigon_cpu_threads_there(queue->threads);
  if (there == queue->threads) return TIGON_OK;
  tigon_gemm_close(queue);
  snprintf(sentence, sizeof sentence,
           "%d of %d threads can be started (a limit of ulimit -u or -v, or of a control group); fewer threads may do",
           there, queue->threads);
  *reason = sentence;
  return TIGON_ERROR_DEVICE;
}

static void cpu_close(tigon_queue *queue) { tigon_gemm_close(queue); }

static tigon_status cpu_sync(tigon_queue *queue) {
  (void)queue;
  return TIGON_OK;
}

static tigon_status cpu_alloc(tigon_queue *queue, size_t bytes, void **memory) {
  (void)queue;
  if (bytes > SIZE_MAX - 63) return TIGON_ERROR_OUT_OF_MEMORY;
  *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
  return *memory ? TIGON_OK : TIGON_ERROR_OUT_OF_MEMORY;
}

static void cpu_free(tigon_queue *queue, void *memory) {
  (void)queue;
  free(memory);
}

static tigon_status cpu_copy(tigon_queue *queue, void *to, const void *from, size_t bytes) {
  (void)queue;
  memmove(to, from, bytes);
  return TIGON_OK;
}

static tigon_status cpu_fill(tigon_queue *queue, void *memory, int value, size_t bytes) {
  (void)queue;
  memset(memory, value, bytes);
  return TIGON_OK;
}

typedef struct rows_copy {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, bytes;
} rows_copy;

static void copy_row(const void *argument, int64_t index) {
  const rows_copy *c = argument;
  memcpy(c->to + (size_t)index * c->to_pitch, c->from + (size_t)index * c->from_pitch, c->bytes);
}

static tigon_status cpu_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                  size_t bytes, int64_t rows) {
  const rows_copy c = {to, from, to_pitch, from_pitch, bytes};
  tigon_cpu_parallel_bytes(queue, rows, 2 * rows * (int64_t)bytes, copy_row, &c);
  return TIGON_OK;
}

static const tigon_device *cpu_describe(const tigon_queue *queue) {
  static const tigon_device cpu = {.name = "cpu", .cores = TIGON_CPU_TASKS};
  (void)queue;
  return &cpu;
}

const tigon_backend tigon_cpu_backend = {
    .abi = TIGON_BACKEND_ABI,
    .name = "cpu",
    .host_memory = true,
    .count = cpu_count,
    .variants = cpu_variants,
    .variant_variable = "TIGON_CPU",
    .open = cpu_open,
    .close = cpu_close,
    .sync = cpu_sync,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .copy_rows = cpu_copy_rows,
    .describe = cpu_describe,
    .gemm = tigon_gemm_describe,
};
